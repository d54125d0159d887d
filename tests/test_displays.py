# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import OneHotEncoder

from skdistill.displays import (
    RegressionCalibrationDisplay,
    SparsificationDisplay,
    UncertaintyBandDisplay,
)
from skdistill.distributions import Uncertainty
from skdistill.metrics import (
    ause,
    regression_calibration_curve,
    regression_calibration_error,
    sparsification_curve,
)

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

LEVELS = np.array([0.1, 0.5, 0.8])


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


class SineRegressor(RegressorMixin, BaseEstimator):
    """sin(x0) + mean of the other columns; noise grows with |x0|, ignorance with x0 ** 2."""

    def __init__(self, n_targets=None, tells_parts=True):
        self.n_targets = n_targets
        self.tells_parts = tells_parts

    def fit(self, X, y):
        self.n_features_in_ = np.shape(X)[1]
        return self

    def _shaped(self, values):
        if self.n_targets is None:
            return values
        return values[:, None] * np.arange(1.0, self.n_targets + 1)

    def predict(self, X):
        self.seen_ = X
        X = np.asarray(X, dtype=float)
        return self._shaped(np.sin(X[:, 0]) + X[:, 1:].mean(axis=1))

    def predict_uncertainty(self, X):
        X = np.asarray(X, dtype=float)
        aleatoric = self._shaped(0.1 + 0.1 * np.abs(X[:, 0]))
        epistemic = self._shaped(0.05 * X[:, 0] ** 2)
        parts = (aleatoric, epistemic) if self.tells_parts else (None, None)
        return Uncertainty(aleatoric + epistemic, *parts, measure="variance")

    def predict_quantiles(self, X, quantiles):
        std = np.sqrt(self.predict_uncertainty(X).total)
        return self.predict(X)[..., None] + std[..., None] * stats.norm.ppf(quantiles)


def make_data(n_targets=None, n_samples=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, size=(n_samples, 3))
    model = SineRegressor(n_targets).fit(X, None)
    noise = np.sqrt(model.predict_uncertainty(X).total)
    return model, X, model.predict(X) + noise * rng.normal(size=noise.shape)


def edges(band):
    """Lower and upper edge of a fill_between, each of shape (n_points,)."""
    vertices = band.get_paths()[0].vertices
    n_points = (len(vertices) - 3) // 2
    return vertices[1 : n_points + 1, 1], vertices[n_points + 2 : -1, 1][::-1]


def legend_texts(display):
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


DISPLAYS = (UncertaintyBandDisplay, SparsificationDisplay, RegressionCalibrationDisplay)
all_displays = pytest.mark.parametrize("cls", DISPLAYS, ids=lambda cls: cls.__name__)


# What every display keeps to


@all_displays
def test_axes_are_used_when_given_and_made_when_not(cls):
    model, X, y = make_data()
    _, axes = plt.subplots(1, 2)
    display = cls.from_estimator(model, X, y, ax=axes[1])
    assert display.ax_ is axes[1]
    assert display.figure_ is axes[1].figure
    assert not axes[0].lines
    assert cls.from_estimator(model, X, y).ax_ not in axes
    assert display.plot(ax=axes[0]) is display
    assert display.ax_ is axes[0]


@all_displays
def test_name_stands_in_the_legend(cls):
    model, X, y = make_data()
    assert any("SineRegressor" in text for text in legend_texts(cls.from_estimator(model, X, y)))
    display = cls.from_estimator(model, X, y, name="student")
    assert display.name == "student"
    assert any("student" in text for text in legend_texts(display))
    assert any("other" in text for text in legend_texts(display.plot(name="other")))


@all_displays
def test_style_of_the_line(cls):
    model, X, y = make_data()
    display = cls.from_estimator(model, X, y, c="red", lw=5)
    assert display.line_.get_color() == "red"
    assert display.line_.get_linewidth() == 5


@all_displays
@pytest.mark.parametrize("method", ["from_estimator", "plot"])
def test_without_matplotlib(cls, method, monkeypatch):
    model, X, y = make_data()
    display = cls.from_estimator(model, X, y)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    message = rf"{cls.__name__}.{method} needs matplotlib: pip install skdistill\[plot\]"
    with pytest.raises(ImportError, match=message):
        display.plot() if method == "plot" else cls.from_estimator(model, X, y)


def test_import_does_not_need_matplotlib():
    code = "import sys; sys.modules['matplotlib'] = None; import skdistill.displays"
    subprocess.run([sys.executable, "-c", code], check=True)


@all_displays
def test_axes_are_labelled(cls):
    model, X, y = make_data()
    display = cls.from_estimator(model, X, y)
    assert display.ax_.get_xlabel()
    assert display.ax_.get_ylabel()


# Bands


@pytest.mark.parametrize(("n_targets", "target"), [(None, 0), (2, 1)])
def test_bands_are_the_predictions(n_targets, target):
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


def test_bands_from_predictions_are_those_from_the_estimator():
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


def test_standard_deviations_do_as_well_as_variances():
    model, X, _ = make_data()
    variances = model.predict_uncertainty(X)
    by_variance, by_std = (
        UncertaintyBandDisplay.from_predictions(X[:, 0], model.predict(X), uncertainty)
        for uncertainty in (variances, variances.std())
    )
    assert_array_equal(by_variance.std_total, by_std.std_total)


def test_only_the_total_band_where_parts_are_not_told():
    _, X, _ = make_data()
    display = UncertaintyBandDisplay.from_estimator(SineRegressor(tells_parts=False), X)
    assert display.aleatoric_band_ is None
    assert display.scatter_ is None
    assert legend_texts(display) == ["SineRegressor", "total, ± 1 std"]


