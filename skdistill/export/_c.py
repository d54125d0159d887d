# SPDX-License-Identifier: BSD-3-Clause
"""Fitted models as C99: each operation of the graph of torch.export becomes a loop."""

import json
import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from string import Template
from typing import Any

import torch
from torch import Tensor, fx
from torch._decomp import get_decompositions
from torch.export import ExportedProgram, default_decompositions
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from .._data.columns import feature_names_of
from .._version import __version__
from ._outputs import GraphOutputs, without_notes_of_torch

aten: Any = torch.ops.aten

_KEYWORDS = (
    "auto break case char const continue default do double else enum extern float for goto if "
    "inline int long register restrict return short signed sizeof static struct switch typedef "
    "union unsigned void volatile while"
)

_TYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.int64: "int",
    torch.bool: "unsigned char",
}

_MANY = 16  # elements from which on exponentials are computed together
_ROWS = 16  # of weights, that are multiplied together: zeros before and after them are left out


def check_name(name: object) -> None:
    is_identifier = isinstance(name, str) and re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name)
    if not is_identifier or name in _KEYWORDS.split():
        raise ValueError(
            "name must be an identifier of C, a letter followed by letters, digits and "
            f"underscores, all of ASCII, and no keyword; got {name!r}."
        )


def c_source(graph_outputs: GraphOutputs, estimator: Any, name: str) -> str:
    """Return a C99 file that predicts one sample by the function ``<name>_predict``."""
    c = _Translator(_program(graph_outputs), graph_outputs.names, name).c
    parts = {
        "about": _within_comment("\n * ".join(_about(graph_outputs, estimator))),
        "kilobytes": math.ceil(c.n_bytes / 1000),
        "n_inputs": graph_outputs.inputs["X"][0].numel(),
        "fields": "\n".join(_fields(graph_outputs)),
        "constants": "\n".join([*c.constants.values(), *c.helpers.values()]),
        "body": "\n".join(f"    {line}" for line in c.lines),
        "guard": name.upper(),
        "name": name,
    }
    return Template(_FILE).substitute(parts)


@without_notes_of_torch()
def _program(graph_outputs: GraphOutputs) -> ExportedProgram:
    """Trace prediction methods for one sample."""
    with torch.no_grad():
        program = torch.export.export(graph_outputs, (graph_outputs.inputs["X"][:1],))
        program = program.run_decompositions({**default_decompositions(), **_DECOMPOSITIONS})
    graph = program.graph
    for node in graph.nodes:
        if node.target == aten._assert_tensor_metadata.default:  # would keep what it checks
            graph.erase_node(node)
        elif node.target == aten.full_like.default:  # takes the shape alone of its input
            like = node.meta["val"]
            with graph.inserting_before(node):
                args = (aten.full.default, ([*like.shape], node.args[1]), {"dtype": like.dtype})
                node.replace_all_uses_with(graph.call_function(*args))
    graph.eliminate_dead_code()
    return program


# --- operations -----------------------------------------------------------------------------------

# Activations become exponentials, as in skdistill.modules.Tanh: many of them are fast.
_DECOMPOSITIONS = get_decompositions(
    [aten._softmax.default, aten._log_softmax.default, aten.gelu.default]
) | {
    aten.sigmoid.default: lambda z: (1 + (-z).exp()).reciprocal(),
    aten.tanh.default: lambda z: 2 * (1 + (-2 * z).exp()).reciprocal() - 1,
}

# What moves elements, or repeats them, and computes nothing.
_MOVES = (
    "alias clone detach expand flip index_select permute reshape select slice split_with_sizes "
    "squeeze transpose unsqueeze"
)

