# SPDX-License-Identifier: BSD-3-Clause
"""Learners that take activations of earlier learners as inputs, and boosters (B-DISTIL).

Activations are vectors, or one vector for each time step of a series: (n, width) or (n, time,
width). Everything here works on the last axis.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import InitVar, dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from ..losses import bounded_outputs
from ._models import n_parameters, split_head
from ._networks import started
from ._recurrent import _LastState
from ._stacks import StackedSequential, stack

Generator = torch.Generator | None


class Connection(nn.Module):
    """Merges activations of an earlier learner, projected to their width, into those of another."""

    is_projected = True
    flop_per_unit: int  # of merge
    merge: Any  # that of each kind

    def __init__(self, width: int, source_width: int, generator: Generator = None):
        super().__init__()
        self.out_features = width if self.is_projected else width + source_width
        self.project: nn.Module = nn.Identity()
        if self.is_projected and width != source_width:
            layer = nn.Linear(source_width, width, bias=False, device="meta")
            self.project = started(layer, source_width, generator)

    def forward(self, own: Tensor, earlier: Tensor) -> Tensor:
        """Merge activations (..., width) and (..., source_width) by the subclass's `merge`."""
        return self.merge(own, self.project(earlier))


class Residual(Connection):
    """Add the activations: ``h + s``."""

    flop_per_unit = 1

    def merge(self, own, earlier):
        return own + earlier


class Dense(Connection):
    """Concatenate the activations, ``[h, s]``, which widens the next layer."""

    is_projected = False
    flop_per_unit = 0

    def merge(self, own, earlier):
        return torch.cat((own, earlier), -1)


class Gated(Connection):
    """Gates with a weight for each unit instead of matrices, which makes them cheap."""

    n_gates: int

    def __init__(self, width: int, source_width: int, generator: Generator = None):
        super().__init__(width, source_width, generator)
        self.own = nn.Parameter(torch.ones(self.n_gates, width))
        self.earlier = nn.Parameter(torch.ones(self.n_gates, width))
        self.bias = nn.Parameter(torch.zeros(self.n_gates, width))

    def gates(self, own: Tensor, earlier: Tensor, first: int, last: int) -> Tensor:
        """Inputs of the gates `first` to `last` - 1, at once, (last - first, ..., width)."""
        axes = (last - first, *(1,) * (own.ndim - 1), -1)
        parts = (self.own, self.earlier, self.bias)
        a, b, c = (part[first:last].view(axes) for part in parts)
        return torch.addcmul(torch.addcmul(c, a, own), b, earlier)


class GatedLSTM(Gated):
    """Gates of an LSTM, with the earlier learner's activations as its cell state."""

    n_gates = 4
    flop_per_unit = 4 * 5 + 6

    def __init__(self, width: int, source_width: int, generator: Generator = None):
        super().__init__(width, source_width, generator)
        self.bias.data[:3] = 1.0  # gates that are open at the start

    def merge(self, own, earlier):
        inputs = self.gates(own, earlier, 0, 4)
        i, f, o = torch.sigmoid(inputs[:3])
        cell = torch.addcmul(f * earlier, i, torch.tanh(inputs[3]))
        return o * torch.tanh(cell)


class GatedGRU(Gated):
    """Gates of a GRU, with the earlier learner's activations as its state."""

    n_gates = 3
    flop_per_unit = 3 * 5 + 5

    def merge(self, own, earlier):
        r, z = torch.sigmoid(self.gates(own, earlier, 0, 2))
        (n,) = self.gates(own, r * earlier, 2, 3)
        return torch.lerp(torch.tanh(n), earlier, z)


CONNECTIONS: dict[str, type[Connection]] = {
    "residual": Residual,
    "dense": Dense,
    "lstm": GatedLSTM,
    "gru": GatedGRU,
}


