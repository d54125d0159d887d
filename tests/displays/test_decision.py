# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skdistill.displays import DecisionUncertaintyDisplay


def small(*args, **kwargs):
    return DecisionUncertaintyDisplay.from_estimator(*args, grid_resolution=20, **kwargs)


def grid_of(X, extend=0.2):
    lines = []
    for column in X.T:
        margin = extend * np.ptp(column)
        lines.append(np.linspace(column.min() - margin, column.max() + margin, 20))
    xx0, xx1 = np.meshgrid(*lines)
    return xx0, xx1, np.column_stack([xx0.ravel(), xx1.ravel()])


def test_maps_are_the_predictions_of_a_classifier(make_classes):
    model, X, y = make_classes()
    display = small(model, X, y)
    xx0, xx1, X_grid = grid_of(X)
    assert_allclose(display.xx0, xx0)
    assert_allclose(display.xx1, xx1)
    codes = np.searchsorted(model.classes_, model.predict(X_grid)).reshape(20, 20)
    assert_array_equal(display.prediction_map_.get_array(), codes)
    uncertainty = model.predict_uncertainty(X_grid)
    assert list(display.uncertainty_maps_) == ["total", "aleatoric", "epistemic"]
    for part, drawn in display.uncertainty_maps_.items():
        expected = getattr(uncertainty, part).reshape(20, 20)
        assert_allclose(drawn.get_array(), expected, atol=1e-12)
        assert drawn.get_clim() == (0, pytest.approx(expected.max()))
        assert drawn.colorbar.ax.get_ylabel() == "nats"
    titles = [ax.get_title() for ax in display.axes_]
    assert titles == [
        "Predicted class",
        "Total uncertainty",
        "Aleatoric uncertainty",
        "Epistemic uncertainty",
    ]


