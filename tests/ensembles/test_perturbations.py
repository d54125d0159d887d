# SPDX-License-Identifier: BSD-3-Clause
"""Perturbed data of members: their draws, and that members vary as posterior draws do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from joblib import parallel_config
from scipy import stats
from small_models import assert_same_weights

from skdistill import BayesianEnsembleClassifier, BayesianEnsembleRegressor
from skdistill._engine import Rows
from skdistill._training.trainer import SEED_LIMIT
from skdistill.ensembles._perturbations import (
    noise_of_targets,
    pairs_with_same_draws,
    random_weights,
    share_in_common,
    stratified,
)
from skdistill.modules import MLP, TabM
from skdistill.samplers import DeepEnsemble
from skdistill.settings import Runtime

SMALL = {
    "n_members": 4,
    "max_epochs": 4,
    "module__hidden_units": (6,),
    "random_state": 0,
    "runtime": Runtime(device="cpu", member_block=2),
}
PERTURBED = DeepEnsemble(calibrate=None, tune=None)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
NUMBERS = X @ [1.0, -2.0, 0.5] + 0.5 * RNG.normal(size=80)
LABELS = (NUMBERS > 0).astype(int) + (X[:, 1] > 1)
ENSEMBLES = pytest.mark.parametrize(
    ("cls", "y"), [(BayesianEnsembleRegressor, NUMBERS), (BayesianEnsembleClassifier, LABELS)]
)


class Listed:
    """Batches that can be read again."""

    def __init__(self, *batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


# ------------------------------------------------------------------------------------------
# Draws
# ------------------------------------------------------------------------------------------


def test_draws_of_a_member_are_uniform():
    drawn = stratified([0, 1], range(40), (2000, 2))
    assert drawn.shape == (40, 2000, 2)
    for of_member in drawn:
        assert stats.kstest(of_member.ravel(), "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(drawn[:10].reshape(10, -1)) - np.eye(10)).max() < 0.15


def test_draws_depend_on_the_number_of_the_member_and_the_seed_alone():
    of_all = stratified([0, 0], range(60), (7,))
    for members in ([5], [33, 2], [58, 59, 0, 47]):
        np.testing.assert_array_equal(stratified([0, 0], members, (7,)), of_all[members])
    for seed in ([0, 1], [1, 0]):
        assert (stratified(seed, range(60), (7,)) != of_all).all()


def test_pairs_of_twenty_have_the_same_draws_and_no_others():
    drawn = stratified([0], range(40), (5,))
    pairs = pairs_with_same_draws(range(40))
    assert pairs.tolist() == [[k, k + 10] for k in (*range(10), *range(20, 30))]
    np.testing.assert_array_equal(*drawn[pairs.T])
    assert len(np.unique(drawn[:, 0])) == 20
    assert pairs_with_same_draws(range(10, 30)).shape == (0, 2)
    assert pairs_with_same_draws([4, 7, 14, 17, 24]).tolist() == [[0, 2], [1, 3]]


@pytest.mark.parametrize("weight", [None, 0.25, 3.0])
def test_noise_of_a_sample_of_weight_w_has_one_wth_of_the_variance(weight):
    uniform = stratified([0], range(10), (4000, 1))
    found = noise_of_targets(uniform, None if weight is None else np.full(4000, weight))
    assert found.shape == (10, 4000, 1)
    scale = 1 / np.sqrt(weight or 1)
    assert stats.kstest(found[4].ravel(), stats.norm(scale=scale).cdf).pvalue > 1e-3
    np.testing.assert_allclose(found.mean(), 0, atol=0.01 * scale)
    np.testing.assert_allclose(found.std(), scale, rtol=0.01)


@pytest.mark.parametrize("weight", [None, 0.25, 1.0, 3.0])
def test_weights_are_means_of_exponential_ones(weight):
    uniform = stratified([0], range(10), (4000,))
    found = random_weights(uniform, None if weight is None else np.full(4000, weight))
    assert found.shape == (10, 4000)
    assert (found >= 0).all()
    w = weight or 1.0
    assert stats.kstest(found[4], stats.gamma(w, scale=1 / w).cdf).pvalue > 1e-3
    np.testing.assert_allclose(found.mean(), 1, rtol=0.02)
    np.testing.assert_allclose(found.var(), 1 / w, rtol=0.1)


# ------------------------------------------------------------------------------------------
# What two members with the same draws have in common
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [(0.25, 0.9), (0.5, 0.5)])
def test_the_share_in_common_is_found(share):
    rng, members = np.random.default_rng(0), range(60)
    share = np.array(share)
    of_draws = rng.normal(size=(60, 3000, 2))
    first, second = pairs_with_same_draws(members).T
    of_draws[second] = of_draws[first]
    own = rng.normal(size=(60, 3000, 2))
    values = 5.0 + 2.0 * (np.sqrt(share) * of_draws + np.sqrt(1 - share) * own)
    # Of S members the deviations from their mean have c / S less in common.
    np.testing.assert_allclose(
        share_in_common(values, pairs_with_same_draws(members), [np.arange(60)]), share, atol=0.03
    )


def test_of_two_kinds_the_share_is_the_correlation_of_their_deviations():
    rng, pairs = np.random.default_rng(0), pairs_with_same_draws(range(20))
    draws = np.tile(rng.normal(size=(10, 3000, 1)), (2, 1, 1))
    values = 2 * np.sqrt(0.3) * draws + 2 * np.sqrt(0.7) * rng.normal(size=(20, 3000, 1))
    values[10:] = 3 * values[10:] + 50  # another mean and another scale
    found = share_in_common(values, pairs, [np.arange(10), np.arange(10, 20)])
    np.testing.assert_allclose(found, 0.3, atol=0.04)


# ------------------------------------------------------------------------------------------
# Linear models, whose minimum is known
# ------------------------------------------------------------------------------------------

N_LINEAR, D_LINEAR = 500, 9


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(N_LINEAR, D_LINEAR))
    return rows, rows.sum(1) + 2.0 * rng.normal(size=N_LINEAR)


def linear(cls, n_members, **params):
    """An ensemble of linear models, each trained to its minimum in full batches."""
    settings = {
        "module__hidden_units": (),
        "module__embeddings": None,
        "inference": PERTURBED,
        "distance_aware": False,
        "prior_scale": np.inf,
        "batch_size": N_LINEAR,
        "max_epochs": 800,
        "lr": 0.05,
        "runtime": Runtime(device="cpu", dtype="float64"),
        "random_state": 0,
    }
    return cls(n_members, **{**settings, **params})


def draws_of_fit(members, shape):
    """The draws of members in a fit with ``random_state=0``."""
    return stratified([np.random.RandomState(0).randint(SEED_LIMIT), 0], members, shape)


def with_constant(rows):
    return np.column_stack([np.ones(len(rows)), rows])


@pytest.mark.parametrize(
    ("beta", "weight"), [(0.0, None), (0.5, None), (0.0, np.linspace(0.2, 2.0, N_LINEAR))]
)
def test_members_are_least_squares_fits_to_targets_with_noise_of_their_own(beta, weight, table):
    rows, y = table
    model = linear(BayesianEnsembleRegressor, 12, beta=beta).fit(rows, y, sample_weight=weight)
    means, variances = np.moveaxis(model.predict_members(rows)[:, :, 0], -1, 0)
    w = np.ones((N_LINEAR, 1)) if weight is None else weight[:, None]
    noise = stats.norm.ppf(draws_of_fit(range(12), (N_LINEAR, 1))[..., 0].T) / np.sqrt(w)
    targets, design = y[:, None] + np.sqrt(variances) * noise, with_constant(rows)
    for k in range(12):
        precision = w[:, 0] * variances[:, k] ** (beta - 1)
        weighted = (design.T * precision) @ design, design.T @ (precision * targets[:, k])
        np.testing.assert_allclose(means[:, k], design @ np.linalg.solve(*weighted), atol=1e-4)
    np.testing.assert_allclose(means[:, 0], means[:, 10], atol=1e-4)  # the same draws


def test_members_vary_as_the_posterior_of_a_linear_model(table):
    rows, y = table
    model = linear(BayesianEnsembleRegressor, 40, beta=0.0).fit(rows, y)
    design = with_constant(rows)
    found = model.predict_uncertainty(rows)
    covariance = np.linalg.inv((design.T / found.aleatoric) @ design)
    expected = np.einsum("ni,ij,nj->n", design, covariance, design)
    # There are 20 draws, as members k + 10 have those of others, of ten weights: sd sqrt(2 / 200).
    assert found.epistemic.mean() == pytest.approx(expected.mean(), rel=0.25)
    # The draws of ten members nearly cancel in their mean.
    plain = DeepEnsemble(bootstrap=False, calibrate=None)
    expected_mean = linear(BayesianEnsembleRegressor, 1, beta=0.0, inference=plain).fit(rows, y)
    means = model.predict_members(rows)[:, :10, 0, 0].mean(1)
    error = np.square(means - expected_mean.predict(rows)).mean()
    assert error < 0.3 * expected.mean() / 10  # of ten independent draws: a tenth


def test_members_minimise_the_cross_entropy_with_weights_of_their_own(table):
    rows, y = table
    weight = np.linspace(0.2, 2.0, N_LINEAR)
    codes = (y > 0).astype(int)
    model = linear(BayesianEnsembleClassifier, 4).fit(rows, codes, sample_weight=weight)
    factor = random_weights(draws_of_fit(range(4), (N_LINEAR,)), weight)
    probs = model.predict_members(rows)[:, :, 1].T  # (S, n)
    gradient = (factor * weight * (probs - codes)) @ with_constant(rows)
    plain = (weight * (probs - codes)) @ with_constant(rows)
    np.testing.assert_allclose(gradient, 0, atol=0.02)
    assert (abs(plain).max(1) > 1).all()


# ------------------------------------------------------------------------------------------
# In fits
# ------------------------------------------------------------------------------------------


def same_weights(in_features, out_features):
    return MLP(in_features, out_features, (6,), generator=torch.Generator().manual_seed(0))


@ENSEMBLES
def test_members_differ_by_their_draws_alone(cls, y):
    """In one batch and from the same start."""
    settings = {"module": same_weights, "max_epochs": 4, "batch_size": 80, "random_state": 0}
    members = cls(12, inference=PERTURBED, **settings).fit(X, y).predict_members(X)
    members = members.reshape(80, 12, -1)
    np.testing.assert_allclose(members[:, :2], members[:, 10:], rtol=1e-9)
    differences = np.ptp(members[:, [*range(10)]], axis=1)
    assert (differences > 1e-6).any(1).all()
    alike = cls(12, inference=DeepEnsemble(bootstrap=False, calibrate=None, tune=None), **settings)
    members = alike.fit(X, y).predict_members(X).reshape(80, 12, -1)
    np.testing.assert_allclose(np.ptp(members, axis=1), 0, atol=1e-12)


@ENSEMBLES
def test_few_samples_are_not_perturbed(cls, y):
    default, plain = (
        cls(inference=DeepEnsemble(bootstrap=bootstrap), **SMALL).fit(X[:49], y[:49])
        for bootstrap in ("auto", False)
    )
    assert_same_weights(default, plain)
    default, plain = (
        cls(inference=DeepEnsemble(bootstrap=bootstrap), **SMALL).fit(X[:50], y[:50])
        for bootstrap in ("auto", False)
    )
    assert (default.predict_members(X) != plain.predict_members(X)).all()


def test_targets_have_noise_of_their_own():
    y = np.column_stack([NUMBERS, NUMBERS])
    settings = {"module": Shared, "max_epochs": 4, "batch_size": 80, "random_state": 0}
    means = {}
    for bootstrap in ("auto", False):
        inference = DeepEnsemble(bootstrap=bootstrap, calibrate=None)
        model = BayesianEnsembleRegressor(3, inference=inference, **settings).fit(X, y)
        means[bootstrap] = model.predict_members(X)[..., 0]
    np.testing.assert_allclose(*np.moveaxis(means[False], -1, 0), atol=1e-12)
    assert (means["auto"][..., 0] != means["auto"][..., 1]).all()


class Shared(torch.nn.Module):
    """Both targets start from the same weights."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.last = torch.nn.Linear(in_features, out_features)
        with torch.no_grad():
            self.last.weight.copy_(self.last.weight[:1].expand(out_features, -1))
            self.last.bias.zero_()

    def forward(self, x):
        return self.last(x)


