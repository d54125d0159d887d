# SPDX-License-Identifier: BSD-3-Clause
"""How report.py fills pages: blocks, tables, and the files that the numbers come from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from _common import RESULTS

BLOCK = re.compile(
    r"^(?P<start>(?:\.\.|<!--) measured: (?P<call>[\w ]+?)(?: -->)?\n).*?"
    r"^(?P<end>(?:\.\.|<!--) end(?: -->)?)$",
    re.MULTILINE | re.DOTALL,
)

# Kinds of data sets in results files, in the words of the pages.
TASKS = {"numbers": "regression", "classes": "classification"}

NOT_MEASURED = "None of these is in the file yet."
AUROC = "auroc_epistemic"

READ: dict[str, list[dict[str, Any]]] = {}  # by file, what of it was asked for
FUNCTIONS: dict[str, Callable[..., Table | str]] = {}  # what pages may ask for, by name


def block(function: Callable[..., Table | str]) -> Callable[..., Table | str]:
    """Let pages ask for what a function returns."""
    FUNCTIONS[function.__name__] = function
    return function


class Table(NamedTuple):
    """Headings and rows of text."""

    header: list[str]
    rows: list[list[str]]

    def as_rst(self) -> str:
        """A simple table of reStructuredText; a row must not begin with an empty cell."""
        widths = [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]
        rule = "  ".join("=" * width for width in widths)
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (self.header, *self.rows)
        ]
        return "\n".join([rule, lines[0], rule, *lines[1:], rule])

    def as_markdown(self) -> str:
        """A table of GitHub's Markdown."""
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def table(columns: str, rows: Iterable[Iterable[Any]]) -> Table:
    """Table of values; None is an empty cell, text stays as it is.

    `columns` are headings with the formats of their numbers: ``"model | NLL:.3f | parameters:,"``.
    """
    header, formats = zip(*(text.partition(":")[::2] for text in columns.split(" | ")), strict=True)
    written = [
        [cell(value, spec) for value, spec in zip(row, formats, strict=True)] for row in rows
    ]
    return Table(list(header), written)


def cell(value: Any, spec: str) -> str:
    """Text of one value."""
    if value is None:
        return ""
    return value if isinstance(value, str) else format(value, spec)


def marked(value: float, spec: str, reached: bool | None) -> str:
    """Text of a value, in bold if it misses its target."""
    text = format(value, spec)
    return f"**{text}**" if reached is False else text


def plus_minus(value: float | None, error: float | None, spec: str) -> str | None:
    """Text of a mean and of its error, where there is one."""
    if value is None or error is None:
        return value and format(value, spec)
    return f"{value:{spec}} ± {error:{spec}}"


def filled(page: Path) -> str:
    """Text of a page with its blocks written anew."""

    def write(found: re.Match) -> str:
        name, *arguments = found["call"].split()
        content = FUNCTIONS[name](*arguments)
        if isinstance(content, Table):
            content = content.as_markdown() if page.suffix == ".md" else content.as_rst()
        return f"{found['start']}\n{content}\n\n{found['end']}"

    return BLOCK.sub(write, page.read_text(encoding="utf-8"))


def stored(name: str, models: Container[str] | None = None) -> dict[str, Any]:
    """What results/<name>.json holds; without the rows of other models where some are named."""
    found = read(name)
    if models is not None:
        rows = [row for row in found["results"] if row["model"] in models]
        found = {**found, "results": rows}
    READ.setdefault(name, []).append(found)
    return found


@cache
def read(name: str) -> dict[str, Any]:
    """Content of results/<name>.json."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def pick(found: dict[str, Any], paths: str) -> list[Any]:
    """Values at paths such as ``"nll test.median_ratio"``; None where there is none."""
    values = []
    for path in paths.split():
        value: Any = found
        for key in path.split("."):
            value = None if value is None else value.get(key)
        values.append(value)
    return values


def duration(seconds: float) -> str:
    """Seconds in a unit that suits them."""
    if seconds < 1e-3:
        return f"{1e6 * seconds:.0f} µs"
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def spread(values: Iterable[float], spec: str) -> str:
    """Smallest and largest value."""
    values = list(values)
    return f"{min(values):{spec}} to {max(values):{spec}}"


def comparisons(rows: list[dict[str, Any]]) -> Table:
    """Times beside a peer's; ``_common.comparison`` makes the rows."""
    sign = {"times as fast": "at least", "times as long": "at most"}
    return table(
        "setting | ours | time | compared with | its time | ours is | target",
        (
            [
                named(row["setting"]),
                row["ours"],
                duration(row["ours_seconds"]),
                row["peer"],
                duration(row["peer_seconds"]),
                relation(row),
                row["target"] and f"{sign[row['measure']]} {row['target']:g}",
            ]
            for row in rows
        ),
    )


def named(text: str) -> str:
    """Text of a results file in the words of the pages: samples, features, differences."""
    words = {"row": "sample", "rows": "samples", "columns": "features", "less": "minus"}
    return re.sub(r"\b(rows?|columns|less)\b", lambda found: words[found[0]], text)


def relation(row: dict[str, Any]) -> str:
    """How many times as fast ours is, or, where it is slower, how many times as long it takes."""
    ratio, measure = row["ratio"], row["measure"]
    if row["target"] is None and measure == "times as fast" and ratio < 1:
        ratio, measure = 1 / ratio, "times as long"
    return f"{marked(ratio, '.3g', row['reached'])} {measure}"


def limits(target: dict[str, Any]) -> str:
    """What a target asks for, in words."""
    low, high = target["low"], target["high"]
    if None not in (low, high):
        return f"{low:g} to {high:g}"
    return f"at most {high:g}" if low is None else f"at least {low:g}"
