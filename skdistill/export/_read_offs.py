# SPDX-License-Identifier: BSD-3-Clause
"""What a fitted estimator predicts, as a module whose outputs have names."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from .._read_offs import DistributionEstimator
from .._rules import OneOf, errors_about
from ._quantiles import has_closed_form, quantiles_of

_COVERAGE = 0.9  # of the output `interval`


class ReadOffs(nn.Module):
    """All that a fitted estimator predicts for rows, as a tuple of tensors that have names.

    Parameters
    ----------
    estimator : DistributionEstimator
        A fitted one, on any device; its module is copied to the CPU.
    quantiles, members, interval
        As in :func:`export_onnx`.

    Attributes
    ----------
    names : list of str
        What the tensors are.
    examples : list of Tensor
        The tensors for `X`.
    X : Tensor of shape (2, ...)
        Rows of zeros.
    options : dict
        What to construct it with again.
    """

    defaults: ClassVar[dict[str, Any]] = {"quantiles": None, "members": False, "interval": "auto"}

    def __init__(
        self,
        estimator: DistributionEstimator,
        quantiles: Any = None,
        members: bool = False,
        interval: Any = "auto",
    ):
        super().__init__()
        self.plan = estimator._plan
        self.module = copy.deepcopy(estimator.module_).cpu().eval().requires_grad_(False)
        is_numeric = self.plan.task.kind == "regressor"
        with errors_about("quantiles"):
            levels = np.atleast_1d(np.asarray([] if quantiles is None else quantiles, float))
        if not (is_numeric or quantiles is None) or not all(0 < level < 1 for level in levels):
            raise ValueError(
                "quantiles must be numbers strictly between 0 and 1, for a regressor, or None; got "
                f"{quantiles!r}."
            )
        OneOf((True, False) if self.plan.has_members else (False,)).check(members, "members")
        OneOf(("auto", True, False) if is_numeric else ("auto", False)).check(interval, "interval")
        self.levels, self.members = [float(level) for level in levels], members
        dtype = next(self.module.parameters()).dtype
        self.X = torch.zeros(2, *estimator._recipe.row_shape, dtype=dtype)
        with torch.no_grad():
            is_cheap = is_numeric and has_closed_form(self.module.distribution(self.X))
            self.interval = is_cheap if interval == "auto" else interval
            found = dict(self._read(self.X))
        self.names, self.examples = list(found), list(found.values())
        self.options = dict(quantiles=quantiles, members=members, interval=interval)

    def forward(self, X: Tensor) -> tuple[Tensor, ...]:
        """Map rows (n, ...) to tensors whose first axis is n."""
        return tuple(value for _, value in self._read(X))

    def _read(self, X: Tensor) -> Iterator[tuple[str, Tensor]]:
        outputs = self.module.outputs(X)
        distribution = self.module.of_outputs(outputs)
        task, parts = self.plan.task, distribution.uncertainty()
        if task.kind == "classifier":
            yield "label", task.point(distribution)
            yield "probabilities", distribution.mean
        else:
            yield "mean", task.per_target(distribution.mean)
            yield "std", task.per_target(parts.total.sqrt())
            yield from self._read_quantiles(distribution)
        if self.plan.tells_parts:
            yield "aleatoric", task.per_target(parts.aleatoric)
            yield "epistemic", task.per_target(parts.epistemic)
        yield "total", task.per_target(parts.total)
        if self.members:
            yield "members", distribution.members
        yield from self.plan.beside(outputs, self.module).items()

    def _read_quantiles(self, distribution: Any) -> Iterator[tuple[str, Tensor]]:
        tail = (1 - _COVERAGE) / 2
        ends = [tail, 1 - tail] if self.interval else []
        levels = [*ends, *self.levels]
        if not levels:
            return
        found = self.plan.task.per_target(quantiles_of(distribution, levels))
        if self.interval:
            yield "interval", found[..., :2]
        if self.levels:
            yield "quantiles", found[..., len(ends) :]
