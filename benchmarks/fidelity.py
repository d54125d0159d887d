# SPDX-License-Identifier: BSD-3-Clause
"""How well students know the infinite ensemble that their teacher stands for.

teacher    20 members
reference  100 members, trained alike with other seeds
students   of the teacher, each with skdistill's defaults but for what its name says

The sets of UCI have the splits of uci.py, other tables splits of their own, with a fifth of the
rows in the test part. On house nothing was ever decided. Figures are means over five splits, or two
of a set with more than 10,000 training rows.

Gaps are what the student scores less the teacher, by the likelihood of one Gaussian with the
predicted mean and variance or of the label; the CRPS is that of this Gaussian. Rank correlations
and median ratios are of epistemic uncertainties on test rows: of the student to its teacher, of the
student to the reference, and of the teacher to the reference, which is what a perfect imitation
would reach. Times are CPU seconds of one thread.

With --validation the last fifth of each training part takes the place of the test rows; settings
were chosen so, never on test rows. Results are written after every set; with --resume sets in the
file stay, unless defaults have changed since. With --cache fitted teachers and references are kept
in a folder for the next run.

    python benchmarks/fidelity.py
    python benchmarks/fidelity.py --sets energy --students Hydra+ --student-param transfer=None
    python benchmarks/fidelity.py --validation --splits 2 --cache fitted
"""

from __future__ import annotations

import argparse
import time
from statistics import mean
from typing import Any, NamedTuple

import _defaults
import numpy as np
from _common import (
    argument_parser,
    arrays,
    one_thread,
    parameter,
    print_table,
    record,
    resumed,
    write_json,
)
from _datasets import UCI_REGRESSION, load_tabular_classification
from joblib import Memory, Parallel, delayed
from sklearn.base import is_classifier
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from uci import load_split

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    DistributionDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill.metrics import crps, fidelity
from skdistill.modules import n_parameters
from skdistill.settings import Runtime

# Splits of a set, and of one of more than 10,000 training rows.
N_SPLITS, N_SPLITS_OF_LARGE = 5, 2

N_MEMBERS = {"teacher": 20, "reference": 100}
SEEDS = {"teacher": 0, "reference": 1}
SHARE = 0.2

OF_UCI = ("boston", "concrete", "energy", "power-plant", "wine", "protein")
OF_NUMBERS = (*OF_UCI, "california", "house")
OF_CLASSES = ("letter", "pendigits", "satimage", "magic", "spambase", "covtype20k")
LARGE = ("protein", "california", "house", "letter", "magic", "covtype20k")

# By name, a class and its settings; those of a kind of target only for tables of this kind.
STUDENTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Hydra+": ({True: HydraPlusClassifier, False: HydraPlusRegressor}, {}),
    "gaussian": ({False: DistributionDistiller}, {"family": "gaussian"}),
    "dirichlet": ({True: DistributionDistiller}, {"family": "dirichlet"}),
    "logit-normal": ({True: DistributionDistiller}, {"family": "logit_normal"}),
    # At most 3 % of the teacher's parameters.
    "latent factor": (
        {False: DistributionDistiller},
        {"family": "latent_factor", "module__hidden_units": (32, 32)},
    ),
}


class Rows(NamedTuple):
    """Rows to train on and rows to be judged on."""

    X_train: np.ndarray
    X_test: np.ndarray
    y_train: np.ndarray
    y_test: np.ndarray

    @property
    def are_classes(self) -> bool:
        return self.y_train.dtype.kind != "f"


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All rows of a table that has no splits."""
    if name == "california":
        return tuple(arrays("uci/california_housing", "X y"))
    if name == "house":
        parts = arrays("tabular/house", "X_train X_val X_test y_train y_val y_test")
        return np.vstack(parts[:3]), np.hstack(parts[3:])
    if name == "digits":
        return load_digits(return_X_y=True)
    found = load_tabular_classification(name)
    return found.data, found.target


def load(name: str, split: int, validation: bool) -> Rows:
    """Standardised rows of one split."""
    if name in UCI_REGRESSION:
        return Rows(*load_split(name, split, validation))
    X, y = table(name)
    for seed in (split, split + 1000)[: 1 + validation]:
        X, X_test, y, y_test = train_test_split(X, y, test_size=SHARE, random_state=seed)
    scaler = StandardScaler().fit(X)
    X, X_test = (scaler.transform(part).astype(np.float32) for part in (X, X_test))
    return Rows(X, X_test, y, y_test)


def fitted(model, rows: Rows) -> tuple[Any, float]:
    """A model that is fitted here, and its CPU seconds."""
    start = time.process_time()
    model.fit(rows.X_train, rows.y_train)
    return model, time.process_time() - start


def ensemble(role: str, rows: Rows, params: dict[str, Any]):
    """A fitted ensemble in the role of the teacher or of the reference."""
    kind = BayesianEnsembleClassifier if rows.are_classes else BayesianEnsembleRegressor
    settings = {
        "random_state": SEEDS[role],
        "runtime": Runtime(device="cpu"),
        "n_members": N_MEMBERS[role],
        **params,
    }
    return fitted(kind(**settings), rows)[0]


def scored(teacher, student, reference, rows: Rows) -> dict[str, float]:
    """Gaps to the teacher, and how the epistemic uncertainty follows teacher and reference."""
    table = fidelity(teacher, student, rows.X_test, rows.y_test, reference=reference)
    found = {k: value for k, value in table["student_to_teacher"].items() if k.endswith("_gap")}
    for pair, column in table.items():
        found[f"rank_{pair}"] = column["epistemic_rank_correlation"]
        found[f"ratio_{pair}"] = column["epistemic_median_ratio"]
    if not is_classifier(student):
        of_student, of_teacher = (
            crps(rows.y_test, np.stack([m, s**2], axis=-1)[:, None, None])
            for m, s in (
                model.predict(rows.X_test, return_std=True) for model in (student, teacher)
            )
        )
        found["crps_ratio"] = of_student / of_teacher
    return found


def run(name: str, split: int, options) -> dict[str, dict[str, float]]:
    """What each student keeps on one split."""
    one_thread()
    rows = load(name, split, options.validation)
    kept = Memory(options.cache, verbose=0).cache(ensemble)
    teacher, reference = (kept(role, rows, options.teacher_param) for role in N_MEMBERS)
    results = {}
    for student in options.students:
        kinds, settings = STUDENTS[student]
        if rows.are_classes not in kinds:
            continue
        model = kinds[rows.are_classes](
            FrozenEstimator(teacher), random_state=0, runtime=Runtime(device="cpu")
        )
        model, seconds = fitted(model.set_params(**{**settings, **options.student_param}), rows)
        results[student] = {
            **scored(teacher, model, reference, rows),
            "share_of_parameters": n_parameters(model.module_) / n_parameters(teacher.module_),
            "cpu_seconds": seconds,
        }
    return results


def means(found: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Means over splits."""
    return {
        student: {key: mean(split[student][key] for split in found) for key in row}
        for student, row in found[0].items()
    }


