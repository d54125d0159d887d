# SPDX-License-Identifier: BSD-3-Clause
"""Groups of parameters of estimators, as objects.

A grid search reaches the parameters of such an object by name: ``runtime__dtype``. Some objects may
be replaced by their first parameter: ``heads=20`` is ``heads=Heads(20)``.
:class:`skdistill.pruning.GroupLasso`, the generators of :mod:`skdistill.transfer` and the inference
methods of :mod:`skdistill.samplers` are such objects too.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any

from ._utils.validation import FilePath, Interval, Number, OneOf, Schedule, Settings, SettingsRule

__all__ = [
    "Checkpoint",
    "Connection",
    "EarlyStopping",
    "Estimate",
    "Heads",
    "HydraLoss",
    "Optimizer",
    "Runtime",
    "WeakLearnerSearch",
]


@dataclass(eq=False, repr=False)
class Checkpoint(Settings):
    """The file that holds the state of a fit while it lasts.

    A fit that finds it, with the same data and parameters, goes on where the one that wrote it was
    killed, to the same model (on a CPU bit for bit); at the end the file is removed. A file that is
    damaged, or of another fit or in use by one, is refused with a ValueError, and so are parameters
    that cannot be compared with other values, such as lambdas and locks. The memory of your
    own callbacks is not saved. With several jobs a block of members is saved when it has ended.

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


@dataclass(eq=False, repr=False)
class Connection(Settings):
    """How learners of a :class:`skdistill.BDistilBooster` read those before them.

    Parameters
    ----------
    kind : {"none", "residual", "dense", "lstm", "gru"}, default="residual"
        How a learner uses the last hidden activations of an earlier one: not at all, added to its
        own, concatenated with its own, or through the gates of an LSTM or a GRU, which have a
        weight for each unit. Where widths differ they are projected, except for "dense".
    head_layers : int, default=1
        How many of a network's last layers with parameters come after the connections. With 2, the
        learners of an MLP get deeper round by round.
    expansions : int, default=2
        Classes that a model class is expanded to, R. The first has no connections; the r-th reads
        the r - 1 learners before it.
    connect : {"when_needed", "always"}, default="when_needed"
        Whether to search the class without connections first. Learners without connections can run
        side by side; those with connections make more of the same number of rounds.
    """

    _parameter_table = {
        "kind": OneOf(("none", "residual", "dense", "lstm", "gru")),
        "head_layers": Number(Integral, 1),
        "expansions": Number(Integral, 1),
        "connect": OneOf(("when_needed", "always")),
    }

    kind: str = "residual"
    _: KW_ONLY
    head_layers: int = 1
    expansions: int = 2
    connect: str = "when_needed"


@dataclass(eq=False, repr=False)
class EarlyStopping(Settings):
    """When a member of an ensemble stops, with its best weights: by its loss on held-out samples.

    Parameters
    ----------
    validation_fraction : float, default=0.1
        Share of the samples, and of every class, that is held out, between 0 and 1.
    n_iter_no_change : int or "auto", default="auto"
        Epochs without improvement after which a member stops; "auto" is a quarter of `max_epochs`
        and at least 20. Far fewer stop members before learning rate and loss have fallen.
    tol : float, default=1e-4
        Smallest decrease of the validation loss that counts as improvement.
    """

    _of_defaults = True
    _parameter_table = {
        "validation_fraction": Number(Real, 0, 1, closed="neither"),
        "n_iter_no_change": Number(Integral, 1, others=("auto",)),
        "tol": Number(Real, 0),
    }

    _: KW_ONLY
    validation_fraction: float = 0.1
    n_iter_no_change: int | str = "auto"
    tol: float = 1e-4


