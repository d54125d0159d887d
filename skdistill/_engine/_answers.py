# SPDX-License-Identifier: BSD-3-Clause
"""What a teacher has answered for samples that are seen again, in a file."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._utils.warnings import warn


class AnswersOnFile:
    """A teacher's answers for portions of at most `n_most` samples in all, in a temporary file.

    A portion is known again by the bytes of its samples: a stream may give them in another order.
    """

    def __init__(self, n_most: int):
        self.n_left = n_most
        self._file: Any = None
        self._places: dict[bytes, tuple[int, tuple[int, ...]]] = {}  # offset, shape

    def of(self, X: Tensor, ask: Callable[[Tensor], Tensor], size: int) -> Tensor | None:
        """Return the answers for samples, as X is; `ask` is asked about new ones, `size` at a time.

        None if no more are kept, or the file cannot be written, of which it warns.
        """
        rows = X.cpu().numpy()
        key = hashlib.blake2b(_bytes_of(rows), digest_size=16).digest()
        if key not in self._places:
            place = self._write(X, ask, size) if len(X) <= self.n_left else None
            if place is None:
                return None
            self._places[key] = place
        offset, shape = self._places[key]
        # Copy-on-write, since torch warns of an array that cannot be written to.
        answers = np.memmap(self._file, rows.dtype, "c", offset, shape)
        return torch.from_numpy(answers).to(X.device)

    def _write(
        self, X: Tensor, ask: Callable[[Tensor], Tensor], size: int
    ) -> tuple[int, tuple[int, ...]] | None:
        """Append the answers for samples; return where they begin, and their shape."""
        folder, offset = tempfile.gettempdir(), 0
        for number, part in enumerate(X.split(size)):
            answers = ask(part).cpu().numpy()
            try:
                if number == 0:
                    if self._file is None:
                        open_file = tempfile.TemporaryFile  # for as long as this object lives
                        self._file = open_file(prefix="skdistill-", buffering=0)
                    n_bytes, free = answers[:1].nbytes * len(X), shutil.disk_usage(folder).free
                    if n_bytes > free:
                        what = f"{n_bytes / 2**20:,.0f} MiB needed, {free / 2**20:,.0f} free"
                        raise OSError(errno.ENOSPC, what)
                    offset = self._file.seek(0, os.SEEK_END)
                left = _bytes_of(answers)
                while left:  # without a buffer a file may take a part of them at a time
                    left = left[self._file.write(left) :]
            except OSError as error:
                warn(
                    "The teacher's answers cannot be kept in a file of the temporary folder "
                    f"{folder}, which TMPDIR sets: {error}. The teacher is asked again in each "
                    "epoch, which is slower."
                )
                self.n_left = 0
                self._places.clear()
                if self._file is not None:
                    self._file.close()  # a disk that is full serves nobody
                return None
        self.n_left -= len(X)
        return offset, (len(X), *answers.shape[1:])


def _bytes_of(array: np.ndarray) -> memoryview:
    return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
