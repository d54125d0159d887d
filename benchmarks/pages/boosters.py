# SPDX-License-Identifier: BSD-3-Clause
"""Series of small students, by B-DISTIL."""

from __future__ import annotations

from typing import Any

from _pages import Table, block, comparisons, marked, named, plus_minus, stored, table


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


@block
def bdistil_targets() -> Table:
    """What the booster should reach."""
    rows = (
        [named(row["target"]), marked(row["value"], "+.4f", row["reached"]), row["high"]]
        for found in stored("bdistil")["results"].values()
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
