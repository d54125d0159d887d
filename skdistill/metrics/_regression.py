# SPDX-License-Identifier: BSD-3-Clause
"""How good a predictive distribution is: scores, calibration, and fidelity to the teacher.

Every metric takes arrays and returns a float (the curves return arrays). Means over rows are
weighted by ``sample_weight``, so that an integer weight is the same as repeating the row; where
there are several targets the metric is computed for each and averaged uniformly.
"""

from __future__ import annotations

import copy
import warnings
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp
from sklearn import get_config
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import auc
from sklearn.utils import check_array, check_scalar, gen_batches
from sklearn.utils.metadata_routing import MetadataRequest

from ._base import check_weights
from ._through import predict_interval, predict_members, predict_uncertainty

__all__ = [
    "EpistemicFidelity",
    "UncertaintyScorer",
    "ause",
    "crps",
    "epistemic_fidelity",
    "gaussian_nll",
    "interval_coverage",
    "interval_score",
    "interval_width",
    "make_interval_scorer",
    "mixture_nll",
    "neg_ause_scorer",
    "neg_crps_scorer",
    "neg_gaussian_nll_scorer",
    "neg_interval_score_scorer",
    "neg_mixture_nll_scorer",
    "regression_calibration_curve",
    "regression_calibration_error",
    "sparsification_curve",
    "uncertainty_total_variation",
]


# --------------------------------------------------------------------------------------
# Checking the input
# --------------------------------------------------------------------------------------


def _check_floats(values, name, ndims):
    """Return `values` as a finite float64 array whose number of dimensions is in `ndims`."""
    array = check_array(values, dtype=np.float64, ensure_2d=False, allow_nd=True, input_name=name)
    if array.ndim not in ndims:
        accepted = " or ".join(map(str, ndims))
        raise ValueError(f"{name} must have {accepted} dimension(s), got shape {array.shape}.")
    return array


def _check_columns(values, name):
    """Return `values` of shape (n,) or (n, t) with shape (n, t)."""
    array = _check_floats(values, name, (1, 2))
    return array.reshape(len(array), -1)


def _check_shape(array, name, expected, like="y_true"):
    if array.shape != expected:
        flat = f"({expected[0]},) or " if expected[1] == 1 else ""
        raise ValueError(
            f"{name} must have shape {flat}{expected} to go with {like}, got {array.shape}."
        )


def _check_pair(y_true, y_pred, name="y_pred"):
    y_true = _check_columns(y_true, "y_true")
    y_pred = _check_columns(y_pred, name)
    _check_shape(y_pred, name, y_true.shape)
    return y_true, y_pred


def _check_per_target(values, name, length, y_shape=None):
    """Return `values` of shape (n, length) or (n, t, length) with shape (n, t, length)."""
    given = _check_floats(values, name, (2, 3))
    array = given[:, np.newaxis, :] if given.ndim == 2 else given
    n_rows, n_targets = array.shape[:2] if y_shape is None else y_shape
    if array.shape != (n_rows, n_targets, length):
        flat = f"({n_rows}, {length}) or " if n_targets == 1 else ""
        raise ValueError(
            f"{name} must have shape {flat}({n_rows}, {n_targets}, {length}), got {given.shape}."
        )
    return array


def _check_members(y_true, y_members):
    """Return y_true (n, t), and the members' means and variances, each (n, S, t)."""
    y_true = _check_columns(y_true, "y_true")
    members = _check_floats(y_members, "y_members", (4,))
    n_rows, n_targets = y_true.shape
    if members.shape != (n_rows, members.shape[1], n_targets, 2) or members.shape[1] == 0:
        raise ValueError(
            "y_members must have shape (n_samples, n_members, n_targets, 2), that is "
            f"({n_rows}, S, {n_targets}, 2) to go with y_true, got {members.shape}."
        )
    means, variances = members[..., 0], members[..., 1]
    _check_positive(variances, "the variances y_members[..., 1]")
    return y_true, means, variances


def _check_positive(array, name):
    if array.min() <= 0:
        raise ValueError(f"{name} must be positive, got a smallest value of {array.min():.6g}.")


def _check_nonnegative(array, name):
    if array.min() < 0:
        raise ValueError(f"{name} must not be negative, got a smallest value of {array.min():.6g}.")


def _check_coverage(coverage):
    check_scalar(coverage, "coverage", Real, min_val=0, max_val=1, include_boundaries="neither")


def _weights_or_ones(sample_weight, n_samples, name="sample_weight"):
    """Return the weights as a float64 array of shape (n_samples,); None means all ones."""
    weights = check_weights(sample_weight, n_samples, name)
    return np.ones(n_samples) if weights is None else weights


def _weighted_rows(sample_weight, *arrays, name="sample_weight"):
    """Return the weights and the arrays without the rows of weight 0."""
    weights = _weights_or_ones(sample_weight, len(arrays[0]), name)
    rows = weights > 0
    return weights[rows], *(array[rows] for array in arrays)


