# SPDX-License-Identifier: BSD-3-Clause
"""Finding the model inside scikit-learn's meta-estimators, with its samples and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy, deepcopy
from inspect import Parameter, signature
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn import get_config
from sklearn.base import BaseEstimator, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import BaggingClassifier, BaggingRegressor, VotingClassifier, VotingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import ClassifierTags, RegressorTags, Tags, get_tags
from sklearn.utils.validation import check_is_fitted, validate_data

from .._training.trainer import SEED_LIMIT

# Parameters for the candidates of a search: in scikit-learn and Optuna, and in scikit-optimize.
_SEARCHED = ("param_grid", "param_distributions", "search_spaces")


def is_search(model: BaseEstimator) -> bool:
    """Tell whether a model is a search over the parameters of an estimator, of any library."""
    return hasattr(model, "estimator") and any(hasattr(model, name) for name in _SEARCHED)


def inside(model: BaseEstimator, *, fitted: bool = False) -> BaseEstimator | None:
    """Return the model in a Pipeline, search or FrozenEstimator; None in anything else.

    In a search it is the best one; before fit, the one to fit, or None if `fitted`.
    """
    if isinstance(model, FrozenEstimator):
        return model.estimator
    if isinstance(model, Pipeline):
        return model.steps[-1][1]
    if is_search(model):
        return getattr(model, "best_estimator_", None if fitted else model.estimator)
    return None


def rows_inside(model: BaseEstimator, X: ArrayLike) -> Any:
    """Return X as the model inside gets it: transformed by a Pipeline's other steps."""
    if X is None or not isinstance(model, Pipeline):
        return X
    # imbalanced-learn's Pipelines have samplers too, which change the rows of a fit only.
    steps = [named for named in model.steps[:-1] if not hasattr(named[1], "fit_resample")]
    return Pipeline(steps).transform(X) if steps else X


def final_step(model: BaseEstimator, X: Any = None) -> tuple[Any, Any]:
    """Return the model at the end of Pipelines, searches and FrozenEstimators, and its X."""
    while (inner := inside(model)) is not None:
        model, X = inner, rows_inside(model, X)
    return model, X


def innermost(
    model: BaseEstimator, X: Any, method: str, caller: str = "", composites: tuple[type, ...] = ()
) -> tuple[Any, Any, list[Callable[[Any], Any]]]:
    """Return the fitted estimator inside `model` that has `method`, and its X.

    The third value lists the inverse transforms of the targets, in the order in which they apply.
    `method` may be any attribute; errors name the function `caller`; X may be None. Models of
    several estimators, of the classes `composites`, are returned as well.
    """
    inverses: list[Callable[[Any], Any]] = []
    # FrozenEstimator delegates all attributes.
    while not (hasattr(model, method) or isinstance(model, composites)):
        inner = inside(model, fitted=True)
        if inner is not None:
            model, X = inner, rows_inside(model, X)
        elif hasattr(model, "regressor_"):  # TransformedTargetRegressor
            inverses.insert(0, model.transformer_.inverse_transform)
            model = model.regressor_
        else:
            if hasattr(model, "estimator") or hasattr(model, "regressor"):
                check_is_fitted(model)  # the model inside exists only after fit
            names = ", ".join(cls.__name__ for cls in composites)
            of_others = "skdistill.teachers.as_teacher makes one of other estimators"
            raise TypeError(
                f"{type(model).__name__} has no {method}; skdistill.{caller or method} takes a "
                "fitted skdistill estimator, or a Pipeline, search (with refit=True), "
                "FrozenEstimator or TransformedTargetRegressor around one"
                f"{f', or {names} of such. {of_others}' if names else ''}."
            )
    return model, X, inverses


def ensemble_inside(model: BaseEstimator, classes: tuple[type, ...], *, fitted: bool = True) -> Any:
    """Return the model of such a class inside, or None: the fitted one, or the one to fit."""
    while model is not None and not isinstance(model, classes):
        if isinstance(model, FrozenEstimator) and not fitted:
            return None
        if isinstance(model, TransformedTargetRegressor):
            model = getattr(model, "regressor_" if fitted else "regressor")
        else:
            model = inside(model, fitted=fitted)
    return model


def with_inside(model: BaseEstimator, innermost_model: object) -> BaseEstimator:
    """Return a copy of fitted meta-estimators around another model, with the same other steps."""
    inner = inside(model, fitted=True)
    if inner is None and not isinstance(model, TransformedTargetRegressor):
        return innermost_model
    copied = copy(model)
    if isinstance(model, FrozenEstimator):
        copied.estimator = with_inside(inner, innermost_model)
    elif isinstance(model, Pipeline):
        name, inner = model.steps[-1]
        copied.steps = [*model.steps[:-1], (name, with_inside(inner, innermost_model))]
    elif inner is not None:
        copied.best_estimator_ = with_inside(inner, innermost_model)
    else:
        copied.regressor_ = with_inside(model.regressor_, innermost_model)
    return copied


