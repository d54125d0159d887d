# SPDX-License-Identifier: BSD-3-Clause
"""Processes that train one student together, each on its share of every minibatch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist


class Ranks:
    """The processes of a group of ``torch.distributed``, seen from one of them.

    All methods but :meth:`share` are collective: each process has to call them, in the same order.
    `rank` is the number of this process, and `size` how many there are; no group is all processes.
    """

    def __init__(self, group: Any = None):
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def share(self, values: Tensor, axis: int) -> Tensor:
        """Samples of this rank along an axis; ranks have equally many, or one more or less."""
        n = values.shape[axis]
        start, stop = self.rank * n // self.size, (self.rank + 1) * n // self.size
        return values.narrow(axis, start, stop - start)

    @torch.no_grad()
    def average(self, means: Sequence[Tensor], n_rows: int) -> None:
        r"""Replace means over the `n_rows` samples of this rank by those over all ranks.

        With n_r samples on rank r, :math:`g = \sum_r n_r g_r / \sum_r n_r`. The two sums are one
        all-reduce of one buffer, whose result is the same bit for bit on all ranks. A rank without
        samples gives means of zero.
        """
        buffer = torch.cat([*(mean.reshape(-1) for mean in means), means[0].new_ones(1)])
        buffer *= n_rows
        self._call(dist.all_reduce, buffer)
        buffer /= buffer[-1].clone()
        parts = buffer[:-1].split([mean.numel() for mean in means])
        for mean, part in zip(means, parts, strict=True):
            mean.copy_(part.view_as(mean))

    @torch.no_grad()
    def copy_from_first(self, tensors: Sequence[Tensor]) -> None:
        """Give tensors the values that they have on rank 0."""
        for tensor in tensors:
            values = tensor.detach().contiguous()
            self._call(dist.broadcast, values, group_src=0)
            tensor.copy_(values)

    def of_first(self, value: object) -> Any:
        """Return what `value`, which can be pickled, is on rank 0."""
        box = [value]
        self._call(dist.broadcast_object_list, box, group_src=0)
        return box[0]

    def on_first(self, act: Callable[[], object]) -> Any:
        """Return what `act` returns on rank 0, where alone it runs; all ranks raise its error."""
        value = None
        if self.rank == 0:
            try:
                with ranks_are(None):
                    value = act()
            except Exception as error:  # of any kind: the other ranks wait to hear of it
                self.of_first((None, f"{type(error).__name__}: {error}"))
                raise
        value, failure = self.of_first((value, None))
        if failure is not None:
            raise RuntimeError(f"Rank 0 of data_parallel failed. {failure}")
        return value

    def check_same(self, values: Mapping[str, object]) -> None:
        """Raise a ValueError, on all ranks, for the first of `values` that is not the same."""
        of_ranks = self._of_all(values)
        for name in values:
            for rank, found in enumerate(of_ranks):
                if found[name] != of_ranks[0][name]:
                    raise ValueError(
                        f"{name} must be the same on all ranks of data_parallel, which deals each "
                        f"its share; rank {rank} differs from rank 0."
                    )

    def all_hold(self, condition: bool) -> bool:
        """Tell whether a condition holds on all ranks."""
        return all(self._of_all(condition))

    def _of_all(self, value: object) -> list[Any]:
        of_ranks: list[Any] = [None] * self.size
        self._call(dist.all_gather_object, of_ranks, value)
        return of_ranks

    def _call(self, collective: Callable[..., Any], *arguments: object, **settings: object) -> None:
        try:
            collective(*arguments, group=self.group, **settings)
        except RuntimeError as error:
            raise RuntimeError(
                f"Rank {self.rank} of data_parallel, of {self.size}, has lost another: a process "
                "has ended or failed, or took longer than the timeout of init_process_group. "
                f"torch says: {str(error).splitlines()[0]}"
            ) from error


_ACTIVE: ContextVar[Ranks | None] = ContextVar("the ranks that train together", default=None)


def current_ranks() -> Ranks | None:
    """Return the processes that train together here, if there are several."""
    return _ACTIVE.get()


@contextmanager
def ranks_are(ranks: Ranks | None) -> Iterator[None]:
    """Make `ranks` the current ones."""
    token = _ACTIVE.set(ranks)
    try:
        yield
    finally:
        _ACTIVE.reset(token)


def refuse_ranks(name: str) -> None:
    """Raise a TypeError for an estimator, by its name, that processes cannot train together."""
    if current_ranks() is not None:
        raise TypeError(
            "estimator must be a HydraPlusRegressor, HydraPlusClassifier, DistributionDistiller or "
            "GPEDDistiller of members, not of chains, to be fitted within data_parallel; got "
            f"{name}. Fit it outside."
        )
