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


def test_every_command_writes_the_file_of_its_name(report):
    assert report.command_of("uci") == "uci.py --jobs 2"
    output = "--output benchmarks/results/gped_small.json"
    assert report.command_of("gped_small") == f"gped.py --parts small {output}"


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


def test_files_tell_with_which_defaults_they_were_measured(defaults, monkeypatch):
    now = defaults.defaults()
    assert {"version", "HydraPlusRegressor", "transfer"} <= set(now)
    assert defaults.changed({"defaults": now}) == []
    assert defaults.changed({"defaults": now | {"transfer": "0"}}) == ["transfer"]
    assert defaults.changed({}) == list(now)  # a file that does not say is older
    # one default more or another value, and the digest is another one
    monkeypatch.setattr(defaults.skdistill, "__version__", "9.9")
    monkeypatch.setattr(defaults.skdistill.HydraPlusRegressor, "__init__", lambda self, lr=1: None)
    networks = {"classifier": {"hidden_units": (7,)}}
    monkeypatch.setattr(defaults.skdistill.HydraPlusClassifier, "_module_defaults", networks)
    defaults.defaults.cache_clear()
    changed = ["version", "HydraPlusClassifier", "HydraPlusRegressor"]
    assert sorted(defaults.changed({"defaults": now})) == sorted(changed)
    defaults.defaults.cache_clear()


def test_a_file_rests_on_the_defaults_that_its_script_uses(defaults):
    of_chains = set(defaults.defaults_of_script("sgld.py"))
    assert {"version", "settings"} <= of_chains
    assert not {"GPEDDistiller", "HydraPlusRegressor"} & of_chains
    # suite.py takes what it compares from other scripts
    assert {"BayesianEnsembleClassifier", "HydraPlusRegressor"} <= defaults.depends_on("suite.py")
    # defaults of what is not used may change
    found = {"defaults": defaults.defaults_of_script("sgld.py")}
    assert defaults.changed(found) == []


def test_rules_of_an_estimator_are_those_of_the_modules_that_it_uses(defaults):
    of_gped = defaults.modules_used_by(defaults.skdistill.GPEDDistiller)
    of_ensemble = defaults.modules_used_by(defaults.skdistill.BayesianEnsembleRegressor)
    folders = {"ensembles", "distillers"}
    assert {path.parent.name for path in of_gped} >= {"gped", "ensembles"}
    assert not any("hydra" in path.parts for path in of_gped)
    assert {folder for path in of_ensemble for folder in folders & {*path.parts}} == {"ensembles"}


def test_rules_are_the_numbers_of_a_module(defaults, tmp_path):
    path = tmp_path / "module.py"
    path.write_text("""
_EPOCHS: dict[str, int] = {"regressor": 100}
_NOISE = Noise(correlated=True)
_NAMES = ("a", "b")
_CHUNK_BYTES = 2**20
_PARAMETERS = {"n_members": Number(1)}
def f(): _HIDDEN = 3
lower = 4
""")
    assert list(defaults.constants(path)) == [
        "_EPOCHS = {'regressor': 100}",
        "_NOISE = Noise(correlated=True)",
    ]


@pytest.fixture
def run(report, monkeypatch, tmp_path):
    """The script that measures again, with scripts and results of this test's."""
    run = importlib.import_module("run")
    for name in ("FOLDER", "LOGS", "RESULTS"):
        monkeypatch.setattr(run, name, tmp_path)
    monkeypatch.setattr(run, "SECONDS_BETWEEN_LOOKS", 0.01)
    writes = "import sys; open('{}/{}.json', 'w').write(sys.argv[1]); {}"
    for name, end in {"good": "", "bad": "1 / 0", "long": "import time; time.sleep(99)"}.items():
        (tmp_path / f"{name}.py").write_text(writes.format(tmp_path, name, end))
        (tmp_path / f"{name}.json").write_text('{"minutes": 1}')
    commands = {name: f"{name}.py 'new {name}'" for name in ("good", "bad", "long")}
    monkeypatch.setattr(report, "COMMANDS", commands)
    monkeypatch.setattr(run, "minutes_of", {"good": 2.0, "bad": None, "long": 1.0}.get)
    return run


