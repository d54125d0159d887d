# SPDX-License-Identifier: BSD-3-Clause
"""What distributions share: the parts of an uncertainty, reading of outputs, checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from .._utils.validation import Number


@dataclass(frozen=True, eq=False)  # the == of arrays has no single truth value
class Uncertainty:
    """Total uncertainty of a prediction and the two parts it is the sum of.

    It unpacks into its parts (Lindqvist et al., 2020, Eqs 4a to 4c):
    ``total, aleatoric, epistemic = uncertainty``.

    Parameters
    ----------
    total : array or Tensor
        Uncertainty of the prediction. Arrays and tensors of any shape serve, one for all parts.
    aleatoric, epistemic : array, Tensor or None
        The parts due to noise in the data and to not knowing the model, also called data and
        knowledge uncertainty. None where the model cannot tell the parts.
    measure : {"variance", "entropy", "std"}
        What the numbers are: a variance in squared units of y, an entropy in nats, or, from
        :meth:`std` only, a standard deviation in units of y.
    """

    total: Any
    aleatoric: Any
    epistemic: Any
    measure: str

    def __iter__(self) -> Iterator[Any]:
        """Iterate over total, aleatoric and epistemic."""
        return iter((self.total, self.aleatoric, self.epistemic))

    def _asdict(self) -> dict[str, Any]:
        """Return the three parts by name, as named tuples have it."""
        return {"total": self.total, "aleatoric": self.aleatoric, "epistemic": self.epistemic}

    def to_frame(self, index: object = None) -> Any:
        """Return the parts as a table, with a row for each prediction.

        Parameters
        ----------
        index : array-like of shape (n_samples,), default=None
            Labels of the samples, such as ``X.index``.

        Returns
        -------
        frame : pandas.DataFrame of shape (n_samples, n_columns)
            Columns ``total``, ``aleatoric`` and ``epistemic``, each of them with ``_<number of the
            target>`` behind it if there are several. Parts that the model cannot tell are missing.
        """
        import pandas

        known = {k: np.asarray(part) for k, part in self._asdict().items() if part is not None}
        return pandas.DataFrame(split_columns(known), index=index)

    def std(self) -> Uncertainty:
        """Square roots of the three variances, in units of y.

        Returns
        -------
        Uncertainty
            With ``measure="std"``. Standard deviations do not add up, their squares do.

        Raises
        ------
        ValueError
            If the measure is not "variance".
        """
        if self.measure != "variance":
            raise ValueError(
                f'std() needs measure="variance", but this uncertainty has {self.measure!r}.'
            )
        total, aleatoric, epistemic = (None if part is None else part**0.5 for part in self)
        return Uncertainty(total, aleatoric, epistemic, measure="std")


def split_columns(table: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return arrays of a table as its columns: one of shape (n, t) as t, ``<name>_<number>``."""
    columns: dict[str, np.ndarray] = {}
    for name, values in table.items():
        several = {f"{name}_{k}": column for k, column in enumerate(values.T)}
        columns |= several if values.ndim == 2 else {name: values}
    return columns


def row_chunks(values: Tensor, n_rows: int, axis: int = 0) -> tuple[Tensor, ...]:
    """Split along the samples, so that temporaries stay small.

    An exported graph, whose number of samples is open, takes them all at once.
    """
    return (values,) if torch.compiler.is_exporting() else values.split(max(1, n_rows), axis)


def of_one_network(outputs: Tensor, blocks: int, what: str, at_least: int = 0) -> Tensor:
    """Outputs (n, c) of one network, given as such or as (1, n, c), c a multiple of `blocks`."""
    if outputs.ndim == 3 and len(outputs) == 1:
        outputs = outputs.squeeze(0)
    if outputs.ndim != 2 or outputs.shape[1] % blocks or outputs.shape[1] < at_least:
        raise ValueError(
            f"outputs must have shape (n, c) or (1, n, c), where c is {what}; got "
            f"{tuple(outputs.shape)}."
        )
    return outputs


def as_tensor_like(value: float | ArrayLike | Tensor, like: Tensor) -> Tensor:
    """Return numbers as a tensor of the dtype and on the device of `like`."""
    return torch.as_tensor(value, dtype=like.dtype, device=like.device)


def check_targets(y: Tensor, like: Tensor) -> None:
    if not isinstance(y, Tensor):
        raise TypeError(f"y must be a tensor, got {y!r}.")
    if y.shape != like.shape:
        raise ValueError(f"y must have shape (n, t) = {tuple(like.shape)}, got {tuple(y.shape)}.")


def check_n_samples(n_samples: int) -> None:
    Number(Integral, 0).check(n_samples, "n_samples")


def random_numbers(
    draw: Callable[..., Tensor],
    shape: tuple[int, ...],
    generator: torch.Generator | None,
    like: Tensor,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Draw numbers for the device of `like`, on the generator's own device."""
    device = like.device if generator is None else generator.device
    drawn = draw(shape, generator=generator, device=device, dtype=dtype or like.dtype)
    return drawn.to(like.device)


def normal_cdf(z: Tensor) -> Tensor:
    """Distribution function of N(0, 1), of full relative accuracy in the lower tail."""
    return 0.5 * torch.erfc(-math.sqrt(0.5) * z)
