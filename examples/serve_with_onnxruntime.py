# SPDX-License-Identifier: BSD-3-Clause
"""
Serving a student without torch
===============================

A file written by :func:`skdistill.export_onnx` is all that a server needs. This script runs in an
environment with numpy and onnxruntime only::

    pip install numpy onnxruntime
    python serve_with_onnxruntime.py student.onnx samples.npy

It prints the outputs of the graph for the samples of a ``.npy`` file as one table of tab-separated
values.
"""

import sys

import numpy as np
import onnxruntime


def predict(session, X):
    """Predict samples (n, d) block by block: the activations of some thousand fit the cache."""
    names = [output.name for output in session.get_outputs()]
    X = X.astype(np.float64 if "double" in session.get_inputs()[0].type else np.float32)
    blocks = [session.run(None, {"X": X[i : i + 4000]}) for i in range(0, len(X), 4000)]
    return {name: np.concatenate([block[k] for block in blocks]) for k, name in enumerate(names)}


def main(graph, rows):
    """Predict the samples in a file by the graph in a file, and print a table."""
    found = predict(onnxruntime.InferenceSession(graph), np.load(rows))
    columns = {}
    for name, values in found.items():
        several = values.reshape(len(values), -1)
        suffixes = [f"_{k}" for k in range(several.shape[1])] if values.ndim > 1 else [""]
        columns |= {name + suffix: several[:, k] for k, suffix in enumerate(suffixes)}
    print(*columns, sep="\t")
    for row in zip(*columns.values(), strict=True):
        print(*row, sep="\t")


if __name__ == "__main__":
    main(*sys.argv[1:])
