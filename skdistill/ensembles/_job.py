# SPDX-License-Identifier: BSD-3-Clause
"""What a fit of an ensemble trains: its data, how much of it, and in how large blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from .._data.encoding import MANY_ROWS, InputEncoding, InputSettings
from .._method.plan import NetworkRecipe
from .._method.task import Buffers, Task
from .._training.stream import Stream
from .._training.trainer import Training, batch_size_for, n_epochs_for
from ..modules import shares_weights, widest_activation
from ..samplers import SGHMC, SGLD
from ._out_of_bag import Parts
from ._plan import EnsemblePlan
from ._spec import EnsembleSpec

# On a CPU as many members are trained together as have about this many activations in their widest
# layer; with more of them the work no longer fits the cache.
_BLOCK_ACTIVATIONS = 2**19

# A fit of at least so many activations in all takes seconds, so that further blocks, to be trained
# side by side, save more than starting processes costs. Blocks of fewer members would cost a fit on
# one core more than a few percent, as each step has a fixed price.
_FIT_ACTIVATIONS = 2**27
_LEAST_BLOCK = 10

# For max_epochs="auto": epochs, and samples at most that a member is shown on large tables.
_EPOCHS = {"regressor": 100, "classifier": 50}
_ROWS_SEEN_AT_MOST = 3_000_000

# Networks for numbers learn faster from bins: on small tables they are shown so many samples, in
# not less than a half of the epochs. (NLL of validation samples, 100 epochs and fewer: wine .959
# and .933 with 47, a robot arm of 4,000 samples -1.398 and -1.396 with 60; but california, 13,209
# samples, .435 and .462 with 50; protein, 20,000 samples, 2.655 and 2.672 with 70.) From 10,000
# samples on epochs rise with the square of the samples until there are all.
_ROWS_SEEN_IN_BINS, _ROWS_OF_HALF = 80_000, 10_000

# For lr="auto": the rate, and that of large tables in bins that have enough epochs for it; between
# these epochs it falls from the one to the other. (Validation RMSE and NLL with .01 and .003:
# california, 87 epochs, .465, .464 and .458, .424; house, 100 epochs, 2.877, 1.757 and 2.843,
# 1.752. But NLL of 100,000 samples made up, 30 epochs: .254 and .266.)
_RATE, _RATE_OF_LARGE, _EPOCHS_OF_RATES = 0.01, 0.003, (50, 85)

# Where members share weights an epoch trains each member on a share of the samples only. So there
# are more of them, and more samples in a minibatch.
_MORE_EPOCHS_OF_SHARED = 2
_SHARED_BATCH_SIZE = 128


class Data(NamedTuple):
    """Samples, their targets and their weights, which may be None."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None

    @property
    def n_rows(self) -> int:
        return len(self.X)

    @property
    def total_weight(self) -> float:
        return len(self.X) if self.weight is None else float(self.weight.sum())

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.X.shape[1:]

    @property
    def dtype(self) -> np.dtype:
        return self.X.dtype

    def scaling(self, task: Task, normalize_y: bool) -> Buffers:
        return task.scaling(self.y, self.weight, self.dtype, normalize_y)

    def inputs(self, settings: InputSettings, embedded_from: int) -> InputEncoding | None:
        return settings.encoding(self.X, self.y, self.weight, embedded_from)

    def at(self, rows: np.ndarray) -> Data:
        weight = None if self.weight is None else self.weight[rows]
        return Data(self.X[rows], self.y[rows], weight)


class Job(NamedTuple):
    """An ensemble to train: what its parameters say, its plan and its data.

    `parts` says which samples each member leaves out, None that it has them all.
    """

    spec: EnsembleSpec
    n_epochs: int
    batch_size: int
    plan: EnsemblePlan
    recipe: NetworkRecipe
    scaling: Buffers
    parts: Parts | None
    train: Data | Stream
    valid: Data | None

    @property
    def training(self) -> Training:
        return self.spec.training

    def with_training(self, **changes: Any) -> Job:
        """Return the job with other settings of :class:`Training`."""
        return self._replace(spec=replace(self.spec, training=replace(self.training, **changes)))


def has_bins(recipe: NetworkRecipe) -> bool:
    """Tell whether networks get piecewise-linear encodings."""
    return recipe.inputs is not None and recipe.inputs.has_bins


def amount_of_training(
    spec: EnsembleSpec, n_rows: int, are_in_bins: bool = False
) -> tuple[int, int]:
    """Return the number of epochs and the rows of a minibatch, for so many rows.

    Chains have the same on large tables: their step size is suited to a size of minibatches, and
    with fewer epochs they would end before they are where they should be.
    """
    n_of_small, most, batch_size = _EPOCHS[spec.kind], _ROWS_SEEN_AT_MOST, spec.batch_size
    n_seen, least = 0, n_of_small
    if shares_weights(spec.networks.module):
        n_of_small, most = (_MORE_EPOCHS_OF_SHARED * number for number in (n_of_small, most))
        least = n_of_small
        if batch_size == "auto":
            batch_size = max(_SHARED_BATCH_SIZE, batch_size_for("auto", n_rows), spec.n_members)
    elif are_in_bins and spec.kind == "regressor":
        half = n_of_small // 2
        n_seen = _ROWS_SEEN_IN_BINS
        least = min(max(half, half * n_rows**2 // _ROWS_OF_HALF**2), n_of_small)
    if isinstance(spec.inference, (SGLD, SGHMC)):
        n_rows = 1
    return (
        n_epochs_for(spec.max_epochs, n_rows, n_seen, least, n_of_small, most),
        batch_size_for(batch_size, n_rows),
    )


def learning_rate(spec: EnsembleSpec, n_epochs: int, n_rows: int, are_in_bins: bool) -> float:
    """Return the learning rate of an ensemble trained for so many epochs on so many samples."""
    if spec.training.lr != "auto":
        return float(spec.training.lr)
    is_large = spec.kind == "regressor" and are_in_bins and n_rows >= MANY_ROWS
    if not is_large or shares_weights(spec.networks.module):
        return _RATE
    share = float(np.interp(n_epochs, _EPOCHS_OF_RATES, (0.0, 1.0)))
    return _RATE ** (1.0 - share) * _RATE_OF_LARGE**share


def block_size(spec: EnsembleSpec, recipe: NetworkRecipe, device: torch.device, n_rows: int) -> int:
    """Return how many members to train together on so many samples."""
    if spec.member_block != "auto":
        return int(spec.member_block)
    if device.type != "cpu":
        return spec.n_members
    (member,) = recipe.build([0])
    widest = widest_activation(member, recipe.input_shape)
    n_epochs, batch_size = amount_of_training(spec, n_rows, has_bins(recipe))
    most = max(1, _BLOCK_ACTIVATIONS // (min(batch_size, n_rows) * widest))
    n_members = spec.n_members
    is_long = n_rows * n_epochs * n_members * widest >= _FIT_ACTIVATIONS
    n_blocks = n_members // _LEAST_BLOCK if is_long else 1
    return min(most, -(-n_members // n_blocks)) if n_blocks > 1 else most
