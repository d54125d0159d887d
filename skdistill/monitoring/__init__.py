# SPDX-License-Identifier: BSD-3-Clause
"""Watching a fitted model in use: have its inputs, or its uncertainty, drifted?

The tests here may be looked at after every batch: the probability of ever raising a false alarm is
bounded, however long the stream.
"""

from ._monitor import DriftMonitor
from ._result import DriftResult

__all__ = ["DriftMonitor", "DriftResult"]
