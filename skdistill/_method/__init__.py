# SPDX-License-Identifier: BSD-3-Clause
"""What a method is made of: its task, its plan, its objective."""
