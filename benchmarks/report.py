# SPDX-License-Identifier: BSD-3-Clause
"""Write the tables of README.md and of doc/measured/ from the files in results/.

The pages hold their own prose. What stands between two comments,

    .. measured: NAME ARGUMENT            <!-- measured: NAME ARGUMENT -->

    .. end                                <!-- end -->

is what the function NAME of this file returns, and is replaced. So no measured number is typed;
tests/test_measured.py fails where a page and its files disagree. A number in bold misses what was
wanted.

    python benchmarks/report.py           # or `make measured`

A file whose "defaults" are not those of today is marked as older (_defaults.py). What README and
the pages about students rest on, cheapest first, with the minutes that it takes two idle cores
(each file has the "minutes" that its own run took):

    python benchmarks/predict.py                                            2
    python benchmarks/serving.py                                            3
    python benchmarks/uci.py --student distribution --splits 5 --jobs 2
        --output benchmarks/results/uci_distribution.json                  10
    python benchmarks/uci.py --jobs 2                                      20
    python benchmarks/amounts.py                                           30
    python benchmarks/unseen.py --max-rows 1500 --slow-columns 1 --resume  35
    python benchmarks/fidelity.py                                          75

All but the first two write their file after each set or fit, and unseen.py goes on where it was
stopped. The other commands are in COMMANDS.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable
from functools import partial
from math import inf
from pathlib import Path
from statistics import mean
from typing import Any

import gped
import peers
import tables
import uci
import unseen
from _defaults import changed
from _pages import (
    FUNCTIONS,
    READ,
    Table,
    block,
    comparisons,
    duration,
    filled,
    limits,
    marked,
    pick,
    plus_minus,
    read,
    spread,
    stored,
    table,
)
from fidelity import OF_CLASSES, OF_NUMBERS

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "doc" / "which_student.rst",
    *sorted((ROOT / "doc" / "measured").glob("*.rst")),
]

CNN = "gped.py --parts quality --network CNN --masks 0 --iterations 3000 --methods GPED"

# By results file, what printed it.
COMMANDS = {
    "amounts": ["amounts.py"],
    "bdistil": ["bdistil.py --parts toys tables", "bdistil.py --parts series"],
    "bdistil_average": ["bdistil.py --parts average --seeds 3"],
    "bdistil_mnist": ["bdistil.py --parts mnist --seeds 2"],
    "conformal": ["conformal.py"],
    "engine": ["engine.py"],
    "fidelity": ["fidelity.py"],
    "forest": ["forest.py"],
    "gped": [
        "gped.py --iterations 20000",
        'gped.py --iterations 20000 --param "module__hidden_units=(1000, 1000)" lr=1e-3',
    ],
    "gped_cnn": [f"{CNN} --output benchmarks/results/gped_cnn.json"],
    "gped_cnn_found": [f"{CNN} --chain found --output benchmarks/results/gped_cnn_found.json"],
    "gped_cnn_long": [
        f"{CNN.replace('3000', '10000')} --chain paper --param teacher__inference__thinning=1 "
        "--output benchmarks/results/gped_cnn_long.json"
    ],
    "gped_cnn_paper": [
        f"{CNN} --chain paper --param teacher__inference__thinning=1 "
        "--output benchmarks/results/gped_cnn_paper.json"
    ],
    "gped_paper": [
        "gped.py --parts quality --masks 0 --methods 'GPED U_s' --iterations 100000 --chain paper "
        "--output benchmarks/results/gped_paper.json"
    ],
    "gped_share": [
        "gped.py --parts quality --methods GPED --iterations 20000 --output "
        "benchmarks/results/gped_share.json"
    ],
    "gped_small": ["gped.py --parts small --output benchmarks/results/gped_small.json"],
    "hydra": ["hydra.py --ablations"],
    "latent_factor": ["latent_factor.py"],
    "logits": ["logits.py"],
    "many_classes": ["many_classes.py"],
    "mnist": ["mnist.py --threads 1"],
    "mnist_masked": ['mnist.py --threads 1 --masks 29 --methods "deep ensemble"'],
    "parallel": ["parallel.py"],
    "pareto": ["pareto.py"],
    "peers": ["peers.py --resume"],
    "persistence": ["persistence.py"],
    "predict": ["predict.py"],
    "scale": ["scale.py --million"],
    "serving": ["serving.py"],
    "sgld": ["sgld.py"],
    "shift": ["shift.py"],
    "students": ["students.py"],
    "tables": ["tables.py"],
    "translation": ["translation.py"],
    "uci": ["uci.py --jobs 2"],
    "uci_distribution": [
        "uci.py --student distribution --splits 5 --jobs 2 "
        "--output benchmarks/results/uci_distribution.json"
    ],
    "unseen": ["unseen.py --max-rows 1500 --slow-columns 1 --resume"],
}

# What was wanted and does not stand in the files.
UCI_WANTED = {"rank_correlation": 0.88, "median_ratio": 0.8, "rmse_ratio": 1.05}
DEEP_ENSEMBLES_NLL = 0.05  # what a teacher may be behind those published
DISTRIBUTION_NLL = 0.06  # what a student that predicts a distribution may be behind, on average
DISTRIBUTION_AUSE = 0.05  # and by how much its AUSE may differ
# Of fidelity.py: gaps of the NLL on average and at most, CRPS ratio on average, how far a rank to
# the reference may be below the teacher's, and limits of the median ratio to the reference.
FIDELITY_NLL, FIDELITY_WORST_NLL, FIDELITY_CRPS = 0.01, 0.05, 1.005
FIDELITY_RANK, FIDELITY_RATIO = -0.02, (0.9, 1.1)
SMALL_NLL, SMALL_RATIO = 0.015, (0.85, 1.15)  # for at most 3 % of the teacher's parameters
# Of unseen.py: coverage of 90 % intervals, AUROC on average over sets; of far samples the AUROC and
# the mean largest probability; of students AUROC less the teacher's, median ratio, NLL gap.
UNSEEN_COVERAGE, UNSEEN_AUROC, FAR_AUROC, FAR_PROBABILITY = 0.85, 0.75, 0.98, 0.9
UNSEEN_STUDENT_AUROC, UNSEEN_STUDENT_RATIO, UNSEEN_STUDENT_NLL = -0.02, (0.8, 1.25), 0.05
GPED_AUROC = 0.05  # what a student may be behind its chain, by epistemic uncertainty


@block
def source(name: str) -> str:
    """What printed a results file, when, on what machine and with what versions."""
    found = stored(name)
    machine, system = found["machine"], found["machine"]["system"].partition("-")[0]
    commands = " and ".join(f"``python benchmarks/{command}``" for command in COMMANDS[name])
    versions = ", ".join(f"{package} {version}" for package, version in found["versions"].items())
    text = "**Measured with older defaults.** " if changed(found) else ""
    text += (
        f"Printed by {commands} on {found['date'][:10]}, stored in "
        f"``benchmarks/results/{name}.json``; {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_gib']:g} GiB, {system}; {versions}."
    )
    return textwrap.fill(text, 100, break_on_hyphens=False)


@block
def older(of: str = "") -> str:
    """Which results files, all or those behind a block, were measured with older defaults."""
    if of:
        READ.clear()
        FUNCTIONS[of]()
    found = [name for name in sorted(READ if of else COMMANDS) if changed(read(name))]
    if not found:
        return "All were measured with today's defaults."
    files = ", ".join(f"``{name}``" for name in found)
    text = f"Measured with older defaults, and to be run again: {files}."
    return textwrap.fill(text, 100, break_on_hyphens=False)


# Regression ---------------------------------------------------------------------------------------


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
        "set | RMSE, teacher:.3f | RMSE, student:.3f | RMSE, Deep Ensembles:.2f | "
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
        "set | NLL of a Gaussian, teacher:.3f | student:.3f | AUSE, teacher:.3f | student:.3f | "
        "90 % coverage, teacher:.3f | student:.3f",
        rows,
    )


@block
def uci_fidelity() -> Table:
    """How close each student is to its teacher, and what was wanted."""
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
    rows.append(["wanted", *wanted, None, None, None])
    return table(
        "set | rank of epistemic | median ratio | RMSE ratio | NLL gap:+.3f | AUSE gap:+.3f | "
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
    rows.append(["wanted", *[None] * 4, *limits_of_gaps, *[None] * 4])
    return table(
        "set | RMSE, teacher:.3f | student:.3f | NLL, teacher:.3f | student:.3f | NLL gap:+.3f | "
        "AUSE gap:+.3f | 90 % coverage:.3f | rank of epistemic:.3f | median ratio:.2f | "
        "parameters, student / teacher:.3f",
        rows,
    )


# Peers --------------------------------------------------------------------------------------------

HEADINGS = {
    "nll": "NLL:.3f",
    "crps": "CRPS:.3f",
    "rmse": "RMSE:.3f",
    "coverage_90": "90 % coverage:.3f",
    "log_loss": "log loss:.3f",
    "accuracy": "accuracy:.3f",
}
NOT_MEASURED = "None of these is in the file yet."
AUROC = "auroc_epistemic"


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
    heading = f"set | model | splits | {columns} | fit | one row | kB:,.0f"
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
    heading = f"set | RMSE, {columns} | NLL, {columns}"
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


# Samples unlike those of training -----------------------------------------------------------------


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
        "set | model | folds | NLL, held-out:.3f | unseen | wanted, at most:.2f | RMSE:.3g | "
        "90 % coverage, held-out:.2f | unseen | AUROC, epistemic | total:.3f | "
        "selective risk:.3g | growth:.3g",
        rows,
    )


@block
def unseen_targets() -> Table:
    """What was wanted of the teacher on gaps and tails, and of far samples."""
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
    return table("of the teacher | measured | wanted", rows)


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
        "unseen | set | model | folds | log loss, held-out:.3f | unseen:.3f | accuracy:.3f | "
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
    return rows_or_none(f"set | model | {distances} | largest probability", rows)


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
    return rows_or_none(f"set | model | shuffled, {columns} | another table, {columns}", rows)


@block
def unseen_students() -> Table | str:
    """Students beside their teacher, on the same folds."""
    rows: list[list[Any]] = []
    for protocol in unseen.PROTOCOLS:
        found = found_unseen(protocol)
        for (name, model), folds in found.items():
            if model not in unseen.STUDENTS:
                continue
            theirs = on_cases_of(folds, found.get((name, "teacher"), []))
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
        "unseen | set | student | cases | AUROC, epistemic | the teacher's:.3f | "
        "rank, held-out:.2f | unseen:.2f | ratio, held-out:.2f | unseen | NLL gap, held-out:+.3f | "
        "unseen",
        rows,
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
    return rows_or_none(f"set | model | {columns} | fit", rows)


def rows_or_none(columns: str, rows: list[list[Any]]) -> Table | str:
    """A table, or a line where the file has nothing for it."""
    return table(columns, rows) if rows else NOT_MEASURED


# Fidelity to the infinite ensemble ----------------------------------------------------------------


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
    """What is wanted of the average NLL gap and of median ratios."""
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
                    student,
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
        "student | set | NLL gap | CRPS ratio:.3f | rank to teacher:.3f | to reference | "
        "the teacher's:.3f | ratio to teacher:.2f | to reference | the teacher's:.2f | "
        "parameters, student / teacher:.3f | CPU s:.1f",
        rows,
    )


@block
def fidelity_targets() -> Table:
    """What was wanted of each student, and what was measured."""
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
                    student if kind in student else f"{student}, {kind}",
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
        "worst rank, less the teacher's | sets with a rank above the teacher's | "
        "ratios within limits | the teacher's own",
        rows,
    )


# Those of the file whose like the paper has, by their place in what it has published.
PUBLISHED_AT = {"teacher": 0, "50 small networks": 1, "Hydra+": 2, "latent factor": 3}


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
        "set | model | NLL gap:+.3f | in the paper:+.3f | CRPS ratio:.3f | 95 % cover:.3f | "
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
            score = row.get("rmse", row.get("log_loss"))
            rows.append([name, model, f"{score:,.4g}", row["cpu_seconds"], row["parameters"]])
        rows += [
            [name, f"published: {model}", f"{score:,.4g}", None, None]
            for model, score in zip(names, tables.PUBLISHED[name], strict=True)
        ]
    return table("set | model | RMSE, log loss | fit, CPU s:.0f | parameters:,", rows)


@block
def tables_speed() -> Table:
    """Time of a fit of TabM over that of one network."""
    rows = []
    for row in stored("tables")["results"]["speed"]:
        rows.append([row["setting"], row["ours"], row["ratio"]])
    return table("hidden units | model | times the fit of one network:.2f", rows)


# Classification -----------------------------------------------------------------------------------


@block
def hydra_sets() -> Table:
    """Hydra+ and its rivals on four sets."""
    rows = (
        [
            name,
            model,
            *pick(full, "nll ece test.rank_correlation test.median_ratio"),
            *pick(some, "left_out.median_ratio"),
            *pick(full, "test.tv_epistemic"),
            *pick(some, "left_out.tv_epistemic ood_auroc"),
            *pick(full, "parameters fit_seconds"),
        ]
        for name, found in stored("hydra")["sets"].items()
        for model, full in found["all"].items()
        for some in [found["some_left_out"][model]]
    )
    return table(
        "set | model | NLL:.3f | ECE:.3f | rank of epistemic:.3f | median ratio, test:.2f | "
        "left out:.2f | TV, test:.3f | left out:.3f | AUROC:.3f | parameters:, | fit, s:.1f",
        rows,
    )


@block
def hydra_targets() -> Table:
    """What Hydra+ should reach, by set."""
    sets = stored("hydra")["sets"]
    by_target = zip(*(found["targets"] for found in sets.values()), strict=True)
    rows = (
        [
            first["target"],
            None if "below" in first["target"] else limits(first),
            *(marked(row["value"], ".3f", row["reached"]) for row in (first, *others)),
        ]
        for first, *others in by_target
    )
    return table(" | ".join(["target", "wanted", *sets]), rows)


@block
def hydra_ablations() -> Table:
    """Hydra+ with one part changed."""
    paths = (
        "change nll_gap ece test.rank_correlation test.median_ratio test.tv_epistemic "
        "left_out.median_ratio ood_auroc parameters fit_seconds"
    )
    return table(
        "model | NLL gap:.3f | ECE:.3f | rank of epistemic:.3f | median ratio:.2f | TV:.3f | "
        "ratio, left out:.2f | AUROC:.3f | parameters:, | fit, s:.1f",
        (pick(row, paths) for row in stored("hydra")["ablations"]),
    )


@block
def hydra_toys() -> Table:
    """The toy problems of the paper."""
    paths = (
        "problem model heads nll epistemic_around rank_correlation median_ratio parameters "
        "papers_parameters fit_seconds"
    )
    return table(
        "problem | model | heads:d | NLL:.3f | mean epistemic:.3f | rank:.3f | median ratio:.2f | "
        "parameters:, | in the paper:, | fit, s:.1f",
        (pick(row, paths) for row in stored("hydra")["toys"]),
    )


@block
def forest_scores() -> Table:
    """Forests and their students."""
    rows = []
    for name, found in stored("forest")["results"].items():
        ranks = {"student": found["fidelity"]["rank_correlation"]}
        for model, scores in found["scores"].items():
            values = pick(scores, "accuracy nll ece parameters fit_seconds")
            rows.append([name, model, *values, ranks.get(model)])
    return table(
        "set | model | accuracy:.4f | NLL:.3f | ECE:.3f | parameters:, | fit, s:.0f | "
        "rank of epistemic:.2f",
        rows,
    )


@block
def forest_times() -> Table:
    """How fast a forest and its student predict."""
    results = stored("forest")["results"].values()
    return comparisons([row for found in results for row in found["times"]])


@block
def conformal_coverage(kind: str) -> Table:
    """Coverage of each interval on test rows: of "all", or of the third that is least "sure"."""
    key = {"all": "coverage", "unsure": "coverage_of_unsure"}[kind]
    return by_scale(key, ".3f")


@block
def conformal_width() -> Table:
    """Mean width of each interval, in standard deviations of y, and what a fit costs."""
    return by_scale("width", ".2f")


def by_scale(key: str, spec: str) -> Table:
    """A score of the student's own intervals and of conformal ones, a row for each set."""
    found = stored("conformal")["results"]
    scales = ("own", "constant", "total", "epistemic")
    rows = [
        [name, *(row[scale][key] for scale in scales), row["calibration_rows"], row["fit_seconds"]]
        for name, row in found.items()
    ]
    means = (mean(column) for column in list(zip(*rows, strict=True))[1:5])
    rows.append(["mean", *means, None, None])
    return table(
        f"set | own:{spec} | conformal, constant:{spec} | by the total part:{spec} | "
        f"by the epistemic part:{spec} | calibration rows:.0f | fit, CPU s:.0f",
        rows,
    )