def test_what_is_older_is_measured_again_cheapest_first(run, report, monkeypatch):
    monkeypatch.setattr(report, "is_older", lambda name: name != "good")
    assert run.wanted([], also_todays=False) == ["long", "bad"]
    assert run.wanted([], also_todays=True) == ["long", "good", "bad"]
    assert run.wanted(["good"], also_todays=False) == []


def test_what_fails_or_is_stopped_leaves_its_file(run, tmp_path):
    def content(name):
        return (tmp_path / f"{name}.json").read_text()

    assert run.measure("good", float("inf")) == "measured"
    assert content("good") == "new good"
    assert run.measure("bad", float("inf")).startswith("failed, see ")
    assert content("bad") == '{"minutes": 1}'
    assert "ZeroDivisionError" in (tmp_path / "bad.log").read_text()
    assert run.measure("long", 0).startswith("stopped, see ")
    assert content("long") == '{"minutes": 1}'
    run.report.COMMANDS["bad"] = "bad.py new --resume"
    assert run.measure("bad", float("inf")).startswith("failed")
    assert content("bad") == "new"  # from which it goes on


def test_a_bar_says_how_long_a_script_will_take(run):
    assert run.bar(1, 4, 8) == "[##......]   1.0 of about 4.0 min"
    assert run.bar(9, 4, 8) == "[########]   9.0 of about 4.0 min"
    assert run.bar(9, None) == "  9.0 min"


def test_a_resumed_file_replaces_what_is_older_and_keeps_models_of_others(defaults):
    rows = [{"model": "ours", "nll": 1}, {"model": "gp", "nll": 2}]
    today = {"defaults": defaults.defaults(), "results": rows}
    assert defaults.kept(today, {"ours"}) == rows
    kept = defaults.kept({"results": rows}, {"ours"})
    assert kept == [{"model": "ours", "nll": 1, "older": True}, rows[1]]
    assert all("older" in row for row in defaults.kept({"results": rows}))
    # one that is older does not make others so
    mixed = [*kept, {"model": "ours", "nll": 4}]
    assert defaults.kept(today | {"results": mixed}, {"ours"}) == mixed
    # as long as one of them is left, the file is older, whatever wrote it
    assert defaults.changed(today | {"results": kept})
    new = defaults.replaced(kept, [{"model": "ours", "nll": 3}], lambda row: row["model"])
    assert new == [rows[1], {"model": "ours", "nll": 3}]
    assert not defaults.changed(today | {"results": new})


def test_pages_say_which_files_are_older(report, defaults, monkeypatch):
    found = {name: {"defaults": defaults.defaults()} for name in report.COMMANDS}
    monkeypatch.setattr(report, "read", found.__getitem__)
    assert report.older() == "All were measured with today's defaults."
    found["uci"] = found["gped_cnn"] = {}
    text = "Measured with older defaults, and to be run again: ``gped_cnn``, ``uci``."
    assert report.older() == text
    monkeypatch.undo()
    report.older("highlights")
    assert {"uci", "suite", "hydra", "engine"} < set(report.READ)
    assert "amounts" not in report.READ


def test_a_claim_is_older_by_the_rows_that_it_rests_on(report, defaults, pages, monkeypatch):
    rows = [{"model": "mixed", "nll": 1}, {"model": "student", "nll": 2, "older": True}]
    found = {"defaults": defaults.defaults(), "results": rows}
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


def test_values_at_paths(pages):
    found = {"nll": 1.0, "test": {"tv": 2.0}}
    assert pages.pick(found, "nll test.tv left_out.tv") == [1.0, 2.0, None]
