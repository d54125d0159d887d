# SPDX-License-Identifier: BSD-3-Clause
"""B-DISTIL: the search, the predictions from some of the rounds, and what they cost."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, is_classifier
from sklearn.datasets import load_diabetes, load_digits
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.metrics import accuracy_score, r2_score
from sklearn.neural_network import MLPClassifier
from torch.testing import assert_close

from skdistill import BayesianEnsembleClassifier, BDistilBooster
from skdistill._estimator.batched import chunk_size
from skdistill.distillers import _bdistil_anytime as _anytime
from skdistill.distillers._bdistil_search import Barrier, WeakLearnerObjective
from skdistill.losses import cross_entropy, log_barrier
from skdistill.model_selection import flops
from skdistill.modules import MLP, Booster, Learner, Recurrent, Rounds
from skdistill.samplers import DeepEnsemble
from skdistill.settings import Connection, Optimizer, WeakLearnerSearch

SMALL = {
    "n_rounds": 4,
    "max_epochs": 15,
    "batch_size": 32,
    "module__hidden_units": (16,),
    "search": WeakLearnerSearch(gamma=0.1),
    "random_state": 0,
}


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)
    names = np.array(["d" + str(label) for label in range(10)])
    return X[:600], names[y[:600]], X[600:900], names[y[600:900]]


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return X / X.std(axis=0), y


@pytest.fixture(scope="module")
def teacher(digits):
    """A network, in FrozenEstimator."""
    network = MLPClassifier((40,), max_iter=300, random_state=0)
    return FrozenEstimator(network.fit(*digits[:2]))


@pytest.fixture(scope="module")
def booster(teacher, digits):
    return BDistilBooster(teacher, **SMALL).fit(*digits[:2])


@pytest.fixture(scope="module")
def connected(teacher, digits):
    return BDistilBooster(teacher, connection=Connection(connect="always"), **SMALL).fit(
        *digits[:2]
    )


@pytest.fixture(scope="module")
def regressor(diabetes):
    return BDistilBooster(LinearRegression(), **SMALL).fit(*diabetes)


def logits_of(teacher, X):
    logits = np.log(np.maximum(teacher.predict_proba(X).astype(np.float64), 1e-6))
    return logits - logits.mean(axis=1, keepdims=True)


def said(booster, X):
    """Predictions of each learner, (T, n, L), with nothing of the booster's own methods."""
    network, known, found = booster.module_.network, [], []
    x = booster.module_.encode(torch.tensor(X))
    with torch.no_grad():
        for learner, cost in zip(network.learners, booster.rounds_, strict=True):
            known.append(learner.hidden(x, known[::-1][: cost.n_connections]))
            raw = learner.last(known[-1]).double()
            if is_classifier(booster):
                raw = raw - raw.mean(-1, keepdim=True)
            bound = network.bound.double().clamp_min(1e-30)
            found.append((network.loc + network.bound * torch.tanh(raw / bound)).numpy())
    return np.stack(found)


# The search ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("which", ["booster", "connected"])
def test_every_round_is_a_weak_learner(which, digits, teacher, request):
    """Definition 1, with the literal update of Eqs 4 and 5."""
    booster = request.getfixturevalue(which)
    X, g = digits[0], logits_of(teacher, digits[0])
    K_plus = K_minus = np.full_like(g, 1 / (2 * len(g)))
    assert booster.n_rounds_ == 4
    for outputs, found in zip(said(booster, X), booster.rounds_, strict=True):
        error = outputs - g
        edges = (K_plus * error).sum(axis=0) + (K_minus * -error).sum(axis=0)
        if found.edge is None:
            assert_allclose(edges, 0, atol=1e-9)
        else:
            assert (edges > 0).all()
            assert found.edge == pytest.approx(edges.min(), rel=1e-2, abs=1e-3)
        gain = booster.eta_ * found.weight * error
        K_plus, K_minus = K_plus * np.exp(-gain), K_minus * np.exp(gain)
        total = (K_plus + K_minus).sum(axis=0)
        K_plus, K_minus = K_plus / total, K_minus / total
    assert [found.edge is None for found in booster.rounds_] == [True, False, False, False]


def distances(booster, X, g):
    """Root mean squared difference from g of the mean after each round."""
    outputs, weights = said(booster, X), booster.module_.network.weights.numpy()
    totals = np.cumsum(weights[:, None, None] * outputs, axis=0)
    means = totals / np.cumsum(weights)[:, None, None]
    return np.sqrt(np.square((means - g)[..., : g.shape[-1]]).mean(axis=(1, 2)))


