# SPDX-License-Identifier: BSD-3-Clause
"""What distributions share: reading of network outputs, checks of arguments."""

import math
from collections.abc import Callable
from numbers import Integral

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from .._utils.validation import Number


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
    """Raise TypeError if `y` is no tensor, ValueError if its shape is not that of `like`."""
    if not isinstance(y, Tensor):
        raise TypeError(f"y must be a tensor, got {y!r}.")
    if y.shape != like.shape:
        raise ValueError(f"y must have shape (n, t) = {tuple(like.shape)}, got {tuple(y.shape)}.")


def check_n_samples(n_samples: int) -> None:
    """Raise TypeError or ValueError if `n_samples` is no number of draws."""
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
