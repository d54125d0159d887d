# SPDX-License-Identifier: BSD-3-Clause
"""Students of Markov chains, and pruned ones."""

from __future__ import annotations

from math import inf
from typing import Any

import gped
from _pages import Table, block, marked, pick, plus_minus, stored, table

from pages.classification import interval

GPED_AUROC = 0.05  # what a student may be behind its chain, by epistemic uncertainty
GPED_COLUMNS = (
    "mask | model | NLL:.3f | error:.1% | MAE | AUROC, total:.3f | AUROC, epistemic | "
    "nDCG, total:.3f | nDCG, epistemic:.3f"
)
STEPS = {  # network and the chain's steps, by file
    "gped_cnn": ("CNN", "8e-5"),
    "gped_cnn_found": ("CNN", "found"),
    "gped_cnn_paper": ("CNN", "4e-6"),
    "gped_cnn_long": ("CNN", "4e-6"),
    "gped_paper": ("perceptron", "4e-6, H = 100"),
}


@block
def gped_quality() -> Table:
    """Students of a chain's expectations, those with its architecture and the largest ones."""
    sizes = {"gped": "", "gped_largest": ", largest"}
    rows = [
        [f"{mask} %", name + size, *gped_row(mask, name, row, found[mask]["teacher"])]
        for mask in ("0", "29")
        for file, size in sizes.items()
        for found in [stored(file)["quality"]]
        for name, row in found[mask].items()
        if name != "teacher" or not size
    ]
    mae = f"at most {gped.TARGETS['entropy_mae']:g}"
    auroc = f"at most {GPED_AUROC:g} below"
    rows += [["0 %", "target of GPED U_o", *[None] * 2, mae, *[None] * 4]]
    rows += [["both", "target of GPED", *[None] * 4, auroc, *[None] * 2]]
    return table(GPED_COLUMNS, rows)


def gped_row(mask: str, name: str, row: dict[str, Any], chain: dict[str, Any]) -> list[Any]:
    """Numbers of `gped_quality`."""
    mae, auroc = row.get("entropy_mae"), row["ood_auroc_epistemic"]
    highest = gped.TARGETS["entropy_mae"] if (mask, name) == ("0", "GPED U_o") else inf
    lowest = chain["ood_auroc_epistemic"] - GPED_AUROC if name.startswith("GPED") else -inf
    return [
        row["nll"],
        1 - row["accuracy"],
        None if mae is None else marked(mae, ".4f", mae <= highest),
        row["ood_auroc_total"],
        marked(auroc, ".3f", auroc >= lowest),
        *pick(row, "ndcg_total ndcg_epistemic"),
    ]


@block
def gped_steps() -> Table:
    """Chains of some step sizes and their students, for two networks."""
    keys = "ood_auroc_epistemic entropy_mae iterations student_steps cpu_seconds"
    rows = []
    for file, setting in STEPS.items():
        for name, row in stored(file)["quality"]["0"].items():
            *shown, seconds = pick(row, keys)
            hours = seconds and seconds / row["iterations"] * gped.T_OF_THE_PAPER / 3600
            rows.append([*setting, name, row["nll"], 1 - row["accuracy"], *shown, seconds, hours])
    return table(
        "network | steps | model | NLL:.3f | error:.1% | AUROC, epistemic:.3f | MAE:.4f | "
        "iterations:, | student's steps:, | fit, CPU s:.0f | of a million, hours:.1f",
        rows,
    )


@block
def gped_share() -> Table:
    """Students by default, which learn the share, beside the chains that have taught them."""
    rows = [
        [f"{mask} %", name, *gped_row(mask, name, row, found["teacher"])]
        for mask, found in stored("gped_share")["quality"].items()
        for name, row in found.items()
    ]
    return table(GPED_COLUMNS, rows)


def with_errors(row: dict[str, Any], **specs: str) -> list[str | None]:
    """Texts of means over seeds and of their standard errors."""
    return [plus_minus(row.get(key), row["errors"].get(key), spec) for key, spec in specs.items()]


@block
def gped_digits() -> Table:
    """Small students of chains with step sizes of their own, on digits."""
    rows = []
    for name, row in stored("gped_small")["small"]["digits"].items():
        nll, auroc, *others = with_errors(
            row, nll=".3f", ood_auroc_epistemic=".3f", rank=".3f", entropy_mae=".4f"
        )
        chains_nll, chains_auroc, seconds = pick(row, "chains_nll chains_auroc cpu_seconds")
        error = 1 - row["accuracy"]
        rows.append([name, nll, chains_nll, error, auroc, chains_auroc, *others, seconds])
    return table(
        "model | NLL | the chains':.3f | error:.1% | AUROC, epistemic | the chains':.3f | rank | "
        "MAE | fit, CPU s:.1f",
        rows,
    )


@block
def gped_numbers() -> Table:
    """Ranks of the epistemic variance of numbers, for two kinds of chains."""
    rows = (
        [*name.split(", "), *with_errors(row, rank=".2f", rmse=".3f")]
        for name, row in stored("gped_small")["small"]["numbers"].items()
    )
    return table("data set | chains | rank | RMSE, in standard deviations", rows)


@block
def pareto_students() -> Table:
    """The widest student of a search over widths, and pruned ones beside the search's front."""
    found = stored("pareto")["results"]
    search, *pruned = found["students"].values()
    scores = ("nll", "entropy_mae")
    verdicts = zip(
        *(found["verdicts"][score]["interpolated"]["each"] for score in scores), strict=True
    )
    widest = max(search, key=lambda row: row["flops"])
    rows = [pareto_row("searched", widest, [None, None])]
    for row, pair in zip((row for group in pruned for row in group), verdicts, strict=True):
        start = "-".join(map(str, row["params"]["module__hidden_units"]))
        differences = [
            f"{marked(one['difference'], '+z.3f', one['verdict'] != 'loses')} ({interval(one)})"
            for one in pair
        ]
        rows.append(pareto_row(f"{start}, {row['params']['group_lasso']:g}", row, differences))
    return table(
        "student | from, strength | kFLOP:.0f | parameters:, | NLL:.3f | MAE:.3f | "
        "NLL minus the search's | MAE minus the search's | 1 sample, µs:.0f | "
        "1,000 samples, ms:.1f",
        rows,
    )


def pareto_row(start: str, row: dict[str, Any], differences: list[Any]) -> list[Any]:
    """Numbers of `pareto_students`."""
    latency = row["latency_ms"]
    return [
        "-".join(map(str, row["widths"])),
        start,
        row["flops"] / 1e3,
        *pick(row, "parameters nll entropy_mae"),
        *differences,
        1e3 * latency["1"],
        latency["1000"],
    ]


@block
def pareto_counts() -> Table:
    """How many of the pruned students are ahead of the search."""
    names = {"nll": "NLL", "entropy_mae": "MAE of the entropy"}
    rows = (
        [names[score], against, *pick(found["counts"], "dominates matches loses")]
        for score, kinds in stored("pareto")["results"]["verdicts"].items()
        for against, found in kinds.items()
    )
    return table("score | search's front | dominate:d | match:d | lose:d", rows)
