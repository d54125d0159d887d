# SPDX-License-Identifier: BSD-3-Clause
"""HydraPlusClassifier: its loss, labels of any kind, images, and how faithful it is."""

from __future__ import annotations

import pickle
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator
from torch.autograd import gradcheck

from skdistill import BayesianEnsembleClassifier, HydraPlusClassifier
from skdistill._method.plan import TrainingBudget
from skdistill._method.task import ClassificationTask
from skdistill.modules import ConvNet
from skdistill.samplers import DeepEnsemble
from skdistill.settings import Heads, HydraLoss

# --- The loss ---------------------------------------------------------------------------------

PAIRINGS = [(3, 3), (5, 2), (2, 5), (4, 1)]


def answers_and_outputs(n_members, n_heads, n=7, n_classes=4, seed=0):
    """Random members (N, n, K) and heads (M, n, K), and what the objective makes a loss of."""
    generator = torch.Generator().manual_seed(seed)
    draw = partial(torch.randn, generator=generator, dtype=torch.float64)
    members = draw(n_members, n, n_classes).mul(2).log_softmax(-1)
    heads = draw(n_heads, n, n_classes)
    codes = torch.randint(n_classes, (1, n), generator=generator)
    labelled = (torch.arange(n) % 2).double().unsqueeze(0)
    return SimpleNamespace(
        members=members,
        heads=heads,
        codes=codes[0],
        labelled=labelled[0],
        outputs=heads.unsqueeze(0),
        targets=(members.transpose(0, 1).unsqueeze(0), codes, labelled),
    )


def objective_of(case, epoch=3, **settings):
    """The objective of a student in an epoch, by default the last of four."""
    model = HydraPlusClassifier(loss=HydraLoss(**settings))
    model.set_params(heads=len(case.heads))
    plan = model._plan_of(ClassificationTask(np.arange(4))).of_members(len(case.members))
    objective = plan.objective(None, TrainingBudget(n_epochs=4))
    objective.begin_epoch(epoch)
    return objective


def loss(case, epoch=3, **settings):
    """What the student minimises, for each sample."""
    objective = objective_of(case, epoch, **{"spread_weight": 0.0, **settings})
    return objective(case.outputs, case.targets).squeeze(0)


def softened(log_probs, temperature):
    return (log_probs / temperature).softmax(-1)


def information(probs):
    """Mutual information of members (M, n, K)."""
    probs = probs.numpy()
    mean_entropy = stats.entropy(probs, axis=-1).mean(axis=0)
    return torch.from_numpy(stats.entropy(probs.mean(axis=0), axis=-1) - mean_entropy)


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("settings", [{}, {"member_temperature": 1.0}])
@pytest.mark.parametrize(("n_members", "n_heads"), PAIRINGS)
def test_plain_hydra_is_the_mean_cross_entropy_of_pairs(n_members, n_heads, settings):
    case = answers_and_outputs(n_members, n_heads)
    temperature = settings.get("member_temperature", 4.0)
    n_pairs = max(n_members, n_heads)
    expected = torch.zeros(7, dtype=torch.float64)
    for k in range(n_pairs):  # Eq 7: member n goes to head n mod M
        teacher = softened(case.members[k % n_members], temperature)
        student = softened(case.heads[k % n_heads], temperature)
        expected -= temperature**2 * (teacher * student.log()).sum(-1) / n_pairs
    close(loss(case, member_weight=1, **settings), expected)
    close(loss(case, member_weight=1, aggregate_temperature=7.0, **settings), expected)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize(("n_members", "n_heads"), PAIRINGS)
def test_the_aggregates_are_compared_at_their_own_temperature(n_members, n_heads, temperature):
    case = answers_and_outputs(n_members, n_heads)
    teacher = softened(case.members, temperature).mean(0)
    student = softened(case.heads, temperature).mean(0)
    expected = -(temperature**2) * (teacher * student.log()).sum(-1)  # Eq 5
    close(loss(case, member_weight=0, aggregate_temperature=temperature), expected)
    close(
        loss(case, member_weight=0, aggregate_temperature=temperature, member_temperature=7.0),
        expected,
    )


