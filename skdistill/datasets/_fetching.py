# SPDX-License-Identifier: BSD-3-Clause
"""Where the real sets come from: a file in SKDISTILL_DATA, else a download."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

import numpy as np
from sklearn.datasets import fetch_openml, get_data_home
from sklearn.utils import Bunch

from .._rules import OneOf

# What a download or its parsing may raise when the net, the server or the file is not as it should.
_DOWNLOAD_ERRORS = (OSError, HTTPException, ValueError)

_TIMEOUT = 60  # seconds without an answer after which a download is given up


def known(name, sets: Mapping):
    """The source of the set of this name."""
    OneOf(tuple(sorted(sets))).check(name, "name")
    return sets[name]


def address(origin: int | str) -> str:
    """Where a set is found on the net, given its number at OpenML or the address itself."""
    return f"https://www.openml.org/d/{origin}" if isinstance(origin, int) else origin


def load_or_download(
    name: str,
    relative: str,
    arrays: str,
    read: Callable[[Mapping[str, np.ndarray]], Bunch],
    origin: int | str,
    download: Callable[[], Bunch],
) -> Bunch:
    """Read the file `relative` to SKDISTILL_DATA, or download; say what to do where that fails.

    `read` is given the file's content, and `arrays` names what it must hold; `origin` is the number
    at OpenML or the address of what is downloaded.
    """
    folder = os.environ.get("SKDISTILL_DATA")
    file = Path(folder, relative) if folder else None
    if file is not None and file.is_file():
        with np.load(file, allow_pickle=False) as content:
            return read(content)
    try:
        return download()
    except _DOWNLOAD_ERRORS as error:
        looked = "SKDISTILL_DATA is not set" if file is None else f"there is no file {str(file)!r}"
        raise OSError(
            f"The set {name!r} is not at hand: {looked}, and it cannot be had from "
            f"{address(origin)} ({type(error).__name__}: {error}). Without a connection, name in "
            f"the environment variable SKDISTILL_DATA a folder with the file {relative}, which "
            f"holds arrays {arrays}; or fetch the set once on a machine that has a connection and "
            "pass the folder that it was kept in as data_home."
        ) from error


def from_openml(data_id: int | str, data_home) -> Bunch:
    """A set from OpenML as arrays; nominal columns as codes, their categories beside them."""
    # This parser needs no pandas.
    return fetch_openml(data_id=data_id, data_home=data_home, as_frame=False, parser="liac-arff")


def from_csv(url: str, name: str, data_home):
    """Inputs, targets and names of the columns from a CSV, downloaded once."""
    file = Path(get_data_home(data_home), f"skdistill_{name}.csv")
    if not file.is_file():
        with urlopen(url, timeout=_TIMEOUT) as response:
            content = response.read()
        partial = file.with_suffix(".part")  # so that what is broken off is not taken for the file
        partial.write_bytes(content)
        partial.replace(file)
    with file.open(encoding="utf-8") as lines:
        names = lines.readline().strip().split(",")
        table = np.loadtxt(lines, delimiter=",", ndmin=2)
    return table[:, :-1], table[:, -1], names[:-1]
