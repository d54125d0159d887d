# SPDX-License-Identifier: BSD-3-Clause
"""Predictions as one table."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import config_context
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    BDistilBooster,
    predict_frame,
)

pd = pytest.importorskip("pandas")

X = np.random.default_rng(0).normal(size=(30, 2))
SMALL = {"max_epochs": 2, "module__hidden_units": (4,), "random_state": 0}


def test_a_regressors_table_has_what_its_methods_predict():
    rows = pd.DataFrame(X, columns=["a", "b"], index=range(100, 130))
    model = BayesianEnsembleRegressor(3, **SMALL).fit(rows, X[:, 0])
    frame = model.predict_frame(rows, coverage=0.5)
    assert list(frame) == [
        *("prediction", "std", "aleatoric_std", "epistemic_std", "lower", "upper")
    ]
    assert frame.index.equals(rows.index)
    mean, std = model.predict(rows, return_std=True)
    np.testing.assert_array_equal(frame["prediction"], mean)
    np.testing.assert_allclose(frame["std"], std, rtol=1e-12)
    np.testing.assert_allclose(frame["aleatoric_std"] ** 2 + frame["epistemic_std"] ** 2, std**2)
    np.testing.assert_array_equal(frame[["lower", "upper"]], model.predict_interval(rows, 0.5))


def test_several_targets_have_columns_each():
    model = BayesianEnsembleRegressor(3, **SMALL).fit(X, X)
    frame = model.predict_frame(X)
    assert frame.shape == (30, 12)
    # A mean alone is rounded in another way than with its variance.
    found = frame[["prediction_0", "prediction_1"]]
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-10)


def test_a_classifiers_table_has_a_column_for_each_class():
    y = np.where(X[:, 0] > 0, "up", "down")
    model = BayesianEnsembleClassifier(3, **SMALL).fit(X, y)
    frame = model.predict_frame(X)
    parts = ["prediction", "total", "aleatoric", "epistemic"]
    assert list(frame) == [*parts, "proba_down", "proba_up"]
    np.testing.assert_array_equal(frame["prediction"], model.predict(X))
    np.testing.assert_array_equal(frame[["proba_down", "proba_up"]], model.predict_proba(X))


def test_parts_that_a_model_cannot_tell_are_missing():
    teacher = BayesianEnsembleRegressor(3, **SMALL)
    model = BDistilBooster(teacher, n_rounds=1, **SMALL).fit(X, X[:, 0])
    assert list(model.predict_frame(X)) == ["prediction", "std", "lower", "upper"]


def test_the_kind_of_frame_is_that_of_scikit_learns_configuration():
    polars = pytest.importorskip("polars")
    model = BayesianEnsembleRegressor(3, **SMALL).fit(X, X[:, 0])
    with config_context(transform_output="polars"):
        assert isinstance(model.predict_frame(X), polars.DataFrame)
    with config_context(transform_output="polars"):
        model = make_pipeline(StandardScaler(), model).fit(pd.DataFrame(X), X[:, 0])
        assert isinstance(predict_frame(model, pd.DataFrame(X)), polars.DataFrame)


def test_through_a_pipeline_rows_keep_their_index():
    rows = pd.DataFrame(X, columns=["a", "b"], index=range(100, 130))
    model = make_pipeline(StandardScaler(), BayesianEnsembleRegressor(3, **SMALL))
    frame = predict_frame(model.fit(rows, X[:, 0]), rows, coverage=0.5)
    inner = model[-1].predict_frame(model[0].transform(rows), coverage=0.5)
    pd.testing.assert_frame_equal(frame, inner.set_axis(rows.index))
