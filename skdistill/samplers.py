# SPDX-License-Identifier: BSD-3-Clause
"""Stochastic-gradient Markov chains, which draw the weights of networks from their posterior.

The target is exp(-U / temperature) with the potential U = -log posterior: N times the mean loss
less the log prior, where N is the sum of the sample weights. A training loop computes the gradient
of U / N, of the mean loss and the weight decay tau / (2 N) ||w||^2 of a prior N(0, 1/tau); the
updates multiply it by N.

Each sampler is a function that updates one tensor, a ``torch.optim.Optimizer`` around it, and the
settings that a user gives as ``inference=SGLD(step_size=...)``. Two diagnostics follow.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ._utils.settings import Settings
from ._utils.validation import AnyOf, Number, OneOf, check_parameters

__all__ = [
    "SGLD",
    "SGHMC",
    "MCDropout",
    "kept_iterations",
    "SGLDOptimizer",
    "SGHMCOptimizer",
    "sgld_step",
    "sghmc_step",
    "split_r_hat",
    "effective_sample_size",
]

_Group = dict[str, Any]  # of the parameters of an optimiser: its settings

_FRICTION = Number(Real, 0, 1, closed="right")

# Of steps relative to each weight's gradients: the learning rate of SGLD where the gradient's root
# mean square is one, the number that is added to it, and the decay of the mean square. They were
# chosen together, on validation rows of nine tables: of classes, where gradients fall to .001, the
# second is what bounds the learning rate; of numbers, whose gradients are a hundred times as large,
# they are divided by their size.
_RELATIVE_STEP, _LEAST_RMS, _DECAY = 0.01, 0.01, 0.99

# Chains that run side by side where the step size is found.
_N_CHAINS = 4


# --- updates ----------------------------------------------------------------------------------


def sgld_step(
    theta: Tensor,
    grad: Tensor,
    noise: Tensor,
    *,
    lr: float,
    n_rows: float,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
    scale: Tensor | None = None,
) -> None:
    """Step of stochastic gradient Langevin dynamics, in place.

    Eq 4 of Welling & Teh (2011), Eq 7 of GPED (Vadera et al., 2020).

    Parameters
    ----------
    theta : Tensor
        Weights, of any shape.
    grad : Tensor of the same shape
        Gradient of the potential divided by `n_rows`, see the module.
    noise : Tensor of the same shape
        Preallocated memory for the draws; not used at temperature 0.
    lr : float
        Step size eta.
    n_rows : float
        Sum N of the sample weights.
    temperature : float, default=1.0
        1 samples the posterior, 0 descends the gradient without noise.
    generator : torch.Generator, default=None
        Source of the noise; None is torch's global generator.
    scale : Tensor of the same shape, default=None
        Factor of the step size of each weight, the diagonal of a preconditioner; None is 1.

    Notes
    -----
    With gradients over all rows and a Gaussian posterior of precision matrix A, the chain's own
    covariance is ``temperature * inv(A - lr / 4 * A @ A)``: too wide by a factor of
    1 / (1 - lr a / 4) along an eigenvector of eigenvalue a.
    """
    _add(theta, grad, scale, -0.5 * lr * n_rows)  # -eta/2 grad U
    if temperature:
        std = math.sqrt(lr * temperature)
        theta.add_(_drawn(noise, std, scale, generator))  # + N(0, eta T)


def sghmc_step(
    theta: Tensor,
    grad: Tensor,
    momentum: Tensor,
    noise: Tensor,
    *,
    lr: float,
    n_rows: float,
    friction: float,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
    scale: Tensor | None = None,
) -> None:
    """Step of stochastic gradient Hamiltonian Monte Carlo, in place.

    Eq 15 of Chen, Fox & Guestrin (2014), without an estimate of the gradient's own noise
    (beta = 0): gradient descent with momentum 1 - alpha, plus noise.

    Parameters
    ----------
    theta, grad, noise, lr, n_rows, temperature, generator, scale : as in :func:`sgld_step`
    momentum : Tensor of the same shape
        The paper's v, which is added to the weights.
    friction : float
        The paper's alpha, in (0, 1]; 1 is SGLD with a step size of ``2 * lr``.

    Notes
    -----
    With gradients over all rows and a Gaussian posterior, the chain is too wide by a factor of
    1 / (1 - lr a / (4 - 2 friction)) along an eigenvector of the precision with eigenvalue a.
    """
    momentum.mul_(1.0 - friction)
    _add(momentum, grad, scale, -lr * n_rows)  # v - alpha v - eta grad U
    if temperature:
        std = math.sqrt(2.0 * friction * lr * temperature)
        momentum.add_(_drawn(noise, std, scale, generator))  # + N(0, 2 alpha eta T)
    theta.add_(momentum)


def _add(to: Tensor, grad: Tensor, scale: Tensor | None, factor: float) -> None:
    """Add a multiple of a gradient, scaled by weight."""
    if scale is None:
        to.add_(grad, alpha=factor)
    else:
        to.addcmul_(grad, scale, value=factor)


def _drawn(
    noise: Tensor, std: float, scale: Tensor | None, generator: torch.Generator | None
) -> Tensor:
    """Fill `noise` with draws whose variance is scaled by weight."""
    noise.normal_(0.0, std, generator=generator)
    return noise if scale is None else noise.mul_(scale.sqrt())


# --- optimizers -------------------------------------------------------------------------------


class _SamplingOptimizer(torch.optim.Optimizer):
    """An optimizer whose step draws noise."""

    _settings: tuple[str, ...] = ("lr", "n_rows", "temperature")

    def __init__(
        self,
        params: Any,
        defaults: dict[str, float],
        generator: torch.Generator | None,
        adapts: bool | None,
    ):
        for name, value in defaults.items():
            Number(Real, 0).check(value, name)
        OneOf((None, True, False)).check(adapts, "adapts")
        super().__init__(params, {**defaults, "adapts": adapts})
        self.generator = generator
        self._noise: dict[Tensor, Tensor] = {}

    def update(self, theta: Tensor, grad: Tensor, state: dict[str, Tensor], group: _Group) -> None:
        """Update one tensor in place.

        Parameters
        ----------
        theta, grad : Tensor
            A parameter, or all of them in one buffer, and its gradient.
        state : dict of str to Tensor
            State of the sampler for this tensor; initialised when empty.
        group : dict
            The tensor's parameter group, with the settings.
        """
        raise NotImplementedError  # each sampler defines it

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update all parameters that have a gradient.

        Parameters
        ----------
        closure : callable, default=None
            Evaluates the loss and its gradients again.

        Returns
        -------
        loss : Tensor or None
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.update(p, p.grad, self.state[p], group)
        return loss

    def _keywords(
        self, theta: Tensor, grad: Tensor, state: dict[str, Tensor], group: _Group
    ) -> dict[str, Any]:
        """Keywords of a step; memory for the noise is reused at every step."""
        if theta not in self._noise:
            self._noise[theta] = torch.empty_like(theta)
        settings = {name: group[name] for name in self._settings}
        settings |= {"noise": self._noise[theta], "generator": self.generator}
        if group["adapts"] is not None:
            settings["lr"] /= group["n_rows"]
            settings["scale"] = _scale(grad, state, group["adapts"])
        return settings

    def state_dict(self) -> dict[str, Any]:
        """Return the state, including that of the generator unless it is the global one.

        Returns
        -------
        state : dict
        """
        state = super().state_dict()
        if self.generator is not None:
            state["generator"] = self.generator.get_state()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what :meth:`state_dict` returned.

        Parameters
        ----------
        state_dict : dict
        """
        super().load_state_dict(state_dict)
        if self.generator is not None and "generator" in state_dict:
            self.generator.set_state(state_dict["generator"])

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "generator": self.generator}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._noise = {}


