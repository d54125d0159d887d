# SPDX-License-Identifier: BSD-3-Clause
"""Samples on which a teacher's members disagree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, Protocol

import torch
from torch import Tensor

from .._utils.moments import standardisation
from .._utils.validation import Number, OneOf
from ._maker import Draw, GaussianNoise, TransferMaker, per_row

_PORTION = 2**11  # samples that are moved, or chosen, by the same members

# Samples (n, *sample) -> how much members disagree on each of them, (n,).
Measure = Callable[[Tensor], Tensor]


class MemberDisagreement(Protocol):
    """What a maker asks of a teacher: how much its members disagree on samples."""

    has_gradient: bool  # whether gradients pass from the disagreement to the samples

    def of_some(self, generator: torch.Generator) -> Measure:
        """Return what measures the disagreement of members drawn at random, or of all of them."""


@dataclass(eq=False, repr=False)
class Disagreement(TransferMaker):
    """Draw samples on which the teacher's members disagree.

    A sample is drawn by `base`. With the probability `share` it is then either moved to where
    members disagree more, or the one of several draws on which they disagree most. So the student
    learns about what the members do not know and samples around the data show little of: classes
    that nobody has seen, and tails of the columns.

    Samples are moved by gradients of the disagreement of two members, another random pair for every
    2,048 samples: its mean over pairs is that of all members. Nam et al. [1]_ follow gradients of
    random outputs of one member instead.

    Parameters
    ----------
    base : TransferMaker or None, default=None
        Draws the samples to begin with. None is what ``transfer="auto"`` stands for, or
        ``GaussianNoise()`` where no distiller is at hand.
    share : float, default=0.5
        Share of the samples, in (0, 1], that are moved or chosen; the others are those of `base`.
    method : {"auto", "gradient", "candidates"}, default="auto"
        How to find disagreement. "gradient" needs a :class:`~skdistill.BayesianEnsembleClassifier`
        or :class:`~skdistill.BayesianEnsembleRegressor`, which may be in a ``FrozenEstimator``.
        "candidates" takes any teacher with several members, and asks about `n_candidates` samples
        for each that it keeps. "auto" is the first where there are gradients, else the second.
    step_size : float, default=1.0
        How far gradients move a sample, at most: the root of the mean square over columns, in units
        of their standard deviations. Each sample goes a uniform share of the way.
    n_steps : int, default=1
        Into how many steps, each with a gradient of its own, the way is divided.
    n_candidates : int, default=4
        Draws of `base` of which that with the largest disagreement is kept.
    categorical : None, mask or list of columns, default=None
        Columns, see :class:`TransferMaker`, that stay as they are. Those that are categorical to
        `base` are left to it.

    Notes
    -----
    Disagreement is the epistemic uncertainty: the mutual information of classes, or the variance of
    the members' means, in units of the variance of the targets and summed over them. A sample that
    has been moved lies in the box of the training samples, between the minimum and the maximum of
    every column; a column that is constant stays as it is.

    References
    ----------
    .. [1] Nam, Yoon, Lee & Lee (2021), "Diversity Matters When Learning From Ensembles",
           Algorithm 1.

    Examples
    --------
    >>> from skdistill import BayesianEnsembleClassifier, HydraPlusClassifier
    >>> from skdistill.transfer import Disagreement
    >>> teacher = BayesianEnsembleClassifier(n_members=5)
    >>> student = HydraPlusClassifier(teacher, transfer=Disagreement(share=0.3))
    """

    asks_teacher = True
    _parameter_table = {
        "share": Number(Real, 0, 1, closed="right"),
        "method": OneOf(("auto", "gradient", "candidates")),
        "step_size": Number(Real, 0, closed="neither"),
        "n_steps": Number(Integral, 1),
        "n_candidates": Number(Integral, 2),
    }

    base: TransferMaker | None = None
    share: float = 0.5
    method: str = "auto"
    step_size: float = 1.0
    n_steps: int = 1
    n_candidates: int = 4
    categorical: Any = None

    @property
    def keeps_labels(self) -> bool:  # type: ignore[override]  # that of another object
        """Whether `base` keeps labels; a sample that is moved keeps its own."""
        return self._base.keeps_labels

    @property
    def _base(self) -> TransferMaker:
        return GaussianNoise() if self.base is None else self.base

    def check(self, shape: tuple[int, ...]) -> None:
        is_maker = isinstance(self.base, TransferMaker) and not self.base.asks_teacher
        if not (self.base is None or is_maker):
            raise TypeError(
                "Disagreement: base must be None or a TransferMaker that asks no teacher, such as "
                f"GaussianNoise(); got {self.base!r}."
            )
        super().check(shape)
        self._base.check(shape)

    def changes(self, X: Tensor) -> bool:
        if (own := self._is_categorical(X)) is not None:
            X = torch.where(own, X[:1], X)
        if self._base.changes(X):
            return True
        if (of_base := self._base._is_categorical(X)) is not None:
            X = X[:, ~of_base]
        return bool((X[:1] != X).any())

    def prepare(
        self,
        X: Tensor,
        weight: Tensor | None = None,
        teacher: MemberDisagreement | None = None,
    ) -> Draw:
        """Return a function that draws new samples; the teacher says where its members disagree."""
        self.check(X.shape)
        if teacher is None:
            raise TypeError("Disagreement: teacher must say where its members disagree; got None.")
        if self.method == "gradient" and not teacher.has_gradient:
            raise ValueError(
                "Disagreement: method must be 'auto' or 'candidates' with a teacher without "
                "gradients, which is any but a BayesianEnsembleClassifier or "
                "BayesianEnsembleRegressor, as it is or in a FrozenEstimator; got 'gradient'."
            )
        base = self._base.prepare(X, weight)
        by_gradient = self.method != "candidates" and teacher.has_gradient
        find = self._ascent(X, weight) if by_gradient else self._choice()
        own = self._is_categorical(X)
        share = self.share

        def draw(rows: Tensor, index: Tensor, generator: torch.Generator) -> Tensor:
            """Draw by `base`, and replace a share of the samples."""
            drawn = base(rows, index, generator).flatten(0, index.ndim - 1)
            uniform = torch.rand(len(drawn), generator=generator, device=drawn.device)
            chosen = (uniform < share).nonzero().squeeze(1)
            given, numbers = rows.flatten(0, index.ndim - 1), index.flatten()
            for part in chosen.split(_PORTION) if len(chosen) else ():
                measure = teacher.of_some(generator)
                again = partial(base, given[part], numbers[part], generator)
                drawn[part] = find(drawn[part], again, measure, generator)
            if own is not None:
                drawn = torch.where(own, given, drawn)
            return drawn.view_as(rows)

        return draw

    def _ascent(self, X: Tensor, weight: Tensor | None) -> Callable[..., Tensor]:
        """Return what moves samples along gradients, in the box of X."""
        low, high = X.amin(0), X.amax(0)
        weights = None if weight is None else weight.cpu().numpy()
        _, deviation = standardisation(X.cpu().numpy(), weights, constant=0.0)
        scale = torch.from_numpy(deviation).to(X)
        masks = self._is_categorical(X), self._base._is_categorical(X)
        known = [mask for mask in masks if mask is not None]
        fixed = torch.stack(known).any(0) if known else None  # columns that no step changes
        if fixed is not None:
            scale[fixed] = 0.0
        length, n_steps = self.step_size / self.n_steps, self.n_steps

        def move(rows: Tensor, again: Callable[[], Tensor], measure: Measure, generator) -> Tensor:
            """Take steps of a uniform share of the length, each up the gradient."""
            step = length * rows.new_empty((len(rows), *[1] * (rows.ndim - 1))).uniform_(
                generator=generator
            )
            start = rows
            for _ in range(n_steps):
                rows = rows.detach().requires_grad_()
                with torch.enable_grad():
                    total = measure(rows).sum()
                (gradient,) = torch.autograd.grad(total, rows)
                uphill = direction(gradient * scale)  # of standardised columns
                rows = torch.addcmul(rows.detach(), step * uphill, scale).clamp(low, high)
            return rows if fixed is None else torch.where(fixed, start, rows)

        return move

    def _choice(self) -> Callable[..., Tensor]:
        """Return what draws samples again, and keeps those of the largest disagreement."""
        n_more = self.n_candidates - 1

        def choose(
            rows: Tensor, again: Callable[[], Tensor], measure: Measure, generator
        ) -> Tensor:
            largest = measure(rows)
            for _ in range(n_more):
                others = again()
                disagreement = measure(others)
                is_larger = disagreement > largest
                rows = torch.where(is_larger.view(per_row(is_larger, rows)), others, rows)
                largest = torch.maximum(largest, disagreement)
            return rows

        return choose


def direction(gradient: Tensor) -> Tensor:
    """Gradients (n, *sample), divided by the root of the mean square of each sample."""
    rows = gradient.flatten(1)  # squares of small ones would underflow: the largest becomes 1
    rows = rows.where(rows.isfinite().all(1, keepdim=True), 0.0)
    rows = rows / rows.abs().amax(1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)
    norm = rows.square().mean(1, keepdim=True).sqrt()
    return (rows / norm.where(norm > 0, 1.0)).view_as(gradient)
