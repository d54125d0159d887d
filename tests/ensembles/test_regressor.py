# SPDX-License-Identifier: BSD-3-Clause
"""BayesianEnsembleRegressor: what it learns, its members, its restarts, and bad input."""

from __future__ import annotations

import numpy as np
import pytest
import skorch
import torch
from scipy import stats
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from skdistill import BayesianEnsembleRegressor
from skdistill.ensembles import _members, _spec
from skdistill.modules import MLP
from skdistill.samplers import DeepEnsemble
from skdistill.settings import EarlyStopping, Optimizer, Runtime

# Seed of networks of which only the widths are looked at; those of members are drawn.
THROW_AWAY = 0


def ensemble(**params):
    settings = {"n_members": 3, "max_epochs": 5, "module__hidden_units": (8,), "random_state": 0}
    return BayesianEnsembleRegressor(**{**settings, **params})


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    return X, X @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=60)


def assert_same_members(first, second, X, **tolerance):
    np.testing.assert_allclose(first.predict_members(X), second.predict_members(X), **tolerance)


# ------------------------------------------------------------------------------------------
# Learning
# ------------------------------------------------------------------------------------------


def mean_of_y(x):
    return 10.0 + 3.0 * np.sin(2.0 * x)


def noise_of_y(x):
    return 0.3 + 0.5 * np.abs(x)


@pytest.fixture(scope="module")
def noisy():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=1000)
    return x[:, None], mean_of_y(x) + noise_of_y(x) * rng.normal(size=len(x))


@pytest.fixture(scope="module")
def learnt(noisy):
    return BayesianEnsembleRegressor(n_members=5, max_epochs=60, batch_size=64, random_state=0).fit(
        *noisy
    )


def test_learns_mean_and_noise(learnt):
    x = np.linspace(-1.8, 1.8, 100)
    mean, _ = learnt.predict(x[:, None], return_std=True)
    noise = learnt.predict_uncertainty(x[:, None]).std().aleatoric
    # As of ten local fits to 100 samples each: sd of the mean noise / 10, of the noise 7 %.
    assert np.abs((mean - mean_of_y(x)) / noise_of_y(x)).mean() < 0.15
    assert np.abs(noise / noise_of_y(x) - 1).mean() < 0.12


def test_intervals_cover_what_they_promise(learnt):
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, size=4000)
    y = mean_of_y(x) + noise_of_y(x) * rng.normal(size=len(x))
    for coverage in (0.5, 0.9):
        lower, upper = learnt.predict_interval(x[:, None], coverage).T
        assert np.mean((lower <= y) & (y <= upper)) == pytest.approx(coverage, abs=0.04)


def test_members_disagree_away_from_the_data(learnt):
    epistemic = learnt.predict_uncertainty([[-6.0], [-1.0], [0.0], [1.0], [6.0]]).std().epistemic
    assert epistemic[[0, 4]].min() > 5 * epistemic[1:4].max()


def test_learns_several_targets_at_once(noisy):
    X, y = noisy
    Y = np.column_stack([y, 1000.0 * X[:, 0], np.full(len(y), 7.0)])
    model = BayesianEnsembleRegressor(n_members=3, max_epochs=60, batch_size=64, random_state=0)
    model.fit(X, Y)
    x = np.linspace(-1.8, 1.8, 100)
    mean = model.predict(x[:, None])
    noise = model.predict_uncertainty(x[:, None]).std().aleatoric
    assert np.abs((mean[:, 0] - mean_of_y(x)) / noise_of_y(x)).mean() < 0.25
    assert np.abs(noise[:, 0] / noise_of_y(x) - 1).mean() < 0.15
    np.testing.assert_allclose(mean[:, 1], 1000.0 * x, atol=60)
    assert noise[:, 1].max() < 100
    np.testing.assert_allclose(mean[:, 2], 7.0, atol=0.1)


def test_the_scale_of_y_does_not_matter(data):
    X, y = data
    small, large = ensemble().fit(X, y), ensemble().fit(X, 1e6 * y - 1e7)
    np.testing.assert_allclose(large.predict(X), 1e6 * small.predict(X) - 1e7, rtol=1e-6)
    np.testing.assert_allclose(
        large.predict_uncertainty(X).total, 1e12 * small.predict_uncertainty(X).total, rtol=1e-6
    )


def test_the_standardisation_is_weighted(data):
    X, y = data
    weight = np.linspace(0.1, 3, len(y))
    model = ensemble().fit(X, y, sample_weight=weight)
    loc = np.average(y, weights=weight)
    assert model.module_.y_loc.item() == pytest.approx(loc)
    scale = np.sqrt(np.average((y - loc) ** 2, weights=weight))
    assert model.module_.y_scale.item() == pytest.approx(scale)