@block
def shift_uncertainties() -> Table:
    """Teacher and Hydra+ on shifted rows, and how far all students' uncertainties are off."""
    shifts: dict[tuple[str, str], dict[str, dict]] = {}
    for row in stored("shift")["results"]:
        shift = " ".join(str(part) for part in (row["shift"], row["degree"]) if part is not None)
        shifts.setdefault((row["set"], shift), {})[row["model"]] = row
    rows = (
        [
            *place,
            *(found[model][key] for key in ("error", "ece") for model in ("teacher", "Hydra+")),
            *pick(found["Hydra+"], "tv_total tv_aleatoric tv_epistemic"),
            *(found[model]["tv_epistemic"] for model in ("Hydra", "Dirichlet", "logit-normal")),
        ]
        for place, found in shifts.items()
    )
    return table(
        "set | shift | error, teacher:.3f | Hydra+:.3f | ECE, teacher:.3f | Hydra+:.3f | "
        "TV of Hydra+, total:.3f | aleatoric:.3f | epistemic:.3f | "
        "TV of epistemic, Hydra:.3f | Dirichlet:.3f | logit-normal:.3f",
        rows,
    )


# Distribution distillation ------------------------------------------------------------------------


@block
def students() -> Table:
    """All students of one teacher."""
    paths = (
        "nll ece test.tv_total test.tv_aleatoric test.tv_epistemic test.rank_correlation "
        "left_out.tv_total left_out.tv_aleatoric left_out.tv_epistemic ood_auroc parameters"
    )
    rows = (
        [name, student, *pick(row, paths)]
        for name, found in stored("students")["results"].items()
        for student, row in found.items()
    )
    return table(
        "set | student | NLL:.3f | ECE:.3f | TV on test rows, total:.3f | aleatoric:.3f | "
        "epistemic:.3f | rank of epistemic:.3f | TV on rows left out, total:.3f | aleatoric:.3f | "
        "epistemic:.3f | AUROC:.3f | parameters:,",
        rows,
    )


