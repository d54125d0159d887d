# SPDX-License-Identifier: BSD-3-Clause
"""Hydra+ for classes: what one network keeps of an ensemble of 20, and the paper's toy problems.

A random fifth of each set is the test part; inputs are standardised on the training part. All
models have skdistill's defaults on every set:

teacher  BayesianEnsembleClassifier
Hydra+   HydraPlusClassifier
Hydra    the same with the members alone as targets: no L2, no spread matching, no noise
Hinton   the same with one head and the members' mean as its target: no epistemic uncertainty

A second fit leaves the last fifth of the classes out of training; their test rows are out of
distribution. Epistemic uncertainty is the mutual information, in nats. Its rank correlation and
the median over rows of the ratio are the student's against the teacher's, and so is the total
variation between histograms of 50 bins. Times are CPU seconds of one thread.

Then both toy problems of the paper are run with its networks, their parameters counted beside the
paper's, and students as the paper trains them.

    python benchmarks/hydra.py
    python benchmarks/hydra.py --sets letter
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from _common import Among, asked, fidelity_of_parts, print_table, save, target
from _datasets import Fold, table
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill.datasets import make_hydra_regression, make_spirals
from skdistill.metrics import (
    epistemic_fidelity,
    expected_calibration_error,
    mixture_nll,
    ood_auroc,
)
from skdistill.modules import n_parameters
from skdistill.settings import Heads, HydraLoss

SETS = ("spirals", "letter", "pendigits", "satimage")
SHARE = 0.2  # of the rows for the test part, of the classes to be left out
N_MEMBERS = 20
PARTS = ("total", "aleatoric", "epistemic")

HYDRA = {"loss__member_weight": 1.0, "loss__spread_weight": 0.0, "transfer": None}
HINTON = {**HYDRA, "loss__member_weight": 0.0, "heads": 1}
STUDENTS: dict[str, dict[str, Any]] = {"Hydra+": {}, "Hydra": HYDRA, "Hinton": HINTON}


class Toy(NamedTuple):
    """A toy problem of the paper (A.2, A.3): its networks, and how many parameters it counts.

    `heads` holds for each number of heads the student's parameters and the weight of L4.
    """

    make: Callable
    teacher: type
    student: type
    hidden_units: tuple[int, ...]
    lr: float
    teacher_parameters: int
    heads: dict[int, tuple[int, Any]]


TOYS = {
    "spirals": Toy(
        make_spirals,
        BayesianEnsembleClassifier,
        HydraPlusClassifier,
        hidden_units=(100, 100, 100, 100),
        lr=0.01,
        teacher_parameters=618_060,
        heads={20: (228_560, 4.0), 10: (124_530, 7.0), 5: (72_515, 9.0)},
    ),
    "regression": Toy(
        make_hydra_regression,
        BayesianEnsembleRegressor,
        HydraPlusRegressor,
        hidden_units=(50, 50, 50),
        lr=0.05,
        teacher_parameters=106_040,
        heads={
            20: (55_690, (0.002, 50, 150)),
            10: (29_170, (0.02, 50, 150)),
            5: (15_910, (0.6, 50, 150)),
        },
    ),
}

# How the paper trains the student of a toy problem.
PAPER = {
    "loss__teacher_weight": 0.9,
    "loss__spread_weight": 0.0,
    "transfer": None,
    "optimizer__weight_decay": 1e-8,
    "max_epochs": 200,
    "batch_size": 256,
}


# Data ---------------------------------------------------------------------------------------------


def load(name: str) -> Fold:
    """Training and test rows; drawn alike every time."""
    if name in TOYS:
        make = TOYS[name].make
        return Fold(*make(random_state=0), *make(3000, random_state=1))
    X, y = table(name)
    X, X_test, y, y_test = train_test_split(X, y, test_size=SHARE, stratify=y, random_state=0)
    return Fold(X, y, X_test, y_test)


def split(rows: Fold, left_out: Sequence = ()) -> tuple[Fold, np.ndarray]:
    """Standardised float32 rows, and test rows of the classes left out."""
    X, y, X_test, y_test = rows
    known, known_in_test = ~np.isin(y, left_out), ~np.isin(y_test, left_out)
    scaler = StandardScaler().fit(X[known])
    X, X_test = (scaler.transform(part).astype(np.float32) for part in (X, X_test))
    fold = Fold(X[known], y[known], X_test[known_in_test], y_test[known_in_test])
    return fold, X_test[~known_in_test]


# Teacher and students on one split ----------------------------------------------------------------


def run(rows: Fold, outside: np.ndarray, few: dict[str, Any]) -> dict[str, dict]:
    """A teacher and its students, and what each of them kept of it."""
    teacher = BayesianEnsembleClassifier(N_MEMBERS, random_state=0, **few)
    teacher, seconds = fitted(teacher, rows)
    results = {"teacher": scored(teacher, seconds, rows, outside)}
    for name, settings in STUDENTS.items():
        student = HydraPlusClassifier(FrozenEstimator(teacher), loss=HydraLoss(), random_state=0)
        student, seconds = fitted(student.set_params(**few, **settings), rows)
        results[name] = scored(student, seconds, rows, outside, teacher)
    return results


def fitted(model, rows: Fold) -> tuple[Any, float]:
    """The fitted model, and the CPU seconds that it took."""
    start = time.process_time()
    model.fit(rows.X_train, rows.y_train)
    return model, time.process_time() - start


def scored(model, seconds: float, rows: Fold, outside: np.ndarray, teacher=None) -> dict[str, Any]:
    """How good a model is, and for a student how close it is to its teacher."""
    proba = model.predict_proba(rows.X_test)
    out = {
        "nll": log_loss(rows.y_test, proba),
        "accuracy": model.score(rows.X_test, rows.y_test),
        "ece": expected_calibration_error(rows.y_test, proba),
        "parameters": n_parameters(model.module_.network),
        "fit_seconds": seconds,
    }
    places = {"test": rows.X_test, **({"left_out": outside} if len(outside) else {})}
    said = {where: model.predict_uncertainty(X) for where, X in places.items()}
    epistemic = [uncertainty.epistemic for uncertainty in said.values()]
    if len(said) == 2 and epistemic[0] is not None:
        out["ood_auroc"] = ood_auroc(*epistemic)
    if teacher is not None:
        for where, X in places.items():
            out[where] = fidelity_of_parts(teacher.predict_uncertainty(X), said[where])
    return out


# Fidelity on the sets -----------------------------------------------------------------------------


def run_set(name: str, few: dict[str, Any]) -> dict[str, dict]:
    """Results on a set with all its classes, and without the last fifth of them, one at least."""
    rows = load(name)
    classes = np.unique(rows.y_train)
    left_out = {"all": (), "some_left_out": classes[-max(1, int(SHARE * len(classes))) :]}
    results = {which: run(*split(rows, without), few) for which, without in left_out.items()}
    results["targets"] = targets(*results.values())
    return results


def targets(full: dict[str, dict], some_left_out: dict[str, dict]) -> list[dict[str, Any]]:
    """What Hydra+ should reach, and whether it does."""
    teacher, ours, hydra = (full[name] for name in ("teacher", "Hydra+", "Hydra"))
    outside, hydra_outside = (some_left_out[name]["left_out"] for name in ("Hydra+", "Hydra"))
    rows = [
        target("NLL less the teacher's", ours["nll"] - teacher["nll"], high=0.02),
        target("ECE less the teacher's", ours["ece"] - teacher["ece"], high=0.01),
        target("rank of epistemic, test", ours["test"]["rank_correlation"], low=0.95),
        target("median ratio, test", ours["test"]["median_ratio"], 0.8, 1.25),
        target("median ratio, classes left out", outside["median_ratio"], 0.7, 1.4),
    ]
    rivals = {"test": (ours["test"], hydra["test"]), "classes left out": (outside, hydra_outside)}
    for where, (student, rival) in rivals.items():
        for part in PARTS:
            name, key = f"TV of {part}, {where}, below Hydra's", f"tv_{part}"
            rows.append(target(name, student[key], high=rival[key]))
    return rows


def report_sets(results: dict[str, dict]) -> None:
    keys = ["nll", "accuracy", "ece", "ood_auroc", "parameters", "fit_seconds"]
    print("All classes; OOD AUROC, by epistemic uncertainty, of the fit with some left out")
    print_table(
        ["set", "model", "NLL", "accuracy", "ECE", "OOD AUROC", "parameters", "fit s"],
        [
            [name, model, *({**result["some_left_out"][model], **row}.get(key) for key in keys)]
            for name, result in results.items()
            for model, row in result["all"].items()
        ],
    )
    print()
    print_table(
        ["set", "target of Hydra+", "value", "at least", "at most", "reached"],
        [
            [name, *(row[key] for key in ("target", "value", "low", "high", "reached"))]
            for name, result in results.items()
            for row in result["targets"]
        ],
    )


# The paper's toy problems -------------------------------------------------------------------------


def run_toy(name: str, few: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for the teacher of a toy problem, and for each student with the paper's networks."""
    toy = TOYS[name]
    rows, _ = split(load(name))
    net = {
        "module__hidden_units": toy.hidden_units,
        "module__activation": "relu",
        "module__embeddings": None,
        "random_state": 0,
    }
    teacher = toy.teacher(N_MEMBERS, **net).set_params(**few)
    teacher, seconds = fitted(teacher, rows)
    table = [toy_row(teacher, teacher, seconds, rows, toy.teacher_parameters)]
    for n_heads, (papers_parameters, diversity_weight) in toy.heads.items():
        paper = {**PAPER, "lr": toy.lr, "loss__diversity_weight": diversity_weight}
        hydra = {
            **paper,
            "loss__teacher_weight": 1.0,
            "loss__member_weight": 1.0,
            "loss__diversity_weight": 0.0,
        }
        for model, settings in {"Hydra+": {}, "paper's Hydra+": paper, "Hydra": hydra}.items():
            own = {"heads": Heads(n_heads, head_layers=2), "loss": HydraLoss(), **net}
            student = toy.student(FrozenEstimator(teacher), **own).set_params(**{**settings, **few})
            student, seconds = fitted(student, rows)
            row = toy_row(teacher, student, seconds, rows, papers_parameters)
            table.append({**row, "model": model, "heads": n_heads})
    return [{"problem": name, **row} for row in table]


