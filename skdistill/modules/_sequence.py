# SPDX-License-Identifier: BSD-3-Clause
"""A network that predicts the next token: of a translation, or of a text."""

import math

import torch
from torch import Tensor, nn

from ._layers import started, whole_number
from ._networks import MLP


class RecurrentSequenceModel(nn.Module):
    """Sequence-to-sequence network of two recurrent layers with attention [1]_; a language model.

    One GRU reads the target so far. Another reads the source, and the state of the first attends to
    its states; both together give the logits of the next token. Padding of the source is not
    attended to, and a prediction does not depend on later tokens.

    Parameters
    ----------
    in_features : int or None
        Number of tokens of the source; None is a language model, which has no source.
    out_features : int
        Number of tokens of the target.
    hidden_units : int, default=64
        Width of embeddings and states.
    pad_token : int, default=0
        Token that pads sources, after their last token.
    generator : torch.Generator, default=None
        Source of the initial weights; None is torch's global generator.

    References
    ----------
    .. [1] Luong, Pham, Manning (2015), "Effective Approaches to Attention-based Neural Machine
       Translation", Section 3.1.

    Examples
    --------
    >>> import torch
    >>> from skdistill.modules import RecurrentSequenceModel
    >>> source, target = torch.ones(5, 8, dtype=torch.long), torch.ones(5, 9, dtype=torch.long)
    >>> RecurrentSequenceModel(20, 30)(source, target).shape
    torch.Size([5, 9, 30])
    """

    def __init__(
        self,
        in_features: int | None,
        out_features: int,
        hidden_units: int = 64,
        pad_token: int = 0,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        width = whole_number("hidden_units", hidden_units)
        self.pad_token = pad_token
        self.target = _Reader("out_features", out_features, width, generator)
        n_read = 1
        if in_features is not None:
            self.source = _Reader("in_features", in_features, width, generator)
            n_read = 2
        self.head = MLP(n_read * width, out_features, (width,), generator=generator)

    def forward(self, *tokens: Tensor) -> Tensor:
        """Predict the token after each one of the target.

        Parameters
        ----------
        *tokens : Tensor of int64
            A source of shape (n, S), unless it is a language model, and a target (n, T).

        Returns
        -------
        logits : Tensor of shape (n, T, K)
        """
        *source, target = tokens
        read = [self.target(target)]
        read += [self._attended(one, read[0]) for one in source]
        return self.head(torch.cat(read, -1))

    def _attended(self, source: Tensor, queries: Tensor) -> Tensor:
        """Mean states of the source (n, T, width), weighted by each query's attention."""
        keys = self.source(source)
        scores = queries @ keys.mT / math.sqrt(keys.shape[-1])  # (n, T, S)
        is_pad = (source == self.pad_token).unsqueeze(1)
        return scores.masked_fill(is_pad, torch.finfo(scores.dtype).min).softmax(-1) @ keys


class _Reader(nn.Module):
    """States (n, T, width) of a GRU that reads tokens (n, T)."""

    def __init__(self, name: str, n_tokens: int, width: int, generator: torch.Generator | None):
        super().__init__()
        n_tokens = whole_number(name, n_tokens)
        weight = torch.empty(n_tokens, width).normal_(generator=generator)
        self.embedding = nn.Embedding(n_tokens, width, _weight=weight)
        cell = nn.GRU(width, width, batch_first=True, device="meta")
        self.cell = started(cell, width, generator)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.cell(self.embedding(tokens))[0]
