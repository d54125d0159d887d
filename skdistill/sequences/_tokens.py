# SPDX-License-Identifier: BSD-3-Clause
"""Tokens with a meaning of their own, and checks of arrays of tokens."""

from __future__ import annotations

import copy
from dataclasses import KW_ONLY, dataclass
from numbers import Integral

import numpy as np
from sklearn.utils import check_array

from .._utils.settings import Settings, SettingsRule
from .._utils.validation import Number, OneOf, errors_about

# Tokens pass through float32, which holds all whole numbers up to here.
_TOO_LARGE = 2**24


@dataclass(eq=False, repr=False)
class SpecialTokens(Settings):
    """The tokens that begin and end sequences, and fill up the shorter ones.

    Parameters
    ----------
    begin : int, default=1
        Put before each target. It need not be in the vocabulary.
    end : int, default=2
        Last token of a sequence.
    pad : int, default=0
        Fills up the shorter rows of an array, after their last token. It weighs nothing, and is
        neither of the others.
    """

    _parameter_table = dict.fromkeys(("begin", "end", "pad"), Number(Integral, 0))

    _: KW_ONLY
    begin: int = 1
    end: int = 2
    pad: int = 0

    @classmethod
    def of(cls, given: SpecialTokens | None) -> SpecialTokens:
        """Return what is given as ``tokens=``, None for the defaults; raise if they are invalid."""
        TOKENS_RULE.check(given, "tokens")
        tokens = cls() if given is None else copy.copy(given)
        if tokens.pad in (tokens.begin, tokens.end):
            raise ValueError(
                f"tokens__pad must be neither tokens__begin ({tokens.begin}) nor tokens__end "
                f"({tokens.end}), got {tokens.pad}."
            )
        return tokens


TOKENS_RULE: SettingsRule = SettingsRule(SpecialTokens, OneOf((None,)))


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
