# SPDX-License-Identifier: BSD-3-Clause
"""What a fitted estimator predicts, as a module whose outputs have names."""

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from .._data.columns import Columns
from .._data.conversions import in_words
from .._estimator.predicting import DistributionEstimator
from .._utils.validation import errors_about
from ..modules import (
    FunctionDraws,
    InputEncoder,
    MultiHead,
    StackedLinear,
    StackedSequential,
    unstack,
)
from ..sequences import SequencePredictor
from ._quantiles import quantiles_of

_COVERAGE = 0.9  # of the output `interval`
_LIMIT = 5.0  # of numbers that are not compressed


def check_has_prediction_methods(estimator: Any, name: str, wanted: str, model: Any) -> None:
    """Raise a TypeError for what the function of that name does not take."""
    if isinstance(estimator, SequencePredictor):
        raise TypeError(
            f"model must predict samples, got {type(estimator).__name__}: {name} has no graph for "
            "models of sequences, since torch.export ties recurrent networks to one number of "
            "tokens."
        )
    if not isinstance(estimator, DistributionEstimator):
        advice = " Give its regressor_, of transformed y." if hasattr(model, "regressor_") else ""
        raise TypeError(f"{name} takes {wanted}; got {type(model).__name__}.{advice}")
    check_is_fitted(estimator)


class GraphOutputs(nn.Module):
    """All that a fitted estimator predicts for samples, as a tuple of tensors that have `names`.

    Its module is copied to the CPU. `quantiles` and `outputs` are as in :func:`export_onnx`.
    `examples` are the tensors for `inputs`, ``{"X": X}``, two samples of zeros.
    """

    def __init__(
        self, estimator: DistributionEstimator, quantiles: Any = None, outputs: Any = "auto"
    ):
        super().__init__()
        self.plan = estimator._plan
        self.module, self.network = graph_forms(estimator.module_)
        with errors_about("quantiles"):
            levels = np.atleast_1d(np.asarray([] if quantiles is None else quantiles, float))
        is_numeric = self.plan.task.kind == "regressor"
        if not (is_numeric or quantiles is None) or not all(0 < level < 1 for level in levels):
            raise ValueError(
                "quantiles must be numbers strictly between 0 and 1, for a regressor, or None; got "
                f"{quantiles!r}."
            )
        self.levels = [float(level) for level in levels]
        dtype = next(self.module.parameters()).dtype
        columns = estimator._input_schema.columns
        self.codes = None if columns is None else _Codes(columns, dtype)
        example = torch.zeros(2, *estimator._recipe.row_shape, dtype=dtype)
        self.inputs = {"X": example.clone()}
        if self.module.functions is not None:
            example[0] = torch.nan  # a graph has all that is computed where X is unknown
        self.names: list[str] = []
        with torch.no_grad():
            self.names = self._chosen(outputs, example)
            self.examples = list(self(example))

    def _chosen(self, outputs: Any, example: Tensor) -> list[str]:
        names, has_cheap_interval = list(self._read(example)), False
        if self.plan.task.kind == "regressor":
            closed = self.module.distribution(example).closed_quantile(np.array([0.5]))
            has_cheap_interval = closed is not None
            names.insert(names.index("std") + 1, "interval")
        names += ["members"] * self.plan.has_members
        if isinstance(outputs, str) and outputs in ("auto", "all"):
            costly = {"members"} if has_cheap_interval else {"members", "interval"}
            return [name for name in names if outputs == "all" or name not in costly]
        is_list = isinstance(outputs, (list, tuple)) and len(outputs) > 0
        if not is_list or not set(map(str, outputs)) <= set(names):
            known = f"'auto', 'all' or a list of names among {in_words(names)}"
            raise ValueError(f"outputs must be {known}; got {outputs!r}.")
        return [name for name in names if name in outputs or name == "quantiles"]

    def forward(self, X: Tensor) -> tuple[Tensor, ...]:
        """Map samples (n, ...) to tensors whose first axis is n."""
        found = self._read(X)
        return tuple(found[name] for name in self.names)

    def _read(self, X: Tensor) -> dict[str, Tensor]:
        X = X if self.codes is None else self.codes(X)
        if self.network is None:  # the module's own form
            outputs = self.module.outputs(X)
        else:
            outputs = self.network(self.module.encode(X))
        found = dict(self.read(outputs, self.module.of_outputs(outputs, X)))
        if "members" in self.names:
            found["members"] = self.module.members(outputs, X)
        return found

    def read(self, outputs: Tensor, distribution: Any) -> Iterator[tuple[str, Tensor]]:
        """Name what outputs of the network, (S, n, p), and their distribution predict."""
        task, parts = self.plan.task, distribution.uncertainty()
        if task.kind == "classifier":
            yield "label", task.point(distribution)
            yield "probabilities", distribution.mean
        else:
            yield "mean", task.per_target(distribution.mean)
            yield "std", task.per_target(parts.total.sqrt())
            tail = (1 - _COVERAGE) / 2
            ends = [tail, 1 - tail] if "interval" in self.names else []
            if ends or self.levels:
                found = task.per_target(quantiles_of(distribution, [*ends, *self.levels]))
            if ends:
                yield "interval", found[..., :2]
            if self.levels:
                yield "quantiles", found[..., len(ends) :]
        if self.plan.tells_parts:
            yield "aleatoric", task.per_target(parts.aleatoric)
            yield "epistemic", task.per_target(parts.epistemic)
        yield "total", task.per_target(parts.total)
        yield from self.plan.auxiliary_outputs(outputs, self.module).items()


