# SPDX-License-Identifier: BSD-3-Clause
"""Training that goes on from a fitted model: with ``warm_start``, or part by part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import nn

from .._method.plan import NetworkRecipe, weights_of
from .._method.task import Buffers
from .._serialization.digest import digest
from .._training.trainer import FILLED_IN
from ..modules import DistributionStack


def scaling_of(module: DistributionStack) -> Buffers:
    """Return the location and scale of the targets that the fitted networks have learnt in."""
    return {name: value for name, value in weights_of(module).items() if "." not in name}


def all_weights(module: DistributionStack) -> np.ndarray:
    """Return the weights of the fitted networks as one array, which tells models apart."""
    return np.concatenate([value.ravel() for value in weights_of(module).values()])


def same_recipe(fitted: NetworkRecipe, recipe: NetworkRecipe) -> NetworkRecipe:
    """Return a recipe with encoding and units of the fitted one; others must not differ."""
    if recipe.row_shape != fitted.row_shape:
        raise ValueError(
            f"X must have samples of shape {fitted.row_shape}, as in the fit before; got "
            f"{recipe.row_shape}."
        )
    changed = [] if recipe.module is fitted.module else ["module"]
    changed += [
        f"module__{name}"
        for name in {**fitted.settings, **recipe.settings}.keys() - FILLED_IN
        if digest(fitted.settings.get(name)) != digest(recipe.settings.get(name))
    ]
    if changed:
        raise ValueError(
            f"{' and '.join(sorted(changed))} must be as in the fit that training goes on from; "
            "warm_start=False begins anew."
        )
    settings = recipe.settings | {"in_features": fitted.settings["in_features"]}
    kept = {"widths": fitted.widths, "inputs": fitted.inputs, "functions": fitted.functions}
    return replace(recipe, settings=settings, **kept)


def load_weights(module: nn.Module, trained: nn.Module) -> None:
    """Give a module the weights of the trained one; a ValueError if they have other shapes."""
    given, fitted = module.state_dict(), trained.state_dict()
    for name in {**fitted, **given}:
        shapes = [tuple(w[name].shape) if name in w else None for w in (fitted, given)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                "The parameters that shape the network must be as in the fit that training goes on "
                f"from, which gave {name} the shape {shapes[0]}; got {shapes[1]}."
            )
    module.load_state_dict(fitted)
