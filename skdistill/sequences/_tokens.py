# SPDX-License-Identifier: BSD-3-Clause
"""Tokens with a meaning of their own, checks of arrays of tokens, and their edit distance."""

from __future__ import annotations

import copy
from dataclasses import KW_ONLY, dataclass
from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array

from .._utils.validation import Number, OneOf, Settings, SettingsRule, errors_about

_TOO_LARGE = 2**24  # tokens pass through float32, which holds all whole numbers up to here


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


def token_error_rates(y_true: ArrayLike, y_pred: ArrayLike, pad_token: int = 0) -> np.ndarray:
    """Edit distance of each sequence from its reference, over the length of the reference.

    It is the least number of tokens to insert, delete or replace (Levenshtein), and the loss of a
    row in :func:`skdistill.metrics.prediction_rejection_ratio`.

    Parameters
    ----------
    y_true : array-like of int of shape (n_samples, n_true)
        References, padded at the end, each of at least one token.
    y_pred : array-like of int of shape (n_samples, n_pred)
        Sequences, padded at the end.
    pad_token : int, default=0
        The padding, which counts as nothing; an end token counts as a token.

    Returns
    -------
    rates : ndarray of shape (n_samples,)
        Not negative; above one for sequences that are long and wrong.

    Examples
    --------
    >>> from skdistill.sequences import token_error_rates
    >>> token_error_rates([[5, 6, 7, 2]], [[5, 7, 2, 0]])
    array([0.25])
    """
    Number(Integral, 0).check(pad_token, "pad_token")
    y_true = check_tokens(y_true, "y_true", pad_token)
    y_pred = check_tokens(y_pred, "y_pred", pad_token)
    if len(y_true) != len(y_pred):
        raise ValueError(f"y_pred must have {len(y_true)} rows as y_true has, got {len(y_pred)}.")
    n_true, n_pred = ((y != pad_token).sum(1) for y in (y_true, y_pred))
    if not n_true.all():
        raise ValueError(f"y_true must have a token in each row; row {n_true.argmin()} has none.")
    rows = np.arange(len(y_true))
    # Distances between the first i tokens of the one and the first j of the other, (i, j, row).
    distance = np.zeros((y_true.shape[1] + 1, y_pred.shape[1] + 1, len(rows)))
    distance[:, 0] = np.arange(len(distance))[:, np.newaxis]
    distance[0] = np.arange(distance.shape[1])[:, np.newaxis]
    for i in range(y_true.shape[1]):
        for j in range(y_pred.shape[1]):
            replaced = distance[i, j] + (y_true[:, i] != y_pred[:, j])
            shifted = 1 + np.minimum(distance[i, j + 1], distance[i + 1, j])
            distance[i + 1, j + 1] = np.minimum(replaced, shifted)
    return distance[n_true, n_pred, rows] / n_true


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
            f"{goes_on.any(1).argmax()} goes on after it."
        )
    return tokens
