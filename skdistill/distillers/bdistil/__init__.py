# SPDX-License-Identifier: BSD-3-Clause
"""B-DISTIL: a model decomposed into a series of small networks."""
