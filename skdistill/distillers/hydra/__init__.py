# SPDX-License-Identifier: BSD-3-Clause
"""Hydra+: one network with a shared core and a head for each member."""
