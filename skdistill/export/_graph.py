# SPDX-License-Identifier: BSD-3-Clause
"""Estimators as ONNX graphs."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .._data.columns import feature_names_of
from .._version import __version__
from ._elementary import DECOMPOSITIONS, TRANSLATIONS
from ._outputs import GraphOutputs, RoundOutputs
from ._program import traced
from ._simplification import bodies, simplify

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


def graph_of(graph_outputs: GraphOutputs | RoundOutputs, opset: int = OPSET[""]) -> Any:
    onnx = import_onnx()
    with torch.no_grad():
        program = traced(graph_outputs).run_decompositions(DECOMPOSITIONS)
    exported: Any = torch.onnx.export(
        program,
        input_names=list(graph_outputs.inputs),
        opset_version=opset,
        verbose=False,
        custom_translation_table=TRANSLATIONS,
    )
    proto = exported.model_proto
    simplify(onnx, proto.graph)
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
    _count_steps_of_loops(onnx, proto.graph)
    proto.producer_name, proto.producer_version = "skdistill", __version__
    if "label" in graph_outputs.names:
        _add_labels(onnx, proto.graph, labels_of(graph_outputs.plan.task))
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


def _count_steps_of_loops(onnx: Any, graph: Any) -> None:
    """Give loops, which end by their condition, a number of steps: skl2onnx takes none without."""
    loops = [node for node in graph.node if node.op_type == "Loop"]
    for loop in loops:
        loop.input[0] = "most_steps"
    if loops:
        most = np.array(np.iinfo(np.int64).max)
        graph.initializer.append(onnx.numpy_helper.from_array(most, "most_steps"))


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
    return task.labels if task.labels.dtype.kind == "f" else task.labels.astype(str).astype(object)


def _add_labels(onnx: Any, graph: Any, labels: np.ndarray) -> None:
    """Turn the first output, codes of classes, into their labels: numbers, or strings."""
    table = onnx.numpy_helper.from_array(labels, "labels")
    graph.initializer.append(table)
    graph.node.append(onnx.helper.make_node("Gather", ["labels", "codes"], ["label"]))
    output = onnx.helper.make_tensor_value_info("label", table.data_type, ["batch"])
    graph.output[0].CopyFrom(output)
