# SPDX-License-Identifier: BSD-3-Clause
"""Ensembles of perceptrons whose members share their weight matrices."""

import copy
import itertools
import math
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .._utils.validation import Number, OneOf
from ._networks import activation_named, as_tuple, check_embeddings
from ._stacks import SharedLinear, StackedLinear, as_linear

_SIZE = Number(Integral, 1)

_SPREAD = 1.0  # standard deviation of the members' first scales of the inputs


class TabM(nn.Module):
    """Ensemble of perceptrons that share their weight matrices [1]_.

    Each member scales the inputs by a vector of its own, and has its own output layer; in the full
    form it also scales the inputs and outputs of every hidden layer, and has its own biases. Given
    to an ensemble as ``module=TabM``, it is all of its `n_members` in one network, for a few times
    the time of one member.

    Parameters
    ----------
    in_features, out_features, dropout, generator : as in :class:`MLP`
    n_members : int, default=32
        Number of members k; ensembles fill in their own.
    hidden_units : tuple of int, default=(128, 128)
        Width of each hidden layer.
    activation : str, default="relu"
        Activation after each hidden layer: "relu", "tanh", "silu", "gelu" or "identity".
    mini : bool, default=True
        Whether members differ in the scale of the inputs and in the output layer only, which is
        TabM-mini. The full form learns more slowly.
    embeddings : PiecewiseLinear, "auto" or None, default=None
        For estimators, which encode samples by it, as for :class:`MLP`.

    Notes
    -----
    It is a stack of one network with k heads, and maps samples of shape (1, n, in_features) to
    (1, k, n, out_features). In training it deals the samples to its members in turn, sample i to
    member ``i mod k``, and gives one output for each sample, (1, n, out_features): all members
    together take as many operations as one network. Members that all see the same samples, as in
    [1]_, are less accurate in the same time.

    Weights and biases start as torch's ``nn.Linear`` does, the scales of the inputs of the first
    layer as normal numbers around 1, and all others at 1. Random signs, as in [1]_, set members as
    far apart, but make of one function as many as there are signs, which takes longer to learn.

    References
    ----------
    .. [1] Gorishniy, Kotelnikov & Babenko (2025), "TabM: Advancing Tabular Deep Learning with
           Parameter-Efficient Ensembling"; the layers are those of Wen, Tran & Ba (2020),
           "BatchEnsemble: an Alternative Approach to Efficient Ensemble and Lifelong Learning".
    """

    holds_all_members = True  # of an ensemble, see `shares_weights`

    def __init__(
        self,
        in_features: int,
        out_features: int,
        n_members: int = 32,
        hidden_units: Any = (128, 128),
        activation: str = "relu",
        mini: bool = True,
        dropout: Any = 0.0,
        embeddings: Any = None,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        if not _SIZE.accepts(in_features):
            raise ValueError(
                f"in_features must be an integer, the number of columns of X; got {in_features!r}."
            )
        _SIZE.check(out_features, "out_features")
        _SIZE.check(n_members, "n_members")
        units = as_tuple(hidden_units)
        if not units or not all(map(_SIZE.accepts, units)):
            raise ValueError(
                f"hidden_units must be one or more positive integers, got {hidden_units!r}."
            )
        OneOf((True, False)).check(mini, "mini")
        check_embeddings(embeddings, "embeddings")
        Number(Real, 0, 1, closed="left").check(dropout, "dropout")
        self.lead = (1, n_members)

        def uniform(fan_in: int, *shape: int) -> Tensor:
            bound = 1.0 / math.sqrt(fan_in)
            return nn.init.uniform_(torch.empty(shape), -bound, bound, generator=generator)

        layers: list[nn.Module] = []
        for k, (fan_in, fan_out) in enumerate(itertools.pairwise((in_features, *units))):
            weight = uniform(fan_in, 1, fan_in, fan_out)
            bias = uniform(fan_in, 1, 1 if mini else n_members, fan_out)
            r = None if mini and k else torch.ones(1, n_members, fan_in)
            if r is not None and k == 0:
                r.normal_(1.0, _SPREAD, generator=generator)
            s = None if mini else torch.ones(1, n_members, fan_out)
            layers += [SharedLinear(weight, bias, r, s), activation_named(activation)]
            if dropout:
                layers.append(nn.Dropout(float(dropout)))
        self.core = nn.Sequential(*layers)
        weight = uniform(units[-1], *self.lead, units[-1], out_features)
        self.heads = StackedLinear(weight, uniform(units[-1], *self.lead, 1, out_features))

    @property
    def n_members(self) -> int:
        """Number of members k."""
        return self.lead[1]

    @property
    def draws_globally(self) -> bool:
        """Whether training draws from torch's global generator."""
        return any(isinstance(layer, nn.Dropout) for layer in self.core)

    @property
    def extra_activations(self) -> int:
        """Size of the outputs of the hidden layers of all members, for one sample."""
        shared = (layer for layer in self.core if isinstance(layer, SharedLinear))
        return self.n_members * sum(layer.weight.shape[-1] for layer in shared)

    def networks(self) -> list[nn.Module]:
        """Return the members as networks of their own, which predict the same; see :func:`unstack`.

        The matrix of member m is ``diag(r[m]) weight diag(s[m])``.

        Returns
        -------
        networks : list of Module
        """
        return [nn.Sequential(*self._layers_of(m)) for m in range(self.n_members)]

    @torch.no_grad()
    def _layers_of(self, m: int) -> Iterator[nn.Module]:
        for layer in self.core:
            if not isinstance(layer, SharedLinear):
                yield copy.deepcopy(layer)
                continue
            weight, bias = layer.weight[0], layer.bias[0, m % layer.bias.shape[1]]
            if layer.r is not None:
                weight = layer.r[0, m, :, None] * weight
            if layer.s is not None:
                weight = weight * layer.s[0, m]
            yield as_linear(weight, bias)
        yield as_linear(self.heads.weight[0, m], self.heads.bias[0, m, 0])

    def forward(self, x: Tensor) -> Tensor:
        """Map samples (1, n, in) to (1, k, n, out), and in training to (1, n, out).

        Parameters
        ----------
        x : Tensor of shape (1, n, in)

        Returns
        -------
        outputs : Tensor of shape (1, k, n, out) or (1, n, out)
        """
        if not self.training:
            return self._outputs(x.unsqueeze(2))
        n = x.shape[1]
        x = F.pad(x, (0, 0, 0, -n % self.n_members))
        outputs = self._outputs(x.unflatten(1, (-1, self.n_members)))
        return outputs.transpose(1, 2).flatten(1, 2)[:, :n]

    def _outputs(self, h: Tensor) -> Tensor:
        """Map samples of each member, (1, n, k, in), or shared ones, to (1, k, n, out)."""
        return self.heads(self.core(h).transpose(1, 2))
