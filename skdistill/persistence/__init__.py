# SPDX-License-Identifier: BSD-3-Clause
"""Persistence of fitted models in files that are safe to load.

A file has the safetensors format: arrays, and JSON that says what they belong to. It contains
classes and functions as names, which :func:`load` looks up in a list and never imports, so loading
runs no code of the file's author. A SHA-256 of the whole file detects damage.
"""

from ._models import load, save
from ._names import TRUSTED, register

__all__ = ["TRUSTED", "load", "register", "save"]
