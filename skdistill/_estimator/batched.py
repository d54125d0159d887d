# SPDX-License-Identifier: BSD-3-Clause
"""Prediction of checked samples by a fitted module, chunk by chunk."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn import config_context, get_config
from sklearn.base import BaseEstimator
from torch import Tensor

from .._data.checks import check_magnitude, check_outputs, is_finite, is_small
from .._data.schema import read_table, warn_of_shares
from .._utils.process import on_threads, torch_threads, working_memory
from .._utils.validation import errors_about
from .._utils.warnings import warn
from ..distributions import Distribution
from ..modules import DistributionStack, activations_per_row, first_parameter
from .one_sample import predict_one

# How these were chosen: see doc/design.rst.
_CHUNK_BYTES = 2**22  # bytes of the activations of a chunk of samples
_FEW = 4096  # numbers up to which an array is checked by hand and predicted in one piece

_FLOATS = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
_CHUNKS_FOR_THREADS = 4  # chunks from which on threads are started
_SPANS = 16  # spans of chunks per thread


def check_rows(estimator: Any, X: Any, row_shape: tuple[int, ...]) -> np.ndarray:
    """Check samples to predict, of the shape of those in `fit`."""
    schema = estimator._input_schema
    if (  # a small array, which `validate_data` checks for longer than it takes to predict it
        type(X) is np.ndarray
        and X.dtype in _FLOATS
        and 0 < X.size <= _FEW
        and X.shape[1:] == row_shape
        # Of squares, whose sum says so in half the time of `isfinite`, if they do not overflow.
        and math.isfinite(np.vdot(X, X))
        and not schema.units
    ):
        if schema.names is not None:
            warn(  # as `validate_data` does
                f"X does not have valid feature names, but {type(estimator).__name__} was fitted "
                "with feature names"
            )
        rows = X if schema.columns is None else schema.columns.encode_floats(X)
        warn_of_shares(schema, X, rows)
        return rows
    n_axes = 1 + len(row_shape)
    with errors_about("X"):
        if n_axes > 2 and np.ndim(X) != n_axes:  # before scikit-learn takes an axis for features
            raise ValueError(
                f"X must have {n_axes} axes, samples of shape {row_shape} as in fit; got an array "
                f"of shape {np.shape(X)}. A single sample is X[None]."
            )
        X, _ = read_table(estimator, X, schema=schema)
    if X.shape[1:] != row_shape:
        raise ValueError(f"X must have samples of shape {row_shape}, as in fit; got {X.shape[1:]}.")
    return X


def as_rows(module: DistributionStack, X: np.ndarray, part: slice = slice(None)) -> Tensor:
    """Return samples, or a part of them, as a tensor of a module's dtype, on its device."""
    weight = first_parameter(module)
    # A copy, since a module may change its input.
    rows = torch.tensor(np.ascontiguousarray(X[part]), dtype=weight.dtype, device=weight.device)
    if X.dtype.itemsize > weight.dtype.itemsize and not is_finite(rows):
        check_magnitude(X, torch.finfo(weight.dtype).max)
    return rows


def rows_at_a_time(module: DistributionStack, X: np.ndarray) -> int:
    """Return how many samples to predict at a time: all, if they are few."""
    return len(X) if X.size <= _FEW else chunk_size(module, X.shape[1:])


def chunk_size(module: DistributionStack, row_shape: tuple[int, ...]) -> int:
    """Return how many samples to predict at a time; a GPU, waited for at each chunk, wants many."""
    is_on_cpu = first_parameter(module).device.type == "cpu"
    return rows_within(activations_per_row(module, row_shape), is_on_cpu)


