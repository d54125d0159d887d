# SPDX-License-Identifier: BSD-3-Clause
"""Two processes that train a student together train the student of one with twice the batch."""

from __future__ import annotations

import itertools
import os
import pickle
import re
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import ranks
import torch

from skdistill import load
from skdistill._utils.ranks import Ranks
from skdistill.distributed import data_parallel

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="torch was built without gloo",
)


def as_torchrun_has_it(rank, port):
    """What torchrun tells a process by its environment."""
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks.N_RANKS, "MASTER_PORT": port}
    paths = os.pathsep.join(sys.path)
    return {k: str(v) for k, v in told.items()} | {"MASTER_ADDR": "127.0.0.1", "PYTHONPATH": paths}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the processes work, with the script of the guide."""
    path = tmp_path_factory.mktemp("ranks")
    guide = Path(__file__).parents[1] / "doc" / "user_guide" / "engine.rst"
    _, text = guide.read_text(encoding="utf-8").split("    # train.py\n")
    lines = itertools.takewhile(lambda line: not line or line.startswith("    "), text.split("\n"))
    (path / "train.py").write_text(textwrap.dedent("\n".join(lines)))
    return path


@pytest.fixture(scope="module")
def found(folder):
    """What both processes have found: of fits that end, that are refused, and that one dies in."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, ranks.__file__, str(folder), str(rank)],
            env=os.environ | as_torchrun_has_it(rank, port),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks.N_RANKS)
    ]
    try:
        for process, end in zip(processes, (0, 1), strict=True):
            _, lines = process.communicate(timeout=180)
            assert process.returncode == end, lines
    finally:
        for process in processes:
            process.kill()
    return [pickle.loads((folder / f"{n}.pickle").read_bytes()) for n in range(ranks.N_RANKS)]


@pytest.fixture(scope="module")
def trained(found):
    return [of_rank["train"] for of_rank in found]


@pytest.fixture(scope="module")
def refused(found):
    return [of_rank["refuse"] for of_rank in found]


ENGINES = {"traced": "traced", "frozen layer": "stacked", "listened to": "stacked"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ranks.MODELS)
def test_losses_are_those_of_one_process_with_twice_the_batch(name, trained):
    expected = ranks.found_in(ranks.fitted(name, ranks.BATCH_SIZE * ranks.N_RANKS))
    found = trained[0][name]
    assert found["engine"] == ENGINES.get(name, "closed_form")
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-9)
    for key, value in expected["state"].items():
        np.testing.assert_allclose(found["state"][key], value, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
def test_the_batch_matters(trained):
    alone = ranks.found_in(ranks.fitted("hydra", ranks.BATCH_SIZE))
    assert not np.allclose(trained[0]["hydra"]["losses"], alone["losses"], rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [*ranks.MODELS, "with_dropout", "with_batch_norm", "no seed", "passes"]
)
def test_ranks_are_bit_identical(name, trained):
    first, second = trained
    assert first[name]["losses"] == second[name]["losses"]
    assert np.isfinite(first[name]["losses"]).all()
    assert list(first[name]["state"]) == list(second[name]["state"])
    for key, value in first[name]["state"].items():
        np.testing.assert_array_equal(value, second[name]["state"][key])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("X", "ValueError: X must be the same on all ranks of data_parallel, .* rank 1 differs"),
        ("lr", "ValueError: lr must be the same on all ranks"),
        ("few samples", "ValueError: X must have at least one sample for each of the 2 ranks"),
        ("ensemble", "TypeError: estimator must be a HydraPlusRegressor, .* BayesianEnsemble"),
        ("checkpoint", "ValueError: runtime__checkpoint must be None within data_parallel"),
        ("max_time", "ValueError: max_time must be None within data_parallel"),
        ("none", "no error"),
    ],
)
def test_all_ranks_refuse(name, message, refused):
    for found in refused:
        assert re.match(message, found[name]), found[name]


@pytest.mark.slow
def test_all_ranks_hear_that_the_teacher_cannot_be_fitted(refused):
    assert refused[0]["teacher"] == "OSError: no space left"
    assert refused[1]["teacher"].startswith("RuntimeError: Rank 0 of data_parallel failed. OSError")


@pytest.mark.slow
def test_a_rank_that_dies_is_an_error_on_the_other(found):
    alive, dead = found
    assert "die" not in dead
    assert alive["die"]["error"].startswith("RuntimeError: Rank 0 of data_parallel, of 2, has lost")
    assert not alive["die"]["is_fitted"]


def test_processes_have_to_know_each_other():
    with pytest.raises(RuntimeError, match="init_process_group"), data_parallel():
        pass


@pytest.mark.parametrize(("n_rows", "size"), [(20, 2), (7, 3), (2, 5)])
def test_shares_are_all_rows_once_and_about_equal(n_rows, size):
    parts = []
    for rank in range(size):
        ranks_ = Ranks.__new__(Ranks)
        ranks_.rank, ranks_.size = rank, size
        parts.append(ranks_.share(torch.arange(n_rows)[None], 1)[0])
    assert torch.cat(parts).tolist() == list(range(n_rows))
    lengths = [len(part) for part in parts]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.slow
def test_the_script_of_the_guide_runs(found, folder):
    assert [of_rank["guide"] for of_rank in found] == [None, None]
    student = load(folder / "student.skdistill")
    assert len(student.history_) == 20
