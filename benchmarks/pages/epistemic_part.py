# SPDX-License-Identifier: BSD-3-Clause
"""Whether the epistemic part is what more samples would remove."""

from __future__ import annotations

from statistics import mean, median
from typing import Any

import epistemic
from _pages import NOT_MEASURED, Table, block, marked, stored, table

N, N_CURVE = 500, 400  # training samples that targets are of
MODELS = ("teacher", "hydra", "gaussian", "dirichlet")  # that targets are of

# Of halves: mean and least coverage; of the four lower fifths, and of the upper one the median and
# the largest ratio; of classes the ratio. Of known truth: mean and least coverage. Of curves: the
# two ratios, on so many of ten tables.
COVER, LEAST_COVER, LOWER, TOP, MOST_TOP = (0.85, 0.96), 0.78, (0.7, 2.0), 3.0, 6.0
CLASSES, TRUTH_COVER, TRUTH_LEAST = (0.7, 1.6), 0.88, 0.75
ALEATORIC, EPISTEMIC, SHARE = (0.8, 1.3), (0.5, 2.0), 0.8


def rows_of(protocol: str, **wanted: Any) -> list[dict[str, Any]]:
    """Rows of a protocol that have some values."""
    return [
        row
        for row in stored("epistemic")["results"]
        if row["protocol"] == protocol and all(row[key] == value for key, value in wanted.items())
    ]


def of_numbers(rows: list[dict[str, Any]], are_classes: bool = False) -> list[dict[str, Any]]:
    return [row for row in rows if (row["set"] in epistemic.OF_CLASSES) == are_classes]


def cells(rows: list[dict[str, Any]], keys: str, n: str = "n_train") -> list[list[Any]]:
    """Cells of a table: data set, training samples and model, and what these keys stand for."""
    first = [[row["set"], f"{row[n]:,}", row["model"]] for row in rows]
    return [[*own, *map(row.get, keys.split())] for own, row in zip(first, rows, strict=True)]


def or_none(columns: str, rows: list[list[Any]]) -> Table | str:
    """A table, or a line where the file has nothing for it."""
    return table(columns, rows) if rows else NOT_MEASURED


def within(value: float, limits: tuple[float, float]) -> bool:
    return limits[0] <= value <= limits[1]


@block
def epistemic_targets() -> Table | str:
    """What was wanted, for the teacher and its students."""
    found: list[list[Any]] = []
    for model in MODELS:
        found += [[model, *row] for row in targets_of(model)]
    return or_none("model | of | measured | target", found)


def targets_of(model: str) -> list[tuple[str, str, str]]:
    """What is measured of a model, its value and the target."""
    found: list[tuple[str, str, str]] = []

    def add(what: str, value: float, is_reached: bool, target: str) -> None:
        found.append((what, marked(value, ".2f", is_reached), target))

    halves = rows_of("halves", n=N, model=model)
    if numbers := of_numbers(halves):
        covers = [row["cover"] for row in numbers]
        cover, least, tops = mean(covers), min(covers), [row["top"] for row in numbers]
        low, high = min(row["low"] for row in numbers), max(row["high"] for row in numbers)
        add("halves, mean coverage", cover, within(cover, COVER), f"{COVER[0]:g} to {COVER[1]:g}")
        add("halves, least coverage", least, least >= LEAST_COVER, f"at least {LEAST_COVER:g}")
        add("halves, lower fifths, least ratio", low, low >= LOWER[0], f"at least {LOWER[0]:g}")
        add("halves, lower fifths, largest ratio", high, high <= LOWER[1], f"at most {LOWER[1]:g}")
        top, most = median(tops), max(tops)
        add("halves, upper fifth, median ratio", top, top <= TOP, f"at most {TOP:g}")
        add("halves, upper fifth, largest ratio", most, most <= MOST_TOP, f"at most {MOST_TOP:g}")
    if classes := [row["ratio"] for row in of_numbers(halves, are_classes=True)]:
        (low, high), least, most = CLASSES, min(classes), max(classes)
        add("halves of classes, least ratio", least, least >= low, f"at least {low:g}")
        add("halves of classes, largest ratio", most, most <= high, f"at most {high:g}")
    if covers := [row["cover"] for row in rows_of("truth", model=model)]:
        cover, least = mean(covers), min(covers)
        add("known truth, mean coverage", cover, cover >= TRUTH_COVER, f"at least {TRUTH_COVER:g}")
        add("known truth, least coverage", least, least >= TRUTH_LEAST, f"at least {TRUTH_LEAST:g}")
    curves = rows_of("curve", n=N_CURVE, model=model)
    for what, limits in (("aleatoric", ALEATORIC), ("epistemic", EPISTEMIC)):
        if ratios := [row[f"{what}_ratio"] for row in curves if f"{what}_ratio" in row]:
            share = mean(within(ratio, limits) for ratio in ratios)
            name = f"curves, share of {what} ratios from {limits[0]:g} to {limits[1]:g}"
            add(name, share, share >= SHARE, f"at least {SHARE:g}")
    return found


@block
def epistemic_models() -> Table | str:
    """Means over the tables, for each model."""
    rows: list[list[Any]] = []
    for model in epistemic.CONTENDERS:
        if found := of_numbers(rows_of("halves", model=model, n=N)):
            keys = "cover low high top rmse nll crps coverage fit_seconds"
            cover, low, high, top, *quality = ([row[key] for row in found] for key in keys.split())
            summary = [mean(cover), min(cover), median(low), median(high), median(top), max(top)]
            rows.append([model, len(found), *summary, *map(mean, quality)])
    return or_none(
        "model | tables | coverage:.2f | worst:.2f | lower fifths, least:.2f | largest:.2f | "
        "upper fifth:.2f | worst:.1f | RMSE:.3f | NLL:.3f | CRPS:.4f | coverage of y:.3f | s:.1f",
        rows,
    )


@block
def epistemic_halves() -> Table | str:
    """Halves of each table of numbers."""
    keys = "cover low high top rank rmse nll"
    return or_none(
        "data set | n | model | coverage:.2f | lower fifths, least:.2f | largest:.2f | "
        "upper fifth:.2f | rank:.2f | RMSE:.3f | NLL:.3f",
        cells(of_numbers(rows_of("halves")), keys),
    )


@block
def epistemic_halves_of_classes() -> Table | str:
    """Halves of each table of classes."""
    keys = "ratio cover low high top rank log_loss"
    return or_none(
        "data set | n | model | ratio:.2f | coverage:.2f | lower fifths, least:.2f | "
        "largest:.2f | upper fifth:.2f | rank:.2f | log loss:.3f",
        cells(of_numbers(rows_of("halves"), are_classes=True), keys),
    )


@block
def epistemic_truth() -> Table | str:
    """Errors of the mean where the function is known."""
    keys = "squared_error cover low high top rank"
    return or_none(
        "function | n | model | squared error:.3g | coverage:.2f | lower fifths, least:.2f | "
        "largest:.2f | upper fifth:.2f | rank:.2f",
        cells(rows_of("truth"), keys, n="n"),
    )


@block
def epistemic_curves() -> Table | str:
    """Both parts beside what more samples remove."""
    keys = "n_limit squared_error limit total aleatoric_ratio epistemic_ratio"
    return or_none(
        "data set | n | model | n of the limit:, | squared error:.3g | limit:.3g | total:.3g | "
        "aleatoric / limit:.2f | epistemic / removed:.2f",
        cells(rows_of("curve"), keys, n="n"),
    )
