# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill.distillers._student import AnswersThatDisagree, NetworksThatDisagree
from skdistill.samplers import SGLD, MCDropout
from skdistill.transfer import Disagreement, GaussianNoise

STILL = GaussianNoise(scale=0.0)  # leaves samples as they are
X = torch.from_numpy(np.random.default_rng(0).normal(size=(500, 3)))


class LinearMembers:
    """Two members with means a x and b x: they disagree by ((a - b) x / 2)^2."""

    has_gradient = True

    def __init__(self, difference, has_gradient=True):
        self.difference = torch.as_tensor(difference, dtype=torch.float64)
        self.has_gradient = has_gradient
        self.n_asked = 0

    def of_some(self, generator):
        return self.disagreement

    def disagreement(self, rows):
        self.n_asked += len(rows)
        return (rows.flatten(1) @ self.difference / 2).square()


def drawn(maker, teacher, X=X, seed=0):
    index = torch.arange(len(X))
    return maker.prepare(X, None, teacher)(X, index, torch.Generator().manual_seed(seed))


def test_rows_move_along_the_difference_of_two_linear_members():
    difference = torch.tensor([2.0, -1.0, 0.0], dtype=torch.float64)
    scales = torch.tensor([1.0, 10.0, 1.0], dtype=torch.float64)
    rows = scales * X
    maker = Disagreement(STILL, share=1.0, step_size=0.5)
    moved = drawn(maker, LinearMembers(difference), rows) - rows
    low, high = rows.amin(0), rows.amax(0)
    inside = ((rows + 2 * scales > low) & (rows + 2 * scales < high)).all(1)
    inside &= ((rows - 2 * scales > low) & (rows - 2 * scales < high)).all(1)
    assert inside.sum() > 50
    sd = rows.std(0, correction=0)
    uphill = sd * (rows @ difference).sign().unsqueeze(1) * difference  # of standardised columns
    length = (moved / sd)[inside].square().mean(1).sqrt()
    direction = uphill / uphill.square().mean(1, keepdim=True).sqrt()
    torch.testing.assert_close(moved[inside], (length.unsqueeze(1) * direction[inside]) * sd)
    assert stats.kstest(length.numpy(), stats.uniform(0, 0.5).cdf).pvalue > 0.01


def test_rows_stop_at_the_box():
    new = drawn(Disagreement(STILL, share=1.0, step_size=50.0), LinearMembers([1.0, 1.0, 0.0]))
    low, high = X.amin(0), X.amax(0)
    assert (new >= low).all()
    assert (new <= high).all()
    at_corner = ((new == low) | (new == high))[:, :2].all(1)
    assert at_corner.double().mean() > 0.9
    assert torch.equal(new[:, 2], X[:, 2])  # members do not differ there


def test_several_steps_follow_the_gradient():
    class Bowl(LinearMembers):
        def disagreement(self, rows):
            return -(rows - self.difference).square().sum(1)

    centre = X.mean(0)
    steps = [
        drawn(Disagreement(STILL, 1.0, step_size=2.0, n_steps=n), Bowl(centre)) for n in (1, 9)
    ]
    far, near = ((new - centre).square().sum(1).mean().item() for new in steps)
    assert near < far / 2


@pytest.mark.parametrize("has_gradient", [True, False])
def test_the_candidate_of_the_largest_disagreement_is_kept(has_gradient):
    teacher = LinearMembers([0.0, 3.0, 0.0], has_gradient)
    method = "candidates" if has_gradient else "auto"
    rows = torch.zeros(4000, 3, dtype=torch.float64)
    base = GaussianNoise(share_power=0)
    maker = Disagreement(base, share=1.0, method=method, n_candidates=5)
    index = torch.zeros(len(rows), dtype=torch.long)
    new = maker.prepare(X, None, teacher)(rows, index, torch.Generator().manual_seed(0))
    z = (new / (0.7 * X.std(0, correction=0))).numpy()
    # The largest of five squares of normals; the other columns are not chosen by.
    assert stats.kstest(np.abs(z[:, 1]), lambda a: (2 * stats.norm.cdf(a) - 1) ** 5).pvalue > 0.01
    assert stats.kstest(z[:, 0], "norm").pvalue > 0.01
    assert teacher.n_asked == 5 * len(rows)


@pytest.mark.parametrize("method", ["gradient", "candidates"])
@pytest.mark.parametrize(
    "maker",
    [Disagreement(categorical=[1]), Disagreement(GaussianNoise(categorical=[1]))]
    + [Disagreement(GaussianNoise(), categorical=[False, True, False])],
)
def test_categorical_columns_stay(maker, method):
    maker = maker.set_params(share=1.0, method=method)
    new = drawn(maker, LinearMembers([1.0, 1.0, 1.0]))
    assert torch.equal(new[:, 1], X[:, 1])
    assert (new != X)[:, [0, 2]].all(1).double().mean() > 0.9


