# SPDX-License-Identifier: BSD-3-Clause
"""Training speed: an ensemble as one stack, beside skorch, scikit-learn and bare torch loops.

All train networks of rectified units (perceptrons; in one setting with layer normalisation and
dropout, a module of the user's own) by Adam on minibatches, on one thread, in float32, for the
same number of epochs, without validation or early stopping:

skdistill        BayesianEnsembleRegressor of the same networks, all of fit: without embeddings,
                 random functions and calibration
defaults         the same with them, as a user has it
skorch           one NeuralNetRegressor for each member, with skorch's default iterator and
                 callbacks, Gaussian likelihood; train_split=None, so that all train on all rows.
                 A few members are trained and their time scaled to all
plain loop       one network after the other in a loop that slices tensors, with fused Adam and
                 nothing around it; a few members, scaled to all
Bagging of MLPs  BaggingRegressor(MLPRegressor), squared error, bootstrap samples
bare torch loop  the same stacked module, loss, fused Adam and minibatches (each member has an
                 order of its own) differentiated by autograd with nothing around them, all
                 members at once: what our shell costs, and what the closed form brings

Times are CPU seconds, contenders take turns, ratios are medians over rounds. The overhead is what
a fit takes beside its epochs: checks, scaling, building the module, the optimizer and the net.

    python benchmarks/engine.py                  # some minutes
    python benchmarks/engine.py --rounds 9       # for a noisy machine
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from _common import (
    asked,
    comparison,
    interleaved,
    one_thread,
    peak_growth,
    print_comparisons,
    print_table,
    save,
    scaled,
)
from sklearn.datasets import make_friedman1
from sklearn.ensemble import BaggingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from skorch import NeuralNetRegressor
from torch import nn

from skdistill import BayesianEnsembleRegressor
from skdistill.distributions import Gaussian
from skdistill.modules import ACTIVATIONS, MLP, build_member, build_members, stack
from skdistill.samplers import DeepEnsemble
from skdistill.settings import Runtime

ACTIVATION = "relu"
LR = 0.01
ENSEMBLE_PEERS = ("skorch", "plain loop", "Bagging of MLPs", "bare torch loop")


class Setting(NamedTuple):
    """How much is trained, and what is to be reached against whom."""

    n_rows: int
    n_features: int
    n_members: int
    n_epochs: int
    hidden_units: tuple[int, ...] = (50,)
    batch_size: int = 32
    at_least: dict[str, float] = {}
    at_most: dict[str, float] = {}
    peers: tuple[str, ...] = ENSEMBLE_PEERS
    members_measured: int = 2  # of those trained one by one, scaled to n_members
    module: Callable[..., nn.Module] = MLP

    def __str__(self) -> str:
        epochs = "1 epoch" if self.n_epochs == 1 else f"{self.n_epochs} epochs"
        members = "1 member" if self.n_members == 1 else f"{self.n_members} members"
        units = " x ".join(map(str, self.hidden_units))
        if self.module is not MLP:
            units = f"{self.module.__name__} of {units}"
        return (
            f"{self.n_rows} x {self.n_features}, {units} units, batch {self.batch_size}, "
            f"{members}, {epochs}"
        )

    @property
    def network(self) -> dict:
        """Arguments of the module."""
        return {"in_features": self.n_features, "out_features": 2, **self.settings}

    @property
    def settings(self) -> dict:
        """Those of them that a user gives."""
        return {"hidden_units": self.hidden_units, "activation": ACTIVATION}

    @property
    def n_measured(self) -> int:
        return min(self.members_measured, self.n_members)


class NormalisedMLP(nn.Sequential):
    """Perceptron with layer normalisation and dropout, which knows nothing of stacks."""

    def __init__(self, in_features, out_features, hidden_units, activation="relu"):
        layers: list[nn.Module] = []
        for fan_in, fan_out in pairwise((in_features, *hidden_units)):
            layers += [
                nn.Linear(fan_in, fan_out),
                nn.LayerNorm(fan_out),
                ACTIVATIONS[activation](),
                nn.Dropout(0.1),
            ]
        super().__init__(*layers, nn.Linear(hidden_units[-1], out_features))


SETTINGS = [
    Setting(506, 13, 10, 100, at_least={"skorch": 40, "plain loop": 15, "Bagging of MLPs": 10}),
    Setting(10_000, 8, 100, 2, at_least={"skorch": 70, "plain loop": 30, "Bagging of MLPs": 15}),
    Setting(
        10_000,
        8,
        10,
        3,
        hidden_units=(128, 128),
        batch_size=256,
        at_least={"skorch": 4, "plain loop": 1.6, "Bagging of MLPs": 2},
    ),
    Setting(
        506,
        13,
        1,
        100,
        hidden_units=(75,),
        at_least={"skorch": 7, "plain loop": 3},
        peers=("skorch", "plain loop", "bare torch loop"),
    ),
    Setting(
        506,
        13,
        10,
        100,
        at_least={"skorch": 12, "plain loop": 5},
        peers=("skorch", "plain loop", "bare torch loop"),
        module=NormalisedMLP,
    ),
    Setting(
        10_000,
        8,
        10,
        3,
        at_least={"skorch": 12, "Bagging of MLPs": 3.5},
        at_most={"bare torch loop": 1.15},
    ),
]
QUICK_SETTINGS = [Setting(100, 8, 3, 1)]
OVERHEAD_AT_MOST = 0.015  # seconds, at 506 x 13 and 10 members


def rows(n_rows: int, n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Standardised float32 inputs and targets."""
    X, y = make_friedman1(n_rows, n_features, noise=1.0, random_state=0)
    X, y = ((a - a.mean(0)) / a.std(0) for a in (X, y))
    return X.astype(np.float32), y.astype(np.float32)


