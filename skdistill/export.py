# SPDX-License-Identifier: BSD-3-Clause
"""Fitted models as ONNX graphs, which run without torch, and as programs of torch.export."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import special
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from . import distillers, ensembles
from ._files import write_atomically
from ._meta_estimators import final_step, inside
from ._read_offs import DistributionEstimator
from ._rules import OneOf, errors_about
from ._version import __version__
from .distributions import (
    EmpiricalGaussian,
    ExpectedGaussian,
    NormalInverseGamma,
    NormalInverseWishart,
)

__all__ = ["export_onnx", "export_program", "register_converters"]

_OPSET = {"": 18, "ai.onnx.ml": 3}
_COVERAGE = 0.9  # of the output `interval`

# Degree of the polynomials for Student's quantiles; their relative error is below 1e-8.
_DEGREE = 16


def export_onnx(model, path, quantiles=None, members=False) -> None:
    """Write a fitted model as one ONNX graph of everything that it predicts.

    The graph has one input `X` with any number of rows, in float32, or in float64 if the model was
    fitted in float64. Its outputs have fixed names:

    - of a regressor, `mean`, `std`, `total`, `aleatoric` and `epistemic`, the last three variances
      in squared units of y, and `interval`, the central one of 90 %;
    - of a classifier, `label`, `probabilities`, `total`, `aleatoric` and `epistemic`, the last
      three entropies in nats.

    What the model cannot tell is left out: the two parts, where it has one network; the interval,
    where the quantiles of its distribution have no closed form. Families that draw carry their
    draws.

    Parameters
    ----------
    model : estimator
        A fitted estimator of this package, or a Pipeline, search or FrozenEstimator with one at the
        end. The other steps of a Pipeline go into the same graph; they take skl2onnx.
    path : path-like
        File to write.
    quantiles : array-like of shape (n_quantiles,), default=None
        Probabilities strictly between 0 and 1, for one more output `quantiles`. Only regressors
        whose quantiles have a closed form take them: those of one Gaussian or of Student's t.
    members : bool, default=False
        Whether to add the output `members`, of models that have ``predict_members``.

    Raises
    ------
    ImportError
        If onnx or onnxscript are not installed: ``pip install skdistill[onnx]``.
    TypeError
        If there is no estimator of this package that predicts a distribution in `model`.
    ValueError
        If the model has no such quantiles, or no members.
    """
    estimator, _ = final_step(model)
    if not isinstance(estimator, DistributionEstimator):
        raise TypeError(
            "export_onnx takes a fitted estimator of skdistill, or a Pipeline, search or "
            f"FrozenEstimator around one; got {type(model).__name__}."
        )
    check_is_fitted(estimator)
    read_offs = ReadOffs(estimator, quantiles, members)
    steps = _steps_before(model)
    proto = _pipeline_graph(steps, read_offs, estimator) if steps else _graph(read_offs)
    names = getattr(steps[0] if steps else estimator, "feature_names_in_", None)
    facts = {"skdistill_version": __version__, "estimator": type(estimator).__name__}
    if names is not None:
        facts["feature_names"] = json.dumps(list(names))
    if read_offs.levels:
        facts["quantiles"] = json.dumps(read_offs.levels)
    _import_onnx().helper.set_model_props(proto, facts)
    write_atomically(Path(path), proto.SerializeToString())


def export_program(model, path, quantiles=None, members=False) -> None:
    """Write a fitted estimator as a program of ``torch.export``.

    ``torch.export.load`` reads it without skdistill and scikit-learn; AOTInductor and ExecuTorch
    take it. It maps rows to a tuple of tensors, those of :func:`export_onnx`, whose names are in
    the extra file ``outputs.json``. There `label` is the position of the class in `labels`.

    Parameters
    ----------
    model : estimator
        A fitted estimator of this package, or a FrozenEstimator around one. Other steps of a
        Pipeline are no programs of torch.
    path : path-like
        File to write, best with the ending ``.pt2``.
    quantiles, members
        As in :func:`export_onnx`.

    Raises
    ------
    TypeError
        If the model is no estimator of this package that predicts a distribution.
    ValueError
        If the model has no such quantiles, or no members.

    Examples
    --------
    >>> import os, tempfile, torch
    >>> from sklearn.datasets import load_diabetes
    >>> from skdistill import BayesianEnsembleRegressor
    >>> from skdistill.export import export_program
    >>> X, y = load_diabetes(return_X_y=True)
    >>> path = os.path.join(tempfile.mkdtemp(), "ensemble.pt2")
    >>> export_program(BayesianEnsembleRegressor(2, max_epochs=2).fit(X, y), path)
    >>> mean, std, *parts = torch.export.load(path).module()(torch.tensor(X))
    >>> mean.shape
    torch.Size([442])
    """
    model = model.estimator if isinstance(model, FrozenEstimator) else model
    if not isinstance(model, DistributionEstimator):
        raise TypeError(
            f"export_program takes a fitted estimator of skdistill, got {type(model).__name__}."
        )
    check_is_fitted(model)
    read_offs = ReadOffs(model, quantiles, members)
    facts: dict[str, Any] = {"names": read_offs.names, "quantiles": read_offs.levels}
    if "label" in read_offs.names:
        facts["labels"] = model.classes_.tolist()
    buffer = io.BytesIO()
    torch.export.save(_program(read_offs), buffer, extra_files={"outputs.json": json.dumps(facts)})
    write_atomically(Path(path), buffer.getvalue())


def register_converters() -> None:
    """Teach skl2onnx this package's estimators, so that ``skl2onnx.to_onnx`` takes them.

    Outputs are those of :func:`export_onnx`; its `quantiles` and `members` are converter options:
    ``to_onnx(pipeline, X[:1], options={id(pipeline[-1]): {"members": True}})``.
    """
    from skl2onnx import update_registered_converter

    options = {"zipmap": [True, False, "columns"], "quantiles": None, "members": [True, False]}
    for part in (ensembles, distillers):
        for name in part.__all__:
            kind = getattr(part, name)
            if isinstance(kind, type) and issubclass(kind, DistributionEstimator):
                update_registered_converter(
                    kind,
                    f"Skdistill{name}",
                    _infer_nothing,
                    _convert,
                    parser=partial(_parse, f"Skdistill{name}"),
                    options=options,
                )


class ReadOffs(nn.Module):
    """All that a fitted estimator predicts for rows, as a tuple of tensors that have names.

    Parameters
    ----------
    estimator : DistributionEstimator
        A fitted one, on any device; its module is copied to the CPU.
    quantiles, members
        As in :func:`export_onnx`.

    Attributes
    ----------
    names : list of str
        What the tensors are.
    examples : list of Tensor
        The tensors for `X`.
    X : Tensor of shape (2, ...)
        Rows of zeros.
    """

    def __init__(
        self, estimator: DistributionEstimator, quantiles: Any = None, members: bool = False
    ):
        super().__init__()
        self.plan = estimator._plan
        self.module = copy.deepcopy(estimator.module_).cpu().eval().requires_grad_(False)
        is_numeric = self.plan.task.kind == "regressor"
        with errors_about("quantiles"):
            levels = np.atleast_1d(np.asarray([] if quantiles is None else quantiles, float))
        if not (is_numeric or quantiles is None) or not all(0 < level < 1 for level in levels):
            raise ValueError(
                "quantiles must be numbers strictly between 0 and 1, for a regressor, or None; got "
                f"{quantiles!r}."
            )
        OneOf((True, False) if self.plan.has_members else (False,)).check(members, "members")
        self.levels, self.members = [float(level) for level in levels], members
        dtype = next(self.module.parameters()).dtype
        self.X = torch.zeros(2, *estimator._recipe.row_shape, dtype=dtype)
        with torch.no_grad():
            found = dict(self._read(self.X))
        if self.levels and "quantiles" not in found:
            raise ValueError(
                f"quantiles must be None: those of {type(estimator).__name__}'s distribution, "
                f"{type(self.module.distribution(self.X)).__name__}, have no closed form."
            )
        self.names, self.examples = list(found), list(found.values())

    def forward(self, X: Tensor) -> tuple[Tensor, ...]:
        """Map rows (n, ...) to tensors whose first axis is n."""
        return tuple(value for _, value in self._read(X))

    def _read(self, X: Tensor) -> Iterator[tuple[str, Tensor]]:
        distribution = self.module.distribution(X)
        task, parts = self.plan.task, distribution.uncertainty()
        if task.kind == "classifier":
            yield "label", task.point(distribution)
            yield "probabilities", distribution.mean
        else:
            yield "mean", task.per_target(distribution.mean)
            yield "std", task.per_target(parts.total.sqrt())
            yield from self._read_quantiles(distribution)
        if self.plan.tells_parts:
            yield "aleatoric", task.per_target(parts.aleatoric)
            yield "epistemic", task.per_target(parts.epistemic)
        yield "total", task.per_target(parts.total)
        if self.members:
            yield "members", distribution.members

    def _read_quantiles(self, distribution: Any) -> Iterator[tuple[str, Tensor]]:
        tail = (1 - _COVERAGE) / 2
        levels = [tail, 1 - tail, *self.levels]
        found = closed_form_quantiles(distribution, levels)
        if found is not None:
            found = self.plan.task.per_target(found)
            yield "interval", found[..., :2]
            if self.levels:
                yield "quantiles", found[..., 2:]


# --- closed forms in operations that ONNX has -----------------------------------------------------


def closed_form_quantiles(distribution: Any, levels: Iterable[float]) -> Tensor | None:
    """Quantiles (n, t, k) of one Gaussian, or of Student's t; None for other distributions."""
    q = np.asarray(levels, dtype=np.float64)
    if isinstance(distribution, NormalInverseWishart):
        distribution = distribution.marginals
    if isinstance(distribution, NormalInverseGamma):
        scale, standard = distribution.spread, student_quantiles(2 * distribution.alpha, q)
    elif isinstance(distribution, ExpectedGaussian) or (
        isinstance(distribution, EmpiricalGaussian) and len(distribution.means) == 1
    ):
        scale, standard = distribution.variance.sqrt(), torch.tensor(special.ndtri(q))
    else:
        return None
    return distribution.mean.unsqueeze(-1) + scale.unsqueeze(-1) * standard.to(scale)


