# SPDX-License-Identifier: BSD-3-Clause
"""Models of different kinds as one teacher, weighted by what they say of samples not seen."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from functools import partial
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import torch
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_classifier
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from .._data.checks import check_weights
from .._estimator.calibration import Temperature, fit_temperature, negative_log_likelihood
from .._estimator.functions import align_classes
from .._estimator.unwrapping import (
    check_takes_weights,
    final_step,
    is_prefitted,
    seeded_clone,
    tags_of,
)
from .._training.trainer import SEED_LIMIT, TimeBudget
from .._utils.moments import standardisation
from .._utils.validation import Number, OneOf, Seed, errors_about
from .._utils.warnings import without_schema_warnings
from ..distributions import EmpiricalCategorical, EmpiricalGaussian
from ..ensembles import BayesianEnsembleClassifier, BayesianEnsembleRegressor
from ._held_out import (
    as_rows,
    fitted_on,
    folds_of,
    has_own_scale,
    mean_squared_residual,
    measured_scale,
    read_out_of_fold,
    residual_variance,
    rows_at,
    stretched,
    with_variance,
)
from ._members import (
    check_probabilities,
    group_moments,
    group_probabilities,
    members_of_classifier,
    members_of_regressor,
    moments_of_members,
    read_moments,
    read_probabilities,
    shares_of_groups,
    without_rounding,
)
from ._models import EstimatorOfModels

# See doc/design.rst.
_LEAST_WEIGHT = 0.01  # of a model that is kept
_LEAST_SPREAD = 1e-6  # of groups, over that of their members
_CORRELATION = 0.5  # of the errors of two models of the same samples
_TOLERANCE, _MOST_STEPS = 1e-6, 10_000  # change of weights, and steps, that end their EM
# Samples of an exact Gaussian process, and seconds of a fit to so many.
_MOST_OF_PROCESS, _SECONDS_OF_PROCESS = 1_000, 15.0
_MOST_OF_GRADIENT = 2.5e7  # numbers, of which three arrays are held; else features share a scale
_TREES = {"max_iter": 1_000, "early_stopping": True, "n_iter_no_change": 20, "learning_rate": 0.05}


class MixedModels(EstimatorOfModels):
    """Models of different kinds, fitted together, as one estimator whose members are all of theirs.

    Its predictive distribution is a mixture ``p(y | x) = sum_i w_i p_i(y | x)`` of the models', of
    the weights that are best on samples that they have not seen, as in stacking (Yao et al., 2018,
    "Using Stacking to Average Bayesian Predictive Distributions", Eq 4). A mixture of calibrated
    distributions is too wide (Gneiting and Ranjan, 2013, "Combining Predictive Distributions"), so
    a temperature of its members, found after the weights and likewise, narrows it.
    It may be the `teacher` of a student; see :doc:`/user_guide/teachers`.

    Parameters
    ----------
    models : list of estimators or "auto"
        Classifiers or regressors, not fitted: anything that :func:`as_teacher` takes. "auto" is the
        default ensemble of networks, histogram gradient boosting that stops early, a random forest,
        and for tables of finite numbers logistic regression, or for regression on at most 1,000
        samples, fewer with a short `max_time`, an exact Gaussian process with a length scale for
        each feature (for all, of wide tables), which costs the cube of the number of samples.
    weights : "oof", "equal" or array-like of shape (n_models,), default="oof"
        How much each model counts; numbers need not sum to one. "oof" finds the weights that are
        best on the folds of `cv`, and the temperature; models of less than 0.01 are left out.
    cv : int, cross-validation splitter or iterable of pairs of train and test samples, default=5
        For weights="oof", and for the residual variance of regressors that predict none. Must put
        every sample into one test fold. A number makes shuffled folds, stratified by class.
    n_members : int, default=20
        All models' members, side by side and each as wide as its weight, are cut into this many
        groups, whose mixtures are the members. Mean and total variance are those of the weighted
        mixture; the members' distance is such that the epistemic part is the variance of its mean,
        and what the models differ by beyond theirs, which is bias. Probabilities remain positive.
    epistemic_scale : "halves" or None, default="halves"
        Models whose members have no scale of their own are also fitted on three thirds of the
        samples, as by :class:`Teacher`, before they are mixed. A regressor with one member has the
        same epistemic variance everywhere. None leaves all as they are.
    task : {"classification", "regression"}, default=None
        Required for models="auto".
    max_time : float, default=None
        Seconds that `fit` is to take. Models that have such a parameter themselves, and leave it at
        None, share what the others leave of them; these take as long as they do.
    random_state : int, RandomState instance or None, default=None
        For the folds, and for models whose own ``random_state`` is None.

    Attributes
    ----------
    models_ : list of estimators
        The fitted models; None for one of weight 0.
    weights_ : ndarray of shape (n_models,)
        They sum to one.
    temperature_ : float or tuple of float
        Multiplies the aleatoric variance, of several targets one each, or divides the logarithms of
        the members' probabilities of classes. 1 if the weights were given.
    log_scores_ : ndarray of shape (n_models,) or None
        Mean log density, or probability, of y in samples that the model has not seen; None if the
        weights were not found by it.
    residual_variances_ : list of ndarray of shape (n_targets,) or None
        Of each regressor that predicts no variance, see :class:`Teacher`; None of others.
    classes_ : ndarray of shape (n_classes,)
        Only for classifiers.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
    """

    log_scores_: np.ndarray | None

    def __init__(
        self,
        models: Any,
        *,
        weights: Any = "oof",
        cv: object = 5,
        n_members: int = 20,
        epistemic_scale: str | None = "halves",
        task: str | None = None,
        max_time: float | None = None,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.models = models
        self.weights = weights
        self.cv = cv
        self.n_members = n_members
        self.epistemic_scale = epistemic_scale
        self.task = task
        self.max_time = max_time
        self.random_state = random_state

    @without_schema_warnings()
    def fit(self, X: object, y: object, sample_weight: object = None) -> Self:
        """Find the weights, and fit the models, none of which may be fitted, on all samples.

        `sample_weight`, which all models must take, also counts for the models' weights.
        """
        if y is None:
            raise ValueError("MixedModels requires y to be passed, but the target y is None.")
        budget = None if self.max_time is None else TimeBudget(self.max_time)
        X, y = as_rows(X), np.asarray(y)
        weight = check_weights(sample_weight, len(y))
        models = self._models(X, y)
        for model in models if weight is not None else ():
            check_takes_weights(model)
        Number(Integral, 1).check(self.n_members, "n_members")
        OneOf(("halves", None)).check(self.epistemic_scale, "epistemic_scale")
        Number(Real, 0, closed="neither", others=(None,)).check(self.max_time, "max_time")
        Seed().check(self.random_state, "random_state")
        if isinstance(self.weights, str):
            OneOf(("oof", "equal")).check(self.weights, "weights")
        else:
            with errors_about("weights"):
                given = check_array(
                    self.weights, dtype=float, ensure_2d=False, input_name="weights"
                )
            if given.shape != (len(models),) or (given < 0).any() or not given.any():
                raise ValueError(
                    f"weights must be 'oof', 'equal' or {len(models)} numbers, one a model, none "
                    f"negative and one positive; got {self.weights!r}."
                )
        random = check_random_state(self.random_state)
        models = [seeded_clone(model, random.randint(SEED_LIMIT)) for model in models]
        folds = folds_of(self.cv, y, is_classifier(self), random.randint(SEED_LIMIT), "cv")
        if is_classifier(self):
            self.classes_ = np.unique(y)
        else:
            targets = y.reshape(len(y), -1)
            self._y_is_1d, self._n_targets = y.ndim == 1, targets.shape[1]
            self._y_scale = standardisation(targets, weight)[1]
        of_unseen = None
        if isinstance(self.weights, str) and self.weights == "oof":
            of_unseen = self._stack(models, X, y, weight, folds, budget)
        else:
            given = np.ones(len(models)) if isinstance(self.weights, str) else self.weights
            self.log_scores_ = None
            if budget is not None:
                _share_time(models, budget.left, 1)
            self.weights_ = np.asarray(given, dtype=float) / np.sum(given)
        kept = [model for model, share in zip(models, self.weights_, strict=True) if share > 0]
        fits = iter(Parallel()(delayed(fitted_on)(model, X, y, weight) for model in kept))
        self.models_ = [next(fits) if share > 0 else None for share in self.weights_]
        if self.log_scores_ is None and not is_classifier(self):
            read = partial(read_moments, n_targets=self._n_targets)
            self.residual_variances_ = [
                residual_variance(model, fitted, partial(read, fitted), X, y, weight)
                if fitted is not None and read(fitted, rows_at(X, slice(0, 1)))[..., 2].any()
                else None
                for model, fitted in zip(models, self.models_, strict=True)
            ]
        self._scales = [
            None
            if fitted is None or has_own_scale(model) or self.epistemic_scale is None
            else measured_scale(model, fitted, self._expected, X, y, weight)
            for model, fitted in zip(models, self.models_, strict=True)
        ]
        self.temperature_ = 1.0
        if of_unseen is not None:
            mixture = self._distribution(self._groups(of_unseen))
            rows = torch.ones(len(y)) if weight is None else torch.from_numpy(weight)
            found = fit_temperature(
                mixture, self._labels(y), rows.double(), negative_log_likelihood
            )
            self.temperature_ = found.temperature
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "models_")

    def __sklearn_tags__(self):
        tags, *others = map(tags_of, self._models())
        tags.array_api_support = False
        tags.input_tags.allow_nan &= all(one.input_tags.allow_nan for one in others)
        tags.input_tags.sparse &= all(one.input_tags.sparse for one in others)
        tags.target_tags.multi_output &= all(one.target_tags.multi_output for one in others)
        return tags

    def predict(self, X: ArrayLike) -> np.ndarray:
        check_is_fitted(self)
        if is_classifier(self):
            return self.classes_[members_of_classifier(self, X).mean(axis=1).argmax(axis=-1)]
        mean = members_of_regressor(self, X, self._n_targets)[..., 0].mean(axis=1)
        return mean[:, 0] if self._y_is_1d else mean

    def _models(self, X=None, y: np.ndarray | None = None) -> list:
        """Return `models`, or those that "auto" stands for."""
        if not isinstance(self.models, str):
            check_models(self.models)
            return list(self.models)
        OneOf(("auto",)).check(self.models, "models")
        task = self.task or ""
        OneOf(("classification", "regression")).check(task, "task")
        return models_for(task, X, y, self.max_time)

    def _stack(
        self, models: list, X, y: np.ndarray, weight, folds, budget: TimeBudget | None
    ) -> list[np.ndarray]:
        """Find weights and residual variances; return members of models for samples not seen."""
        timed = set() if budget is None else {n for n, one in enumerate(models) if _is_timed(one)}
        found: dict[int, tuple[np.ndarray, Any]] = {}
        # Last come those that a budget is for.
        for number in sorted(range(len(models)), key=timed.__contains__):
            if budget is not None and number in timed and timed.isdisjoint(found):
                # All models are fitted on each fold, and once more on all samples.
                n_folds, spent = folds.get_n_splits(X, y), budget.seconds - budget.left
                left = budget.less(spent / max(1, n_folds - 1)).left
                _share_time(models, left, n_folds + 1)
            found[number] = self._out_of_fold(models[number], X, y, weight, folds)
        each, residuals = zip(*(found[number] for number in range(len(models))), strict=True)
        if not is_classifier(self):
            self.residual_variances_ = list(residuals)
        labels = self._labels(y)
        losses = [negative_log_likelihood(self._distribution(one), labels) for one in each]
        scores = np.stack([-loss.sum(1).numpy() for loss in losses])
        self.log_scores_ = np.average(scores, axis=1, weights=weight)
        self.weights_ = stacking_weights(scores, weight)
        return [members for members, share in zip(each, self.weights_, strict=True) if share > 0]

    def _labels(self, y: np.ndarray) -> torch.Tensor:
        if is_classifier(self):
            return torch.from_numpy(np.searchsorted(self.classes_, y))
        return torch.from_numpy(y.reshape(len(y), -1).astype(float))

    def _out_of_fold(self, model, X, y: np.ndarray, weight, folds):
        """Out-of-fold members (n, S, ...), and the residual variance."""

        predicted = read_out_of_fold(model, X, y, weight, folds, self._read, "cv")
        if is_classifier(self):
            return predicted, None
        residual = None
        if predicted[..., 2].any():
            targets = y.reshape(len(y), -1).astype(float)
            residual = mean_squared_residual(predicted[..., 0].mean(axis=1), targets, weight)
        return with_variance(predicted, residual, self._y_scale), residual

    def _without_functions(self, divide: Callable[[Any], tuple[Any, int]]) -> tuple[Self, float]:
        """Return a copy without the random functions of its models, and their share that shows.

        That is the variance of the mixture where the functions, each of variance 1, are all of it.

        `divide` gives a fitted model without its functions, and how many members have some.
        """
        divided = [(None, 0) if model is None else divide(model) for model in self.models_]
        copied = copy.copy(self)
        copied.models_ = [model for model, _ in divided]
        pairs = zip(self.weights_, divided, strict=True)
        widths = np.array([share for share, (_, n_functions) in pairs if n_functions])
        return copied, float(epistemic_of(widths, np.zeros(len(widths)), np.ones(len(widths)))[0])

    def _read(self, fitted, X) -> np.ndarray:
        """Probabilities, or moments (n, at most n_members, t, 3), of a model's own groups."""
        if is_classifier(self):
            members = align_classes(read_probabilities(fitted, X), fitted.classes_, self.classes_)
            return group_probabilities(members, self.n_members)
        return group_moments(read_moments(fitted, X, self._n_targets), self.n_members)

    def _expected(self, fitted, X) -> np.ndarray:
        """What the members of a model expect, (n, S, t) or (n, S, K)."""
        members = self._read(fitted, X)
        return members if is_classifier(self) else members[..., 0]

    def _groups(self, each: list[np.ndarray]) -> np.ndarray:
        """Members (n, n_members, ...) of the mixture of the kept models', (n, S_i, ...) each."""
        scales = [scale for scale, w in zip(self._scales, self.weights_, strict=True) if w > 0]
        weights, are_classes = self.weights_[self.weights_ > 0], is_classifier(self)
        each = [
            members
            if scale is None
            else (scale.of_probabilities if are_classes else scale.of_moments)(members)
            for members, scale in zip(each, scales, strict=True)
        ]
        mix = groups_of_probabilities if are_classes else groups_of_moments
        return mix(each, weights, self.n_members)

    def _distribution(self, members: np.ndarray) -> EmpiricalCategorical | EmpiricalGaussian:
        if is_classifier(self):
            return EmpiricalCategorical.from_members(without_rounding(members))
        return EmpiricalGaussian.from_members(members)

    def _tempered(self, each: list[np.ndarray]) -> np.ndarray:
        """Members of the mixture, at its temperature."""
        mixture = self._distribution(self._groups(each))
        return Temperature(self.temperature_)(mixture).members.numpy()


