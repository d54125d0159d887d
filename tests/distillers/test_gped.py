# SPDX-License-Identifier: BSD-3-Clause
"""GPED: chains and a student side by side, against Algorithm 1 written out plainly."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from scipy.stats import entropy, spearmanr
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from torch.nn.functional import softplus

from skdistill import BayesianEnsembleClassifier, BayesianEnsembleRegressor
from skdistill.distillers import BDistilBooster, GPEDDistiller
from skdistill.distillers import _gped_chains as _online
from skdistill.distributions import Dirichlet, EmpiricalGaussian, ExpectedCategorical
from skdistill.expectations import DirichletExpectation, EntropyExpectation, Expectation
from skdistill.pruning import GroupLasso
from skdistill.samplers import SGHMC, SGLD
from skdistill.settings import Estimate, Optimizer
from skdistill.transfer import Mixup, TransferOnly, TransferSet

pytestmark = pytest.mark.filterwarnings("ignore:The student takes a step:UserWarning")
few_draws = pytest.mark.filterwarnings(
    "ignore:R-hat is above:sklearn.exceptions.ConvergenceWarning"
)


@pytest.fixture(scope="module")
def moons():
    X, y = make_moons(60, noise=0.2, random_state=0)
    return X, np.array(["left", "right"])[y]


@pytest.fixture(scope="module")
def line():
    x = np.linspace(-2, 2, 80)[:, None]
    noise = np.random.RandomState(0).randn(80) * (0.1 + 0.2 * (x[:, 0] > 0))
    return x, 30 + 10 * (np.sin(2 * x[:, 0]) + noise)


# Samples are taken as they are, so that weights can be held against X.
AS_THEY_ARE = {"random_state": 0, "normalize": "y"}


def chains(cls=BayesianEnsembleClassifier, inference=None, **params):
    inference = inference or SGLD(2e-3, prior_precision=1.0, burn_in=20, thinning=3)
    defaults = {"max_epochs": 50, "module__hidden_units": (6,), **AS_THEY_ARE}
    return cls(inference=inference, **{**defaults, **params})


def student(teacher, **params):
    defaults = {"module__hidden_units": (5,), "lr": 1e-2, "transfer": None, **AS_THEY_ARE}
    return GPEDDistiller(teacher, **{**defaults, **params})


def samples(teacher, X, y, n_members):
    """The same chains' states, as the members of an ensemble."""
    return clone(teacher).set_params(n_members=n_members).fit(X, y)


# --- Algorithm 1 ------------------------------------------------------------------------------


def plain_student(module, X, visits, estimates, lr, beside_chains=False):
    """Descend by plain autograd on what the chains' samples say about all rows.

    `visits` are of shape (n_steps, n_chains, n, K); the weights afterwards are returned.
    """
    X, parameters = torch.tensor(X).unsqueeze(0), list(module.parameters())
    probs, entropies = visits.mean(1), torch.special.entr(visits).sum(-1).mean(1)
    waits = "stochastic" not in estimates and not beside_chains  # for the means over all samples
    for step in range(len(visits)):
        since = [0 if estimate == "online" else step for estimate in estimates]
        end = len(visits) if waits else step + 1
        target, spread = probs[since[0] : end].mean(0), entropies[since[1] : end].mean(0)
        outputs = module(X)[0]
        loss = -(target * outputs[:, :-1].log_softmax(-1)).sum(-1)
        loss = (loss + (softplus(outputs[:, -1]) - spread).abs()).mean()
        for w, slope in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            w.data -= lr * slope
    return parameters


