# SPDX-License-Identifier: BSD-3-Clause
"""Regression: UCI sets, and targets within limits."""

from __future__ import annotations

from typing import Any

import uci
from _pages import Table, block, marked, pick, stored, table

# Targets that do not stand in the files.
UCI_WANTED = {"rank_correlation": 0.88, "median_ratio": 0.8, "rmse_ratio": 1.05}


def by_set() -> list[tuple[str, dict[str, float], dict[str, float]]]:
    """Name, teacher and student of each set; means over splits."""
    found = uci.means(stored("uci")["results"])
    return [(name, of["teacher"], of["student"]) for name, of in sorted(found.items())]


@block
def uci_scores() -> Table:
    """RMSE and NLL beside those of Deep Ensembles."""
    rows = []
    for name, theirs, ours in by_set():
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
        for name, theirs, ours in by_set()
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
    for name, theirs, ours in by_set():
        rank, ratio = pick(ours, "rank_correlation median_ratio")
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
def bounds(key: str) -> Table:
    """A score of each model of a target within limits, a row for each set."""
    spec = {"coverage": ".3f", "outside": ".2f", "width": ".2f", "crps": ".3f", "rmse": ".3f"}[key]
    found = stored("bounds")["results"]
    models = [name for name in next(iter(found.values())) if name != "rows"]
    rows = [[name, of["rows"], *(of[model][key] for model in models)] for name, of in found.items()]
    heading = " | ".join(f"{model}:{spec}" for model in models)
    return table(f"data set | samples:, | {heading}", rows)
