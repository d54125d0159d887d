# SPDX-License-Identifier: BSD-3-Clause
"""Series of small students, by B-DISTIL."""

from __future__ import annotations

from statistics import mean
from typing import Any

from _pages import Table, block, comparisons, marked, named, pick, plus_minus, stored, table

Runs = list[dict[str, Any]]


@block
def bdistil_rounds() -> Table:
    """Accuracy after 1, 2, 4 and 7 rounds."""

    def after(curve: list[float] | None, n_rounds: int) -> float | None:
        return curve[n_rounds - 1] if curve and n_rounds <= len(curve) else None

    rows = (
        [
            name,
            found["teacher"],
            *(after(found.get(which), n) for which in ("booster", "average") for n in (1, 2, 4, 7)),
            found.get("oracle"),
        ]
        for name, found in stored("bdistil")["results"].items()
        if name != "series"
    )
    return table(
        "data set | teacher:.4f | booster, round 1:.4f | 2:.4f | 4:.4f | 7:.4f | "
        "average of 1:.4f | 2:.4f | 4:.4f | 7:.4f | oracle of 7:.4f",
        rows,
    )


def averages_of(file: str) -> dict[str, Any]:
    """What a part of bdistil.py has found that compares boosters with plain averages."""
    (found,) = stored(file)["results"].values()
    return found


@block
def bdistil_average(file: str) -> Table:
    """A booster beside plain averages of as many networks, on held-out rows; means over seeds."""
    whose = ("booster", "average", "oracle")
    rows = []
    for name, runs in by_name(averages_of(file)["runs"]).items():
        scores = (of_runs(runs, which, "score", n) for which in whose for n in (2, 7))
        distances = (of_runs(runs, which, "distance", 7) for which in whose)
        rows.append([name, mean(run["teacher"] for run in runs), *scores, *distances])
    return table(
        "data set | teacher:.4f | booster, round 2:.4f | 7:.4f | average of 2:.4f | 7:.4f | "
        "oracle of 2:.4f | 7:.4f | distance, booster:.3f | average:.3f | oracle:.3f",
        rows,
    )


def of_runs(runs: Runs, which: str, key: str, n_rounds: int) -> float:
    """Mean over runs of a score or distance after some rounds."""
    at: Any = str(n_rounds) if which == "oracle" else n_rounds - 1
    return mean(run[which][at][key] for run in runs)


def by_name(runs: Runs) -> dict[str, Runs]:
    """Runs of each set."""
    found: dict[str, Runs] = {}
    for run in runs:
        found.setdefault(run["set"], []).append(run)
    return found


@block
def bdistil_average_rounds(file: str) -> Table:
    """Round by round, the mean difference in score and ratio of distances over all runs."""
    found = averages_of(file)
    rows = (
        [number, plus_minus(difference, error, ".4f"), ratio]
        for number, (difference, error, ratio) in enumerate(
            zip(*pick(found, "difference standard_error ratio"), strict=True), 1
        )
    )
    return table(
        "round:d | score, booster minus average | distance, share of the average's:.3f", rows
    )


@block
def bdistil_targets(file: str) -> Table:
    """What the booster should reach."""
    rows = (
        [named(row["target"]), marked(row["value"], "+.4f", row["reached"]), row["limit"]]
        for found in stored(file)["results"].values()
        for row in found["targets"]
    )
    return table("target | measured | at most:g", rows)


@block
def bdistil_times() -> Table:
    """How fast a booster predicts one sample."""
    results = stored("bdistil")["results"]
    return comparisons([row for name in ("letter", "magic") for row in results[name]["times"]])


@block
def bdistil_series() -> Table:
    """Early prediction of activities."""
    found = stored("bdistil")["results"]["series"]

    def written(row: dict[str, Any]) -> list[str | None]:
        specs = {"accuracy": ".3f", "share": ".1%"}
        return [plus_minus(*row[key].values(), spec) for key, spec in specs.items()]

    rows = (
        [ours["time"], *written(ours), *written(peer)]
        for ours, peer in zip(found["booster"], found["peer"], strict=True)
    )
    return table(
        "share of the time:.0% | booster, accuracy | predicted | E-RNN, accuracy | predicted", rows
    )


@block
def mnist_inference() -> Table:
    """Ways to draw members, on MNIST."""
    rows = (
        [
            f"{mask} %",
            name,
            row["nll"],
            1 - row["accuracy"],
            *pick(row, "ece ood_auroc_total ood_auroc_epistemic members iterations cpu_seconds"),
        ]
        for file in ("mnist", "mnist_masked")
        for mask, found in stored(file)["results"].items()
        for name, row in found.items()
    )
    return table(
        "mask | inference | NLL:.3f | error:.1% | ECE:.3f | AUROC of KMNIST, total:.3f | "
        "epistemic:.3f | members:d | iterations:, | fit, CPU s:.0f",
        rows,
    )
