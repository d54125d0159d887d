# SPDX-License-Identifier: BSD-3-Clause
"""Files of checkpoints: whole or refused, for one fit at a time, and no danger to anything else."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import threading
import warnings

import numpy as np
import pytest
import torch

from skdistill._engine._checkpoint import _FIRST_LINE, Checkpoint

STATE = {"weights": torch.arange(200.0), "n": 3, "rows": [{"loss": 0.5, "lr": None}]}


def checkpoint(path, **belongs_to):
    return Checkpoint(path, 0, {"lr": "a", **belongs_to})


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
    with Checkpoint(tmp_path / "ck", 1000, {}) as later:
        assert not later.is_due()
        later.last -= 1001
        assert later.is_due()
        later.write({})
        assert not later.is_due()
    with Checkpoint(tmp_path / "ck", "3 epochs", {}) as later:
        assert [later.is_due() for _ in range(3)] == [False, False, True]
        later.write({})
        assert not later.is_due()


@pytest.mark.parametrize(
    "value",
    [
        *(np.float32(0.1), np.float64(0.1), np.int64(3), np.bool_(True), np.str_("a")),
        *(np.arange(6.0).reshape(2, 3), np.array(["a", "bc"]), np.empty((0, 2)), np.array(2.5)),
    ],
)
def test_numbers_and_arrays_of_numpy_come_back_as_they_were(value, tmp_path):
    found = read(written(tmp_path / "ck", {"deep": [({"value": value},)]}))["deep"][0][0]["value"]
    assert type(found) is type(value)
    assert found.dtype == value.dtype
    np.testing.assert_array_equal(found, value)


def test_a_state_dict_keeps_its_metadata(tmp_path):
    state = torch.nn.BatchNorm1d(2).state_dict()
    found = read(written(tmp_path / "ck", {"module": state}))["module"]
    assert found._metadata == state._metadata
    assert type(found) is type(state)


# ------------------------------------------------------------------------------------------
# Damaged files
# ------------------------------------------------------------------------------------------


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def signed(payload: bytes, version=b"1") -> bytes:
    """A file whose checksum is right."""
    body = version + b"\n" + payload
    return _FIRST_LINE + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def saved(value) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def damaged_files(good: bytes, trap: Trap) -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    size = len(good)
    files = {f"cut at {at}": good[:at] for at in (1, 20, 21, 60, 86, 88, size // 2, size - 1)}
    for i, at in enumerate([0, 19, 30, 85, 86, *rng.integers(87, size, 15).tolist()]):
        flipped = bytearray(good)
        flipped[at] ^= 1 << (i % 8)
        files[f"bit {i % 8} of byte {at} flipped"] = bytes(flipped)
    for at in (0, 10, 90, size // 2, size - 64):
        files[f"zeros at {at}"] = good[:at] + bytes(64) + good[at + 64 :]
    payload = good.split(b"\n", 3)[3]
    trapped = {"belongs_to": {"lr": "a"}, "state": {"trap": trap}}
    return files | {
        "empty": b"",
        "text": b"This is no checkpoint.",
        "more at the end": good + b"\0",
        "twice": good + good,
        "without its first line": good.removeprefix(_FIRST_LINE),
        "as it was before there was a checksum": payload,
        "another version": signed(payload, b"2"),
        "no version": signed(payload, b""),
        "a pickle": pickle.dumps(trap),
        "a pickle of torch's": saved(trap),
        "a pickle with a checksum": signed(pickle.dumps(trap)),
        "a pickle of torch's with a checksum": signed(saved(trap)),
        "a state that holds a pickle": signed(saved(trapped)),
        "a whole network": signed(saved(torch.nn.Linear(2, 2))),
        "a tensor": signed(saved(torch.ones(3))),
        "a list": signed(saved([1, 2])),
        "without a state": signed(saved({"belongs_to": {"lr": "a"}})),
        "without a fingerprint": signed(saved({"state": {}})),
        "another fingerprint": signed(saved({"belongs_to": "a", "state": {}})),
        "nothing": signed(b""),
    }


@pytest.mark.filterwarnings("ignore:Detected pickle protocol:UserWarning")
def test_damaged_files_are_refused_by_name_and_execute_nothing(tmp_path, tally):
    path = written(tmp_path / "ck")
    good, trap = path.read_bytes(), Trap(tmp_path / "executed")
    files = damaged_files(good, trap)
    assert len(files) >= 50
    for what, content in files.items():
        assert content != good, what
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"checkpoint='.*ck' .*Delete it") as caught:
            read(path)
        assert "other data or parameters" not in str(caught.value), what
        assert path.read_bytes() == content, what
        assert os.listdir(tmp_path) == ["ck"], what
    tally("damaged checkpoint files", len(files))


def test_every_flipped_bit_is_found(tmp_path, tally):
    path = written(tmp_path / "ck", {"n": 3})
    good = path.read_bytes()
    places = range(0, 8 * len(good), 37)
    for at in places:
        flipped = bytearray(good)
        flipped[at // 8] ^= 1 << (at % 8)
        path.write_bytes(flipped)
        with pytest.raises(ValueError, match="damaged"):
            read(path)
    tally("damaged checkpoint files", len(places))


def test_another_fits_file_is_told_from_a_damaged_one(tmp_path):
    path = written(tmp_path / "ck")
    message = r"checkpoint='.*ck' is of a fit with other data or parameters; .*: lr, X\. D"
    with pytest.raises(ValueError, match=message):
        read(path, lr="b", X="c")


def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    def deny(self):
        raise PermissionError(13, "Permission denied")

    path = written(tmp_path / "ck")
    monkeypatch.setattr(type(path), "read_bytes", deny)
    with pytest.raises(ValueError, match=r"checkpoint='.*ck' .*Permission denied"):
        read(path)


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
    for value in (Trap(tmp_path), {1, object()}, np.array([None]), threading.Lock()):
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


def test_a_link_as_the_file_is_replaced_itself(tmp_path):
    (tmp_path / "precious").write_text("precious")
    for target in ("precious", "nowhere"):
        (tmp_path / "ck").unlink(missing_ok=True)
        (tmp_path / "ck").symlink_to(tmp_path / target)
        read(written(tmp_path / "ck"))
        assert not (tmp_path / "ck").is_symlink()
    assert (tmp_path / "precious").read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


def test_temporary_files_have_names_of_chance(tmp_path, monkeypatch):
    names, replace = [], os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: names.append(a) or replace(a, b))
    with checkpoint(tmp_path / "ck") as one:
        for _ in range(5):
            one.write(STATE)
    assert len({os.path.basename(name) for name in names}) == 5
    assert {os.path.dirname(name) for name in names} == {str(tmp_path)}


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


def test_of_many_threads_one_at_a_time_holds_the_file(tmp_path, tally):
    held, highest, entered = [0], [0], [0]
    guard = threading.Lock()

    def try_often():
        for _ in range(200):
            try:
                with checkpoint(tmp_path / "ck"):
                    with guard:
                        held[0] += 1
                        entered[0] += 1
                        highest[0] = max(highest[0], held[0])
                    with guard:
                        held[0] -= 1
            except ValueError as error:
                assert "in use by another fit" in str(error)  # noqa: PT017 -- it may not be raised

    threads = [threading.Thread(target=try_often) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert highest == [1]
    assert entered[0] >= 200 / 8
    assert os.listdir(tmp_path) == []
    tally("threads", 8)
