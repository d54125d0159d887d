# SPDX-License-Identifier: BSD-3-Clause
"""Chains reach the distributions that are known in closed form; settings and diagnostics hold."""

from __future__ import annotations

import copy
import io
import math
import pickle
from functools import partial

import numpy as np
import pytest
import torch

from skdistill.samplers import (
    SGHMC,
    SGLD,
    SGHMCOptimizer,
    SGLDOptimizer,
    effective_sample_size,
    kept_iterations,
    sghmc_step,
    sgld_step,
    split_r_hat,
)

N_ROWS = 7.0
FRICTION = 0.3


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def sgld(theta, gradient, n_steps, **settings):
    """The end of a chain whose potential has this gradient."""
    noise = torch.empty_like(theta)
    for _ in range(n_steps):
        sgld_step(theta, gradient(theta) / N_ROWS, noise, n_rows=N_ROWS, **settings)
    return theta


def sghmc(theta, gradient, n_steps, **settings):
    momentum, noise = torch.zeros_like(theta), torch.empty_like(theta)
    settings.update(n_rows=N_ROWS, friction=FRICTION)
    for _ in range(n_steps):
        sghmc_step(theta, gradient(theta) / N_ROWS, momentum, noise, **settings)
    return theta


# What a finite step adds: the covariance is T inv(A - lr A^2 / divisor).
CHAINS = {"sgld": (sgld, 4.0), "sghmc": (sghmc, 4.0 - 2.0 * FRICTION)}
OPTIMIZERS = {"sgld": SGLDOptimizer, "sghmc": partial(SGHMCOptimizer, friction=FRICTION)}
samplers = pytest.mark.parametrize("sampler", CHAINS)


# --- Distributions; every element (row) of theta is a chain of its own ------------------------


@samplers
@pytest.mark.parametrize("temperature", [1.0, 0.25])
@pytest.mark.parametrize("lr", [0.1, 0.8])
def test_variance_at_a_finite_step_is_that_of_the_linear_recursion(sampler, temperature, lr):
    chain, divisor = CHAINS[sampler]
    precision, mean = 1.25, -3.0
    theta = chain(
        torch.full((100_000,), mean, dtype=torch.float64),
        lambda theta: precision * (theta - mean),
        150,
        lr=lr,
        temperature=temperature,
        generator=generator(),
    )
    expected = temperature / (precision - lr * precision**2 / divisor)
    n = len(theta)
    assert theta.mean().item() == pytest.approx(mean, abs=4 * math.sqrt(expected / n))
    assert theta.var().item() == pytest.approx(expected, rel=4 * math.sqrt(2 / n))
    kurtosis = ((theta - mean) ** 4).mean() / theta.var() ** 2
    assert kurtosis.item() == pytest.approx(3.0, abs=4 * math.sqrt(24 / n))


@samplers
def test_posterior_of_a_weighted_mean_by_autograd(sampler):
    # y ~ N(theta, 2^2) with weights, theta ~ N(0, 1 / 0.5), as a training loop computes it:
    # samples' losses weighted to mean one, and the prior as weight decay tau / (2 N).
    y = torch.tensor([1.0, 4.0, -0.5, 3.0], dtype=torch.float64)
    weight = torch.tensor([3.0, 0.5, 1.5, 2.0], dtype=torch.float64)
    noise_variance, tau, n = 4.0, 0.5, weight.sum().item()
    precision = n / noise_variance + tau
    mean = (weight @ y).item() / noise_variance / precision

    theta = torch.zeros(40_000, 1, dtype=torch.float64, requires_grad=True)
    # A small step: lr * precision / 4 is 1 %.
    lr = 0.04 / precision
    optimizer = OPTIMIZERS[sampler]([theta], lr, n, generator=generator())
    for _ in range(250):
        losses = weight / weight.mean() * (y - theta).square() / (2 * noise_variance)
        optimizer.zero_grad()
        (losses.mean(-1).sum() + tau / (2 * n) * theta.square().sum()).backward()
        optimizer.step()
    std = precision**-0.5
    assert theta.mean().item() == pytest.approx(mean, abs=0.05 * std)
    assert theta.var().item() == pytest.approx(std**2, rel=0.05)