def _average(values, sample_weight):
    """Mean of `values`, shape (n, t): uniform over targets, weighted over rows."""
    weights = _weights_or_ones(sample_weight, len(values))
    return float(np.average(values.mean(axis=1), weights=weights))


# --------------------------------------------------------------------------------------
# Proper scores of the predictive distribution
# --------------------------------------------------------------------------------------


def _gaussian_log_density(y, mean, variance):
    return -0.5 * (np.log(2 * np.pi * variance) + (y - mean) ** 2 / variance)


def gaussian_nll(y_true, y_pred, y_std, *, sample_weight=None):
    r"""Negative log likelihood of a Gaussian prediction, in nats.

    The mean over rows and targets of :math:`-\log N(y; \mu, \sigma^2)`, constants included
    ([1]_, Eq 1). With several targets this is the mean of the targets' scores, not their joint
    score.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_targets)
        True values.

    y_pred : array-like of the shape of `y_true`
        Predicted means.

    y_std : array-like of the shape of `y_true`
        Predicted standard deviations, in units of y, positive.

    sample_weight : array-like of shape (n_samples,), default=None
        Sample weights.

    Returns
    -------
    nll : float
        Lower is better.

    Raises
    ------
    ValueError
        If shapes disagree, or a standard deviation is not positive.

    References
    ----------
    .. [1] B. Lakshminarayanan, A. Pritzel, C. Blundell. "Simple and Scalable Predictive
       Uncertainty Estimation using Deep Ensembles". NeurIPS 2017.

    Examples
    --------
    >>> from skdistill.metrics import gaussian_nll
    >>> round(gaussian_nll([0.0, 1.0], [0.0, 0.0], [1.0, 1.0]), 4)
    1.1689
    """
    y_true, y_pred = _check_pair(y_true, y_pred)
    y_std = _check_columns(y_std, "y_std")
    _check_shape(y_std, "y_std", y_true.shape)
    _check_positive(y_std, "y_std")
    return _average(-_gaussian_log_density(y_true, y_pred, y_std**2), sample_weight)  # Eq 1


def mixture_nll(y_true, y_members, *, sample_weight=None):
    r"""Negative log likelihood of an equally weighted mixture of Gaussians, in nats.

    The mean over rows and targets of :math:`-\log \frac{1}{S} \sum_s N(y; \mu_s, \sigma_s^2)`,
    which is how an ensemble predicts ([1]_, Section 2.4). With several targets this is the mean
    of the targets' scores, not their joint score.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_targets)
        True values.

    y_members : array-like of shape (n_samples, n_members, n_targets, 2)
        Means ``[..., 0]`` and variances ``[..., 1]`` of the members, as `predict_members` returns.

    sample_weight : array-like of shape (n_samples,), default=None
        Sample weights.

    Returns
    -------
    nll : float
        Lower is better.

    Raises
    ------
    ValueError
        If shapes disagree, or a variance is not positive.

    References
    ----------
    .. [1] B. Lakshminarayanan, A. Pritzel, C. Blundell. "Simple and Scalable Predictive
       Uncertainty Estimation using Deep Ensembles". NeurIPS 2017.
    """
    y_true, means, variances = _check_members(y_true, y_members)
    log_densities = _gaussian_log_density(y_true[:, np.newaxis, :], means, variances)  # (n, S, t)
    log_mixture = logsumexp(log_densities, axis=1) - np.log(means.shape[1])
    return _average(-log_mixture, sample_weight)


def crps(y_true, y_members, *, sample_weight=None):
    r"""Continuous ranked probability score of a mixture of Gaussians, in units of y.

    The mean over rows and targets of
    :math:`\int (F(z) - 1\{y \le z\})^2 dz` ([1]_, Eq 20), with F the equally weighted mixture of
    the members, in the closed form of [2]_. One member is a Gaussian prediction; as its variance
    goes to zero, the score becomes the absolute error.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_targets)
        True values.

    y_members : array-like of shape (n_samples, n_members, n_targets, 2)
        Means ``[..., 0]`` and variances ``[..., 1]`` of the members, as `predict_members` returns.

    sample_weight : array-like of shape (n_samples,), default=None
        Sample weights.

    Returns
    -------
    crps : float
        Lower is better.

    Raises
    ------
    ImportError
        If scoringrules is not installed.
    ValueError
        If shapes disagree, or a variance is not positive.

    Notes
    -----
    The closed form compares every member with every other. Rows go through it in chunks that fit
    scikit-learn's `working_memory`.

    References
    ----------
    .. [1] T. Gneiting, A. E. Raftery. "Strictly Proper Scoring Rules, Prediction, and
       Estimation". Journal of the American Statistical Association 102, 2007.
    .. [2] E. P. Grimit, T. Gneiting, V. J. Berrocal, N. A. Johnson. "The continuous ranked
       probability score for circular variables and its application to mesoscale forecast ensemble
       verification". Quarterly Journal of the Royal Meteorological Society 132, 2006.
    """
    try:
        from scoringrules import crps_mixnorm
    except ImportError as error:
        raise ImportError("crps needs scoringrules: pip install skdistill[metrics]") from error

    y_true, means, variances = _check_members(y_true, y_members)
    stds = np.sqrt(variances)
    scores = np.empty_like(y_true)
    for rows in gen_batches(len(y_true), _crps_batch_size(*means.shape[1:])):
        scores[rows] = crps_mixnorm(y_true[rows], means[rows], stds[rows], m_axis=1)
    return _average(scores, sample_weight)


