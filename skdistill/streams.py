# SPDX-License-Identifier: BSD-3-Clause
"""Out-of-core data: tables on disk as batches for ``fit``, and predicted batch by batch.

``fit(batches)`` of :class:`~skdistill.BayesianEnsembleRegressor`,
:class:`~skdistill.HydraPlusRegressor`, :class:`~skdistill.DistributionDistiller` and the like
accepts any object that yields ``(X, y)`` or ``(X, y, sample_weight)`` batch by batch each time that
it is iterated over. :class:`Batches` makes one of a table. :func:`predict_batches` predicts a table
and writes the predictions to disk.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn import config_context
from sklearn.base import BaseEstimator
from sklearn.utils import gen_batches
from tqdm import tqdm

from ._data.checks import is_stream
from ._estimator.functions import predict_frame
from ._training.samples import BUFFER_ROWS
from ._utils.validation import Number

if TYPE_CHECKING:
    from pandas import DataFrame
    from pyarrow.dataset import Dataset

__all__ = ["Batches", "predict_batches"]

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
        if (columns := _columns_of_table(self.source)) is not None:
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

    def __iter__(self) -> Iterator[tuple]:
        if self.target is None:
            yield from self.source
            return
        for frame in _pieces(self.source, self.batch_size or _BATCH_ROWS):
            X, y = frame[self._of_X], frame[self.target]
            yield (X, y) if self.weight is None else (X, y, frame[self.weight])

    def __repr__(self) -> str:
        return f"Batches({type(self.source).__name__}, buffer_rows={self.buffer_rows})"


def predict_batches(
    model: BaseEstimator,
    source: Any,
    folder: str | os.PathLike,
    *,
    keep: Sequence[str] = (),
    coverage: float = 0.9,
    batch_size: int = _BATCH_ROWS,
    verbose: bool = False,
) -> Dataset:
    """Predict a table that need not fit in memory, and write a folder of Parquet files.

    Memory is that of a batch. Each file is renamed to its name once it is complete, so that a call
    after an interruption or a full disk goes on where the last one ended.

    Parameters
    ----------
    model : estimator
        One that :func:`skdistill.predict_frame` accepts.
    source : pyarrow.dataset.Dataset, polars.LazyFrame, dask.dataframe.DataFrame or array-like
        A table with the model's columns, in any order and among others; or an array of shape
        (n_samples, n_features) or a frame, such as a memory map of :func:`numpy.load`.
    folder : path-like
        Of one Parquet file for each batch, ``part-000000.parquet`` the first; it is made.
    keep : list of str, default=()
        Columns of the table that are copied beside the predictions, such as coordinates.
    coverage : float, default=0.9
        Of the interval of a regressor.
    batch_size : int, default=65_536
        Largest number of samples that are read and predicted at a time.
    verbose : bool, default=False
        Whether to show a progress bar.

    Returns
    -------
    predictions : pyarrow.dataset.Dataset
        The files, with the columns of ``predict_frame``, in the order of the source.

    Raises
    ------
    ValueError
        If the folder has predictions of another model, source or batch size.
    """
    from pandas.testing import assert_frame_equal
    from pyarrow import Table, dataset, parquet

    Number(Integral, 1).check(batch_size, "batch_size")
    names = getattr(model, "feature_names_in_", None)

    def predicted(rows: DataFrame) -> DataFrame:
        X = rows
        if hasattr(rows, "columns"):
            X = rows[[c for c in rows.columns if c not in keep] if names is None else [*names]]
        elif keep:
            raise ValueError(f"keep must be empty where source has no columns, got {keep!r}.")
        with config_context(transform_output="pandas"):
            frame = predict_frame(model, X, coverage)
        return frame.reset_index(drop=True).assign(**{c: np.asarray(rows[c]) for c in keep})

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for rows in tqdm(_pieces(source, batch_size), disable=not verbose, unit="batch"):
        path = folder / f"part-{len(paths):06}.parquet"
        paths.append(path)
        if path.exists():  # of this batch, if its first sample is
            file = parquet.ParquetFile(path)
            is_same = file.metadata.num_rows == len(rows)
            first = next(file.iter_batches(1)).to_pandas()
            try:
                assert_frame_equal(first, predicted(rows[:1]), check_dtype=False, rtol=1e-3)
            except AssertionError:
                is_same = False
            if not is_same:
                raise ValueError(
                    "folder must be empty, or hold predictions of this model for this source in "
                    f"batches of this size; got {str(folder)!r} with another {path.name}."
                )
        else:
            part = path.with_suffix(".part")
            parquet.write_table(Table.from_pandas(predicted(rows), preserve_index=False), part)
            part.replace(path)
    return dataset.dataset([str(path) for path in paths])


def _columns_of_table(source: Any) -> list[str] | None:
    """Columns of a table that is read batch by batch; None of all else."""
    if hasattr(source, "collect_batches"):
        return list(source.collect_schema().names())
    if hasattr(source, "to_batches"):
        return list(source.schema.names)
    return list(source.columns) if _is_dask(source, "DataFrame") else None


def _pieces(source: Any, size: int) -> Iterator[DataFrame]:
    """Rows of a table or an array, in order, at most `size` at a time and at least one."""
    if hasattr(source, "collect_batches"):
        frames = source.collect_batches(chunk_size=size, lazy=True)
    elif hasattr(source, "to_batches"):
        frames = (batch.to_pandas() for batch in _arrow_batches(source, size))
    elif _is_dask(source, "DataFrame"):
        parts = (part.compute() for part in source.partitions)
        frames = (part.iloc[rows] for part in parts for rows in gen_batches(len(part), size))
    else:
        frames = (source[rows] for rows in gen_batches(len(source), size))
    return (frame for frame in frames if len(frame))


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
