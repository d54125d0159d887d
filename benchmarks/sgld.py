# SPDX-License-Identifier: BSD-3-Clause
"""Speed of stochastic gradient Langevin dynamics: one wide chain, and ten small ones side by side.

One chain of a 784-400-400-10 network on batches of 100 rows, the setting of GPED on MNIST:

skdistill        BayesianEnsembleClassifier(inference=SGLD(...)) as a user calls it, all of fit
matrix products  the same steps' products alone, into memory of their own: the limit
noise            the same steps' Gaussian noise alone, one number for each weight
naive loop       nn.Sequential, autograd, and a Python loop over parameters with randn_like

Ten chains of networks of 50 hidden units:

skdistill        ten chains in one stack
one by one       ten fits of one chain each
naive loop       ten runs of the naive loop; a few are run and their time scaled to all

All draw exact noise in float32 on one thread and have the same prior. Times are CPU seconds,
contenders take turns, ratios are medians over rounds. That we are k times as fast as ten runs means
k times as many samples a second.

    python benchmarks/sgld.py                  # a minute
    python benchmarks/sgld.py --rounds 15      # for a noisy machine
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import NamedTuple

import torch
from _common import (
    argument_parser,
    comparison,
    interleaved,
    one_thread,
    print_comparisons,
    print_table,
    ratio,
    record,
    scaled,
    write_json,
)
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from skdistill import BayesianEnsembleClassifier
from skdistill.modules import MLP, build_member
from skdistill.samplers import SGLD
from skdistill.settings import Runtime

STEP_SIZE = 4e-6
PRIOR_PRECISION = 10.0
ACTIVATION = "relu"


class Setting(NamedTuple):
    """What is sampled, and what is to be reached against whom."""

    n_rows: int
    widths: tuple[int, ...]  # of inputs, hidden layers and classes
    batch_size: int
    n_chains: int
    n_epochs: int
    at_least: dict[str, float] = {}
    at_most: dict[str, float] = {}
    chains_measured: int = 2  # of those that the naive loop runs one by one, scaled to n_chains

    def __str__(self) -> str:
        chains = "1 chain" if self.n_chains == 1 else f"{self.n_chains} chains"
        return f"{'-'.join(map(str, self.widths))}, batch {self.batch_size}, {chains}"

    @property
    def network(self) -> dict:
        """Arguments of the MLP."""
        inputs, *hidden, classes = self.widths
        return {
            "in_features": inputs,
            "out_features": classes,
            "hidden_units": tuple(hidden),
            "activation": ACTIVATION,
        }

    @property
    def n_steps(self) -> int:
        return self.n_epochs * (self.n_rows // self.batch_size)

    @property
    def n_measured(self) -> int:
        return min(self.chains_measured, self.n_chains)


WIDE = Setting(
    10_000,
    (784, 400, 400, 10),
    100,
    n_chains=1,
    n_epochs=3,
    at_least={"naive loop": 1.15},
    at_most={"matrix products": 1.8},
)
SMALL = [
    Setting(3_200, widths, 32, n_chains=10, n_epochs=3, at_least={"one by one": 4})
    for widths in ((8, 50, 3), (20, 50, 3))
]


def rows(setting: Setting) -> tuple[Tensor, Tensor]:
    """Standard normal inputs, and the classes of a random linear map."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(setting.n_rows, setting.widths[0], generator=generator)
    scores = X @ torch.randn(setting.widths[0], setting.widths[-1], generator=generator)
    return X, scores.argmax(1)


# The contenders -----------------------------------------------------------------------------------


def stacked_chains(setting: Setting, X: Tensor, y: Tensor) -> None:
    inference = SGLD(STEP_SIZE, prior_precision=PRIOR_PRECISION, n_chains=setting.n_chains)
    BayesianEnsembleClassifier(
        setting.n_chains,
        module__hidden_units=setting.network["hidden_units"],
        module__activation=ACTIVATION,
        inference=inference,
        batch_size=setting.batch_size,
        max_epochs=setting.n_epochs,
        runtime=Runtime(device="cpu"),
        random_state=0,
    ).fit(X.numpy(), y.numpy())


def one_by_one(setting: Setting, X: Tensor, y: Tensor) -> None:
    for _ in range(setting.n_chains):
        stacked_chains(setting._replace(n_chains=1), X, y)