def report(results: dict[str, dict[str, dict[str, float]]]) -> None:
    pairs = ("student_to_teacher", "student_to_reference", "teacher_to_reference")
    keys = ["nll_gap", "crps_ratio", *(f"{m}_{p}" for m in ("rank", "ratio") for p in pairs)]
    names = ["to teacher", "to reference", "the teacher's"]
    print_table(
        ["set", "student", "NLL gap", "CRPS ratio"]
        + [f"{measure} {name}" for measure in ("rank", "ratio") for name in names]
        + ["parameters", "CPU s"],
        [
            [
                name,
                student,
                *(row.get(key) for key in [*keys, "share_of_parameters", "cpu_seconds"]),
            ]
            for name, found in results.items()
            for student, row in found.items()
        ],
    )


def parser_of_splits(
    description: str, name: str, n_splits: dict[str, int]
) -> argparse.ArgumentParser:
    """Parser for scripts that fit students of a teacher on splits, by default `n_splits` a set."""
    parser, sets = argument_parser(description, name), list(n_splits)
    parser.add_argument("--sets", nargs="+", default=sets, choices=sets)
    parser.add_argument("--splits", type=int, help="of every set (default: see above)")
    parser.add_argument("--validation", action="store_true", help="score on held-out training rows")
    parser.add_argument("--teacher-param", nargs="*", default=[], type=parameter, metavar="K=V")
    parser.add_argument("--student-param", nargs="*", default=[], type=parameter, metavar="K=V")
    parser.add_argument("--cache", default=None, help="folder that keeps teachers and references")
    parser.add_argument("--jobs", type=int, default=2, help="splits side by side")
    parser.add_argument("--resume", action="store_true", help="measure the sets the file lacks")
    return parser


def run_splits(run, options, n_splits: dict[str, int], quick_sets: list[str], **content) -> dict:
    """Means over the splits of each set of what `run` finds, written as JSON with `content`."""
    options.teacher_param = dict(options.teacher_param)
    options.student_param = dict(options.student_param)
    if options.quick:
        options.sets, options.splits, options.jobs = quick_sets, 1, 1
        options.teacher_param |= {"max_epochs": 2, "n_members": 3}
        options.student_param |= {"max_epochs": 2}
    settings = {k: v for k, v in vars(options).items() if k not in ("output", "cache", "resume")}
    same = {name: value for name, value in settings.items() if name not in ("sets", "jobs")}
    found = resumed(options.output, same) if options.resume else None
    results = {} if found is None or _defaults.changed(found) else found["results"]
    for name in (name for name in options.sets if name not in results):
        splits = range(options.splits or n_splits[name])
        calls = (delayed(run)(name, split, options) for split in splits)
        results[name] = means(Parallel(options.jobs)(calls))
        write_json(options.output, record(settings=settings, **content, results=results))
    return results


def main() -> None:
    n_splits = {
        name: N_SPLITS_OF_LARGE if name in LARGE else N_SPLITS for name in OF_NUMBERS + OF_CLASSES
    }
    parser = parser_of_splits(__doc__, "fidelity", n_splits)
    parser.add_argument("--students", nargs="+", default=list(STUDENTS), choices=list(STUDENTS))
    options = parser.parse_args()
    sets = ["boston", "spambase"]
    report(run_splits(run, options, n_splits, sets, members=N_MEMBERS))


if __name__ == "__main__":
    main()
