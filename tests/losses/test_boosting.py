# SPDX-License-Identifier: BSD-3-Clause
"""The game of B-DISTIL: its state, its bounds, its barrier."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from skdistill.losses import (
    DistillationGame,
    bounded_outputs,
    gradient_of_raw,
    log_barrier,
)

N, L, T = 40, 3, 7


def draws(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def literal_update(K_plus, K_minus, error, eta):
    """Eqs 4 and 5, one row and column after the other, and the normalisation."""
    K_plus, K_minus = K_plus.clone(), K_minus.clone()
    for j in range(error.shape[1]):
        for i in range(len(error)):
            K_plus[i, j] *= math.exp(-eta[j] * error[i, j])
            K_minus[i, j] *= math.exp(eta[j] * error[i, j])
        total = K_plus[:, j].sum() + K_minus[:, j].sum()
        K_plus[:, j] /= total
        K_minus[:, j] /= total
    return K_plus, K_minus


def test_the_softmax_is_the_multiplicative_update():
    target = draws(N, L)
    game = DistillationGame(target, T)
    assert_close(game.eta, math.sqrt(math.log(2 * N) / T) / game.scale)  # Theorem 1
    K_plus = K_minus = torch.full((N, L), 1 / (2 * N), dtype=torch.float64)
    for t in range(4):
        for found, expected in zip(game.probabilities(), (K_plus, K_minus), strict=True):
            assert_close(found, expected)
        outputs = draws(N, L, seed=t + 1)
        K_plus, K_minus = literal_update(K_plus, K_minus, outputs - target, game.eta)
        game.add(outputs)


def test_columns_of_the_probabilities_sum_to_one_also_where_errors_are_huge():
    game = DistillationGame(draws(N, L), T, eta=1.0)
    game.add(1e4 * draws(N, L, seed=1))
    K_plus, K_minus = game.probabilities()
    assert_close((K_plus + K_minus).sum(0), torch.ones(L, dtype=torch.float64))
    assert torch.isfinite(K_plus).all()


def test_the_first_learner_is_accepted_and_errs_as_it_likes():
    game = DistillationGame(draws(N, L), T)
    outputs = draws(N, L, seed=1)
    assert_close(game.edges(outputs), torch.zeros(L, dtype=torch.float64))
    assert game.is_weak_learner(outputs)
    assert not game.wanted().any()


def test_edges_and_what_is_wanted_in_numbers():
    # One learner, one too high at the first sample and one too low at the second: S = (1, -1).
    game = DistillationGame(torch.tensor([[1.0], [-1.0]]), T, eta=0.5)
    game.add(torch.tensor([[2.0], [-2.0]]))
    low, high = math.exp(-0.5), math.exp(0.5)
    difference = (high - low) / (2 * (low + high))  # of K_plus and K_minus at the second sample
    assert game.wanted().tolist() == [[-1], [1]]
    # The next errs by -1 at the first sample, by +3 at the second.
    edges = game.edges(torch.tensor([[0.0], [2.0]]))
    assert edges.item() == pytest.approx(difference * (1 + 3))
    assert game.is_weak_learner(torch.tensor([[0.0], [2.0]]))
    assert not game.is_weak_learner(torch.tensor([[2.0], [-2.0]]))


def test_weight_of_a_learner_in_numbers():
    # The mean is 2 too high; so that 1 / 2 of a learner that errs by e leaves |2 + e| / 2.
    game = DistillationGame(torch.tensor([[1.0], [-1.0]]), T)
    missed = torch.tensor([[2.0], [2.0]])
    game.add(game.target + missed)
    assert game.distance() == pytest.approx(2)
    assert game.weight_of(game.target - 1.0) == 1  # leaves 0.5
    assert game.weight_of(game.target - 6.0) == pytest.approx(1 / 3)  # 3/4 * 2 = 1/4 * 6
    assert game.weight_of(game.target + 2.5) == 0
    assert game.weight_of(game.target + missed) == 0  # says what has been said
    game.add(game.target - 6.0, 1 / 3)
    assert game.distance() == pytest.approx(0, abs=1e-6)
    assert game.total == pytest.approx(4 / 3)


@pytest.mark.parametrize("seed", range(5))
def test_the_mean_comes_nearer_with_the_weight_that_is_found(seed):
    target, weight = draws(N, L, seed=seed), draws(N, seed=50 + seed).abs()
    game = DistillationGame(target, T, weight=weight, n_played=2)
    learners, weights = [draws(N, L, seed=100 * seed + 40)], [1.0]
    game.add(learners[0])
    for t in range(1, 2 * T):
        overshoots = target - 4 * t * game.errors / game.total
        learners.append(overshoots if t % 2 else 3 * draws(N, L, seed=100 * seed + t))
        weights.append(game.weight_of(learners[-1]))
        before = game.distance()
        game.add(learners[-1], weights[-1])
        assert game.distance() <= before
        assert 0 <= weights[-1] <= 1
    assert 0 < min(w for w in weights if w) < 1
    mean = sum(w * f for w, f in zip(weights, learners, strict=True)) / sum(weights)
    square = (weight.unsqueeze(1) * (mean - target)[:, :2].square()).sum() / weight.sum() / 2
    assert game.distance() == pytest.approx(square.sqrt().item())


def test_pointwise_bound_where_eq_7_holds():
    """Learners that err by up to G against the sum of the errors: at most G / T off."""
    for seed in range(20):
        target = draws(N, L, seed=seed)
        game = DistillationGame(target, T)
        signs = draws(N, L, seed=100 + seed).sign()
        for t in range(T):
            size = draws(N, L, seed=1000 * seed + t).abs().clamp(max=1) * game.scale
            signs = game.wanted().sign() if t else signs
            outputs = target + signs * size
            assert game.is_weak_learner(outputs)
            game.add(outputs)
            assert (game.errors.abs() <= game.scale + 1e-9).all()
        missed = (game.errors / T).abs().amax(0)
        assert (missed <= game.scale / T + 1e-9).all()


@pytest.mark.parametrize("n_rounds", [10, 100])
def test_bound_of_the_average_where_definition_1_holds(n_rounds):
    """Learners that wrong the sample which is worst off, and the others just little enough.

    Theorem 1 with the constant that Hoeffding's lemma gives, 1.5 instead of 1, for its eta.
    """
    target = draws(N, 1)
    game = DistillationGame(target, n_rounds)
    game.add(target + game.scale * torch.linspace(0.5, 1.0, N).unsqueeze(1))
    for _ in range(n_rounds - 1):
        K_plus, K_minus = game.probabilities()
        difference, worst = K_plus - K_minus, game.errors.abs().argmax()
        others = difference.abs().sum() - difference[worst].abs()
        share = (1.001 * difference[worst].abs() / others).clamp(max=1)  # by which the others gain
        error = share * game.wanted().sign()
        error[worst] = -game.wanted().sign()[worst]
        if not game.is_weak_learner(target + game.scale * error):
            error = game.wanted().sign()
        assert game.is_weak_learner(target + game.scale * error)
        game.add(target + game.scale * error)
    missed = (game.errors / n_rounds).abs().amax()
    bound = 1.5 * game.scale * math.sqrt(math.log(2 * N) / n_rounds)  # Eq 10
    assert 0.1 * bound < missed <= bound  # the adversary is not idle


def test_bound_of_the_excess_risk():
    """Theorem 2 for linear learners, whose mean is a half-space: the VC dimension is that of X."""
    n, n_features, margin, delta = 3000, 3, 0.4, 0.05
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(2 * n, n_features, dtype=torch.float64, generator=generator) - 0.5
    X[:, 0] = X[:, 0].sign() * (0.35 + 1.3 * X[:, 0].abs())
    g = X[:, :1]
    is_right = torch.rand(2 * n, 1, generator=generator) > 0.1
    label = torch.where(is_right, g.sign(), -g.sign())
    scale = DistillationGame(g[:n], 1).scale.item()
    n_rounds = math.ceil(4 * scale**2 * math.log(2 * n) / margin**2)
    game, F = DistillationGame(g[:n], n_rounds), torch.zeros(2 * n, 1, dtype=torch.float64)
    for t in range(n_rounds):
        K_plus, K_minus = game.probabilities()
        along = X @ (X[:n].T @ (K_plus - K_minus)) if t else X[:, 1:2]
        outputs = game.bound * along / along.abs().max()  # of a large edge, and far from g
        assert game.is_weak_learner(outputs[:n])
        game.add(outputs[:n])
        F += outputs / n_rounds
    of_F, of_g = ((values.sign() != label).double() for values in (F, g))
    of_margin = (g[:n].abs() < margin).double().mean()
    assert of_F[:n].mean() <= of_g[:n].mean() + of_margin
    complexity = n_features * math.log(2 * math.e * n / n_features) + math.log(4 / delta)
    bound = of_g[:n].mean() + of_margin + math.sqrt(8 * complexity / n)
    assert of_F[n:].mean() <= bound < 0.5


def test_what_is_wanted_is_what_definition_1_weighs_errors_by():
    target, outputs = draws(N, L), draws(N, L, seed=1)
    weight = torch.tensor([0.0, 1.0, 2.0, 1.0] * (N // 4), dtype=torch.float64)
    game = DistillationGame(target, T, weight=weight)
    game.add(target + 3 * outputs)
    wanted = game.wanted()
    assert_close((weight[:, None] * wanted.abs()).sum(0) / weight.sum(), torch.ones(L).double())
    new = target + draws(N, L, seed=2)
    along = (weight[:, None] * wanted * (new - target)).sum(0)
    ratio = game.edges(new) / along
    K_plus, K_minus = game.probabilities()
    assert_close(ratio, (K_plus - K_minus).abs().sum(0) / weight.sum())
    assert (wanted.sign() == -outputs.sign())[weight > 0].all()
    assert_close(game.wanted(signs_only=True), wanted.sign())  # Eq 6


def test_barrier_weighs_its_terms():
    error, bound = 0.9 * torch.tanh(draws(N, L)), torch.ones(L, dtype=torch.float64)
    wanted = draws(N, L, seed=1)
    expected = -(wanted.abs() * torch.log(1 + wanted.sign() * error / 2)).mean(-1)
    assert_close(log_barrier(error, wanted, bound), expected)
    leaf = error.clone().requires_grad_()
    (slope,) = torch.autograd.grad(
        -(wanted.abs() * torch.log(1 + wanted.sign() * leaf / 2)).mean(-1).sum(), leaf
    )
    assert_close(log_barrier.and_gradient(error, wanted, bound)[1], slope)


def test_barrier_is_that_of_eq_6():
    error, bound = 0.9 * torch.tanh(draws(N, L)), torch.ones(L, dtype=torch.float64)
    is_plus = draws(N, L, seed=1) > 0
    ratio = error / (2 * bound)
    literal = is_plus * torch.log(1 + ratio) + ~is_plus * torch.log(1 - ratio)
    signs = is_plus.double() * 2 - 1
    assert_close(log_barrier(error, signs, bound), -literal.mean(-1))


def test_gradients():
    target, signs = draws(N, L), draws(N, L, seed=1).sign()
    game = DistillationGame(target, T)
    for centred in (False, True):
        raw = (3 * draws(N, L, seed=2)).requires_grad_()
        outputs = bounded_outputs(raw, game.loc, game.bound, centred)
        assert ((outputs - game.loc).abs() <= game.bound).all()
        barrier = -torch.log(1 + signs * (outputs - target) / (2 * game.bound)).mean(-1)  # Eq 6
        (expected,) = torch.autograd.grad(barrier.sum(), raw)
        loss, gradient = log_barrier.and_gradient(outputs.detach() - target, signs, game.bound)
        found = gradient_of_raw(gradient, outputs.detach(), game.loc, game.bound, centred)
        assert_close(loss, barrier.detach())
        assert_close(found, expected)


def test_constant_columns_are_said_exactly_and_pull_nowhere():
    target = torch.cat([draws(N, 1), torch.full((N, 1), 0.3, dtype=torch.float64)], 1)
    game = DistillationGame(target, T)
    raw = 5 * draws(N, 2, seed=1)
    outputs = bounded_outputs(raw, game.loc, game.bound, centred=False)
    assert_close(outputs[:, 1], target[:, 1])
    game.add(outputs)
    assert game.wanted()[:, 1].eq(0).all()
    gradient = gradient_of_raw(torch.ones(N, 2), outputs, game.loc, game.bound, centred=False)
    assert gradient[:, 1].eq(0).all()
    assert torch.isfinite(gradient).all()
