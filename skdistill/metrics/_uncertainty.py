# SPDX-License-Identifier: BSD-3-Clause
"""Comparisons of uncertainties: of student and teacher, in and out of distribution."""

import itertools
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.base import BaseEstimator, is_classifier
from sklearn.metrics import (
    accuracy_score,
    log_loss,
    ndcg_score,
    roc_auc_score,
    root_mean_squared_error,
)
from sklearn.utils import Bunch, check_random_state
from sklearn.utils.random import sample_without_replacement

from .._estimator.functions import predict_uncertainty
from .._utils.validation import Number
from ..distributions import Uncertainty
from ._checks import (
    check_columns,
    check_floats,
    check_nonnegative,
    check_same_length,
    check_shape,
    cumulate,
    midranks,
    warn_undefined,
    weighted_rows,
    weights_or_ones,
)
from ._regression import gaussian_nll


def uncertainty_total_variation(
    a: ArrayLike,
    b: ArrayLike,
    *,
    bins: int = 50,
    a_weights: ArrayLike | None = None,
    b_weights: ArrayLike | None = None,
) -> float:
    r"""Total variation between the histograms of two samples of uncertainties.

    :math:`\frac{1}{2} \sum_i |H_a(i) - H_b(i)|` over common bins of equal width that span both
    samples, each histogram normalised to sum to 1. This is half of what [1]_ (Section 4) reports,
    so that 0 means equal histograms and 1 disjoint ones.

    Parameters
    ----------
    a, b : array-like of shape (n_samples,) or (n_samples, n_targets)
        Uncertainties of two models, or on two data sets, in the same measure; `b` has samples of
        its own.
    bins : int, default=50
    a_weights, b_weights : array-like of shape (n_samples,), default=None
        Weights of the samples of each.

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
    Number(Integral, 1).check(bins, "bins")
    a, b = check_columns(a, "a"), check_columns(b, "b")
    if a.shape[1] != b.shape[1]:
        raise ValueError(
            f"b must have as many targets as a, got {b.shape[1]} where a has {a.shape[1]}."
        )
    a_weights, a = weighted_rows(a_weights, a, name="a_weights")
    b_weights, b = weighted_rows(b_weights, b, name="b_weights")

    def half_distance(a: np.ndarray, b: np.ndarray) -> float:
        edges = np.histogram_bin_edges(np.concatenate([a, b]), bins)
        shares_a = np.histogram(a, edges, weights=a_weights)[0] / a_weights.sum()
        shares_b = np.histogram(b, edges, weights=b_weights)[0] / b_weights.sum()
        return float(np.abs(shares_a - shares_b).sum() / 2)

    return float(np.mean([half_distance(*columns) for columns in zip(a.T, b.T, strict=True)]))


class EpistemicFidelity(NamedTuple):
    """What :func:`epistemic_fidelity` returns."""

    rank_correlation: float
    median_ratio: float
    relative_error: float


def epistemic_fidelity(
    teacher: ArrayLike, student: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> EpistemicFidelity:
    """Compare a student's epistemic uncertainty with its teacher's, sample by sample.

    Parameters
    ----------
    teacher : array-like of shape (n_samples,) or (n_samples, n_targets)
        Epistemic uncertainties of the teacher, not negative: variances of regressors, mutual
        informations of classifiers.
    student : array-like of the shape of `teacher`
        Epistemic uncertainties of the student on the same samples, in the same measure.
    sample_weight : array-like of shape (n_samples,), default=None
        Sample weights. The rank correlation is then the weighted Pearson correlation of weighted
        mid-ranks, the median a weighted median.

    Returns
    -------
    rank_correlation : float
        Spearman's rank correlation between the two: 1 is best, large on the same samples.
    median_ratio : float
        Median over samples of student / teacher, 1 is best: whether the scale is right. 0 / 0
        counts as 1: the student agrees; a teacher of zero under a larger student gives infinity.
    relative_error : float
        Mean absolute difference divided by the teacher's mean, 0 is best. The three, means over
        targets, are a named tuple.

    Warns
    -----
    UndefinedMetricWarning
        If either of the two is constant (the rank correlation is nan) or the teacher's is zero
        everywhere (the relative error is nan).

    Examples
    --------
    >>> from skdistill.metrics import epistemic_fidelity
    >>> epistemic_fidelity(teacher=[1.0, 2.0, 4.0], student=[0.5, 1.0, 2.0])
    EpistemicFidelity(rank_correlation=1.0, median_ratio=0.5, relative_error=0.5)
    """
    teacher = check_columns(teacher, "teacher")
    student = check_columns(student, "student")
    check_shape(student, "student", teacher.shape, like="teacher")
    check_nonnegative(teacher, "teacher")
    check_nonnegative(student, "student")
    weights, teacher, student = weighted_rows(sample_weight, teacher, student)
    measures = _rank_correlation, _median_ratio, _relative_error
    found = [
        [measure(*pair, weights) for measure in measures]
        for pair in zip(teacher.T, student.T, strict=True)
    ]
    return EpistemicFidelity(*map(float, np.mean(found, axis=0)))


def epistemic_calibration(
    squared_error: ArrayLike, epistemic: ArrayLike, *, n_bins: int = 5, coverage: float = 0.9
) -> Bunch:
    r"""Compare the epistemic variance with the squared errors of the mean that it predicts.

    The errors are those of the mean, not of y: differences from a known function, or between two
    models of disjoint samples, whose epistemic variances are then added up. A calibrated model has
    ratios of 1, and Gaussian intervals of the wanted coverage.

    Parameters
    ----------
    squared_error : array-like of shape (n_samples,)
        Squared errors of the mean, in squared units of y.
    epistemic : array-like of shape (n_samples,)
        Epistemic variances, in the same units.
    n_bins : int, default=5
        Number of bins of equally many samples, in the order of `epistemic`. Samples with the same
        variance count in equal parts in the bins that they fill.
    coverage : float, default=0.9
        Nominal coverage of the intervals, in (0, 1).

    Returns
    -------
    calibration : :class:`~sklearn.utils.Bunch`
        With `coverage`, the share of samples whose squared error is at most :math:`z^2` times the
        variance, z the normal quantile; `bin_epistemic` and `bin_squared_error`, the means of the
        two in each bin, and their `ratio`, of shape (n_bins,): above 1 the variance is too large;
        `overall`, the ratio of all samples; and `rank`, the rank correlation (Spearman).

    Raises
    ------
    ValueError
        If the arrays differ in length or have negative values.

    Warns
    -----
    UndefinedMetricWarning
        If either array is constant (the rank correlation is nan), or no sample has an error (the
        overall ratio is nan).

    See Also
    --------
    skdistill.model_selection.disagreement_of_halves : Such errors of any table and model.

    Examples
    --------
    >>> from skdistill.metrics import epistemic_calibration
    >>> found = epistemic_calibration([1.0, 1.0, 2.0, 8.0], [0.5, 0.5, 4.0, 6.0], n_bins=2)
    >>> found.ratio, found.overall, found.coverage
    (array([0.5, 1. ]), 0.9166666666666666, 1.0)
    """
    error = check_floats(squared_error, "squared_error", (1,))
    variance = check_floats(epistemic, "epistemic", (1,))
    check_same_length(variance, "epistemic", error, "squared_error")
    check_nonnegative(error, "squared_error")
    check_nonnegative(variance, "epistemic")
    Number(Integral, 1).check(n_bins, "n_bins")
    Number(Real, 0, 1, closed="neither").check(coverage, "coverage")
    is_covered = error <= norm.ppf((1 + coverage) / 2) ** 2 * variance
    weights = np.ones(len(error))
    share, *sums = cumulate(variance, weights, variance, error)
    edges = np.linspace(0, 1, n_bins + 1)
    in_bins = [n_bins * np.diff(np.interp(edges, share, of)) for of in sums]
    if not error.any():
        warn_undefined("The overall ratio", "no sample has an error")
    with np.errstate(divide="ignore", invalid="ignore"):  # bins without an error have inf or nan
        ratio, overall = in_bins[0] / in_bins[1], float(variance.mean() / error.mean())
    return Bunch(
        coverage=float(is_covered.mean()),
        ratio=ratio,
        overall=overall if error.any() else np.nan,
        rank=_rank_correlation(error, variance, weights),
        bin_epistemic=in_bins[0],
        bin_squared_error=in_bins[1],
    )


def _rank_correlation(teacher: np.ndarray, student: np.ndarray, weights: np.ndarray) -> float:
    if np.ptp(teacher) == 0 or np.ptp(student) == 0:
        warn_undefined("The rank correlation", "one of the two is constant")
        return np.nan
    ranks = midranks(teacher, weights), midranks(student, weights)
    (teacher_variance, covariance), (_, student_variance) = np.cov(*ranks, aweights=weights, ddof=0)
    return float(covariance / np.sqrt(teacher_variance * student_variance))


def _median_ratio(teacher: np.ndarray, student: np.ndarray, weights: np.ndarray) -> float:
    """Median of the ratios, each repeated `weight` times: the mean of the middle two."""
    with np.errstate(divide="ignore", invalid="ignore"):  # x / 0 is inf, 0 / 0 is replaced
        ratio = np.where((teacher == 0) & (student == 0), 1.0, student / teacher)
    order = np.argsort(ratio, kind="stable")
    cumulative = np.cumsum(weights[order])
    half, slack = cumulative[-1] / 2, 1e-12  # against the rounding of fractional weights
    lower = np.searchsorted(cumulative, half * (1 - slack), side="left")
    upper = np.searchsorted(cumulative, half * (1 + slack), side="right")
    return float((ratio[order[lower]] + ratio[order[upper]]) / 2)


def _relative_error(teacher: np.ndarray, student: np.ndarray, weights: np.ndarray) -> float:
    if not teacher.any():
        warn_undefined("The relative error", "the teacher is zero everywhere")
        return np.nan
    error = np.average(np.abs(student - teacher), weights=weights)
    return float(error / np.average(teacher, weights=weights))


def ood_auroc(
    in_distribution: ArrayLike,
    out_of_distribution: ArrayLike,
    *,
    in_weights: ArrayLike | None = None,
    out_weights: ArrayLike | None = None,
) -> float:
    """Area under the ROC curve of an uncertainty that detects samples out of distribution.

    The probability that a sample out of distribution is more uncertain than one in distribution,
    where a tie counts one half (Vadera et al. 2020, Experiment 4).

    Parameters
    ----------
    in_distribution, out_of_distribution : array-like of shape (n_in,) and (n_out,)
        Uncertainties of samples like those of training, and of others: total, or epistemic.
    in_weights, out_weights : array-like of shape (n_in,) and (n_out,), default=None
        Weights of the samples.

    Returns
    -------
    area : float
        Between 0 and 1, higher is better; 0.5 is chance.

    Examples
    --------
    >>> from skdistill.metrics import ood_auroc
    >>> ood_auroc([0.1, 0.2, 0.3], [0.25, 0.9])
    0.8333333333333334
    """
    inside = check_floats(in_distribution, "in_distribution", (1,))
    outside = check_floats(out_of_distribution, "out_of_distribution", (1,))
    in_weights = weights_or_ones(in_weights, len(inside), "in_weights")
    out_weights = weights_or_ones(out_weights, len(outside), "out_weights")
    is_outside = np.repeat([False, True], [len(inside), len(outside)])
    scores, weights = np.append(inside, outside), np.append(in_weights, out_weights)
    return float(roc_auc_score(is_outside, scores, sample_weight=weights))


def uncertainty_ndcg(
    teacher: ArrayLike,
    student: ArrayLike,
    *,
    k: int = 20,
    n_candidates: int = 100,
    n_trials: int = 500,
    random_state: int | np.random.RandomState | None = None,
) -> float:
    """Normalised discounted cumulative gain of the student's ranking of uncertain samples.

    In every trial `n_candidates` samples are drawn without replacement and ranked by the student's
    uncertainty. The teacher's uncertainty is the gain of a sample, discounted by the logarithm of
    its rank, summed over the first `k` ranks and divided by the sum of the ideal ranking (Vadera et
    al. 2020, Experiment 4; [1]_).

    Parameters
    ----------
    teacher : array-like of shape (n_samples,)
        Uncertainties of the teacher, not negative: total, or epistemic.
    student : array-like of shape (n_samples,)
        Uncertainties of the student on the same samples. Only their order matters.
    k : int, default=20
        How many ranks count.
    n_candidates : int, default=100
        Samples drawn in every trial.
    n_trials : int, default=500
        Number of trials.
    random_state : int, RandomState instance or None, default=None
        Draws the samples.

    Returns
    -------
    ndcg : float
        Mean over trials, between 0 and 1, higher is better. Samples of equal uncertainty share the
        mean gain of their ranks, as in :func:`sklearn.metrics.ndcg_score`.

    Raises
    ------
    ValueError
        If not ``k <= n_candidates <= n_samples``.

    Warns
    -----
    UndefinedMetricWarning
        If the teacher is zero everywhere: the result is then nan.

    References
    ----------
    .. [1] K. Järvelin, J. Kekäläinen. "Cumulated Gain-based Evaluation of IR Techniques". ACM
       Transactions on Information Systems 20, 2002.

    Examples
    --------
    >>> from skdistill.metrics import uncertainty_ndcg
    >>> uncertainty_ndcg([1.0, 2.0, 3.0], [0.1, 0.2, 0.3], k=2, n_candidates=3, n_trials=1)
    1.0
    """
    teacher = check_floats(teacher, "teacher", (1,))
    student = check_floats(student, "student", (1,))
    check_same_length(student, "student", teacher, "teacher")
    check_nonnegative(teacher, "teacher")
    Number(Integral, 2, len(teacher)).check(n_candidates, "n_candidates")
    Number(Integral, 1, n_candidates).check(k, "k")
    Number(Integral, 1).check(n_trials, "n_trials")
    if not teacher.any():
        warn_undefined("The gain", "the teacher is zero everywhere")
        return np.nan
    rng = check_random_state(random_state)
    gains = []
    for _ in range(n_trials):
        rows = sample_without_replacement(len(teacher), n_candidates, random_state=rng)
        gains.append(ndcg_score(teacher[np.newaxis, rows], student[np.newaxis, rows], k=k))
    return float(np.mean(gains))


# --- all of this, of a student and its teacher ---------------------------------------------------


def fidelity(
    teacher: BaseEstimator,
    student: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    reference: BaseEstimator | None = None,
    sample_weight: ArrayLike | None = None,
) -> dict[str, dict[str, float]]:
    """Compare a student with its teacher, and both with a larger ensemble.

    The epistemic variance of S members is itself an estimate, with a relative standard deviation of
    about sqrt(2 / (S - 1)): .32 for 20 members. A student that smooths this noise away cannot
    follow its teacher perfectly, and should not. The teacher's rank correlation with an ensemble of
    many more members, the `reference`, is what a perfect imitation would reach; a student above it
    knows the larger ensemble better than its teacher does.

    Parameters
    ----------
    teacher, student : estimator
        Fitted, with ``predict_uncertainty``; also inside a Pipeline, a search or a
        TransformedTargetRegressor.
    X : array-like of shape (n_samples, n_features)
        Samples that played no part in training.
    y : array-like of shape (n_samples,) or (n_samples, n_targets), default=None
        Labels or targets, for the gaps; None leaves these out.
    reference : estimator, default=None
        An independent, larger ensemble of the teacher's kind.
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    table : dict of dict
        ``table["student_to_teacher"]`` and, with a `reference`, ``table["student_to_reference"]``
        and ``table["teacher_to_reference"]``; each maps names of quantities to floats.
        ``pandas.DataFrame(table)`` is a frame. For each part of the uncertainty that both models
        have ("total", "aleatoric", "epistemic"):
        ``<part>_rank_correlation``, ``<part>_median_ratio`` and ``<part>_relative_error`` as
        :func:`epistemic_fidelity` defines them, and ``<part>_total_variation``, see
        :func:`uncertainty_total_variation`. With `y`, what the first model scores less than the
        second: ``nll_gap`` in nats, that of one Gaussian with the predicted mean and variance for
        regressors, and ``rmse_gap`` or ``error_gap``.

    Raises
    ------
    ValueError
        If some of the models are classifiers and others regressors.

    See Also
    --------
    skdistill.displays.FidelityDisplay : Draws each part, sample by sample.

    Examples
    --------
    >>> from sklearn.datasets import make_friedman1
    >>> from sklearn.frozen import FrozenEstimator
    >>> from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
    >>> from skdistill.metrics import fidelity
    >>> X, y = make_friedman1(300, random_state=0)
    >>> teacher = BayesianEnsembleRegressor(5, max_epochs=20, random_state=0).fit(X[:200], y[:200])
    >>> reference = teacher.__class__(20, max_epochs=20, random_state=1).fit(X[:200], y[:200])
    >>> student = HydraPlusRegressor(FrozenEstimator(teacher), max_epochs=20, random_state=0)
    >>> student = student.fit(X[:200], y[:200])
    >>> table = fidelity(teacher, student, X[200:], y[200:], reference=reference)
    >>> table["student_to_teacher"]["total_rank_correlation"] > 0.5
    True
    """
    models = {"student": student, "teacher": teacher, "reference": reference}
    predicted = {
        name: _predictions(model, X, y, sample_weight)
        for name, model in models.items()
        if model is not None
    }
    return {
        f"{one}_to_{other}": _comparison(predicted[one], predicted[other], sample_weight)
        for one, other in itertools.combinations(predicted, 2)
    }


def _predictions(
    model: BaseEstimator, X: ArrayLike, y: Any, weight: Any
) -> tuple[Uncertainty, dict[str, float]]:
    """Uncertainty of the samples, and scores of the predictions."""
    uncertainty = predict_uncertainty(model, X)
    scores: dict[str, float] = {}
    if y is not None and is_classifier(model):
        prob, labels = model.predict_proba(X), model.classes_
        scores["nll"] = log_loss(y, prob, sample_weight=weight, labels=labels)
        scores["error"] = 1 - accuracy_score(y, labels[prob.argmax(1)], sample_weight=weight)
    elif y is not None:
        mean, std = model.predict(X), np.sqrt(uncertainty.total)
        scores["nll"] = gaussian_nll(y, mean, std, sample_weight=weight)
        scores["rmse"] = root_mean_squared_error(y, mean, sample_weight=weight)
    return uncertainty, scores


def _comparison(
    one: tuple[Uncertainty, dict[str, float]],
    other: tuple[Uncertainty, dict[str, float]],
    weight: ArrayLike | None,
) -> dict[str, float]:
    """Fidelity of one model's predictions to those of another."""
    (first, scores), (second, other_scores) = one, other
    found = {f"{name}_gap": float(scores[name] - other_scores[name]) for name in scores}
    if first.measure != second.measure:
        raise ValueError(
            "student, teacher and reference must be all classifiers or all regressors; they "
            f"measure uncertainty by {first.measure} and {second.measure}."
        )
    for part, a, b in zip(first._asdict(), first, second, strict=True):
        if a is not None and b is not None:
            kept = epistemic_fidelity(b, a, sample_weight=weight)._asdict()
            found |= {f"{part}_{name}": value for name, value in kept.items()}
            variation = uncertainty_total_variation(a, b, a_weights=weight, b_weights=weight)
            found[f"{part}_total_variation"] = variation
    return found
