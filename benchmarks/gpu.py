# SPDX-License-Identifier: BSD-3-Clause
"""What a GPU saves: a teacher of 20 members and its Hydra+ student, there and on the processor.

fit       made-up tables of 20 columns, all settings left to skdistill, in seconds on the clock
wide      the same of networks of three layers of 512 units, 10 epochs in batches of 1,024
predict   all that `predict_uncertainty` says of a million samples, by teacher and by student

On the processor torch may use `--threads` threads, by default as many as there are cores. Each fit
is done once more before, with few samples, so that neither device is timed with what it loads.

    python benchmarks/gpu.py
"""

from __future__ import annotations

import time
from typing import Any

import torch
from _common import argument_parser, made_up_table, print_table, record, write_json

import skdistill
from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
from skdistill.metrics import gaussian_nll
from skdistill.settings import Runtime

N_ROWS = (1_000, 10_000, 100_000)
N_VALID = 20_000
N_WIDE, WIDE = 50_000, {"max_epochs": 10, "batch_size": 1024, "module__hidden_units": (512,) * 3}
N_PREDICTED = 1_000_000


def clock() -> float:
    """Seconds on the clock when all that was asked of the GPU is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def pair(n_rows: int, device: str, **settings: Any) -> tuple[dict[str, Any], list[Any]]:
    """Seconds and scores of a teacher and its student on a device, and the two."""
    X, y = made_up_table(n_rows, 20, 0, "float32")
    X_valid, y_valid = made_up_table(N_VALID, 20, 1, "float32")
    runtime = Runtime(device=device)
    seconds, nlls, models = [], [], []
    teacher: Any = None
    for make in (BayesianEnsembleRegressor, HydraPlusRegressor):
        first = 20 if teacher is None else teacher
        model = make(first, runtime=runtime, random_state=0, **settings)
        start = clock()
        teacher = model.fit(X, y)
        seconds.append(clock() - start)
        mean, std = model.predict(X_valid, return_std=True)
        nlls.append(float(gaussian_nll(y_valid, mean, std**2)))
        models.append(model)
    return {"n_rows": n_rows, "device": device, "seconds": seconds, "nll": nlls}, models


def predicted(models: list[Any], n_rows: int, device: str) -> dict[str, Any]:
    """Seconds of all parts of the uncertainty of many samples."""
    X = made_up_table(n_rows, 20, 2, "float32")[0]
    seconds = []
    for model in models:
        skdistill.predict_uncertainty(model, X[: n_rows // 10])
        start = clock()
        skdistill.predict_uncertainty(model, X)
        seconds.append(clock() - start)
    return {"n_rows": n_rows, "device": device, "seconds": seconds}


def main() -> None:
    parser = argument_parser(__doc__, "gpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if not torch.cuda.is_available():
        raise SystemExit("There is no GPU that torch can use.")
    devices = ("cuda", "cpu")
    sizes = (300, 600) if args.quick else N_ROWS
    found: dict[str, list[Any]] = {"fit": [], "wide": [], "predict": []}
    models = {}
    for device in devices:
        pair(300, device)
    for n_rows in sizes:
        for device in devices:
            row, models[device] = pair(n_rows, device)
            found["fit"].append(row)
            print(row, flush=True)
    for device in devices:
        found["predict"].append(
            predicted(models[device], 10_000 if args.quick else N_PREDICTED, device)
        )
        print(found["predict"][-1], flush=True)
    for device in devices:
        found["wide"].append(pair(600 if args.quick else N_WIDE, device, **WIDE)[0])
        print(found["wide"][-1], flush=True)
    gpu = torch.cuda.get_device_name()
    write_json(args.output, record(gpu=gpu, threads=args.threads, wide_settings=WIDE, **found))
    rows = [
        [part, f"{row['n_rows']:,}", row["device"], *(f"{s:.1f}" for s in row["seconds"])]
        for part, rows in found.items()
        for row in rows
    ]
    print_table(("part", "samples", "device", "teacher s", "student s"), rows)


if __name__ == "__main__":
    main()
