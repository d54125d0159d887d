# SPDX-License-Identifier: BSD-3-Clause
"""What the pages of results show, a file a story; report.py writes them."""
