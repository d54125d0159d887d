# SPDX-License-Identifier: BSD-3-Clause
"""Bayesian optimisation with the members of an ensemble, with a Gaussian process and at random.

functions   six functions of BoTorch, from few points: 2 d + 2 of a Sobol sequence, then batches of
            four, forty in all; noise-free
many        Ackley's function in 20 dimensions with 300 points in batches of ten, three runs
choice      four other functions, on which the settings of the networks were chosen

Each batch maximises the log expected improvement of the model fitted to all points so far:
BoTorch's default Gaussian process, or ten networks whose members are `MembersModel`. At random:
further points of the same Sobol sequence. A run of each method begins with the same points. Regret
is the best value there is less the best found.

A run that is stopped goes on with --resume; --jobs runs are side by side.

    python benchmarks/optimise.py --resume
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from _common import argument_parser, print_table, record, write_json
from botorch.acquisition import qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.test_functions import (
    Ackley,
    Branin,
    Griewank,
    Hartmann,
    Levy,
    Rosenbrock,
    SixHumpCamel,
    StyblinskiTang,
    SyntheticTestFunction,
    ThreeHumpCamel,
)
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from skdistill import BayesianEnsembleRegressor
from skdistill.integrations.botorch import MembersModel
from skdistill.samplers import DeepEnsemble

FUNCTIONS: dict[str, Callable[[], SyntheticTestFunction]] = {
    "Branin": lambda: Branin(negate=True),
    "SixHumpCamel": lambda: SixHumpCamel(negate=True),
    "Hartmann-3": lambda: Hartmann(3, negate=True),
    "Rosenbrock-4": lambda: Rosenbrock(4, negate=True),
    "Hartmann-6": lambda: Hartmann(6, negate=True),
    "Ackley-10": lambda: Ackley(10, negate=True),
    "Ackley-20": lambda: Ackley(20, negate=True),
    # What settings were chosen on.
    "Levy-3": lambda: Levy(3, negate=True),
    "StyblinskiTang-5": lambda: StyblinskiTang(5, negate=True),
    "ThreeHumpCamel": lambda: ThreeHumpCamel(negate=True),
    "Griewank-4": lambda: Griewank(4, negate=True),
}
PARTS = {
    "functions": [*FUNCTIONS][:6],
    "many": ["Ackley-20"],
    "choice": ["Levy-3", "StyblinskiTang-5", "ThreeHumpCamel", "Griewank-4"],
}
METHODS = ("members", "Gaussian process", "random")
N_POINTS, N_BATCH = 40, 4
N_MANY, BATCH_OF_MANY = 300, 10


def members(X: Tensor, y: Tensor, seed: int, **settings: Any) -> MembersModel:
    """Ten networks that follow values without noise, and differ elsewhere."""
    without_noise = {
        "inference": DeepEnsemble(bootstrap=False, calibrate=None),
        "max_epochs": 1000,
        "prior_scale": 100.0,
        "module__activation": "silu",
    }
    ensemble = BayesianEnsembleRegressor(10, **(without_noise | settings), random_state=seed)
    return MembersModel(ensemble.fit(X.numpy(), y.numpy()))


def gaussian_process(X: Tensor, y: Tensor, seed: int) -> SingleTaskGP:
    """BoTorch's default: priors, lengthscales and standardised values included."""
    model = SingleTaskGP(X, y.unsqueeze(-1))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def run(name: str, method: str, seed: int, n_points: int, n_batch: int, **settings: Any) -> dict:
    """One optimisation: its regret after each batch, and the seconds that it took."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    function = FUNCTIONS[name]().to(torch.float64)
    cube = torch.stack([torch.zeros(function.dim), torch.ones(function.dim)]).double()
    low, high = function.bounds.double()
    n_first = min(2 * function.dim + 2, n_points)
    sobol = draw_sobol_samples(cube, n=n_points, q=1, seed=seed).squeeze(1)
    X = sobol[:n_first]
    y = function(low + X * (high - low))
    best, start = [y.max().item()], time.process_time()
    while len(X) < n_points:
        q = min(n_batch, n_points - len(X))
        if method == "random":
            new = sobol[len(X) : len(X) + q]
        else:
            fit = gaussian_process if method == "Gaussian process" else members
            model = fit(X, y, seed, **settings)
            acquisition = qLogExpectedImprovement(model, best_f=y.max())
            how = {"num_restarts": 4, "raw_samples": 128, "options": {"maxiter": 60}}
            new = optimize_acqf(acquisition, cube, q=q, **how)[0]
        X = torch.cat([X, new])
        y = torch.cat([y, function(low + new * (high - low))])
        best.append(y.max().item())
    regret = [function.optimal_value - value for value in best]
    seconds = time.process_time() - start
    return {"name": name, "method": method, "seed": seed, "regret": regret, "seconds": seconds}


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By function and method: the median regret, how often it beat random, CPU seconds."""
    random = {(r["name"], r["seed"]): r["regret"][-1] for r in runs if r["method"] == "random"}
    found = []
    for name, method in dict.fromkeys((run["name"], run["method"]) for run in runs):
        own = [run for run in runs if (run["name"], run["method"]) == (name, method)]
        last = [run["regret"][-1] for run in own]
        pairs = [(run["regret"][-1], random.get((name, run["seed"]))) for run in own]
        found.append(
            {
                "name": name,
                "method": method,
                "runs": len(own),
                "regret": float(np.median(last)),
                "quartiles": np.quantile(last, [0.25, 0.75]).tolist(),
                "below_random": float(np.mean([a < b for a, b in pairs if b is not None])),
                "seconds": float(np.median([run["seconds"] for run in own])),
            }
        )
    return found


def main() -> None:
    parser = argument_parser(__doc__, "optimise")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["functions", "many"])
    parser.add_argument("--runs", type=int, default=20, help="of each function and method")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--resume", action="store_true", help="keep the runs that are stored")
    args = parser.parse_args()
    runs: list[dict[str, Any]] = []
    if args.resume and args.output.exists():
        runs = json.loads(args.output.read_text(encoding="utf-8"))["runs"]
    done = {(run["name"], run["method"], run["seed"]) for run in runs}
    tasks = []
    for part in args.parts:
        n_runs, sizes = args.runs, (N_POINTS, N_BATCH)
        if part == "many":
            n_runs, sizes = min(args.runs, 3), (N_MANY, BATCH_OF_MANY)
        if args.quick:
            n_runs, sizes = 1, (10, 2)
        names = PARTS[part][:1] if args.quick else PARTS[part]
        tasks += [
            (name, method, seed, *sizes)
            for seed in range(n_runs)
            for name in names
            for method in METHODS
            if (name, method, seed) not in done
        ]

    def keep(found: dict[str, Any]) -> None:
        runs.append(found)
        write_json(args.output, record(summary=summary(runs), runs=runs))

    if args.jobs == 1:
        for task in tasks:
            keep(run(*task))
    else:
        with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
            for future in as_completed([pool.submit(run, *task) for task in tasks]):
                keep(future.result())
    rows = [
        [
            *(row[key] for key in ("name", "method", "runs")),
            f"{row['regret']:.3g}",
            f"{row['below_random']:.2f}",
            f"{row['seconds']:.1f}",
        ]
        for row in summary(runs)
    ]
    print_table(("function", "method", "runs", "median regret", "below random", "CPU s"), rows)


if __name__ == "__main__":
    main()