def loss_of_the_first_epoch(X, y, beta):
    """Mean over members of the beta-NLL (Eq 5 of Seitzer et al.) before any step, by hand."""
    still = {"batch_size": 100, "max_epochs": 1, "lr": 1e-12, "prior_scale": np.inf}
    model = ensemble(beta=beta, inference=DeepEnsemble(calibrate=None), **still)
    model.fit(X, y)
    means, variances = np.moveaxis(model.predict_members(X)[:, :, 0], -1, 0)
    likelihood = 0.5 * (np.log(variances) + (y[:, None] - means) ** 2 / variances)
    return (variances**beta * likelihood).mean(), model.history_[0]["train_loss"]


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_the_loss_is_the_beta_nll(beta, data):
    X, y = data
    expected, actual = loss_of_the_first_epoch(X, (y - y.mean()) / y.std(), beta)
    assert actual == pytest.approx(expected, rel=1e-6)


def test_beta_takes_part_in_training_but_not_in_validation(data):
    X, y = data
    likelihood, weighted = (
        ensemble(beta=beta, inference=DeepEnsemble(early_stopping=True), max_epochs=1).fit(X, y)
        for beta in (0.0, 1.0)
    )
    assert likelihood.history_[0]["train_loss"] != weighted.history_[0]["train_loss"]
    assert (likelihood.predict(X) != weighted.predict(X)).all()
    still = {"inference": DeepEnsemble(early_stopping=True), "max_epochs": 1, "lr": 1e-12}
    first, second = (ensemble(beta=beta, **still).fit(X, y) for beta in (0.0, 1.0))
    assert first.history_[0]["valid_loss"] == pytest.approx(second.history_[0]["valid_loss"])


def test_the_prior_shrinks_weights_and_not_biases(data):
    X, y = data
    flat, wide, narrow = (
        ensemble(prior_scale=scale, max_epochs=30).fit(X, y + 10) for scale in (np.inf, 2.5, 0.05)
    )
    norms = [
        sum(w.square().sum().item() for n, w in model.module_.named_parameters() if "weight" in n)
        for model in (narrow, wide, flat)
    ]
    assert norms[0] < 0.2 * norms[1] < norms[1] < norms[2]
    assert narrow.predict(X).mean() == pytest.approx(np.mean(y + 10), abs=0.3)


# ------------------------------------------------------------------------------------------
# Members
# ------------------------------------------------------------------------------------------


def test_members_are_trained_in_blocks_as_they_would_be_together(data, monkeypatch):
    X, y = data
    settings = {
        "n_members": 23,
        "max_epochs": 3,
        "batch_size": 32,
        "runtime": Runtime(device="cpu"),
    }
    together = ensemble(**settings).fit(X, y)
    assert [row["members"] for row in together.history_] == 3 * [list(range(23))]
    monkeypatch.setattr(_spec, "_BLOCK_ACTIVATIONS", 20 * 32 * 8)  # of 20 members
    in_blocks = ensemble(**settings).fit(X, y)
    blocks = [row["members"] for row in in_blocks.history_]
    assert blocks == 3 * [list(range(20))] + 3 * [[20, 21, 22]]
    assert_same_members(in_blocks, together, X, rtol=1e-9)


def test_a_member_does_not_depend_on_the_others(data):
    X, y = data
    many, few = (
        ensemble(n_members=n, inference=DeepEnsemble(calibrate=None)).fit(X, y) for n in (5, 2)
    )
    np.testing.assert_allclose(many.predict_members(X)[:, :2], few.predict_members(X), rtol=1e-9)


# ------------------------------------------------------------------------------------------
# Weights and bootstrap
# ------------------------------------------------------------------------------------------


def rows_of_bootstrap(monkeypatch, X, y, weight=None, n_members=3):
    """Weights that the members give the samples, of shape (n_members, n)."""
    seen = []
    original = _members.weights_of_rows

    def spy(spec, seeds):
        seen.append(original(spec, seeds))
        return seen[-1]

    monkeypatch.setattr(_members, "weights_of_rows", spy)
    model = ensemble(
        n_members=n_members, inference=DeepEnsemble(bootstrap=True, calibrate=None), max_epochs=1
    )
    model.fit(X, y, sample_weight=weight)
    return np.concatenate(seen)


