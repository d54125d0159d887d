# SPDX-License-Identifier: BSD-3-Clause
"""Splits of trees are where their predictions change."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import (
    AdaBoostRegressor,
    BaggingRegressor,
    ExtraTreesClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

from skdistill import HydraPlusRegressor
from skdistill.teachers import MixedModels, QuantileModels, as_teacher, splits_of

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(200, 1))
Y = np.sin(6 * X[:, 0]) + 0.1 * RNG.standard_normal(200)
GRID = np.linspace(-0.1, 1.1, 5000)[:, None]


def xgboost():
    return pytest.importorskip("xgboost").XGBRegressor(n_estimators=5, n_jobs=1)


def lightgbm():
    return pytest.importorskip("lightgbm").LGBMRegressor(n_estimators=5, n_jobs=1, verbose=-1)


def catboost():
    module = pytest.importorskip("catboost")
    return module.CatBoostRegressor(iterations=5, verbose=0, allow_writing_files=False)


MODELS = {
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
    "LightGBM": lightgbm,
    "XGBoost": xgboost,
    "CatBoost": catboost,
}


@pytest.mark.parametrize("name", MODELS)
def test_predictions_change_at_splits_and_nowhere_else(name):
    model = MODELS[name]().fit(X, Y)
    found = splits_of(FrozenEstimator(model))
    assert (found.features == 0).all()
    assert found.gains.sum() == pytest.approx(1.0)
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


def test_features_of_bags_are_those_of_the_table():
    table = np.c_[np.zeros((200, 2)), X]
    bag = BaggingRegressor(max_features=2, n_estimators=6, random_state=0).fit(table, Y)
    assert set(splits_of(bag).features) == {2}


def test_gains_of_a_mixture_have_the_weights_of_its_models():
    table = np.c_[X, RNG.uniform(size=200)]
    models = [DecisionTreeRegressor(max_depth=1), DecisionTreeRegressor(max_depth=3)]
    mixed = MixedModels([*models, LinearRegression()], weights=[1, 3, 4]).fit(table, Y)
    found = splits_of(as_teacher(FrozenEstimator(mixed)).fit(table, Y))
    assert len(found.gains) == 1 + 7
    assert found.gains[0] == pytest.approx(1 / 8)
    assert found.gains.sum() == pytest.approx(4 / 8)


def test_classifiers_have_splits_too():
    iris, labels = load_iris(return_X_y=True)
    for model in (
        HistGradientBoostingClassifier(max_iter=2),
        ExtraTreesClassifier(3, random_state=0),
    ):
        assert set(splits_of(model.fit(iris, labels)).features) <= {0, 1, 2, 3}


def test_splits_of_categories_are_left_out():
    codes = RNG.integers(3, size=200).astype(float)
    table = np.c_[np.zeros(200), X, codes]
    boosted = HistGradientBoostingRegressor(max_iter=3, categorical_features=[2])
    assert set(splits_of(boosted.fit(table, Y + codes)).features) == {1}
    lightgbm = pytest.importorskip("lightgbm").LGBMRegressor(n_estimators=3, verbose=-1)
    lightgbm.fit(table, Y + codes, categorical_feature=[2])
    assert set(splits_of(lightgbm).features) == {1}


def test_others_have_none():
    assert [len(part) for part in splits_of(LinearRegression().fit(X, Y))] == [0, 0, 0]


@pytest.mark.parametrize("name", ["tree", "forest", "histograms", "LightGBM", "XGBoost"])
def test_splits_of_missing_values_have_no_threshold(name):
    """What is missing is all that matters: the threshold is infinite, or as large as a float."""
    rows = np.where(RNG.random((200, 1)) < 0.5, np.nan, X)
    model = MODELS[name]().fit(rows, np.isnan(rows[:, 0]).astype(float))
    splits = splits_of(model)
    assert (np.abs(splits.thresholds) < 10).all()


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_student_of_trees_with_gaps_warns_of_nothing():
    rows = np.where(RNG.random((200, 1)) < 0.5, np.nan, X)
    rows = np.hstack([rows, X])
    teacher = RandomForestRegressor(5, random_state=0)
    student = HydraPlusRegressor(teacher, heads=2, max_epochs=2, random_state=0)
    assert np.isfinite(student.fit(rows, Y + np.isnan(rows[:, 0])).predict(rows)).all()
