# SPDX-License-Identifier: BSD-3-Clause
"""Calibration of predicted class probabilities."""

from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike

from .._utils.validation import Number
from ._checks import (
    check_floats,
    check_labels,
    check_nonnegative,
    check_same_length,
    cumulate,
    weighted_rows,
)

_SUM_TOLERANCE = 1e-3  # of a sample's sum from 1: float16 rounds by this much


def _check_probabilities(
    y_true: ArrayLike, y_prob: ArrayLike, labels: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the column of `y_prob` that holds each sample's true label, and `y_prob`."""
    y_true = check_labels(y_true, "y_true")
    y_prob = check_floats(y_prob, "y_prob", (2,))
    check_same_length(y_prob, "y_prob", y_true, "y_true")
    check_nonnegative(y_prob, "y_prob")
    sums = y_prob.sum(axis=1)
    worst = np.abs(sums - 1).argmax()
    if abs(sums[worst] - 1) > _SUM_TOLERANCE:
        raise ValueError(
            f"y_prob must have rows that sum to 1, but row {worst} sums to {sums[worst]:.6g}."
        )
    return _columns_of(y_true, labels, y_prob.shape[1]), y_prob


def _columns_of(y_true: np.ndarray, labels: ArrayLike | None, n_columns: int) -> np.ndarray:
    """Position in `labels` of each label; by default they are the distinct ones, sorted."""
    given = labels is not None
    labels = check_labels(labels, "labels") if given else np.unique(y_true)
    if len(labels) != n_columns or len(np.unique(labels)) != n_columns:
        found = "labels" if given else "y_true"
        raise ValueError(
            f"y_prob has {n_columns} columns, but {found} has {len(np.unique(labels))} distinct "
            "labels; give labels= one for each column of y_prob, in their order, as classes_ has."
        )
    unknown = np.setdiff1d(y_true, labels)
    if unknown.size:
        raise ValueError(
            f"y_true must hold labels of the {n_columns} columns of y_prob, "
            f"{_few(labels)}, got {_few(unknown)}."
        )
    order = np.argsort(labels)
    return order[np.searchsorted(labels, y_true, sorter=order)]


def _few(labels: np.ndarray, n_shown: int = 5) -> str:
    """The first labels, for a message."""
    return ", ".join(map(repr, labels[:n_shown].tolist())) + ", ..." * (len(labels) > n_shown)


def expected_calibration_error(
    y_true: ArrayLike,
    y_prob: ArrayLike,
    *,
    n_bins: int = 15,
    classwise: bool = False,
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Expected calibration error: how far confidence and accuracy are apart.

    Samples are put into bins by their confidence, the largest probability. The error is
    :math:`\sum_b \frac{n_b}{n} |\mathrm{acc}(b) - \mathrm{conf}(b)|`, with the share of samples
    whose most probable class is right and the mean confidence of each bin ([1]_, Eq 3).

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
    y_prob : array-like of shape (n_samples, n_classes)
        Predicted probabilities, as `predict_proba` returns; two columns for two classes.
    n_bins : int, default=15
        Number of bins, of equal width and open on the left.
    classwise : bool, default=False
        Whether to compare the probability of every class, not of the most probable one only, with
        its frequency, and to average over the classes [2]_ [3]_.
    labels : array-like of shape (n_classes,), default=None
        Of the columns of `y_prob`, as in `classes_`. By default the distinct values of `y_true`,
        sorted.
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    error : float
        Between 0 and 1, lower is better. It is no proper score: a constant prediction can cheat it.

    Notes
    -----
    With few samples in a bin the error is biased upwards; compare at
    equal `n_bins` and number of samples only.

    References
    ----------
    .. [1] C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger. "On Calibration of Modern Neural Networks".
       ICML 2017.
    .. [2] M. Kull, M. Perello-Nieto, M. Kängsepp, T. Silva Filho, H. Song, P. Flach. "Beyond
       temperature scaling: Obtaining well-calibrated multiclass probabilities with Dirichlet
       calibration". NeurIPS 2019.
    .. [3] J. Nixon, M. Dusenberry, G. Jerfel, T. Nguyen, J. Liu, L. Zhang, D. Tran. "Measuring
       Calibration in Deep Learning". CVPR Workshops 2019.

    Examples
    --------
    >>> from skdistill.metrics import expected_calibration_error
    >>> y_prob = [[0.9, 0.1], [0.9, 0.1], [0.3, 0.7], [0.3, 0.7]]
    >>> round(expected_calibration_error([0, 0, 1, 0], y_prob, n_bins=10), 4)
    0.15
    """
    Number(Integral, 1).check(n_bins, "n_bins")
    columns, y_prob = _check_probabilities(y_true, y_prob, labels)
    weights, columns, y_prob = weighted_rows(sample_weight, columns, y_prob)
    pairs = [(y_prob.max(axis=1), y_prob.argmax(axis=1) == columns)]
    if classwise:
        pairs = [(p, columns == k) for k, p in enumerate(y_prob.T)]
    edges, errors = np.linspace(0, 1, n_bins + 1), []
    for confidence, hits in pairs:
        by = np.searchsorted(edges[1:-1], confidence)  # bin b is (edges[b], edges[b + 1]]
        sums = cumulate(by, weights, confidence, hits)
        _, mean, accuracy = (np.diff(column) for column in sums)  # times the share of the bin
        errors.append(np.abs(accuracy - mean).sum())  # [1], Eq 3
    return float(np.mean(errors))
