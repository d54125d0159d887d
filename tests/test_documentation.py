# SPDX-License-Identifier: BSD-3-Clause
"""What leads to the documentation: links of estimators, addresses, and what a release holds."""

from __future__ import annotations

import ast
import pydoc
import re
import tomllib
from datetime import date
from itertools import chain
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator

import skdistill
import skdistill.decision
import skdistill.teachers
from skdistill._version import DOCUMENTATION, __version__

ROOT = Path(__file__).parents[1]
PACKAGE = Path(skdistill.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# Public estimators, by the page that doc/api.rst makes of them.
PAGES = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (skdistill, skdistill.decision, skdistill.teachers)
    for name in module.__all__
    if isinstance(getattr(module, name), type) and issubclass(getattr(module, name), BaseEstimator)
}


@pytest.mark.parametrize("page", PAGES)
def test_html_representation_links_to_the_page_of_the_class(page):
    """A link of scikit-learn's own would lead to a page of its documentation that is not there."""
    estimator = object.__new__(PAGES[page])
    assert estimator._get_doc_link() == f"{DOCUMENTATION}generated/{page}.html"


def test_addresses_are_those_of_the_metadata():
    assert PROJECT["urls"]["Documentation"] == DOCUMENTATION
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f'repository-code: "{PROJECT["urls"]["Source"]}"' in citation


def test_citation_has_the_version_the_licence_and_all_papers():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {__version__}\n" in citation
    assert f"license: {PROJECT['license']}\n" in citation
    released = re.search(r"^date-released: (.*)$", citation, re.MULTILINE)
    assert released is None or date.fromisoformat(released[1])
    assert citation.count("\n  - type: ") == 6  # the five methods, and the latent factor model
    assert len(set(re.findall(r"^    title: (.*)$", citation, re.MULTILINE))) == 6


def test_conda_recipe_has_the_version_and_what_the_package_needs():
    recipe = (ROOT / "recipe" / "meta.yaml").read_text(encoding="utf-8")
    config = (ROOT / "recipe" / "conda_build_config.yaml").read_text(encoding="utf-8")
    assert re.search(r'set version = "(.*)"', recipe)[1] == __version__
    assert re.search(r'"(.*)"', config)[1] == PROJECT["requires-python"].removeprefix(">=")
    run = re.search(r"^  run:\n((?:    - .*\n)+)", recipe, re.MULTILINE)[1]
    needed = [line.removeprefix("    - ").replace(" ", "") for line in run.splitlines()]
    assert needed[1:] == [name.replace("torch", "pytorch") for name in PROJECT["dependencies"]]
    for address in PROJECT["urls"]["Source"], PROJECT["urls"]["Documentation"]:
        assert address in recipe
    assert f"summary: {PROJECT['description']}\n" in recipe


def test_changelog_begins_with_this_version_and_the_date_of_the_citation():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    first = re.search(r"^## \[(.*?)\](?: - (\S+))?$", changelog, re.MULTILINE).groups()
    if ".dev" in __version__:
        assert first == ("Unreleased", None)
    else:
        released = re.search(r"^date-released: (.*)$", citation, re.MULTILINE)
        assert first == (__version__, released[1])


@pytest.mark.parametrize("library", ["python", "scipy", "sklearn"])
def test_names_that_pages_link_elsewhere_exist_there(library):
    inventories = pytest.importorskip("sphinx.util.inventory")
    content = (ROOT / "doc" / "_inventories" / f"{library}.inv").read_bytes()
    found = inventories.InventoryFile.loads(content, uri="https://example.org").data
    names = [name for kind in found for name in found[kind]]
    assert len(names) > 10
    assert {name for name in names if pydoc.locate(name) is None} <= {"None"}


def test_pages_leave_out_methods_of_the_other_kind():
    """They stand on the class, but no estimator of that kind has them."""
    tree = ast.parse((ROOT / "doc" / "conf.py").read_text(encoding="utf-8"))
    functions = [node for node in tree.body if getattr(node, "name", "") == "lacking"]
    names = {"skdistill": skdistill, "re": re}
    exec(compile(ast.Module(functions, []), "conf.py", "exec"), names)
    of_classes = ["predict_log_proba", "predict_proba"]
    of_numbers = ["predict_interval", "predict_quantiles"]
    for name in ("BayesianEnsemble", "HydraPlus"):
        assert names["lacking"](f"{name}Regressor") == of_classes
        assert names["lacking"](f"{name}Classifier") == of_numbers
    assert names["lacking"]("BDistilBooster") == names["lacking"]("report") == []


def assignments(source):
    """Names and values of a module's assignments, each part of a tuple by itself."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign):
            pairs = [(node.targets[0], node.value)]
            if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(node.targets[0].elts, node.value.elts, strict=True)
            yield from ((ast.unparse(name), ast.unparse(value)) for name, value in pairs)


def test_constants_of_the_design_page_are_those_of_the_code():
    """Terms such as ``NAME = value`` are assigned in the package whose section they stand in."""
    page = (ROOT / "doc" / "design.rst").read_text(encoding="utf-8")
    n_terms = 0
    for section in page.split("\n.. _constants-")[1:]:
        package = re.search(r"^(\w+)\n-+$", section, re.MULTILINE)[1]
        heads = re.findall("^``.*", section, re.MULTILINE)
        terms = re.findall("``([^`]+ = [^`]+)``", "\n".join(heads))
        sources = [path.read_text("utf-8") for path in (PACKAGE / package).rglob("*.py")]
        lacking = set(assignments("\n".join(terms))) - set(chain(*map(assignments, sources)))
        assert not lacking, f"{package}: {lacking}"
        n_terms += len(terms)
    assert n_terms > 50


def test_page_of_the_papers_names_what_is_there():
    page = (ROOT / "doc" / "papers.rst").read_text(encoding="utf-8")
    names = re.findall(r":(?:class|func):`~(.+?)`", page)
    assert [name for name in names if pydoc.locate(name) is None] == []
    files = [f"doc/{name}.rst" for name in re.findall(r":doc:`(.+?)`", page)]
    files += re.findall(r"``((?:benchmarks|tests)/.+?)``", page)
    examples = re.findall(r":ref:`sphx_glr_auto_examples_(.+?)\.py`", page)
    files += [f"examples/{'/plot_'.join(name.split('_plot_'))}.py" for name in examples]
    assert [name for name in files if not (ROOT / name).is_file()] == []
    assert len(names) > 50
    assert len(files) > 30
    rows = re.findall(r"^   \* - .+\n     - (\w+)", page, re.MULTILINE)
    assert len(rows) > 100
    assert set(rows) == {"Here", "Otherwise", "Not"}
