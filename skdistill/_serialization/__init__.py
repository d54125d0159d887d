# SPDX-License-Identifier: BSD-3-Clause
"""Bytes: the container of models, JSON, digests and atomic writes."""
