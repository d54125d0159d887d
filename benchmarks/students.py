# SPDX-License-Identifier: BSD-3-Clause
"""All students of one teacher, side by side: what each of them keeps, and what it costs.

Sets, teacher, splits and measures are those of hydra.py; so are --validation and what is left out.
All students have skdistill's defaults. TV is the total variation between the histograms of student
and teacher, of 50 bins, for the total, the aleatoric and the epistemic uncertainty.

    python benchmarks/students.py
    python benchmarks/students.py --sets satimage --students "Hydra+" Dirichlet
    python benchmarks/students.py --validation --student-param lr=0.005
"""

from __future__ import annotations

from typing import Any

import hydra
from _common import argument_parser, one_thread, parameter, print_table, record, write_json
from sklearn.frozen import FrozenEstimator

from skdistill import BayesianEnsembleClassifier, DistributionDistiller, HydraPlusClassifier
from skdistill.families import DirichletFamily, LogitNormalFamily
from skdistill.settings import HydraLoss

SETS = ("letter", "pendigits", "satimage")

# By name, a class and its settings.
STUDENTS: dict[str, tuple[type, dict[str, Any]]] = {
    **{name: (HydraPlusClassifier, settings) for name, settings in hydra.STUDENTS.items()},
    "Dirichlet": (DistributionDistiller, {"family": "dirichlet"}),
    "EnD2": (DistributionDistiller, {"family": DirichletFamily(loss="nll")}),
    "logit-normal": (DistributionDistiller, {"family": "logit_normal"}),
    "logit-normal, rank 2": (DistributionDistiller, {"family": LogitNormalFamily(covariance=2)}),
    "mixture": (DistributionDistiller, {"family": "mixture"}),
    "Gauss": (DistributionDistiller, {"family": "gauss_head"}),
    "Drop": (DistributionDistiller, {"family": "dropout_head"}),
}


def new_student(name: str, teacher, changes: dict[str, Any]):
    """An unfitted student of a fitted teacher; `changes` are of its defaults."""
    kind, settings = STUDENTS[name]
    own = {"loss": HydraLoss()} if kind is HydraPlusClassifier else {}
    student = kind(FrozenEstimator(teacher), random_state=0, **own)
    return student.set_params(**{**changes, **settings})


def run(rows: hydra.Split, options) -> dict[str, dict]:
    """A teacher and its students, and what each of them kept of it."""
    teacher = BayesianEnsembleClassifier(hydra.N_MEMBERS, random_state=0)
    teacher, seconds = hydra.fitted(teacher.set_params(**options.teacher_param), rows)
    results = {"teacher": hydra.scored(teacher, seconds, rows)}
    for name in options.students:
        student = new_student(name, teacher, options.student_param)
        student, seconds = hydra.fitted(student, rows)
        results[name] = hydra.scored(student, seconds, rows, teacher)
    return results


def report(results: dict[str, dict]) -> None:
    measures = ["rank_correlation", "median_ratio", *(f"tv_{part}" for part in hydra.PARTS)]
    names = ["rank", "ratio", *(f"TV {part}" for part in hydra.PARTS)]
    keys = ["nll", "ece", "ood_auroc", "parameters", "fit_seconds"]
    print("Some classes left out of training")
    print_table(
        ["set", "student", "NLL", "ECE", "OOD AUROC", "parameters", "fit s"]
        + [f"{name}, {where}" for where in ("test", "left out") for name in names],
        [
            [
                *(name, model, *(row.get(key) for key in keys)),
                *(row.get(where, {}).get(m) for where in ("test", "left_out") for m in measures),
            ]
            for name, result in results.items()
            for model, row in result.items()
        ],
    )


def parsed_options():
    parser = argument_parser(__doc__, "students")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=hydra.SETS)
    parser.add_argument("--students", nargs="+", default=list(STUDENTS), choices=list(STUDENTS))
    parser.add_argument("--validation", action="store_true", help="score on held-out training rows")
    parser.add_argument("--teacher-param", nargs="*", default=[], type=parameter, metavar="K=V")
    parser.add_argument("--student-param", nargs="*", default=[], type=parameter, metavar="K=V")
    options = parser.parse_args()
    options.teacher_param = dict(options.teacher_param)
    options.student_param = dict(options.student_param)
    if options.quick:
        options.teacher_param["max_epochs"] = options.student_param["max_epochs"] = 2
        options.sets = ["satimage"]
    return options


def main() -> None:
    options = parsed_options()
    one_thread()
    settings = {key: value for key, value in vars(options).items() if key != "output"}
    results = {}
    for name in options.sets:
        rows = hydra.load(name, options.validation)
        results[name] = run(hydra.split(rows, hydra.last_classes(rows[1])), options)
        write_json(options.output, record(settings=settings, results=results))
    report(results)


if __name__ == "__main__":
    main()
