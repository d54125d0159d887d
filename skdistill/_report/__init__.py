# SPDX-License-Identifier: BSD-3-Clause
"""A fitted model on one page: how good it is, what it knows, what it costs."""

from __future__ import annotations

from ._report import ModelReport, report

__all__ = ["ModelReport", "report"]
