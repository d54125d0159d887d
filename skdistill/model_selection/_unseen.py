# SPDX-License-Identifier: BSD-3-Clause
"""Uncertainty of samples that a model has not seen, like those of training and unlike them."""

import time
from collections.abc import Callable
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.metrics import accuracy_score, log_loss, root_mean_squared_error
from sklearn.model_selection import check_cv, cross_val_predict, train_test_split
from sklearn.utils import Bunch, check_random_state, indexable
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.parallel import Parallel, delayed

from .._estimator.functions import predict_interval, predict_members, predict_uncertainty
from .._estimator.unwrapping import has_inside, innermost, tags_of
from .._utils.typing import ArrayLike, Folds, RandomStateLike
from .._utils.validation import Number, NumberOfJobs
from .._utils.warnings import without_schema_warnings
from ..distributions import Uncertainty
from ..metrics import aurc, gaussian_nll, interval_coverage, mixture_nll, ood_auroc

_COVERAGE = 0.9


def cross_val_predict_uncertainty(
    estimator: BaseEstimator, X: ArrayLike, y: ArrayLike | None = None, **kwargs: object
) -> Uncertainty:
    """Predict the uncertainty of every sample by a clone that has not seen the sample in its fit.

    It is :func:`~sklearn.model_selection.cross_val_predict`, which takes scikit-learn's own methods
    only, for :func:`skdistill.predict_uncertainty`.

    Parameters
    ----------
    estimator : estimator
        Anything that :func:`skdistill.predict_uncertainty` takes; its clones are fitted. A teacher
        in a FrozenEstimator is cloned as it is, and may have seen the samples left out.
    X, y
        As in :func:`~sklearn.model_selection.cross_val_predict`.
    **kwargs : dict
        Its keywords, all but `method`. `cv` must put every sample into one test fold; `params` are
        arguments of the fit, such as ``{"sample_weight": weights}``, or
        ``{"<step>__sample_weight": weights}`` for a Pipeline.

    Returns
    -------
    uncertainty : Uncertainty
        As the estimator's ``predict_uncertainty(X)`` returns it, samples in the order of `X`.

    Raises
    ------
    TypeError
        If `estimator` has no uncertainty to predict.
    ValueError
        If the test folds of `cv` are no partition of the samples.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skdistill import BayesianEnsembleRegressor
    >>> from skdistill.model_selection import cross_val_predict_uncertainty
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BayesianEnsembleRegressor(3, max_epochs=5, random_state=0)
    >>> uncertainty = cross_val_predict_uncertainty(model, X, y, cv=3)
    >>> uncertainty.epistemic.shape, uncertainty.measure
    ((442,), 'variance')
    """
    if "method" in kwargs:
        raise TypeError(f"method is that of the uncertainty, got {kwargs['method']!r}.")
    parts = cross_val_predict(_PredictsParts(estimator), X, y, **kwargs)
    total, *others = np.moveaxis(parts, 1, 0)
    aleatoric, epistemic = (None if np.isnan(part).any() else part for part in others)
    measure = "entropy" if is_classifier(estimator) else "variance"
    return Uncertainty(total, aleatoric, epistemic, measure=measure)


class _PredictsParts(MetaEstimatorMixin, BaseEstimator):
    """Predicts the parts of the uncertainty, (n, 3, ...), NaN where a model cannot tell one."""

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X, y=None, **params):
        self.estimator_ = clone(self.estimator).fit(X, y, **params)
        return self

    def predict(self, X) -> np.ndarray:
        found = predict_uncertainty(self.estimator_, X)
        unknown = np.full_like(found.total, np.nan)
        return np.stack([unknown if part is None else part for part in found], axis=1)

    def __sklearn_tags__(self):
        return tags_of(self.estimator)

    def get_metadata_routing(self):
        return get_routing_for_object(self.estimator)


@without_schema_warnings()
def score_unseen(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    *,
    cv: Folds,
    held_out: float = 0.1,
    random_state: RandomStateLike = None,
    n_jobs: int | None = None,
) -> Bunch:
    r"""Score an estimator on samples unlike those of training, beside held-out ones like them.

    For each fold of `cv` a clone is fitted to the training samples less a random share. It is
    scored on these held-out samples and on the test samples of the fold, the unseen ones: how well
    it predicts either, and whether it is more uncertain of the unseen.

    Parameters
    ----------
    estimator : estimator
        Anything that :func:`skdistill.predict_uncertainty` takes; its clones are fitted. A teacher
        in a FrozenEstimator is cloned as it is, and may have seen the samples that are left out.
    X : array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,) or (n_samples, n_targets)
    cv : cross-validation splitter or iterable of pairs of training and test indices
        Such as :class:`GapSplit`, :class:`TailSplit` or, with its `groups` given as
        ``cv=splitter.split(X, y, groups)``, :class:`~sklearn.model_selection.LeaveOneGroupOut`.
    held_out : float, default=0.1
        Share of the training samples of a fold to hold out, in (0, 1).
    random_state : int, RandomState instance or None, default=None
        Draws the held-out samples.
    n_jobs : int, default=None
        Number of fits at a time.

    Returns
    -------
    scores : :class:`~sklearn.utils.Bunch` of ndarray of shape (n_splits,)
        The scores of :func:`unseen_scores`; `fit_time`, the CPU seconds of each fit, of the process
        that runs it; and the numbers of samples `n_train`, `n_held_out` and `n_unseen`.

    Raises
    ------
    TypeError
        If `estimator` has no uncertainty to predict.
    ValueError
        If `held_out` is invalid, or `cv` has no fold.

    See Also
    --------
    skdistill.datasets.move : Samples as far from those of training as one likes.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skdistill import BayesianEnsembleRegressor
    >>> from skdistill.model_selection import GapSplit, score_unseen
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BayesianEnsembleRegressor(5, max_epochs=20, random_state=0)
    >>> scores = score_unseen(model, X, y, cv=GapSplit([2, 8]), random_state=0)
    >>> scores.n_train, scores.n_unseen
    (array([264, 265]), array([148, 147]))
    """
    Number(Real, 0, 1, closed="neither").check(held_out, "held_out")
    NumberOfJobs().check(n_jobs, "n_jobs")
    X, y = indexable(X, y)
    X, y = X if hasattr(X, "shape") else np.asarray(X), np.asarray(y)
    folds = list(check_cv(cv, y, classifier=is_classifier(estimator)).split(X, y))
    if not folds:
        raise ValueError(f"cv has no fold for X, of shape {X.shape}: {cv!r}.")
    seeds = check_random_state(random_state).randint(np.iinfo(np.int32).max, size=len(folds))
    found = Parallel(n_jobs=n_jobs)(
        delayed(_score_fold)(clone(estimator), X, y, *fold, held_out, seed)
        for fold, seed in zip(folds, seeds, strict=True)
    )
    return Bunch(**{name: np.array([scores[name] for scores in found]) for name in found[0]})


