# SPDX-License-Identifier: BSD-3-Clause
"""Where the decision trees in a teacher split the features."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import BaggingClassifier, BaggingRegressor
from sklearn.frozen import FrozenEstimator

from ._mixed import MixedModels
from ._teacher import Teacher

Split = tuple[int, float, float]  # number of a feature, threshold and gain

# The threshold of a split of missing values from all others: 1e300 in LightGBM, else infinite.
_INFINITE = 1e300


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


def splits_of(model: object, weight: float = 1.0) -> Splits:
    """Find the splits of the trees in a fitted model, which reads the features as they are.

    It is a tree, forest, bag or boosting of scikit-learn, LightGBM, XGBoost or CatBoost, alone, in
    a FrozenEstimator, or among the models of a teacher. Others have no splits.
    """
    parts = [splits_of(part, weight * share) for part, share in _parts(model)]
    if not parts:
        return Splits.of(_own_splits(model), weight)
    return Splits(*map(np.concatenate, zip(*parts, strict=True)))


def _parts(model: Any) -> Iterator[tuple[Any, float]]:
    """Models that a model consists of, and their weights; none of one that has trees itself."""
    if isinstance(model, FrozenEstimator):
        yield model.estimator, 1.0
    elif isinstance(model, Teacher):
        yield model.estimator_, 1.0
    elif isinstance(model, MixedModels):
        pairs = zip(model.models_, model.weights_, strict=True)
        yield from ((part, share) for part, share in pairs if part is not None)
    elif hasattr(model, "models_"):
        yield from ((part, 1 / len(model.models_)) for part in model.models_)


def _own_splits(model: Any) -> Iterator[Split]:
    """Feature, threshold and gain of each split of a model's own trees."""
    if hasattr(model, "tree_"):
        yield from _of_tree(model.tree_)
    elif isinstance(model, (BaggingClassifier, BaggingRegressor)):
        for part, features in zip(model.estimators_, model.estimators_features_, strict=True):
            for feature, *split in _own_splits(part):
                yield features[feature], *split
    elif hasattr(model, "_predictors"):  # gradient boosting of histograms has no public trees
        yield from _of_histograms(model)
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
    elif hasattr(model, "estimators_"):
        for part in np.ravel(model.estimators_):
            yield from _own_splits(part)


def _of_histograms(model: Any) -> Iterator[Split]:
    is_categorical = model.is_categorical_
    # Trees read categorical features before the others.
    order = np.argsort(~is_categorical, kind="stable") if is_categorical is not None else None
    for predictor in (one for stage in model._predictors for one in stage):
        nodes = predictor.nodes
        nodes = nodes[(nodes["is_leaf"] == 0) & (nodes["is_categorical"] == 0)]
        features = nodes["feature_idx"] if order is None else order[nodes["feature_idx"]]
        yield from zip(features, nodes["num_threshold"], nodes["gain"], strict=True)


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
