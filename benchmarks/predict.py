# SPDX-License-Identifier: BSD-3-Clause
"""Prediction: latency of one row, time for a hundred thousand, and the memory that they take.

An ensemble of 10 networks and students distilled from it (HydraPlusRegressor's default module, with
20 heads and with 1) predict means, at batches of 1, 1,000 and 100,000 rows. Beside them stand:

module          the student's torch module alone: ``module_`` called on a float32 tensor of all
                rows at once, in inference mode, and the mean of the heads' means. "+ 90 us" is its
                time with that much granted for one call of an estimator, scikit-learn's checks
                of the rows included
MLPRegressor    one network of the size of a member
10 students     one network each, of the size of a member: HydraPlusRegressor with 1 head and the
                members' layers. Each predicts all rows, one student after the other, and their
                predictions are averaged, which is what an ensemble has to do at the least
10 skorch nets  one NeuralNetRegressor for each member, with skorch's defaults, their predictions
                averaged. A few of them predict and their time is scaled to all
memory          peak growth during a call, in a fresh process, under a small working_memory of
                scikit-learn's; "bounded" says that it is no more than that, the copy of X and twice
                the result

On one thread, in float32. Times are CPU seconds a call, contenders take turns, ratios are medians
over rounds. How well the models predict does not matter here; they are hardly trained.

    python benchmarks/predict.py
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
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
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPRegressor
from skorch import NeuralNetRegressor

from skdistill import (
    BayesianEnsembleRegressor,
    HydraPlusRegressor,
    export_onnx,
)
from skdistill.modules import MLP
from skdistill.settings import Runtime

N_FEATURES = 8
N_MEMBERS = 10
N_HEADS = 20
MEASURED = 2  # of the skorch nets
GRANTED = 90e-6  # seconds that a call may take beyond the bare module's

ENSEMBLE, STUDENT, SINGLE = f"ensemble of {N_MEMBERS}", "student", "1-head student"
MLP_PEER, SKORCH_PEER = "MLPRegressor", f"{N_MEMBERS} skorch nets"
STUDENTS_PEER = f"{N_MEMBERS} students"


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
    single: HydraPlusRegressor  # as the student, with one head
    member: HydraPlusRegressor  # one network of the size of the ensemble's members
    mlp: MLPRegressor
    skorch: NeuralNetRegressor


def fitted_models(hidden_units: tuple[int, ...]) -> Models:
    X = inputs(256)
    y = X[:, 0] + np.sin(X[:, 1])
    settings = {"max_epochs": 1, "runtime": Runtime(device="cpu"), "random_state": 0}
    layers = {"module__hidden_units": hidden_units, "module__activation": "relu"}
    ensemble = BayesianEnsembleRegressor(N_MEMBERS, **layers, **settings).fit(X, y)

    def student(n_heads: int, **layers) -> HydraPlusRegressor:
        teacher = FrozenEstimator(ensemble)
        return HydraPlusRegressor(teacher, heads=n_heads, **layers, **settings).fit(X, y)

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
    return Models(ensemble, student(N_HEADS), student(1), student(1, **layers), mlp, net)


def module_predict(student: HydraPlusRegressor, X: np.ndarray) -> torch.Tensor:
    """Standardised mean by the bare torch module: raw outputs of the heads, (1, M, n, 2), and
    perhaps those of the gain after them; means come first.
    """
    with torch.inference_mode():
        module = student.module_
        outputs = module(module.encode(torch.from_numpy(X)).unsqueeze(0))
        return outputs[:, : student.n_heads_, :, :1].mean(dim=1)


def mean_of(n: int, predict: Callable[[np.ndarray], np.ndarray], X: np.ndarray) -> np.ndarray:
    """Mean of `n` predictions, one after the other."""
    return np.mean([predict(X) for _ in range(n)], axis=0)


def module_peer(name: str) -> str:
    return f"{name}'s module"


def granted_peer(name: str) -> str:
    return f"{module_peer(name)} + {1e6 * GRANTED:g} us"


def beside_networks(models: Models, n_rows: int, n_calls: int, n_rounds: int):
    """Seconds of the ensemble and the students, of the students' modules and of MLPRegressor."""
    X = inputs(n_rows)
    contenders: dict[str, Callable] = {
        ENSEMBLE: partial(models.ensemble.predict, X),
        MLP_PEER: partial(models.mlp.predict, X),
    }
    for name, student in ((STUDENT, models.student), (SINGLE, models.single)):
        contenders[name] = partial(student.predict, X)
        contenders[module_peer(name)] = partial(module_predict, student, X)
    return interleaved(contenders, n_rounds, n_calls)


