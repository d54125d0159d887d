# SPDX-License-Identifier: BSD-3-Clause
"""README and the pages of measurements say what the files in benchmarks/results/ hold."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
PAGES = sorted((ROOT / "doc" / "measured").glob("*.rst"))
FRONT = [
    ROOT / "README.md",
    ROOT / "doc" / "which_student.rst",
    ROOT / "doc" / "user_guide" / "decisions.rst",
]
RESULTS = {path.stem for path in (BENCHMARKS / "results").glob("*.json")}


@pytest.fixture
def report(monkeypatch):
    """The script that writes the pages."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("report")


@pytest.fixture
def pages(report):
    """What fills pages."""
    return importlib.import_module("_pages")


def calls(pages, page: Path) -> list[list[str]]:
    """Names and arguments of a page's blocks."""
    found = pages.BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [block["call"].split() for block in found]


@pytest.mark.parametrize("page", [*FRONT, *PAGES], ids=lambda page: page.stem)
def test_page_and_files_agree(report, pages, page):
    text = page.read_text(encoding="utf-8")
    assert pages.filled(page) == text, "run `make measured`"
    # a misspelt comment would hide a block from BLOCK, and nothing would be held
    n_comments = len(re.findall(r"^(?:\.\.|<!--) ?measured", text, re.MULTILINE))
    assert len(calls(pages, page)) == n_comments


def test_all_pages_are_written_and_all_tables_used(report, pages):
    assert set(report.PAGES) == {*FRONT, *PAGES}
    used = {name for page in report.PAGES for name, *_ in calls(pages, page)}
    assert used == set(pages.FUNCTIONS)


def test_every_results_file_is_on_a_page_and_none_is_of_a_quick_run(report, pages):
    sources = {call[1] for page in PAGES for call in calls(pages, page) if call[0] == "source"}
    assert sources == RESULTS == set(report.COMMANDS)
    for name in RESULTS:
        found = pages.stored(name)
        assert str(found.get("quick", found.get("settings", {}).get("quick", False))) == "False"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_names_the_source_of_each_of_its_tables(report, pages, page):
    pages.READ.clear()
    pages.filled(page)
    assert {call[1] for call in calls(pages, page) if call[0] == "source"} == set(pages.READ)


def test_scripts_that_are_named_exist(report):
    commands = [command.split()[0] for command in report.COMMANDS.values()]
    texts = [page.read_text(encoding="utf-8") for page in ROOT.glob("doc/*/*.rst")]
    named = re.findall(r"benchmarks/(\w+\.py)", "".join(texts))
    assert named
    missing = {name for name in {*commands, *named} if not (BENCHMARKS / name).exists()}
    assert not missing


def test_stale_numbers_are_replaced_and_prose_is_kept(pages, tmp_path, monkeypatch):
    made = pages.table("set | NLL:.2f | parameters:,", [["a", 1.234, 5000], ["b", None, "**7**"]])
    monkeypatch.setitem(pages.FUNCTIONS, "made", lambda: made)
    page = tmp_path / "page.rst"
    page.write_text("Before 9.99\n\n.. measured: made\n\n9.99\n\n.. end\n\nAfter 9.99\n")
    assert pages.filled(page).splitlines() == [
        *("Before 9.99", "", ".. measured: made", ""),
        "===  ====  ==========",
        "set  NLL   parameters",
        "===  ====  ==========",
        "a    1.23  5,000",
        "b          **7**",
        "===  ====  ==========",
        *("", ".. end", "", "After 9.99"),
    ]
    readme = tmp_path / "README.md"
    readme.write_text("<!-- measured: made -->\n<!-- end -->\n")
    assert pages.filled(readme).splitlines() == [
        *("<!-- measured: made -->", ""),
        "| set | NLL | parameters |",
        "| --- | --- | --- |",
        "| a | 1.23 | 5,000 |",
        "| b |  | **7** |",
        *("", "<!-- end -->"),
    ]