def test_points_lie_at_x_unless_told_otherwise():
    x = np.array([2.0, 0.0, 1.0])
    uncertainty = Uncertainty(np.ones(3), None, None, "variance")
    display = UncertaintyBandDisplay.from_predictions(x, x, uncertainty, y_true=x**2)
    assert_array_equal(display.line_.get_xdata(), [0, 1, 2])
    assert_array_equal(display.scatter_.get_offsets(), np.column_stack([x, x**2]))


def test_styles_of_bands_and_points():
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


def test_grid_keeps_the_precision_and_bears_missing_values():
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
def test_frames(library, feature):
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

    class OnFrame(SineRegressor):
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
        ({"grid_resolution": 1}, "grid_resolution == 1, must be >= 2"),
        ({"extend": -1}, "extend == -1, must be >= 0"),
        ({"n_std": 0}, "n_std == 0, must be > 0"),
        ({"y": np.ones(3)}, "y_true must have 60 rows, one for each x, got 3"),
    ],
)
def test_bad_arguments_of_bands(change, message):
    model, X, y = make_data()
    X[:, 2] = 1
    with pytest.raises(ValueError, match=message):
        UncertaintyBandDisplay.from_estimator(model, X, **{"y": y, **change})


def test_bad_arguments_with_frames():
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
    with pytest.raises(ValueError, match="y_pred must have 3 rows, one for each x, got 2"):
        UncertaintyBandDisplay.from_predictions(x, x[1:], variance)
    with pytest.raises(ValueError, match="x_true was given without y_true"):
        UncertaintyBandDisplay.from_predictions(x, x, variance, x_true=x)
    with pytest.raises(ValueError, match=r"x must have shape \(n,\), got \(3, 1\)"):
        UncertaintyBandDisplay.from_predictions(x[:, None], x, variance)


# Sparsification


@pytest.mark.parametrize("n_targets", [None, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_sparsification_draws_the_metric(n_targets, weighted):
    model, X, y = make_data(n_targets)
    weights = np.linspace(0, 1, len(y)) if weighted else None
    display = SparsificationDisplay.from_estimator(model, X, y, sample_weight=weights)
    arrays = (y, model.predict(X), model.predict_uncertainty(X).total)
    fraction, model_curve, oracle_curve = sparsification_curve(*arrays, sample_weight=weights)
    assert_array_equal(display.line_.get_xydata(), np.column_stack([fraction, model_curve]))
    assert_array_equal(display.oracle_line_.get_xydata(), np.column_stack([fraction, oracle_curve]))
    assert_allclose(edges(display.area_), [oracle_curve, model_curve])
    assert display.ause == ause(*arrays, sample_weight=weights)
    assert legend_texts(display) == [
        f"SineRegressor (AUSE = {display.ause:.3f})",
        "oracle of SineRegressor",
    ]

    other = SparsificationDisplay.from_predictions(*arrays, sample_weight=weights)
    assert_array_equal(display.line_.get_xydata(), other.line_.get_xydata())
    assert legend_texts(other) == [f"AUSE = {display.ause:.3f}", "oracle"]


def test_sparsification_without_the_oracle():
    model, X, y = make_data()
    display = SparsificationDisplay.from_estimator(model, X, y, plot_oracle=False)
    assert display.oracle_line_ is None
    assert display.area_ is None
    assert len(display.ax_.lines) == 1
    display.plot(oracle_kwargs={"ls": ":"})
    assert display.oracle_line_.get_linestyle() == ":"
    assert display.oracle_line_.get_color() == display.line_.get_color()


# Calibration


@pytest.mark.parametrize("n_targets", [None, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_calibration_draws_the_metric(n_targets, weighted):
    model, X, y = make_data(n_targets)
    weights = np.linspace(0, 1, len(y)) if weighted else None
    display = RegressionCalibrationDisplay.from_estimator(
        model, X, y, quantiles=LEVELS.tolist(), sample_weight=weights
    )
    arrays = (y, model.predict_quantiles(X, LEVELS), LEVELS)
    nominal, observed = regression_calibration_curve(*arrays, sample_weight=weights)
    assert_array_equal(display.line_.get_xydata(), np.column_stack([nominal, observed]))
    assert_array_equal(display.ref_line_.get_xydata(), [[0, 0], [1, 1]])
    error = regression_calibration_error(*arrays, sample_weight=weights)
    assert display.calibration_error == error
    assert legend_texts(display) == [
        "perfectly calibrated",
        f"SineRegressor (error = {error:.3f})",
    ]

    other = RegressionCalibrationDisplay.from_predictions(*arrays, sample_weight=weights)
    assert_array_equal(display.line_.get_xydata(), other.line_.get_xydata())
    assert legend_texts(other)[1] == f"error = {error:.3f}"


def test_default_levels_and_one_diagonal_on_shared_axes():
    model, X, y = make_data()
    first = RegressionCalibrationDisplay.from_estimator(model, X, y, name="first")
    assert_allclose(first.nominal, np.arange(1, 20) / 20)
    second = RegressionCalibrationDisplay.from_estimator(model, X, y, name="second", ax=first.ax_)
    assert second.ref_line_ is None
    assert len(first.ax_.lines) == 3
    alone = RegressionCalibrationDisplay.from_estimator(model, X, y, ref_line=False)
    assert len(alone.ax_.lines) == 1