@members_of_classifier.register(MixedModels)
def _(model, X):
    kept = [fitted for fitted in model.models_ if fitted is not None]
    return model._tempered([model._read(fitted, X) for fitted in kept])


@members_of_regressor.register(MixedModels)
def _(model, X, n_targets):
    fits = zip(model.models_, model.residual_variances_, strict=True)
    each = [
        with_variance(model._read(fitted, X), residual, model._y_scale)
        for fitted, residual in fits
        if fitted is not None
    ]
    return moments_of_members(model._tempered(each))


def _is_timed(model: BaseEstimator) -> bool:
    """Tell whether a model takes a time to fit in, and has not been given one."""
    return model.get_params(deep=False).get("max_time", ...) is None


def _share_time(models: list, seconds: float, n_fits: int) -> None:
    """Give models that have none a time, so that `n_fits` of each take so many seconds."""
    timed = [model for model in models if _is_timed(model)]
    for model in timed:
        model.set_params(max_time=seconds / (n_fits * len(timed)))


def groups_of_moments(each: list[np.ndarray], weights: np.ndarray, n_groups: int) -> np.ndarray:
    """Means and variances (n, G, t, 2) of groups of the members of models, (n, S_i, t, 2) each.

    Mean and total variance are those of the mixture. See `epistemic_of` for its parts.
    """
    own = np.stack([members[..., 0].mean(axis=1) for members in each])  # (m, n, t)
    mean = np.tensordot(weights, own, axes=1)
    within = np.stack([members[..., 0].var(axis=1) for members in each])
    epistemic, spread = epistemic_of(weights, own - mean, within)
    members = np.concatenate(each, axis=1)
    shares = _shares(each, weights, n_groups)
    gaps = shares @ (members[..., 0] - mean[:, None])  # squares of values far from 0 lose digits
    found = np.square(gaps).mean(axis=1)
    ratio = _ratio(epistemic, found)
    variances = shares @ members[..., 1] + (spread - np.square(ratio) * found)[:, None]
    return np.stack([mean[:, None] + ratio[:, None] * gaps, variances], axis=-1)


