# SPDX-License-Identifier: BSD-3-Clause
"""The empirical distribution over class probabilities, against scipy and numbers by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from skdistill.distributions import EmpiricalCategorical


def ensemble(n_members=5, n_rows=7, n_classes=4, *, scale=2.0, dtype=torch.float64, seed=0):
    """Members with logits of standard deviation `scale`."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n_members, n_rows, n_classes, generator=generator, dtype=torch.float64)
    return EmpiricalCategorical.from_logits((scale * logits).to(dtype))


def near_identical(n_rows, spread, *, n_members=20, n_classes=10, seed=0):
    """Members in float32 whose logits differ by `spread`."""
    generator = torch.Generator().manual_seed(seed)
    centre = 2 * torch.randn(1, n_rows, n_classes, generator=generator)
    noise = torch.randn(n_members, n_rows, n_classes, generator=generator)
    return EmpiricalCategorical.from_logits(centre + spread * noise)


def one_row(members):
    """Members (S, K) of one sample."""
    return EmpiricalCategorical.from_members(np.array(members, dtype=float)[None])


def probabilities(distribution):
    return distribution.log_probs.double().exp().numpy()


def scipy_parts(p):
    """Total, aleatoric and epistemic part of members p (S, n, K), each by scipy's own route."""
    mean = p.mean(0)
    divergences = stats.entropy(p, np.broadcast_to(mean, p.shape), axis=-1)
    return stats.entropy(mean, axis=-1), stats.entropy(p, axis=-1).mean(0), divergences.mean(0)


# construction


@pytest.mark.parametrize("n_classes", [2, 3, 15, 16, 17, 100])
def test_from_logits_is_the_softmax(n_classes):
    logits = torch.randn(3, 4, n_classes, generator=torch.Generator().manual_seed(0))
    distribution = EmpiricalCategorical.from_logits(logits)
    torch.testing.assert_close(distribution.log_probs, torch.log_softmax(logits, -1))
    assert distribution.members.shape == (4, 3, n_classes)


def test_members_come_rows_first_and_round_trip():
    distribution = ensemble(n_members=3, n_rows=6, n_classes=4)
    members = distribution.members
    assert members.shape == (6, 3, 4)
    assert torch.equal(members[5, 2], distribution.log_probs[2, 5].exp())
    for form in (members, members.numpy(), members.tolist()):
        again = EmpiricalCategorical.from_members(form)
        torch.testing.assert_close(again.log_probs, distribution.log_probs, rtol=1e-14, atol=1e-15)


def test_from_members_divides_out_what_sums_miss_of_one_by_rounding():
    members = np.array([[[1 + 2e-7, 0.0], [0.3, 0.7 - 1e-7]]], dtype=np.float32)
    distribution = EmpiricalCategorical.from_members(members)
    sums = distribution.members.double().sum(-1)
    np.testing.assert_allclose(sums, 1, atol=6e-8)
    assert (distribution.log_probs <= 0).all()  # hence no entropy is negative


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4, 2), (4,)])
def test_members_of_other_shapes_are_rejected(shape):
    found = rf"; got \({', '.join(map(str, shape))},?\)"
    with pytest.raises(ValueError, match=r"members must have shape \(n, S, K\).*" + found):
        EmpiricalCategorical.from_members(np.ones(shape) / shape[-1])
    with pytest.raises(ValueError, match=r"log_probs must have shape \(S, n, K\)" + found):
        EmpiricalCategorical(torch.zeros(shape))
    with pytest.raises(ValueError, match=r"logits must have shape \(S, n, K\)" + found):
        EmpiricalCategorical.from_logits(torch.zeros(shape))


@pytest.mark.parametrize(
    "row", [[0.5, 0.6], [0.2, 0.2], [-0.1, 1.1], [math.nan, 1.0], [math.inf, 0.0], [0.0, 0.0]]
)
def test_members_that_are_no_probabilities_are_rejected(row):
    members = np.array([[[0.5, 0.5], row]])
    with pytest.raises(ValueError, match=r"members must be probabilities.*got values from"):
        EmpiricalCategorical.from_members(members)


# mean and uncertainty


def test_uncertainty_by_hand():
    # H(1/2) = ln 2, H(1/4, 3/4) = 2 ln 2 - 3/4 ln 3, and the mean is (3/8, 5/8).
    distribution = one_row([[0.5, 0.5], [0.25, 0.75]])
    total, aleatoric, epistemic = (part.item() for part in distribution.uncertainty())
    assert distribution.uncertainty().measure == "entropy"
    mean_entropy = 1.5 * math.log(2) - 0.375 * math.log(3)
    entropy = 3 * math.log(2) - 0.375 * math.log(3) - 0.625 * math.log(5)
    assert aleatoric == pytest.approx(mean_entropy, rel=1e-14)
    assert total == pytest.approx(entropy, rel=1e-14)
    assert epistemic == pytest.approx(entropy - mean_entropy, rel=1e-13)


