# SPDX-License-Identifier: BSD-3-Clause
"""The version, which pickles carry."""

from __future__ import annotations

__version__ = "0.1.0.dev0"
