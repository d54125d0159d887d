# SPDX-License-Identifier: BSD-3-Clause
"""Types of what users give, for annotations in many places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from joblib import Memory as Memory
from numpy.typing import ArrayLike as ArrayLike
from sklearn.base import BaseEstimator as BaseEstimator
from sklearn.model_selection import BaseCrossValidator

RandomStateLike: TypeAlias = int | np.random.RandomState | None
Folds: TypeAlias = int | BaseCrossValidator | Iterable[tuple[np.ndarray, np.ndarray]] | None
ModelClass: TypeAlias = Callable[..., torch.nn.Module]
OptimizerClass: TypeAlias = type[torch.optim.Optimizer]
Callbacks: TypeAlias = Sequence[object] | None  # of skorch, whose import takes long
