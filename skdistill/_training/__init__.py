# SPDX-License-Identifier: BSD-3-Clause
"""From settings to a trained stack of networks: trainer, streams, budget, resuming."""