@block
def logits_cifar() -> Table:
    """SVHN told from CIFAR-10 by students of stored logits."""
    found = stored("logits")["results"]["cifar10"]
    wanted = {row["target"].rpartition(", ")[2]: row for row in found["targets"]}
    rows = []
    for name, model in found["models"].items():
        row: list[Any] = [name, model["auroc"], None, None, None]
        if name in wanted:
            gap = marked(model["difference"], "+.3f", wanted[name]["reached"])
            row[2:] = [gap, interval(model), limits(wanted[name])]
        rows.append(row)
    return table("model | AUROC:.3f | less the ensemble's | 95 % interval | wanted", rows)


def interval(found: dict[str, Any]) -> str:
    """Ends of a confidence interval."""
    return "{:+z.3f} to {:+z.3f}".format(*found["interval"])


@block
def logits_proxies() -> Table:
    """Rank correlation of the uncertainties of an ensemble and of a Dirichlet in its place."""
    found = stored("logits")["results"]["imagenet"]
    names = {
        "with the one": "Eq. 17, with the one added",
        "without the one": "without it, as predictions are read",
        "released": "as released by the authors",
        "by mutual information": "by mutual information, with the one",
    }
    measures = "total mutual_information reverse_mutual_information pairwise_kl"
    rows = [[names[name], *pick(row, measures)] for name, row in found["proxies"].items()]
    rows[0][1:] = [marked(row["value"], ".3f", row["reached"]) for row in found["targets"]]
    rows.append(["wanted of Eq. 17", *(limits(row) for row in found["targets"])])
    return table(
        "proxy | total:.3f | mutual information:.3f | reverse mutual information:.3f | "
        "pairwise divergence:.3f",
        rows,
    )