@dataclass(eq=False, repr=False)
class Estimate(Settings):
    """How a :class:`skdistill.GPEDDistiller` estimates expectations for the transfer set.

    Parameters
    ----------
    kind : {"online", "stochastic"} or dict, default="online"
        "online" (U_o, Eq 10 of the paper) is the mean over all samples that have predicted a
        sample, "stochastic" (U_s, Eq 9) the last one; a dict gives it by the names of expectations,
        "online" for the others. "online" keeps a float32 sum for each value of each sample, and a
        count: for n samples and k values ``4 n (k + 1)`` bytes; sums beyond scikit-learn's
        ``working_memory`` are in a temporary file. Of a teacher's stored members, "online" is the
        mean over all, "stochastic" one of them, another for each row of a minibatch.
    n_asked : int, default=4
        How many minibatches of the transfer set the chains predict for each step of the student,
        which learns from the first; the others only update the running means, which are over more
        samples so. The paper has 1. It has no effect where no estimate is "online", or where the
        members of the teacher are stored.
    beside_chains : bool, default=False
        Whether the student of running means takes a step after each sample of the chains, towards
        the means so far, as in Algorithm 1 of the paper; else it learns from the final means when
        the chains have ended, by as many steps. One of last samples always learns beside them.
    """

    _parameter_table = {"n_asked": Number(Integral, 1), "beside_chains": OneOf((False, True))}

    kind: Any = "online"
    _: KW_ONLY
    n_asked: int = 4
    beside_chains: bool = False


@dataclass(eq=False, repr=False)
class Heads(Settings):
    """The heads of a Hydra+ student.

    Parameters
    ----------
    n_heads : int, "auto" or None, default="auto"
        Number of heads M; None is one for each member, "auto" also, but at most 20. With fewer
        heads than members, head n mod M imitates member n; with more, head m imitates member
        m mod N. One head is plain distillation (Hinton's), which cannot tell the parts of the
        uncertainty.
    head_layers : int, default=1
        How many of the module's last layers with parameters belong to a head; the others are the
        core that the heads share.
    """

    _parameter_table = {
        "n_heads": Number(Integral, 1, others=(None, "auto")),
        "head_layers": Number(Integral, 1),
    }

    n_heads: int | str | None = "auto"
    _: KW_ONLY
    head_layers: int = 1


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
        Weight of L4 (lambda in [1]_), constant or growing linearly from 0 between two epochs. The
        other terms are means over samples, and L4 one over the units of a layer.
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
    The defaults are not the method of [1]_: labels have no weight (alpha is 1), nor has diversity
    (lambda is 0), and the spread of the heads is matched instead. With the paper's loss the
    epistemic part is not on the teacher's scale. The paper's, with the numbers of its toy
    classification, is ``HydraLoss(teacher_weight=0.9, diversity_weight=4.0, member_temperature=3.0,
    spread_weight=0)`` with ``ddof=0, transfer=None``.

    Hydra is ``HydraLoss(member_weight=1, spread_weight=0)`` with ``transfer=None``, and Hinton's
    distillation ``HydraLoss(member_weight=0, spread_weight=0)`` with ``heads=1, transfer=None``.

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


@dataclass(eq=False, repr=False)
class Optimizer(Settings):
    """How the steps of training are taken, beside the learning rate.

    Parameters
    ----------
    kind : str or torch optimizer class, default="Adam"
        Name of an optimizer in ``torch.optim``, or its class; its parameters are given to the
        estimator, as ``optimizer__<name>``.
    lr_schedule : {"cosine", None}, default="cosine"
        Schedule of the learning rate over the epochs.
    clip_norm : float, "auto" or None, default="auto"
        Largest norm of each network's gradient; "auto" is 5 for students, and None for members of
        ensembles, whose gradients stay as they are.

    Examples
    --------
    >>> from skdistill import BayesianEnsembleClassifier
    >>> from skdistill.settings import Optimizer
    >>> ensemble = BayesianEnsembleClassifier(optimizer=Optimizer("SGD", clip_norm=1.0))
    >>> ensemble.set_params(optimizer__momentum=0.9, optimizer__clip_norm=2.0).optimizer
    Optimizer(kind='SGD', clip_norm=2.0)
    """

    _parameter_table = {
        "lr_schedule": OneOf((None, "cosine")),
        "clip_norm": Number(Real, 0, closed="neither", others=("auto", None)),
    }

    kind: Any = "Adam"
    _: KW_ONLY
    lr_schedule: str | None = "cosine"
    clip_norm: float | str | None = "auto"


