# SPDX-License-Identifier: BSD-3-Clause
"""The training loop against bare torch loops over single networks, and what surrounds it."""

from __future__ import annotations

import contextlib
import math
import threading
import warnings
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from joblib import Parallel, delayed
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from skorch import callbacks as skorch_callbacks
from skorch.callbacks import Callback
from skorch.utils import noop
from torch import nn
from torch.nn import functional as F

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    DistributionDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill._engine import (
    DistillationRows,
    DivergenceGuard,
    MemberEarlyStopping,
    Rows,
    StackNet,
    TaskPerEpoch,
    _rows,
    suited_threads,
)
from skdistill._engine._callbacks import listens_to_batches
from skdistill._engine._steps import FlatStep, clip_each_member
from skdistill._objective import Objective
from skdistill.modules import MLP, build_member, stack
from skdistill.transfer._noise import add_noise

N, D, BATCH, EPOCHS = 45, 3, 16, 10
LR, PRIOR_SCALE, BETA = 0.02, 2.0, 0.5

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


def data(dtype=np.float64, n=N, seed=0):
    rng = np.random.RandomState(seed)
    X = rng.normal(size=(n, D))
    y = 3 + 2 * np.sin(X[:, 0]) + X[:, 1] * rng.normal(size=n)
    return X.astype(dtype), y.astype(dtype)


def ensemble(n_members=3, **kwargs):
    settings = {
        "module__hidden_units": (6,),
        "module__activation": "tanh",
        "prior_scale": PRIOR_SCALE,
        "beta": BETA,
        "lr": LR,
        "max_epochs": EPOCHS,
        "batch_size": BATCH,
        "device": "cpu",
        "random_state": 0,
    }
    return BayesianEnsembleRegressor(n_members, **{**settings, **kwargs})


def batch_normalised(in_features, out_features):
    return nn.Sequential(
        nn.Linear(in_features, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, out_features)
    )


def parameters_of(fitted):
    return [p.detach().clone() for p in fitted.module_.parameters()]


def assert_same_weights(first, second, **tolerance):
    for a, b in zip(parameters_of(first), parameters_of(second), strict=True):
        torch.testing.assert_close(a, b, **{"rtol": 0.0, "atol": 0.0, **tolerance})


class Spy(Callback):
    """Keeps the net, the weights that training began with and the rows it was given."""

    def on_train_begin(self, net, X=None, **kwargs):
        self.net = net
        self.start = [p.detach().clone() for p in net.module_.parameters()]
        self.order_seeds = [generator.initial_seed() for generator in X.generators]
        self.row_weight = X.weight


# --- a stack is its members -----------------------------------------------------------------


class PlainNet(nn.Module):
    """One member as anybody would write it."""

    def __init__(self, start, m):
        super().__init__()
        self.hidden, self.out = nn.Linear(D, 6), nn.Linear(6, 2)
        self.to(start[0].dtype)
        with torch.no_grad():
            layers = (self.hidden, self.out)
            for layer, weight, bias in zip(layers, start[::2], start[1::2], strict=True):
                layer.weight.copy_(weight[m].t())
                layer.bias.copy_(bias[m, 0])

    def forward(self, x):
        return self.out(torch.tanh(self.hidden(x)))


def trained_alone(spy, m, X, y, weight, n_rows, batch_size=BATCH):
    """Train member m by itself, in a bare loop."""
    net = PlainNet(spy.start, m)
    optimizer = torch.optim.Adam(net.parameters(), lr=LR)
    order = torch.Generator().manual_seed(spy.order_seeds[m])
    weight = weight / weight.mean()
    for epoch in range(EPOCHS):
        optimizer.param_groups[0]["lr"] = LR * (1 + math.cos(math.pi * epoch / EPOCHS)) / 2
        permutation = torch.randperm(len(X), generator=order)
        for rows in permutation.split(batch_size):
            mean, raw = net(X[rows]).T
            variance = F.softplus(raw) + 1e-6
            nll = 0.5 * (variance.log() + (y[rows] - mean) ** 2 / variance)
            loss = (weight[rows] * variance.detach() ** BETA * nll).mean()
            for layer in (net.hidden, net.out):
                precision = layer.in_features / PRIOR_SCALE**2
                loss = loss + 0.5 * precision / n_rows * layer.weight.square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-9), (np.float32, 1e-5)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bootstrap", [False, True])
def test_a_stack_trains_as_its_members_do_alone(dtype, tolerance, weighted, bootstrap):
    X, y = data(dtype)
    sample_weight = np.random.RandomState(1).uniform(0.2, 3, N).astype(dtype) if weighted else None
    spy = Spy()
    fitted = ensemble(bootstrap=bootstrap, callbacks=[spy]).fit(X, y, sample_weight)

    weight = np.ones(N, dtype) if sample_weight is None else sample_weight
    loc = np.average(y, weights=weight)
    scale = np.sqrt(np.average((y - loc) ** 2, weights=weight))
    X_tensor, y_tensor = torch.tensor(X), torch.tensor(((y - loc) / scale).astype(dtype))
    members = fitted.predict_members(X)
    assert members.dtype == dtype
    for m in range(3):
        own = torch.tensor(weight)
        if bootstrap:
            own = spy.row_weight[m] * (N / spy.row_weight[m].sum())
            assert_allclose(own, own.round(), atol=1e-5)  # how often each row was drawn
            assert own.sum().item() == pytest.approx(N)
        alone = trained_alone(spy, m, X_tensor, y_tensor, own, n_rows=weight.sum())
        with torch.no_grad():
            mean, raw = alone(X_tensor).T
        stacked = [p[m] for p in parameters_of(fitted)]
        for layer, W, b in zip((alone.hidden, alone.out), stacked[::2], stacked[1::2], strict=True):
            assert_allclose(W.T, layer.weight.detach(), rtol=0, atol=tolerance)
            assert_allclose(b[0], layer.bias.detach(), rtol=0, atol=tolerance)
        variance = F.softplus(raw) + 1e-6
        assert_allclose((members[:, m, 0, 0] - loc) / scale, mean, atol=2 * tolerance)
        assert_allclose(members[:, m, 0, 1] / scale**2, variance, atol=2 * tolerance)


def test_members_that_share_all_rows_train_as_alone_too():
    X, y = data()
    spy = Spy()
    fitted = ensemble(batch_size=1000, callbacks=[spy]).fit(X, y)
    standardised = torch.tensor((y - y.mean()) / y.std())
    for m in range(3):
        alone = trained_alone(
            spy, m, torch.tensor(X), standardised, torch.ones(N, dtype=torch.float64), N, N
        )
        W, b, *_ = (p[m] for p in parameters_of(fitted))
        assert_allclose(W.T, alone.hidden.weight.detach(), atol=1e-9)
        assert_allclose(b[0], alone.hidden.bias.detach(), atol=1e-9)


def test_bootstrap_samples_differ_and_follow_the_weights():
    X, y = data(n=400)
    weight = np.repeat([1.0, 3.0], 200)
    spy = Spy()
    ensemble(bootstrap=True, max_epochs=1, callbacks=[spy]).fit(X, y, weight)
    counts = spy.row_weight.numpy()
    assert not np.array_equal(counts[0], counts[1])
    assert_allclose(counts[:, 200:].sum(1) / counts.sum(1), 0.75, atol=0.08)  # 3.5 sd


