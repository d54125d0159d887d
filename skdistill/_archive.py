# SPDX-License-Identifier: BSD-3-Clause
"""Arrays and a text in one file of the safetensors format, with a checksum of every byte."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import sklearn
import torch
from safetensors.numpy import load, save

from ._version import __version__

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


def pack(kind: str, version: str, text: str, arrays: dict[str, np.ndarray]) -> bytes:
    """Return the bytes of a file; the same for the same arguments.

    Parameters
    ----------
    kind, version : str
        What is in the file, and the version of its format.
    text : str
    arrays : dict of str to ndarray
        Of booleans or numbers, C-contiguous.
    """
    metadata = {
        "format": kind,
        "version": version,
        "libraries": json.dumps(LIBRARIES),
        "content": text,
        "sha256": _ZEROS.decode(),
    }
    content = _in_order(save(arrays, metadata))
    start, stop = _place_of_digest(content)
    return b"".join((content[:start], _digest_of(content, start, stop), content[stop:]))


def unpack(content: bytes, kind: str, version: str) -> tuple[str, dict[str, np.ndarray]]:
    """Return the text and the arrays of a file.

    Raises
    ------
    ValueError
        If the file is damaged, foreign or of another version. Whoever makes a file with intent may
        bring about errors of other kinds.
    """
    start, stop = _place_of_digest(content)
    if _digest_of(content, start, stop) != content[start:stop]:
        raise ValueError("it is damaged: its checksum is not that of its contents")
    metadata = json.loads(content[8 : _end_of_header(content)])["__metadata__"]
    if metadata["format"] != kind:
        raise ValueError(f"it is a {metadata['format']}, not a {kind}")
    if metadata["version"] != version:
        raise ValueError(
            f"it is of format version {metadata['version']}, and skdistill {__version__} reads "
            f"{version}; it was written with {metadata['libraries']}"
        )
    return metadata["content"], load(content)


def _in_order(content: bytes) -> bytes:
    """Return a file with its header in order; safetensors leaves it to chance."""
    stop = _end_of_header(content)
    header = json.dumps(json.loads(content[8:stop]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[stop:]


def _end_of_header(content: bytes) -> int:
    return 8 + int.from_bytes(content[:8], "little")


def _place_of_digest(content: bytes) -> tuple[int, int]:
    found = content.find(_DIGEST, 8, _end_of_header(content))
    if found < 0:
        raise ValueError("it is no file of skdistill, or its beginning is damaged")
    start = found + len(_DIGEST)
    return start, start + len(_ZEROS)


def _digest_of(content: bytes, start: int, stop: int) -> bytes:
    """SHA-256 of a file, but for the digest in it."""
    view = memoryview(content)
    digest = hashlib.sha256(view[:start])
    digest.update(_ZEROS)
    digest.update(view[stop:])
    return digest.hexdigest().encode()
