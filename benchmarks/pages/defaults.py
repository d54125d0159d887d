# SPDX-License-Identifier: BSD-3-Clause
"""Defaults against defaults: teachers, students and peers on the tables of suite.py."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import mean, median

import suite
from _pages import NOT_MEASURED, Table, block, duration, pick, stored, table
from scipy.stats import studentized_range

ALPHA = 0.05  # of the critical difference
TABLES = {"regression": suite.NUMBERS, "classification": suite.CLASSES}


def rows() -> list[suite.Row]:
    return stored("suite")["results"]


@block
def defaults_ranks() -> Table | str:
    """Mean ranks and wins, and by how much two mean ranks have to differ (Nemenyi's test)."""
    found = []
    for heading, n_tables, *cells in suite.places(rows()):
        k = len(suite.field(rows(), "teacher", heading).ranks)
        q = studentized_range.ppf(1 - ALPHA, k, 1e6) / 2**0.5
        found.append([heading, n_tables, *cells, q * (k * (k + 1) / (6 * n_tables)) ** 0.5])
    columns = " | ".join(suite.WHO)
    heading = f"score | tables | {columns} | critical difference:.2f"
    return table(heading, found) if found else NOT_MEASURED


@block
def defaults_in_short() -> Table:
    """Mean ranks by model, with the numbers of tables on which it is the best."""
    scores = {heading: (n, cells) for heading, n, *cells in suite.places(rows())}
    heading = " | ".join(f"{name}, {n} tables" for name, (n, _) in scores.items())
    found = [
        [who, *(cells[number] for _, cells in scores.values())]
        for number, who in enumerate(suite.WHO)
    ]
    return table(f"model | {heading}", found)


@block
def defaults_lost() -> Table | str:
    """Where the teacher and its students are behind the best peer."""
    found = [
        [heading, model, f"{len(lost)} of {len(of.gaps)}", ", ".join(lost)]
        for heading in suite.RANKED
        for model in suite.OURS
        if (of := suite.field(rows(), model, heading)).gaps
        for lost in [suite.lost(rows(), model, heading)]
    ]
    heading = "score | model | behind on | by how much, and the best peer"
    return table(heading, found) if found else NOT_MEASURED


@block
def defaults_seconds() -> Table | str:
    """Medians over tables of CPU seconds, by training samples."""
    found = []
    for low, high in ((0, 250), (250, 1000), (1000, suite.MOST)):
        within = [row for row in rows() if low < row.get("n_train", 0) <= high]
        for what in ("fit_seconds", "predict_seconds"):
            cells = []
            for model in suite.WHO:
                of = suite.by_set(within, "scores", what, model)
                cells.append(duration(median(map(mean, of.values()))) if of else None)
            found.append([f"{low + 1:,} to {high:,}", what.partition("_")[0], *cells])
    return table(f"training samples | of | {' | '.join(suite.WHO)}", found)


@block
def defaults_judged() -> Table | str:
    """The criteria by which a default is judged, as they stand."""
    found = []
    for protocol, score in ((p, s) for p, scores in suite.CRITERIA.items() for s in scores):
        of = {model: suite.by_set(rows(), protocol, score, model) for model in suite.MODELS}
        means = [mean(map(mean, values.values())) if values else None for values in of.values()]
        if n_tables := max(map(len, of.values())):
            found.append([protocol, score, n_tables, *means])
    columns = " | ".join(f"{model}:.3g" for model in suite.MODELS)
    return table(f"protocol | score | tables | {columns}", found) if found else NOT_MEASURED


def of_students(model: str, tables: Iterable[str]) -> dict[str, dict[str, float]]:
    """What a student keeps of its teacher, by table; means over splits."""
    scores = {
        key: suite.by_set(rows(), "scores", key, model)
        for key in ("nll_gap", "rank", "ratio", "fit_seconds")
    }
    return {
        name: {key: mean(found[name]) for key, found in scores.items()}
        for name in tables
        if name in scores["nll_gap"]
    }


@block
def fidelity_sets(kind: str) -> Table:
    """How close both students are to their teacher, by table."""
    students = {name: of_students(name, TABLES[kind]) for name in suite.MODELS[1:]}
    keys = "nll_gap rank ratio"
    found = [
        [name, *pick(of_hydra, keys), *pick(students["distribution"][name], keys)]
        for name, of_hydra in students["hydra"].items()
    ]
    columns = list(zip(*found, strict=True))[1:]
    found.append(["median", *map(median, columns)])
    of_each = "NLL gap:+.3f | rank of epistemic:.3f | median ratio:.2f"
    return table(f"data set | hydra, {of_each} | distribution, {of_each}", found)


@block
def unseen_folds(protocol: str) -> Table:
    """A gap or tails, by table; means over two features."""
    keys = list(suite.OF_UNSEEN)
    found = {
        (model, key): suite.by_set(rows(), protocol, key, model)
        for model in suite.MODELS
        for key in keys
    }
    cells = (
        [name, model, *(mean(found[model, key][name]) for key in keys)]
        for name in suite.SETS[protocol]
        for model in suite.MODELS
    )
    return table(
        "data set | model | AUROC, epistemic:.3f | NLL of unseen:.3f | 90 % coverage of unseen:.2f",
        cells,
    )


@block
def unseen_far() -> Table:
    """Samples far away: means, and the least, over tables."""
    cells = []
    for model in suite.MODELS:
        one, every, top = (
            [mean(values) for values in suite.by_set(rows(), "scores", key, model).values()]
            for key in suite.FAR
        )
        cells.append([model, mean(one), min(one), mean(every), min(every), mean(top), max(top)])
    return table(
        "model | AUROC, one feature by 4:.3f | least:.3f | all by 8:.3f | least:.3f | "
        "top probability, all by 100:.2f | largest:.2f",
        cells,
    )
