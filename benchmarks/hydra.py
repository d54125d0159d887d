# SPDX-License-Identifier: BSD-3-Clause
"""Hydra+ for classes: what one network keeps of an ensemble of 20, and what each part of it is for.

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

With --validation a fifth of the training rows takes the place of the test rows; settings were
chosen so, never on test rows. With --ablations Hydra+ is changed in one part at a time, and both
toy problems of the paper are run with its networks, their parameters counted beside the paper's.

    python benchmarks/hydra.py --ablations            # all of it
    python benchmarks/hydra.py --sets letter          # one set, no ablations
    python benchmarks/hydra.py --validation --sets satimage --student-param loss__spread_weight=0.3
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from _common import argument_parser, one_thread, parameter, print_table, record, write_json
from _datasets import load_tabular_classification
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
from skdistill.distributions import Uncertainty
from skdistill.metrics import (
    epistemic_fidelity,
    expected_calibration_error,
    mixture_nll,
    ood_auroc,
    uncertainty_total_variation,
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

# What is changed in Hydra+, for each number of members.
ABLATIONS: dict[int, dict[str, dict[str, Any]]] = {
    N_MEMBERS: {
        "Hydra+": {},
        "heads: 10": {"heads": 10},
        "heads: 5": {"heads": 5},
        "without L2": {"loss__member_weight": 1.0},
        "without L3": {"loss__member_weight": 0.0},
        "with L4": {"loss__diversity_weight": 0.1},
        "with L4, pairwise": {"loss__diversity_weight": 0.1, "loss__diversity": "pairwise"},
        "without spread": {"loss__spread_weight": 0.0},
        "L4 instead of spread": {"loss__spread_weight": 0.0, "loss__diversity_weight": 0.1},
        "without noise": {"transfer": None},
        "Hydra": HYDRA,
        "Hydra with L4": {**HYDRA, "loss__diversity_weight": 0.1},
    },
    5: {"members: 5": {}},
}


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


class Split(NamedTuple):
    """Rows to train on, rows to be judged on, and rows of classes that were left out."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    X_left_out: np.ndarray


# Data ---------------------------------------------------------------------------------------------


def load(name: str, validation: bool) -> tuple[np.ndarray, ...]:
    """Training rows, their labels, test rows, their labels; drawn alike every time."""
    if name in TOYS:
        make = TOYS[name].make
        return *make(random_state=0), *make(3000, random_state=2 if validation else 1)
    data = load_tabular_classification(name)
    X, y = data.data, data.target
    for _ in range(1 + validation):
        X, X_test, y, y_test = train_test_split(X, y, test_size=SHARE, stratify=y, random_state=0)
    return X, y, X_test, y_test


def split(rows: tuple[np.ndarray, ...], left_out=()) -> Split:
    """Standardised float32 rows; of the classes left out there are test rows alone."""
    X, y, X_test, y_test = rows
    known, known_in_test = ~np.isin(y, left_out), ~np.isin(y_test, left_out)
    scaler = StandardScaler().fit(X[known])
    X, X_test = (scaler.transform(part).astype(np.float32) for part in (X, X_test))
    return Split(
        X[known], y[known], X_test[known_in_test], y_test[known_in_test], X_test[~known_in_test]
    )


def last_classes(y: np.ndarray) -> np.ndarray:
    """The last fifth of the classes, one at least."""
    classes = np.unique(y)
    return classes[-max(1, int(SHARE * len(classes))) :]


# Teacher and students on one split ----------------------------------------------------------------


def run(rows: Split, n_members: int, students: dict[str, dict], options) -> dict[str, dict]:
    """A teacher and its students, and what each of them kept of it."""
    teacher = BayesianEnsembleClassifier(n_members, random_state=0)
    teacher, seconds = fitted(teacher.set_params(**options.teacher_param), rows)
    results = {"teacher": scored(teacher, seconds, rows)}
    for name, settings in students.items():
        student = HydraPlusClassifier(FrozenEstimator(teacher), loss=HydraLoss(), random_state=0)
        student.set_params(**{**options.student_param, **settings})
        student, seconds = fitted(student, rows)
        results[name] = scored(student, seconds, rows, teacher)
    return results


def fitted(model, rows: Split) -> tuple[Any, float]:
    """The fitted model, and the CPU seconds that it took."""
    start = time.process_time()
    model.fit(rows.X_train, rows.y_train)
    return model, time.process_time() - start


def scored(model, seconds: float, rows: Split, teacher=None) -> dict[str, Any]:
    """How good a model is, and for a student how close it is to its teacher."""
    proba = model.predict_proba(rows.X_test)
    out = {
        "nll": log_loss(rows.y_test, proba),
        "accuracy": model.score(rows.X_test, rows.y_test),
        "ece": expected_calibration_error(rows.y_test, proba),
        "parameters": n_parameters(model.module_.network),
        "fit_seconds": seconds,
    }
    places = {"test": rows.X_test, "left_out": rows.X_left_out}
    places = {where: X for where, X in places.items() if len(X)}
    said = {where: model.predict_uncertainty(X) for where, X in places.items()}
    epistemic = [uncertainty.epistemic for uncertainty in said.values()]
    if len(said) == 2 and epistemic[0] is not None:
        out["ood_auroc"] = ood_auroc(*epistemic)
    if teacher is not None:
        for where, X in places.items():
            out[where] = fidelity(teacher.predict_uncertainty(X), said[where])
    return out


