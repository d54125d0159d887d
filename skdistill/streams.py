# SPDX-License-Identifier: BSD-3-Clause
"""Out-of-core data: tables on disk as batches for ``fit``.

``fit(batches)`` of :class:`~skdistill.BayesianEnsembleRegressor`,
:class:`~skdistill.HydraPlusRegressor`, :class:`~skdistill.DistributionDistiller` and the like
accepts any object that yields ``(X, y)`` or ``(X, y, sample_weight)`` batch by batch each time that
it is iterated over. :class:`Batches` makes one of a table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any

from sklearn.utils import gen_batches

from ._data.checks import is_stream
from ._training.stream import BUFFER_ROWS
from ._utils.validation import Number

__all__ = ["Batches"]

_BATCH_ROWS = 65_536  # of a table, in a batch


@dataclass(eq=False, repr=False)
class Batches:
    """Batches of a table that need not fit in memory, for ``fit``.

    Parameters
    ----------
    source : pyarrow.dataset.Dataset, polars.LazyFrame, dask.dataframe.DataFrame or iterable
        A table, whose batches are frames of pandas (which must be installed) or polars; or an
        object that gives batches itself, such as a ``torch.utils.data.IterableDataset``, to set
        `buffer_rows`. See :meth:`from_dask` for X and y apart.
    target : str or list of str, default=None
        Column(s) of y. All others, but for `weight`, are those of X.
    weight : str, default=None
        Column of the sample weights.
    batch_size : int, default=None
        Largest number of samples that are read at a time; None is 65,536. They are not the
        minibatches of training.
    buffer_rows : int, default=100_000
        Samples of the shuffle buffer: so many consecutive ones are held in memory, and shuffled, at
        a time.

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

    source: Any
    _: KW_ONLY
    target: str | Sequence[str] | None = None
    weight: str | None = None
    batch_size: int | None = None
    buffer_rows: int = BUFFER_ROWS

    def __post_init__(self) -> None:
        Number(Integral, 1, others=(None,)).check(self.batch_size, "batch_size")
        Number(Integral, 1).check(self.buffer_rows, "buffer_rows")
        of_table = {"target": self.target, "weight": self.weight, "batch_size": self.batch_size}
        if self._is_polars or self._is_arrow or _is_dask(self.source, "DataFrame"):
            columns = self._columns()
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
                "source must be a pyarrow.dataset.Dataset, a polars.LazyFrame, a dask DataFrame or "
                f"an object that gives batches each time that it is iterated over; got "
                f"{self.source!r}."
            )
        elif given := {name: value for name, value in of_table.items() if value is not None}:
            raise ValueError(
                f"{' and '.join(given)} must be None where source gives batches itself; got "
                f"{given}."
            )

    @classmethod
    def from_dask(
        cls, X: object, y: object, sample_weight: object = None, *, buffer_rows: int = BUFFER_ROWS
    ) -> Batches:
        """Make batches of dask's arrays or frames, one of each block of rows.

        ``fit(X, y)`` would hold all of them in memory, as numpy's. Blocks are computed anew each
        time that they are read, one at a time, by the scheduler that dask is set to:
        ``X.persist()`` is faster if the workers of a cluster can hold them.

        Parameters
        ----------
        X : dask.array.Array of shape (n_samples, ...) or dask.dataframe.DataFrame
        y : dask.array.Array, dask.dataframe.Series or dask.dataframe.DataFrame
            Of shape (n_samples,) or (n_samples, n_targets). Beside an array it is divided as X is;
            partitions of frames must be those of X.
        sample_weight : dask.array.Array or dask.dataframe.Series, default=None
        buffer_rows : int, default=100_000
            As for the class.

        Returns
        -------
        batches : Batches

        Raises
        ------
        ValueError
            If they differ in their numbers of samples or partitions, or arrays do not know them.
        """
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        return cls(_Blocks({"X": X, "y": y, **weights}), buffer_rows=buffer_rows)

    @property
    def _is_polars(self) -> bool:
        return hasattr(self.source, "collect_batches")

    @property
    def _is_arrow(self) -> bool:
        return hasattr(self.source, "to_batches")

    def _columns(self) -> list[str]:
        if self._is_polars:
            return list(self.source.collect_schema().names())
        return list(self.source.schema.names if self._is_arrow else self.source.columns)

    def _frames(self) -> Iterator[Any]:
        size = self.batch_size or _BATCH_ROWS
        if self._is_polars:
            yield from self.source.collect_batches(chunk_size=size, lazy=True)
        elif self._is_arrow:
            yield from (batch.to_pandas() for batch in _arrow_batches(self.source, size))
        else:
            for part in self.source.partitions:
                if len(frame := part.compute()):
                    yield from (frame.iloc[rows] for rows in gen_batches(len(frame), size))

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


