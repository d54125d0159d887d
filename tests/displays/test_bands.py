# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import OneHotEncoder

from skdistill.displays import UncertaintyBandDisplay


@pytest.mark.parametrize(("n_targets", "target"), [(None, 0), (2, 1)])
def test_bands_are_the_predictions(n_targets, target, make_data, edges):
    model, X, y = make_data(n_targets)
    display = UncertaintyBandDisplay.from_estimator(
        model, X, y, target=target, grid_resolution=50, n_std=2
    )
    low, high = X[:, 0].min(), X[:, 0].max()
    margin = 0.2 * (high - low)
    x = np.linspace(low - margin, high + margin, 50)
    X_grid = np.column_stack([x, *(np.full(50, np.median(X[:, i])) for i in (1, 2))])
    y_pred = model.predict(X_grid).reshape(50, -1)[:, target]
    total, aleatoric, _ = (
        part.reshape(50, -1)[:, target] for part in model.predict_uncertainty(X_grid).std()
    )
    assert_allclose(display.line_.get_xdata(), x)
    assert_allclose(display.line_.get_ydata(), y_pred)
    assert_allclose(edges(display.total_band_), [y_pred - 2 * total, y_pred + 2 * total])
    assert_allclose(
        edges(display.aleatoric_band_), [y_pred - 2 * aleatoric, y_pred + 2 * aleatoric]
    )
    points = np.column_stack([X[:, 0], y.reshape(len(y), -1)[:, target]])
    assert_allclose(display.scatter_.get_offsets(), points)
    assert display.ax_.get_xlabel() == "feature 0"


def test_bands_from_predictions_are_those_from_the_estimator(make_data, edges, legend_texts):
    model, X, y = make_data()
    one = UncertaintyBandDisplay.from_estimator(model, X, y, feature=1)
    X_grid = model.seen_
    shuffled = np.random.default_rng(0).permutation(len(X_grid))
    X_grid = X_grid[shuffled]
    other = UncertaintyBandDisplay.from_predictions(
        X_grid[:, 1],
        model.predict(X_grid),
        model.predict_uncertainty(X_grid),
        x_true=X[:, 1],
        y_true=y,
        feature_name="feature 1",
        name="SineRegressor",
    )
    assert vars(one).keys() == vars(other).keys()
    for key in ("x", "y_pred", "std_total", "std_aleatoric", "x_true", "y_true"):
        assert_array_equal(getattr(one, key), getattr(other, key))
    assert_array_equal(one.line_.get_xydata(), other.line_.get_xydata())
    assert_array_equal(edges(one.total_band_), edges(other.total_band_))
    assert legend_texts(one) == legend_texts(other)


def test_only_the_total_band_where_parts_are_not_told(make_data, legend_texts, sine_regressor):
    _, X, _ = make_data()
    display = UncertaintyBandDisplay.from_estimator(sine_regressor(tells_parts=False), X)
    assert display.aleatoric_band_ is None
    assert display.scatter_ is None
    assert legend_texts(display) == ["SineRegressor", "total, ± 1 std"]


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("feature", ["speed", 1])
def test_frames(library, feature, sine_regressor):
    pytest.importorskip(library)
    frames = pytest.importorskip(library)
    X = frames.DataFrame(
        {
            "wheels": [2, 4, 4, 3],
            "speed": np.array([10.0, 20.0, 40.0, 50.0], dtype=np.float32),
            "colour": ["red", "blue", "blue", "green"],
        }
    )
    encoder = make_column_transformer(
        (OneHotEncoder(sparse_output=False), ["colour"]), remainder="passthrough"
    ).fit(X)

    class OnFrame(sine_regressor):
        def predict(self, X):
            self.seen_ = X
            return super().predict(encoder.transform(X))

        def predict_uncertainty(self, X):
            return super().predict_uncertainty(encoder.transform(X))

    model = OnFrame()
    display = UncertaintyBandDisplay.from_estimator(
        model, X, np.arange(4), feature=feature, grid_resolution=5, extend=0
    )
    assert_allclose(display.x, [10, 20, 30, 40, 50])
    assert display.ax_.get_xlabel() == "speed"
    assert_array_equal(display.scatter_.get_offsets()[:, 0], X["speed"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"feature": 3}, "feature must be a position from 0 to 2, got 3"),
        ({"feature": "speed"}, "feature must be a position from 0 to 2, got 'speed'"),
        ({"feature": 2}, "feature must be a column that varies, got 'feature 2', always 1"),
        ({"target": 1}, "target must be an integer from 0 to 0, .* got 1"),
        ({"grid_resolution": 1}, "grid_resolution must be an integer >= 2, got 1"),
        ({"extend": -1}, "extend must be a number >= 0, got -1"),
        ({"n_std": 0}, "n_std must be a number > 0, got 0"),
        ({"y": np.ones(3)}, "y_true must have 60 samples, one for each x, got 3"),
    ],
)
def test_bad_arguments_of_bands(change, message, make_data):
    model, X, y = make_data()
    X[:, 2] = 1
    with pytest.raises(ValueError, match=message):
        UncertaintyBandDisplay.from_estimator(model, X, **{"y": y, **change})
