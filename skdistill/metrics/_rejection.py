# SPDX-License-Identifier: BSD-3-Clause
"""How well an uncertainty ranks the errors: error curves as uncertain samples are rejected."""

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import auc

from ._checks import (
    check_columns,
    check_floats,
    check_same_length,
    check_shape,
    check_targets,
    cumulate,
    warn_undefined,
    weighted_rows,
)


def ause(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    uncertainty: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Area under the sparsification error: how well the uncertainty ranks the errors.

    As samples are removed from the most to the least uncertain, the sparsification curve is the
    mean squared error of the others, divided by that of all; the oracle removes by the squared
    error itself. The result is the area between the two curves (Lindqvist et al. 2020, Section 4.1;
    [1]_). It depends on the order of the uncertainties only, and is 0 where that is the errors'.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_targets)
    y_pred : array-like of the shape of `y_true`
        Predicted means.
    uncertainty : array-like of shape (n_samples,) or the shape of `y_true`
        Values that rank the samples: a variance or a standard deviation, usually the total one.
        Of shape (n_samples,), it orders the samples for every target.
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    ause : float
        Lower is better; the mean over targets.

    Warns
    -----
    UndefinedMetricWarning
        If every error of a target is zero: the area is then nan.

    See Also
    --------
    risk_coverage_curve : With squared errors as the losses, the curve itself, not divided.

    References
    ----------
    .. [1] E. Ilg, O. Cicek, S. Galesso, A. Klein, O. Makansi, F. Hutter, T. Brox. "Uncertainty
       Estimates and Multi-Hypotheses Networks for Optical Flow". ECCV 2018.

    Examples
    --------
    >>> from skdistill.metrics import ause
    >>> ause(y_true=[3.0, 0.0, 1.0], y_pred=[0.0, 0.0, 0.0], uncertainty=[9.0, 0.1, 2.0])
    0.0
    """
    y_true, y_pred = check_targets(y_true, y_pred=y_pred)
    uncertainty = check_columns(uncertainty, "uncertainty")
    if uncertainty.shape[1] == 1:
        uncertainty = np.repeat(uncertainty, y_true.shape[1], axis=1)
    check_shape(uncertainty, "uncertainty", y_true.shape)
    weights, errors, uncertainty = weighted_rows(sample_weight, (y_true - y_pred) ** 2, uncertainty)
    if not errors.any(axis=0).all():
        warn_undefined("The AUSE", "every error is zero")
        return np.nan
    areas = []
    for error, by in zip(errors.T, uncertainty.T, strict=True):
        model, oracle = cumulate(by, weights, error), cumulate(error, weights, error)
        kept = np.union1d(model[0], oracle[0])
        difference = _mean_of_kept(kept, *model) - _mean_of_kept(kept, *oracle)
        areas.append(auc(kept, difference) / oracle[1][-1])
    return float(np.mean(areas))


def _mean_of_kept(kept: np.ndarray, fractions: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Mean over the `kept` fraction of the samples, off the cumulative sums at `fractions`."""
    limit = sums[1] / fractions[1]  # that of the first group, where nothing is kept
    means = np.full_like(kept, limit)
    np.divide(np.interp(kept, fractions, sums), kept, out=means, where=kept > 0)
    return means


def risk_coverage_curve(
    losses: ArrayLike, uncertainty: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> tuple[np.ndarray, np.ndarray]:
    r"""Mean loss of the least uncertain samples against the fraction of samples that they are.

    A model that abstains on uncertain samples predicts the fraction :math:`c` of all samples, its
    coverage; its risk :math:`r(c)` is its mean loss on these [1]_.

    Parameters
    ----------
    losses : array-like of shape (n_samples,)
        Loss of each sample, whatever it is measured in: ``y_true != y_pred`` for labels, the
        squared error, 100 - BLEU. With ``y_true == y_pred`` the curve is that of the accuracy.
    uncertainty : array-like of shape (n_samples,)
        Values that rank the samples.
    sample_weight : array-like of shape (n_samples,), default=None
        Sample weights.

    Returns
    -------
    coverage : ndarray of shape (n_points,)
        Increasing from 0 to 1, as shares of the total weight: 0, 1/n, ..., 1 without weights and
        ties.
    risk : ndarray of shape (n_points,)
        Mean loss at each coverage; at 1 the mean loss of all samples, at 0 the limit, the loss of
        the least uncertain samples.

    Notes
    -----
    Samples of equal uncertainty enter together, one point for all of them. The curve of the oracle,
    below which no order lies, is ``risk_coverage_curve(losses, losses)``.

    References
    ----------
    .. [1] Y. Geifman, R. El-Yaniv. "Selective Classification for Deep Neural Networks".
       NeurIPS 2017.

    Examples
    --------
    >>> from skdistill.metrics import risk_coverage_curve
    >>> coverage, risk = risk_coverage_curve([0, 1, 0, 1], uncertainty=[0.1, 0.4, 0.2, 0.3])
    >>> risk.round(2)
    array([0.  , 0.  , 0.  , 0.33, 0.5 ])
    """
    weights, losses, uncertainty = _check_losses(losses, uncertainty, sample_weight)
    coverage, sums = cumulate(uncertainty, weights, losses)
    return coverage, _mean_of_kept(coverage, coverage, sums)


def aurc(
    losses: ArrayLike, uncertainty: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    r"""Area under the risk-coverage curve: the mean loss, averaged over all coverages.

    :math:`\int_0^1 r(c)\,dc` with the risk :math:`r` of :func:`risk_coverage_curve` [1]_. Low
    where the model makes few errors and is uncertain about them. Only the order of the
    uncertainties matters; a constant uncertainty gives the mean loss.

    Parameters
    ----------
    losses, uncertainty, sample_weight : as in :func:`risk_coverage_curve`

    Returns
    -------
    area : float
        In units of the losses, lower is better.

    Notes
    -----
    The integral is exact for losses that accumulate evenly between the points of the curve, which
    is the expectation over the order of samples with equal uncertainty. The sum
    :math:`\frac{1}{n} \sum_i r(i/n)` of [1]_ differs from it by :math:`O(\log(n) / n)`.

    References
    ----------
    .. [1] Y. Geifman, G. Uziel, R. El-Yaniv. "Bias-Reduced Uncertainty Estimation for Deep Neural
       Classifiers". ICLR 2019.

    Examples
    --------
    >>> from skdistill.metrics import aurc
    >>> round(aurc([0, 0, 0, 1], uncertainty=[0.1, 0.2, 0.3, 0.4]), 4)
    0.0342
    """
    weights, losses, uncertainty = _check_losses(losses, uncertainty, sample_weight)
    coverage, sums = cumulate(uncertainty, weights, losses)
    # Between two points the sum is a + b c, and the integral of (a + b c) / c is a log c + b c.
    slopes = np.diff(sums) / np.diff(coverage)
    offsets = sums[1:] - slopes * coverage[1:]  # the first is 0: the curve starts at (0, 0)
    return float(sums[-1] + offsets[1:] @ np.diff(np.log(coverage[1:])))


def prediction_rejection_ratio(
    losses: ArrayLike, uncertainty: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    r"""How well the uncertainty ranks the losses: 1 as the losses themselves, 0 as chance.

    As samples are rejected and handed to an oracle that makes no errors, the loss falls: linearly
    on average when the samples come in random order, faster when the worst come first. The ratio is
    the area between the random and the model's curve over that between the random and the best
    possible curve [1]_.

    Parameters
    ----------
    losses, uncertainty, sample_weight : as in :func:`risk_coverage_curve`

    Returns
    -------
    ratio : float
        Between -1 and 1, higher is better; often given in percent.

    Warns
    -----
    UndefinedMetricWarning
        If all losses are equal: the ratio is then nan.

    Notes
    -----
    Scaling the losses or adding a constant changes nothing. For losses of 0 and 1 the ratio is
    :math:`2\,\mathrm{AUROC} - 1`, where the uncertainty detects the errors.

    References
    ----------
    .. [1] A. Malinin. "Uncertainty Estimation in Deep Learning with Application to Spoken Language
       Assessment". PhD thesis, University of Cambridge, 2019.

    Examples
    --------
    >>> from skdistill.metrics import prediction_rejection_ratio
    >>> prediction_rejection_ratio([0, 1, 0, 1], uncertainty=[0.1, 0.9, 0.2, 0.8])
    1.0
    """
    weights, losses, uncertainty = _check_losses(losses, uncertainty, sample_weight)
    if np.ptp(losses) == 0:
        warn_undefined("The rejection ratio", "all losses are equal")
        return np.nan
    model = _area_below_random(losses, uncertainty, weights)
    return float(model / _area_below_random(losses, losses, weights))


def _area_below_random(losses: np.ndarray, by: np.ndarray, weights: np.ndarray) -> float:
    """Area between the loss kept when rejecting at random and from the largest `by` down."""
    kept, sums = cumulate(by, weights, losses)
    return float(sums[-1] / 2 - auc(kept, sums))


def _check_losses(
    losses: ArrayLike, uncertainty: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[np.ndarray, ...]:
    """Return the weights, the losses and the uncertainties, each of shape (n,)."""
    losses = check_floats(losses, "losses", (1,))
    uncertainty = check_floats(uncertainty, "uncertainty", (1,))
    check_same_length(uncertainty, "uncertainty", losses, "losses")
    return weighted_rows(sample_weight, losses, uncertainty)