@pytest.mark.parametrize(
    # one step in each of the chains' epochs, or four
    ("estimates", "batch_size", "n_chains", "beside_chains"),
    [
        (("online", "online"), 60, 1, False),
        (("online", "online"), 15, 2, False),
        (("online", "online"), 15, 2, True),
        (("stochastic", "online"), 15, 1, False),
        (("stochastic", "stochastic"), 60, 2, False),
    ],
)
@few_draws
def test_online_distillation_is_algorithm_1(estimates, batch_size, n_chains, beside_chains, moons):
    X, y = moons
    inference = SGLD(2e-3, prior_precision=1.0, burn_in=20, thinning=3, n_chains=n_chains)
    teacher = chains(inference=inference, batch_size=batch_size, max_epochs=80 * batch_size // 60)
    n_steps = (80 - 20) // 3
    ensemble = samples(teacher, X, y, n_steps * n_chains)
    members = torch.tensor(ensemble.predict_members(X)).transpose(0, 1)
    visits = members.unflatten(0, (n_chains, n_steps)).transpose(0, 1)

    params = {"optimizer": Optimizer("SGD", lr_schedule=None, clip_norm=None), "batch_size": 60}
    params |= {"expectations": ("predictive", "entropy"), "module__embeddings": None}
    kinds = dict(zip(params["expectations"], estimates, strict=True))
    params["estimate"] = Estimate(kinds, beside_chains=beside_chains)
    start = student(teacher, **{**params, "lr": 1e-300}).fit(X, y)
    found = student(teacher, **{**params, "lr": 0.2}).fit(X, y, X_monitor=X[:7])
    expected = plain_student(start.module_, X, visits, estimates, 0.2, beside_chains)
    for one, other in zip(found.module_.parameters(), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    if batch_size == 60:  # each iteration is an epoch of the chains
        mean = visits[:, :, :7].mean((0, 1))
        np.testing.assert_allclose(found.monitor_["predictive"], mean, rtol=1e-5)
    last = ensemble.predict_members(X)[:, n_steps - 1 :: n_steps]
    np.testing.assert_allclose(found.teacher_.predict_members(X), last)
    assert len(found.history_) == found.n_epochs_


@pytest.mark.parametrize("cls", [BayesianEnsembleClassifier, BayesianEnsembleRegressor])
@pytest.mark.parametrize("max_epochs", [50, 51])
@few_draws
def test_r_hat_is_that_of_the_chains_predictions(cls, max_epochs, moons, line):
    X, y = moons if cls is BayesianEnsembleClassifier else line
    inference = SGLD(1e-3, prior_precision=1.0, burn_in=20, n_chains=2)
    teacher = chains(cls, inference, batch_size=80, max_epochs=max_epochs)
    found = student(teacher).fit(X, y).teacher_.sampler_diagnostics_
    n_draws = max_epochs - 20  # one of each of the chains' epochs
    ensemble = samples(teacher, X, y, 2 * n_draws)
    np.testing.assert_allclose(found.r_hat, ensemble.sampler_diagnostics_.r_hat, rtol=1e-4)
    assert found.effective_sample_size.shape == found.r_hat.shape
    assert np.isnan(found.effective_sample_size).all()


@few_draws
def test_the_chains_are_asked_about_more_rows_than_the_student_learns_from(moons, monkeypatch):
    X, y = moons
    monkeypatch.setattr(_online.OnlineDistillation, "on_train_end", noting := Noting())
    inference = SGLD(2e-3, prior_precision=1.0, burn_in=0)
    teacher, params = chains(inference=inference, max_epochs=10), {"batch_size": 8}
    fits = [student(teacher, estimate=Estimate(n_asked=n), **params).fit(X, y) for n in (1, 4, 100)]
    assert len({len(fitted.history_) for fitted in fits}) == 1
    n_steps = 10 * 2
    counts = [seen.targets.running.counts for seen in noting.seen]
    # 8 minibatches, one of them of 4 samples: two steps of four, or one of eight, make a pass.
    assert counts[0].sum() == 8 * n_steps - 4 * (n_steps // 8)
    assert (counts[1] == n_steps / 2).all()
    assert (counts[2] == n_steps).all()
    assert len(noting.seen[2].buffer.batches) == 0


class Noting:
    """In the place of a method, notes its object."""

    def __init__(self):
        self.seen = []

    def __get__(self, instance, owner):
        return lambda *args, **kwargs: self.seen.append(instance)


# --- What is learnt ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def taught(moons):
    """A student of a chain of 6,000 iterations, with what the teacher says about all rows."""
    teacher = chains(max_epochs=300, batch_size=15, inference=SGLD(2e-3, burn_in=0.2))
    expectations = ("predictive", "entropy", "variance", Expectation(margin, link="sigmoid"))
    distiller = student(teacher, expectations=expectations, module__hidden_units=(32,))
    return distiller.fit(*moons, X_monitor=moons[0])


def margin(probs):
    first, second = probs.topk(2).values.unbind(-1)
    return first - second


@pytest.mark.slow
def test_the_student_says_what_its_teacher_says(taught, moons):
    X, y = moons
    for name in ("predictive", "entropy", "variance", "margin"):
        error = np.abs(taught.predict_expectation(X, name) - taught.monitor_[name])
        assert error.mean() == pytest.approx(taught.monitor_error_[name])
        assert taught.monitor_error_[name] < 0.05
    assert taught.monitor_["entropy"].mean() > 0.1
    assert taught.score(X, y) > 0.8


@pytest.mark.slow
def test_everything_is_read_off_one_distribution(taught, moons):
    X, _ = moons
    distribution = taught.predict_distribution(X)
    assert isinstance(distribution, ExpectedCategorical)
    proba = taught.predict_proba(X)
    np.testing.assert_allclose(distribution.mean, proba)
    np.testing.assert_allclose(taught.predict_expectation(X, "predictive"), proba)
    np.testing.assert_array_equal(taught.predict(X), taught.classes_[proba.argmax(1)])
    np.testing.assert_allclose(taught.predict_log_proba(X), np.log(proba))
    total, aleatoric, epistemic = taught.predict_uncertainty(X)
    np.testing.assert_allclose(total, -(proba * np.log(proba)).sum(1))
    head = taught.predict_expectation(X, "entropy")
    np.testing.assert_allclose(aleatoric, np.minimum(head, total))
    np.testing.assert_allclose(total, aleatoric + epistemic)
    assert taught.predict_expectation(X, "variance").shape == (60, 2)
    assert taught.predict_expectation(X, "margin").shape == (60,)
    assert set(taught.sample_y(X, 5, random_state=0).ravel()) == {"left", "right"}
    assert not hasattr(taught, "predict_members")


@pytest.fixture(scope="module")
def by_default(moons):
    """A student of a chain of 6,000 iterations that learns what it does by default."""
    teacher = chains(max_epochs=300, batch_size=15, inference=SGLD(2e-3, burn_in=0.2))
    return student(teacher, module__hidden_units=(32,)).fit(*moons, X_monitor=moons[0])


@pytest.mark.slow
def test_a_share_splits_the_entropy_of_the_predictive_distribution(by_default, moons):
    far = np.concatenate([moons[0], 100 * np.random.RandomState(0).randn(200, 2)])
    total, aleatoric, epistemic = by_default.predict_uncertainty(far)
    share = by_default.predict_expectation(far, "share")
    assert (aleatoric >= 0).all()
    assert (epistemic >= 0).all()
    np.testing.assert_allclose(aleatoric + epistemic, total, rtol=1e-6)
    np.testing.assert_allclose(epistemic, share * total, rtol=1e-4, atol=1e-6)
    expected = entropy(by_default.predict_proba(far), axis=1)
    np.testing.assert_allclose(total, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_the_share_is_that_of_the_chains_mutual_information(by_default, taught, moons):
    # The same chain has taught both.
    total = entropy(taught.monitor_["predictive"], axis=1)
    expected = 1 - taught.monitor_["entropy"] / total
    np.testing.assert_allclose(by_default.monitor_["share"], expected, atol=1e-4)
    assert expected.mean() > 0.1
    assert by_default.monitor_error_["share"] < 0.3 * expected.mean()
    epistemic = by_default.predict_uncertainty(moons[0]).epistemic
    assert np.abs(epistemic - expected * total).mean() < 0.3 * (expected * total).mean()
    assert spearmanr(epistemic, expected * total).statistic > 0.7


@pytest.mark.slow
def test_regression_is_in_units_of_y(line):
    X, y = line
    inference, settings = SGLD(1e-3, burn_in=0.2), {"batch_size": 20}
    teacher = chains(BayesianEnsembleRegressor, inference, module__hidden_units=(20,), **settings)
    fits = [
        student(
            clone(teacher).set_params(max_epochs=n_epochs),
            module__hidden_units=(32, 32),
            **settings,
        ).fit(X, a * y, X_monitor=X)
        for a, n_epochs in ((1.0, 250), (1.0, 30), (100.0, 30))
    ]
    mean, std = fits[0].predict(X, return_std=True)
    names = "mean", "aleatoric", "epistemic"
    assert isinstance(fits[0].predict_distribution(X), EmpiricalGaussian)
    for name, a in zip(names, (100.0, 1e4, 1e4), strict=True):
        one, other = (fitted.predict_expectation(X, name) for fitted in fits[1:])
        assert one.shape == (80,)
        np.testing.assert_allclose(other, a * one, rtol=1e-3, atol=1e-6)
    total, aleatoric, epistemic = fits[0].predict_uncertainty(X)
    np.testing.assert_allclose(mean, fits[0].predict_expectation(X, "mean"))
    np.testing.assert_allclose(aleatoric, fits[0].predict_expectation(X, "aleatoric"))
    np.testing.assert_allclose(epistemic, fits[0].predict_expectation(X, "epistemic"))
    np.testing.assert_allclose(std**2, total)
    interval = fits[0].predict_interval(X, 0.9)
    np.testing.assert_allclose(np.diff(interval)[:, 0], 2 * 1.6448536 * std)
    # As the teacher says, which is right.
    teacher_says = fits[0].monitor_
    assert np.abs(mean - teacher_says["mean"]).mean() < 0.1 * y.std()
    for name, part in (("aleatoric", aleatoric), ("epistemic", epistemic)):
        assert np.abs(np.log(part / teacher_says[name])).mean() < 0.4
    assert fits[0].score(X, y) > 0.8


@pytest.mark.parametrize("replayed", [False, True])
@few_draws
def test_an_offset_of_y_leaves_the_epistemic_part(replayed, line):
    X, y = line[0].astype("f4"), line[1] / 10
    found = []
    for offset in (0, 300):
        params = {"max_epochs": 30, "batch_size": 20, "n_members": 8}
        teacher = chains(BayesianEnsembleRegressor, SGLD(1e-4, burn_in=0), **params)
        if replayed:
            teacher = FrozenEstimator(teacher.fit(X, y + offset))
        distiller = student(teacher, normalize="X", max_epochs=2 if replayed else "auto")
        fitted = distiller.fit(X, y + offset, X_monitor=X)
        found.append(fitted.monitor_["epistemic"])
    assert (found[1] > 0).all()
    np.testing.assert_allclose(found[1], found[0], rtol=0.05)


# --- Special cases ----------------------------------------------------------------------------


@pytest.mark.slow
def test_ensemble_distribution_distillation_inside_the_loop(moons):
    X, y = moons
    teacher = chains(max_epochs=300, batch_size=15, inference=SGLD(2e-3, burn_in=0.2))
    end2 = student(teacher, expectations="dirichlet", module__hidden_units=(32,))
    end2.fit(X, y, X_monitor=X)
    distribution = end2.predict_distribution(X)
    assert isinstance(distribution, Dirichlet)
    # The mean log probability of the Dirichlet is that of the members, both tempered by 2.5.
    assert np.abs(end2.predict_proba(X) - samples_mean(end2)).mean() < 0.2
    total, aleatoric, epistemic = end2.predict_uncertainty(X)
    assert (epistemic > 0).all()
    np.testing.assert_allclose(total, aleatoric + epistemic)
    assert end2.score(X, y) > 0.8


def samples_mean(fitted):
    """Probabilities whose logarithms are the monitored ones, the temperature undone."""
    log_probs = 2.5 * fitted.monitor_["dirichlet"]
    return np.exp(log_probs) / np.exp(log_probs).sum(1, keepdims=True)


# --- Pruning ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_pruned_student_is_smaller_and_tuned_on_the_running_means(moons):
    X, y = moons
    teacher = chains(max_epochs=150, batch_size=15, inference=SGLD(2e-3, burn_in=0.2))
    params = {"pruning": GroupLasso(0.3), "module__hidden_units": (60, 60)}
    params["expectations"] = "predictive", "entropy"
    fits = {
        epochs: student(teacher, **params)
        .set_params(pruning__finetune_epochs=epochs)
        .fit(X, y, X_monitor=X)
        for epochs in (0, "auto")
    }
    first, second = (fitted.module_.network[0].weight.shape[-1] for fitted in fits.values())
    assert first == second < 45
    assert fits[0].n_parameters_ < 0.7 * (3 * 60 + 61 * 60 + 61 * 3)
    # 480 steps of a batch of all samples: as many again.
    assert len(fits["auto"].history_) == len(fits[0].history_) + 480
    assert fits["auto"].monitor_error_["entropy"] < fits[0].monitor_error_["entropy"]
    assert fits["auto"].monitor_error_["predictive"] < 0.06


# --- Teachers that are fitted -----------------------------------------------------------------


@pytest.fixture(scope="module")
def ensemble(moons):
    return BayesianEnsembleClassifier(
        5, module__hidden_units=(8,), max_epochs=30, random_state=0
    ).fit(*moons)


@pytest.mark.slow
def test_stored_members_are_replayed(ensemble, moons):
    X, y = moons
    members = ensemble.predict_members(X)
    expected = -(members * np.log(members)).sum(-1).mean(1)
    for estimate in ("online", {"predictive": "stochastic"}):
        fitted = student(
            FrozenEstimator(ensemble),
            expectations=("predictive", "share", "entropy"),
            estimate=estimate,
            max_epochs=400,
            batch_size=20,
            module__hidden_units=(32,),
        ).fit(X, y, X_monitor=X)
        np.testing.assert_allclose(fitted.monitor_["predictive"], members.mean(1), rtol=1e-5)
        np.testing.assert_allclose(fitted.monitor_["entropy"], expected, rtol=1e-5)
        mean = members.mean(1)
        share = 1 + expected / (mean * np.log(mean)).sum(-1)
        np.testing.assert_allclose(fitted.monitor_["share"], share, atol=1e-5)
        assert fitted.monitor_error_["predictive"] < 0.03
        assert fitted.monitor_error_["entropy"] < 0.03


@pytest.mark.parametrize(("loss", "of_members"), [("absolute", np.median), ("squared", np.mean)])
def test_of_single_members_the_loss_of_the_entropy_chooses_median_or_mean(loss, of_members):
    members = np.array([[0.99, 0.01], [0.98, 0.02], [0.5, 0.5]])
    entropy = -(members * np.log(members)).sum(-1)
    X, y = np.ones((60, 1)), np.arange(60) % 2
    model = GPEDDistiller(
        "classifier",
        expectations=("predictive", EntropyExpectation(loss)),
        estimate={"entropy": "stochastic"},
        module__hidden_units=(),
        max_epochs=200,
        **AS_THEY_ARE,
    ).fit(X, y, member_predictions=np.tile(members, (60, 1, 1)))
    found = model.predict_expectation(X[:1], "entropy")
    np.testing.assert_allclose(found, of_members(entropy), atol=0.02)
    np.testing.assert_allclose(model.predict_uncertainty(X[:1]).aleatoric, found)


def test_a_temperature_raises_the_precision_of_the_dirichlet():
    members = np.random.RandomState(0).dirichlet([4.0, 2.0, 2.0], size=(1, 300))
    X, y = np.zeros((60, 1)), np.arange(60) % 3
    precisions = []
    for temperature in (1.0, 2.5):
        learnt = (DirichletExpectation(temperature),)
        settings = {"expectations": learnt, "max_epochs": 200, "module__hidden_units": ()}
        model = student("classifier", **settings, lr=0.05, normalize=False)
        model.fit(X, y, member_predictions=np.tile(members, (60, 1, 1)))
        precisions.append(model.predict_distribution(X[:1]).precision.item())
    assert precisions[0] == pytest.approx(8, rel=0.1)
    assert precisions[1] > 2 * precisions[0]


# --- Data -------------------------------------------------------------------------------------


def test_transfer_rows_count_like_rows_of_x(moons):
    X, y = moons
    teacher, params = chains(inference=SGLD(2e-3)), {"batch_size": 80}
    both = student(teacher, **params).fit(X, y, X_transfer=TransferSet(X[:20] + 1))
    frame = np.concatenate([X, X[:20] + 1])
    only = student(teacher, transfer=TransferOnly(), **params).fit(X, y, X_transfer=frame)
    np.testing.assert_allclose(both.predict_proba(X), only.predict_proba(X))
    without = student(teacher, **params).fit(X, y)
    assert np.abs(both.predict_proba(X) - without.predict_proba(X)).max() > 1e-4


@few_draws
def test_a_thinning_that_starves_the_student_is_warned_of(moons):
    with pytest.warns(UserWarning, match="every 3-th iteration after burn-in, 26 in all"):
        student(chains()).fit(*moons)
    teacher = chains(inference=SGLD(2e-3, burn_in=20))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "The student takes a step")
        student(teacher).fit(*moons)


@few_draws
@pytest.mark.parametrize("only", [False, True])
def test_generated_samples_have_running_means(only, moons, monkeypatch):
    X, y = moons
    monkeypatch.setattr(_online.OnlineDistillation, "on_train_end", noting := Noting())
    inference = SGLD(2e-3, prior_precision=1.0, burn_in=20)
    teacher = chains(inference=inference, batch_size=60, distance_aware=False)
    transfer = Mixup() if not only else TransferOnly(Mixup())
    student(teacher, transfer=transfer, estimate=Estimate(n_asked=100)).fit(X, y)
    (seen,) = noting.seen
    rows = seen.stream.rows.X.numpy()
    # 30 steps ask for 100 minibatches of 60 samples: 3,000 for each of X, 30 of which suffice.
    assert len(rows) == 60 * (_online._MOST_COPIES + (not only))
    generated = rows[-60:]
    assert only or (rows[:60] == X).all()
    assert not (generated == X).all(1).any()
    members = samples(teacher, X, y, 30).predict_members(generated)
    found = seen.targets.of_rows(slice(-60, None))[:, :2]
    np.testing.assert_allclose(found, members.mean(1), rtol=1e-4, atol=1e-6)


# --- What is refused, and what ends a fit -----------------------------------------------------


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"expectations": ("entropy",)}, ValueError, r"must contain \('predictive',\) or"),
        (
            {"expectations": ("predictive", "mode")},
            ValueError,
            "names, for a classifier of .*'mode'",
        ),
        ({"estimate": "last"}, ValueError, "estimate must be one of .*'last'"),
        ({"max_epochs": 3}, ValueError, "max_epochs must be 'auto' beside chains"),
        (
            {"teacher__inference__burn_in": 200},
            ValueError,
            r"burn_in=200 and thinning=3 leave the student none of the chains' 100 iterations",
        ),
        ({"teacher__inference__step_size": 1e3}, ValueError, r"chain\(s\) \[0\] diverged"),
        (
            {"lr": 1e12, "optimizer": Optimizer(clip_norm=None)},
            ValueError,
            "The student's loss became infinite",
        ),
    ],
)
def test_bad_parameters_are_named(params, error, message, moons):
    distiller = student(chains()).set_params(**params)
    with pytest.raises(error, match=message):
        distiller.fit(*moons)


