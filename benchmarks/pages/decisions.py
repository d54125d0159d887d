# SPDX-License-Identifier: BSD-3-Clause
"""What is decided by an uncertainty: abstention, and intervals where samples have moved."""

from __future__ import annotations

from typing import Any

from _pages import Table, block, marked, stored, table

# What was wanted: coverage of intervals of 90 % under covariate shift.
LEAST_COVERAGE, MOST_COVERAGE = 0.88, 0.92

PARTS = ("total", "aleatoric", "epistemic")

# Of decisions.py, how likelihood ratios are known, with headings.
RATIOS = {
    "plain": "plain",
    "known": "known ratio",
    "splines": "logistic on splines",
    "logistic": "logistic",
}


def found_decisions(part: str) -> dict[str, dict[str, Any]]:
    """What a part of decisions.py has found, by set."""
    return stored("decisions")["results"][part]


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
        for name, row in found_decisions("abstention").items()
    ]
    return table(
        "set | risk promised:.3g | broken, total | aleatoric | epistemic | "
        "broken, plain:.3f | answered:.2f",
        rows,
    )


@block
def shifted_coverage(protocol: str) -> Table:
    """Coverage of intervals of 90 % for samples that have moved."""

    def judged(way: str, coverage: float) -> str:
        is_within = way == "plain" or LEAST_COVERAGE <= coverage <= MOST_COVERAGE
        return marked(coverage, ".3f", is_within)

    rows = [
        [name, *(judged(way, row[way]["coverage"]) for way in RATIOS)]
        for name, row in found_decisions(protocol).items()
    ]
    return table(" | ".join(["set", *RATIOS.values()]), rows)


@block
def stream_coverage() -> Table:
    """Coverage on streams whose samples are sorted by a feature."""
    rows = [
        [
            name,
            row["plain"]["coverage"],
            row["adaptive"]["coverage"],
            row["plain"]["width"],
            row["adaptive"]["width"],
            row["adaptive"]["infinite"],
        ]
        for name, row in found_decisions("stream").items()
    ]
    return table(
        "set | plain:.3f | adaptive:.3f | width, plain:.2f | adaptive:.2f | infinite:.2f", rows
    )
