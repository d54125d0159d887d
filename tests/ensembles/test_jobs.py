# SPDX-License-Identifier: BSD-3-Clause
"""n_jobs: blocks of members as tasks of joblib, to the same model bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch
from joblib.externals.loky.process_executor import TerminatedWorkerError
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression
from skorch.callbacks import Callback

from skdistill import BayesianEnsembleClassifier, BayesianEnsembleRegressor
from skdistill.ensembles import _members
from skdistill.samplers import DeepEnsemble
from skdistill.settings import Checkpoint, EarlyStopping, Runtime
from skdistill.streams import Batches
from skdistill.teachers import MixedModels, as_teacher, out_of_fold_members

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = X @ [1.0, -2.0, 0.5] + 0.1 * RNG.normal(size=60)
SMALL = {
    "n_members": 5,
    "runtime": Runtime(member_block=2, device="cpu"),
    "max_epochs": 4,
    "batch_size": 16,
    "module__hidden_units": (6,),
    "random_state": 0,
}
REGRESSOR = BayesianEnsembleRegressor(**SMALL)
FITS = {
    "plain": REGRESSOR,
    "early stopping": clone(REGRESSOR).set_params(
        inference=DeepEnsemble(early_stopping=EarlyStopping(n_iter_no_change=2)), lr=0.05
    ),
    "bootstrap": clone(REGRESSOR).set_params(inference=DeepEnsemble(bootstrap=True)),
    "dropout": clone(REGRESSOR).set_params(module__dropout=0.2),
    "classes": BayesianEnsembleClassifier(**SMALL, class_weight="balanced"),
}


def fit(name="plain", **params):
    model = clone(FITS[name]).set_params(**params)
    return model.fit(X, np.where(Y > 0, "up", "down") if name == "classes" else Y)


def members(model):
    """Weights of each member."""
    state = {name: value.numpy() for name, value in model.module_.network.state_dict().items()}
    return [{name: value[k] for name, value in state.items()} for k in range(model.n_members_)]


def assert_same(model, expected):
    """Equal bit for bit, but for how long it took."""
    assert len(members(model)) == len(members(expected))
    for found, wanted in zip(members(model), members(expected), strict=True):
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[name], value)
    losses = [
        [(row["train_loss"], row["members"]) for row in m.history_] for m in (model, expected)
    ]
    assert losses[0] == losses[1]
    if hasattr(expected, "best_epochs_"):
        np.testing.assert_array_equal(model.best_epochs_, expected.best_epochs_)


# ------------------------------------------------------------------------------------------
# The same model
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FITS)
def test_threads_train_what_one_job_trains(name):
    with joblib.parallel_config(backend="threading", n_jobs=3):
        model = fit(name)
    assert_same(model, fit(name))
    with joblib.parallel_config(backend="threading"):
        assert_same(fit(name, n_jobs=2), model)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["early stopping", "classes"])
def test_processes_train_what_one_job_trains(name):
    assert_same(fit(name, n_jobs=2), fit(name, n_jobs=1))


def test_processes_read_batches_for_themselves():
    frame = pytest.importorskip("polars").DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y}).lazy()
    batches = Batches(frame, target="y", batch_size=25, buffer_rows=40)
    model = clone(REGRESSOR).set_params(inference=DeepEnsemble(calibrate=None))
    assert_same(clone(model).set_params(n_jobs=2).fit(batches), model.fit(batches))


def test_processes_fit_folds_and_models_of_a_mixed_teacher():
    mixed = MixedModels([LinearRegression(), DummyRegressor()], random_state=0)
    line, settings = as_teacher(LinearRegression()), {"cv": 3, "random_state": 0}
    with joblib.parallel_config(backend="loky", n_jobs=2):
        found, members = clone(mixed).fit(X, Y), out_of_fold_members(line, X, Y, **settings)
    expected = mixed.fit(X, Y)
    np.testing.assert_array_equal(found.weights_, expected.weights_)
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))
    np.testing.assert_array_equal(members, out_of_fold_members(line, X, Y, **settings))


def test_the_order_in_which_members_end_does_not_matter(monkeypatch):
    expected, real = fit(), _members.as_they_end
    backwards = lambda *args: reversed(list(real(*args)))  # noqa: E731 -- one line says it
    monkeypatch.setattr(_members, "as_they_end", backwards)
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert_same(fit(), expected)


class Threads(Callback):
    """Notes torch's threads in a file for each block."""

    def __init__(self, folder):
        self.folder = folder

    def on_train_begin(self, net, **kwargs):
        path = Path(self.folder) / f"{os.getpid()} {threading.get_ident()} {id(net)}"
        path.write_text(str(torch.get_num_threads()))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_job_has_one_thread(n_jobs, tmp_path):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:  # a large step, for which torch would otherwise have two threads
        wide = {"module__hidden_units": (400,), "batch_size": 60, "max_epochs": 1}
        fit(n_jobs=n_jobs, callbacks=[Threads(tmp_path)], **wide)
        assert {path.read_text() for path in tmp_path.iterdir()} == {"1"}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_members_are_added_by_jobs_as_by_one():
    models = []
    for n_jobs in (1, 2):
        model = clone(REGRESSOR).set_params(n_members=2, warm_start=True, n_jobs=n_jobs)
        with joblib.parallel_config(backend="threading"):
            models.append(model.fit(X, Y).set_params(n_members=6).fit(X, Y))
    assert_same(models[1], models[0])
    assert_same(models[1], fit(n_members=6))


