# SPDX-License-Identifier: BSD-3-Clause
"""What "auto" stands for where the teacher has decision trees, or models of several kinds."""

from __future__ import annotations

import inspect
from dataclasses import replace

import numpy as np
from sklearn.frozen import FrozenEstimator

from ..._data.encoding import InputEncoding
from ..._method.plan import NetworkRecipe
from ...teachers import MixedModels, Splits, Teacher, splits_of
from ...transfer import Munge
from ._spec import FitSpec
from ._teacher import inside_wrappers
from ._validate import AUTO_NOISE, maker_that_changes

# Inputs of a student that step where trees split a feature, at most: of each feature, and of all,
# though a few of each. On validation samples of power-plant, whose teacher is nearly all trees, 64
# steps of each feature lowered the NLL gap from .149 to .034, with 32 it was .063.
_MOST_OF_FEATURE, _LEAST_OF_FEATURE, _MOST_STEPS = 64, 8, 256

# Cells of neighbouring thresholds for each that is taken.
_CELLS = 4

# Times the epochs of other students.
_MORE_EPOCHS = 2.0

# Share of the transfer samples that are made by exchanges between neighbours.
_SHARE_OF_MUNGE = 0.5


def suited_to(spec: FitSpec, teacher: object) -> FitSpec:
    """Return the spec for the student of this fitted teacher, which is no ensemble of ours.

    Trees change at thresholds, so a student of theirs has inputs that do, with
    ``module__embeddings="auto"``. Of trees, and of models of several kinds, ``transfer="auto"``
    takes half of the transfer samples from between neighbours: their answers vary more along the
    samples than noise around these tells.
    """
    if len(spec.recipe.row_shape) != 1:
        return spec
    splits = splits_of(teacher)
    model = inside_wrappers(teacher, FrozenEstimator)
    model = model.estimator_ if isinstance(model, Teacher) else model
    has_trees = len(splits.features) > 0
    if has_trees:
        spec = replace(spec, more_epochs=_MORE_EPOCHS)
    if has_trees and spec.mode.before is None and _embeds(spec.recipe):
        spec = replace(spec, recipe=with_steps(spec.recipe, spec.X, splits))
    if (has_trees or isinstance(model, MixedModels)) and spec.draws_as_usual:
        maker = Munge(base=AUTO_NOISE[spec.settings.kind], share=_SHARE_OF_MUNGE)
        spec = replace(spec, maker=maker_that_changes(spec, maker))
    return spec


def _embeds(recipe: NetworkRecipe) -> bool:
    """Whether networks take embeddings, and it is left to the fit which."""
    takes = "embeddings" in inspect.signature(recipe.module).parameters
    return takes and recipe.settings.get("embeddings", "auto") == "auto"


def with_steps(recipe: NetworkRecipe, X: np.ndarray, splits: Splits) -> NetworkRecipe:
    """Return the recipe of networks whose inputs also step at the splits of the largest gain."""
    n_split = len(np.unique(splits.features))
    size = min(_MOST_OF_FEATURE, max(_LEAST_OF_FEATURE, _MOST_STEPS // n_split))
    thresholds = [
        best_thresholds(splits.thresholds[own], splits.gains[own], size)
        for own in (splits.features == column for column in range(X.shape[1]))
    ]
    inputs = InputEncoding.with_steps(recipe.inputs, X, thresholds)
    settings = recipe.settings | {"in_features": inputs.n_inputs}
    return replace(recipe, inputs=inputs, settings=settings)


def best_thresholds(thresholds: np.ndarray, gains: np.ndarray, size: int) -> np.ndarray:
    """Return at most `size` of the thresholds of a feature, those of the largest gain.

    Trees of a forest split at as many values as there are samples. Where these are many, they are
    first put in cells of as many each, which have the gain of all of them and the best threshold.
    """
    values, which = np.unique(thresholds, return_inverse=True)
    totals = np.bincount(which, weights=gains)
    n_cells = min(len(values), _CELLS * size)
    cell = np.arange(len(values)) * n_cells // max(len(values), 1)
    order = np.lexsort((-totals, cell))
    _, first = np.unique(cell[order], return_index=True)
    of_cells = np.bincount(cell, weights=totals)
    return values[order[first]][np.argsort(-of_cells, kind="stable")[:size]]
