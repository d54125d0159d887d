# SPDX-License-Identifier: BSD-3-Clause
"""Distillation of the distribution over predictions, family by family."""
