# SPDX-License-Identifier: BSD-3-Clause
"""Training in closed form is training by autograd, step by step, to rounding."""

from __future__ import annotations

import itertools
import pickle
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.frozen import FrozenEstimator
from skorch import callbacks as skorch_callbacks
from skorch.callbacks import Callback
from torch import nn

from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
from skdistill._engine import _steps
from skdistill._engine._closed_form import ClosedFormGradient, blocks_of
from skdistill._method.plan import Objective
from skdistill.modules import (
    ACTIVATIONS,
    MLP,
    MultiHead,
    ResidualLayer,
    build_member,
    build_members,
    split_head,
    stack,
    unstack,
)
from skdistill.samplers import DeepEnsemble, SGHMCOptimizer, SGLDOptimizer
from skdistill.settings import EarlyStopping, Heads, HydraLoss, Optimizer, Runtime

N, D, BATCH, EPOCHS = 70, 3, 16, 20


@pytest.fixture
def rng():
    return np.random.RandomState(0)


@pytest.fixture
def data(rng):
    X = rng.normal(size=(N, D))
    y = 3 + 2 * np.sin(X[:, 0]) + X[:, 1] * rng.normal(size=N)
    return X, y, rng.uniform(0.2, 3, N)


def ensemble(**kwargs):
    settings = {
        "module__hidden_units": (12, 5),
        "max_epochs": EPOCHS,
        "batch_size": BATCH,
        "runtime": Runtime(device="cpu"),
        "random_state": 0,
    }
    return BayesianEnsembleRegressor(3, **{**settings, **kwargs})


class Keep(Callback):
    """Keeps the net."""

    def on_train_begin(self, net, **kwargs):
        self.net = net


def both_ways(model, monkeypatch, *args, **kwargs):
    """The model fitted in closed form, and by autograd."""
    keep = Keep()
    model.set_params(callbacks=[*(model.callbacks or ()), keep])
    closed = pickle.loads(pickle.dumps(model)).fit(*args, **kwargs)  # callbacks of its own
    net = closed.callbacks[-1].net
    assert net.engine_ == closed.net_.engine_ == "closed_form"
    assert net.steps_.on_flat.gradient.passes  # it did the work
    with monkeypatch.context() as patch:
        patch.setattr(_steps, "flat_gradient_of", lambda net: None)
        eager = pickle.loads(pickle.dumps(model)).fit(*args, **kwargs)
        assert eager.net_.engine_ == "stacked"
    return closed, eager


def assert_same_training(closed, eager, atol=1e-9):
    for name, value in eager.module_.state_dict().items():
        torch.testing.assert_close(closed.module_.state_dict()[name], value, rtol=0, atol=atol)
    for key in ("train_loss", "valid_loss"):
        losses = [[row.get(key, 0.0) for row in model.history_] for model in (closed, eager)]
        np.testing.assert_allclose(*losses, rtol=0, atol=atol)


# --- whole fits -----------------------------------------------------------------------------


SETTINGS = {
    "plain": {},
    "bootstrap": {
        "inference": DeepEnsemble(bootstrap=True),
        "optimizer": Optimizer(clip_norm=0.5),
        "beta": 0.0,
    },
    "early stopping": {
        "inference": DeepEnsemble(early_stopping=EarlyStopping(n_iter_no_change=3)),
        "prior_scale": 0.5,
    },
    "one batch": {"batch_size": 1000, "prior_scale": np.inf},
    "residual": {"module__hidden_units": (6, 6), "module__residual": True},
}
WAYS = itertools.product(SETTINGS, [False, True])


# Every setting with weights and without, of which activations take turns.
@pytest.mark.parametrize(
    ("name", "weighted", "activation"),
    [(*way, activation) for way, activation in zip(WAYS, itertools.cycle(ACTIVATIONS))],
)
def test_an_ensemble_trains_as_by_autograd(name, weighted, activation, data, monkeypatch):
    X, y, weight = data
    model = ensemble(module__activation=activation, **SETTINGS[name])
    closed, eager = both_ways(model, monkeypatch, X, y, weight if weighted else None)
    assert_same_training(closed, eager)
    if hasattr(closed, "best_epochs_"):
        np.testing.assert_array_equal(closed.best_epochs_, eager.best_epochs_)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"heads": 2, "transfer": None, "loss": HydraLoss(teacher_weight=0.5)},
        {"heads": 1, "optimizer": Optimizer(clip_norm=None)},
        {"heads": Heads(head_layers=2), "optimizer__weight_decay": 1e-2},
        {"heads": Heads(head_layers=3), "module__activation": "relu", "batch_size": 1000},
        {"loss": HydraLoss(diversity_weight=(0.5, 2, 10)), "optimizer": Optimizer(clip_norm=0.5)},
        {
            "module__hidden_units": (9, 9),
            "module__residual": True,
            "heads": Heads(head_layers=2),
            "loss": HydraLoss(diversity_weight=0.5),
        },
    ],
)
def test_a_student_trains_as_by_autograd(settings, data, monkeypatch):
    X, y, weight = data
    teacher = FrozenEstimator(ensemble(max_epochs=3).fit(X, y))
    student = HydraPlusRegressor(
        teacher,
        **{"module__hidden_units": (12, 9), "max_epochs": EPOCHS, "batch_size": BATCH} | settings,
        normalize="y",
        runtime=Runtime(device="cpu"),
        random_state=0,
    )
    assert_same_training(*both_ways(student, monkeypatch, X, y, weight))


