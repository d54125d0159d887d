# SPDX-License-Identifier: BSD-3-Clause
"""What every test shares: one thread, one seed, no window, and the folder of real data."""

from __future__ import annotations

import functools
import gc
import importlib.util
import logging
import os
import runpy
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Read when numpy, scipy and matplotlib are first imported, hence before anything else; the same as
# in the Makefile, so that a bare `pytest` runs what `make test` runs.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("SCIPY_ARRAY_API", "1")  # without it scikit-learn leaves out a few checks
os.environ["MPLBACKEND"] = "Agg"

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, settings
from sklearn.datasets import make_regression

from skdistill._training.trainer import Training

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


def _flip_last_bits(draw: Callable[..., torch.Tensor], bits: int) -> Callable[..., torch.Tensor]:
    """`draw` of ``torch.nn.init``, the last bits of whose numbers are then flipped."""

    def drawn(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        with torch.no_grad():
            integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.itemsize]
            draw(tensor, *args, **kwargs).view(integers).bitwise_xor_(bits)
        return tensor

    return drawn


# SKDISTILL_PERTURB=1, 2 or 3 starts every training one rounding away from where it would start, and
# so gives the roundings of another processor: what then fails held by luck.
if _BITS := int(os.environ.get("SKDISTILL_PERTURB", "0")):
    for _name in ("uniform_", "normal_"):
        setattr(torch.nn.init, _name, _flip_last_bits(getattr(torch.nn.init, _name), _BITS))

# `make test` tries the same few cases each time, and does not look for smaller ones that fail too;
# `make fuzz` tries thirteen times as many, other ones each time, and does. What is slow is a model
# that is fitted first; of fixtures, cases share what stays the same.
_OF_ALL = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}
settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    max_examples=3,
    phases=[Phase.explicit, Phase.generate],
    **_OF_ALL,
)
settings.register_profile("fuzz", max_examples=40, print_blob=True, **_OF_ALL)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

_TALLY = "cases tried"


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Give what draws from the global generators, such as ``random_state=None``, one seed."""
    np.random.seed(0)  # noqa: NPY002 -- what random_state=None stands for
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt, in the background of a shell and under nohup too.

    There it is ignored, Python installs no handler, and the processes of tests inherit that.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def tally(record_property) -> Callable[[str, int], None]:
    """Count cases that a test has tried, ``tally("damaged files", 20)``; the run's end prints sums.

    What is recorded travels with a test's report, so that the workers of pytest-xdist are counted.
    """

    def add(what: str, n_cases: int = 1) -> None:
        record_property(_TALLY, (what, n_cases))

    return add


@pytest.fixture(scope="session")
def translations_read_once() -> Iterator[None]:
    """Keep what torch reads anew from the source of onnxscript for each graph, in .4 s of 2."""
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("onnxscript"):
            module = importlib.import_module("torch.onnx._internal.exporter._registration")
            if apis := getattr(module, "onnxscript_apis", None):
                patch.setattr(apis, "get_torchlib_ops", functools.cache(apis.get_torchlib_ops))
        yield


@pytest.fixture(scope="module")  # its processes are never quite idle
def dask_client() -> Iterator[Any]:
    """A client of two worker processes of dask on this machine."""
    distributed = pytest.importorskip("dask.distributed")
    quiet = {"dashboard_address": None, "silence_logs": logging.CRITICAL}
    workers = {"n_workers": 2, "threads_per_worker": 1, "host": "127.0.0.1"}
    with distributed.LocalCluster(**workers, **quiet) as cluster, cluster.get_client() as client:
        yield client


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """ray with two workers on this machine, as a backend of joblib too."""
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")  # or ray would write a token to the home folder
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        from ray.util.joblib import register_ray

        register_ray()
        yield ray
        ray.shutdown()


def pytest_addoption(parser) -> None:
    parser.addoption("--fast", action="store_true", help="one case of each test, and no slow ones")
    parser.addoption("--product", action="store_true", help="all products of stacked parameters")


def pytest_runtest_setup(item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        # CI has none: `make test-gpu` runs these tests where there is one.
        pytest.skip("there is no GPU that torch can use")


def factors_of(item) -> dict[tuple[str, ...], tuple[int, ...]]:
    """What a case has of each parametrisation of its test, or of its fixtures, by their names."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    marks = (mark.args[0] for mark in item.iter_markers("parametrize"))
    marked = [(m.replace(" ", "").split(",") if isinstance(m, str) else m) for m in marks]
    alone = [[name] for name in params if not any(name in names for names in marked)]
    return {tuple(names): tuple(id(params[name]) for name in names) for names in marked + alone}


