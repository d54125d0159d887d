# SPDX-License-Identifier: BSD-3-Clause
"""Training speed: an ensemble as one stack, beside skorch, scikit-learn and a bare torch loop.

All train networks with one hidden layer of 50 rectified units by Adam on minibatches of 32 rows,
on one thread, in float32, for the same number of epochs, without validation or early stopping:

skdistill        BayesianEnsembleRegressor as a user calls it, all of fit
skorch           one NeuralNetRegressor for each member, with skorch's default iterator and
                 callbacks, Gaussian likelihood; train_split=None, so that all train on all rows.
                 A few members are trained and their time scaled to all
Bagging of MLPs  BaggingRegressor(MLPRegressor), squared error, bootstrap samples
bare torch loop  the same stacked module, loss, fused Adam and minibatches (each member has an
                 order of its own) with nothing around them, all members at once: what our shell
                 costs, and what our blocks of members bring

Times are CPU seconds, contenders take turns, ratios are medians over rounds. With one epoch of few
rows what is fixed shows: checks, building the module, the optimizer and the net.

    python benchmarks/engine.py                  # some minutes
    python benchmarks/engine.py --rounds 9       # for a noisy machine
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from _common import (
    argument_parser,
    comparison,
    interleaved,
    one_thread,
    peak_growth,
    print_comparisons,
    print_table,
    record,
    scaled,
    write_json,
)
from sklearn.datasets import make_friedman1
from sklearn.ensemble import BaggingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from skorch import NeuralNetRegressor
from torch import nn

from skdistill import BayesianEnsembleRegressor
from skdistill.distributions import Gaussian
from skdistill.losses import gaussian_nll
from skdistill.modules import MLP, build_member, stack

HIDDEN_UNITS = (50,)
ACTIVATION = "relu"
BATCH_SIZE = 32
LR = 0.01


class Setting(NamedTuple):
    """How much is trained, and what is to be reached against whom."""

    n_rows: int
    n_features: int
    n_members: int
    n_epochs: int
    at_least: dict[str, float] = {}
    at_most: dict[str, float] = {}
    peers: tuple[str, ...] = ("skorch", "Bagging of MLPs", "bare torch loop")
    members_measured: int = 2  # of skorch's, scaled to n_members

    def __str__(self) -> str:
        epochs = "1 epoch" if self.n_epochs == 1 else f"{self.n_epochs} epochs"
        return f"{self.n_rows} x {self.n_features}, {self.n_members} members, {epochs}"


SETTINGS = [
    Setting(
        10_000,
        8,
        10,
        3,
        at_least={"skorch": 12, "Bagging of MLPs": 3.5},
        at_most={"bare torch loop": 1.15},
    ),
    Setting(10_000, 8, 100, 1, at_least={"skorch": 40}, peers=("skorch", "bare torch loop")),
    Setting(506, 13, 10, 40),
    Setting(506, 13, 10, 1),
]
QUICK_SETTINGS = [Setting(100, 8, 3, 1)]


def rows(n_rows: int, n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Standardised float32 inputs and targets."""
    X, y = make_friedman1(n_rows, n_features, noise=1.0, random_state=0)
    X, y = ((a - a.mean(0)) / a.std(0) for a in (X, y))
    return X.astype(np.float32), y.astype(np.float32)


# The contenders -----------------------------------------------------------------------------------


def ensemble(setting: Setting, X, y) -> None:
    BayesianEnsembleRegressor(
        setting.n_members,
        module__hidden_units=HIDDEN_UNITS,
        module__activation=ACTIVATION,
        batch_size=BATCH_SIZE,
        lr=LR,
        max_epochs=setting.n_epochs,
        device="cpu",
        random_state=0,
    ).fit(X, y)


class GaussianLoss(nn.Module):
    """Negative log-likelihood of a mean and a raw variance, as a criterion for skorch."""

    def forward(self, outputs, y):
        mean, variance = Gaussian.from_outputs(outputs)
        return 0.5 * (variance.log() + (y - mean).square() / variance).mean()


