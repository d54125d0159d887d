# SPDX-License-Identifier: BSD-3-Clause
"""Active learning: selection of the samples to label next."""

from ._features import gradient_features
from ._select import BatchQuery, select_batch

__all__ = ["BatchQuery", "gradient_features", "select_batch"]
