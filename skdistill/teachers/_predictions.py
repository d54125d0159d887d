# SPDX-License-Identifier: BSD-3-Clause
"""Member predictions as arrays: how they are checked."""

from __future__ import annotations

import numpy as np

from .._data.checks import refuse_masked
from .._utils.validation import errors_about

# Largest deviation of a sum of probabilities from one: half precision has three digits.
_TOLERANCE = 1e-3


def check_member_predictions(
    members: object,
    n_samples: int,
    *,
    n_classes: int | None = None,
    n_targets: int | None = None,
    name: str = "member_predictions",
) -> np.ndarray:
    """Return predictions of members as an array, or raise a ValueError that calls them by `name`.

    They are class probabilities (n_samples, n_members, n_classes), which are divided by their sum;
    or means ``[..., 0]`` and variances ``[..., 1]``, (n_samples, n_members, n_targets, 2), in units
    of y and their squares. float32 stays as it is, all else becomes float64.
    """
    refuse_masked(members, name)
    with errors_about(f"{name} must be an array of numbers"):
        members = np.asarray(members)
        if np.iscomplexobj(members):  # whose imaginary parts astype would drop
            raise ValueError(f"{name} must be real numbers, got {members.dtype}.")
        if members.dtype != np.float32:
            members = members.astype(np.float64, copy=False)
    shape = members.shape
    last, words = (n_targets, 2), "samples, members, targets, (mean, variance)"
    if n_targets is None:
        last, words = (n_classes,), "samples, members, class probabilities"
        if len(shape) == 3 and shape[2] == 1:
            words += "; one column p of two classes is given as (1 - p, p)"
    if len(shape) != 2 + len(last) or shape[0] != n_samples or shape[2:] != last or not shape[1]:
        expected = ", ".join(map(str, (n_samples, "S", *last)))
        raise ValueError(
            f"{name} must have shape ({expected}): {words}, with S at least 1; got {shape}."
        )
    if n_targets is None:
        return _normalised(members, name)
    wrong = ~(np.isfinite(members).all(axis=-1) & (members[..., 1] > 0))
    if wrong.any():
        row, member, target = np.argwhere(wrong)[0]
        mean, variance = members[row, member, target]
        raise ValueError(
            f"{name} must be finite means and positive, finite variances; in sample {row} member "
            f"{member} gives a mean of {mean:.3g} and a variance of {variance:.3g}."
        )
    return members


def without_rounding(members: np.ndarray) -> np.ndarray:
    """Divide probabilities (n, S, K) by their sums, unless these differ from one by more.

    Members of float32 beside those of float64 have sums with the rounding of the former.
    """
    misses = np.abs(members.sum(axis=-1) - 1).max(initial=0)
    is_rounding = members.shape[-1] * np.finfo(members.dtype).eps < misses <= _TOLERANCE
    return members / members.sum(axis=-1, keepdims=True) if is_rounding else members


def _normalised(members: np.ndarray, name: str) -> np.ndarray:
    """Probabilities whose sums are one to rounding."""
    if not members.min() >= 0:  # nor is NaN
        row, member, _ = np.unravel_index(members.argmin(), members.shape)  # NaN counts as least
        raise ValueError(
            f"{name} must be probabilities from 0 to 1; in sample {row} member {member} gives "
            f"{members[row, member].min():.6g}."
        )
    sums = members @ np.ones(members.shape[-1], dtype=members.dtype)
    misses = np.abs(sums - 1)
    if not misses.max() <= _TOLERANCE:
        row, member = np.unravel_index(misses.argmax(), misses.shape)
        raise ValueError(
            f"{name} must sum to 1 over the classes, within {_TOLERANCE}; in sample {row} member "
            f"{member} sums to {sums[row, member]:.6g}."
        )
    rounding = members.shape[-1] * np.finfo(members.dtype).eps
    return members if misses.max() <= rounding else members / sums[..., None]
