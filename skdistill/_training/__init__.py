# SPDX-License-Identifier: BSD-3-Clause
"""From samples and settings to a trained stack of networks."""
