# SPDX-License-Identifier: BSD-3-Clause
"""Uncertainty under shift: does a student stay as unsure as its teacher, away from the data?

A teacher and its students are trained on what is as it should be, and judged on test rows that are
shifted more and more (Hydra+, Figs 3 and 4): error, calibration error (ECE), and the total
variation (TV) between the histograms of teacher and student, of 50 bins, for the total, the
aleatoric and the epistemic uncertainty. 0 means equal histograms, 1 disjoint ones: half of what the
paper prints.

MNIST, teacher and network of mnist.py:

brightness  20, 30, 50 % of the full range added to all pixels, clipped
rotation    by 15, 45, 75 degrees
shift       down, by 20, 30, 50 % of the height, with black behind

Tables, with standardised columns; a sensor that has drifted, or has become noisy:

offset      20, 30, 50 % of its standard deviation added to each column (brightness, of satimage)
gain        each column 20, 30, 50 % further from its mean (contrast, of satimage)
noise       normal noise added, of 20, 30, 50 % of each column's standard deviation

The students are some of students.py. With --validation training rows take the place of the test
rows; settings were chosen so, never on test rows. With --plot there is a figure like the paper's
Fig 3 for each set, as PNG in the folder that is named.

    python benchmarks/shift.py
    python benchmarks/shift.py --sets satimage letter --plot figures
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import mnist
import numpy as np
from _common import argument_parser, parameter, print_table, record, write_json
from hydra import fidelity
from hydra import load as load_table
from hydra import split as standardised
from scipy import ndimage
from students import new_student

from skdistill import BayesianEnsembleClassifier
from skdistill.metrics import expected_calibration_error

SETS = ("mnist", "satimage", "letter")
STUDENTS = ("Hydra+", "Hydra", "Hinton", "Dirichlet", "logit-normal")
UNSHIFTED = "none"


class Problem(NamedTuple):
    """Rows to train on, rows to be judged on, and the settings of teacher and students.

    Images are rows of shape (28, 28); models take them as 784 numbers.
    """

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    shifts: dict[str, Shift]
    teacher: dict[str, Any] = {}
    student: dict[str, Any] = {}


class Shift(NamedTuple):
    """How rows are shifted, how much, and the degree that is drawn."""

    apply: Callable[[np.ndarray, float], np.ndarray]
    degrees: tuple[float, ...]
    unit: str
    drawn: int


# Shifts -------------------------------------------------------------------------------------------


def brighter(images: np.ndarray, percent: float) -> np.ndarray:
    """Add a share of the full range to all pixels."""
    return np.minimum(images + np.float32(percent / 100), 1)


def rotated(images: np.ndarray, degrees: float) -> np.ndarray:
    return ndimage.rotate(images, degrees, axes=(2, 1), reshape=False, order=1)


def moved_down(images: np.ndarray, percent: float) -> np.ndarray:
    """Move images down by a share of their height; what comes in is black."""
    n_pixels = round(images.shape[1] * percent / 100)
    moved = np.zeros_like(images)
    moved[:, n_pixels:] = images[:, : images.shape[1] - n_pixels]
    return moved


def offset(X: np.ndarray, percent: float) -> np.ndarray:
    return X + np.float32(percent / 100)


def gained(X: np.ndarray, percent: float) -> np.ndarray:
    return X * np.float32(1 + percent / 100)


def noisy(X: np.ndarray, percent: float) -> np.ndarray:
    noise = np.random.default_rng(0).standard_normal(X.shape, dtype=np.float32)
    return X + np.float32(percent / 100) * noise


OF_IMAGES = {
    "brightness": Shift(brighter, (20, 30, 50), "%", drawn=30),
    "rotation": Shift(rotated, (15, 45, 75), "degrees", drawn=15),
    "shift": Shift(moved_down, (20, 30, 50), "%", drawn=20),
}
OF_TABLES = {
    "offset": Shift(offset, (20, 30, 50), "%", drawn=30),
    "gain": Shift(gained, (20, 30, 50), "%", drawn=30),
    "noise": Shift(noisy, (20, 30, 50), "%", drawn=30),
}


# Problems -----------------------------------------------------------------------------------------


def mnist_problem(validation: bool) -> Problem:
    """The deep ensemble of mnist.py, and students with its layers."""
    X_train, X_test, _, y_train, y_test = mnist.load(validation)
    return Problem(
        X_train,
        y_train,
        X_test,
        y_test,
        OF_IMAGES,
        teacher={**mnist.COMMON, **mnist.METHODS["deep ensemble"]},
        student={**mnist.COMMON, "lr": 2e-3, "max_epochs": 20},
    )


def table_problem(name: str, validation: bool) -> Problem:
    """A table; teacher and students have the defaults."""
    rows = standardised(load_table(name, validation))
    return Problem(rows.X_train, rows.y_train, rows.X_test, rows.y_test, OF_TABLES)


def problem(name: str, options) -> Problem:
    if name == "mnist":
        found = mnist_problem(options.validation)
    else:
        found = table_problem(name, options.validation)
    if not options.quick:
        return found
    shifts = {
        kind: shift._replace(degrees=shift.degrees[:1]) for kind, shift in found.shifts.items()
    }
    few = Problem(*(part[:300] for part in found[:4]), shifts)
    return few._replace(
        teacher={**found.teacher, "n_members": 3, "max_epochs": 1},
        student={**found.student, "max_epochs": 1},
    )


# Teacher and students -----------------------------------------------------------------------------


def fitted(given: Problem, changes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
    """Teacher and students, and the seconds of wall time that each took."""
    models: dict[str, Any] = {}
    seconds = {}
    models["teacher"] = BayesianEnsembleClassifier(random_state=0).set_params(**given.teacher)
    for name in STUDENTS:
        models[name] = new_student(name, models["teacher"], {**given.student, **changes})
    for name, model in models.items():
        start = time.perf_counter()
        model.fit(flat(given.X_train), given.y_train)
        seconds[name] = time.perf_counter() - start
    return models, seconds


def flat(X: np.ndarray) -> np.ndarray:
    return X.reshape(len(X), -1)


def shifted(given: Problem) -> list[tuple[str, float | None, np.ndarray]]:
    """Test rows as they are, and shifted: the kind of shift, its degree, the rows."""
    return [
        (UNSHIFTED, None, flat(given.X_test)),
        *(
            (kind, degree, flat(shift.apply(given.X_test, degree)))
            for kind, shift in given.shifts.items()
            for degree in shift.degrees
        ),
    ]


def judged(name: str, models: dict[str, Any], given: Problem) -> list[dict[str, Any]]:
    """A row for each model and shift."""
    table = []
    for kind, degree, X in shifted(given):
        theirs = models["teacher"].predict_uncertainty(X)
        for model_name, model in models.items():
            proba = model.predict_proba(X)
            labels = model.classes_
            row = {
                "set": name,
                "shift": kind,
                "degree": degree,
                "model": model_name,
                "error": float(np.mean(labels[proba.argmax(1)] != given.y_test)),
                "ece": expected_calibration_error(given.y_test, proba, labels=labels),
            }
            if model_name != "teacher":
                row |= fidelity(theirs, model.predict_uncertainty(X))
            table.append(row)
    return table


def plot(name: str, models: dict[str, Any], given: Problem, folder: Path) -> None:
    """Histograms for one degree of each shift, as in the paper's Fig 3."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(3, 3, figsize=(13, 11), layout="constrained")
    for row, (kind, shift) in zip(axes, given.shifts.items(), strict=True):
        X = shift.apply(given.X_test, shift.drawn)
        sets = {"in": flat(given.X_test), "out": flat(X)}
        for ax, part in zip(row, ("total", "aleatoric", "epistemic"), strict=True):
            for model, (where, rows) in product(models, sets.items()):
                values = getattr(models[model].predict_uncertainty(rows), part)
                if values is not None:
                    weights, label = np.full(len(values), 1 / len(values)), f"{model}, {where}"
                    ax.hist(values, 50, weights=weights, histtype="step", label=label)
            ax.set_xlabel(f"{part} [nats]")
        row[0].set_ylabel(f"{kind} {shift.drawn} {shift.unit}\nshare of samples")
    ax.legend(fontsize="small")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"shift_{name}.png", dpi=100)
    plt.close(figure)


