# SPDX-License-Identifier: BSD-3-Clause
"""Files: written whole or not at all, and with arrays, a text and a checksum of every byte.

The latter have the safetensors format.
"""

import errno
import hashlib
import json
import os
import re
import secrets
import stat
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from safetensors.numpy import load

from .._utils.process import fits_twice
from .._version import __version__

LIBRARIES = {
    "skdistill": __version__,
    "numpy": np.__version__,
    "scikit-learn": sklearn.__version__,
    "torch": torch.__version__,
}

# The digest of a file is that of the same file with zeros in its place. What precedes it stands
# nowhere else in the header: quotes in texts are escaped there.
_ZEROS = b"0" * 64
_DIGEST = b'"sha256":"'

_LONGEST_HEADER = 10**8  # bytes, as safetensors has it


def pack(kind: str, version: str, text: str, arrays: dict[str, np.ndarray]) -> list[Any]:
    """Return the parts of a file, bytes and arrays of uint8, the same for the same arguments."""
    header: dict[str, Any] = {
        "__metadata__": {
            "format": kind,
            "version": version,
            "libraries": json.dumps(LIBRARIES),
            "content": text,
            "sha256": _ZEROS.decode(),
        }
    }
    data, start = [], 0
    for name in sorted(arrays, key=lambda name: (-arrays[name].itemsize, name)):  # for alignment
        array = arrays[name].astype(arrays[name].dtype.newbyteorder("<"), copy=False)
        stop = start + array.nbytes
        dtype = "BOOL" if array.dtype.kind == "b" else f"{array.dtype.kind}{8 * array.itemsize}"
        header[name] = {
            "data_offsets": [start, stop],
            "dtype": dtype.upper(),
            "shape": list(array.shape),
        }
        data.append(array.reshape(-1).view(np.uint8))
        start = stop
    begin = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    begin += b" " * (-len(begin) % 8)
    begin = len(begin).to_bytes(8, "little") + begin
    start, stop = _place_of_digest(begin)
    return [begin[:start], _digest_of(begin, *data), begin[stop:], *data]


def read(path: Path, kind: str, version: str) -> tuple[str, dict[str, np.ndarray]]:
    """Return the text and arrays of a file; a ValueError if it is damaged, foreign or too large."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is no regular file")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        begin = file.read(8)
        end = _end_of_header(begin)
        if end <= min(size, _LONGEST_HEADER):
            begin += file.read(end - len(begin))
        start, stop = _place_of_digest(begin)
        try:
            header = json.loads(begin[8:end])
            metadata = header.pop("__metadata__")
            n_bytes = max((of["data_offsets"][1] for of in header.values()), default=0)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise ValueError("it is damaged: its header cannot be read") from error
        if size != end + n_bytes:
            raise ValueError("it is damaged: its size is not that of its contents")
        if not fits_twice(size):  # the content, and what is made of it
            raise ValueError(f"it is larger than half of the memory, {size / 1e9:.3g} GB")
        file.seek(0)
        content = file.read()
    view = memoryview(content)
    if _digest_of(view[:start], _ZEROS, view[stop:]) != content[start:stop]:
        raise ValueError("it is damaged: its checksum is not that of its contents")
    if metadata["format"] != kind:
        raise ValueError(f"it is a {metadata['format']}, not a {kind}")
    if metadata["version"] != version:
        raise ValueError(
            f"it is of format version {metadata['version']}, and skdistill {__version__} reads "
            f"{version}; it was written with {metadata['libraries']}"
        )
    return metadata["content"], load(content)


def _end_of_header(content: bytes) -> int:
    return 8 + int.from_bytes(content[:8], "little")


def _place_of_digest(content: bytes) -> tuple[int, int]:
    found = content.find(_DIGEST, 8, _end_of_header(content))
    if found < 0:
        raise ValueError("it is no file of skdistill, or its beginning is damaged")
    start = found + len(_DIGEST)
    return start, start + len(_ZEROS)


def _digest_of(*parts: Any) -> bytes:
    """SHA-256 of what is made of these parts, in hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest().encode()


# --- writing atomically -----------------------------------------------------------------------


def check_folder(path: Path) -> None:
    """Raise a FileNotFoundError if the folder of a file to write does not exist."""
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "There is no such folder", str(path.parent))


def write_atomically(path: Path, *parts: Any, mode: int = 0o666) -> None:
    """Write a file that holds the previous content or this one at any time, never some of it.

    `parts`, bytes or arrays of them, follow one another. A partly written file has another name, in
    the same folder, and is opened as a new one, so that no link is followed. `mode` is that of the
    file, less the process's umask.
    """
    check_folder(path)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(part, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        if error.filename is None:  # of a full disk
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise
    finally:
        part.unlink(missing_ok=True)


def remove_leftovers(path: Path) -> None:
    """Remove partly written files of processes that were killed while they wrote `path`."""
    is_part = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}\.part").fullmatch
    for found in path.parent.iterdir():
        if is_part(found.name):
            found.unlink()
