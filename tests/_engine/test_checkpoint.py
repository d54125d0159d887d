# SPDX-License-Identifier: BSD-3-Clause
"""Files of checkpoints: whole or refused, for one fit at a time, and no danger to anything else."""

from __future__ import annotations

import math
import os
import threading
import tracemalloc
import warnings

import numpy as np
import pytest
import torch

from skdistill._engine._checkpoint import CheckpointFile

DTYPES = ("uint8", "int8", "int16", "int32", "int64", "uint16", "float16", "bfloat16", "float32")
DTYPES += ("float64", "complex64", "complex128", "bool")
STATE = {"weights": torch.arange(200.0), "n": 3, "rows": [{"loss": 0.5, "lr": None}]}


def checkpoint(path, **belongs_to):
    return CheckpointFile(path, 0, {"lr": "a", **belongs_to})


def written(path, state=STATE):
    with checkpoint(path) as one:
        one.write(state)
    return path


def read(path, **belongs_to):
    with checkpoint(path, **belongs_to) as one:
        return one.read()


def test_what_is_written_is_read(tmp_path):
    found = read(written(tmp_path / "ck"))
    assert torch.equal(found.pop("weights"), STATE["weights"])
    assert found == {"n": 3, "rows": [{"loss": 0.5, "lr": None}]}
    assert os.listdir(tmp_path) == ["ck"]
    assert read(tmp_path / "other") is None


def test_it_is_due_after_its_interval(tmp_path):
    assert checkpoint(tmp_path / "ck").is_due()
    with CheckpointFile(tmp_path / "ck", 1000, {}) as later:
        assert not later.is_due()
        later.last -= 1001
        assert later.is_due()
        later.write({})
        assert not later.is_due()
    with CheckpointFile(tmp_path / "ck", "3 epochs", {}) as later:
        assert [later.is_due() for _ in range(3)] == [False, False, True]
        later.write({})
        assert not later.is_due()


@pytest.mark.parametrize(
    "value",
    [
        *(np.float32(0.1), np.float64(0.1), np.int64(3), np.bool_(True), np.str_("a")),
        *(np.arange(6.0).reshape(2, 3), np.array(["a", "bc"]), np.empty((0, 2)), np.array(2.5)),
        *(np.float32("nan"), np.array([np.inf, -0.0, np.nan]), np.arange(6).reshape(2, 3)[:, ::2]),
    ],
)
def test_numbers_and_arrays_of_numpy_come_back_as_they_were(value, tmp_path):
    found = read(written(tmp_path / "ck", {"deep": [({"value": value},)]}))["deep"][0][0]["value"]
    assert type(found) is type(value)
    assert found.dtype == value.dtype
    np.testing.assert_array_equal(found, value)


@pytest.mark.parametrize(
    "value",
    [
        torch.get_rng_state(),
        *(torch.tensor(x) for x in (True, 3, 0.1, math.inf, [[1.0, -0.0]], 2 + 3j)),
        *(torch.empty(shape) for shape in ((0,), (2, 0, 3), ())),
        *(torch.arange(6).to(getattr(torch, name)).view(2, 3).T for name in DTYPES),
        torch.tensor([math.nan], dtype=torch.bfloat16),
    ],
)
def test_tensors_come_back_as_they_were(value, tmp_path):
    found = read(written(tmp_path / "ck", {"value": value}))["value"]
    assert found.dtype == value.dtype
    assert found.shape == value.shape
    one, other = (tensor.reshape(-1).view(torch.uint8) for tensor in (found, value))
    assert torch.equal(one, other)
    found.zero_()  # it may be trained on


def test_a_large_state_is_written_without_a_copy(tmp_path):
    state = {"sums": torch.zeros(2**20), "array": np.zeros(2**18)}
    with checkpoint(tmp_path / "ck") as one:
        tracemalloc.start()
        one.write(state)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 2**18 < 6 * 2**20 < (tmp_path / "ck").stat().st_size


# ------------------------------------------------------------------------------------------
# Damaged files
# ------------------------------------------------------------------------------------------


def test_every_flipped_bit_is_found(tmp_path, tally):
    path = written(tmp_path / "ck", {"n": 3})
    good = path.read_bytes()
    places = range(0, 8 * len(good), 37)
    for at in places:
        flipped = bytearray(good)
        flipped[at // 8] ^= 1 << (at % 8)
        path.write_bytes(flipped)
        with pytest.raises(ValueError, match=r"checkpoint='.*ck' .*damaged.* Delete it"):
            read(path)
    tally("checkpoints with a flipped bit", len(places))


# ------------------------------------------------------------------------------------------
# Writing
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place", ["missing/ck", "", "folder", "file/ck", "x" * 250, "pipe", "nul\0"]
)
def test_places_that_cannot_be_written_to_are_found_at_once(place, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(ValueError, match=r"checkpoint=.* must name a file"):
        checkpoint(f"{tmp_path}/{place}").__enter__()
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_a_write_that_fails_is_warned_of_once_and_leaves_the_last(fails, tmp_path, monkeypatch):
    def fail(*args):
        raise OSError(28, "No space left on device")

    path = written(tmp_path / "ck")
    before = path.read_bytes()
    with checkpoint(path) as one:
        with monkeypatch.context() as patch:
            patch.setattr(os, fails, fail)
            with pytest.warns(UserWarning, match=r"could not be written .*No space"):
                one.write({"n": 4})
            with warnings.catch_warnings(action="error"):
                one.write({"n": 5})
        assert path.read_bytes() == before
        one.write({"n": 6})
    assert read(path) == {"n": 6}
    assert os.listdir(tmp_path) == ["ck"]


def test_a_state_that_could_not_be_read_again_is_not_written(tmp_path):
    path = written(tmp_path / "ck")
    for value in ({1, object()}, np.array([object()]), np.array([1j]), threading.Lock()):
        with (
            checkpoint(path) as one,
            pytest.warns(UserWarning, match=r"checkpoint='.*ck' could not be written"),
        ):
            one.write({"value": value})
        assert read(path)["n"] == 3


def test_links_beside_the_file_are_not_followed(tmp_path):
    target = tmp_path / "precious"
    target.write_text("precious")
    for name in ("ck.part", ".ck.part", ".ck.abcdefgh.part"):
        (tmp_path / name).symlink_to(target)
    written(tmp_path / "ck")
    assert target.read_text() == "precious"
    (tmp_path / ".ck.lock").symlink_to(target)
    with pytest.raises(ValueError, match=r"checkpoint=.* must name a file in a folder that"):
        written(tmp_path / "ck")
    assert target.read_text() == "precious"


def test_what_a_kill_has_left_is_removed_and_nothing_else(tmp_path):
    others = (".ck.x.abcdefgh.part", "ck.part", ".ck.abc.part", ".ckk.abcdefgh.part", ".other.lock")
    for name in (".ck.abcdefgh.part", ".ck.lock", *others):
        (tmp_path / name).touch()
    written(tmp_path / "ck")
    assert sorted(os.listdir(tmp_path)) == sorted(("ck", *others))


# ------------------------------------------------------------------------------------------
# One fit at a time
# ------------------------------------------------------------------------------------------


def test_a_second_fit_is_refused_until_the_first_is_through(tmp_path):
    path = tmp_path / "ck"
    with checkpoint(path):
        with pytest.raises(ValueError, match=r"checkpoint=.*ck' is in use by another fit"):
            written(path)
        written(tmp_path / "other")
    written(path)
    with pytest.raises(KeyboardInterrupt), checkpoint(path):
        raise KeyboardInterrupt
    written(path)
