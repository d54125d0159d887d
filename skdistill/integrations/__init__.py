# SPDX-License-Identifier: BSD-3-Clause
"""Adapters of fitted models to other libraries, one module for each library."""

__all__: list[str] = []
