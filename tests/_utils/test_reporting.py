# SPDX-License-Identifier: BSD-3-Clause
"""What a fit tells of itself, by lines and by a bar on a terminal; time passes as the tests say."""

from __future__ import annotations

import io
import multiprocessing
import os
import select
import struct
import threading
import warnings
from contextlib import redirect_stdout, suppress
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from skorch.callbacks import Callback
from torch import nn

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    BDistilBooster,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusRegressor,
    SequenceDistributionDistiller,
)
from skdistill._utils import reporting
from skdistill._utils.reporting import as_parts, count_from_now, part, print_line, stage
from skdistill._utils.warnings import warn
from skdistill.pruning import GroupLasso
from skdistill.samplers import SGLD, DeepEnsemble
from skdistill.settings import Runtime
from skdistill.teachers import out_of_fold_members

N_COLUMNS = 100
CLOCK = SimpleNamespace(seconds=0.0)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Seconds since the beginning; the thread of a reporter looks never, the tests do."""
    CLOCK.seconds = 0.0
    monkeypatch.setattr(reporting, "time", SimpleNamespace(monotonic=lambda: CLOCK.seconds))
    monkeypatch.setattr(reporting, "_SECONDS_BETWEEN_LOOKS", 1e6)
    return CLOCK


def current():
    return reporting._CURRENT.get()


class Terminal:
    """What a pseudo-terminal, to which `stream` writes, has got and shows."""

    def __init__(self, descriptor, stream):
        self.descriptor, self.stream, self.text = descriptor, stream, ""

    def read(self):
        while select.select([self.descriptor], [], [], 0)[0]:
            self.text += os.read(self.descriptor, 4096).decode()
        return self.text

    def lines(self):
        """Lines on the screen, each part of which is written over what was there."""
        shown = []
        for line in self.read().split("\n"):
            cells = []
            for written in line.split("\r"):
                cells[: len(written)] = written
            shown.append("".join(cells).rstrip())
        return shown


@pytest.fixture
def terminal(monkeypatch):
    """A terminal as stderr."""
    pty, fcntl, termios = map(pytest.importorskip, ("pty", "fcntl", "termios"))
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, N_COLUMNS, 0, 0))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with os.fdopen(slave, "w", buffering=1, encoding="utf-8") as stream:
        # pytest itself sets sys.stderr between a fixture and its test.
        monkeypatch.setattr(reporting, "sys", SimpleNamespace(stderr=stream))
        yield Terminal(master, stream)
    os.close(master)


# ------------------------------------------------------------------------------------------
# The bar
# ------------------------------------------------------------------------------------------


def test_a_terminal_has_a_bar_after_ten_seconds(clock, terminal):
    with reporting.reporting("Fit", 0), stage("student"), part(1.0, lambda: clock.seconds / 40):
        clock.seconds = 9.9
        current().look()
        assert terminal.read() == ""
        clock.seconds = 10.0
        current().look()
        (line,) = terminal.lines()
        assert line.startswith("Fit: student, 25%, about 30 s left ██")
        clock.seconds = 20.0
        current().look()
        (line,) = terminal.lines()
        assert line.startswith("Fit: student, 50%, about 20 s left ███")
        assert len(line) < N_COLUMNS
    assert terminal.lines() == [""]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_the_bar_is_removed_after_an_error(clock, terminal, error):
    def fail():
        with reporting.reporting("Fit", 0), stage("student"):
            clock.seconds = 12.0
            current().look()
            assert "student, 12 s so far" in terminal.read()
            raise error

    with pytest.raises(error):
        fail()
    assert terminal.lines() == [""]
    assert current() is None


def test_lines_and_warnings_come_above_the_bar(clock, terminal, monkeypatch):
    def show(message, *args):
        terminal.stream.write(f"{message}\n")

    monkeypatch.setattr(warnings, "showwarning", show)
    with redirect_stdout(terminal.stream), warnings.catch_warnings():
        warnings.simplefilter("always")
        with reporting.reporting("Fit", 0), stage("teacher", is_measured=False):
            clock.seconds = 12.0
            current().look()
            with reporting.reporting("Ensemble", 2), stage("members"):
                print_line("a table")
                warn("a warning")
            *above, bar = terminal.lines()
    assert above == ["a table", "a warning", "Ensemble: members: 0.0 s"]
    assert bar == "Fit: teacher, 12 s so far"


def test_what_is_not_measured_has_a_time_and_no_share(clock, terminal):
    with reporting.reporting("Fit", 0), stage("forest", is_measured=False):
        with part(0.5, lambda: 0.5):
            clock.seconds = 130.0
            current().look()
        assert terminal.lines() == ["Fit: forest, 2 min so far"]


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setattr(reporting, "sys", SimpleNamespace(stderr=io.StringIO())),
        lambda patch: patch.setattr(reporting, "sys", SimpleNamespace(stderr=None)),
        lambda patch: patch.setenv("NO_COLOR", "1"),
        lambda patch: patch.setenv("TERM", "dumb"),
        lambda patch: patch.setattr(reporting, "is_forked", lambda: True),
        lambda patch: patch.setattr(multiprocessing, "parent_process", lambda: "parent"),
    ],
)
def test_without_a_terminal_of_its_own_a_silent_fit_has_no_reporter(monkeypatch, terminal, change):
    with reporting.reporting("Fit", 0):
        assert current().has_terminal
    change(monkeypatch)
    with reporting.reporting("Fit", 0):
        assert current() is None


def test_other_threads_than_the_main_one_have_no_bar(terminal):
    found = []

    def fit():
        with reporting.reporting("Fit", 0):
            found.append(current())

    with reporting.reporting("Fit", 0):
        thread = threading.Thread(target=fit)
        thread.start()
        thread.join()
    assert found == [None]


def test_a_thread_looks_until_the_fit_has_ended(monkeypatch, capsys):
    monkeypatch.setattr(reporting, "_SECONDS_BETWEEN_LOOKS", 0.001)
    seen = threading.Event()

    def done():
        seen.set()
        return 0.5

    n_before = threading.active_count()
    with reporting.reporting("Fit", 1), stage("student"), part(1.0, done):
        assert threading.active_count() == n_before + 1
        assert seen.wait(60)
    assert threading.active_count() == n_before


# ------------------------------------------------------------------------------------------
# Lines
# ------------------------------------------------------------------------------------------


def test_a_stage_has_a_line_about_its_time_and_one_at_its_end(clock, capsys):
    with reporting.reporting("Fit", 1):
        with stage("teacher", is_measured=False):
            clock.seconds = 1.9
            current().look()
            assert capsys.readouterr().out == ""
            clock.seconds = 2.0
            current().look()
            current().look()
            assert capsys.readouterr().out == "Fit: teacher ...\n"
        assert capsys.readouterr().out == "Fit: teacher: 2.0 s\n"
        with stage("student"):
            clock.seconds = 3.0  # preparations
            with part(1.0, lambda: (clock.seconds - 3.0) / 20):
                for clock.seconds in (4.9, 5.0, 6.0):
                    current().look()
                assert capsys.readouterr().out == "Fit: student: about 21 s ...\n"
        assert capsys.readouterr().out == "Fit: student: 4.0 s\n"
        with pytest.raises(ValueError), stage("calibration"):  # noqa: PT011 -- any one
            raise ValueError
    assert capsys.readouterr() == ("", "")


def test_only_the_outermost_fit_that_is_asked_to_tells_of_its_stages(capsys):
    for outer, inner in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 2)):
        with (
            reporting.reporting("Student", outer),
            stage("teacher"),
            reporting.reporting("Ensemble", inner),
            stage("members"),
        ):
            pass
        told = ["Student: teacher: 0.0 s"] if outer else ["Ensemble: members: 0.0 s"] * inner
        assert capsys.readouterr().out.splitlines() == told


def test_parts_share_what_is_left(clock):
    with reporting.reporting("Fit", 1), stage("members"):
        found = current().stage
        with part(0.25, lambda: 0.5):
            assert found.share == pytest.approx(0.125)
        assert found.share == pytest.approx(0.25)
        with suppress(ValueError), part(0.5):
            assert found.share == pytest.approx(0.25)
            raise ValueError
        assert found.share == pytest.approx(0.625)
        with part(1.0), part(0.5, lambda: 1.0):
            assert found.share == pytest.approx(0.8125)
        assert found.share == 1.0


@pytest.mark.parametrize("n_items", [3, 4, 5])
def test_items_are_parts_as_many_as_there_are(n_items):
    with reporting.reporting("Fit", 1), stage("folds"):
        shares = [current().stage.share for _ in as_parts(range(4), n_items)]
        assert shares[:3] == pytest.approx([0, 1 / n_items, 2 / n_items])
        assert len(shares) == 4
        assert current().stage.share == 1.0
    assert list(as_parts("abc", 3)) == ["a", "b", "c"]  # without a fit


def test_fits_within_a_stage_are_its_parts():
    with reporting.reporting("Fit", 1), stage("folds"):
        outer, shares = current().stage, []
        for _ in as_parts(range(2), 2):
            with reporting.reporting("Fold", 0), stage("members"):
                for _ in as_parts(range(2), 2):
                    shares.append(outer.share)
        assert shares == pytest.approx([0, 0.25, 0.5, 0.75])


def test_what_is_restored_does_not_count_for_the_time_left(clock):
    with reporting.reporting("Fit", 1), stage("student"):
        found, done = current().stage, SimpleNamespace(share=0.0)
        with part(1.0, lambda: done.share):
            assert found.seconds_left is None
            done.share = 0.6
            count_from_now(is_restored=True)
            assert found.seconds_left is None
            clock.seconds, done.share = 3.0, 0.7
            assert found.seconds_left == pytest.approx(9.0)
            count_from_now()  # further trainings do not begin anew
            assert found.seconds_left == pytest.approx(9.0)


# ------------------------------------------------------------------------------------------
# Fits
# ------------------------------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(40, 3))
Y = X[:, 0] + 0.1 * X[:, 1]
CLASSES = np.where(Y > 0, "up", "down")
SMALL = {"max_epochs": 2, "module__hidden_units": (4,), "random_state": 0}
ENSEMBLE = BayesianEnsembleRegressor(3, **SMALL)
CHAINS = BayesianEnsembleClassifier(3, inference=SGLD(1e-4, burn_in=0), **SMALL)


class TokenModel(nn.Module):
    """Logits of 5 tokens after each one."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Embedding(5, 5)

    def forward(self, target):
        return self.layer(target)