def _crps_batch_size(n_members, n_targets, n_temporaries=8):
    """Rows whose (S, S) comparisons, a few float64 arrays of them, fit the working memory."""
    bytes_per_row = 8 * n_temporaries * n_targets * n_members**2
    return max(1, int(get_config()["working_memory"] * 2**20 / bytes_per_row))


# --------------------------------------------------------------------------------------
# Does the uncertainty rank the errors?
# --------------------------------------------------------------------------------------


def sparsification_curve(y_true, y_pred, uncertainty, *, sample_weight=None):
    """Error of the rows that remain as the most uncertain ones are removed.

    Rows are removed from the most to the least uncertain; the curve is the mean squared error of
    what remains, divided by that of all rows ([1]_, Section 4.1). The oracle removes by the
    squared error itself, so that no ordering lies below it.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_targets)
        True values.

    y_pred : array-like of the shape of `y_true`
        Predicted means.

    uncertainty : array-like of shape (n_samples,) or the shape of `y_true`
        What the rows are sorted by: a variance or a standard deviation, usually the total one.
        Of shape (n_samples,), it orders the rows for every target.

    sample_weight : array-like of shape (n_samples,), default=None
        Sample weights.

    Returns
    -------
    fraction_removed : ndarray of shape (n_points,)
        Increasing from 0 to 1, as shares of the total weight: 0, 1/n, ..., 1 without weights and
        ties.

    model_curve : ndarray of shape (n_points,)
        Relative error of the remaining rows, 1 at the start. Averaged uniformly over targets.

    oracle_curve : ndarray of shape (n_points,)
        The same for the oracle.

    Warns
    -----
    UndefinedMetricWarning
        If every error is zero: the curves are then nan.

    See Also
    --------
    ause : Area between the two curves.
    skdistill.displays.SparsificationDisplay : Draws them.

    Notes
    -----
    Rows of equal uncertainty leave in random order, and the curve is the expectation over that
    order; nothing depends on the order of the rows. A constant uncertainty thus gives a flat
    curve. At 1, where nothing remains, stands the limit: the error of the least uncertain rows.

    References
    ----------
    .. [1] J. Lindqvist, A. Olmin, F. Lindsten, L. Svensson. "A General Framework for Ensemble
       Distribution Distillation". MLSP 2020.

    Examples
    --------
    >>> from skdistill.metrics import sparsification_curve
    >>> fraction, model, oracle = sparsification_curve(
    ...     y_true=[2.0, 0.0, 1.0, 1.0], y_pred=[0.0, 0.0, 0.0, 0.0], uncertainty=[3, 1, 4, 2]
    ... )
    >>> fraction
    array([0.  , 0.25, 0.5 , 0.75, 1.  ])
    >>> model.round(2)
    array([1.  , 1.11, 0.33, 0.  , 0.  ])
    >>> oracle.round(2)
    array([1.  , 0.44, 0.33, 0.  , 0.  ])
    """
    weights, errors, uncertainty = _check_sparsification(y_true, y_pred, uncertainty, sample_weight)
    kept, models, oracles = _sparsification(errors, uncertainty, weights)
    return 1 - kept, models.mean(axis=0), oracles.mean(axis=0)


