# SPDX-License-Identifier: BSD-3-Clause
"""Library of frames x dtype x gap x teacher x student: every pair of them in some fit.

Each fit predicts what it predicts from the same table as a frame of pandas that holds numbers and
text alone.
"""

from __future__ import annotations

from datetime import date
from itertools import combinations, product

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skdistill import (
    BayesianEnsembleRegressor,
    BDistilBooster,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusRegressor,
)
from skdistill.teachers import MixedModels, as_teacher

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

SMALL = {"max_epochs": 2, "module__hidden_units": (4,), "random_state": 0}
N = 60
RNG = np.random.default_rng(0)
X = RNG.normal(size=N)
COUNTS = RNG.integers(0, 9, size=N)
KINDS = np.array(["a", "b", "c"])[COUNTS % 3]
DAYS = np.datetime64("2020-01-01", "us") + COUNTS * np.timedelta64(1, "D")
y = X + COUNTS / 9


def as_numbers(table):
    """What a pipeline of a user's makes of any table, for models of scikit-learn."""
    rows = table.rows() if hasattr(table, "rows") else np.asarray(table, dtype=object)
    return np.array([[_as_number(value) for value in row] for row in rows], dtype=float)


def _as_number(value):
    if value is None or value is pd.NA or value != value:
        return -1.0
    if isinstance(value, (date, np.datetime64)):
        return pd.Timestamp(value).timestamp() / 86_400
    return float("abc".index(value)) if isinstance(value, str) else float(value)


def ensemble():
    return BayesianEnsembleRegressor(2, **SMALL)


def of_numbers(model):
    return make_pipeline(FunctionTransformer(as_numbers), model)


TEACHERS = {
    "ensemble": ensemble,
    "mixed": lambda: as_teacher(
        MixedModels([of_numbers(LinearRegression()), ensemble()], weights="equal")
    ),
    "scikit-learn": lambda: as_teacher(of_numbers(RandomForestRegressor(4, random_state=0))),
}
STUDENTS = {
    # ddof=1 would spread two members, and what float32 rounds.
    "hydra": lambda *args, **params: HydraPlusRegressor(*args, ddof=0, **params),
    "distribution": DistributionDistiller,
    "gped": GPEDDistiller,
    "bdistil": lambda *args, **params: BDistilBooster(*args, n_rounds=1, **params),
}

# The column beside X by its dtype, as a frame of pandas has it, and what it is read as.
COLUMNS = {
    "float32": (X.astype(np.float32) + COUNTS, X.astype(np.float32) + COUNTS),
    "float64": (X + COUNTS, X + COUNTS),
    "int": (pd.array(COUNTS, dtype="Int64"), COUNTS.astype(float)),
    "bool": (pd.array(COUNTS > 4, dtype="boolean"), (COUNTS > 4).astype(float)),
    "category": (pd.Categorical(KINDS), pd.Categorical(KINDS)),
    "text": (KINDS.astype(object), pd.Categorical(KINDS)),
    "date": (DAYS, DAYS.astype("M8[D]").astype(float)),
}


def array_of(frame):
    """A frame as an array: of objects for categories and dates, else of numbers."""
    if frame["z"].dtype.kind in "OM" or str(frame["z"].dtype) in ("category", "str"):
        return frame.to_numpy(dtype=object)
    floating = np.float32 if frame["x"].dtype == np.float32 else np.float64
    return frame.to_numpy(dtype=floating, na_value=np.nan)


LIBRARIES = {
    "numpy": array_of,
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}
FACTORS = [list(factor) for factor in (LIBRARIES, COLUMNS, [False, True], TEACHERS, STUDENTS)]


def pairwise(factors):
    """Few combinations of values that hold every pair of values of two factors."""

    def pairs(combination):
        return set(combinations(enumerate(combination), 2))

    everything = {combination: pairs(combination) for combination in product(*factors)}
    missing = set().union(*everything.values())
    while missing:
        best = max(everything, key=lambda combination: len(everything[combination] & missing))
        missing -= everything[best]
        yield best


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("library", "dtype", "has_gap", "teacher", "student"), list(pairwise(FACTORS))
)
def test_predictions_are_those_of_a_plain_frame(library, dtype, has_gap, teacher, student):
    tables, floating = [], np.float32 if dtype == "float32" else np.float64
    for column in COLUMNS[dtype]:
        frame = pd.DataFrame({"x": X.astype(floating), "z": column})
        new = frame.iloc[:20].reset_index(drop=True)
        if has_gap:
            new.loc[::3, "z"] = None
        tables.append((frame, new))
    categories = [1] if library == "numpy" and dtype in ("category", "text") else "from_dtype"
    found, expected = (STUDENTS[student](TEACHERS[teacher](), **SMALL) for _ in range(2))
    if library == "numpy":  # arrays name their categories, for the teacher too
        _name(found, categories)
    convert = LIBRARIES[library]
    found.fit(convert(tables[0][0]), y)
    expected.fit(tables[1][0], y)
    predicted = found.predict(convert(tables[0][1]))
    assert np.isfinite(predicted).all()
    rtol = 1e-2 if dtype == "float32" else 1e-5  # samples of transfer are drawn by distances
    np.testing.assert_allclose(predicted, expected.predict(tables[1][1]), rtol=rtol, atol=rtol)


def _name(model, categories):
    """Set `categorical_features` of an estimator and of the ensembles inside it."""
    for name in list(model.get_params()):
        if name.rpartition("__")[2] == "categorical_features":
            model.set_params(**{name: categories})
    models = getattr(getattr(model.teacher, "estimator", None), "models", [])
    for inner in models:
        if isinstance(inner, BayesianEnsembleRegressor):
            inner.set_params(categorical_features=categories)
