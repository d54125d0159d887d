# SPDX-License-Identifier: BSD-3-Clause
"""Estimators of several models: fitted ones that belong together, and one for each quantile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin
from sklearn.utils import check_array, check_random_state, gen_batches
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from .._estimator.functions import align_classes
from .._estimator.unwrapping import has_members, seeded_clone, tags_of, weights_for
from .._training.trainer import SEED_LIMIT
from .._utils.validation import OneOf, Seed, errors_about
from .._version import API_PAGE_OF_MODULE
from ..distributions import Gaussian
from ._members import (
    as_net_takes,
    members_of_classifier,
    members_of_regressor,
    moments_of_means,
    moments_of_members,
    moments_of_one,
    moments_of_quantiles,
    read_moments,
    read_probabilities,
)

_ESTIMATOR_TYPES = {"classification": "classifier", "regression": "regressor"}

_CHUNK_ROWS = 2048  # samples that a torch module is given at a time


class _KnowsColumns(BaseEstimator):
    """Base of estimators of models, the first of which knows the columns of X."""

    _doc_link_module, _doc_link_template = "skdistill", API_PAGE_OF_MODULE
    _first_model: Any

    @property
    def n_features_in_(self) -> int:
        """Number of columns of X."""
        return int(self._first_model.n_features_in_)

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of the columns of X."""
        return np.asarray(self._first_model.feature_names_in_)


class EstimatorOfModels(MetaEstimatorMixin, _KnowsColumns, ABC):
    """Base of estimators that fit models."""

    @abstractmethod
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the models.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples, for models that take them, in a Pipeline for the last step.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If a model or a parameter is not one that the class describes.
        """

    @abstractmethod
    def predict(self, X: Any) -> Any:
        """Predict the class of the largest mean probability, or the mean.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_targets)
        """

    @property
    def _first_model(self) -> BaseEstimator:
        models = vars(self).get("models_") or [self.estimator_]
        return next(model for model in models if model is not None)


class FittedModels(_KnowsColumns):
    """Fitted models that belong together, as one estimator whose members they are.

    Like ``sklearn.frozen.FrozenEstimator`` it is its own clone, and its fit only checks. It may be
    the `teacher` of a student.

    Parameters
    ----------
    models : list
        Fitted classifiers with ``predict_proba`` or fitted regressors, skorch nets among them, or
        torch modules. If all have members of their own (ensembles and students of this package, a
        :class:`Teacher`, Pipelines around them), these are joined, with equal weights. Otherwise
        each model is one member, the mixture of its own members if it has any. Modules run in
        evaluation mode, in the dtype and on the device of their parameters. They give logits
        (n, K); or means (n, t), or means and as many raw variances (n, 2 t) as
        :meth:`skdistill.distributions.Gaussian.from_outputs` takes them, in units of y.
    task : {"classification", "regression"}, default=None
        Required for torch modules.
    classes : array-like of shape (n_classes,), default=None
        Of the columns of torch modules; None is the classes in the y of the teacher's fit, sorted.
    """

    def __init__(self, models: Any, task: Any = None, classes: ArrayLike | None = None):
        self.models = models
        self.task = task
        self.classes = classes

    def fit(self, X: object, y: object = None, **fit_params: Any) -> Self:
        """Check the models; nothing is fitted.

        Parameters
        ----------
        X, y, **fit_params : object
            Ignored.

        Returns
        -------
        self

        Raises
        ------
        NotFittedError, TypeError, ValueError
            If a model is not fitted, is neither classifier nor regressor, or the models are of
            different kinds or know different classes.
        """
        task = self._resolve_task()
        for model in self.models:
            if isinstance(model, nn.Module):
                continue
            check_is_fitted(model)
            if task == "classification" and not hasattr(model, "predict_proba"):
                raise TypeError(f"models must have predict_proba, which this one has not: {model}.")
        known = {
            f"{type(model).__name__} (number {number})": np.asarray(model.classes_).tolist()
            for number, model in enumerate(self.models)
            if hasattr(model, "classes_")
        }
        if self.classes is not None:
            with errors_about("classes"):
                given = check_array(self.classes, dtype=None, ensure_2d=False, input_name="classes")
            known = {"the parameter classes": given.tolist(), **known}
        if len({frozenset(classes) for classes in known.values()}) > 1:
            raise ValueError(f"models must know the same classes, got {known}.")
        return self

    def __sklearn_clone__(self):
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.estimator_type = _ESTIMATOR_TYPES[self._resolve_task()]
        return tags

    @property
    def classes_(self) -> np.ndarray:
        """Class of each column of probabilities."""
        if self.classes is not None:
            return np.asarray(self.classes)
        for model in self.models:
            if hasattr(model, "classes_"):
                return np.asarray(np.asarray(model.classes_).tolist())
        raise AttributeError("torch modules do not know their classes.")

    @property
    def are_joined(self) -> bool:
        """Whether the models' own members are those of the teacher."""
        return all(has_members(model) for model in self.models)

    @property
    def _first_model(self) -> Any:
        return self.models[0]

    def _resolve_task(self) -> str:
        OneOf((None, *_ESTIMATOR_TYPES)).check(self.task, "task")
        if not self.models:
            raise ValueError("models must be at least one, got none.")
        tasks = [task for task in (self.task, *map(_task_of, self.models)) if task is not None]
        if not tasks:
            raise ValueError(
                f"task must be one of {list(_ESTIMATOR_TYPES)} for models without a type, such "
                f"as {type(self.models[0]).__name__}; got None."
            )
        if len(set(tasks)) > 1:
            found = {type(model).__name__: _task_of(model) for model in self.models}
            raise ValueError(f"models must be of one task; got task={self.task!r} and {found}.")
        return tasks[0]