@pytest.fixture
def defaults(report):
    """What tells older results from those of today."""
    return importlib.import_module("_defaults")


def test_results_are_older_when_defaults_or_what_they_lead_to_have_changed(defaults, monkeypatch):
    then = defaults.defaults_of_script("hydra.py")
    assert {"HydraPlusClassifier", "hydra classes", "hydra log_loss", "teacher nll"} < set(then)
    assert not any(name.startswith(("gped", "booster")) for name in then)
    assert set(defaults.defaults_of_script("many_classes.py")) == set()
    chains = [name for name in defaults.defaults_of_script("gped.py") if " " in name]
    assert chains
    assert all(name.startswith(("ensemble sgld", "gped online")) for name in chains)

    def changed(**now):
        return defaults.changed({"defaults": {**then, **now}})

    assert changed() == []
    assert defaults.changed({}) == ["all"]
    name = "hydra classes"
    assert changed(**{name: then[name] + 1e-4}) == []  # other processors round otherwise
    assert changed(**{name: then[name] + 1e-2}) == [name]
    parameters = then["HydraPlusClassifier"]
    assert changed(HydraPlusClassifier={**parameters, "lr": "99"}) == ["HydraPlusClassifier"]
    gone = {**parameters, "of_then": "1"}  # a parameter that is no more tells nothing
    assert changed(HydraPlusClassifier=gone) == changed(**{"hydra of then": 3.0}) == []


def test_rows_that_were_measured_again_take_the_place_of_older_ones(defaults):
    rows = [{"model": "teacher", "nll": 1}, {"model": "GP", "nll": 2}]
    kept = defaults.kept({"results": rows}, ("teacher",))
    assert kept == [{"model": "teacher", "nll": 1, "older": True}, rows[1]]
    new = [{"model": "teacher", "nll": 3}]
    assert defaults.replaced(kept, new, lambda row: row["model"]) == [rows[1], *new]


def test_pages_say_which_files_are_older(report, defaults, monkeypatch):
    found = {name: {"defaults": {}} for name in report.COMMANDS}
    monkeypatch.setattr(report, "read", found.__getitem__)
    assert report.older() == "All were measured with today's defaults."
    found["uci"] = found["gped_share"] = {}
    text = "Measured with older defaults, and to be run again: ``gped_share``, ``uci``."
    assert report.older() == text
    monkeypatch.undo()
    report.older("what_to_do")
    assert {"active", "conformal", "decisions", "drift"} <= set(report.READ)
    assert "uci" not in report.READ


def test_a_claim_is_older_by_the_rows_that_it_rests_on(report, defaults, pages, monkeypatch):
    rows = [{"model": "mixed", "nll": 1}, {"model": "student", "nll": 2, "older": True}]
    found = {"defaults": {}, "results": rows}
    monkeypatch.setattr(pages, "read", {"suite": found}.__getitem__)

    def claim(*models):
        monkeypatch.setitem(report.FUNCTIONS, "claim", lambda: pages.stored("suite", *models))
        return report.older("claim")

    text = "Measured with older defaults, and to be run again: ``suite``."
    assert claim() == claim({"student", "mixed"}) == text
    assert claim({"mixed"}) == "All were measured with today's defaults."
    assert pages.stored("suite", {"mixed"})["results"] == rows[:1]


def test_missed_targets_are_bold_and_ratios_are_at_least_one_without_a_target(pages):
    assert pages.marked(0.5, ".1f", False) == "**0.5**"
    assert pages.marked(0.5, ".1f", True) == pages.marked(0.5, ".1f", None) == "0.5"
    row = {"ratio": 0.25, "measure": "times as fast", "target": None, "reached": None}
    assert pages.relation(row) == "4 times as long"
    assert pages.relation({**row, "target": 1, "reached": False}) == "**0.25** times as fast"