def test_the_label_term_is_the_cross_entropy_of_labelled_rows():
    case = answers_and_outputs(3, 3)
    log_probs = case.heads.log_softmax(-1)  # at no temperature
    expected = -log_probs[:, torch.arange(7), case.codes].mean(0)  # Eq 3
    close(loss(case, teacher_weight=0), case.labelled * expected)


def test_equation_10_mixes_the_three_terms():
    case = answers_and_outputs(3, 3)
    l1, l2, l3 = (
        loss(case, teacher_weight=0),
        loss(case, member_weight=0),
        loss(case, member_weight=1),
    )
    expected = 0.3 * l1 + 0.7 * (0.6 * l2 + 0.4 * l3)
    close(loss(case, teacher_weight=0.7, member_weight=0.4), expected)
    assert (expected != loss(case)).all()


@pytest.mark.parametrize("epoch", [0, 1, 3])
@pytest.mark.parametrize(("n_members", "n_heads"), PAIRINGS)
def test_spread_matching_by_hand(n_members, n_heads, epoch):
    case = answers_and_outputs(n_members, n_heads)
    added = loss(case, epoch, spread_weight=2.0) - loss(case, epoch)
    teacher, student = information(case.members.exp()), information(case.heads.softmax(-1))
    weight = 2.0 * (epoch + 1) / 4
    expected = weight * ((student + 1e-3).log() - (teacher + 1e-3).log()).square()
    torch.testing.assert_close(added, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"teacher_weight": 0.6, "member_weight": 0.3},
        {"aggregate_temperature": 2.5, "member_temperature": 0.7, "spread_weight": 0.0},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("n_members", "n_heads", "rules_out"), [*((*pair, False) for pair in PAIRINGS), (5, 2, True)]
)
def test_the_gradient_is_that_of_finite_differences(n_members, n_heads, rules_out, settings):
    case = answers_and_outputs(n_members, n_heads)
    if rules_out:  # as trees do
        case.members[torch.rand(case.members.shape, generator=torch.manual_seed(1)) < 0.3] = -np.inf
        case.members[..., 0] = 0.0
        case.members.copy_(case.members.log_softmax(-1))
    objective = objective_of(case, epoch=1, **settings)
    assert gradcheck(lambda z: objective(z, case.targets), case.outputs.clone().requires_grad_())


# --- Fidelity ---------------------------------------------------------------------------------