@pytest.mark.slow
@pytest.mark.parametrize(("connect", "gamma"), [("when_needed", 0.3), ("always", 0.03)])
def test_each_round_brings_the_mean_nearer_to_the_teacher(gamma, connect, digits, teacher):
    """With a barrier that is far too heavy, too."""
    params = {
        **SMALL,
        "search": WeakLearnerSearch(gamma=gamma),
        "connection": Connection(connect=connect),
    }
    booster = BDistilBooster(teacher, **params).fit(*digits[:2])
    found = distances(booster, digits[0], logits_of(teacher, digits[0]))
    assert len(found) > 2
    assert (np.diff(found) < 0).all()
    assert_allclose([each.distance for each in booster.rounds_], found, rtol=1e-4)


@pytest.mark.slow
def test_a_literal_search_adds_every_weak_learner_with_weight_one(digits, teacher):
    """Those of c_t = 1, though ours would have less, and the barrier counts signs."""
    params = {**SMALL, "search": WeakLearnerSearch(gamma=0.03, eta=1.0, literal=True)}
    booster = BDistilBooster(teacher, **params).fit(*digits[:2])
    assert [found.weight for found in booster.rounds_] == [1.0] * booster.n_rounds_
    assert booster.n_rounds_ > 1
    assert (booster.eta_ == 1).all()
    assert all(found.edge > 0 for found in booster.rounds_[1:])
    ours = BDistilBooster(teacher, **{**SMALL, "search": WeakLearnerSearch(gamma=0.03, eta=1.0)})
    assert ours.fit(*digits[:2]).rounds_[-1].distance < booster.rounds_[-1].distance
    barrier = Barrier(1.0, is_fixed=True)
    barrier.change(was_too_light=True)
    assert barrier.weight == 1.0


def objective(temperature, barrier_weight=0.5):
    network = Learner(MLP(3, 2, (4,)), (3,))
    loc, bound = torch.tensor([0.5, -0.5]).double(), torch.tensor([2.0, 3.0]).double()
    booster = Booster([network], loc, bound, centred=temperature is not None)
    return WeakLearnerObjective(booster, temperature, barrier_weight), booster


@pytest.mark.parametrize("temperature", [1.0, 3.0, None])
@pytest.mark.parametrize("n_times", [None, 4])
def test_gradient_of_the_objective(temperature, n_times):
    found, booster = objective(temperature)
    raw = torch.randn(*(1,) if n_times is None else (1, n_times), 6, 2).double()
    target = booster.loc + booster.bound * (torch.rand(1, 6, 2) - 0.5).double()
    targets = target, torch.randn(1, 6, 2).double().sign()
    assert found(raw, targets).shape == (1, 6)
    assert torch.autograd.gradcheck(lambda z: found(z, targets), raw.requires_grad_())


def test_objective_is_eq_6():
    found, booster = objective(2.0)
    raw, target = torch.randn(1, 6, 2).double(), torch.rand(1, 6, 2).double()
    signs = torch.randn(1, 6, 2).double().sign()
    outputs = booster.bounded(raw)
    task = 4 * cross_entropy(outputs / 2, torch.softmax(target / 2, -1))
    barrier = log_barrier(outputs - target, signs, booster.bound)
    assert_close(found(raw, (target, signs)), task + 0.5 * barrier)
    over_time = torch.randn(1, 3, 6, 2).double()
    steps = [found(step, (target, 0 * signs)) for step in over_time.unbind(1)]
    assert_close(found(over_time, (target, 0 * signs)), torch.stack(steps).mean(0))


def test_connections_are_searched_after_the_class_without(teacher, digits):
    params = {
        **SMALL,
        "module__hidden_units": (3,),
        "max_epochs": 3,
        "search": WeakLearnerSearch(max_search=1, gamma=1e3),
        "max_time": 1000,
    }
    booster = BDistilBooster(teacher, **params)
    with pytest.warns(ConvergenceWarning, match="No weak learner was found in round 2"):
        booster.fit(*digits[:2])
    assert booster.n_rounds_ == 1
    assert len(list(booster.staged_predict(digits[2]))) == 1