def ause(y_true, y_pred, uncertainty, *, sample_weight=None):
    """Area under the sparsification error: how well the uncertainty ranks the errors.

    The area between the model's and the oracle's sparsification curves ([1]_, Section 4.1; [2]_),
    by the trapezoidal rule at the points of :func:`sparsification_curve`. It is 0 when the
    uncertainty orders the rows as their absolute errors do, and depends on that order only.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_targets)
        True values.

    y_pred : array-like of the shape of `y_true`
        Predicted means.

    uncertainty : array-like of shape (n_samples,) or the shape of `y_true`
        What the rows are sorted by: a variance or a standard deviation, usually the total one.
        Of shape (n_samples,), it orders the rows for every target.

    sample_weight : array-like of shape (n_samples,), default=None
        Sample weights.

    Returns
    -------
    ause : float
        Lower is better; the mean over targets.

    Warns
    -----
    UndefinedMetricWarning
        If every error is zero: the area is then nan.

    See Also
    --------
    sparsification_curve : The two curves, and how ties are handled.

    References
    ----------
    .. [1] J. Lindqvist, A. Olmin, F. Lindsten, L. Svensson. "A General Framework for Ensemble
       Distribution Distillation". MLSP 2020.
    .. [2] E. Ilg, O. Cicek, S. Galesso, A. Klein, O. Makansi, F. Hutter, T. Brox. "Uncertainty
       Estimates and Multi-Hypotheses Networks for Optical Flow". ECCV 2018.

    Examples
    --------
    >>> from skdistill.metrics import ause
    >>> ause(y_true=[3.0, 0.0, 1.0], y_pred=[0.0, 0.0, 0.0], uncertainty=[9.0, 0.1, 2.0])
    0.0
    """
    weights, errors, uncertainty = _check_sparsification(y_true, y_pred, uncertainty, sample_weight)

    areas = []
    for error, by in zip(errors.T, uncertainty.T, strict=True):
        kept, model, oracle = _sparsification(error[:, np.newaxis], by[:, np.newaxis], weights)
        areas.append(auc(1 - kept, (model - oracle)[0]))
    return float(np.mean(areas))


def _check_sparsification(y_true, y_pred, uncertainty, sample_weight):
    """Return the weights (n,), the squared errors (n, t) and the uncertainties (n, t)."""
    y_true, y_pred = _check_pair(y_true, y_pred)
    uncertainty = _check_columns(uncertainty, "uncertainty")
    if uncertainty.shape[1] == 1:
        uncertainty = np.repeat(uncertainty, y_true.shape[1], axis=1)
    _check_shape(uncertainty, "uncertainty", y_true.shape)
    weights, errors, uncertainty = _weighted_rows(
        sample_weight, (y_true - y_pred) ** 2, uncertainty
    )
    if not errors.any(axis=0).all():
        _warn_undefined("The sparsification curve", "every error is zero")
    return weights, errors, uncertainty


def _sparsification(errors, uncertainty, weights):
    """Return the kept fractions, from 1 down to 0, and both curves, (n_targets, n_points)."""
    models = [
        _cumulative_error(by, error, weights)
        for by, error in zip(uncertainty.T, errors.T, strict=True)
    ]
    oracles = [_cumulative_error(error, error, weights) for error in errors.T]
    kept = np.unique(np.concatenate([fractions for fractions, _ in models + oracles]))[::-1]
    return (
        kept,
        np.array([_error_of_kept(kept, *model) for model in models]),
        np.array([_error_of_kept(kept, *oracle) for oracle in oracles]),
    )


def _cumulative_error(by, errors, weights):
    """Fraction of the rows and share of the squared error, smallest `by` first, from 0 to 1.

    One point for every group of rows with equal `by`. The straight line between two points is the
    expectation over the orders in which the rows of a group could come.
    """
    _, group = np.unique(by, return_inverse=True)
    fractions = np.append(0, np.cumsum(np.bincount(group, weights)))
    shares = np.append(0, np.cumsum(np.bincount(group, weights * errors)))
    with np.errstate(invalid="ignore"):  # no error at all: 0 / 0 is nan, and a warning was given
        return fractions / fractions[-1], shares / shares[-1]


def _error_of_kept(kept, fractions, shares):
    """Mean squared error of the `kept` fraction of the rows over that of all rows."""
    limit = shares[1] / fractions[1]  # that of the first group, where nothing is kept
    share = np.interp(kept, fractions, shares)
    return np.divide(share, kept, out=np.full_like(kept, limit), where=kept > 0)


def _warn_undefined(what, why):
    warnings.warn(f"{what} is undefined because {why}.", UndefinedMetricWarning, stacklevel=4)


# --------------------------------------------------------------------------------------
# Intervals and quantiles
# --------------------------------------------------------------------------------------


def _check_interval(y_interval, y_shape=None):
    """Return the lower and the upper ends, each of shape (n, t)."""
    interval = _check_per_target(y_interval, "y_interval", 2, y_shape)
    lower, upper = interval[..., 0], interval[..., 1]
    crossed = (lower > upper).any(axis=1)
    if crossed.any():
        raise ValueError(
            "y_interval must have its lower end first, y_interval[..., 0] <= y_interval[..., 1], "
            f"but {crossed.sum()} row(s) have not, the first being row {crossed.argmax()}."
        )
    return lower, upper