class SGLDOptimizer(_SamplingOptimizer):
    """Stochastic gradient Langevin dynamics as a torch optimizer, see :func:`sgld_step`.

    Parameters
    ----------
    params : iterable of Tensor, or of dict
        Weights, whose ``grad`` is the gradient of the mean loss and its weight decay.
    lr : float
        Step size.
    n_rows : float
        Sum of the sample weights.
    temperature : float, default=1.0
    generator : torch.Generator, default=None
        Source of the noise, on the device of the weights; None is torch's global generator.
    adapts : bool, default=None
        Whether steps are relative: the step size of each weight is then ``lr / n_rows``, over the
        root mean square of its gradients plus 0.01. True follows the gradients, False lets the
        step sizes stay as they are; None is the same step size `lr` for all.
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        n_rows: float,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
        adapts: bool | None = None,
    ):
        defaults = {"lr": lr, "n_rows": n_rows, "temperature": temperature}
        super().__init__(params, defaults, generator, adapts)

    def update(self, theta: Tensor, grad: Tensor, state: dict[str, Tensor], group: _Group) -> None:
        sgld_step(theta, grad, **self._keywords(theta, grad, state, group))


class SGHMCOptimizer(_SamplingOptimizer):
    """Stochastic gradient Hamiltonian Monte Carlo as a torch optimizer, see :func:`sghmc_step`.

    Parameters
    ----------
    params, lr, n_rows, temperature, generator, adapts : as in :class:`SGLDOptimizer`
    friction : float, default=0.1
        In (0, 1].
    """

    _settings = ("lr", "n_rows", "friction", "temperature")

    def __init__(
        self,
        params: Any,
        lr: float,
        n_rows: float,
        friction: float = 0.1,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
        adapts: bool | None = None,
    ):
        _FRICTION.check(friction, "friction")
        defaults = {"lr": lr, "n_rows": n_rows, "friction": friction, "temperature": temperature}
        super().__init__(params, defaults, generator, adapts)

    def update(self, theta: Tensor, grad: Tensor, state: dict[str, Tensor], group: _Group) -> None:
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(theta)
        keywords = self._keywords(theta, grad, state, group)
        sghmc_step(theta, grad, state["momentum"], **keywords)


def _scale(grad: Tensor, state: dict[str, Tensor], adapts: bool) -> Tensor:
    """Return 1 / (rms + .01), where rms is that of each weight's last gradients; update it or not.

    As in Li et al. (2016), Eqs 4 and 5, whose preconditioner changes all the time. One that stays
    as it is while members are drawn leaves the posterior what it is, without a further term.
    """
    if "square" not in state:
        state["square"], state["scale"] = grad.square(), torch.empty_like(grad)
        adapts = True
    if adapts:
        square, scale = state["square"], state["scale"]
        square.mul_(_DECAY).addcmul_(grad, grad, value=1 - _DECAY)
        torch.sqrt(square, out=scale).add_(_LEAST_RMS).reciprocal_()
    return state["scale"]


# --- settings ---------------------------------------------------------------------------------


_POSITIVE = Number(Real, 0, closed="neither")
_POSITIVE_OR_NONE = Number(Real, 0, closed="neither", others=(None,))


class _Inference(Settings):
    """How the members of an ensemble are drawn, when it is not by training each from scratch."""

    def check(self) -> None:
        """Raise TypeError or ValueError for the first parameter that is not accepted."""
        check_parameters(self, "inference__")


@dataclass(eq=False, repr=False)
class _Chain(_Inference):
    """Settings of Markov chains that advance together."""

    _parameter_table = {
        "step_size": _POSITIVE_OR_NONE,
        "schedule": OneOf(("auto", "constant", "polynomial", "cyclical")),
        "final_step_size": _POSITIVE_OR_NONE,
        "gamma": _POSITIVE,
        "n_cycles": Number(Integral, 1),
        "prior_precision": Number(Real, 0, closed="neither", others=("auto", None)),
        "burn_in": AnyOf(Number(Real, 0, 1, closed="left"), Number(Integral, 0)),
        "thinning": Number(Integral, 1, others=("auto",)),
        "n_chains": Number(Integral, 1, others=("auto",)),
        "temperature": Number(Real, 0),
    }

    optimizer_class: ClassVar[type[_SamplingOptimizer]]

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

    @property
    def _first_step(self) -> float:
        """Step size at the beginning of a schedule."""
        return self.relative_step if self.step_size is None else self.step_size

    def check(self) -> None:
        super().check()
        if self.step_size is None:
            self._check_without_step_size()
        elif self.final_step_size is not None and self.final_step_size > self.step_size:
            raise ValueError(
                f"inference__final_step_size must not be above inference__step_size="
                f"{self.step_size!r}, got {self.final_step_size!r}."
            )

    def _check_without_step_size(self) -> None:
        """Raise a ValueError for what needs a step size."""
        if self.final_step_size is not None:
            raise ValueError(
                "inference__final_step_size must be None with inference__step_size=None, got "
                f"{self.final_step_size!r}."
            )
        if not self.burn_in:
            raise ValueError(
                "inference__burn_in must be above 0 with inference__step_size=None, which is found "
                f"in burn-in; got {self.burn_in!r}."
            )

    def settings_at(self, iteration: int, n_iterations: int) -> dict[str, Any]:
        """Return the keywords of `optimizer_class` that are settings, at an iteration.

        Parameters
        ----------
        iteration, n_iterations : as in :meth:`step_size_at`

        Returns
        -------
        settings : dict
        """
        adapts = self._is_in_burn_in(iteration, n_iterations) if self.is_relative else None
        return {
            "lr": self.step_size_at(iteration, n_iterations),
            "temperature": self.temperature_at(iteration, n_iterations),
            "adapts": adapts,
        }

    def step_size_at(self, iteration: int, n_iterations: int) -> float:
        """Return the step size of an iteration.

        Parameters
        ----------
        iteration : int
            From 0 to ``n_iterations - 1``.
        n_iterations : int
            Length of the run.

        Returns
        -------
        step_size : float
            Without a `step_size`, that which is relative to gradients.
        """
        first: float = self._first_step
        match self._schedule:
            case "polynomial":  # a (b + t)^-gamma, Welling & Teh Sec 2, through both ends
                final = self.final_step_size or first / 100
                growth = float((first / final) ** (1 / self.gamma)) - 1
                progress = iteration / max(n_iterations - 1, 1)
                return float(first * (1 + growth * progress) ** -self.gamma)
            case "cyclical":  # Zhang et al. Eq 1
                length = self._phase_length(n_iterations)
                angle = math.pi * (iteration % length) / length
                return first / 2 * (math.cos(angle) + 1)
        return first

    def temperature_at(self, iteration: int, n_iterations: int) -> float:
        """Return the temperature of an iteration, which is 0 in the burn-in of a cycle.

        Parameters
        ----------
        iteration, n_iterations : as in :meth:`step_size_at`

        Returns
        -------
        temperature : float
        """
        explores = self._is_in_burn_in(iteration, n_iterations)  # Zhang et al. Algorithm 1
        return 0.0 if explores and self._schedule == "cyclical" else self.temperature

    def _is_in_burn_in(self, iteration: int, n_iterations: int) -> bool:
        """Whether an iteration is in the burn-in of its cycle, or of the run."""
        length = self._phase_length(n_iterations)
        return iteration % length < self._burn_in_of(length)

    def sampling_iterations(self, n_iterations: int) -> np.ndarray:
        """Return the iterations after burn-in; with cycles, after that of each cycle.

        Parameters
        ----------
        n_iterations : int
            Length of the run.

        Returns
        -------
        iterations : ndarray of int
            Counted from 0, ascending.
        """
        length = self._phase_length(n_iterations)
        return np.flatnonzero(np.arange(n_iterations) % length >= self._burn_in_of(length))

    def _phase_length(self, n_iterations: int) -> int:
        """Length of a cycle, or of the run if there are no cycles."""
        return -(-n_iterations // self.n_cycles) if self._schedule == "cyclical" else n_iterations

    def _burn_in_of(self, length: int) -> int:
        """Length of the burn-in of a cycle, or run, of this length."""
        if isinstance(self.burn_in, Integral):
            return int(self.burn_in)
        return int(self.burn_in * length)


class SGLD(_Chain):
    """Members drawn by stochastic gradient Langevin dynamics [1]_ [2]_, see :func:`sgld_step`.

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
        Iterations before any member is kept, or their share of the run. With "cyclical", those at
        the start of each cycle, which are without noise.
    thinning : int or "auto", default="auto"
        Number of iterations from one kept member to the next; the last `n_members` are kept.
        "auto" spreads the members evenly over the iterations after burn-in.
    n_chains : int or "auto", default="auto"
        Number of parallel chains, from different initial weights, which share the members. "auto"
        is 1, but without a `step_size` 4, or 2 or 1 where members are to be kept and `n_members`
        is no multiple of that.
    temperature : float, default=1.0
        The members are draws from the posterior to the power 1 / temperature.

    Notes
    -----
    Members have equal weights, also where the step size changes; [1]_ weights them by it.

    References
    ----------
    .. [1] Welling & Teh (2011), "Bayesian Learning via Stochastic Gradient Langevin Dynamics".
    .. [2] Vadera et al. (2020), "Generalized Bayesian Posterior Expectation Distillation for Deep
           Neural Networks", Eq 7.
    .. [3] Zhang et al. (2020), "Cyclical Stochastic Gradient MCMC for Bayesian Deep Learning".
    .. [4] Li et al. (2016), "Preconditioned Stochastic Gradient Langevin Dynamics for Deep Neural
           Networks".

    Examples
    --------
    >>> from skdistill.samplers import SGLD
    >>> SGLD()
    SGLD()
    >>> SGLD(step_size=4e-6, prior_precision=10, burn_in=1000)
    SGLD(step_size=4e-06, prior_precision=10, burn_in=1000)
    """

    optimizer_class = SGLDOptimizer

    @property
    def relative_step(self) -> float:
        return 2 * _RELATIVE_STEP  # the learning rate is half of it


@dataclass(eq=False, repr=False, kw_only=True)
class SGHMC(_Chain):
    """Members drawn by stochastic gradient Hamiltonian Monte Carlo [1]_, see :func:`sghmc_step`.

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

    _parameter_table = {**_Chain._parameter_table, "friction": _FRICTION}

    optimizer_class = SGHMCOptimizer

    friction: float = 0.1

    @property
    def relative_step(self) -> float:
        return self.friction * _RELATIVE_STEP  # so that it goes as far, momentum included

    def settings_at(self, iteration: int, n_iterations: int) -> dict[str, Any]:
        return {**super().settings_at(iteration, n_iterations), "friction": self.friction}


