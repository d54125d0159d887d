# SPDX-License-Identifier: BSD-3-Clause
"""The samples of a fit, checked: in memory, or in batches that are counted, and read again.

Both kinds are asked for the same: `scaling`, `inputs`, and samples `in_memory`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from joblib.externals.loky.backend.reduction import dumps  # as loky pickles
from sklearn.utils import assert_all_finite

from .._data.checks import check_trainable, check_weights
from .._data.columns import as_table
from .._data.encoding import InputEncoding, InputSettings
from .._data.schema import InputSchema
from .._method.task import (
    TASKS,
    Buffers,
    ClassificationTask,
    RegressionTask,
    Task,
    dtype_to_compute,
    read_samples,
)
from .._utils.moments import Moments
from ..modules import DistributionStack
from ..settings import Runtime

BUFFER_ROWS = 100_000  # samples of the shuffle buffer, for batches that do not say how many
_N_EXAMPLES = 10_000  # samples of a stream that are kept, about; see doc/design.rst

# Kinds of labels that are numbers, which numpy would turn into words beside words.
_NUMBERS = "biuf"


def refuse_with_stream(
    params: Mapping[str, object], neutral: Mapping[str, object], arguments: Mapping[str, object]
) -> None:
    """Raise a ValueError unless `params` are as in `neutral`, and `arguments` of `fit` None."""
    given = {name: params[name] for name in neutral if name in params}
    for name, value in {**given, **arguments}.items():
        wanted = neutral.get(name)
        is_same = isinstance(value, (str, int, np.bool_)) and value == wanted
        if not (value is wanted or is_same):
            raise ValueError(
                f"{name} must be {wanted!r} where X gives batches, (X, y) or (X, y, "
                f"sample_weight); got {value!r}."
            )


class Samples(NamedTuple):
    """Samples in memory, their targets and their weights, which may be None."""

    X: np.ndarray
    y: np.ndarray
    weight: Any

    @property
    def n_rows(self) -> int:
        return len(self.X)

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.X.shape[1:]

    @property
    def total_weight(self) -> float:
        return self.n_rows if self.weight is None else float(self.weight.sum())

    @property
    def in_memory(self) -> Samples:
        return self

    def at(self, rows: np.ndarray) -> Samples:
        weight = None if self.weight is None else self.weight[rows]
        return Samples(self.X[rows], self.y[rows], weight)

    def scaling(self, task: Task, normalize_y: bool) -> Buffers:
        """Location and scale of the targets."""
        return task.scaling(self.y, self.weight, self.X.dtype, normalize_y)

    def inputs(self, settings: InputSettings, embedded_from: int) -> InputEncoding | None:
        """Return the encoding that these settings ask for; None for no table."""
        return settings.encoding(*self, embedded_from)


def read_in_memory(
    estimator: Any,
    X: object,
    y: object,
    sample_weight: object,
    class_weight: object = None,
    before: Any = None,
    *,
    known: Any = None,
    is_pass: bool = False,
) -> tuple[Samples, slice | np.ndarray, InputSchema, Task]:
    """Check X and y; return samples of positive weight, which they are, their schema and task.

    `before` is the Fitted that the fit goes on from, and `known` a task that is known without one;
    `is_pass` is of `partial_fit`.
    """
    table, goes_on = as_table(X), before is not None
    rows, y, schema = read_samples(
        estimator, table, y, estimator._input_schema if goes_on else None
    )
    known = before.plan.task if goes_on and known is None else known
    y, task = TASKS[estimator._kind].check(y, known)
    if goes_on:
        schema = schema.with_further(table, rows) if is_pass else schema
        rows = in_dtype_of(before.module, rows)
        task = replace(task, dtype=before.plan.task.dtype)
    elif "dtype" not in estimator._parameter_table["runtime"].unread:
        runtime, given = Runtime.of(estimator.runtime), rows.dtype.name

        def limits() -> tuple[np.ndarray, np.ndarray]:  # NaN is missing
            return np.fmin.reduce(rows), np.fmax.reduce(rows)

        wanted = dtype_to_compute(runtime.dtype, runtime.device, given, rows.shape, limits)
        if wanted != given:
            check_trainable(rows, wanted)
            rows, task = rows.astype(wanted), replace(task, dtype=given)
    samples = Samples(rows, y, task.weights_of_rows(y, sample_weight, class_weight))
    if samples.weight is None or samples.weight.all():  # X may be a memory map
        return samples, slice(None), schema, task
    kept = samples.weight > 0
    return samples.at(kept), kept, schema, task


def in_dtype_of(module: DistributionStack, X: np.ndarray) -> np.ndarray:
    """Return samples in the dtype that the fitted networks compute in."""
    dtype = next(module.parameters()).cpu().detach().numpy().dtype
    check_trainable(X, dtype)
    return X.astype(dtype, copy=False)


class Stream:
    """Batches of samples and targets, which are read once to learn what they hold.

    `source` gives all batches, ``(X, y)`` or ``(X, y, sample_weight)``, each time that it is
    iterated over; the parameters of `estimator` say how they are checked. A TypeError or ValueError
    says that there are none, that they can be read once only, or that one differs from the others.

    `n_rows` are the samples of positive weight, `examples` up to 10,000 of them, evenly spaced, and
    `X_limits` the smallest and largest values of the columns.
    """

    def __init__(self, estimator: Any, source: Any):
        if isinstance(source, Iterator):
            raise TypeError(
                "X must be batches that can be read again, an object whose __iter__ begins anew "
                f"each time, got {type(source).__name__}, which can be read once only. Put what "
                "makes it into the __iter__ of a class."
            )
        self.estimator, self.source = estimator, source
        self.buffer_rows = getattr(source, "buffer_rows", BUFFER_ROWS)
        self.n_rows, self.total_weight = 0, 0.0
        self.X_moments, self.y_moments = Moments(), Moments()
        self.y_varies: Any = False
        kind, examples = TASKS[estimator._kind], _Examples(_N_EXAMPLES)
        schema: InputSchema | None = None
        labels: Any = None
        first_y: Any = None
        for number, batch in enumerate(source):
            with _errors_of_batch(number):
                X, y, weight = self._taken_apart(batch)
                table = as_table(X)
                known = None if schema is None else schema.grown(table)
                X, y, schema = read_samples(estimator, X, y, known)
                values = _numbers_of(schema, X)
                # What is missing would have to be known before.
                assert_all_finite(values, input_name="X")
                facts: dict[str, Any] = {
                    "X with samples of shape": X.shape[1:],
                    "X of dtype": X.dtype,
                    "y with samples of shape": y.shape[1:],
                    "sample_weight:": weight is not None,
                }
                if number == 0:
                    first, self.first_X = facts, table
                    self.row_shape, self.given_dtype, y_shape, self.is_weighted = facts.values()
                    limits = np.fmin.reduce(values), np.fmax.reduce(values)
                for name, found in facts.items():
                    if found != first[name]:
                        raise ValueError(
                            f"it must have {name} {first[name]}, as the first; got {found}."
                        )
                weights = _weights(weight, len(X))
                if not (is_kept := weights > 0).all():
                    X, values, y, weights = (a[is_kept] for a in (X, values, y, weights))
                if not len(X):
                    continue
                low, high = np.fmin.reduce(values), np.fmax.reduce(values)
                limits = np.fmin(limits[0], low), np.fmax(limits[1], high)
                self.n_rows += len(X)
                self.total_weight += float(weights.sum())
                if X.ndim == 2:
                    # Of equal weights the sums are rounded in another way.
                    self.X_moments.add(values, weights if self.is_weighted else None)
                if kind is RegressionTask:
                    targets = y.reshape(len(y), -1)
                    self.y_moments.add(targets, weights)
                    first_y = targets[0].copy() if first_y is None else first_y
                    self.y_varies = self.y_varies | (targets != first_y).any(axis=0)
                else:
                    own = np.unique(y)
                    labels = own if labels is None else labels
                    if (labels.dtype.kind in _NUMBERS) != (own.dtype.kind in _NUMBERS):
                        raise ValueError(
                            f"it must have y of labels like {labels.tolist()[0]!r}, of the first; "
                            f"got {own.tolist()[0]!r}."
                        )
                    labels = np.union1d(labels, own)
                examples.add(Samples(X, y, weights))
        if schema is None or not self.n_rows:
            raise ValueError("X must give at least one batch with a sample of positive weight.")
        self.X_limits, self.examples = limits, examples.part()
        self.schema = schema.with_limits(*limits, self.n_rows)
        runtime, shape = Runtime.of(estimator.runtime), (self.n_rows, *self.row_shape)
        wanted = runtime.dtype, runtime.device, self.given_dtype.name
        self.dtype = np.dtype(dtype_to_compute(*wanted, shape, lambda: limits))
        self.task: Task
        if kind is RegressionTask:
            self.task = RegressionTask.check(np.zeros((1, *y_shape)))[1]
        else:
            self.task = ClassificationTask.of_labels(labels, "y")
        if self.dtype != self.given_dtype:
            self.task = replace(self.task, dtype=self.given_dtype.name)

    @staticmethod
    def _taken_apart(batch: Any) -> tuple[Any, Any, Any]:
        """X, y and weights, or None for the latter."""
        if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
            raise TypeError(
                "a batch must be a tuple (X, y) or (X, y, sample_weight), got "
                f"{type(batch).__name__}."
            )
        return (*batch, None)[:3]

    def __getstate__(self) -> dict[str, object]:
        """What a task in another process needs: no samples."""
        return {**vars(self), "first_X": None, "examples": None}

    def check_pickle(self, n_jobs: int) -> None:
        """Raise a TypeError unless the batches can be sent to other processes."""
        try:
            dumps(self.source)
        except Exception as error:  # whatever an object does that is not made for it
            raise TypeError(
                f"X must be batches that can be sent to other processes, by pickle, with n_jobs="
                f"{n_jobs}; got {type(self.source).__name__}: {error}. Leave n_jobs=None, or take "
                'threads, which each iterate over X: with joblib.parallel_config("threading").'
            ) from error

    def scaling(self, task: Task, normalize_y: bool) -> Buffers:
        loc, scale = self.y_moments.standardisation(constant=0.0)
        if not normalize_y:
            loc, scale = np.zeros_like(loc), np.ones_like(scale)
        return task.scaling_by(loc, scale, self.dtype, self.y_varies)

    def inputs(self, settings: InputSettings, embedded_from: int) -> InputEncoding | None:
        """Return the encoding that these settings ask for; None for no table."""
        normalize, n_categories = settings.normalize, settings.n_categories
        if len(self.row_shape) > 1 or not (normalize or n_categories is not None):
            return None
        X, y, weight = self.examples
        moments = self.X_moments, self.X_limits
        weights = weight if self.is_weighted else None
        bins = settings.bins(self.n_rows, X, y, embedded_from)
        return InputEncoding.of_moments(
            *moments, X, weights, bins, normalize=normalize, n_categories=n_categories
        )

    def encoded_examples(self, scaling: Buffers) -> Samples:
        """Return `examples` as :meth:`stretches` gives samples."""
        X, y, weight = self.in_memory
        return Samples(*self._encoded(X, y, scaling), weight)

    @property
    def in_memory(self) -> Samples:
        """`examples` with codes of classes, or with targets of shape (n, t)."""
        X, y, weight = self.examples
        if isinstance(self.task, ClassificationTask):
            labels, codes = np.unique(y, return_inverse=True)
            y = self.task.codes_of(labels)[codes]
        else:
            y = y.reshape(len(y), -1).astype(np.float64)
        return Samples(X, y, weight)

    def stretches(self, scaling: Buffers, size: int) -> Iterator[Samples]:
        """Read all samples again, `size` at a time, in memory that the next stretch overwrites."""
        buffer, n_held, n_read = None, 0, 0
        for part in self._parts(scaling):
            if buffer is None:
                buffer = Samples(*(np.empty((size, *a.shape[1:]), a.dtype) for a in part))
            n_read += len(part.X)
            start = 0
            while start < len(part.X):
                n_taken = min(size - n_held, len(part.X) - start)
                for held, array in zip(buffer, part, strict=True):
                    held[n_held : n_held + n_taken] = array[start : start + n_taken]
                start, n_held = start + n_taken, n_held + n_taken
                if n_held == size:
                    yield buffer
                    n_held = 0
        if buffer is not None and n_held:
            yield Samples(*(held[:n_held] for held in buffer))
        if n_read != self.n_rows:
            raise ValueError(
                f"X must give the same samples each time that it is read, got {self.n_rows} "
                f"samples of positive weight the first time and {n_read} later."
            )

    def _parts(self, scaling: Buffers) -> Iterator[Samples]:
        """Batches, checked and encoded; samples of weight zero are left out."""
        for number, batch in enumerate(self.source):
            with _errors_of_batch(number):
                X, y, weight = self._taken_apart(batch)
                X, y, _ = read_samples(self.estimator, X, y, self.schema)
                y, _ = self.task.check(y, self.task)  # type: ignore[arg-type]  # of the same kind
                assert_all_finite(_numbers_of(self.schema, X), input_name="X")
                weights = _weights(weight, len(X))
                part = Samples(*self._encoded(X, y, scaling), weights)
            is_kept = weights > 0
            yield part if is_kept.all() else Samples(*(array[is_kept] for array in part))

    def _encoded(self, X: np.ndarray, y: np.ndarray, scaling: Buffers) -> tuple[Any, Any]:
        if X.dtype != self.dtype:
            check_trainable(X, self.dtype)
            X = X.astype(self.dtype)
        y = self.task.encode(y, scaling, self.dtype)
        check_trainable(y, self.dtype, "y")
        return X, y


def _numbers_of(schema: InputSchema, X: np.ndarray) -> np.ndarray:
    """Samples with zeros in place of the codes of categories, of which some may be missing."""
    if schema.columns is None:
        return X
    return np.where(schema.columns.n_categories > 0, X.dtype.type(0), X)


class _Examples:
    """Keeps samples that are evenly spaced among all: each 1st, then 2nd, 4th and so on."""

    def __init__(self, n_most: int):
        self.n_most, self.every, self.n_seen, self.n_kept = n_most, 1, 0, 0
        self.parts: list[Samples] = []

    def add(self, part: Samples) -> None:
        first = -self.n_seen % self.every
        self.n_seen += len(part.X)
        self.parts.append(Samples(*(array[first :: self.every].copy() for array in part)))
        self.n_kept += len(self.parts[-1].X)
        while self.n_kept > self.n_most:
            self.every *= 2
            self.parts = [Samples(*(array[::2] for array in self.part()))]
            self.n_kept = len(self.parts[0].X)

    def part(self) -> Samples:
        return Samples(*map(np.concatenate, zip(*self.parts, strict=True)))


def _weights(weight: Any, n_rows: int) -> np.ndarray:
    """Weights of a batch's samples, which may all be zero."""
    if weight is None:
        return np.ones(n_rows)
    is_zero = np.shape(weight) == (n_rows,) and not np.any(np.asarray(weight))
    checked = None if is_zero else check_weights(weight, n_rows)
    return np.zeros(n_rows) if checked is None else checked


@contextmanager
def _errors_of_batch(number: int) -> Iterator[None]:
    """Name the batch in an error about it."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"X must give batches that go together. Batch {number}: {error}") from error


def rows_of_stream(
    stream: Stream,
    scaling: Buffers,
    batch_size: int,
    seeds: Sequence[int],
    deal: Callable[[Samples, int], Any],
) -> Any:
    """Return the rows of a stream as the engine takes them, stretch by stretch.

    `deal` makes them of samples in memory and the number of their stretch: as many whole batches as
    the buffer holds, which are shuffled together.
    """
    from .._engine import StreamedRows

    size = min(max(1, stream.buffer_rows // batch_size) * batch_size, stream.n_rows)
    none = torch.from_numpy(np.empty((0, *stream.row_shape), stream.dtype))

    def stretches(epoch: int) -> Iterator[Any]:
        return map(deal, stream.stretches(scaling, size), itertools.count())

    return StreamedRows(stretches, stream.n_rows, batch_size, seeds, none)
