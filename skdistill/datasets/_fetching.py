# SPDX-License-Identifier: BSD-3-Clause
"""Loading the real data sets from a file in SKDISTILL_DATA, or else from the net."""

import os
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
from sklearn.datasets import fetch_openml, get_data_home
from sklearn.utils import Bunch

from .._utils.validation import OneOf

# Errors that a failed download, or the parsing of a broken file, may raise.
_DOWNLOAD_ERRORS = (OSError, HTTPException, ValueError)

_TIMEOUT = 60  # seconds


def source_of(name, sets: Mapping):
    OneOf(tuple(sorted(sets))).check(name, "name")
    return sets[name]


def address(origin: int | str) -> str:
    """Address of a set, given its number at OpenML or the address itself."""
    return f"https://www.openml.org/d/{origin}" if isinstance(origin, int) else origin


def load_or_download(
    name: str,
    source: Any,
    relative: str,
    arrays: str,
    read: Callable[[Any, Mapping[str, np.ndarray]], Bunch],
    download: Callable[[Any, Any], Bunch],
    data_home,
) -> Bunch:
    """Read the file `relative` to SKDISTILL_DATA, or download; an error explains how to go on.

    `read` takes the source and the file's content, `download` the source and `data_home`;
    `arrays` names the arrays in the file for the error.
    """
    folder = os.environ.get("SKDISTILL_DATA")
    file = Path(folder, relative) if folder else None
    if file is not None and file.is_file():
        with np.load(file, allow_pickle=False) as content:
            return _described(read(source, content), source, "a file in SKDISTILL_DATA")
    try:
        return _described(download(source, data_home), source, address(source.origin))
    except _DOWNLOAD_ERRORS as error:
        looked = "SKDISTILL_DATA is not set" if file is None else f"there is no file {str(file)!r}"
        raise OSError(
            f"The set {name!r} is not available: {looked}, and it cannot be downloaded from "
            f"{address(source.origin)} ({type(error).__name__}: {error}). Without a connection, "
            "name in the environment variable SKDISTILL_DATA a folder with the file "
            f"{relative}, which holds arrays {arrays}; or fetch the set once on a machine that has "
            "a connection and pass the folder that it was kept in as data_home."
        ) from error


def _described(bunch: Bunch, source: Any, origin: str) -> Bunch:
    more = bunch.get("DESCR", "")
    return Bunch(**{**bunch, "DESCR": f"{source.title}. Data from {origin}.{more}"})


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
        partial = file.with_suffix(".part")  # an interrupted download must not look complete
        partial.write_bytes(content)
        partial.replace(file)
    with file.open(encoding="utf-8") as lines:
        names = lines.readline().strip().split(",")
        table = np.loadtxt(lines, delimiter=",", ndmin=2)
    return table[:, :-1], table[:, -1], names[:-1]
