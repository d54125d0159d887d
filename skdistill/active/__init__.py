# SPDX-License-Identifier: BSD-3-Clause
"""Active learning: selection of the samples to label next."""

from ._select import select_batch

__all__ = ["select_batch"]
