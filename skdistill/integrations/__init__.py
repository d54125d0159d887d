# SPDX-License-Identifier: BSD-3-Clause
"""Fitted models as models of other libraries, each in a module of the library's name."""

__all__: list[str] = []