@block
def logits_models() -> Table:
    """Students of one ImageNet network's logits."""
    models = stored("logits")["results"]["imagenet"]["models"]
    paths = "log_loss accuracy rank_total rank_mutual_information"
    return table(
        "model | log loss:.3f | accuracy:.3f | rank of total:.3f | rank of mutual information:.3f",
        ([name, *pick(row, paths)] for name, row in models.items()),
    )


# Boosters -----------------------------------------------------------------------------------------


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
        "set | teacher:.4f | booster, round 1:.4f | 2:.4f | 4:.4f | 7:.4f | average of 1:.4f | "
        "2:.4f | 4:.4f | 7:.4f | oracle of 7:.4f",
        rows,
    )


Runs = list[dict[str, Any]]


def averages_of(file: str) -> dict[str, Any]:
    """What a part of bdistil.py has found that compares boosters with plain averages."""
    (found,) = stored(file)["results"].values()
    return found


@block
def bdistil_average(file: str) -> Table:
    """A booster beside plain averages of as many networks, on held-out rows; means over seeds."""
    whose = ("booster", "average", "oracle")
    rows = []
    for name, runs in by_name(averages_of(file)["runs"]).items():
        scores = (of_runs(runs, which, "score", n) for which in whose for n in (2, 7))
        distances = (of_runs(runs, which, "distance", 7) for which in whose)
        rows.append([name, mean(run["teacher"] for run in runs), *scores, *distances])
    return table(
        "set | teacher:.4f | booster, round 2:.4f | 7:.4f | average of 2:.4f | 7:.4f | "
        "oracle of 2:.4f | 7:.4f | distance, booster:.3f | average:.3f | oracle:.3f",
        rows,
    )


def of_runs(runs: Runs, which: str, key: str, n_rounds: int) -> float:
    """Mean over runs of a score or distance after some rounds."""
    at: Any = str(n_rounds) if which == "oracle" else n_rounds - 1
    return mean(run[which][at][key] for run in runs)


def by_name(runs: Runs) -> dict[str, Runs]:
    """Runs of each set."""
    found: dict[str, Runs] = {}
    for run in runs:
        found.setdefault(run["set"], []).append(run)
    return found


@block
def bdistil_average_rounds(file: str) -> Table:
    """Round by round, the mean difference in score and ratio of distances over all runs."""
    found = averages_of(file)
    rows = (
        [number, plus_minus(difference, error, ".4f"), ratio]
        for number, (difference, error, ratio) in enumerate(
            zip(*pick(found, "difference standard_error ratio"), strict=True), 1
        )
    )
    return table(
        "round:d | score, booster less average | distance, share of the average's:.3f", rows
    )


@block
def bdistil_targets(file: str) -> Table:
    """What the booster should reach."""
    rows = (
        [row["target"], marked(row["value"], "+.4f", row["reached"]), row["limit"]]
        for found in stored(file)["results"].values()
        for row in found["targets"]
    )
    return table("target | measured | at most:g", rows)


@block
def bdistil_times() -> Table:
    """How fast a booster predicts one row."""
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


# Posteriors ---------------------------------------------------------------------------------------


@block
def mnist_inference() -> Table:
    """Ways to draw members, on MNIST."""
    rows = (
        [
            f"{mask} %",
            name,
            row["nll"],
            1 - row["accuracy"],
            *pick(row, "ece ood_auroc_total ood_auroc_epistemic members iterations cpu_seconds"),
        ]
        for file in ("mnist", "mnist_masked")
        for mask, found in stored(file)["results"].items()
        for name, row in found.items()
    )
    return table(
        "mask | inference | NLL:.3f | error:.1% | ECE:.3f | AUROC of KMNIST, total:.3f | "
        "epistemic:.3f | members:d | iterations:, | fit, CPU s:.0f",
        rows,
    )


