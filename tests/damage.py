# SPDX-License-Identifier: BSD-3-Clause
"""Files of our format that were damaged by accident or made with intent, all to be refused."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import tracemalloc

import numpy as np
import pytest
import torch


class Parts:
    """A file taken apart; `sealed` puts it together with a digest that is right."""

    def __init__(self, content):
        n = int.from_bytes(content[:8], "little")
        self.header, self.data = json.loads(content[8 : 8 + n]), content[8 + n :]
        self.metadata = self.header["__metadata__"]
        self.content, self.text = json.loads(self.metadata["content"]), None

    def sealed(self):
        zeros = "0" * 64
        if "content" in self.metadata:
            self.metadata["content"] = self.text or json.dumps(self.content)
        self.metadata["sha256"] = zeros
        header = json.dumps(self.header, separators=(",", ":")).encode()
        content = len(header).to_bytes(8, "little") + header + self.data
        mark = f'"sha256":"{zeros}"'.encode()
        assert content.count(mark) == 1
        digest = hashlib.sha256(content).hexdigest()
        return content.replace(mark, f'"sha256":"{digest}"'.encode())


def damaged(content, rng):
    """Files that are damaged by accident."""
    n = len(content)
    for stop in [0, 1, 8, *rng.integers(n, size=37)]:
        yield content[:stop]
    for bit in rng.choice(8 * n, size=70, replace=False):
        array = np.frombuffer(content, np.uint8).copy()
        array[bit // 8] ^= 1 << bit % 8
        yield array.tobytes()
    for start in rng.integers(n - 64, size=30):
        yield content[:start] + bytes(64) + content[start + 64 :]
    for n_more in range(1, 6):
        yield content + bytes(n_more)
    parts = Parts(content)
    offsets = [h["data_offsets"] for name, h in parts.header.items() if name != "__metadata__"]
    alike = [(a, b) for a in offsets for b in offsets if a < b and a[1] - a[0] == b[1] - b[0]]
    start = n - len(parts.data)
    for (a, b), (c, d) in alike[:10]:
        array = np.frombuffer(content, np.uint8).copy()
        view = array[start:]
        view[a:b], view[c:d] = view[c:d].copy(), view[a:b].copy()
        if array.tobytes() != content:
            yield array.tobytes()


class Bomb:
    """Pickled, it runs code when it is loaded."""

    def __reduce__(self):
        return os.mkdir, (os.environ["BOMB"],)


def disguised():
    """Pickles under the name of a model."""
    for protocol in range(6):
        yield pickle.dumps(Bomb(), protocol)
    file = io.BytesIO()
    torch.save(Bomb(), file)
    yield file.getvalue()
    header = b'{"__metadata__":{"sha256":"' + b"0" * 64 + b'"}}'
    yield len(header).to_bytes(8, "little") + header + pickle.dumps(Bomb())


# Pieces of JSON that no file of ours holds, wherever they stand.
NOT_KNOWN = [
    {"object": ["os.system", {"dict": {}}]},
    {"object": ["MLP", {"dict": {}}]},
    {"name": "eval"},
    {"numpy": "load"},
    {"dtype": "V8"},
    {"pickle": "gASVAAAAAAAAAACMAm9zlIwGc3lzdGVtlJOULg=="},
    {"tuple": [], "list": []},
    {"array": "nothing"},
    {"items": ["<U1000000000", [1], ["a"]]},
    {"items": ["<U100000000", [1], ["a"]]},
    {"items": ["|O", [10**15], ["a"]]},
    {"random state": {"tuple": ["MT19937", 3]}},
]


def of_tensors(**values):
    """Change what the header says of a tensor."""

    def change(parts):
        next(h for name, h in parts.header.items() if "weight" in name).update(values)

    return change


CHANGES = [
    *(lambda parts, v=v: parts.metadata.update(version=v) for v in ("0", "2", "1.0", "", "10")),
    lambda parts: parts.metadata.pop("version"),
    lambda parts: parts.metadata.pop("content"),
    lambda parts: parts.metadata.update(format="skdistill something"),
    *(
        lambda parts, text=text: setattr(parts, "text", text)
        for text in ("[" * 10**5, "[" * 10**5 + "]" * 10**5, "{", "1e999x")
    ),
    *(lambda parts, node=node: setattr(parts, "content", node) for node in (3, None, [], {}, "x")),
    of_tensors(shape=[10**15, 1]),
    of_tensors(shape=[2**62, 4]),
    of_tensors(data_offsets=[0, 10**15]),
    of_tensors(data_offsets=[64, 0]),
    of_tensors(dtype="F99"),
    of_tensors(dtype="F16"),
]


def changed(content, changes):
    """Files whose digest is right, but that nobody should take."""
    for change in changes:
        parts = Parts(content)
        change(parts)
        yield parts.sealed()


def count_refused(read, path, content, changes, match):
    """Hold that `read` refuses a file at `path` in every variant, and return how many there are.

    They are damaged by accident, pickles in disguise, and changed in the ways given and those that
    are possible for any file. None is changed by that, runs anything, or takes much memory.
    """
    path.write_bytes(Parts(content).sealed())
    read()  # the digest of the tests is that of the files
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BOMB", str(path.with_name("exploded")))
        files = [
            *damaged(content, np.random.default_rng(0)),
            *disguised(),
            *changed(content, [*CHANGES, *changes]),
        ]
        for number, file in enumerate(files):
            path.write_bytes(file)
            tracemalloc.start()
            with pytest.raises(ValueError, match=match) as caught:
                read()
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 2 * len(file) + 2**21, (number, caught.value)
            assert path.read_bytes() == file
    assert os.listdir(path.parent) == [path.name], "a pickle ran"
    return len(files)
