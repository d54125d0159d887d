# SPDX-License-Identifier: BSD-3-Clause
"""Estimators as ONNX graphs."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .._data.columns import feature_names_of
from .._utils.warnings import warn
from .._version import __version__
from ._outputs import GraphOutputs, traced, without_notes_of_torch

OPSET = {"": 18, "ai.onnx.ml": 3}


def import_onnx() -> Any:
    try:
        import onnx
        import onnxscript  # noqa: F401  # torch's exporter needs it
    except ImportError as error:
        raise ImportError(
            "export_onnx needs onnx and onnxscript: pip install skdistill[onnx]."
        ) from error
    return onnx


def graph_of(graph_outputs: GraphOutputs) -> Any:
    onnx = import_onnx()
    with without_notes_of_torch():
        program = traced(graph_outputs)
        exported: Any = torch.onnx.export(
            program,
            input_names=list(graph_outputs.inputs),
            opset_version=OPSET[""],
            verbose=False,
            custom_translation_table=TRANSLATIONS,
        )
    proto = exported.model_proto
    names = ["codes" if name == "label" else name for name in graph_outputs.names]
    outputs = (output.name for output in proto.graph.output)
    names_of = {name: name for name in ("", *graph_outputs.inputs)}
    names_of |= dict(zip(outputs, names, strict=True))
    rename(proto.graph, lambda name: names_of.get(name, f"_{name}"))
    for graph in (proto.graph, *bodies(proto.graph)):
        for part in (*graph.node, *graph.input, *graph.output):
            part.ClearField("metadata_props")  # where in the source it comes from
            part.ClearField("doc_string")
        graph.ClearField("value_info")
    proto.producer_name, proto.producer_version = "skdistill", __version__
    if "label" in graph_outputs.names:  # the first output, codes of classes
        labels = onnx.numpy_helper.from_array(labels_of(graph_outputs.plan.task), "labels")
        proto.graph.initializer.append(labels)
        proto.graph.node.append(onnx.helper.make_node("Gather", ["labels", "codes"], ["label"]))
        kind = onnx.helper.make_tensor_value_info("label", labels.data_type, ["batch"])
        proto.graph.output[0].CopyFrom(kind)
    onnx.checker.check_model(proto)
    return proto


def rename(graph: Any, new: Callable[[str], str]) -> None:
    """Give every value of a graph another name, those in the bodies of loops too."""
    for part in (*graph.input, *graph.initializer, *graph.output):
        part.name = new(part.name)
    for node in graph.node:
        node.input[:] = map(new, node.input)
        node.output[:] = map(new, node.output)
    for body in bodies(graph):
        rename(body, new)


def with_facts(proto: Any, estimator: Any, graph_outputs: GraphOutputs, first: Any = None) -> Any:
    """Note in a graph's metadata what it is; `first` is the step that takes X."""
    facts = {"skdistill_version": __version__, "estimator": type(estimator).__name__}
    names = feature_names_of(estimator if first is None else first)
    if names is not None:
        facts["feature_names"] = json.dumps(list(names))
    if first is None and hasattr(estimator, "schema_"):
        facts["schema"] = json.dumps(estimator.schema_.to_list())
    if graph_outputs.levels:
        facts["quantiles"] = json.dumps(graph_outputs.levels)
    import_onnx().helper.set_model_props(proto, facts)
    return proto


def labels_of(task: Any) -> np.ndarray:
    """Labels of the classes as int64, floats, or strings (objects)."""
    most = np.iinfo(np.int64).max
    if task.labels.dtype.kind == "u" and task.labels.max() > most:
        raise ValueError(
            f"y must have labels of at most {most}, ONNX's int64, to export a model that predicts "
            f"them; got {task.labels.max()}. Fit on other labels, such as y.astype(str)."
        )
    if task.labels.dtype.kind in "biu":
        return task.labels.astype(np.int64)
    if (dtype := task.labels.dtype).kind in "mM":
        example = str(task.labels[0])
        warn(
            f"Labels of {dtype} are text in ONNX, such as {example!r}. Compare with y.astype(str)."
        )
    return task.labels if dtype.kind == "f" else task.labels.astype(str).astype(object)


def bodies(graph: Any) -> list[Any]:
    """Return the graphs inside the nodes of a graph, which are those of loops."""
    attributes = (attribute for node in graph.node for attribute in node.attribute)
    return [attribute.g for attribute in attributes if attribute.HasField("g")]


# --- elementary functions that ONNX, or torch's exporter, lacks or rounds -------------------------
# They are written in ONNX's operators: decompositions in torch would trace the program once more.

Value = Any  # of the graph that is made


def _number(value: float, dtype: Any) -> Value:
    """A number in its own precision: torch's exporter rounds it to float32."""
    from onnx.helper import make_tensor
    from onnxscript import opset18

    return opset18.Constant(value=make_tensor("", int(dtype), [], [value]))


def _log_sum(x: Value, total: Value, one: Value) -> Value:
    """Logarithm of the rounded sum ``1 + x``, and what the rounding took."""
    from onnxscript import opset18 as op

    return op.Add(op.Log(total), op.Div(op.Sub(x, op.Sub(total, one)), total))


def log1p(self: Value) -> Value:
    """``log(1 + x)`` to rounding; -69 at -1."""
    from onnxscript import opset18 as op

    one, least = (_number(value, self.dtype) for value in (1, 1e-30))
    return _log_sum(self, op.Max(op.Add(self, one), least), one)


def expm1(self: Value) -> Value:
    """``exp(x) - 1`` to rounding."""
    from onnxscript import opset18 as op

    zero, one = (_number(value, self.dtype) for value in (0, 1))
    power = op.Exp(self)
    below, logarithm = op.Sub(power, one), op.Log(power)
    is_zero = op.Equal(logarithm, zero)
    is_near_zero = op.Less(op.Abs(logarithm), one)
    exact = op.Where(op.And(is_near_zero, op.Not(is_zero)), logarithm, one)
    near = op.Where(is_zero, self, op.Mul(below, op.Div(self, exact)))
    return op.Where(is_near_zero, near, below)


def softplus(self: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    """``log(1 + exp(x))`` of full relative accuracy far below zero."""
    from onnxscript import opset18 as op

    power, one = op.Exp(op.Neg(op.Abs(self))), _number(1, self.dtype)
    return op.Add(op.Relu(self), _log_sum(power, op.Add(power, one), one))


def clamp(self: Value, min: float | None = None, max: float | None = None) -> Value:
    """Clamp to limits that keep x's precision."""
    from onnxscript import opset18 as op

    found = self
    for limit, nearer in ((min, op.Max), (max, op.Min)):
        if limit is not None:
            found = nearer(found, _number(limit, self.dtype))
    return found


def square(self: Value) -> Value:
    """``x * x``, which is far faster than the power that torch's exporter makes of a square."""
    from onnxscript import opset18 as op

    return op.Mul(self, self)


def scalar_tensor(
    s: Any, dtype: int = 1, layout: str = "", device: str = "", pin_memory: bool = False
) -> Value:
    """Translate a number to ONNX in its own precision."""
    from onnxscript import opset18

    return _number(s, dtype) if isinstance(s, (bool, int, float)) else opset18.Cast(s, to=dtype)


TRANSLATIONS: dict[Any, Any] = {
    torch.ops.aten.log1p.default: log1p,
    torch.ops.aten.expm1.default: expm1,
    torch.ops.aten.softplus.default: softplus,
    torch.ops.aten.clamp.default: clamp,
    torch.ops.aten.square.default: square,
    torch.ops.aten.scalar_tensor.default: scalar_tensor,
}