GPED_COLUMNS = (
    "mask | model | NLL:.3f | error:.1% | MAE | AUROC, total:.3f | AUROC, epistemic | "
    "nDCG, total:.3f | nDCG, epistemic:.3f"
)


@block
def gped_quality() -> Table:
    """Students of a chain's expectations, those with its architecture and the largest ones."""
    sizes = {"quality": "", "quality_of_the_largest_student": ", largest"}
    rows = [
        [f"{mask} %", name + size, *gped_row(mask, name, row, found[mask]["teacher"])]
        for mask in ("0", "29")
        for part, size in sizes.items()
        for found in [stored("gped")[part]]
        for name, row in found[mask].items()
        if name != "teacher" or not size
    ]
    mae = f"at most {gped.TARGETS['entropy_mae']:g}"
    auroc = f"at most {GPED_AUROC:g} below"
    rows += [["0 %", "wanted of GPED U_o", *[None] * 2, mae, *[None] * 4]]
    rows += [["both", "wanted of GPED", *[None] * 4, auroc, *[None] * 2]]
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


STEPS = {  # network and the chain's steps, by file
    "gped_cnn": ("CNN", "8e-5"),
    "gped_cnn_found": ("CNN", "found"),
    "gped_cnn_paper": ("CNN", "4e-6"),
    "gped_cnn_long": ("CNN", "4e-6"),
    "gped_paper": ("perceptron", "4e-6, H = 100"),
}


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
    return table("set | chains | rank | RMSE, in standard deviations", rows)


# Smaller students ---------------------------------------------------------------------------------


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
        "NLL less the search's | MAE less the search's | 1 row, µs:.0f | 1,000 rows, ms:.1f",
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


# Speed --------------------------------------------------------------------------------------------


@block
def engine_training() -> Table:
    """How many times as fast a fit is as others."""
    peers = ("skorch", "plain loop", "Bagging of MLPs", "bare torch loop")
    settings: dict[str, dict[str, str]] = {}
    for row in stored("engine")["training"]:
        faster = row["ratio"] if row["measure"] == "times as fast" else 1 / row["ratio"]
        ratios = settings.setdefault(row["setting"], {})
        ratios[row["peer"]] = marked(faster, ".3g", row["reached"])
    rows = ([setting, *map(ratios.get, peers)] for setting, ratios in settings.items())
    return table(" | ".join(["rows x columns", *peers]), rows)


@block
def engine_costs() -> Table:
    """What a fit costs beside its steps."""
    overhead, memory = stored("engine")["overhead"], stored("engine")["memory"]
    beyond = duration(overhead["overhead_seconds"])
    rows = [["one epoch beyond its steps", overhead["setting"], beyond]]
    rows += [
        [f"peak memory, {row['contender']}", row["setting"], f"{row['peak_mib']:.1f} MiB"]
        for row in memory
        if row["members"] == 10  # the other loops were measured with two
    ]
    return table("what | setting | measured", rows)


@block
def predict_times() -> Table:
    """How fast prediction is."""
    return comparisons(stored("predict")["prediction"])


@block
def predict_memory() -> Table:
    """By how much memory grows in a prediction."""
    paths = "model method rows working_memory_mib copy_and_results_mib peak_mib"
    return table(
        "model | method | rows:, | working memory, MiB:d | copy and twice the results, MiB:.1f | "
        "peak growth, MiB:.1f",
        (pick(row, paths) for row in stored("predict")["memory"]),
    )


@block
def serving_times() -> Table:
    """Serving by a student, its exported forms and its teacher; what was wanted is of the file."""
    found = stored("serving")
    most, least = found["settings"]["targets"].values()
    rows = []
    for row in found["serving"]:
        us, speed = row["one_row_us"], row["rows_per_second"]
        rows.append(
            [
                row["model"],
                row["task"],
                marked(us, ".0f", row["model"] != "file" or us <= most),
                marked(speed, ",.0f", row["model"] != "file, 2 threads" or speed >= least),
                row["kilobytes"],
            ]
        )
    return table("model | predicts | one row, µs | rows a second | kB:.0f", rows)


@block
def persistence_times() -> Table:
    """Writing and reading models in four ways; what was wanted is of the student's file."""
    found = stored("persistence")
    most, rows = found["settings"]["target_ms"], []
    for row in found["persistence"]:
        wanted = (row["model"], row["way"]) == ("student", "save")
        times = (
            marked(row[key], ".1f", not wanted or row[key] <= most)
            for key in ("write_cpu_ms", "write_wall_ms", "read_cpu_ms", "read_wall_ms")
        )
        rows.append([row["model"], row["way"], *times, row["kilobytes"]])
    return table("model | way | write, CPU ms | wall | read, CPU ms | wall | kB:,.0f", rows)


@block
def persistence_cold() -> Table:
    """New processes that load a model."""
    rows = (pick(row, "process cpu_s wall_s") for row in stored("persistence")["cold_start"])
    return table("new process | CPU s:.2f | wall:.2f", rows)


@block
def parallel_times(part: str) -> Table:
    """Seconds on the clock of one job, or worker, and of two."""
    rows = [
        [
            row["setting"],
            row["ours"],
            row["peer_seconds"],
            row["ours_seconds"],
            marked(row["ratio"], ".2f", row["reached"]),
            row["target"],
        ]
        for row in stored("parallel")[part]
    ]
    return table(
        "setting | by | one, s:.2f | two, s:.2f | times as fast | wanted, at least:.1f", rows
    )


@block
def sgld_times() -> Table:
    """How fast sampling is."""
    return comparisons(stored("sgld")["sampling"])


@block
def many_classes_step() -> Table:
    """Time of a step with forty thousand classes."""
    return comparisons(stored("many_classes")["step"])


