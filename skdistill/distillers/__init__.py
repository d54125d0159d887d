# SPDX-License-Identifier: BSD-3-Clause
"""Distillers: from a teacher with members to one network."""

from __future__ import annotations

from ._hydra import HydraPlusClassifier, HydraPlusRegressor

__all__ = ["HydraPlusClassifier", "HydraPlusRegressor"]