def test_bootstrap_draws_n_rows_for_each_member(data, monkeypatch):
    counts = rows_of_bootstrap(monkeypatch, *data)
    assert counts.shape == (3, 60)
    assert (counts.sum(axis=1) == 60).all()
    assert (counts == counts.round()).all()
    assert len(np.unique(counts, axis=0)) == 3


def test_bootstrap_draws_in_proportion_to_weights(data, monkeypatch):
    X, y = data
    weight = np.tile([1.0, 2.0, 3.0], 20)
    counts = rows_of_bootstrap(monkeypatch, X, y, weight, n_members=200)
    by_weight = counts.reshape(200, 20, 3).sum(axis=(0, 1))
    assert stats.chisquare(by_weight, 200 * 60 * np.array([1, 2, 3]) / 6).pvalue > 1e-3


# ------------------------------------------------------------------------------------------
# Early stopping
# ------------------------------------------------------------------------------------------


class Losses(skorch.callbacks.Callback):
    """Writes down every member's validation loss."""

    def on_train_begin(self, net, **kwargs):
        self.valid = []

    def on_epoch_end(self, net, **kwargs):
        self.valid.append(net.member_losses_["valid"].tolist())


def test_each_member_keeps_its_best_epoch(noisy):
    X, y = noisy[0][:60], noisy[1][:60]
    listener = Losses()
    model = ensemble(
        n_members=4,
        module__hidden_units=(50,),
        inference=DeepEnsemble(
            early_stopping=EarlyStopping(validation_fraction=0.3, n_iter_no_change=5, tol=0.0)
        ),
        max_epochs=200,
        lr=0.05,
        optimizer=Optimizer(lr_schedule=None),
        callbacks=[listener],
    ).fit(X, y)
    losses = np.array(listener.valid)  # (epochs, members)
    assert len(model.history_) == len(losses) < 200
    for member, best in enumerate(model.best_epochs_):
        # A member stops five epochs after its best; what it does later is not its concern.
        own = losses[: best + 5, member]
        assert own.argmin() + 1 == best
        assert (own[best:] >= own[best - 1]).all()
    assert len(losses) == model.best_epochs_.max() + 5
    assert len(set(model.best_epochs_)) > 1


def test_weights_are_those_of_the_best_epoch(data):
    X, y = data
    settings = {"n_members": 1, "lr": 0.3, "optimizer": Optimizer(lr_schedule=None)}
    stopping = EarlyStopping(n_iter_no_change=10)
    stopped = ensemble(
        max_epochs=60, inference=DeepEnsemble(early_stopping=stopping), **settings
    ).fit(X, y)
    (best,) = stopped.best_epochs_
    assert 1 < best < len(stopped.history_)
    until_best = ensemble(
        max_epochs=best, inference=DeepEnsemble(early_stopping=True), **settings
    ).fit(X, y)
    assert_same_members(stopped, until_best, X)


def test_early_stopping_on_one_row_says_what_is_wrong(data):
    X, y = data
    with pytest.raises(ValueError, match="n_samples=1"):
        ensemble(inference=DeepEnsemble(early_stopping=True)).fit(X[:1], y[:1])


# ------------------------------------------------------------------------------------------
# Members that diverge
# ------------------------------------------------------------------------------------------


def faulty(*calls):
    """A function that builds MLPs; those of the given calls, from 0, start as not-a-number.

    Networks that are built only to look at their widths do not count as calls.
    """
    n_calls = 0

    def build(in_features, out_features, generator):
        nonlocal n_calls
        network = MLP(in_features, out_features, (8,), generator=generator)
        if generator.initial_seed() == THROW_AWAY:
            return network
        if n_calls in calls:
            with torch.no_grad():
                network[0].weight.fill_(torch.nan)
        n_calls += 1
        return network

    return build


def ensemble_of(module, **params):
    settings = {"n_members": 4, "module": module, "max_epochs": 5, "random_state": 0}
    # By a calibration each member depends on all of them.
    settings["inference"] = DeepEnsemble(calibrate=None)
    return BayesianEnsembleRegressor(**{**settings, **params})


def test_members_that_diverge_are_restarted_and_named(data):
    X, y = data
    with pytest.warns(ConvergenceWarning, match=r"member\(s\) \[1, 3\].*trained anew") as caught:
        model = ensemble_of(faulty(1, 3)).fit(X, y)
    assert len(caught) == 1
    assert model.n_restarts_.tolist() == [0, 1, 0, 1]
    assert model.n_members_ == 4
    members = model.predict_members(X)
    assert members.shape == (60, 4, 1, 2)
    assert np.isfinite(members).all()
    undisturbed = ensemble_of(faulty()).fit(X, y).predict_members(X)
    np.testing.assert_array_equal(members[:, [0, 2]], undisturbed[:, [0, 2]])
    assert (members[:, [1, 3]] != undisturbed[:, [1, 3]]).all()


