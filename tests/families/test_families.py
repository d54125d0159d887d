# SPDX-License-Identifier: BSD-3-Clause
"""What every family of the library keeps to, and a family of classes of one's own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from sklearn.base import clone

from skdistill import (
    families,
)
from skdistill.distributions import (
    ClassDistribution,
    Gaussian,
    NumericDistribution,
)
from skdistill.families import known_families, make_family

M, N = 4, 5
TASKS = {
    "regressor": SimpleNamespace(kind="regressor", size=2),
    "classifier": SimpleNamespace(kind="classifier", size=3),
}
EVERY = [(kind, name) for kind in TASKS for name in known_families(kind)]
every_family = pytest.mark.parametrize(("kind", "name"), EVERY)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def members_of(kind):
    """Predictions of M members, with samples of any size before them."""
    size = TASKS[kind].size
    if kind == "classifier":
        return randn(1, M, N, size).log_softmax(-1)
    return Gaussian(randn(1, M, N, size), randn(1, M, N, size, seed=1).exp())


def learner(kind, name):
    """The family for a task, which knows the members, as it is in training."""
    family, weight = make_family(name, kind).for_task(TASKS[kind]), torch.ones(N).double()
    members = members_of(kind)
    one = members[0] if kind == "classifier" else Gaussian(*(part[0] for part in members))
    return family.informed(one, weight), members


def given_to(family, kind):
    found = family.given(0, TASKS[kind].size)
    return None if found is None else torch.tensor(found, dtype=torch.float64)


def outputs_for(family, kind, seed=2):
    """Outputs (1, n, p), of random heads (1, M, n, p)."""
    heads = (M,) if hasattr(family, "dropout_rate") else ()
    return 0.5 * randn(1, *heads, N, family.n_outputs(TASKS[kind].size), seed=seed)


@every_family
def test_outputs_are_a_distribution_of_the_task(kind, name):
    family, _ = learner(kind, name)
    outputs = outputs_for(family, kind).flatten(0, -3)
    found = family.distribution(outputs)
    assert isinstance(found, NumericDistribution if kind == "regressor" else ClassDistribution)
    assert found.mean.shape == (N, TASKS[kind].size)
    assert hasattr(found, "members") is family.has_members
    if kind == "regressor":
        torch.testing.assert_close(family.mean(outputs, TASKS[kind].size), found.mean)
    if family.tells_parts:
        total, aleatoric, epistemic = found.uncertainty()
        torch.testing.assert_close(total, aleatoric + epistemic)


@every_family
def test_the_gradient_is_that_of_differences(kind, name):
    family, members = learner(kind, name)
    outputs, temperature = outputs_for(family, kind), torch.ones(()).double()
    extra = {"temperature": temperature, "given": given_to(family, kind)}
    loss, gradient = family.loss_and_gradient(outputs, members, **extra)
    assert loss.shape == (1, N)
    assert gradient.shape == outputs.shape
    step = 1e-5 * randn(*outputs.shape, seed=3)
    above, below = (
        family.loss_and_gradient(outputs + s, members, **extra)[0] for s in (step, -step)
    )
    torch.testing.assert_close(
        (above - below).sum() / 2, (gradient * step).sum(), rtol=1e-4, atol=1e-9
    )


@every_family
def test_training_begins_better_than_at_chance(kind, name):
    family, members = learner(kind, name)
    one = members[0] if kind == "classifier" else Gaussian(*(part[0] for part in members))
    start = family.initial_outputs(one, torch.ones(N).double())
    if start is None:
        return
    extra = {"temperature": torch.ones(()).double(), "given": given_to(family, kind)}
    at_start, at_zero = (
        family.loss_and_gradient(z.expand(1, N, -1), members, **extra)[0].sum()
        for z in (start, torch.zeros_like(start))
    )
    assert at_start < at_zero


@every_family
def test_a_family_is_copied_and_named(kind, name):
    family = make_family(name, kind)
    assert type(family).__name__ in families.__all__
    assert repr(clone(family)) == repr(family) == f"{type(family).__name__}()"
    assert make_family(family, kind) is family


def test_the_names_are_told_apart_from_those_of_distributions():
    from skdistill import distributions

    assert not set(families.__all__) & set(distributions.__all__)
