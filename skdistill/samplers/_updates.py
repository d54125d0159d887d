# SPDX-License-Identifier: BSD-3-Clause
"""The updates of Markov chains: a function for one tensor, and an optimizer around it."""

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from .._utils.validation import Number, OneOf

_Group = dict[str, Any]  # of the parameters of an optimiser: its settings

FRICTION = Number(Real, 0, 1, closed="right")

# Of relative steps: learning rate of SGLD; root mean square that is added; decay; doc/design.rst.
RELATIVE_STEP, _LEAST_RMS, _DECAY = 0.01, 0.01, 0.99


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

    Eq 4 of Welling & Teh (2011), Eq 7 of GPED (Vadera et al., 2020), of step size eta. The gradient
    is that of the potential divided by the sum N of the sample weights, see the module. `noise` is
    memory for the draws, not used at temperature 0, which descends the gradient without noise.
    `scale` is a factor of the step size of each weight, the diagonal of a preconditioner.

    With gradients over all rows and a Gaussian posterior of precision matrix A, the chain's own
    covariance is ``temperature * inv(A - lr / 4 * A @ A)``: too wide by a factor of 1 / (1 - lr a /
    4) along an eigenvector of eigenvalue a.
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
    """Step of stochastic gradient Hamiltonian Monte Carlo, in place, as :func:`sgld_step`.

    Eq 15 of Chen, Fox & Guestrin (2014), without an estimate of the gradient's own noise (beta =
    0): gradient descent with momentum 1 - alpha, plus noise. The friction alpha is in (0, 1]; 1 is
    SGLD with a step size of ``2 * lr``.

    With gradients over all rows and a Gaussian posterior, the chain is too wide by a factor of 1 /
    (1 - lr a / (4 - 2 friction)) along an eigenvector of the precision with eigenvalue a.
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


class SamplingOptimizer(torch.optim.Optimizer):
    """An optimizer whose step draws noise.

    The gradient is that of the mean loss and its weight decay. If it `adapts` at all, steps are
    relative: the step size of each weight is ``lr / n_rows``, over the root mean square of its
    gradients plus 0.01. True follows the gradients, False lets the step sizes stay as they are.
    """

    _settings: tuple[str, ...] = ("lr", "n_rows", "temperature")

    def __init__(
        self,
        params: Any,
        lr: float,
        n_rows: float,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
        adapts: bool | None = None,
        **further: float,
    ):
        defaults = {"lr": lr, "n_rows": n_rows, "temperature": temperature, **further}
        for name, value in defaults.items():
            Number(Real, 0).check(value, name)
        OneOf((None, True, False)).check(adapts, "adapts")
        super().__init__(params, {**defaults, "adapts": adapts})
        self.generator = generator
        self._noise: dict[Tensor, Tensor] = {}

    def update(self, theta: Tensor, grad: Tensor, state: dict[str, Tensor], group: _Group) -> None:
        """Update in place a parameter, or all of them in one buffer, by its gradient.

        The sampler's state for this tensor is initialised when empty; the settings are the group's.
        """
        raise NotImplementedError  # each sampler defines it

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update all parameters that have a gradient."""
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
            # 1 / (rms + .01), where rms is that of each weight's last gradients, as in Li et al.
            # (2016), Eqs 4 and 5, whose preconditioner changes all the time. One that stays as it
            # is while members are drawn leaves the posterior what it is, without a further term.
            is_new = "square" not in state
            if is_new:
                state["square"], state["scale"] = grad.square(), torch.empty_like(grad)
            if is_new or group["adapts"]:
                state["square"].mul_(_DECAY).addcmul_(grad, grad, value=1 - _DECAY)
                rms = torch.sqrt(state["square"], out=state["scale"])
                rms.add_(_LEAST_RMS).reciprocal_()
            settings["scale"] = state["scale"]
        return settings

    def state_dict(self) -> dict[str, object]:
        """Return the state, with that of the generator unless it is the global one."""
        state = super().state_dict()
        if self.generator is not None:
            state["generator"] = self.generator.get_state()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what :meth:`state_dict` returned."""
        super().load_state_dict(state_dict)
        if self.generator is not None and "generator" in state_dict:
            self.generator.set_state(state_dict["generator"])

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "generator": self.generator}

    def __setstate__(self, state: dict[str, object]) -> None:
        super().__setstate__(state)
        self._noise = {}


class SGLDOptimizer(SamplingOptimizer):
    """Stochastic gradient Langevin dynamics as a torch optimizer, see :func:`sgld_step`."""

    def update(self, theta: Tensor, grad: Tensor, state: dict[str, Tensor], group: _Group) -> None:
        sgld_step(theta, grad, **self._keywords(theta, grad, state, group))


class SGHMCOptimizer(SamplingOptimizer):
    """Stochastic gradient Hamiltonian Monte Carlo as a torch optimizer, see :func:`sghmc_step`."""

    _settings = ("lr", "n_rows", "friction", "temperature")

    def __init__(self, params: Any, lr: float, n_rows: float, friction: float = 0.1, **more: Any):
        FRICTION.check(friction, "friction")
        super().__init__(params, lr, n_rows, friction=friction, **more)

    def update(self, theta: Tensor, grad: Tensor, state: dict[str, Tensor], group: _Group) -> None:
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(theta)
        keywords = self._keywords(theta, grad, state, group)
        sghmc_step(theta, grad, state["momentum"], **keywords)