class _Codes(nn.Module):
    """Turns categories into codes, and those that training had not into NaN."""

    def __init__(self, columns: Columns, dtype: torch.dtype):
        super().__init__()
        found: list[tuple[int, float, int]] = []  # column, value and code of each category
        for column, known in columns.categories.items():
            in_X = range(len(known)) if column in columns.text else map(float, known)
            found += [(column, value, code) for code, value in enumerate(in_X, start=1)]
        sources, values, codes = torch.tensor(found, dtype=torch.float64).view(-1, 3).unbind(1)
        self.sources, self.values = sources.long(), values.to(dtype)
        self.code_of = torch.zeros(len(found), columns.n_columns, dtype=dtype)
        self.code_of[torch.arange(len(found)), self.sources] = codes.to(dtype)
        self.is_category = torch.zeros(columns.n_columns, dtype=torch.bool)
        self.is_category[list(columns.categories)] = True

    def forward(self, X: Tensor) -> Tensor:
        """Map samples (n, n_columns) to numbers and codes."""
        has = X.index_select(-1, self.sources).eq(self.values).to(X.dtype)
        codes = has @ self.code_of - 1  # -1 where no category is known
        return torch.where(self.is_category, torch.where(codes < 0, torch.nan, codes), X)


def traced(graph_outputs: GraphOutputs) -> Any:
    """Trace prediction methods, for any number of samples."""
    rows, shapes = torch.export.Dim("batch", min=1), torch.export.ShapesCollection()
    inputs = tuple(graph_outputs.inputs.values())
    for tensor in inputs:
        shapes[tensor] = {0: rows}
    with torch.no_grad():
        return torch.export.export(
            graph_outputs, inputs, dynamic_shapes=shapes.dynamic_shapes(graph_outputs, inputs)
        )


@contextmanager
def without_notes_of_torch() -> Iterator[None]:
    """Keep torch from telling of its own use of what it deprecates, and of what is not needed."""

    def concerns_export(record: logging.LogRecord) -> bool:
        return "torchvision is not installed" not in record.getMessage()

    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    logger.addFilter(concerns_export)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*LeafSpec.* is deprecated", FutureWarning)
            # Of tensors that share memory, which matters unless they are on the CPU.
            warnings.filterwarnings("ignore", "No complete tensor found in the group", UserWarning)
            yield
    finally:
        logger.removeFilter(concerns_export)


# --- parts of fitted modules in forms that are fast in a graph; they compute the same -------------


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
    if isinstance(network, MultiHead) and isinstance(network.heads, StackedSequential):
        is_linear = len(network.heads) == 1 and isinstance(network.heads[0], StackedLinear)
        core: Any = network.core
        if is_linear and isinstance(core, StackedSequential) and core.lead == (1,):
            return module, _WideHeads(network)
    return module, None


class _OneNetwork(nn.Module):
    """A stack of one network, without the axis of members inside: then layers are ONNX's Gemm."""

    def __init__(self, stacked: Any):
        super().__init__()
        (self.network,) = unstack(stacked)

    def forward(self, X: Tensor) -> Tensor:
        """Map samples (n, in) to outputs (1, n, out)."""
        return self.network(X).unsqueeze(0)


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
        if (
            self.encoder.compresses
        ):  # 5 z within 5 of 0, else ±(5 + log(5 |z| - 4)), in six operations
            beyond = (
                z.abs().clamp(min=1.0) - (1 - 1 / _LIMIT)
            ).log()  # log(1 / 5) for those within
            z = z.clamp(-1, 1) * (beyond + (_LIMIT + np.log(_LIMIT)))
        parts = [z]
        if encoder["indicators"] is not None:
            parts.append(is_missing.index_select(-1, encoder["indicators"]).to(x.dtype))
        if self.encoder.n_categories:
            has = x.index_select(-1, encoder["category_columns"]).eq(encoder["codes"])
            parts.append(has.to(x.dtype))
        if self.encoder.n_bins:
            bins = (x.index_select(-1, self.sources) - self.starts) / self.widths
            parts.append(bins.clamp(0, 1))
        return torch.cat(parts, -1) if len(parts) > 1 else parts[0]


class _Functions(FunctionDraws):
    """Functions whose kernel matrix is transposed: for one row, onnxruntime is twice as fast."""

    def __init__(self, functions: FunctionDraws):
        nn.Module.__init__(self)
        self.__dict__.update(functions.__dict__)
        kept: dict[str, Any] = functions._buffers
        self._buffers = dict(kept)
        # Another root of the same matrix, of which half is zero.
        whitening = torch.cat([kept["leading"], kept["others"]], 1).double()
        upper, half = torch.linalg.qr(whitening.t()).R.float(), len(whitening) // 2
        self.register_buffer("points", kept["inducing"].t().contiguous())
        self.register_buffer("offsets", kept["minus_half_squares"].unsqueeze(-1))
        self.register_buffer("first", upper[:half].contiguous())
        self.register_buffer("last", upper[half:, half:].contiguous())

    def _kernel(self, inputs_and_squares: Tensor) -> tuple[Tensor, Tensor]:
        kept: dict[str, Any] = self._buffers
        kernel = torch.addmm(kept["offsets"], kept["points"], inputs_and_squares.t())
        kernel = kernel.to(kept["first"].dtype).exp()
        first, last = kept["first"] @ kernel, kept["last"] @ kernel[len(kept["first"]) :]
        known = (first * first).sum(0) + (last * last).sum(0)
        return kernel.t(), (kept["most"] - known.double()).relu().unsqueeze(-1)
