# SPDX-License-Identifier: BSD-3-Clause
"""Prediction: latency of one row, time for a hundred thousand, and the memory that they take.

An ensemble of 20 networks and the student distilled from it (HydraPlusRegressor's default module
with 20 heads) predict the mean:

batch 1      beside MLPRegressor.predict, one network of the size of a member, and beside the
             student's torch module without anything around it
1,000 rows   the same
100,000 rows beside skorch: one NeuralNetRegressor for each member, with skorch's defaults, their
             predictions averaged. A few members predict and their time is scaled to all
memory       peak growth during a call, in a fresh process, under a small working_memory of
             scikit-learn's; "bounded" says that it is no more than that, the copy of X and twice
             the result

On one thread, in float32. Times are CPU seconds a call, contenders take turns, ratios are medians
over rounds. How well the models predict does not matter here; they are hardly trained.

    python benchmarks/predict.py
    python benchmarks/predict.py --hidden-units 50 50
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
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
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPRegressor
from skorch import NeuralNetRegressor

from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
from skdistill.modules import MLP

N_FEATURES = 8
N_MEMBERS = 20
SKORCH_MEMBERS_MEASURED = 2

ENSEMBLE, STUDENT = f"ensemble of {N_MEMBERS}", "student"
MLP_PEER, MODULE_PEER = "MLPRegressor", "student's module"
SKORCH_PEER = f"{N_MEMBERS} skorch nets"


class Sizes(NamedTuple):
    """How much is predicted and how often."""

    one_row_calls: int = 300
    rows: int = 1_000
    rows_calls: int = 50
    many_rows: int = 100_000
    memory_rows: tuple[int, ...] = (100_000, 1_000_000)
    memory_methods: tuple[str, ...] = ("predict", "predict_uncertainty")


QUICK_SIZES = Sizes(5, 20, 2, 300, memory_rows=(3000,), memory_methods=("predict",))


def inputs(n_rows: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n_rows, N_FEATURES), dtype=np.float32)


class Models(NamedTuple):
    """Everything that predicts, trained for an epoch."""

    ensemble: BayesianEnsembleRegressor
    student: HydraPlusRegressor
    mlp: MLPRegressor
    skorch: NeuralNetRegressor


def fitted_models(hidden_units: tuple[int, ...]) -> Models:
    X = inputs(256)
    y = X[:, 0] + np.sin(X[:, 1])
    settings = {"max_epochs": 1, "device": "cpu", "random_state": 0}
    ensemble = BayesianEnsembleRegressor(
        N_MEMBERS, module__hidden_units=hidden_units, module__activation="relu", **settings
    ).fit(X, y)
    student = HydraPlusRegressor(FrozenEstimator(ensemble), **settings).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mlp = MLPRegressor(hidden_layer_sizes=hidden_units, max_iter=1, random_state=0).fit(X, y)
    net = NeuralNetRegressor(
        MLP,
        module__in_features=N_FEATURES,
        module__out_features=1,
        module__hidden_units=hidden_units,
        train_split=None,
        max_epochs=1,
        verbose=0,
    ).fit(X, y[:, None])
    return Models(ensemble, student, mlp, net)


def module_predict(student: HydraPlusRegressor, X: np.ndarray) -> torch.Tensor:
    """Prediction by the bare torch module."""
    with torch.inference_mode():
        return student.module_.distribution(torch.from_numpy(X)).mean


def few_rows(models: Models, n_rows: int, n_calls: int, n_rounds: int, at_most=None) -> list[dict]:
    """Ensemble and student beside one network of scikit-learn's and the bare module."""
    X = inputs(n_rows)
    seconds = interleaved(
        {
            ENSEMBLE: partial(models.ensemble.predict, X),
            STUDENT: partial(models.student.predict, X),
            MLP_PEER: partial(models.mlp.predict, X),
            MODULE_PEER: partial(module_predict, models.student, X),
        },
        n_rounds,
        n_calls,
    )
    setting = "1 row" if n_rows == 1 else f"{n_rows} rows"
    compare = partial(comparison, setting, seconds)
    return [
        compare(MLP_PEER, ours=STUDENT, at_most=at_most),
        compare(MODULE_PEER, ours=STUDENT),
        compare(MLP_PEER, ours=ENSEMBLE, at_most=at_most),
    ]


