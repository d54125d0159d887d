# SPDX-License-Identifier: BSD-3-Clause
"""Saving and loading fitted models."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy
import sklearn
import torch
from safetensors.numpy import load as unpacked
from safetensors.numpy import save as packed
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._files import write_atomically
from .._rules import FilePath, OneOf
from .._version import __version__
from ._card import card_of, config_of
from ._values import Decoder, Encoder

_FORMAT, _VERSION = "skdistill", "1"
_MODEL = "model.safetensors"  # in a folder as the Hugging Face hub has them

# The digest of a file is that of the same file with zeros in its place. What precedes it stands
# nowhere else in the header: quotes in texts are escaped there.
_ZEROS = b"0" * 64
_DIGEST = b'"sha256":"'


def save(
    model: Any, path: str | os.PathLike, *, include_teacher: bool = False, layout: str = "file"
) -> None:
    """Save a fitted model to a file that is safe to open.

    The file is written whole or not at all. The model that :func:`load` makes of it predicts the
    same, bit for bit.

    Parameters
    ----------
    model : estimator
        A fitted estimator of skdistill, or a Pipeline of scikit-learn's scalers, imputers and
        encoders around one.
    path : str or os.PathLike
        Of the file, ``"student.safetensors"`` say, or of the folder.
    include_teacher : bool, default=False
        Whether to keep teachers, which must be estimators of skdistill then. Without them the
        loaded model predicts all the same; its parameter `teacher` is None, or says "classifier"
        or "regressor", and has to be set before it is fitted again.
    layout : {"file", "hub"}, default="file"
        "hub" makes a folder in the manner of the Hugging Face hub, with the file
        ``model.safetensors``, parameters in ``config.json``, and a model card, ``README.md``.

    Raises
    ------
    TypeError
        If the model holds what cannot be saved, such as a function without a name, see
        :func:`register`.
    sklearn.exceptions.NotFittedError
        If the model is not fitted.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import os, tempfile
    >>> import skdistill
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = skdistill.BayesianEnsembleClassifier(2, max_epochs=2).fit(X, y)
    >>> path = os.path.join(tempfile.mkdtemp(), "iris.safetensors")
    >>> skdistill.save(model, path)
    >>> skdistill.load(path).predict_proba(X[:5]).shape
    (5, 3)
    """
    FilePath().check(path, "path")
    OneOf(("file", "hub")).check(layout, "layout")
    check_is_fitted(model)
    content = _content_of(model, include_teacher)
    if layout == "file":
        return write_atomically(Path(path), content)
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / _MODEL, content)
    config = config_of(model, {"libraries": _libraries(), "format_version": _VERSION})
    write_atomically(folder / "config.json", (json.dumps(config, indent=2) + "\n").encode())
    write_atomically(folder / "README.md", card_of(config).encode())


def load(path: str | os.PathLike) -> Any:
    """Load a model that :func:`save` has written.

    Loading runs no code that the file brings. What the file says is trusted in no other way either:
    sizes and shapes are checked before memory is taken, and the whole by its SHA-256, which finds
    damage, but not changes of somebody who computes it anew.

    Parameters
    ----------
    path : str or os.PathLike
        Of the file or folder.

    Returns
    -------
    model : estimator

    Raises
    ------
    ValueError
        If the file is damaged, no model of skdistill, of another format version, or holds what is
        not known here. The message names the file.
    OSError
        If there is no such file, or it cannot be read.
    """
    FilePath().check(path, "path")
    file = Path(path)
    content = (file / _MODEL if file.is_dir() else file).read_bytes()
    try:
        metadata = _metadata_of(content)
        arrays = unpacked(content)
        del content  # as large as the arrays
        decoder = Decoder(arrays)
        model = decoder.decode(json.loads(metadata["model"]))
        if not isinstance(model, BaseEstimator):
            raise ValueError("it holds no model")
        if unknown := set(arrays) - decoder.used:
            raise ValueError(f"it has arrays that belong to nothing: {sorted(unknown)}")
        return model
    except Exception as error:  # of any kind: the file may say anything
        raise ValueError(f"{os.fspath(path)!r} cannot be loaded: {error}.") from error


def _content_of(model: Any, include_teacher: bool) -> bytes:
    """Return the bytes of a model's file."""
    encoder = Encoder(include_teacher)
    encoded = encoder.encode(model)
    metadata = {
        "format": _FORMAT,
        "version": _VERSION,
        "libraries": json.dumps(_libraries()),
        "model": json.dumps(encoded, separators=(",", ":"), allow_nan=False),
        "sha256": _ZEROS.decode(),
    }
    content = _in_order(packed(encoder.arrays, metadata))
    start, stop = _place_of_digest(content)
    return b"".join((content[:start], _digest_of(content, start, stop).encode(), content[stop:]))


def _in_order(content: bytes) -> bytes:
    """Return a safetensors file with its header in order, so that equal models have equal files."""
    stop = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8:stop]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[stop:]


def _metadata_of(content: bytes) -> dict[str, str]:
    """Return what the header of a file says, once it is known to be whole.

    Raises
    ------
    ValueError
        If the file is damaged, foreign or of another version.
    """
    start, stop = _place_of_digest(content)
    if _digest_of(content, start, stop).encode() != content[start:stop]:
        raise ValueError("it is damaged: its checksum is not that of its contents")
    metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    if metadata["version"] != _VERSION:
        raise ValueError(
            f"it is of format version {metadata['version']}, and skdistill {__version__} reads "
            f"{_VERSION}; it was written with {metadata['libraries']}"
        )
    return metadata


def _place_of_digest(content: bytes) -> tuple[int, int]:
    found = content.find(_DIGEST, 8, 8 + int.from_bytes(content[:8], "little"))
    if found < 0:
        raise ValueError("it is no model of skdistill, or its beginning is damaged")
    start = found + len(_DIGEST)
    return start, start + len(_ZEROS)


def _digest_of(content: bytes, start: int, stop: int) -> str:
    """SHA-256 of a file, but for the digest in it."""
    view = memoryview(content)
    digest = hashlib.sha256(view[:start])
    digest.update(_ZEROS)
    digest.update(view[stop:])
    return digest.hexdigest()


def _libraries() -> dict[str, str]:
    libraries = {"numpy": numpy, "scikit-learn": sklearn, "torch": torch}
    return {"skdistill": __version__, **{name: lib.__version__ for name, lib in libraries.items()}}
