# SPDX-License-Identifier: BSD-3-Clause
"""Checks of arrays of tokens."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_array

from .._rules import errors_about

# Tokens pass through float32, which holds all whole numbers up to here.
_TOO_LARGE = 2**24


def check_tokens(tokens, name: str, pad_token: int) -> np.ndarray:
    """Check rows of tokens: integers >= 0, with padding at the end only."""
    with errors_about(name):
        tokens = check_array(tokens, input_name=name)
    is_whole = (tokens == np.floor(tokens)).all()
    if not is_whole or tokens.min() < 0 or tokens.max() >= _TOO_LARGE:
        raise ValueError(
            f"{name} must be tokens, whole numbers from 0 to {_TOO_LARGE - 1}; got "
            f"{tokens.dtype} from {tokens.min()} to {tokens.max()}."
        )
    tokens = tokens.astype(np.int64)
    goes_on = (tokens[:, :-1] == pad_token) & (tokens[:, 1:] != pad_token)
    if goes_on.any():
        raise ValueError(
            f"{name} must have padding ({pad_token}) at the end of a row only; row "
            f"{first_row(goes_on)} goes on after it."
        )
    return tokens


def first_row(condition: np.ndarray) -> int:
    """Index of the first row in which a condition holds somewhere."""
    return int(np.flatnonzero(condition.any(1))[0])