def student_quantiles(degrees: Tensor, q: np.ndarray) -> Tensor:
    """Quantiles (..., k) of Student's t with at least two degrees of freedom (...), in float64.

    The logarithm of their ratio to those of the normal distribution is a polynomial in
    ``1 / degrees``, which interpolates scipy's values; there is one for each level.
    """
    normal = special.ndtri(q)
    nodes = np.polynomial.chebyshev.chebpts1(_DEGREE + 1)
    at_nodes = special.stdtrit(4 / (1 + nodes[:, None]), q)
    logs = np.log(np.divide(at_nodes, normal, np.ones_like(at_nodes), where=normal != 0))
    coefficients = np.linalg.solve(np.vander(nodes), logs)  # the highest power first
    x = 4 / degrees.double().unsqueeze(-1) - 1  # -1 at infinitely many degrees, 1 at two
    total = torch.zeros_like(x)
    for row in coefficients:
        total = total * x + torch.tensor(row)
    return torch.tensor(normal) * total.exp()


def _log1p(x: Tensor) -> Tensor:
    """``log(1 + x)`` to rounding; -69 at -1."""
    return _log_sum(x, (1 + x).clamp(min=1e-30))


def _log_sum(x: Tensor, total: Tensor) -> Tensor:
    """Logarithm of the rounded sum ``1 + x``, and what the rounding took."""
    return total.log() + (x - (total - 1)) / total


