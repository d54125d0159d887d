# SPDX-License-Identifier: BSD-3-Clause
"""Graphs of tables with one input for each column."""

import math
from typing import Any

from .._data.columns import feature_names_of
from .._data.conversions import texts_of
from .._data.schema import InputSchema
from ._graph import graph_of, import_onnx, rename
from ._outputs import GraphOutputs

_ML, _ML_VERSION = "ai.onnx.ml", 3  # the domain of LabelEncoder


def column_graph(graph_outputs: GraphOutputs, estimator: Any) -> Any:
    """Return the graph of an estimator of tables, with an input (n, 1) for each column, by name.

    Names are x0, x1, ... where columns have none. Columns of text are strings.
    """
    schema: InputSchema = estimator._input_schema
    if not schema.is_table:
        raise ValueError("inputs must be 'X' for a model of images or series, got 'columns'.")
    known = feature_names_of(estimator)
    names = [f"x{k}" for k in range(len(schema.dtypes))] if known is None else known.tolist()
    for name in names:
        if name in ("", *graph_outputs.names):
            raise ValueError(
                "inputs='columns' takes names of columns that are not empty and not those of "
                f"outputs, {graph_outputs.names}; got {name!r}. Rename the column before fit, or "
                "leave out the output by outputs=[...]."
            )
    onnx, proto = import_onnx(), graph_of(graph_outputs)
    graph = proto.graph
    (X,) = graph.input
    # What is inside of the graph begins with more underscores than any of the columns.
    mark = "_" * (1 + max(len(name) - len(name.lstrip("_")) for name in names))
    kept = {"", *(output.name for output in graph.output)}
    rename(graph, lambda name: name if name in kept else f"{mark}{name}")
    kind, n_samples = X.type.tensor_type.elem_type, X.type.tensor_type.shape.dim[0].dim_param
    inputs, nodes, parts = [], [], []
    for number, name in enumerate(names):
        of_input, part = kind, name
        if number in schema.text:
            of_input, part = onnx.TensorProto.STRING, f"{mark}column_{number}"
            nodes += _encoder(schema.categories[number], name, part, kind)
        parts.append(part)
        inputs.append(onnx.helper.make_tensor_value_info(name, of_input, [n_samples, 1]))
    nodes.append(onnx.helper.make_node("Concat", parts, [X.name], axis=1))
    nodes += graph.node
    del graph.input[:], graph.node[:]
    graph.input.extend(inputs)
    graph.node.extend(nodes)
    proto.opset_import.append(onnx.helper.make_opsetid(_ML, _ML_VERSION))
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