@block
def many_classes_memory() -> Table:
    """Memory of a step with forty thousand classes."""
    found = stored("many_classes")["memory"]
    shares = {"reverse KL": marked(found["share_of_naive"], ".2f", found["reached"])}
    rows = ([name, peak, shares.get(name)] for name, peak in found["peak_mib"].items())
    share = f"share of the naive form, at most {found['target']:g} wanted"
    return table(f"loss | peak, MiB:.0f | {share}", rows)


@block
def gped_speed() -> Table:
    """What a chain costs that teaches a student after each step."""
    found = stored("gped")["speed"]
    hours = found["hours_for_a_million_iterations"]
    over_sum = marked(found["over_sum"], ".2f", found["reached"])
    rows = [
        *([f"{name}, ms a step", f"{ms:.2f}"] for name, ms in found["step_ms"].items()),
        [f"loop over SGLD and student, at most {found['target']:g} wanted", over_sum],
        ["share of matrix products", f"{found['gemm_share']:.0%}"],
        *([f"a million iterations, {name}, hours", f"{hour:.1f}"] for name, hour in hours.items()),
    ]
    return table(f"{found['setting']} | measured", rows)


# Large tables -------------------------------------------------------------------------------------


def choices(found: dict[str, Any], model: str) -> Iterable[tuple[str, dict, list[Any]]]:
    """Set, scores, and rows, batch size and epochs of each fit; what "auto" takes is marked."""
    for name, scores in found.items():
        for row in scores.get(model, []):
            chosen = '"auto"' if row["auto"] else None
            yield name, row, [f"{scores['rows']:,}", row["batch_size"], row["epochs"], chosen]


@block
def amounts_teachers() -> Table:
    """Ensembles by batch size and epochs."""
    return table(
        "set | rows | batch | epochs | chosen | NLL:.3f | error:.4g | CPU s:.1f",
        (
            [name, *setting, *pick(row, "nll error cpu_seconds")]
            for name, row, setting in choices(stored("amounts")["results"], "teachers")
        ),
    )


@block
def amounts_students() -> Table:
    """Students by batch size and epochs."""
    return table(
        "set | rows | batch | epochs | chosen | NLL gap:+.3f | rank of epistemic:.3f | "
        "median ratio:.2f | CPU s:.1f",
        (
            [name, *setting, *pick(row, "nll_gap rank_correlation median_ratio cpu_seconds")]
            for name, row, setting in choices(stored("amounts")["results"], "students")
        ),
    )


@block
def amounts_costs() -> Table:
    """What a fit costs, by the number of samples."""
    found = stored("amounts")["costs"]
    rows = (
        [
            *pick(row, "rows teacher_epochs student_epochs teacher student"),
            row["teacher"] + row["student"],
        ]
        for row in found
    )
    return table(
        "samples:, | epochs | student's | teacher, CPU s:.1f | student:.1f | both:.1f", rows
    )


@block
def scale_defaults() -> Table:
    """What teacher and student cost by default, and with the settings of small tables."""
    found = stored("scale")
    by_default = found["defaults"]
    fits = [("defaults", row) for row in by_default["pairs"]]
    fits.append(("settings of small tables", by_default["of_small_tables"]))
    fits.append(("defaults, n_jobs=2", found["cores"]))
    return table(
        "fit | rows:, | epochs | teacher, CPU s:.1f | student:.1f | both, on the clock:.0f | "
        "MiB of X:.0f | beyond it, teacher:.0f | both:.0f | NLL, teacher:.3f | student:.3f",
        (
            [
                name,
                row["n_rows"],
                "{}, {}".format(*row["epochs"]),
                *row["cpu_seconds"],
                sum(row["wall_seconds"]),
                row["x_mib"],
                *row["growth_mib"],
                *row["nll"],
            ]
            for name, row in fits
        ),
    )


@block
def scale_peers() -> Table:
    """What gradient boosting costs on the same tables."""
    keys = "peer n_rows cpu_seconds growth_mib rmse nll"
    rows = (pick(row, keys) for row in stored("scale")["defaults"]["peers"])
    return table("peer | rows:, | CPU s:.1f | MiB beyond X:.0f | RMSE:.3f | NLL:.3f", rows)


@block
def scale_files() -> Table:
    """A student whose rows are in Parquet files."""
    keys = "teacher n_rows epochs cpu_seconds wall_seconds rows_per_second peak_mib"
    heading = "teacher | rows:, | epochs | CPU s:.0f | s on the clock:.0f | rows a second:,.0f | "
    return table(f"{heading}peak, MiB:.0f", [pick(stored("scale")["parquet"], keys)])


@block
def scale_growth() -> Table:
    """Seconds by what grows, and slopes."""
    rows: list[list[Any]] = []
    for axis, found in stored("scale")["growth"].items():
        for i, model in enumerate(("teacher", "student")):
            sizes = " / ".join(f"{fit[axis]:,}" for fit in found["fits"])
            seconds = " / ".join(f"{fit['cpu_seconds'][i]:.2f}" for fit in found["fits"])
            last = found["last_slopes"][i]
            rows.append([axis[2:], model, sizes, seconds, found["slopes"][i], last])
    return table("by | model | sizes | CPU s | slope:.2f | of the last step:.2f", rows)


@block
def scale_targets() -> Table:
    """What was wanted of large tables."""
    return table(
        "target | measured | at most:g",
        (
            [row["target"], marked(row["value"], ".3g", row["reached"]), row["high"]]
            for row in stored("scale")["targets"]
        ),
    )


N_HUGE, EPOCHS_OF_HUGE = 10**8, 10  # rows, and the epochs that max_epochs="auto" takes of them


