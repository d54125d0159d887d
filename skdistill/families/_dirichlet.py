# SPDX-License-Identifier: BSD-3-Clause
"""A Dirichlet distribution over the probabilities of a member."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from .. import losses
from .._utils.validation import Number, OneOf, Schedule
from ..distributions import Dirichlet
from ._family import SMOOTHING, Family, without_zeros

_PRECISION_PER_CLASS = 1e3  # of the proxy, at most

_PROXY_LOSSES = ("reverse_kl", "reverse_kl_reference", "forward_kl")


@dataclass(eq=False, repr=False)
class DirichletFamily(Family):
    """A Dirichlet distribution over a member's probabilities; equations are those of [1]_.

    Parameters
    ----------
    loss : {"auto", "moments", "reverse_kl", "reverse_kl_reference", "forward_kl", "nll"}, \
            default="auto"
        ``"moments"``, what "auto" stands for, matches the members' mean and their mutual
        information, the epistemic part, each by a term of its own (ours). ``"reverse_kl"``, what
        "auto" stands for with tokens of sequences, which have no "moments", is the divergence
        KL(student || proxy) from the Dirichlet that is as wide as the members (Eqs 14 and 17),
        divided by the proxy's precision, so that samples on which members agree do not drown the
        others. ``"reverse_kl_reference"`` is the form that its authors released (Eq 18), whose
        proxy is narrower. For comparison, ``"forward_kl"`` is the divergence of the proxy from the
        student (Eq 13) and ``"nll"`` the members' likelihood (Eq 11, EnD2), with either of which
        the authors could not train of 1,000 classes and more.
    max_precision : float, default="auto"
        Largest precision of the proxy, for losses that have one, which members that agree would
        make infinite; "auto" is 1,000 for each class, of 8,400 at most in float32, and 1e8 in all.
    smoothing : float, default="auto"
        Weight of the uniform distribution that is mixed into every member's probabilities. "auto"
        is 1e-3 for ``loss="nll"`` and 0 otherwise; and but for ``loss="moments"``, where one of M
        members gives a class a probability of exactly zero, as trees do, members are mixed with
        their mean, of weight 1 / (M + 1), which makes their disagreement finite.
    temperature : float or tuple (temperature, first_epoch, last_epoch), default=1.0
        Divides the logits of members and student in training. Of a tuple it falls linearly to 1
        between two epochs. Only students of sequences may have a constant one.

    Notes
    -----
    Concentrations are ``exp(z)`` for outputs z, of a precision of 1e8 at most. Reverse divergences
    are taken with one added to both sides' concentrations, as in [1]_; predictions are read without
    it, as in its authors' code: with many classes it would make most of the mean uniform.

    References
    ----------
    .. [1] M. Ryabinin, A. Malinin and M. Gales, "Scaling Ensemble Distribution Distillation to Many
       Classes with Proxy Targets", NeurIPS 2021.
    """

    kinds: ClassVar[tuple[str, ...]] = ("classifier",)
    name: ClassVar[str] = "dirichlet"
    _parameter_table = {
        "loss": OneOf(("auto", "moments", *_PROXY_LOSSES, "nll")),
        "max_precision": Number(Real, 0, closed="neither", others=("auto", float("inf"))),
        "smoothing": Number(Real, 0, 1, closed="left", others=("auto",)),
        "temperature": Schedule(positive=True),
    }

    loss: str = "auto"
    max_precision: float | str = "auto"
    smoothing: float | str = "auto"
    temperature: Any = 1.0

    def for_task(self, task: Any) -> Family:
        super().for_task(task)
        if isinstance(self.temperature, Real) and self.temperature != 1:
            raise ValueError(
                "DirichletFamily: temperature must be 1, or fall to it: (temperature, first_epoch, "
                "last_epoch). A constant one would raise the precision to its power; got "
                f"{self.temperature!r}."
            )
        return self._with_loss("moments")

    def _with_loss(self, automatic: str) -> DirichletFamily:
        """Return the family with the loss that "auto" stands for; it must read `max_precision`."""
        found = copy.copy(self)
        found.loss = automatic if self.loss == "auto" else self.loss
        if self.max_precision != "auto" and found.loss not in _PROXY_LOSSES:
            raise ValueError(
                f"DirichletFamily: max_precision must be 'auto' with loss={found.loss!r}, which "
                f"does not read it; got {self.max_precision!r}."
            )
        return found

    def prepare_members(self, members: np.ndarray) -> np.ndarray:
        mends_zeros = self.smoothing == "auto" and self.loss != "moments"
        return without_zeros(members) if mends_zeros else members

    def n_outputs(self, size: int) -> int:
        return size

    def distribution(self, outputs: Tensor) -> Dirichlet:
        # The one that is added to both sides of the divergence (Sec. 3) is there to train well.
        # Read with it, the mean would be drawn to the uniform by K units of precision.
        return Dirichlet.from_outputs(outputs, offset=0.0)  # Eq 6

    @property
    def weight_of_uniform(self) -> float:
        """The weight that `smoothing` stands for."""
        automatic = SMOOTHING if self.loss == "nll" else 0.0
        return automatic if self.smoothing == "auto" else float(self.smoothing)

    def _cap(self, members: Tensor) -> float:
        n_classes, given = members.shape[-1], self.max_precision
        cap = _PRECISION_PER_CLASS * n_classes if given == "auto" else float(given)
        return min(cap, losses.largest_precision(n_classes, members.dtype))

    def loss_and_gradient(
        self, outputs: Tensor, members: Tensor, *, temperature: Tensor, given: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        smoothing = self.weight_of_uniform
        if self.loss == "moments":
            target = losses.information_target(members, temperature, smoothing)
            return losses.dirichlet_moments.and_gradient(outputs, *target)
        if self.loss == "nll":  # Eqs 7 and 11
            statistics = losses.MemberStatistics(temperature, smoothing).add_together(members)
            return losses.dirichlet_nll.and_gradient(outputs, statistics.mean_log, 0.0)
        proxy = losses.proxy_target(members, self._cap(members), temperature, smoothing)
        return losses.weighted_sum([losses.proxy_term(self.loss, *proxy)], outputs)

    # --- tokens of sequences

    def _for_tokens(self) -> Family:
        self.check()
        found = self._with_loss("reverse_kl")
        if found.loss == "moments":
            raise ValueError(
                "DirichletFamily: loss must be another than 'moments' for tokens of sequences, "
                f"whose members are summarised by their means; got {self.loss!r}."
            )
        return found

    def _target_of_tokens(self, statistics: losses.MemberStatistics) -> Tensor:
        mean, mean_log = statistics.mean, statistics.mean_log
        if self.loss == "nll":
            return mean_log
        precision = losses.proxy_precision(mean, mean_log, self._cap(mean))
        return torch.cat([mean, precision.unsqueeze(-1)], -1)

    def _loss_of_tokens(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        if self.loss == "nll":
            return losses.dirichlet_nll.and_gradient(outputs, target, 0.0)
        proxy = target[..., :-1], target[..., -1]
        return losses.weighted_sum([losses.proxy_term(self.loss, *proxy)], outputs)
