# SPDX-License-Identifier: BSD-3-Clause
"""Group lasso and removal of units beside a search over all widths (GPED, Experiment 3).

MNIST with squares of 15 x 15 pixels missing (29 %), 10,000 labelled images, D' of all 60,000. The
teacher is one chain of 784-400-400 units (gped.py's, T = 20,000); 50 of its states are asked once
about all images, and every student learns the same means of what they say (U_o):

search over widths   a student of each of 5 x 5 pairs of widths, up to the teacher's
group lasso          the same training from 400-400 and from 200-200 units, at several strengths of
                     the penalty; silent units are removed, and the rest is trained from new weights

All students see D' equally often, 30 times; those with group lasso five more before the removal.
Each pruned student is held against the front of the search at its own FLOPs, in NLL and in the MAE
of the expected entropy:

interpolated         linear in the logarithm of FLOPs between two students of the front, which asks
                     the pruned one to be as good as a student that the search has not tried
no dearer            the best student of the search that takes no more FLOPs

Intervals of differences, 95 %, are those of a paired bootstrap of test images: below zero a pruned
student dominates, around zero it matches, above it loses. They do not tell the chance of training:
another random_state moved an NLL by up to .003. Fronts are those on the images that are scored, as
in the paper. Latencies are medians over rounds in which all students have their turn.

With --validation the next 10,000 training images take the place of the test images, and leave D';
learning rate, epochs and strengths were chosen so. Takes a quarter of an hour on one core.

    python benchmarks/pareto.py --figure pareto.png
    python benchmarks/pareto.py --validation --param lr=0.004
"""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import gped
import numpy as np
from _common import (
    argument_parser,
    mib,
    one_thread,
    parameter,
    print_table,
    record,
    saved,
    write_json,
)
from sklearn.metrics import log_loss

from skdistill import BayesianEnsembleClassifier, GPEDDistiller
from skdistill.model_selection import latency
from skdistill.pruning import GroupLasso, widths
from skdistill.samplers import SGLD

SIDE = gped.MASKS["29"]
N_MEMBERS = 50
BASE = (400, 400)  # units of the teacher

N_EPOCHS, N_EPOCHS_BEFORE_REMOVAL = 30, 5
STUDENT: dict[str, Any] = {
    "lr": 2e-3,
    "batch_size": 250,
    "normalize": False,  # pixels are in [0, 1]
    "random_state": 0,
}
WIDTHS = (25, 50, 100, 200, 400)
STRENGTHS = {
    (400, 400): (0.04, 0.07, 0.1, 0.13, 0.16, 0.2, 0.25),
    (200, 200): (0.09, 0.13, 0.16, 0.2),
}

SEARCH = "search over widths"
MEASURES = {"nll": "NLL", "entropy_mae": "entropy MAE"}
HOW = {"interpolated": False, "no dearer": True}
LATENCY_ROWS = (1, 1000)

Row = dict[str, Any]


def candidates(quick: bool) -> dict[str, list[dict[str, Any]]]:
    """Settings of the students, by how their widths are found."""
    before, n_epochs = (1, 2) if quick else (N_EPOCHS_BEFORE_REMOVAL, N_EPOCHS)
    searched = product((10, 40) if quick else WIDTHS, repeat=2)
    strengths = {(40, 40): (0.01, 300.0)} if quick else STRENGTHS
    found = {
        SEARCH: [{"module__hidden_units": units, "max_epochs": n_epochs} for units in searched]
    }
    for start, values in strengths.items():
        shared = {
            "module__hidden_units": start,
            "max_epochs": before,
            "finetune_epochs": n_epochs,
        }
        name = f"group lasso from {'-'.join(map(str, start))}"
        found[name] = [{**shared, "group_lasso": value} for value in values]
    return found


# The teacher --------------------------------------------------------------------------------------


class Lessons(NamedTuple):
    """Images of D' and what the teacher's states say about them; those that are scored."""

    X: np.ndarray
    members: np.ndarray  # (n, n_members, n_classes)
    X_test: np.ndarray
    y_test: np.ndarray
    members_test: np.ndarray

    @property
    def teacher_nll(self) -> float:
        return log_loss(self.y_test, self.members_test.mean(1))

    @property
    def entropy_test(self) -> np.ndarray:
        """Expected entropy, in nats."""
        p = self.members_test
        return -np.sum(p * np.log(np.maximum(p, 1e-30)), axis=2).mean(1)


