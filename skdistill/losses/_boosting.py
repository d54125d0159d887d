# SPDX-License-Identifier: BSD-3-Clause
"""The game of B-DISTIL between learners and samples, and what makes a network a weak learner.

Equations are those of "Progressive Knowledge Distillation: Building Ensembles for Efficient
Inference" (B-DISTIL). Outputs and targets have the shape (..., n, L): one column for each of L
logits or means, and each column is a game of its own.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ._loss import loss_with_gradient

_REACH = 1.5  # how far outputs may be from their column's mean, relative to the farthest target
_TINY = 1e-30  # takes the place of a bound of 0, that of a constant column, in denominators
_ROUNDING = 1e-6  # columns that vary by less, relative to their size, count as constant
_PIECE = 2**18  # values of a table (N, L) that are taken at a time, in float64: 2 MiB


class DistillationGame:
    """State of the game: how far the learners so far have missed the target, sample by sample.

    The exponential weights of Eqs 4 and 5 are a softmax of the sum of the learners' errors, ``S =
    sum_t c_t (f_t - g)``. The weight ``c_t`` of a learner is 1, or less where it would overshoot; a
    sample of weight 2 is two samples. The samples' learning rate eta is by default that of Theorem
    1, for each column. Of the L columns the first `n_played` are played, or all.

    For each column there are `loc`, its mean; `bound`, the largest distance B of predictions from
    it, 1.5 times that of the target; and `scale`, the largest possible error G = B + max abs(g).
    `errors` (N, L) are the sum S, and `total` the sum C of the weights: the mean is ``g + S / C``.
    """

    def __init__(
        self,
        target: Tensor,
        n_rounds: int,
        eta: float | None = None,
        weight: Tensor | None = None,
        n_played: int | None = None,
    ):
        self.target = target
        weight = torch.ones(len(target)) if weight is None else weight
        self.weight = weight.to(target.device, torch.float64).unsqueeze(1)
        total = self.weight.sum()
        self.n_rows = max(1.0, total.item())
        self.loc, reach = self.weight.new_empty(2, target.shape[1])
        for columns in self._columns():
            values = target[:, columns].to(torch.float64, copy=True)
            self.loc[columns] = (self.weight * values).sum(0) / total
            largest = values.abs().amax(0)
            reach[columns] = values.sub_(self.loc[columns]).abs_().amax(0)
            reach[columns][reach[columns] <= _ROUNDING * largest] = 0.0
        self.bound = _REACH * reach
        self.scale = self.bound + reach
        self.is_played = reach > 0
        if n_played is not None:
            self.is_played[n_played:] = False
        automatic = math.sqrt(math.log(2 * self.n_rows) / n_rounds) / self.scale  # Theorem 1
        self.eta = automatic if eta is None else torch.full_like(self.scale, eta)
        self.eta[reach == 0] = 0.0
        self.errors = torch.zeros_like(target, dtype=torch.float64)
        self.n_learners = 0
        self.total = 0.0

    def _columns(self) -> Iterator[slice]:
        """Slices of a few columns; there may be a thousand."""
        size = max(1, _PIECE // len(self.target))
        for start in range(0, self.target.shape[1], size):
            yield slice(start, start + size)

    def _rows(self, *tables: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Some samples at a time of tables (N, L)."""
        size = max(1, _PIECE // self.target.shape[1])
        return zip(*(table.split(size) for table in tables), strict=True)

    def probabilities(self, columns: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Weights (N, L) of the samples for each sign of the next learner's error: K_plus, K_minus.

        K_plus is large where the learners predicted too little. Together they sum to 1 in a column.
        """
        gain = self.eta[columns] * self.errors[:, columns]
        both = torch.cat((-gain, gain)).add_(self.weight.log().repeat(2, 1))
        K_plus, K_minus = torch.softmax(both, 0).chunk(2)  # Eqs 4 and 5, normalised
        return K_plus, K_minus

    def wanted(self, signs_only: bool = False) -> Tensor:
        """Signs that are wanted of the next learner's error, times how much they matter: (N, L).

        ``K_plus - K_minus`` of Definition 1, with a mean size of 1 over the samples of a column, or
        its sign, as in Eq 6.
        """
        wanted = torch.empty_like(self.target)
        for columns in self._columns():
            K_plus, K_minus = self.probabilities(columns)
            difference = (K_plus - K_minus).div_(self.weight).nan_to_num_(0.0, 0.0, 0.0)
            if signs_only:
                difference.sign_()
            size = (self.weight * difference.abs()).sum(0) / self.weight.sum()
            size = torch.ones_like(size) if signs_only else size
            wanted[:, columns] = difference.div_(size.clamp_min(_TINY)) * self.is_played[columns]
        return wanted

    def edges(self, outputs: Tensor) -> Tensor:
        """Edge of a learner in each column: that of a weak learner is positive (Definition 1)."""
        edges = torch.empty_like(self.eta)
        for columns in self._columns():
            K_plus, K_minus = self.probabilities(columns)
            error = outputs[:, columns].double() - self.target[:, columns]
            edges[columns] = (error.mul_(K_plus - K_minus)).sum(0)  # Definition 1
        return edges

    def is_weak_learner(self, outputs: Tensor) -> bool:
        """Whether the outputs are those of a weak learner; the first learner always is one."""
        return self.n_learners == 0 or bool((self.edges(outputs)[self.is_played] > 0).all())

    def weight_of(self, outputs: Tensor) -> float:
        """Weight, from 0 to 1, with which a learner brings the mean nearer to the target.

        The squared distance is a parabola in the learner's share ``a`` of the mean, whose minimum
        is at ``a = <F - g, F - f> / |F - f|^2``. The weight is 1, that of an equal share, if the
        distance falls there; else that of the minimum, and 0 if the distance grows with any share.
        """
        if not self.n_learners or not self.is_played.any():
            return 1.0
        along = square = 0.0
        for weight, errors, values, target in self._rows(
            self.weight, self.errors, outputs, self.target
        ):
            missed = errors[:, self.is_played] / self.total
            step = missed - (values.double() - target)[:, self.is_played]  # F - f
            along += (weight * missed * step).sum().item()
            square += (weight * step.square()).sum().item()
        equal = 1 / (self.total + 1)
        if 2 * along > equal * square:
            return 1.0
        share = max(0.0, along / square) if square else 0.0
        return share * self.total / (1 - share)

    def distance(self) -> float:
        """Root mean square distance of the mean from the target in the columns played."""
        n_columns = max(1, int(self.is_played.sum()))
        total = sum(
            (weight * errors[:, self.is_played].square()).sum().item()
            for weight, errors in self._rows(self.weight, self.errors)
        )
        return math.sqrt(total / (self.weight.sum().item() * n_columns)) / self.total

    def add(self, outputs: Tensor, weight: float = 1.0) -> None:
        """Add the errors of a learner, with its weight in the mean, to the sum."""
        for errors, values, target in self._rows(self.errors, outputs, self.target):
            errors += weight * (values.double() - target)
        self.n_learners += 1
        self.total += weight

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to learn, as the target is constant."""
        return not self.is_played.any()


@loss_with_gradient
def log_barrier(error: Tensor, wanted: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]:
    """Penalty on errors of the same sign as those of earlier learners: second term of Eq 6.

    The error ``f - g`` is smaller than 2 B. The wanted sign comes times the weight of this term: +1
    or -1 in Eq 6, and :meth:`DistillationGame.wanted` with the weights of Definition 1. The penalty
    is a mean over the columns; 0 where the error is 0.
    """
    slope = wanted.sign() * (0.5 / bound.clamp_min(_TINY))
    weight, change = wanted.abs(), slope * error
    loss = torch.log1p(change).mul_(weight).mean(-1).neg_()  # Eq 6
    return loss, slope.mul_(weight).div_(change.add_(1)).mul_(-1 / error.shape[-1])


def bounded_outputs(raw: Tensor, loc: Tensor, bound: Tensor, centred: bool) -> Tensor:
    """Outputs of a learner, at most `bound` away from `loc`: ``f = loc + B tanh(raw / B)``.

    Where `centred`, the mean over the columns is subtracted first, which logits do not depend on.
    """
    if centred:
        raw = raw - raw.mean(-1, keepdim=True)
    return loc + bound * torch.tanh(raw / bound.clamp_min(_TINY))


def gradient_of_raw(
    gradient: Tensor, outputs: Tensor, loc: Tensor, bound: Tensor, centred: bool
) -> Tensor:
    """Gradient in what ``bounded_outputs`` was given, from that in its result, the outputs."""
    tanh = (outputs - loc) / bound.clamp_min(_TINY)
    slope = bound.sign() - tanh.square()  # 1 - tanh^2, or 0 in a constant column
    gradient = gradient * slope
    return gradient - gradient.mean(-1, keepdim=True) if centred else gradient
