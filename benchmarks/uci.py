# SPDX-License-Identifier: BSD-3-Clause
"""UCI regression by the protocol of Hernandez-Lobato & Adams (2015): teacher and Hydra+ student.

Every set has twenty splits (five of protein) into 90 % training and 10 % test samples, of which the
first are run. Features are standardised on the training samples. All settings are skdistill's
defaults; suite.py compares them with other models.

    python benchmarks/uci.py
    python benchmarks/uci.py --sets boston protein --splits 20
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
import torch
from _common import Among, asked, measured, one_thread, print_table
from _datasets import OF_UCI, load_split
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import root_mean_squared_error

from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
from skdistill.metrics import ause, epistemic_fidelity, gaussian_nll, interval_coverage
from skdistill.modules import n_parameters

# Deep Ensembles (Lakshminarayanan et al., 2017, Table 1): RMSE and NLL.
DEEP_ENSEMBLES = {
    "boston": (3.28, 2.41),
    "concrete": (6.03, 3.06),
    "energy": (2.09, 1.38),
    "power-plant": (4.11, 2.79),
    "wine": (0.64, 0.94),
    "protein": (4.71, 2.83),
}


def scores(model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Scores of a model that predicts a distribution."""
    log_prob = model.predict_distribution(X).log_prob(torch.tensor(y).view(-1, 1))
    mean, std = model.predict(X, return_std=True)
    return {
        "rmse": root_mean_squared_error(y, mean),
        "nll": -float(log_prob.mean()),
        "gaussian_nll": gaussian_nll(y, mean, std),
        "ause": ause(y, mean, std),
        "coverage_90": interval_coverage(y, model.predict_interval(X, 0.9)),
        "parameters": n_parameters(model.module_.network),
    }


def run(unit: tuple[str, int], quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of teacher and student on one split, and what the student kept of the teacher."""
    one_thread()
    name, split = unit
    rows = load_split(name, split)
    few = {"max_epochs": 2} if quick else {}
    found: list[dict[str, Any]] = []
    models: dict[str, Any] = {}
    for role in ("teacher", "student"):
        if role == "teacher":
            model = BayesianEnsembleRegressor(random_state=split, **few)
        else:
            model = HydraPlusRegressor(
                FrozenEstimator(models["teacher"]), random_state=split, **few
            )
        start = time.process_time()
        models[role] = model.fit(rows.X_train, rows.y_train)
        row = {"set": name, "split": split, "model": role}
        row["fit_seconds"] = time.process_time() - start
        found.append(row | scores(model, rows.X_test, rows.y_test))
    parts = (model.predict_uncertainty(rows.X_test).epistemic for model in models.values())
    return [found[0], found[1] | epistemic_fidelity(*parts)._asdict()], []


def means(results: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Means over splits, by set and model."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in results:
        found.setdefault(row["set"], {}).setdefault(row["model"], []).append(row)
    return {
        name: {
            model: {
                key: float(np.mean([row[key] for row in rows]))
                for key in rows[0]
                if key not in ("set", "split", "model")
            }
            for model, rows in of_set.items()
        }
        for name, of_set in found.items()
    }


def main() -> None:
    sets = [name for name in OF_UCI if name != "protein"]
    options = asked(__doc__, sets=Among(sets, OF_UCI), splits=3, jobs=1)
    if options.quick:
        options.sets, options.splits = options.sets[:1], 1
    units = [(name, split) for name in options.sets for split in range(options.splits)]

    def place(row: dict[str, Any]) -> tuple[int, int, bool]:
        return OF_UCI.index(row["set"]), row["split"], row["model"] == "student"

    rows = measured(units, partial(run, quick=options.quick), options, [], place, place)
    keys = ["rmse", "nll", "gaussian_nll", "ause", "coverage_90", "parameters", "fit_seconds"]
    keys += ["rank_correlation", "median_ratio"]
    table = [
        [name, model, *map(row.get, keys)]
        for name, of_set in means(rows).items()
        for model, row in of_set.items()
    ]
    table += [[name, "(Deep Ensembles)", *DEEP_ENSEMBLES[name]] for name in options.sets]
    print_table(["set", "model", *keys], table)


if __name__ == "__main__":
    main()