def taught(images: gped.Images, n_iterations: int, n_members: int) -> Lessons:
    """Run the chain, and ask it about all images."""
    n_batches = -(-len(images.X) // gped.BATCH_SIZE)
    teacher = BayesianEnsembleClassifier(
        n_members,
        inference=SGLD(prior_precision=gped.PRIOR_PRECISION, **{**gped.CHAIN, "thinning": "auto"}),
        module__hidden_units=BASE,
        batch_size=gped.BATCH_SIZE,
        max_epochs=max(1, n_iterations // n_batches),
        normalize=False,
        random_state=0,
    ).fit(images.X, images.y)
    X = np.concatenate([images.X, images.X_transfer])
    members, members_test = (teacher.predict_members(rows) for rows in (X, images.X_test))
    return Lessons(X, members, images.X_test, images.y_test, members_test)


# The students -------------------------------------------------------------------------------------


def fitted(lessons: Lessons, params: dict[str, Any]) -> tuple[GPEDDistiller, Row, dict]:
    """A student, what is reported of it, and for each measure its errors on the test images."""
    settings = dict(params)
    if strength := settings.pop("group_lasso", None):
        finetune_epochs = settings.pop("finetune_epochs")
        settings["pruning"] = GroupLasso(strength, finetune_epochs=finetune_epochs, restart=True)
    student = GPEDDistiller("classifier", **STUDENT).set_params(**settings)
    n, _, n_classes = lessons.members.shape
    labels = np.arange(n) % n_classes  # tell which classes there are, and nothing else
    seconds = time.process_time()
    student.fit(lessons.X, labels, member_predictions=lessons.members)
    seconds = time.process_time() - seconds
    proba = student.predict_proba(lessons.X_test)
    aleatoric = student.predict_uncertainty(lessons.X_test).aleatoric
    errors = {
        "nll": -np.log(proba[np.arange(len(proba)), lessons.y_test]),
        "entropy_mae": np.abs(aleatoric - lessons.entropy_test),
    }
    row = {
        "params": params,
        "widths": widths(student.module_),
        "flops": student.flops_,
        "parameters": student.n_parameters_,
        "mib": mib(saved(student.module_)),
        **{name: float(values.mean()) for name, values in errors.items()},
        "accuracy": float((proba.argmax(1) == lessons.y_test).mean()),
        "cpu_seconds": seconds,
    }
    return student, row, errors


def nondominated(costs: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Those that no other one beats in cost without a worse score, from the cheapest to the best.

    Of equal ones the first is there.
    """
    order = np.lexsort((-scores, costs))
    best_before = np.concatenate([[-np.inf], np.maximum.accumulate(scores[order])[:-1]])
    return order[scores[order] > best_before]


class Front:
    """Students that no other one beats in FLOPs without being worse.

    Parameters
    ----------
    rows : list of dict
        What is reported of the students.
    errors : list of array of shape (n_rows,)
        Error of each student for each row; their mean is the smaller, the better.
    """

    def __init__(self, rows: list[Row], errors: list[np.ndarray]):
        flops = np.array([row["flops"] for row in rows], dtype=float)
        self.indices = nondominated(flops, -np.mean(errors, axis=1))
        self.flops = flops[self.indices]
        self.errors = np.asarray(errors)[self.indices]

    def at(self, flops: float, step: bool = False) -> np.ndarray:
        """Error for each row: of the best student that is no dearer, or between two students.

        Between two it is linear in the logarithm of FLOPs. Beyond the ends it is the end's.
        """
        place = np.interp(np.log(flops), np.log(self.flops), np.arange(len(self.flops)))
        left = int(place)
        if step or left == place:
            return self.errors[left]
        return self.errors[left] + (place - left) * (self.errors[left + 1] - self.errors[left])


def compared(differences: np.ndarray, n_resamples: int = 1000) -> Row:
    """Mean of the rows' differences in an error, its interval, and what it says."""
    rng, n = np.random.default_rng(0), len(differences)
    means = [differences[rng.integers(n, size=n)].mean() for _ in range(n_resamples)]
    low, high = np.quantile(means, [0.025, 0.975]).tolist()
    verdict = "dominates" if high < 0 else "loses" if low > 0 else "matches"
    return {"difference": float(differences.mean()), "interval": [low, high], "verdict": verdict}


def mean_difference(front: Front, reference: Front, step: bool, n_places: int = 50) -> np.ndarray:
    """Difference for each row between two fronts, averaged over the log FLOPs that both span.

    Where they span none, it is that of the ends that face each other.
    """
    low = max(front.flops[0], reference.flops[0])
    high = min(front.flops[-1], reference.flops[-1])
    places = np.geomspace(low, high, n_places)
    return np.mean([front.at(x, step) - reference.at(x, step) for x in places], axis=0)


def judged(
    searched: tuple[list[Row], list[np.ndarray]],
    pruned: tuple[list[Row], list[np.ndarray]],
    step: bool,
) -> Row:
    """Hold pruned students against the front of the search, one by one and as a front."""
    reference, front = Front(*searched), Front(*pruned)
    each = [
        compared(errors - reference.at(row["flops"], step))
        for row, errors in zip(*pruned, strict=True)
    ]
    verdicts = [found["verdict"] for found in each]
    within = reference.flops >= front.flops[0]
    covered = [
        compared(front.at(flops, step) - errors)["verdict"] != "loses"
        for flops, errors in zip(reference.flops[within], reference.errors[within], strict=True)
    ]
    return {
        "each": each,
        "counts": {name: verdicts.count(name) for name in ("dominates", "matches", "loses")},
        "front": compared(mean_difference(front, reference, step)),
        "search_front": [searched[0][i]["widths"] for i in reference.indices],
        "search_front_in_reach": len(covered),
        "search_front_covered": sum(covered),
    }


# Latency ------------------------------------------------------------------------------------------


def latencies(students: list[GPEDDistiller], X: np.ndarray, n_rounds: int) -> list[Row]:
    """Milliseconds of a call of `predict` of each student, by the number of rows."""
    found: list[Row] = [{} for _ in students]
    for n_rows in LATENCY_ROWS:
        times: list[list[float]] = [[] for _ in students]
        for _ in range(n_rounds):
            for own, student in zip(times, students, strict=True):
                own.append(latency(student, X, batch_size=n_rows, n_repeats=20))
        for row, own in zip(found, times, strict=True):
            row[str(n_rows)] = 1e3 * median(own)
    return found


# Reports ------------------------------------------------------------------------------------------


def named(row: Row) -> str:
    return "-".join(map(str, row["widths"]))


def print_search(rows: list[Row], front: list) -> None:
    print(f"\n{SEARCH}; those on the front in NLL")
    print_table(
        ["units", "FLOPs", "parameters", "NLL", "accuracy", "entropy MAE", "CPU s"],
        [
            [named(row), row["flops"], row["parameters"], row["nll"], row["accuracy"]]
            + [row["entropy_mae"], row["cpu_seconds"]]
            for row in rows
            if row["widths"] in front
        ],
    )


def print_pruned(rows: list[Row], widest: Row, verdicts: Row) -> None:
    print("\nThe widest of the search, and pruned students; ms are of one call of predict")
    print_table(
        ["from", "strength", "units left", "FLOPs", "parameters", "MiB", "NLL", "accuracy"]
        + ["entropy MAE", *(f"ms, {n_rows} rows" for n_rows in LATENCY_ROWS)],
        [
            ["-".join(map(str, row["params"]["module__hidden_units"]))]
            + [row["params"].get("group_lasso"), named(row), row["flops"], row["parameters"]]
            + [row["mib"], row["nll"], row["accuracy"], row["entropy_mae"]]
            + list(row["latency_ms"].values())
            for row in [widest, *rows]
        ],
    )
    print("\nPruned students less the search at equal FLOPs")
    columns = [f"{title}, {how}" for title in MEASURES.values() for how in HOW]
    table = []
    for i, row in enumerate(rows):
        cells = [named(row), row["flops"]]
        for name, how in product(MEASURES, HOW):
            found = verdicts[name][how]["each"][i]
            interval = "({:+.4f} to {:+.4f})".format(*found["interval"])
            cells.append(f"{found['difference']:+.4f} {interval} {found['verdict']}")
        table.append(cells)
    print_table(["units left", "FLOPs", *columns], table)


def print_verdicts(verdicts: Row) -> None:
    print("\nAll pruned students, and the two fronts, mean over log FLOPs")
    table = []
    for name, how in product(MEASURES, HOW):
        found = verdicts[name][how]
        front = found["front"]
        covered = f"{found['search_front_covered']} of {found['search_front_in_reach']}"
        interval = "{:+.4f} to {:+.4f}".format(*front["interval"])
        cells = [MEASURES[name], how, *found["counts"].values()]
        table.append([*cells, f"{front['difference']:+.4f}", interval, front["verdict"], covered])
    print_table(
        ["measure", "against", "dominate", "match", "lose", "front less search's", "95 %"]
        + ["it", "search's front matched or beaten"],
        table,
    )


def draw(rows: dict[str, list[Row]], teacher_nll: float, path: Path) -> None:
    """The panels of the paper's Fig 2, and the same for the entropy."""
    from matplotlib import pyplot as plt

    base = rows[SEARCH][-1]  # the teacher's architecture
    figure, axes = plt.subplots(2, 2, figsize=(8, 7), layout="constrained")
    for row, (measure, title) in zip(axes, MEASURES.items(), strict=True):
        for ax, cost in zip(row, ("flops", "parameters"), strict=True):
            for name, those in rows.items():
                costs, errors = (np.array([each[key] for each in those]) for key in (cost, measure))
                (points,) = ax.plot(costs, errors, ".", alpha=0.4)
                front = nondominated(costs, -errors)
                ax.plot(costs[front], errors[front], color=points.get_color(), label=name)
            ax.axvline(base[cost], color="0.3", linestyle=":")
            ax.set(xscale="log", xlabel=cost, ylabel=title)
        if measure == "nll":
            for ax in row:
                ax.axhline(teacher_nll, color="0.3", linestyle="--", label="teacher")
    axes[0, 0].legend(fontsize="small")
    figure.savefig(path, dpi=100)


def report(results: Row) -> None:
    rows, verdicts = results["students"], results["verdicts"]
    print_search(rows[SEARCH], verdicts["nll"]["interpolated"]["search_front"])
    print_pruned(flat_pruned(rows), rows[SEARCH][-1], verdicts)
    print_verdicts(verdicts)


def flat_pruned(by_name: dict[str, list]) -> list:
    """What there is of all pruned students, in one list."""
    return [each for name, those in by_name.items() if name != SEARCH for each in those]


# ----------------------------------------------------------------------------------------------


def parsed_options():
    parser = argument_parser(__doc__, "pareto")
    parser.add_argument("--iterations", type=int, default=20_000, help="T, of the teacher's chain")
    parser.add_argument("--rounds", type=int, default=7, help="rounds to take medians over")
    parser.add_argument("--validation", action="store_true", help="score on training images")
    parser.add_argument("--param", nargs="*", default=[], type=parameter, metavar="K=V")
    parser.add_argument("--figure", type=Path, metavar="PATH", help="where to write a figure")
    return parser.parse_args()


def run(lessons: Lessons, options) -> Row:
    """All students, what they cost, and how the two ways compare."""
    students, rows, errors = {}, {}, {}
    for name, those in candidates(options.quick).items():
        found = [fitted(lessons, {**params, **dict(options.param)}) for params in those]
        students[name], rows[name], errors[name] = (list(part) for part in zip(*found, strict=True))
        print(f"done: {name}", flush=True)
    timed = [students[SEARCH][-1], *flat_pruned(students)]
    times = latencies(timed, lessons.X_test, options.rounds)
    for row, own in zip([rows[SEARCH][-1], *flat_pruned(rows)], times, strict=True):
        row["latency_ms"] = own
    verdicts = verdicts_of(rows, errors)
    return {"teacher_nll": lessons.teacher_nll, "students": rows, "verdicts": verdicts}


def verdicts_of(rows: dict[str, list[Row]], errors: dict[str, list[dict]]) -> Row:
    """By measure, and by what the pruned students are held against."""
    found: Row = {name: {} for name in MEASURES}
    for name, how in product(MEASURES, HOW):
        searched = rows[SEARCH], [own[name] for own in errors[SEARCH]]
        pruned = flat_pruned(rows), [own[name] for own in flat_pruned(errors)]
        found[name][how] = judged(searched, pruned, HOW[how])
    return found


def main() -> None:
    options = parsed_options()
    one_thread()
    settings = {k: v for k, v in vars(options).items() if k not in ("output", "figure")}
    images, n_members = gped.load(SIDE, options.validation), N_MEMBERS
    if options.quick:
        images, n_members = gped.Images(*(part[:300] for part in images)), 3
        options.iterations, options.rounds = 15, 1
    lessons = taught(images, options.iterations, n_members)
    print(f"teacher: NLL {lessons.teacher_nll:.3f}", flush=True)
    results = run(lessons, options)
    write_json(options.output, record(settings=settings, results=results))
    if options.figure:
        draw(results["students"], lessons.teacher_nll, options.figure)
    report(results)


if __name__ == "__main__":
    main()
