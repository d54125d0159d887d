# SPDX-License-Identifier: BSD-3-Clause
"""Estimates of expectations: U_o is the mean of what a sample has met, U_s the last of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from skdistill.distillers._gped import ExpectationObjective, ExpectationsPlan
from skdistill.distillers._gped_chains import RunningMean, Targets
from skdistill.expectations import KNOWN
from skdistill.losses import cross_entropy

CPU = torch.device("cpu")
EXPECTATIONS = [KNOWN["classifier"][name] for name in ("predictive", "entropy")]


def plan_of(expectations, n_values, estimates=None, replays=False):
    """A plan of expectations, whose outputs are one each but for the probabilities of classes."""
    n_outputs = [3 if expectation.label == "predictive" else 1 for expectation in expectations]
    ends = np.cumsum([0, *n_outputs]).tolist()
    columns = tuple(slice(*ends[i : i + 2]) for i in range(len(n_outputs)))
    estimates = estimates or ["online"] * len(n_outputs)
    return ExpectationsPlan(None, expectations, estimates, n_values, columns, replays)


def drawn_probs(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).softmax(-1)


@pytest.fixture(params=["memory", "file"])
def running(request):
    return RunningMean(5, 2, CPU, limit=1e6 if request.param == "memory" else 39)


def test_the_running_mean_is_the_arithmetic_mean_of_each_rows_own_visits(running):
    values = np.random.RandomState(0).rand(40, 3, 2)
    met: list[list] = [[] for _ in range(5)]
    for i, value in enumerate(values):
        index = np.random.RandomState(i).permutation(5)[:3]
        means = running.update(torch.tensor(index), torch.tensor(value))
        for row, one in zip(index, value, strict=True):
            met[row].append(one)
        expected = [np.mean(met[row], axis=0) for row in index]
        np.testing.assert_allclose(means, expected, rtol=1e-6)
    np.testing.assert_allclose(running.means(), [np.mean(m, axis=0) for m in met], rtol=1e-6)


def test_rows_that_nobody_visited_have_no_mean(running):
    running.update(torch.tensor([1]), torch.ones(1, 2))
    assert running.means()[1].tolist() == [1, 1]
    assert running.means()[0].isnan().all()


def test_a_running_mean_goes_on_from_its_state(running):
    running.update(torch.tensor([0, 1]), torch.ones(2, 2))
    other = RunningMean(5, 2, CPU, limit=1e6)
    other.load_state({name: value.clone() for name, value in running.state().items()})
    values = torch.full((2, 2), 3.0)
    assert other.update(torch.tensor([1, 2]), values)[0].tolist() == [2, 2]


@pytest.mark.parametrize("n_samples", [1, 3])
@pytest.mark.parametrize("offset", [0.0, 300.0])
def test_variances_are_those_of_all_samples_wherever_their_mean_is(offset, n_samples):
    # In float32, where E[mu^2] - E[mu]^2 would be rounded to multiples of .008 at 300.
    columns = slice(0, 1), slice(2, 3)
    running = RunningMean(4, 3, CPU, 1e6, variances=[columns], several=[columns[1]])
    rng = np.random.RandomState(0)
    met: list[list] = [[] for _ in range(4)]
    for _ in range(50):
        index = rng.permutation(4)[:3]
        values = offset + 0.05 * rng.randn(n_samples, 3).astype("f4")
        added = np.stack([values.mean(0), values.mean(0), values.var(0)], axis=1)
        means = running.update(torch.tensor(index), torch.tensor(added), n_samples)
        for row, one in zip(index, values.T, strict=True):
            met[row].extend(one)
        expected = [np.var(met[row]) if len(met[row]) > 1 else np.nan for row in index]
        np.testing.assert_allclose(means[:, 2], expected, rtol=2e-3)
    np.testing.assert_allclose(running.means()[:, 2], [np.var(m) for m in met], rtol=2e-3)
    np.testing.assert_allclose(running.means()[:, 1], [np.mean(m) for m in met], rtol=1e-6)


NUMBERS = [KNOWN["regressor"][name] for name in ("mean", "aleatoric", "epistemic")]


SHARE = [KNOWN["classifier"][name] for name in ("predictive", "share")]


@pytest.mark.parametrize("predictive", ["online", "stochastic"])
def test_one_sample_tells_no_share_of_the_entropy_and_two_do(predictive):
    index = torch.tensor([2, 0])
    visits = [drawn_probs(1, 2, 3, seed=seed).float() for seed in range(2)]
    teaching = Targets(plan_of(SHARE, [3, 4], [predictive, "online"]), 4, CPU, limit=1e6)
    first, second = (teaching.update(visit, index) for visit in visits)
    assert first[:, 3].isnan().all()
    assert first[:, :3].isfinite().all()
    probs = torch.cat(visits)
    total, expected = (torch.special.entr(p).sum(-1) for p in (probs.mean(0), probs))
    torch.testing.assert_close(second[:, 3], 1 - expected.mean(0) / total)
    objective = ExpectationObjective(plan_of(SHARE, [3, 4]))
    loss, gradient = objective.loss_and_gradient(torch.zeros(2, 4), (first,))
    assert loss.isfinite().all()
    assert gradient[:, 3].tolist() == [0, 0]


def test_what_is_not_known_yet_is_not_learnt():
    objective = ExpectationObjective(plan_of(NUMBERS, [1, 1, 2]))
    outputs, target = torch.randn(1, 3, 3), torch.rand(1, 3, 3)
    target[0, 1, 2] = torch.nan
    loss, gradient = objective.loss_and_gradient(outputs, (target,))
    without = ExpectationObjective(plan_of(NUMBERS[:2], [1, 1]))
    expected, _ = without.loss_and_gradient(outputs[..., :2], (target,))
    torch.testing.assert_close(loss[0, 1], expected[0, 1])
    assert (loss[0, [0, 2]] > expected[0, [0, 2]]).all()
    assert gradient[0, :, 2].ne(0).tolist() == [True, False, True]
    # A network that has diverged is seen all the same.
    outputs[0, 0, 2] = torch.nan
    assert objective.loss_and_gradient(outputs, (target,))[0][0, 0].isnan()


def targets(*estimates):
    return Targets(plan_of(EXPECTATIONS, [3, 1], estimates), 4, CPU, limit=1e6)


def test_online_and_stochastic_estimates():
    index = torch.tensor([2, 0])
    visits = [drawn_probs(1, 2, 3, seed=seed) for seed in range(3)]
    entropies = [torch.special.entr(p).sum(-1, keepdim=True) for p in visits]
    last, mean = torch.cat((visits[-1], entropies[-1]), -1)[0], 0
    mean = torch.cat((torch.cat(visits), torch.cat(entropies)), -1).mean(0)
    for estimates, expected in (
        (("online", "online"), mean),
        (("stochastic", "stochastic"), last),
        (("stochastic", "online"), torch.cat((last[:, :3], mean[:, 3:]), -1)),
        (("online", "stochastic"), torch.cat((mean[:, :3], last[:, 3:]), -1)),
    ):
        teaching = targets(*estimates)
        for probs in visits:
            found = teaching.update(probs, index)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


def test_several_chains_are_averaged():
    members = drawn_probs(4, 2, 3)
    for estimate in ("online", "stochastic"):
        found = targets(estimate, estimate).update(members, torch.tensor([0, 1]))
        torch.testing.assert_close(found[:, :3], members.mean(0), rtol=1e-6, atol=1e-7)


@pytest.fixture
def outputs():
    generator = torch.Generator().manual_seed(3)
    return torch.randn(1, 6, 4, generator=generator, dtype=torch.float64)


def test_the_objective_is_the_sum_of_the_losses(outputs):
    objective = ExpectationObjective(plan_of(EXPECTATIONS, [3, 1]))
    target = drawn_probs(1, 6, 4, seed=4)
    loss, gradient = objective.loss_and_gradient(outputs, (target,))
    value = torch.nn.functional.softplus(outputs[..., 3])
    expected = cross_entropy(outputs[..., :3], target[..., :3]) + (value - target[..., 3]).abs()
    torch.testing.assert_close(loss, expected)
    inputs = outputs.clone().requires_grad_()
    through_autograd = objective(inputs, (target,))
    torch.testing.assert_close(through_autograd.detach(), expected)
    torch.testing.assert_close(torch.autograd.grad(through_autograd.sum(), inputs)[0], gradient)


def test_the_gradient_at_the_mean_is_the_mean_gradient_for_the_predictive_only(outputs):
    # One step of Bayesian Dark Knowledge learns from one sample: on average, from their mean. The
    # absolute error of the entropy does not commute so.
    members = drawn_probs(50, 6, 3)
    values = torch.cat([e.of_members(members) for e in EXPECTATIONS], -1)
    objective = ExpectationObjective(plan_of(EXPECTATIONS, [3, 1]))
    singles = [objective.loss_and_gradient(outputs, (v.unsqueeze(0),))[1] for v in values]
    mean = torch.stack(singles).mean(0)
    _, at_mean = objective.loss_and_gradient(outputs, (values.mean(0, keepdim=True),))
    torch.testing.assert_close(mean[..., :3], at_mean[..., :3])
    assert (mean[..., 3] - at_mean[..., 3]).abs().max() > 0.1


def test_replayed_members(outputs):
    members = drawn_probs(5, 6, 3)
    values = torch.cat([e.of_members(members) for e in EXPECTATIONS], -1)  # (5, 6, 4)
    stored = (values.transpose(0, 1).unsqueeze(0),)
    replay = ExpectationObjective(plan_of(EXPECTATIONS, [3, 1], ["stochastic", "online"], True))
    seen = torch.stack([replay.begin_epoch(i) or replay.of_members(stored[0])[0] for i in range(5)])
    torch.testing.assert_close(seen[..., 3], values.mean(0)[:, 3].expand(5, 6))
    # Every sample meets every member once in five epochs.
    for row in range(6):
        found = {tuple(one) for one in seen[:, row, :3].tolist()}
        assert found == {tuple(one) for one in members[:, row].tolist()}
    online = ExpectationObjective(plan_of(EXPECTATIONS, [3, 1], replays=True))
    torch.testing.assert_close(online.of_members(stored[0])[0], values.mean(0))
