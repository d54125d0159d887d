# SPDX-License-Identifier: BSD-3-Clause
"""Checks of sizes, and initial weights, for the networks for images, series and sequences."""

import math
from collections.abc import Collection
from numbers import Integral
from typing import TypeVar

import torch
from torch import nn

from .._utils.validation import Number, OneOf
from ._networks import ACTIVATIONS, as_tuple

Layer = TypeVar("Layer", bound=nn.Module)


def started(layer: Layer, fan_in: int, generator: torch.Generator | None) -> Layer:
    """Draw the weights of a layer made on the meta device, uniform on +-1 / sqrt(fan in).

    These are the initial distributions of torch's linear, convolutional and recurrent layers; for
    the last of them `fan_in` is the width of the hidden state.
    """
    layer.to_empty(device=torch.get_default_device())
    bound = 1.0 / math.sqrt(fan_in)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return layer


def activation_named(name: str) -> nn.Module:
    OneOf(tuple(ACTIVATIONS)).check(name, "activation")
    return ACTIVATIONS[name]()


def row_shape(in_features: object, n_axes: Collection[int], form: str) -> tuple[int, ...]:
    """Shape of one row as a tuple; a ValueError describes the accepted `form`."""
    shape = as_tuple(in_features)
    if len(shape) not in n_axes or not _are_integers(shape):
        raise ValueError(
            f"in_features must be {form}, the shape of one row of X; got {in_features!r}."
        )
    return shape


def whole_numbers(name: str, value: object, least: int = 1) -> tuple[int, ...]:
    """One or more integers as a tuple; a ValueError names the parameter."""
    numbers = as_tuple(value)
    if not numbers or not _are_integers(numbers, least):
        raise ValueError(
            f"{name} must be an integer of at least {least}, or a tuple of them; got {value!r}."
        )
    return numbers


def one_for_each(name: str, value: object, n: int, least: int = 1) -> tuple[int, ...]:
    """Numbers for `n` layers, from one number for all of them or a tuple with one for each."""
    numbers = whole_numbers(name, value, least)
    if len(numbers) not in (1, n):
        raise ValueError(f"{name} must have one value or {n}, as many as channels; got {value!r}.")
    return numbers * (n // len(numbers))


def whole_number(name: str, value: object) -> int:
    """A positive integer; a ValueError names the parameter."""
    numbers = whole_numbers(name, value)
    if len(numbers) > 1:
        raise ValueError(f"{name} must be one integer, got {value!r}.")
    return numbers[0]


def _are_integers(numbers: tuple, least: int = 1) -> bool:
    return all(map(Number(Integral, least).accepts, numbers))