@block
def scale_arithmetic() -> Table:
    """What a fit of 100,000,000 rows would take, from seconds and bytes measured on few of them."""
    found = stored("scale")["example"]
    n_rows, d, n_members, n_classes = pick(found, "n_rows n_columns n_members n_classes")
    teacher, student = (seconds / n_rows for seconds in found["cpu_seconds"])
    hours = [seconds * EPOCHS_OF_HUGE * N_HUGE / 3600 for seconds in (teacher, student)]
    row_bytes, answer_bytes = 4 * d, 4 * n_members * n_classes
    gib, tib = 2**30, 2**40
    rows = [
        ["teacher, µs per row and member", f"{1e6 * teacher / n_members:.2f}"],
        ["teacher, core hours", f"{hours[0]:,.0f}"],
        ["teacher, hours on as many cores as members", f"{hours[0] / n_members:,.1f}"],
        ["student, µs per row, its teacher's answers included", f"{1e6 * student:,.0f}"],
        ["student, hours on one core", f"{hours[1]:,.0f}"],
        [
            "student of a 50th of the rows, hours on one core",
            f"{hours[1] / 50:.1f}",
        ],
        ["rows in float32, GiB", f"{N_HUGE * row_bytes / gib:.0f}"],
        [
            "rows read by all members in all epochs, TiB",
            f"{N_HUGE * row_bytes * n_members * EPOCHS_OF_HUGE / tib:.1f}",
        ],
        ["answers of the members, if they were kept, TiB", f"{N_HUGE * answer_bytes / tib:.1f}"],
        ["peak beyond X of the fit of few rows, GiB", f"{found['growth_mib'][1] / 1024:.2f}"],
    ]
    return table("what | amount", rows)


# Sequences ----------------------------------------------------------------------------------------


def translation(headings: str, keys: str) -> Table:
    """Means and standard deviations over repetitions."""
    names = {
        "single": "single network",
        "ensemble": "ensemble",
        "proxy": "its proxies, no student",
        "EnD": '`"mixture"` (EnD)',
        "EnD2": '`"nll"` (EnD2)',
        "proxy student": '`"reverse_kl"`',
        "proxy student, released form": '`"reverse_kl_reference"`',
        "proxy student, shown more": '`"reverse_kl"`, shown more',
    }

    def written(key: str, found: dict[str, float] | None) -> str | None:
        spec = ".3f" if key == "nll" else ".1f"
        return found and plus_minus(found["mean"], found["std"], spec)

    results = stored("translation")["results"]
    rows = (
        [shown, *map(written, keys.split(), pick(results[name], keys))]
        for name, shown in names.items()
    )
    return table(f"loss or model | {headings}", rows)


@block
def translation_quality() -> Table:
    """How good translations are, and how well uncertainty ranks their errors."""
    return translation(
        "exact, % | edits per token, % | NLL per token | PRR by EoE, % | PRR by RMI, %",
        "accuracy error_rate nll prr_eoe prr_rmi",
    )


@block
def translation_detection() -> Table:
    """How well sentences of another kind are told."""
    return translation(
        "rare words, EoE | RMI | permuted, EoE | RMI | a noun never seen, EoE | RMI",
        "rare_eoe rare_rmi permuted_eoe permuted_rmi foreign_eoe foreign_rmi",
    )


# README: which student ----------------------------------------------------------------------------


@block
def which_student() -> Table:
    """Which student to take, by what is wanted of it."""
    return table(
        "you want | take | measured | parameters, student / teacher | fit | one sample",
        [
            choice("regression, a head for each member", "`HydraPlusRegressor`", "Hydra+"),
            choice("classification, a head for each member", "`HydraPlusClassifier`", "Hydra+"),
            choice("regression, one distribution", "`DistributionDistiller`", "gaussian"),
            choice("classification, one distribution", "`DistributionDistiller`", "dirichlet"),
            gped_choice(),
            bdistil_choice(),
            sequence_choice(),
        ],
    )


def choice(what: str, take: str, student: str) -> list[Any]:
    """A student of tables, by what fidelity.py found."""
    kind = "numbers" if what.startswith("regression") else "classes"
    found = [row for _, row in of_students(kind)[student]]
    gap = mean(row["nll_gap"] for row in found)
    ranks = spread((row["rank_student_to_teacher"] for row in found), ".2f")
    measured = f"{len(found)} sets: NLL {gap:+.3f} on average; rank of the epistemic part {ranks}"
    shares = spread((row["share_of_parameters"] for row in found), ".2f")
    seconds = spread((row["cpu_seconds"] for row in found), ".0f")
    return [what, take, measured, shares, f"{seconds} s", one_row(kind, student)]


def one_row(kind: str, student: str) -> str | None:
    """Time for a row, of the students that it was measured of."""
    if student != "Hydra+":
        times = {
            row["model"]: f"{row['one_row_us']:.0f} µs"
            for row in stored("serving")["serving"]
            if row["task"] == kind
        }
        return f"{times['student']} for all, {times['file']} exported"
    if kind == "classes":
        return None
    found = stored("predict")["prediction"]
    seconds = next(
        row["ours_seconds"]
        for row in found
        if (row["ours"], row["setting"]) == ("student", "1 row")
    )
    return f"{duration(seconds)} for `predict`"


def gped_choice() -> list[Any]:
    """A chain's expectations."""
    found = stored("gped")["quality"]["0"]
    ours, chain = found["GPED U_s"], found["teacher"]
    return [
        "a posterior by Markov chains, without stored samples",
        "`GPEDDistiller`",
        f"MNIST: NLL {ours['nll'] - chain['nll']:+.3f}; expected entropy off by "
        f"{ours['entropy_mae']:.3f} nats on average",
        "one network for the chain",
        f"{ours['wall_seconds']:.0f} s with the chain",
        None,
    ]


def bdistil_choice() -> list[Any]:
    """A model decomposed into small networks."""
    found = stored("bdistil")["results"]["letter"]
    first = found["times"][0]
    return [
        "predictions within any deadline (anytime)",
        "`BDistilBooster`",
        f"letter, from gradient boosting: the first round {first['ratio']:.0f} times "
        f"as fast for one sample, accuracy {found['booster'][0]:.3f} "
        f"({found['teacher']:.3f})",
        None,
        None,
        f"{duration(first['ours_seconds'])} for a round",
    ]