@dataclass(eq=False, repr=False)
class Runtime(Settings):
    """How and where an estimator computes.

    Parameters
    ----------
    dtype : {"auto", "float32", "float64"}, default="auto"
        What to compute in; predictions have the dtype of X in any case. "auto" is that of X, but
        float32 for tables of 200 samples and more whose columns it can hold. `BDistilBooster` and
        `GPEDDistiller` compute in the dtype of X, `SequenceDistributionDistiller` in float32: they
        take "auto" only.
    device : str, default="auto"
        Torch device; "auto" is CUDA when there is one.
    compile : bool or "auto", default="auto"
        "auto" replays training steps as CUDA graphs on a GPU and does nothing on a CPU; True
        passes them through ``torch.compile``, which takes seconds once; False does neither.
    n_threads : int or "auto", default="auto"
        Threads of torch during `fit`; "auto" is one where a training step is too small for more,
        and else the caller's setting, which is restored. If `n_jobs` is given, it is the number of
        each job, and "auto" is one. Several threads may round large matrix products in another way.
    member_block : int or "auto", default="auto"
        How many members of an ensemble are trained together, as one stack; "auto" takes as many as
        fit the cache of a CPU, and all on a GPU. On a CPU it divides 20 members or more into blocks
        of at least ten in fits of more than a few seconds, for `n_jobs`. From one size to another
        members are the same to rounding, but with dropout. Distillers take "auto" only.
    checkpoint : str, path or Checkpoint, default=None
        File from which a fit that was killed goes on, that of the teacher included.

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
        "checkpoint": SettingsRule(Checkpoint, FilePath(optional=True)),
    }

    _: KW_ONLY
    dtype: str = "auto"
    device: Any = "auto"
    compile: bool | str = "auto"
    n_threads: int | str = "auto"
    member_block: int | str = "auto"
    checkpoint: Any = None


@dataclass(eq=False, repr=False)
class WeakLearnerSearch(Settings):
    """How a :class:`skdistill.BDistilBooster` searches the learner of a round.

    Parameters
    ----------
    max_search : int, default=5
        Networks to train in a class until one is added. The weight of the barrier is bisected: it
        grows without a weak learner, falls if the learner overshot, and begins a round as it was
        for the last learner of the class.
    gamma : float, default=1.0
        Inverse weight of the barrier that a class begins with. The larger, the more a learner
        imitates the teacher, and the less it corrects the errors made before it.
    temperature : float, default=1.0
        Temperature of the task loss, the cross-entropy between teacher and learner. 1 for
        regressors, whose task loss is the squared error.
    eta : float or "auto", default="auto"
        Learning rate of the samples' weights; "auto" is that of Theorem 1 of the paper, whose bound
        is of use only for more than ``2.25 * log(2 * n_samples)`` rounds.
    literal : bool, default=False
        Whether learners are searched as in the paper, for comparison: the barrier counts the signs
        of ``K_plus - K_minus`` alone, its weight does not change, and every weak learner is added
        with the weight 1, though the mean may be farther from the teacher then. The paper's `eta`
        is 1. Its Eq 6 sums the barrier over samples and classes, of which this one is the mean: its
        gamma is `gamma` times their number.
    """

    _parameter_table = {
        "max_search": Number(Integral, 1),
        "gamma": Number(Real, 1e-30),
        "temperature": Number(Real, 0, closed="neither"),
        "eta": Number(Real, 0, closed="neither", others=("auto",)),
        "literal": OneOf((False, True)),
    }

    _: KW_ONLY
    max_search: int = 5
    gamma: float = 1.0
    temperature: float = 1.0
    eta: float | str = "auto"
    literal: bool = False