def components(model: BaseEstimator) -> tuple[list[Any], np.ndarray, Any] | None:
    """Return the estimators that a fitted bag, vote or calibrated classifier averages.

    With them come their weights, whose sum is one, and the columns of X that each reads, or None.
    """
    columns, given = None, None
    if isinstance(model, (VotingClassifier, VotingRegressor)):
        models, given = model.estimators_, model.weights
    elif isinstance(model, (BaggingClassifier, BaggingRegressor)):
        models, columns = model.estimators_, model.estimators_features_
    elif isinstance(model, CalibratedClassifierCV):
        models = model.calibrated_classifiers_
    else:
        return None
    weights = np.ones(len(models))
    if given is not None:
        named = zip(model.estimators, given, strict=True)
        weights = np.array([weight for (_, voter), weight in named if voter != "drop"], dtype=float)
    return list(models), weights / weights.sum(), columns


def components_and_rows(model: BaseEstimator, X: Any) -> Iterator[tuple[Any, float, Any]]:
    """Iterate over components, each with its weight and its X."""
    models, weights, columns = components(model) or ([], np.ones(0), None)
    if columns is not None:
        checks: dict[str, Any] = {"dtype": None, "accept_sparse": ["csr", "csc"]}
        # The members check that all is finite, as in Bagging.
        X = validate_data(model, X, reset=False, ensure_all_finite=False, **checks)
    for number, (member, weight) in enumerate(zip(models, weights, strict=True)):
        yield member, weight, X if columns is None else X[:, columns[number]]


def has_inside(model: BaseEstimator, method: str) -> bool:
    """Tell whether :func:`innermost` finds the method in the model, once fitted."""
    model, _ = final_step(model)
    if isinstance(model, TransformedTargetRegressor):
        return has_inside(model.regressor, method)
    return hasattr(model, method)


def has_members(model: BaseEstimator) -> bool:
    """Tell whether :func:`skdistill.predict_members` finds members in the model, once fitted."""
    return has_inside(model, "predict_members")


def tags_of(model: BaseEstimator) -> Tags:
    """Return a copy of a model's tags; its type may be in ``_estimator_type``, as of NGBoost."""
    tags = deepcopy(get_tags(model))
    if tags.estimator_type is None:
        tags.estimator_type = getattr(final_step(model)[0], "_estimator_type", None)
        if tags.estimator_type == "classifier":
            tags.classifier_tags = ClassifierTags()
        elif tags.estimator_type == "regressor":
            tags.regressor_tags = RegressorTags()
    return tags


def is_prefitted(model: BaseEstimator) -> bool:
    """Tell whether a model, or one inside it, is fitted and stays so when cloned.

    Parameters
    ----------
    model : estimator

    Returns
    -------
    is_prefitted : bool
    """
    return model is not None and (clone(model) is model or is_prefitted(inside(model)))


def weights_for(model: object, sample_weight: object) -> dict[str, object]:
    """Keywords that pass sample weights to the model's fit; none for None."""
    if sample_weight is None:
        return {}
    routed = get_config()["enable_metadata_routing"]
    if not routed:
        check_takes_weights(model)
    return {"sample_weight" if routed else _name_of_weights(model): sample_weight}


def check_takes_weights(model: BaseEstimator) -> None:
    """Raise ValueError for a model whose fit takes no sample weights, nor passes any on."""
    inner, _ = final_step(model)
    accepted = signature(inner.fit).parameters
    if is_prefitted(model) or "sample_weight" in accepted:
        return
    parts = [part for _, part in inner.estimators] if hasattr(inner, "estimators") else []
    names = ("estimator", "regressor")
    for part in [*parts, *(getattr(inner, name) for name in names if hasattr(inner, name))]:
        if hasattr(part, "fit"):  # None stands for a model that takes weights
            check_takes_weights(part)
    passes_on = any(one.kind is Parameter.VAR_KEYWORD for one in accepted.values())
    if not passes_on or hasattr(inner, "train_split"):  # skorch passes all on to the network
        raise ValueError(
            f"sample_weight must be None for a {type(inner).__name__}, which takes no weights; got "
            "an array."
        )


def _name_of_weights(model: BaseEstimator) -> str:
    if is_search(model):
        return _name_of_weights(model.estimator)
    if isinstance(model, Pipeline):
        return f"{model.steps[-1][0]}__{_name_of_weights(model[-1])}"
    return "sample_weight"


def seeded_clone(estimator: BaseEstimator, seed: int) -> BaseEstimator:
    """Return a clone with seeds where the estimator has none."""
    copied = clone(estimator)
    seed_where_unset(copied, seed)
    return copied


def seed_where_unset(estimator: BaseEstimator, seed: int) -> None:
    """Give every ``random_state`` in an estimator that is None a seed drawn from `seed`."""
    draw, params = np.random.RandomState(seed), estimator.get_params(deep=True)
    unset = (name for name in sorted(params) if params[name] is None)
    names = [name for name in unset if name.split("__")[-1] == "random_state"]
    estimator.set_params(**{name: int(draw.randint(SEED_LIMIT)) for name in names})


def reseeded_clone(estimator: BaseEstimator, seed: int) -> BaseEstimator:
    """Return a clone in which every ``random_state`` is drawn from `seed`."""
    copied, draw = clone(estimator), np.random.RandomState(seed)
    names = [name for name in copied.get_params() if name.split("__")[-1] == "random_state"]
    return copied.set_params(**{name: int(draw.randint(SEED_LIMIT)) for name in sorted(names)})
