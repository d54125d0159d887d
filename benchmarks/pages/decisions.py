# SPDX-License-Identifier: BSD-3-Clause
"""What is decided by an uncertainty: what to label, when to abstain."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from _pages import Table, block, marked, stored, table

# Targets: loss over that of a random choice, of one table, and on average in regression.
OF_ONE, OF_ALL = 1.0, 0.85

PARTS = ("total", "aleatoric", "epistemic")


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
def active_learning(kind: str) -> Table:
    """Losses of a student that chooses what to label, over those of a random choice."""
    found = stored("active")
    theirs = {row["set"]: row for row in stored("active_bmdal")["tables"]}
    rows = [
        [
            row["set"],
            row["labels"],
            row["seeds"],
            marked(row["mean_ratio"], ".3f", row["mean_ratio"] <= OF_ONE),
            row["standard_error"],
            row["last_ratio"],
            *([theirs[row["set"]]["mean_ratio"]] if kind == "regression" else []),
        ]
        for row in found["tables"]
        if row["kind"] == kind
    ]
    (mean,) = (row for row in found["overall"] if row["kind"] == kind)
    most = OF_ALL if kind == "regression" else OF_ONE
    of_all = marked(mean["mean_ratio"], ".3f", mean["mean_ratio"] <= most)
    rows.append(["mean", None, None, of_all, None, mean["last_ratio"]])
    headings = "data set | labels in the end:, | seeds:d | mean ratio | ±:.3f | in the end:.3f"
    if kind == "regression":
        rows[-1].append(stored("active_bmdal")["overall"][0]["mean_ratio"])
        headings += " | bmdal_reg:.3f"
    return table(headings, rows)


@block
def optimisation() -> Table:
    """Median regret of each method, and how often it was below that of random points."""
    methods = ("members", "Gaussian process", "random")
    found: dict[str, dict[str, Any]] = {}
    for row in stored("optimise")["summary"]:
        found.setdefault(row["name"], {})[row["method"]] = row
    rows: list[list[Any]] = []
    for name, by_method in found.items():
        ours = by_method["members"]
        is_better = ours["regret"] <= by_method["random"]["regret"]
        regrets = [format(by_method[method]["regret"], ".3g") for method in methods]
        regrets[0] = marked(ours["regret"], ".3g", is_better)
        models = [by_method[method] for method in methods[:2]]
        shares = [row["below_random"] for row in models]
        rows.append([name, ours["runs"], *regrets, *shares, *(row["seconds"] for row in models)])
    return table(
        "function | runs:d | regret, members | Gaussian process | random | "
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

    optimised = {(row["name"], row["method"]): row for row in stored("optimise")["summary"]}
    ours = {name: row["regret"] for (name, method), row in optimised.items() if method == "members"}
    wins = {
        peer: sum(regret < optimised[name, peer]["regret"] for name, regret in ours.items())
        for peer in ("random", "Gaussian process")
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
            "Which experiment to run next? :ref:`Bayesian optimisation "
            "<sphx_glr_auto_examples_practice_plot_bayesian_optimisation.py>`",
            ":class:`~skdistill.integrations.botorch.MembersModel`",
            f"of {len(ours)} functions, median regret below random points on {wins['random']}, "
            f"below a Gaussian process on {wins['Gaussian process']}",
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
