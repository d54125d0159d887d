# SPDX-License-Identifier: BSD-3-Clause
"""Students without their teacher's functions: what they say where a column is not known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from skdistill import (
    BDistilBooster,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill.distributions import (
    EmpiricalCategorical,
    EmpiricalGaussian,
    ExpectedCategorical,
    NormalInverseWishart,
)
from skdistill.persistence import load, save

RNG = np.random.RandomState(0)
TABLE = RNG.standard_normal((200, 3))
SUM = TABLE @ [1.0, 2.0, 0.0] + 0.1 * RNG.standard_normal(200)
LABELS = (RNG.logistic(size=200) < 2 * TABLE @ [1.0, 2.0, 0.0]).astype(int)

_FOREST = RandomForestRegressor(20, min_samples_leaf=5, random_state=0)
_TREES = RandomForestClassifier(20, min_samples_leaf=5, random_state=0)
_BRIEF = {"max_epochs": 20, "random_state": 0}
STRANGERS = {
    "hydra": HydraPlusRegressor(_FOREST, **_BRIEF),
    "gped": GPEDDistiller(_FOREST, **_BRIEF),
    "bdistil": BDistilBooster(_FOREST, n_rounds=2, **_BRIEF),
    **{
        family: DistributionDistiller(_FOREST, family=family, **_BRIEF)
        for family in ("latent_factor", "normal_inverse_wishart")
    },
}
STRANGERS_TO_CLASSES = {
    "hydra": HydraPlusClassifier(_TREES, **_BRIEF),
    "gped": GPEDDistiller(_TREES, expectations=("predictive", "entropy"), **_BRIEF),
    "bdistil": BDistilBooster(_TREES, n_rounds=2, **_BRIEF),
    "logit_normal": DistributionDistiller(_TREES, family="logit_normal", **_BRIEF),
}


def missing(column):
    found = TABLE.copy()
    found[:, column] = np.nan
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", STRANGERS)
def test_intervals_widen_without_a_column(name, tmp_path):
    model = clone(STRANGERS[name]).fit(TABLE, SUM)
    known = model.predict_uncertainty(TABLE)
    for column, deviation in ((0, 1.0), (1, 2.0)):
        unknown = model.predict_uncertainty(missing(column))
        added = np.median(unknown.total) - np.median(known.total)
        assert 0.4 * deviation**2 < added < 1.5 * deviation**2
        low, high = model.predict_interval(missing(column)).T
        assert np.mean((low < SUM) & (high > SUM)) >= 0.8
        if unknown.epistemic is not None:  # the noise is what it was
            assert np.median(unknown.aleatoric) < 2 * np.median(known.aleatoric)
            assert np.median(unknown.epistemic) > 0.4 * deviation**2
    rows = np.concatenate([missing(1)[:5], TABLE[:5]])
    save(model, tmp_path / "model.skd")
    again = load(tmp_path / "model.skd")
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
    total = model.predict_uncertainty(rows).total
    np.testing.assert_array_equal(again.predict_uncertainty(rows).total, total)


@pytest.mark.slow
@pytest.mark.parametrize("name", STRANGERS_TO_CLASSES)
def test_classes_are_less_sure_without_a_column(name):
    model = clone(STRANGERS_TO_CLASSES[name]).fit(TABLE, LABELS)
    known, unknown = (model.predict_proba(rows).max(1).mean() for rows in (TABLE, missing(1)))
    accuracy = np.mean(model.predict(missing(1)) == LABELS)
    assert unknown < min(known - 0.02, accuracy + 0.1)
    parts = model.predict_uncertainty(missing(1))
    if parts.epistemic is not None:
        assert parts.epistemic.mean() > 1.2 * model.predict_uncertainty(TABLE).epistemic.mean()


@pytest.mark.slow
def test_a_booster_widens_after_each_round_and_within_limits():
    model = clone(STRANGERS["bdistil"]).fit(TABLE, SUM)
    rows = missing(1)[:50]
    _, expected = model.predict(rows, return_std=True)
    for limits in ({"max_rounds": model.n_rounds_}, {"deadline": 60.0}, {"early_exit": 0.0}):
        _, std = model.predict(rows, return_std=True, **limits)
        np.testing.assert_allclose(std, expected, rtol=1e-4)


def test_members_that_a_factor_student_draws_differ_where_a_column_is_missing():
    model = clone(STRANGERS["latent_factor"]).fit(TABLE, SUM)
    expected = model.predict_uncertainty(missing(1)).epistemic
    members = model.sample_members(missing(1), 200, random_state=0)
    np.testing.assert_allclose(np.median(members[..., 0, 0].var(1) / expected), 1, rtol=0.2)


def drawn(*shape, seed=0):
    found = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()
    return found - found.mean(0)


def test_one_network_has_the_total_of_displaced_members():
    before, added = EmpiricalGaussian(drawn(1, 3, 2), torch.ones(1, 3, 2).double()), drawn(9, 3, 2)
    found = before.with_mean_variance(added.square().mean(0))
    torch.testing.assert_close(found.mean, before.mean)
    torch.testing.assert_close(found.variance, before.variance + added.square().mean(0))
    logits, added = drawn(2, 3, 4)[:1], drawn(9, 3, 4, seed=1)
    classes = EmpiricalCategorical.from_logits(logits).displaced(added)
    torch.testing.assert_close(classes.mean, (logits + added).softmax(-1).mean(0))


def test_expectations_are_displaced_as_members_are():
    added = drawn(9, 3, 2)
    known = EmpiricalGaussian(drawn(1, 3, 2), torch.ones(1, 3, 2), torch.ones(3, 2))
    before = known.uncertainty()
    after = known.with_mean_variance(added.square().mean(0))
    torch.testing.assert_close(after.uncertainty().aleatoric, before.aleatoric)
    epistemic = before.epistemic.double() + added.square().mean(0)
    torch.testing.assert_close(after.uncertainty().epistemic.double(), epistemic)
    # If nothing was epistemic, what is added is, as with a single member.
    log_mean, added = drawn(3, 4).log_softmax(-1), drawn(9, 3, 4, seed=1)
    entropy = torch.special.entr(log_mean.exp()).sum(-1)
    members = EmpiricalCategorical.from_logits(log_mean + added).uncertainty()
    found = ExpectedCategorical(log_mean, entropy).displaced(added).uncertainty()
    torch.testing.assert_close(found.epistemic, members.epistemic)
    assert ExpectedCategorical(log_mean).displaced(added).uncertainty().epistemic is None


def test_targets_that_share_a_strength_of_belief_widen_by_the_mean_factor():
    before = NormalInverseWishart.from_outputs(drawn(3, 6))
    added = 2.0 * before.uncertainty().epistemic.sqrt() * torch.tensor([[[1.0]], [[-1.0]]])
    found = before.with_mean_variance(added.square().mean(0))
    torch.testing.assert_close(found.mean, before.mean)
    torch.testing.assert_close(found.uncertainty().aleatoric, before.uncertainty().aleatoric)
    torch.testing.assert_close(found.uncertainty().epistemic, 5 * before.uncertainty().epistemic)