@pytest.mark.parametrize("max_restarts", [0, 1])
def test_members_that_always_diverge_are_left_out_with_a_warning(max_restarts, data):
    module = faulty(2, *([4] if max_restarts else []))
    model = ensemble_of(module).set_params(inference__max_restarts=max_restarts)
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(*data)
    assert len(caught) == max_restarts + 1
    assert "member(s) [2]" in str(caught[-1].message)
    assert f"left out after {max_restarts} restarts" in str(caught[-1].message)
    assert model.n_members_ == 3
    assert model.n_restarts_.tolist() == [0, 0, max_restarts, 0]
    assert model.predict_members(data[0]).shape == (60, 3, 1, 2)


def test_an_ensemble_of_which_nothing_is_left_is_an_error(data):
    model = ensemble_of(faulty(*range(100))).set_params(inference__max_restarts=1)
    with (
        pytest.warns(ConvergenceWarning, match=r"\[0, 1, 2, 3\]"),
        pytest.raises(ValueError, match=r"Every member diverged, also after 1 restarts.*0\.01"),
    ):
        model.fit(*data)
    with pytest.raises(NotFittedError):
        model.predict(data[0])


class ExplodesLate(torch.optim.Adam):
    """Throws the second member far off, but not to infinity, at its eighth step."""

    n_steps = 0

    def step(self, closure=None):
        loss = super().step(closure)
        self.n_steps += 1
        if self.n_steps == 8 and len(self.param_groups[0]["params"][0]) == 3:
            with torch.no_grad():
                for parameter in self.param_groups[0]["params"]:
                    parameter[1] = 1e4
        return loss


def test_a_loss_that_explodes_is_noticed(data):
    model = ensemble(
        optimizer=ExplodesLate, batch_size=60, max_epochs=20, runtime=Runtime(device="cpu")
    )
    with pytest.warns(ConvergenceWarning, match=r"member\(s\) \[1\]"):
        model.fit(*data)
    assert model.n_restarts_.tolist() == [0, 1, 0]
    assert model.score(*data) > -1


# ------------------------------------------------------------------------------------------
# Ctrl-C
# ------------------------------------------------------------------------------------------


@pytest.fixture
def interrupted(ctrl_c):
    """Fit a model until Ctrl-C comes in step number `at`."""

    def fit(data, at, **params):
        model = ensemble(
            optimizer=ctrl_c,
            optimizer__at=at,
            batch_size=20,
            runtime=Runtime(device="cpu"),
            **params,
        )
        with pytest.raises(KeyboardInterrupt):
            model.fit(*data)
        return model

    return fit


@pytest.mark.parametrize("early_stopping", [False, True])
def test_ctrl_c_keeps_the_members_as_trained_so_far(early_stopping, data, interrupted):
    model = interrupted(
        data, at=8, inference=DeepEnsemble(early_stopping=early_stopping)
    )  # in the third epoch
    assert model.n_members_ == 3
    assert [("train_loss" in row) for row in model.history_] == [True, True, False]
    assert model.predict(data[0]).shape == (60,)
    if early_stopping:
        assert set(model.best_epochs_) <= {1, 2}


@pytest.mark.parametrize(("at", "n_members"), [(16, 2), (21, 3)])
def test_ctrl_c_keeps_the_blocks_before_it(at, n_members, data, monkeypatch, interrupted):
    monkeypatch.setattr(_spec, "_BLOCK_ACTIVATIONS", 2 * 20 * 8)  # two members, samples, width
    # 15 steps for the first block of two
    model = interrupted(data, at=at)
    assert model.n_members_ == n_members
    assert model.predict_members(data[0]).shape == (60, n_members, 1, 2)
    assert len(model.n_restarts_) == 3


# ------------------------------------------------------------------------------------------
# Unusual and bad input
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, 3.0, -1e6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constant_y(value, dtype, data):
    X = data[0].astype(dtype)
    model = ensemble(max_epochs=100).fit(X, np.full(len(X), value))
    np.testing.assert_allclose(model.predict(X), value, atol=0.1, rtol=1e-6)
    total, aleatoric, epistemic = model.predict_uncertainty(X)
    assert (total > 0).all()
    assert (aleatoric > 0).all()
    assert np.isfinite(epistemic).all()
