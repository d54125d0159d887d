# SPDX-License-Identifier: BSD-3-Clause
"""The epistemic part of any model on one scale: that of two models of disjoint samples.

The variance between the trees of a forest is several times the variance of their mean, and that of
CatBoost's virtual ensembles a hundredth of it. Models of disjoint samples are independent, so that
the squared difference of their means estimates the sum of their variances, whatever the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, is_classifier
from sklearn.compose import TransformedTargetRegressor
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.linear_model import ARDRegression, BayesianRidge, GammaRegressor
from sklearn.model_selection import KFold, StratifiedKFold

from .._estimator.unwrapping import (
    final_step,
    has_members,
    is_prefitted,
    is_search,
    reseeded_clone,
)
from .._utils.warnings import warn
from ._mixed import MixedModels
from ._rows_and_folds import fitted_on, in_chunks, rows_at

# Their members are drawn from a posterior distribution.
_EXACT = (GaussianProcessClassifier, GaussianProcessRegressor, BayesianRidge, ARDRegression)

# See doc/design.rst.
_LEAST_SAMPLES, _ERROR = 40, 0.35  # samples; standard error of the logarithm of the factor
_OF_THIRDS = 1.3  # factor of models of thirds of the samples over that of models of all
_SMALLEST, _LARGEST = 1e-4, 1e4  # limits of the factor
_PENALTY, _SHARES = 0.2, (1e-2, 5.0)  # ridge penalty of the power; limits of variance / mean
_LEAST_ALEATORIC = 0.05  # share of a sample's total variance


@dataclass(frozen=True)
class EpistemicScale:
    """By what the stated epistemic variances v of t targets, or of all classes, are multiplied.

    It is ``factor * (v / reference) ** power``.
    """

    factor: np.ndarray  # (t,)
    power: np.ndarray | float = 0.0  # (t,)
    reference: np.ndarray | float = 1.0  # (t,), the mean of v of models of thirds

    def of_probabilities(self, members: np.ndarray) -> np.ndarray:
        """Scale the deviations of probabilities (n, S, K), as far as all stay positive."""
        mean = members.mean(axis=1, keepdims=True)
        gaps = members - mean
        room = np.divide(mean, -gaps, out=np.full_like(gaps, np.inf), where=gaps < 0)
        spread = np.square(gaps).mean(axis=1).sum(axis=-1, keepdims=True)
        ratio = np.sqrt(self._at(spread, members.shape[1]))[..., None]
        ratio = np.minimum(ratio, np.maximum(room.min(axis=(1, 2), keepdims=True), 1))
        return np.maximum(mean + ratio * gaps, 0).astype(members.dtype, copy=False)

    def of_moments(self, members: np.ndarray) -> np.ndarray:
        """Scale the deviations of means and variances (n, S, t, 2); each total stays if it can."""
        mean, own = members.mean(axis=1, keepdims=True)[..., 0], members[..., 1].mean(axis=1)
        gaps = members[..., 0] - mean
        spread = np.square(gaps).mean(axis=1)
        scale = self._at(spread, members.shape[1])
        left = np.maximum(own + (1 - scale) * spread, _LEAST_ALEATORIC * (own + spread))
        lost, gained = np.minimum(left / own, 1), np.maximum(left - own, 0)
        variances = members[..., 1] * lost[:, None] + gained[:, None]
        found = np.stack([mean + np.sqrt(scale)[:, None] * gaps, variances], axis=-1)
        return found.astype(members.dtype, copy=False)

    def _at(self, spread: np.ndarray, n_members: int) -> np.ndarray:
        """Scale (n, t) of samples whose members' squared deviations have this mean (n, t)."""
        stated = spread * n_members / max(n_members - 1, 1)
        return self.factor * np.clip(stated / self.reference, *_SHARES) ** self.power


def has_own_scale(estimator: BaseEstimator) -> bool:
    """Tell whether a model keeps its scale: if it is fitted, an exact posterior, or of ours."""
    model, _ = final_step(estimator)
    while isinstance(model, TransformedTargetRegressor) and model.regressor is not None:
        model, _ = final_step(model.regressor)
    return is_prefitted(estimator) or isinstance(model, _EXACT) or has_members(estimator)