def draw(n, seed):
    """Samples of three classes that noise mixes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    logits = np.stack([2 * np.sin(2 * X[:, 0]), X[:, 0] * X[:, 1], X[:, 1]], axis=1)
    return X.astype(np.float32), (1.5 * logits + rng.gumbel(size=(n, 3))).argmax(axis=1)


@pytest.fixture(scope="module")
def teacher():
    ensemble = BayesianEnsembleClassifier(
        8,
        max_epochs=50,
        distance_aware=False,
        module__hidden_units=(30,),
        module__embeddings=None,
        random_state=0,
    )
    return FrozenEstimator(ensemble.fit(*draw(250, seed=0)))


def distance(p, q):
    """Total variation between probabilities (..., K), averaged."""
    return np.abs(p - q).sum(axis=-1).mean() / 2


@pytest.mark.slow
def test_heads_learn_the_members_that_are_theirs(teacher):
    X, y = draw(250, seed=0)
    settings = {
        "loss": HydraLoss(member_weight=1.0, spread_weight=0.0),
        "transfer": None,
        "batch_size": 50,
        "lr": 0.01,
    }
    model = HydraPlusClassifier(teacher, max_epochs=300, random_state=0, **settings).fit(X, y)
    members, heads = teacher.predict_members(X), model.predict_members(X)
    assert distance(members, heads) < 0.01
    assert distance(np.roll(members, 1, axis=1), heads) > 0.05


@pytest.mark.slow
def test_spread_matching_makes_the_epistemic_part_faithful(teacher):
    (X, y), (X_test, y_test) = draw(250, seed=0), draw(1000, seed=1)
    truth = teacher.predict_uncertainty(X_test)
    proba = teacher.predict_proba(X_test)
    rank, ratio = {}, {}
    for spread_weight in (0.0, 0.1):
        settings = {"module__hidden_units": (64,), "module__embeddings": None, "ddof": 0}
        settings["loss"] = HydraLoss(spread_weight=spread_weight)
        model = HydraPlusClassifier(teacher, max_epochs=200, random_state=0, **settings).fit(X, y)
        parts = model.predict_uncertainty(X_test)
        rank[spread_weight] = stats.spearmanr(truth.epistemic, parts.epistemic).statistic
        ratio[spread_weight] = np.median(parts.epistemic / truth.epistemic)
        assert distance(model.predict_proba(X_test), proba) < 0.01
        assert np.median(parts.total / truth.total) == pytest.approx(1.0, abs=0.02)
    assert rank[0.0] < rank[0.1] - 0.02
    assert rank[0.1] > 0.95
    assert ratio[0.0] < ratio[0.1] - 0.02
    assert 0.9 < ratio[0.1] < 1.1
    assert model.score(X_test, y_test) == pytest.approx(teacher.score(X_test, y_test), abs=0.01)


# --- Labels -----------------------------------------------------------------------------------


class Shuffled(ClassifierMixin, BaseEstimator):
    """An ensemble whose columns stand in another order than that of the sorted labels."""

    def __init__(self, ensemble=None):
        self.ensemble = ensemble

    def fit(self, X, y):
        self.ensemble_ = clone(self.ensemble).fit(X, y)
        self.classes_ = self.ensemble_.classes_[[2, 0, 1]]
        return self

    def predict_members(self, X):
        return self.ensemble_.predict_members(X)[..., [2, 0, 1]]


@pytest.mark.parametrize("teacher_cv", [None, 3])
def test_classes_of_a_teacher_in_another_order_are_aligned(teacher_cv, classification):
    X, y = classification.data
    ensemble = classification.ensemble(distance_aware=False)  # draws are of columns, not of labels
    sorted_, shuffled = (
        classification.student(teacher, teacher_cv=teacher_cv).fit(X, y)
        for teacher in (ensemble, Shuffled(ensemble))
    )
    np.testing.assert_array_equal(sorted_.classes_, shuffled.classes_)
    np.testing.assert_allclose(shuffled.predict_members(X), sorted_.predict_members(X))


# --- Images -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def images():
    """Bars that stand, lie, or do neither."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=60)
    X = 0.3 * rng.normal(size=(60, 8, 8))
    at = rng.integers(8, size=60)
    X[y == 0, :, at[y == 0]] += 1.5
    X[y == 1, at[y == 1], :] += 1.5
    return X.astype(np.float32), np.array(["standing", "lying", "none"])[y]


NET = {"module": ConvNet, "module__channels": (4,), "module__hidden_units": (12,), "lr": 0.01}


@pytest.fixture(scope="module")
def seer(images):
    plain = DeepEnsemble(bootstrap=False)
    ensemble = BayesianEnsembleClassifier(3, max_epochs=30, random_state=0, inference=plain, **NET)
    return FrozenEstimator(ensemble.fit(*images))


@pytest.mark.slow
def test_a_student_of_images(images, seer):
    X, y = images
    settings = {"heads": Heads(head_layers=3), "max_epochs": 60}
    settings["loss"] = HydraLoss(diversity_weight=0.001)
    model = HydraPlusClassifier(seer, random_state=0, **NET, **settings).fit(X, y)
    weights = model.module_.network.head_weights()
    assert [weight.shape[:2] for weight in weights] == 3 * [(1, 3)]
    assert weights[0].shape == (1, 3, 4, 9)  # filters of 3 by 3, flattened
    assert (model.predict(X) == seer.predict(X)).mean() > 0.8
    assert model.predict_uncertainty(X).epistemic.shape == (60,)
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copied.predict_members(X), model.predict_members(X))