def on_diagonals(items: list) -> set:
    """Of tests with several parametrisations, the cases that have each value of each of them.

    The k-th value of the longest stands with the k-th of the others, which begin again at their
    end: as many cases as the longest has values, where the product has many times as many.
    """
    order: dict[tuple, dict] = {}  # of the values of each parametrisation of each test
    factors = {item: (item.nodeid.partition("[")[0], factors_of(item)) for item in items}
    for test, values in factors.values():
        for names, value in values.items():
            known = order.setdefault((test, names), {})
            known.setdefault(value, len(known))

    def is_kept(test: str, values: dict) -> bool:
        place = {names: order[test, names][value] for names, value in values.items()}
        sizes = {names: len(order[test, names]) for names in values}
        k = place[max(sizes, key=sizes.__getitem__)] if sizes else 0
        return all(place[names] == k % sizes[names] for names in values)

    return {item for item, of_item in factors.items() if is_kept(*of_item)}


def pytest_collection_modifyitems(config, items) -> None:
    kept = set(items) if config.getoption("product") else on_diagonals(items)
    if config.getoption("fast"):
        quick = [item for item in items if not item.get_closest_marker("slow")]
        kept = set({item.nodeid.partition("[")[0]: item for item in reversed(quick)}.values())
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def pytest_collection_finish(session) -> None:
    """Let the garbage collector pass over what lives until the end: modules, and all the tests."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter) -> None:
    reports = [report for group in terminalreporter.stats.values() for report in group]
    tallies: Counter[str] = Counter()
    for report in reports:
        if getattr(report, "when", None) == "call":
            for name, value in report.user_properties:
                if name == _TALLY:
                    tallies[value[0]] += value[1]
    if tallies:
        terminalreporter.section("cases tried")
    for what, n_cases in sorted(tallies.items()):
        terminalreporter.write_line(f"{n_cases:8,} {what}")


@pytest.fixture
def run_script(monkeypatch, capsys) -> Iterator[Callable[..., str]]:
    """Function that runs a script with arguments and returns what it prints.

    The script runs within this process, which has imported numpy, torch and scikit-learn already;
    in a process of its own, that would take most of the time.
    """

    def run(script: Path, *arguments) -> str:
        monkeypatch.setattr(sys, "argv", [str(script), *map(str, arguments)])
        monkeypatch.syspath_prepend(script.parent)
        runpy.run_path(str(script), run_name="__main__")
        return capsys.readouterr().out

    yield run
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")
        pyplot.rcdefaults()


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the real data sets, named by the environment variable SKDISTILL_DATA."""
    folder = os.environ.get("SKDISTILL_DATA")
    if not folder:
        pytest.skip("SKDISTILL_DATA does not name the folder of the real data sets")
    path = Path(folder)
    if not path.is_dir():
        pytest.fail(f"SKDISTILL_DATA names {folder!r}, which is no folder")
    return path


@pytest.fixture
def few_epochs(monkeypatch) -> None:
    """All trainings but chains end after three epochs, as pages and scripts need not learn."""
    fit = Training.fit

    def fit_briefly(self, module, objective, rows, n_epochs, *args, **settings):
        few = n_epochs if settings.get("sampler") else min(n_epochs, 3)
        return fit(self, module, objective, rows, few, *args, **settings)

    monkeypatch.setattr(Training, "fit", fit_briefly)


class CtrlC(torch.optim.SGD):
    """An optimizer during whose step number `at` the user presses Ctrl-C."""

    steps = 0

    def __init__(self, params, lr, at=0):
        super().__init__(params, lr)
        self.at = at

    def step(self, closure=None):
        super().step(closure)
        CtrlC.steps += 1
        if CtrlC.steps == self.at:
            signal.raise_signal(signal.SIGINT)


@pytest.fixture
def ctrl_c() -> type[CtrlC]:
    """The class :class:`CtrlC`, before its first step."""
    CtrlC.steps = 0
    return CtrlC


@pytest.fixture(scope="module")
def data():
    X, y = make_regression(60, 3, noise=5.0, random_state=0)
    return X, y / y.std() + 5.0


@pytest.fixture(scope="module")
def two_targets(data):
    X, y = data
    return X, np.column_stack([y, np.exp(-y)])