def toy_row(teacher, model, seconds: float, rows: Fold, papers_parameters: int) -> dict[str, Any]:
    """What a model says on test rows, and on a grid over twice the range of the data."""
    grid = around(rows.X_train)
    said = [m.predict_uncertainty(grid).epistemic.ravel() for m in (teacher, model)]
    if hasattr(model, "classes_"):
        nll = log_loss(rows.y_test, model.predict_proba(rows.X_test))
    else:
        nll = mixture_nll(rows.y_test, model.predict_members(rows.X_test))
    return {
        "model": "teacher",
        "heads": None,
        "nll": nll,
        **epistemic_fidelity(*said)._asdict(),
        "epistemic_around": float(said[1].mean()),
        "parameters": n_parameters(model.module_.network),
        "papers_parameters": papers_parameters,
        "fit_seconds": seconds,
    }


def around(X: np.ndarray, n_points: int = 50) -> np.ndarray:
    """Grid over twice the range of each column."""
    axes = [np.linspace(*(2 * x.min(), 2 * x.max()), n_points) for x in X.T]
    return np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, X.shape[1]).astype(X.dtype)


def report_toys(table: list[dict[str, Any]]) -> None:
    print("Toy problems of the paper; epistemic uncertainty over twice the range of the data")
    keys = ["problem", "model", "heads", "nll", "epistemic_around", "rank_correlation"]
    keys += ["median_ratio", "parameters", "papers_parameters", "fit_seconds"]
    names = ["problem", "model", "heads", "NLL", "epistemic", "rank", "ratio", "parameters"]
    print_table([*names, "in the paper", "fit s"], [[row[key] for key in keys] for row in table])


# ------------------------------------------------------------------------------------------------


def main() -> None:
    options = asked(__doc__, sets=Among(["spirals", "pendigits", "satimage"], SETS))
    few = {"max_epochs": 2} if options.quick else {}
    results: dict[str, Any] = {"sets": {}, "toys": []}
    for name in ["spirals"] if options.quick else options.sets:
        results["sets"][name] = run_set(name, few)
        save(options, **results)
    report_sets(results["sets"])
    for name in TOYS:
        results["toys"] += run_toy(name, few)
    print()
    report_toys(results["toys"])
    save(options, **results)


if __name__ == "__main__":
    main()