class Learner(nn.Module):
    """One network of a booster: a core, connections to earlier learners, a body, a last layer.

    `head_layers` layers with parameters come after the connections to `sources`, the last of them
    first. With `over_time` it predicts from the state at every time step of a series.
    """

    connections: Any  # an nn.ModuleList of Connection
    hidden_shape: tuple[int, ...]  # of one sample's input of the last layer

    def __init__(
        self,
        network: nn.Module,
        row_shape: Sequence[int],
        head_layers: int = 1,
        connection: str = "none",
        sources: Sequence[Learner] = (),
        over_time: bool = False,
        generator: Generator = None,
    ):
        super().__init__()
        self.core, head = split_head(network.eval(), head_layers)
        self.over_time = over_time
        if over_time:
            layers = [layer for layer in self.core if not isinstance(layer, _LastState)]
            if len(layers) == len(self.core):
                raise ValueError(
                    "early=True needs a module that reads a series and its last state, such as "
                    "skdistill.modules.Recurrent."
                )
            self.core = nn.Sequential(*layers)
        self.body, self.last = split_head(head, 1)
        with torch.no_grad():
            activations = self.core(torch.zeros(1, *row_shape))
        width = activations.shape[-1]
        if sources and activations.ndim != 2 + over_time:
            raise ValueError(
                "connections need activations that are one vector for a sample; before the last "
                f"head_layers={head_layers} layers they have shape {tuple(activations.shape[1:])}."
            )
        self.connections = nn.ModuleList()
        for source in sources:
            found = CONNECTIONS[connection](width, source.hidden_shape[-1], generator)
            self.connections.append(found)
            width = found.out_features
        self.n_widened = 0  # weights by which connections widen a layer
        if width > activations.shape[-1]:
            self._widen(width - activations.shape[-1], generator)
        self.row_shape = tuple(row_shape)
        self.source_shapes = [source.hidden_shape for source in sources]
        self.eval()  # a copy of it is trained, in a stack
        zeros = [torch.zeros(1, *shape) for shape in (self.row_shape, *self.source_shapes)]
        with torch.no_grad():
            self.hidden_shape = tuple(self.hidden(zeros[0], zeros[1:]).shape[1:])

    def _widen(self, n_more: int, generator: Generator) -> None:
        """Add inputs to the layer after the connections."""
        part = self.body if len(self.body) else self.last
        if not isinstance(part[0], nn.Linear):
            raise ValueError(
                "connection='dense' needs a linear layer after the connections, which can be "
                f"widened; module has {type(part[0]).__name__} there."
            )
        n_inputs, n_outputs = part[0].in_features + n_more, part[0].out_features
        part[0] = started(nn.Linear(n_inputs, n_outputs, device="meta"), n_inputs, generator)
        self.n_widened = n_more * n_outputs

    def hidden(self, x: Tensor, sources: Sequence[Tensor] = ()) -> Tensor:
        """Inputs of the last layer, for samples (n, ...) and activations of the sources."""
        h = self.core(x)
        for connect, earlier in zip(self.connections, sources, strict=True):
            h = connect(h, earlier)
        return self.body(h)

    def outputs(self, hidden: Tensor) -> Tensor:
        """Raw outputs (n, L); for a series read over time, those of its last step."""
        return self.last(hidden[:, -1] if self.over_time else hidden)

    def outputs_over_time(self, hidden: Tensor) -> Tensor:
        """Raw outputs at all time steps, (time, n, L)."""
        return self.last(hidden).transpose(0, 1)

    def pack(self, x: Tensor, sources: Sequence[Tensor]) -> Tensor:
        """Concatenate samples and activations of the sources for `forward`, (n, n_inputs)."""
        return torch.cat([part.flatten(1) for part in (x, *sources)], 1) if len(sources) else x

    def forward(self, rows: Tensor) -> Tensor:
        """Raw outputs (n, L), or (time, n, L) over time, for samples as `pack` gives them."""
        x, sources = rows, []
        if self.source_shapes:
            shapes = [self.row_shape, *self.source_shapes]
            parts = rows.split([math.prod(shape) for shape in shapes], -1)
            x, *sources = (p.unflatten(-1, s) for p, s in zip(parts, shapes, strict=True))
        hidden = self.hidden(x, sources)
        return self.outputs_over_time(hidden) if self.over_time else self.outputs(hidden)

    def trainable(self) -> nn.Module:
        """Return the learner, as an ``nn.Sequential`` where possible; the weights are shared."""
        if self.over_time or len(self.connections):
            return self
        return nn.Sequential(*self.core, *self.body, *self.last)

    def load_trained(self, trained: nn.Module) -> None:
        """Copy the weights of a trained copy of `trainable`."""
        with torch.no_grad():
            for of in (nn.Module.parameters, nn.Module.buffers):
                for own, value in zip(of(self.trainable()), of(trained), strict=True):
                    own.copy_(value)

    @property
    def elementwise_flop(self) -> int:
        """Floating-point operations of merging for one row, which are no matrix products."""
        n_vectors = math.prod(self.hidden_shape[:-1])
        return n_vectors * sum(c.flop_per_unit * c.out_features for c in self.connections)

    @property
    def connection_flop(self) -> int:
        """Floating-point operations that the connections cost for one sample."""
        n_vectors = math.prod(self.hidden_shape[:-1])  # of one sample that are merged
        n_products = n_vectors * sum(n_parameters(c.project) for c in self.connections)
        # The last layer of a series reads its last step alone.
        n_products += self.n_widened * (n_vectors if len(self.body) else 1)
        return 2 * n_products + self.elementwise_flop

    @property
    def n_connection_parameters(self) -> int:
        return n_parameters(self.connections) + self.n_widened

    @property
    def n_activations(self) -> int:
        """Approximate number of activations of one sample."""
        return math.prod(self.row_shape) + 4 * math.prod(self.hidden_shape)