def _expm1(x: Tensor) -> Tensor:
    """``exp(x) - 1`` to rounding."""
    power = x.exp()
    logarithm = power.log()
    is_near_zero = logarithm.abs() < 1
    exact = torch.where(is_near_zero & (logarithm != 0), logarithm, 1.0)
    near = torch.where(logarithm == 0, x, (power - 1) * (x / exact))
    return torch.where(is_near_zero, near, power - 1)


def _softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """``log(1 + exp(x))`` of full relative accuracy far below zero."""
    power = (-x.abs()).exp()
    return x.relu() + _log_sum(power, 1 + power)


# ONNX has no log1p and expm1, and its softplus rounds small values to zero.
_DECOMPOSITIONS: dict[Any, Any] = {
    torch.ops.aten.log1p.default: _log1p,
    torch.ops.aten.expm1.default: _expm1,
    torch.ops.aten.softplus.default: _softplus,
}


# --- graphs ---------------------------------------------------------------------------------------


def _import_onnx() -> Any:
    try:
        import onnx
        import onnxscript  # noqa: F401  # torch's exporter needs it
    except ImportError as error:
        raise ImportError(
            "export_onnx needs onnx and onnxscript: pip install skdistill[onnx]."
        ) from error
    return onnx


def _program(read_offs: ReadOffs) -> Any:
    """Trace the read-offs of an estimator, for any number of rows."""
    rows = torch.export.Dim("batch", min=1)
    with torch.no_grad():
        return torch.export.export(read_offs, (read_offs.X,), dynamic_shapes=({0: rows},))


