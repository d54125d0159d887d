# SPDX-License-Identifier: BSD-3-Clause
"""Bayesian optimisation with the members of an ensemble, with a Gaussian process and at random.

Six functions of BoTorch without noise, from 2 d + 2 points of a Sobol sequence, then batches of
four, forty in all. Each batch maximises the log expected improvement of a model of all points so
far: BoTorch's default Gaussian process, or the members of an ensemble with settings that suit
values without noise. At random: further points of the same sequence, with which all methods begin.
Regret is the best value there is less the best found.

    python benchmarks/optimise.py --runs 10 --jobs 2                # needs BoTorch
"""

from __future__ import annotations

import time
import warnings
from functools import partial
from statistics import median
from typing import Any

import torch
from _common import asked, measured, one_thread, print_table, save
from botorch import test_functions
from botorch.acquisition import qLogExpectedImprovement
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.utils.sampling import draw_sobol_samples
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from skdistill import BayesianEnsembleRegressor
from skdistill.integrations.botorch import MembersModel
from skdistill.samplers import DeepEnsemble

FUNCTIONS = {
    "Branin": test_functions.Branin(negate=True),
    "SixHumpCamel": test_functions.SixHumpCamel(negate=True),
    "Hartmann-3": test_functions.Hartmann(3, negate=True),
    "Rosenbrock-4": test_functions.Rosenbrock(4, negate=True),
    "Hartmann-6": test_functions.Hartmann(6, negate=True),
    "Ackley-10": test_functions.Ackley(10, negate=True),
}
METHODS = ("members", "Gaussian process", "random")
N_POINTS, N_BATCH = 40, 4
WITHOUT_NOISE = {
    "inference": DeepEnsemble(bootstrap=False, calibrate=None),
    "max_epochs": 1000,
    "prior_scale": 100.0,
    "module__activation": "silu",
}


def model_of(method: str, X: Tensor, y: Tensor, seed: int) -> Any:
    """A model of BoTorch of the points so far."""
    if method == "members":
        ensemble = BayesianEnsembleRegressor(10, **WITHOUT_NOISE, random_state=seed)
        return MembersModel(ensemble.fit(X.numpy(), y.numpy()))
    from botorch import fit_gpytorch_mll

    model = SingleTaskGP(X, y.unsqueeze(-1))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def run(unit: tuple[str, str, int], quick: bool = False) -> tuple[list[dict[str, Any]], list]:
    """One optimisation: its regret in the end, and the CPU seconds that it took."""
    name, method, seed = unit
    one_thread()
    warnings.simplefilter("ignore")
    torch.manual_seed(seed)
    function, n_points = FUNCTIONS[name].to(torch.float64), 10 if quick else N_POINTS
    cube = torch.stack([torch.zeros(function.dim), torch.ones(function.dim)]).double()
    low, high = function.bounds.double()
    sobol = draw_sobol_samples(cube, n=n_points, q=1, seed=seed).squeeze(1)
    X = sobol[: min(2 * function.dim + 2, n_points)]
    y, start = function(low + X * (high - low)), time.process_time()
    while len(X) < n_points:
        q = min(N_BATCH, n_points - len(X))
        new = sobol[len(X) : len(X) + q]
        if method != "random":
            acquisition = qLogExpectedImprovement(model_of(method, X, y, seed), best_f=y.max())
            how = {"num_restarts": 4, "raw_samples": 128, "options": {"maxiter": 60}}
            new = optimize_acqf(acquisition, cube, q=q, **how)[0]
        X = torch.cat([X, new])
        y = torch.cat([y, function(low + new * (high - low))])
    regret, seconds = function.optimal_value - y.max().item(), time.process_time() - start
    row = {"name": name, "method": method, "seed": seed, "regret": regret, "seconds": seconds}
    return [row], []


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By function and method: the median regret, how often it beat random, CPU seconds."""
    random = {(r["name"], r["seed"]): r["regret"] for r in rows if r["method"] == "random"}
    found = []
    for name, method in dict.fromkeys((row["name"], row["method"]) for row in rows):
        of = [row for row in rows if (row["name"], row["method"]) == (name, method)]
        better = [row["regret"] < random[name, row["seed"]] for row in of]
        found.append(
            {
                "name": name,
                "method": method,
                "runs": len(of),
                "regret": median(row["regret"] for row in of),
                "below_random": sum(better) / len(better),
                "seconds": median(row["seconds"] for row in of),
            }
        )
    return found


def main() -> None:
    options = asked(__doc__, runs=10, jobs=1)
    names = [*FUNCTIONS][:1] if options.quick else [*FUNCTIONS]
    seeds = range(1 if options.quick else options.runs)
    units = [(name, method, seed) for seed in seeds for name in names for method in METHODS]

    def place(row: dict[str, Any]) -> tuple:
        return names.index(row["name"]), METHODS.index(row["method"]), row["seed"]

    rows = measured(units, partial(run, quick=options.quick), options, [], place, place)
    save(options, summary=summary(rows), results=rows)
    header = ("name", "method", "runs", "regret", "below_random", "seconds")
    print_table(header, [[row[key] for key in header] for row in summary(rows)])


if __name__ == "__main__":
    main()
