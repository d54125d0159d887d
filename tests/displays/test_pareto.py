# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skdistill.displays import ParetoDisplay

WIDTHS = {
    "params": [{}] * 4,
    "mean_test_neg_log_loss": [-0.5, -0.3, -0.35, -0.2],
    "mean_test_accuracy": [0.80, 0.90, 0.85, 0.88],
    "mean_test_neg_flops": [-100.0, -200.0, -400.0, -800.0],
    "mean_test_neg_n_parameters": [-10.0, -20.0, -40.0, -80.0],
    "mean_score_time": [4.0, 3.0, 2.0, 1.0],
}
PRUNED = {key: values[:2] for key, values in WIDTHS.items()}
SCORES = ("neg_log_loss", "accuracy")


def test_four_panels_of_two_searches():
    display = ParetoDisplay.from_cv_results({"widths": WIDTHS, "pruned": PRUNED}, scores=SCORES)
    assert [(ax.get_xlabel(), ax.get_ylabel()) for ax in display.axes_] == [
        ("FLOPs for a sample", "Log loss"),
        ("Number of parameters", "Log loss"),
        ("FLOPs for a sample", "Accuracy"),
        ("Number of parameters", "Accuracy"),
    ]
    assert all(ax.get_xscale() == "log" for ax in display.axes_)
    legend = [text.get_text() for text in display.axes_[0].get_legend().get_texts()]
    assert legend == ["widths", "pruned"]
    for score in SCORES:
        for cost in ("neg_flops", "neg_n_parameters"):
            points = display.points_[score][cost]
            assert [len(points[name].get_offsets()) for name in points] == [4, 2]


def test_costs_are_positive_and_losses_too():
    display = ParetoDisplay.from_cv_results(WIDTHS, scores=SCORES)
    points = display.points_["neg_log_loss"]["neg_flops"]["candidates"].get_offsets()
    assert_array_equal(points, [[100, 0.5], [200, 0.3], [400, 0.35], [800, 0.2]])
    points = display.points_["accuracy"]["neg_n_parameters"]["candidates"].get_offsets()
    assert_array_equal(points, [[10, 0.8], [20, 0.9], [40, 0.85], [80, 0.88]])


def test_fronts_by_hand():
    display = ParetoDisplay.from_cv_results(WIDTHS, scores=SCORES, costs=["neg_flops"])
    front = display.fronts_["neg_log_loss"]["neg_flops"]["candidates"]
    assert_array_equal(front.get_xydata(), [[100, 0.5], [200, 0.3], [800, 0.2]])
    front = display.fronts_["accuracy"]["neg_flops"]["candidates"]
    assert_array_equal(front.get_xydata(), [[100, 0.8], [200, 0.9]])


def test_any_column_may_be_the_cost():
    display = ParetoDisplay.from_cv_results(WIDTHS, scores=["accuracy"], costs=["mean_score_time"])
    (ax,) = display.axes_
    assert ax.get_xlabel() == "Mean score time"
    front = display.fronts_["accuracy"]["mean_score_time"]["candidates"]
    assert_array_equal(front.get_xydata(), [[1.0, 0.88], [3.0, 0.9]])


@pytest.mark.parametrize("n_decades", [0.7, 1.5, 3, 4, 6])
def test_ticks_of_the_cost_are_readable(n_decades):
    flops = np.geomspace(1e4, 10 ** (4 + n_decades), 7)
    results = {"mean_test_neg_flops": -flops, "mean_test_neg_log_loss": np.linspace(-2, -1, 7)}
    display = ParetoDisplay.from_cv_results(
        {"search": results}, scores=["neg_log_loss"], costs=["neg_flops"]
    )
    (panel,) = display.axes_
    display.figure_.canvas.draw()
    low, high = panel.get_xlim()
    labels = [label for label in panel.get_xticklabels() if low <= label.get_position()[0] <= high]
    assert len([label for label in labels if label.get_text()]) >= 2
    boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: box.x0)
    assert all(left.x1 <= right.x0 for left, right in itertools.pairwise(boxes))


def test_candidates_that_failed_are_left_out():
    results = {**WIDTHS, "mean_test_accuracy": [np.nan, 0.9, 0.95, 0.9]}
    display = ParetoDisplay.from_cv_results(results, scores=["accuracy"], costs=["neg_flops"])
    front = display.fronts_["accuracy"]["neg_flops"]["candidates"]
    assert_array_equal(front.get_xydata(), [[200, 0.9], [400, 0.95]])


def test_references():
    display = ParetoDisplay.from_cv_results(
        WIDTHS,
        scores=SCORES,
        teacher_scores={"neg_log_loss": -0.15, "accuracy": 0.95},
        base_costs={"neg_flops": 300.0},
    )
    flops, n_parameters, accuracy, _ = display.axes_

    def lines(ax):
        return {line.get_label(): line.get_xydata() for line in ax.lines}

    assert_array_equal(lines(flops)["teacher"][:, 1], [0.15, 0.15])
    assert_array_equal(lines(accuracy)["teacher"][:, 1], [0.95, 0.95])
    assert_array_equal(lines(flops)["base student"][:, 0], [300.0, 300.0])
    assert "base student" not in lines(n_parameters)


def test_styles():
    display = ParetoDisplay.from_cv_results(
        WIDTHS, scores=SCORES, point_kwargs={"s": 7}, c="red", lw=3
    )
    line = display.fronts_["accuracy"]["neg_flops"]["candidates"]
    assert (line.get_color(), line.get_linewidth()) == ("red", 3)
    assert_array_equal(display.points_["accuracy"]["neg_flops"]["candidates"].get_sizes(), [7])


def test_axes_in_a_grid():
    _, axes = plt.subplots(2, 2)
    display = ParetoDisplay.from_cv_results(WIDTHS, scores=SCORES, ax=axes)
    assert list(display.axes_) == list(axes.ravel())


def test_metrics_that_are_not_there():
    with pytest.raises(ValueError, match="no metric or column 'score'"):
        ParetoDisplay.from_cv_results(WIDTHS)