def skorch_members(setting: Setting, X, y) -> None:
    """Fit as many nets as are measured."""
    for _ in range(min(setting.members_measured, setting.n_members)):
        NeuralNetRegressor(
            MLP,
            module__in_features=X.shape[1],
            module__out_features=2,
            module__hidden_units=HIDDEN_UNITS,
            module__activation=ACTIVATION,
            criterion=GaussianLoss,
            optimizer=torch.optim.Adam,
            lr=LR,
            max_epochs=setting.n_epochs,
            batch_size=BATCH_SIZE,
            train_split=None,
            verbose=0,
        ).fit(X, y[:, None])


def bagging(setting: Setting, X, y) -> None:
    member = MLPRegressor(
        hidden_layer_sizes=HIDDEN_UNITS,
        activation=ACTIVATION,
        batch_size=BATCH_SIZE,
        learning_rate_init=LR,
        max_iter=setting.n_epochs,
        n_iter_no_change=setting.n_epochs + 1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # as many epochs as the others
        BaggingRegressor(member, setting.n_members, n_jobs=1, random_state=0).fit(X, y)


def bare_loop(setting: Setting, X, y) -> None:
    X, y = torch.tensor(X), torch.tensor(y).unsqueeze(1)
    widths = {"in_features": X.shape[1], "out_features": 2, "hidden_units": HIDDEN_UNITS}
    members = [
        build_member(MLP, seed, activation=ACTIVATION, **widths)
        for seed in range(setting.n_members)
    ]
    module = stack(members)
    beta = BayesianEnsembleRegressor().beta
    optimizer = torch.optim.Adam(module.parameters(), lr=LR, weight_decay=1e-4, fused=True)
    for _ in range(setting.n_epochs):
        order = torch.stack([torch.randperm(len(X)) for _ in members])
        for index in order.split(BATCH_SIZE, dim=1):
            prediction = Gaussian.from_outputs(module(X[index]))
            loss = gaussian_nll(prediction, y[index], beta).mean(-1).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


CONTENDERS: dict[str, Callable] = {
    "skdistill": ensemble,
    "skorch": skorch_members,
    "Bagging of MLPs": bagging,
    "bare torch loop": bare_loop,
}


# Measuring ----------------------------------------------------------------------------------------


def compare(setting: Setting, n_rounds: int) -> list[dict]:
    """Our time beside each peer's."""
    X, y = rows(setting.n_rows, setting.n_features)
    names = ("skdistill", *setting.peers)
    seconds = interleaved(
        {name: partial(CONTENDERS[name], setting, X, y) for name in names}, n_rounds
    )
    measured = min(setting.members_measured, setting.n_members)
    seconds = scaled(seconds, "skorch", setting.n_members / measured)
    return [
        comparison(
            str(setting),
            seconds,
            peer,
            at_least=setting.at_least.get(peer),
            at_most=setting.at_most.get(peer),
        )
        for peer in setting.peers
    ]


def prepared(name: str, setting: Setting) -> Callable[[], None]:
    """A contender's call in a fresh process, what can be imported beforehand imported."""
    one_thread()
    tiny = setting._replace(n_rows=2 * BATCH_SIZE, n_members=2, n_epochs=1)
    CONTENDERS[name](tiny, *rows(tiny.n_rows, tiny.n_features))
    return partial(CONTENDERS[name], setting, *rows(setting.n_rows, setting.n_features))


def memory(setting: Setting, names: Iterable[str]) -> list[dict]:
    """Peak memory that each contender's fit adds, in MiB."""
    return [
        {
            "setting": str(setting),
            "contender": name,
            "members": setting.members_measured if name == "skorch" else setting.n_members,
            "peak_mib": peak_growth(prepared, name, setting),
        }
        for name in names
    ]


def main() -> None:
    parser = argument_parser(__doc__, "engine")
    parser.add_argument("--rounds", type=int, default=5, help="rounds to take medians over")
    options = parser.parse_args()
    one_thread()

    settings = QUICK_SETTINGS if options.quick else SETTINGS
    results: list[dict] = []
    for setting in settings:
        results += compare(setting, 1 if options.quick else options.rounds)
        print(f"done: {setting}", flush=True)
    peaks = memory(settings[0], ["skdistill"] if options.quick else CONTENDERS)
    print()
    print_comparisons(results)
    print()
    print_table(
        ["peak memory of", "setting", "members", "MiB"],
        [[p["contender"], p["setting"], p["members"], p["peak_mib"]] for p in peaks],
    )
    write_json(options.output, record(quick=options.quick, training=results, memory=peaks))


if __name__ == "__main__":
    main()
