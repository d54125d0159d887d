# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.calibration import calibration_curve

from skdistill.metrics import expected_calibration_error


def make_classes(n_samples=200, n_classes=4, sharpness=1.5, seed=0):
    """Labels drawn from probabilities, and overconfident probabilities."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(n_classes), size=n_samples)
    labels = np.array([rng.choice(n_classes, p=row) for row in p])
    return labels, p**sharpness / (p**sharpness).sum(axis=1, keepdims=True)


# Labels


@pytest.mark.parametrize(
    "names",
    [
        np.array(["eel", "ant", "cat", "dog"]),
        np.array(["eel", "ant", "cat", "dog"], dtype=object),
        np.array([7, -1, 3, 5]),
        np.array([0.5, -0.5, 2.0, 1.0]),
    ],
    ids=lambda names: str(names.dtype),
)
def test_labels_of_any_kind_name_the_columns(names):
    codes, y_prob = make_classes()
    expected = expected_calibration_error(codes, y_prob)
    assert expected_calibration_error(names[codes], y_prob, labels=names) == expected
    order = np.argsort(names)
    error = expected_calibration_error(names[codes], y_prob[:, order])
    assert_allclose(error, expected, rtol=1e-12)


def test_a_class_may_be_missing_if_the_labels_are_given():
    codes, y_prob = make_classes()
    rows = codes != 2
    error = expected_calibration_error(codes[rows], y_prob[rows], labels=range(4), n_bins=1)
    hits = y_prob[rows].argmax(axis=1) == codes[rows]
    assert_allclose(error, abs(hits.mean() - y_prob[rows].max(axis=1).mean()))


# Expected calibration error


def test_calibration_error_by_hand():
    # Confidences .6 and .6 in (.5, .6], one of two right; .9 and .8 in bins of their own, right
    # and wrong.
    y_prob = [[0.6, 0.4], [0.4, 0.6], [0.9, 0.1], [0.8, 0.2]]
    y_true = [0, 0, 0, 1]
    error = expected_calibration_error(y_true, y_prob, n_bins=10)
    assert_allclose(error, 0.5 * 0.1 + 0.25 * 0.1 + 0.25 * 0.8)


def test_classwise_error_by_hand():
    # Class 0: .8 in a bin of its own, right; .2 and .2, none. Class 1: .1, .7 (right), .1. Class 2:
    # .1, .1, .7 (right).
    y_prob = [[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.2, 0.1, 0.7]]
    error = expected_calibration_error([0, 1, 2], y_prob, n_bins=5, classwise=True)
    assert_allclose(error, ((0.2 + 0.4) + (0.3 + 0.2) + (0.3 + 0.2)) / 3 / 3)


def test_bins_of_equal_width_are_sklearns():
    codes, y_prob = make_classes()
    confidence, hits = y_prob.max(axis=1), y_prob.argmax(axis=1) == codes
    accuracy, mean = calibration_curve(hits, confidence, n_bins=12)
    counts = np.histogram(confidence, 12, (0, 1))[0]
    error = expected_calibration_error(codes, y_prob, n_bins=12)
    assert_allclose(error, counts[counts > 0] / len(codes) @ np.abs(accuracy - mean))


@pytest.mark.parametrize("classwise", [False, True])
def test_the_truth_is_calibrated_and_overconfidence_is_not(classwise):
    def error(sharpness):
        codes, y_prob = make_classes(n_samples=20_000, sharpness=sharpness)
        return expected_calibration_error(codes, y_prob, n_bins=10, classwise=classwise)

    assert error(1.0) < 0.01
    assert error(2.0) > 0.04