def groups_of_probabilities(
    each: list[np.ndarray], weights: np.ndarray, n_groups: int
) -> np.ndarray:
    """Probabilities (n, G, K) of groups of the members of models, (n, S_i, K) each.

    The mean is that of the mixture; squared deviations from it are those of `epistemic_of`, as far
    as all probabilities are positive.
    """
    own = np.stack([members.mean(axis=1) for members in each])
    mean = np.tensordot(weights, own, axes=1)
    within = np.stack([members.var(axis=1).sum(axis=-1) for members in each])
    between = np.sqrt(np.square(own - mean).sum(axis=-1))
    epistemic, _ = epistemic_of(weights, between, within)
    members = np.concatenate(each, axis=1)
    groups = _shares(each, weights, n_groups).astype(members.dtype) @ members
    found = np.square(groups - mean[:, None]).sum(axis=-1).mean(axis=1)
    return stretched(groups, _ratio(epistemic, found)[:, None])


def epistemic_of(
    weights: np.ndarray, gaps: np.ndarray, within: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Epistemic variance (...) of a mixture of models, and the variance of all their members.

    Of models (m,) `gaps` (m, ...) are the means less that of the mixture, and `within` (m, ...)
    their epistemic variances V_i. With errors of one correlation r, the mean of the mixture has

        V = r (sum_i w_i sqrt(V_i))^2 + (1 - r) sum_i w_i^2 V_i,

    and models without bias differ by ``sum_i w_i V_i - V``. What they differ by more is bias.
    """
    spread = np.tensordot(weights, within, axes=1)
    between = np.tensordot(weights, np.square(gaps), axes=1)
    together = np.square(np.tensordot(weights, np.sqrt(within), axes=1))
    apart = np.tensordot(np.square(weights), within, axes=1)
    of_mean = _CORRELATION * together + (1 - _CORRELATION) * apart
    return of_mean + np.maximum(between - (spread - of_mean), 0), spread + between


def _shares(each: list[np.ndarray], weights: np.ndarray, n_groups: int) -> np.ndarray:
    counts = [members.shape[1] for members in each]
    return shares_of_groups(np.repeat(weights / counts, counts), n_groups)


def _ratio(wanted: np.ndarray, found: np.ndarray) -> np.ndarray:
    """By what to multiply deviations of a variance to have another; 1 where there are none."""
    can = found > _LEAST_SPREAD * wanted
    return np.sqrt(np.divide(wanted, found, out=np.ones_like(wanted), where=can))


def stacking_weights(scores: np.ndarray, weight=None) -> np.ndarray:
    """Weights (m,) of a mixture that maximise its likelihood, small ones set to zero.

    `scores` (m, n) are log-densities of n samples under m models, `weight` is that of the samples.
    The objective is concave. Expectation-maximisation climbs it without a step size.
    """
    likelihoods = np.exp(scores - scores.max(axis=0))
    weights = np.full(len(scores), 1 / len(scores))
    for _ in range(_MOST_STEPS):
        shares = weights[:, None] * likelihoods
        updated = np.average(shares / shares.sum(axis=0), axis=1, weights=weight)
        change, weights = np.abs(updated - weights).max(), updated
        if change < _TOLERANCE:
            break
    kept = np.where(weights < _LEAST_WEIGHT, 0.0, weights)
    return kept / kept.sum()


class _Process(GaussianProcessRegressor):
    """One whose features may be irrelevant: a length scale at its upper bound says that."""

    def fit(self, X, y):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return super().fit(X, y)


def check_models(models, *, or_fitted: bool = False) -> None:
    """Raise TypeError or ValueError unless these are estimators to fit, of one kind."""
    if not isinstance(models, (list, tuple)) or not models:
        raise ValueError(f"models must be a list of at least one estimator, got {models!r}.")
    for model in models:
        if isinstance(model, type) or not (hasattr(model, "fit") and hasattr(model, "get_params")):
            raise TypeError(f"models must be estimators, got {model!r}.")
        if is_prefitted(model) and not or_fitted:
            raise ValueError(
                "models must not be fitted to be fitted together; fitted ones are a "
                f"FittedModels. Got {model!r}."
            )
        check_probabilities(model)
    kinds = {tags_of(model).estimator_type for model in models}
    if kinds not in ({"classifier"}, {"regressor"}):
        names = [type(final_step(model)[0]).__name__ for model in models]
        raise ValueError(f"models must be all classifiers or all regressors, got {names}.")


def models_for(task: str, X=None, y=None, max_time: float | None = None) -> list[BaseEstimator]:
    """Return an ensemble of networks, boosting, a forest, and of numbers what is smoother.

    That is a linear model of classes, and a Gaussian process of few numbers. Without samples it is
    the models that any X and y have.
    """
    are_numbers = X is not None and _are_numbers(X)
    if task == "classification":
        trees = HistGradientBoostingClassifier(**_TREES), RandomForestClassifier()
        models = [BayesianEnsembleClassifier(), *(_with_codes(model, X) for model in trees)]
        if are_numbers:
            models.append(make_pipeline(StandardScaler(), LogisticRegression(max_iter=1_000)))
        return models
    boosting = _with_codes(HistGradientBoostingRegressor(**_TREES), X)
    if y is not None and y.ndim > 1:
        boosting = MultiOutputRegressor(boosting)
    models = [BayesianEnsembleRegressor(), boosting, _with_codes(RandomForestRegressor(), X)]
    share = len(X) / _MOST_OF_PROCESS if are_numbers else math.inf
    seconds = 6 * _SECONDS_OF_PROCESS * share**3  # of five folds and all samples
    if share <= 1 and (max_time is None or seconds <= max_time / 2):
        n, n_features = X.shape
        scale = np.sqrt(n_features)
        if n**2 * n_features <= _MOST_OF_GRADIENT:
            scale = np.full(n_features, scale)
        process = _Process(ConstantKernel() * RBF(scale) + WhiteKernel(0.1), normalize_y=True)
        models.append(make_pipeline(StandardScaler(), process))
    return models


def _with_codes(boosting: BaseEstimator, X) -> BaseEstimator:
    """Put what makes numbers of text before boosting, which takes categories but no text."""
    text = make_column_selector(dtype_include=["object", "string"])
    if not hasattr(X, "iloc") or not text(X):
        return boosting
    unknown = {"handle_unknown": "use_encoded_value", "unknown_value": np.nan}
    encoder = OrdinalEncoder(**unknown, encoded_missing_value=np.nan)
    columns = make_column_transformer(
        (encoder, text), remainder="passthrough", verbose_feature_names_out=False
    )
    return make_pipeline(columns.set_output(transform="pandas"), boosting)


def _are_numbers(X) -> bool:
    """Tell whether X is a table of finite numbers."""
    try:
        return X.ndim == 2 and bool(np.isfinite(np.asarray(X, dtype=float)).all())
    except (TypeError, ValueError):
        return False
