# SPDX-License-Identifier: BSD-3-Clause
"""Graphs of tables with one input for each column."""

import math
from collections.abc import Sequence
from typing import Any

from .._data.columns import feature_names_of
from .._data.conversions import texts_of
from .._data.schema import InputSchema
from ._graph import OPSET, graph_of, import_onnx, rename
from ._outputs import GraphOutputs

_ML = "ai.onnx.ml"  # the domain of LabelEncoder


def column_graph(graph_outputs: GraphOutputs, estimator: Any) -> Any:
    """Return the graph of an estimator of tables, with inputs by the names of columns."""
    schema: InputSchema = estimator._input_schema
    if not schema.is_table:
        raise ValueError("inputs must be 'X' for a model of images or series, got 'columns'.")
    names = column_names(estimator, graph_outputs.names)
    proto = by_column(graph_of(graph_outputs), schema)
    return with_input_names(proto, names)


def column_names(first: Any, outputs: Sequence[str]) -> list[str]:
    """Return the names of the columns that a step takes, or x0, x1, ...; outputs have others."""
    names = feature_names_of(first)
    found = [f"x{k}" for k in range(first.n_features_in_)] if names is None else names.tolist()
    for name in found:
        if name in ("", *outputs):
            raise ValueError(
                "inputs='columns' takes names of columns that are not empty and not those of "
                f"outputs, {list(outputs)}; got {name!r}. Rename the column before fit, or leave "
                "out the output by outputs=[...]."
            )
    return found


def by_column(proto: Any, schema: InputSchema) -> Any:
    """Give a graph inputs `x0`, `x1`, ... (n, 1) in place of X: columns of text are strings."""
    onnx, graph = import_onnx(), proto.graph
    (X,) = graph.input
    kind, n_samples = X.type.tensor_type.elem_type, X.type.tensor_type.shape.dim[0].dim_param
    inputs, nodes, parts = [], [], []
    for number in range(len(schema.dtypes)):
        name, of_input = f"x{number}", kind
        parts.append(name)
        if number in schema.text:
            of_input, parts[number] = onnx.TensorProto.STRING, f"column_{number}"
            nodes += _encoder(schema.categories[number], name, parts[number], kind)
        inputs.append(onnx.helper.make_tensor_value_info(name, of_input, [n_samples, 1]))
    nodes.append(onnx.helper.make_node("Concat", parts, [X.name], axis=1))
    nodes += graph.node
    del graph.input[:], graph.node[:]
    graph.input.extend(inputs)
    graph.node.extend(nodes)
    proto.opset_import.append(onnx.helper.make_opsetid(_ML, OPSET[_ML]))
    onnx.checker.check_model(proto)
    return proto


def _encoder(categories: list, text: str, position: str, kind: int) -> list[Any]:
    """Return nodes that turn text into the positions of categories, and all other into NaN."""
    make_node, known = import_onnx().helper.make_node, texts_of(categories)
    values = {"keys_strings": [*known], "values_floats": [*map(float, known.values())]}
    found = f"{position}_float32"
    return [
        make_node("LabelEncoder", [text], [found], domain=_ML, default_float=math.nan, **values),
        make_node("Cast", [found], [position], to=kind),
    ]


def with_input_names(proto: Any, names: Sequence[str]) -> Any:
    """Name the inputs of a graph; what is inside begins with more underscores than any of them."""
    graph, onnx = proto.graph, import_onnx()
    mark = "_" * (1 + max(len(name) - len(name.lstrip("_")) for name in names))
    kept = {name: name for name in ("", *(output.name for output in graph.output))}
    kept |= {given.name: name for given, name in zip(graph.input, names, strict=True)}
    rename(graph, lambda name: kept.get(name, f"{mark}{name}"))
    onnx.checker.check_model(proto)
    return proto
