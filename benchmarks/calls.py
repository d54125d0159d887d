# SPDX-License-Identifier: BSD-3-Clause
"""Calls: what prediction costs as people call it, by students, their teacher and their peers.

array   10 numbers a sample, float32
frame   the same as a DataFrame of pandas
text    a frame of 8 numbers and 2 columns of text, of 5 and of 50 values; scikit-learn's and
        boosted models are in a pipeline that encodes them

The ensemble of 20 networks, its Hydra+ and its DistributionDistiller ("gaussian") have their
defaults, but one epoch; "all" is mean, both parts and 90 % interval by `predict_frame`, "parts"
`predict_uncertainty`. Peers predict the mean. Of one sample there are also the students' ONNX
graphs, of all outputs and of the mean. Times are CPU seconds of one thread a call, contenders take
turns, figures are medians over rounds.

    python benchmarks/calls.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from _common import asked, interleaved, made_up_table, print_table, save
from predict import in_onnxruntime
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

from skdistill import BayesianEnsembleRegressor, DistributionDistiller, HydraPlusRegressor
from skdistill.settings import Runtime

INPUTS = ("array", "frame", "text")
CALLS = {1: 200, 256: 20, 100_000: 1}  # by the number of samples
METHODS = {"mean": "predict", "parts": "predict_uncertainty", "all": "predict_frame"}


def rows_of(kind: str, n: int, seed: int = 0) -> tuple[Any, np.ndarray]:
    X, y = made_up_table(n, 10, seed, "float32")
    if kind == "array":
        return X, y
    frame = pd.DataFrame(X, columns=[f"x{k}" for k in range(10)])
    if kind == "text":
        for name, n_values in (("x8", 5), ("x9", 50)):
            codes = (n_values * frame[name].rank(pct=True)).astype(int)
            frame[name] = "value " + codes.astype(str)
    return frame, y


def models(kind: str, n: int) -> dict[str, Any]:
    """Ours, then peers."""
    X, y = rows_of(kind, n)
    settings = {"max_epochs": 1, "runtime": Runtime(device="cpu"), "random_state": 0}
    teacher = BayesianEnsembleRegressor(**settings).fit(X, y)
    frozen = FrozenEstimator(teacher)
    ours = {
        "Hydra+": HydraPlusRegressor(frozen, **settings).fit(X, y),
        "gaussian": DistributionDistiller(frozen, family="gaussian", **settings).fit(X, y),
        "ensemble of 20": teacher,
    }
    peers: dict[str, Any] = {
        "MLPRegressor": MLPRegressor(random_state=0),
        "HistGradientBoosting": HistGradientBoostingRegressor(random_state=0),
        "random forest": RandomForestRegressor(random_state=0),
    }
    try:
        from catboost import CatBoostRegressor
        from lightgbm import LGBMRegressor

        peers["LightGBM"] = LGBMRegressor(n_jobs=1, verbose=-1, random_state=0)
        peers["CatBoost"] = CatBoostRegressor(
            thread_count=1, verbose=0, allow_writing_files=False, random_seed=0
        )
    except ModuleNotFoundError as error:
        print(f"Peers are left out: {error}")
    for name, model in peers.items():
        if kind == "text":
            codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
            encoder = make_column_transformer((codes, ["x8", "x9"]), remainder="passthrough")
            model = make_pipeline(encoder, model)
        peers[name] = model.fit(X, y)
    return ours | peers


def calls_of(found: dict[str, Any], X: Any, kind: str, folder: str) -> dict[tuple, Callable]:
    calls = {}
    for name, model in found.items():
        for outputs, method in METHODS.items():
            if hasattr(model, method):
                calls[name, outputs] = partial(getattr(model, method), X)
        if name in ("Hydra+", "gaussian") and kind == "array" and len(X) == 1:
            for outputs, wanted in (("all", "auto"), ("mean", ["mean"])):
                graph = in_onnxruntime(model, folder, X, wanted)
                calls[f"{name}, ONNX", outputs] = graph
    return calls


def main() -> None:
    options = asked(__doc__, rounds=7)
    rows = []
    for kind in INPUTS:
        found = models(kind, 200 if options.quick else 2_000)
        for n, n_calls in CALLS.items():
            if options.quick:
                n, n_calls = min(n, 300), 1
            with tempfile.TemporaryDirectory() as folder:
                calls = calls_of(found, rows_of(kind, n, seed=1)[0], kind, folder)
                n_rounds = min(options.rounds, 3 if n_calls == 1 else options.rounds)
                seconds = interleaved(calls, 1 if options.quick else n_rounds, n_calls)
            rows += [
                {"model": model, "outputs": outputs, "input": kind, "n": n}
                | {"us_per_sample": 1e6 * median(times) / n}
                for (model, outputs), times in seconds.items()
            ]
            save(options, calls=rows)
    print_table(["model", "outputs", "input", "samples", "us each"], [[*r.values()] for r in rows])


if __name__ == "__main__":
    main()
