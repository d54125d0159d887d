# SPDX-License-Identifier: BSD-3-Clause
"""How a step runs: clipped, compiled, captured, and on how many threads."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from skorch.callbacks import Callback
from small_stacks import (
    BATCH,
    N,
    Spy,
    assert_same_weights,
    data,
    ensemble,
    parameters_of,
)
from torch import nn

from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
from skdistill._engine._steps import clip_each_member
from skdistill._training.trainer import suited_threads
from skdistill.samplers import DeepEnsemble
from skdistill.settings import Optimizer, Runtime

# --- gradients -------------------------------------------------------------------------------


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


# --- threads ---------------------------------------------------------------------------------


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


# --- other ways to run a step ----------------------------------------------------------------


@pytest.mark.slow
def test_a_compiled_step_is_the_eager_one():
    X, y = data(np.float32)
    spy = Spy()
    clipped = Optimizer(clip_norm=1.0)
    # For one number at a time: finding out what several would need takes longer than all else.
    with torch._inductor.config.patch({"cpp.simdlen": 1, "cpp.vec_isa_ok": False}):
        compiled = ensemble(runtime=Runtime(compile=True), callbacks=[spy], optimizer=clipped).fit(
            X, y
        )
    assert spy.net.step == "compiled"
    eager = ensemble(runtime=Runtime(compile=False), optimizer=clipped).fit(X, y)
    assert_same_weights(compiled, eager, atol=1e-5)
    assert_allclose(
        [row["train_loss"] for row in compiled.history_],
        [row["train_loss"] for row in eager.history_],
        atol=1e-5,
    )


@pytest.mark.gpu
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("batch_size", [BATCH, 1000])
def test_a_captured_step_is_the_eager_one(weighted, batch_size):
    X, y = data()
    weight = np.random.RandomState(1).uniform(0.2, 3, N) if weighted else None
    settings = {"batch_size": batch_size, "inference": DeepEnsemble(early_stopping=True)}
    spy = Spy()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*could not be captured")
        captured = ensemble(
            runtime=Runtime(device="cuda", compile="auto"), callbacks=[spy], **settings
        ).fit(X, y, weight)
    assert spy.net.step == "captured"
    assert spy.net.steps_.on_module.graphs
    eager = ensemble(runtime=Runtime(device="cuda", compile=False), **settings).fit(X, y, weight)
    assert_same_weights(captured, eager, atol=1e-6)  # of a graph the learning rate is in float32
    assert_allclose(
        [row["train_loss"] for row in captured.history_],
        [row["train_loss"] for row in eager.history_],
        rtol=1e-6,
    )


@pytest.mark.gpu
def test_a_student_captured_is_the_eager_one():
    X, y = data()
    teacher = ensemble(n_members=2, max_epochs=3)
    # Both shapes of batches are captured by the fifth epoch; rounding grows tenfold in each.
    settings = {"max_epochs": 6, "batch_size": BATCH, "random_state": 0}
    captured, eager = (
        HydraPlusRegressor(
            teacher, runtime=Runtime(device="cuda", compile=compile), **settings
        ).fit(X, y)
        for compile in ("auto", False)
    )
    assert_same_weights(captured, eager, atol=1e-5)


class ReadsANumber(torch.nn.Module):
    """Waits for the GPU in its forward pass, which a CUDA graph cannot hold."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = torch.nn.Linear(in_features, out_features)

    def forward(self, X):
        return self.linear(X) * (1.0 if self.linear.weight.sum().item() < 1e9 else 0.0)


@pytest.mark.gpu
def test_a_step_that_cannot_be_captured_runs_eagerly():
    X, y = data()
    settings = {"max_epochs": 4, "batch_size": BATCH, "random_state": 0}
    captured, eager = (
        BayesianEnsembleRegressor(
            2, module=ReadsANumber, runtime=Runtime(device="cuda", compile=compile), **settings
        )
        for compile in ("auto", False)
    )
    with pytest.warns(UserWarning, match="could not be captured as a CUDA graph"):
        captured.fit(X, y)
    assert_same_weights(captured, eager.fit(X, y), atol=1e-5)
    assert torch.rand(3, device="cuda").isfinite().all()  # its generator draws again


# ------------------------------------------------------------------------------------------
# Denormal numbers
# ------------------------------------------------------------------------------------------


class DeadUnit(Spy):
    """Gives a hidden unit tiny weights that no sample's gradient reaches."""

    def on_train_begin(self, net, X=None, **kwargs):
        super().on_train_begin(net, X, **kwargs)
        weight, bias = list(net.module_.parameters())[:2]
        for values in (weight.detach()[0], bias.detach()[0]):
            assert values.shape[-1] == 6
        weight.detach()[0, :, 0] = 5e-31
        bias.detach()[0, ..., 0] = -1e3


class ListensToBatches(DeadUnit):
    def on_batch_end(self, net, **kwargs):
        pass


@pytest.mark.parametrize(
    ("spy", "optimizer"),
    [(DeadUnit, "Adam"), (DeadUnit, torch.optim.NAdam), (ListensToBatches, "Adam")],
    ids=["flat", "unknown to the engine", "module"],
)
def test_an_epoch_sets_tiny_numbers_to_zero(spy, optimizer):
    # They decay to denormal numbers, with which a step takes ten times as long.
    X, y = data(np.float32)
    spy = spy()
    settings = {"module__activation": "relu", "prior_scale": 1e3, "optimizer": optimizer}
    model = ensemble(callbacks=[spy], **settings).fit(X, y)
    weight = parameters_of(model)[0]
    assert (weight[0, :, 0] == 0).all()
    assert (weight[0, :, 1:] != 0).all()
    for state in spy.net.optimizer_.state.values():
        tiny = state["exp_avg"].abs() < 1e-30
        assert (state["exp_avg"][tiny] == 0).all()
