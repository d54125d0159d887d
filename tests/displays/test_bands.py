# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skdistill.displays import UncertaintyBandDisplay
from skdistill.distributions import Uncertainty


def along(model, X, feature=0):
    """A grid along a feature, with the others at their medians, and what a model predicts there."""
    x = np.linspace(X[:, feature].min() - 1, X[:, feature].max() + 1, 50)
    grid = np.repeat([np.median(X, axis=0)], 50, axis=0)
    grid[:, feature] = x
    return x, model.predict(grid), model.predict_uncertainty(grid)


@pytest.mark.parametrize(("n_targets", "target"), [(None, 0), (2, 1)])
def test_bands_are_the_predictions(n_targets, target, make_data, edges):
    model, X, y = make_data(n_targets)
    x, y_pred, uncertainty = along(model, X)
    shuffled = np.random.default_rng(0).permutation(50)
    total, aleatoric, epistemic = (part[shuffled] for part in uncertainty)
    display = UncertaintyBandDisplay.from_predictions(
        x[shuffled],
        y_pred[shuffled],
        Uncertainty(total, aleatoric, epistemic, "variance"),
        x_true=X[:, 0],
        y_true=y,
        target=target,
        feature_name="speed",
        n_std=2,
    )
    y_pred = y_pred.reshape(50, -1)[:, target]
    total, aleatoric, _ = (part.reshape(50, -1)[:, target] for part in uncertainty.std())
    assert_allclose(display.line_.get_xdata(), x)
    assert_allclose(display.line_.get_ydata(), y_pred)
    assert_allclose(edges(display.total_band_), [y_pred - 2 * total, y_pred + 2 * total])
    assert_allclose(
        edges(display.aleatoric_band_), [y_pred - 2 * aleatoric, y_pred + 2 * aleatoric]
    )
    points = np.column_stack([X[:, 0], y.reshape(len(y), -1)[:, target]])
    assert_allclose(display.scatter_.get_offsets(), points)
    assert display.ax_.get_xlabel() == "speed"


def test_only_the_total_band_where_parts_are_not_told(make_data, legend_texts, sine_regressor):
    _, X, _ = make_data()
    display = UncertaintyBandDisplay.from_predictions(*along(sine_regressor(tells_parts=False), X))
    assert display.aleatoric_band_ is None
    assert display.scatter_ is None
    assert legend_texts(display) == ["prediction", "total, ± 1 std"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": 1}, "target must be an integer from 0 to 0, .* got 1"),
        ({"n_std": 0}, "n_std must be a number > 0, got 0"),
        ({"y_true": np.ones(3)}, "y_true must have 60 samples, one for each x, got 3"),
    ],
)
def test_bad_arguments_of_bands(change, message, make_data):
    model, X, y = make_data()
    given = {"x_true": X[:, 0], "y_true": y, **change}
    with pytest.raises(ValueError, match=message):
        UncertaintyBandDisplay.from_predictions(*along(model, X), **given)
