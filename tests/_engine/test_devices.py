# SPDX-License-Identifier: BSD-3-Clause
"""What can be held of training on a GPU without one: settings, and steps on tensors without values.

A tensor of the device "meta" has a shape, a dtype and a device. Whoever reads a number off one, for
which a GPU would have to be waited for, and a CUDA graph could not be captured, gets an error; so
does whoever puts it together with a tensor of another device.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_stacks import Spy, data, ensemble
from torch._subclasses.fake_tensor import FakeTensorMode

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill._engine import _net
from skdistill._method.task import dtype_to_compute
from skdistill._training.trainer import optimizer_defaults
from skdistill.families import (
    DirichletFamily,
    GaussianFamily,
    LogitNormalFamily,
    known_families,
)
from skdistill.settings import HydraLoss, Optimizer

META, SECOND = torch.device("meta"), torch.device("cuda:1")

# --- steps without values ------------------------------------------------------------------------

X, NUMBERS = data()
CLASSES = np.digitize(NUMBERS, [2.0, 4.0])
SMALL = {"max_epochs": 1, "module__hidden_units": (4,), "random_state": 0}
REGRESSOR = BayesianEnsembleRegressor(2, **SMALL)
CLASSIFIER = BayesianEnsembleClassifier(2, **SMALL)


def distillers():
    """Every loss of a student, the labels' included."""
    reason = "the nodes of its quadrature are copied to the device in each step"
    for family in known_families("regressor"):
        labelled = DistributionDistiller(REGRESSOR, family=family, supervised_weight=0.5, **SMALL)
        if family in ("gaussian", "latent_factor"):
            yield pytest.param(labelled, marks=pytest.mark.xfail(strict=True, reason=reason))
            yield DistributionDistiller(REGRESSOR, family=family, **SMALL)
        else:
            yield labelled
    yield DistributionDistiller(REGRESSOR, family=GaussianFamily(covariance="full"), **SMALL)
    for family in known_families("classifier"):
        yield DistributionDistiller(CLASSIFIER, family=family, supervised_weight=0.5, **SMALL)
    for loss in ("reverse_kl_reference", "nll"):
        yield DistributionDistiller(CLASSIFIER, family=DirichletFamily(loss=loss), **SMALL)
    yield DistributionDistiller(CLASSIFIER, family=LogitNormalFamily(covariance=2), **SMALL)
    for n_heads in (None, 3):
        yield HydraPlusRegressor(
            REGRESSOR, heads=n_heads, loss=HydraLoss(diversity_weight=0.1), **SMALL
        )
        yield HydraPlusClassifier(
            CLASSIFIER, heads=n_heads, loss=HydraLoss(diversity_weight=0.1), **SMALL
        )
    yield GPEDDistiller(REGRESSOR, **SMALL)
    yield GPEDDistiller(CLASSIFIER, **SMALL)
    yield REGRESSOR
    yield CLASSIFIER


class RowsSpy(Spy):
    def on_train_begin(self, net, X=None, **kwargs):
        self.net, self.rows = net, X


def without_values(tensor):
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=META)


@pytest.mark.filterwarnings("ignore:The student is worse")
@pytest.mark.parametrize("estimator", list(distillers()), ids=lambda e: type(e).__name__)
def test_a_step_waits_for_no_number_and_stays_on_its_device(estimator, monkeypatch):
    spy = RowsSpy()
    estimator.set_params(callbacks=[spy], optimizer=Optimizer(clip_norm=1.0))
    estimator.fit(X, CLASSES if estimator._kind == "classifier" else NUMBERS)
    net, (inputs, (targets, _)) = spy.net, next(iter(spy.rows))
    net.module_.zero_grad()
    monkeypatch.setattr(torch.__future__, "_overwrite_module_params_on_conversion", True)
    with FakeTensorMode():
        for part in (net.module_, net.criterion_):
            part._apply(without_values)
        weight = torch.empty(inputs.shape[:2], dtype=inputs.dtype, device=META)
        net.weight_decay = [(parameter, 0.1) for parameter in net.module_.parameters()]
        batch = without_values(inputs), (tuple(map(without_values, targets)), weight)
        result = net.train_step_single(batch)
    assert result["losses"].device == META
    assert {parameter.grad.device for parameter in net.module_.parameters()} == {META}


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("optimizer", "fused"),
    [(torch.optim.Adam, True), (torch.optim.AdamW, True), (torch.optim.NAdam, None)],
)
def test_a_captured_optimizer_is_fused_and_on_the_device_of_the_net(optimizer, fused):
    settings = optimizer_defaults(optimizer, 0.1, "captured", META)
    assert settings["capturable"] is True
    assert settings["lr"].device == META
    assert settings.get("fused") is fused
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer([parameter], **settings | {"lr": 0.1})  # it takes them together


def test_schedules_of_a_tensor_leave_numbers_in_the_history():
    spy = Spy()
    fitted = ensemble(
        max_epochs=3, callbacks=[spy], optimizer=WithTensor, optimizer__foreach=False
    ).fit(X, NUMBERS)
    rates = [row["event_lr"] for row in fitted.history_]
    assert [type(rate) for rate in rates] == [float] * 3
    assert isinstance(spy.net.optimizer_.param_groups[0]["lr"], torch.Tensor)
    expected = ensemble(max_epochs=3).fit(X, NUMBERS).history_
    np.testing.assert_allclose(rates, [row["event_lr"] for row in expected], rtol=1e-6)


class WithTensor(torch.optim.SGD):
    """Keeps its learning rate in a tensor, as a step that is captured has to."""

    def __init__(self, params, lr, foreach=None):
        super().__init__(params, torch.tensor(lr), foreach=foreach)


def test_streams_and_graphs_are_made_on_the_device_of_the_net(monkeypatch):
    made = []
    monkeypatch.setattr(torch.cuda, "device", lambda device: made.append(device) or Held(made))
    with _net.current_device(SECOND):
        assert made == [SECOND]
    assert made == [SECOND, "left"]
    for device in ("cpu", "cuda", "mps"):  # plain "cuda" is the current device
        with _net.current_device(torch.device(device)):
            pass
    assert made == [SECOND, "left"]


class Held:
    def __init__(self, made):
        self.made = made

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.made.append("left")


def test_training_runs_on_the_device_of_the_net(monkeypatch):
    """The loop, with a device that cannot be had here, is within `current_device`."""
    seen, inside = [], []

    class Device(Held):
        def __enter__(self):
            inside.append(True)

        def __exit__(self, *error):
            inside.pop()

    def device_of(device):
        seen.append(device)
        return Device([])

    class Note(Spy):
        def on_epoch_end(self, net, **kwargs):
            assert inside

    monkeypatch.setattr("skdistill._engine._net.current_device", device_of)
    ensemble(max_epochs=1, callbacks=[Note()]).fit(X, NUMBERS)
    assert seen == [torch.device("cpu")]
    assert not inside


# --- Apple's GPUs --------------------------------------------------------------------------------


def test_mps_computes_in_float32():
    given = "float64", X.shape, lambda: (X.min(0), X.max(0))
    for device in ("mps", torch.device("mps")):
        assert dtype_to_compute("auto", device, *given) == "float32"
        with pytest.raises(ValueError, match=r"dtype must be .*mps.* got 'float64'"):
            dtype_to_compute("float64", device, *given)
    assert dtype_to_compute("auto", "auto", *given) == "float64"
