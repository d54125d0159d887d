# SPDX-License-Identifier: BSD-3-Clause
"""What does not grow with the samples, or stays within scikit-learn's ``working_memory``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import ChainMap

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn import config_context
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsClassifier

from skdistill import BDistilBooster
from skdistill.teachers import as_teacher, out_of_fold_members

# The peak of memory is counted anew when a process says so.
MEMORY = """
def mib(name):
    line = next(line for line in open("/proc/self/status") if line.startswith(name))
    return int(line.split()[1]) / 1024

def growth(call):
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = mib("VmRSS")
    call()
    return mib("VmHWM") - before
"""

BOOSTER = """
rng = np.random.default_rng(0)
X = rng.normal(size=(60_000, 10))
params = {"n_rounds": 5, "connection": Connection(connect="always"), "max_epochs": 2}
params |= {"search": WeakLearnerSearch(gamma=0.05), "random_state": 0}
model = BDistilBooster(LinearRegression(), **params).fit(X[:300], X[:300, 0] * X[:300, 1])
calls = {
    "predict": lambda n: model.predict(X[:n]),
    "early exit": lambda n: model.predict(X[:n], early_exit=1e-3),
    "stages": lambda n: sum(stage.sum() for stage in model.staged_predict(X[:n])),
}
for name, call in calls.items():
    call(1000)  # what is imported or set up once
    with config_context(working_memory=8):
        found[name] = growth(lambda: call(len(X)))
"""

STUDENTS = """
X = np.random.default_rng(0).normal(size=(100_000, 20)).astype(np.float32)
y = X[:, 0] * X[:, 1]
params = {"max_epochs": 1, "batch_size": 1000, "random_state": 0}
params["module__hidden_units"] = (20,)
params["runtime"] = Runtime(device="cpu")
teacher = BayesianEnsembleRegressor(40, **params).fit(X[:1000], y[:1000])
student = HydraPlusRegressor(FrozenEstimator(teacher), **params)
for transfer in ("noise", None):
    student.set_params(transfer=transfer)
    student.fit(X[:2000], y[:2000])  # what is imported or set up once
    found[str(transfer)] = growth(lambda: student.fit(X, y))
"""

LOADED = """
X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
for width in (4, 2000):
    settings = {"module__hidden_units": (width, width), "runtime": Runtime(device="cpu")}
    model = BayesianEnsembleRegressor(2, max_epochs=1, **settings)
    skdistill.save(model.fit(X, X[:, 0]), str(width))
del model
skdistill.load("4")  # what is imported or set up once
found["load"] = growth(lambda: skdistill.load("2000"))
found["file"] = os.path.getsize("2000") / 2**20
"""

STREAM = """
class Drawn:
    buffer_rows = 8_000
    def __init__(self, n_batches):
        self.n_batches = n_batches
    def __iter__(self):
        rng = np.random.default_rng(0)
        for _ in range(self.n_batches):
            X = rng.random((10_000, 80), dtype=np.float32)
            yield X, X[:, 0] - X[:, 1]

def fit(n_batches):
    params = {"max_epochs": 1, "batch_size": 4000, "module__hidden_units": (4,)}
    teacher = BayesianEnsembleRegressor(2, random_state=0, **params)
    HydraPlusRegressor(teacher, random_state=0, **params).fit(Drawn(n_batches))

fit(2)
found["stream"] = growth(lambda: fit(40))
"""

# A process that has imported what all of them need, and forks for each of them.
FORKS = """
import json, os, sys, warnings
import numpy as np, torch
from sklearn import config_context
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
import skdistill
from skdistill import BayesianEnsembleRegressor, BDistilBooster, HydraPlusRegressor
from skdistill.settings import Connection, Runtime, WeakLearnerSearch

