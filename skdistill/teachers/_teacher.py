# SPDX-License-Identifier: BSD-3-Clause
"""The meta-estimator that makes a teacher of any classifier or regressor."""

from __future__ import annotations

from functools import partial
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._data.checks import check_trainable, check_weights
from .._data.columns import as_table
from .._estimator.functions import align_classes, predict_members
from .._estimator.unwrapping import final_step, has_members, is_prefitted, tags_of, weights_for
from .._utils.moments import resolves, standardisation
from .._utils.reporting import reporting, stage
from .._utils.validation import Number
from ..distributions import EmpiricalCategorical, EmpiricalGaussian, Uncertainty
from ._held_out import (
    EpistemicScale,
    as_rows,
    folds_of,
    has_own_scale,
    in_batches,
    in_chunks,
    measured_scale,
    read_out_of_fold,
    residual_variance,
    rows_at,
    with_variance,
)
from ._members import (
    check_member_predictions,
    check_probabilities,
    dtype_for,
    group_moments,
    group_probabilities,
    read_moments,
    read_probabilities,
)
from ._mixed import MixedModels, check_models
from ._models import EstimatorOfModels, FittedModels, QuantileModels

_ROWS_TO_TRY, _SMALL_SQUARE = 500, 0.01  # samples; squared error over variance of interpolation


def as_teacher(
    model: object,
    *,
    max_members: int | None = None,
    batch_size: int | None = None,
    epistemic_scale: float | str | None = "halves",
) -> BaseEstimator:
    """Make a teacher, whose members a student can imitate, of a model or of fitted ones.

    Parameters
    ----------
    model : estimator or list of fitted models
        One of

        - an estimator of this package with members, or a Pipeline, search, FrozenEstimator or
          TransformedTargetRegressor around one: returned as it is, unless `max_members`,
          `batch_size` or a number for `epistemic_scale` is given;
        - any other classifier with ``predict_proba``, or regressor, which becomes a
          :class:`Teacher`: among them :class:`MixedModels`, of models of different kinds,
          :class:`QuantileModels`, of models that predict a quantile each, and
          :class:`FittedModels`, of torch modules;
        - a list of fitted models that belong together: it is short for
          ``FittedModels(models)``.
    max_members, batch_size : int, default=None
        See :class:`Teacher`.
    epistemic_scale : "halves", None or float, default="halves"
        See :class:`Teacher`.

    Returns
    -------
    teacher : estimator
        Its ``predict_members(X)``, or ``skdistill.predict_members(teacher, X)`` for what was
        returned as it is, gives class probabilities (n, S, K) or means and variances (n, S, t, 2).

    Raises
    ------
    TypeError, ValueError
        If no teacher can be made of `model`, or the models in a list do not belong together.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skdistill.teachers import as_teacher
    >>> X, y = load_iris(return_X_y=True)
    >>> forest = RandomForestClassifier(100, random_state=0)
    >>> as_teacher(forest, max_members=20).fit(X, y).predict_members(X[:2]).shape
    (2, 20, 3)
    """
    model = FittedModels(list(model)) if isinstance(model, (list, tuple)) else model
    _check_model(model)
    is_scaled = not (epistemic_scale is None or isinstance(epistemic_scale, str))
    if has_members(model) and max_members is None and batch_size is None and not is_scaled:
        return model
    return Teacher(
        model, max_members=max_members, batch_size=batch_size, epistemic_scale=epistemic_scale
    )


