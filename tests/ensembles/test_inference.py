# SPDX-License-Identifier: BSD-3-Clause
"""Inference by chains and by dropout, through the estimators."""

from __future__ import annotations

import math
import re
import signal
import warnings

import numpy as np
import pytest
import skorch
import torch
from scipy.special import softmax
from sklearn.base import clone
from sklearn.datasets import load_digits, make_moons
from torch import nn

from skdistill import BayesianEnsembleClassifier, BayesianEnsembleRegressor
from skdistill.ensembles._diagnostics import SamplerDiagnostics, large_r_hat
from skdistill.samplers import (
    SGHMC,
    SGLD,
    MCDropout,
    effective_sample_size,
    split_r_hat,
)

CHAINS = [SGLD, SGHMC]
few_draws = pytest.mark.filterwarnings(
    "ignore:R-hat is above:sklearn.exceptions.ConvergenceWarning"
)


# Samples are taken as they are, so that weights can be held against X.
SMALL = {"max_epochs": 5, "module__hidden_units": (8,), "random_state": 0, "normalize": "y"}


def regressor(inference, **params):
    settings = {"n_members": 6, **SMALL}
    return BayesianEnsembleRegressor(inference=inference, **{**settings, **params})


def classifier(inference, **params):
    settings = {"n_members": 6, **SMALL}
    return BayesianEnsembleClassifier(inference=inference, **{**settings, **params})


MAKERS = [regressor, classifier]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    z = X @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=60)
    return X, np.digitize(z, [-1.0, 1.0])  # numbers to regress on, and labels


# ------------------------------------------------------------------------------------------
# Posteriors that are known
# ------------------------------------------------------------------------------------------

NOISE = 0.5  # variance of y around the line


