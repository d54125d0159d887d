# SPDX-License-Identifier: BSD-3-Clause
"""Beam search, and the edit distance between sequences."""

from collections.abc import Callable
from numbers import Integral

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from .._utils.validation import Number
from ._tokens import check_tokens


def beam_search(
    next_log_probs: Callable[[Tensor], Tensor],
    prefix: Tensor,
    beam_size: int,
    max_length: int,
    *,
    begin_token: int,
    end_token: int,
    pad_token: int,
) -> tuple[Tensor, Tensor]:
    """Search for the most probable sequences of tokens.

    Each step extends the `beam_size` most probable prefixes by every token. Sequences that have
    ended stay among them, and the search is over when all have ended. A beam of one is greedy.

    `next_log_probs` takes prefixes (n, B, t), each starting with `begin_token`, and gives the log
    probabilities (n, B, K) of the next token. `prefix` (n, n_given) are tokens with which the
    sequences of a row begin, padded; they have probability one. Padding is never predicted, nor is
    `begin_token`, which need not be among the K, unless it is the end token too.

    Returns tokens (n, B, T), the most probable sequence first, without `begin_token`, each ending
    in `end_token` unless it was cut short at `max_length`, and then padded; and log probabilities
    of the sequences (n, B), in nats, ``-inf`` where there are fewer than B.
    """
    n_rows, n_given = prefix.shape
    tokens = prefix.new_full((n_rows, beam_size, 1), begin_token)
    total = torch.full((n_rows, beam_size), -torch.inf, device=prefix.device)
    total[:, 0] = 0.0  # one prefix to begin with
    has_ended = torch.zeros_like(total, dtype=torch.bool)
    for t in range(max_length):
        log_probs = next_log_probs(tokens).to(total.dtype, copy=True)
        log_probs[..., pad_token] = -torch.inf
        if begin_token != end_token:
            begin = slice(begin_token, begin_token + 1)  # empty if not among the K
            log_probs[..., begin] = -torch.inf
        if t < n_given:
            _force(log_probs, prefix[:, t], pad_token)
        log_probs[has_ended] = -torch.inf
        log_probs[..., pad_token].masked_fill_(has_ended, 0.0)  # padding costs nothing then
        total, best = (total.unsqueeze(-1) + log_probs).flatten(1).topk(beam_size)
        origin, token = best // log_probs.shape[-1], best % log_probs.shape[-1]
        tokens = tokens.gather(1, origin.unsqueeze(-1).expand(-1, -1, t + 1))
        tokens = torch.cat([tokens, token.unsqueeze(-1)], -1)
        has_ended = has_ended.gather(1, origin) | (token == end_token)
        if (has_ended | (total == -torch.inf)).all():
            break
    return tokens[..., 1:].masked_fill((total == -torch.inf).unsqueeze(-1), pad_token), total


def _force(log_probs: Tensor, given: Tensor, pad_token: int) -> None:
    """Give probability one to the given tokens (n,) that are no padding, in place."""
    rows = (given != pad_token).nonzero().squeeze(-1)
    log_probs[rows] = -torch.inf
    log_probs[rows, :, given[rows]] = 0.0


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