# ------------------------------------------------------------------------------------------
# Members that diverge, callbacks, lines
# ------------------------------------------------------------------------------------------


class Counter(Callback):
    """Ends training after two epochs in all."""

    n_epochs = 0

    def on_epoch_end(self, net, **kwargs):
        self.n_epochs += 1
        if self.n_epochs == 2:
            raise KeyboardInterrupt  # how callbacks of skorch end a training


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_each_block_has_a_copy_of_the_callbacks(backend):
    counter = Counter()
    with joblib.parallel_config(backend=backend, n_jobs=2):
        model = fit(callbacks=[counter])
    assert [row["epoch"] for row in model.history_] == [1, 2] * 3
    assert counter.n_epochs == 0


# ------------------------------------------------------------------------------------------
# Interruptions
# ------------------------------------------------------------------------------------------


class Notes(Callback):
    """Writes each epoch of each block into a file."""

    def __init__(self, path):
        self.path = os.fspath(path)

    def on_epoch_end(self, net, **kwargs):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(net.phase + "\n")


class Dies(Notes):
    """Kills the process that trains members 3 and 4, once, when `after` is there."""

    def __init__(self, path, after):
        super().__init__(path)
        self.after = os.fspath(after)

    def on_epoch_end(self, net, **kwargs):
        super().on_epoch_end(net)
        marker = Path(self.path).with_suffix(".died")
        if "members 3 to 4" in net.phase and not marker.exists():
            while not os.path.exists(self.after):
                time.sleep(0.01)
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def numbers_of_members(model):
    return sorted({member for row in model.history_ for member in row["members"]})


@pytest.mark.slow  # joblib starts new processes
def test_a_worker_that_dies_costs_its_block_alone(tmp_path):
    expected, checkpoint, notes = fit(), tmp_path / "checkpoint", tmp_path / "notes"
    # The file is there as soon as the first block has been saved.
    settings = {
        "runtime__checkpoint": checkpoint,
        "callbacks": [Dies(notes, checkpoint)],
        "n_jobs": 2,
    }
    model = clone(REGRESSOR).set_params(**settings)
    with pytest.raises(TerminatedWorkerError) as caught:
        model.fit(X, Y)
    kept = numbers_of_members(model)
    assert kept in ([0, 1], [4], [0, 1, 4])
    assert f"Of 5 members, {len(kept)} had been trained" in caught.value.__notes__[-1]
    for found, number in zip(members(model), kept, strict=True):
        np.testing.assert_array_equal(found["0.weight"], members(expected)[number]["0.weight"])
    before = notes.read_text(encoding="utf-8").splitlines()

    assert_same(model.fit(X, Y), expected)  # goes on
    again = notes.read_text(encoding="utf-8").splitlines()[len(before) :]
    blocks = [("members 1 to 2 of 5", 0), ("members 3 to 4 of 5", 2), ("members 5 to 5 of 5", 4)]
    for phase, number in blocks:
        assert again.count(phase) == (0 if number in kept else 4)
    assert not checkpoint.exists()


