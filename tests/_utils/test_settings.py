# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from skdistill import (
    BayesianEnsembleRegressor,
    BDistilBooster,
    HydraPlusRegressor,
)
from skdistill._utils.validation import Settings
from skdistill.samplers import DeepEnsemble
from skdistill.settings import (
    Connection,
    Estimate,
    Heads,
    Optimizer,
    Runtime,
)


class Inner(Settings):
    def __init__(self, scale=1.0, columns=None):
        self.scale = scale
        self.columns = columns


class Outer(Settings):
    def __init__(self, inner=None, rate=0.5):
        self.inner = inner
        self.rate = rate


def test_set_params_reaches_parameters_of_parameters():
    outer = Outer(Inner())
    assert outer.set_params(rate=0.1, inner__scale=3.0) is outer
    assert (outer.rate, outer.inner.scale) == (0.1, 3.0)
    new = Inner(columns=[1])
    outer.set_params(inner__scale=4.0, inner=new)  # the object first, whatever the order
    assert outer.inner is new
    assert new.scale == 4.0


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


def raised(act) -> str:
    """Message of the error that a call raises."""
    with pytest.raises((TypeError, ValueError)) as caught:
        act()
    return str(caught.value)


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


ENSEMBLE = BayesianEnsembleRegressor(2, max_epochs=1)


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