def _graph(read_offs: ReadOffs, opset: int = _OPSET[""]) -> Any:
    """Export the read-offs of an estimator."""
    onnx = _import_onnx()
    with torch.no_grad():
        program = _program(read_offs).run_decompositions(_DECOMPOSITIONS)
    exported: Any = torch.onnx.export(
        program, input_names=["X"], opset_version=opset, verbose=False
    )
    proto = exported.model_proto
    names = ["codes" if name == "label" else name for name in read_offs.names]
    outputs = (output.name for output in proto.graph.output)
    names_of = {"X": "X", "": "", **dict(zip(outputs, names, strict=True))}
    _rename(proto.graph, lambda name: names_of.get(name, f"_{name}"))
    for part in (*proto.graph.node, *proto.graph.input, *proto.graph.output):
        part.ClearField("metadata_props")  # where in the source it comes from
        part.ClearField("doc_string")
    proto.graph.ClearField("value_info")
    proto.producer_name, proto.producer_version = "skdistill", __version__
    if "label" in read_offs.names:
        _add_labels(onnx, proto.graph, _labels(read_offs.plan.task))
    onnx.checker.check_model(proto)
    return proto


def _rename(graph: Any, new: Callable[[str], str]) -> None:
    """Give every value of a graph another name."""
    for part in (*graph.input, *graph.initializer, *graph.output):
        part.name = new(part.name)
    for node in graph.node:
        node.input[:] = map(new, node.input)
        node.output[:] = map(new, node.output)


def _labels(task: Any) -> np.ndarray:
    """Labels of the classes as int64, floats, or strings (objects)."""
    if task.labels.dtype.kind in "biu":
        return task.labels.astype(np.int64)
    return task.labels if task.labels.dtype.kind == "f" else task.labels.astype(str).astype(object)


def _add_labels(onnx: Any, graph: Any, labels: np.ndarray) -> None:
    """Turn the first output, codes of classes, into their labels: numbers, or strings."""
    table = onnx.numpy_helper.from_array(labels, "labels")
    graph.initializer.append(table)
    graph.node.append(onnx.helper.make_node("Gather", ["labels", "codes"], ["label"]))
    output = onnx.helper.make_tensor_value_info("label", table.data_type, ["batch"])
    graph.output[0].CopyFrom(output)


# --- pipelines, by skl2onnx -----------------------------------------------------------------------


def _steps_before(model: Any) -> list[Any]:
    """Return the steps of Pipelines before the estimator, in searches and the like too."""
    steps: list[Any] = []
    while model is not None:
        steps += [step for _, step in getattr(model, "steps", ())[:-1] if step != "passthrough"]
        model = inside(model)
    return steps


def _pipeline_graph(steps: list[Any], read_offs: ReadOffs, estimator: Any) -> Any:
    """Convert the fitted steps of a Pipeline, and the estimator after them."""
    from skl2onnx import convert_sklearn

    register_converters()
    pipeline = make_pipeline(_by_position(steps[0]), *steps[1:], estimator)
    options = {"zipmap": False, "quantiles": read_offs.levels or None, "members": read_offs.members}
    try:
        return convert_sklearn(
            pipeline,
            initial_types=[("X", _tensor_type(read_offs.X.numpy(), [steps[0].n_features_in_]))],
            options={id(estimator): options},
            target_opset=_OPSET,
            custom_conversion_functions={SimpleImputer: _convert_imputer},
        )
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            "model must have steps that skl2onnx converts, for one X of numbers; for columns of "
            f"text call skl2onnx.to_onnx after register_converters. skl2onnx reports: {error}"
        ) from error