def naive_loop(setting: Setting, X: Tensor, y: Tensor) -> None:
    """Run as many chains as are measured, one after the other."""
    for seed in range(setting.n_measured):
        module = build_member(MLP, seed, **setting.network)
        for _ in range(setting.n_epochs):
            for index in torch.randperm(len(X)).split(setting.batch_size):
                module.zero_grad()
                cross_entropy(module(X[index]), y[index]).backward()
                naive_step(module, len(X))


@torch.no_grad()
def naive_step(module: nn.Module, n_rows: int) -> None:
    for p in module.parameters():
        gradient = n_rows * p.grad + PRIOR_PRECISION * p
        p.sub_(STEP_SIZE / 2 * gradient)
        p.add_(math.sqrt(STEP_SIZE) * torch.randn_like(p))


def products(setting: Setting) -> Callable[[], None]:
    """Call that does the matrix products of all steps of one chain."""
    n = setting.batch_size
    calls: list[Callable] = []
    for k, (fan_in, width) in enumerate(itertools.pairwise(setting.widths)):
        inputs, weight, outputs = (
            torch.randn(shape) for shape in ((n, fan_in), (fan_in, width), (n, width))
        )
        calls.append(partial(torch.mm, inputs, weight, out=torch.empty_like(outputs)))
        calls.append(partial(torch.mm, inputs.T, outputs, out=torch.empty_like(weight)))
        if k:  # nobody asks for the gradient with respect to the rows
            calls.append(partial(torch.mm, outputs, weight.T, out=torch.empty_like(inputs)))

    def run() -> None:
        for _ in range(setting.n_steps):
            for call in calls:
                call()

    return run


def noise_alone(setting: Setting) -> Callable[[], None]:
    """Call that draws the noise of all steps of one chain."""
    n_weights = sum((a + 1) * b for a, b in itertools.pairwise(setting.widths))
    noise, generator = torch.empty(n_weights), torch.Generator().manual_seed(0)

    def run() -> None:
        for _ in range(setting.n_steps):
            noise.normal_(0.0, math.sqrt(STEP_SIZE), generator=generator)

    return run


# Measuring ----------------------------------------------------------------------------------------


def compared(setting: Setting, seconds: dict[str, list[float]]) -> list[dict]:
    """Our time beside that of each other contender."""
    return [
        comparison(
            str(setting),
            seconds,
            peer,
            at_least=setting.at_least.get(peer),
            at_most=setting.at_most.get(peer),
        )
        for peer in seconds
        if peer != "skdistill"
    ]


def wide_chain(setting: Setting, n_rounds: int) -> tuple[list[dict], list[dict]]:
    """Comparisons, and each contender's time for a step relative to the matrix products."""
    X, y = rows(setting)
    contenders = {
        "skdistill": partial(stacked_chains, setting, X, y),
        "matrix products": products(setting),
        "naive loop": partial(naive_loop, setting, X, y),
        "noise": noise_alone(setting),
    }
    seconds = interleaved(contenders, n_rounds)
    steps = [
        {
            "setting": str(setting),
            "contender": name,
            "step_ms": 1e3 * median(times) / setting.n_steps,
            "per_products": ratio(seconds, name, "matrix products"),
        }
        for name, times in seconds.items()
    ]
    del seconds["noise"]  # a part of a step, no rival
    return compared(setting, seconds), steps


def small_chains(setting: Setting, n_rounds: int) -> list[dict]:
    X, y = rows(setting)
    contenders = {"skdistill": stacked_chains, "one by one": one_by_one, "naive loop": naive_loop}
    seconds = interleaved(
        {name: partial(run, setting, X, y) for name, run in contenders.items()}, n_rounds
    )
    seconds = scaled(seconds, "naive loop", setting.n_chains / setting.n_measured)
    return compared(setting, seconds)


def main() -> None:
    parser = argument_parser(__doc__, "sgld")
    parser.add_argument("--rounds", type=int, default=7, help="rounds to take medians over")
    options = parser.parse_args()
    one_thread()

    wide, small, n_rounds = WIDE, SMALL, options.rounds
    if options.quick:
        wide, small, n_rounds = wide._replace(n_rows=200), [small[0]._replace(n_rows=64)], 1
    results, steps = wide_chain(wide, n_rounds)
    for setting in small:
        results += small_chains(setting, n_rounds)
    print_comparisons(results)
    print()
    print_table(
        ["one step of", "contender", "ms", "of the products"],
        [[s["setting"], s["contender"], s["step_ms"], s["per_products"]] for s in steps],
    )
    write_json(options.output, record(quick=options.quick, sampling=results, steps=steps))


if __name__ == "__main__":
    main()
