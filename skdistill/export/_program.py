# SPDX-License-Identifier: BSD-3-Clause
"""Estimators as programs of torch.export."""

import io
import json
from pathlib import Path
from typing import Any

import torch
from sklearn.frozen import FrozenEstimator

from .._serialization.container import check_folder, write_atomically
from ._outputs import GraphOutputs, RoundOutputs, check_has_prediction_methods


def export_program(model: Any, path: Any, quantiles: Any = None, outputs: Any = "auto") -> None:
    """Write a fitted estimator as a program of ``torch.export``.

    ``torch.export.load`` reads it without skdistill and scikit-learn; AOTInductor and ExecuTorch
    take it. It maps samples to a tuple of tensors, those of :func:`export_onnx`, whose names are in
    the extra file ``outputs.json``. There `label` is the position of the class in `labels`.

    Parameters
    ----------
    model : estimator
        A fitted estimator of this package, or a FrozenEstimator around one. Other steps of a
        Pipeline are no programs of torch.
    path : path-like
        File to write, best with the ending ``.pt2``.
    quantiles, outputs
        As in :func:`export_onnx`.

    Raises
    ------
    TypeError
        If the model is no estimator of this package that predicts a distribution of samples.
    ValueError
        If the model is a classifier and so has no quantiles, or has no output of such a name.
    FileNotFoundError
        If the folder of `path` does not exist.

    Examples
    --------
    >>> import os, tempfile, torch
    >>> from sklearn.datasets import load_diabetes
    >>> from skdistill import BayesianEnsembleRegressor
    >>> from skdistill.export import export_program
    >>> X, y = load_diabetes(return_X_y=True)
    >>> path = os.path.join(tempfile.mkdtemp(), "ensemble.pt2")
    >>> export_program(BayesianEnsembleRegressor(2, max_epochs=2).fit(X, y), path)
    >>> mean, std, *parts = torch.export.load(path).module()(torch.tensor(X).float())
    >>> mean.shape
    torch.Size([442])
    """
    check_folder(Path(path))
    model = model.estimator if isinstance(model, FrozenEstimator) else model
    check_has_prediction_methods(model, "export_program", "a fitted estimator of skdistill", model)
    graph_outputs = GraphOutputs(model, quantiles, outputs)
    facts: dict[str, Any] = {"names": graph_outputs.names, "quantiles": graph_outputs.levels}
    if "label" in graph_outputs.names:
        facts["labels"] = model.classes_.tolist()
    buffer = io.BytesIO()
    torch.export.save(
        traced(graph_outputs), buffer, extra_files={"outputs.json": json.dumps(facts)}
    )
    write_atomically(Path(path), buffer.getvalue())


def traced(graph_outputs: GraphOutputs | RoundOutputs) -> Any:
    """Trace prediction methods, for any number of samples."""
    rows, shapes = torch.export.Dim("batch", min=1), torch.export.ShapesCollection()
    inputs = tuple(graph_outputs.inputs.values())
    for tensor in inputs:
        shapes[tensor] = {0: rows}
    with torch.no_grad():
        return torch.export.export(
            graph_outputs, inputs, dynamic_shapes=shapes.dynamic_shapes(graph_outputs, inputs)
        )
