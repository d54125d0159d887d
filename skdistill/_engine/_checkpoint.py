# SPDX-License-Identifier: BSD-3-Clause
"""The state of a fit in a file, from which a fit that was killed can go on."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._serialization.container import pack, read, remove_leftovers, write_atomically
from .._serialization.json import Decoder, Encoder
from .._utils.validation import epochs_in
from .._utils.warnings import warn

if sys.platform != "win32":
    import fcntl

_FORMAT = "skdistill checkpoint", "2"  # and its version

# Types of tensors that numpy and safetensors have too; others are kept as bytes.
_IN_FILES = {
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.float32, torch.float64),
}


class CheckpointFile:
    """A file that holds the latest saved state of one fit, written every so many seconds or epochs.

    As a context manager it locks a second file beside it (not on Windows, without ``fcntl``), which
    ends with the process; a ValueError says that it cannot. `belongs_to` has digests of the fit's
    data and parameters.
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

    def __enter__(self) -> CheckpointFile:
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

    def _warn_if_it_fails(self, done: str, do: Callable, *args: object) -> None:
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

    def write(self, state: Mapping[str, object]) -> None:
        """Write tensors, arrays, plain values, lists and dicts, whole or not at all; warn once."""
        self._warn_if_it_fails("written", self._write, state)
        self.last, self.n_epochs = time.monotonic(), 0

    def _write(self, state: Mapping[str, object]) -> None:
        encoder = Encoder(_encode_other)
        content = {"belongs_to": self.belongs_to, "state": encoder.encode(state, "state")}
        text = json.dumps(content, separators=(",", ":"), allow_nan=False)
        write_atomically(self.path, *pack(*_FORMAT, text, encoder.arrays), mode=0o600)

    def read(self) -> dict[str, Any] | None:
        """Return the state, or None without a file; ValueError if of another fit or damaged."""
        try:
            text, arrays = read(self.path, *_FORMAT)
            content = json.loads(text)
            found = content["belongs_to"]
            names = {**self.belongs_to, **found}  # of parameters and data
            others = [name for name in names if self.belongs_to.get(name) != found.get(name)]
            state = None if others else Decoder(arrays, _READERS).decode_all(content["state"])
        except FileNotFoundError:
            return None
        except Exception as error:  # of any kind: the file may say anything
            raise self._unusable(f"cannot be read: {_first_line(error)}") from error
        if others:
            what = ", ".join(others)
            raise self._unusable(f"is of a fit with other data or parameters; what differs: {what}")
        if not isinstance(state, dict):
            raise self._unusable("cannot be read: it holds no state")
        return state

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
        handle = os.open(path, os.O_RDWR | os.O_CREAT | vars(os).get("O_NOFOLLOW", 0), 0o600)
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
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.lstat(path), os.fstat(handle)):
                return handle
        os.close(handle)  # its last owner removed it between open and lock


def _first_line(error: Exception) -> str:
    text = str(error).partition("\n")[0]
    return text if type(error) is ValueError else f"{type(error).__name__}: {text}"


# --- values that are not plain: tensors, and what holds them -----------------------------------


def _encode_other(encoder: Encoder, value: Any, place: str) -> dict[str, object]:
    """Return the JSON of tensors and of dicts of other types."""
    kind = type(value)
    if kind is OrderedDict:  # of a module, with the versions of its parts
        parts = dict(value), vars(value).get("_metadata")
        return {"state dict": [encoder.encode(part, place) for part in parts]}
    if kind is Counter:  # of MultiStepLR
        return {"counter": encoder.encode(dict(value), place)}
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{place} is a {kind.__module__}.{kind.__qualname__}; checkpoints hold tensors, arrays "
            "and plain values"
        )
    data = value.detach().cpu()
    if data.dtype in _IN_FILES:
        return {"tensor": encoder.array(data.numpy(), place)}
    content = data.contiguous().view(-1).view(torch.uint8).numpy()
    dtype = str(data.dtype).removeprefix("torch.")
    return {"bytes": [dtype, list(data.shape), encoder.array(content, place)]}


def _tensor(decoder: Decoder, name: str) -> Tensor:
    """Return a tensor in the memory of an array that nothing else has."""
    if name in decoder.used:
        raise ValueError(f"{name!r} would share its memory")
    return torch.from_numpy(decoder.array(name))


def _tensor_of_bytes(decoder: Decoder, content: list) -> Tensor:
    name_of_dtype, shape, name = content
    dtype = getattr(torch, name_of_dtype)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch.{name_of_dtype} is no type of tensors")
    return _tensor(decoder, name).view(dtype).view(shape)


def _state_dict(decoder: Decoder, content: list) -> OrderedDict:
    items, metadata = map(decoder.decode, content)
    state: Any = OrderedDict(items)
    if metadata is not None:
        state._metadata = metadata
    return state


_READERS: dict[str, Callable[[Decoder, Any], Any]] = {
    "bytes": _tensor_of_bytes,
    "counter": lambda decoder, content: Counter(decoder.decode(content)),
    "state dict": _state_dict,
    "tensor": _tensor,
}
