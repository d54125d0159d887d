# SPDX-License-Identifier: BSD-3-Clause
"""Writing files whole or not at all."""

import errno
import os
import re
import secrets
from pathlib import Path
from typing import Any


def check_folder(path: Path) -> None:
    """Raise a FileNotFoundError if the folder of a file to write does not exist."""
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "There is no such folder", str(path.parent))


def write_atomically(path: Path, *parts: Any, mode: int = 0o666) -> None:
    """Write a file that holds the previous content or this one at any time, never some of it.

    `parts` are bytes, or arrays of them, that follow one another.
    A partly written file has another name, in the same folder. It is opened as a new one, so that
    no link is followed. `mode` is that of the file, less the process's umask.
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