def one_row(models: Models, n_calls: int, n_rounds: int) -> list[dict]:
    """Students within a fixed time of their modules, all beside one network of scikit-learn's."""
    seconds = beside_networks(models, 1, n_calls, n_rounds)
    for name in (STUDENT, SINGLE):
        seconds[granted_peer(name)] = [GRANTED + s for s in seconds[module_peer(name)]]
    compare = partial(comparison, "1 row", seconds)
    return [
        *(compare(module_peer(name), ours=name) for name in (STUDENT, SINGLE)),
        *(compare(granted_peer(name), ours=name, at_most=1) for name in (STUDENT, SINGLE)),
        *(compare(MLP_PEER, ours=name, at_most=1.5) for name in (STUDENT, ENSEMBLE)),
    ]


def some_rows(
    models: Models, n_rows: int, n_calls: int, n_rounds: int, at_most: float
) -> list[dict]:
    """Students beside their modules, all beside one network of scikit-learn's."""
    seconds = beside_networks(models, n_rows, n_calls, n_rounds)
    compare = partial(comparison, f"{n_rows} rows", seconds)
    return [
        *(compare(module_peer(name), ours=name, at_most=at_most) for name in (STUDENT, SINGLE)),
        *(compare(MLP_PEER, ours=name) for name in (STUDENT, ENSEMBLE)),
    ]


def loops(models: Models, n_rows: int, n_rounds: int) -> list[dict]:
    """The ensemble and a student beside loops over as many networks as the ensemble has."""
    X = inputs(n_rows)
    seconds = interleaved(
        {
            ENSEMBLE: partial(models.ensemble.predict, X),
            STUDENT: partial(models.student.predict, X),
            STUDENTS_PEER: partial(mean_of, N_MEMBERS, models.member.predict, X),
            SKORCH_PEER: partial(mean_of, MEASURED, models.skorch.predict, X),
        },
        n_rounds,
    )
    seconds = scaled(seconds, SKORCH_PEER, N_MEMBERS / MEASURED)
    compare = partial(comparison, f"{n_rows} rows", seconds)
    return [
        compare(STUDENTS_PEER, ours=ENSEMBLE, at_most=1.5),
        compare(SKORCH_PEER, ours=ENSEMBLE, at_least=40),
        compare(SKORCH_PEER, ours=STUDENT),
    ]


def in_onnxruntime(model: Any, folder: str, row: np.ndarray, outputs: Any) -> Callable[[], Any]:
    """A call of the graph of a model, on one thread."""
    path = Path(folder) / "model.onnx"
    export_onnx(model, path, outputs=outputs)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options)
    return partial(session.run, None, {"X": row})


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
    options = asked(__doc__, working_memory=16, rounds=7)  # in MiB
    sizes, n_rounds = (QUICK_SIZES, 1) if options.quick else (Sizes(), options.rounds)
    models = fitted_models((50,))
    results = [
        *one_row(models, sizes.one_row_calls, n_rounds),
        *some_rows(models, sizes.rows, sizes.rows_calls, n_rounds, at_most=2.5),
        *some_rows(models, sizes.many_rows, 1, n_rounds, at_most=1.5),
        *loops(models, sizes.many_rows, min(n_rounds, 5)),
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
    save(options, prediction=results, memory=peaks)


if __name__ == "__main__":
    main()
