# SPDX-License-Identifier: BSD-3-Clause
"""Scores of a model on samples unlike those of training, beside held-out ones."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm
from sklearn.base import is_classifier
from sklearn.metrics import accuracy_score, log_loss, root_mean_squared_error

from .._estimator.functions import predict_interval, predict_members, predict_uncertainty
from .._estimator.unwrapping import has_inside, innermost
from .._utils.typing import ArrayLike
from .._utils.warnings import without_schema_warnings
from ..metrics import aurc, gaussian_nll, interval_coverage, mixture_nll, ood_auroc

_COVERAGE = 0.9  # of the intervals


@without_schema_warnings()
def unseen_scores(
    model: Any, X_held_out: ArrayLike, y_held_out: ArrayLike, X_unseen: Any, y_unseen: Any = None
) -> dict[str, float]:
    r"""Score a fitted model on unseen samples, beside held-out ones.

    Parameters
    ----------
    model : estimator
        Fitted; anything that :func:`skdistill.predict_uncertainty` takes.
    X_held_out, y_held_out : array-like
        Samples like those of training, that played no part in it.
    X_unseen, y_unseen : array-like
        Samples unlike those of training. Where there is no truth `y_unseen` is None, and what needs
        it NaN.

    Returns
    -------
    scores : dict of str to float
        NaN where the model has no epistemic part. With `<part>` for ``held_out`` and
        ``unseen``:

        - `<part>_nll`, `<part>_rmse` and `<part>_coverage` of regressors: negative log likelihood,
          in nats, root mean squared error, and share of the targets in their 90 % intervals.
        - `<part>_log_loss`, `<part>_accuracy` and `<part>_top_probability` of classifiers: log loss
          in nats, without samples of classes that the model does not know, accuracy, and mean of
          the largest class probability.
        - `auroc_epistemic` and `auroc_total`: :func:`~skdistill.metrics.ood_auroc`, by which the
          epistemic and the total uncertainty tell unseen samples from held-out ones.
        - `selective_risk`: :func:`~skdistill.metrics.aurc` of a mixture in which either part has
          half of the weight, of the squared error or a wrong label, by the total uncertainty. It is
          small for a model that is uncertain where it is wrong.
        - `epistemic_ratio`: median epistemic part of the unseen samples, divided by that of the
          held-out ones; 0 / 0 counts as 1.

        Scores of several targets are means over them.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skdistill import BayesianEnsembleClassifier
    >>> from skdistill.model_selection import unseen_scores
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianEnsembleClassifier(5, random_state=0).fit(X[::2], y[::2])
    >>> scores = unseen_scores(model, X[1::2], y[1::2], X[1::2] + 3.0)
    >>> scores["held_out_accuracy"] > 0.9
    True
    """
    held_out = _described(model, X_held_out, y_held_out)
    unseen = _described(model, X_unseen, y_unseen)
    scores = {
        **{f"held_out_{score}": value for score, value in held_out.scores.items()},
        **{f"unseen_{score}": value for score, value in unseen.scores.items()},
        "auroc_epistemic": np.nan,
        "auroc_total": _over_targets(ood_auroc, held_out.total, unseen.total),
        "selective_risk": np.nan,
        "epistemic_ratio": np.nan,
    }
    if held_out.epistemic is not None and unseen.epistemic is not None:
        parts = held_out.epistemic, unseen.epistemic
        scores["auroc_epistemic"] = _over_targets(ood_auroc, *parts)
        scores["epistemic_ratio"] = _over_targets(_median_ratio, *parts)
    if held_out.losses is not None and unseen.losses is not None:
        sizes = len(held_out.losses), len(unseen.losses)
        weights = np.repeat([1 / size for size in sizes], sizes)
        scores["selective_risk"] = _over_targets(
            lambda losses, total: aurc(losses, total, sample_weight=weights),
            np.concatenate([held_out.losses, unseen.losses]),
            np.concatenate([held_out.total, unseen.total]),
        )
    return scores


class _Predictions(NamedTuple):
    """Predictions for samples, and their scores."""

    scores: dict[str, float]
    losses: np.ndarray | None  # (n,) or (n, t)
    total: np.ndarray
    epistemic: np.ndarray | None


def _described(model, X, y) -> _Predictions:
    total, _, epistemic = predict_uncertainty(model, X)
    losses = None
    if is_classifier(model):
        proba, labels = model.predict_proba(X), model.classes_
        scores = {"log_loss": np.nan, "accuracy": np.nan}
        scores["top_probability"] = float(proba.max(axis=1).mean())
        if y is not None:
            y, predicted = np.asarray(y), labels[proba.argmax(axis=1)]
            losses, known = (y != predicted).astype(float), np.isin(y, labels)
            if known.any():
                scores["log_loss"] = float(log_loss(y[known], proba[known], labels=labels))
            scores["accuracy"] = float(accuracy_score(y, predicted))
        return _Predictions(scores, losses, total, epistemic)
    scores = dict.fromkeys(("nll", "rmse", "coverage"), np.nan)
    if y is not None:
        y, mean = np.asarray(y), np.asarray(model.predict(X))
        losses = np.square(y - mean)
        scores["nll"], interval = density(model, X, y, mean, np.sqrt(total))
        scores["rmse"] = float(root_mean_squared_error(y, mean))
        scores["coverage"] = interval_coverage(y, interval)
    return _Predictions(scores, losses, total, epistemic)


def density(model, X, y, mean, std) -> tuple[float, np.ndarray]:
    """NLL and central intervals of the predictive distribution."""
    if has_inside(model, "predict_distribution"):
        inner, rows, inverses = innermost(model, X, "predict_distribution")
        if not inverses:
            import torch

            distribution = inner.predict_distribution(rows)
            targets = torch.from_numpy(np.asarray(y, dtype=float).reshape(len(y), -1))
            interval = distribution.interval(_COVERAGE).numpy()
            nll = -float(distribution.log_prob(targets).mean())
            return nll, interval[:, 0] if np.ndim(y) == 1 else interval
        nll = mixture_nll(y, predict_members(model, X))
        return nll, predict_interval(model, X, _COVERAGE)
    half = norm.ppf((1 + _COVERAGE) / 2) * std
    return gaussian_nll(y, mean, std), np.stack([mean - half, mean + half], axis=-1)


def _over_targets(measure: Callable[..., float], a: np.ndarray, b: np.ndarray) -> float:
    """Mean over targets of a measure of two arrays, (n,) or (n, t)."""
    columns = zip(a.reshape(len(a), -1).T, b.reshape(len(b), -1).T, strict=True)
    return float(np.mean([measure(*pair) for pair in columns]))


def _median_ratio(held_out: np.ndarray, unseen: np.ndarray) -> float:
    below, above = float(np.median(held_out)), float(np.median(unseen))
    return above / below if below else 1.0 if above == 0 else np.inf
