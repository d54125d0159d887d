# SPDX-License-Identifier: BSD-3-Clause
"""Predictions of a booster from as many rounds as there is time for, or as a sample needs."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import InitVar, dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils import gen_batches
from torch import Tensor

from .._data.checks import check_outputs
from .._estimator.batched import as_rows, chunk_size, rows_at_a_time
from .._utils.validation import Number, OneOf
from .._utils.warnings import warn
from ..modules import Rounds

Read = Callable[[Any], Any]  # takes a distribution to a prediction


class EarlyExits(NamedTuple):
    """Where the samples left when they were predicted with limits: see `BDistilBooster.predict`."""

    rounds: np.ndarray
    shares: np.ndarray
    flop: float

    @classmethod
    def after(cls, rounds: np.ndarray, costs: Sequence[float]) -> EarlyExits:
        """Sum up after how many rounds the samples left, at these costs of each round."""
        n_left = np.bincount(rounds - 1, minlength=len(costs))
        return cls(rounds, n_left / len(rounds), float(np.cumsum(costs)[rounds - 1].mean()))


class Limits(NamedTuple):
    """What a prediction may cost; None is no limit. See :class:`BDistilBooster`."""

    max_rounds: int | None = None
    max_flops: float | None = None
    deadline: float | None = None
    early_exit: float | None = None
    exit_on: str = "auto"

    def check(self, n_rounds: int, can_tell_confidence: bool) -> None:
        """Raise a TypeError or ValueError for limits that make no sense."""
        Number(Integral, 1, n_rounds, others=(None,)).check(self.max_rounds, "max_rounds")
        for name in ("max_flops", "deadline"):
            Number(Real, 0, closed="neither", others=(None,)).check(getattr(self, name), name)
        Number(Real, 0, others=(None,)).check(self.early_exit, "early_exit")
        OneOf(("auto", "confidence", "spread")).check(self.exit_on, "exit_on")
        if self.exit_on == "confidence" and not can_tell_confidence:
            raise ValueError(
                "exit_on must be 'spread' or 'auto' for a regressor, which has no class to be "
                "confident of; got 'confidence'."
            )

    def affordable(self, costs: Sequence[float]) -> int:
        """How many rounds there are at most, at these costs of each; at least one."""
        n_rounds = len(costs) if self.max_rounds is None else min(self.max_rounds, len(costs))
        if self.max_flops is None:
            return n_rounds
        if self.max_flops < costs[0]:
            _warn("max_flops", self.max_flops, f"the {costs[0]:g} of one round for a sample")
        return max(1, min(n_rounds, int((np.cumsum(costs) <= self.max_flops).sum())))


class OutOfTime(Exception):
    """A round was given up."""


@dataclass(eq=False)
class LimitedRun:
    """Rounds of a booster within limits, which all samples go through together."""

    module: Any
    rows: Tensor
    n_rounds: int  # at most
    limits: Limits
    chunk: InitVar[int | None] = None  # samples to run at a time, None is all of them
    first: int = 0  # number of the first sample, for errors

    def __post_init__(self, chunk: int | None) -> None:
        self.start, self.stopped = time.perf_counter(), threading.Event()
        network, inputs = self.module.network, self.module.encode(self.rows)
        how = {"chunk": chunk, "before_chunk": self._check_time, "reach": network.reach}
        self.played = Rounds(network, inputs, **how)
        # Samples that have not left.
        self.inside = torch.arange(len(self.rows), device=self.rows.device)

    def is_late(self) -> bool:
        """Tell whether the deadline is over, or the run was stopped."""
        deadline = self.limits.deadline
        is_over = deadline is not None and time.perf_counter() - self.start > deadline
        return is_over or self.stopped.is_set()

    def _check_time(self) -> None:
        if self.played.outputs and self.is_late():  # every prediction needs the first round
            raise OutOfTime

    def advance(self) -> bool:
        """Run a round more; False if there is none, or no time for it."""
        if len(self.played.outputs) == self.n_rounds:
            return False
        try:
            with torch.inference_mode():
                outputs = self.played.advance()
        except OutOfTime:
            return False
        check_outputs(outputs, self.played.x, self.first + self.inside)
        deadline = self.limits.deadline
        if len(self.played.outputs) == 1 and deadline is not None and self.is_late():
            _warn("deadline", deadline, "the seconds of one round")
        return True

    def distribution(self) -> Any:
        """The distribution that the rounds so far predict together."""
        return self.module.of_outputs(self.played.mean.unsqueeze(0), self.rows[self.inside])

    def outputs(self) -> tuple[Tensor, np.ndarray]:
        """Outputs (n, L) after the rounds that each sample takes, and how many these are, (n,)."""
        rounds = np.zeros(len(self.played.x), dtype=np.int64)
        outputs = None
        while len(self.inside) and self.advance():
            rounds[self.inside.cpu()] += 1
            if self.limits.early_exit is None:
                continue
            mean = self.played.mean
            outputs = mean.clone() if outputs is None else outputs.index_copy_(0, self.inside, mean)
            stays = ~self._leaves()
            self.played.keep(stays)
            self.inside = self.inside[stays]
        return self.played.mean if outputs is None else outputs, rounds

    def _leaves(self) -> Tensor:
        """Which of the samples inside are sure enough, (n,)."""
        threshold, outputs = self.limits.early_exit, self.played.outputs
        is_sure_class = self.limits.exit_on == "auto" and self.module.network.centred
        if is_sure_class or self.limits.exit_on == "confidence":
            return self.distribution().mean.amax(-1) >= threshold
        if len(outputs) == 1:  # one round has no spread
            return torch.zeros(len(outputs[0]), dtype=torch.bool, device=outputs[0].device)
        bare = copy.copy(self.module)
        bare.calibration = None  # the student's own error is no spread of the rounds
        spread = bare.predicted(torch.stack(outputs)).uncertainty().epistemic
        return spread.view(len(spread), -1).amax(-1) <= threshold


class Anytime:
    """Predictions that get better round by round, from the first: see `BDistilBooster.anytime`."""

    def __init__(self, run: LimitedRun, read: Read):
        self._run = run
        self._read = read
        self._is_new = self._advance()  # a result that iteration has not given yet

    def _advance(self) -> bool:
        if not self._run.advance():
            return False
        with torch.inference_mode():
            self.result = self._read(self._run.distribution())
        self.n_rounds = len(self._run.played.outputs)
        return True

    def stop(self) -> None:
        """End the iteration, from any thread; a round that is not finished is given up."""
        self._run.stopped.set()

    def __iter__(self) -> Anytime:
        return self

    def __next__(self):
        if not self._is_new and (self._run.is_late() or not self._advance()):
            raise StopIteration
        self._is_new = False
        return self.result


def predict_within(
    module: Any, X: np.ndarray, read: Read, n_rounds: int, limits: Limits
) -> tuple[Any, np.ndarray]:
    """Read off what rounds within limits predict, and after how many rounds each sample left."""
    size = rows_at_a_time(module, X)

    def parts(rows: Tensor, first: int) -> list[np.ndarray]:
        run = LimitedRun(module, rows, n_rounds, limits, size, first)
        outputs, taken = run.outputs()
        found = read(module.of_outputs(outputs.unsqueeze(0), rows))
        return [*(found if isinstance(found, tuple) else (found,)), taken]

    # Until a deadline all samples go from round to round together.
    *found, taken = _by_chunks(module, X, parts, size if limits.deadline is None else len(X))
    return (tuple(found) if len(found) > 1 else found[0]), taken


def predict_after_each_round(
    module: Any, X: np.ndarray, read: Read, n_rounds: int
) -> Iterator[np.ndarray]:
    """Read off what the rounds so far predict, after each."""

    def parts(rows: Tensor, first: int) -> Iterator[np.ndarray]:
        run = LimitedRun(module, rows, n_rounds, Limits(), first=first)
        while run.advance():
            yield read(run.distribution())

    yield from _by_chunks(module, X, parts, rows_at_a_time(module, X))


def predict_along_time(
    module: Any, X: np.ndarray, n_rounds: int, threshold: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return codes of the classes, and how many time steps were read before each was predicted."""

    @torch.inference_mode()
    def parts(rows: Tensor, first: int) -> list[np.ndarray]:
        rounds = Rounds(module.network, rows, over_time=True)
        for _ in range(n_rounds):
            rounds.advance()
        check_outputs(rounds.mean, rows, range(first, first + len(rows)), axis=1)
        proba = torch.softmax(rounds.mean, -1).cpu().numpy()  # (time, n, K)
        is_sure = proba.max(-1) >= threshold
        is_sure[-1] = True
        step = is_sure.argmax(0)
        return [proba[step, np.arange(len(rows))].argmax(-1), step + 1]

    codes, steps = _by_chunks(module, X, parts, chunk_size(module, X.shape[1:]))
    return codes, steps


def _by_chunks(
    module: Any, X: np.ndarray, parts: Callable[[Tensor, int], Iterable[np.ndarray]], size: int
) -> list[np.ndarray]:
    """Concatenate what ``parts(samples, number of the first)`` gives, `size` samples at a time."""
    whole: list[np.ndarray] = []
    for rows in gen_batches(len(X), size):
        for number, part in enumerate(parts(as_rows(module, X[rows]), rows.start)):
            if rows.start == 0:  # written into place: pieces would fragment the memory
                whole.append(np.empty((len(X), *part.shape[1:]), dtype=part.dtype))
            whole[number][rows] = part
    return whole


def _warn(name: str, value: float, needed: str) -> None:
    warn(f"{name}={value:g} is less than {needed}; the first round was run nevertheless.")
