# SPDX-License-Identifier: BSD-3-Clause
"""Active learning: selection of the samples to label next."""

from ._features import gradient_features
from ._select import select_batch
from ._strategy import BatchQuery

__all__ = ["BatchQuery", "gradient_features", "select_batch"]
