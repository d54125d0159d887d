# SPDX-License-Identifier: BSD-3-Clause
"""What is decided by an uncertainty: what to label, when to abstain."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from _pages import Table, block, marked, stored, table

# Targets: loss over that of a random choice, of one table, and on average in regression.
OF_ONE, OF_ALL = 1.0, 0.9

PARTS = ("total", "aleatoric", "epistemic")
FALSE_ALARMS = 0.012  # streams without drift in which an alarm is raised


@block
def abstention() -> Table:
    """How often the promise was broken, by the part of the uncertainty, and what was answered."""
    delta = 0.1
    rows = [
        [
            name,
            row["max_risk"],
            *(marked(row[part]["broken"], ".3f", row[part]["broken"] <= delta) for part in PARTS),
            row["total"]["plain"],
            row["total"]["answered"],
        ]
        for name, row in stored("decisions")["results"]["abstention"].items()
    ]
    return table(
        "data set | risk bound:.3g | violated, total | aleatoric | epistemic | "
        "violated, plain:.3f | coverage:.2f",
        rows,
    )


@block
def active_learning() -> Table:
    """Losses of a student that chooses what to label, over those of a random choice."""
    found = stored("active")
    rows = [
        [
            *(row["set"], row["method"], row["labels"]),
            marked(row["mean_ratio"], ".3f", row["mean_ratio"] <= OF_ONE),
            row["last_ratio"],
        ]
        for row in found["tables"]
    ]
    for row in found["overall"]:
        most = OF_ALL if row["kind"] == "regression" else OF_ONE
        of_all = marked(row["mean_ratio"], ".3f", row["mean_ratio"] <= most)
        rows.append([f"mean, {row['kind']}", row["method"], None, of_all, row["last_ratio"]])
    return table("data set | method | labels in the end:, | mean ratio | in the end:.3f", rows)


@block
def optimisation() -> Table:
    """Median regret of each method, and how often it was below that of random points."""
    by_name: dict[str, dict[str, Any]] = {}
    for row in stored("optimise")["summary"]:
        by_name.setdefault(row["name"], {})[row["method"]] = row
    rows = []
    for name, of in by_name.items():
        ours, gp, random = (of[method] for method in ("members", "Gaussian process", "random"))
        regret = marked(ours["regret"], ".3g", ours["regret"] <= gp["regret"])
        shares = [row["below_random"] for row in (ours, gp)]
        seconds = [row["seconds"] for row in (ours, gp)]
        rows.append([name, ours["runs"], regret, gp["regret"], random["regret"], *shares, *seconds])
    return table(
        "function | runs:d | regret, members | Gaussian process:.3g | random:.3g | "
        "below random, members:.2f | Gaussian process:.2f | "
        "CPU s, members:.1f | Gaussian process:.1f",
        rows,
    )


@block
def active_pool() -> str:
    """What it costs to choose from a large pool."""
    row = stored("active")["pool"]
    return (
        f"{row['selected']} of {row['pool']:,} samples of 20 columns in a memory map: "
        f"{row['cpu_seconds']:.0f} CPU s, and {row['mib_peak']:.0f} MiB at the peak of the "
        f"process, which had {row['mib_before']:.0f} MiB before."
    )


@block
def what_to_do() -> Table:
    """Questions, the tools that answer them, and what was measured of these."""
    ratio = {row["kind"]: row["mean_ratio"] for row in stored("active")["overall"]}
    kept = [row["total"] for row in stored("decisions")["results"]["abstention"].values()]
    intervals = stored("conformal")["results"].values()
    monitor = {
        row["shift"]: row
        for row in stored("drift")["results"]
        if row["contender"] == "DriftMonitor"
    }

    def span(values: Iterable[float]) -> str:
        found = list(values)
        return f"{min(found):.2f} to {max(found):.2f}"

    rows = [
        [
            "Which samples to label next? :doc:`active_learning`",
            ":func:`~skdistill.active.select_batch`",
            f"loss {ratio['regression']:.2f} times that of random selection in regression, "
            f"{ratio['classes']:.2f} in classification",
        ],
        [
            "When to abstain? :doc:`abstention`",
            ":class:`~skdistill.decision.SelectivePredictor`",
            f"delta .1: risk exceeded in {span(row['broken'] for row in kept)} of trials; "
            f"without a test {span(row['plain'] for row in kept)}",
        ],
        [
            "How wide is a 90 % interval? :doc:`conformal`",
            ":class:`~skdistill.decision.ConformalRegressor`",
            f"coverage {span(row['total']['coverage'] for row in intervals)}",
        ],
        [
            "Have the inputs drifted? :doc:`drift`",
            ":class:`~skdistill.monitoring.DriftMonitor`",
            f"false-alarm rate {monitor[0]['false_alarms']:.3f} at level .01; a shift of two "
            f"standard deviations is detected after {monitor[2.0]['median_delay']:.0f} samples",
        ],
        [
            "Is a sample out of distribution? :doc:`unseen`",
            ":func:`~skdistill.predict_uncertainty`",
            ":doc:`/measured/unseen`",
        ],
    ]
    return Table(["question", "tool", "measured"], rows)


@block
def drift_alarms() -> Table:
    """False alarms of a monitor of drift, and of tests at each look."""
    rows = [row for row in stored("drift")["results"] if not row["shift"]]
    return table(
        "stationary streams | looks | alarm of | false-alarm rate | CPU ms of a batch:.1f",
        (
            [
                f"{row['streams']:,}",
                str(row["looks_before_change"]),
                row["contender"],
                marked(row["false_alarms"], ".3f", _is_monitor_within(row)),
                row.get("ms_of_batch"),
            ]
            for row in rows
        ),
    )


def _is_monitor_within(row: dict[str, Any]) -> bool | None:
    is_monitor = row["contender"] == "DriftMonitor"
    return row["false_alarms"] <= FALSE_ALARMS if is_monitor else None


@block
def drift_delays() -> Table:
    """Samples from a shift to the alarm."""
    rows = sorted(stored("drift")["results"], key=itemgetter("shift"))
    return table(
        "shift:.2f | alarm of | false alarms before:.2f | median delay | "
        "90 % quantile of the delay | missed in 2,000 samples:.2f",
        (
            [
                row["shift"],
                row["contender"],
                row["false_alarms"],
                *(_samples(row[key]) for key in ("median_delay", "delay_of_nine_in_ten")),
                row["missed"],
            ]
            for row in rows
            if row["shift"]
        ),
    )


def _samples(delay: float | None) -> str:
    return "never" if delay is None else f"{delay:,.0f}"