# C of operands {0}, {1}, ...; {f} is the suffix of libm's functions of float. NaN stays NaN.
_ELEMENTWISE = {
    "abs": "fabs{f}({0})",
    "add": "{0} + {1}",
    "clamp_max": "{0} > {1} ? {1} : {0}",
    "clamp_min": "{0} < {1} ? {1} : {0}",
    "copy": "{0}",
    "cos": "cos{f}({0})",
    "div": "{0} / {1}",
    "erf": "erf{f}({0})",
    "exp": "exp{f}({0})",
    "expm1": "expm1{f}({0})",
    "log": "log{f}({0})",
    "log1p": "log1p{f}({0})",
    "maximum": "{0} < {1} || {1} != {1} ? {1} : {0}",
    "minimum": "{0} > {1} || {1} != {1} ? {1} : {0}",
    "mul": "{0} * {1}",
    "neg": "-{0}",
    "pow": "pow{f}({0}, {1})",
    "reciprocal": "1 / {0}",
    "relu": "{0} < 0 ? 0 : {0}",
    "sign": "({0} > 0) - ({0} < 0)",
    "sin": "sin{f}({0})",
    "sqrt": "sqrt{f}({0})",
    "sub": "{0} - {1}",
    "where": "{0} ? {1} : {2}",
    # truth values
    "eq": "{0} == {1}",
    "ge": "{0} >= {1}",
    "gt": "{0} > {1}",
    "isnan": "{0} != {0}",
    "le": "{0} <= {1}",
    "logical_and": "{0} && {1}",
    "logical_not": "!{0}",
    "logical_or": "{0} || {1}",
    "lt": "{0} < {1}",
    "ne": "{0} != {1}",
}

# C of the result {s} of no element, of that with one more, and of that of all n.
_REDUCTIONS = {
    "amax": ("-INFINITY", "{0} > {s} ? {0} : {s}", "{s}"),
    "amin": ("INFINITY", "{0} < {s} ? {0} : {s}", "{s}"),
    "any": ("0", "{s} || {0}", "{s}"),
    "dot": ("0", "{s} + {0} * {1}", "{s}"),
    "linalg_vector_norm": ("0", "{s} + {0} * {0}", "sqrt({s})"),
    "mean": ("0", "{s} + {0}", "{s} / {n}"),
    "sum": ("0", "{s} + {0}", "{s}"),
}


@dataclass(frozen=True)
class _Array:
    """Elements of an array of C: those at `positions`, in the shape of a tensor."""

    name: str
    positions: Tensor
    dtype: torch.dtype

    def moved(self, move: Callable[[Tensor], Any]) -> Any:
        found = move(self.positions)
        if not isinstance(found, Tensor):
            return [_Array(self.name, positions, self.dtype) for positions in found]
        return _Array(self.name, found, self.dtype)

    def at(self, position: int | Tensor) -> str:
        """C of the part that begins at a position."""
        return f"{self.name} + {int(position)}"


_Axes = int | Sequence[int] | None
_Value = Tensor | _Array  # what is known, or depends on the input