def report(table: list[dict[str, Any]]) -> None:
    keys = ("error", "ece", "tv_total", "tv_aleatoric", "tv_epistemic", "rank_correlation")
    print_table(
        ["set", "shift", "model", "error", "ECE", "TV total", "aleatoric", "epistemic"]
        + ["rank of epistemic", "median ratio"],
        [
            [
                row["set"],
                " ".join(str(part) for part in (row["shift"], row["degree"]) if part is not None),
                row["model"],
                *(row.get(key) for key in (*keys, "median_ratio")),
            ]
            for row in table
        ],
    )


def main() -> None:
    parser = argument_parser(__doc__, "shift")
    parser.add_argument("--sets", nargs="+", default=["mnist", "satimage"], choices=SETS)
    parser.add_argument("--validation", action="store_true", help="score on held-out training rows")
    parser.add_argument("--student-param", nargs="*", default=[], type=parameter, metavar="K=V")
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="where to write figures")
    options = parser.parse_args()

    settings = {key: str(value) for key, value in vars(options).items() if key != "output"}
    seconds, table = {}, []
    for name in options.sets:
        given = problem(name, options)
        models, seconds[name] = fitted(given, dict(options.student_param))
        table += judged(name, models, given)
        if options.plot:
            plot(name, models, given, options.plot)
        print(f"done: {name}, " + ", ".join(f"{k} {s:.0f} s" for k, s in seconds[name].items()))
        write_json(options.output, record(settings=settings, fit_seconds=seconds, results=table))
    print()
    report(table)


if __name__ == "__main__":
    main()
