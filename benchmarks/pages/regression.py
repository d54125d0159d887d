# SPDX-License-Identifier: BSD-3-Clause
"""Regression: UCI sets, and peers."""

from __future__ import annotations

from statistics import mean
from typing import Any

import peers
import uci
from _pages import NOT_MEASURED, Table, block, duration, marked, pick, plus_minus, stored, table

# Targets that do not stand in the files.
UCI_WANTED = {"rank_correlation": 0.88, "median_ratio": 0.8, "rmse_ratio": 1.05}
DISTRIBUTION_NLL = 0.06  # what a student that predicts a distribution may be behind, on average
DISTRIBUTION_AUSE = 0.05  # and by how much its AUSE may differ
HEADINGS = {
    "nll": "NLL:.3f",
    "crps": "CRPS:.3f",
    "rmse": "RMSE:.3f",
    "coverage_90": "90 % coverage:.3f",
    "log_loss": "log loss:.3f",
    "accuracy": "accuracy:.3f",
}


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


def scores_of(kind: str) -> tuple[bool, list[tuple[str, str]]]:
    """Whether a kind of sets, numbers or classes, has classes; its scores with their formats."""
    are_classes = {"numbers": False, "classes": True}[kind]
    return are_classes, [
        (key, HEADINGS[key].partition(":")[2]) for key in peers.SCORES[are_classes]
    ]


@block
def peers_scores(kind: str) -> Table | str:
    """All models on all sets: means over splits, with standard errors, and costs."""
    are_classes, scores = scores_of(kind)
    rows: list[list[Any]] = []
    for (name, model), found in peers.by_model(stored("peers")["results"], are_classes).items():
        fit, one, size = (mean(row[key] for row in found) for key in peers.COSTS)
        rows.append(
            [
                *(name, model, len(found)),
                *(plus_minus(*peers.mean_and_error(found, key), spec) for key, spec in scores),
                *(duration(fit), duration(one), size / 1000),
            ]
        )
    columns = " | ".join(HEADINGS[key] for key, _ in scores)
    heading = f"data set | model | splits | {columns} | fit | one sample | kB:,.0f"
    return table(heading, rows) if rows else NOT_MEASURED


@block
def peers_records() -> Table | str:
    """Published figures beside the best that was measured."""
    found = peers.by_model(stored("peers")["results"], are_classes=False)
    rows: list[list[Any]] = []
    for name, record in uci.RECORDS.items():
        measured = {model: splits for (key, model), splits in found.items() if key == name}
        if not measured:
            continue
        rows.append([name])
        for score, published in zip(("rmse", "nll"), record, strict=True):
            means = {m: peers.mean_and_error(splits, score)[0] for m, splits in measured.items()}
            best = min(means, key=means.__getitem__)
            rows[-1] += [published, means[best], best]
    columns = "published:.2f | best here:.3f | of"
    heading = f"data set | RMSE, {columns} | NLL, {columns}"
    return table(heading, rows) if rows else NOT_MEASURED


@block
def peers_contests(kind: str) -> Table | str:
    """What ours win, tie and lose."""
    are_classes, _ = scores_of(kind)
    found = peers.contests(stored("peers")["results"], are_classes)
    if not found:
        return NOT_MEASURED
    names = " | ".join(HEADINGS[score].partition(":")[0] for score in found[0].verdicts)
    return table(f"ours | peer | {names}", ([c.ours, c.peer, *c.counts()] for c in found))