@pytest.mark.parametrize(
    "connection", ["residual", "dense", pytest.param("lstm", marks=pytest.mark.slow)]
)
def test_connections(connection, digits):
    X, y = (part[np.isin(digits[1], ["d0", "d1", "d2"])] for part in digits[:2])
    teacher = HistGradientBoostingClassifier(max_iter=10)
    n_epochs = 60 if connection == "lstm" else 15  # gates learn slowly
    params = {**SMALL, "n_rounds": 3, "max_epochs": n_epochs}
    params["connection"] = Connection(connection, connect="always")
    booster = BDistilBooster(teacher, **params).fit(X, y)
    assert [found.n_connections for found in booster.rounds_] == [0, 1, 1]
    copied = pickle.loads(pickle.dumps(booster))
    assert_array_equal(copied.predict_proba(digits[2]), booster.predict_proba(digits[2]))
    for t, found in enumerate(booster.rounds_):
        products = 64 * 16 + 16 * 3
        n_more = found.n_parameters - products - 16 - 3
        more = {"residual": 0, "dense": t * 16 * 3, "lstm": 12 * 16}
        assert n_more == found.n_connection_parameters == found.n_connections * more[connection]
        assert found.flop == 2 * products + found.connection_flop
        assert connection != "residual" or found.connection_flop == 16 * (t > 0)
    assert booster.n_parameters_ == sum(found.n_parameters for found in booster.rounds_)
    assert flops(booster, X) == sum(found.flop for found in booster.rounds_)


def test_the_barrier_is_bisected():
    barrier = Barrier(1.0)
    weights = []
    for was_too_light in (True, True, False, True, False):
        barrier.change(was_too_light)
        weights.append(barrier.weight)
    assert weights[:2] == [3, 9]
    assert weights[2] == pytest.approx(math.sqrt(3 * 9))
    assert weights[2] < weights[4] < weights[3] < 9
    lighter = Barrier(1.0)
    lighter.change(was_too_light=False)
    assert lighter.weight == pytest.approx(1 / 3)


# Bad input -------------------------------------------------------------------------------------


def test_a_constant_teacher_is_said_in_one_round(digits, diabetes):
    X, y = digits[0], digits[1]
    classifier = BDistilBooster(DummyClassifier(strategy="prior"), **SMALL).fit(X, y)
    assert classifier.n_rounds_ == 1
    assert_allclose(
        classifier.predict_proba(X[:3]), classifier.teacher_.predict_proba(X[:3]), rtol=1e-3
    )
    regressor = BDistilBooster(DummyRegressor(), **SMALL).fit(*diabetes)
    assert regressor.n_rounds_ == 1
    assert_allclose(regressor.predict(diabetes[0][:3]), diabetes[1].mean(), rtol=1e-6)