class LineWithKnownNoise(nn.Module):
    """A line through the origin, whose weights are the only parameters."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, 1, bias=False)
        self.register_buffer("raw", torch.tensor([math.log(math.expm1(NOISE - 1e-6))]))

    def forward(self, x):
        mean = self.linear(x)
        return torch.cat([mean, self.raw.expand_as(mean)], dim=-1)


@pytest.fixture(scope="module")
def line():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2)) @ [[1.0, 0.3], [0.0, 1.0]]
    return X, X @ [1.0, -0.5] + math.sqrt(NOISE) * rng.normal(size=40), rng.uniform(0, 1, size=40)


def posterior_of_the_line(X, y, weight, prior_precision):
    """Mean and covariance of the weights, by the textbook."""
    precision = (X.T * weight) @ X / NOISE + prior_precision * np.eye(X.shape[1])
    covariance = np.linalg.inv(precision)
    return covariance @ (X.T @ (weight * y)) / NOISE, covariance


# Steps that widen a chain by at most two per cent; two draws of each of 2,000 chains.
SMALL_STEPS = {
    SGLD: SGLD(6e-4, n_chains=2000, burn_in=450, thinning=150),
    SGHMC: SGHMC(2e-4, friction=0.2, n_chains=2000, burn_in=150, thinning=50),
}


def weights_of_chains(X, y, weight, inference, **params):
    """Weights of all states that were kept, of shape (n_members, n_features)."""
    n_members = 2 * inference.n_chains
    max_epochs = inference.burn_in + 2 * inference.thinning
    model = BayesianEnsembleRegressor(
        n_members,
        module=LineWithKnownNoise,
        inference=inference,
        beta=0.0,
        normalize=False,
        batch_size=len(X),
        max_epochs=max_epochs,
        random_state=0,
        **params,
    ).fit(X, y, sample_weight=weight)
    (found,) = model.module_.parameters()
    return found.detach().numpy().reshape(n_members, -1)


def assert_gaussian(draws, mean, covariance):
    """Moments within 5 %: of the standard deviation for the mean, of the variances for these."""
    std = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.05 * std.min())
    scale = np.outer(std, std)
    np.testing.assert_allclose(np.cov(draws.T) / scale, covariance / scale, atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "weighted"), [(SGLD, True), (SGHMC, False)])
def test_chains_draw_from_the_posterior_of_a_line(sampler, weighted, line):
    X, y, weight = line
    weight = weight if weighted else np.ones(len(y))
    inference = clone(SMALL_STEPS[sampler]).set_params(prior_precision=20.0)
    draws = weights_of_chains(X, y, weight if weighted else None, inference)
    assert_gaussian(draws, *posterior_of_the_line(X, y, weight, prior_precision=20.0))


@pytest.mark.slow
def test_prior_precision_takes_the_place_of_prior_scale(line):
    X, y, _ = line
    inference = clone(SMALL_STEPS[SGHMC]).set_params(prior_precision=20.0, n_chains=50)
    wide, narrow = (
        weights_of_chains(X, y, None, inference, prior_scale=scale) for scale in (1e3, 1e-3)
    )
    np.testing.assert_array_equal(wide, narrow)


# Of a hidden layer of 8 units, tanh, with a prior N(0, 1) on all weights and biases, given 60
# samples of make_moons(noise=0.2, random_state=0): 64 chains of HMC, each 4,000 times 20 leapfrog
# steps of about 0.12 after 500 of burn-in, 74 % of the proposals taken; standard errors below
# 0.001.
POINTS = [
    [0.0, 1.0],
    [1.0, -0.5],
    [0.5, 0.25],
    [-1.0, 0.0],
    [2.0, 0.5],
    [0.5, -0.5],
    [0.0, 0.0],
    [1.0, 0.5],
    [4.0, 3.0],  # far from the samples
]
PROBABILITIES = [0.0681, 0.9418, 0.4855, 0.2457, 0.6272, 0.9415, 0.6949, 0.3206, 0.2617]
ALEATORIC = [0.2231, 0.2008, 0.6455, 0.4712, 0.5869, 0.1988, 0.5537, 0.5717, 0.3543]


def assert_as_hmc(inference, max_epochs, tolerance):
    X, y = make_moons(60, noise=0.2, random_state=0)
    model = BayesianEnsembleClassifier(
        2000,
        inference=inference,
        module__hidden_units=(8,),
        module__activation="tanh",
        normalize=False,
        batch_size=60,
        max_epochs=max_epochs,
        distance_aware=False,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the chains agree
        model.fit(X, y)
    np.testing.assert_allclose(model.predict_proba(POINTS)[:, 1], PROBABILITIES, atol=tolerance)
    aleatoric = model.predict_uncertainty(POINTS).aleatoric
    np.testing.assert_allclose(aleatoric, ALEATORIC, atol=tolerance)


@pytest.mark.slow
def test_sghmc_predicts_two_moons_as_hmc_does():
    assert_as_hmc(SGHMC(0.005, prior_precision=1.0, n_chains=50, burn_in=0.2), 2500, tolerance=0.01)


# ------------------------------------------------------------------------------------------
# Chains
# ------------------------------------------------------------------------------------------


def test_a_chain_without_noise_is_gradient_descent(data):
    X, y = data
    step_size, n_steps = 1e-3, 30
    model = classifier(
        SGLD(step_size, temperature=0.0, prior_precision=2.0, burn_in=0),
        n_members=1,
        batch_size=60,
        max_epochs=n_steps,
        module__hidden_units=(),
    )
    start = clone(model).set_params(inference__step_size=1e-300, max_epochs=1).fit(X, y)
    W, b = (p.detach().numpy()[0] for p in start.module_.parameters())
    for _ in range(n_steps):
        residual = softmax(X @ W + b, axis=1) - np.eye(3)[y]
        W = W - step_size / 2 * (X.T @ residual + 2.0 * W)
        b = b - step_size / 2 * (residual.sum(axis=0) + 2.0 * b)
    expected = softmax(X @ W + b, axis=1)
    np.testing.assert_allclose(model.fit(X, y).predict_proba(X), expected, rtol=1e-10)


@few_draws
@pytest.mark.parametrize("sampler", CHAINS)
def test_members_are_the_kept_states_chain_by_chain(sampler, data):
    X, y = data
    settings = {"temperature": 0.0, "n_chains": 2}  # so that a shorter run is the same run
    model = regressor(sampler(1e-3, burn_in=6, thinning=3, **settings), batch_size=20)
    members = model.fit(X, y).predict_members(X)  # 15 iterations
    assert model.n_members_ == 6
    for draw, n_iterations in enumerate([9, 12, 15]):
        short = regressor(sampler(1e-3, burn_in=0, **settings), batch_size=20, n_members=2)
        short.set_params(max_epochs=n_iterations // 3).fit(X, y)
        last = short.predict_members(X)
        np.testing.assert_allclose(members[:, [draw, 3 + draw]], last, rtol=1e-9)


def test_a_chain_has_its_own_start_and_order_of_rows(data):
    X, y = data
    settings = {"temperature": 0.0, "burn_in": 0}
    many = classifier(SGLD(1e-3, n_chains=3, **settings), n_members=3, batch_size=20).fit(X, y)
    few = classifier(SGLD(1e-3, n_chains=2, **settings), n_members=2, batch_size=20).fit(X, y)
    np.testing.assert_allclose(many.predict_members(X)[:, :2], few.predict_members(X), rtol=1e-9)
    assert (many.predict_members(X).std(axis=1) > 0).all()


@pytest.mark.parametrize(
    ("inference", "params", "message"),
    [
        (
            SGLD(1e-3, n_chains=4),
            {},
            "n_members must be a multiple of inference__n_chains=4, got 6",
        ),
        (SGLD(1e-3, burn_in=8), {}, "n_members=6 is too many.*its 10 iterations 2.*max_epochs"),
        (SGHMC(1e-3, thinning=2), {}, "inference__thinning=2.*Raise max_epochs"),
        (SGLD(1e-3, burn_in=100), {}, "inference__burn_in=100"),
        (SGLD(1e-3), {"warm_start": True}, r"warm_start must be False with inference=SGLD\(...\)"),
        (MCDropout(), {"warm_start": True}, "warm_start must be False with inference=MCDropout"),
    ],
)
@pytest.mark.parametrize("make", MAKERS)
def test_what_does_not_go_together_is_named(make, inference, params, message, data):
    with pytest.raises(ValueError, match=message):
        make(inference, **params).fit(*data)


@few_draws
@pytest.mark.parametrize("make", MAKERS)
def test_a_step_size_that_diverges_is_named_and_finite_states_are_kept(make, data):
    X, y = data
    X = 10 * X
    model = make(
        SGLD(step_size=10.0, n_chains=2, burn_in=0, thinning=1, prior_precision=0.5),
        max_epochs=300,
        n_members=600,
        batch_size=60,
    )
    message = (
        r"inference__step_size=10\.0 is too large: chain\(s\) \[0, 1\] diverged before iteration "
        r"(\d+) of 300, when (\d+) finite states had been kept"
    )
    with pytest.raises(ValueError, match=message) as error:
        model.fit(X, y)
    n_iterations, n_states = map(int, re.search(message, str(error.value)).groups())
    assert 0 < n_states <= 2 * n_iterations < 600
    assert model.n_members_ == n_states
    assert all(p.isfinite().all() for p in model.module_.parameters())
    assert not hasattr(model, "sampler_diagnostics_")


class PressesCtrlC(skorch.callbacks.Callback):
    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == 5:
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_keeps_the_states_so_far(data):
    X, y = data
    model = classifier(SGLD(1e-3), max_epochs=6, batch_size=60, n_members=3)
    with pytest.raises(KeyboardInterrupt):
        model.set_params(callbacks=[PressesCtrlC()]).fit(X, y)
    assert model.n_members_ == 2
    assert model.predict_proba(X).shape == (60, 3)


@few_draws
@pytest.mark.slow
@pytest.mark.parametrize("unit", [1, 16])
@pytest.mark.parametrize("sampler", [SGLD, SGHMC])
def test_a_sampler_without_a_step_size_finds_one(sampler, unit):
    # One of .02 / N leaves the accuracy at .86 after as many iterations where the unit is 16.
    X, y = load_digits(return_X_y=True)
    X = X.astype("f4") / unit
    model = BayesianEnsembleClassifier(8, inference=sampler(), max_epochs=30, random_state=0)
    assert model.fit(X[:600], y[:600]).score(X[600:1200], y[600:1200]) > 0.9
    assert model.sampler_diagnostics_.r_hat.shape == (300, 10)


# ------------------------------------------------------------------------------------------
# Diagnostics
# ------------------------------------------------------------------------------------------


@few_draws
@pytest.mark.parametrize(
    ("make", "n_values"), [(classifier, 3), (regressor, 2)], ids=["classes", "mean and variance"]
)
def test_diagnostics_are_those_of_the_members(make, n_values, data):
    X, y = data
    model = make(SGLD(1e-3, n_chains=3, burn_in=0), n_members=15, max_epochs=10).fit(X, y)
    found = model.sampler_diagnostics_
    assert isinstance(found, SamplerDiagnostics)
    draws = model.predict_members(X).reshape(60, 3, 5, n_values)
    draws = np.moveaxis(draws, 0, 2)  # (n_chains, n_draws, n_rows, n_values)
    np.testing.assert_allclose(found.r_hat, split_r_hat(draws), rtol=1e-6)
    size = effective_sample_size(draws)
    np.testing.assert_allclose(found.effective_sample_size, size, rtol=1e-6)


@pytest.mark.parametrize(("n_chains", "n_draws"), [(1, 20), (4, 5), (10, 10)])
def test_few_draws_exceed_what_is_large_one_time_in_a_hundred(n_chains, n_draws):
    draws = np.random.default_rng(0).normal(size=(n_chains, n_draws, 40_000))
    share = np.mean(split_r_hat(draws) > large_r_hat(n_chains, n_draws))
    assert share == pytest.approx(0.01, abs=4 * (0.01 / 40_000) ** 0.5)


@pytest.mark.slow
def test_twenty_members_that_are_independent_draws_are_not_warned_of(line):
    X, y, _ = line
    model = BayesianEnsembleRegressor(
        20,
        module=LineWithKnownNoise,
        inference=SGHMC(2e-4, friction=0.2, burn_in=150, thinning=50),
        normalize="X",
        batch_size=40,
        max_epochs=1150,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, y)
    assert (model.sampler_diagnostics_.effective_sample_size[:, 0] > 5).all()


# ------------------------------------------------------------------------------------------
# Members by dropout
# ------------------------------------------------------------------------------------------


def linear_pair(in_features, out_features):
    """Two linear layers and nothing between them, so that outputs are linear in the masks."""
    return nn.Sequential(nn.Linear(in_features, 12), nn.Linear(12, out_features))


@pytest.fixture(scope="module")
def dropped(data):
    """An ensemble by dropout, its trained layers and its members' masks."""
    settings = {"max_epochs": 2, "normalize": "y", "random_state": 0}
    model = BayesianEnsembleClassifier(
        1000, module=linear_pair, inference=MCDropout(0.3), **settings
    ).fit(*data)
    W1, b1, W2, b2, masks = (value.numpy() for value in model.module_.state_dict().values())
    for weights in (W1, b1, W2, b2):
        assert (weights == weights[:1]).all(), "members are one network"
    return model, (W1[0].T, b1[0], W2[0].T, b2[0]), masks