def test_points_have_the_colours_of_their_classes(make_classes):
    model, X, y = make_classes()
    display = small(model, X, y)
    assert len(display.scatters_) == 4
    for scatter in display.scatters_:
        assert_array_equal(scatter.get_offsets(), X)
    first = display.scatters_[0]
    assert_array_equal(first.get_array(), np.searchsorted(model.classes_, y))
    of_regions = display.prediction_map_
    assert first.cmap is of_regions.cmap
    assert first.get_clim() == of_regions.get_clim() == (-0.5, 2.5)
    legend = display.axes_[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["blue", "green", "red"]
    colors = [patch.get_facecolor() for patch in legend.get_patches()]
    assert colors == [of_regions.to_rgba(k, alpha=1) for k in range(3)]
    assert small(model, X).scatters_ == []


def test_more_classes_than_colours(make_classes):
    model, X, y = make_classes(labels=range(12))
    display = small(model, X, y)
    assert len({display.prediction_map_.to_rgba(k) for k in range(12)}) == 12


@pytest.mark.parametrize(("n_targets", "target"), [(None, 0), (2, 1)])
def test_maps_are_the_predictions_of_a_regressor(n_targets, target, make_data):
    model, X, y = make_data(n_targets)
    display = small(model, X, y, features=(2, 0), target=target, extend=0)
    xx0, xx1, _ = grid_of(X[:, [2, 0]], extend=0)
    middle = np.full(400, np.median(X[:, 1]))
    X_grid = np.column_stack([xx1.ravel(), middle, xx0.ravel()])
    assert_allclose(model.seen_, X_grid)
    expected = model.predict(X_grid).reshape(400, -1)[:, target].reshape(20, 20)
    assert_allclose(display.prediction_map_.get_array(), expected)
    epistemic = model.predict_uncertainty(X_grid).epistemic.reshape(400, -1)[:, target]
    assert_allclose(display.uncertainty_maps_["epistemic"].get_array(), epistemic.reshape(20, 20))
    assert display.uncertainty_maps_["total"].colorbar.ax.get_ylabel() == "squared units of y"
    assert display.axes_[0].get_title() == "Predicted mean"
    assert display.axes_[0].get_legend() is None
    assert_array_equal(display.scatters_[0].get_offsets(), X[:, [2, 0]])
    assert_array_equal(display.scatters_[0].get_array(), y.reshape(60, -1)[:, target])
    assert display.axes_[0].get_xlabel() == "feature 2"
    assert display.axes_[0].get_ylabel() == "feature 0"


def test_a_model_that_tells_the_total_only(make_classes):
    model, X, y = make_classes(tells_parts=False)
    display = small(model, X, y)
    assert len(display.axes_) == 2
    assert list(display.uncertainty_maps_) == ["total"]


def test_frames(make_classes):
    pd = pytest.importorskip("pandas")
    model, X, y = make_classes()
    frame = pd.DataFrame(X, columns=["height", "width"])
    seen = []

    class OnFrame(type(model)):
        def predict_proba(self, X):
            seen.append(X)
            return super().predict_proba(X)

    display = small(OnFrame().fit(X, y), frame, pd.Series(y, index=range(7, 87)))
    assert all(list(X.columns) == ["height", "width"] for X in seen)
    assert display.axes_[0].get_xlabel() == "height"
    assert display.axes_[0].get_ylabel() == "width"
    assert_array_equal(display.scatters_[0].get_offsets(), X)


def test_pipelines_transform_the_grid(make_classes):
    model, X, y = make_classes()
    doubled = make_pipeline(FunctionTransformer(partial(np.multiply, 2.0)).fit(X), model)
    display = small(doubled, X, y)
    uncertainty = model.predict_uncertainty(2 * grid_of(X)[2])
    assert_allclose(display.uncertainty.total.ravel(), uncertainty.total, atol=1e-12)
    assert_array_equal(display.scatters_[0].get_offsets(), X)


def test_axes_in_a_square(make_classes):
    model, X, y = make_classes()
    _, axes = plt.subplots(2, 2)
    display = small(model, X, y, ax=axes)
    assert list(display.axes_) == list(axes.ravel())


def test_styles(make_classes):
    model, X, y = make_classes()
    display = small(
        model,
        X,
        y,
        vmax=2,
        cmap="magma",
        prediction_kwargs={"alpha": 1},
        scatter_kwargs={"color": "red"},
    )
    for drawn in display.uncertainty_maps_.values():
        assert drawn.get_clim() == (0, 2)
        assert drawn.cmap.name == "magma"
    assert display.prediction_map_.get_alpha() == 1
    for scatter in display.scatters_:
        assert_array_equal(scatter.get_facecolor(), [[1, 0, 0, 1]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": (0, 2)}, "features must be a position from 0 to 1, got 2"),
        ({"features": (0, 0)}, r"features must be two different columns, got \(0, 0\)"),
        ({"features": (0,)}, r"features must be two different columns, got \(0,\)"),
        ({"features": "xy"}, "features must be two different columns, got 'xy'"),
        ({"extend": -1}, "extend must be a number >= 0, got -1"),
        ({"target": 1}, "target must be an integer from 0 to 0, .* got 1"),
        ({"y": ["pink"] * 80}, r"y must hold labels .*'red'\], got \['pink'\]"),
        ({"y": ["red"] * 3}, "y must have 80 samples, one for each sample of X, got 3"),
    ],
)
def test_bad_arguments(change, message, make_classes):
    model, X, y = make_classes()
    with pytest.raises(ValueError, match=message):
        small(model, X, **{"y": y, **change})


def test_bad_grid(make_classes):
    model, X, y = make_classes()
    with pytest.raises(ValueError, match="grid_resolution must be an integer >= 2, got 1"):
        DecisionUncertaintyDisplay.from_estimator(model, X, y, grid_resolution=1)
    X[:, 1] = 3
    message = r"features must be a column that varies, got 'feature 1', always 3\.0"
    with pytest.raises(ValueError, match=message):
        small(model, X, y)
