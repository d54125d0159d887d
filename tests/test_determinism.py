# SPDX-License-Identifier: BSD-3-Clause
"""What a seed fixes, and what threads, chunks and the order of memory may change: nothing visible.

The tolerances are those that doc/user_guide/engine.rst states.
"""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
import torch
from sklearn import config_context
from torch import nn

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    BDistilBooster,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill.samplers import SGLD, DeepEnsemble
from skdistill.settings import Runtime, WeakLearnerSearch

pytestmark = [
    pytest.mark.filterwarnings("ignore:R-hat is above:sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:No weak learner:sklearn.exceptions.ConvergenceWarning"),
]

# Of the standard deviation of the predictions.
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-12}


def normalised(in_features, out_features, width=6):
    """A network that goes through vmap, and draws when it is built and trained."""
    return nn.Sequential(
        nn.Linear(in_features, width),
        nn.LayerNorm(width),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(width, out_features),
    )


def rows(dtype=np.float64, n_rows=60, n_columns=4):
    rng = np.random.RandomState(0)
    X = rng.normal(size=(n_rows, n_columns)).astype(dtype)
    return X, np.sin(X[:, 0]) + 0.3 * rng.normal(size=n_rows)


def ensemble(cls=BayesianEnsembleRegressor, **params):
    return cls(2, **{"max_epochs": 2, "runtime": Runtime(device="cpu"), **params})


def gped(**params):
    inference = SGLD(1e-3, prior_precision=1.0, burn_in=2, thinning=1)
    return GPEDDistiller(ensemble(inference=inference, max_epochs=12), **params)


MODELS = {
    "regressor": ensemble,
    "bootstrap": lambda **params: ensemble(
        inference=DeepEnsemble(bootstrap=True, early_stopping=True), **params
    ),
    "classifier": lambda **params: ensemble(BayesianEnsembleClassifier, **params),
    "dropout": lambda **params: ensemble(module=normalised, **params),
    "hydra": lambda **params: HydraPlusRegressor(ensemble(), max_epochs=2, **params),
    "hydra of classes": lambda **params: HydraPlusClassifier(
        ensemble(BayesianEnsembleClassifier), max_epochs=2, **params
    ),
    "distribution": lambda **params: DistributionDistiller(ensemble(), max_epochs=2, **params),
    "gped": gped,
    "booster": lambda **params: BDistilBooster(
        ensemble(), n_rounds=2, search=WeakLearnerSearch(gamma=0.01), max_epochs=2, **params
    ),
}


def targets(name, y):
    return (y > 0).astype(int) if "class" in name else y


def numbers(model, X):
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


def global_states():
    return pickle.dumps(np.random.get_state()), torch.get_rng_state().tolist()  # noqa: NPY002


# --- Seeds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_a_seed_fixes_every_bit_and_leaves_the_global_generators(name):
    X, y = rows()
    found = []
    for other in range(2):
        torch.manual_seed(other)
        before = global_states()
        found.append(numbers(MODELS[name](random_state=0).fit(X, targets(name, y)), X))
        assert global_states() == before
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("name", MODELS)
def test_no_seed_draws_from_numpys_global_generator_alone(name):
    X, y = rows()
    found = []
    for seed in (5, 5, 6):
        np.random.seed(seed)  # noqa: NPY002
        numpys, torchs = global_states()
        found.append(numbers(MODELS[name](random_state=None).fit(X, targets(name, y)), X))
        after = global_states()
        assert after[0] != numpys  # so that the next fit is another
        assert after[1] == torchs
    np.testing.assert_array_equal(found[0], found[1])
    assert (found[0] != found[2]).any()


# --- Threads, chunks, memory ------------------------------------------------------------------

WIDE = {
    "closed form": {"module__hidden_units": (64, 64)},
    "autograd": {"module": normalised, "module__width": 64},
}


def wide(name, n_threads, dtype):
    settings = {
        "batch_size": 1000,
        "max_epochs": 10,
        "random_state": 0,
        "runtime": Runtime(n_threads=n_threads, dtype=np.dtype(dtype).name),
    }
    return ensemble(**WIDE[name], **settings)


def assert_close(found, expected, dtype):
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=TOLERANCE[dtype] * np.std(expected), strict=True
    )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), zip(WIDE, TOLERANCE, strict=True))
def test_the_number_of_threads_changes_no_more_than_rounding(name, dtype):
    X, y = rows(dtype, n_rows=2000, n_columns=8)  # large enough for two threads to share the work
    one, two = (wide(name, n_threads, dtype).fit(X, y) for n_threads in (1, 2))
    expected = one.predict(X)
    assert_close(two.predict(X), expected, dtype)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert_close(one.predict(X), expected, dtype)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("name", "dtype"), zip(WIDE, reversed(TOLERANCE), strict=True))
def test_the_size_of_chunks_changes_no_more_than_rounding(name, dtype):
    X, y = rows(dtype, n_rows=1200)
    model = wide(name, 1, dtype).fit(X, y)
    expected = model.predict(X)
    for working_memory in (1e-6, 0.01, 0.1, 1):
        with config_context(working_memory=working_memory):
            assert_close(model.predict(X), expected, dtype)
    assert_close(np.concatenate([model.predict(x[None]) for x in X[:50]]), expected[:50], dtype)


def read_only(X):
    X = X.copy()
    X.flags.writeable = False
    return X


LAYOUTS = {
    "fortran": np.asfortranarray,
    "every second column": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "backwards": lambda X: X[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": read_only,
    "unaligned": lambda X: np.frombuffer(b"." + X.tobytes(), X.dtype, offset=1).reshape(X.shape),
}


# All share what reads samples: one has them in every layout, the others take turns.
@pytest.mark.parametrize(
    ("name", "layout"),
    [
        *(("regressor", layout) for layout in LAYOUTS),
        *zip(list(MODELS)[1:], itertools.cycle(LAYOUTS), strict=False),
    ],
)
def test_the_layout_of_memory_changes_no_bit(name, layout):
    X, y = rows()
    y = targets(name, y)
    other, other_y = LAYOUTS[layout](X), np.repeat(y, 2)[::2]
    np.testing.assert_array_equal(other, X)
    model = MODELS[name](random_state=0).fit(X, y)
    expected = numbers(model, X)
    np.testing.assert_array_equal(numbers(model, other), expected)
    np.testing.assert_array_equal(
        numbers(MODELS[name](random_state=0).fit(other, other_y), X), expected
    )
