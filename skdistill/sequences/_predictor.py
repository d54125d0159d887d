# SPDX-License-Identifier: BSD-3-Clause
"""Public methods of models of sequences: an ensemble or its student."""

from abc import ABC, abstractmethod
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.functional import pad

from .._utils.validation import Number
from ..distributions import Uncertainty
from ._scored import ScoredSequences
from ._search import beam_search
from ._tokens import SpecialTokens, check_tokens, first_row

# Rows are predicted in chunks of about this many log probabilities.
_CHUNK_NUMBERS = 2**22


class SequencePredictor(ABC):
    """Model whose predictions are all read off the distribution of the next token.

    Subclasses define `_distribution`, and set the attributes below.
    """

    _tokens: SpecialTokens
    n_tokens_: int  # size of the vocabulary, K
    _has_source: bool  # False for a language model
    _n_members: int = 1  # for the size of chunks

    # --- to be overridden ---------------------------------------------------------------------

    def _check_source(self, X) -> np.ndarray:
        """Check inputs, tokens of shape (n, S): sources, or prefixes for a language model."""
        if not self._has_source:
            return self._check_target(X, "X")
        return check_tokens(X, "X", self._tokens.pad)

    @property
    def _tells_parts(self) -> bool:
        """Whether the distribution has aleatoric and epistemic parts."""
        return True

    @abstractmethod
    def _distribution(self, source: Tensor | None, target_in: Tensor, at: Tensor) -> Any:
        """Distribution of the tokens after those of `target_in`, (n, T), where `at`, (n, T)."""

    # --- prediction methods -----------------------------------------------------------------

    def predict(self, X: ArrayLike, max_length: int | None = None) -> np.ndarray:
        """Predict sequences greedily, the most probable token after the other.

        Parameters
        ----------
        X : array-like of int of shape (n_samples, n_source)
            Tokens of the sources, padded at the end; for a language model, tokens with which the
            sequences begin.
        max_length : int, default=None
            Largest number of tokens of a sequence, given ones and the end token included; None is
            ``2 * n_source + 1``.

        Returns
        -------
        y : ndarray of int64 of shape (n_samples, n_target)
            Each ends in the end token unless it was cut short, and is then padded.
        """
        return self._search(self._check_source(X), 1, max_length)[:, 0]

    def generate(self, X: ArrayLike, beam_size: int = 5, max_length: int | None = None) -> Any:
        """Search for the most probable sequences, with their uncertainty.

        Parameters
        ----------
        X, max_length : as in :meth:`predict`
        beam_size : int, default=5
            Number of sequences to keep: B. 1 is greedy.

        Returns
        -------
        sequences : ScoredSequences
            B for each row, the most probable first. Given tokens are included, but not scored.
        """
        Number(Integral, 1).check(beam_size, "beam_size")
        source = self._check_source(X)
        tokens = self._search(source, beam_size, max_length)
        is_scored = tokens != self._tokens.pad
        if not self._has_source:
            is_given = source[:, np.newaxis, : tokens.shape[-1]] != self._tokens.pad
            is_scored[..., : is_given.shape[-1]] &= ~is_given
        return self._scored(source, tokens, is_scored)

    def score_sequences(self, X: ArrayLike, y: ArrayLike | None = None) -> ScoredSequences:
        """Compute the probability of given sequences, and the uncertainty of their tokens.

        Parameters
        ----------
        X : array-like of int of shape (n_samples, n_source)
            Tokens of the sources; for a language model, the sequences.
        y : array-like of int of shape (n_samples, n_target), default=None
            Sequences to score, padded at the end; None for a language model.

        Returns
        -------
        sequences : ScoredSequences
            One for each row: B is 1.
        """
        source, y = self._check_pairs(self._check_source(X), y)
        tokens = y[:, np.newaxis]
        return self._scored(source, tokens, tokens != self._tokens.pad)

    def score(self, X: ArrayLike, y: ArrayLike | None = None) -> float:
        """Mean log probability of the tokens of given sequences.

        Parameters
        ----------
        X, y : as in :meth:`score_sequences`

        Returns
        -------
        score : float
            In nats; higher is better.
        """
        scored = self.score_sequences(X, y)
        return float(scored.log_probs.sum() / scored.is_scored.sum())

    def predict_uncertainty(self, X: ArrayLike) -> Uncertainty:
        """Predict the uncertainty of the sequences that a beam of 5 finds, per token.

        Parameters
        ----------
        X : array-like of int of shape (n_samples, n_source)
            See :meth:`predict`.

        Returns
        -------
        uncertainty : Uncertainty
            See :meth:`ScoredSequences.uncertainty`.
        """
        return self.generate(X).uncertainty()

    # --- helpers ------------------------------------------------------------------------------

    def _check_pairs(self, source: np.ndarray, y) -> tuple[np.ndarray, np.ndarray]:
        """Sources and targets; for a language model the sources are the targets."""
        if not self._has_source:
            if y is not None:
                raise ValueError("y must be None for a language model, whose sequences are X.")
            return source, source
        if y is None:
            raise ValueError("y must be given: the target sequences of the sources.")
        y = self._check_target(y, "y")
        if len(y) != len(source):
            raise ValueError(f"y must have {len(source)} rows as X has, got {len(y)}.")
        return source, y

    def _check_target(self, y, name: str) -> np.ndarray:
        """Tokens of targets; each may have one end token, its last."""
        begin, end, pad = self._tokens.begin, self._tokens.end, self._tokens.pad
        y = check_tokens(y, name, pad)
        if y.max() >= self.n_tokens_:
            raise ValueError(
                f"{name} must hold tokens that can be predicted, below {self.n_tokens_}; got "
                f"{y.max()}."
            )
        if begin != end and (y == begin).any():
            raise ValueError(
                f"{name} must not hold tokens__begin, which is put before each sequence; row "
                f"{first_row(y == begin)} has it ({begin})."
            )
        goes_on = (y[:, :-1] == end) & (y[:, 1:] != pad)
        if goes_on.any():
            raise ValueError(
                f"{name} must hold only padding ({pad}) after tokens__end "
                f"({end}); row {first_row(goes_on)} goes on."
            )
        return y

    def _search(self, source: np.ndarray, beam_size: int, max_length) -> np.ndarray:
        """Tokens (n, B, T) of the sequences that a beam search finds."""
        if max_length is None:
            max_length = 2 * source.shape[1] + 1
        Number(Integral, 1).check(max_length, "max_length")
        shape = len(source), beam_size, max_length
        out = np.full(shape, self._tokens.pad, dtype=np.int64)
        longest = 1
        for rows in self._chunks(*shape):
            found = self._search_chunk(torch.from_numpy(source[rows]), beam_size, max_length)
            out[rows, :, : found.shape[-1]] = found
            longest = max(longest, found.shape[-1])
        return out[..., :longest]

    @torch.no_grad()
    def _search_chunk(self, source: Tensor, beam_size: int, max_length: int) -> np.ndarray:
        inputs = self._inputs(source, beam_size)

        def next_log_probs(tokens: Tensor) -> Tensor:
            target_in = tokens.flatten(0, 1)
            at = torch.zeros_like(target_in, dtype=torch.bool)
            at[:, -1] = True
            log_probs = self._distribution(inputs, target_in, at).log_mean.cpu()
            return log_probs.unflatten(0, tokens.shape[:2])

        tokens, _ = beam_search(
            next_log_probs,
            source[:, :0] if self._has_source else source,
            beam_size,
            max_length,
            begin_token=self._tokens.begin,
            end_token=self._tokens.end,
            pad_token=self._tokens.pad,
        )
        return tokens.numpy()

    def _scored(
        self, source: np.ndarray, tokens: np.ndarray, is_scored: np.ndarray
    ) -> ScoredSequences:
        """Score those of the tokens (n, B, T) for which `is_scored` holds."""
        values = np.zeros((4, *tokens.shape))
        for rows in self._chunks(*tokens.shape):
            arrays = source[rows], tokens[rows], is_scored[rows]
            values[:, rows][:, is_scored[rows]] = self._score_chunk(*map(torch.from_numpy, arrays))
        log_probs, aleatoric, epistemic, reverse = values
        # Fewer than B sequences were found.
        is_missing = (tokens == self._tokens.pad).all(-1)
        log_probs[:, 1:, 0][is_missing[:, 1:]] = -np.inf
        total = aleatoric + epistemic
        if not self._tells_parts:
            aleatoric = epistemic = reverse = None
        uncertainty = Uncertainty(total, aleatoric, epistemic, measure="entropy")
        return ScoredSequences(tokens, is_scored, log_probs, uncertainty, reverse)

    @torch.no_grad()
    def _score_chunk(self, source: Tensor, tokens: Tensor, is_scored: Tensor) -> np.ndarray:
        """Log probabilities of scored tokens, and both parts and RMI of each, of shape (4, N)."""
        target = tokens.flatten(0, 1)
        distribution = self._distribution(
            self._inputs(source, tokens.shape[1]),
            # Inputs: shifted by one token.
            pad(target[:, :-1], (1, 0), value=self._tokens.begin),
            is_scored.flatten(0, 1),
        )
        log_mean = distribution.log_mean
        codes = tokens[is_scored].to(log_mean.device).unsqueeze(-1)
        _, *parts = distribution.uncertainty()
        reverse = distribution.reverse_mutual_information
        return torch.stack([log_mean.gather(-1, codes).squeeze(-1), *parts, reverse]).cpu().numpy()

    def _inputs(self, source: Tensor, beam_size: int) -> Tensor | None:
        """The source of each sequence, if there is one."""
        return source.repeat_interleave(beam_size, 0) if self._has_source else None

    def _chunks(self, n_rows: int, beam_size: int, length: int):
        """Slices of the rows to predict at a time."""
        per_row = beam_size * length * self.n_tokens_ * self._n_members
        size = max(1, _CHUNK_NUMBERS // per_row)
        return (slice(start, start + size) for start in range(0, n_rows, size))
