# SPDX-License-Identifier: BSD-3-Clause
"""Prediction of one sample by NumPy, which starts an operation in a third of torch's time.

What a module computes for one sample is recorded once, as torch's low-level calls, and these are
written as a function of NumPy. Whatever cannot be written so is left to torch.
"""

from __future__ import annotations

import math
import operator
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import special
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .._data.checks import SMALL_OUTPUT
from .._utils.process import DISPATCH_MODE_LOCK
from .._utils.recording import Recorder
from ..modules import DistributionStack, StackedModule, first_parameter

aten = torch.ops.aten

_MOST_PROGRAMS = 8  # programs of one kind, for samples of which other conditions hold
_MOST_NAMES = 32  # kinds of programs of a module, such as of intervals of some coverage
_TOLERANCE = 1e-2  # largest difference of NumPy's results from torch's, over the largest of these


class Program(NamedTuple):
    """What is predicted for one sample, as a function of NumPy.

    `run` takes a sample (1, n_features), in the dtype of the module, to outputs and a tuple of what
    is read off them; or to None, where other conditions hold than when it was recorded.
    """

    run: Callable[[np.ndarray], tuple[np.ndarray, tuple[Any, ...]] | None]
    is_tuple: bool  # whether several arrays are read, or one


class _Programs(NamedTuple):
    """Programs of a module by what they read, the last that held first.

    In a list None is an attempt that failed, and instead of one a module that is left to torch.
    """

    made_of: tuple[Any, ...]  # what the module consisted of
    by_name: dict[str, list[Program | None] | None]


_PROGRAMS: weakref.WeakKeyDictionary[nn.Module, _Programs] = weakref.WeakKeyDictionary()


def predict_one(
    module: DistributionStack, X: np.ndarray, read: Callable[[Tensor, Tensor], object], name: str
) -> Any:
    """Return what `read` takes from the outputs for one sample; None if torch has to compute it."""
    weight = first_parameter(module)
    # Further training puts other weights into a module, calibration another map.
    version = None if weight.is_inference() else weight._version
    parts = module.calibration, module.functions, module.training
    made_of = weight.data_ptr(), version, *parts
    known = _PROGRAMS.get(module)
    if known is None or known.made_of != made_of:
        known = _PROGRAMS[module] = _Programs(made_of, {})
    if name not in known.by_name:
        if len(known.by_name) == _MOST_NAMES:
            return None
        known.by_name[name] = [] if _is_suited(module, weight) else None
    programs = known.by_name[name]
    if programs is None:
        return None
    with np.errstate(all="ignore"):
        rows = X.astype(_DTYPES[weight.dtype])
        if not math.isfinite(np.vdot(rows, rows)):
            return None
        for program in programs:
            if program is not None and (found := program.run(rows)) is not None:
                break
        else:
            if len(programs) == _MOST_PROGRAMS:
                return None
            further = _program(module, rows, read)
            known.by_name[name] = [further, *programs]
            return None if further is None else predict_one(module, X, read, name)
    outputs, arrays = found
    if program is not programs[0]:
        known.by_name[name] = [program, *(other for other in programs if other is not program)]
    outputs = outputs.ravel()
    if not outputs.dot(outputs) < SMALL_OUTPUT**2:  # as `is_small` has it
        return None
    arrays = tuple(map(np.array, arrays))  # copies: some may be the same for all samples
    return arrays if program.is_tuple else arrays[0]


def _program(
    module: DistributionStack, X: np.ndarray, read: Callable[[Tensor, Tensor], object]
) -> Program | None:
    """Record what is predicted for a sample; None if it cannot be written for NumPy."""
    rows = torch.tensor(X)
    try:
        recorder = _Recorder([rows])
        with torch.no_grad(), DISPATCH_MODE_LOCK.held(), recorder, _WithoutNumPy(recorder):
            outputs = module.outputs(rows)
            found = read(outputs, rows)
        parts = found if isinstance(found, tuple) else (found,)
        graph = recorder.graph_of((outputs, parts, tuple(recorder.conditions)))
        run = _written(graph, recorder.constants, recorder.conditions)
        own = run(X)
    # There are calls, and forms of them, that are not in the table; torch raises errors about X.
    except (KeyError, TypeError, ValueError, RuntimeError):
        return None
    is_right = own is not None and all(map(_agrees, own[1], parts))
    return Program(run, isinstance(found, tuple)) if is_right else None