@pytest.mark.parametrize("n_classes", [2, 5, 100])
@pytest.mark.parametrize("scale", [1e-2, 1.0, 30.0])
def test_uncertainty_agrees_with_scipy(scale, n_classes):
    distribution = ensemble(6, 9, n_classes, scale=scale)
    for part, expected in zip(
        distribution.uncertainty(), scipy_parts(probabilities(distribution)), strict=True
    ):
        np.testing.assert_allclose(part, expected, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parts_add_up_exactly_and_their_sum_is_the_entropy_of_the_mean(dtype):
    distribution = ensemble(20, 500, 10, dtype=dtype)
    total, aleatoric, epistemic = distribution.uncertainty()
    assert torch.equal(total, aleatoric + epistemic)
    assert total.shape == (500,)
    assert total.dtype == dtype
    entropy = stats.entropy(distribution.mean.double(), axis=-1)
    np.testing.assert_allclose(total, entropy, rtol=20 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("spread", [1e-4, 1e-2, 1.0, 10.0])
def test_epistemic_part_keeps_relative_accuracy_in_float32(spread):
    distribution = near_identical(2_000, spread)
    log_probs = distribution.log_probs.double()
    log_mean = log_probs.logsumexp(0) - math.log(20)
    expected = (log_probs.exp() * (log_probs - log_mean)).sum(-1).mean(0)
    np.testing.assert_allclose(distribution.uncertainty().epistemic, expected, rtol=1e-5)


def test_epistemic_part_of_nearly_equal_members_is_half_their_variance():
    """MI -> 1/2 sum_k p_k Var(log p_k): 1/2 (1/2 + 1/2) e^2 for p = (1 -+ e) / 2."""
    for epsilon in (1e-3, 1e-7, 1e-12):
        p = torch.tensor([[0.5 - epsilon / 2, 0.5 + epsilon / 2]], dtype=torch.float64)
        members = EmpiricalCategorical.from_members(torch.stack([p, p.flip(-1)], dim=1))
        size = members.log_probs.exp()[0, 0].diff().item()  # epsilon as rounded
        epistemic = members.uncertainty().epistemic.item()
        assert epistemic == pytest.approx(size**2 / 2, rel=max(epsilon, 1e-15 / epsilon))


@pytest.mark.parametrize("n_members", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_epistemic_part_of_equal_members_is_exactly_zero(n_members, dtype):
    logits = torch.randn(1, 500, 6, generator=torch.Generator().manual_seed(0), dtype=dtype)
    distribution = EmpiricalCategorical.from_logits(logits.repeat(n_members, 1, 1))
    total, aleatoric, epistemic = distribution.uncertainty()
    assert (epistemic == 0).all()
    assert torch.equal(total, aleatoric)
    forest = one_row([[0.7, 0.3, 0.0]] * n_members)
    assert forest.uncertainty().epistemic.item() == 0


# classes


def test_log_prob_is_that_of_the_mean():
    distribution = ensemble(5, 7, 4)
    codes = torch.tensor([0, 1, 2, 3, 3, 0, 1])
    mean = probabilities(distribution).mean(0)
    expected = [
        stats.rv_discrete(values=(range(4), p / p.sum())).logpmf(k)
        for p, k in zip(mean, codes.tolist(), strict=True)
    ]
    np.testing.assert_allclose(distribution.log_prob(codes), expected, rtol=1e-12)


def test_log_prob_is_finite_where_probabilities_underflow():
    logits = torch.tensor([[[0.0, -1e4]], [[0.0, -2e4]]])
    log_prob = EmpiricalCategorical.from_logits(logits).log_prob(torch.tensor([1]))
    assert log_prob.item() == pytest.approx(-1e4 - math.log(2), rel=1e-7)


@pytest.mark.parametrize(
    "codes",
    [[0, 1, 4], [0, -1, 1], [0, 1], [[0, 1, 2]], [0.0, 1.0, 2.0]],
    ids=["too large", "negative", "too few", "two axes", "floats"],
)
def test_log_prob_rejects_what_are_no_codes(codes):
    with pytest.raises(ValueError, match="codes must be 3 numbers of int64 from 0 to 3, got"):
        ensemble(n_rows=3).log_prob(torch.tensor(codes))


# samples


def test_sample_inverts_the_distribution_function_at_one_uniform_number_for_all_rows():
    distribution = ensemble(3, 6, 5)
    draws = distribution.sample(40, torch.Generator().manual_seed(3))
    uniform = torch.rand(40, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    below = distribution.mean.cumsum(-1)
    expected = (uniform[:, None, None] >= below[..., :-1]).sum(-1)
    assert torch.equal(draws, expected)


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
def test_no_class_of_probability_zero_is_drawn(uniform, monkeypatch):
    def rand(size, **kwargs):
        return torch.full(size, uniform, dtype=kwargs["dtype"])

    monkeypatch.setattr(torch, "rand", rand)
    thirds = [0.0, 1 / 3, 0.0, 1 / 3, 1 / 3, 0.0]
    members = torch.tensor(thirds, dtype=torch.float32).expand(1, 3, 6)
    assert (
        EmpiricalCategorical.from_members(members).sample(1).item()
        == {
            0.0: 1,
            0.5: 3,
            1 - 2**-53: 4,
        }[uniform]
    )


def test_informations_are_mean_divergences():
    """Each pair of members, and the mixture with each of them, by scipy."""
    members = np.random.default_rng(0).dirichlet(np.full(4, 0.7), size=(3, 5))  # (S, n, K)
    distribution = EmpiricalCategorical(torch.tensor(members).log())
    mean = members.mean(0)
    reverse = np.mean([stats.entropy(mean, p, axis=-1) for p in members], axis=0)
    pairwise = np.mean([stats.entropy(p, q, axis=-1) for p in members for q in members], axis=0)
    np.testing.assert_allclose(distribution.reverse_mutual_information, reverse, rtol=1e-10)
    np.testing.assert_allclose(distribution.expected_pairwise_kl, pairwise, rtol=1e-10)
