# SPDX-License-Identifier: BSD-3-Clause
"""Recording of the low-level calls that a function makes of torch."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.expand.default)


class Recorder(TorchDispatchMode):
    """Writes down the low-level calls of torch that a function of tensors, its arguments, makes.

    Other tensors that the function reads become constants of the record. It sees the calls of its
    own thread, below ``vmap`` and autograd. (``make_fx`` makes such records too, but meanwhile
    replaces methods of ``nn.Module`` for all threads.)
    """

    def __init__(self, tensors: list[Tensor]):
        super().__init__()
        self.graph = torch.fx.Graph()
        self.constants = nn.Module()
        self.nodes: dict[int, torch.fx.Node] = {}
        self.seen: list[Tensor] = []  # kept alive, so that no other tensor gets one of their ids
        for i, tensor in enumerate(tensors):
            self._note(tensor, self.graph.placeholder(f"tensor_{i}"))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and asking would import the compiler, for a second

    def graph_of(self, results: Any) -> torch.fx.Graph:
        """Return the graph of the calls that these results need; `constants` are its others."""
        self.graph.output(map_aggregate(results, self._node_of))
        self.graph.eliminate_dead_code()
        return self.graph

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is aten.lift_fresh.default:  # in-place calls must not change a constant
            func = aten.lift_fresh_copy.default
        if torch.Tag.dynamic_output_shape in func.tags:
            raise RuntimeError(f"the shape of what {func} gives depends on data")
        outputs = func(*args, **(kwargs or {}))
        if func is aten.detach.default or (func in _VIEWS and outputs.shape == args[0].shape):
            self._note(outputs, self._node_of(args[0]))
            return outputs
        call = map_aggregate((args, kwargs or {}), self._node_of)
        self._note(outputs, self.graph.call_function(func, *call))
        return outputs

    def _note(self, outputs: object, node: torch.fx.Node) -> None:
        """Note which node of the graph gives a tensor, or several tensors."""
        if isinstance(outputs, Tensor):
            self.nodes[id(outputs)] = node
            self.seen.append(outputs)
        elif isinstance(outputs, (tuple, list)):
            for i, output in enumerate(outputs):
                self._note(output, self.graph.call_function(operator.getitem, (node, i)))
        elif outputs is not None:
            raise RuntimeError(f"{node.target} reads a number off a tensor")

    def _node_of(self, value: object) -> Any:
        """Return the node that gives a tensor; any other argument is returned as it is."""
        if not isinstance(value, Tensor):
            return value
        if id(value) not in self.nodes:
            name = f"constant_{len(self.seen)}"
            self.constants.register_buffer(name, value)
            self._note(value, self.graph.get_attr(name))
        return self.nodes[id(value)]
