# SPDX-License-Identifier: BSD-3-Clause
"""What fits of all distillers share: validation, teachers, transfer sets, training."""
