# SPDX-License-Identifier: BSD-3-Clause
"""What several test files of the engine ask for."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def two_threads():
    """A caller who uses two threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