# The contenders -----------------------------------------------------------------------------------


def ensemble(setting: Setting, X, y) -> None:
    """Fit the networks that the others train."""
    plain = {"distance_aware": False, "inference": DeepEnsemble(bootstrap=False, calibrate=None)}
    if setting.module is MLP:
        plain["module__embeddings"] = None
    with_defaults(setting, X, y, **plain)


def with_defaults(setting: Setting, X, y, **params: object) -> None:
    BayesianEnsembleRegressor(
        setting.n_members,
        module=setting.module,
        **{f"module__{name}": value for name, value in setting.settings.items()},
        batch_size=setting.batch_size,
        lr=LR,
        max_epochs=setting.n_epochs,
        runtime=Runtime(device="cpu"),
        random_state=0,
        **params,
    ).fit(X, y)


class GaussianLoss(nn.Module):
    """Negative log-likelihood of a mean and a raw variance, as a criterion for skorch."""

    def forward(self, outputs, y):
        mean, variance = Gaussian.from_outputs(outputs)
        return 0.5 * (variance.log() + (y - mean).square() / variance).mean()


def skorch_members(setting: Setting, X, y) -> None:
    """Fit as many nets as are measured."""
    for _ in range(setting.n_measured):
        NeuralNetRegressor(
            setting.module,
            **{f"module__{name}": value for name, value in setting.network.items()},
            criterion=GaussianLoss,
            optimizer=torch.optim.Adam,
            lr=LR,
            max_epochs=setting.n_epochs,
            batch_size=setting.batch_size,
            train_split=None,
            verbose=0,
        ).fit(X, y[:, None])


def plain_loop(setting: Setting, X, y) -> None:
    """Fit as many members as are measured, one after the other."""
    X, y = torch.tensor(X), torch.tensor(y).unsqueeze(1)
    loss_of = GaussianLoss()
    for seed in range(setting.n_measured):
        module = build_member(setting.module, seed, **setting.network)
        optimizer = torch.optim.Adam(module.parameters(), lr=LR, fused=True)
        for _ in range(setting.n_epochs):
            for index in torch.randperm(len(X)).split(setting.batch_size):
                loss = loss_of(module(X[index]), y[index])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