@pytest.mark.slow
def test_units_are_dropped_at_the_rate_and_apart_from_each_other(dropped):
    _, _, masks = dropped
    assert np.unique(masks).tolist() == [0.0, pytest.approx(1 / 0.7)]
    share = (masks == 0).mean(axis=0)
    np.testing.assert_allclose(share, 0.3, atol=4 * np.sqrt(0.21 / 1000))
    off_diagonal = np.corrcoef(masks.T) - np.eye(12)
    assert np.abs(off_diagonal).max() < 4 / np.sqrt(1000)


@pytest.mark.slow
def test_members_average_to_the_network_without_dropout(dropped, data):
    model, (W1, b1, W2, b2), _ = dropped
    h = data[0] @ W1 + b1
    contrasts = np.diff(np.log(model.predict_members(data[0])), axis=-1)  # of the logits
    # A unit is kept with probability 0.7 and divided by it, so that its variance is 3/7 h^2.
    variance = 3 / 7 * h**2 @ np.diff(W2, axis=1) ** 2
    expected = h @ np.diff(W2, axis=1) + np.diff(b2)
    errors = (contrasts.mean(axis=1) - expected) / np.sqrt(variance / 1000)
    assert np.abs(errors).max() < 4.5
    np.testing.assert_allclose(contrasts.var(axis=1), variance, rtol=0.2)