def _task_of(model) -> str | None:
    """Task of a model; None for torch modules and skorch's plain nets, which have no type."""
    if isinstance(model, nn.Module):
        return None
    if not (hasattr(model, "fit") and hasattr(model, "predict")):
        raise TypeError(f"models must be estimators, skorch nets or torch modules, got {model!r}.")
    kind = tags_of(model).estimator_type
    return next((task for task, of_task in _ESTIMATOR_TYPES.items() if of_task == kind), None)


@members_of_classifier.register(FittedModels)
def _(model, X):
    if model.are_joined:
        own = [(read_probabilities(member, X), member.classes_) for member in model.models]
        return np.concatenate([align_classes(*one, model.classes_) for one in own], axis=1)
    members = []
    for one in model.models:
        if isinstance(one, nn.Module):
            members.append(_outputs(one, X).softmax(-1).numpy())
            continue
        found = one.predict_proba(as_net_takes(one, X))
        if hasattr(one, "classes_"):  # not a skorch net that never saw labels
            found = align_classes(found, one.classes_, model.classes_)
        members.append(found)
    if len({member.shape for member in members}) > 1:
        raise ValueError(
            "models must give as many probabilities each, got shapes "
            f"{[member.shape for member in members]}."
        )
    return np.stack(members, axis=1)


@members_of_regressor.register(FittedModels)
def _(model, X, n_targets):
    if model.are_joined:
        return np.concatenate([read_moments(one, X, n_targets) for one in model.models], axis=1)
    moments = []
    for one in model.models:
        if not isinstance(one, nn.Module):
            moments.append(moments_of_one(one, X, n_targets))
            continue
        outputs = _outputs(one, X)
        if outputs.shape[1] not in (n_targets, 2 * n_targets):
            raise ValueError(
                f"models must give a mean, or a mean and a raw variance, for each of {n_targets} "
                f"target(s); {type(one).__name__} gives shape {tuple(outputs.shape)}."
            )
        if outputs.shape[1] == n_targets:
            moments.append(moments_of_means(outputs.numpy()))
        else:
            both = torch.stack(Gaussian.from_outputs(outputs), dim=-1)
            moments.append(moments_of_members(both.numpy()))
    return np.stack(moments, axis=1)


def _outputs(module: nn.Module, X) -> Tensor:
    """Outputs (n, columns) of a torch module in evaluation mode."""
    rows, like = np.asarray(X), next(module.parameters(), torch.zeros(()))
    module.eval()
    with torch.inference_mode():
        chunks = [
            module(torch.tensor(rows[chunk], dtype=like.dtype, device=like.device)).cpu()
            for chunk in gen_batches(len(rows), _CHUNK_ROWS)
        ]
    outputs = torch.cat(chunks)
    if outputs.ndim != 2:
        raise ValueError(
            f"models must give two axes, rows and columns; {type(module).__name__} gives shape "
            f"{tuple(outputs.shape)}."
        )
    return outputs


class QuantileModels(RegressorMixin, EstimatorOfModels):
    """Regressors that predict a quantile each, as one that predicts a mean and a variance.

    The quantile function is taken to be linear in the standard normal's between the levels and
    beyond them, so that quantiles of a normal distribution have its moments exactly. Quantiles that
    cross are sorted. It may be the `teacher` of a student.

    Parameters
    ----------
    models : list of estimators
        Such as ``HistGradientBoostingRegressor(loss="quantile", quantile=0.1)``, of one target.
        Each is cloned and fitted; one that is fitted already comes in a ``FrozenEstimator``.
    quantiles : array-like of shape (n_models,)
        The level of each model, between 0 and 1: at least two different ones.
    random_state : int, RandomState instance or None, default=None
        For models whose own ``random_state`` is None.

    Attributes
    ----------
    models_ : list of estimators
        The fitted models.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
    """

    def __init__(
        self,
        models: Any,
        quantiles: Any,
        *,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.models = models
        self.quantiles = quantiles
        self.random_state = random_state

    def fit(self, X: object, y: object, sample_weight: object = None) -> Self:
        """Fit each model; levels must be as many, between 0 and 1, and not all the same."""
        Seed().check(self.random_state, "random_state")
        with errors_about("quantiles"):
            levels = check_array(
                self.quantiles, dtype=float, ensure_2d=False, input_name="quantiles"
            )
        if levels.shape != (len(self.models),) or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(
                f"quantiles must be {len(self.models)} levels between 0 and 1, one a model; got "
                f"{self.quantiles!r}."
            )
        if len(np.unique(levels)) < len(levels) or len(levels) < 2:
            raise ValueError(f"quantiles must be two different levels or more, got {levels}.")
        random = check_random_state(self.random_state)
        models = [seeded_clone(model, random.randint(SEED_LIMIT)) for model in self.models]
        self.models_ = [m.fit(X, y, **weights_for(m, sample_weight)) for m in models]
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the mean, and the standard deviation if asked for.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        return_std : bool, default=False

        Returns
        -------
        mean : ndarray of shape (n_samples,)
        std : ndarray of shape (n_samples,)
            Only if `return_std`.
        """
        check_is_fitted(self)
        quantiles = np.stack([model.predict(X) for model in self.models_], axis=1)
        mean, variance = moments_of_quantiles(quantiles, self.quantiles)
        return (mean, np.sqrt(variance)) if return_std else mean
