# SPDX-License-Identifier: BSD-3-Clause
"""Tiny fitted models, what their answers must keep to, and nonsense to call them with."""

from __future__ import annotations

import contextlib
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    BDistilBooster,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill.expectations import Expectation
from skdistill.families import (
    GaussianFamily,
    LogitNormalFamily,
    known_families,
)
from skdistill.modules import ConvNet, FunctionDraws, Recurrent
from skdistill.samplers import SGHMC, SGLD, MCDropout
from skdistill.settings import WeakLearnerSearch

# --- Models, each fitted when it is first asked for -------------------------------------------

SMALL = {"max_epochs": 2, "module__hidden_units": (4,), "random_state": 0}
CHAINS = {"max_epochs": 6, "module__hidden_units": (4,), "random_state": 0, "n_members": 3}


def ensemble(cls, **params):
    return cls(**{"n_members": 3, **SMALL, **params})


regressor = partial(ensemble, BayesianEnsembleRegressor)
classifier = partial(ensemble, BayesianEnsembleClassifier)


def distiller(teacher, **params):
    return DistributionDistiller(teacher, **{**SMALL, **params})


def few_draws(kind):
    """The family, with few draws if it has some."""
    return kind(**{name: 8 for name in kind().get_params() if name == "n_samples"})


def booster(teacher, **params):
    return BDistilBooster(
        teacher, **{**SMALL, "n_rounds": 3, "search": WeakLearnerSearch(max_search=1), **params}
    )


def gped(make, inference, **params):
    student = {name: value for name, value in SMALL.items() if name != "max_epochs"}
    return GPEDDistiller(make(**CHAINS, inference=inference), **student, **params)


def second_moment(members):
    """g of an expectation of one's own, (..., n, k)."""
    return members.square()


NUMBERS: dict[str, Callable[[], Any]] = {
    "ensemble": regressor,
    "ensemble_sgld": lambda: regressor(**CHAINS, inference=SGLD(1e-4)),
    "ensemble_dropout": lambda: regressor(inference=MCDropout()),
    "hydra": lambda: HydraPlusRegressor(regressor(), **SMALL),
    **{
        name: lambda name=name: distiller(regressor(), family=name)
        for name in known_families("regressor")
    },
    "gped_online": lambda: gped(BayesianEnsembleRegressor, SGLD(1e-4)),
    "gped_replayed": lambda: GPEDDistiller(regressor(), **SMALL),
    "b_distil": lambda: booster(regressor()),
}
CLASSES: dict[str, Callable[[], Any]] = {
    "ensemble": classifier,
    "ensemble_sghmc": lambda: classifier(**CHAINS, inference=SGHMC(1e-5)),
    "hydra": lambda: HydraPlusClassifier(classifier(), **SMALL),
    **{
        name: lambda kind=kind: distiller(classifier(), family=few_draws(kind))
        for name, kind in known_families("classifier").items()
    },
    "logit_normal_rank": lambda: distiller(
        classifier(), family=LogitNormalFamily(covariance=1, n_samples=8)
    ),
    "gped_online": lambda: gped(
        BayesianEnsembleClassifier,
        SGHMC(1e-5),
        expectations=("predictive", "entropy", Expectation(second_moment, name="square")),
    ),
    "gped_replayed": lambda: GPEDDistiller(classifier(), estimate="stochastic", **SMALL),
    "b_distil": lambda: booster(classifier()),
}


SERIES: dict[str, Callable[[], Any]] = {
    "recurrent": lambda: BayesianEnsembleClassifier(3, module=Recurrent, **SMALL),
    "early": lambda: BDistilBooster(
        BayesianEnsembleClassifier(2, module=Recurrent, **SMALL),
        n_rounds=2,
        search=WeakLearnerSearch(max_search=1),
        early=True,
        module=Recurrent,
        **SMALL,
    ),
}


def _rows(*shape, dtype=np.float64):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def _targets(X, kind):
    total = X.reshape(len(X), -1).sum(1, dtype=np.float64)
    if kind == "columns":
        return np.stack([total, 10 - 3 * total], axis=1)
    if kind == "labels":
        return np.array(["no", "perhaps", "yes"])[np.digitize(total, [-0.8, 0.8])]
    return (total > 0).astype(int) if kind == "binary" else 3 + 2 * total