FITS = {
    "ensemble": (ENSEMBLE, Y, ["3 members"]),
    "tuned": (
        BayesianEnsembleRegressor(3, inference=DeepEnsemble(tune="oob"), **SMALL),
        Y,
        ["3 members, tuned"],
    ),
    "blocks": (clone(ENSEMBLE).set_params(runtime=Runtime(member_block=1)), Y, ["3 members"]),
    "chains": (CHAINS, CLASSES, ["Markov chains"]),
    "hydra": (
        HydraPlusRegressor(ENSEMBLE, pruning=GroupLasso(0.01), **SMALL),
        Y,
        ["teacher, 3 members", "transfer samples", "student, 4 epochs"],
    ),
    "folds": (
        HydraPlusRegressor(ENSEMBLE, teacher_cv=2, calibration_fraction=0.3, **SMALL),
        Y,
        [
            "teacher, 3 members",
            "out-of-fold predictions",
            "transfer samples",
            "student, 2 epochs",
            "calibration",
        ],
    ),
    "forest": (
        DistributionDistiller(RandomForestRegressor(3, random_state=0), **SMALL),
        Y,
        ["teacher, RandomForestRegressor", "transfer samples", "student, 2 epochs"],
    ),
    "gped": (
        GPEDDistiller(ENSEMBLE, **SMALL),
        Y,
        ["teacher, 3 members", "transfer samples", "student, 2 epochs"],
    ),
    "gped of chains": (
        GPEDDistiller(CHAINS, module__hidden_units=(4,), random_state=0),
        CLASSES,
        ["Markov chains", "student, 4 epochs"],
    ),
    "booster": (
        BDistilBooster(ENSEMBLE, n_rounds=2, **SMALL),
        Y,
        ["teacher, 3 members", "transfer samples", "booster, 2 rounds"],
    ),
    "sequences": (
        SequenceDistributionDistiller(
            [TokenModel(), TokenModel()], module=TokenModel, max_epochs=2, random_state=0
        ),
        None,
        ["predictions of the teacher", "student, 2 epochs"],
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("model", "y", "stages"), FITS.values(), ids=FITS)
def test_fits_are_silent_unless_asked_and_then_tell_of_their_stages(model, y, stages, capfd):
    data = (X, y) if y is not None else (np.array([[3, 2, 0], [4, 3, 2]]),)
    clone(model).fit(*data)
    assert capfd.readouterr() == ("", "")
    clone(model).set_params(verbose=1).fit(*data)
    name = type(model).__name__
    out, errors = capfd.readouterr()
    assert out.splitlines() == [f"{name}: {stage}: 0.0 s" for stage in stages]
    assert errors == ""


def test_passes_and_streams_tell_of_their_stages(capfd):
    given = FrozenEstimator(clone(ENSEMBLE).fit(X, Y))
    student = HydraPlusRegressor(given, **SMALL)

    class Batches:
        def __iter__(self):
            return iter([(X[:20], Y[:20]), (X[20:], Y[20:])])

    student.partial_fit(X, Y)
    clone(student).fit(Batches())
    assert capfd.readouterr() == ("", "")
    student.set_params(verbose=1)
    student.partial_fit(X, Y)
    clone(student).fit(Batches())
    told = [
        "HydraPlusRegressor: transfer samples: 0.0 s",
        "HydraPlusRegressor: student, 1 epochs: 0.0 s",
        "HydraPlusRegressor: transfer samples: 0.0 s",
        "HydraPlusRegressor: student, 2 epochs: 0.0 s",
    ]
    assert capfd.readouterr().out.splitlines() == told


def test_out_of_fold_predictions_tell_of_their_folds(capfd):
    for verbose, told in ((0, []), (1, ["out_of_fold_members: 2 folds: 0.0 s"])):
        out_of_fold_members(ENSEMBLE, X, Y, cv=2, verbose=verbose)
        assert capfd.readouterr().out.splitlines() == told
    out_of_fold_members(ENSEMBLE, X, Y, cv=2, verbose=2)
    first, second, last = capfd.readouterr().out.splitlines()
    assert first.startswith("cv: fold 1 of 2, ")
    assert second == "cv: fold 2 of 2, 0 s left"
    assert last == "out_of_fold_members: 2 folds: 0.0 s"


class Passing(Callback):
    """Lets four seconds pass in each epoch, and then looks at the fit, of a teacher perhaps."""

    def __init__(self, fails=False):
        self.fails = fails

    def on_epoch_begin(self, net, **kwargs):
        CLOCK.seconds += 4.0

    def on_epoch_end(self, net, **kwargs):
        current().outermost.look()
        if self.fails and CLOCK.seconds > 20:
            raise RuntimeError("no more")


def bars(terminal):
    """What the bar said, each time that it was drawn."""
    drawn = (line.partition("█")[0].rstrip() for line in terminal.read().split("\r"))
    return [line for line in drawn if line]


def test_the_bar_of_a_fit_tells_of_its_teacher_too(terminal):
    own = {**SMALL, "max_epochs": 4, "callbacks": [Passing()]}
    teacher = BayesianEnsembleRegressor(4, runtime=Runtime(member_block=2), **own)
    HydraPlusRegressor(teacher, **own).fit(X, Y)
    assert terminal.lines() == [""]
    of_teacher = [
        f"{share}%, about {left} s left" for share, left in ((38, 20), (50, 16), (62, 12), (75, 8))
    ]
    assert bars(terminal)[:4] == [
        f"HydraPlusRegressor: teacher, 4 members, {x}" for x in of_teacher
    ]
    assert bars(terminal)[-1] == "HydraPlusRegressor: student, 4 epochs, 100%, about 0 s left"


def test_the_first_epoch_which_prepares_does_not_count():
    class Preparing(Callback):
        def on_batch_end(self, net, training=False, **kwargs):
            CLOCK.seconds += 90.0 if len(net.history) == 1 else 3.0

        def on_epoch_end(self, net, **kwargs):
            left.append(current().stage.seconds_left)

    left: list[float | None] = []
    own = {**SMALL, "max_epochs": 4, "batch_size": len(X), "verbose": 1}
    clone(ENSEMBLE).set_params(**own, callbacks=[Preparing()]).fit(X, Y)
    assert left == [None, pytest.approx(6.0), pytest.approx(3.0), pytest.approx(0.0)]


def test_what_comes_before_the_first_epoch_does_not_count():
    class Slow(Callback):
        def initialize(self):
            CLOCK.seconds += 600.0

        def on_batch_end(self, net, **kwargs):
            CLOCK.seconds += 1.0
            left.append(current().stage.seconds_left)

    left: list[float | None] = []
    own = {**SMALL, "max_epochs": 1, "batch_size": 10, "verbose": 1}
    clone(ENSEMBLE).set_params(**own, callbacks=[Slow()]).fit(X, Y)
    assert left == pytest.approx(list(range(len(left) - 1, -1, -1)))
    assert len(left) > 2


def test_the_bar_of_a_fit_that_fails_is_removed(terminal):
    model = clone(ENSEMBLE).set_params(max_epochs=50, callbacks=[Passing(fails=True)])
    with pytest.raises(RuntimeError, match="no more"):
        model.fit(X, Y)
    assert len(bars(terminal)) > 2
    assert terminal.lines() == [""]


def test_a_search_as_a_teacher_is_not_measured(terminal):
    given = clone(ENSEMBLE).set_params(callbacks=[Passing()])
    search = GridSearchCV(given, {"lr": [0.01, 0.02]}, cv=2)
    HydraPlusRegressor(search, **SMALL).fit(X, Y)
    assert bars(terminal)[0] == "HydraPlusRegressor: teacher, GridSearchCV, 12 s so far"
