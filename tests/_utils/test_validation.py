# SPDX-License-Identifier: BSD-3-Clause
"""Rules accept what they say; their errors name the parameter, its value and what is accepted."""

from __future__ import annotations

from numbers import Integral, Real
from pathlib import Path

import numpy as np
import pytest
import torch

from skdistill._utils.validation import (
    AnyOf,
    FilePath,
    IsCallable,
    Number,
    OneOf,
    Schedule,
    Seed,
    value_at_epoch,
)

SHARE = Number(Real, 0, 1)
COUNT_OR_SHARE = AnyOf(Number(Real, 0, 1, closed="neither"), Number(Integral, 1))


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        (SHARE, (0, 1, 0.5, np.float32(0.25), np.int64(1))),
        (Number(Real, 0, closed="neither", others=(None, np.inf)), (None, np.inf, 1e-300)),
        (Number(Integral, 1, others=("auto",)), (1, np.int32(7), "auto")),
        (COUNT_OR_SHARE, (0.5, 1, 7)),
        (OneOf((True, "a")), (True, np.True_, "a")),
        (IsCallable(), (print,)),
        (FilePath(optional=True), (None, "a", Path("a"))),
        (Seed(), (None, 0, 2**32 - 1, np.int64(1), np.random, np.random.RandomState(0))),
        (Schedule(), (0, 1.5, (1, 0, 3), [0.0, 2, 5])),
    ],
)
def test_values_that_are_accepted(rule, values):
    for value in values:
        rule.check(value, "value")


@pytest.mark.parametrize(
    ("rule", "value", "error", "message"),
    [
        (SHARE, -0.1, ValueError, r"a number in \[0, 1\], got -0.1"),
        (Number(Real, 0, closed="neither"), 0, ValueError, "a number > 0, got 0"),
        (Number(Integral, 1, 6), 7, ValueError, "an integer from 1 to 6, got 7"),
        (Number(Real, 0), np.inf, ValueError, "a number >= 0, got inf. It must be finite."),
        (Number(Real, 0), 1e300, ValueError, r"got 1e\+300. It must be at most 1e\+30."),
        (SHARE, np.nan, TypeError, "got nan"),
        (SHARE, True, TypeError, "got True"),
        (SHARE, np.uint8(1), TypeError, "Give a number of Python's own, of at most 64 bits."),
        (
            Number(Integral, 1, others=("auto",)),
            "all",
            TypeError,
            "an integer >= 1, or 'auto', got",
        ),
        (COUNT_OR_SHARE, 0, ValueError, r"a number in \(0, 1\) or an integer >= 1, got 0"),
        (OneOf((1, 2)), torch.tensor(1), ValueError, r"one of \[1, 2\], got tensor"),
        (FilePath(optional=True), 1, TypeError, "the path of a file or None, got 1"),
        (Seed(), -1, ValueError, "got -1"),
        (Schedule(), (1, 3, 3), ValueError, r"first_epoch < last_epoch, got \(1, 3, 3\)"),
    ],
)
def test_other_values_are_named(rule, value, error, message):
    with pytest.raises(error, match=f"^value must be .*{message}"):
        rule.check(value, "value")


def test_a_schedule_is_linear_between_its_epochs():
    values = [value_at_epoch((3.0, 1, 5), epoch, end=1.0) for epoch in range(7)]
    assert values == [3.0, 3.0, 2.5, 2.0, 1.5, 1.0, 1.0]
    assert value_at_epoch(2, 100, start=0.0) == 2.0