@pytest.mark.parametrize("base", ["noise", GaussianNoise, Disagreement(), 0.7])
def test_bad_bases_are_named(base):
    with pytest.raises(TypeError, match=r"^Disagreement: base must be None or a TransferMaker"):
        Disagreement(base).check((4, 3))


def test_a_teacher_is_needed_and_gradients_where_they_are_asked_for():
    with pytest.raises(TypeError, match="teacher must say where its members disagree; got None"):
        Disagreement().prepare(X)
    with pytest.raises(ValueError, match="method must be 'auto' or 'candidates' with a teacher"):
        Disagreement(method="gradient").prepare(X, None, LinearMembers([1.0] * 3, False))


# --- teachers -------------------------------------------------------------------------------

ROWS = X.numpy()[:120].astype(np.float32)
NUMBERS = ROWS @ np.array([[1.0, 0.0], [-2.0, 1.0], [0.5, 3.0]])
CLASSES = (ROWS[:, 0] > 0).astype(int) + (ROWS[:, 1] > 0.5)
SMALL = {
    "n_members": 2,
    "max_epochs": 3,
    "distance_aware": False,
    "module__hidden_units": (8,),
    "random_state": 0,
}


@pytest.mark.parametrize(
    ("ensemble", "y"),
    [
        (BayesianEnsembleRegressor(normalize="X", **SMALL), NUMBERS[:, 0]),
        (BayesianEnsembleRegressor(normalize="X", **SMALL), NUMBERS),
        (BayesianEnsembleClassifier(module__embeddings=None, **SMALL), CLASSES),
    ],
)
def test_networks_disagree_by_the_epistemic_uncertainty(ensemble, y):
    ensemble.fit(ROWS, y)
    rows = torch.from_numpy(ROWS)
    networks = NetworksThatDisagree(ensemble.module_, rows)
    found = networks.of_some(torch.Generator().manual_seed(0))(rows)  # both of two members
    expected = ensemble.predict_uncertainty(ROWS).epistemic.reshape(len(ROWS), -1).sum(1)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-3, atol=1e-7)

    def of_rows(rows):
        return networks.of_some(torch.Generator().manual_seed(0))(rows)

    precise = NetworksThatDisagree(ensemble.module_, rows.double())
    networks = precise
    assert torch.autograd.gradcheck(of_rows, rows[:3].double().requires_grad_())


def student(y, teacher, **params):
    kind = HydraPlusClassifier if y is CLASSES else HydraPlusRegressor
    settings = {"max_epochs": 2, "module__hidden_units": (8,), "random_state": 0}
    return kind(teacher, **{**settings, **params})


TEACHERS = {
    "networks": (BayesianEnsembleClassifier(**SMALL), NetworksThatDisagree),
    "frozen": (FrozenEstimator(BayesianEnsembleClassifier(**SMALL).fit(ROWS, CLASSES)),)
    + (NetworksThatDisagree,),
    "dropout": (BayesianEnsembleClassifier(inference=MCDropout(), **SMALL), NetworksThatDisagree),
    "chains": (BayesianEnsembleClassifier(inference=SGLD(1e-3), **SMALL), NetworksThatDisagree),
    "pipeline": (make_pipeline(StandardScaler(), BayesianEnsembleClassifier(**SMALL)),)
    + (AnswersThatDisagree,),
    "forest": (RandomForestClassifier(3, random_state=0), AnswersThatDisagree),
}


@pytest.mark.parametrize("name", TEACHERS)
def test_any_teacher_with_members_is_asked(name, monkeypatch):
    teacher, expected = TEACHERS[name]
    asked = []

    def prepare(maker, X, weight=None, teacher=None):
        asked.append(type(teacher))
        return original(maker, X, weight, teacher)

    original = Disagreement.prepare
    monkeypatch.setattr(Disagreement, "prepare", prepare)
    with_it = student(CLASSES, teacher, transfer="disagreement").fit(ROWS, CLASSES)
    assert asked == [expected]
    again = student(CLASSES, teacher, transfer="disagreement").fit(ROWS, CLASSES)
    without = student(CLASSES, teacher).fit(ROWS, CLASSES)
    proba = with_it.predict_proba(ROWS)
    assert (proba == again.predict_proba(ROWS)).all()
    assert (proba != without.predict_proba(ROWS)).any()
