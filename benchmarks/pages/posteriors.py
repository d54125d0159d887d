# SPDX-License-Identifier: BSD-3-Clause
"""Students of Markov chains."""

from __future__ import annotations

from typing import Any

from _pages import Table, block, marked, pick, plus_minus, stored, table

GPED_AUROC = 0.05  # what a student may be behind its chain, by epistemic uncertainty


@block
def gped_share() -> Table:
    """Students by default, which learn the share, beside the chains that have taught them."""
    rows = [
        [
            *(f"{mask} %", name, row["nll"], 1 - row["accuracy"]),
            *pick(row, "entropy_mae ood_auroc_total"),
            marked(row["ood_auroc_epistemic"], ".3f", behind(found, row) <= GPED_AUROC),
            *pick(row, "ndcg_total ndcg_epistemic"),
        ]
        for mask, found in stored("gped_share")["quality"].items()
        for name, row in found.items()
    ]
    return table(
        "mask | model | NLL:.3f | error:.1% | MAE:.4f | AUROC, total:.3f | AUROC, epistemic | "
        "nDCG, total:.3f | nDCG, epistemic:.3f",
        rows,
    )


def behind(found: dict[str, Any], row: dict[str, Any]) -> float:
    """By how much less the epistemic part tells than the chain's."""
    return found["teacher"]["ood_auroc_epistemic"] - row["ood_auroc_epistemic"]


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
