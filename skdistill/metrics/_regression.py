# SPDX-License-Identifier: BSD-3-Clause
"""Scores and calibration of predicted densities, intervals and quantiles of regressors."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from sklearn import get_config
from sklearn.utils import gen_batches

from ._checks import (
    average,
    check_columns,
    check_floats,
    check_members,
    check_per_target,
    check_positive,
    check_targets,
    weights_or_ones,
)


def _gaussian_log_density(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Log density by the standard deviation: its square may be 0 or infinite in float64."""
    density: np.ndarray = -0.5 * (np.log(2 * np.pi) + ((y - mean) / std) ** 2) - np.log(std)
    return density


def gaussian_nll(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    y_std: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Negative log likelihood of a Gaussian prediction, in nats.

    The mean over samples and targets of :math:`-\log N(y; \mu, \sigma^2)`, constants included
    (Lakshminarayanan et al. 2017, Eq 1): not the joint score of several targets.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_targets)
    y_pred, y_std : array-like of the shape of `y_true`
        Predicted means, and standard deviations in units of y, positive.
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    nll : float
        Lower is better.

    Examples
    --------
    >>> from skdistill.metrics import gaussian_nll
    >>> round(gaussian_nll([0.0, 1.0], [0.0, 0.0], [1.0, 1.0]), 4)
    1.1689
    """
    y_true, y_pred, y_std = check_targets(y_true, y_pred=y_pred, y_std=y_std)
    check_positive(y_std, "y_std")
    return average(-_gaussian_log_density(y_true, y_pred, y_std), sample_weight)  # Eq 1


def mixture_nll(
    y_true: ArrayLike, y_members: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    r"""Negative log likelihood of an equally weighted mixture of Gaussians, in nats.

    The mean over samples and targets of :math:`-\log \frac{1}{S} \sum_s N(y; \mu_s, \sigma_s^2)`,
    which is how an ensemble predicts (Lakshminarayanan et al. 2017, Section 2.4).

    Parameters
    ----------
    y_true, sample_weight : as in :func:`gaussian_nll`
    y_members : array-like of shape (n_samples, n_members, n_targets, 2)
        Means ``[..., 0]`` and variances ``[..., 1]`` of the members, as `predict_members` returns.

    Returns
    -------
    nll : float
        Lower is better.
    """
    y_true, means, variances = check_members(y_true, y_members)
    log_densities = _gaussian_log_density(
        y_true[:, None, :], means, np.sqrt(variances)
    )  # (n, S, t)
    log_mixture = logsumexp(log_densities, axis=1) - np.log(means.shape[1])
    return average(-log_mixture, sample_weight)


def crps(
    y_true: ArrayLike, y_members: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    r"""Continuous ranked probability score of a mixture of Gaussians, in units of y.

    The mean over samples and targets of
    :math:`\int (F(z) - 1\{y \le z\})^2 dz` (Gneiting and Raftery 2007, Eq 20), with F the equally
    weighted mixture of the members, in the closed form of [1]_. One member is a Gaussian
    prediction; as its variance goes to zero, the score becomes the absolute error.

    Parameters
    ----------
    y_true, y_members, sample_weight : as in :func:`mixture_nll`

    Returns
    -------
    crps : float
        Lower is better.

    Raises
    ------
    ImportError
        If scoringrules is not installed.

    References
    ----------
    .. [1] E. P. Grimit, T. Gneiting, V. J. Berrocal, N. A. Johnson. "The continuous ranked
       probability score for circular variables and its application to mesoscale forecast ensemble
       verification". Quarterly Journal of the Royal Meteorological Society 132, 2006.
    """
    try:
        from scoringrules import crps_mixnorm
    except ImportError as error:
        raise ImportError("crps needs scoringrules: pip install skdistill[metrics]") from error

    y_true, means, variances = check_members(y_true, y_members)
    stds = np.sqrt(variances)
    scores = np.empty_like(y_true)
    # Every member is compared with every other, in eight float64 temporaries, chunk by chunk.
    _, n_members, n_targets = means.shape
    n_rows = get_config()["working_memory"] * 2**20 / (8 * 8 * n_targets * n_members**2)
    for rows in gen_batches(len(y_true), max(1, int(n_rows))):
        scores[rows] = crps_mixnorm(y_true[rows], means[rows], stds[rows], m_axis=1)
    return average(scores, sample_weight)


def interval_coverage(
    y_true: ArrayLike, y_interval: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Fraction of true values that lie inside their predicted interval, ends included.

    Parameters
    ----------
    y_true, sample_weight : as in :func:`gaussian_nll`
    y_interval : array-like of shape (n_samples, 2) or (n_samples, n_targets, 2)
        Lower and upper ends, as `predict_interval` returns. Either may be infinite, and then the
        width and the score are.

    Returns
    -------
    coverage : float
        Best where it equals the nominal coverage.

    Examples
    --------
    >>> from skdistill.metrics import interval_coverage
    >>> interval_coverage([1.0, 5.0], [[0.0, 2.0], [0.0, 2.0]])
    0.5
    """
    y_true = check_columns(y_true, "y_true")
    interval = check_per_target(y_interval, "y_interval", 2, y_true.shape)
    lower, upper = interval[..., 0], interval[..., 1]
    crossed = ((lower > upper) | (lower == np.inf) | (upper == -np.inf)).any(axis=1)
    if crossed.any():
        raise ValueError(
            "y_interval must have its lower end first, y_interval[..., 0] <= y_interval[..., 1], "
            "neither inf below nor -inf above; "
            f"{crossed.sum()} sample(s) have not, the first being sample {crossed.argmax()}."
        )
    return average((lower <= y_true) & (y_true <= upper), sample_weight)


