# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.calibration import CalibrationDisplay, calibration_curve

from skdistill.displays import ReliabilityDisplay
from skdistill.metrics import expected_calibration_error, reliability_curve


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
@pytest.mark.parametrize("weighted", [False, True])
def test_draws_the_metric(strategy, weighted, make_classes, legend_texts):
    model, X, y = make_classes()
    options = {
        "n_bins": 7,
        "strategy": strategy,
        "sample_weight": np.linspace(0, 1, len(y)) if weighted else None,
    }
    display = ReliabilityDisplay.from_estimator(model, X, y, **options)
    confidence, accuracy, _ = reliability_curve(y, model.predict_proba(X), **options)
    (line,) = display.lines_
    assert_array_equal(line.get_xydata(), np.column_stack([confidence, accuracy]))
    error = expected_calibration_error(y, model.predict_proba(X), **options)
    assert display.calibration_error == error
    assert legend_texts(display) == [
        "Perfectly calibrated",
        f"SectorClassifier (ECE = {error:.3f})",
    ]

    other = ReliabilityDisplay.from_predictions(y, model.predict_proba(X), **options)
    assert_array_equal(other.lines_[0].get_xydata(), line.get_xydata())
    assert legend_texts(other)[1] == f"ECE = {error:.3f}"


def test_bars_are_the_shares_of_the_bins(make_classes):
    model, X, y = make_classes()
    weights = np.linspace(0, 1, len(y))
    display = ReliabilityDisplay.from_estimator(model, X, y, n_bins=10, sample_weight=weights)
    _, _, shares = reliability_curve(y, model.predict_proba(X), n_bins=10, sample_weight=weights)
    heights, edges, _ = display.bars_.get_data()
    assert_allclose(edges, np.arange(11) / 10)
    assert_allclose(heights[heights > 0], shares)
    assert display.bars_.get_facecolor()[:3] == to_rgb(display.lines_[0].get_color())


def test_shares_by_hand():
    y_prob = [[0.95, 0.05], [0.9, 0.1], [0.3, 0.7], [0.45, 0.55]]
    display = ReliabilityDisplay.from_predictions([0, 0, 1, 0], y_prob, n_bins=5)
    assert_allclose(display.share, [0, 0, 0.25, 0.25, 0.5])
    assert_allclose(display.lines_[0].get_xydata(), [[0.55, 0], [0.7, 1], [0.925, 1]])


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_classes_are_drawn_as_scikit_learn_does(strategy, make_classes, legend_texts):
    model, X, y = make_classes()
    y_prob = model.predict_proba(X)
    display = ReliabilityDisplay.from_estimator(
        model, X, y, classes="all", n_bins=4, strategy=strategy
    )
    for k, (line, label) in enumerate(zip(display.lines_, model.classes_, strict=True)):
        frequency, mean = calibration_curve(y == label, y_prob[:, k], n_bins=4, strategy=strategy)
        assert_array_equal(line.get_xydata(), np.column_stack([mean, frequency]))
    assert display.bars_ is None
    assert len({line.get_color() for line in display.lines_}) == 3
    assert legend_texts(display) == ["Perfectly calibrated", "blue", "green", "red"]
    error = expected_calibration_error(y, y_prob, classwise=True, n_bins=4, strategy=strategy)
    assert display.calibration_error == error
    title = display.ax_.get_legend().get_title().get_text()
    assert title == f"SectorClassifier (classwise ECE = {error:.3f})"


def test_some_classes_in_the_order_of_the_columns_of_labels(make_classes, legend_texts):
    model, X, y = make_classes()
    labels = ["red", "blue", "green"]
    y_prob = model.predict_proba(X)[:, [2, 0, 1]]
    display = ReliabilityDisplay.from_predictions(y, y_prob, labels=labels, classes=["green"])
    assert legend_texts(display) == ["Perfectly calibrated", "green"]
    frequency, mean = calibration_curve(y == "green", y_prob[:, 2], n_bins=15)
    assert_array_equal(display.lines_[0].get_xydata(), np.column_stack([mean, frequency]))


