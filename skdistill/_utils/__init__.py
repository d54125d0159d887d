# SPDX-License-Identifier: BSD-3-Clause
"""What knows no model: validation of parameters, settings, warnings, processes, memory, moments."""