@pytest.mark.parametrize("at", [21, 60])
@pytest.mark.parametrize(("estimate", "epoch_length"), [("stochastic", 20), ("online", 1)])
def test_ctrl_c_keeps_what_the_student_has_learnt(at, estimate, epoch_length, moons, ctrl_c):
    # 40 iterations of burn-in, then 60 student steps, twenty in each of its epochs beside chains.
    X, y = moons
    teacher = chains(inference=SGLD(2e-3, burn_in=40))
    distiller = student(teacher, estimate=estimate, optimizer=ctrl_c, optimizer__at=at)
    with pytest.raises(KeyboardInterrupt):
        distiller.fit(X, y)
    assert sum("train_loss" in row for row in distiller.history_) == (at - 1) // epoch_length
    assert np.isfinite(distiller.predict_proba(X)).all()
    assert hasattr(distiller, "teacher_") == (estimate == "online")  # whose chains have ended


# --- The student's own error ------------------------------------------------------------------


@pytest.mark.parametrize("cls", [GPEDDistiller, BDistilBooster])
def test_intervals_hold_a_constant_that_the_teacher_knows(cls):
    X = np.random.RandomState(0).randn(100, 3)
    y = np.full(100, 7.0)
    fitted = cls(RandomForestRegressor(3), random_state=0, max_epochs=30).fit(X, y)
    low, high = fitted.predict_interval(X, 0.9).T
    assert ((low <= 7) & (high >= 7)).mean() > 0.7
    if cls is GPEDDistiller:  # whose epistemic part has the student's own error
        found = fitted.predict_expectation(X, "epistemic")
        np.testing.assert_allclose(found, fitted.predict_uncertainty(X).epistemic, rtol=1e-6)
    mean, std = fitted.predict(X, return_std=True)
    error = np.sqrt(np.mean((mean - 7) ** 2))
    assert error / 2 < std.mean() < 2 * error + 0.01


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("target", ["constant", "without noise", "with noise"])
def test_a_student_of_few_steps_covers_as_its_chains_do(target, seed):
    rng = np.random.RandomState(seed)
    X = rng.randn(300, 3)
    noise = 0.3 * rng.randn(300) if target == "with noise" else 0.0
    y = np.full(300, 3.7) if target == "constant" else X[:, 0] + X[:, 1] + noise
    chains = BayesianEnsembleRegressor(inference=SGHMC(thinning=5), max_epochs=60)
    student = GPEDDistiller(chains, random_state=seed)
    with pytest.warns(UserWarning, match="may learn little"):
        student.fit(X[:150], y[:150], X_monitor=X[150:])
    low, high = student.predict_interval(X[150:], 0.9).T
    covered = ((low <= y[150:]) & (y[150:] <= high)).mean()
    expected = student.monitor_  # by the chains
    half = 1.645 * np.sqrt(expected["aleatoric"] + expected["epistemic"])
    covered_by_chains = (np.abs(y[150:] - expected["mean"]) <= half).mean()
    assert abs(covered - covered_by_chains) <= 0.05
    error = np.square(student.predict(X[150:]) - expected["mean"]).mean()
    added = student._plan.calibration.variance[0] * float(student.module_.y_scale) ** 2
    assert error / 4 < added < 4 * error