def interval_coverage(y_true, y_interval, *, sample_weight=None):
    """Fraction of true values that lie inside their predicted interval, ends included.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_targets)
        True values.

    y_interval : array-like of shape (n_samples, 2) or (n_samples, n_targets, 2)
        Lower and upper ends, as `predict_interval` returns.

    sample_weight : array-like of shape (n_samples,), default=None
        Sample weights.

    Returns
    -------
    coverage : float
        Best where it equals the coverage that was asked for.

    See Also
    --------
    interval_width : How wide the intervals are.
    interval_score : Both in one proper score.

    Examples
    --------
    >>> from skdistill.metrics import interval_coverage
    >>> interval_coverage([1.0, 5.0], [[0.0, 2.0], [0.0, 2.0]])
    0.5
    """
    y_true = _check_columns(y_true, "y_true")
    lower, upper = _check_interval(y_interval, y_true.shape)
    return _average((lower <= y_true) & (y_true <= upper), sample_weight)


def interval_width(y_interval, *, sample_weight=None):
    """Mean width of predicted intervals, in units of y.

    Parameters
    ----------
    y_interval : array-like of shape (n_samples, 2) or (n_samples, n_targets, 2)
        Lower and upper ends, as `predict_interval` returns.

    sample_weight : array-like of shape (n_samples,), default=None
        Sample weights.

    Returns
    -------
    width : float
        Lower is sharper; compare at equal coverage only.

    Examples
    --------
    >>> from skdistill.metrics import interval_width
    >>> interval_width([[0.0, 2.0], [1.0, 5.0]])
    3.0
    """
    lower, upper = _check_interval(y_interval)
    return _average(upper - lower, sample_weight)


def interval_score(y_true, y_interval, *, coverage, sample_weight=None):
    r"""Interval score (Winkler score) of central prediction intervals, in units of y.

    The mean over rows and targets of
    :math:`(u - l) + \frac{2}{\alpha} (l - y)_+ + \frac{2}{\alpha} (y - u)_+` with
    :math:`\alpha = 1 -` coverage ([1]_, Eq 43): the width, and a penalty for what lies outside.
    It is proper: the true quantiles at :math:`\alpha / 2` and :math:`1 - \alpha / 2` minimise it.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_targets)
        True values.

    y_interval : array-like of shape (n_samples, 2) or (n_samples, n_targets, 2)
        Lower and upper ends, as `predict_interval` returns.

    coverage : float
        Nominal coverage of the intervals, strictly between 0 and 1.

    sample_weight : array-like of shape (n_samples,), default=None
        Sample weights.

    Returns
    -------
    score : float
        Lower is better.

    Raises
    ------
    ValueError
        If shapes disagree, `coverage` is out of range, or a lower end exceeds its upper end.

    References
    ----------
    .. [1] T. Gneiting, A. E. Raftery. "Strictly Proper Scoring Rules, Prediction, and
       Estimation". Journal of the American Statistical Association 102, 2007.

    Examples
    --------
    >>> from skdistill.metrics import interval_score
    >>> interval_score([1.0, 5.0], [[0.0, 2.0], [0.0, 2.0]], coverage=0.5)
    8.0
    """
    _check_coverage(coverage)
    y_true = _check_columns(y_true, "y_true")
    lower, upper = _check_interval(y_interval, y_true.shape)
    outside = np.maximum(lower - y_true, 0) + np.maximum(y_true - upper, 0)
    return _average(upper - lower + 2 / (1 - coverage) * outside, sample_weight)  # Eq 43


def regression_calibration_curve(y_true, y_quantiles, quantiles, *, sample_weight=None):
    """How often the true value lies at or below each predicted quantile.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_targets)
        True values.

    y_quantiles : array-like of shape (n_samples, n_quantiles) or \
            (n_samples, n_targets, n_quantiles)
        Predicted quantiles, as `predict_quantiles` returns.

    quantiles : array-like of shape (n_quantiles,)
        Their nominal levels, increasing, strictly between 0 and 1.

    sample_weight : array-like of shape (n_samples,), default=None
        Sample weights.

    Returns
    -------
    nominal : ndarray of shape (n_quantiles,)
        `quantiles` as an array.

    observed : ndarray of shape (n_quantiles,)
        Fraction of the true values at or below the quantile ([1]_, Section 3.5), averaged
        uniformly over targets. Equals `nominal` for a calibrated model.

    See Also
    --------
    regression_calibration_error : The distance between the two.
    skdistill.displays.RegressionCalibrationDisplay : Draws the curve.

    References
    ----------
    .. [1] V. Kuleshov, N. Fenner, S. Ermon. "Accurate Uncertainties for Deep Learning Using
       Calibrated Regression". ICML 2018.

    Examples
    --------
    >>> from skdistill.metrics import regression_calibration_curve
    >>> nominal, observed = regression_calibration_curve(
    ...     [1.0, 2.0, 3.0, 4.0], [[1.5, 2.5]] * 4, quantiles=[0.2, 0.5]
    ... )
    >>> nominal, observed
    (array([0.2, 0.5]), array([0.25, 0.5 ]))
    """
    nominal, observed = _calibration(y_true, y_quantiles, quantiles, sample_weight)
    return nominal, observed.mean(axis=0)


