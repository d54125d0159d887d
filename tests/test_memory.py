# SPDX-License-Identifier: BSD-3-Clause
"""What does not grow with the rows, or stays within scikit-learn's ``working_memory``."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn import config_context
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsClassifier

from skdistill import BayesianEnsembleRegressor, BDistilBooster, save
from skdistill.settings import Runtime
from skdistill.teachers import as_teacher, out_of_fold_members

PEAKS = """
import resource, warnings
import numpy as np, torch
from sklearn import config_context
from sklearn.linear_model import LinearRegression
from skdistill import BDistilBooster
from skdistill.settings import Connection, WeakLearnerSearch

warnings.simplefilter("ignore")
torch.set_num_threads(1)
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

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

for name, call in calls.items():
    call(1000)  # what is imported or set up once
    before = peak()
    with config_context(working_memory=8):
        call(len(X))
    print(name, peak() - before, sep=":")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory as Linux counts it")
def test_peak_memory_of_many_rows(tally):
    done = subprocess.run(
        [sys.executable, "-c", PEAKS], check=True, capture_output=True, text=True, timeout=300
    )
    peaks = dict(line.split(":") for line in done.stdout.splitlines())
    assert len(peaks) == 3
    # X takes 5 MiB, as do the stages; held for all rows, activations and outputs took 170 MiB.
    assert max(map(float, peaks.values())) < 40, peaks
    tally("peaks of memory", len(peaks))


STUDENTS = """
import sys, warnings
import numpy as np, torch
from sklearn.frozen import FrozenEstimator
from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
from skdistill.settings import Runtime

warnings.simplefilter("ignore")
torch.set_num_threads(1)
X = np.random.default_rng(0).normal(size=(100_000, 20)).astype(np.float32)
y = X[:, 0] * X[:, 1]
params = {"max_epochs": 1, "batch_size": 1000, "random_state": 0}
params["module__hidden_units"] = (20,)
params["runtime"] = Runtime(device="cpu")
teacher = BayesianEnsembleRegressor(40, **params).fit(X[:1000], y[:1000])
student = HydraPlusRegressor(FrozenEstimator(teacher), **params)

def mib(name):
    line = next(line for line in open("/proc/self/status") if line.startswith(name))
    return int(line.split()[1]) / 1024

for transfer in ("noise", None):
    student.set_params(transfer=transfer)
    student.fit(X[:2000], y[:2000])  # what is imported or set up once
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak is counted anew from here on
    before = mib("VmRSS")
    student.fit(X, y)
    print(transfer, mib("VmHWM") - before, sep=":")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory as Linux counts it")
def test_peak_memory_of_students(tally):
    done = subprocess.run(
        [sys.executable, "-c", STUDENTS], check=True, capture_output=True, text=True, timeout=300
    )
    peaks = {name: float(peak) for name, peak in map(lambda s: s.split(":"), done.stdout.split())}
    # X takes 8 MiB and the answers 31, which are kept where they do not change. Where many were
    # asked for at once, and encoded at once, these were 97 and 143 MiB; where inputs were encoded
    # for many batches at once, 106 and 221.
    assert peaks["noise"] < 3 * 8 + 40, peaks
    assert peaks["None"] < 3 * 8 + 40 + 31, peaks
    tally("peaks of memory", len(peaks))


LOADED = """
import os, sys
import skdistill

def mib(name):
    line = next(line for line in open("/proc/self/status") if line.startswith(name))
    return int(line.split()[1]) / 1024

skdistill.load(f"{sys.argv[1]}/4")  # what is imported or set up once
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak is counted anew from here on
before = mib("VmRSS")
model = skdistill.load(f"{sys.argv[1]}/2000")
print(mib("VmHWM") - before, os.path.getsize(f"{sys.argv[1]}/2000") / 2**20)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory as Linux counts it")
def test_loading_takes_twice_the_size_of_a_file(tmp_path, tally):
    X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    for width in (4, 2000):
        settings = {"module__hidden_units": (width, width), "runtime": Runtime(device="cpu")}
        model = BayesianEnsembleRegressor(2, max_epochs=1, **settings)
        save(model.fit(X, X[:, 0]), tmp_path / str(width))
    command = [sys.executable, "-c", LOADED, str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, timeout=300)
    peak, size = map(float, done.stdout.split())
    assert size > 30
    assert peak < 2 * size + 4
    tally("peaks of memory", 1)


class Counting:
    """Notes how many rows it is asked about at a time."""

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
        for memory in (1024, 0.0005):  # the latter are answers of at most 32 rows
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
