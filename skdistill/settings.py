# SPDX-License-Identifier: BSD-3-Clause
"""Groups of parameters of estimators, as objects.

A grid search over an estimator that is given one reaches its parameters by name:
``runtime__dtype``. :class:`skdistill.pruning.GroupLasso`, the generators of
:mod:`skdistill.transfer` and the samplers of :mod:`skdistill.samplers` are such objects too.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any

from ._utils.settings import Settings
from ._utils.validation import FilePath, Interval, Number, OneOf, Schedule

__all__ = ["Checkpoint", "EarlyStopping", "HydraLoss", "Runtime"]


@dataclass(eq=False, repr=False)
class Checkpoint(Settings):
    """The file that holds the state of a fit while it lasts.

    A fit that finds it, with the same data and parameters, goes on where the one that wrote it was
    killed, to the same model (on a CPU bit for bit); at the end the file is removed. One that is
    damaged, of another fit, or in use by another fit is refused with a ValueError, and so are
    parameters that cannot be compared with other values, such as objects that hold a lock. The
    memory of your own callbacks is not saved. With several jobs a block of members is saved when it
    has ended.

    Parameters
    ----------
    path : str or path
    every : float or str, default=60.0
        Seconds between two writings, at least, or a number of epochs: "10 epochs".
    """

    _parameter_table = {"path": FilePath(), "every": Interval()}

    path: Any
    _: KW_ONLY
    every: float | str = 60.0

    @classmethod
    def of(cls, given: Any) -> Checkpoint | None:
        """Return what is given as ``checkpoint=``; a path stands for one with the defaults."""
        return given if given is None or isinstance(given, cls) else cls(given)


@dataclass(eq=False, repr=False)
class EarlyStopping(Settings):
    """When each member of an ensemble stops training, by held-out samples.

    A member stops, with its best weights, when its loss on these samples has not improved.

    Parameters
    ----------
    validation_fraction : float, default=0.1
        Share of the samples, and of every class, that is held out, between 0 and 1.
    n_iter_no_change : int or "auto", default="auto"
        Epochs without improvement after which a member stops; "auto" is a quarter of `max_epochs`
        and at least 20. Far fewer stop members before the learning rate has fallen, and with it
        the loss.
    tol : float, default=1e-4
        Smallest decrease of the validation loss that counts as improvement.
    """

    _parameter_table = {
        "validation_fraction": Number(Real, 0, 1, closed="neither"),
        "n_iter_no_change": Number(Integral, 1, others=("auto",)),
        "tol": Number(Real, 0),
    }

    _: KW_ONLY
    validation_fraction: float = 0.1
    n_iter_no_change: int | str = "auto"
    tol: float = 1e-4

    @classmethod
    def of(cls, given: EarlyStopping | bool) -> EarlyStopping | None:
        """Return what is given as ``early_stopping=``: True stands for the defaults."""
        return given if isinstance(given, cls) else cls() if given else None


@dataclass(eq=False, repr=False)
class HydraLoss(Settings):
    """Weights and temperatures of the terms that Hydra+ minimises.

    Parameters
    ----------
    teacher_weight : float, default=1.0
        Weight of the teacher against the labels (alpha in [1]_), from 0 to 1.
    member_weight : float, default=0.5
        Weight of the individual members (L3) against their aggregate (L2; beta in [1]_), from 0
        to 1.
    diversity_weight : float or tuple (weight, first_epoch, last_epoch), default=0.0
        Weight of L4 (lambda in [1]_), constant or growing linearly from 0 between two epochs.
    diversity : {"mean", "pairwise"}, default="mean"
        Whether L4 compares a head's weights with the heads' mean (Eq 9) or with each other head's.
    spread_weight : float, default=0.3
        Weight of the terms that match the spread of the heads to that of the members, without which
        the student's epistemic part comes out too small, or of another scale; it grows linearly to
        this over the epochs. 0 gives the paper's loss, of a regressor without a gain.
    aggregate_temperature : float, default=1.0
        Temperature of L2 of a classifier, by which logits are divided; the loss is multiplied by
        its square.
    member_temperature : float, default=4.0
        Temperature of L3 of a classifier.

    Notes
    -----
    Hydra is ``HydraLoss(member_weight=1, spread_weight=0)`` with ``transfer=None``, and Hinton's
    distillation ``HydraLoss(member_weight=0, spread_weight=0)`` with ``n_heads=1, transfer=None``.

    References
    ----------
    .. [1] Ferianc & Rodrigues (2022), "Simple Regularisation for Uncertainty-Aware Knowledge
           Distillation".
    """

    _parameter_table = {
        "teacher_weight": Number(Real, 0, 1),
        "member_weight": Number(Real, 0, 1),
        "diversity_weight": Schedule(),
        "diversity": OneOf(("mean", "pairwise")),
        "spread_weight": Number(Real, 0),
        "aggregate_temperature": Number(Real, 0, closed="neither"),
        "member_temperature": Number(Real, 0, closed="neither"),
    }

    _: KW_ONLY
    teacher_weight: float = 1.0
    member_weight: float = 0.5
    diversity_weight: Any = 0.0
    diversity: str = "mean"
    spread_weight: float = 0.3
    aggregate_temperature: float = 1.0
    member_temperature: float = 4.0

    @classmethod
    def of(cls, given: HydraLoss | None) -> HydraLoss:
        """Return what is given as ``loss=``; None stands for the defaults."""
        return cls() if given is None else given


@dataclass(eq=False, repr=False)
class Runtime(Settings):
    """How and where an estimator computes.

    Parameters
    ----------
    dtype : {"auto", "float32", "float64"}, default="auto"
        What to compute in. "auto" is the dtype of X, but float32 for tables of 200 samples and more
        whose columns it can hold. Predictions have the dtype of X in any case. `BDistilBooster` and
        `GPEDDistiller` compute in the dtype of X, `SequenceDistributionDistiller` in float32: they
        take "auto" only.
    device : str, default="auto"
        Torch device; "auto" is CUDA when there is one.
    compile : bool or "auto", default="auto"
        "auto" replays training steps as CUDA graphs on a GPU and does nothing on a CPU; True
        passes them through ``torch.compile``, which takes seconds once; False does neither.
    n_threads : int or "auto", default="auto"
        Threads of torch during `fit`; "auto" is one where a training step is too small for more,
        and else the caller's setting, which is restored in any case. If `n_jobs` is given, it is
        the number of each job, and "auto" is one. Several threads may round large matrix products
        in another way.
    member_block : int or "auto", default="auto"
        How many members of an ensemble are trained together, as one stack; "auto" takes as many as
        fit the cache of a CPU, and all on a GPU. On a CPU it divides 20 members or more into blocks
        of at least ten if the fit takes more than a few seconds, so that `n_jobs` has tasks to give
        out. Members are the same to rounding, and with dropout differ, from one size to another.
        Distillers take "auto" only.

    Examples
    --------
    >>> from skdistill import BayesianEnsembleClassifier
    >>> from skdistill.settings import Runtime
    >>> ensemble = BayesianEnsembleClassifier(runtime=Runtime(dtype="float64", device="cpu"))
    >>> ensemble.set_params(runtime__n_threads=1).runtime
    Runtime(dtype='float64', device='cpu', n_threads=1)
    """

    _parameter_table = {
        "dtype": OneOf(("auto", "float32", "float64")),
        "compile": OneOf(("auto", True, False)),
        "n_threads": Number(Integral, 1, others=("auto",)),
        "member_block": Number(Integral, 1, others=("auto",)),
    }

    _: KW_ONLY
    dtype: str = "auto"
    device: Any = "auto"
    compile: bool | str = "auto"
    n_threads: int | str = "auto"
    member_block: int | str = "auto"

    @classmethod
    def of(cls, given: Runtime | None) -> Runtime:
        """Return what is given as ``runtime=``; None stands for the defaults."""
        return cls() if given is None else given