def bagging(setting: Setting, X, y) -> None:
    member = MLPRegressor(
        hidden_layer_sizes=setting.hidden_units,
        activation=ACTIVATION,
        batch_size=setting.batch_size,
        learning_rate_init=LR,
        max_iter=setting.n_epochs,
        n_iter_no_change=setting.n_epochs + 1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # as many epochs as the others
        BaggingRegressor(member, setting.n_members, n_jobs=1, random_state=0).fit(X, y)


def bare_loop(setting: Setting, X, y) -> None:
    X, y = torch.tensor(X), torch.tensor(y).unsqueeze(1)
    members = build_members(setting.module, range(setting.n_members), **setting.network)
    module = stack(members)
    beta = BayesianEnsembleRegressor().beta
    optimizer = torch.optim.Adam(module.parameters(), lr=LR, weight_decay=1e-4, fused=True)
    for _ in range(setting.n_epochs):
        order = torch.stack([torch.randperm(len(X)) for _ in members])
        for index in order.split(setting.batch_size, dim=1):
            mean, variance = Gaussian.from_outputs(module(X[index]))
            nll = 0.5 * (torch.log(variance) + (y[index] - mean).square() / variance)
            loss = (variance.detach() ** beta * nll).sum(-1).mean(-1).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


CONTENDERS: dict[str, Callable] = {
    "skdistill": ensemble,
    "defaults": with_defaults,
    "skorch": skorch_members,
    "plain loop": plain_loop,
    "Bagging of MLPs": bagging,
    "bare torch loop": bare_loop,
}


ONE_BY_ONE = ("skorch", "plain loop")


# Measuring ----------------------------------------------------------------------------------------


def compare(setting: Setting, n_rounds: int) -> list[dict]:
    """Our time beside each peer's."""
    X, y = rows(setting.n_rows, setting.n_features)
    names = ("skdistill", "defaults", *setting.peers)
    seconds = interleaved(
        {name: partial(CONTENDERS[name], setting, X, y) for name in names}, n_rounds
    )
    for peer in ONE_BY_ONE:
        seconds = scaled(seconds, peer, setting.n_members / setting.n_measured)
    return [
        comparison(
            str(setting),
            seconds,
            peer,
            at_least=setting.at_least.get(peer),
            at_most=setting.at_most.get(peer),
        )
        for peer in setting.peers
    ] + [comparison(str(setting), seconds, peer, ours="defaults") for peer in setting.peers]


def overhead(n_rounds: int, n_epochs: int = 21) -> dict:
    """CPU seconds that a fit of one epoch takes beside the epoch."""
    one = Setting(506, 13, 10, 1)
    X, y = rows(one.n_rows, one.n_features)
    fits = {"one": one, "many": one._replace(n_epochs=n_epochs)}
    seconds = interleaved(
        {name: partial(ensemble, setting, X, y) for name, setting in fits.items()}, n_rounds
    )
    found = median(
        first - (many - first) / (n_epochs - 1)
        for first, many in zip(seconds["one"], seconds["many"], strict=True)
    )
    return {
        "setting": str(one),
        "fit_seconds": median(seconds["one"]),
        "overhead_seconds": found,
        "target": OVERHEAD_AT_MOST,
        "reached": found <= OVERHEAD_AT_MOST,
        "rounds": n_rounds,
    }


def prepared(name: str, setting: Setting) -> Callable[[], None]:
    """A contender's call in a fresh process, what can be imported beforehand imported."""
    one_thread()
    tiny = setting._replace(n_rows=2 * setting.batch_size, n_members=2, n_epochs=1)
    CONTENDERS[name](tiny, *rows(tiny.n_rows, tiny.n_features))
    return partial(CONTENDERS[name], setting, *rows(setting.n_rows, setting.n_features))


def memory(setting: Setting, names: Iterable[str]) -> list[dict]:
    """Peak memory that each contender's fit adds, in MiB."""
    return [
        {
            "setting": str(setting),
            "contender": name,
            "members": setting.n_measured if name in ONE_BY_ONE else setting.n_members,
            "peak_mib": peak_growth(prepared, name, setting),
        }
        for name in names
    ]


def main() -> None:
    options = asked(__doc__, rounds=2)
    settings = QUICK_SETTINGS if options.quick else SETTINGS
    results: list[dict] = []
    for setting in settings:
        results += compare(setting, 1 if options.quick else options.rounds)
        print(f"done: {setting}", flush=True)
    fixed = overhead(2 if options.quick else options.rounds)
    peaks = memory(settings[-1], ["skdistill"] if options.quick else CONTENDERS)
    print()
    print_comparisons(results)
    print()
    print(
        f"overhead of a fit, {fixed['setting']}: {1e3 * fixed['overhead_seconds']:.1f} ms of "
        f"{1e3 * fixed['fit_seconds']:.1f} ms, target <= {1e3 * fixed['target']:g} ms"
    )
    print()
    print_table(
        ["peak memory of", "setting", "members", "MiB"],
        [[p["contender"], p["setting"], p["members"], p["peak_mib"]] for p in peaks],
    )
    save(options, training=results, overhead=fixed, memory=peaks)


if __name__ == "__main__":
    main()
