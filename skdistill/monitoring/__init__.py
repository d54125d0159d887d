# SPDX-License-Identifier: BSD-3-Clause
"""Drift monitoring of a fitted model by its uncertainty.

The tests are valid after every batch: the probability of ever raising a false alarm is bounded,
however long the stream.
"""

from ._monitor import DriftMonitor

__all__ = ["DriftMonitor"]