# Name of each model: how it is made, the samples that it is fitted on, and what for targets.
MODELS: dict[str, tuple[Callable[[], Any], np.ndarray, str]] = {
    **{f"numbers-{name}": (make, _rows(24, 3), "numbers") for name, make in NUMBERS.items()},
    **{f"classes-{name}": (make, _rows(24, 3), "labels") for name, make in CLASSES.items()},
    **{f"series-{name}": (make, _rows(24, 4, 2), "binary") for name, make in SERIES.items()},
    "numbers-two_targets": (regressor, _rows(24, 3), "columns"),
    "numbers-full_of_two": (
        lambda: distiller(regressor(), family=GaussianFamily(covariance="full")),
        _rows(24, 3),
        "columns",
    ),
    "numbers-float32": (regressor, _rows(24, 3, dtype=np.float32), "numbers"),
    "classes-binary": (classifier, _rows(24, 1), "binary"),
    "images-conv": (
        lambda: BayesianEnsembleClassifier(2, module=ConvNet, module__channels=(2,), **SMALL),
        _rows(24, 1, 6, 6),
        "binary",
    ),
}


@dataclass
class Fitted:
    """A fitted model, and what is known of it."""

    name: str

    @cached_property
    def estimator(self) -> Any:
        make, X, kind = MODELS[self.name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that two epochs are few
            return make().fit(X, _targets(X, kind))

    @property
    def X(self) -> np.ndarray:
        return MODELS[self.name][1]

    @cached_property
    def y(self) -> np.ndarray:
        return _targets(self.X, MODELS[self.name][2])

    @property
    def dtype(self) -> np.dtype:
        """Of the computation."""
        return self.X.dtype

    @cached_property
    def at_first(self) -> dict[str, np.ndarray]:
        """What it says of a few samples, before anything else was asked."""
        return answers(self.estimator, self.X[:4])

    def assert_unchanged(self) -> None:
        for name, said in answers(self.estimator, self.X[:4]).items():
            np.testing.assert_array_equal(said, self.at_first[name], err_msg=name)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.estimator!r}>"


@pytest.fixture(scope="session", params=MODELS)
def fitted(request) -> Fitted:
    return Fitted(request.param)


# --- What is asked, and what the answers must keep to -----------------------------------------

LEVELS = [0.05, 0.1, 0.5, 0.9, 0.95]


def answers(model, X) -> dict[str, np.ndarray]:
    """Everything that a model says of samples, by the name of the method, samples first."""
    found = {"predict": model.predict(X)}
    parts = model.predict_uncertainty(X)
    found |= {
        name: getattr(parts, name)
        for name in ("total", "aleatoric", "epistemic")
        if getattr(parts, name) is not None
    }
    if is_classifier(model):
        found["predict_proba"] = model.predict_proba(X)
        found["predict_log_proba"] = model.predict_log_proba(X)
    else:
        found["mean"], found["std"] = model.predict(X, return_std=True)
        found["predict_interval"] = model.predict_interval(X)
        found["predict_quantiles"] = model.predict_quantiles(X, LEVELS)
    if hasattr(model, "predict_members"):
        found["predict_members"] = model.predict_members(X)
    found["sample_y"] = model.sample_y(X, 3, random_state=0)
    if hasattr(model, "predict_expectation"):
        for name in _expectations(model):
            found[name] = model.predict_expectation(X, name)
    if hasattr(model, "staged_predict"):
        found["staged_predict"] = np.stack(list(model.staged_predict(X)), axis=1)
    if hasattr(model, "predict_early"):
        found["predict_early"], found["steps"] = model.predict_early(X, 0.6)
    return found


def _expectations(model) -> list[str]:
    if model.expectations != "auto":
        given = model.expectations
        given = (given,) if isinstance(given, str) else given
        return [e if isinstance(e, str) else e.name for e in given]
    if not is_classifier(model):
        return ["mean", "aleatoric", "epistemic"]
    return ["predictive", "entropy" if model.estimate == "stochastic" else "share"]


def tolerance(dtype) -> float:
    """Of numbers that are computed in another order."""
    return 1e-3 if dtype == np.float32 else 1e-7


