# SPDX-License-Identifier: BSD-3-Clause
"""Samples, in memory or read in parts, and how they are dealt to a stack in minibatches."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor

from .._utils.process import fits_twice, rows_asked, rows_in_memory, working_memory
from ..modules import InputEncoder
from ._answers import AnswersOnFile

# How these were chosen: see doc/design.rst.
_GATHER_BYTES = 2**22  # bytes of the samples that are gathered at a time, for several batches
_ENCODED_BYTES = 2**28  # bytes up to which samples that do not change are encoded once
_DRAW_BYTES = 2**23  # bytes of the new samples that are drawn at a time

Batch = tuple[Tensor, tuple[tuple[Tensor, ...], Tensor | None]]


class Rows(torch.utils.data.Dataset):
    """Samples in memory, dealt to the members of a stack in minibatches.

    Iterating is one epoch. A batch holds until the next one overwrites it. Every member sees the
    samples in an order drawn by its seed; if all fit one batch, members share them in the order
    given, unless the place in the minibatch matters to the stack (`by_place`). Without seeds
    samples are not shuffled, and `places`, (S, m), may be those that each member sees.

    Weights, (S, n) or (1, n), are divided by `mean_weight`, None for their mean. `draw`, of a
    :class:`skdistill.transfer.TransferMaker`, replaces samples, but the first `n_kept`.
    """

    limit = sys.maxsize  # samples whose targets are found at a time

    def __init__(
        self,
        X: Tensor,
        targets: tuple[Tensor, ...],
        weight: Tensor | None = None,
        batch_size: int | None = None,
        seeds: Sequence[int] = (),
        draw: Callable[..., Tensor] | None = None,
        n_kept: int = 0,
        mean_weight: float | None = None,
        by_place: bool = False,
        own_targets: tuple[Tensor, ...] = (),
        places: Tensor | None = None,
    ):
        self.places = torch.arange(len(X), device=X.device)[None] if places is None else places
        self.X, self.targets, self.own_targets = X, targets, own_targets
        if weight is not None:
            weight = weight / (mean_weight or weight.mean(-1, keepdim=True))
        self.weight = weight
        self.batch_size = int(min(batch_size or len(X), len(X)))
        self.seeds = seeds
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self._order = torch.empty(len(seeds), len(X), dtype=torch.int32)
        self.by_place = by_place
        self.draw = draw
        self._dealt = X
        self._gathered: dict[str, Tensor] = {}
        self._encode: Callable[[Tensor], Tensor] | None = None
        self._encoded_by: InputEncoder | None = None
        self.n_kept = len(X) if draw is None else n_kept
        self._all_generators = self.generators
        if draw is not None:
            self._draw_generator = torch.Generator(X.device).manual_seed(seeds[0] + 1)
            self._all_generators = [*self.generators, self._draw_generator]

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, i):
        return self.X[i], tuple(target[i] for target in self.targets)

    def state(self) -> list[Tensor]:
        """Return the states of the generators, of the order of the samples and of new samples."""
        return [generator.get_state() for generator in self._all_generators]

    def load_state(self, state: list[Tensor]) -> None:
        """Go on from what :meth:`state` returned: the same orders and new samples follow."""
        for generator, value in zip(self._all_generators, state, strict=True):
            generator.set_state(value)

    def encode_by(self, inputs: InputEncoder | None) -> None:
        """Encode samples: once, without new ones and with memory for it, or batch by batch."""
        if inputs is None or inputs is self._encoded_by:
            return
        self._encoded_by = inputs
        n_bytes = len(self) * inputs.n_inputs * self.X.element_size()
        if not self._stays_encoded(n_bytes):
            self._encode = inputs
        elif n_bytes <= _GATHER_BYTES:
            self._dealt = inputs(self.X)
        else:  # some at a time, so that what is computed on the way stays small
            self._dealt = self.X.new_empty(*self.X.shape[:-1], inputs.n_inputs)
            size = max(1, _GATHER_BYTES // self._dealt[:1].nbytes)
            for rows, into in zip(self.X.split(size), self._dealt.split(size), strict=True):
                into.copy_(inputs(rows))

    def _stays_encoded(self, n_bytes: int) -> bool:
        """Whether X is only dealt, so that its encoding, of so many bytes, may be kept."""
        return self.draw is None and n_bytes <= min(working_memory(), _ENCODED_BYTES)

    def __iter__(self) -> Iterator[Batch]:
        for index in self._orders():
            for X, rest in self.deal(index):
                yield (X if self._encode is None else self._encode(X)), rest

    def _orders(self) -> Iterator[Tensor]:
        """Places of the samples of some batches at a time, (k, S or 1, size), in an epoch."""
        n, size = len(self), self.batch_size
        if (size == n and not self.by_place) or not self.generators:
            yield from (places[None] for places in self.places.split(size, dim=1))
            return
        for generator, row in zip(self.generators, self._order, strict=True):
            torch.randperm(n, generator=generator, dtype=row.dtype, out=row)
        order = self._order.to(self.X.device)
        n_full = n // size
        step = max(1, self.gather_limit() // (size * len(order)))
        for start in range(0, n_full, step):
            stop = min(start + step, n_full)
            # (S, k * size) -> (k, S, size): one batch after the other, each contiguous.
            index = order[:, start * size : stop * size].unflatten(1, (stop - start, size))
            yield index.transpose(0, 1).contiguous()
        if n % size:
            yield order[None, :, n_full * size :]

    def gather_limit(self) -> int:
        """Largest number of samples to take at a time."""
        own = (target[0] for target in self.own_targets)
        return _GATHER_BYTES // sum(t[:1].nbytes for t in (self._dealt, *self.targets, *own))

    def deal(self, index: Tensor) -> Iterator[Batch]:
        """Batches of the samples at `index`, of shape (k, S or 1, size), one after the other."""
        X = self._drawn(index)
        size = max(1, self.limit // index[0].numel())
        for own, rows in zip(index.split(size), X.split(size), strict=True):
            targets = self._targets_at(own, rows)
            weights: Iterable[Tensor | None] = itertools.repeat(None)
            if self.weight is not None:
                weights = self._gather_own("weight", self.weight, own).unbind()
            dealt = zip(*(target.unbind() for target in targets), strict=True)
            yield from zip(rows.unbind(), zip(dealt, weights, strict=False), strict=True)

    def _drawn(self, index: Tensor) -> Tensor:
        """Return the samples at `index`, (..., *row), or new ones in their place."""
        if self.draw is None:
            return self._gather("rows", self._dealt, index)
        X = self._gather("rows", self.X, index)
        drawn = self.draw(X, index, self._draw_generator)
        if self.n_kept:
            is_kept = (index < self.n_kept).view(*index.shape, *[1] * (X.ndim - index.ndim))
            drawn = torch.where(is_kept, X, drawn)
        return drawn

    def _targets_at(self, index: Tensor, X: Tensor) -> tuple[Tensor, ...]:
        shared, own = enumerate(self.targets), enumerate(self.own_targets)
        return (
            *(self._gather(f"target {i}", target, index) for i, target in shared),
            *(self._gather_own(f"own target {i}", target, index) for i, target in own),
        )

    def _gather_own(self, name: str, values: Tensor, index: Tensor) -> Tensor:
        """Return ``values[s, index[s]]`` of each member s, whose values are (S or 1, n, ...)."""
        n_members, n = values.shape[:2]
        if self.by_place:
            member = torch.arange(index.shape[-1], device=index.device) % n_members
        else:
            member = torch.arange(n_members, device=index.device).unsqueeze(1)
        return self._gather(name, values.flatten(0, 1), index + n * member)

    def _gather(self, name: str, values: Tensor, index: Tensor) -> Tensor:
        """Return ``values[index]``, in memory that the next call with this name overwrites.

        Blocks of megabytes that were allocated anew for every call left glibc's heap in pieces: a
        fit of 1,000,000 samples took up to twice the memory.
        """
        n = index.numel()
        memory = self._gathered.get(name)
        if memory is None or len(memory) < n:
            memory = self._gathered[name] = values.new_empty(n, *values.shape[1:])
        torch.index_select(values, 0, index.reshape(-1), out=memory[:n])
        return memory[:n].view(*index.shape, *values.shape[1:])


class DistillationRows(Rows):
    """Samples whose first target is what a teacher predicts for them.

    The teacher predicts samples that stay as they are once. Predictions that exceed scikit-learn's
    ``working_memory`` go to a file: to read them took 1/20 of the time of asking an ensemble of
    ours, 1/30 for a forest and 1/90 for boosted trees. If there is no file, and for new samples,
    the teacher predicts samples as they are dealt, some batches at a time.

    `predictions` are those for the samples that stay as they are, `known` those for the first of
    them, where they are known beforehand. `answers` is the file for what does not fit the memory,
    such as the predictions for a stretch of a stream; None is memory, or a file of their own.
    """

    def __init__(
        self,
        X,
        targets,
        weight,
        batch_size,
        seeds,
        *,
        teacher,
        predictions: Tensor | None = None,
        known: Tensor | None = None,
        answers: AnswersOnFile | None = None,
        **dealt,
    ):
        super().__init__(X, targets, weight, batch_size, seeds, **dealt)
        self.teacher = teacher
        self.predictions = predictions
        answer = self._answer(X[:1]) if predictions is None else predictions[:1]
        self.limit = rows_asked(answer)
        # Samples to ask for at a time; a network rounds portions of one size in the same way.
        self._portion = max(self.limit, self.batch_size)
        self.no_predictions = answer[:0]
        if known is not None:
            further = [] if answers else [self._predict(X[len(known) :])]
            self.predictions = torch.cat([known, *further])
        elif predictions is None and self.n_kept:
            self.predictions = self._kept_predictions(answer, answers)

    def _stays_encoded(self, n_bytes: int) -> bool:
        """Whether X is only dealt; as much is kept as calls take, beside it and the predictions."""
        are_known = self.predictions is not None and len(self.predictions) == len(self)
        return self.draw is None and are_known and n_bytes <= _GATHER_BYTES

    def _kept_predictions(self, answer: Tensor, answers: AnswersOnFile | None) -> Tensor | None:
        """Predictions for the samples that stay as they are; None if they cannot be kept."""
        kept = self.X[: self.n_kept]
        fits = self.n_kept <= rows_in_memory(answer)
        if answers is None and not fits and fits_twice(self.n_kept * answer.nbytes):
            answers = AnswersOnFile(self.n_kept)
        predictions = None
        if answers is not None and (fits or kept.device.type == "cpu"):
            predictions = answers.of(kept, self._answer, self._portion)
        return self._predict(kept) if predictions is None and fits else predictions

    def _answer(self, rows: Tensor) -> Tensor:
        return torch.as_tensor(self.teacher(rows.cpu().numpy())).to(rows)

    def _predict(self, rows: Tensor) -> Tensor:
        """Predictions for samples (n, ...), for which the teacher is asked part by part."""
        if len(rows) <= self._portion:
            return self._answer(rows)
        # Written into place: parts that are joined in the end would take twice the memory.
        predictions = rows.new_empty(len(rows), *self.no_predictions.shape[1:])
        parts = (values.split(self._portion) for values in (rows, predictions))
        for part, into in zip(*parts, strict=True):
            into.copy_(self._answer(part))
        return predictions

    def gather_limit(self) -> int:
        if self.draw is not None:  # not by memory: what is drawn depends on it
            return _DRAW_BYTES // self.X[:1].nbytes
        return self.limit if self.predictions is None else super().gather_limit()

    def _targets_at(self, index, X):
        return self._predictions_for(index, X), *super()._targets_at(index, X)

    def _predictions_for(self, index: Tensor, X: Tensor) -> Tensor:
        """Predictions for samples (..., *row); those for samples that are kept may be known."""
        if self.predictions is None:
            return self._predict(X.flatten(0, index.ndim - 1)).unflatten(0, index.shape)
        n_known = len(self.predictions)
        if n_known == len(self) or (is_kept := index < n_known).all():
            return self._gather("predictions", self.predictions, index)
        predictions = self.predictions.new_empty(*index.shape, *self.predictions.shape[1:])
        predictions[is_kept] = self.predictions[index[is_kept]]
        predictions[~is_kept] = self._predict(X[~is_kept])
        return predictions


class StreamedRows(torch.utils.data.Dataset):
    """Samples that come in stretches, each dealt as :class:`Rows` deals all samples.

    `stretches` gives those of an epoch, counted from 0, one :class:`Rows` after the other, of the
    same seeds; all but the last are of whole batches. The generators go on from stretch to stretch,
    so that a single one is dealt as the same samples in memory are. X is like the samples.
    """

    def __init__(
        self,
        stretches: Callable[[int], Iterable[Rows]],
        n_rows: int,
        batch_size: int,
        seeds: Sequence[int],
        X: Tensor,
    ):
        self.stretches, self.n_rows, self.epoch = stretches, n_rows, 0
        self.X, self.batch_size, self.seeds = X, min(batch_size, n_rows), seeds
        self._inputs: InputEncoder | None = None
        self._generators = [torch.Generator().manual_seed(seed).get_state() for seed in seeds]

    def __len__(self) -> int:
        return self.n_rows

    def encode_by(self, inputs: InputEncoder | None) -> None:
        """Let batches have their samples encoded, as :meth:`Rows.encode_by` does."""
        self._inputs = inputs

    def state(self) -> list[Tensor]:
        """Return the states of the generators, and the number of epochs that have ended."""
        return [*self._generators, torch.tensor([self.epoch])]

    def load_state(self, state: list[Tensor]) -> None:
        """Go on from what :meth:`state` returned: the same orders and stretches follow."""
        *self._generators, epoch = state
        self.epoch = int(epoch)

    def __iter__(self) -> Iterator[Batch]:
        for rows in self.stretches(self.epoch):
            rows.encode_by(self._inputs)
            fresh = rows.state()[len(self._generators) :]  # that of new samples, at first
            rows.load_state([*self._generators, *fresh])
            yield from rows
            self._generators = rows.state()
        self.epoch += 1


def drawn_rows(X: Tensor, draw: Callable[..., Tensor], seed: int) -> Tensor:
    """Draw a new sample for each of the samples X, (n, ...), by what a maker has prepared."""
    generator = torch.Generator(X.device).manual_seed(seed)
    index = torch.arange(len(X), device=X.device)
    size = max(1, _DRAW_BYTES // X[:1].nbytes)
    parts = zip(X.split(size), index.split(size), strict=True)
    return torch.cat([draw(rows, places, generator) for rows, places in parts])
