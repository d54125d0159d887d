# SPDX-License-Identifier: BSD-3-Clause
"""How members of an ensemble are drawn: settings that a user gives as ``inference=``."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np

from .._utils.validation import AnyOf, Number, OneOf, Settings, SettingsRule
from ..settings import EarlyStopping
from ._updates import FRICTION, RELATIVE_STEP, SamplingOptimizer, SGHMCOptimizer, SGLDOptimizer

_N_CHAINS = 4  # chains that run side by side where the step size is found

_POSITIVE_OR_NONE = Number(Real, 0, closed="neither", others=(None,))


@dataclass(eq=False, repr=False)
class DeepEnsemble(Settings):
    """Members that are trained each from weights of its own.

    Parameters
    ----------
    bootstrap : {"auto", True, False}, default="auto"
        How the data of members differ. "auto", with at least 50 samples: numbers have normal noise
        added to them, of the variance that the member predicts (randomise, then optimise [1]_);
        samples of classes have random weights (the Bayesian bootstrap [2]_). Members then vary as
        the mean of the ensemble would from one table of the kind to another, which is what the
        epistemic part is to say; of what they vary more, `calibration_` takes off. True draws a
        bootstrap sample of the rows for each member, in proportion to `sample_weight`, and False
        lets all members have the same data: a plain deep ensemble, whose epistemic part is mostly
        too small.
    early_stopping : bool or EarlyStopping, default=False
        Whether, and how, held-out samples tell when each member stops, see
        :class:`skdistill.settings.EarlyStopping`.
    max_restarts : int, default=3
        How often members whose loss becomes infinite, not a number or explodes are trained anew
        from another seed. Members that still diverge are left out, with a warning.
    tune : {"auto", "oob", None}, default="auto"
        Whether the first members are trained by several settings, of which the one with the least
        negative log-likelihood of the samples that they leave out, as with `calibrate`, trains the
        others, see `tuning_`.

        "oob" lets 4 members try the parameters given; a `prior_scale` twice as large
        (``BayesianEnsembleRegressor``, on less than 10,000 samples) or .3 times as large
        (``BayesianEnsembleClassifier``); and, for an MLP without ``module__activation`` and
        ``module__embeddings``, "silu" units without embeddings, which suit what is smooth. From
        10,000 samples on the last is, unless you have set a parameter of it, wider networks with
        finer embeddings, for 40 epochs at most (``BayesianEnsembleRegressor``), or embeddings by
        trees (``BayesianEnsembleClassifier``). It takes two to four times as long. Not with batches
        and ``module=TabM``.

        "auto" is for calibrated classifiers of at least 10 members with the default `prior_scale`,
        without `max_time`: if the members are overconfident, with a temperature above 1.6, others
        are trained with .3 times the `prior_scale`, which suits noisy labels. It then takes twice
        as long. For others it is None.
    calibrate : {"auto", "oob", None}, default="auto"
        "oob" lets each member leave out a tenth of the rows, the next one the next tenth (for
        classes, two in turn the same one; from 10,000 rows on, five). It multiplies the members'
        variances by the number with the least CRPS of these rows' targets, or divides their logits
        by the one with the least log loss of the labels, see `calibration_`; the log loss is an
        estimate of that of all members, as only some have left out each row. From 10,000 rows on
        each member of a classifier also keeps the weights of the epoch with the least Brier score
        of the rows that it leaves out, and stops after a quarter of `max_epochs`, and at least 20,
        without a lower one; with `early_stopping` the rows held out decide instead, by the log
        loss. "auto" is "oob" with at least 50 rows in memory, and else None: members have all rows,
        and intervals are too narrow on small tables. Rows are left out one by one, so with
        calibration one row of weight two is not the same as two rows. With ``module=TabM`` all
        members leave out the same tenth and keep the same epoch, and "auto" is None for regressors
        and with fewer than 10,000 rows.

    References
    ----------
    .. [1] J. Bardsley, A. Solonen, H. Haario, M. Laine. "Randomize-Then-Optimize: A Method for
       Sampling from Posterior Distributions in Nonlinear Inverse Problems". SIAM Journal on
       Scientific Computing 36 (2014).
    .. [2] D. B. Rubin. "The Bayesian Bootstrap". The Annals of Statistics 9 (1981).
    """

    _of_defaults = "deep_ensemble"
    _parameter_table = {
        "bootstrap": OneOf(("auto", True, False)),
        "early_stopping": SettingsRule(EarlyStopping, OneOf((True, False))),
        "max_restarts": Number(Integral, 0),
        "tune": OneOf(("auto", "oob", None)),
        "calibrate": OneOf(("auto", "oob", None)),
    }

    _: KW_ONLY
    bootstrap: bool | str = "auto"
    early_stopping: Any = False
    max_restarts: int = 3
    tune: str | None = "auto"
    calibrate: str | None = "auto"


@dataclass(eq=False, repr=False)
class _Chain(Settings):
    """Settings of Markov chains that advance together."""

    _parameter_table = {
        "step_size": _POSITIVE_OR_NONE,
        "schedule": OneOf(("auto", "constant", "polynomial", "cyclical")),
        "final_step_size": _POSITIVE_OR_NONE,
        "gamma": Number(Real, 0, closed="neither"),
        "n_cycles": Number(Integral, 1),
        "prior_precision": Number(Real, 0, closed="neither", others=("auto", None)),
        "burn_in": AnyOf(Number(Real, 0, 1, closed="left"), Number(Integral, 0)),
        "thinning": Number(Integral, 1, others=("auto",)),
        "n_chains": Number(Integral, 1, others=("auto",)),
        "temperature": Number(Real, 0),
    }

    optimizer_class: ClassVar[type[SamplingOptimizer]]

    step_size: float | None = None
    _: KW_ONLY
    schedule: str = "auto"
    final_step_size: float | None = None
    gamma: float = 0.55
    n_cycles: int = 4
    prior_precision: Any = "auto"
    burn_in: Any = 0.5
    thinning: Any = "auto"
    n_chains: Any = "auto"
    temperature: float = 1.0

    @property
    def relative_step(self) -> float:
        """Step size, times the sum of the sample weights, where gradients have a size of one."""
        raise NotImplementedError  # each sampler defines it

    @property
    def is_relative(self) -> bool:
        """Whether each weight has a step size of its own, found from its gradients."""
        return self.step_size is None

    def resolved(self, n_members: int | None) -> Any:
        """Return these settings with values in the place of "auto".

        Parameters
        ----------
        n_members : int or None
            Number of members, which chains share evenly; None if an observer takes all states.

        Returns
        -------
        settings : SGLD or SGHMC
        """
        n_chains = _N_CHAINS if n_members is None else math.gcd(n_members, _N_CHAINS)
        chosen: dict[str, Any] = {
            "schedule": self._schedule,
            "n_chains": n_chains if self.is_relative else 1,
            "prior_precision": 1.0 if self.is_relative else None,
        }
        return replace(self, **{k: v for k, v in chosen.items() if getattr(self, k) == "auto"})

    @property
    def _schedule(self) -> str:
        if self.schedule != "auto":
            return self.schedule
        return "cyclical" if self.is_relative else "constant"

    def _check_as(self, name: str) -> None:
        super()._check_as(name)
        first, final = self.step_size, self.final_step_size
        if first is None and final is not None:
            raise ValueError(
                "inference__final_step_size must be None with inference__step_size=None, got "
                f"{final!r}."
            )
        if first is None and not self.burn_in:
            raise ValueError(
                "inference__burn_in must be above 0 with inference__step_size=None, which is found "
                f"in burn-in; got {self.burn_in!r}."
            )
        if first is not None and final is not None and final > first:
            raise ValueError(
                f"inference__final_step_size must not be above inference__step_size={first!r}, got "
                f"{final!r}."
            )

    def settings_at(self, iteration: int, n_iterations: int) -> dict[str, object]:
        """Return the keywords of `optimizer_class` that are settings, at an iteration.

        Parameters
        ----------
        iteration, n_iterations : int
            Number of the iteration, from 0 on, and of all of them.

        Returns
        -------
        settings : dict
        """
        length, burn_in = self._phase(n_iterations)
        explores = iteration % length < burn_in
        is_cool = explores and self._schedule == "cyclical"  # Zhang et al. Algorithm 1
        first = step_size = self.relative_step if self.step_size is None else self.step_size
        if self._schedule == "polynomial":  # a (b + t)^-gamma, Welling & Teh Sec 2, both ends
            final = self.final_step_size or first / 100
            growth = float((first / final) ** (1 / self.gamma)) - 1
            progress = iteration / max(n_iterations - 1, 1)
            step_size = float(first * (1 + growth * progress) ** -self.gamma)
        elif self._schedule == "cyclical":  # Zhang et al. Eq 1
            angle = math.pi * (iteration % length) / length
            step_size = first / 2 * (math.cos(angle) + 1)
        return {
            "lr": step_size,
            "temperature": 0.0 if is_cool else self.temperature,
            "adapts": explores if self.is_relative else None,
        }

    def sampling_iterations(self, n_iterations: int) -> np.ndarray:
        """Return the iterations after burn-in; with cycles, after that of each cycle.

        Parameters
        ----------
        n_iterations : int

        Returns
        -------
        iterations : ndarray of int
            Counted from 0, ascending.
        """
        length, burn_in = self._phase(n_iterations)
        return np.flatnonzero(np.arange(n_iterations) % length >= burn_in)

    def _phase(self, n_iterations: int) -> tuple[int, int]:
        """Length of a cycle, or of the run if there are no cycles, and of the burn-in in it."""
        n_phases = self.n_cycles if self._schedule == "cyclical" else 1
        length = -(-n_iterations // n_phases)
        is_number = isinstance(self.burn_in, Integral)
        return length, int(self.burn_in if is_number else self.burn_in * length)


class SGLD(_Chain):
    """Members drawn by stochastic gradient Langevin dynamics [1]_ [2]_.

    Members have equal weights, also where the step size changes; [1]_ weights them by it.

    Parameters
    ----------
    step_size : float, default=None
        Step size eta, at the start of a schedule. With N the sum of the sample weights, eta N / 2
        is the learning rate of a gradient step on the mean loss. None finds a step size for each
        weight in burn-in, of each cycle anew: 0.02 / N over the root mean square of the weight's
        gradients of the mean loss plus 0.01, a preconditioner [4]_ that stays as it is while
        members are drawn.
    schedule : {"auto", "constant", "polynomial", "cyclical"}, default="auto"
        How the step size changes: "polynomial" is a (b + t)^-gamma [1]_ from `step_size` to
        `final_step_size`, "cyclical" falls to zero along half a cosine, `n_cycles` times [3]_.
        "auto" is "constant", but "cyclical" without a `step_size`.
    final_step_size : float, default=None
        Step size of the last iteration, for "polynomial"; None is a hundredth of `step_size`.
    gamma : float, default=0.55
        Exponent of the decay, for "polynomial"; in (0.5, 1] by theory [1]_.
    n_cycles : int, default=4
        Number of cycles, for "cyclical".
    prior_precision : float, None or "auto", default="auto"
        Precision tau of a prior N(0, 1 / tau) on all weights and biases, in place of the
        ensemble's `prior_scale`; None lets `prior_scale` stand, whose default is wide for a
        posterior. "auto" is None, but 1 without a `step_size`.
    burn_in : float or int, default=0.5
        Iterations before any member is kept, or their share of the run; with "cyclical", of each
        cycle, and without noise.
    thinning : int or "auto", default="auto"
        Number of iterations from one kept member to the next; the last `n_members` are kept.
        "auto" spreads the members evenly over the iterations after burn-in.
    n_chains : int or "auto", default="auto"
        Number of parallel chains, from different initial weights, which share the members. "auto"
        is 1, but without a `step_size` 4, or 2 or 1 where members are to be kept and `n_members`
        is no multiple of that.
    temperature : float, default=1.0
        The members are draws from the posterior to the power 1 / temperature.

    References
    ----------
    .. [1] Welling & Teh (2011), "Bayesian Learning via Stochastic Gradient Langevin Dynamics".
    .. [2] Vadera et al. (2020), "Generalized Bayesian Posterior Expectation Distillation for Deep
           Neural Networks", Eq 7.
    .. [3] Zhang et al. (2020), "Cyclical Stochastic Gradient MCMC for Bayesian Deep Learning".
    .. [4] Li et al. (2016), "Preconditioned Stochastic Gradient Langevin Dynamics for Deep Neural
           Networks".
    """

    optimizer_class = SGLDOptimizer

    @property
    def relative_step(self) -> float:
        return 2 * RELATIVE_STEP  # the learning rate is half of it


@dataclass(eq=False, repr=False, kw_only=True)
class SGHMC(_Chain):
    """Members drawn by stochastic gradient Hamiltonian Monte Carlo [1]_.

    Parameters
    ----------
    step_size : float, default=None
        The paper's eta. With N the sum of the sample weights, eta N is the learning rate of a
        gradient step with momentum on the mean loss. None finds a step size for each weight as
        in :class:`SGLD`, with `friction` / 100 in the place of 0.02.
    friction : float, default=0.1
        The paper's alpha, in (0, 1]; the momentum is 1 - `friction`.
    schedule, final_step_size, gamma, n_cycles : as in :class:`SGLD`
    prior_precision, burn_in, thinning, n_chains, temperature : as in :class:`SGLD`

    References
    ----------
    .. [1] Chen, Fox & Guestrin (2014), "Stochastic Gradient Hamiltonian Monte Carlo", Eq 15.
    """

    _parameter_table = {**_Chain._parameter_table, "friction": FRICTION}

    optimizer_class = SGHMCOptimizer

    friction: float = 0.1

    @property
    def relative_step(self) -> float:
        return self.friction * RELATIVE_STEP  # so that it goes as far, momentum included

    def settings_at(self, iteration: int, n_iterations: int) -> dict[str, object]:
        return {**super().settings_at(iteration, n_iterations), "friction": self.friction}


@dataclass(eq=False, repr=False)
class MCDropout(Settings):
    """Members that are one network with units dropped at random [1]_.

    Parameters
    ----------
    rate : float, default=0.1
        Probability that a unit is dropped, between 0 and 1, in training and prediction. It replaces
        the rates of the module's own ``nn.Dropout`` layers.

    References
    ----------
    .. [1] Gal & Ghahramani (2016), "Dropout as a Bayesian Approximation: Representing Model
           Uncertainty in Deep Learning".
    """

    _parameter_table = {"rate": Number(Real, 0, 1, closed="neither")}

    rate: float = 0.1


def kept_iterations(inference: SGLD | SGHMC, n_iterations: int, n_members: int) -> np.ndarray:
    """Return the iterations at which a chain's state becomes a member; raise for too few."""
    inference = inference.resolved(n_members)
    n_draws, rest = divmod(n_members, inference.n_chains)
    if rest:
        raise ValueError(
            f"n_members must be a multiple of inference__n_chains={inference.n_chains}, got "
            f"{n_members}."
        )
    after: np.ndarray = inference.sampling_iterations(n_iterations)
    every = len(after) // n_draws if inference.thinning == "auto" else inference.thinning
    if len(after) < n_draws * max(every, 1):
        raise ValueError(
            f"n_members={n_members} is too many: each of {inference.n_chains} chain(s) is to give "
            f"{n_draws}, but of its {n_iterations} iterations {len(after)} are after "
            f"inference__burn_in={inference.burn_in}, with inference__thinning="
            f"{inference.thinning!r}. Raise max_epochs, or lower one of the three."
        )
    if inference.thinning == "auto":
        kept: np.ndarray = after[np.arange(1, n_draws + 1) * len(after) // n_draws - 1]
    else:
        kept = after[every - 1 :: every][-n_draws:]
    return kept