def assert_close(actual, expected, dtype, what="") -> None:
    """Equal to rounding, on the scale of each sample's largest number; labels and signs exactly."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, what
    if actual.dtype.kind not in "fc":
        np.testing.assert_array_equal(actual, expected, err_msg=what)
        return
    scale = 1 + np.abs(expected).reshape(len(expected), -1).max(1, initial=0)
    error = np.abs(actual - expected).reshape(len(expected), -1).max(1, initial=0)
    assert (error <= tolerance(dtype) * scale).all(), f"{what}: {actual} is not {expected}"


def assert_alike(actual, expected, dtype) -> None:
    """Whether two dicts of answers are the same to rounding; close races may end either way."""
    assert actual.keys() == expected.keys()
    for name in actual:
        if actual[name].dtype.kind == "f":
            assert_close(actual[name], expected[name], dtype, name)
        else:
            assert actual[name].shape == expected[name].shape, name
    if "predict_proba" in expected:
        first, second = np.sort(expected["predict_proba"], axis=1)[:, -2:].T[::-1]
        is_clear = first - second > 10 * tolerance(dtype)
        np.testing.assert_array_equal(actual["predict"][is_clear], expected["predict"][is_clear])


def check_answers(model, X, dtype) -> dict[str, np.ndarray]:
    """Hold what a model says of samples against what is documented."""
    said = answers(model, X)
    n = len(X)
    for name, array in said.items():
        assert len(array) == n, f"{name} has {len(array)} samples of {n}"
        if array.dtype.kind == "f" and name != "predict_log_proba":
            assert np.isfinite(array).all(), f"{name} is not finite: {array}"
    total, parts = said["total"], [said.get("aleatoric"), said.get("epistemic")]
    assert (total >= 0).all(), f"total is negative: {total}"
    if parts[0] is not None:
        for part in parts:
            assert (part >= 0).all(), f"a part is negative: {parts}"
        assert_close(parts[0] + parts[1], total, dtype, "the parts' sum")
    else:
        assert parts[1] is None
    (_check_classes if is_classifier(model) else _check_numbers)(model, said, n, dtype)
    return said


def _check_classes(model, said, n, dtype) -> None:
    classes, proba = model.classes_, said["predict_proba"]
    assert proba.shape == (n, len(classes))
    assert ((proba >= 0) & (proba <= 1 + tolerance(dtype))).all()
    assert_close(proba.sum(1), np.ones(n), dtype, "sum of probabilities")
    assert_close(np.exp(said["predict_log_proba"]), proba, dtype, "exp(log_proba)")
    assert not np.isnan(said["predict_log_proba"]).any()
    assert (said["predict_log_proba"] <= 0).all()
    np.testing.assert_array_equal(said["predict"], classes[proba.argmax(1)])
    entropy = -np.where(proba > 0, proba * said["predict_log_proba"], 0).sum(1)
    assert_close(said["total"], entropy, dtype, "entropy")
    assert said["sample_y"].shape == (n, 3)
    assert said["sample_y"].dtype == classes.dtype
    assert np.isin(said["sample_y"], classes).all()
    if "predict_members" in said:
        members = said["predict_members"]
        assert members.shape[::2] == proba.shape
        assert_close(members.sum(2), np.ones(members.shape[:2]), dtype, "members' sums")
        assert_close(members.mean(1), proba, dtype, "members' mean")
    if "staged_predict" in said:
        np.testing.assert_array_equal(said["staged_predict"][:, -1], said["predict"])


def has_functions(model) -> bool:
    """Whether there are random functions in a fitted model."""
    return isinstance(getattr(model.module_, "functions", None), FunctionDraws)


def _check_numbers(model, said, n, dtype) -> None:
    mean, std = said["mean"], said["std"]
    shape = (n,) if mean.ndim == 1 else (n, model.n_outputs_)
    assert mean.shape == std.shape == said["total"].shape == shape
    assert_close(mean, said["predict"], dtype, "predict")
    assert (std > 0).all(), f"std must be positive: {std}"
    assert_close(std**2, said["total"], dtype, "std**2")
    quantiles = said["predict_quantiles"]
    assert quantiles.shape == (*shape, len(LEVELS))
    assert (np.diff(quantiles) >= 0).all(), f"quantiles fall: {quantiles}"
    assert_close(said["predict_interval"], quantiles[..., [0, -1]], dtype, "interval")
    assert said["sample_y"].shape == (*shape, 3)
    if "predict_members" in said:
        means, variances = np.moveaxis(said["predict_members"], -1, 0)
        assert (variances > 0).all()
        assert_close(means.mean(1).reshape(shape), mean, dtype, "members' mean")
        if not has_functions(model):  # whose variance is of all draws, not of these alone
            spread = (variances.mean(1) + means.var(1)).reshape(shape)
            assert_close(spread, said["total"], dtype, "members' mixture variance")
    if "staged_predict" in said:
        assert_close(said["staged_predict"][:, -1], mean, dtype, "last stage")


# --- Samples, and what they are handed over in ------------------------------------------------

_FLOATS = [np.float16, np.float32, np.float64]
_OTHERS = [np.int8, np.int32, np.int64, np.uint8, np.uint64, np.bool_, np.object_]


_FEW = st.integers(1, 6)


@st.composite
def any_rows(draw, row_shape, limit, n=_FEW) -> np.ndarray:
    """Samples of any dtype, finite, of at most `limit`; None is as large as there are."""
    dtype = draw(st.sampled_from([*_FLOATS, *_OTHERS]), label="dtype")
    shape = (draw(n), *row_shape)
    if dtype in _FLOATS:
        largest = float(np.finfo(dtype).max)
        bound = largest if limit is None else min(limit, largest)
        width = 8 * np.dtype(dtype).itemsize
        values = st.floats(-bound, bound, width=width)
        if limit is None:  # which hypothesis seldom draws by itself
            tiny = float(np.finfo(dtype).tiny)
            values = st.one_of(
                values, st.sampled_from([bound, -bound, bound / 2, -(bound**0.5), tiny])
            )
    elif dtype is np.object_:
        bound = 10**6 if limit is None else int(limit)
        values = st.one_of(st.integers(-bound, bound), st.floats(-bound, bound), st.booleans())
    elif dtype is np.bool_:
        values = st.booleans()
    else:
        info = np.iinfo(dtype)
        low, high = (info.min, info.max) if limit is None else (-int(limit), int(limit))
        values = st.integers(max(low, info.min), min(high, info.max))
    return draw(arrays(dtype, shape, elements=values))


def _strided(X):
    wide = np.zeros((len(X), *(2 * size for size in X.shape[1:])), dtype=X.dtype)
    inner = wide[(slice(None), *[slice(None, None, 2)] * (X.ndim - 1))]
    inner[...] = X
    return inner


def _read_only(X):
    X = X.copy()
    X.flags.writeable = False
    return X


def _mapped(X):
    if X.dtype == object:
        return X
    with tempfile.TemporaryFile() as file:
        np.asarray(X).tofile(file)
        return np.memmap(file, dtype=X.dtype, mode="r", shape=X.shape)


def _tensor(X):
    unknown = (np.uint64, np.object_)  # numbers that torch has no type for, or hardly one
    return torch.tensor(X.astype(np.float64) if X.dtype.type in unknown else X)


LAYOUTS: dict[str, Callable[[np.ndarray], Any]] = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "strided": _strided,
    "reversed": lambda X: np.ascontiguousarray(X[::-1])[::-1],
    "read-only": _read_only,
    "mapped": _mapped,
    "list": lambda X: X.tolist(),
    "tensor": _tensor,
}
FRAMES: dict[str, Callable[[np.ndarray], Any]] = {
    "pandas": lambda X: pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])]),
    "polars": lambda X: pl.DataFrame(
        X.astype(np.float64) if X.dtype in (object, np.float16) else X,
        schema=[f"x{i}" for i in range(X.shape[1])],
    ),
}


@st.composite
def handed_over(draw, X) -> Any:
    """The same samples in some layout or container."""
    ways = {**LAYOUTS, **(FRAMES if X.ndim == 2 else {})}
    return ways[draw(st.sampled_from(sorted(ways)), label="handed over as")](X)


# --- Nonsense ---------------------------------------------------------------------------------

_NONSENSE: list[Callable[[], Any]] = [
    lambda: None,
    lambda: "word",
    lambda: "",
    lambda: b"bytes",
    lambda: -1,
    lambda: 0,
    lambda: 1,
    lambda: 1.5,
    lambda: 10**30,
    lambda: -(10**30),
    lambda: True,
    lambda: float("nan"),
    lambda: float("inf"),
    lambda: -float("inf"),
    lambda: 1e-300,
    lambda: 1e300,
    lambda: 1j,
    lambda: [],
    lambda: [1, 2],
    lambda: (0.5,),
    lambda: ["a", None],
    lambda: [[0.5], [0.25, 0.5]],
    dict,
    lambda: {"a": 1},
    lambda: {1, 2},
    object,
    lambda: int,
    lambda: len,
    lambda: slice(3),
    lambda: (number for number in (1, 2)),
    lambda: np.uint8(3),
    lambda: np.int64(2),
    lambda: np.float16(0.5),
    lambda: np.array(3),
    lambda: np.array([1, 2]),
    lambda: np.array([[0.5]]),
    lambda: np.datetime64("2020-01-01"),
    lambda: Decimal("0.5"),
    lambda: Fraction(1, 2),
    lambda: pd.NA,
    lambda: pd.Series([0.1, 0.2]),
    lambda: torch.tensor(2),
    lambda: torch.tensor([0.25, 0.5]),
    lambda: torch.tensor(0.5, requires_grad=True),
    lambda: torch.float64,
]

_NO_ROWS: list[Callable[[np.ndarray], Any]] = [
    lambda X: X[:0],
    lambda X: X[0],
    lambda X: X[None],
    lambda X: X[..., :0],
    lambda X: np.concatenate([X, X], axis=-1),
    lambda X: np.where(np.arange(len(X)).reshape(-1, *[1] * (X.ndim - 1)) == 1, np.nan, X),
    lambda X: np.where(np.arange(len(X)).reshape(-1, *[1] * (X.ndim - 1)) == 1, -np.inf, X),
    lambda X: X + 1j,
    lambda X: X.astype(str),
    lambda X: np.full(X.shape, "word"),
    lambda X: np.full(X.shape, "word", dtype=object),
    lambda X: np.full(X.shape, None),
    lambda X: np.full(X.shape, {}, dtype=object),
    lambda X: np.full(X.shape, 10**400, dtype=object),
    lambda X: np.full(X.shape, "2020-01-01", dtype="datetime64[D]"),
    lambda X: np.zeros(len(X), dtype=[("a", float), ("b", float)]),
    lambda X: np.ma.masked_array(X, X > 0),
    lambda X: [[1.0], [1.0, 2.0]],
    lambda X: torch.tensor(X, requires_grad=True),
    lambda X: torch.tensor(X).to_sparse(),
    lambda X: torch.tensor(X, dtype=torch.bfloat16),
    lambda X: torch.empty(X.shape, device="meta"),
    lambda X: pd.DataFrame({"a": ["x"] * len(X), "b": ["y"] * len(X), "c": ["z"] * len(X)}),
    lambda X: pl.DataFrame({"a": ["x"] * len(X), "b": [None] * len(X), "c": [1] * len(X)}),
    lambda X: pd.DataFrame(X.reshape(len(X), -1)).astype("Float64").replace(X.flat[0], pd.NA),
    lambda X: iter(X),
    lambda X: _sparse(X),
]


def _sparse(X):
    from scipy import sparse

    return sparse.csr_array(X.reshape(len(X), -1))


def nonsense() -> st.SearchStrategy[Any]:
    """A value that few parameters may have."""
    return st.sampled_from(_NONSENSE).map(lambda make: make())


def no_rows(X) -> st.SearchStrategy[Any]:
    """What is like samples, and is none, or is nothing like samples."""
    return st.one_of(st.sampled_from(_NO_ROWS).map(lambda spoil: spoil(X.copy())), nonsense())


# Arrays are checked by scikit-learn and numpy, whose messages often say "input" for the argument.
_ARRAYS = {"X", "y", "y_true", "y_pred", "sample_weight", "member_predictions", "X_transfer"}
_ALSO_CALLED = {"random_state": "seed"}


@contextlib.contextmanager
def refused_by_name(*names: str) -> Iterator[None]:
    """Let pass a TypeError or ValueError that names an argument; anything else is a fault."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if isinstance(error, NotFittedError):
            raise
        note(f"refused: {type(error).__name__}: {error}")
        said = str(error)
        called = [*names, *(_ALSO_CALLED[name] for name in names if name in _ALSO_CALLED)]
        is_named = any(re.search(rf"(?<![a-z]){re.escape(name)}", said, re.I) for name in called)
        if not is_named and not _ARRAYS & set(names):
            raise AssertionError(
                f"{type(error).__name__} does not name {' or '.join(names)}: {said}"
            ) from error


@dataclass(frozen=True)
class Fuzz:
    """What the tests of this folder share, as they cannot import it."""

    answers: Callable = field(default=answers)
    check_answers: Callable = field(default=check_answers)
    assert_close: Callable = field(default=assert_close)
    assert_alike: Callable = field(default=assert_alike)
    rows: Callable = field(default=any_rows)
    handed_over: Callable = field(default=handed_over)
    has_functions: Callable = field(default=has_functions)
    nonsense: Callable = field(default=nonsense)
    no_rows: Callable = field(default=no_rows)
    refused_by_name: Callable = field(default=refused_by_name)


@pytest.fixture(scope="session")
def fuzz() -> Fuzz:
    return Fuzz()