def _is_suited(module: nn.Module, weight: Tensor) -> bool:
    """Whether a module is on a CPU, does nothing that no record holds, and is not run by vmap."""
    for part in module.modules():
        is_known = type(part).__module__.partition(".")[0] in ("torch", "skdistill")
        if not is_known or isinstance(part, StackedModule):
            return False
    return weight.device.type == "cpu" and weight.dtype in _DTYPES


def _agrees(found: np.ndarray, expected: Tensor) -> bool:
    """Whether NumPy gives what torch gives."""
    given = expected.numpy()
    if found.dtype != given.dtype or found.shape != given.shape:
        return False
    return np.allclose(found, given, rtol=_TOLERANCE, atol=_TOLERANCE * np.abs(given).max())


class _Recorder(Recorder):
    """A recorder that notes which truth values are read off tensors, instead of refusing it."""

    def __init__(self, tensors: list[Tensor]):
        self.conditions: dict[torch.fx.Node, bool] = {}
        super().__init__(tensors)

    def _note(self, outputs: object, node: torch.fx.Node) -> None:
        if isinstance(outputs, bool):
            self.conditions[node] = outputs
        else:
            super()._note(outputs, node)


class _WithoutNumPy(TorchFunctionMode):
    """Refuses that NumPy reads what depends on the samples, of which no record would know."""

    def __init__(self, recorder: _Recorder):
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (Tensor.numpy, Tensor.__array__):
            nodes = [self.recorder.nodes.get(id(args[0]))]
            for node in nodes:
                if node is not None and node.op == "placeholder":
                    raise RuntimeError("NumPy reads a tensor that depends on the samples")
                nodes += node.all_input_nodes if node is not None else []
        return func(*args, **(kwargs or {}))


def _written(
    graph: torch.fx.Graph, constants: nn.Module, conditions: dict[torch.fx.Node, bool]
) -> Callable[[np.ndarray], Any]:
    """Write a graph as a function of NumPy; what is the same for all samples is computed now.

    It returns None once one of the conditions does not hold.
    """
    scope: dict[str, Any] = {}
    known: dict[torch.fx.Node, Any] = {}
    names: dict[torch.fx.Node, str] = {}
    lines = []

    def constant(value: object) -> str:
        scope[name := f"c{len(scope)}"] = value
        return name

    def text(value: object) -> str:
        if isinstance(value, (tuple, list)):
            return f"({''.join(f'{text(part)}, ' for part in value)})"
        if isinstance(value, torch.fx.Node):
            if value not in names:
                names[value] = constant(known[value])
            return names[value]
        return repr(value) if value is None or type(value) in (int, bool) else constant(value)

    for node in graph.nodes:
        if node.op == "placeholder":
            names[node] = "x"
        elif node.op == "get_attr":
            known[node] = getattr(constants, node.target).detach().numpy()
        elif node.op == "output":
            lines.append(f"return {text(node.args[0][:2])}")
        else:
            function = _OPERATIONS[node.target]
            arguments = [text(value) for value in node.args]
            arguments += [f"{key}={text(value)}" for key, value in node.kwargs.items()]
            call = f"{constant(function)}({', '.join(arguments)})"
            if all(value in known for value in node.all_input_nodes):
                known[node] = eval(call, scope)
            else:
                names[node] = f"v{len(lines)}"
                lines.append(f"{names[node]} = {call}")
                if node in conditions:
                    lines.append(f"if {names[node]} is not {conditions[node]}: return")
    exec("def run(x):\n " + "\n ".join(lines), scope)
    run: Callable[[np.ndarray], Any] = scope["run"]
    return run