warnings.simplefilter("ignore")
torch.set_num_threads(1)
for code in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        found = {}
        exec(code)
        print(json.dumps(found), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit("failed: " + code)
"""


@pytest.fixture(scope="module")
def peaks(tmp_path_factory):
    """MiB by which memory grew at most, by what was done."""
    if sys.platform != "linux":
        pytest.skip("reads the peak memory as Linux counts it")
    codes = [MEMORY + code for code in (BOOSTER, STUDENTS, LOADED, STREAM)]
    done = subprocess.run(
        [sys.executable, "-c", FORKS, *codes],
        cwd=tmp_path_factory.mktemp("memory"),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    )
    return dict(ChainMap(*map(json.loads, done.stdout.splitlines())))


@pytest.mark.slow
def test_peak_memory_of_many_rows(peaks, tally):
    found = [peaks[name] for name in ("predict", "early exit", "stages")]
    # X takes 5 MiB, as do the stages; held for all samples, activations and outputs took 170 MiB.
    assert max(found) < 40, found
    tally("peaks of memory", len(found))


@pytest.mark.slow
def test_peak_memory_of_students(peaks, tally):
    # X takes 8 MiB and the answers 31, which are kept where they do not change. Where many were
    # asked for at once, and encoded at once, these were 97 and 143 MiB; where inputs were encoded
    # for many batches at once, 106 and 221.
    assert peaks["noise"] < 3 * 8 + 40, peaks
    assert peaks["None"] < 3 * 8 + 40 + 31, peaks
    tally("peaks of memory", 2)


@pytest.mark.slow
def test_loading_takes_twice_the_size_of_a_file(peaks, tally):
    assert peaks["file"] > 30
    assert peaks["load"] < 2 * peaks["file"] + 4
    tally("peaks of memory", 1)


@pytest.mark.slow
def test_fits_of_streams_do_not_grow_with_the_rows(peaks, tally):
    # The samples would take 128 MB.
    assert peaks["stream"] < 64, peaks
    tally("peaks of memory", 1)


class Counting:
    """Notes how many samples it is asked about at a time."""

    asked: list[int] = []

    def predict(self, X):
        Counting.asked.append(len(X))
        return super().predict(X)

    def predict_proba(self, X):
        Counting.asked.append(len(X))
        return super().predict_proba(X)


class CountingRegression(Counting, LinearRegression):
    pass


class CountingNeighbours(Counting, KNeighborsClassifier):
    pass


@pytest.fixture(params=[CountingRegression, CountingNeighbours])
def asked(request):
    """A teacher, its data, and a function that asks within a small working_memory."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] if request.param is CountingRegression else (X[:, 0] > 0).astype(int)

    def within(call):
        found = {}
        for memory in (1024, 0.0005):  # the latter are answers of at most 32 samples
            Counting.asked = []
            with config_context(working_memory=memory):
                found[memory] = call(), max(Counting.asked)
        return *found[1024], *found[0.0005]

    return request.param, X, y, within


def test_out_of_fold_answers_are_asked_for_in_portions(asked):
    model, X, y, within = asked
    kind = CountingNeighbours if model is CountingNeighbours else CountingRegression
    folds = [(np.arange(10), np.arange(10, 60)), (np.arange(10, 60), np.arange(10))]

    def ask():
        members = out_of_fold_members(as_teacher(kind()), X, y, cv=folds)
        return members[..., 0] if kind is CountingRegression else members

    whole, n_whole, portions, n_portions = within(ask)
    assert_allclose(portions, whole)
    assert n_whole == 50
    assert n_portions < 50


def test_a_booster_asks_its_teacher_in_portions(asked):
    model, X, y, within = asked
    params = {"n_rounds": 1, "max_epochs": 1, "random_state": 0}
    whole, n_whole, portions, n_portions = within(
        lambda: BDistilBooster(as_teacher(model()), **params).fit(X, y).predict_distribution(X).mean
    )
    assert_allclose(portions, whole, rtol=1e-7)
    assert n_whole == 60
    assert n_portions < 60
