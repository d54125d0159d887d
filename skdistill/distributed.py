# SPDX-License-Identifier: BSD-3-Clause
"""Distributed training of students, and prediction for distributed data.

The fit of an ensemble is parallelised by joblib instead, as in
``with joblib.parallel_config(backend="dask"):``; see the parameter `n_jobs` of
:class:`skdistill.BayesianEnsembleRegressor`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch

from ._estimator.functions import predict_interval, predict_members, predict_uncertainty
from ._utils.ranks import Ranks, ranks_are
from ._utils.typing import ArrayLike, BaseEstimator
from ._utils.validation import OneOf

__all__ = ["data_parallel", "predict"]


@contextmanager
def data_parallel(group: torch.distributed.ProcessGroup | None = None) -> Iterator[None]:
    """Let the processes of ``torch.distributed`` train one student together.

    Within it, ``student.fit(X, y)`` is called by every process, with the same arguments: all
    samples, not a part of them. A minibatch is then of ``batch_size`` samples for each process,
    drawn by the same seeds; each asks the teacher about its own share, and gradients become one by
    one all-reduce a step. So the student is that of a single process with a batch as large as all
    of theirs, to rounding, and the same bit for bit in all of them.

    It holds for :class:`HydraPlusRegressor`, :class:`HydraPlusClassifier`,
    :class:`DistributionDistiller` and :class:`GPEDDistiller` of members, for `fit` and
    `partial_fit`. The first process fits a teacher that is not fitted, and sends it to the others.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup, default=None
        The processes; None is all of them.

    Returns
    -------
    context : context manager

    Raises
    ------
    RuntimeError
        If ``torch.distributed.init_process_group`` has not been called. In the fit, if another
        process has ended or failed, or took longer than the timeout of the group.
    ValueError, TypeError
        In the fit, if arguments or parameters are not the same on all processes, or the estimator
        cannot be trained in this way.

    Notes
    -----
    Layers that look at a whole minibatch, such as batch normalisation, see the share of their
    process; their running statistics are those of the first one. Dropout draws for each process by
    itself.

    Examples
    --------
    A group of one process; ``torchrun --nproc-per-node=2 script.py`` starts one of two:

    >>> import torch.distributed
    >>> from sklearn.datasets import load_diabetes
    >>> from skdistill import HydraPlusRegressor
    >>> from skdistill.distributed import data_parallel
    >>> X, y = load_diabetes(return_X_y=True)
    >>> store = torch.distributed.HashStore()
    >>> torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    >>> with data_parallel():
    ...     student = HydraPlusRegressor(max_epochs=2, random_state=0).fit(X, y)
    >>> torch.distributed.destroy_process_group()
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        raise RuntimeError(
            "data_parallel needs processes that know each other. Call "
            "torch.distributed.init_process_group() first, in a script that torchrun starts."
        )
    ranks = Ranks(group)
    if ranks.rank < 0:
        raise ValueError("group must have this process as a member, which it has not.")
    with ranks_are(ranks):
        yield