def test_gradients_of_minibatches_widen_the_chain_by_their_own_noise():
    # One of four samples a step: the gradient of U has variance V, the recursion's noise is
    # lr + lr^2 / 4 V.
    y = torch.tensor([1.0, 4.0, -0.5, 3.0], dtype=torch.float64)
    n, lr = len(y), 0.05
    rows = generator(1)

    def gradient(theta):
        return n * (theta - y[torch.randint(n, theta.shape, generator=rows)])

    theta = torch.full((100_000,), y.mean().item(), dtype=torch.float64)
    theta = sgld(theta, gradient, 60, lr=lr, generator=generator())
    variance = (n**2 * y.var(correction=0)).item()
    expected = (lr + lr**2 / 4 * variance) / (1 - (1 - lr * n / 2) ** 2)
    assert theta.var().item() == pytest.approx(expected, rel=0.02)


# --- Updates and optimizers -------------------------------------------------------------------


def test_one_step_by_hand():
    start, grad = torch.tensor([1.0, -2.0]), torch.tensor([0.5, 0.25])
    draws = torch.empty(2).normal_(generator=generator())
    settings = {"lr": 0.04, "n_rows": 10.0, "temperature": 0.25, "generator": generator()}
    theta = start.clone()
    sgld_step(theta, grad, torch.empty(2), **settings)
    torch.testing.assert_close(theta, start - 0.2 * grad + 0.1 * draws)

    theta, momentum = start.clone(), torch.tensor([0.3, 0.6])
    settings.update(friction=0.5, generator=generator())
    sghmc_step(theta, grad, momentum, torch.empty(2), **settings)
    torch.testing.assert_close(momentum, torch.tensor([0.15, 0.3]) - 0.4 * grad + 0.1 * draws)
    torch.testing.assert_close(theta, start + momentum)


def parameters():
    values = generator(5)
    return [torch.nn.Parameter(torch.randn(*s, generator=values)) for s in ((4, 5), (5,), (3, 1))]


def set_gradients(params):
    """Those of a quadratic, so that they depend on where the chain is."""
    for p in params[:-1]:  # the last one is frozen
        p.grad = p.detach() / 3


def run(optimizer, params, n_steps):
    for _ in range(n_steps):
        set_gradients(params)
        optimizer.step()
    return [p.detach().clone() for p in params]


@samplers
@pytest.mark.parametrize("how", ["state dict", "file", "pickle", "deepcopy"])
def test_a_chain_goes_on_from_its_state_bit_for_bit(sampler, how):
    params = parameters()
    optimizer = OPTIMIZERS[sampler](params, 0.01, N_ROWS, generator=generator())
    run(optimizer, params, 3)
    if how in ("state dict", "file"):
        resumed_params = copy.deepcopy(params)
        resumed = OPTIMIZERS[sampler](resumed_params, 1.0, 1.0, generator=generator(9))
        state = copy.deepcopy(optimizer.state_dict())
        if how == "file":
            file = io.BytesIO()
            torch.save(state, file)
            file.seek(0)
            state = torch.load(file, weights_only=True)
        resumed.load_state_dict(state)
    else:
        move = copy.deepcopy if how == "deepcopy" else lambda x: pickle.loads(pickle.dumps(x))
        resumed = move(optimizer)
        resumed_params = resumed.param_groups[0]["params"]
    after = run(resumed, resumed_params, 4)
    for p, q in zip(run(optimizer, params, 4), after, strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=0)


@samplers
def test_noise_comes_from_the_generator_given_or_the_global_one(sampler):
    def ends(**settings):
        params = parameters()
        return torch.cat([p.flatten() for p in run(make(params, **settings), params, 3)])

    make = partial(OPTIMIZERS[sampler], lr=0.01, n_rows=N_ROWS)
    before = torch.get_rng_state()
    own = ends(generator=generator())
    assert torch.equal(own, ends(generator=generator()))
    assert not torch.equal(own, ends(generator=generator(1)))
    assert torch.equal(torch.get_rng_state(), before)

    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert torch.equal(ends(), own)
    assert "generator" not in make(parameters()).state_dict()


# --- Settings ---------------------------------------------------------------------------------