def regression_calibration_curve(
    y_true: ArrayLike,
    y_quantiles: ArrayLike,
    quantiles: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """How often the true value lies at or below each predicted quantile.

    Parameters
    ----------
    y_true, sample_weight : as in :func:`gaussian_nll`
    y_quantiles : array-like of shape (n_samples, n_quantiles) or \
            (n_samples, n_targets, n_quantiles)
        Predicted quantiles, as `predict_quantiles` returns.
    quantiles : array-like of shape (n_quantiles,)
        Their nominal levels, increasing, strictly between 0 and 1.

    Returns
    -------
    nominal : ndarray of shape (n_quantiles,)
    observed : ndarray of shape (n_quantiles,)
        Fraction of the true values at or below the quantile (Kuleshov et al. 2018, Section 3.5),
        averaged uniformly over targets. Equals `nominal` for a calibrated model.

    Examples
    --------
    >>> from skdistill.metrics import regression_calibration_curve
    >>> regression_calibration_curve([1.0, 2.0, 3.0, 4.0], [[1.5, 2.5]] * 4, quantiles=[0.2, 0.5])
    (array([0.2, 0.5]), array([0.25, 0.5 ]))
    """
    nominal, observed = _calibration(y_true, y_quantiles, quantiles, sample_weight)
    return nominal, observed.mean(axis=0)


def regression_calibration_error(
    y_true: ArrayLike,
    y_quantiles: ArrayLike,
    quantiles: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Mean absolute deviation between observed and nominal quantile levels.

    Parameters
    ----------
    y_true, y_quantiles, quantiles, sample_weight
        As in :func:`regression_calibration_curve`.

    Returns
    -------
    error : float
        Between 0 and 1, lower is better; the mean of the targets' errors. Kuleshov et al. (2018)
        weigh squared deviations; the absolute ones used here are in the units of the curve.

    Examples
    --------
    >>> from skdistill.metrics import regression_calibration_error
    >>> round(regression_calibration_error([1.0, 2.0, 3.0, 4.0], [[1.5, 2.5]] * 4, [0.2, 0.5]), 4)
    0.025
    """
    nominal, observed = _calibration(y_true, y_quantiles, quantiles, sample_weight)
    return float(np.abs(observed - nominal).mean())


def _calibration(
    y_true: ArrayLike, y_quantiles: ArrayLike, quantiles: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the nominal levels (q,) and the observed ones of every target, (t, q)."""
    nominal = check_floats(quantiles, "quantiles", (1,))
    if nominal[0] <= 0 or nominal[-1] >= 1 or (np.diff(nominal) <= 0).any():
        raise ValueError(
            f"quantiles must increase and lie strictly between 0 and 1, got {nominal.tolist()}."
        )
    y_true = check_columns(y_true, "y_true")
    y_quantiles = check_per_target(y_quantiles, "y_quantiles", len(nominal), y_true.shape)
    weights = weights_or_ones(sample_weight, len(y_true))
    below = y_true[..., np.newaxis] <= y_quantiles
    return nominal, np.average(below, axis=0, weights=weights)
