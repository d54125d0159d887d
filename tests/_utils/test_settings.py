# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV

from skdistill import (
    BayesianEnsembleRegressor,
    BDistilBooster,
    GPEDDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill._utils.settings import Settings
from skdistill.samplers import DeepEnsemble
from skdistill.settings import (
    Checkpoint,
    Connection,
    EarlyStopping,
    Estimate,
    Heads,
    Optimizer,
    Runtime,
)
from skdistill.transfer import Disagreement, GaussianNoise


class Inner(Settings):
    def __init__(self, scale=1.0, columns=None):
        self.scale = scale
        self.columns = columns


class Outer(Settings):
    def __init__(self, inner=None, rate=0.5):
        self.inner = inner
        self.rate = rate


def test_parameters_by_name():
    inner = Inner(scale=2.0)
    outer = Outer(inner)
    assert inner.get_params() == {"scale": 2.0, "columns": None}
    assert outer.get_params(deep=False) == {"inner": inner, "rate": 0.5}
    nested = {"inner__scale": 2.0, "inner__columns": None}
    assert outer.get_params() == {"inner": inner, "rate": 0.5, **nested}


def test_set_params_reaches_parameters_of_parameters():
    outer = Outer(Inner())
    assert outer.set_params(rate=0.1, inner__scale=3.0) is outer
    assert (outer.rate, outer.inner.scale) == (0.1, 3.0)
    new = Inner(columns=[1])
    outer.set_params(inner__scale=4.0, inner=new)  # the object first, whatever the order
    assert outer.inner is new
    assert new.scale == 4.0


@pytest.mark.parametrize("name", ["scales", "scale_", "inner__scale"])
def test_set_params_rejects_names_that_nobody_knows(name):
    with pytest.raises(ValueError, match=r"Invalid parameter .* for estimator Inner\(\).*'scale'"):
        Inner().set_params(**{name: 1.0})


def test_what_has_no_parameters_is_named():
    message = r"inner must be an object with parameters of its own, .* 'inner__scale' .* got None"
    with pytest.raises(ValueError, match=message):
        Outer().set_params(inner__scale=2.0)
    student = HydraPlusClassifier(transfer="disagreement")
    with pytest.raises(ValueError, match=r"transfer must be an object .*; got 'disagreement'"):
        student.set_params(transfer__share=0.3)
    student.set_params(transfer__share=0.3, transfer=Disagreement())
    assert student.transfer.share == 0.3


def test_clone_copies_settings_and_not_their_identity():
    columns = np.array([True, False])
    outer = Outer(Inner(2.0, columns))
    copied = clone(outer)
    assert copied is not outer
    assert copied.inner is not outer.inner
    assert copied.inner.scale == 2.0
    np.testing.assert_array_equal(copied.inner.columns, columns)
    copied.set_params(inner__scale=5.0)
    assert outer.inner.scale == 2.0


def test_repr_shows_what_was_changed():
    assert repr(Inner()) == "Inner()"
    assert repr(Inner(2.0)) == "Inner(scale=2.0)"
    assert (
        repr(Outer(Inner(columns=np.array([1, 2])))) == "Outer(inner=Inner(columns=array([1, 2])))"
    )
    assert repr(pickle.loads(pickle.dumps(Inner(2.0)))) == "Inner(scale=2.0)"


class Estimator(RegressorMixin, BaseEstimator):
    """Predicts its settings' scale."""

    def __init__(self, transfer=None):
        self.transfer = transfer

    def fit(self, X, y):
        self.scale_ = self.transfer.scale
        return self

    def predict(self, X):
        return np.full(len(X), self.scale_)


def test_a_grid_search_reaches_them():
    settings = Inner()
    search = GridSearchCV(
        Estimator(settings), {"transfer__scale": [1.0, 2.0, 3.0]}, scoring="neg_mean_squared_error"
    )
    search.fit(np.zeros((10, 1)), np.full(10, 2.0))
    assert search.best_params_ == {"transfer__scale": 2.0}
    assert settings.scale == 1.0
    assert "transfer=Inner(scale=2.0)" in repr(search.best_estimator_)
    assert "Inner" in search.best_estimator_._repr_html_()


def raised(act) -> str:
    """Message of the error that a call raises."""
    with pytest.raises((TypeError, ValueError)) as caught:
        act()
    return str(caught.value)


def test_settings_of_a_name_are_told_which_object_has_them():
    student, ensemble = HydraPlusClassifier(), BayesianEnsembleRegressor()
    message = raised(lambda: student.set_params(transfer__scale=0.3))
    assert message.endswith(
        "got 'auto'. Give transfer=GaussianNoise(scale=...) or transfer=Munge(scale=...) instead."
    )
    student.set_params(transfer=GaussianNoise(scale=0.3)).set_params(transfer__scale=0.4)
    message = raised(lambda: ensemble.set_params(inference__step_size=0.1))
    assert "inference=SGLD(step_size=...) or inference=SGHMC(step_size=...)" in message
    assert "Give" not in raised(lambda: ensemble.set_params(inference__nonsense=0.1))


X, Y = np.random.default_rng(0).normal(size=(2, 20, 2))


@pytest.mark.parametrize(
    ("params", "meant"),
    [
        ({"max_epoch": 3}, "max_epochs"),
        ({"modul__hidden_units": (3,)}, "module__hidden_units"),
        ({"module__hidden_unit": (3,)}, "module__hidden_units"),
        ({"optimizer__weight_decy": 0.1}, "optimizer__weight_decay"),
        ({"optimizer": "Adm"}, "Adam"),
        ({"inference": "deep_ensembles"}, "deep_ensemble"),
        ({"optimizer": Optimizer(lr_schedule="cosin")}, "cosine"),
        ({"runtime": Runtime(device="cudda")}, "cuda"),
    ],
)
def test_misspelt_parameters_are_asked_about(params, meant):
    message = raised(lambda: BayesianEnsembleRegressor(2, max_epochs=1, **params).fit(X, Y[:, 0]))
    assert f"Did you mean {meant!r}?" in message


def test_misspelt_names_are_asked_about_by_set_params():
    ensemble = BayesianEnsembleRegressor()
    for name, meant in (("max_epoch", "max_epochs"), ("inferenc__rate", "inference__rate")):
        message = raised(lambda name=name: ensemble.set_params(**{name: 3}))
        assert message.startswith(f"Invalid parameter {name!r} for estimator")
        assert message.endswith(f"Did you mean {meant!r}?")
    transfer = HydraPlusRegressor(BayesianEnsembleRegressor(), transfer="nois")
    assert "Did you mean 'noise'?" in raised(lambda: transfer.fit(X, Y[:, 0]))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is such a device")
@pytest.mark.parametrize("model", [BayesianEnsembleRegressor, HydraPlusRegressor])
def test_a_device_that_is_not_there_says_what_to_write(model):
    message = raised(lambda: model(runtime=Runtime(device="cuda")).fit(X, Y[:, 0]))
    assert "device must be one that torch can use here, got 'cuda' (" in message
    assert "Runtime(device='auto')" in message


ENSEMBLE = BayesianEnsembleRegressor(2, max_epochs=1)

MOVED = [
    (BayesianEnsembleRegressor, "device", "Give runtime=Runtime(device=...) instead."),
    (
        BayesianEnsembleRegressor,
        "tol",
        "Give inference=DeepEnsemble(early_stopping=EarlyStopping(tol=...)) instead.",
    ),
    (BayesianEnsembleRegressor, "tune", "Give inference=DeepEnsemble(tune=...) instead."),
    (BayesianEnsembleRegressor, "calibrate", "Give inference=DeepEnsemble(calibrate=...) instead."),
    (
        BayesianEnsembleRegressor,
        "lr_schedule",
        "Give optimizer=Optimizer(lr_schedule=...) instead.",
    ),
    (
        BayesianEnsembleRegressor,
        "optimizer__clip_norm",
        "Give optimizer=Optimizer(clip_norm=...) instead.",
    ),
    (BayesianEnsembleRegressor, "normalize_y", 'Give normalize=True, False, "X" or "y" instead.'),
    (
        HydraPlusRegressor,
        "teacher__n_members",  # an unset parameter, whose objects may be anybody's
        "Give an object that has 'n_members', as teacher=...(n_members=...), instead.",
    ),
    (HydraPlusRegressor, "loss__spread_weigth", "Give loss=HydraLoss(spread_weight=...) instead."),
    (HydraPlusRegressor, "runtime__dtpe", "Give runtime=Runtime(dtype=...) instead."),
    (HydraPlusRegressor, "checkpoint", "Give runtime=Runtime(checkpoint=...) instead."),
    (
        HydraPlusRegressor,
        "checkpoint_every",
        "Give runtime=Runtime(checkpoint=Checkpoint(every=...)) instead.",
    ),
    (HydraPlusRegressor, "group_lasso", "Give pruning=GroupLasso(strength=...) instead."),
    (HydraPlusRegressor, "alpha", "Give loss=HydraLoss(teacher_weight=...) instead."),
    (HydraPlusRegressor, "calibrate", "It is called calibration_fraction now."),
    (HydraPlusRegressor, "n_heads", "It is called heads now."),
    (HydraPlusRegressor, "head_layers", "Give heads=Heads(head_layers=...) instead."),
    (HydraPlusRegressor, "transfer_only", "Give transfer=TransferOnly(...) instead."),
    (HydraPlusRegressor, "weight_decay", "Give optimizer__weight_decay=... instead."),
    (partial(GPEDDistiller, ENSEMBLE), "n_asked", "Give estimate=Estimate(n_asked=...) instead."),
    (
        partial(BDistilBooster, ENSEMBLE),
        "gamma",
        "Give search=WeakLearnerSearch(gamma=...) instead.",
    ),
    (
        partial(BDistilBooster, ENSEMBLE),
        "head_layers",
        "Give connection=Connection(head_layers=...) instead.",
    ),
]


@pytest.mark.parametrize(("kind", "name", "advice"), MOVED)
def test_a_parameter_that_is_part_of_an_object_is_told_which(kind, name, advice):
    for act in (
        lambda: kind(**{name: 1}).fit(X, Y[:, 0]),
        lambda: kind().set_params(**{name: 1}),
    ):
        assert raised(act).endswith(advice)


def test_a_parameter_that_never_has_parameters_is_not_suggested_again():
    message = raised(lambda: BayesianEnsembleRegressor(random_state__x=3).fit(X, Y[:, 0]))
    assert "unknown parameters ['random_state__x']" in message
    assert "Did you mean" not in message


def test_groups_of_parameters_are_checked_by_name():
    teacher = FrozenEstimator(BayesianEnsembleRegressor(2, max_epochs=1).fit(X, Y[:, 0]))
    student = HydraPlusRegressor(teacher, runtime=Runtime(n_threads=0))
    assert "runtime__n_threads must be an integer >= 1" in raised(lambda: student.fit(X, Y[:, 0]))
    student.set_params(runtime=Runtime(member_block=2))
    assert "runtime__member_block must be 'auto'" in raised(lambda: student.fit(X, Y[:, 0]))
    student.set_params(runtime=Runtime)
    assert "runtime must be None, or a Runtime(...)" in raised(lambda: student.fit(X, Y[:, 0]))
    booster = BDistilBooster(teacher, runtime=Runtime(dtype="float32"))
    assert "runtime__dtype must be 'auto'" in raised(lambda: booster.fit(X, Y[:, 0]))


def test_an_object_stands_beside_the_parameters_of_what_it_names():
    """``optimizer__momentum`` is torch's, ``optimizer__clip_norm`` the object's."""
    settings = {"optimizer__momentum": 0.9, "optimizer__clip_norm": 2.0}
    ensemble = BayesianEnsembleRegressor(2, optimizer=Optimizer("SGD"), max_epochs=1)
    ensemble = clone(ensemble.set_params(**settings))
    assert settings.items() <= ensemble.get_params().items()
    assert ensemble.get_params(deep=False).get("optimizer__momentum") == 0.9
    assert repr(ensemble.optimizer) == "Optimizer(kind='SGD', clip_norm=2.0)"
    net = ensemble.fit(X, Y[:, 0]).net_
    assert net.clip_norm == 2.0
    assert net.optimizer_.param_groups[0]["momentum"] == 0.9


def test_a_value_stands_for_the_object_with_it():
    kinds = {"connection": Connection, "heads": Heads, "optimizer": Optimizer, "estimate": Estimate}
    for given in ("x", {"y": 1}, 3):
        assert [repr(kind.of(given)) for kind in kinds.values()] == [
            repr(kind(given)) for kind in kinds.values()
        ]
    students = [
        HydraPlusRegressor(ENSEMBLE, heads=heads, max_epochs=2, random_state=0).fit(X, Y[:, 0])
        for heads in (3, Heads(3))
    ]
    assert np.array_equal(*(student.predict(X) for student in students))
    ensembles = [
        BayesianEnsembleRegressor(2, inference=inference, max_epochs=2, random_state=0)
        for inference in ("deep_ensemble", DeepEnsemble())
    ]
    assert np.array_equal(*(ensemble.fit(X, Y[:, 0]).predict(X) for ensemble in ensembles))


def test_a_parameter_of_an_object_in_an_object_is_searched_for():
    inference = DeepEnsemble(early_stopping=EarlyStopping(validation_fraction=0.3))
    ensemble = BayesianEnsembleRegressor(2, inference=inference, max_epochs=2, random_state=0)
    name = "inference__early_stopping__n_iter_no_change"
    search = GridSearchCV(ensemble, {name: [1, 2]}, cv=2).fit(X, Y[:, 0])
    assert search.best_params_.keys() == {name}
    runtime = Runtime(checkpoint=Checkpoint("somewhere", every=-1))
    assert "runtime__checkpoint__every must be" in raised(
        lambda: ensemble.set_params(runtime=runtime).fit(X, Y[:, 0])
    )