def test_blocks_of_members_train_as_one_stack(monkeypatch):
    X, y = data()
    whole = ensemble(n_members=5).fit(X, y)
    monkeypatch.setattr(BayesianEnsembleRegressor, "_block_size", lambda self, n_rows: 2)
    assert_same_weights(ensemble(n_members=5).fit(X, y), whole, atol=1e-10)


# --- callbacks ------------------------------------------------------------------------------


class BatchCounter(Callback):
    def __init__(self):
        self.training = self.validation = 0

    def on_batch_end(self, net, training=None, **kwargs):
        self.training += training
        self.validation += not training


@pytest.mark.parametrize("early_stopping", [False, True])
def test_a_callback_that_listens_to_batches_hears_each_and_changes_nothing(early_stopping):
    X, y = data()
    counter = BatchCounter()
    heard = ensemble(callbacks=[counter], early_stopping=early_stopping).fit(X, y)
    assert_same_weights(heard, ensemble(early_stopping=early_stopping).fit(X, y), atol=1e-9)
    n_train = N - math.ceil(0.1 * N) if early_stopping else N
    assert counter.training == EPOCHS * math.ceil(n_train / BATCH)
    assert counter.validation == (EPOCHS if early_stopping else 0)
    heard_per_epoch = (counter.training + counter.validation) / EPOCHS
    assert [len(row["batches"]) for row in heard.history_] == [heard_per_epoch] * EPOCHS


@pytest.mark.parametrize(
    "callback",
    [
        pytest.param(lambda: skorch_callbacks.GradientNormClipping(1e9), id="clipping"),
        pytest.param(Spy, id="epochs only"),
    ],
)
def test_callbacks_that_do_nothing_change_nothing(callback):
    X, y = data()
    plain = ensemble().fit(X, y)
    heard = ensemble(callbacks=[callback()]).fit(X, y)
    assert_same_weights(heard, plain, atol=1e-9)
    losses = [[row["train_loss"] for row in model.history_] for model in (heard, plain)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-9)


def test_gradient_clipping_by_skorch_takes_effect():
    X, y = data()
    clipped = ensemble(callbacks=[skorch_callbacks.GradientNormClipping(1e-12)], optimizer="SGD")
    spy = Spy()
    clipped.set_params(callbacks=[*clipped.callbacks, spy], prior_scale=np.inf).fit(X, y)
    for before, after in zip(spy.start, parameters_of(clipped), strict=True):
        assert_allclose(after, before, atol=1e-9)


@pytest.mark.parametrize(
    ("callback", "listens"),
    [
        (skorch_callbacks.EpochTimer(), False),
        (skorch_callbacks.PrintLog(), False),
        (skorch_callbacks.EarlyStopping(), False),
        (skorch_callbacks.Checkpoint(), False),
        (skorch_callbacks.LRScheduler("StepLR", step_size=1), False),
        (skorch_callbacks.LRScheduler("StepLR", step_size=1, step_every="batch"), True),
        (skorch_callbacks.GradientNormClipping(1.0), True),
        (skorch_callbacks.ProgressBar(), True),
        (BatchCounter(), True),
        (DivergenceGuard(), False),
        (MemberEarlyStopping(1, 0.0), False),
    ],
)
def test_who_listens_to_batches(callback, listens):
    assert listens_to_batches(callback) is listens


def test_history_holds_losses_durations_and_learning_rates():
    X, y = data()
    fitted = ensemble(early_stopping=True).fit(X, y)
    assert [row["epoch"] for row in fitted.history_] == list(range(1, EPOCHS + 1))
    for name in ("train_loss", "valid_loss", "dur"):
        assert all(math.isfinite(row[name]) for row in fitted.history_)
    best = np.minimum.accumulate([row["train_loss"] for row in fitted.history_])
    assert_array_equal(
        [row["train_loss_best"] for row in fitted.history_], np.diff(best, prepend=np.inf) < 0
    )
    cosine = LR * (1 + np.cos(np.pi * np.arange(EPOCHS) / EPOCHS)) / 2
    assert_allclose([row["event_lr"] for row in fitted.history_], cosine, rtol=1e-12)
    assert fitted.net_.history[:, "train_loss"] == [row["train_loss"] for row in fitted.history_]


def test_train_loss_is_the_mean_over_members_of_the_weighted_mean_over_rows():
    X, y = data()
    weight = np.random.RandomState(1).uniform(0.2, 3, N)
    # At this learning rate the weights stay where they are, so that all batches see the same net.
    fitted = ensemble(optimizer="SGD", lr=1e-30, beta=0.0, max_epochs=2).fit(X, y, weight)
    members = fitted.predict_members(X)[:, :, 0]  # (n, S, 2)
    loc = np.average(y, weights=weight)
    scale = np.sqrt(np.average((y - loc) ** 2, weights=weight))
    mean, variance = (members[..., 0] - loc) / scale, members[..., 1] / scale**2
    nll = 0.5 * (np.log(variance) + (((y - loc) / scale)[:, None] - mean) ** 2 / variance)
    expected = np.average(nll, axis=0, weights=weight).mean()
    assert [row["train_loss"] for row in fitted.history_] == pytest.approx([expected] * 2)


class EpochScore(Callback):
    """Scores the net on rows of its own, as skorch's EpochScoring does, and records it."""

    def __init__(self, X, y):
        self.X, self.y = X, y

    def on_epoch_end(self, net, **kwargs):
        with torch.no_grad():
            outputs = net.infer(self.X.unsqueeze(0))  # (S, n, 2)
        net.history.record("rmse", (outputs[..., 0].mean(0) - self.y).square().mean().sqrt().item())


def test_a_scoring_callback_sees_the_net_of_each_epoch():
    X, y = data()
    score = EpochScore(torch.tensor(X), torch.tensor((y - y.mean()) / y.std()))
    fitted = ensemble(callbacks=[("score", score)]).fit(X, y)
    expected = np.sqrt(np.mean((fitted.predict(X) - y) ** 2)) / y.std()
    assert fitted.history_[-1]["rmse"] == pytest.approx(expected)
    assert fitted.history_[0]["rmse"] > fitted.history_[-1]["rmse"]


@pytest.mark.parametrize("use_caching", [False, True])
def test_skorchs_epoch_scoring_works(use_caching):
    X, y = data()

    def score(net, dataset, _):
        assert isinstance(dataset, Rows)
        with torch.no_grad():
            return net.infer(dataset.X.unsqueeze(0)).shape[0]

    scoring = skorch_callbacks.EpochScoring(
        score, on_train=True, name="score", use_caching=use_caching
    )
    fitted = ensemble(callbacks=[scoring], max_epochs=2).fit(X, y)
    assert [row["score"] for row in fitted.history_] == [3, 3]


