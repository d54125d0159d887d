# SPDX-License-Identifier: BSD-3-Clause
"""Groups of parameters that several estimators share, as objects.

A grid search over an estimator that is given one reaches its parameters by name:
``runtime__dtype``. :class:`skdistill.pruning.GroupLasso`, the generators of
:mod:`skdistill.transfer` and the samplers of :mod:`skdistill.samplers` are such objects too.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any

from ._utils.settings import Settings
from ._utils.validation import Number, OneOf

__all__ = ["Runtime"]


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
    Runtime(device='cpu', dtype='float64', n_threads=1)
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