def sequence_choice() -> list[Any]:
    """Sequences."""
    found = stored("translation")["results"]
    ours, theirs = found["proxy student"], found["ensemble"]
    return [
        "translation and language models",
        "`SequenceDistributionDistiller`",
        f"made-up languages: NLL per token {ours['nll']['mean'] - theirs['nll']['mean']:+.3f}; "
        f"AUROC of unknown nouns {ours['foreign_rmi']['mean']:.0f} % "
        f"({theirs['foreign_rmi']['mean']:.0f} %)",
        "one network for five",
        f"{ours['fit_seconds']['mean']:.1f} s",
        None,
    ]


# README: reached and missed -----------------------------------------------------------------------

Highlight = tuple[str, str, str, bool, str]  # what, measured, wanted, reached, page


@block
def highlights() -> Table:
    """Ten of the targets, reached and missed."""
    found = [
        deep_ensembles(),
        hydra_student("NLL less the teacher's", "NLL of Hydra+ less its teacher's"),
        gaussian_student(),
        forest_student(),
        training(),
        mixed_teacher(),
        hydra_student(
            "median ratio, classes left out", "Epistemic entropy of unknown classes, Hydra+"
        ),
        masked_chain(),
        cube(),
        pruned(),
    ]
    rows = (
        [
            what,
            measured,
            wanted,
            "yes" if reached else "**no**",
            f"[{page}](doc/measured/{page}.rst)",
        ]
        for what, measured, wanted, reached, page in found
    )
    return table("what | measured | wanted | reached | page", rows)


def deep_ensembles() -> Highlight:
    """Teachers beside the published Deep Ensembles."""
    behind = {
        name: theirs["nll"] - uci.DEEP_ENSEMBLES[name][1] for name, theirs, *_ in by_set("uci")
    }
    name = max(behind, key=behind.__getitem__)
    what = f"NLL of the teacher less that of Deep Ensembles (2017), worst of six UCI sets ({name})"
    reached = behind[name] <= DEEP_ENSEMBLES_NLL
    return what, f"{behind[name]:+.3f}", f"at most {DEEP_ENSEMBLES_NLL:+g}", reached, "regression"


def mixed_teacher() -> Highlight:
    """The mixed teacher beside the best of the other models, on the splits that both have."""
    found = peers.by_model(stored("peers")["results"], are_classes=False)
    behind = {}
    for name, model in found:
        ours = {row["split"]: row["nll"] for row in found.get((name, "mixed"), [])}
        rows = [row for row in found[name, model] if row["split"] in ours]
        if rows and model not in peers.OURS:
            behind[name, model] = mean(ours[row["split"]] - row["nll"] for row in rows)
    name, model = max(behind, key=behind.__getitem__)
    n_sets = len({name for name, _ in behind})
    what = f"NLL of the mixed teacher less that of the best peer ({name}, {model}), {n_sets} sets"
    most = behind[name, model]
    return what, f"{most:+.3f}", "at most 0", most <= 0, "peers"


def hydra_student(target: str, what: str) -> Highlight:
    """The worst of four sets, in one of the targets of hydra.py."""
    rows = {
        name: row
        for name, found in stored("hydra")["sets"].items()
        for row in found["targets"]
        if row["target"] == target
    }
    name, row = min(rows.items(), key=lambda item: margin(item[1]))
    measured = f"{row['value']:.3f}" + " times the teacher's" * ("ratio" in target)
    what = f"{what}, worst of four sets ({name})"
    return what, measured, limits(row), row["reached"], "classification"


def margin(target: dict[str, Any]) -> float:
    """By how much a target is kept; negative where it is missed."""
    low, high, value = pick(target, "low high value")
    return min(inf if low is None else value - low, inf if high is None else high - value)


def gaussian_student() -> Highlight:
    """A distribution over numbers from one network."""
    found = [row["nll_gap"] for _, row in of_students("numbers")["gaussian"]]
    what = f"NLL of `DistributionDistiller` less its teacher's, mean of {len(found)} sets"
    reached = mean(found) <= FIDELITY_NLL
    return what, f"{mean(found):+.3f}", f"at most {FIDELITY_NLL:+g}", reached, "fidelity"


def forest_student() -> Highlight:
    """A forest as one network."""
    row = stored("forest")["results"]["adult"]["times"][0]
    what = "Predictions of a network distilled from 500 trees, test samples of adult"
    measured = f"{row['ratio']:.0f} times as fast"
    return what, measured, f"at least {row['target']} times", row["reached"], "forest"


def training() -> Highlight:
    """Speed of training."""
    row = stored("engine")["training"][0]
    what = "Training ten networks on 506 samples, compared with a loop over skorch nets"
    measured = f"{row['ratio']:.0f} times as fast"
    return what, measured, f"at least {row['target']} times", row["reached"], "speed"


def masked_chain() -> Highlight:
    """What a student of a chain keeps on masked images."""
    rows = stored("gped")["quality"]["29"]
    gap = rows["GPED U_s"]["ood_auroc_epistemic"] - rows["teacher"]["ood_auroc_epistemic"]
    what = "AUROC by epistemic uncertainty, `GPEDDistiller` less its chain, masked MNIST"
    return what, f"{gap:+.3f}", f"at least {-GPED_AUROC}", gap >= -GPED_AUROC, "gped"


def cube() -> Highlight:
    """A booster beside an average."""
    row = stored("bdistil")["results"]["cube"]["targets"][0]
    what = "Accuracy by which `BDistilBooster` is behind an average of as many networks, cube"
    return what, f"{row['value']:.4f}", f"at most {row['limit']:g}", row["reached"], "b_distil"


def pruned() -> Highlight:
    """Pruned students beside a search over widths."""
    counts = stored("pareto")["results"]["verdicts"]["nll"]["interpolated"]["counts"]
    n_students = sum(counts.values())
    good = n_students - counts["loses"]
    what = "Pruned students as good as a search over widths at equal FLOPs, in NLL"
    return what, f"{good} of {n_students}", "all", good == n_students, "pruning"


def main() -> None:
    """Write all pages anew."""
    formatter = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=__doc__, formatter_class=formatter).parse_args()
    for page in PAGES:
        page.write_text(filled(page), encoding="utf-8")


if __name__ == "__main__":
    main()
