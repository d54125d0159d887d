# SPDX-License-Identifier: BSD-3-Clause
"""Regression: UCI sets."""

from __future__ import annotations

from statistics import mean
from typing import Any

import uci
from _pages import Table, block, marked, pick, stored, table

# Targets that do not stand in the files.
UCI_WANTED = {"rank_correlation": 0.88, "median_ratio": 0.8, "rmse_ratio": 1.05}
DISTRIBUTION_NLL = 0.06  # what a student that predicts a distribution may be behind, on average
DISTRIBUTION_AUSE = 0.05  # and by how much its AUSE may differ


def by_set(name: str) -> list[tuple[str, dict, dict, dict]]:
    """Name, teacher, student and fidelity of each set of a file that uci.py has written."""
    results = sorted(stored(name)["results"].items())
    return [
        (key, *(row[part] for part in ("teacher", "student", "fidelity"))) for key, row in results
    ]


@block
def uci_scores() -> Table:
    """RMSE and NLL beside those of Deep Ensembles."""
    rows = []
    for name, theirs, ours, _ in by_set("uci"):
        rmse, nll = uci.DEEP_ENSEMBLES[name]
        rows.append([name, theirs["rmse"], ours["rmse"], rmse, theirs["nll"], ours["nll"], nll])
    return table(
        "data set | RMSE, teacher:.3f | RMSE, student:.3f | RMSE, Deep Ensembles:.2f | "
        "NLL, teacher:.3f | NLL, student:.3f | NLL, Deep Ensembles:.2f",
        rows,
    )


@block
def uci_calibration() -> Table:
    """Scores of the uncertainty, and the likelihood of one Gaussian for each row."""
    measures = "gaussian_nll ause coverage_90"
    rows = (
        [
            name,
            *(
                value
                for pair in zip(pick(theirs, measures), pick(ours, measures), strict=True)
                for value in pair
            ),
        ]
        for name, theirs, ours, _ in by_set("uci")
    )
    return table(
        "data set | NLL of a Gaussian, teacher:.3f | student:.3f | AUSE, teacher:.3f | "
        "student:.3f | 90 % coverage, teacher:.3f | student:.3f",
        rows,
    )


@block
def uci_fidelity() -> Table:
    """How close each student is to its teacher, and the targets."""
    rows: list[list[Any]] = []
    least_rank, least_ratio, most = UCI_WANTED.values()
    for name, theirs, ours, fidelity in by_set("uci"):
        rank, ratio, _ = fidelity.values()
        rmse = ours["rmse"] / theirs["rmse"]
        rows.append(
            [
                name,
                marked(rank, ".3f", rank >= least_rank),
                marked(ratio, ".3f", ratio >= least_ratio),
                marked(rmse, ".3f", rmse <= most),
                ours["nll"] - theirs["nll"],
                ours["ause"] - theirs["ause"],
                ours["parameters"] / theirs["parameters"],
            ]
        )
    wanted = [f"at least {least_rank}", f"at least {least_ratio}", f"at most {most}"]
    rows.append(["target", *wanted, None, None, None])
    return table(
        "data set | rank of epistemic | median ratio | RMSE ratio | NLL gap:+.3f | AUSE gap:+.3f | "
        "parameters, student / teacher:.2f",
        rows,
    )


@block
def uci_distribution() -> Table:
    """Students that predict a distribution, beside their teachers; the last rows have the means."""
    rows: list[list[Any]] = [
        [
            name,
            *(model[score] for score in ("rmse", "nll") for model in (theirs, ours)),
            ours["nll"] - theirs["nll"],
            ours["ause"] - theirs["ause"],
            *pick(ours, "coverage_90"),
            *pick(fidelity, "rank_correlation median_ratio"),
            ours["parameters"] / theirs["parameters"],
        ]
        for name, theirs, ours, fidelity in by_set("uci_distribution")
    ]
    nll, ause = (mean(row[column] for row in rows) for column in (5, 6))
    nll_text = marked(nll, "+.3f", nll <= DISTRIBUTION_NLL)
    ause_text = marked(ause, "+.3f", abs(ause) <= DISTRIBUTION_AUSE)
    limits_of_gaps = [f"at most {DISTRIBUTION_NLL:+g}", f"within {DISTRIBUTION_AUSE:g}"]
    rows.append(["mean", *[None] * 4, nll_text, ause_text, *[None] * 4])
    rows.append(["target", *[None] * 4, *limits_of_gaps, *[None] * 4])
    return table(
        "data set | RMSE, teacher:.3f | student:.3f | NLL, teacher:.3f | student:.3f | "
        "NLL gap:+.3f | AUSE gap:+.3f | 90 % coverage:.3f | rank of epistemic:.3f | "
        "median ratio:.2f | parameters, student / teacher:.3f",
        rows,
    )