@pytest.mark.parametrize("friction", [None, 0.3])
def test_step_sizes_that_are_found_leave_the_posterior_what_it_is(friction):
    # Independent Gaussians of several precisions; the noise of minibatches goes with their roots.
    n_rows, precision = 1000.0, torch.logspace(1, 3, 3)[:, None]
    theta = torch.zeros(3, 2000, requires_grad=True)
    inference = SGLD() if friction is None else SGHMC(friction=friction)
    inference.schedule = "constant"
    generator = torch.Generator().manual_seed(0)
    settings = inference.settings_at(0, 8) | {"n_rows": n_rows, "generator": generator}
    optimizer = inference.optimizer_class([theta], **settings)
    (group,) = optimizer.param_groups
    variances = []
    for step in range(2500):
        group["adapts"] = step < 300
        with torch.no_grad():
            theta.grad = precision * theta / n_rows
            if group["adapts"]:
                noise = torch.randn(3, 2000, generator=generator)
                theta.grad += 0.3 * (precision / n_rows).sqrt() * noise
        optimizer.step()
        if step >= 2000:
            variances.append(theta.detach().square().mean(1))
    scale = optimizer.state[theta]["scale"].mean(1)
    assert (scale[:-1] / scale[1:] > 2).all()
    scaled = torch.stack(variances).mean(0) * precision[:, 0]
    torch.testing.assert_close(scaled, torch.ones(3), rtol=0.1, atol=0)


def test_without_a_step_size_the_other_settings_suit_it():
    found = SGLD().resolved(20)
    assert (found.schedule, found.n_chains, found.prior_precision) == ("cyclical", 4, 1.0)
    assert [SGLD().resolved(n).n_chains for n in (1, 6, 7, 8)] == [1, 2, 1, 4]
    given = SGHMC(schedule="constant", n_chains=3, prior_precision=None).resolved(20)
    assert (given.schedule, given.n_chains, given.prior_precision) == ("constant", 3, None)
    plain = SGLD(1e-4).resolved(20)
    assert (plain.schedule, plain.n_chains, plain.prior_precision) == ("constant", 1, None)
    # Of four cycles of ten iterations, the first halves look for a step size, without noise.
    settings = [SGLD().settings_at(iteration, 40) for iteration in range(40)]
    assert [s["adapts"] for s in settings] == 4 * ([True] * 5 + [False] * 5)
    assert [s["temperature"] for s in settings] == 4 * ([0.0] * 5 + [1.0] * 5)
    assert {s["adapts"] for s in (SGLD(1e-4).settings_at(0, 9), SGHMC(1e-4).settings_at(8, 9))} == {
        None
    }


def test_step_sizes_by_hand():
    assert SGLD(0.5).settings_at(7, 10)["lr"] == 0.5
    # a (b + t)^-gamma from 1 to 1/4 in 4 steps with gamma = 1/2: b = 4/15, a = sqrt(b).
    inference = SGLD(1.0, schedule="polynomial", gamma=0.5, final_step_size=0.25)
    b = 4 / 15
    sizes = [inference.settings_at(t, 5)["lr"] for t in range(5)]
    np.testing.assert_allclose(sizes, [math.sqrt(b / (b + t)) for t in range(5)])
    assert sizes[-1] == pytest.approx(0.25)
    assert inference.settings_at(0, 1)["lr"] == 1.0
    default = SGLD(1.0, schedule="polynomial")
    assert default.settings_at(999, 1000)["lr"] == pytest.approx(0.01)
    # Two cycles of four iterations along half a cosine.
    inference = SGLD(2.0, schedule="cyclical", n_cycles=2)
    cycle = [2.0, 1 + math.sqrt(0.5), 1.0, 1 - math.sqrt(0.5)]
    np.testing.assert_allclose([inference.settings_at(t, 8)["lr"] for t in range(8)], 2 * cycle)


