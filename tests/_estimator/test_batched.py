# SPDX-License-Identifier: BSD-3-Clause
"""Samples to predict: how they are checked."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch
from scipy import sparse
from small_models import ensemble, student

from skdistill._data import schema
from skdistill._estimator import batched


@pytest.fixture
def validated(monkeypatch):
    """The samples that scikit-learn's ``validate_data`` was asked about."""
    seen: list = []
    original = schema.validate_data

    def spy(estimator, X, *args, **kwargs):
        seen.append(X)
        return original(estimator, X, *args, **kwargs)

    monkeypatch.setattr(schema, "validate_data", spy)
    return seen


def read_only(X):
    X = X.copy()
    X.flags.writeable = False
    return X


LAYOUTS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "every other sample": lambda X: np.repeat(X, 2, axis=0)[::2],
    "some columns": lambda X: np.column_stack([X, X])[:, 1:4][:, [2, 0, 1]],
    "read-only": read_only,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fitted_dtype", [np.float32, np.float64])
def test_plain_arrays_need_no_validation(fitted_dtype, dtype, layout, data, validated, monkeypatch):
    X, y = data
    model = ensemble().fit(X.astype(fitted_dtype), y)
    rows = LAYOUTS[layout](X.astype(dtype))
    before = rows.copy()
    validated.clear()
    by_hand = model.predict_members(rows)
    assert validated == []
    monkeypatch.setattr(batched, "_FEW", 0)
    by_sklearn = model.predict_members(rows)
    assert len(validated) == 1
    np.testing.assert_array_equal(by_hand, by_sklearn)
    np.testing.assert_array_equal(by_hand, model.predict_members(X.astype(dtype)))
    assert by_hand.dtype == by_sklearn.dtype == fitted_dtype
    np.testing.assert_array_equal(rows, before)


def memory_mapped(X, path):
    X.tofile(path)
    return np.memmap(path, dtype=X.dtype, shape=X.shape, mode="r")


# Whole numbers, which every dtype holds exactly.
CONVERTED = {
    "list": lambda X, path: X.tolist(),
    "float16": lambda X, path: X.astype(np.float16),
    "other byte order": lambda X, path: X.astype(X.dtype.newbyteorder()),
    "int8": lambda X, path: X.astype(np.int8),
    "objects": lambda X, path: X.astype(object),
    "memory map": lambda X, path: memory_mapped(X, path / "rows"),
    "tensor": lambda X, path: torch.tensor(X),
}


@pytest.mark.parametrize("form", CONVERTED)
def test_what_is_no_plain_array_is_converted_by_scikit_learn(form, data, validated, tmp_path):
    X, y = data
    model = ensemble().fit(X, y)
    X = np.round(10 * X)
    expected = model.predict(X)
    validated.clear()
    actual = model.predict(CONVERTED[form](X, tmp_path))
    assert len(validated) == 1
    np.testing.assert_array_equal(actual, expected)
    assert actual.dtype == np.float64


def with_entry(X, value):
    X = X.copy()
    X[-1, -1] = value
    return X


REFUSED = {
    "NaN": (lambda X: with_entry(X, np.nan), ValueError, "Input X contains NaN"),
    "NaN in float32": (
        lambda X: with_entry(X.astype(np.float32), np.nan),
        ValueError,
        "Input X contains NaN",
    ),
    "NaN in a list": (lambda X: with_entry(X, np.nan).tolist(), ValueError, "contains NaN"),
    "a column less": (
        lambda X: X[:, :2],
        ValueError,
        "X has 2 features, but BayesianEnsembleRegressor is expecting 3 features as input",
    ),
    "one sample": (lambda X: X[0], ValueError, "Expected 2D array, got 1D array instead"),
    "no samples": (lambda X: X[:0], ValueError, r"0 sample\(s\) \(shape=\(0, 3\)\)"),
    "complex": (lambda X: X + 0j, ValueError, "Complex data not supported"),
    "words": (lambda X: np.full(X.shape, "a"), ValueError, "Column 0 of X must hold numbers"),
    "sparse": (
        sparse.csr_array,
        TypeError,
        r"X must be dense, got a sparse csr_array of shape \(60, 3\)",
    ),
}


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("rows", REFUSED)
def test_rows_are_refused_in_the_same_words_few_or_many(rows, data, monkeypatch):
    X, y = data
    make, error, message = REFUSED[rows]
    model = ensemble(normalize=("NaN" not in rows) or "y").fit(X, y)  # else NaN is a missing value
    with pytest.raises(error, match=message) as few:
        model.predict(make(X))
    monkeypatch.setattr(batched, "_FEW", 0)
    with pytest.raises(error, match=message) as many:
        model.predict(make(X))
    assert str(few.value) == str(many.value)


# --- Threads ----------------------------------------------------------------------------------


@pytest.fixture
def chunks(monkeypatch):
    """Samples are predicted two or three at a time; gives what sets the threads of torch."""
    monkeypatch.setattr(batched, "_FEW", 0)
    monkeypatch.setattr(batched, "chunk_size", lambda module, row_shape: 3)
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def seen_threads(model, monkeypatch):
    """The threads that predict chunks, and the number of threads that torch has in each."""
    seen = set()
    original = type(model.module_).outputs

    def outputs(self, rows):
        seen.add((threading.get_ident(), torch.get_num_threads()))
        time.sleep(1e-3)  # the others get their turn
        return original(self, rows)

    monkeypatch.setattr(type(model.module_), "outputs", outputs)
    return seen


@pytest.mark.parametrize("make", [ensemble, student])
def test_threads_of_torch_predict_chunks_side_by_side(make, data, chunks, monkeypatch):
    X, y = data
    model = make().fit(X, y)
    chunks(1)
    expected = model.predict_frame(X)
    seen = seen_threads(model, monkeypatch)
    model.predict(X)
    assert seen == {(threading.get_ident(), 1)}
    for n_threads in (2, 3):
        chunks(n_threads)
        seen.clear()
        found = model.predict_frame(X)
        np.testing.assert_array_equal(found, expected)
        workers = {ident for ident, _ in seen} - {threading.get_ident()}
        assert len(workers) == n_threads
        assert {number for _, number in seen} == {1}
        assert torch.get_num_threads() == n_threads
        seen.clear()
        model.predict(X[:6])
        assert seen == {(threading.get_ident(), n_threads)}  # two chunks start no threads
