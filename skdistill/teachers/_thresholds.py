# SPDX-License-Identifier: BSD-3-Clause
"""Where the decision trees in a teacher split the features."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import OneToOneFeatureMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder

from .._estimator.unwrapping import components, inside
from ._models import FittedModels
from ._teacher import Teacher

Split = tuple[int, float, float]  # number of a feature, threshold and gain

_INFINITE = 1e300  # LightGBM's threshold of missing values against all others; else infinite


class Splits(NamedTuple):
    """Splits of numerical features, in no order.

    A gain is by how much a split reduces the loss, as a share of all reductions of its model, times
    the weight of the model.
    """

    features: np.ndarray  # their numbers
    thresholds: np.ndarray
    gains: np.ndarray

    @classmethod
    def of(cls, splits: Iterable[Split], weight: float = 1.0) -> Splits:
        """Collect the splits of a model of this weight: feature, threshold and gain of each."""
        found = np.array([*splits], dtype=float).reshape(-1, 3)
        gains = found[:, 2].clip(min=0.0)
        gains = gains / gains.sum() if gains.any() else np.full(len(gains), 1 / max(len(gains), 1))
        kept = np.abs(found[:, 1]) < _INFINITE
        return cls(found[kept, 0].astype(int), found[kept, 1], weight * gains[kept])

    def among(self, columns: np.ndarray, first: int = 0) -> Splits:
        """Return the splits of the features from `first` on, which are these columns of X."""
        at = self.features - first
        own = (at >= 0) & (at < len(columns))
        return Splits(columns[at[own]], self.thresholds[own], self.gains[own])


def splits_of(model: Any, weight: float = 1.0) -> Splits:
    """Find where the trees in a fitted model split the features of X, in units of X.

    Other models, and those behind steps of a Pipeline that do more than scale, impute and select
    columns, have none.
    """
    if isinstance(model, Pipeline):
        return _before(model[:-1], splits_of(model[-1], weight))
    parts = list(_parts(model, weight))
    return _joined(parts) if parts else Splits.of(_own_splits(model), weight)


def _joined(parts: Iterable[Splits]) -> Splits:
    return Splits(*map(np.concatenate, zip(Splits.of(()), *parts, strict=True)))


def _parts(model: Any, weight: float) -> Iterator[Splits]:
    """Splits of the models that a model consists of; none of one that has trees itself."""
    weights, columns = None, None  # of the models; the latter are all
    if (inner := inside(model, fitted=True)) is not None:
        models = [inner]
    elif isinstance(model, Teacher):
        models = [model.estimator_]
    elif isinstance(model, TransformedTargetRegressor):
        models = [model.regressor_]
    elif isinstance(model, FittedModels):
        models = model.models
    elif hasattr(model, "models_"):
        models = model.models_
        weights = model.weights_ if hasattr(model, "weights_") else None
    elif (mixture := components(model)) is not None:
        models, weights, columns = mixture
        if isinstance(model, CalibratedClassifierCV):
            models = [calibrated.estimator for calibrated in models]
    elif hasattr(model, "estimators_") and not _trees_of(model):
        models, columns = model.estimators_, [np.arange(model.n_features_in_)]
        columns *= len(models)  # chains read predictions too, behind the columns of X
    else:
        return
    weights = np.full(len(models), 1 / len(models)) if weights is None else weights
    for number, (part, share) in enumerate(zip(models, weights, strict=True)):
        found = splits_of(part, weight * share)
        yield found if columns is None else found.among(columns[number])


def _trees_of(model: Any) -> list[Any]:
    """Trees that a forest or boosting of scikit-learn consists of."""
    models = model.estimators_ if hasattr(model, "estimators_") else []
    models = models.flat if isinstance(models, np.ndarray) else models
    return [part for part in models if hasattr(part, "tree_")]


def _before(step: Any, splits: Splits) -> Splits:
    """Splits of what a transformer reads, from those of what it returns."""
    if not len(splits.features) or hasattr(step, "fit_resample"):  # of rows, in a fit only
        return splits
    if isinstance(step, Pipeline):
        for _, one in reversed(step.steps):
            splits = _before(one, splits)
        return splits
    if step in (None, "passthrough") or (isinstance(step, FunctionTransformer) and not step.func):
        return splits
    is_one_to_one = isinstance(step, OneToOneFeatureMixin) and not isinstance(step, OrdinalEncoder)
    if is_one_to_one and hasattr(step, "inverse_transform"):
        # Thresholds in the units that the scaler reads: of one feature each in a row of a table.
        order = np.argsort(splits.features, kind="stable")
        features, thresholds, gains = (part[order] for part in splits)
        rows = np.arange(len(features)) - np.searchsorted(features, features)
        table = np.zeros((rows.max() + 1, step.n_features_in_))
        table[rows, features] = thresholds
        return Splits(features, step.inverse_transform(table)[rows, features], gains)
    if isinstance(step, SimpleImputer):
        keeps_all = step.keep_empty_features or step.strategy == "constant"
        return splits.among(np.flatnonzero(keeps_all | (step.statistics_ == step.statistics_)))
    if hasattr(step, "get_support"):
        return splits.among(step.get_support(indices=True))
    if isinstance(step, ColumnTransformer):
        return _joined(_before_columns(step, splits))
    return Splits.of(())


def _before_columns(step: ColumnTransformer, splits: Splits) -> Iterator[Splits]:
    """Splits of the columns that each of the transformers reads."""
    numbers = np.arange(step.n_features_in_)
    names = step.feature_names_in_ if hasattr(step, "feature_names_in_") else ()
    by_name = dict(zip(names, numbers, strict=False))
    for name, transformer, columns in step.transformers_:
        place = step.output_indices_[name]
        own = _before(transformer, splits.among(np.arange(place.stop - place.start), place.start))
        if len(own.features):
            if isinstance(columns, slice):  # a slice of names holds its last one
                last = by_name.get(columns.stop, -1) + 1 or columns.stop
                columns = slice(by_name.get(columns.start, columns.start), last)
            else:
                columns = [by_name.get(column, column) for column in np.atleast_1d(columns)]
            yield own.among(numbers[columns])


def _own_splits(model: Any) -> Iterator[Split]:
    """Feature, threshold and gain of each split of a model's own trees."""
    if hasattr(model, "tree_"):
        yield from _of_tree(model.tree_)
    elif hasattr(model, "_predictors"):  # gradient boosting of histograms has no public trees
        is_categorical = model.is_categorical_
        # Trees read categorical features before the others.
        order = np.argsort(~is_categorical, kind="stable") if is_categorical is not None else None
        for predictor in (one for stage in model._predictors for one in stage):
            nodes = predictor.nodes
            nodes = nodes[(nodes["is_leaf"] == 0) & (nodes["is_categorical"] == 0)]
            features = nodes["feature_idx"] if order is None else order[nodes["feature_idx"]]
            yield from zip(features, nodes["num_threshold"], nodes["gain"], strict=True)
    elif hasattr(model, "booster_"):
        for tree in model.booster_.dump_model()["tree_info"]:
            yield from _of_lightgbm(tree["tree_structure"])
    elif hasattr(model, "get_booster"):
        booster = model.get_booster()
        names = booster.feature_names or [f"f{i}" for i in range(booster.num_features())]
        numbers = {name: number for number, name in enumerate(names)}
        for tree in booster.get_dump(dump_format="json", with_stats=True):
            yield from _of_xgboost(json.loads(tree), numbers)
    elif hasattr(model, "get_borders"):  # CatBoost, which tells gains of features only
        gains = model.get_feature_importance()
        for feature, borders in model.get_borders().items():
            yield from ((feature, border, gains[feature] / len(borders)) for border in borders)
    for tree in _trees_of(model):
        yield from _of_tree(tree.tree_)


def _of_tree(tree: Any) -> Iterator[Split]:
    """Splits of a tree of scikit-learn."""
    mass = tree.weighted_n_node_samples * tree.impurity
    for node in np.flatnonzero(tree.feature >= 0):
        gain = mass[node] - mass[tree.children_left[node]] - mass[tree.children_right[node]]
        yield tree.feature[node], tree.threshold[node], gain


def _of_lightgbm(node: dict[str, Any]) -> Iterator[Split]:
    if "split_feature" not in node:
        return
    if node["decision_type"] == "<=":  # "==" is one of categories
        yield node["split_feature"], node["threshold"], node["split_gain"]
    yield from _of_lightgbm(node["left_child"])
    yield from _of_lightgbm(node["right_child"])


def _of_xgboost(node: dict[str, Any], numbers: dict[str, int]) -> Iterator[Split]:
    if "split" not in node:
        return
    if not isinstance(node.get("split_condition"), list):  # a list is one of categories
        yield numbers[node["split"]], node["split_condition"], node["gain"]
    for child in node["children"]:
        yield from _of_xgboost(child, numbers)