class _Translator(fx.Interpreter):
    """Translates a graph: what depends on no input is computed, the rest becomes loops of `c`."""

    def __init__(self, program: ExportedProgram, outputs: Sequence[str], name: str):
        super().__init__(program.graph_module)
        self.c = _Writer(name)
        self.extra_traceback = False  # an error that is raised here is one of the model
        kept = {**program.state_dict, **program.constants}
        given = []
        for spec, node in zip(
            program.graph_signature.input_specs,
            program.graph.find_nodes(op="placeholder"),
            strict=True,
        ):
            is_input = spec.kind == InputKind.USER_INPUT
            given.append(self._input(node.meta["val"]) if is_input else kept[spec.target].detach())
        for output, found in zip(outputs, self.run(*given), strict=True):
            self._output(output, found)

    def run_node(self, node: fx.Node) -> Any:
        self.like: Any = node.meta.get("val")  # has the shape and the type of the result
        return super().run_node(node)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of an operation: a tensor if it is known, else an array of C."""
        if isinstance(self.like, Tensor) and not self.like.numel():  # C has no empty arrays
            return torch.empty(self.like.shape, dtype=self.like.dtype)
        if not any(isinstance(leaf, _Array) for leaf in pytree.tree_leaves((args, kwargs))):
            return target(*args, **kwargs)
        if target is operator.getitem:
            return args[0][args[1]]
        operation = str(target).removeprefix("aten.").partition(".")[0]
        if hasattr(self, f"aten_{operation}"):
            return getattr(self, f"aten_{operation}")(*args, **kwargs)
        if operation in _MOVES.split():
            return args[0].moved(lambda positions: target(positions, *args[1:], **kwargs))
        if operation in _REDUCTIONS:
            return self._reduced(operation, [args[0]], *args[1:2])
        if operation in _ELEMENTWISE and "rounding_mode" not in kwargs:
            return self._elementwise(operation, args, kwargs.get("alpha", 1))
        raise ValueError(
            f"model must predict by operations that C code is written for, got one with {target}: "
            "choose other outputs, or export_onnx. Quantiles and intervals of mixtures have no C "
            "code, since they are searched for in a loop."
        )

    # --- operations, as torch names them ----------------------------------------------------------

    def aten__to_copy(self, array: _Array, **kwargs: Any) -> _Array:
        is_truth = self.like.dtype == torch.bool
        return self._elementwise(*(("ne", [array, 0]) if is_truth else ("copy", [array])))

    def aten_addmm(self, bias: _Value, a: _Value, b: _Value) -> _Array:
        return self._elementwise("add", [bias, self._product(a, b)])

    def aten_argmax(self, array: _Array, axis: int, keepdim: bool = False) -> _Array:
        found = self.c.new(self.like.shape, self.like.dtype)
        rows = array.positions.movedim(axis, -1).flatten(0, -2)
        (outer, inner), (i, to) = self.c.loops([rows, found.positions.view(-1, 1).expand_as(rows)])
        best = f"if ({array.name}[{i}] > most) {{ most = {array.name}[{i}]; at = j; }}"
        start = f"{_TYPES[array.dtype]} most = -INFINITY; int at = 0;"
        self.c.lines.append(f"{outer}{{ {start} {inner}{best} {found.name}[{to}] = at; }}")
        return found

    def aten_cat(self, parts: Sequence[_Value], axis: int = 0) -> _Array:
        found, start = self.c.new(self.like.shape, self.like.dtype), 0
        for part in parts:
            shape = (part.positions if isinstance(part, _Array) else part).shape
            if math.prod(shape):
                size = shape[axis]
                place = found.positions.narrow(axis, start, size)
                self.c.assign(_Array(found.name, place, found.dtype), "{0}", [part])
                start += size
        return found

    def aten_clamp(
        self, x: _Array, least: float | None = None, most: float | None = None
    ) -> _Array:
        for operation, limit in (("clamp_min", least), ("clamp_max", most)):
            if limit is not None:
                x = self._elementwise(operation, [x, limit])
        return x

    def aten_cumsum(self, array: _Array, axis: int) -> _Array:
        found = self.c.new(self.like.shape, self.like.dtype)
        rows = [a.positions.movedim(axis, -1).flatten(0, -2) for a in (array, found)]
        (outer, inner), (i, j) = self.c.loops(rows)
        add = f"{found.name}[{j}] = sum += {array.name}[{i}];"
        self.c.lines.append(f"{outer}{{ {_TYPES[array.dtype]} sum = 0; {inner}{add} }}")
        return found

    def aten_linalg_vector_norm(
        self, array: _Array, order: float, axes: _Axes = None, keepdim: bool = False
    ) -> _Array:
        if order != 2:
            raise ValueError(f"model must have no norms but of order 2, got {order}.")
        if self.like.numel() > 1:
            return self._reduced("linalg_vector_norm", [array], axes)
        row = self.c.contiguous(array.moved(lambda positions: positions.reshape(1, -1)))
        square = self.c.new([1], array.dtype, value=0)
        self.c.call(
            "dense", row.dtype, row.at(0), row.at(0), square.at(0), row.positions.numel(), 1
        )
        return self._elementwise("sqrt", [square])

    def aten_pow(self, x: _Value, power: _Value | float) -> _Array:
        if isinstance(power, (int, float)) and power == 2:
            return self._elementwise("mul", [x, x])
        return self._elementwise("pow", [x, power])

    def aten_view(self, array: _Array, shape: Sequence[int]) -> _Array:
        moved: _Array = array.moved(lambda positions: positions.reshape(shape))
        return moved

    # --- kinds of operations ----------------------------------------------------------------------

    def _elementwise(
        self, operation: str, args: Sequence[_Value | float], alpha: float = 1
    ) -> _Array:
        found = self.c.new(self.like.shape, self.like.dtype)
        template, dtype = _ELEMENTWISE[operation], found.dtype
        if dtype == torch.bool:  # what is compared has a type of its own
            known = (arg.dtype for arg in args if isinstance(arg, (Tensor, _Array)))
            dtype = reduce(torch.promote_types, known)
        if alpha != 1:
            template = template.replace("{1}", f"{_literal(alpha, dtype)} * {{1}}")
        if operation == "exp" and self.like.numel() >= _MANY:
            self.c.assign(found, "{0}", args, dtype)
            self.c.call("exp", dtype, found.name, self.like.numel())
        else:
            self.c.assign(found, template, args, dtype)
        return found

    def _reduced(
        self,
        operation: str,
        arrays: Sequence[_Array],
        axes: _Axes = None,
        shape: Sequence[int] | None = None,
    ) -> _Array:
        """Reduce axes of arrays of one shape, all of them by default."""
        sizes = arrays[0].positions.shape
        axes = [axes] if isinstance(axes, int) else axes or range(len(sizes))
        reduced = [axis % len(sizes) for axis in axes]
        kept = [axis for axis in range(len(sizes)) if axis not in reduced]
        n = math.prod(sizes[axis] for axis in reduced)
        found = self.c.new(self.like.shape if shape is None else shape, self.like.dtype)
        rows = [array.positions.permute(*kept, *reduced).reshape(-1, n) for array in arrays]
        (outer, inner), (to, *places) = self.c.loops(
            [found.positions.reshape(-1, 1).expand_as(rows[0]), *rows]
        )
        start, step, last = _REDUCTIONS[operation]
        values = [f"{array.name}[{place}]" for array, place in zip(arrays, places, strict=True)]
        # Sums of float are of double, since those of many draws would lose digits.
        kind = "double" if found.dtype.is_floating_point else "int"
        self.c.lines.append(
            f"{outer}{{ {kind} s = {start}; {inner}s = {step.format(*values, s='s')}; "
            f"{found.name}[{to}] = {last.format(s='s', n=n)}; }}"
        )
        return found

    def _product(self, a: _Value, b: _Value) -> _Array:
        """Multiply matrices, or batches of them, of which at most one is known."""
        if isinstance(a, Tensor):
            assert isinstance(b, _Array)  # or the product would be known
            found = self._product(b.moved(lambda p: p.mT), a.mT)
            transposed: _Array = found.moved(lambda p: p.mT)
            return transposed
        *batch, n_rows, n_in = a.positions.shape
        n_out = (b.positions if isinstance(b, _Array) else b).shape[-1]
        shape = (*batch, n_rows, n_out)
        if isinstance(b, _Array):
            pairs = (*batch, n_rows, n_in, n_out)
            left = a.moved(lambda p: p.unsqueeze(-1).expand(pairs))
            right = b.moved(lambda p: p.unsqueeze(-3).expand(pairs))
            return self._reduced("dot", [left, right], [-2], shape)
        a, found = self.c.contiguous(a), self.c.new(shape, a.dtype, value=0)
        blocks, calls, n_weights = [], [], 0
        for k, weights in enumerate(b.reshape(-1, n_in, n_out)):
            for row, column, block in _blocks(weights):
                for n in range(n_rows):
                    x = a.positions.view(-1, n_rows, n_in)[k, n, row]
                    y = found.positions.view(-1, n_rows, n_out)[k, n, column]
                    calls.append((n_weights, a.at(x), found.at(y), *block.shape))
                blocks.append(block.flatten())
                n_weights += block.numel()
        if not calls:  # all weights are zero; compilers warn of what is not used
            self.c.lines.append(f"(void){a.name};")
            return found
        constant = self.c.constant(torch.cat([*blocks, torch.zeros(1, dtype=b.dtype)]))
        for w, *args in calls:
            self.c.call("dense", found.dtype, constant.at(w), *args)
        return found

    aten_bmm = aten_mm = _product

    # --- inputs and outputs -----------------------------------------------------------------------

    def _input(self, like: Tensor) -> _Array:
        x = _Array("x", _count(like.shape), torch.float64)
        if like.dtype == x.dtype:
            return x
        found = self.c.new(like.shape, like.dtype)
        self.c.assign(found, "{0}", [x])
        return found

    def _output(self, name: str, found: _Value) -> None:
        text, positions = self.c.operand(found, found.dtype)
        shape = (found.positions if isinstance(found, _Array) else found).shape
        heads, (place,) = self.c.loops([positions.expand(shape)])
        axes = [f"[{i}]" if n > 1 else "[0]" for i, n in zip("ijklmn", shape, strict=False)][1:]
        self.c.lines.append(
            f"{''.join(heads)}out->{_field(name)}{''.join(axes)} = {text.format(place)};"
        )


class _Writer:
    """Writes C: arrays, and loops over their elements."""

    def __init__(self, name: str):
        self.name, self.n_arrays, self.n_bytes = name, 0, 0
        self.lines: list[str] = []
        self.constants: dict[Any, str] = {}
        self.helpers: dict[Any, str] = {}

    def new(self, shape: Sequence[int], dtype: torch.dtype, value: float | None = None) -> _Array:
        """Declare an array, by default without values."""
        found = _Array(f"v{self.n_arrays}", _count(shape), dtype)
        self.n_arrays += 1
        self.n_bytes += found.positions.numel() * dtype.itemsize
        start = "" if value is None else f" = {{{value}}}"
        self.lines.append(f"{_TYPES[dtype]} {found.name}[{found.positions.numel()}]{start};")
        return found

    def contiguous(self, array: _Array) -> _Array:
        """Return an array whose last axis is contiguous."""
        if (array.positions.diff(dim=-1) == 1).all():
            return array
        found = self.new(array.positions.shape, array.dtype)
        self.assign(found, "{0}", [array])
        return found

    def constant(self, tensor: Tensor) -> _Array:
        """Declare an array of known values, once for all that have the same."""
        once = tensor[tuple(slice(1 if stride == 0 else None) for stride in tensor.stride())]
        key = once.dtype, once.contiguous().numpy().tobytes()
        if key not in self.constants:
            values = [_literal(value, once.dtype) for value in once.flatten().tolist()]
            lines = (", ".join(values[i : i + 8]) for i in range(0, len(values), 8))
            self.constants[key] = (
                f"static const {_TYPES[once.dtype]} {self.name}_c{len(self.constants)}"
                f"[{len(values)}] = {{\n    " + ",\n    ".join(lines) + "\n};"
            )
        name = f"{self.name}_c{[*self.constants].index(key)}"
        return _Array(name, _count(once.shape).expand(tensor.shape), tensor.dtype)

    def operand(self, arg: _Value | float, dtype: torch.dtype) -> tuple[str, Tensor]:
        """Return C for an element of a type, its index left open, and the indices."""
        if isinstance(arg, Tensor):
            arg = arg if arg.dtype == torch.bool else arg.to(dtype)
            first = arg.flatten()[0]
            arg = first.item() if (arg == first).all() else self.constant(arg)
        if not isinstance(arg, _Array):
            return _literal(arg, dtype), _count(())
        cast = "" if arg.dtype in (dtype, torch.bool) else f"({_TYPES[dtype]}) "
        return f"{cast}{arg.name}[{{}}]", arg.positions

    def assign(
        self,
        found: _Array,
        template: str,
        args: Sequence[_Value | float],
        dtype: torch.dtype | None = None,
    ) -> None:
        """Compute each element of an array of those of the operands, which have some type."""
        dtype = dtype or found.dtype
        operands = [self.operand(arg, dtype) for arg in args]
        shape = found.positions.shape
        places = [found.positions, *(positions.expand(shape) for _, positions in operands)]
        flat = [indices.reshape(-1) for indices in places]
        is_flat = all(_strides(indices) is not None for indices in flat)
        heads, (to, *read) = self.loops(flat if is_flat else [p.squeeze() for p in places])
        values = [text.format(place) for (text, _), place in zip(operands, read, strict=True)]
        result = template.format(*values, f=_suffix(dtype))
        self.lines.append(f"{''.join(heads)}{found.name}[{to}] = {result};")

    def loops(self, places: Sequence[Tensor]) -> tuple[list[str], list[str]]:
        """Return the heads of loops over indices of one shape, and C of the indices."""
        sizes = zip("ijklmn", places[0].shape, strict=False)
        heads = [f"for (int {i} = 0; {i} < {n}; ++{i}) " if n > 1 else "" for i, n in sizes]
        return heads, [self.index(indices) for indices in places]

    def index(self, indices: Tensor) -> str:
        found = _strides(indices)
        if found is None:
            table = self.constant(indices.contiguous().view(-1)).name
            return f"{table}[{self.index(_count(indices.shape))}]"
        first, strides = found
        terms = [(i, n) for i, n in zip("ijklmn", strides, strict=False) if n]
        texts = [i if n == 1 else f"{n} * {i}" for i, n in terms]
        return " + ".join([*([str(first)] if first or not texts else []), *texts])

    def call(self, helper: str, dtype: torch.dtype, *args: str | int) -> None:
        name = f"{self.name}_{helper}{_suffix(dtype)}"
        self.helpers[name] = _helper(helper, dtype, name)
        self.lines.append(f"{name}({', '.join(map(str, args))});")


def _count(shape: Sequence[int]) -> Tensor:
    """Positions of the elements of an array of that shape, rows first."""
    return torch.arange(math.prod(shape)).view(tuple(shape))


def _strides(indices: Tensor) -> tuple[int, list[int]] | None:
    """Return the first index and the step along each axis, if these are all that there is to it."""
    first = indices.flatten()[0]
    steps = [
        (indices.select(axis, 1) - indices.select(axis, 0)).flatten()[0] if n > 1 else first * 0
        for axis, n in enumerate(indices.shape)
    ]
    grids = torch.meshgrid(*map(torch.arange, indices.shape), indexing="ij")
    expected = sum((step * grid for step, grid in zip(steps, grids, strict=True)), first)
    if not torch.equal(indices, expected):
        return None
    return int(first), [int(step) for step in steps]


def _blocks(weights: Tensor) -> Iterator[tuple[int, int, Tensor]]:
    """Return first row, first column and weights of blocks that hold all weights but zeros."""
    found: list[list[int]] = []
    for row in range(0, len(weights), _ROWS):
        rows = weights[row : row + _ROWS]
        used = rows.any(0).nonzero().flatten().tolist()
        if used and found and found[-1][1:] == [row, used[0], used[-1] + 1]:
            found[-1][1] += len(rows)
        elif used:
            found.append([row, row + len(rows), used[0], used[-1] + 1])
    for top, bottom, left, right in found:
        yield top, left, weights[top:bottom, left:right]


def _suffix(dtype: torch.dtype) -> str:
    """Suffix of the functions of libm for a type."""
    return "f" if dtype == torch.float32 else ""


def _literal(value: float, dtype: torch.dtype) -> str:
    if not dtype.is_floating_point:
        return str(int(value))
    rounded = torch.tensor(value, dtype=dtype).item()
    if math.isnan(rounded) or math.isinf(rounded):
        return "NAN" if math.isnan(rounded) else "INFINITY" if rounded > 0 else "-INFINITY"
    text = f"{rounded:.9g}" if dtype == torch.float32 else repr(rounded)
    return (text if set(text) & set(".e") else f"{text}.0") + _suffix(dtype)


# --- the file -------------------------------------------------------------------------------------


def _field(output: str) -> str:
    """Name of an output as a member of a struct of C."""
    return re.sub("[^A-Za-z0-9_]", "_", output)


def _fields(graph_outputs: GraphOutputs) -> Iterator[str]:
    for name, example in zip(graph_outputs.names, graph_outputs.examples, strict=True):
        axes = "".join(f"[{n}]" for n in example.shape[1:])
        meaning = _within_comment(_meaning(name, graph_outputs))
        yield f"    {_TYPES[example.dtype]} {_field(name)}{axes}; /* {meaning} */"


def _meaning(name: str, graph_outputs: GraphOutputs) -> str:
    task: Any = graph_outputs.plan.task
    if name == "label":
        return f"position of the class in {_listed(task.labels.tolist())}"
    if name in ("total", "aleatoric", "epistemic"):
        is_regressor = task.kind == "regressor"
        unit = "a variance in squared units of y" if is_regressor else "an entropy in nats"
        return f"{name} uncertainty, {unit}"
    meanings = {
        "probabilities": "of the classes, as label has them",
        "mean": "in units of y",
        "std": "standard deviation of y, in its units",
        "interval": "central one of 90 %, in units of y",
        "members": "what each member predicts",
        "quantiles": f"of probabilities {_listed(graph_outputs.levels)}, in units of y",
    }
    return meanings.get(name, "as predict_expectation has it")


def _about(graph_outputs: GraphOutputs, estimator: Any) -> Iterator[str]:
    """Describe a model and its inputs, in lines."""
    n_parameters = sum(weights.numel() for weights in graph_outputs.module.parameters())
    yield f"{type(estimator).__name__} with {n_parameters} parameters, by skdistill {__version__}."
    shape = tuple(graph_outputs.inputs["X"].shape[1:])
    columns, names = estimator._input_schema.columns, feature_names_of(estimator)
    categories = {} if columns is None else columns.categories
    if not categories and names is None:
        yield f"x is one sample of shape {shape}, as in fit. NaN is a missing value."
        return
    yield "NaN is a missing value. Other categories than these are unknown. The features are"
    for k in range(*shape):
        name = "" if names is None else f" {_listed(names[k])}"
        of_category = ""
        if k in categories:
            rule = "the position, from 0, in" if k in columns.text else "one of"
            of_category = f": {rule} {_listed(categories[k])}"
        yield f"  x[{k}]{name}{of_category}"


def _listed(values: Any) -> str:
    return json.dumps(values, default=str)


def _within_comment(text: str) -> str:
    """Text that cannot end a comment of C, nor begin one, whatever names it has."""
    return text.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")


_FILE = """\
/* $about
 *
 * ${name}_predict allocates nothing and writes nothing but *out, so that threads can share it. It
 * takes $kilobytes kB of stack, or less. Compile it with cc -std=c99 -O3, link it with -lm. For
 * declarations alone, define ${guard}_DECLARATIONS before this file is included.
 */