def test_members_of_two_kinds_train_as_by_autograd(data, monkeypatch):
    X, y, _ = data
    model = ensemble(max_epochs=5).set_params(n_members=20)
    closed, eager = both_ways(model, monkeypatch, X, y)
    assert any(closed.calibration_.are_smooth)
    assert_same_training(closed, eager)


OPTIMIZERS = [
    ("Adam", {"betas": (0.8, 0.99), "eps": 1e-6, "weight_decay": 0.1}),
    ("AdamW", {"weight_decay": 0.1}),
    ("SGD", {}),
    ("SGD", {"momentum": 0.9, "dampening": 0.2, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    (SGLDOptimizer, {"n_rows": 9.0, "temperature": 0.0}),
    (SGHMCOptimizer, {"n_rows": 9.0, "temperature": 0.0}),
]
OTHER_OPTIMIZERS = [
    ("Adam", {"amsgrad": True}),
    ("Adam", {"fused": False}),
    ("SGD", {"maximize": True}),
    ("Adagrad", {}),
    ("RMSprop", {"momentum": 0.5}),
]


@pytest.mark.parametrize(("optimizer", "settings"), OPTIMIZERS + OTHER_OPTIMIZERS)
def test_optimizers_step_as_ever(optimizer, settings, data, monkeypatch):
    X, y, weight = data
    settings = {f"optimizer__{name}": value for name, value in settings.items()}
    model = ensemble(optimizer=optimizer, lr=1e-3, **settings)
    closed, eager = both_ways(model, monkeypatch, X, y, weight)
    assert_same_training(closed, eager)
    states = [m.callbacks[-1].net.optimizer_.state_dict()["state"] for m in (closed, eager)]
    torch.testing.assert_close(*states, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("optimizer", "settings"), OPTIMIZERS)
def test_the_usual_optimizers_take_one_call(optimizer, settings, data, monkeypatch):
    calls = []
    own = _steps.FlatStep._take_state

    def take_state(update):
        own(update)
        calls.append(update.update is not None)

    monkeypatch.setattr(_steps.FlatStep, "_take_state", take_state)
    settings = {f"optimizer__{name}": value for name, value in settings.items()}
    ensemble(optimizer=optimizer, lr=1e-3, max_epochs=3, **settings).fit(*data)
    assert calls == [False, True, True, True]  # the first step is the optimizer's own


# --- between epochs everything is where it always is ------------------------------------------


class Meddle(Callback):
    """Freezes a layer for some epochs, and changes weights and settings in others."""

    def on_epoch_begin(self, net, **kwargs):
        epoch = len(net.history)
        first = next(net.module_.parameters())
        first.requires_grad_(not 3 <= epoch < 6)
        if epoch == 8:
            with torch.no_grad():
                first.mul_(0.5)
        if epoch == 10:
            net.module_.load_state_dict({k: v.clone() for k, v in self.kept_.items()})
            net.optimizer_.load_state_dict(self.optimizer_)
        if epoch == 12:
            net.optimizer_.param_groups[0]["weight_decay"] = 0.3
        if epoch == 14:
            net.optimizer_.zero_grad()

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == 2:
            self.kept_ = {k: v.clone() for k, v in net.module_.state_dict().items()}
            self.optimizer_ = net.optimizer_.state_dict()


def test_callbacks_may_change_anything_between_epochs(data, monkeypatch):
    model = ensemble(callbacks=[Meddle()], optimizer=Optimizer(lr_schedule=None))
    assert_same_training(*both_ways(model, monkeypatch, *data))


def test_schedulers_and_checkpoints_work_without_a_warning(data, monkeypatch, tmp_path):
    X, y, _ = data
    callbacks = [
        skorch_callbacks.LRScheduler("ExponentialLR", gamma=0.9),
        skorch_callbacks.Checkpoint(monitor="train_loss_best", dirname=str(tmp_path)),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        closed, eager = both_ways(
            ensemble(callbacks=callbacks, optimizer=Optimizer(lr_schedule=None)), monkeypatch, X, y
        )
    assert_same_training(closed, eager)
    (group,) = closed.callbacks[-1].net.optimizer_.param_groups
    assert group["lr"] == pytest.approx(0.01 * 0.9**EPOCHS)
    saved = torch.load(tmp_path / "optimizer.pt", weights_only=True)
    moments = [value for state in saved["state"].values() for value in state.values()]
    # No views: fused optimizers would pass them over in silence.
    assert all(value.is_contiguous() for value in moments)
    assert all(value.untyped_storage().nbytes() == value.nbytes for value in moments)


# --- which networks ---------------------------------------------------------------------------


def normalised(in_features, out_features):
    return nn.Sequential(nn.Linear(in_features, 8), nn.LayerNorm(8), nn.Linear(8, out_features))


class Loops(nn.Module):
    """Has control flow that depends on data."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return self.linear(x) if x.sum() < 1e9 else self.linear(-x)


@pytest.mark.parametrize(
    ("settings", "engine"),
    [
        ({}, "closed_form"),
        ({"module__hidden_units": ()}, "closed_form"),
        ({"module__hidden_units": (6, 6), "module__residual": True}, "closed_form"),
        ({"runtime": Runtime(compile=False)}, "closed_form"),
        ({"callbacks": [skorch_callbacks.GradientNormClipping(1.0)]}, "stacked"),
        ({"module": normalised}, "traced"),
        ({"module": Loops}, "loop"),
    ],
)
@pytest.mark.filterwarnings("ignore:Loops cannot be vectorised")
def test_the_net_names_what_computes(settings, engine, data):
    X, y, _ = data
    if "module" in settings:
        settings = {**settings, "module__hidden_units": None}
    model = ensemble(max_epochs=1, **settings)
    if model.module__hidden_units is None:
        del model.module__hidden_units
    assert model.fit(X, y).net_.engine_ == engine


def sequential(*layers):
    return stack([nn.Sequential(*layers) for _ in range(2)])


class MyReLU(nn.ReLU):
    def forward(self, x):
        return x.clamp(0, 6)


@pytest.mark.parametrize(
    ("build", "activations"),
    [
        (lambda: sequential(nn.Linear(3, 2)), [nn.Identity]),
        (lambda: sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), [nn.Tanh, nn.Identity]),
        (lambda: sequential(nn.Linear(3, 4), nn.Linear(4, 2)), [nn.Identity, nn.Identity]),
        (lambda: sequential(nn.Linear(3, 4), nn.Identity(), nn.GELU()), [nn.GELU]),
        (lambda: sequential(ResidualLayer(nn.Linear(3, 3), nn.SiLU())), [nn.SiLU]),
        (lambda: sequential(ResidualLayer(nn.Linear(3, 3), nn.Identity()), nn.ReLU()), []),
        (lambda: sequential(ResidualLayer(nn.Linear(3, 3), nn.Softplus())), []),
        (lambda: sequential(nn.Tanh(), nn.Linear(3, 2)), []),
        (lambda: sequential(nn.Linear(3, 2), nn.Tanh(), nn.ReLU()), []),
        (lambda: sequential(nn.Linear(3, 2), MyReLU()), []),
        (lambda: sequential(nn.Linear(3, 2), nn.Dropout()), []),
        (lambda: nn.Linear(3, 2), []),
    ],
)
def test_layers_that_are_supported(build, activations):
    assert [type(activation) for _, activation, _ in blocks_of(build())] == activations


# --- one gradient -----------------------------------------------------------------------------


class LogCosh(Objective):
    """A loss without a gradient of its own, averaged over heads if there are any."""

    def forward(self, outputs, targets):
        loss = torch.log(torch.cosh(outputs - targets[0])).sum(-1)
        return loss if loss.ndim == 2 else loss.mean(1)


def mlps(hidden_units, activation, n_members=3, out=2, residual=False):
    members = build_members(
        MLP,
        range(n_members),
        in_features=D,
        out_features=out,
        hidden_units=hidden_units,
        activation=activation,
        residual=residual,
    )
    return stack(members).double()


def mixed(*activations):
    widths = {"in_features": D, "out_features": 2, "hidden_units": (9, 5)}
    networks = [build_member(MLP, k, activation=a, **widths) for k, a in enumerate(activations)]
    X, stacked = torch.randn(4, D, generator=torch.Generator().manual_seed(0)), stack(networks)
    for network, outputs, alone in zip(networks, stacked(X), unstack(stacked), strict=True):
        torch.testing.assert_close(outputs, network(X))
        torch.testing.assert_close(alone(X), network(X))
    return stacked.double()


def hydra(head_layers, n_heads=4, n_students=1, hidden_units=(9, 5), residual=False):
    def parts(seeds):
        networks = build_members(
            MLP,
            seeds,
            in_features=D,
            out_features=2,
            hidden_units=hidden_units,
            activation="silu",
            residual=residual,
        )
        return zip(*(split_head(network, head_layers) for network in networks), strict=True)

    cores, _ = parts(range(n_students))
    _, heads = parts(range(n_students * n_heads))
    return MultiHead(stack(cores), stack(heads, lead=(n_students, n_heads))).double()


NETWORKS = [
    pytest.param(lambda: mlps((), "relu"), id="linear"),
    *(pytest.param(lambda name=name: mlps((12, 5), name), id=name) for name in ACTIVATIONS),
    pytest.param(lambda: mlps((4, 20), "tanh", n_members=1, out=1), id="one network"),
    *(  # one layer stored with its units first, the other with its rows
        pytest.param(lambda name=name: mlps((9, 4, 9), name, n_members=1), id=f"{name}, narrow")
        for name in ACTIVATIONS
    ),
    pytest.param(
        lambda: sequential(nn.Linear(D, 9), nn.ReLU(), nn.Linear(9, 2), nn.Tanh()).double(),
        id="last activation",
    ),
    pytest.param(
        lambda: sequential(nn.Linear(D, 9), nn.GELU("tanh"), nn.Linear(9, 2)).double(),
        id="approximate GELU",
    ),
    *(pytest.param(lambda k=k: hydra(k), id=f"{k} head layers") for k in (1, 2, 3)),
    pytest.param(lambda: hydra(1, n_heads=2), id="narrow heads"),
    *(
        pytest.param(
            lambda name=name: mlps((5, 5, 4, 4), name, residual=True), id=f"{name}, residual"
        )
        for name in ACTIVATIONS
    ),
    pytest.param(lambda: mlps((D, 9, 9), "tanh", residual=True), id="residual from the start"),
    pytest.param(
        lambda: sequential(ResidualLayer(nn.Linear(D, D), nn.Tanh())).double(),
        id="residual to the end",
    ),
    *(
        pytest.param(
            lambda k=k, n=n: hydra(k, 4, n, (9, 9, 9), residual=True),
            id=f"{k} residual head layers of {n} students",
        )
        for k, n in [(1, 1), (2, 2), (3, 1)]
    ),
    pytest.param(lambda: hydra(2, n_students=3), id="several students"),
    pytest.param(lambda: mixed("relu", "silu", "silu", "tanh"), id="several activations"),
]


@pytest.mark.parametrize("build", NETWORKS)
@pytest.mark.parametrize("n_rows", [1, 7])
@pytest.mark.parametrize("rows", ["each its own", "shared", "weighted"])
def test_gradient_is_that_of_autograd(build, n_rows, rows):
    module = build()
    n_members = next(module.parameters()).shape[0]
    generator = torch.Generator().manual_seed(0)
    draw = partial(torch.randn, generator=generator, dtype=torch.float64)
    X = draw(1 if rows == "shared" else n_members, n_rows, D)
    y = draw(1)
    weight = draw(n_members, n_rows).exp() if rows == "weighted" else None
    decay = [(p, 0.3) for p in list(module.parameters())[::2]]
    form = ClosedFormGradient(module, LogCosh(), decay)
    form.load()
    for _ in range(2):  # memory that is used again
        outputs, losses = form(X, (y,), weight)
    expected = module(X)
    per_row = LogCosh()(expected, (y,)) * (1 if weight is None else weight)
    penalty = sum(0.5 * d * p.square().sum() for p, d in decay)
    (per_row.mean(-1).sum() + penalty).backward()
    close = {"rtol": 0, "atol": 1e-10}
    torch.testing.assert_close(outputs, expected.detach(), **close)
    torch.testing.assert_close(losses, per_row.detach(), **close)
    for parameter, gradient in zip(form.parameters, form.gradients, strict=True):
        torch.testing.assert_close(gradient, parameter.grad, **close)
