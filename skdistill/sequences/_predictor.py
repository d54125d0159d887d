# SPDX-License-Identifier: BSD-3-Clause
"""Models of sequences: beam search, scores, and an ensemble of trained networks."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils import gen_batches
from torch import Tensor, nn
from torch.nn.functional import pad

from .._utils.validation import Number
from ..distributions import EmpiricalCategorical, Uncertainty
from ..losses import MemberStatistics
from ._scored import ScoredSequences
from ._tokens import SpecialTokens, check_tokens

_CHUNK_NUMBERS = 2**22  # log probabilities that are predicted at a time


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
                f"{(y == begin).any(1).argmax()} has it ({begin})."
            )
        goes_on = (y[:, :-1] == end) & (y[:, 1:] != pad)
        if goes_on.any():
            raise ValueError(
                f"{name} must hold only padding ({pad}) after tokens__end "
                f"({end}); row {goes_on.any(1).argmax()} goes on."
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

    @torch.no_grad()
    def _scored(
        self, source: np.ndarray, tokens: np.ndarray, is_scored: np.ndarray
    ) -> ScoredSequences:
        """Score those of the tokens (n, B, T) for which `is_scored` holds, with RMI."""
        values = np.zeros((4, *tokens.shape))
        for rows in self._chunks(*tokens.shape):
            few, at = torch.from_numpy(tokens[rows]), torch.from_numpy(is_scored[rows])
            target = few.flatten(0, 1)
            distribution = self._distribution(
                self._inputs(torch.from_numpy(source[rows]), few.shape[1]),
                # Inputs: shifted by one token.
                pad(target[:, :-1], (1, 0), value=self._tokens.begin),
                at.flatten(0, 1),
            )
            log_mean = distribution.log_mean
            codes = few[at].to(log_mean.device).unsqueeze(-1)
            _, *parts = distribution.uncertainty()
            reverse = distribution.reverse_mutual_information
            found = torch.stack([log_mean.gather(-1, codes).squeeze(-1), *parts, reverse])
            values[:, rows][:, is_scored[rows]] = found.cpu().numpy()
        log_probs, aleatoric, epistemic, reverse = values
        # Fewer than B sequences were found.
        is_missing = (tokens == self._tokens.pad).all(-1)
        log_probs[:, 1:, 0][is_missing[:, 1:]] = -np.inf
        total = aleatoric + epistemic
        if not self._tells_parts:
            aleatoric = epistemic = reverse = None
        uncertainty = Uncertainty(total, aleatoric, epistemic, measure="entropy")
        return ScoredSequences(tokens, is_scored, log_probs, uncertainty, reverse)

    def _inputs(self, source: Tensor, beam_size: int) -> Tensor | None:
        """The source of each sequence, if there is one."""
        return source.repeat_interleave(beam_size, 0) if self._has_source else None

    def _chunks(self, n_rows: int, beam_size: int, length: int) -> Iterator[slice]:
        """Slices of the rows to predict at a time."""
        per_row = beam_size * length * self.n_tokens_ * self._n_members
        return gen_batches(n_rows, max(1, _CHUNK_NUMBERS // per_row))


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
            rows = (prefix[:, t] != pad_token).nonzero().squeeze(-1)
            log_probs[rows] = -torch.inf
            log_probs[rows, :, prefix[rows, t]] = 0.0
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


class SequenceEnsemble(SequencePredictor):
    """Trained sequence-to-sequence networks, or language models, that predict as one.

    The next token has the mean of the members' probabilities, whatever probabilities they give to
    the sequence as a whole (a product of expectations).

    Parameters
    ----------
    members : list of nn.Module
        Networks with one vocabulary. They are called as ``module(source, target)``, or as
        ``module(target)`` without a source, with tokens of shape (n, S) and (n, T), int64, where
        a target starts with `tokens.begin` and may have any length. They give logits of shape
        (n, T, K) of the token that follows each one, which depend on the tokens up to it only. They
        are put in evaluation mode, and run on the device of their parameters.
    has_source : bool, default=True
        Whether the members take a source. Language models take none.
    tokens : SpecialTokens, default=None
        The tokens that begin, end and pad sequences; None is ``SpecialTokens()``.

    Attributes
    ----------
    n_tokens_ : int
        Number of tokens that are predicted: K.

    Raises
    ------
    TypeError, ValueError
        If members are no modules, or give anything but logits of one vocabulary.

    Examples
    --------
    >>> from skdistill.datasets import TRANSLATION_TOKENS, make_translation
    >>> from skdistill.modules import RecurrentSequenceModel
    >>> from skdistill.sequences import SequenceEnsemble
    >>> sizes = TRANSLATION_TOKENS.n_source, TRANSLATION_TOKENS.n_target
    >>> ensemble = SequenceEnsemble([RecurrentSequenceModel(*sizes) for _ in range(3)])
    >>> X, y = make_translation(4, random_state=0)
    >>> ensemble.generate(X, beam_size=2).reverse_mutual_information().shape
    (4,)
    """

    _called = "members"  # in messages

    def __init__(
        self, members: object, *, has_source: bool = True, tokens: SpecialTokens | None = None
    ):
        wanted = f"{self._called} must be a list of torch modules"
        if not isinstance(members, (list, tuple)) or not members:
            raise TypeError(f"{wanted}, got {members!r}.")
        for number, member in enumerate(members):
            if not isinstance(member, nn.Module):
                raise TypeError(f"{wanted}; number {number} is {type(member).__name__}.")
        self._tokens = SpecialTokens.of(tokens)
        self.members = [member.eval() for member in members]
        self._has_source = has_source
        self._n_members = len(members)
        source = torch.tensor([[self._tokens.end]]) if has_source else None
        target_in = torch.tensor([[self._tokens.begin]])
        at = torch.ones_like(target_in, dtype=torch.bool)
        numbers = range(len(self.members))
        sizes = [self._logits(number, source, target_in, at).shape[-1] for number in numbers]
        if len(set(sizes)) > 1:
            raise ValueError(
                f"{self._called} must share one vocabulary; its members predict {sizes} tokens."
            )
        end, pad = self._tokens.end, self._tokens.pad
        if max(end, pad) >= sizes[0]:
            raise ValueError(
                f"tokens__end and tokens__pad must be among the {sizes[0]} tokens that "
                f"{self._called} predict, got {end} and {pad}."
            )
        self.n_tokens_ = sizes[0]

    def _distribution(self, source, target_in, at):
        members = [self._logits(m, source, target_in, at) for m in range(len(self.members))]
        return EmpiricalCategorical.from_logits(torch.stack(members))

    def member_statistics(
        self,
        source: Tensor | None,
        target_in: Tensor,
        at: Tensor,
        temperature: float = 1.0,
        smoothing: float = 0.0,
    ) -> MemberStatistics:
        """Statistics of the members' predictions that distribution distillation learns from.

        Parameters
        ----------
        source, target_in, at : Tensor of shape (n, S) or None, (n, T) and (n, T)
            Tokens, those of targets with `tokens.begin` first, and after which of these to predict:
            N in all.
        temperature, smoothing : float, default=1.0 and 0.0
            See ``MemberStatistics``.

        Returns
        -------
        statistics : MemberStatistics
            With tensors of shape (N, K).
        """
        statistics = MemberStatistics(temperature, smoothing)
        for number in range(len(self.members)):
            statistics.add(self._logits(number, source, target_in, at))
        return statistics

    @torch.no_grad()
    def _logits(self, number: int, source: Tensor | None, target_in: Tensor, at: Tensor) -> Tensor:
        """Logits (N, K) of a member, on the device of the first."""
        member, device = self.members[number], _device_of(self.members[number])
        inputs = (target_in,) if source is None else (source, target_in)
        who = f"{self._called}: number {number} ({type(member).__name__})"
        try:
            logits = member(*(tokens.to(device) for tokens in inputs))
        except (IndexError, RuntimeError) as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            raise ValueError(
                f"{who} cannot read the tokens: those of X and y, tokens__begin, tokens__end "
                "and tokens__pad must be in its vocabulary, and y None for a language model only "
                f"({error})."
            ) from error
        if not isinstance(logits, Tensor) or logits.shape[:-1] != target_in.shape:
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ValueError(
                f"{who} must give logits of shape (n, T, K) = {(*target_in.shape, 'K')}; got "
                f"{shape}."
            )
        logits = logits[at.to(device)]
        if logits.isnan().any():
            row = at.nonzero()[logits.isnan().any(-1).cpu()][0, 0]
            raise ValueError(
                f"{who} gives NaN after the target {target_in[row].tolist()}"
                + ("." if source is None else f" of the source {source[row].tolist()}.")
            )
        dtype = torch.promote_types(logits.dtype, torch.float32)
        return logits.to(_device_of(self.members[0]), dtype)


def _device_of(module: nn.Module) -> torch.device:
    return next(module.parameters(), torch.zeros(())).device