class Teacher(EstimatorOfModels):
    """A classifier or regressor with members that a student can imitate.

    Members have equal weights; their mean is the model's own prediction. Models that are not in the
    table of :doc:`/user_guide/teachers`, boosting among them, have one member: the epistemic part
    is not available.

    A member has the variance that its model predicts, of at least 1e-6 of that of y. Regressors
    that predict none are given the residual variance of samples that they have not seen; leaves of
    trees with squared error and one target have their own in part. A model that is fitted already
    is evaluated on the X and y that `fit` is given, which it should not have seen.

    Parameters
    ----------
    estimator : estimator
        Cloned and fitted by `fit`. In a Pipeline, search or FrozenEstimator, the innermost
        estimator determines the members.
    max_members : int, default=None
        Larger ensembles are grouped into this many mixtures of neighbouring members, so that a
        student needs no head for each of 500 trees. The mean and the total uncertainty stay, but of
        mixtures of g members the epistemic variance, or mutual information, is about 1/g of what it
        was, and the rest goes to the aleatoric part, before `epistemic_scale`. None keeps every
        member.
    batch_size : int, default=None
        Samples that the model is asked about at a time, for models whose memory grows with them
        (:doc:`/user_guide/foundation_models`). None leaves it to scikit-learn's ``working_memory``.
    epistemic_scale : "halves", None or float, default="halves"
        By what the variance between members is multiplied, to be on one scale for all models.
        "halves" also fits the model on three random thirds of the samples, which takes about as
        long as one more fit: the factor is the ratio of the mean squared difference of two models,
        on the third that neither has seen, to the sum of the variances that they state. Where the
        squared difference is not proportional to the stated variance, the variance is also raised
        to a power. Models that are fitted already, Gaussian processes, Bayesian linear models,
        estimators of this package and :class:`MixedModels`, whose models are each on a scale of
        their own, keep it, as do all with fewer than 40 samples, or than 3 of a class. None keeps
        it too. The mean stays, and so does the total: a variance that the epistemic part loses is
        aleatoric, and what it gains was, but for 5 % of the total, which stay aleatoric. Class
        probabilities spread as far as all of a sample's are positive.

    Attributes
    ----------
    estimator_ : estimator
        The fitted model.
    n_members_ : int
    classes_ : ndarray of shape (n_classes,)
        Classes in the order of the members' columns. Only for classifiers.
    n_outputs_ : int
        Number of targets. Only for regressors.
    epistemic_scale_ : float, ndarray of shape (`n_outputs_`,) or None
        By what the epistemic variance of a sample was multiplied where it was as large as on
        average, of several targets one each; None if the model keeps its own scale.
    residual_variance_ : ndarray of shape (`n_outputs_`,) or None
        In squared units of y; None if members predict their variance. Only for regressors.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
    """

    _scale: EpistemicScale | None = None

    def __init__(
        self,
        estimator: BaseEstimator,
        *,
        max_members: int | None = None,
        batch_size: int | None = None,
        epistemic_scale: Any = "halves",
    ):
        self.estimator = estimator
        self.max_members = max_members
        self.batch_size = batch_size
        self.epistemic_scale = epistemic_scale

    def fit(self, X: object, y: object, sample_weight: object = None) -> Self:
        """Fit the model, and find the residual variance of a regressor that needs one.

        The model must be a classifier with ``predict_proba``, and y have two classes or more in one
        column, all of which a model that is fitted already knows; or a regressor.
        """
        for name in ("max_members", "batch_size"):
            Number(Integral, 1, others=(None,)).check(getattr(self, name), name)
        scale = Number(Real, 0, closed="neither", others=("halves", None))
        scale.check(self.epistemic_scale, "epistemic_scale")
        _check_model(self.estimator)
        self.__dict__.pop("n_members_", None)  # a fit that fails leaves no fitted teacher behind
        self._scale = None
        X = as_table(X)
        weights = weights_for(self.estimator, sample_weight)
        model = clone(self.estimator)
        is_measured = self.epistemic_scale == "halves" and not (
            has_own_scale(model) or isinstance(final_step(model)[0], MixedModels)
        )
        self.estimator_ = model.fit(X, y, **weights)
        X, y = as_rows(X), np.asarray(y)
        weight, first = check_weights(sample_weight, len(y)), rows_at(X, slice(0, 1))
        if is_classifier(self):
            if y.ndim == 2 and y.shape[1] > 1:
                raise ValueError(
                    f"y must have one column of classes to fit a teacher, got {y.shape[1]} columns."
                )
            in_y = np.unique(y)
            self.classes_ = np.asarray(getattr(self.estimator_, "classes_", in_y))
            if len(self.classes_) < 2:
                raise ValueError(f"y must hold at least two classes, got 1 class: {in_y.tolist()}.")
            if unknown := set(in_y.tolist()) - set(self.classes_.tolist()):
                raise ValueError(
                    f"y holds classes {sorted(unknown)}, which the fitted teacher does not know; "
                    f"it knows {self.classes_.tolist()}."
                )
            n_columns = self._read(first).shape[-1]
            if n_columns != len(self.classes_):
                raise ValueError(
                    f"teacher gives {n_columns} columns, but y holds {len(self.classes_)} classes, "
                    f"{self.classes_.tolist()}; name those of torch modules by FittedModels(..., "
                    "classes=...)."
                )
            expected = {"n_classes": n_columns}
        else:
            self._y_is_1d = y.ndim == 1 or y.shape[1] == 1
            self.n_outputs_ = 1 if self._y_is_1d else y.shape[1]
            targets = y.reshape(len(y), -1)
            check_trainable(targets.astype(np.float64), np.float64, "y")
            self._y_scale, self.residual_variance_ = standardisation(targets, weight), None
            if self._read(first)[..., 2].any():
                samples = X, y, sample_weight, self.batch_size
                self.residual_variance_ = residual_variance(
                    self.estimator, self.estimator_, self._read, *samples
                )
            expected = {"n_targets": self.n_outputs_}
        members = self._members(first, self.max_members)
        check_member_predictions(members, 1, name="teacher's predictions", **expected)
        n_members = members.shape[1]
        if is_measured and n_members > 1:
            given = self.estimator, self.estimator_, self._expected
            self._scale = measured_scale(*given, X, y, weight)
        elif isinstance(self.epistemic_scale, Real):
            self._scale = EpistemicScale(np.full(1, float(self.epistemic_scale)))
        self.n_members_ = n_members
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_members_")

    def __sklearn_tags__(self):
        tags = tags_of(self.estimator)
        tags.array_api_support = False
        if tags.classifier_tags is not None:
            tags.classifier_tags.multi_label = False
            tags.target_tags.multi_output = False
        return tags

    def predict_members(self, X: ArrayLike) -> np.ndarray:
        """Predict with every member.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)

        Returns
        -------
        members : ndarray of shape (n_samples, n_members, n_classes) or \
                (n_samples, n_members, n_targets, 2)
            Class probabilities; or means ``[..., 0]`` in units of y and variances ``[..., 1]`` in
            squared units. float32 if X is, unless the targets in `fit` lie too far from 0 for its
            precision.
        """
        check_is_fitted(self)
        return self._members(X, self.max_members)

    def predict_distribution(self, X: ArrayLike) -> EmpiricalCategorical | EmpiricalGaussian:
        """Predict the distribution that everything else is read off.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)

        Returns
        -------
        distribution : EmpiricalCategorical or EmpiricalGaussian
            Of a classifier or a regressor.
        """
        family = EmpiricalCategorical if is_classifier(self) else EmpiricalGaussian
        return family.from_members(self.predict_members(X))

    def predict_uncertainty(self, X: ArrayLike) -> Uncertainty:
        """Predict the total, aleatoric and epistemic uncertainty.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)

        Returns
        -------
        uncertainty : Uncertainty
            Arrays of shape (n_samples,), or (n_samples, n_targets) for several targets: entropies
            in nats, or variances in squared units of y. With one member the parts are None.
        """
        found = self.predict_distribution(X).uncertainty()
        total, aleatoric, epistemic = (self._per_target(part.numpy()) for part in found)
        if self.n_members_ == 1:
            return Uncertainty(total, None, None, measure=found.measure)
        return Uncertainty(total, aleatoric, epistemic, measure=found.measure)

    def predict(self, X: ArrayLike) -> np.ndarray:
        check_is_fitted(self)
        mean = self._members(X, 1)[:, 0]
        if is_classifier(self):
            return self.classes_[mean.argmax(axis=-1)]
        return self._per_target(mean[..., 0])

    @available_if(is_classifier)
    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Predict the members' mean class probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        return self._members(X, 1)[:, 0]

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy of a classifier, the R2 of a regressor.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        score : float
        """
        score = accuracy_score if is_classifier(self) else r2_score
        return score(y, self.predict(X), sample_weight=sample_weight)

    @property
    def epistemic_scale_(self) -> Any:
        """By what the mean epistemic variance was multiplied; None if it was not."""
        check_is_fitted(self)
        if self._scale is None:
            return None
        if is_classifier(self) or self._y_is_1d:
            return float(self._scale.factor[0])
        return np.broadcast_to(self._scale.factor, self.n_outputs_)

    def _read(self, X, model: Any = None) -> np.ndarray:
        """Predictions of all members: probabilities (n, S, K), or moments (n, S, t, 3)."""
        model = self.estimator_ if model is None else model
        if is_classifier(self):
            read = partial(read_probabilities, model)
        else:
            read = partial(read_moments, model, n_targets=self.n_outputs_)
        return in_batches(read, X, self.batch_size)

    def _expected(self, model, X) -> np.ndarray:
        """Probabilities, or means, (n, S, t) of the members of a model, grouped as asked for."""
        members, most = self._read(X, model), self.max_members
        if is_classifier(self):
            classes = getattr(model, "classes_", self.classes_)
            members = align_classes(members, classes, self.classes_)
            return members if most is None else group_probabilities(members, most)
        return (members if most is None else group_moments(members, most))[..., 0]

    def _members(self, X, most: int | None) -> np.ndarray:
        """Predictions of the members, grouped if there are more than `most`."""
        X = as_rows(X)
        if most is None:
            members = self._read(X)
        else:
            group = group_probabilities if is_classifier(self) else group_moments
            members = in_chunks(self._read, X, lambda members, _: group(members, most))
        dtype = dtype_for(X)
        if is_classifier(self):
            return self.on_scale(members).astype(dtype, copy=False)
        members = with_variance(members, self.residual_variance_, self._y_scale[1])
        if not np.isfinite(members).all():
            row = int((~np.isfinite(members).all(axis=(1, 2, 3))).argmax())
            raise ValueError(
                "X must have samples for which the model's arithmetic does not overflow; what "
                f"{type(self.estimator).__name__} predicts for sample {row} is not finite."
            )
        members = self.on_scale(members)
        return members.astype(dtype, copy=False) if resolves(dtype, *self._y_scale) else members

    def on_scale(self, members: np.ndarray) -> np.ndarray:
        """Scale the epistemic part of predictions of members, such as out-of-fold ones.

        Parameters
        ----------
        members : ndarray of shape (n_samples, n_members, ...)
            Probabilities, or means and variances, as `predict_members` returns them.

        Returns
        -------
        ndarray of the shape of members
            The same predictions where there is no scale.
        """
        if self._scale is None or members.shape[1] == 1:
            return members
        scaled = self._scale.of_probabilities if is_classifier(self) else self._scale.of_moments
        return scaled(members)

    def _per_target(self, array: np.ndarray) -> np.ndarray:
        """Drop the axis of targets where y had none."""
        return array[:, 0] if not is_classifier(self) and self._y_is_1d else array


def _check_model(model) -> None:
    inner, _ = final_step(model)
    if isinstance(inner, FittedModels):
        inner.fit(None)
    elif isinstance(inner, QuantileModels):
        check_models(inner.models, or_fitted=True)
    if isinstance(inner, type) or not (hasattr(inner, "fit") and hasattr(inner, "get_params")):
        raise TypeError(
            "teacher must be an estimator, or a list of fitted models; FittedModels([module], "
            f"task=...) is an estimator of torch modules. Got {inner!r}."
        )
    kind = tags_of(model).estimator_type
    if kind not in ("classifier", "regressor"):
        raise TypeError(
            f"teacher must be a classifier or a regressor, and {type(inner).__name__} is neither."
        )
    check_probabilities(model)


def out_of_fold_members(
    teacher: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    *,
    cv: object = 5,
    sample_weight: ArrayLike | None = None,
    random_state: int | np.random.RandomState | None = None,
    name: str = "cv",
    verbose: int | bool = 0,
) -> np.ndarray:
    """Predict members of every sample by a clone of the teacher that has not seen the sample.

    On the samples that they were fitted on, the members of an overfitted teacher agree; a student
    of out-of-fold predictions sees their disagreement elsewhere. (In regression a model without
    bags is also fitted five times in every fold, for its residual variance.) The epistemic part has
    a scale of its own in every fold, see :class:`Teacher`.

    Parameters
    ----------
    teacher : estimator
        Anything that :func:`as_teacher` takes and that is not fitted yet.
    X : array-like of shape (n_samples, ...)
    y : array-like of shape (n_samples,) or (n_samples, n_targets)
    cv : int, cross-validation splitter or iterable of pairs of train and test samples, default=5
        Must put every sample into one test fold. A number makes shuffled folds, stratified by
        class.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples in the fits.
    random_state : int, RandomState instance or None, default=None
        For the folds that a number makes.
    name : str, default="cv"
        What to call `cv` in errors.
    verbose : int, default=0
        1 prints how long it takes, 2 also a line after each fold, with the time left.

    Returns
    -------
    members : ndarray of shape (n_samples, n_members, n_classes) or \
            (n_samples, n_members, n_targets, 2)
        Classes are those in y, sorted; one that was missing from a fit has probability zero.

    Raises
    ------
    TypeError, ValueError
        If the teacher is fitted already, a sample is in no test fold or in several, or the teachers
        have different numbers of members.
    """
    teacher, X, y = as_teacher(teacher), as_rows(X), np.asarray(y)
    if is_prefitted(teacher.estimator if isinstance(teacher, Teacher) else teacher):
        raise ValueError(
            f"teacher must not be fitted to be fitted on the folds of {name}; the given one is, "
            "and stays so."
        )
    classes = np.unique(y) if is_classifier(teacher) else None
    weight = check_weights(sample_weight, len(y))
    folds = folds_of(cv, y, classes is not None, random_state, name)

    def read(fitted, rows):
        members = predict_members(fitted, rows)
        return members if classes is None else align_classes(members, fitted.classes_, classes)

    with reporting("out_of_fold_members", verbose), stage(f"{folds.get_n_splits(X, y)} folds"):
        return read_out_of_fold(teacher, X, y, weight, folds, read, name, verbose)


def interpolates(
    teacher: BaseEstimator, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
) -> bool:
    """Tell whether a fitted regressor nearly hits the targets that it was fitted on.

    It does if its errors at some of these, standardised by the total variance that it predicts,
    have a mean square below 0.01, of one target at least. (It would be 1 on samples not seen.)
    """
    # A residual variance comes from samples not seen, but for a model that was fitted before.
    model, _ = final_step(teacher)
    has_residual = getattr(model, "residual_variance_", None) is not None
    if is_classifier(teacher) or (has_residual and not is_prefitted(model.estimator)):
        return False
    y = np.asarray(y, dtype=float)
    rows, targets = as_rows(X), y.reshape(len(y), -1)
    some = slice(None, None, max(1, len(targets) // _ROWS_TO_TRY))
    members = predict_members(teacher, rows_at(rows, some))
    mean, variance = members[..., 0].mean(axis=1), members[..., 1].mean(axis=1)
    squares = np.square(targets[some] - mean) / (variance + members[..., 0].var(axis=1))
    weight = check_weights(sample_weight, len(targets))
    weights = None if weight is None or not weight[some].any() else weight[some]
    return bool((np.average(squares, axis=0, weights=weights) < _SMALL_SQUARE).any())
