# SPDX-License-Identifier: BSD-3-Clause
"""Trained networks of sequences, as one ensemble."""

import torch
from torch import Tensor, nn

from ..distributions import EmpiricalCategorical
from ..losses import MemberStatistics
from ._predictor import SequencePredictor
from ._tokens import SpecialTokens


class SequenceEnsemble(SequencePredictor):
    """Trained sequence-to-sequence networks, or language models, that predict as one.

    Members are combined at each token, as a product of expectations: the next token has the mean of
    the members' probabilities, whatever probabilities they give to the sequence as a whole.

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
        if not isinstance(members, (list, tuple)) or not members:
            raise TypeError(f"{self._called} must be a list of torch modules, got {members!r}.")
        for number, member in enumerate(members):
            if not isinstance(member, nn.Module):
                raise TypeError(
                    f"{self._called} must be a list of torch modules; number {number} is "
                    f"{type(member).__name__}."
                )
        self._tokens = SpecialTokens.of(tokens)
        self.members = [member.eval() for member in members]
        self._has_source = has_source
        self._n_members = len(members)
        self.n_tokens_ = self._count_tokens()

    def _count_tokens(self) -> int:
        """Size of the vocabulary that the members share."""
        source = torch.tensor([[self._tokens.end]]) if self._has_source else None
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
        return sizes[0]

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
        member = self.members[number]
        device = _device_of(member)
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
