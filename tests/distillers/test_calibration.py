# SPDX-License-Identifier: BSD-3-Clause
"""Students calibrated on held-out samples: planted faults are mended in all predictions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from skdistill import DistributionDistiller
from skdistill.distillers._student import fit_calibration
from skdistill.distributions import EmpiricalCategorical, EmpiricalGaussian
from skdistill.metrics import crps

N = 4000


class OneBatch:
    """All samples, each time that they are read."""

    def __init__(self, X, y):
        self.batch = X, y

    def __iter__(self):
        yield self.batch


def randn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def gaussians(mean, variance, epistemic):
    """Two members with these means and parts of the variance, (n, t)."""
    return EmpiricalGaussian(
        torch.stack((mean - epistemic.sqrt(), mean + epistemic.sqrt())), torch.stack([variance] * 2)
    )


def test_scale_power_and_temperature_of_numbers_are_found():
    mean, variance, epistemic = randn(N, 2), randn(N, 2, seed=1).exp(), randn(N, 2, seed=2).exp()
    scale, power, temperature = (torch.tensor(v) for v in ([2.0, 0.1], [0.5, 1.3], [3.0, 0.5]))
    members = gaussians(mean, variance, scale * epistemic**power)
    truth = temperature * variance + scale * epistemic**power
    y = mean + truth.sqrt() * randn(N, 2, seed=3)
    student = gaussians(mean, variance, epistemic)
    found = fit_calibration(student, members, y, torch.ones(N, dtype=torch.float64))
    np.testing.assert_allclose(found.scale, scale, rtol=1e-8)
    np.testing.assert_allclose(found.power, power, rtol=1e-8)
    np.testing.assert_allclose(found.temperature, temperature, rtol=0.1)
    total, aleatoric, part = found(student).uncertainty()
    torch.testing.assert_close(part, members.uncertainty().epistemic)
    torch.testing.assert_close(aleatoric, torch.tensor(found.temperature) * variance)
    torch.testing.assert_close(total, aleatoric + part)


@pytest.mark.slow
def test_the_temperature_of_numbers_has_the_least_crps():
    mean, std = randn(200, 1), randn(200, 1, seed=1).exp()
    y = mean + std * randn(200, 1, seed=2) ** 3  # of long tails
    student = EmpiricalGaussian(mean[None], std.square()[None])
    found = fit_calibration(student, student, y, torch.ones(200, dtype=torch.float64))
    assert (found.scale, found.power) == (1.0, 1.0)  # there is no epistemic part

    def loss(temperature):
        return crps(y.numpy(), student.tempered(temperature).members.numpy())

    assert loss(found.temperature) < min(loss(found.temperature * k) for k in (0.98, 1.02, 0.5, 2))


def test_weights_count_as_rows():
    mean, variance, epistemic = randn(60, 1), randn(60, 1, seed=1).exp(), randn(60, 1, seed=2).exp()
    student, members = gaussians(mean, variance, epistemic), gaussians(mean, variance, epistemic**2)
    y, weight = mean + randn(60, 1, seed=3), torch.arange(60) % 3
    rows = torch.arange(60).repeat_interleave(weight)
    twice = [EmpiricalGaussian(d.means[:, rows], d.variances[:, rows]) for d in (student, members)]
    one = fit_calibration(student, members, y, weight.double())
    other = fit_calibration(*twice, y[rows], torch.ones(len(rows), dtype=torch.float64))
    for name in ("scale", "power", "temperature"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-4)


def test_temperature_and_spread_of_classes_are_mended():
    centre, deviation = 2 * randn(N, 3), 0.6 * randn(8, N, 3, seed=1)
    members = EmpiricalCategorical.from_logits(centre + deviation)
    uniform = torch.rand(N, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    codes = (members.mean.cumsum(-1) < uniform).sum(-1).clamp(max=2)
    student = EmpiricalCategorical.from_logits(2 * centre + 0.5 * deviation)  # half the temperature
    found = fit_calibration(student, members, codes, torch.ones(N, dtype=torch.float64))
    assert found.temperature == pytest.approx(2, abs=0.15)
    mended = found(student)
    before, after = (
        (d.uncertainty().epistemic / members.uncertainty().epistemic).log()
        for d in (student, mended)
    )
    assert after.mean().abs() < 1e-3
    assert after.std() < before.std() / 4  # a temperature changes more than scale and power
    assert mended.log_prob(codes).mean() > student.log_prob(codes).mean() + 0.05


def test_everything_is_read_off_the_calibrated_student(task, frozen):
    student = task.student(frozen, calibration_fraction=0.25).fit(*task.data)
    X, distribution = task.X, student.predict_distribution(task.X)
    total, aleatoric, epistemic = student.predict_uncertainty(X)
    np.testing.assert_allclose(total, aleatoric + epistemic)
    np.testing.assert_allclose(student.predict_members(X), distribution.members)
    again = student.predict_uncertainty(X)
    np.testing.assert_array_equal(again.total, total)
    if task.is_classification:
        np.testing.assert_allclose(student.predict_proba(X), distribution.members.mean(1))
        return
    np.testing.assert_allclose(student.predict(X, return_std=True)[1] ** 2, total)
    np.testing.assert_allclose(student.predict_interval(X), distribution.interval(0.9)[:, 0])
    np.testing.assert_allclose(
        student.sample_y(X, 4000, random_state=0).std(1), np.sqrt(total), rtol=0.1
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_a_student_of_one_gaussian_has_its_variance_times_the_temperature(regression, weighted):
    X, y = regression.data
    weight = np.linspace(0.1, 2, len(y)) if weighted else None
    teacher = regression.ensemble()
    settings = dict(family="mixture", max_epochs=5, module__hidden_units=(8,), random_state=0)
    plain = DistributionDistiller(teacher, **settings).fit(X, y, sample_weight=weight)
    student = clone(plain).set_params(calibration_fraction=0.5).fit(X, y, sample_weight=weight)
    temperature = student.calibration_.temperature
    assert abs(temperature - 1) > 0.01
    (_, std), (_, plain_std) = (m.predict(X, return_std=True) for m in (student, plain))
    np.testing.assert_allclose(std**2, temperature * plain_std**2)


def test_a_teacher_that_is_fitted_here_is_fitted_without_the_rows_too(task, frozen):
    teacher = task.counting_ensemble()
    student = task.student(teacher, calibration_fraction=0.25).fit(*task.data)
    assert type(teacher).n_fits == 2
    assert student.teacher_.n_features_in_ == 3
    student = task.student(FrozenEstimator(student.teacher_), calibration_fraction=0.25).fit(
        *task.data
    )
    assert type(teacher).n_fits == 2


def test_what_it_does_not_go_with(task, frozen):
    X, y = task.data
    for share in (0, 1, 1.5, "yes"):
        with pytest.raises(
            (ValueError, TypeError), match=r"calibration_fraction must be a number in \(0, 1\)"
        ):
            task.student(frozen, calibration_fraction=share).fit(X, y)
    student = task.student(frozen, calibration_fraction=0.25)
    with pytest.raises(ValueError, match="calibration_fraction must be None with partial_fit"):
        student.partial_fit(X, y, **({"classes": np.unique(y)} if task.is_classification else {}))
    members = frozen.estimator.predict_members(X)
    with pytest.raises(
        ValueError, match="calibration_fraction must be None with member_predictions"
    ):
        task.student(None, calibration_fraction=0.25).fit(X, y, member_predictions=members)
    with pytest.raises(ValueError, match="calibration_fraction must be None where X gives batches"):
        student.fit(OneBatch(X, y))
    chosen = np.zeros(len(y))
    chosen[0] = 1
    with pytest.raises(ValueError, match=r"sample_weight.* at least one positive value"):
        student.fit(X, y, sample_weight=chosen)


def test_families_that_cannot_be_calibrated_say_so(regression):
    wishart = DistributionDistiller(
        regression.ensemble(), family="normal_inverse_wishart", calibration_fraction=0.25
    )
    with pytest.raises(ValueError, match="predicts a NormalInverseWishart, whose epistemic part"):
        wishart.fit(*regression.data)
