# SPDX-License-Identifier: BSD-3-Clause
"""What holds for every maker of transfer sets, and what a user may give as ``transfer=``."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from skdistill.transfer import (
    GaussianNoise,
    Mixup,
    Munge,
    TransferMaker,
    make_transfer,
)

MAKERS = [GaussianNoise, Mixup, Munge]
N, D = 40, 5


def rows_of(dtype=torch.float64, n=N):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, D, generator=generator, dtype=torch.float64).to(dtype)


def drawn(maker, X, index, seed=0, weight=None):
    return maker.prepare(X, weight)(X[index], index, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(7,), (1, 7), (3, 2, 7), (0,)])
@pytest.mark.parametrize("maker", MAKERS)
def test_as_many_rows_of_the_same_kind(maker, shape, dtype):
    X = rows_of(dtype)
    index = torch.randint(N, shape)
    before = X.clone()
    new = drawn(maker(categorical=[0, (2, 3)]), X, index)
    assert new.shape == (*shape, D)
    assert new.dtype == dtype
    assert new.isfinite().all()
    assert torch.equal(X, before)


@pytest.mark.parametrize("maker", MAKERS)
def test_the_generator_says_what_is_drawn(maker):
    X, index = rows_of(), torch.arange(N)
    global_state = torch.random.get_rng_state()
    first, again, other = (drawn(maker(), X, index, seed) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert (first != other).any(1).float().mean() > 0.9
    assert torch.equal(torch.random.get_rng_state(), global_state)


@pytest.mark.parametrize(
    "categorical",
    [
        [1, (3, 4)],
        ((1,), np.array([3, 4])),
        [np.int64(1), (4, 3)],
    ],
)
@pytest.mark.parametrize("maker", MAKERS)
def test_categorical_values_are_among_those_seen(maker, categorical):
    X = rows_of(n=500)
    generator = torch.Generator().manual_seed(0)
    X[:, 1] = torch.randint(4, (500,), generator=generator).double()
    X[:, 3:] = torch.eye(2)[torch.randint(2, (500,), generator=generator)]  # one-hot
    new = drawn(maker(categorical=categorical), X, torch.arange(500))
    assert set(new[:, 1].tolist()) == {0.0, 1.0, 2.0, 3.0}
    assert {tuple(code) for code in new[:, 3:].tolist()} == {(0.0, 1.0), (1.0, 0.0)}
    assert not set(new[:, 0].tolist()) <= set(X[:, 0].tolist())
    changes = maker is not GaussianNoise
    assert (new[:, 1] != X[:, 1]).any() == changes
    assert (new[:, 3] != X[:, 3]).any() == changes


@pytest.mark.parametrize(
    "categorical",
    ["1", [5], [1, 1], [1, (1, 2)], [1.0], [True, False], ["a"]],
)
@pytest.mark.parametrize("maker", MAKERS)
def test_bad_columns_are_named(maker, categorical):
    with pytest.raises(ValueError, match=rf"^{maker.__name__}: categorical must be .* 0 to 4,"):
        maker(categorical=categorical).check((N, D))


@pytest.mark.parametrize(
    ("maker", "error", "message"),
    [
        (GaussianNoise(scale=-1), ValueError, "GaussianNoise: scale must be a number >= 0, got -1"),
        (GaussianNoise(share_power=-1), ValueError, "GaussianNoise: share_power"),
        (Mixup(alpha=0), ValueError, "Mixup: alpha must be a number > 0, got 0"),
        (Munge(swap_probability=1.5), ValueError, r"Munge: swap_probability .* \[0, 1\], got 1.5"),
    ],
)
def test_bad_settings_are_named(maker, error, message):
    with pytest.raises(error, match=message):
        maker.check((N, D))
    with pytest.raises(error, match=message):
        maker.prepare(rows_of())


# --- transfer= ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "maker"),
    list(zip(["noise", "mixup", "munge"], MAKERS, strict=True)),
)
def test_names_of_makers(name, maker):
    made = make_transfer(name)
    assert type(made) is maker
    assert repr(made) == f"{maker.__name__}()"
    assert isinstance(made, TransferMaker)
