# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skdistill.displays import SparsificationDisplay
from skdistill.metrics import ause, sparsification_curve


@pytest.mark.parametrize("n_targets", [None, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_sparsification_draws_the_metric(n_targets, weighted, make_data, edges, legend_texts):
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


def test_sparsification_without_the_oracle(make_data):
    model, X, y = make_data()
    display = SparsificationDisplay.from_estimator(model, X, y, plot_oracle=False)
    assert display.oracle_line_ is None
    assert display.area_ is None
    assert len(display.ax_.lines) == 1
    display.plot(oracle_kwargs={"ls": ":"})
    assert display.oracle_line_.get_linestyle() == ":"
    assert display.oracle_line_.get_color() == display.line_.get_color()