def _arrow_batches(dataset: Any, size: int) -> Iterator[Any]:
    """Read a dataset of pyarrow file by file, with little held in memory.

    A scan of all files keeps some of each of them until its end, 80 bytes for a sample of 20
    numbers; and one that reads columns ahead keeps those of the file.
    """
    from pyarrow.dataset import ParquetFileFragment, ParquetFragmentScanOptions

    ahead = {"batch_size": size, "batch_readahead": 2}
    try:
        files = dataset.get_fragments()
    except ValueError:  # it has been filtered, and can be scanned as a whole only
        yield from dataset.to_batches(fragment_readahead=1, **ahead)
        return
    for file in files:
        is_parquet = isinstance(file, ParquetFileFragment)
        options = ParquetFragmentScanOptions(pre_buffer=False) if is_parquet else None
        yield from file.to_batches(dataset.schema, fragment_scan_options=options, **ahead)


def _is_dask(values: object, *kinds: str) -> bool:
    """Tell whether values are a collection of dask, which need not be imported for it."""
    kind = type(values)
    return kind.__module__.partition(".")[0] == "dask" and kind.__name__ in kinds


class _Blocks:
    """Blocks of rows of dask's arrays or frames, given by the names of arguments, "X" first."""

    def __init__(self, given: dict[str, Any]):
        for name, values in given.items():
            if not _is_dask(values, "Array", "DataFrame", "Series"):
                raise TypeError(
                    f"{name} must be a dask Array, DataFrame or Series, got {type(values)}."
                )
        if len({_is_dask(values, "Array") for values in given.values()}) > 1:
            raise TypeError(
                "X, y and sample_weight must all be dask arrays or all be of dask's frames, got "
                f"{[type(values).__name__ for values in given.values()]}; see to_dask_array."
            )
        are_arrays = _is_dask(given["X"], "Array")
        what = "equally many samples" if are_arrays else "the same partitions"
        sizes = {k: v.shape[0] if are_arrays else v.npartitions for k, v in given.items()}
        if any(math.isnan(n) for n in sizes.values()):
            raise ValueError(
                "X, y and sample_weight must be arrays that know how many samples they have: call "
                f"compute_chunk_sizes() or to_dask_array(lengths=True). Got {sizes}."
            )
        if len(set(sizes.values())) > 1:
            raise ValueError(f"X, y and sample_weight must have {what}, got {sizes}.")
        if not are_arrays:
            self.n_blocks, self.blocks = sizes["X"], [v.partitions for v in given.values()]
            return
        rows, self.n_blocks = given["X"].chunks[0], given["X"].numblocks[0]
        whole = ({0: rows, **dict.fromkeys(range(1, a.ndim), -1)} for a in given.values())
        self.blocks = [a.rechunk(c).blocks for a, c in zip(given.values(), whole, strict=True)]

    def __iter__(self) -> Iterator[tuple]:
        import dask

        for number in range(self.n_blocks):
            batch = dask.compute(*(blocks[number] for blocks in self.blocks))
            if len(batch[0]):
                yield batch
