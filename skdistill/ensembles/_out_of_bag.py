# SPDX-License-Identifier: BSD-3-Clause
"""Samples that members have not seen: who leaves out which, and what they tell of the ensemble."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .._data.encoding import MANY_ROWS
from .._estimator.batched import read_in_chunks, rows_first
from .._estimator.calibration import (
    Temperature,
    crps_or_log_loss,
    fit_bias,
    fit_temperature,
    negative_log_likelihood,
    plain,
)
from .._method.task import Task
from ..distributions import EmpiricalCategorical, EmpiricalGaussian
from ._perturbations import pairs_with_same_draws, share_in_common

# How these were chosen: see doc/design.rst.
N_PARTS = 10  # parts of the samples, of which each member leaves out one
_N_TOGETHER, _N_TOGETHER_OF_CLASSES = 5, 2  # members in turn that leave out the same part
_FEWER_JUDGES, _MOST_JUDGED = 0.2, 50_000  # share of samples with fewer judges; samples at most
_LOW_TEMPERATURE, _LEAST_NOISE = 0.5, 0.25  # temperature; noise over the variance of members
_CORRELATION_OF_KINDS = 0.55  # covariance of members of two kinds, over that of one kind
_PRIOR_OF_KINDS = 0.3  # standard deviation of a kind's weight about a half, a priori
_LEAST_OF_KIND = 5  # members; a smaller kind is not told apart
LEAST_ROWS = 50  # samples from which on calibrate="auto" calibrates


class Parts(NamedTuple):
    """Samples divided at random, into parts that members leave out in turn.

    When all parts of one partition have been left out, the next members have another partition: of
    members that leave out the same samples, the variance would not tell more than that of ten.
    """

    of_row: np.ndarray  # number of each sample's part in each partition, (n_partitions, n)
    n_together: int = 1  # so many members in turn leave out the same part

    @classmethod
    def drawn(cls, task: Task, y: np.ndarray, seed: int, n_networks: int) -> Parts:
        """Divide samples, those of every class as evenly as can be; a ValueError for too few."""
        if len(y) < N_PARTS:
            raise ValueError(
                f"X must have at least {N_PARTS} samples, of which members leave out some, with "
                f"inference__calibrate='oob' or inference__tune='oob'; got {len(y)}."
            )
        of_few = _N_TOGETHER_OF_CLASSES if task.kind == "classifier" else 1
        n_together = _N_TOGETHER if len(y) >= MANY_ROWS else of_few
        of_row = np.empty((-(-n_networks // (N_PARTS * n_together)), len(y)), dtype=np.int8)
        for number, partition in enumerate(of_row):
            order = np.random.default_rng([seed, number]).permutation(len(y))
            if task.kind == "classifier":
                order = order[np.argsort(y[order], kind="stable")]
            partition[order] = np.arange(len(y)) % N_PARTS
        return cls(of_row, n_together)

    def are_seen(self, members: Sequence[int]) -> np.ndarray:
        """Tell which samples are trained on by members of these numbers, (S, n)."""
        partition, part = np.divmod(np.asarray(members) // self.n_together, N_PARTS)
        return self.of_row[partition] != part[:, None]

    def left_out(self, members: Sequence[int]) -> np.ndarray:
        """Return the indices of as many samples that each of these members leaves out, (S, m)."""
        n_each = self.of_row.shape[1] // N_PARTS  # a part has this many samples, or one more
        seen = self.are_seen(members)
        return np.stack([np.flatnonzero(~of_member)[:n_each] for of_member in seen])


class OutOfBag(NamedTuple):
    """What members predict for samples that they have left out, on the scale of training.

    Samples count that members have left out, each with equally many members.
    """

    distribution: Any  # for m samples, in float64
    y: Tensor  # encoded targets (m, t), or codes (m,) of int64
    weight: Tensor  # (m,)
    # Of numbers: variances of the means of all members of each kind, (n_kinds, m, t); the share of
    # them, (t,), that perturbations account for; the kinds' weights; of two kinds, which members
    # are of the second, and the squared difference of the kinds' means, (m, t).
    spreads: Any = None
    common: Tensor | float = 1.0
    weights: tuple[float, ...] = (1.0,)
    are_smooth: tuple[bool, ...] = ()
    apart: Tensor | float = 0.0

    @classmethod
    def of(cls, module: Any, numbers: Sequence[int], spec: Any, first: int = 0) -> OutOfBag:
        """Predict the rows of a fit by a stack of the members of these numbers, from `first` on."""
        train, asked = spec.train, np.asarray(numbers) >= first
        judges = ~spec.parts.are_seen(numbers) & asked[:, None]  # (S, n)
        is_smooth = np.array(spec.plan.are_smooth or [False] * len(numbers))
        kinds = [np.flatnonzero(asked & (is_smooth == one)) for one in (False, True)]
        if min(map(len, kinds)) < _LEAST_OF_KIND:
            kinds = [np.arange(len(numbers))]
        n_judges = np.min([judges[members].sum(0) for members in kinds], axis=0)
        n_each = np.quantile(n_judges[n_judges > 0], _FEWER_JUDGES, method="lower")
        if spec.parts.n_together > 1 and (n_judges > 1).any():
            n_each = max(n_each, 2)  # what a single network has left out does not count
        rows = np.flatnonzero(n_judges >= n_each)
        rows = rows[:: -(-len(rows) // _MOST_JUDGED)]
        places = np.concatenate(  # (n_kinds * n_each, m)
            [k[np.argsort(~judges[k][:, rows], axis=0, kind="stable")[:n_each]] for k in kinds]
        )
        judged = train.at(rows)
        taken = [spec.plan.members_of(of_row) for of_row in places.T.tolist()]
        outputs = read_in_chunks(module, judged.X, rows_first)  # (m, S, p)
        found = torch.from_numpy(np.take_along_axis(outputs, np.array(taken)[..., None], 1))
        y = torch.from_numpy(spec.plan.task.encode(judged.y, spec.scaling, np.float64))
        weight = np.ones(len(y)) if judged.weight is None else judged.weight
        distribution = module.read(found.transpose(0, 1).double())
        found_of = cls(distribution, y, torch.from_numpy(weight).double())
        if not y.is_floating_point():
            return found_of
        is_drawn = spec.perturbation_seed is not None and spec.plan.n_sharing == 1
        means = module.read(torch.from_numpy(outputs).transpose(0, 1).double()).means
        # Members of an earlier fit may have had draws from another seed.
        pairs = pairs_with_same_draws(numbers if is_drawn else [])
        pairs = pairs[asked[pairs].all(1)]
        # Of the samples that one of two members has seen, the other has left out one part.
        share = share_in_common(means.numpy(), pairs, kinds) / (1 - 1 / N_PARTS)
        common = torch.from_numpy(share.clip(max=1.0))
        if len(means) == 1:
            return found_of._replace(common=common)
        of_kinds: list[Any] = kinds if len(kinds) > 1 else [slice(None)]  # several of a network
        spreads = torch.stack([means[members].var(0) for members in of_kinds])
        found_of = found_of._replace(spreads=spreads, common=common)
        if len(kinds) == 1:
            return found_of
        first, second = (means[members].mean(0) for members in kinds)
        return found_of._replace(
            weights=(0.5, 0.5), are_smooth=spec.plan.are_smooth, apart=(first - second).square()
        )._weighing_kinds()

    def temperature(
        self, n_members: int | None = None, added: np.ndarray | float = 0.0
    ) -> Temperature:
        """Return the calibration that suits the labels best, for a mixture of `n_members`.

        That of classes: a mixture of the k members that have left out a sample is the surer of what
        is wrong, and its best temperature exceeds that of more of them by about c / k, in
        logarithms; what k - 1 of them need tells c, as in the jackknife (M. H. Quenouille, "Notes
        on bias in estimation", 1956).

        Of numbers it multiplies the aleatoric variance, and the `spread` the epistemic one. The
        variance that functions have `added`, (t,) or one for all, is added again. The spread of
        classes stays 1 (doc/design.rst).
        """
        if self.y.is_floating_point():
            return self._of_numbers(n_members, torch.as_tensor(added, dtype=torch.float64))
        fitted = partial(fit_temperature, self.distribution, self.y, self.weight)
        found, steps = fitted(), self._steps_to(n_members)
        if steps > 0.0:
            ratio = min(found.temperature / fitted(_loss_without_one).temperature, 1.0)
            found = Temperature(found.temperature * ratio**steps)
        return fit_bias(found, self.distribution, self.y, self.weight)

    def _of_numbers(self, n_members: int | None, added: Tensor) -> Temperature:
        """Return the temperature and spread of numbers; `added` is the variance of functions."""
        judged = self._of_many(n_members).with_mean_variance(added)
        found = fit_temperature(judged, self.y, self.weight)
        common = torch.as_tensor(self.common, dtype=torch.float64).expand(self.y.shape[1])
        temperature = torch.as_tensor(found.temperature, dtype=torch.float64).reshape(-1)
        if self.spreads is not None and (low := temperature < _LOW_TEMPERATURE).any():
            stated = self.weight @ self._stated(common)
            noise = self.weight @ judged.variances[0]
            found = fit_temperature(judged, self.y, self.weight, negative_log_likelihood)
            lower = torch.as_tensor(found.temperature, dtype=torch.float64).reshape(-1)
            lower = lower.maximum(_LEAST_NOISE * stated / noise).clamp(max=_LOW_TEMPERATURE)
            temperature = torch.where(low, lower, temperature)
        scales = plain(temperature), plain(common)
        return Temperature(*scales, are_smooth=self.are_smooth, of_smooth=self.weights[-1])

    def _stated(self, share: Any) -> Tensor:
        """Epistemic variance (m, t), with this share (t,) of that within kinds."""
        return share * self._weighted(self.spreads) + math.prod(self.weights) * self.apart

    def _weighted(self, of_kinds: Any) -> Tensor:
        return sum(w * values for w, values in zip(self.weights, of_kinds, strict=True))

    def _of_kinds(self, values: Tensor) -> Tensor:
        """Mean of the k values of each kind, (n_kinds, m, t)."""
        return values.unflatten(0, (len(self.weights), -1)).mean(1)

    def _weighing_kinds(self) -> OutOfBag:
        """Weigh two kinds for the least squared error of many members of each.

        The squared error of the mean of k members is that of many plus 1 / k of their variance.
        """
        errors = self._of_kinds(self.distribution.means) - self.y
        precision = self.weight[:, None] / self._of_many(None).variance
        noise = 2 * self.spreads / len(self.distribution.means)
        first, second = (precision * (errors.square() - noise)).sum(2)
        # It is noisy, and at least what the means of the kinds are apart.
        distance = (first + second).sum() - 2 * (precision * errors.prod(0)).sum()
        distance = max(distance.item(), (precision * self.apart).sum().item())
        weight = 0.5
        if distance > 0:
            gains = (first - second) / (2 * distance)
            variance = len(gains) * gains.var(correction=0).item()
            weight += gains.sum().item() * _PRIOR_OF_KINDS**2 / (_PRIOR_OF_KINDS**2 + variance)
        b = min(max(weight, 0.0), 1.0)
        a = 1.0 - b
        # Of two kinds `common` is the correlation of members that have the same draws.
        within = torch.as_tensor(self.common / _CORRELATION_OF_KINDS).clamp(max=1.0)
        share = self.weight / self.weight.sum()
        first, second = (share @ spread for spread in self.spreads)
        due = within * (a**2 * first + b**2 * second)
        due += 2 * a * b * self.common * (first * second).sqrt()
        total = a * first + b * second
        return self._replace(
            weights=(a, b), common=torch.where(total > 0, due / total, torch.ones_like(total))
        )

    def _of_many(self, n_members: int | None) -> EmpiricalGaussian:
        """The prediction of numbers by the mean of k members, with the variance of all of them.

        The squared error of the mean of k members is that of S members plus (1 / k - 1 / S) of the
        members' variance, and S members state (1 - 1 / S) of what their draws account for.
        """
        found = self.distribution
        if self.spreads is None:
            return found
        k, n = len(found.means), n_members or len(found.means)
        mean, noise = (self._weighted(self._of_kinds(v)) for v in (found.means, found.variances))
        squares = [w**2 * v for w, v in zip(self.weights, self.spreads, strict=True)]
        further = len(self.weights) * (1 / k - 1 / n) * sum(squares)
        stated = self._stated(self.common * (1 - 1 / n)) + further
        return EmpiricalGaussian(mean[None], noise[None], stated)

    def _steps_to(self, n_members: int | None) -> float:
        """Return how often a change from k - 1 to k members comes again to `n_members`."""
        k = len(self.distribution.log_probs) if not self.y.is_floating_point() else 1
        return 0.0 if n_members is None or not 1 < k < n_members else (k - 1) * (1 - k / n_members)

    def squared_error(self) -> np.ndarray:
        """Mean squared error of targets, (t,), or class indicators, (K,), over their variance."""
        is_numeric = self.y.is_floating_point()
        mean = self._of_many(None).mean if is_numeric else self.distribution.mean
        meant = self.y if is_numeric else torch.nn.functional.one_hot(self.y, mean.shape[1])
        share = self.weight / self.weight.sum()
        variance = share @ (meant - share @ meant.double()).square()
        error = share @ (mean - meant).square()
        return (error / torch.where(variance > 0, variance, 1.0)).numpy()

    def nll(self, calibration: Temperature | None, n_members: int | None = None) -> float:
        """Return the mean negative log-likelihood in nats; that of classes for `n_members`."""
        is_numeric = self.y.is_floating_point()
        found: Any = self._of_many(n_members) if is_numeric else self.distribution
        if calibration is not None:
            found = found.tempered(calibration.temperature)
        loss = -found.log_prob(self.y).reshape(len(self.y), -1).sum(1)
        steps = self._steps_to(n_members)
        if steps > 0.0:
            loss = loss + steps * (loss - _loss_without_one(found, self.y)[:, 0])
        return float(self.weight @ loss / self.weight.sum())


def _loss_without_one(found: EmpiricalCategorical, y: Tensor) -> Tensor:
    """Mean log loss of the mixtures that leave out one member, (n, 1)."""
    members = torch.arange(len(found.log_probs))
    mixtures = (EmpiricalCategorical(found.log_probs[members != one]) for one in members)
    return torch.stack([crps_or_log_loss(mixture, y) for mixture in mixtures]).mean(0)
