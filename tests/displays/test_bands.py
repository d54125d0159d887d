# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

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