class Booster(nn.Module):
    """Weighted mean of learners that may read each other's activations; a stack of one network.

    Outputs are bounded, see ``bounded_outputs``. The weights start as 1.
    """

    learners: Any  # an nn.ModuleList of Learner
    weights: Tensor  # (T,), of the learners in the mean
    loc: Tensor
    bound: Tensor

    def __init__(self, learners: Sequence[Learner], loc: Tensor, bound: Tensor, centred: bool):
        super().__init__()
        self.lead = (1,)
        self.learners = nn.ModuleList(learners)
        self.register_buffer("weights", loc.new_ones(len(learners)))
        self.register_buffer("loc", loc)
        self.register_buffer("bound", bound)
        self.centred = centred
        self._stack: list[nn.Module] = []  # of the learners; a list hides it from nn.Module

    def append(self, learner: Learner, weight: float) -> None:
        self.learners.append(learner)
        self.weights = torch.cat((self.weights, self.weights.new_tensor([weight])))

    def bounded(self, raw: Tensor) -> Tensor:
        """Bound the outputs of a learner's network."""
        return bounded_outputs(raw, self.loc, self.bound, self.centred)

    def put_side_by_side(self) -> None:
        """Stack the learners to run in parallel, if they are equal MLPs without connections.

        Later changes of their weights have no effect.
        """
        networks = [learner.trainable() for learner in self.learners]
        are_alike = len({str(network) for network in networks}) == 1
        if len(networks) > 1 and are_alike and StackedSequential.supports(networks[0]):
            self._stack = [stack(networks)]

    def _apply(self, fn, recurse=True):
        """Change the dtype or device of the stacked learners, too."""
        for stacked in self._stack:
            stacked._apply(fn, recurse)
        return super()._apply(fn, recurse)

    def forward(self, x: Tensor) -> Tensor:
        """Map samples (1, n, ...) to outputs (1, n, L)."""
        if self._stack:
            shares = (self.weights / self.weights.sum()).view(-1, 1, 1)
            return (shares * self.bounded(self._stack[0](x))).sum(0, keepdim=True)
        return self.first(x.squeeze(0), len(self.learners)).unsqueeze(0)

    def first(self, x: Tensor, n_rounds: int) -> Tensor:
        """Map samples (n, ...) to the mean (n, L) of the first learners."""
        rounds = Rounds(self, x, reach=self.reach)
        for _ in range(min(n_rounds, len(self.learners))):
            rounds.advance()
        return rounds.mean

    @property
    def shares(self) -> list[float]:
        """Share of each learner in the mean of those up to it."""
        weights = self.weights.tolist()
        return [weight / total for weight, total in zip(weights, accumulate(weights), strict=True)]

    @property
    def elementwise_flop(self) -> int:
        """Floating-point operations of connections for one row, which are no matrix products."""
        return sum(learner.elementwise_flop for learner in self.learners)

    @property
    def reach(self) -> int:
        """Largest number of earlier learners that one reads."""
        return max(len(learner.connections) for learner in self.learners)

    @property
    def extra_activations(self) -> int:
        """Activations of one sample, see :func:`activations_per_row`."""
        return sum(learner.n_activations for learner in self.learners)


