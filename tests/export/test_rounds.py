# SPDX-License-Identifier: BSD-3-Clause
"""Graphs of single rounds, run in turn, predict what a booster does after as many rounds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression

from skdistill import BDistilBooster
from skdistill.export import export_rounds
from skdistill.export._outputs import GraphOutputs, RoundOutputs
from skdistill.modules import MLP, Recurrent
from skdistill.settings import Connection, Runtime, WeakLearnerSearch

onnxruntime = pytest.importorskip("onnxruntime")

SMALL = {
    "n_rounds": 4,
    "search": WeakLearnerSearch(gamma=0.01),
    "max_epochs": 20,
    "runtime": Runtime(device="cpu"),
    "random_state": 0,
}


def in_turn(rounds, X):
    """Outputs after each round, by name; a round is a function of the last state and samples."""
    given = {"X": X}
    for one_round in rounds:
        found = one_round(given)
        state = [name for name in found if name.startswith("next_")]
        given = {"X": X} | {name.removeprefix("next_"): found.pop(name) for name in state}
        yield found
    assert given.keys() == {"X"}  # nobody reads what the last round would leave


def graphs(paths):
    """Rounds as onnxruntime runs them."""
    for path in paths:
        session = onnxruntime.InferenceSession(path)
        names = [output.name for output in session.get_outputs()]
        yield lambda given, run=session.run, names=names: dict(
            zip(names, run(None, given), strict=True)
        )


def modules(booster):
    """Rounds as the modules that are exported."""
    graph_outputs, state = GraphOutputs(booster), {}
    for number in range(1, booster.n_rounds_ + 1):
        module = RoundOutputs(graph_outputs, number, state)
        state = module.state
        yield lambda given, module=module: dict(
            zip(module.names, module(*(given[name] for name in module.inputs)), strict=True)
        )


@pytest.mark.parametrize(
    ("connection", "head_layers"), [("none", 1), ("residual", 1), ("dense", 2), ("gru", 2)]
)
def test_probabilities_and_labels_after_each_round(connection, head_layers):
    X = np.random.default_rng(0).normal(size=(200, 3))
    y = np.where(np.sin(3 * X[:, 0]) > X[:, 1], "yes", "no")
    booster = BDistilBooster(
        LogisticRegression(),
        connection=Connection(
            connection,
            expansions=3,
            connect="when_needed" if connection == "none" else "always",
            head_layers=head_layers,
        ),
        module__hidden_units=(16, 8),
        **SMALL,
    ).fit(X, y)
    assert booster.n_rounds_ == 4
    rows = torch.tensor(X)
    for n_rounds, found in enumerate(in_turn(modules(booster), rows), 1):
        expected = booster.predict_proba(X, max_rounds=n_rounds)
        assert_allclose(found["probabilities"], expected, rtol=1e-9)
        labels = booster.classes_[found["label"]]
        assert_array_equal(labels, booster.predict(X, max_rounds=n_rounds))
    assert n_rounds == 4
    assert_allclose(found["total"], booster.predict_uncertainty(X).total, rtol=1e-9)


@pytest.mark.slow
def test_series_whose_states_at_all_times_are_read():
    X = np.random.default_rng(0).normal(size=(200, 5, 2)).astype(np.float32)
    members = np.full((200, 1, 2), 0.5)
    members[:, 0, 0] += 0.4 * np.sin(X[:, :, 0].sum(1))
    members[:, 0, 1] = 1 - members[:, 0, 0]
    booster = BDistilBooster(
        "classifier",
        module=Recurrent,
        early=True,
        connection=Connection(connect="always"),
        **{**SMALL, "max_epochs": 60},
    ).fit(X, members[:, 0].argmax(1), member_predictions=members)
    assert booster.n_rounds_ > 1
    for n_rounds, found in enumerate(in_turn(modules(booster), torch.tensor(X)), 1):
        expected = booster.predict_proba(X, max_rounds=n_rounds)
        assert_allclose(found["probabilities"], expected, rtol=1e-5)


@pytest.mark.slow
def test_graphs_of_one_row_and_of_many_in_float32(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    y = 4 + X[:, :2] - X[:, 1:] ** 2
    booster = BDistilBooster(
        LinearRegression(), connection=Connection(connect="always"), module=[MLP, MLP], **SMALL
    )
    booster.set_params(n_rounds=2).fit(X, y)
    paths = export_rounds(FrozenEstimator(booster), tmp_path, quantiles=[0.3])
    assert [path.name for path in paths] == ["round_1.onnx", "round_2.onnx"]
    for rows in (X[:1], X):
        for n_rounds, found in enumerate(in_turn(graphs(paths), rows), 1):
            mean, std = booster.predict(rows, return_std=True, max_rounds=n_rounds)
            assert_allclose(found["mean"], mean, rtol=1e-5, atol=1e-6)
            assert_allclose(found["std"], std, rtol=1e-5)
        expected = booster.predict_quantiles(rows, [0.3])
        assert_allclose(found["quantiles"], expected, rtol=1e-5, atol=1e-6)
        assert_allclose(found["interval"], booster.predict_interval(rows), rtol=1e-5, atol=1e-6)


def test_rounds_are_those_of_a_booster(tmp_path):
    with pytest.raises(TypeError, match="booster must be a BDistilBooster, got LinearRegression"):
        export_rounds(LinearRegression(), tmp_path)