def predict(model: BaseEstimator, data: Any, method: str = "predict") -> Any:
    """Predict rows that dask or ray hold in blocks, block by block, where they are.

    Each block is given to the model as it is, and predicted when the result is asked for; at once,
    only the first row of a frame is. Large blocks are faster.

    Parameters
    ----------
    model : estimator
        A fitted skdistill estimator, or a Pipeline, search (GridSearchCV and its kin),
        FrozenEstimator or TransformedTargetRegressor around one. It is sent to each worker once.
    data : dask.array.Array, dask.dataframe.DataFrame or ray.data.Dataset
        Samples as the model's `predict` takes them. In a dataset of ray, the columns of a table, or
        one column "data" of arrays, as ``ray.data.from_numpy`` makes it.
    method : {"predict", "predict_proba", "predict_uncertainty", "predict_interval", \
            "predict_members"}, default="predict"
        What to predict. Of the uncertainty the last axis is total, aleatoric and epistemic, the
        latter two not a number if the model cannot tell them apart.

    Returns
    -------
    predictions : dask.array.Array, dask.dataframe.Series, dask.dataframe.DataFrame or \
            ray.data.Dataset
        An array for an array, of the shape that `method` gives. For a frame, with its index, a
        series, or a frame with a column for each class, part or bound. For a dataset one with the
        column `method`, whose values are numbers or arrays.

    Raises
    ------
    TypeError, ValueError
        If `data` are of another kind, the model has no such method, or it would give each row of a
        frame more than one axis.

    Examples
    --------
    >>> import dask.array
    >>> from sklearn.datasets import load_diabetes
    >>> from skdistill import BayesianEnsembleRegressor
    >>> from skdistill.distributed import predict
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BayesianEnsembleRegressor(n_members=2, max_epochs=2, random_state=0).fit(X, y)
    >>> rows = dask.array.from_array(X, chunks=(100, -1))
    >>> predict(model, rows).compute().shape
    (442,)
    """
    OneOf(tuple(_METHODS)).check(method, "method")
    if method == "predict_proba" and not hasattr(model, method):
        raise TypeError(f"model must have predict_proba for method={method!r}, got {model!r}.")
    library = type(data).__module__.partition(".")[0]
    kind = type(data).__name__
    if library == "dask" and kind == "Array":
        return _of_array(model, data, method)
    if library == "dask" and kind == "DataFrame":
        return _of_frame(model, data, method)
    if library == "ray" and hasattr(data, "map_batches"):
        return data.map_batches(partial(_of_batch, model, method), batch_format="numpy")
    raise TypeError(
        "data must be a dask Array, a dask DataFrame or a ray Dataset, got "
        f"{type(data).__module__}.{kind}."
    )


def _uncertainty(model: BaseEstimator, X: ArrayLike) -> np.ndarray:
    """Total, aleatoric and epistemic uncertainty along the last axis."""
    total, *parts = predict_uncertainty(model, X)
    unknown = np.full_like(total, np.nan)
    return np.stack([total, *(unknown if part is None else part for part in parts)], axis=-1)


_METHODS = {
    "predict": lambda model, X: model.predict(X),
    "predict_proba": lambda model, X: model.predict_proba(X),
    "predict_uncertainty": _uncertainty,
    "predict_interval": predict_interval,
    "predict_members": predict_members,
}

# Names of columns, where they do not depend on the model.
_COLUMNS = {
    "predict_uncertainty": ["total", "aleatoric", "epistemic"],
    "predict_interval": ["lower", "upper"],
}


def _answers(model: BaseEstimator, method: str, X: ArrayLike) -> np.ndarray:
    return np.asarray(_METHODS[method](model, X))


def _of_array(model: BaseEstimator, X: Any, method: str) -> Any:
    """Predictions for a dask array, in the same chunks of rows."""
    rows = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))  # a sample is in one block
    one = _answers(model, method, np.zeros((1, *X.shape[1:]), X.dtype))
    return rows.map_blocks(
        partial(_answers, model, method),
        drop_axis=list(range(1, X.ndim)),
        new_axis=list(range(1, one.ndim)),
        chunks=(rows.chunks[0], *((size,) for size in one.shape[1:])),
        meta=one[:0],
    )


def _of_frame(model: BaseEstimator, frame: Any, method: str) -> Any:
    """Predictions for a dask frame, with its partitions and index."""
    no_rows = _table(model, method, None, frame.head(1, npartitions=-1)).iloc[:0]
    return frame.map_partitions(partial(_table, model, method, no_rows), meta=no_rows)


def _table(model: BaseEstimator, method: str, no_rows: Any, frame: Any) -> Any:
    """A series, or a frame with named columns, of predictions for a partition."""
    import pandas as pd

    if not len(frame) and no_rows is not None:
        return no_rows
    answers = _answers(model, method, frame)
    if answers.ndim == 1:
        return pd.Series(answers, frame.index, name=method)
    if answers.ndim > 2:
        raise ValueError(
            "method must give a number, or one axis of numbers, for each row of a frame; "
            f"{method!r} gives shape {answers.shape[1:]}. Pass frame.to_dask_array(lengths=True)."
        )
    columns = model.classes_ if method == "predict_proba" else _COLUMNS.get(method)
    return pd.DataFrame(answers, frame.index, columns)


def _of_batch(model: Any, method: str, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Predictions for a batch of a ray dataset."""
    import pandas as pd

    X = batch["data"] if list(batch) == ["data"] else pd.DataFrame(batch)
    return {method: _answers(model, method, X)}