@dataclass(eq=False)
class Rounds:
    """Runs a booster round by round, and keeps activations and outputs so far.

    `chunk` samples are run at a time, after a call of `before_chunk`. Learners read at most `reach`
    rounds back. With `over_time` the outputs at all time steps are kept, (time, n, L).
    """

    booster: Booster
    x: Tensor
    over_time: bool = False
    chunk: int | None = None
    before_chunk: Callable[[], None] | None = None
    reach: InitVar[int | None] = None

    def __post_init__(self, reach: int | None) -> None:
        self.outputs: list[Tensor] = []
        self.mean = torch.empty(0)  # of the outputs so far: the booster's output
        self.shares = self.booster.shares
        self.hidden: deque[Tensor] = deque(maxlen=reach)

    def sources_of(self, learner: Learner) -> list[Tensor]:
        """Activations that a learner of the next round reads, the last first."""
        return list(reversed(self.hidden))[: len(learner.connections)]

    def advance(self) -> Tensor:
        """Run the next learner; return its outputs."""
        hidden, outputs = self.run(self.booster.learners[len(self.outputs)])
        self.keep_hidden(hidden)
        share = self.shares[len(self.outputs)]
        self.mean = torch.lerp(self.mean, outputs, share) if self.outputs else outputs
        self.outputs.append(outputs)
        return outputs

    def keep_hidden(self, hidden: Tensor | None) -> None:
        """Keep the activations of the learner that was run, for those that will read them."""
        if hidden is not None:
            self.hidden.append(hidden)

    def run(self, learner: Any, chunk: int | None = None) -> tuple[Tensor | None, Tensor]:
        """Return activations, None if none are read, and outputs of a learner of the next round."""
        known = (self.x, *self.sources_of(learner))
        parts, outputs = [], []
        read = learner.outputs_over_time if self.over_time else learner.outputs
        chunks: Iterable[tuple[Tensor, ...]] = [known]
        if size := chunk or self.chunk:
            chunks = zip(*(tensor.split(size) for tensor in known), strict=True)
        for x, *sources in chunks:
            if self.before_chunk is not None:
                self.before_chunk()
            hidden = learner.hidden(x, sources)
            outputs.append(self.booster.bounded(read(hidden)))
            if self.hidden.maxlen != 0:
                parts.append(hidden)
        if len(outputs) == 1:
            return (parts or [None])[0], outputs[0]
        return torch.cat(parts) if parts else None, torch.cat(outputs, -2)

    def keep(self, rows: Tensor) -> None:
        """Go on with some of the samples, given as a mask (n,)."""
        self.x = self.x[rows]
        self.hidden = deque((hidden[rows] for hidden in self.hidden), self.hidden.maxlen)
        self.outputs = [outputs[rows] for outputs in self.outputs]
        self.mean = self.mean[rows]
