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
