# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import OneHotEncoder

from skdistill.displays import UncertaintyBandDisplay
from skdistill.distributions import Uncertainty


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


def test_standard_deviations_do_as_well_as_variances(make_data):
    model, X, _ = make_data()
    variances = model.predict_uncertainty(X)
    by_variance, by_std = (
        UncertaintyBandDisplay.from_predictions(X[:, 0], model.predict(X), uncertainty)
        for uncertainty in (variances, variances.std())
    )
    assert_array_equal(by_variance.std_total, by_std.std_total)


def test_only_the_total_band_where_parts_are_not_told(make_data, legend_texts, sine_regressor):
    _, X, _ = make_data()
    display = UncertaintyBandDisplay.from_estimator(sine_regressor(tells_parts=False), X)
    assert display.aleatoric_band_ is None
    assert display.scatter_ is None
    assert legend_texts(display) == ["SineRegressor", "total, ± 1 std"]


def test_points_lie_at_x_unless_told_otherwise():
    x = np.array([2.0, 0.0, 1.0])
    uncertainty = Uncertainty(np.ones(3), None, None, "variance")
    display = UncertaintyBandDisplay.from_predictions(x, x, uncertainty, y_true=x**2)
    assert_array_equal(display.line_.get_xdata(), [0, 1, 2])
    assert_array_equal(display.scatter_.get_offsets(), np.column_stack([x, x**2]))


def test_styles_of_bands_and_points(make_data, legend_texts):
    model, X, y = make_data()
    display = UncertaintyBandDisplay.from_estimator(
        model,
        X,
        y,
        scatter_kwargs={"c": y, "cmap": "viridis"},
        total_kwargs={"color": "red"},
        aleatoric_kwargs={"fc": "green", "label": "noise"},
    )
    assert_allclose(display.total_band_.get_facecolor(), [[1, 0, 0, 1]])
    assert_allclose(display.aleatoric_band_.get_facecolor()[0, 1], 128 / 255)
    assert_array_equal(display.scatter_.get_array(), y)
    assert "noise" in legend_texts(display)


def test_grid_keeps_the_precision_and_bears_missing_values(make_data):
    model, X, _ = make_data()
    X = X.astype(np.float32)
    X[0] = np.nan
    UncertaintyBandDisplay.from_estimator(model, X)
    assert model.seen_.dtype == np.float32
    assert np.isfinite(model.seen_).all()
    UncertaintyBandDisplay.from_estimator(model, np.array([[1, 2], [3, 5], [4, 8], [6, 9]]))
    assert_allclose(model.seen_[0], [0, 6.5])


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


def test_frame_of_the_grid():
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(
        {
            "wheels": [2, 4, 4, 3],
            "speed": np.array([10.0, 20.0, 40.0, 50.0], dtype=np.float32),
            "colour": pd.Categorical(["red", "blue", "blue", "green"]),
        }
    )
    seen = []
    model = SimpleNamespace(
        predict=lambda X: seen.append(X) or np.zeros(len(X)),
        predict_uncertainty=lambda X: Uncertainty(np.ones(len(X)), None, None, "variance"),
    )
    UncertaintyBandDisplay.from_estimator(model, X, feature="speed", grid_resolution=3)
    assert list(seen[0].columns) == list(X.columns)
    assert seen[0]["colour"].dtype == X["colour"].dtype
    assert seen[0]["speed"].dtype == np.float32
    assert seen[0]["wheels"].tolist() == [3.5] * 3
    assert seen[0]["colour"].tolist() == ["blue"] * 3


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


def test_bad_arguments_with_frames(make_data):
    pd = pytest.importorskip("pandas")
    model, X, _ = make_data()
    X = pd.DataFrame(X, columns=["a", "b", "c"]).assign(c="red")
    with pytest.raises(ValueError, match=r"or one of the names \['a', 'b', 'c'\], got 'd'"):
        UncertaintyBandDisplay.from_estimator(model, X, feature="d")
    with pytest.raises(ValueError, match="feature must be a numeric column, got 'c'"):
        UncertaintyBandDisplay.from_estimator(model, X, feature="c")


def test_bad_predictions_of_bands():
    x = np.arange(3.0)
    entropy = Uncertainty(np.ones(3), None, None, "entropy")
    with pytest.raises(ValueError, match=r"must hold variances.*got measure='entropy'"):
        UncertaintyBandDisplay.from_predictions(x, x, entropy)
    variance = Uncertainty(np.ones(3), None, None, "variance")
    with pytest.raises(ValueError, match="y_pred must have 3 samples, one for each x, got 2"):
        UncertaintyBandDisplay.from_predictions(x, x[1:], variance)
    with pytest.raises(ValueError, match="x_true was given without y_true"):
        UncertaintyBandDisplay.from_predictions(x, x, variance, x_true=x)
    with pytest.raises(ValueError, match=r"x must have shape \(n,\), got \(3, 1\)"):
        UncertaintyBandDisplay.from_predictions(x[:, None], x, variance)