class NeverTwo(ClassifierMixin, BaseEstimator):
    """Knows three classes, and never gives any probability to the last."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        first = 1 / (1 + np.exp(-np.asarray(X)[:, 0]))
        return np.column_stack([first, 1 - first, np.zeros_like(first)])

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def test_a_first_round_that_diverges_is_an_error(teacher, digits):
    booster = BDistilBooster(teacher, optimizer=Optimizer("SGD", clip_norm=None), **SMALL)
    with pytest.raises(ValueError, match="The first learner's loss became infinite"):
        booster.set_params(lr=1e30).fit(*digits[:2])
    assert not hasattr(booster, "module_")


# Predictions from some of the rounds -----------------------------------------------------------


@pytest.mark.parametrize("which", ["booster", "connected", "regressor"])
def test_stages_are_means_of_the_rounds_so_far(which, digits, diabetes, request):
    booster = request.getfixturevalue(which)
    X, y = (diabetes[0], diabetes[1]) if which == "regressor" else digits[2:]
    outputs = said(booster, X)
    stages = list(booster.staged_predict(X))
    assert len(stages) == booster.n_rounds_
    if which == "regressor":
        scale, loc = (b.numpy() for b in (booster.module_.y_scale, booster.module_.y_loc))
        weights = booster.module_.network.weights.numpy()
        for t, stage in enumerate(stages):
            mean = np.average(outputs[: t + 1, :, 0], axis=0, weights=weights[: t + 1])
            assert_allclose(stage, loc + scale * mean, rtol=1e-6)
        score = r2_score
    else:
        for t, proba in enumerate(booster.staged_predict_proba(X)):
            weights = booster.module_.network.weights.numpy()[: t + 1]
            expected = softmax(np.average(outputs[: t + 1], axis=0, weights=weights), axis=1)
            assert_allclose(proba, expected, rtol=1e-3, atol=1e-5)
            assert_array_equal(stages[t], booster.classes_[proba.argmax(axis=1)])
        score = accuracy_score
    assert_allclose(booster.staged_score(X, y), [score(y, stage) for stage in stages])
    weight = np.arange(len(y))
    weighted = booster.staged_score(X, y, sample_weight=weight)
    assert weighted[-1] == pytest.approx(booster.score(X, y, weight))
    assert_allclose(stages[-1], booster.predict(X)) if which == "regressor" else None


def test_limits_are_rounds(booster, digits):
    X = digits[2]
    stages = list(booster.staged_predict_proba(X))
    flop = np.cumsum([found.flop for found in booster.rounds_])
    for t, stage in enumerate(stages):
        assert_array_equal(booster.predict_proba(X, max_rounds=t + 1), stage)
        assert_array_equal(booster.predict_proba(X, max_flops=flop[t]), stage)
        assert_array_equal(booster.predict_proba(X, max_flops=1.01 * flop[t]), stage)
    found, exits = booster.predict(X, max_rounds=2, return_exits=True)
    assert_array_equal(found, booster.classes_[stages[1].argmax(axis=1)])
    assert exits.rounds.tolist() == [2] * len(X)
    assert exits.shares.tolist() == [0, 1, 0, 0]
    assert exits.flop == flop[1]
    assert_array_equal(booster.predict_proba(X, deadline=1e6), stages[-1])


@pytest.mark.slow
def test_rows_leave_when_they_are_confident(connected, digits):
    X = digits[2]
    stages = np.stack(list(connected.staged_predict_proba(X)))
    is_sure = stages.max(-1) >= 0.9
    is_sure[-1] = True
    first = is_sure.argmax(axis=0)
    proba, exits = connected.predict_proba(X, early_exit=0.9, return_exits=True)
    assert_array_equal(exits.rounds, first + 1)
    assert_allclose(proba, stages[first, np.arange(len(X))], rtol=1e-4, atol=1e-6)
    assert_allclose(exits.shares, np.bincount(first, minlength=4) / len(X))
    flop = np.cumsum([found.flop for found in connected.rounds_])
    assert exits.flop == pytest.approx(flop[first].mean())
    assert 0 < exits.shares[0] < 1
    labels = connected.predict(X, early_exit=0.9)
    assert_array_equal(labels, connected.classes_[proba.argmax(axis=1)])


def test_rows_leave_when_the_rounds_agree(booster, regressor, digits, diabetes):
    outputs = said(booster, digits[2])
    proba = softmax(outputs, axis=-1)

    def entropy(p):
        return -(p * np.log(np.maximum(p, 1e-300))).sum(-1)

    first = np.full(len(digits[2]), 3)
    for t in (2, 1):
        spread = entropy(proba[: t + 1].mean(0)) - entropy(proba[: t + 1]).mean(0)
        first[spread <= 0.1] = t
    _, exits = booster.predict(digits[2], early_exit=0.1, exit_on="spread", return_exits=True)
    assert (exits.rounds == first + 1).mean() > 0.99  # but for rounding at the threshold
    means = np.stack(list(regressor.staged_predict(diabetes[0])))
    _, exits = regressor.predict(diabetes[0], early_exit=30.0, return_exits=True)
    share = regressor.module_.network.weights.numpy()[1]
    share /= 1 + share
    of_rounds = means[0] + (means[1] - means[0]) / share  # what the second learner said
    spread = np.var([means[0], of_rounds], axis=0)
    assert_array_equal(exits.rounds == 2, spread <= 30.0)


def test_anytime_gives_the_stages(booster, digits):
    X = digits[2]
    predictions = booster.anytime(X, method="predict_proba")
    stages = list(booster.staged_predict_proba(X))
    assert_array_equal(predictions.result, stages[0])
    for t, proba in enumerate(predictions):
        assert predictions.n_rounds == t + 1
        assert_array_equal(proba, stages[t])
        assert predictions.result is proba
    assert t == 3
    assert list(booster.anytime(X, max_rounds=2))[-1].tolist() == list(
        booster.predict(X, max_rounds=2)
    )
    with pytest.raises(ValueError, match="method must be one of"):
        booster.anytime(X, method="predict_members")


def test_ctrl_c_keeps_the_rounds_that_are_finished(ctrl_c, teacher, digits):
    params = {
        **SMALL,
        "optimizer": ctrl_c,
        "lr": 0.01,
        "max_epochs": 3,
        "search": WeakLearnerSearch(gamma=0.05),
    }
    n_steps = 3 * math.ceil(600 / 32)
    booster = BDistilBooster(teacher, optimizer__at=n_steps + 2, **params)
    with pytest.raises(KeyboardInterrupt):
        booster.fit(*digits[:2])
    assert booster.n_rounds_ == 1
    assert booster.predict(digits[2]).shape == (300,)
    ctrl_c.steps = 0
    booster = BDistilBooster(teacher, optimizer__at=2, **params)
    with pytest.raises(KeyboardInterrupt):
        booster.fit(*digits[:2])
    assert not hasattr(booster, "module_")


# Series ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def series():
    """Two classes whose channels part company at a time of the sample's own."""
    rng = np.random.default_rng(0)
    X = 0.1 * rng.normal(size=(200, 12, 2)).astype(np.float32)
    y, start = np.arange(200) % 2, rng.integers(1, 9, size=200)
    for row, label, at in zip(X, y, start, strict=True):
        row[at:, label] += 1
    return X, y, start