def _score_fold(model, X, y, train, test, held_out, seed) -> dict[str, float]:
    train, inside = train_test_split(train, test_size=held_out, random_state=seed)
    start = time.process_time()
    model.fit(rows_at(X, train), y[train])
    seconds = time.process_time() - start
    scores = unseen_scores(model, rows_at(X, inside), y[inside], rows_at(X, test), y[test])
    sizes = {"n_train": len(train), "n_held_out": len(inside), "n_unseen": len(test)}
    return {**scores, "fit_time": seconds, **sizes}


def rows_at(X, index: np.ndarray):
    """Samples of an array or a frame."""
    return X.iloc[index] if hasattr(X, "iloc") else X[index]


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
        NaN where the model does not tell its epistemic part. With `<part>` for ``held_out`` and
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
    describe = _classes if is_classifier(model) else _numbers
    held_out, unseen = describe(model, X_held_out, y_held_out), describe(model, X_unseen, y_unseen)
    return {
        **{f"held_out_{score}": value for score, value in held_out.scores.items()},
        **{f"unseen_{score}": value for score, value in unseen.scores.items()},
        **_comparisons(held_out, unseen),
    }


class _Answers(NamedTuple):
    """What a model says of samples."""

    scores: dict[str, float]
    losses: np.ndarray | None  # (n,) or (n, t)
    total: np.ndarray
    epistemic: np.ndarray | None


def _numbers(model, X, y) -> _Answers:
    total, _, epistemic = predict_uncertainty(model, X)
    if y is None:
        names = ("nll", "rmse", "coverage")
        return _Answers(dict.fromkeys(names, np.nan), None, total, epistemic)
    y, mean = np.asarray(y), np.asarray(model.predict(X))
    nll, interval = density(model, X, y, mean, np.sqrt(total))
    scores = {"nll": nll, "rmse": float(root_mean_squared_error(y, mean))}
    scores["coverage"] = interval_coverage(y, interval)
    return _Answers(scores, np.square(y - mean), total, epistemic)


def density(model, X, y, mean, std) -> tuple[float, np.ndarray]:
    """NLL and central intervals of the predictive distribution.

    Of a model in a TransformedTargetRegressor members stay Gaussian; where there are none, as in a
    VotingRegressor, the distribution is the Gaussian of `mean` and `std`.
    """
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


def _classes(model, X, y) -> _Answers:
    total, _, epistemic = predict_uncertainty(model, X)
    proba, labels = model.predict_proba(X), model.classes_
    top = {"top_probability": float(proba.max(axis=1).mean())}
    if y is None:
        names = ("log_loss", "accuracy")
        return _Answers({**dict.fromkeys(names, np.nan), **top}, None, total, epistemic)
    y, predicted = np.asarray(y), labels[proba.argmax(axis=1)]
    known = np.isin(y, labels)
    loss = log_loss(y[known], proba[known], labels=labels) if any(known) else np.nan
    scores = {"log_loss": float(loss), "accuracy": float(accuracy_score(y, predicted))}
    return _Answers({**scores, **top}, (y != predicted).astype(float), total, epistemic)


def _comparisons(held_out: _Answers, unseen: _Answers) -> dict[str, float]:
    scores = dict.fromkeys(
        ("auroc_epistemic", "auroc_total", "selective_risk", "epistemic_ratio"), np.nan
    )
    scores["auroc_total"] = _over_targets(ood_auroc, held_out.total, unseen.total)
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


def _over_targets(measure: Callable[..., float], a: np.ndarray, b: np.ndarray) -> float:
    """Mean over targets of a measure of two arrays, (n,) or (n, t)."""
    columns = zip(a.reshape(len(a), -1).T, b.reshape(len(b), -1).T, strict=True)
    return float(np.mean([measure(*pair) for pair in columns]))


def _median_ratio(held_out: np.ndarray, unseen: np.ndarray) -> float:
    below, above = float(np.median(held_out)), float(np.median(unseen))
    return above / below if below else 1.0 if above == 0 else np.inf
