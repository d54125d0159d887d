# SPDX-License-Identifier: BSD-3-Clause
"""Data that do not fit in memory: tables on disk as batches that ``fit`` takes.

``fit(batches)`` of :class:`~skdistill.BayesianEnsembleRegressor`,
:class:`~skdistill.HydraPlusRegressor`, :class:`~skdistill.DistributionDistiller` and their like
takes any object that gives ``(X, y)`` or ``(X, y, sample_weight)`` batch by batch each time that it
is iterated over. :class:`Batches` makes one of a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Integral
from typing import Any

from ._rules import Number
from ._streams import BUFFER_ROWS, is_stream

__all__ = ["Batches"]

# Rows of a batch, for tables.
_BATCH_ROWS = 65_536


class Batches:
    """Batches of a table that need not fit in memory, for ``fit``.

    Parameters
    ----------
    source : pyarrow.dataset.Dataset, polars.LazyFrame or iterable
        A table, whose batches are frames of pandas (which must be installed) or polars; or an
        object that gives batches itself, such as a ``torch.utils.data.IterableDataset``, to set
        `buffer_rows`.
    target : str or list of str, default=None
        Column(s) of y. All others, but for `weight`, are those of X.
    weight : str, default=None
        Column of the sample weights.
    batch_size : int, default=None
        Largest number of rows that are read at a time; None is 65,536. They are not the minibatches
        of training.
    buffer_rows : int, default=100_000
        Rows of the shuffle buffer: so many consecutive ones are held in memory, and shuffled, at a
        time.

    Examples
    --------
    >>> import polars
    >>> from skdistill import BayesianEnsembleRegressor
    >>> from skdistill.streams import Batches
    >>> table = polars.LazyFrame({"a": range(50), "b": range(50, 100), "y": range(50)})
    >>> batches = Batches(table, target="y", batch_size=20)
    >>> [X.shape for X, y in batches]
    [(20, 2), (20, 2), (10, 2)]
    >>> ensemble = BayesianEnsembleRegressor(2, max_epochs=2, random_state=0).fit(batches)
    >>> ensemble.feature_names_in_.tolist()
    ['a', 'b']
    """

    def __init__(
        self,
        source: Any,
        *,
        target: str | Sequence[str] | None = None,
        weight: str | None = None,
        batch_size: int | None = None,
        buffer_rows: int = BUFFER_ROWS,
    ):
        Number(Integral, 1, others=(None,)).check(batch_size, "batch_size")
        Number(Integral, 1).check(buffer_rows, "buffer_rows")
        self.source = source
        self.target = target
        self.weight = weight
        self.batch_size = batch_size
        self.buffer_rows = buffer_rows
        self._check_source()

    def _check_source(self) -> None:
        """Raise unless the source is a table with these columns, or gives batches itself."""
        of_table = {"target": self.target, "weight": self.weight, "batch_size": self.batch_size}
        if self._is_polars or self._is_arrow:
            columns = self._columns
            target = [self.target] if isinstance(self.target, str) else list(self.target or [])
            wanted = [*target, *([] if self.weight is None else [self.weight])]
            if not target or not set(wanted) <= set(columns):
                raise ValueError(
                    f"target and weight must be columns of the table, {columns}; got "
                    f"target={self.target!r} and weight={self.weight!r}."
                )
            self._of_X = [name for name in columns if name not in wanted]
        elif not is_stream(self.source) or isinstance(self.source, Iterator):
            raise TypeError(
                "source must be a pyarrow.dataset.Dataset, a polars.LazyFrame or an object that "
                f"gives batches each time that it is iterated over; got {self.source!r}."
            )
        elif given := {name: value for name, value in of_table.items() if value is not None}:
            raise ValueError(
                f"{' and '.join(given)} must be None where source gives batches itself; got "
                f"{given}."
            )

    @property
    def _is_polars(self) -> bool:
        return hasattr(self.source, "collect_batches")

    @property
    def _is_arrow(self) -> bool:
        return hasattr(self.source, "to_batches")

    @property
    def _columns(self) -> list[str]:
        schema = self.source.collect_schema() if self._is_polars else self.source.schema
        return list(schema.names() if self._is_polars else schema.names)

    def _frames(self) -> Iterator[Any]:
        size = self.batch_size or _BATCH_ROWS
        if self._is_polars:
            yield from self.source.collect_batches(chunk_size=size, lazy=True)
            return
        # Little is read ahead, since that is held in memory too.
        ahead = {"batch_readahead": 2, "fragment_readahead": 1}
        for batch in self.source.to_batches(batch_size=size, **ahead):
            yield batch.to_pandas()

    def __iter__(self) -> Iterator[tuple]:
        if self.target is None:
            yield from self.source
            return
        for frame in self._frames():
            if len(frame):
                X, y = frame[self._of_X], frame[self.target]
                yield (X, y) if self.weight is None else (X, y, frame[self.weight])

    def __repr__(self) -> str:
        return f"Batches({type(self.source).__name__}, buffer_rows={self.buffer_rows})"
