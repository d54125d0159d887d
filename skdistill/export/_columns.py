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


def column_graph(graph_outputs: GraphOutputs, estimator: Any) -> Any:
    """Return the graph of an estimator of tables."""
    schema: InputSchema = estimator._input_schema
    if not schema.is_table:
        raise ValueError("inputs must be 'X' for a model of images or series, got 'columns'.")
    names = names_of_inputs(estimator, graph_outputs.names)
    return by_column(graph_of(graph_outputs), schema, names)


def names_of_inputs(first: Any, outputs: Sequence[str]) -> list[str]:
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


def by_column(proto: Any, schema: InputSchema, names: Sequence[str]) -> Any:
    """Give a graph inputs (n, 1) of such names in place of X: columns of text are strings."""
    onnx, graph = import_onnx(), proto.graph
    (X,) = graph.input
    kind, n_samples = X.type.tensor_type.elem_type, X.type.tensor_type.shape.dim[0].dim_param
    outputs = {output.name for output in graph.output}
    # Names inside the graph begin with more underscores than any column's.
    mark = "_" * (1 + max(len(name) - len(name.lstrip("_")) for name in names))
    rename(graph, lambda name: name if name in ("", *outputs) else mark + name)
    inputs, nodes, parts = [], [], []
    for number, name in enumerate(names):
        is_text, part = number in schema.text, name
        if is_text:
            part, position = f"{mark}column_{number}", f"{mark}position_{number}"
            known = texts_of(schema.categories[number])
            table = {"keys_strings": [*known], "values_floats": [*map(float, known.values())]}
            nodes += [
                onnx.helper.make_node(
                    *("LabelEncoder", [name], [position]),
                    domain="ai.onnx.ml",
                    default_float=math.nan,
                    **table,
                ),
                onnx.helper.make_node("Cast", [position], [part], to=kind),
            ]
        of_input = onnx.TensorProto.STRING if is_text else kind
        inputs.append(onnx.helper.make_tensor_value_info(name, of_input, [n_samples, 1]))
        parts.append(part)
    nodes.append(onnx.helper.make_node("Concat", parts, [X.name], axis=1))
    nodes += graph.node
    del graph.input[:], graph.node[:]
    graph.input.extend(inputs)
    graph.node.extend(nodes)
    domain = "ai.onnx.ml"
    proto.opset_import.append(onnx.helper.make_opsetid(domain, OPSET[domain]))
    onnx.checker.check_model(proto)
    return proto
