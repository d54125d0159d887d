# SPDX-License-Identifier: BSD-3-Clause
"""A report as HTML: one page that needs nothing from anywhere else."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from ..displays import png_of
from ._values import Measurement, Picture

# Chapters of the page, what they are about, and the sections that stand in them.
_CHAPTERS = [
    (
        "Accuracy and proper scores",
        "A proper score judges the whole predicted distribution; no other prediction than the true "
        "distribution has a better expected one.",
        ("accuracy", "proper scores"),
    ),
    (
        "Calibration",
        "Of what is predicted with some probability, should so much come true?",
        ("calibration",),
    ),
    (
        "Does it know when it errs?",
        "Rows are ordered by their total uncertainty. The rejection ratio is 1 if the most "
        "uncertain rows are those with the largest errors, 0 for a random order.",
        ("ranking of errors",),
    ),
    (
        "Where it knows least",
        "More rows like these would help most. A column explains the share of the variance of the "
        "uncertainty's ranks that lies between ten groups of rows with like values in it (the "
        "adjusted squared correlation ratio); columns that go together share what they explain.",
        ("where it knows least",),
    ),
    (
        "Parts of the uncertainty",
        "Aleatoric uncertainty is noise in the data; epistemic is what the model does not know, "
        "and more rows reduce.",
        ("uncertainty",),
    ),
    (
        "Fidelity",
        "Row by row, does the student say of its uncertainty what the others say of theirs? With a "
        "reference, a larger ensemble, the teacher's own number is what a perfect imitation would "
        "reach.",
        ("fidelity",),
    ),
    (
        "Cost and latency",
        "Latencies are medians of calls of predict on this machine, checks of the rows included.",
        ("cost", "latency"),
    ),
]

# What stands at the top of the page: what it is called there, and the quantities it may be; the
# first that was measured is taken.
_TILES = [
    ("Accuracy", ("accuracy",)),
    ("RMSE", ("RMSE",)),
    ("Log loss, nats", ("log loss",)),
    ("NLL, nats", ("NLL of one Gaussian",)),
    ("Calibration error", ("expected calibration error",)),
    ("90 % intervals cover", ("coverage of 90 % intervals",)),
    (
        "Epistemic rank correlation",
        (
            "rank correlation of the epistemic part with the teacher's",
            "rank correlation of the epistemic part with the reference's",
        ),
    ),
    ("Parameters", ("parameters",)),
    ("Latency of one row", ("predict one row, one thread",)),
]


# Sections in which sizes are compared by their ratio.
_BY_RATIO = ("cost", "latency")

# Columns of X that stand in the table at most; the frame has them all.
_N_COLUMNS = 10

# Inches of a picture, and its pixels per inch: of the picture, and of the page.
_SIZE, _DPI, _PAGE_DPI = (4.6, 3.7), 160, 96

_STYLE = """
.skdistill-report {
  --ink: #1b1f24; --soft: #59636e; --line: #d5dae0; --ground: #ffffff; --card: #f5f7f9;
  --good: #0a6b3d; --bad: #a3320b; --accent: #0072b2;
  color: var(--ink); background: var(--ground); color-scheme: light dark;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif;
  max-width: 62rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; box-sizing: border-box;
  overflow-wrap: break-word; text-align: left;
}
.skdistill-report * { box-sizing: border-box; }
.skdistill-report h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .25rem; }
.skdistill-report h2 {
  font-size: 1.25rem; margin: 2.5rem 0 .25rem; padding-top: 1rem; border-top: 1px solid var(--line);
}
.skdistill-report p { margin: .25rem 0 1rem; max-width: 46rem; }
.skdistill-report .soft, .skdistill-report figcaption { color: var(--soft); }
.skdistill-report .tiles {
  list-style: none; margin: 1.5rem 0 0; padding: 0; display: grid; gap: .75rem;
  grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr));
}
.skdistill-report .tiles li {
  background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .75rem .9rem; margin: 0;
}
.skdistill-report .tiles span { display: block; font-size: .85rem; color: var(--soft); }
.skdistill-report .tiles strong { display: block; font-size: 1.5rem; line-height: 1.3; }
.skdistill-report .scroll { overflow-x: auto; }
.skdistill-report table {
  border-collapse: collapse; width: 100%; font-size: .925rem; margin: 0;
  font-variant-numeric: tabular-nums; background: none;
}
.skdistill-report th, .skdistill-report td {
  padding: .4rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; background: none; vertical-align: baseline;
}
.skdistill-report th:first-child {
  text-align: left; padding-left: 0; white-space: normal; min-width: 11rem;
}
.skdistill-report tbody th { font-weight: 400; }
.skdistill-report thead th { color: var(--soft); font-weight: 600; }
.skdistill-report small { color: var(--soft); font-size: .8rem; }
.skdistill-report th small { display: inline-block; }
.skdistill-report .good { color: var(--good); }
.skdistill-report .bad { color: var(--bad); }
.skdistill-report .pictures {
  display: grid; gap: 1.25rem; margin-top: 1.25rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr));
}
.skdistill-report figure { margin: 0; max-width: 30rem; }
.skdistill-report h3 { font-size: 1rem; margin: 0 0 .5rem; }
.skdistill-report img {
  display: block; width: 100%; height: auto; background: #fff; border-radius: .4rem;
  border: 1px solid var(--line);
}
.skdistill-report figcaption { font-size: .85rem; margin-top: .4rem; }
.skdistill-report dl {
  display: grid; grid-template-columns: minmax(6rem, auto) 1fr; gap: .25rem 1rem; margin: .5rem 0;
}
.skdistill-report dt { color: var(--soft); }
.skdistill-report dd { margin: 0; min-width: 0; }
.skdistill-report footer { font-size: .875rem; }
@media (prefers-color-scheme: dark) {
  .skdistill-report {
    --ink: #e8ebee; --soft: #a3acb6; --line: #3a4149; --ground: #15181c; --card: #1e2328;
    --good: #5fd39b; --bad: #ff9a70; --accent: #56b4e9;
  }
  .skdistill-report img { filter: brightness(.92); }
}
@media print { .skdistill-report section { break-inside: avoid; } }
"""

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
body {{ margin: 0; background: #ffffff; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #15181c; }} }}
</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def page(title: str, body: str) -> str:
    """Return a whole document around the body of a report."""
    return _PAGE.format(title=escape(title), body=body)


def body(
    title: str,
    summary: str,
    facts: dict[str, str],
    measurements: Sequence[Measurement],
    pictures: Sequence[Picture],
    notes: Sequence[str],
) -> str:
    """Return the body of a report, with its style; it can stand in a notebook, too."""
    chapters = "\n".join(
        _chapter(heading, about, sections, measurements, pictures)
        for heading, about, sections in _CHAPTERS
        if any(measurement.section in sections for measurement in measurements)
    )
    said = "".join(f"<li>{escape(note)}</li>" for note in notes)
    tiles = "".join(map(_tile, _tiles(measurements)))
    remarks = f"<section>\n<h2>Remarks</h2>\n<ul>{said}</ul>\n</section>" if notes else ""
    about = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items())
    return f"""\