def regression_calibration_error(y_true, y_quantiles, quantiles, *, sample_weight=None):
    """Mean absolute deviation between observed and nominal quantile levels.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_targets)
        True values.

    y_quantiles : array-like of shape (n_samples, n_quantiles) or \
            (n_samples, n_targets, n_quantiles)
        Predicted quantiles, as `predict_quantiles` returns.

    quantiles : array-like of shape (n_quantiles,)
        Their nominal levels, increasing, strictly between 0 and 1.

    sample_weight : array-like of shape (n_samples,), default=None
        Sample weights.

    Returns
    -------
    error : float
        Between 0 and 1, lower is better. With several targets, the mean of the targets' errors:
        opposite deviations do not cancel, as they may in the averaged curve.

    See Also
    --------
    regression_calibration_curve : The curve whose deviation this is.

    Notes
    -----
    Kuleshov et al. (2018) weigh squared deviations; the absolute ones used here are in the units
    of the curve.

    Examples
    --------
    >>> from skdistill.metrics import regression_calibration_error
    >>> round(regression_calibration_error([1.0, 2.0, 3.0, 4.0], [[1.5, 2.5]] * 4, [0.2, 0.5]), 4)
    0.025
    """
    nominal, observed = _calibration(y_true, y_quantiles, quantiles, sample_weight)
    return float(np.abs(observed - nominal).mean())


def _calibration(y_true, y_quantiles, quantiles, sample_weight):
    """Return the nominal levels (q,) and the observed ones of every target, (t, q)."""
    nominal = _check_floats(quantiles, "quantiles", (1,))
    if nominal[0] <= 0 or nominal[-1] >= 1 or (np.diff(nominal) <= 0).any():
        raise ValueError(
            f"quantiles must increase and lie strictly between 0 and 1, got {nominal.tolist()}."
        )
    y_true = _check_columns(y_true, "y_true")
    y_quantiles = _check_per_target(y_quantiles, "y_quantiles", len(nominal), y_true.shape)
    weights = _weights_or_ones(sample_weight, len(y_true))
    below = y_true[..., np.newaxis] <= y_quantiles
    return nominal, np.average(below, axis=0, weights=weights)


# --------------------------------------------------------------------------------------
# Comparing uncertainties
# --------------------------------------------------------------------------------------


def uncertainty_total_variation(a, b, *, bins=50, a_weights=None, b_weights=None):
    r"""Total variation between the histograms of two samples of uncertainties.

    :math:`\frac{1}{2} \sum_i |H_a(i) - H_b(i)|` over common bins of equal width that span both
    samples, each histogram normalised to sum to 1. This is half of what [1]_ (Section 4) reports,
    so that 0 means equal histograms and 1 disjoint ones.

    Parameters
    ----------
    a : array-like of shape (n_a,) or (n_a, n_targets)
        Uncertainties of one model, or on one data set.

    b : array-like of shape (n_b,) or (n_b, n_targets)
        Those to compare with, in the same measure. They need not be as many.

    bins : int, default=50
        Number of bins.

    a_weights : array-like of shape (n_a,), default=None
        Weights of the rows of `a`.

    b_weights : array-like of shape (n_b,), default=None
        Weights of the rows of `b`.

    Returns
    -------
    total_variation : float
        Between 0 and 1, symmetric in `a` and `b`; the mean over targets, each with bins of its own.

    References
    ----------
    .. [1] M. Ferianc, M. Rodrigues. "Simple Regularisation for Uncertainty-Aware Knowledge
       Distillation". 2022.

    Examples
    --------
    >>> from skdistill.metrics import uncertainty_total_variation
    >>> uncertainty_total_variation([0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 0.0], bins=2)
    0.25
    """
    check_scalar(bins, "bins", Integral, min_val=1)
    a, b = _check_columns(a, "a"), _check_columns(b, "b")
    if a.shape[1] != b.shape[1]:
        raise ValueError(
            f"b must have as many targets as a, got {b.shape[1]} where a has {a.shape[1]}."
        )
    a_weights, a = _weighted_rows(a_weights, a, name="a_weights")
    b_weights, b = _weighted_rows(b_weights, b, name="b_weights")

    def half_distance(a, b):
        edges = np.histogram_bin_edges(np.concatenate([a, b]), bins)
        shares_a = np.histogram(a, edges, weights=a_weights)[0] / a_weights.sum()
        shares_b = np.histogram(b, edges, weights=b_weights)[0] / b_weights.sum()
        return np.abs(shares_a - shares_b).sum() / 2

    return float(np.mean([half_distance(*columns) for columns in zip(a.T, b.T, strict=True)]))


