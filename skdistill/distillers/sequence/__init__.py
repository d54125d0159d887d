# SPDX-License-Identifier: BSD-3-Clause
"""Distillation of ensembles of sequence models."""
