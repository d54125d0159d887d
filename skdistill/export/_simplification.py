# SPDX-License-Identifier: BSD-3-Clause
"""Graphs made faster for onnxruntime, without a change of what they compute."""

from collections.abc import Iterator
from typing import Any

_ARITHMETIC = ("Add", "Sub", "Mul", "Div")


def simplify(onnx: Any, graph: Any) -> None:
    """Drop detours, and give constants the axes of what they are combined with."""
    _drop_detours(graph)
    _match_ranks(onnx, graph)


def bodies(graph: Any) -> list[Any]:
    """Return the graphs inside the nodes of a graph, which are those of loops."""
    attributes = (attribute for node in graph.node for attribute in node.attribute)
    return [attribute.g for attribute in attributes if attribute.HasField("g")]


def _names_read(graph: Any) -> Iterator[str]:
    """Names of the values that nodes take, those in bodies too, and of the outputs."""
    for node in graph.node:
        yield from node.input
    for body in bodies(graph):
        yield from _names_read(body)
    yield from (output.name for output in graph.output)


def _drop_detours(graph: Any) -> None:
    """Leave out each Squeeze that undoes an Unsqueeze, as of the axis of one network's members."""
    made_by = {node.output[0]: node for node in graph.node}
    kept = {}
    for node in graph.node:
        before = made_by.get((*node.input, "")[0], node)
        is_pair = (before.op_type, node.op_type) == ("Unsqueeze", "Squeeze")
        if is_pair and before.input[1] == node.input[1]:  # the constant that tells the axis
            kept[node.output[0]] = before.input[0]
    for node in graph.node:
        node.input[:] = [kept.get(name, name) for name in node.input]
    for node in reversed(list(graph.node)):
        if set(_names_read(graph)).isdisjoint(node.output):
            graph.node.remove(node)


def _match_ranks(onnx: Any, graph: Any) -> None:
    """Give constants as many axes as what they are added to, or multiplied with.

    Onnxruntime combines columns (n, 1) with a number of shape (1, 1) 30 times as fast as with one
    of shape () or (1,).
    """
    ranks = {v.name: len(v.type.tensor_type.shape.dim) for v in (*graph.value_info, *graph.output)}
    constants = {constant.name: constant for constant in graph.initializer}
    for node in graph.node:
        rank = max((ranks.get(name, 0) for name in node.input), default=0)
        for k, name in enumerate(node.input if node.op_type in _ARITHMETIC else ()):
            if name in constants and len(constants[name].dims) < rank:
                node.input[k] = f"{name}_{rank}d"
                if node.input[k] not in constants:
                    array = onnx.numpy_helper.to_array(constants[name])
                    array = array.reshape((1,) * (rank - array.ndim) + array.shape)
                    constants[node.input[k]] = onnx.numpy_helper.from_array(array, node.input[k])
    names = set(_names_read(graph))
    del graph.initializer[:]
    graph.initializer.extend(c for name, c in constants.items() if name in names)