def test_a_schedule_of_the_users():
    X, y = data()
    schedule = skorch_callbacks.LRScheduler("StepLR", step_size=2, gamma=0.5)
    fitted = ensemble(lr_schedule=None, callbacks=[schedule]).fit(X, y)
    expected = LR * 0.5 ** (np.arange(EPOCHS) // 2)
    assert_allclose([row["event_lr"] for row in fitted.history_], expected)


def test_a_schedule_of_the_users_over_batches():
    X, y = data()
    schedule = skorch_callbacks.LRScheduler("StepLR", step_size=1, gamma=0.5, step_every="batch")
    spy = Spy()
    ensemble(lr_schedule=None, callbacks=[schedule, spy], max_epochs=2).fit(X, y)
    (group,) = spy.net.optimizer_.param_groups
    assert float(group["lr"]) == pytest.approx(LR * 0.5 ** (2 * math.ceil(N / BATCH)))


@pytest.mark.parametrize("load_best", [False, True])
def test_skorchs_early_stopping_ends_training_without_a_word(load_best):
    X, y = data()
    stopping = skorch_callbacks.EarlyStopping(
        monitor="train_loss", patience=3, threshold=10.0, sink=noop, load_best=load_best
    )
    fitted = ensemble(callbacks=[stopping]).fit(X, y)
    assert len(fitted.history_) == 4  # no epoch is better than the first by 1000 %
    same = ensemble(max_epochs=4, lr_schedule=None).fit(X, y)
    stopped = ensemble(callbacks=[stopping], lr_schedule=None).fit(X, y)
    if load_best:
        same = ensemble(max_epochs=1, lr_schedule=None).fit(X, y)
    assert_same_weights(stopped, same)


def test_a_checkpoint_keeps_the_best_epoch(tmp_path):
    X, y = data()
    checkpoint = skorch_callbacks.Checkpoint(dirname=tmp_path, monitor="train_loss_best")
    fitted = ensemble(callbacks=[checkpoint], max_epochs=4).fit(X, y)
    saved = torch.load(tmp_path / "params.pt", weights_only=True)
    assert fitted.history_[0]["event_cp"]
    best = 1 + int(np.argmin([row["train_loss"] for row in fitted.history_]))
    assert best == 4  # so that the weights saved are those of the end
    for name, value in fitted.module_.state_dict().items():
        assert torch.equal(saved[name], value)


def test_layers_can_be_frozen():
    X, y = data()
    spy = Spy()
    freezer = skorch_callbacks.Freezer("network.0.*")
    fitted = ensemble(callbacks=[spy, freezer]).fit(X, y)
    changed = [not torch.equal(a, b) for a, b in zip(spy.start, parameters_of(fitted), strict=True)]
    assert changed == [False, False, True, True]


class TrainingMode(Callback):
    """Asks every part of the net, when a gradient has been computed, whether it is in training."""

    def __init__(self):
        self.heard = []

    def on_grad_computed(self, net, **kwargs):
        self.heard.append(all(part.training for part in net.module_.modules()))


@pytest.mark.parametrize("early_stopping", [False, True])
def test_dropout_and_normalisation_layers_are_in_training_mode_in_training(early_stopping):
    X, y = data()
    mode = TrainingMode()
    settings = {"early_stopping": early_stopping, "callbacks": [mode], "max_epochs": 3}
    fitted = ensemble(**settings).fit(X, y)
    assert mode.heard
    assert all(mode.heard)
    assert not any(part.training for part in fitted.module_.modules())


def test_running_statistics_are_learnt():
    X, y = data()
    fitted = BayesianEnsembleRegressor(
        2, module=batch_normalised, max_epochs=3, batch_size=BATCH, device="cpu", random_state=0
    ).fit(X, y)
    buffers = dict(fitted.module_.named_buffers())
    (n_batches,) = (value for name, value in buffers.items() if name.endswith("tracked"))
    assert n_batches.tolist() == [3 * math.ceil(N / BATCH)] * 2


# --- rows -----------------------------------------------------------------------------------


def numbered_rows(n=23, weight=None, batch_size=5, seeds=(1, 2, 3)):
    """Rows that say their number: X is (i, -i), the target 10 i."""
    number = torch.arange(n, dtype=torch.float64)
    X = torch.stack([number, -number], dim=1)
    return Rows(X, (10 * number,), weight, batch_size, seeds)


def dealt(rows):
    """One epoch: batches of X (S, size, 2), of the target, and of the weight."""
    batches = list(rows)
    X = [X for X, _ in batches]
    targets = [target for _, ((target,), _) in batches]
    return X, targets, [weight for _, (_, weight) in batches]


@pytest.mark.parametrize("gather_bytes", [1, 700, 2**22])
def test_an_epoch_deals_every_row_once_to_every_member(monkeypatch, gather_bytes):
    monkeypatch.setattr(_rows, "_GATHER_BYTES", gather_bytes)
    rows = numbered_rows()
    previous = None
    for _ in range(3):
        X, targets, weights = dealt(rows)
        assert [tuple(x.shape) for x in X] == [(3, 5, 2)] * 4 + [(3, 3, 2)]
        assert weights == [None] * 5
        order = torch.cat(X, dim=1)[..., 0]  # (S, n)
        assert_array_equal(order.sort().values, np.tile(np.arange(23), (3, 1)))
        assert_array_equal(torch.cat(X, dim=1)[..., 1], -order)
        assert_array_equal(torch.cat(targets, dim=1), 10 * order)
        for one, other in ((0, 1), (0, 2), (1, 2)):
            assert not torch.equal(order[one], order[other])
        assert previous is None or not torch.equal(order, previous)
        previous = order


def test_the_order_of_a_member_is_its_seeds_whatever_is_gathered_at_a_time(monkeypatch):
    whole = [torch.cat(dealt(rows)[0], dim=1) for rows in [numbered_rows()] * 2]
    monkeypatch.setattr(_rows, "_GATHER_BYTES", 1)
    again = [torch.cat(dealt(rows)[0], dim=1) for rows in [numbered_rows(seeds=(3, 1))] * 2]
    for epoch in range(2):
        assert torch.equal(again[epoch][0], whole[epoch][2])
        assert torch.equal(again[epoch][1], whole[epoch][0])


@pytest.mark.parametrize("n_members", [1, 3])
@pytest.mark.parametrize("batch_size", [5, 100])
def test_weights_follow_their_rows(n_members, batch_size):
    # Of mean one, so that they are dealt as they are given.
    weight = 1 + torch.arange(n_members * 23, dtype=torch.float64).view(n_members, 23) / 100
    weight = weight / weight.mean(1, keepdim=True)
    X, _, weights = dealt(numbered_rows(weight=weight, batch_size=batch_size))
    for x, w in zip(X, weights, strict=True):
        for m in range(len(w)):
            number = x[m if len(x) > 1 else 0, :, 0].long()
            assert_array_equal(w[m], weight[m if n_members > 1 else 0, number])


@pytest.mark.parametrize("batch_size", [5, 100])
def test_only_the_ratios_of_weights_matter(batch_size):
    weight = torch.rand(3, 23, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    first, second = (
        torch.cat(dealt(numbered_rows(weight=w, batch_size=batch_size))[2], dim=1)
        for w in (weight, weight * torch.tensor([[1e-3], [1.0], [50.0]]))
    )
    torch.testing.assert_close(first, second)
    assert_allclose(first.mean(1), 1.0)


@pytest.mark.parametrize("batch_size", [23, 24, None])
def test_rows_that_fit_one_batch_are_shared_in_order(batch_size):
    rows = numbered_rows(batch_size=batch_size)
    assert rows.batch_size == 23
    for _ in range(2):
        ((X,), (target,), (weight,)) = dealt(rows)
        assert X.shape == (1, 23, 2)
        assert_array_equal(X[0, :, 0], np.arange(23))
        assert_array_equal(target[0], 10 * np.arange(23))
        assert weight is None


def test_rows_without_seeds_come_in_order():
    X, _, _ = dealt(numbered_rows(seeds=()))
    assert [len(x) for x in X] == [1] * 5
    assert_array_equal(torch.cat(X, dim=1)[0, :, 0], np.arange(23))


def test_one_row():
    X, (target,), _ = dealt(numbered_rows(n=1))
    assert X[0].shape == (1, 1, 2)
    assert target.shape == (1, 1)


@pytest.mark.parametrize("n_weights", [1, 3])
def test_weighted_minibatches_are_unbiased(n_weights):
    generator = torch.Generator().manual_seed(0)
    weight = torch.rand(n_weights, 23, dtype=torch.float64, generator=generator)
    batches = list(numbered_rows(weight=weight))
    total = sum(target.shape[1] * (w * target).mean(1) for _, ((target,), w) in batches)
    y = 10 * torch.arange(23, dtype=torch.float64)
    expected = (weight * y).sum(1) / weight.sum(1)
    assert_allclose(total / 23, expected.expand(3))


# --- rows that a teacher answers ------------------------------------------------------------


class Teacher:
    """Answers (n, 2, 3) that tell the row; counts what it was asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, X):
        assert isinstance(X, np.ndarray)
        self.asked.append(len(X))
        return np.stack([X @ np.arange(6.0).reshape(2, 3), np.square(X) @ np.ones((2, 3))], axis=1)


def taught_rows(noise=0.0, batch_size=5, seeds=(1,), n=23):
    teacher = Teacher()
    plain = numbered_rows(n, batch_size=batch_size, seeds=seeds)
    sd = torch.tensor([noise, 0.0], dtype=torch.float64)
    draw = partial(add_noise, sd=sd, share_power=2.0) if noise else None
    rows = DistillationRows(
        plain.X, plain.targets, None, batch_size, seeds, teacher=teacher, draw=draw
    )
    teacher.asked.clear()  # what it was asked while being built is told apart below
    return rows, teacher


def assert_answers_match(batches):
    for X, ((answers, target), _) in batches:
        expected = Teacher()(X.flatten(0, 1).numpy()).reshape(*X.shape[:2], 2, 3)
        assert_allclose(answers, expected)
        assert_array_equal(target, -10 * X[..., 1])  # the column without noise


def test_a_teacher_without_noise_is_asked_once():
    teacher = Teacher()
    plain = numbered_rows()
    rows = DistillationRows(plain.X, plain.targets, None, 5, (1,), teacher=teacher)
    assert sum(teacher.asked) == 23 + 1  # all rows, and one to learn how large its answers are
    teacher.asked.clear()
    for _ in range(2):
        assert_answers_match(list(rows))
    assert teacher.asked == []


@pytest.mark.parametrize("batch_size", [5, 100])
def test_a_teacher_with_noise_is_asked_anew_in_each_epoch(batch_size):
    rows, teacher = taught_rows(noise=0.1, batch_size=batch_size)
    first, second = list(rows), list(rows)
    assert sum(teacher.asked) == 2 * 23
    for batches in (first, second):
        assert_answers_match(batches)
        X = torch.cat([X for X, _ in batches], dim=1)[0]
        assert_array_equal(X[:, 1].sort(descending=True).values, -np.arange(23.0))
        assert (X[:, 0] != -X[:, 1]).all()  # every row has noise
    by_row = [
        x[x[:, 1].argsort(descending=True), 0]
        for x in (torch.cat([X for X, _ in batches], dim=1)[0] for batches in (first, second))
    ]
    assert (by_row[0] != by_row[1]).all()  # and another one in the next epoch


def test_the_noise_has_a_fifth_of_the_variance_asked_for():
    # A standard normal d times a share s, the square of a uniform number from 0 to 1, times the
    # noise asked for: E[s^k] = 1 / (2 k + 1), so E[(d s)^2] = 1/5, E[(d s)^4] = 3/9 and
    # E[(d s)^8] = 105/17.
    n = 5000
    rows, _ = taught_rows(noise=0.1, batch_size=50, n=n)
    X = torch.cat([X for X, _ in rows], dim=1)[0]
    noise = (X[:, 0] + X[:, 1]).numpy() / 0.1
    assert np.mean(noise**2) == pytest.approx(1 / 5, abs=4 * np.sqrt((1 / 3 - 1 / 25) / n))
    assert noise.mean() == pytest.approx(0, abs=4 * np.sqrt(1 / 5 / n))
    assert np.mean(noise**4) == pytest.approx(1 / 3, abs=4 * np.sqrt((105 / 17 - 1 / 9) / n))


def noise_of_rows(noise, n, seed=1):
    """What is added to `n` rows in one epoch, in units of the noise asked for."""
    X = torch.zeros(n, len(noise), dtype=torch.float64)
    draw = partial(add_noise, sd=noise, share_power=2.0)
    rows = DistillationRows(X, (), None, n, (seed,), teacher=lambda rows: rows[:, :1], draw=draw)
    ((found, _),) = rows
    return (found[0] / noise).numpy()


def test_the_columns_of_a_row_have_the_same_share_of_the_noise():
    # Squares of two columns: E[(d1 s)^2 (d2 s)^2] = E[s^4] = 1/9, where shares of their own would
    # give 1/25; the variance of the product is E[d1^4] E[d2^4] E[s^8] - 1/81 = 9/17 - 1/81.
    n = 20_000
    noise = noise_of_rows(torch.tensor([0.1, 3.0], dtype=torch.float64), n)
    squares = noise**2
    assert np.mean(squares.prod(1)) == pytest.approx(1 / 9, abs=4 * np.sqrt((9 / 17 - 1 / 81) / n))
    error = 4 * np.sqrt((1 / 3 - 1 / 25) / n)
    assert_allclose(squares.mean(0), 1 / 5, atol=error)  # each in units of its own
    assert noise.prod(1).mean() == pytest.approx(0, abs=4 * np.sqrt(1 / 9 / n))


def test_the_shares_of_the_noise_are_squares_of_uniform_numbers():
    # Over 1000 columns the root mean square of a row is its share to within 2.2 percent.
    noise = noise_of_rows(torch.full((1000,), 0.1, dtype=torch.float64), n=2000)
    shares = np.sqrt(np.mean(noise**2, axis=1))
    assert stats.kstest(np.sqrt(shares), "uniform").pvalue > 0.01
    assert shares.max() < 1.1


def test_a_column_without_noise_stays_as_it_is():
    rows, _ = taught_rows(noise=0.1, batch_size=23)
    ((X, _),) = rows
    assert torch.equal(X[0, :, 1], rows.X[:, 1])
    assert (X[0, :, 0] != rows.X[:, 0]).all()


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_teacher_is_asked_in_portions_where_memory_is_short(noise):
    bytes_per_row = 6 * 8
    with config_context(working_memory=10 * bytes_per_row / 2**20):  # MiB: answers of ten rows
        rows, teacher = taught_rows(noise=noise)
    for _ in range(2):
        batches = list(rows)
        assert sum(teacher.asked) == 23
        assert max(teacher.asked) <= 10
        assert_answers_match(batches)
        assert_array_equal(
            torch.cat([X for X, _ in batches], dim=1)[0, :, 1].sort(descending=True).values,
            -np.arange(23.0),
        )
        teacher.asked.clear()


def test_portions_change_neither_the_order_nor_the_answers():
    whole, _ = taught_rows()
    with config_context(working_memory=1e-9):
        portions, teacher = taught_rows()
    for (X, ((answers, _), _)), (X_too, ((answers_too, _), _)) in zip(whole, portions, strict=True):
        assert torch.equal(X, X_too)
        assert_allclose(answers, answers_too)
    assert max(teacher.asked) == 5  # never less than a batch


def test_noise_is_seeded():
    first, again, other = (taught_rows(0.1, seeds=(seed,))[0] for seed in (1, 1, 2))
    first, again, other = (next(iter(rows))[0] for rows in (first, again, other))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


# --- gradients ------------------------------------------------------------------------------


@pytest.mark.parametrize("max_norm", [1e-3, 1.0, 1e3])
def test_each_members_gradient_is_clipped_as_torch_clips_one_network(max_norm):
    generator = torch.Generator().manual_seed(0)
    shapes = [(4, 3), (3,), (2, 3, 2)]
    stacked = [nn.Parameter(torch.zeros(5, *shape)) for shape in shapes]
    unused = nn.Parameter(torch.zeros(5, 2))  # has no gradient
    scale = torch.tensor([1e-4, 1e-2, 1.0, 1e2, 0.0])
    for parameter in stacked:
        draws = torch.randn(parameter.shape, generator=generator)
        parameter.grad = draws * scale.view(5, *[1] * (parameter.ndim - 1))
    alone = [[nn.Parameter(p[m].detach().clone()) for p in stacked] for m in range(5)]
    for m in range(5):
        for one, whole in zip(alone[m], stacked, strict=True):
            one.grad = whole.grad[m].clone()
        nn.utils.clip_grad_norm_(alone[m], max_norm)
    clip_each_member([parameter.grad for parameter in stacked], max_norm)
    for m in range(5):
        for one, whole in zip(alone[m], stacked, strict=True):
            torch.testing.assert_close(whole.grad[m], one.grad)
    assert unused.grad is None


def test_clip_norm_takes_effect_in_training():
    X, y = data()
    spy = Spy()
    settings = {"optimizer": "SGD", "lr": 1.0, "lr_schedule": None, "max_epochs": 1}
    fitted = ensemble(clip_norm=1e-3, callbacks=[spy], batch_size=N, **settings).fit(X, y)
    steps = [a - b for a, b in zip(parameters_of(fitted), spy.start, strict=True)]
    norms = torch.stack([step.flatten(1).norm(dim=1) for step in steps]).norm(dim=0)
    assert_allclose(norms, 1e-3, rtol=1e-3)  # of each member's one step


# --- members that stop, members that diverge ------------------------------------------------


class SquaredError(Objective):
    def forward(self, outputs, targets):
        return (outputs - targets[0]).square().sum(-1)


def plain_member(in_features, out_features):
    return MLP(in_features, out_features, (8,), "tanh")


def trained_stack(
    seeds, callbacks, module=plain_member, epochs=40, valid=True, edit=None, **kwargs
):
    """Train members with these seeds in one StackNet."""
    members = [build_member(module, s, in_features=D, out_features=1).double() for s in seeds]
    stacked = stack(members)
    if edit is not None:
        edit(stacked)
    X, y = (torch.tensor(a) for a in data(n=60))
    y = ((y - y.mean()) / y.std()).unsqueeze(1)
    rows = Rows(X[:30], (y[:30],), None, 10, [seed + 100 for seed in seeds])
    net = StackNet(
        stacked,
        SquaredError(),
        callbacks=callbacks,
        max_epochs=epochs,
        verbose=0,
        **{"optimizer": torch.optim.Adam, "lr": 0.05, **kwargs},
    )
    return net.fit(rows, Rows(X[30:], (y[30:],)) if valid else None)


@pytest.mark.parametrize("module", [plain_member, batch_normalised])
def test_members_stop_one_by_one_with_the_weights_they_would_have_alone(module):
    seeds = [1, 2, 3]
    together = MemberEarlyStopping(patience=3, tol=1e-3)
    net = trained_stack(seeds, [together], module)
    assert together.stopped_.all()
    assert len(set(together.best_epoch_.tolist())) > 1
    assert len(net.history) == together.best_epoch_.max() + 3
    for m, seed in enumerate(seeds):
        alone = MemberEarlyStopping(patience=3, tol=1e-3)
        own = trained_stack([seed], [alone], module)
        assert alone.best_epoch_.item() == together.best_epoch_[m].item()
        assert len(own.history) == alone.best_epoch_.item() + 3
        assert together.best_loss_[m].item() == pytest.approx(alone.best_loss_.item())
        alone_state = own.module_.state_dict()
        for name, value in net.module_.state_dict().items():
            torch.testing.assert_close(value[m], alone_state[name][0], rtol=0, atol=1e-7)


@pytest.mark.parametrize("module", [plain_member, batch_normalised])
def test_a_member_that_stopped_predicts_as_in_its_best_epoch(module):
    stopping = MemberEarlyStopping(patience=3, tol=1e-3)
    net = trained_stack([1, 2, 3], [stopping], module)
    X, y = (torch.tensor(a) for a in data(n=60))
    y = ((y - y.mean()) / y.std()).unsqueeze(1)
    with torch.no_grad():
        losses = (net.module_(X[30:].unsqueeze(0)) - y[30:]).square().sum(-1).mean(1)
    torch.testing.assert_close(losses, stopping.best_loss_.double(), rtol=1e-6, atol=0)


def follow(callback, validation_losses, constant=1.0):
    """Feed a callback losses (epochs, S) and weights that tell the epoch; return the net.

    `constant` is the loss of a constant prediction.
    """
    n_members = len(validation_losses[0])
    module = nn.ParameterDict({"w": torch.zeros(n_members, 2)})
    net = SimpleNamespace(n_members=n_members, module_=module, history=[], member_losses_={})
    net.constant_losses_ = torch.full((n_members,), float(constant))
    callback.on_train_begin(net)
    with contextlib.suppress(KeyboardInterrupt):
        for epoch, losses in enumerate(validation_losses, start=1):
            net.history.append({})
            net.member_losses_ = {"train": torch.tensor(losses), "valid": torch.tensor(losses)}
            module["w"].data.fill_(epoch)
            callback.on_epoch_end(net)
    callback.on_train_end(net)
    return net


def test_early_stopping_by_hand():
    losses = [  # member 0 improves throughout, 1 stops after epoch 3, 2 too and would improve later
        [5.0, 1.0, 2.0],
        [4.0, 2.0, 1.95],  # .05 is less than tol
        [3.0, 2.0, 2.1],
        [2.0, 0.1, 0.2],
        [1.0, 0.1, 0.1],
    ]
    stopping = MemberEarlyStopping(patience=2, tol=0.1)
    net = follow(stopping, losses)
    assert stopping.best_epoch_.tolist() == [5, 1, 1]
    assert stopping.best_loss_.tolist() == [1.0, 1.0, 2.0]
    assert stopping.stopped_.tolist() == [False, True, True]
    assert net.module_["w"][:, 0].tolist() == [5.0, 1.0, 1.0]


def test_training_ends_when_all_members_have_stopped():
    net = follow(MemberEarlyStopping(patience=2, tol=0.0), [[1.0, 1.0]] * 10)
    assert len(net.history) == 3


def test_a_member_without_a_finite_loss_does_not_hold_up_the_others():
    stopping = MemberEarlyStopping(patience=2, tol=0.0)
    net = follow(stopping, [[1.0, math.nan], [0.5, math.nan], [0.6, math.inf], [0.6, math.nan]])
    assert stopping.best_epoch_.tolist() == [2, 0]
    assert net.module_["w"][:, 0].tolist() == [2.0, 0.0]


def spoil(stacked):
    """Give member 1 weights that explode and member 3 weights that are not numbers."""
    with torch.no_grad():
        for parameter in stacked.parameters():
            parameter[1] *= 1e4
            parameter[3] = math.nan


@pytest.mark.parametrize("module", [plain_member, batch_normalised])
def test_members_that_diverge_leave_the_others_alone(module):
    guard, healthy = DivergenceGuard(), DivergenceGuard()
    settings = {"epochs": 8, "optimizer": torch.optim.SGD, "lr": 0.1, "clip_norm": 10.0}
    module_settings = {"module": module, "valid": False, **settings}
    net = trained_stack([1, 2, 3, 4], [guard], edit=spoil, **module_settings)
    alone = trained_stack([1, 3], [healthy], **module_settings)
    assert guard.diverged_[[0, 2, 3]].tolist() == [False, False, True]
    assert not healthy.diverged_.any()
    assert len(net.history) == 8
    for name, value in net.module_.state_dict().items():
        expected = alone.module_.state_dict()[name]
        torch.testing.assert_close(value[[0, 2]], expected, rtol=0, atol=1e-9)


def test_a_loss_that_explodes_is_found():
    class Inflate(Callback):
        def on_epoch_begin(self, net, **kwargs):
            with torch.no_grad():
                net.module_[2].weight[1] *= 10

    guard, healthy = DivergenceGuard(), DivergenceGuard()
    settings = {"optimizer": torch.optim.SGD, "lr": 0.01, "epochs": 5, "valid": False}
    net = trained_stack([1, 2, 3], [Inflate(), guard], **settings)
    assert guard.diverged_.tolist() == [False, True, False]
    assert all(value.isfinite().all() for value in net.module_.parameters())
    alone = trained_stack([1, 3], [healthy], **settings)
    for stacked, expected in zip(net.module_.parameters(), alone.module_.parameters(), strict=True):
        torch.testing.assert_close(stacked[[0, 2]], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("constant", "losses", "verdict"),
    [
        (1.0, [1.0, 0.5, 0.4], "fine"),
        (1.0, [1.5, 1.9], "fine"),  # within half of 1 + 1 of the constant's
        (1.0, [0.1, 2.1], "worse"),
        (1.0, [1.0, 2000.0], "worse"),
        (1.0, [1.0, 2002.0], "diverged"),  # a thousand times 1 + 1 above
        (-3.0, [-3.0, -1.1], "fine"),
        (-3.0, [-3.0, -0.9], "worse"),
        (-3.0, [-3.0, 3998.0], "diverged"),
        (-3.0, [-3.0, -1e9], "fine"),
        (1.0, [1.0, 1e9, 1.0], "fine"),  # a spike
        (1.0, [1e9] * 10 + [1.0], "fine"),  # the first is a new lowest loss, nine are not
        (1.0, [1e9] * 11 + [1.0], "diverged"),
        (1.0, [10.0 ** (20 - epoch) for epoch in range(21)], "fine"),  # a bad start, ever better
        (1.0, ([1e9] * 9 + [1.0]) * 3, "fine"),  # ten in a row count, not ten
        (1.0, [1.0, math.nan, 1.0], "diverged"),
        (1.0, [1.0, math.inf, 1.0], "diverged"),
        (1.0, [math.nan, 1.0], "diverged"),
        (1.0, [math.inf, 1.0], "diverged"),
    ],
)
def test_divergence_by_hand(constant, losses, verdict):
    guard = DivergenceGuard()
    follow(guard, [[loss, constant] for loss in losses], constant)
    assert guard.diverged_.tolist() == [verdict == "diverged", False]
    assert guard.worse_.tolist() == [verdict == "worse", False]


@pytest.mark.parametrize("epoch", [3, 12])
def test_a_guard_goes_on_from_its_state(epoch):
    losses = [[1e9, 1.0, 3.0]] * 15  # member 0 is given up after epoch 11
    guard, first, second = DivergenceGuard(), DivergenceGuard(), DivergenceGuard()
    follow(guard, losses)
    follow(first, losses[:epoch])
    second.on_train_begin(SimpleNamespace(n_members=3))
    second.load_state_dict(first.state_dict())
    net = follow(MemberEarlyStopping(99, 0.0), [[0.0] * 3])  # any net
    for row in losses[epoch:]:
        net.member_losses_["train"] = torch.tensor(row)
        second.on_epoch_end(net)
    second.on_train_end(net)
    assert guard.diverged_.tolist() == second.diverged_.tolist() == [True, False, False]
    assert guard.worse_.tolist() == second.worse_.tolist() == [False, False, True]


def test_a_member_is_judged_by_the_epoch_that_early_stopping_keeps():
    stopping = MemberEarlyStopping(patience=2, tol=0.0)
    guard = DivergenceGuard(stopping)

    class Both(Callback):
        def __getattribute__(self, name):
            if not name.startswith("on_"):
                return super().__getattribute__(name)
            return lambda net, **kwargs: [getattr(cb, name)(net) for cb in (stopping, guard)]

    follow(Both(), [[1.0, 9.0, 5e9], [0.5, 8.0, 4e9], [6.0, 9e9, 5e9], [0.7, 9.0, 4.5e9]])
    assert stopping.best_epoch_.tolist() == [2, 2, 2]
    assert guard.diverged_.tolist() == [False, False, True]
    assert guard.worse_.tolist() == [False, True, False]


RATES = (1.0, 10.0, 1e3, 1e6, 1e30, 1e300)


@pytest.mark.parametrize("lr", RATES)
@pytest.mark.parametrize("task", ["regressor", "classifier"])
def test_no_learning_rate_fails_in_silence(task, lr, tally):
    """Every fit raises the error that says why, warns, or is no worse than a constant."""
    is_regressor = task == "regressor"
    X, y = (load_diabetes if is_regressor else load_iris)(return_X_y=True)
    X, y = X[::2] / X.std(0), y[::2]
    teacher = (BayesianEnsembleRegressor if is_regressor else BayesianEnsembleClassifier)(
        2, max_epochs=5, random_state=0
    )
    settings = {"lr": lr, "max_epochs": 10, "random_state": 0}
    of_constant = 0.0 if is_regressor else 1 / 3
    for model in (
        clone(teacher).set_params(**settings, max_restarts=1),
        clone(teacher).set_params(**settings, max_restarts=0, optimizer="SGD"),
        (HydraPlusRegressor if is_regressor else HydraPlusClassifier)(teacher, **settings),
        DistributionDistiller(teacher, **settings),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            error, score = "", math.nan
            try:
                score = model.fit(X, y).score(X, y)
            except ValueError as raised:
                error = str(raised)
        is_warned = any(w.category is ConvergenceWarning for w in caught)
        assert f"smaller lr than {lr}" in error or is_warned or score >= of_constant
        tally("learning rates", 1)


def test_a_learning_rate_that_ruins_an_ensemble_is_named():
    X, y = load_diabetes(return_X_y=True)
    model = BayesianEnsembleRegressor(2, max_epochs=20, max_restarts=0, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"Member\(s\) \[0, 1\] are worse than a constant"):
        model.set_params(lr=1.0).fit(X / X.std(0), y)
    with pytest.raises(ValueError, match=r"Every member diverged.*smaller lr than 1000\.0"):
        model.set_params(lr=1e3).fit(X / X.std(0), y)


@pytest.mark.parametrize(
    ("seed", "batch_size", "lr"), [(5, 8, 0.05), (5, 32, 0.03), (12, 32, 0.03)]
)
def test_members_that_recover_are_not_trained_anew(seed, batch_size, lr):
    rng = np.random.default_rng(seed)
    X = rng.standard_t(1, size=(40, 4))  # has neither a variance nor a mean
    y = np.tanh(X[:, 0]) + 0.3 * rng.normal(size=40)
    peaks = Peaks()
    model = BayesianEnsembleRegressor(
        4,
        lr=lr,
        batch_size=batch_size,
        max_epochs=30,
        module__activation="relu",
        callbacks=[peaks],
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that some are worse than a constant is another matter
        model.fit(X, y)
    assert peaks.highest.max() > 1e3
    assert_array_equal(model.n_restarts_, 0)
    assert model.n_members_ == 4


class Peaks(Callback):
    """Notes each member's highest loss, relative to that of its first epoch."""

    def on_epoch_end(self, net, **kwargs):
        loss = net.member_losses_["train"]
        if len(net.history) == 1:
            self.first, self.highest = 1 + loss.abs(), torch.ones_like(loss)
        self.highest = torch.maximum(self.highest, loss / self.first)


def test_the_constant_is_what_outputs_of_zero_lose():
    X, y = (torch.tensor(a) for a in data(n=40))
    weight = torch.rand(2, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weight /= weight.mean(1, keepdim=True)
    expected = (weight * y.square()).mean(1)
    for batch_size in (8, 12, 40):
        members = [build_member(plain_member, s, in_features=D, out_features=1) for s in (1, 2)]
        rows = Rows(X, (y[:, None],), weight, batch_size, [1, 2])
        net = StackNet(stack(members).double(), SquaredError(), max_epochs=2, verbose=0).fit(rows)
        torch.testing.assert_close(net.constant_losses_, expected, rtol=1e-12, atol=0)


def test_weights_that_are_no_numbers_at_the_end_are_found():
    guard = DivergenceGuard()
    net = follow(guard, [[1.0, 1.0]])
    net.module_["w"].data[1, 0] = math.nan
    guard.on_train_end(net)
    assert guard.diverged_.tolist() == [False, True]


def test_training_ends_when_all_members_have_diverged():
    assert len(follow(DivergenceGuard(), [[math.nan, math.inf]] * 5).history) == 1


class Poison(Callback):
    """Ruins the weights of the members that have stopped already."""

    def on_epoch_begin(self, net, **kwargs):
        (stopping,) = (cb for _, cb in net.callbacks_ if isinstance(cb, MemberEarlyStopping))
        self.stopped_early = bool(stopping.stopped_.any())
        with torch.no_grad():
            for parameter in net.module_.parameters():
                parameter[stopping.stopped_] = math.nan


def test_a_member_that_diverges_after_it_has_stopped_is_not_trained_anew():
    X, y = data()
    settings = {"early_stopping": True, "n_iter_no_change": 2, "max_epochs": 40, "lr": 0.1}
    settings |= {"tol": 0.01, "validation_fraction": 0.4}
    clean = ensemble(**settings).fit(X, y)
    poison = Poison()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        poisoned = ensemble(**settings, callbacks=[poison]).fit(X, y)
    assert poison.stopped_early  # while others went on
    assert_array_equal(poisoned.n_restarts_, 0)
    assert_array_equal(poisoned.best_epochs_, clean.best_epochs_)
    assert_same_weights(poisoned, clean)


# --- stopping by hand -----------------------------------------------------------------------


def interrupt_at(monkeypatch, n_batches):
    """Let Ctrl-C arrive in the training step after `n_batches` of them."""
    step, seen = FlatStep.__call__, []

    def interrupted(self, batch):
        if len(seen) == n_batches:
            raise KeyboardInterrupt
        seen.append(1)
        return step(self, batch)

    monkeypatch.setattr(FlatStep, "__call__", interrupted)


class StopAt(Callback):
    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == self.epoch:
            raise KeyboardInterrupt


def test_a_callback_may_end_training():
    X, y = data()
    fitted = ensemble(callbacks=[StopAt(3)], lr_schedule=None).fit(X, y)
    assert len(fitted.history_) == 3
    assert_same_weights(fitted, ensemble(max_epochs=3, lr_schedule=None).fit(X, y))


def test_the_last_epoch_counts_also_where_a_callback_ends_training_in_it():
    X, y = data()
    settings = {"early_stopping": True, "lr_schedule": None}
    fitted = ensemble(callbacks=[StopAt(1)], **settings).fit(X, y)
    assert_array_equal(fitted.best_epochs_, 1)
    assert_same_weights(fitted, ensemble(max_epochs=1, **settings).fit(X, y))


class Task:
    """Stands for the context of scikit-learn's callbacks and counts what it is told."""

    def __init__(self, stop_at=None):
        self.begun = self.ended = 0
        self.stop_at = stop_at

    def subcontext(self, task_name):
        assert task_name == "epoch"
        return self

    def call_on_fit_task_begin(self, estimator):
        self.begun += 1

    def call_on_fit_task_end(self, estimator):
        self.ended += 1
        return self.ended == self.stop_at


@pytest.mark.parametrize("stopped_by", ["nobody", "a skorch callback", "scikit-learn"])
def test_every_epoch_is_one_task_of_scikit_learns_callbacks(stopped_by):
    task = Task(stop_at=2 if stopped_by == "scikit-learn" else None)
    callbacks = [StopAt(2)] if stopped_by == "a skorch callback" else []
    net = trained_stack([1, 2], [*callbacks, TaskPerEpoch(task, None)], epochs=4)
    n_epochs = 4 if stopped_by == "nobody" else 2
    assert (task.begun, task.ended, len(net.history)) == (n_epochs, n_epochs, n_epochs)


def test_a_net_tells_ctrl_c_from_a_callback_that_stops(monkeypatch):
    assert not trained_stack([1, 2], [StopAt(2)]).interrupted_
    assert not trained_stack([1, 2], [], epochs=2).interrupted_
    interrupt_at(monkeypatch, n_batches=7)
    net = trained_stack([1, 2], [])
    assert net.interrupted_
    assert len([row for row in net.history if "train_loss" in row]) == 2  # of three batches each
    assert not net.module_.training


def test_ctrl_c_keeps_the_members_as_they_are(monkeypatch):
    X, y = data()
    expected = ensemble(max_epochs=2, lr_schedule=None).fit(X, y)
    interrupt_at(monkeypatch, n_batches=2 * math.ceil(N / BATCH))
    model = ensemble(lr_schedule=None)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert_same_weights(model, expected)
    assert model.predict(X).shape == (N,)


def test_ctrl_c_in_the_first_epoch_leaves_the_estimator_unfitted(monkeypatch):
    X, y = data()
    interrupt_at(monkeypatch, n_batches=1)
    model = ensemble()
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


# --- threads --------------------------------------------------------------------------------


@pytest.fixture
def two_threads():
    """A caller who uses two threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(
    ("flop", "n_threads", "expected"),
    [(1e5, "auto", 1), (1e9, "auto", 2), (1e5, 3, 3), (1e9, 1, 1)],
)
def test_small_steps_take_one_thread_and_the_callers_setting_comes_back(flop, n_threads, expected):
    with suited_threads(flop, n_threads):
        assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == 2
    with pytest.raises(ArithmeticError), suited_threads(flop, n_threads):
        raise ArithmeticError
    assert torch.get_num_threads() == 2


class ThreadCount(Callback):
    def on_epoch_end(self, net, **kwargs):
        self.seen = torch.get_num_threads()


class Broken(Callback):
    def on_epoch_end(self, net, **kwargs):
        raise ArithmeticError


@pytest.mark.usefixtures("two_threads")
def test_a_fit_gives_the_callers_threads_back():
    X, y = data()
    count = ThreadCount()
    ensemble(max_epochs=1, callbacks=[count]).fit(X, y)
    assert count.seen == 1
    assert torch.get_num_threads() == 2
    with pytest.raises(ArithmeticError):
        ensemble(callbacks=[Broken()]).fit(X, y)
    assert torch.get_num_threads() == 2


# --- generators -----------------------------------------------------------------------------


def dropping(in_features, out_features):
    """A module that draws from the global generator, when built and in training."""
    return nn.Sequential(nn.Linear(in_features, 6), nn.Dropout(0.3), nn.Linear(6, out_features))


def models():
    with_dropout = BayesianEnsembleRegressor(
        3, module=dropping, max_epochs=3, batch_size=BATCH, device="cpu", random_state=0
    )
    student = HydraPlusRegressor(
        ensemble(n_members=2, max_epochs=2),
        max_epochs=2,
        device="cpu",
        random_state=0,
        module__hidden_units=(6,),
    )
    return [
        pytest.param(ensemble(), id="ensemble"),
        pytest.param(ensemble(bootstrap=True, early_stopping=True), id="bootstrap"),
        pytest.param(with_dropout, id="dropout"),
        pytest.param(student, id="student"),
    ]


@pytest.mark.parametrize("model", models())
def test_fit_leaves_the_global_generators_alone_and_does_not_look_at_them(model):
    X, y = data()
    torch.manual_seed(3)
    np.random.seed(3)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    model.fit(X, y)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert_array_equal(np.random.get_state()[1], before[1])
    first = parameters_of(model)
    torch.manual_seed(4)
    np.random.seed(4)
    for value, again in zip(first, parameters_of(model.fit(X, y)), strict=True):
        assert torch.equal(value, again)


class Meet(Callback):
    """Lets fits in several threads begin each epoch together, as far as they can."""

    def __init__(self, barrier):
        self.barrier = barrier

    def on_epoch_begin(self, net, **kwargs):
        with contextlib.suppress(threading.BrokenBarrierError):
            self.barrier.wait(timeout=0.3)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("module", [MLP, dropping])
def test_fits_in_threads_are_those_one_after_the_other(module):
    X, y = data()

    def build(seed, callbacks=None):
        return BayesianEnsembleRegressor(
            3,
            module=module,
            max_epochs=5,
            batch_size=BATCH,
            device="cpu",
            random_state=seed,
            callbacks=callbacks,
        )

    alone = [build(seed).fit(X, y) for seed in range(2)]
    before = torch.get_rng_state()
    meet = [Meet(threading.Barrier(2))]
    together = Parallel(n_jobs=2, backend="threading")(
        delayed(build(seed, meet).fit)(X, y) for seed in range(2)
    )
    for first, second in zip(alone, together, strict=True):
        assert_same_weights(first, second)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == 2


# --- other ways to run a step ---------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("clip_norm", [None, 1.0])
def test_a_compiled_step_is_the_eager_one_and_says_what_it_cost(clip_norm):
    X, y = data(np.float32)
    spy = Spy()
    compiled = ensemble(compile=True, callbacks=[spy], clip_norm=clip_norm).fit(X, y)
    assert spy.net.step == "compiled"
    assert spy.net.steps_.on_module.seconds > 0
    eager = ensemble(compile=False, clip_norm=clip_norm).fit(X, y)
    assert_same_weights(compiled, eager, atol=1e-5)
    assert_allclose(
        [row["train_loss"] for row in compiled.history_],
        [row["train_loss"] for row in eager.history_],
        atol=1e-5,
    )


@needs_cuda
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("batch_size", [BATCH, 1000])
def test_a_captured_step_is_the_eager_one(weighted, batch_size):
    X, y = data()
    weight = np.random.RandomState(1).uniform(0.2, 3, N) if weighted else None
    settings = {"device": "cuda", "batch_size": batch_size, "early_stopping": True}
    spy = Spy()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*could not be captured")
        captured = ensemble(compile="auto", callbacks=[spy], **settings).fit(X, y, weight)
    assert spy.net.step == "captured"
    assert spy.net.steps_.on_module.graphs
    eager = ensemble(compile=False, **settings).fit(X, y, weight)
    assert_same_weights(captured, eager, atol=1e-9)
    assert_allclose(
        [row["train_loss"] for row in captured.history_],
        [row["train_loss"] for row in eager.history_],
        rtol=1e-9,
    )


@needs_cuda
def test_a_student_captured_is_the_eager_one():
    X, y = data()
    teacher = ensemble(n_members=2, max_epochs=3)
    settings = {"max_epochs": 12, "batch_size": BATCH, "device": "cuda", "random_state": 0}
    captured, eager = (
        HydraPlusRegressor(teacher, compile=compile, **settings).fit(X, y)
        for compile in ("auto", False)
    )
    assert_same_weights(captured, eager, atol=1e-9)


@needs_cuda
@pytest.mark.parametrize("module", [MLP, dropping])
def test_fit_leaves_the_global_generator_of_the_gpu_alone(module):
    X, y = data()
    torch.cuda.manual_seed_all(3)
    before = torch.cuda.get_rng_state()
    BayesianEnsembleRegressor(2, module=module, max_epochs=2, device="cuda").fit(X, y)
    assert torch.equal(torch.cuda.get_rng_state(), before)
