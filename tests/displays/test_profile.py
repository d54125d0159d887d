# SPDX-License-Identifier: BSD-3-Clause
"""Uncertainty by the values of a column."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose

from skdistill.displays import UncertaintyProfileDisplay
from skdistill.metrics import uncertainty_profile


def test_draws_the_profile_of_a_column(make_data, legend_texts):
    model, X, _ = make_data()
    epistemic = model.predict_uncertainty(X).epistemic
    expected = uncertainty_profile(epistemic, X[:, 0])
    display = UncertaintyProfileDisplay.from_estimator(model, X, feature=0)
    assert_allclose(display.line_.get_xdata(), expected.values)
    assert_allclose(display.line_.get_ydata(), expected.means)
    assert_allclose(display.mean_line_.get_ydata(), epistemic.mean())
    assert f"SineRegressor (explained: {expected.explained:.2f})" in legend_texts(display)
    assert display.ax_.get_ylabel() == "Mean epistemic (squared units of y)"
    assert display.ax_.get_ylim()[0] == 0


def test_columns_are_found_by_name(make_data):
    pandas = pytest.importorskip("pandas")
    model, X, _ = make_data()
    frame = pandas.DataFrame(X, columns=["speed", "height", "age"])
    display = UncertaintyProfileDisplay.from_estimator(model, frame, feature="height", part="total")
    assert display.ax_.get_xlabel() == "height"
    assert_allclose(display.values, uncertainty_profile(np.ones(len(X)) + X[:, 0], X[:, 1]).values)


def test_categories_and_missing_values_have_names_and_no_line():
    display = UncertaintyProfileDisplay.from_predictions(
        [1.0, 2.0, 3.0, 4.0], ["a", "a", "b", None]
    )
    labels = [tick.get_text() for tick in display.ax_.get_xticklabels()]
    assert labels == ["a", "b", "missing"]
    assert display.line_.get_linestyle() == "None"


def test_numbers_are_joined_and_missing_values_stand_beside_them():
    display = UncertaintyProfileDisplay.from_predictions(
        [1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 1.0, 2.0, np.nan, np.nan]
    )
    assert display.line_.get_linestyle() == "-"
    assert_allclose(display.line_.get_xdata(), [0, 1, np.nan, 2])
    assert_allclose(display.line_.get_ydata(), [1.5, 3, np.nan, 4.5])


def test_models_on_the_same_axes_share_one_line_of_the_mean_and_all_fit_in():
    _, ax = plt.subplots()
    uncertainty, column = np.arange(1.0, 41), np.arange(40)
    UncertaintyProfileDisplay.from_predictions(uncertainty, column, ax=ax)
    second = UncertaintyProfileDisplay.from_predictions(9 * uncertainty, column, ax=ax)
    assert second.mean_line_ is None
    assert ax.get_ylim()[1] > second.means.max()
    assert ax.get_ylim()[0] == 0


def test_unknown_column_or_part(make_data):
    model, X, _ = make_data()
    with pytest.raises(ValueError, match="feature must be a position from 0 to 2, got 3"):
        UncertaintyProfileDisplay.from_estimator(model, X, feature=3)
    with pytest.raises(ValueError, match=r"part must be one of .*, got 'noise'"):
        UncertaintyProfileDisplay.from_estimator(model, X, part="noise")
