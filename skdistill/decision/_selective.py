# SPDX-License-Identifier: BSD-3-Clause
"""Selective prediction: abstention with a guarantee on the risk."""

import math
from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr
from sklearn.base import BaseEstimator, is_classifier
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_array, check_random_state, column_or_1d
from sklearn.utils.validation import check_is_fitted

from .._utils.typing import RandomStateLike
from .._utils.validation import AnyOf, IsCallable, Number, OneOf
from .._utils.warnings import warn, without_schema_warnings
from ._held_out import HeldOutEstimator

_LOSSES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "zero_one": lambda y, predicted: y != predicted,
    "squared_error": lambda y, predicted: np.square(y - predicted),
    "absolute_error": lambda y, predicted: np.abs(y - predicted),
}


class SelectivePredictor(HeldOutEstimator):
    r"""Selective predictor: abstains where it is uncertain, with a guarantee on its risk.

    A threshold on the uncertainty is chosen on held-out samples. The risk, the expected loss of the
    samples below it, is at most `max_risk`:

    .. math::

        P\bigl(\mathbb{E}[\ell(y, \hat y) \mid u(x) < \tau] \le \text{max\_risk}\bigr)
        \ge 1 - \delta,

    for any model, if held-out and future samples are independent and identically distributed. It is
    the largest threshold that learn-then-test [1]_ accepts, in the setting of selective
    prediction [2]_.

    Parameters
    ----------
    estimator : estimator
        Classifier or regressor of one target that :func:`skdistill.predict_uncertainty` takes. In
        a :class:`~sklearn.frozen.FrozenEstimator` it stays as it is, and all samples of `fit` are
        held-out samples.
    max_risk : float, default=0.1
        Largest risk, in (0, `max_loss`): an error rate, or in units of the loss.
    delta : float, default=0.1
        Probability, in (0, 1), with which the risk may be larger.
    uncertainty : {"total", "aleatoric", "epistemic"}, default="total"
        The part that is compared with the threshold.
    loss : {"auto", "zero_one", "squared_error", "absolute_error"} or callable, default="auto"
        A function ``loss(y_true, y_pred)`` returns one value for each sample, none negative, or
        booleans, for which the test is exact. "auto" is "zero_one" for classifiers and
        "squared_error" for regressors.
    max_loss : float, default=None
        Larger losses count as this one. It must be given unless the loss is "zero_one". The closer
        to `max_risk`, the more samples are answered.
    min_coverage : float, default=0.1
        Share of the held-out samples that the smallest threshold answers, in (0, 1]; more where so
        few could not show that the risk is small. If its risk is too large, no other is tried.
    abstain_value : object, default=None
        What `predict` returns where it abstains. None is NaN for regressors, and for classifiers
        -1, or "abstain" if classes are text.
    held_out : float, default=0.3
        Share of the samples of `fit` to hold out from the fit of the estimator, in (0, 1).
    random_state : int, RandomState instance or None, default=None
        Draws the held-out samples, and their order.

    Attributes
    ----------
    estimator_ : estimator
        The fitted estimator.
    threshold_ : float
        The uncertainty below which samples are answered; infinity or minus infinity if all or none
        are.
    coverage_ : float
        Share of the held-out samples that are answered.
    risk_ : float
        Mean loss of the held-out samples that are answered; NaN if none is.
    p_value_ : float
        Of the hypothesis that the risk at the last accepted threshold is larger than `max_risk`; 1
        if none was accepted.
    abstain_value_ : object
        What `predict` returns where it abstains.
    classes_ : ndarray of shape (n_classes,)
        Of classifiers only.
    n_features_in_ : int

    Warns
    -----
    UserWarning
        If no threshold can be accepted: all samples are abstained from.

    See Also
    --------
    skdistill.metrics.risk_coverage_curve : Risks at all coverages, without a guarantee.

    Notes
    -----
    Held-out samples are sorted by uncertainty, :math:`u_{(1)} \le \dots \le u_{(n)}`. For up to 200
    :math:`k`, from that of `min_coverage` to :math:`n + 1` with :math:`u_{(n+1)} = \infty`, the
    hypothesis that samples below :math:`u_{(k)}` have a risk larger than `max_risk` is tested with
    the :math:`k - 1` losses below. The first that is not rejected at level :math:`\delta` ends the
    sequence, so that no correction for their number is needed. P-values are those of the binomial
    distribution for losses of 0 and 1, and of a betting martingale for others [3]_.

    That the thresholds are held-out samples themselves does no harm. Given which samples lie
    between the thresholds at which the risk is just `max_risk`, the losses below such a threshold
    are independent with this mean; so the first hypothesis that is true is rejected with
    probability :math:`\delta` at most.

    References
    ----------
    .. [1] A. Angelopoulos, S. Bates, E. Candès, M. Jordan, L. Lei. "Learn then Test: Calibrating
       Predictive Algorithms to Achieve Risk Control". Annals of Applied Statistics 2025,
       arXiv 2110.01052.
    .. [2] Y. Geifman, R. El-Yaniv. "Selective Classification for Deep Neural Networks". NIPS 2017.
    .. [3] S. Bates, A. Angelopoulos, L. Lei, J. Malik, M. Jordan. "Distribution-Free,
       Risk-Controlling Prediction Sets". Journal of the ACM 2021; after I. Waudby-Smith, A. Ramdas.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.frozen import FrozenEstimator
    >>> from sklearn.model_selection import train_test_split
    >>> from skdistill import BayesianEnsembleClassifier
    >>> from skdistill.decision import SelectivePredictor
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X, X_new, y, y_new = train_test_split(X, y, random_state=0)
    >>> ensemble = BayesianEnsembleClassifier(5, max_epochs=20, random_state=0)
    >>> model = SelectivePredictor(ensemble, 0.05, held_out=0.5, random_state=0).fit(X, y)
    >>> answered = model.answers(X_new)
    >>> bool((model.predict(X_new)[~answered] == -1).all())
    True
    >>> model.score(X_new, y_new) > 0.95
    True
    """

    _parameter_table = {
        **HeldOutEstimator._parameter_table,
        "max_risk": Number(Real, 0, closed="neither"),
        "delta": Number(Real, 0, 1, closed="neither"),
        "loss": AnyOf(OneOf(("auto", *_LOSSES)), IsCallable()),
        "max_loss": Number(Real, 0, closed="neither", others=(None,)),
        "min_coverage": Number(Real, 0, 1, closed="right"),
    }

    def __init__(
        self,
        estimator: BaseEstimator,
        max_risk: float = 0.1,
        *,
        delta: float = 0.1,
        uncertainty: str = "total",
        loss: str | Callable[[np.ndarray, np.ndarray], ArrayLike] = "auto",
        max_loss: float | None = None,
        min_coverage: float = 0.1,
        abstain_value: object = None,
        held_out: float = 0.3,
        random_state: RandomStateLike = None,
    ):
        self.estimator = estimator
        self.max_risk = max_risk
        self.delta = delta
        self.uncertainty = uncertainty
        self.loss = loss
        self.max_loss = max_loss
        self.min_coverage = min_coverage
        self.abstain_value = abstain_value
        self.held_out = held_out
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit the estimator unless it is frozen, and find the threshold with held-out samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        self : SelectivePredictor

        Raises
        ------
        TypeError
            If the estimator has no uncertainty to predict.
        ValueError
            If a parameter is invalid, `max_loss` is missing or at most `max_risk`, a loss is not
            a number or negative, or `abstain_value` is a class.
        """
        X, y = self._fit_estimator(X, y)
        if classifies := is_classifier(self.estimator_):
            self.classes_ = self.estimator_.classes_
        self.abstain_value_ = self.abstain_value
        if self.abstain_value is None and not classifies:
            self.abstain_value_ = math.nan
        elif self.abstain_value is None:
            is_text = isinstance(self.classes_.tolist()[0], str)
            self.abstain_value_ = "abstain" if is_text else -1
        if classifies and self.abstain_value_ in self.classes_.tolist():
            raise ValueError(
                f"abstain_value must be no class, got {self.abstain_value_!r}, which is one."
            )
        uncertainty = self._uncertainty(X)
        losses, max_loss = self._losses(y, self._predicted(X))
        order = check_random_state(self.random_state).permutation(len(losses))
        uncertainty, losses = uncertainty[order], losses[order]
        self.threshold_, self.p_value_ = accepted_threshold(
            uncertainty, losses, self.max_risk / max_loss, self.delta, self.min_coverage
        )
        answered = uncertainty < self.threshold_
        self.coverage_, self.risk_ = float(answered.mean()), math.nan
        if answered.any():
            self.risk_ = max_loss * float(losses[answered].mean())
        else:
            warn(
                f"No threshold on the uncertainty keeps the risk below max_risk={self.max_risk:g} "
                f"with probability {1 - self.delta:g}: all samples are abstained from. Allow a "
                f"larger risk, or give more held-out samples than {len(y)}."
            )
        return self

    def answers(self, X: ArrayLike) -> np.ndarray:
        """Tell which samples are answered.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        answered : ndarray of bool of shape (n_samples,)
        """
        check_is_fitted(self)
        return self._uncertainty(X) < self.threshold_

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Predict, with `abstain_value_` for the samples that are not answered.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        predicted : ndarray of shape (n_samples,)
            Of the dtype of the estimator's predictions, if it can hold `abstain_value_` too.
        """
        answered = self.answers(X)
        predicted = self._predicted(X)
        value: Any = self.abstain_value_
        if isinstance(value, str) != (predicted.dtype.kind == "U"):
            predicted = predicted.astype(object)  # numbers beside text stay numbers
        dtype = np.result_type(predicted, np.min_scalar_type(value))
        return np.where(answered, predicted.astype(dtype), np.asarray(value, dtype))

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy, or the coefficient of determination, of the answered samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        score : float
            NaN, with an UndefinedMetricWarning, if no sample is answered.
        """
        answered = self.answers(X)
        if not answered.any():
            warn("The score is undefined because no sample is answered.", UndefinedMetricWarning)
            return math.nan
        metric = accuracy_score if is_classifier(self.estimator_) else r2_score
        weight = None if sample_weight is None else np.asarray(sample_weight)[answered]
        predicted = self._predicted(X)
        return float(metric(column_or_1d(y)[answered], predicted[answered], sample_weight=weight))

    def _predicted(self, X: ArrayLike) -> np.ndarray:
        with without_schema_warnings():  # given with the uncertainty
            return column_or_1d(self.estimator_.predict(X))

    def _losses(self, y: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, float]:
        """Return losses (n,) in units of the largest, booleans or in [0, 1], and the largest."""
        classifies = is_classifier(self.estimator_)
        loss = self.loss
        if loss == "auto":
            loss = "zero_one" if classifies else "squared_error"
        if classifies and loss in ("squared_error", "absolute_error"):
            raise ValueError(f'loss must be "zero_one" or callable for classes, got {loss!r}.')
        if not classifies:
            y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        values = np.asarray((_LOSSES[loss] if isinstance(loss, str) else loss)(y, predicted))
        is_binary = values.dtype == bool
        max_loss = 1.0 if is_binary else self.max_loss
        if max_loss is None or self.max_risk >= max_loss:
            raise ValueError(
                f"max_loss must be a number larger than max_risk={self.max_risk:g}, got "
                f"{max_loss}: larger losses count as it, and it is 1 for those of 0 and 1."
            )
        checked = check_array(values, dtype=np.float64, ensure_2d=False, input_name="loss")
        if values.shape != y.shape or checked.min() < 0:
            raise ValueError(
                f"loss must return {len(y)} values that are not negative, got shape "
                f"{values.shape} and a smallest value of {checked.min():g}."
            )
        return values if is_binary else np.minimum(checked / max_loss, 1.0), max_loss


def accepted_threshold(
    uncertainty: np.ndarray, losses: np.ndarray, risk: float, delta: float, min_coverage: float
) -> tuple[float, float]:
    """Find the largest threshold below which the risk is small enough, and its p-value.

    Losses are booleans, or in [0, 1], in an order that does not depend on them. Without a
    threshold, it is minus infinity and the p-value 1.
    """
    n = len(losses)
    order = np.argsort(uncertainty, kind="stable")
    ends = np.append(uncertainty[order], np.inf)  # candidates: samples below are answered
    # Half as many are just enough if no loss is above 0: (1 - risk)^(least / 2) <= delta.
    least = 2 * math.ceil(math.log(delta) / math.log1p(-risk))
    start = min(max(math.ceil(min_coverage * n), least), n)
    counts = np.linspace(start, n, 200).astype(int)
    # Of equal uncertainties all are answered or none, so that sequences pass the last of them.
    counts = np.union1d(counts, np.searchsorted(ends, ends[counts - 1], side="right"))
    rank = np.argsort(order)
    test = binomial_p_value if losses.dtype == bool else partial(betting_p_value, level=delta)
    found = -math.inf, 1.0
    for count in counts.tolist():
        p_value = test(losses[rank < count], risk)
        if p_value > delta:
            break
        if ends[count] > ends[count - 1]:
            found = float(ends[count]), p_value
    return found


def binomial_p_value(losses: np.ndarray, risk: float) -> float:
    """P-value of the hypothesis that the mean of losses of 0 and 1 is `risk` or larger."""
    return float(bdtr(np.sum(losses), len(losses), risk))


def betting_p_value(losses: np.ndarray, risk: float, level: float) -> float:
    """P-value of the hypothesis that the mean of losses in [0, 1] is `risk` or larger.

    It is the inverse of the most that a gambler has had who bets on smaller losses, which has
    a mean of 1 at most if the hypothesis is true. Bets are those that suit a test at `level`.
    """
    n = len(losses)
    numbers = np.arange(1, n + 1)
    means = (0.5 + np.cumsum(losses)) / (1 + numbers)
    variances = (0.25 + np.cumsum(np.square(losses - means))) / (1 + numbers)
    before = np.append(0.25, variances[:-1])
    bets = np.minimum(1.0, np.sqrt(2 * math.log(1 / level) / (n * before)))
    capital = np.cumsum(np.log1p(-bets * (losses - risk)))  # Bates et al., Proposition 5
    return math.exp(-max(float(capital.max()), 0.0))
