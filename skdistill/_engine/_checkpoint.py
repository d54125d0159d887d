# SPDX-License-Identifier: BSD-3-Clause
"""The state of a fit in a file, from which a fit that was killed can go on."""

from __future__ import annotations

import copy
import hashlib
import io
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .._files import remove_leftovers, write_atomically
from .._rules import epochs_in
from .._warnings import warn

if sys.platform != "win32":
    import fcntl

# A file holds this line, the SHA-256 of all that follows the hash, the version of the format, and
# a state as torch.save writes it.
_FIRST_LINE = b"skdistill checkpoint\n"
_VERSION = b"1"

# A dict with this key stands for an array or scalar of NumPy, which torch.load refuses to make.
_NUMPY = "__numpy__"


class Checkpoint:
    """A file that holds the latest saved state of one fit.

    As a context manager it locks the file against other fits (not on Windows, which has no
    ``fcntl``). The lock is on a second file beside it, and ends with the process however that ends.
    A file that could not be written, or that another fit uses, raises a ValueError.

    Parameters
    ----------
    path : str or os.PathLike
    interval : float or str
        Least number of seconds between two writings, or "<n> epochs".
    belongs_to : dict of str to str
        Digests of the fit's data and parameters, see :func:`skdistill._fingerprint.digests`.
    """

    def __init__(self, path, interval: float | str, belongs_to: dict[str, str]):
        self.name = f"checkpoint={os.fspath(path)!r}"
        self.path = Path(path).absolute()
        self.seconds_apart = 0.0 if isinstance(interval, str) else interval
        self.belongs_to = belongs_to
        self.epochs_apart = epochs_in(interval)
        self.last, self.n_epochs = time.monotonic(), 0  # the latter since the last writing
        self.failed: set[str] = set()  # what there has been a warning of

    def is_due(self) -> bool:
        """Tell whether to write at the end of an epoch; to be called once for each."""
        self.n_epochs += 1
        if self.epochs_apart is not None:
            return self.n_epochs >= self.epochs_apart
        return time.monotonic() - self.last >= self.seconds_apart

    # --- the lock

    def __enter__(self) -> Checkpoint:
        if os.path.exists(self.path) and not os.path.isfile(self.path):
            raise ValueError(f"{self.name} must name a file, but it is something else.")
        self.lock_path = self.path.with_name(f".{self.path.name}.lock")
        try:
            lock = _locked(self.lock_path)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{self.name} must name a file in a folder that can be written to: {error}."
            ) from error
        if lock is None:
            raise ValueError(
                f"{self.name} is in use by another fit. Fits that run at the same time need a file "
                "each, or checkpoint=None."
            )
        self.lock = lock
        self._warn_if_it_fails("cleaned up", remove_leftovers, self.path)
        return self

    def __exit__(self, *error) -> None:
        self._warn_if_it_fails("unlocked", self.lock_path.unlink)
        os.close(self.lock)

    def _warn_if_it_fails(self, done: str, do: Callable, *args: Any) -> None:
        """Do something that the fit does not depend on; warn of the first failure."""
        try:
            do(*args)
        except Exception as error:  # of any kind: a fit is worth more than its checkpoint
            if done not in self.failed:
                self.failed.add(done)
                warn(
                    f"{self.name} could not be {done} ({_first_line(error)}). The fit "
                    "goes on, and what is there stays as it is."
                )

    # --- the file

    def write(self, state: dict[str, Any]) -> None:
        """Write tensors, numbers, text, arrays, and lists and dicts of them.

        The file holds the previous state or this one at any time, never a part. If it cannot be
        written, warn once.
        """
        self._warn_if_it_fails("written", self._write, state)
        self.last, self.n_epochs = time.monotonic(), 0

    def _write(self, state: dict[str, Any]) -> None:
        content = _packed({"belongs_to": self.belongs_to, "state": state})
        write_atomically(self.path, content, mode=0o600)

    def read(self) -> dict[str, Any] | None:
        """Return the state, or None without a file; ValueError if of another fit or damaged."""
        try:
            found = _unpacked(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise self._unusable(str(error)) from error
        belonged_to = found["belongs_to"]
        others = [
            name
            for name in {**self.belongs_to, **belonged_to}
            if self.belongs_to.get(name) != belonged_to.get(name)
        ]
        if others:
            what = ", ".join(others)
            raise self._unusable(f"is of a fit with other data or parameters; what differs: {what}")
        return found["state"]

    def misfit(self, error: Exception) -> ValueError:
        """Return the error to raise if this fit cannot go on from the state."""
        return self._unusable(f"holds no state of this fit ({_first_line(error)})")

    def _unusable(self, what: str) -> ValueError:
        return ValueError(f"{self.name} {what}. Delete it to begin anew, or name another file.")

    def remove(self) -> None:
        """Remove the file, when the fit is complete."""
        self._warn_if_it_fails("removed", self.path.unlink, True)


def _locked(path: Path) -> int | None:
    """Open a file and lock it; return None if another fit has locked it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        if sys.platform == "win32":
            return handle
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        except OSError as error:
            warn(
                f"{path} cannot be locked ({error}): give no other fit the same checkpoint as long "
                "as this one runs."
            )
            return handle
        if _is_at(path, handle):
            return handle
        os.close(handle)  # its last owner removed it between open and lock


def _is_at(path: Path, handle: int) -> bool:
    """Whether an open file is the one that a path leads to."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def _packed(value: dict[str, Any]) -> bytes:
    """Bytes of a checkpoint with this content; raises an error if they could not be read again."""
    file = io.BytesIO()
    torch.save(_without_numpy(value), file)
    payload = file.getvalue()
    _loaded(payload)
    body = _VERSION + b"\n" + payload
    return _FIRST_LINE + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def _unpacked(content: bytes) -> dict[str, Any]:
    """Invert :func:`_packed`; a ValueError says what is wrong with the bytes."""
    if not content.startswith(_FIRST_LINE):
        raise ValueError("is no checkpoint of this version, or its beginning is damaged")
    digest, _, body = content.removeprefix(_FIRST_LINE).partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise ValueError("is damaged: its checksum is not that of its contents")
    format_version, _, payload = body.partition(b"\n")
    if format_version != _VERSION:
        raise ValueError("is in the format of another version of skdistill")
    try:
        value = _with_numpy(_loaded(payload))
    except Exception as error:  # of any kind: torch.load raises many
        raise ValueError(f"holds no state ({_first_line(error)})") from error
    parts = value if isinstance(value, dict) else {}
    if not all(isinstance(parts.get(name), dict) for name in ("belongs_to", "state")):
        raise ValueError("holds no state")
    return value


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _loaded(payload: bytes) -> Any:
    return torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)


def _without_numpy(value: Any) -> Any:
    """Replace arrays and scalars of NumPy by dicts of plain Python."""
    if isinstance(value, (np.generic, np.ndarray)):
        if value.dtype.hasobject:
            raise TypeError("arrays of objects cannot be kept")
        shape = value.shape if isinstance(value, np.ndarray) else None
        return {_NUMPY: (value.dtype.str, shape, value.tobytes().hex())}
    return _rebuilt(value, _without_numpy)


def _with_numpy(value: Any) -> Any:
    """Invert :func:`_without_numpy`."""
    if isinstance(value, dict) and _NUMPY in value:
        dtype, shape, content = value[_NUMPY]
        array = np.frombuffer(bytearray.fromhex(content), dtype)
        return array[0] if shape is None else array.reshape(shape)
    return _rebuilt(value, _with_numpy)


def _rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply `change` to the items of a container; return anything else as it is."""
    if isinstance(value, dict):
        changed = copy.copy(value)  # keeps type and attributes, such as a state_dict's _metadata
        changed.update((key, change(item)) for key, item in value.items())
        return changed
    if type(value) in (list, tuple):
        return type(value)(map(change, value))
    return value
