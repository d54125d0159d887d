# SPDX-License-Identifier: BSD-3-Clause
"""Parts of fitted modules in forms that are fast in a graph; they compute the same."""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..modules import (
    FunctionDraws,
    InputEncoder,
    MultiHead,
    StackedLinear,
    StackedSequential,
    unstack,
)


def graph_forms(fitted: nn.Module) -> tuple[Any, nn.Module | None]:
    """Return a copy of a module with such parts, on the CPU, and a form of its network, if any.

    That maps encoded samples (n, in) to outputs (S, n, out), of S networks or heads.
    """
    module = copy.deepcopy(fitted).cpu().eval().requires_grad_(False)
    if type(module.inputs) is InputEncoder:
        module.inputs = _Inputs(module.inputs)
    if isinstance(module.functions, FunctionDraws):
        module.functions = _Functions(module.functions)
    network: Any = module.network
    if isinstance(network, StackedSequential) and network.lead == (1,):
        return module, _OneNetwork(network)
    return module, _WideHeads(network) if _has_linear_heads(network) else None


class _OneNetwork(nn.Module):
    """A stack of one network, without the axis of members inside: then layers are ONNX's Gemm."""

    def __init__(self, stacked: Any):
        super().__init__()
        (self.network,) = unstack(stacked)

    def forward(self, X: Tensor) -> Tensor:
        """Map samples (n, in) to outputs (1, n, out)."""
        return self.network(X).unsqueeze(0)


def _has_linear_heads(network: nn.Module) -> bool:
    """Whether a network is one core of layers that are known, with heads of one linear layer."""
    if not isinstance(network, MultiHead) or not isinstance(network.core, StackedSequential):
        return False
    heads = list(network.heads) if isinstance(network.heads, StackedSequential) else []
    is_linear = len(heads) == 1 and isinstance(heads[0], StackedLinear)
    return is_linear and network.core.lead == (1,)


class _WideHeads(nn.Module):
    """A core with heads of one linear layer, which are one wide layer: then all are ONNX's Gemm."""

    def __init__(self, stacked: MultiHead):
        super().__init__()
        (self.core,) = unstack(stacked.core)
        heads: list[Any] = unstack(stacked.heads)
        self.shape = len(heads), heads[0][0].out_features
        self.weight = nn.Parameter(torch.cat([head[0].weight for head in heads]).t().contiguous())
        self.bias = nn.Parameter(torch.cat([head[0].bias for head in heads]))
        self.requires_grad_(False)

    def forward(self, X: Tensor) -> Tensor:
        """Map samples (n, in) to the heads' outputs (M, n, out)."""
        found = torch.addmm(self.bias, self.core(X), self.weight)
        return found.unflatten(-1, self.shape).transpose(0, 1)


class _Inputs(nn.Module):
    """An encoder of samples that treats numbers and bins apart: numbers alone are compressed."""

    def __init__(self, encoder: InputEncoder):
        super().__init__()
        self.encoder, k = encoder, encoder.n_numbers
        kept: dict[str, Any] = encoder._buffers
        columns = torch.as_tensor(encoder.columns[:k])
        self.numbers = None if k == len(kept["loc"]) else columns
        self.sources = torch.as_tensor([]) if kept["sources"] is None else kept["sources"][k:]
        scale = _LIMIT * kept["widths"][:k] if encoder.compresses else kept["widths"][:k]
        self.loc, self.scale = kept["starts"][:k], scale
        self.starts, self.widths = kept["starts"][k:], kept["widths"][k:]

    def forward(self, x: Tensor) -> Tensor:
        """Map samples (n, n_columns) to inputs (n, n_inputs)."""
        encoder: dict[str, Any] = self.encoder._buffers
        is_missing = x.isnan()
        x = torch.where(is_missing, encoder["loc"], x)
        z = x if self.numbers is None else x.index_select(-1, self.numbers)
        z = (z - self.loc) / self.scale
        parts = [_compressed(z) if self.encoder.compresses else z]
        if encoder["indicators"] is not None:
            parts.append(is_missing.index_select(-1, encoder["indicators"]).to(x.dtype))
        if self.encoder.n_categories:
            has = x.index_select(-1, encoder["category_columns"]).eq(encoder["codes"])
            parts.append(has.to(x.dtype))
        if self.encoder.n_bins:
            bins = (x.index_select(-1, self.sources) - self.starts) / self.widths
            parts.append(bins.clamp(0, 1))
        return torch.cat(parts, -1) if len(parts) > 1 else parts[0]


_LIMIT = 5.0  # of numbers that are not compressed


def _compressed(z: Tensor) -> Tensor:
    """Return 5 z if that is within 5 of 0, and else ±(5 + log(5 |z| - 4)), in six operations."""
    beyond = (z.abs().clamp(min=1.0) - (1 - 1 / _LIMIT)).log()  # log(1 / 5) for those within
    return z.clamp(-1, 1) * (beyond + (_LIMIT + np.log(_LIMIT)))


class _Functions(FunctionDraws):
    """Functions whose kernel matrix is transposed: for one row, onnxruntime is twice as fast.

    Its whitening matrix is a triangle, of which most zeros are left out.
    """

    def __init__(self, functions: FunctionDraws):
        nn.Module.__init__(self)
        self.__dict__.update(functions.__dict__)
        kept: dict[str, Any] = functions._buffers
        self._buffers = dict(kept)
        lower = kept["whitening"].t()
        half = len(lower) // 2
        self.register_buffer("points", kept["inducing"].t().contiguous())
        self.register_buffer("offsets", kept["minus_half_squares"].unsqueeze(-1))
        self.register_buffer("first", lower[:half, :half].contiguous())
        self.register_buffer("last", lower[half:].contiguous())

    def _kernel(self, both: Tensor) -> tuple[Tensor, Tensor]:
        kept: dict[str, Any] = self._buffers
        kernel = torch.addmm(kept["offsets"], kept["points"], both.t()).exp()
        first, last = kept["first"] @ kernel[: len(kept["first"])], kept["last"] @ kernel
        known = (first * first).sum(0) + (last * last).sum(0)
        return kernel.t(), (kept["most"] - known).relu().unsqueeze(-1)