@pytest.mark.parametrize(
    ("params", "n_members", "expected"),
    [
        ({}, 1, [11]),
        ({}, 3, [7, 9, 11]),
        ({}, 4, [6, 8, 9, 11]),
        ({"n_chains": 3}, 9, [7, 9, 11]),
        ({"burn_in": 0}, 12, range(12)),
        ({"burn_in": 2}, 5, [3, 5, 7, 9, 11]),
        ({"burn_in": 2, "thinning": 2}, 5, [3, 5, 7, 9, 11]),
        ({"burn_in": 2, "thinning": 4}, 2, [5, 9]),
        ({"burn_in": 2, "thinning": 3}, 2, [7, 10]),
        ({"schedule": "cyclical", "n_cycles": 2}, 4, [3, 5, 9, 11]),
        ({"schedule": "cyclical", "n_cycles": 2, "thinning": 3}, 2, [5, 11]),
        ({"schedule": "cyclical", "n_cycles": 2, "burn_in": 5}, 2, [5, 11]),
    ],
)
def test_kept_iterations_by_hand(params, n_members, expected):
    kept = kept_iterations(SGLD(1.0, **params), 12, n_members)
    np.testing.assert_array_equal(kept, expected)


@pytest.mark.parametrize(
    ("params", "n_members", "message"),
    [
        ({"n_chains": 3}, 10, "n_members must be a multiple of inference__n_chains=3, got 10"),
        ({}, 7, "n_members=7 is too many: .* 12 iterations 6 are after .*burn_in=0.5.*max_epochs"),
        ({"burn_in": 12}, 1, "12 iterations 0 are after inference__burn_in=12"),
        ({"thinning": 3}, 3, "inference__thinning=3. Raise max_epochs"),
    ],
)
def test_runs_that_are_too_short_are_named(params, n_members, message):
    with pytest.raises(ValueError, match=message):
        kept_iterations(SGLD(1.0, **params), 12, n_members)


# --- Diagnostics ------------------------------------------------------------------------------


def autoregression(n_chains, n_draws, phi):
    """Chains with mean 0, variance 1 and autocorrelation phi^lag."""
    draws = np.random.RandomState(0).normal(size=(n_chains, n_draws))
    for t in range(1, n_draws):
        draws[:, t] = phi * draws[:, t - 1] + math.sqrt(1 - phi**2) * draws[:, t]
    return draws


@pytest.mark.parametrize(
    ("n_chains", "n_draws", "phi", "shift", "r_hat", "size"),
    [  # what arviz 0.23.4 says: rhat(method="split") and ess(method="mean")
        (4, 100, 0.7, 0.0, 1.0867469388813797, 33.178578180956414),
        (4, 101, -0.6, 0.0, 0.9930244390365436, 1040.823996531185),
        (2, 4, 0.0, 0.0, 0.8412136958158287, 7.224719895935548),
        (3, 7, 0.5, 0.0, 1.350699701588809, 22.594905091859506),
        (2, 50, 0.95, 0.0, 2.326825615740323, 2.7966499862531387),
        (4, 100, 0.3, 0.5, 1.104367125678416, 29.92093718811728),
    ],
)
def test_diagnostics_agree_with_arviz(n_chains, n_draws, phi, shift, r_hat, size):
    draws = autoregression(n_chains, n_draws, phi) + shift * np.arange(n_chains)[:, None]
    assert split_r_hat(draws) == pytest.approx(r_hat, rel=1e-10)
    assert effective_sample_size(draws) == pytest.approx(size, rel=1e-10)


def test_r_hat_by_hand():
    # Halves (0, 2), (2, 4), (0, 2), (6, 8): W = 2, means 1, 3, 1, 7 of variance 8, and so
    # var+ = 2 / 2 + 8.
    assert split_r_hat([[0, 2, 2, 4], [0, 2, 6, 8]]) == pytest.approx(math.sqrt(9 / 2))
    assert split_r_hat([[0, 2, 99, 2, 4], [0, 2, 99, 6, 8]]) == pytest.approx(math.sqrt(9 / 2))


def test_diagnostics_of_what_does_not_move_or_is_not_finite():
    draws = np.random.RandomState(0).normal(size=(2, 8, 3))
    draws[..., 1] = 0.5
    draws[0, 0, 2] = np.inf
    for diagnostic in (split_r_hat, effective_sample_size):
        with np.errstate(all="raise"):
            np.testing.assert_array_equal(np.isnan(diagnostic(draws)), [False, True, True])
    apart = np.repeat([[0.0], [1.0]], 8, axis=1)
    assert split_r_hat(apart) == np.inf