def measured_scale(
    estimator: BaseEstimator, fitted: Any, read: Callable, X, y: np.ndarray, weight
) -> EpistemicScale | None:
    """Compare the variance between models of disjoint samples to that which they state.

    Each third of the samples is predicted by the models of the two others: where a model was
    fitted it follows the noise. ``read(model, X)`` gives what members expect, (n, S, t). None for
    few samples, or after a warning where a model cannot be fitted on a third.
    """
    are_classes = is_classifier(estimator)
    if len(y) < _LEAST_SAMPLES or (are_classes and np.unique(y, return_counts=True)[1].min() < 3):
        return None
    splitter = (StratifiedKFold if are_classes else KFold)(3, shuffle=True, random_state=0)
    thirds = [rows for _, rows in splitter.split(np.zeros(len(y)), y)]
    # A mixture again with the weights that it has, a search with what it has found.
    again = estimator
    if isinstance(fitted, MixedModels):
        again = fitted.with_known_weights()
    elif is_search(fitted):
        again = fitted.best_estimator_

    def asked(model, rows) -> np.ndarray:
        return in_chunks(partial(read, model), rows_at(X, rows), _mean_and_variance)

    try:
        # Models of the same initial weights would not be independent: each has seeds of its own.
        models = Parallel()(
            delayed(fitted_on)(reseeded_clone(again, number), X, y, weight, rows)
            for number, rows in enumerate(thirds)
        )
        one, other = (
            np.concatenate(
                [asked(models[number - gap], rows) for number, rows in enumerate(thirds)]
            )
            for gap in (1, 2)
        )
        if not (np.isfinite(one).all() and np.isfinite(other).all()):
            raise ValueError("It predicts values that are not finite.")
    except Exception as error:  # of any library; the fit on all samples has been right
        warn(
            f"{type(final_step(estimator)[0]).__name__} keeps its own scale of epistemic "
            "uncertainty, as it cannot be fitted on a third of the samples: give more of them, or "
            f"epistemic_scale=None. {type(error).__name__}: {error}"
        )
        return None
    seen, stated = np.square(one[..., 0] - other[..., 0]), one[..., 1] + other[..., 1]
    if are_classes:
        seen, stated = seen.sum(axis=1, keepdims=True), stated.sum(axis=1, keepdims=True)
    weights = None if weight is None else weight[np.concatenate(thirds)]
    laws = [_law(*pair, weights) for pair in zip(seen.T, stated.T, strict=True)]
    return EpistemicScale(*map(np.array, zip(*laws, strict=True)))


def _mean_and_variance(members: np.ndarray, _: slice) -> np.ndarray:
    """Mean of members (n, S, t), and their variance with ddof=1, as students read it, (n, t, 2)."""
    return np.stack([members.mean(axis=1), members.var(axis=1, ddof=1)], axis=-1)


def _law(seen: np.ndarray, stated: np.ndarray, weights) -> tuple[float, float, float]:
    """Factor, power and reference of a scale from squared differences and stated sums, (n,) each.

    The former have a variance of one degree of freedom: a regression with the logarithm as its
    link, of their ratio to the latter.
    """
    level, mean = (np.average(of, weights=weights) for of in (seen, stated))
    if not (level > 0 and mean > 0):
        return 1.0, 0.0, 1.0
    share = np.clip(stated / mean, *_SHARES)
    ratio = np.maximum(seen / level / share, np.finfo(float).eps)  # it must be positive
    model = GammaRegressor(alpha=_PENALTY, max_iter=1_000)
    power = float(np.clip(model.fit(np.log(share)[:, None], ratio, weights).coef_[0], -1, 1))
    factor = level / np.average(stated * share**power, weights=weights) / _OF_THIRDS
    log = np.log(np.clip(factor, _SMALLEST, _LARGEST))
    return float(np.exp(log**3 / (log**2 + _ERROR**2))), power, mean / 2