class MCDropout(_Inference):
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

    def __init__(self, rate: float = 0.1):
        self.rate = rate


def kept_iterations(inference: SGLD | SGHMC, n_iterations: int, n_members: int) -> np.ndarray:
    """Return the iterations at which each chain's state becomes a member.

    Parameters
    ----------
    inference : SGLD or SGHMC
    n_iterations : int
        Length of the run.
    n_members : int
        Number of members, of all chains together.

    Returns
    -------
    iterations : ndarray of shape (n_members / n_chains,)
        Ascending, counted from 0; the state after the update is kept.

    Raises
    ------
    ValueError
        If the chains cannot share `n_members` evenly, or the run is too short for them.
    """
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


# --- diagnostics ------------------------------------------------------------------------------


def split_r_hat(draws: Any) -> np.ndarray:
    """Potential scale reduction of chains cut in halves (Vehtari et al., 2021, Eqs 1 to 4).

    Near 1 where the halves of all chains have the same mean and variance. There is no rank
    normalisation, which is for quantities of infinite variance: probabilities have a finite one.

    Parameters
    ----------
    draws : array-like of shape (n_chains, n_draws, ...)
        At least four of each chain; the middle one of an odd number is left out.

    Returns
    -------
    r_hat : ndarray of shape (...)
        Not a number where all draws are equal or one is not finite; infinite where the halves are
        constants that differ.

    Raises
    ------
    ValueError
        If `draws` has another shape, or too few of them.
    """
    halves = _halves(draws)
    return r_hat_of_chains(halves.mean(1), halves.var(1, ddof=1), halves.shape[1])