class EpistemicFidelity(NamedTuple):
    """How well a student's epistemic variance follows its teacher's.

    Attributes
    ----------
    rank_correlation : float
        Spearman's rank correlation between the two, 1 is best. Is it large on the same rows?

    median_ratio : float
        Median over rows of student / teacher, 1 is best. Is the scale right?

    relative_error : float
        Mean absolute difference divided by the teacher's mean, 0 is best.
    """

    rank_correlation: float
    median_ratio: float
    relative_error: float


def epistemic_fidelity(teacher, student, *, sample_weight=None):
    """Compare a student's epistemic variances with its teacher's, row by row.

    Parameters
    ----------
    teacher : array-like of shape (n_samples,) or (n_samples, n_targets)
        Epistemic variances of the teacher, not negative.

    student : array-like of the shape of `teacher`
        Epistemic variances of the student on the same rows.

    sample_weight : array-like of shape (n_samples,), default=None
        Sample weights. The rank correlation is then the weighted Pearson correlation of weighted
        mid-ranks, the median a weighted median.

    Returns
    -------
    fidelity : EpistemicFidelity
        Named tuple of `rank_correlation`, `median_ratio` and `relative_error`, each the mean over
        targets.

    Raises
    ------
    ValueError
        If shapes disagree, or a value is negative.

    Warns
    -----
    UndefinedMetricWarning
        If either variance is constant (the rank correlation is nan) or the teacher's is zero
        everywhere (the relative error is nan).

    Notes
    -----
    In the ratio, 0 / 0 counts as 1: the student agrees. A student above a teacher of exactly zero
    counts as infinite, which the median bears unless it happens on half of the rows. The same
    comparison serves any uncertainty that is not negative, such as the mutual information of
    classifiers.

    Examples
    --------
    >>> from skdistill.metrics import epistemic_fidelity
    >>> epistemic_fidelity(teacher=[1.0, 2.0, 4.0], student=[0.5, 1.0, 2.0])
    EpistemicFidelity(rank_correlation=1.0, median_ratio=0.5, relative_error=0.5)
    """
    teacher = _check_columns(teacher, "teacher")
    student = _check_columns(student, "student")
    _check_shape(student, "student", teacher.shape, like="teacher")
    _check_nonnegative(teacher, "teacher")
    _check_nonnegative(student, "student")
    weights, teacher, student = _weighted_rows(sample_weight, teacher, student)
    per_target = []
    for pair in zip(teacher.T, student.T, strict=True):
        ratio = _median_ratio(*pair, weights)
        per_target.append(
            (_rank_correlation(*pair, weights), ratio, _relative_error(*pair, weights))
        )
    return EpistemicFidelity(*map(float, np.mean(per_target, axis=0)))


def _rank_correlation(teacher, student, weights):
    if np.ptp(teacher) == 0 or np.ptp(student) == 0:
        _warn_undefined("The rank correlation", "the teacher or the student is constant")
        return np.nan
    ranks = _midranks(teacher, weights), _midranks(student, weights)
    (teacher_variance, covariance), (_, student_variance) = np.cov(*ranks, aweights=weights, ddof=0)
    return covariance / np.sqrt(teacher_variance * student_variance)


def _midranks(values, weights):
    """Weight below each value plus half of the weight at it: the average ranks, less 1/2."""
    _, group = np.unique(values, return_inverse=True)
    group_weights = np.bincount(group, weights)
    return (np.cumsum(group_weights) - group_weights / 2)[group]


def _median_ratio(teacher, student, weights):
    with np.errstate(divide="ignore", invalid="ignore"):  # x / 0 is inf, 0 / 0 is replaced
        ratio = np.where((teacher == 0) & (student == 0), 1.0, student / teacher)
    return _weighted_median(ratio, weights)


def _weighted_median(values, weights):
    """Median of the values, each repeated `weight` times: the mean of the middle two."""
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(weights[order])
    half, slack = cumulative[-1] / 2, 1e-12  # against the rounding of fractional weights
    lower = np.searchsorted(cumulative, half * (1 - slack), side="left")
    upper = np.searchsorted(cumulative, half * (1 + slack), side="right")
    return (values[order[lower]] + values[order[upper]]) / 2


def _relative_error(teacher, student, weights):
    if not teacher.any():
        _warn_undefined("The relative error", "the teacher is zero everywhere")
        return np.nan
    return np.average(np.abs(student - teacher), weights=weights) / np.average(
        teacher, weights=weights
    )


# --------------------------------------------------------------------------------------
# Scorers
# --------------------------------------------------------------------------------------