def many_rows(models: Models, n_rows: int, n_rounds: int, at_least=None) -> list[dict]:
    """Ensemble and student beside a loop over skorch nets."""
    X = inputs(n_rows)

    def skorch_members():
        return np.mean([models.skorch.predict(X) for _ in range(SKORCH_MEMBERS_MEASURED)], axis=0)

    seconds = interleaved(
        {
            ENSEMBLE: partial(models.ensemble.predict, X),
            STUDENT: partial(models.student.predict, X),
            SKORCH_PEER: skorch_members,
            MLP_PEER: partial(models.mlp.predict, X),
        },
        n_rounds,
    )
    seconds = scaled(seconds, SKORCH_PEER, N_MEMBERS / SKORCH_MEMBERS_MEASURED)
    compare = partial(comparison, f"{n_rows} rows", seconds)
    return [
        compare(SKORCH_PEER, ours=ENSEMBLE, at_least=at_least),
        compare(SKORCH_PEER, ours=STUDENT, at_least=at_least),
        compare(MLP_PEER, ours=STUDENT),
    ]


# Memory -------------------------------------------------------------------------------------------


def prepared(model, method: str, n_rows: int, working_memory: int) -> Callable[[], None]:
    """A model's call in a fresh process, what can be imported beforehand imported."""
    one_thread()
    getattr(model, method)(inputs(10))
    X = inputs(n_rows)

    def call() -> None:
        with config_context(working_memory=working_memory):
            getattr(model, method)(X)

    return call


def memory(name: str, model, method: str, n_rows: int, working_memory: int) -> dict:
    """Peak memory that a call adds, in MiB, and what of it grows with the rows in any case."""
    n_values = {"predict": 1, "predict_uncertainty": 3}[method]
    given = 4 * n_rows * (N_FEATURES + 2 * n_values) / 2**20
    peak = peak_growth(prepared, model, method, n_rows, working_memory)
    return {
        "model": name,
        "method": method,
        "rows": n_rows,
        "working_memory_mib": working_memory,
        "copy_and_results_mib": given,
        "peak_mib": peak,
        "bounded": peak <= working_memory + given,
    }


def main() -> None:
    parser = argument_parser(__doc__, "predict")
    parser.add_argument("--hidden-units", type=int, nargs="+", default=[50], metavar="N")
    parser.add_argument("--working-memory", type=int, default=16, metavar="MIB")
    parser.add_argument("--rounds", type=int, default=11, help="rounds to take medians over")
    options = parser.parse_args()
    one_thread()

    sizes, n_rounds = (QUICK_SIZES, 1) if options.quick else (Sizes(), options.rounds)
    models = fitted_models(tuple(options.hidden_units))
    results = [
        *few_rows(models, 1, sizes.one_row_calls, n_rounds, at_most=1.5),
        *few_rows(models, sizes.rows, sizes.rows_calls, n_rounds),
        *many_rows(models, sizes.many_rows, min(n_rounds, 5), at_least=20),
    ]
    print_comparisons(results)
    peaks = [
        memory(name, model, method, n_rows, options.working_memory)
        for name, model in ((ENSEMBLE, models.ensemble), (STUDENT, models.student))
        for method in sizes.memory_methods
        for n_rows in sizes.memory_rows
    ]
    print()
    print_table(
        ["model", "method", "rows", "working_memory", "copy, results", "peak MiB", "bounded"],
        [[*list(peak.values())[:-1], "yes" if peak["bounded"] else "NO"] for peak in peaks],
    )
    settings = {"hidden_units": options.hidden_units, "members": N_MEMBERS, "quick": options.quick}
    write_json(options.output, record(settings=settings, prediction=results, memory=peaks))


if __name__ == "__main__":
    main()