#ifndef ${guard}_H
#define ${guard}_H

#define ${guard}_N_INPUTS $n_inputs

typedef struct {
$fields
} ${name}_output;

void ${name}_predict(const double *x, ${name}_output *out);

#endif

#ifndef ${guard}_DECLARATIONS

#ifdef __FAST_MATH__
#error "missing values are NaN, which needs a compiler without -ffast-math"
#endif

#include <math.h>
#include <stdint.h>
#include <string.h>

$constants

void ${name}_predict(const double *x, ${name}_output *out)
{
$body
}

#endif
"""

_DENSE = """\
/* y += x W, for weights W of shape (n_in, n_out), eight rows at once: vector instructions. */
static void NAME(const TYPE *restrict w, const TYPE *restrict x, TYPE *restrict y, int n_in,
                 int n_out)
{
    int i = 0;
    for (; i + 8 <= n_in; i += 8, w += 8 * n_out)
        for (int j = 0; j < n_out; ++j)
            y[j] += ((x[i] * w[j] + x[i + 1] * w[j + n_out])
                     + (x[i + 2] * w[j + 2 * n_out] + x[i + 3] * w[j + 3 * n_out]))
                + ((x[i + 4] * w[j + 4 * n_out] + x[i + 5] * w[j + 5 * n_out])
                   + (x[i + 6] * w[j + 6 * n_out] + x[i + 7] * w[j + 7 * n_out]));
    for (; i < n_in; ++i, w += n_out)
        for (int j = 0; j < n_out; ++j)
            y[j] += x[i] * w[j];
}
"""

# 2^k e^r for a whole k, and |r| <= log(2) / 2, of which e^r has a Taylor polynomial. Two parts of
# log(2), since the first has so few digits that its product with k is exact. Limits are in loops of
# their own, since gcc would make no vector instructions of one loop.
_EXP = """\
/* Exponentials, in place. Those that overflow are finite. */
static void NAME(TYPE *y, int n)
{
    for (int i = 0; i < n; ++i)
        y[i] = y[i] < LEAST ? LEAST : y[i];
    for (int i = 0; i < n; ++i)
        y[i] = y[i] > MOST ? MOST : y[i];
    for (int i = 0; i < n; ++i) {
        TYPE k = y[i] * LOG2E + SHIFT, r, power;
        BITS bits;
        memcpy(&bits, &k, sizeof k);
        bits = (bits << DIGITS) + ONE;
        memcpy(&power, &bits, sizeof power);
        k -= SHIFT;
        r = (y[i] - k * LN2) - k * REST;
        y[i] = power * POLYNOMIAL;
    }
}
"""

_EXP_NAMES = (
    "LEAST",
    "MOST",
    "SHIFT",
    "LN2",
    "REST",
)  # a shift leaves only digits of whole numbers
_EXP_NUMBERS = {
    torch.float32: (-87.0, 88.0, 1.5 * 2**23, 0.693359375, -2.1219444005469057e-4),
    torch.float64: (-708.0, 709.0, 1.5 * 2**52, 0.6931471803691238, 1.9082149292705877e-10),
}


def _helper(helper: str, dtype: torch.dtype, name: str) -> str:
    """Return a function of C for a type."""
    parts = {"NAME": name, "TYPE": _TYPES[dtype]}
    if helper == "dense":
        text = _DENSE
    else:
        text, is_float = _EXP, dtype == torch.float32
        numbers = {
            "LOG2E": math.log2(math.e),
            **dict(zip(_EXP_NAMES, _EXP_NUMBERS[dtype], strict=True)),
        }
        parts |= {part: _literal(value, dtype) for part, value in numbers.items()}
        parts |= {"BITS": "uint32_t", "DIGITS": "23", "ONE": "0x3f800000u"}
        if not is_float:
            parts |= {"BITS": "uint64_t", "DIGITS": "52", "ONE": "0x3ff0000000000000u"}
        factors = [_literal(1 / math.factorial(k), dtype) for k in range(8 if is_float else 14)]
        parts["POLYNOMIAL"] = reduce(lambda found, c: f"({c} + r * {found})", factors[::-1])
    return re.sub(r"\b[A-Z0-9]+\b", lambda word: parts.get(word[0], word[0]), text)
