# SPDX-License-Identifier: BSD-3-Clause
"""X on its way in: checks, columns, schema and encoding."""
