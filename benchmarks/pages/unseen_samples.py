# SPDX-License-Identifier: BSD-3-Clause
"""Samples unlike those of training."""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from statistics import mean
from typing import Any

import other_ways
import unseen
from _pages import AUROC, NOT_MEASURED, Table, block, duration, marked, stored, table

# Of unseen.py: coverage of 90 % intervals, AUROC on average over sets; of far samples the AUROC and
# the mean largest probability; of students AUROC less the teacher's, median ratio, NLL gap.
UNSEEN_COVERAGE, UNSEEN_AUROC, FAR_AUROC, FAR_PROBABILITY = 0.85, 0.75, 0.98, 0.9
UNSEEN_STUDENT_AUROC, UNSEEN_STUDENT_RATIO, UNSEEN_STUDENT_NLL = -0.02, (0.8, 1.25), 0.05

# Of drift.py: streams without drift in which an alarm is raised.
FALSE_ALARMS = 0.012


def found_unseen(protocol: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Rows of a protocol by set and model."""
    return unseen.by_model(stored("unseen")["results"], protocol)


def on_cases_of(others: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the rows whose case others have too."""
    cases = {row["case"] for row in others}
    return [row for row in rows if row["case"] in cases]


def beats(found: dict[tuple[str, str], list[dict[str, Any]]], name: str, score: str) -> bool | None:
    """Whether the teacher scores at least the Gaussian process, on the columns that both have."""
    ours, theirs = found.get((name, "teacher"), []), found.get((name, "gp"), [])
    means = [
        unseen.average(on_cases_of(others, rows), score)
        for rows, others in ((ours, theirs), (theirs, ours))
    ]
    return None if None in means else means[0] >= means[1]


def judged(value: float | None, spec: str, low: float | None, high: float | None) -> str | None:
    """Text of a value, in bold where it is not within limits; None where there is no value."""
    if value is None:
        return None
    is_within = (low is None or value >= low) and (high is None or value <= high)
    return marked(value, spec, is_within)


@block
def unseen_folds(protocol: str) -> Table | str:
    """Gaps or tails: means over the features of a set."""
    found, rows = found_unseen(protocol), []
    wanted_nll = {"gap": unseen.GAP_NLL, "tail": unseen.TAIL_NLL}[protocol]
    for (name, model), folds in found.items():
        of = partial(unseen.average, folds)
        most, coverage, is_above = None, None, None
        if model == "teacher":
            most, coverage = wanted_nll.get(name), UNSEEN_COVERAGE
            is_above = beats(found, name, AUROC) if protocol == "gap" else None
        auroc = of(AUROC)
        rows.append(
            [
                *(name, model, len(folds), of("held_out_nll")),
                judged(of("unseen_nll"), ".3f", None, most),
                most,
                *(of("unseen_rmse"), of("held_out_coverage")),
                judged(of("unseen_coverage"), ".2f", coverage, None),
                None if auroc is None else marked(auroc, ".3f", is_above),
                *(of("auroc_total"), of("selective_risk"), of("epistemic_ratio")),
            ]
        )
    return table(
        "data set | model | folds | NLL, held-out:.3f | unseen | target, at most:.2f | RMSE:.3g | "
        "90 % coverage, held-out:.2f | unseen | AUROC, epistemic | total:.3f | "
        "selective risk:.3g | growth:.3g",
        rows,
    )


@block
def unseen_targets() -> Table:
    """Targets of the teacher on gaps and tails, and of far samples."""
    rows: list[list[Any]] = []
    for protocol, wanted_nll in (("gap", unseen.GAP_NLL), ("tail", unseen.TAIL_NLL)):
        found = found_unseen(protocol)
        means = {
            (name, score): unseen.average(folds, score)
            for (name, model), folds in found.items()
            for score in (AUROC, "unseen_nll", "unseen_coverage")
            if model == "teacher"
        }
        names = [name for name in unseen.OF_UCI if means.get((name, AUROC)) is not None]
        if protocol == "gap" and names:
            auroc = mean(means[name, AUROC] for name in names)
            text = marked(auroc, ".3f", auroc >= UNSEEN_AUROC)
            rows.append(["gap, mean AUROC of epistemic", text, f"at least {UNSEEN_AUROC}"])
        good = [beats(found, name, AUROC) for name in names if name != "wine"]
        good = [is_above for is_above in good if is_above is not None]
        if protocol == "gap" and good:
            what = "gap, sets but wine whose AUROC is at least the Gaussian process's"
            rows.append([what, of_all(good, but=1), "all but one"])
        good = [means[n, "unseen_nll"] <= wanted_nll[n] for n in names if n in wanted_nll]
        what = f"{protocol}, sets whose NLL is at most the best published"
        rows.append([what, of_all(good), "all"])
        good = [means[n, "unseen_coverage"] >= UNSEEN_COVERAGE for n in names]
        what = f"{protocol}, sets whose 90 % intervals cover at least {UNSEEN_COVERAGE:.0%}"
        rows.append([what, of_all(good), "all"])
    far = [row for row in stored("unseen")["results"] if is_far(row) and row["model"] == "teacher"]
    good = [row.get(AUROC, 0) >= FAR_AUROC for row in far]
    rows.append([f"far samples, cases of an AUROC of at least {FAR_AUROC}", of_all(good), "all"])
    tops = [row["unseen_top_probability"] for row in far if "unseen_top_probability" in row]
    good = [top < FAR_PROBABILITY for top in tops]
    what = f"far samples, cases of a mean largest probability below {FAR_PROBABILITY}"
    rows.append([what, of_all(good), "all"])
    return table("of the teacher | measured | target", rows)


def of_all(good: list[bool], but: int = 0) -> str:
    """How many are good, in bold unless all are, or all but so many."""
    text = f"{sum(good)} of {len(good)}"
    return text if sum(good) >= len(good) - but else f"**{text}**"


def is_far(row: dict[str, Any]) -> bool:
    """Whether samples are moved so far that no model can know them."""
    return row["protocol"] == "moved" and float(row["case"].split()[-1]) >= 100


@block
def unseen_classes() -> Table | str:
    """A class or a category left out, and images: means over the cases of a set."""
    rows: list[list[Any]] = []
    for protocol in ("class", "category", "images"):
        for (name, model), folds in found_unseen(protocol).items():
            for case in dict.fromkeys(row["case"] for row in folds):
                mine = [row for row in folds if protocol != "images" or row["case"] == case]
                of = partial(unseen.average, mine)
                what = case if protocol == "images" else f"a {protocol}"
                scores = f"held_out_log_loss unseen_log_loss unseen_accuracy {AUROC} auroc_total"
                scores += " selective_risk epistemic_ratio unseen_top_probability"
                rows.append([what, name, model, len(mine), *map(of, scores.split())])
                if protocol != "images":
                    break
    return rows_or_none(
        "unseen | data set | model | folds | log loss, held-out:.3f | unseen:.3f | accuracy:.3f | "
        "AUROC, epistemic:.3f | total:.3f | selective risk:.3f | growth:.3g | "
        "largest probability:.2f",
        rows,
    )


@block
def unseen_moved(which: str) -> Table | str:
    """Samples moved in one feature, or in all: AUROC by distance."""
    rows: list[list[Any]] = []
    for (name, model), cases in found_unseen("moved").items():
        if not any(AUROC in row for row in cases):
            continue  # it has no epistemic part
        by = {row["case"]: row for row in cases}
        row: list[Any] = [name, model]
        for distance in unseen.DISTANCES:
            auroc = by.get(f"{which} by {distance:g}", {}).get(AUROC)
            row.append(judged(auroc, ".3f", FAR_AUROC if distance >= 100 else None, None))
        far = by.get(f"{which} by {unseen.DISTANCES[-1]:g}", {})
        row.append(judged(far.get("unseen_top_probability"), ".3f", None, FAR_PROBABILITY))
        rows.append(row)
    distances = " | ".join(f"{distance:g}" for distance in unseen.DISTANCES)
    return rows_or_none(f"data set | model | {distances} | largest probability", rows)


@block
def unseen_others() -> Table | str:
    """Features shuffled, and samples of another table."""
    found = {protocol: found_unseen(protocol) for protocol in ("shuffled", "table")}
    rows: list[list[Any]] = []
    for key in found["shuffled"]:
        values = (
            unseen.average(found[protocol].get(key, []), score)
            for protocol in found
            for score in (AUROC, "auroc_total", "epistemic_ratio")
        )
        rows.append([*key, *values])
    columns = "AUROC, epistemic:.3f | total:.3f | growth:.3g"
    return rows_or_none(
        f"data set | model | shuffled, {columns} | another data set, {columns}", rows
    )


@block
def unseen_students() -> Table | str:
    """Students beside their teachers, on the same folds."""
    rows: list[list[Any]] = []
    for protocol in unseen.PROTOCOLS:
        found = found_unseen(protocol)
        for (name, model), folds in found.items():
            if model not in unseen.STUDENTS:
                continue
            theirs = on_cases_of(folds, found.get((name, unseen.TEACHERS[model]), []))
            ours, its = (unseen.average(some, AUROC) for some in (folds, theirs))
            values = {key: unseen.average(folds, key) for key in unseen.FIDELITY}
            rows.append(
                [
                    *(protocol, name, model, len(folds)),
                    judged(ours, ".3f", None if its is None else its + UNSEEN_STUDENT_AUROC, None),
                    its,
                    *(values["held_out_rank"], values["unseen_rank"], values["held_out_ratio"]),
                    judged(values["unseen_ratio"], ".2f", *UNSEEN_STUDENT_RATIO),
                    values["held_out_gap"],
                    judged(values["unseen_gap"], "+.3f", None, UNSEEN_STUDENT_NLL),
                ]
            )
    return rows_or_none(
        "unseen | data set | student | cases | AUROC, epistemic | the teacher's:.3f | "
        "rank, held-out:.2f | unseen:.2f | ratio, held-out:.2f | unseen | NLL gap, held-out:+.3f | "
        "unseen",
        rows,
    )


@block
def unseen_other_ways(kind: str) -> Table:
    """Other ways by which members may differ where there are no data: means over folds."""
    return table(
        "ensemble | folds | NLL, held-out:.3f | 90 % coverage:.2f | NLL, unseen:.3f | "
        "90 % coverage:.2f | AUROC, epistemic:.3f | fit, s:.1f",
        other_ways.means(stored("other_ways")["results"], kind),
    )


@block
def unseen_usual() -> Table | str:
    """Held-out samples of a random split, and the time of a fit."""
    scores = "nll log_loss rmse accuracy coverage"
    rows = [
        [
            *key,
            *(unseen.average(folds, f"held_out_{score}") for score in scores.split()),
            duration(unseen.average(folds, "fit_seconds") or 0),
        ]
        for key, folds in found_unseen("usual").items()
    ]
    columns = "NLL:.3f | log loss:.3f | RMSE:.3g | accuracy:.3f | 90 % coverage:.3f"
    return rows_or_none(f"data set | model | {columns} | fit", rows)


def rows_or_none(columns: str, rows: list[list[Any]]) -> Table | str:
    """A table, or a line where the file has nothing for it."""
    return table(columns, rows) if rows else NOT_MEASURED


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