class Ended(BaseException):
    """Ends a fit at once, as a kill does."""


class EndsOnce(Notes):
    """Ends the fit in the third epoch of members 3 and 4, once."""

    def on_epoch_end(self, net, **kwargs):
        is_due = "members 3 to 4" in net.phase and len(net.history) == 3
        if is_due and not os.path.exists(self.path):
            super().on_epoch_end(net)
            raise Ended


@pytest.mark.parametrize("n_jobs", [[2, 1], [1, 2]])
def test_a_fit_goes_on_with_another_number_of_jobs(n_jobs, tmp_path):
    saved = {"runtime__checkpoint": Checkpoint(tmp_path / "checkpoint", every="1 epochs")}
    model = clone(REGRESSOR).set_params(**saved, callbacks=[EndsOnce(tmp_path / "notes")])
    with joblib.parallel_config(backend="threading"):
        with pytest.raises(Ended):
            model.set_params(n_jobs=n_jobs[0]).fit(X, Y)
        assert_same(model.set_params(n_jobs=n_jobs[1]).fit(X, Y), fit())


INTERRUPTED = """
import time
import numpy as np
from skorch.callbacks import Callback
from skdistill import BayesianEnsembleRegressor
from skdistill.settings import Runtime

class Slow(Callback):
    def on_epoch_end(self, net, **kwargs):
        if "members 1 to 1" not in net.phase:
            time.sleep(0.3)

X = np.random.default_rng(0).normal(size=(60, 3))
model = BayesianEnsembleRegressor(
    4, runtime=Runtime(member_block=1, device="cpu"), max_epochs=100, n_jobs=2, verbose=2,
    callbacks=[Slow()], random_state=0, module__hidden_units=(6,),
)
try:
    model.fit(X, X[:, 0])
except KeyboardInterrupt as error:
    print(model.n_members_, {m for row in model.history_ for m in row["members"]})
    print(error.__notes__[-1], flush=True)
"""


@pytest.mark.slow  # processes that start processes
def test_ctrl_c_keeps_the_members_that_have_ended():
    command = [sys.executable, "-u", "-c", INTERRUPTED]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as process:
        lines = iter(process.stdout.readline, "")  # the first may tell how long it will take
        assert any(line.startswith("1 of 4 members trained") for line in lines)
        workers = children_of(process.pid)
        process.send_signal(signal.SIGINT)
        lines, errors = process.communicate(timeout=60)
    assert "1 {0}" in lines.splitlines(), errors
    assert "Of 4 members, 1 had been trained" in lines
    assert process.returncode == 0, errors
    deadline = time.monotonic() + 60  # joblib's own processes end when they see that ours has
    while any(map(is_running, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [worker for worker in workers if is_running(worker)]


def children_of(pid):
    """Processes that a process has started, where Linux tells."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return path.read_text().split() if path.exists() else []


def is_running(pid):
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


# ------------------------------------------------------------------------------------------
# Clusters
# ------------------------------------------------------------------------------------------


@pytest.mark.slow  # dask's workers take long to import torch
def test_workers_of_dask_train_what_one_job_trains(dask_client):
    with joblib.parallel_config(backend="dask"):
        assert_same(fit("early stopping"), fit("early stopping", n_jobs=1))


@pytest.mark.slow  # ray takes ten seconds to start, and as long to start its workers
def test_workers_of_ray_train_what_one_job_trains(ray):
    with joblib.parallel_config(backend="ray", n_jobs=2):
        assert_same(fit("early stopping"), fit("early stopping", n_jobs=1))
