# SPDX-License-Identifier: BSD-3-Clause
"""Pages in a browser: reports, and students in JavaScript.

`make browser` gets a browser, without which they are skipped; SKDISTILL_BROWSER names another.
"""

from __future__ import annotations

import os
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from sklearn.datasets import make_friedman1

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    HydraPlusClassifier,
    HydraPlusRegressor,
    report,
)
from skdistill.datasets import make_spirals

ROOT = Path(__file__).parents[1]
OWN = ROOT / ".venv" / "browser" / "chromium"  # where `make browser` puts it
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
DESK = 1200


def browser_path() -> Path | None:
    """Path of a browser on this machine."""
    named = os.environ.get("SKDISTILL_BROWSER")
    found = [named, str(OWN) if OWN.exists() else None, *map(shutil.which, NAMES)]
    return next((Path(path) for path in found if path), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = browser_path()
    if path is None:
        pytest.skip("there is no Chromium here; `make browser` gets one")
    libraries = path.parent / "lib"  # beside the one of `make browser`
    environment = {"LD_LIBRARY_PATH": str(libraries)} if libraries.is_dir() else {}
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path,
            args=["--no-sandbox"],  # root in a container has none; the pages are our own
            env={**os.environ, **environment},
            timeout=120_000,
        )
        yield browser
        browser.close()


class Visit:
    """A page that was opened, with what it has asked for and complained of."""

    def __init__(self, browser: Any, path: Path, **settings: Any):
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.context = browser.new_context(**settings)
        # What would leave the machine is noted, and does not.
        self.context.route(lambda url: not is_local(url), lambda route: route.abort())
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri() if isinstance(path, Path) else path, wait_until="load")

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    @property
    def requests_elsewhere(self) -> list[str]:
        return [url for url in self.requests if not is_local(url)]

    @property
    def widths(self) -> tuple[int, int]:
        """Of what the page holds, and of the window."""
        found = self.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        return tuple(found)


def is_local(url: str) -> bool:
    return urlsplit(url).scheme in ("file", "data", "blob", "about")


@pytest.fixture
def visit(browser) -> Iterator[Any]:
    """Opens a page, ``visit(path, width)``."""
    contexts = []

    def open_page(path, width=DESK, **settings):
        found = Visit(browser, path, viewport={"width": width, "height": 800}, **settings)
        contexts.append(found.context)
        return found

    yield open_page
    for context in contexts:
        context.close()


# --- the report


@pytest.fixture(scope="module")
def page_of_report(browser, tmp_path_factory) -> Path:
    pytest.importorskip("matplotlib")
    X, y = make_friedman1(160, n_features=5, noise=0.5, random_state=0)
    small = {"max_epochs": 3, "module__hidden_units": (8,), "random_state": 0}
    teacher = BayesianEnsembleRegressor(3, **small)
    student = HydraPlusRegressor(teacher, transfer=None, **small).fit(X[:100], y[:100])
    path = tmp_path_factory.mktemp("report") / "report.html"
    report(student, X[100:], y[100:]).save(path)
    return path


def test_report_asks_for_nothing_and_complains_of_nothing(page_of_report, visit):
    found = visit(page_of_report)
    assert found.complaints == []
    assert {url for url in found.requests if not url.startswith("data:")} == {
        page_of_report.as_uri()
    }


# --- students of the documentation's first page


LIVE = runpy.run_path(str(ROOT / "doc" / "images" / "live_student.py"))

PREDICT = """([student, X]) => {
  const read = liveStudent.read(student);
  return X.map(x => liveStudent.predict(read, x)).map(
    p => [...(p.probabilities ?? [p.mean]), p.total, p.aleatoric, p.epistemic]);
}"""


@pytest.fixture
def page_of_students(tmp_path) -> Path:
    """The part of the first page that has the students, alone."""
    part = (ROOT / "doc" / "live_student.html").read_text(encoding="utf-8")
    path = tmp_path / "live.html"
    path.write_text(
        f'<!DOCTYPE html><html><head><meta charset="utf-8"><base href="{(ROOT / "doc").as_uri()}/">'
        f'<link rel="stylesheet" href="_static/pages.css"></head><body>{part}</body></html>',
        encoding="utf-8",
    )
    return path


def test_students_of_the_first_page_predict_as_in_python(page_of_students, visit):
    """The script that fitted them has written what they predicted, at 25 and 200 samples."""
    expected = np.load(ROOT / "tests" / "live_student.npz")
    assert len(expected["line"]) == len(LIVE["CENTRES"])
    assert expected["line"][..., -1].std(axis=1).min() > 0.1  # the epistemic part varies
    assert expected["plane"][:, -1].std() > 0.1
    page = visit(page_of_students).page
    students = page.evaluate("liveStudentsFitted.line.students")
    found = [page.evaluate(PREDICT, [student, expected["X_line"].tolist()]) for student in students]
    np.testing.assert_allclose(found, expected["line"], rtol=1e-5, atol=1e-5)
    student = page.evaluate("liveStudentsFitted.plane.student")
    found = page.evaluate(PREDICT, [student, expected["X_plane"].tolist()])
    np.testing.assert_allclose(found, expected["plane"], rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module", params=["line", "plane"])
def student_and_samples(request, browser) -> tuple[Any, np.ndarray]:
    small = {"max_epochs": 5, "module__hidden_units": (8, 8), "random_state": 0}
    rng = np.random.default_rng(0)
    if request.param == "plane":
        X, y = make_spirals(60, random_state=0)
        teacher = BayesianEnsembleClassifier(3, **small)
        return HydraPlusClassifier(teacher, **small).fit(X, y), rng.uniform(-14, 14, (200, 2))
    X, y = LIVE["line_samples"](200)
    is_kept = np.abs(X[:, 0]) > 1
    student = HydraPlusRegressor(BayesianEnsembleRegressor(3, **small), **small)
    return student.fit(X[is_kept], y[is_kept]), rng.uniform(-30, 30, (200, 1))


@pytest.mark.filterwarnings("ignore:X is unlike the table of fit")
def test_students_fitted_here_predict_in_a_browser(student_and_samples, page_of_students, visit):
    student, X = student_and_samples
    found = visit(page_of_students).page.evaluate(PREDICT, [LIVE["exported"](student), X.tolist()])
    np.testing.assert_allclose(found, LIVE["predictions"](student, X), rtol=1e-5, atol=1e-5)
