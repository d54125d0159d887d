# SPDX-License-Identifier: BSD-3-Clause
"""Generalized posterior expectation distillation of Markov chains."""
