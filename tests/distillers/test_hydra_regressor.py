# SPDX-License-Identifier: BSD-3-Clause
"""HydraPlusRegressor: its loss, and how faithful it is."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.frozen import FrozenEstimator
from torch import nn
from torch.distributions import Normal, kl_divergence

from skdistill import HydraPlusRegressor
from skdistill._method.plan import TrainingBudget
from skdistill._method.task import RegressionTask
from skdistill.distillers._hydra import gained
from skdistill.distributions import EmpiricalGaussian
from skdistill.settings import HydraLoss

# --- The loss ---------------------------------------------------------------------------------


def answers_and_outputs(n_members, n_heads, n=7, t=2, seed=0):
    """Random answers of a teacher, outputs of a student, labels, and the Gaussians they are."""
    generator = torch.Generator().manual_seed(seed)
    draw = partial(torch.randn, generator=generator, dtype=torch.float64)
    means, variances = draw(n_members, n, t), draw(n_members, n, t).exp()
    outputs = draw(n_heads, n, 2 * t)
    raw = outputs[..., t:]
    return SimpleNamespace(
        answers=torch.stack([means, variances], dim=-1).transpose(0, 1).unsqueeze(0),
        outputs=outputs.unsqueeze(0),
        gain=draw(1, 1, n, 2 * t),  # outputs of the network that tells it
        y=draw(1, n, t),
        labelled=(torch.arange(n) % 2).double().unsqueeze(0),
        members=Normal(means, variances.sqrt()),
        heads=Normal(outputs[..., :t], (nn.functional.softplus(raw) + 1e-6).sqrt()),
    )


def objective_of(n_members, n_heads, n_epochs=4, **settings):
    """The objective of a student that trains for `n_epochs`."""
    model = HydraPlusRegressor(loss=HydraLoss(**settings))
    model.set_params(heads=n_heads)
    return (
        model._plan_of(RegressionTask(1, True))
        .of_members(n_members)
        .objective(None, TrainingBudget(n_epochs))
    )


def loss(case, epoch=3, **settings):
    """What the student minimises in an epoch, by default the last of four, for each sample."""
    n_members, n_heads = case.members.mean.shape[0], case.heads.mean.shape[0]
    objective = objective_of(n_members, n_heads, **{"spread_weight": 0.0, **settings})
    objective.begin_epoch(epoch)
    outputs = [case.outputs, case.gain] if objective.plan.has_gain else [case.outputs]
    targets = case.answers, case.y, case.labelled
    return objective(torch.cat(outputs, dim=1), targets).squeeze(0)


def matched(mixture):
    """The Gaussian with the moments of a mixture, member by member on the first axis."""
    mean = mixture.mean.mean(0)
    variance = (mixture.variance + mixture.mean.square()).mean(0) - mean.square()
    return Normal(mean, variance.sqrt())


def entropy_left_out(gaussian):
    """What the loss is more than the divergence: a constant of the teacher, in nats."""
    return (gaussian.variance.log() + 1).div(2).sum(-1)


@pytest.mark.parametrize(("n_members", "n_heads"), [(4, 4), (5, 2), (2, 5)])
def test_member_n_goes_to_head_n_mod_m(n_members, n_heads):
    case = answers_and_outputs(n_members, n_heads)
    pairs = [(k % n_members, k % n_heads) for k in range(max(n_members, n_heads))]
    divergences = [
        kl_divergence(
            Normal(case.members.mean[n], case.members.stddev[n]),
            Normal(case.heads.mean[m], case.heads.stddev[m]),
        ).sum(-1)
        for n, m in pairs
    ]
    constant = entropy_left_out(case.members)[[n for n, _ in pairs]].mean(0)
    expected = torch.stack(divergences).mean(0) + constant
    torch.testing.assert_close(loss(case, teacher_weight=1, member_weight=1), expected)


def test_hinton_is_the_divergence_from_the_matched_teacher():
    case = answers_and_outputs(n_members=4, n_heads=1)
    teacher, head = matched(case.members), Normal(case.heads.mean[0], case.heads.stddev[0])
    expected = kl_divergence(teacher, head).sum(-1) + entropy_left_out(teacher)
    torch.testing.assert_close(loss(case, teacher_weight=1, member_weight=0), expected)


def test_the_label_term_is_the_likelihood_of_labelled_rows():
    case = answers_and_outputs(n_members=3, n_heads=3)
    likelihood = -case.heads.log_prob(case.y).sum(-1).mean(0) - np.log(2 * np.pi)  # two targets
    torch.testing.assert_close(loss(case, teacher_weight=0), case.labelled[0] * likelihood)


def test_equation_10_mixes_the_three_terms():
    case = answers_and_outputs(n_members=3, n_heads=3)
    l1, l2, l3 = (
        loss(case, teacher_weight=0),
        loss(case, teacher_weight=1, member_weight=0),
        loss(case, teacher_weight=1, member_weight=1),
    )
    expected = 0.3 * l1 + 0.7 * (0.6 * l2 + 0.4 * l3)
    torch.testing.assert_close(loss(case, teacher_weight=0.7, member_weight=0.4), expected)


@pytest.mark.parametrize("epoch", [0, 1, 3])
@pytest.mark.parametrize(("n_members", "n_heads"), [(3, 3), (5, 2), (2, 5), (3, 1)])
def test_spread_matching_by_hand(n_members, n_heads, epoch):
    case = answers_and_outputs(n_members, n_heads)
    teacher, head = case.members.mean, case.heads.mean
    e_t, e_s = teacher.var(0, correction=0), head.var(0, correction=0)
    teacher, head = teacher - teacher.mean(0), head - head.mean(0)  # before they are paired
    n_pairs = max(n_members, n_heads)
    residual = torch.stack([head[k % n_heads] - teacher[k % n_members] for k in range(n_pairs)])
    residuals = (residual.square() / (e_t + 1e-4)).mean(0).sum(-1)
    log_gain = np.log(10) * (case.gain[0, 0, :, :2] / np.log(10)).tanh() if n_heads > 1 else 0.0
    spreads = ((e_s + 1e-5).log() + log_gain - (e_t + 1e-5).log()).square().sum(-1)
    weight = 2.0 * (epoch + 1) / 4
    total = loss(case, epoch, spread_weight=0.0) + weight * (0.5 * residuals + 0.25 * spreads)
    beyond = 600 * (1 + (total / 600).log())  # 300 for each of two targets
    found = loss(case, epoch, spread_weight=2.0)
    torch.testing.assert_close(found, torch.where(total > 600, beyond, total))


@pytest.mark.parametrize(("n_members", "n_heads"), [(3, 3), (5, 2), (2, 5)])
def test_the_gradient_is_that_of_finite_differences(n_members, n_heads):
    case = answers_and_outputs(n_members, n_heads)
    objective = objective_of(n_members, n_heads, spread_weight=2.0, teacher_weight=0.8)
    objective.begin_epoch(2)
    targets = case.answers, case.y, case.labelled
    outputs = torch.cat([case.outputs, case.gain], dim=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda outputs: objective(outputs, targets), outputs)


@pytest.mark.parametrize("raw", [-0.7, 0.0, 1.1, 50.0])
def test_the_gain_moves_variance_from_one_part_to_the_other(raw):
    case = answers_and_outputs(n_members=3, n_heads=4)
    case.outputs[..., :4, :2] *= 0.2  # of most samples the heads are of one mind
    outputs = torch.cat([case.outputs, torch.full_like(case.gain, raw)], dim=1)[0]
    found, plain = gained(outputs), EmpiricalGaussian.from_outputs(case.outputs[0])
    parts, before = found.uncertainty(), plain.uncertainty()
    gain = 10 ** np.tanh(raw / np.log(10))  # at most ten times
    torch.testing.assert_close(found.mean, plain.mean)
    torch.testing.assert_close(parts.epistemic, gain * before.epistemic)
    residual = found.means - found.mean
    torch.testing.assert_close(residual, np.sqrt(gain) * (plain.means - plain.mean))
    # The total stays, where the heads' variances have as much as the gain takes.
    taken = (gain - 1) * before.epistemic
    has_enough = (taken <= plain.variances / 2).all(0)
    assert has_enough.any()
    torch.testing.assert_close(parts.total[has_enough], before.total[has_enough])
    assert (found.variances >= plain.variances / 2 * (1 - 1e-12)).all()


# --- Fidelity ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_spread_matching_makes_the_epistemic_part_faithful(regression):
    def draw(n, seed):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, 3))
        noise = 0.2 + 0.6 * (X[:, 0] > 0)
        return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + noise * rng.normal(size=n)

    X, y = draw(250, seed=0)
    X_test, y_test = draw(1000, seed=1)
    relu = {"module__activation": "relu"}
    teacher = regression.ensemble(
        n_members=8, max_epochs=50, distance_aware=False, module__hidden_units=(50,), **relu
    ).fit(X, y)
    truth = teacher.predict_uncertainty(X_test)
    rank, ratio = {}, {}
    for spread_weight in (0.0, 1.0):
        model = regression.student(
            FrozenEstimator(teacher),
            loss=HydraLoss(spread_weight=spread_weight),
            max_epochs=200,
            module__hidden_units=(96,),
            **relu,
        ).fit(X, y)
        parts = model.predict_uncertainty(X_test)
        rank[spread_weight] = stats.spearmanr(truth.epistemic, parts.epistemic).statistic
        ratio[spread_weight] = np.median(parts.epistemic / truth.epistemic)
        # Whatever the spread, mean and total variance follow the teacher's.
        assert np.corrcoef(model.predict(X_test), teacher.predict(X_test))[0, 1] > 0.97
        assert np.median(parts.total / truth.total) == pytest.approx(1.0, abs=0.15)
    assert rank[1.0] > rank[0.0] + 0.05
    assert rank[1.0] > 0.75
    assert ratio[0.0] < 0.6
    assert 0.65 < ratio[1.0] < 1.35
    assert model.score(X_test, y_test) == pytest.approx(teacher.score(X_test, y_test), abs=0.05)


def test_several_targets(regression):
    X, y = regression.data
    Y = np.column_stack([y, 100 * X[:, 0], X[:, 1] ** 2])
    model = regression.student(
        regression.ensemble(max_epochs=30),
        max_epochs=100,
        module__hidden_units=(32,),
        loss=HydraLoss(spread_weight=0.0),
    ).fit(X, Y)
    teacher = model.teacher_.predict(X)
    error = ((model.predict(X) - teacher) ** 2).mean(axis=0) / teacher.var(axis=0)
    assert (error < 0.1).all()
    assert model.predict_members(X).shape == (60, 3, 3, 2)