@ENSEMBLES
def test_jobs_further_members_and_streams_perturb_as_one_fit(cls, y):
    settings = {**SMALL, "inference": PERTURBED}
    whole = cls(**settings).fit(X, y)
    with parallel_config("threading"):
        assert_same_weights(cls(n_jobs=2, **settings).fit(X, y), whole)
    part = cls(**{**settings, "n_members": 2}, warm_start=True).fit(X, y)
    assert_same_weights(part.set_params(n_members=4).fit(X, y), whole)
    settings["runtime"] = Runtime(device="cpu", member_block=2, dtype="float64")
    whole, streamed = cls(**settings).fit(X, y), cls(**settings).fit(Listed((X, y)))
    # Members' weights are divided by their mean, but not in a stream, whose mean is not known.
    tolerance = {"rtol": 1e-6} if y is NUMBERS else {"atol": 1e-3}
    np.testing.assert_allclose(streamed.predict_members(X), whole.predict_members(X), **tolerance)


@pytest.mark.parametrize("bootstrap", ["auto", False])
@ENSEMBLES
def test_members_that_share_weights_are_perturbed(cls, y, bootstrap):
    settings = {
        "module": TabM,
        "module__hidden_units": (8,),
        "max_epochs": 5,
        "batch_size": 40,
        "random_state": 0,
    }
    inference = DeepEnsemble(bootstrap=bootstrap, calibrate=None)
    model = cls(8, inference=inference, **settings).fit(X, y)
    assert np.isfinite(model.predict_members(X)).all()
    streamed = cls(8, inference=inference, **settings).fit(Listed((X, y)))
    tolerance = {"rtol": 1e-4} if y is NUMBERS else {"atol": 0.01}  # by the mean of weights
    np.testing.assert_allclose(streamed.predict_members(X), model.predict_members(X), **tolerance)


@pytest.mark.parametrize("by_place", [False, True])
def test_each_member_gets_its_own_targets(by_place):
    n, n_members = 23, 4
    X_, own = torch.arange(n).double()[:, None], torch.arange(n * n_members).view(n_members, n, 1)
    seeds = range(1 if by_place else n_members)
    rows = Rows(X_, (X_,), None, 8, list(seeds), by_place=by_place, own_targets=(own,))
    seen = []
    for X_batch, ((y, noise), _) in rows:
        sample = X_batch[..., 0].long()
        member = torch.arange(n_members)[:, None]
        if by_place:
            member = torch.arange(sample.shape[-1]) % n_members
        assert torch.equal(y, X_batch)
        assert torch.equal(noise[..., 0], n * member + sample)
        seen.append(sample)
    assert torch.equal(torch.cat(seen, -1).sort(-1).values[0], torch.arange(n))