def _by_position(step: Any) -> Any:
    """Let a ColumnTransformer that knows its columns by name take them by position: X has none."""
    if not (isinstance(step, ColumnTransformer) and hasattr(step, "feature_names_in_")):
        return step
    positions = step.feature_names_in_.tolist().index
    step = copy.copy(step)
    step.transformers_ = [
        (name, part, [c if isinstance(c, int) else positions(c) for c in columns])
        for name, part, columns in step.transformers_
    ]
    return step


def _read_offs_of(scope: Any, estimator: Any) -> ReadOffs:
    """Return the read-offs that the options of a conversion ask for."""
    options = scope.get_options(estimator, {"quantiles": None, "members": False}, fail=False)
    return ReadOffs(estimator, options["quantiles"], options["members"])


def _parse(alias: str, scope: Any, model: Any, inputs: Any, custom_parsers: Any = None) -> Any:
    """Declare the outputs of an estimator."""
    operator = scope.declare_local_operator(alias, model)
    operator.inputs = inputs
    read_offs = _read_offs_of(scope, model)
    for name, example in zip(read_offs.names, read_offs.examples, strict=True):
        like = _labels(read_offs.plan.task) if name == "label" else example.numpy()
        kind = _tensor_type(like, example.shape[1:])
        operator.outputs.append(scope.declare_local_variable(name, kind))
    return operator.outputs


def _convert_imputer(scope: Any, operator: Any, container: Any) -> None:
    """Fill in NaN in float64, for which onnxruntime has no Imputer; all else as skl2onnx does."""
    from skl2onnx.common.data_types import DoubleTensorType
    from skl2onnx.operator_converters.imputer_op import convert_sklearn_imputer

    imputer, inputs = operator.raw_operator, operator.inputs
    is_plain = not (imputer.add_indicator or np.isnan(imputer.statistics_).any())
    if len(inputs) > 1 or not (isinstance(inputs[0].type, DoubleTensorType) and is_plain):
        return convert_sklearn_imputer(scope, operator, container)
    kind = _import_onnx().TensorProto.DOUBLE
    known, is_nan = map(scope.get_unique_variable_name, ("statistics", "is_nan"))
    container.add_initializer(known, kind, [len(imputer.statistics_)], imputer.statistics_)
    X = inputs[0].full_name
    for name, given, found in (
        ("IsNaN", [X], is_nan),
        ("Where", [is_nan, known, X], operator.outputs[0].full_name),
    ):
        container.add_node(name, given, [found], name=scope.get_unique_operator_name(name))


def _tensor_type(like: np.ndarray, shape: Sequence[int]) -> Any:
    """Return skl2onnx's type of arrays (n, *shape) with the dtype of `like`."""
    from skl2onnx.common import data_types as types

    kinds = {
        "int64": types.Int64TensorType,
        "float32": types.FloatTensorType,
        "float64": types.DoubleTensorType,
        "object": types.StringTensorType,
    }
    return kinds[like.dtype.name]([None, *shape])


def _infer_nothing(operator: Any) -> None:
    """Leave shapes and types as `_parse` has declared them."""


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Add the graph of an estimator, under names of its own."""
    read_offs = _read_offs_of(scope, operator.raw_operator)
    opset = container.target_opset
    graph = _graph(read_offs, opset).graph
    outputs = [output.full_name for output in operator.outputs]
    names = dict(zip(read_offs.names, outputs, strict=True))
    names["X"] = scope.get_unique_variable_name("rows")
    dtype = graph.input[0].type.tensor_type.elem_type
    given = [operator.inputs[0].full_name]
    # The version makes it the opset of the whole graph.
    container.add_node("Cast", given, [names["X"]], op_version=opset, to=dtype)

    def new(name: str) -> str:
        if name and name not in names:
            names[name] = scope.get_unique_variable_name(name)
        return names.get(name, "")

    _rename(graph, new)
    for node in graph.node:
        node.name = scope.get_unique_operator_name(node.op_type)
    container.initializers.extend(graph.initializer)
    container.nodes.extend(graph.node)
