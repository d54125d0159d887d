# SPDX-License-Identifier: BSD-3-Clause
"""What a GPU saves: a teacher of 20 members and its Hydra+ student, there and on the processor.

fit       made-up tables of 20 columns in float32, all settings left to skdistill
wide      20,000 samples, networks of three layers of 512 units, five epochs in batches of 1,024
predict   all that `predict_uncertainty` says of 200,000 samples

Seconds are those on the clock; the student's is the fit with a fitted teacher. On the processor
torch may use --threads threads, by default as many as there are cores, which small steps do not.
Each fit is done once before, with few samples, so that neither device is timed with what it loads.
NLL is that of one Gaussian on 20,000 further samples. A million samples are fitted on the GPU
alone. What is found is written after each fit.

    python benchmarks/gpu.py
"""

from __future__ import annotations

import time
from typing import Any

import torch
from _common import asked, made_up_table, print_table, save
from sklearn.frozen import FrozenEstimator

import skdistill
from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
from skdistill.metrics import gaussian_nll
from skdistill.settings import Runtime

SIZES = (1_000, 10_000, 100_000)
MILLION = 1_000_000
N_VALID = 20_000
N_WIDE, WIDE = (
    20_000,
    {
        **{"max_epochs": 5, "batch_size": 1024, "lr": 1e-3},
        "module__hidden_units": (512,) * 3,
    },
)
N_PREDICTED = 200_000


def clock() -> float:
    """Seconds on the clock when all that was asked of the GPU is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def pair(
    n_rows: int, device: str, n_valid: int = N_VALID, **settings: Any
) -> tuple[dict[str, Any], list[Any]]:
    """What a teacher and its student take on a device, and the two."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    X, y = made_up_table(n_rows + n_valid, dtype="float32")
    train, valid = slice(n_rows), slice(n_rows, None)
    settings = {"runtime": Runtime(device=device), "random_state": 0, **settings}
    seconds, nll, models = [], [], []
    for make in (BayesianEnsembleRegressor, HydraPlusRegressor):
        model = make(FrozenEstimator(models[0]) if models else 20, **settings)
        start = clock()
        model.fit(X[train], y[train])
        seconds.append(clock() - start)
        mean, deviation = model.predict(X[valid], return_std=True)
        nll.append(float(gaussian_nll(y[valid], mean, deviation)))
        models.append(model)
    found: dict[str, Any] = {"n_rows": n_rows, "device": device, "seconds": seconds, "nll": nll}
    if device == "cuda":
        found["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
    return found, models


def predicted(models: list[Any], n_rows: int, device: str) -> dict[str, Any]:
    """Seconds of all parts of the uncertainty of many samples."""
    X = made_up_table(n_rows, seed=2, dtype="float32")[0]
    seconds = []
    for model in models:
        skdistill.predict_uncertainty(model, X[: n_rows // 10])
        start = clock()
        skdistill.predict_uncertainty(model, X)
        seconds.append(clock() - start)
    return {"n_rows": n_rows, "device": device, "seconds": seconds}


def main() -> None:
    args = asked(__doc__, threads=torch.get_num_threads())
    devices = ("cuda", "cpu") if torch.cuda.is_available() else ("cpu",)
    if "cuda" not in devices and not args.quick:
        raise SystemExit("There is no GPU that torch can use.")
    torch.set_num_threads(args.threads)
    parts: dict[str, list[Any]] = {"fit": [], "wide": [], "predict": []}

    def keep(part: str, row: dict[str, Any]) -> None:
        parts[part].append(row)
        print(part, row, flush=True)
        gpu = torch.cuda.get_device_name() if "cuda" in devices else None
        save(args, gpu=gpu, wide_settings=WIDE, **parts)

    sizes, n_wide, n_valid, n_predicted = SIZES, N_WIDE, N_VALID, N_PREDICTED
    if args.quick:
        sizes, n_wide, n_valid, n_predicted = (300, 600), 100, 100, 1000
    for device in devices:
        pair(300, device, n_valid)
    for n_rows in sizes:
        models = {}
        for device in devices:
            row, models[device] = pair(n_rows, device, n_valid)
            keep("fit", row)
    if not args.quick:
        keep("fit", pair(MILLION, "cuda")[0])
    for device in devices:
        keep("predict", predicted(models[device], n_predicted, device))
    for device in devices:
        keep("wide", pair(n_wide, device, n_valid, **WIDE)[0])
    rows = [
        [part, f"{row['n_rows']:,}", row["device"], *(f"{s:.1f}" for s in row["seconds"])]
        for part, rows in parts.items()
        for row in rows
    ]
    print_table(("part", "samples", "device", "teacher s", "student s"), rows)


if __name__ == "__main__":
    main()
