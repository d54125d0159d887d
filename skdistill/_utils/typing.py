# SPDX-License-Identifier: BSD-3-Clause
"""Types of what users give and get, for annotations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from joblib import Memory as Memory
from numpy.typing import ArrayLike as ArrayLike
from sklearn.base import BaseEstimator as BaseEstimator
from sklearn.model_selection import BaseCrossValidator

if TYPE_CHECKING:  # optional
    import pandas

DataFrame: TypeAlias = "pandas.DataFrame"

# What scikit-learn takes as `random_state` and as `cv`.
RandomStateLike: TypeAlias = int | np.random.RandomState | None
Folds: TypeAlias = int | BaseCrossValidator | Iterable[tuple[np.ndarray, np.ndarray]] | None
