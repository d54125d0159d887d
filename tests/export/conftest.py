# SPDX-License-Identifier: BSD-3-Clause
"""What tests of exported models share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def translations(translations_read_once) -> None:
    """All of these tests make graphs."""
