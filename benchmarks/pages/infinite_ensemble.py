# SPDX-License-Identifier: BSD-3-Clause
"""Fidelity of students to an infinite ensemble."""

from __future__ import annotations

from statistics import mean

import tables
from _pages import TASKS, Table, block, marked, pick, stored, table
from fidelity import OF_CLASSES, OF_NUMBERS

# Of fidelity.py: gaps of the NLL on average and at most, CRPS ratio on average, how far a rank to
# the reference may be below the teacher's, and limits of the median ratio to the reference.
FIDELITY_NLL, FIDELITY_WORST_NLL, FIDELITY_CRPS = 0.01, 0.05, 1.005
FIDELITY_RANK, FIDELITY_RATIO = -0.02, (0.9, 1.1)
SMALL_NLL, SMALL_RATIO = 0.015, (0.85, 1.15)  # for at most 3 % of the teacher's parameters
# Those of the file whose like the paper has, by their place in what it has published.
PUBLISHED_AT = {"teacher": 0, "50 small networks": 1, "Hydra+": 2, "latent factor": 3}


def of_students(kind: str) -> dict[str, list[tuple[str, dict[str, float]]]]:
    """By student, the sets of a kind, numbers or classes, and what was found there."""
    sets = {"numbers": OF_NUMBERS, "classes": OF_CLASSES}[kind]
    results = stored("fidelity")["results"]
    students: dict[str, list[tuple[str, dict[str, float]]]] = {}
    for name in sets:
        for student, row in results[name].items():
            students.setdefault(student, []).append((name, row))
    return students


def limits_of(student: str) -> tuple[float, tuple[float, float]]:
    """Targets of the average NLL gap and of median ratios."""
    is_small = student.startswith("latent factor")
    return (SMALL_NLL, SMALL_RATIO) if is_small else (FIDELITY_NLL, FIDELITY_RATIO)


def behind(row: dict[str, float]) -> float:
    """Rank of the student to the reference, less the teacher's."""
    return row["rank_student_to_reference"] - row["rank_teacher_to_reference"]


@block
def fidelity_sets(kind: str) -> Table:
    """Gaps, ranks and ratios of every student and set."""
    rows = []
    for student, found in of_students(kind).items():
        least, most = limits_of(student)[1]
        for name, row in found:
            rank, ratio = row["rank_student_to_reference"], row["ratio_student_to_reference"]
            rows.append(
                [
                    student.removesuffix(f", {kind}"),
                    name,
                    marked(row["nll_gap"], "+.3f", row["nll_gap"] <= FIDELITY_WORST_NLL),
                    row.get("crps_ratio"),
                    row["rank_student_to_teacher"],
                    marked(rank, ".3f", behind(row) >= FIDELITY_RANK),
                    row["rank_teacher_to_reference"],
                    row["ratio_student_to_teacher"],
                    marked(ratio, ".2f", least <= ratio <= most),
                    row["ratio_teacher_to_reference"],
                    row["share_of_parameters"],
                    row["cpu_seconds"],
                ]
            )
    return table(
        "student | data set | NLL gap | CRPS ratio:.3f | rank to teacher:.3f | to reference | "
        "the teacher's:.3f | ratio to teacher:.2f | to reference | the teacher's:.2f | "
        "parameters, student / teacher:.3f | CPU s:.1f",
        rows,
    )


@block
def fidelity_targets() -> Table:
    """Targets of each student, and what was measured."""
    rows = []
    for kind in ("numbers", "classes"):
        for student, found in of_students(kind).items():
            measured = [row for _, row in found]
            nll, (least, most) = limits_of(student)
            gaps = [row["nll_gap"] for row in measured]
            ranks = [behind(row) for row in measured]
            crps = mean(row["crps_ratio"] for row in measured) if kind == "numbers" else None
            within = (
                [least <= row[f"ratio_{whose}_to_reference"] <= most for row in measured]
                for whose in ("student", "teacher")
            )
            rows.append(
                [
                    f"{student.removesuffix(f', {kind}')}, {TASKS[kind]}",
                    marked(mean(gaps), "+.3f", mean(gaps) <= nll),
                    marked(max(gaps), "+.3f", max(gaps) <= FIDELITY_WORST_NLL),
                    crps and marked(crps, ".3f", crps <= FIDELITY_CRPS),
                    marked(min(ranks), "+.3f", min(ranks) >= FIDELITY_RANK),
                    f"{sum(rank > 0 for rank in ranks)} of {len(ranks)}",
                    *(f"{sum(are_within)} of {len(ranks)}" for are_within in within),
                ]
            )
    return table(
        "student | mean NLL gap | worst NLL gap | mean CRPS ratio | "
        "worst rank, minus the teacher's | data sets with a rank above the teacher's | "
        "ratios within limits | the teacher's own",
        rows,
    )


@block
def latent_factor_sets() -> Table:
    """What each model loses to the teacher on the sets of the latent factor model's paper."""
    stored_here = stored("latent_factor")
    rows, gaps = [], {}
    for name, found in stored_here["results"].items():
        published = stored_here["published"][name]
        for model, row in found.items():
            gap = row["nll"] - found["teacher"]["nll"]
            place = PUBLISHED_AT.get(model)
            theirs = None if place is None else published[place] - published[0]
            gaps.setdefault(model, []).append((gap, theirs))
            crps = row["crps"] / found["teacher"]["crps"]
            rows.append([name, model, gap, theirs, crps, *pick(row, "coverage_95 parameters")])
    for model, pairs in gaps.items():
        ours, theirs = ([pair[i] for pair in pairs] for i in (0, 1))
        known = None if None in theirs else mean(theirs)
        rows.append(["mean", model, mean(ours), known, None, None, None])
    return table(
        "data set | model | NLL gap:+.3f | in the paper:+.3f | CRPS ratio:.3f | 95 % cover:.3f | "
        "parameters:,",
        rows,
    )


@block
def tables_scores() -> Table:
    """Scores on the parts of tables that TabM was measured on, beside those published."""
    names = tables.PUBLISHED_NAMES
    rows = []
    for name, found in stored("tables")["results"]["scores"].items():
        for model, row in found.items():
            score = digits(row.get("rmse", row.get("log_loss")))
            costs = pick(row, "cpu_seconds peak_mib parameters")
            rows.append([name, model, score, *costs])
        rows += [
            [name, f"published: {model}", digits(score), None, None, None]
            for model, score in zip(names, tables.PUBLISHED[name], strict=True)
        ]
    return table(
        "data set | model | RMSE, log loss | fit, CPU s:.1f | MiB:.0f | parameters:,", rows
    )


def digits(score: float) -> str:
    """Text of an error in dollars, or of a small number."""
    return f"{score:,.0f}" if score >= 100 else f"{score:.4f}"


@block
def tables_speed() -> Table:
    """Time of a fit of TabM over that of one network."""
    rows = []
    for row in stored("tables")["results"]["speed"]:
        rows.append([row["setting"], row["ours"], row["ratio"]])
    return table("hidden units | model | times the fit of one network:.2f", rows)