class UncertaintyScorer:
    """A metric of the predictive distribution, to be given as ``scoring=``.

    scikit-learn's `make_scorer` asks regressors for `predict` only. An instance of this class is
    called as a scorer is, ``scorer(estimator, X, y, sample_weight=None)``, and reads what its
    metric needs off the fitted estimator, also inside a Pipeline, a search or a
    TransformedTargetRegressor.

    Parameters
    ----------
    score : callable
        ``score(estimator, X, y, *, sample_weight, **kwargs)`` returning a float, greater is
        better. A module-level function, if the scorer shall be pickled.

    **kwargs : dict
        Further keywords of `score`.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from skdistill.metrics import neg_crps_scorer
    >>> neg_crps_scorer
    UncertaintyScorer(neg_crps)
    """

    def __init__(self, score, **kwargs):
        self._score = score
        self._kwargs = kwargs
        self._sample_weight_request = None

    def __call__(self, estimator, X, y, sample_weight=None):
        """Score a fitted estimator; greater is better.

        Parameters
        ----------
        estimator : estimator
            Fitted regressor, or a meta-estimator around one.

        X : array-like of shape (n_samples, n_features)
            Rows.

        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            True values.

        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        Returns
        -------
        score : float
            Greater is better.
        """
        return self._score(estimator, X, y, sample_weight=sample_weight, **self._kwargs)

    def __repr__(self):
        name = getattr(self._score, "__name__", repr(self._score)).lstrip("_")
        arguments = [name, *(f"{key}={value!r}" for key, value in self._kwargs.items())]
        return f"{type(self).__name__}({', '.join(arguments)})"

    def set_score_request(self, *, sample_weight):
        """Return a copy that requests `sample_weight` where metadata routing is enabled.

        A copy, because the scorers of this module are shared.

        Parameters
        ----------
        sample_weight : bool, None or str
            Whether the weights are requested, or the name under which they are, as in
            scikit-learn's `set_score_request`.

        Returns
        -------
        scorer : UncertaintyScorer
            The copy.
        """
        scorer = copy.copy(self)
        scorer._sample_weight_request = sample_weight
        return scorer

    def get_metadata_routing(self):
        """Return what the scorer requests, for scikit-learn's metadata routing.

        Returns
        -------
        routing : MetadataRequest
            The request of `sample_weight` by the method `score`.
        """
        request = MetadataRequest(owner=repr(self))
        request.score.add_request(param="sample_weight", alias=self._sample_weight_request)
        return request

    def _accept_sample_weight(self):
        # What scikit-learn >= 1.9 asks every scorer of a multi-metric search without routing.
        return True


def _neg_mixture_nll(estimator, X, y, *, sample_weight):
    return -mixture_nll(y, predict_members(estimator, X), sample_weight=sample_weight)


def _neg_crps(estimator, X, y, *, sample_weight):
    return -crps(y, predict_members(estimator, X), sample_weight=sample_weight)


def _total_variance(estimator, X):
    uncertainty = predict_uncertainty(estimator, X)
    if uncertainty.measure != "variance":
        raise ValueError(
            "The scorer needs a regressor, whose predict_uncertainty has measure='variance'; "
            f"got measure={uncertainty.measure!r} from {type(estimator).__name__}."
        )
    return uncertainty.total


def _neg_gaussian_nll(estimator, X, y, *, sample_weight):
    std = np.sqrt(_total_variance(estimator, X))
    return -gaussian_nll(y, estimator.predict(X), std, sample_weight=sample_weight)


def _neg_ause(estimator, X, y, *, sample_weight):
    total = _total_variance(estimator, X)
    return -ause(y, estimator.predict(X), total, sample_weight=sample_weight)


def _neg_interval_score(estimator, X, y, *, sample_weight, coverage):
    interval = predict_interval(estimator, X, coverage)
    return -interval_score(y, interval, coverage=coverage, sample_weight=sample_weight)


def make_interval_scorer(coverage=0.9):
    """Make a scorer of central prediction intervals: minus their :func:`interval_score`.

    Parameters
    ----------
    coverage : float, default=0.9
        Nominal coverage of the intervals, strictly between 0 and 1.

    Returns
    -------
    scorer : UncertaintyScorer
        Greater is better.

    Examples
    --------
    >>> from skdistill.metrics import make_interval_scorer
    >>> make_interval_scorer(coverage=0.5)
    UncertaintyScorer(neg_interval_score, coverage=0.5)
    """
    _check_coverage(coverage)
    return UncertaintyScorer(_neg_interval_score, coverage=coverage)


#: Minus the :func:`mixture_nll` of the members. For models that have members.
neg_mixture_nll_scorer = UncertaintyScorer(_neg_mixture_nll)
#: Minus the :func:`gaussian_nll` of the predicted mean and the total standard deviation.
neg_gaussian_nll_scorer = UncertaintyScorer(_neg_gaussian_nll)
#: Minus the :func:`crps` of the members. For models that have members; needs scoringrules.
neg_crps_scorer = UncertaintyScorer(_neg_crps)
#: Minus the :func:`ause` of the total variance.
neg_ause_scorer = UncertaintyScorer(_neg_ause)
#: Minus the :func:`interval_score` of central intervals of coverage 0.9.
neg_interval_score_scorer = make_interval_scorer(coverage=0.9)