def effective_sample_size(draws: Any) -> np.ndarray:
    """Number of independent draws whose mean is as precise (Vehtari et al., 2021, Sec 3.2).

    Autocorrelations, of chains cut in halves, are summed by Geyer's initial monotone sequence. The
    size is at most S log10(S) for S draws, more than S where they are anticorrelated.

    Parameters
    ----------
    draws : as in :func:`split_r_hat`

    Returns
    -------
    size : ndarray of shape (...)
        Not a number where all draws are equal or one is not finite.

    Raises
    ------
    ValueError
        If `draws` has another shape, or too few of them.
    """
    halves = _halves(draws)
    within, total = _variances(halves.mean(1), halves.var(1, ddof=1), halves.shape[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = 1 - (within - _autocovariance(halves)) / total
    correlation[0] = 1
    n_draws = halves.shape[0] * halves.shape[1]
    time = np.maximum(_integrated_time(correlation), 1 / np.log10(n_draws))
    return np.where(total > 0, n_draws / time, np.nan)


def _halves(draws: Any) -> np.ndarray:
    """Split each chain into halves, as chains, with NaN in place of infinities."""
    draws = np.asarray(draws, dtype=np.float64)
    if draws.ndim < 2 or draws.shape[0] < 1 or draws.shape[1] < 4:
        raise ValueError(
            "draws must be of shape (n_chains, n_draws, ...), with at least 4 draws of each "
            f"chain; got {draws.shape}."
        )
    half = draws.shape[1] // 2
    draws = np.where(np.isfinite(draws), draws, np.nan)
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def r_hat_of_chains(means: np.ndarray, variances: np.ndarray, n_draws: int) -> np.ndarray:
    """R-hat of chains, or of halves of chains, of which only the moments are known.

    Parameters
    ----------
    means, variances : ndarray of shape (n_chains, ...)
        Of each chain's draws; the variances are the unbiased ones.
    n_draws : int
        Number of draws of each chain.

    Returns
    -------
    r_hat : ndarray of shape (...)
        As of :func:`split_r_hat`.
    """
    within, total = _variances(means, variances, n_draws)
    with np.errstate(divide="ignore", invalid="ignore"):
        r_hat: np.ndarray = np.sqrt(total / within)  # Eq 4
    return r_hat


def _variances(
    means: np.ndarray, variances: np.ndarray, n_draws: int
) -> tuple[np.ndarray, np.ndarray]:
    """Variance W within chains, and the estimate var+, too large until the chains have mixed."""
    between = means.var(0, ddof=1)  # Eq 1, B / N
    within = variances.mean(0)  # Eq 2
    return within, (n_draws - 1) / n_draws * within + between  # Eq 3


def _autocovariance(chains: np.ndarray) -> np.ndarray:
    """Mean over chains of the autocovariance at each lag, of shape (n_draws, ...)."""
    n = chains.shape[1]
    spectrum = np.fft.rfft(chains - chains.mean(1, keepdims=True), 2 * n, axis=1)
    power = (spectrum * spectrum.conj()).real.mean(0)
    covariance: np.ndarray = np.fft.irfft(power, 2 * n, axis=0)[:n] / n
    return covariance


def _integrated_time(correlation: np.ndarray) -> np.ndarray:
    """Sum of autocorrelations over all lags, from those at lags 0, 1, ... on the first axis."""
    n_pairs = max((len(correlation) - 1) // 2, 1)
    even, odd = correlation[: 2 * n_pairs : 2], correlation[1 : 2 * n_pairs : 2]
    pairs = even + odd
    is_positive = np.logical_and.accumulate(pairs > 0)  # Geyer's initial positive sequence
    is_positive[-1] = False
    monotone = np.minimum.accumulate(pairs)
    time = -1 + 2 * np.where(is_positive, monotone, 0).sum(0)
    # As in Stan, the first term that is left out is added once if it is positive.
    after = np.take_along_axis(even, is_positive.sum(0)[None], axis=0)[0]
    whole: np.ndarray = time + np.maximum(after, 0)
    return whole
