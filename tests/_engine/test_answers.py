# SPDX-License-Identifier: BSD-3-Clause
"""A teacher's answers are the same in memory, in a file, and asked for again."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import config_context
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator

from skdistill import HydraPlusRegressor
from skdistill._engine import AnswersOnFile, DistillationRows, _answers, _rows

N_ROWS = 500
LITTLE = 0.003  # MiB: the answers take 16 kB

is_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


class Teacher:
    """Answers (n, 2, 3) to samples (n, 2); counts the samples, and may fail after some."""

    def __init__(self, fails_after=None, error=None):
        self.n_asked, self.fails_after, self.error = 0, fails_after, error

    def __call__(self, X):
        self.n_asked += len(X)
        if self.fails_after is not None and self.n_asked > self.fails_after:
            raise self.error
        return np.stack([X @ np.ones((2, 3)), np.square(X) @ np.ones((2, 3))], axis=1)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The temporary folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def open_files() -> list[str]:
    """Files of no name that this process holds, those of the answers among them."""
    gc.collect()
    links = (os.path.realpath(link) for link in Path("/proc/self/fd").iterdir())
    return [link for link in links if "skdistill-" in link or "(deleted)" in link]


def rows_of(teacher, dtype=torch.float32, **settings):
    X = torch.randn(N_ROWS, 2, dtype=dtype, generator=torch.Generator().manual_seed(0))
    return DistillationRows(X, (), None, 7, (1,), teacher=teacher, **settings)


def epochs(rows, n=2):
    """Inputs and answers of some epochs, in the order in which they are dealt."""
    return [
        torch.cat([torch.cat([X[0], answers[0].flatten(1)], 1) for X, ((answers,), _) in rows])
        for _ in range(n)
    ]


def dev_full(**settings):
    """A file on a disk that is full, as Linux has it for tests."""
    return open("/dev/full", "wb", buffering=0)


def no_space(monkeypatch):
    usage = type("Usage", (), {"free": 0})
    monkeypatch.setattr(_answers.shutil, "disk_usage", lambda path: usage)


def full_while_writing(monkeypatch):
    monkeypatch.setattr(_answers.tempfile, "TemporaryFile", dev_full)


def no_folder(monkeypatch):
    def refuse(**settings):
        raise PermissionError("read-only")

    monkeypatch.setattr(_answers.tempfile, "TemporaryFile", refuse)


FAILURES = {"no space": no_space, "no folder": no_folder}
if sys.platform == "linux":
    FAILURES["full while writing"] = full_while_writing


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_answers_are_the_same_wherever_they_are(dtype, folder, monkeypatch):
    in_memory = epochs(rows_of(Teacher(), dtype))
    with config_context(working_memory=LITTLE):
        teacher = Teacher()
        rows = rows_of(teacher, dtype)
        assert teacher.n_asked == N_ROWS + 1  # one tells how large an answer is
        found = epochs(rows)
        assert teacher.n_asked == N_ROWS + 1
        assert rows.predictions.dtype == dtype
        monkeypatch.setattr(_rows, "fits_twice", lambda n_bytes: False)
        teacher = Teacher()
        again = epochs(rows_of(teacher, dtype))
        assert teacher.n_asked == 2 * N_ROWS + 1
    for expected, on_file, asked in zip(in_memory, found, again, strict=True):
        assert torch.equal(on_file, expected)
        assert torch.equal(asked, expected)


@pytest.mark.parametrize("failure", FAILURES)
def test_a_full_disk_warns_and_the_teacher_is_asked_again(failure, monkeypatch):
    expected = epochs(rows_of(Teacher()))
    FAILURES[failure](monkeypatch)
    teacher = Teacher()
    with config_context(working_memory=LITTLE):
        with pytest.warns(UserWarning, match="cannot be kept in a file of the temporary folder"):
            rows = rows_of(teacher)
        before = teacher.n_asked
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = epochs(rows)
    assert teacher.n_asked == before + 2 * N_ROWS
    assert all(map(torch.equal, found, expected))


@pytest.mark.slow
@is_linux
def test_the_file_has_no_name_and_ends_with_the_rows(folder):
    before = open_files()
    with config_context(working_memory=LITTLE):
        rows = rows_of(Teacher())
        epochs(rows, 1)
        assert not list(folder.iterdir())
        assert len(open_files()) > len(before)
        del rows
        assert open_files() == before
        for error in (KeyboardInterrupt(), RuntimeError("broken")):
            with pytest.raises(type(error)):
                rows_of(Teacher(N_ROWS // 2, error))
            error.__traceback__ = None  # it holds what was on the way
            assert open_files() == before
    assert not list(folder.iterdir())


def test_only_rows_that_were_seen_before_are_known():
    X = torch.arange(60.0).reshape(30, 2)
    kept = AnswersOnFile(20)
    asked = []

    def ask(rows):
        asked.append(len(rows))
        return rows.sum(1, keepdim=True)

    for part in (X[:10], X[10:20], X[:10], X[10:20].clone()):
        assert torch.equal(kept.of(part, ask, 4), part.sum(1, keepdim=True))
    assert asked == [4, 4, 2, 4, 4, 2]
    assert kept.of(X[5:15], ask, 4) is None  # other samples, when 20 are kept
    assert kept.of(X[20:], ask, 4) is None
    assert asked == [4, 4, 2, 4, 4, 2]


# ------------------------------------------------------------------------------------------
# Students
# ------------------------------------------------------------------------------------------


class Stream:
    """Batches of a table; every reading may begin with another batch."""

    buffer_rows = 128

    def __init__(self, X, y, turns=False):
        self.X, self.y, self.turns, self.n_passes = X, y, turns, 0

    def __iter__(self):
        starts = np.arange(0, len(self.X), 128)
        for start in np.roll(starts, self.turns * self.n_passes):
            rows = slice(start, start + 128)
            yield self.X[rows], self.y[rows]
        self.n_passes += 1


@pytest.fixture
def forest(monkeypatch):
    """A table of 512 samples, a fitted forest, and the numbers of samples of its calls."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(512, 3)).astype(np.float32)
    y = X[:, 0] - X[:, 1]
    model = RandomForestRegressor(4, min_samples_leaf=5, random_state=0).fit(X, y)
    asked: list[int] = []
    original = RandomForestRegressor.apply

    def apply(self, X):
        asked.append(len(X))
        return original(self, X)

    monkeypatch.setattr(RandomForestRegressor, "apply", apply)
    return X, y, FrozenEstimator(model), asked


def student(teacher):
    settings = {"max_epochs": 4, "batch_size": 32, "module__hidden_units": (8,), "random_state": 0}
    return HydraPlusRegressor(teacher, transfer=None, **settings)


@pytest.mark.slow
def test_students_of_a_stream_ask_once_while_its_order_stays(forest, monkeypatch):
    X, y, teacher, asked = forest

    def fitted(turns):
        asked.clear()
        model = student(teacher).fit(Stream(X, y, turns))
        return model, sum(asked)

    on_file, n_asked = fitted(False)
    turning, n_of_turning = fitted(True)
    monkeypatch.setattr(_answers.AnswersOnFile, "of", lambda self, X, ask, size: None)
    asked_again, n_asked_again = fitted(False)
    turning_again, n_of_turning_again = fitted(True)
    assert n_asked_again - n_asked == 3 * 512  # of four epochs
    assert n_asked_again == n_of_turning_again
    assert n_of_turning == n_asked  # its stretches are the same ones, in another order
    for one, other in ((on_file, asked_again), (turning, turning_again)):
        np.testing.assert_array_equal(one.predict(X), other.predict(X))