@pytest.mark.slow
def test_the_rate_sets_the_epistemic_part(data):
    X, y = data
    little, much = (
        regressor(MCDropout(rate), n_members=50, max_epochs=60).fit(X, y).predict_uncertainty(X)
        for rate in (0.01, 0.3)
    )
    assert 5 * little.epistemic.mean() < much.epistemic.mean()


class OwnDropout(nn.Module):
    """No Sequential; its own rate does not matter."""

    def __init__(self, in_features, out_features, p=0.99):
        super().__init__()
        self.first = nn.Linear(in_features, 16)
        self.drop = nn.Dropout(p)
        self.last = nn.Linear(16, out_features)

    def forward(self, x):
        return self.last(torch.tanh(self.drop(self.first(x))))


def with_own_layer(in_features, out_features):
    """Drops inputs, where no layer would be put."""
    return nn.Sequential(nn.Dropout(), nn.Linear(in_features, 8), nn.Linear(8, out_features))


@pytest.mark.parametrize(("module", "width"), [(OwnDropout, 16), (with_own_layer, 3)])
def test_dropout_layers_of_the_module_are_used(module, width, data):
    X, y = data
    model = BayesianEnsembleClassifier(
        20, module=module, inference=MCDropout(0.2), max_epochs=60, random_state=0
    ).fit(X, y)
    (mask,) = (v for k, v in model.module_.state_dict().items() if k.endswith("dropout_mask"))
    assert mask.shape == (20, width)
    assert mask.unique().tolist() == [0.0, 1.25]
    assert (model.predict_members(X).std(axis=1) > 0).all()
    assert model.score(X, y) > 0.8