_DTYPES = {torch.float32: np.float32, torch.float64: np.float64}


def _clamp(x: np.ndarray, low: float | None = None, high: float | None = None) -> np.ndarray:
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _sum(x: object, axis: object = None, keepdim: bool = False) -> np.ndarray:
    total: Any = np.add
    return total.reduce(x, axis or None, keepdims=keepdim)


def _mean(x: Any, axis: object = None, keepdim: bool = False) -> Any:
    total = _sum(x, axis, keepdim)
    return total * (total.size / x.size)


def _less(x: Any, other: Any, alpha: float = 1) -> Any:
    return x - (other if alpha == 1 else alpha * other)


def _part(
    x: np.ndarray, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> np.ndarray:
    axis = axis % x.ndim
    return x[(slice(None),) * axis + (slice(start, end, step),)]


def _split(x: np.ndarray, size: int, axis: int = 0) -> list[Any]:
    return [_part(x, axis, start, start + size) for start in range(0, x.shape[axis], size)]


def _select(x: np.ndarray, axis: int, index: int) -> np.ndarray:
    return x[(slice(None),) * (axis % x.ndim) + (index,)]


def _expand(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    held = (1,) * (len(shape) - x.ndim) + x.shape
    return np.broadcast_to(x, [n if m == -1 else m for m, n in zip(shape, held, strict=True)])


def _softmax(x: np.ndarray, axis: int, half_to_float: bool) -> np.ndarray:
    powers = np.exp(x - np.maximum.reduce(x, axis, keepdims=True))
    return powers / np.add.reduce(powers, axis, keepdims=True)


def _logsumexp(x: np.ndarray, axis: Any, keepdim: bool = False) -> np.ndarray:
    largest = np.maximum.reduce(x, axis, keepdims=True)
    found = largest + np.log(np.add.reduce(np.exp(x - largest), axis, keepdims=True))
    return found if keepdim else found.squeeze(axis)


_OPERATIONS: dict[Any, Callable[..., Any]] = {
    aten._local_scalar_dense.default: bool,
    aten._log_softmax.default: lambda x, axis, _: x - _logsumexp(x, axis, True),
    aten._softmax.default: _softmax,
    aten._to_copy.default: lambda x, dtype=None, **_: (
        x if dtype is None else x.astype(_DTYPES[dtype])
    ),
    aten._unsafe_view.default: np.ndarray.reshape,
    aten.abs.default: np.abs,
    aten.add.Tensor: np.add,
    aten.addcmul.default: lambda x, a, b, value=1: x + (a * b if value == 1 else value * a * b),
    aten.addmm.default: lambda x, a, b: x + a.dot(b),
    aten.alias.default: lambda x: x,
    aten.amax.default: lambda x, axis, keepdim=False: np.maximum.reduce(x, axis, keepdims=keepdim),
    aten.amin.default: lambda x, axis, keepdim=False: np.minimum.reduce(x, axis, keepdims=keepdim),
    aten.all.default: np.all,
    aten.any.default: np.any,
    aten.argmax.default: lambda x, axis=None, keepdim=False: x.argmax(axis, keepdims=keepdim),
    aten.baddbmm.default: lambda x, a, b: x + np.matmul(a, b),
    aten.bmm.default: np.matmul,
    aten.bitwise_and.Tensor: np.logical_and,
    aten.bitwise_or.Tensor: np.logical_or,
    aten.cat.default: lambda parts, axis=0: np.concatenate(parts, axis),
    aten.clamp.Tensor: _clamp,
    aten.clamp.default: _clamp,
    aten.clamp_min.default: np.maximum,
    aten.clone.default: lambda x, memory_format=None: x,  # nothing is written into
    aten.digamma.default: special.psi,
    aten.div.Tensor: np.divide,
    aten.eq.Scalar: np.equal,
    aten.eq.Tensor: np.equal,
    aten.any.dim: lambda x, axis, keepdim=False: x.any(axis, keepdims=keepdim),
    aten.cumsum.default: np.cumsum,
    aten.equal.default: lambda a, b: bool((a == b).all()),
    aten.erfc.default: special.erfc,
    aten.exp.default: np.exp,
    aten.expand.default: _expand,
    aten.expm1.default: np.expm1,
    aten.full_like.default: lambda x, value, **_: np.full_like(x, value),
    aten.gt.Scalar: np.greater,
    aten.gt.Tensor: np.greater,
    aten.index_select.default: lambda x, axis, index: x.take(index, axis),
    aten.isnan.default: np.isnan,
    aten.le.Tensor: np.less_equal,
    aten.lift_fresh_copy.default: lambda x: x,
    aten.linalg_vector_norm.default: lambda x, order=2, *axes: np.sqrt(_sum(x * x, *axes)),
    aten.log.default: np.log,
    aten.log1p.default: np.log1p,
    aten.logsumexp.default: _logsumexp,
    aten.lt.Scalar: np.less,
    aten.masked_fill.Scalar: lambda x, mask, value: np.where(mask, x.dtype.type(value), x),
    aten.maximum.default: np.maximum,
    aten.mean.dim: _mean,
    aten.minimum.default: np.minimum,
    aten.mm.default: np.dot,
    aten.mul.Tensor: np.multiply,
    aten.ne.Scalar: np.not_equal,
    aten.neg.default: np.negative,
    aten.new_ones.default: lambda x, shape, **_: np.ones(shape, x.dtype),
    aten.new_zeros.default: lambda x, shape, **_: np.zeros(shape, x.dtype),
    aten.permute.default: np.transpose,
    aten.pow.Tensor_Scalar: lambda x, power: x * x if power == 2 else x**power,
    aten.reciprocal.default: np.reciprocal,
    aten.relu.default: lambda x: np.maximum(x, 0),
    aten.rsub.Scalar: lambda x, other, alpha=1: other - alpha * x,
    aten.scalar_tensor.default: lambda value, dtype, **_: _DTYPES[dtype](value),
    aten.select.int: _select,
    aten.sign.default: np.sign,
    aten.sigmoid.default: lambda x: 1 / (1 + np.exp(-x)),
    aten.silu.default: lambda x: x / (1 + np.exp(-x)),
    aten.sin.default: np.sin,
    aten.slice.Tensor: _part,
    aten.softplus.default: lambda x: np.logaddexp(x, 0),
    aten.special_entr.default: special.entr,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: lambda x, sizes, axis=0: np.split(
        x, np.cumsum(sizes)[:-1], axis
    ),
    aten.sqrt.default: np.sqrt,
    aten.squeeze.dim: np.squeeze,
    aten.sub.Tensor: _less,
    aten.sum.default: _sum,
    aten.sum.dim_IntList: _sum,
    aten.t.default: np.transpose,
    aten.tanh.default: np.tanh,
    aten.transpose.int: np.swapaxes,
    aten.unsqueeze.default: lambda x, axis: x[(slice(None),) * (axis % (x.ndim + 1)) + (None,)],
    aten.view.default: np.ndarray.reshape,
    aten.where.self: np.where,
    aten.zeros_like.default: lambda x, **_: np.zeros_like(x),
    operator.getitem: operator.getitem,
    # Calls that change their tensor: later ones take what they return.
    aten.add_.Tensor: np.add,
    aten.clamp_.default: _clamp,
    aten.exp_.default: np.exp,
    aten.log1p_.default: np.log1p,
    aten.minimum.out: lambda a, b, out: np.minimum(a, b),
    aten.mul_.Tensor: np.multiply,
    aten.neg_.default: np.negative,
    aten.reciprocal_.default: np.reciprocal,
    aten.squeeze_.dim: np.squeeze,
    aten.sub_.Tensor: _less,
}
