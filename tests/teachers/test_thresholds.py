# SPDX-License-Identifier: BSD-3-Clause
"""Splits of trees are where their predictions change."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import (
    AdaBoostRegressor,
    BaggingRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
    StackingRegressor,
    VotingRegressor,
)
from sklearn.feature_selection import VarianceThreshold
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    PowerTransformer,
    StandardScaler,
)
from sklearn.tree import DecisionTreeRegressor

from skdistill.teachers import MixedModels, QuantileModels, as_teacher, splits_of

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(200, 1))
Y = np.sin(6 * X[:, 0]) + 0.1 * RNG.standard_normal(200)
GRID = np.linspace(-0.1, 1.1, 5000)[:, None]


def tree():
    return DecisionTreeRegressor(max_leaf_nodes=5, random_state=0)


def behind(*steps):
    return lambda: make_pipeline(*steps, RandomForestRegressor(3, max_leaf_nodes=5, random_state=0))


MODELS = {
    "vote": lambda: VotingRegressor(
        [("c", DummyRegressor()), ("d", "drop"), ("f", MODELS["forest"]()), ("t", tree())],
        weights=[2, 1, 1, 1],
    ),
    "stack": lambda: StackingRegressor([("c", DummyRegressor()), ("f", MODELS["forest"]())]),
    "votes in a bag": lambda: BaggingRegressor(MODELS["vote"](), 2, random_state=0),
    "mixture of votes": lambda: as_teacher(
        MixedModels([MODELS["vote"](), DummyRegressor()], weights="oof")
    ),
    "list": lambda: as_teacher([MODELS["forest"]().fit(X, Y), tree().fit(X, Y)]),
    "transformed": lambda: TransformedTargetRegressor(tree(), func=np.exp, inverse_func=np.log),
    "standardised": behind(StandardScaler()),
    "ranges": behind(MinMaxScaler((-3, 2)), MaxAbsScaler()),
    "power": behind(PowerTransformer()),
    "imputed and selected": behind(SimpleImputer(), VarianceThreshold(), FunctionTransformer()),
    "tree": lambda: DecisionTreeRegressor(max_leaf_nodes=5),
    "forest": lambda: RandomForestRegressor(3, max_leaf_nodes=5, random_state=0),
    "bag": lambda: BaggingRegressor(DecisionTreeRegressor(max_depth=2), 3, random_state=0),
    "AdaBoost": lambda: AdaBoostRegressor(DecisionTreeRegressor(max_depth=2), n_estimators=3),
    "gradient boosting": lambda: GradientBoostingRegressor(n_estimators=5, random_state=0),
    "histograms": lambda: HistGradientBoostingRegressor(max_iter=5),
    "quantiles": lambda: QuantileModels(
        [
            HistGradientBoostingRegressor(max_iter=3, loss="quantile", quantile=q)
            for q in (0.2, 0.8)
        ],
        (0.2, 0.8),
    ),
    "teacher": lambda: as_teacher(RandomForestRegressor(3, max_leaf_nodes=5, random_state=0)),
}


# Of trees in the weights of a model.
SHARES = {"vote": 0.5, "votes in a bag": 0.5, "stack": 0.5}


@pytest.mark.parametrize("name", MODELS)
def test_predictions_change_at_splits_and_nowhere_else(name):
    model = MODELS[name]().fit(X, Y)
    found = splits_of(FrozenEstimator(model))
    assert (found.features == 0).all()
    if name != "mixture of votes":  # whose weights are found
        assert found.gains.sum() == pytest.approx(SHARES.get(name, 1.0))
    predicted = model.predict(GRID)
    jumps = np.flatnonzero(predicted[1:] != predicted[:-1])
    assert len(jumps) > 2
    step = GRID[1, 0] - GRID[0, 0]
    away = np.abs(GRID[jumps] + step / 2 - found.thresholds).min(axis=1)
    assert (away < step).all()


def test_gains_are_reductions_of_the_loss():
    # Means of the leaves: 0 and 3; the parent's variance is 2, the leaves' are 0.
    tree = DecisionTreeRegressor(max_depth=1).fit([[0.0, 7.0], [1.0, 7.0], [2.0, 7.0]], [0, 0, 3])
    (features, thresholds, gains) = splits_of(tree)
    assert (features.tolist(), thresholds.tolist(), gains.tolist()) == ([0], [1.5], [1.0])
    both = splits_of(DecisionTreeRegressor().fit(np.arange(4.0)[:, None], [0, 2, 10, 12]))
    order = np.argsort(both.thresholds)
    # Sums of squares fall from 104 to 4 at the root, and by 2 in each half.
    np.testing.assert_allclose(both.gains[order], np.array([2, 100, 2]) / 104)


def test_gains_of_a_mixture_have_the_weights_of_its_models():
    table = np.c_[X, RNG.uniform(size=200)]
    models = [DecisionTreeRegressor(max_depth=1), DecisionTreeRegressor(max_depth=3)]
    mixed = MixedModels([*models, LinearRegression()], weights=[1, 3, 4]).fit(table, Y)
    found = splits_of(as_teacher(FrozenEstimator(mixed)).fit(table, Y))
    assert len(found.gains) == 1 + 7
    assert found.gains[0] == pytest.approx(1 / 8)
    assert found.gains.sum() == pytest.approx(4 / 8)


def test_columns_of_a_frame_are_found_again_behind_what_selects_them():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"flat": 0.0, "text": np.tile(["a", "b"], 100), "x": X[:, 0]})
    frame["gap"] = np.where(np.arange(200) % 9 == 0, np.nan, 100 * X[:, 0])
    frame["none"] = np.nan
    numbers = make_pipeline(SimpleImputer(), VarianceThreshold(), StandardScaler())
    text = ("text", OneHotEncoder(), ["text"])
    selections = (
        slice("x", "none"),
        [2, 3, 4],
        make_column_selector(dtype_include=float),
        frame.columns.isin(["x", "gap", "none"]),
        ["x", "gap", "none"],
    )
    for columns in selections:
        before = ColumnTransformer([text, ("numbers", numbers, columns)])
        model = make_pipeline(before, DecisionTreeRegressor(max_depth=3)).fit(frame, Y)
        found = splits_of(model)
        assert set(found.features) <= {2, 3}
        for feature, values in ((2, X), (3, 100 * X)):
            own = found.thresholds[found.features == feature]
            assert ((own > values.min()) & (own < values.max())).all()
        assert len(found.features) >= 3
    before = ColumnTransformer([text, ("x", "passthrough", ["x"])], remainder="drop")
    assert set(splits_of(make_pipeline(before, tree()).fit(frame, Y)).features) == {2}


def test_splits_of_categories_are_left_out():
    codes = RNG.integers(3, size=200).astype(float)
    table = np.c_[np.zeros(200), X, codes]
    boosted = HistGradientBoostingRegressor(max_iter=3, categorical_features=[2])
    assert set(splits_of(boosted.fit(table, Y + codes)).features) == {1}


@pytest.mark.parametrize("name", ["tree", "forest", "histograms"])
def test_splits_of_missing_values_have_no_threshold(name):
    """What is missing is all that matters: the threshold is infinite, or as large as a float."""
    rows = np.where(RNG.random((200, 1)) < 0.5, np.nan, X)
    model = MODELS[name]().fit(rows, np.isnan(rows[:, 0]).astype(float))
    splits = splits_of(model)
    assert (np.abs(splits.thresholds) < 10).all()