def test_confidences_on_the_edges_of_bins_and_bars_go_with_the_lower():
    display = ReliabilityDisplay.from_predictions([0, 1], [[0.8, 0.2], [0.4, 0.6]], n_bins=5)
    assert_array_equal(display.share, [0, 0, 0.5, 0.5, 0])
    assert_allclose(display.lines_[0].get_xydata(), [[0.6, 1], [0.8, 1]])


def test_probabilities_of_float32_that_round_above_one():
    y_prob = np.array([[1 + 1e-7, 0], [0.2, 0.8], [0.6, 0.4]], dtype=np.float32)
    display = ReliabilityDisplay.from_predictions([0, 1, 1], y_prob, classes="all", n_bins=2)
    assert_allclose(display.lines_[0].get_xydata(), [[0.2, 0], [0.8, 0.5]], rtol=1e-6)
    display = ReliabilityDisplay.from_predictions([0, 1, 1], y_prob, n_bins=2)
    assert_array_equal(display.share, [0, 1])


def test_class_without_rows(make_classes):
    model, X, y = make_classes()
    rows = y != "green"
    display = ReliabilityDisplay.from_estimator(model, X[rows], y[rows], classes="all", n_bins=4)
    assert_array_equal(display.lines_[1].get_ydata(), np.zeros(len(display.lines_[1].get_xdata())))


def test_more_classes_than_colours():
    rng = np.random.default_rng(0)
    display = ReliabilityDisplay.from_predictions(
        rng.integers(12, size=60), rng.dirichlet(np.ones(12), 60), labels=range(12), classes="all"
    )
    styles = {(line.get_color(), line.get_linestyle()) for line in display.lines_}
    assert len(styles) == 12


def test_one_diagonal_and_one_colour_each_on_shared_axes(make_classes):
    model, X, y = make_classes()
    first = ReliabilityDisplay.from_estimator(model, X, y)
    second = ReliabilityDisplay.from_estimator(model, X, y, ax=first.ax_)
    CalibrationDisplay.from_predictions(y == "red", model.predict_proba(X)[:, 2], ax=first.ax_)
    assert len(first.ax_.lines) == 4
    colors = [to_hex(display.lines_[0].get_color()) for display in (first, second)]
    assert colors == [to_hex("C0"), to_hex("C1")]
    assert len(ReliabilityDisplay.from_estimator(model, X, y, ref_line=False).ax_.lines) == 1


def test_style_of_the_bars(make_classes):
    model, X, y = make_classes()
    display = ReliabilityDisplay.from_estimator(model, X, y, bars_kwargs={"fc": "red"})
    assert display.bars_.get_facecolor()[:3] == (1, 0, 0)
    assert display.plot(plot_bars=False).bars_ is None
    assert len(display.ax_.patches) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": "pink"}, r"classes must be None, 'all' or some of .*'red'\], got 'pink'"),
        ({"classes": ["red", "pink"]}, r"some of the labels .*got \['red', 'pink'\]"),
        ({"classes": []}, r"some of the labels .*got \[\]"),
        ({"classes": "all", "sample_weight": np.ones(80)}, "sample_weight must be None"),
        ({"n_bins": 0}, "n_bins must be an integer >= 1, got 0"),
        ({"strategy": "equal"}, "strategy must be one of"),
    ],
)
def test_bad_arguments(change, message, make_classes):
    model, X, y = make_classes()
    with pytest.raises(ValueError, match=message):
        ReliabilityDisplay.from_estimator(model, X, y, **change)


def test_probabilities_are_checked(make_classes):
    model, X, y = make_classes()
    with pytest.raises(ValueError, match="y_prob must have rows that sum to 1"):
        ReliabilityDisplay.from_predictions(y, 2 * model.predict_proba(X), classes="all")


def test_a_regressor(make_data):
    with pytest.raises(TypeError, match="a classifier with predict_proba, got SineRegressor"):
        ReliabilityDisplay.from_estimator(*make_data())
