# SPDX-License-Identifier: BSD-3-Clause
"""What tests of exported models share: torch's translations of operators, read once."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def translations_read_once() -> Iterator[None]:
    """Keep what torch reads anew from the source of onnxscript for each graph, in .4 s of 2."""
    pytest.importorskip("onnxscript")
    with pytest.MonkeyPatch.context() as patch:
        module = importlib.import_module("torch.onnx._internal.exporter._registration")
        if apis := getattr(module, "onnxscript_apis", None):
            patch.setattr(apis, "get_torchlib_ops", functools.cache(apis.get_torchlib_ops))
        yield