def fidelity(theirs: Uncertainty, ours: Uncertainty) -> dict[str, float]:
    """How close a student's uncertainties, those that it can tell, are to its teacher's."""
    out = {}
    if ours.epistemic is not None:
        out.update(epistemic_fidelity(theirs.epistemic, ours.epistemic)._asdict())
    for part, of_teacher, of_student in zip(PARTS, theirs, ours, strict=True):
        if of_student is not None:
            out[f"tv_{part}"] = uncertainty_total_variation(of_teacher, of_student)
    return out


# Fidelity on the sets -----------------------------------------------------------------------------


def run_set(name: str, options) -> dict[str, dict]:
    """Results on a set with all its classes, and with some left out."""
    rows = load(name, options.validation)
    left_out = {"all": (), "some_left_out": last_classes(rows[1])}
    results = {
        classes: run(split(rows, without), N_MEMBERS, STUDENTS, options)
        for classes, without in left_out.items()
    }
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


def target(name: str, value: float, low: float | None = None, high: float | None = None) -> dict:
    reached = (low is None or value >= low) and (high is None or value <= high)
    return {"target": name, "value": value, "low": low, "high": high, "reached": reached}


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


# Ablations ----------------------------------------------------------------------------------------


def run_ablations(name: str, options) -> list[dict[str, Any]]:
    """A row for each change of Hydra+, on a set with some classes left out."""
    rows = load(name, options.validation)
    rows = split(rows, last_classes(rows[1]))
    table = []
    for n_members, students in ABLATIONS.items():
        results = run(rows, n_members, students, options)
        teacher = results.pop("teacher")
        for change, result in results.items():
            gap = result["nll"] - teacher["nll"]
            table.append({"set": name, "change": change, "nll_gap": gap, **result})
    return table


def report_ablations(table: list[dict[str, Any]]) -> None:
    columns = ["NLL gap", "ECE", "rank", "ratio", "TV epistemic", "ratio, left out", "OOD AUROC"]
    print("Ablations; some classes left out")
    print_table(
        ["set", "change", *columns, "parameters", "fit s"],
        [
            [
                *(row[key] for key in ("set", "change", "nll_gap", "ece")),
                *(row["test"][k] for k in ("rank_correlation", "median_ratio", "tv_epistemic")),
                row["left_out"]["median_ratio"],
                *(row[key] for key in ("ood_auroc", "parameters", "fit_seconds")),
            ]
            for row in table
        ],
    )


# The paper's toy problems -------------------------------------------------------------------------


def run_toy(name: str, options) -> list[dict[str, Any]]:
    """A row for the teacher of a toy problem, and for each student with the paper's networks."""
    toy = TOYS[name]
    rows = split(load(name, options.validation))
    net = {
        "module__hidden_units": toy.hidden_units,
        "module__activation": "relu",
        "module__embeddings": None,
        "random_state": 0,
    }
    teacher = toy.teacher(N_MEMBERS, **net).set_params(**options.teacher_param)
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
            student = toy.student(FrozenEstimator(teacher), **own).set_params(
                **{**settings, **options.student_param}
            )
            student, seconds = fitted(student, rows)
            row = toy_row(teacher, student, seconds, rows, papers_parameters)
            table.append({**row, "model": model, "heads": n_heads})
    return [{"problem": name, **row} for row in table]


def toy_row(teacher, model, seconds: float, rows: Split, papers_parameters: int) -> dict[str, Any]:
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


def parsed_options():
    parser = argument_parser(__doc__, "hydra")
    parser.add_argument("--sets", nargs="*", default=None, choices=SETS)
    parser.add_argument("--ablations", action="store_true", help="run ablations and toys too")
    parser.add_argument("--ablation-sets", nargs="+", default=["satimage"], choices=SETS)
    parser.add_argument("--validation", action="store_true", help="score on held-out training rows")
    parser.add_argument("--teacher-param", nargs="*", default=[], type=parameter, metavar="K=V")
    parser.add_argument("--student-param", nargs="*", default=[], type=parameter, metavar="K=V")
    options = parser.parse_args()
    options.teacher_param = dict(options.teacher_param)
    options.student_param = dict(options.student_param)
    if options.quick:
        options.teacher_param["max_epochs"] = options.student_param["max_epochs"] = 2
        options.ablation_sets = ["spirals"]
    if options.sets is None:
        options.sets = ["spirals"] if options.quick else list(SETS)
    return options


def main() -> None:
    options = parsed_options()
    one_thread()
    settings = {key: value for key, value in vars(options).items() if key != "output"}
    results: dict[str, Any] = {"sets": {}, "ablations": [], "toys": []}

    for name in options.sets:
        results["sets"][name] = run_set(name, options)
        write_json(options.output, record(settings=settings, **results))
    report_sets(results["sets"])
    if options.ablations:
        for name in options.ablation_sets:
            results["ablations"] += run_ablations(name, options)
            write_json(options.output, record(settings=settings, **results))
        for name in TOYS:
            results["toys"] += run_toy(name, options)
        print()
        report_ablations(results["ablations"])
        print()
        report_toys(results["toys"])
    write_json(options.output, record(settings=settings, **results))


if __name__ == "__main__":
    main()
