# SPDX-License-Identifier: BSD-3-Clause
"""Scorers, for ``scoring=``, of the predictive distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import log_loss
from sklearn.utils.metadata_routing import MetadataRequest

from .._estimator.functions import predict_members, predict_uncertainty
from .._utils.messages import name_of
from .._utils.typing import ArrayLike, BaseEstimator
from .._utils.validation import OneOf
from ._checks import check_labels, check_same_length
from ._classification import expected_calibration_error
from ._regression import crps, gaussian_nll, mixture_nll
from ._rejection import aurc, ause


class EstimatorScorer:
    """A score of a fitted estimator, ``score(estimator, X, y, *, sample_weight, **kwargs)``.

    Scorers of scikit-learn's `make_scorer` call `predict` or `predict_proba` only, and do not tell
    the metric which classes there are. This one hands the estimator itself to `score`.
    """

    def __init__(self, score: Callable[..., float], **kwargs: Any) -> None:
        self._score = score
        self._kwargs = kwargs
        self._sample_weight_request: bool | str | None = None

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Score a fitted estimator, or a meta-estimator around one."""
        return self._score(estimator, X, y, sample_weight=sample_weight, **self._kwargs)

    def __repr__(self) -> str:
        def shown(value: object) -> str:
            return (name_of(value) if callable(value) else repr(value)).lstrip("_")

        arguments = [f"{key}={shown(value)}" for key, value in self._kwargs.items()]
        return f"{type(self).__name__}({', '.join([shown(self._score), *arguments])})"

    def set_score_request(self, *, sample_weight: bool | str | None) -> EstimatorScorer:
        """Request `sample_weight` where metadata routing is enabled.

        Parameters
        ----------
        sample_weight : bool, None or str

        Returns
        -------
        self : EstimatorScorer
        """
        self._sample_weight_request = sample_weight
        return self

    def get_metadata_routing(self) -> MetadataRequest:
        """Return the request of `sample_weight`, for scikit-learn's metadata routing.

        Returns
        -------
        routing : MetadataRequest
        """
        request = MetadataRequest(owner=repr(self))
        request.score.add_request(param="sample_weight", alias=self._sample_weight_request)
        return request

    def _accept_sample_weight(self) -> bool:
        # scikit-learn >= 1.9 calls this in multi-metric searches without metadata routing.
        return True


def _neg_metric(
    estimator: Any, X: Any, y: Any, *, sample_weight: Any, metric: Any, reads: Any, **kwargs: object
) -> float:
    """Minus a metric of y and of what the estimator predicts."""
    arrays, more = reads(estimator, X)
    return -float(metric(y, *arrays, sample_weight=sample_weight, **more, **kwargs))


def _members(estimator: BaseEstimator, X: ArrayLike) -> Any:
    return [predict_members(estimator, X)], {}


def _mean_and_std(estimator: BaseEstimator, X: ArrayLike) -> Any:
    return [estimator.predict(X), np.sqrt(_total(estimator, X, "variance"))], {}


def _probabilities(estimator: BaseEstimator, X: ArrayLike) -> Any:
    return [estimator.predict_proba(X)], {"labels": estimator.classes_}


def _total(estimator: BaseEstimator, X: ArrayLike, measure: str) -> np.ndarray:
    uncertainty = predict_uncertainty(estimator, X)
    if uncertainty.measure != measure:
        kind = {"variance": "regressor", "entropy": "classifier"}[measure]
        raise ValueError(
            f"The scorer needs a {kind}, whose predict_uncertainty has measure={measure!r}; "
            f"got measure={uncertainty.measure!r} from {type(estimator).__name__}."
        )
    total: np.ndarray = uncertainty.total
    return total


def _neg_aurc(estimator: Any, X: ArrayLike, y: ArrayLike, *, sample_weight: Any) -> float:
    total = _total(estimator, X, "entropy")
    y_true, y_pred = check_labels(y, "y_true"), check_labels(estimator.predict(X), "y_pred")
    check_same_length(y_pred, "y_pred", y_true, "y_true")
    if (y_true.dtype.kind == "U") != (y_pred.dtype.kind == "U"):
        raise ValueError(
            "y_pred must hold strings where y_true does and numbers where it does, got "
            f"{y_pred.dtype} for {y_true.dtype}."
        )
    return -aurc(y_true != y_pred, total, sample_weight=sample_weight)


_SCORES: dict[str, tuple[Callable[..., float], dict[str, Any]]] = {
    "neg_mixture_nll": (_neg_metric, {"metric": mixture_nll, "reads": _members}),
    "neg_crps": (_neg_metric, {"metric": crps, "reads": _members}),
    "neg_gaussian_nll": (_neg_metric, {"metric": gaussian_nll, "reads": _mean_and_std}),
    "neg_ause": (_neg_metric, {"metric": ause, "reads": _mean_and_std}),
    "neg_log_loss": (_neg_metric, {"metric": log_loss, "reads": _probabilities}),
    "neg_expected_calibration_error": (
        _neg_metric,
        {"metric": expected_calibration_error, "reads": _probabilities},
    ),
    "neg_aurc": (_neg_aurc, {}),
}


def get_scorer(name: str, **kwargs: object) -> EstimatorScorer:
    """Get the scorer of a name, which is minus the metric of that name.

    Parameters
    ----------
    name : str
        "neg_mixture_nll" or "neg_crps", of models that have members; "neg_gaussian_nll", of the
        predicted mean and the total standard deviation; "neg_ause", of the same; "neg_log_loss" or
        "neg_expected_calibration_error", of the probabilities, also on samples that lack some of
        the classes; or "neg_aurc", of wrong labels, the samples ordered by their total entropy.
    **kwargs : dict
        Further keywords of the metric.

    Returns
    -------
    scorer : EstimatorScorer
        Greater is better.

    Examples
    --------
    >>> from skdistill.metrics import get_scorer
    >>> get_scorer("neg_aurc")
    EstimatorScorer(neg_aurc)
    """
    OneOf(tuple(_SCORES)).check(name, "name")
    score, settings = _SCORES[name]
    return EstimatorScorer(score, **{**settings, **kwargs})
