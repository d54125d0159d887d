# SPDX-License-Identifier: BSD-3-Clause
"""Fitted models as files of ONNX, C and torch.export."""

import io
import json
from pathlib import Path
from typing import Any

import torch
from sklearn.frozen import FrozenEstimator

from .._estimator.unwrapping import final_step
from .._serialization.container import check_folder, write_atomically
from .._utils.validation import OneOf
from ._c import c_source, check_name
from ._columns import column_graph
from ._graph import graph_of, with_facts
from ._outputs import (
    GraphOutputs,
    check_has_prediction_methods,
    traced,
    without_notes_of_torch,
)
from ._pipelines import pipeline_graph, steps_before


def export_onnx(
    model: Any, path: Any, quantiles: Any = None, outputs: Any = "auto", inputs: str = "X"
) -> None:
    """Export a fitted model as one ONNX graph with all its predictions.

    The graph has one input `X` with any number of samples, in float32, or in float64 if the model
    was fitted in float64, or an input for each column. Its outputs have fixed names:

    - for regression, `mean`, `std`, `total`, `aleatoric` and `epistemic`, the last three variances
      in squared units of y, and `interval`, the central one of 90 %, where it is cheap;
    - for classification, `label`, `probabilities`, `total`, `aleatoric` and `epistemic`, the last
      three entropies in nats.

    Outputs that the model does not have are left out, such as the aleatoric and epistemic parts of
    a single network. A :class:`GPEDDistiller` has its other expectations too, as
    `expectation_<name>`. Families that sample carry their draws. A column of numerical categories
    holds these numbers in X; a column of text, the position of the category in the metadata's
    `schema`. Other values, and NaN, are missing or unknown.

    Parameters
    ----------
    model : estimator
        A fitted estimator of this package, or a Pipeline, search or FrozenEstimator with one at the
        end. The other steps of a Pipeline go into the same graph; they take skl2onnx.
    path : path-like
    quantiles : array-like of shape (n_quantiles,), default=None
        Probabilities strictly between 0 and 1, for one more output `quantiles` of a regressor.
    outputs : "auto", "all" or list of str, default="auto"
        Names of outputs. A runtime computes all that a graph has, so that one of few is faster: a
        `mean` alone takes no random functions. "auto" has all but `members`, of models that have
        ``predict_members``, and intervals of mixtures (several members, Hydra+ and
        ``family="gaussian"``): they and quantiles are searched sample by sample in a loop, which
        takes far longer than all else.
    inputs : {"X", "columns"}, default="X"
        "columns" gives the graph one input of shape (n, 1) for each column of a table, by its name,
        or `x0`, `x1`, ... where columns have none. Columns with categories of text are strings:
        those that `fit` has not seen, such as "" for a missing one, are unknown. All other columns
        are floats: numbers, booleans as 0 and 1, dates and durations in days.

    Raises
    ------
    ImportError
        If onnx or onnxscript are not installed: ``pip install skdistill[onnx]``.
    TypeError
        If there is no estimator of this package that predicts a distribution of samples in `model`;
        models of sequences are not exported.
    ValueError
        If the model is a classifier and so has no quantiles, or has no output of such a name, or
        with ``inputs="columns"`` takes no table, or has a column with the name of an output.
    FileNotFoundError
        If the folder of `path` does not exist.
    """
    OneOf(("X", "columns")).check(inputs, "inputs")
    check_folder(Path(path))  # before the graph is made, which takes a while
    estimator, _ = final_step(model)
    wanted = "a fitted estimator of skdistill, or a Pipeline, search or FrozenEstimator around one"
    check_has_prediction_methods(estimator, "export_onnx", wanted, model)
    graph_outputs = GraphOutputs(estimator, quantiles, outputs)
    steps = steps_before(model)
    if steps:
        proto = pipeline_graph(steps, graph_outputs, inputs)
    elif inputs == "columns":
        proto = column_graph(graph_outputs, estimator)
    else:
        proto = graph_of(graph_outputs)
    with_facts(proto, estimator, graph_outputs, *steps[:1])
    write_atomically(Path(path), proto.SerializeToString())


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
    buffer, files = io.BytesIO(), {"outputs.json": json.dumps(facts)}
    with without_notes_of_torch():
        torch.export.save(traced(graph_outputs), buffer, extra_files=files)
    write_atomically(Path(path), buffer.getvalue())


def export_c(
    model: Any, path: Any, name: str = "student", quantiles: Any = None, outputs: Any = "auto"
) -> None:
    """Write a fitted estimator as one file of C99, which predicts one sample per call.

    The file needs nothing but the C standard library. Its function ``<name>_predict`` fills a
    struct with the outputs of :func:`export_onnx`; it allocates no memory and writes to no globals,
    so that threads can share it. It computes in the dtype of the fit, float32 or float64, and
    random functions in float64. A comment at the top of the file describes the features, in the
    order of X, each categorical one with its categories. Compile the file with ``-O3``, of which
    gcc makes vector instructions, and without ``-ffast-math``, since missing values are NaN.

    Parameters
    ----------
    model : estimator
        A fitted estimator of this package, or a FrozenEstimator around one. Other steps of a
        Pipeline are not written. Any network of linear and recurrent layers will do; convolutions
        have no C code.
    path : path-like
        File to write, best with the ending ``.c``.
    name : str, default="student"
        What the names in the file begin with, an identifier of C.
    quantiles, outputs
        As in :func:`export_onnx`, but quantiles and intervals of mixtures have no C code. `label`
        is the position of the class in ``classes_``.

    Raises
    ------
    TypeError
        If the model is no estimator of this package that predicts a distribution of samples.
    ValueError
        If `name` is no identifier of C, the model is a classifier and so has no quantiles, has no
        output of such a name, or is made of operations that have no C code.
    FileNotFoundError
        If the folder of `path` does not exist.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn.datasets import load_diabetes
    >>> from skdistill import BayesianEnsembleRegressor, DistributionDistiller
    >>> from skdistill.export import export_c
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> teacher = BayesianEnsembleRegressor(2, max_epochs=2)
    >>> student = DistributionDistiller(teacher, max_epochs=2).fit(X, y)
    >>> path = os.path.join(tempfile.mkdtemp(), "student.c")
    >>> export_c(student, path, outputs=["mean", "std"])
    >>> [line.strip() for line in open(path) if line.startswith("void")][0]
    'void student_predict(const double *x, student_output *out);'
    """
    check_name(name)
    check_folder(Path(path))
    model = model.estimator if isinstance(model, FrozenEstimator) else model
    wanted = "a fitted estimator of skdistill, without other steps, which export_onnx takes"
    check_has_prediction_methods(model, "export_c", wanted, model)
    source = c_source(GraphOutputs(model, quantiles, outputs), model, name)
    write_atomically(Path(path), source.encode())