<style>{_STYLE}</style>
<div class="skdistill-report">
<header>
<h1>{escape(title)}</h1>
<p class="soft">{escape(summary)}</p>
<ul class="tiles">{tiles}</ul>
</header>
{chapters}
{remarks}
<footer>
<h2>About this report</h2>
<p>± is one standard error: how much a number would vary with other rows, by leaving out each
twentieth of them in turn. It does not say how much another fit would change it.</p>
<dl>{about}</dl>
</footer>
</div>"""


def _tiles(measurements: Iterable[Measurement]) -> Iterator[tuple[str, str, str]]:
    """Label, value and what it is beside, of the numbers that matter most."""
    found = {m.quantity: m for m in measurements if "student" in m.values}
    for label, names in _TILES:
        known = [found[name] for name in names if name in found]
        if known:
            yield label, *_value_and_context(known[0])


def _value_and_context(measurement: Measurement) -> tuple[str, str]:
    value, unit = measurement.values["student"], measurement.unit
    text = text_of(value, unit)
    if measurement.section == "fidelity":
        return text, measurement.quantity.partition(" with ")[2].join(["with ", ""])
    if measurement.quantity.startswith("coverage"):
        return f"{value:.1%}".replace("%", " %"), "should be 90 %"
    if "teacher" in measurement.values:
        return text, f"teacher {text_of(measurement.values['teacher'], unit)}"
    error = measurement.errors.get("student")
    return text, "" if error is None else f"± {error:.2g}"


def _tile(tile: tuple[str, str, str]) -> str:
    label, value, beside = map(escape, tile)
    return f"<li><span>{label}</span><strong>{value}</strong><span>{beside}</span></li>"


def _chapter(
    heading: str,
    about: str,
    sections: tuple[str, ...],
    measurements: Iterable[Measurement],
    pictures: Iterable[Picture],
) -> str:
    found = [m for m in measurements if m.section in sections]
    if "where it knows least" in sections:
        found = found[:_N_COLUMNS]
    drawn = "\n".join(_figure(picture) for picture in pictures if picture.section in sections)
    drawn = f'<div class="pictures">\n{drawn}\n</div>' if drawn else ""
    return (
        f"<section>\n<h2>{escape(heading)}</h2>\n<p>{escape(about)}</p>\n"
        f"{_table(heading, found)}\n{drawn}\n</section>"
    )


def _figure(picture: Picture) -> str:
    content = png_of(picture.draw, _SIZE, _DPI, "ModelReport.to_html")
    width, height = (round(inches * _PAGE_DPI) for inches in _SIZE)
    return (
        f"<figure>\n<h3>{escape(picture.title)}</h3>\n"
        f'<img width="{width}" height="{height}" alt="{escape(picture.text)}" '
        f'src="data:image/png;base64,{base64.b64encode(content).decode()}">\n'
        f"<figcaption>{escape(picture.text)}</figcaption>\n</figure>"
    )


def _table(name: str, measurements: list[Measurement]) -> str:
    """Return a table with a row for each measurement and a column for each model."""
    roles = [
        role
        for role in ("student", "teacher", "reference")
        if any(role in measurement.values for measurement in measurements)
    ]
    by_ratio = all(measurement.section in _BY_RATIO for measurement in measurements)
    compares = any(measurement.difference is not None for measurement in measurements)
    compares = compares and measurements[0].section not in ("fidelity", "where it knows least")
    columns = [*roles]
    if compares:
        columns.insert(2, "student / teacher" if by_ratio else "student − teacher")
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in ["", *columns])
    lines = "\n".join(_row(measurement, columns) for measurement in measurements)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}, table">\n'
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{lines}\n</tbody>\n</table>\n</div>"
    )


def _row(measurement: Measurement, columns: list[str]) -> str:
    about = [measurement.unit] if measurement.unit not in ("s", "bytes") else []
    if measurement.better:
        is_side = measurement.better in ("lower", "higher")
        about.append(f"{measurement.better} is better" if is_side else measurement.better)
    about_text = f" <small>{escape(', '.join(filter(None, about)))}</small>" if any(about) else ""
    cells = "".join(f"<td>{_cell(measurement, column)}</td>" for column in columns)
    return f'<tr><th scope="row">{escape(measurement.quantity)}{about_text}</th>{cells}</tr>'


def _cell(measurement: Measurement, column: str) -> str:
    if column == "student / teacher":
        both = measurement.difference is not None and measurement.values["teacher"]
        return f"{measurement.values['student'] / both:.3g}" if both else "–"
    if column == "student − teacher":
        return _difference(measurement)
    if column not in measurement.values:
        return "–"
    text = text_of(measurement.values[column], measurement.unit)
    error = measurement.errors.get(column)
    return text if error is None else f"{text} <small>± {error:.2g}</small>"


def _difference(measurement: Measurement) -> str:
    """Student less teacher; said to be better or worse where it is so beyond chance."""
    difference = measurement.difference
    if difference is None:
        return "–"
    error = measurement.errors.get("difference")
    text = f"{difference:+.2g}".replace("-", "−")
    if error is None:
        return text
    text += f" <small>± {error:.2g}</small>"
    if measurement.better not in ("lower", "higher") or abs(difference) <= 2 * error:
        return text
    is_better = (difference < 0) == (measurement.better == "lower")
    return f'{text} <span class="{"good" if is_better else "bad"}">' + (
        "better</span>" if is_better else "worse</span>"
    )


def text_of(value: float, unit: str = "") -> str:
    """Return a number with three digits; of seconds and bytes with a fitting unit."""
    if unit == "s":
        return f"{1e3 * value:.3g} ms" if value < 1 else f"{value:.3g} s"
    if unit == "bytes":
        return f"{value / 1e3:,.3g} kB" if value < 1e6 else f"{value / 1e6:,.3g} MB"
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return text.replace("-", "−")
