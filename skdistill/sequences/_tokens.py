# SPDX-License-Identifier: BSD-3-Clause
"""Tokens with a meaning of their own, and checks of arrays of tokens."""

from __future__ import annotations

from numbers import Integral
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_array

from .._utils.validation import Number, errors_about

# Tokens pass through float32, which holds all whole numbers up to here.
_TOO_LARGE = 2**24


class SpecialTokens(NamedTuple):
    """The tokens that begin and end sequences, and fill up the shorter ones.

    Parameters
    ----------
    begin_token : int, default=1
        Put before each target.
    end_token : int, default=2
        Last token of a sequence.
    pad_token : int, default=0
        Fills up the shorter rows of an array, after their last token.
    """

    begin_token: int = 1
    end_token: int = 2
    pad_token: int = 0

    def check(self) -> None:
        """Raise a TypeError or ValueError for no tokens, or padding that is one of the others."""
        for name, token in self._asdict().items():
            Number(Integral, 0).check(token, name)
        if self.pad_token in (self.begin_token, self.end_token):
            raise ValueError(
                f"pad_token must be neither begin_token ({self.begin_token}) nor end_token "
                f"({self.end_token}), got {self.pad_token}."
            )


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
