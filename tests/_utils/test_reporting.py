# SPDX-License-Identifier: BSD-3-Clause
"""What a fit tells of itself, by lines and by a bar on a terminal; time passes as the tests say."""

from __future__ import annotations

import os
import select
import struct
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    BDistilBooster,
    GPEDDistiller,
    HydraPlusRegressor,
)
from skdistill._utils import reporting
from skdistill._utils.reporting import part, stage
from skdistill.pruning import GroupLasso
from skdistill.samplers import SGLD, DeepEnsemble

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


# --- The bar ----------------------------------------------------------------------------------


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


# --- Lines ------------------------------------------------------------------------------------


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


# --- Fits -------------------------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(40, 3))
Y = X[:, 0] + 0.1 * X[:, 1]
CLASSES = np.where(Y > 0, "up", "down")
SMALL = {"max_epochs": 2, "module__hidden_units": (4,), "random_state": 0}
ENSEMBLE = BayesianEnsembleRegressor(3, **SMALL)
CHAINS = BayesianEnsembleClassifier(3, inference=SGLD(1e-4, burn_in=0), **SMALL)


FITS = {
    "ensemble": (ENSEMBLE, Y, ["3 members"]),
    "tuned": (
        BayesianEnsembleRegressor(3, inference=DeepEnsemble(tune="oob"), **SMALL),
        Y,
        ["3 members, tuned"],
    ),
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