class ReadsTheSum(NeverTwo):
    """Tells the classes of the series by the difference of their channels' sums."""

    def predict_proba(self, X):
        difference = np.asarray(X).sum(axis=1) @ [-1, 1]
        first = 1 / (1 + np.exp(difference))
        return np.column_stack([first, 1 - first])


@pytest.mark.parametrize("cell", ["lstm", "fastrnn"])
def test_series_are_predicted_early(cell, series):
    X, y, start = series
    booster = BDistilBooster(
        ReadsTheSum(),
        n_rounds=2,
        module=Recurrent,
        module__cell=cell,
        module__hidden_units=(6,),
        early=True,
        connection=Connection(connect="always"),
        search=WeakLearnerSearch(max_search=2, gamma=1.0),
        max_epochs=15,
        lr=0.1 if cell == "fastrnn" else 0.03,
        random_state=0,
    ).fit(X, y)
    assert booster.score(X, y) > 0.9
    labels, steps = booster.predict_early(X, 0.9)
    assert (labels == y).mean() > 0.9
    assert steps.min() >= 1
    assert steps.mean() < 11
    assert np.corrcoef(steps, start)[0, 1] > 0.5
    at_the_end, steps = booster.predict_early(X, 1.0)
    assert steps.max() == 12
    assert_array_equal(at_the_end[steps == 12], booster.predict(X)[steps == 12])
    _, at_once = booster.predict_early(X, 0.0)
    assert (at_once == 1).all()
    copied = pickle.loads(pickle.dumps(booster))
    assert_array_equal(copied.predict_proba(X), booster.predict_proba(X))


@pytest.mark.slow
def test_rows_go_through_the_rounds_in_chunks_that_fit_working_memory(monkeypatch, tally):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    y = np.array(["ash", "elm", "oak"])[np.digitize(X[:, 0] + X[:, 1], [-0.5, 0.5])]
    member = {"max_epochs": 3, "module__hidden_units": (8,), "random_state": 0}
    member["inference"] = DeepEnsemble(bootstrap=False)
    model = BDistilBooster(
        BayesianEnsembleClassifier(2, **member), connection=Connection(connect="always"), **SMALL
    ).fit(X[:200], y[:200])
    sizes: list[int] = []

    class Witness(Rounds):
        def __init__(self, booster, x, **settings):
            sizes.append(len(x))
            super().__init__(booster, x, **settings)

    calls = {
        "early exit": lambda: model.predict(X, early_exit=0.5, return_exits=True)[1].rounds,
        "max rounds": lambda: model.predict(X, max_rounds=2),
        "stages": lambda: np.stack(list(model.staged_predict(X))),
    }
    whole = {name: call() for name, call in calls.items()}
    monkeypatch.setattr(_anytime, "Rounds", Witness)
    with config_context(working_memory=0.05):
        assert 1 < chunk_size(model.module_, (4,)) < 300
        for name, call in calls.items():
            found = call()
            if found.dtype.kind == "f":
                assert_allclose(found, whole[name], rtol=1e-9, atol=1e-12)
            else:
                assert_array_equal(found, whole[name])
            tally("predictions under a small working_memory")
        assert max(sizes) == chunk_size(model.module_, (4,))
    assert model.n_rounds_ > 1