def rows_within(n_activations: int, is_on_cpu: bool = True) -> int:
    """Return how many samples to run at a time, given how many activations one of them has."""
    affordable = min(_CHUNK_BYTES, working_memory()) if is_on_cpu else working_memory()
    return max(1, affordable // (8 * n_activations))


def read_in_chunks(
    module: DistributionStack,
    X: np.ndarray,
    read: Callable[[Tensor, Tensor], Any],
    may_be_infinite: bool = False,
    run: Callable[[Tensor], Tensor] | None = None,
    name: str | None = None,
) -> Any:
    """Predict chunk by chunk, and return what `read` takes from each, samples first, as numpy.

    Parameters
    ----------
    module : DistributionStack
    X : ndarray of shape (n, ...)
        Checked samples.
    read : callable
        Takes outputs (S, n, p), and their samples, to a tensor or a tuple of tensors.
    may_be_infinite : bool, default=False
        Outputs must be finite, and so must the tensors be that are read unless this is true.
    run : callable, default=None
        Takes samples (n, ...) to outputs (S, n, p); None is the module's.
    name : str, default=None
        What `read` takes from a table, if it is finite and the same in each call of that name: for
        one sample it is written for NumPy, see :func:`predict_one`.
    """
    is_one = name is not None and X.shape[:-1] == (1,)
    if is_one and (found := predict_one(module, X, read, str(name))) is not None:
        return found
    size = rows_at_a_time(module, X)
    run = run or module.outputs

    def predict(start: int) -> Any:
        rows = as_rows(module, X, slice(start, start + size))
        outputs = run(rows)
        outputs_are_small = is_small(outputs)
        if not outputs_are_small:
            check_outputs(outputs, X[start:], range(start, len(X)), axis=-2)
        found = read(outputs, rows)
        if not (outputs_are_small or may_be_infinite):
            for part in _parts(found):
                check_outputs(part, X[start:], range(start, len(X)))
        return found

    config = get_config()  # scikit-learn's, which threads do not have

    # Written into place: results kept chunk by chunk would fragment the memory.
    def fill(starts: range) -> None:
        with config_context(**config), torch.inference_mode():
            for start in starts:
                for array, part in zip(out, _parts(predict(start)), strict=True):
                    array[start : start + size] = part.cpu().numpy()

    # Each chunk is computed by one thread, in memory of its own, and has the numbers that it has on
    # one core.
    n_threads, n_chunks = 1, -(-len(X) // size)
    if n_chunks >= _CHUNKS_FOR_THREADS and first_parameter(module).device.type == "cpu":
        most = max(1, working_memory() // _CHUNK_BYTES)
        n_threads = min(torch.get_num_threads(), n_chunks, most)
    with nullcontext() if n_threads == 1 else torch_threads(1):
        with torch.inference_mode():
            first = predict(0)
        out = []
        for part in (part.cpu().numpy() for part in _parts(first)):
            out.append(np.empty((len(X), *part.shape[1:]), dtype=part.dtype))
            out[-1][: len(part)] = part
        starts = range(size, len(X), size)
        if n_threads == 1 and starts:
            fill(starts)
        elif starts:
            step = max(1, len(starts) // (_SPANS * n_threads))
            spans = [starts[k : k + step] for k in range(0, len(starts), step)]
            on_threads(fill, spans, n_threads)
    return tuple(out) if isinstance(first, tuple) else out[0]


def read_distribution(
    module: DistributionStack, X: np.ndarray, run: Callable[[Tensor], Tensor] | None = None
) -> Distribution:
    """Predict the distribution for all of X; `run` is that of :func:`read_in_chunks`."""
    functions = module.functions
    # A tensor needs writable memory without negative strides: another array is copied.
    has_none = functions is None or functions.vanish(
        torch.from_numpy(np.require(X, requirements=["C", "W"]))
    )

    def read(outputs: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
        parts = (outputs,) if has_none else module.parts(outputs, rows)
        return tuple(part.transpose(0, -2) for part in parts)

    parts = read_in_chunks(module, X, read, run=run)
    return module.of_parts(*(torch.from_numpy(part).transpose(0, -2) for part in parts))


def read_rows(
    estimator: BaseEstimator, X: ArrayLike, read: Callable[[Tensor, Tensor], Any], **kwargs: Any
) -> Any:
    """Check samples, predict them by a fitted estimator and return what `read` takes."""
    X = check_rows(estimator, X, estimator._recipe.row_shape)
    return read_in_chunks(estimator.module_, X, read, **kwargs)


def rows_first(outputs: Tensor, rows: Tensor) -> Tensor:
    """Return outputs (S, n, p) as (n, S, p), to be read."""
    return outputs.detach().transpose(0, 1)  # a view of a parameter would keep its gradient


def _parts(found: object) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)
