# SPDX-License-Identifier: BSD-3-Clause
"""Pipelines as ONNX graphs, by skl2onnx."""

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline

from .. import distillers, ensembles
from .._estimator.predicting import DistributionEstimator
from .._estimator.unwrapping import inside
from ._graph import OPSET, graph_of, import_onnx, labels_of, rename
from ._outputs import GraphOutputs


def register_converters() -> None:
    """Teach skl2onnx this package's estimators, so that ``skl2onnx.to_onnx`` takes them.

    Outputs are those of :func:`export_onnx`; its `quantiles` and `outputs` are options:
    ``to_onnx(pipeline, X[:1], options={id(pipeline[-1]): {"outputs": ["mean", "std"]}})``.
    """
    from skl2onnx import update_registered_converter

    options = {"zipmap": [True, False, "columns"], **dict.fromkeys(GraphOutputs.defaults)}
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


def steps_before(model: BaseEstimator) -> list[BaseEstimator]:
    """Return the steps of Pipelines before the estimator, in searches and the like too."""
    steps: list[Any] = []
    while model is not None:
        if isinstance(model, Pipeline):
            steps += [step for _, step in model.steps[:-1] if step != "passthrough"]
        model = inside(model)
    return steps


def pipeline_graph(steps: list[BaseEstimator], graph_outputs: GraphOutputs, estimator: Any) -> Any:
    """Convert the fitted steps of a Pipeline, and the estimator after them."""
    from skl2onnx import convert_sklearn

    register_converters()
    pipeline = make_pipeline(_by_position(steps[0]), *steps[1:], estimator)
    kind = _tensor_type(graph_outputs.inputs["X"].numpy(), [steps[0].n_features_in_])
    try:
        return convert_sklearn(
            pipeline,
            initial_types=[("X", kind)],
            options={id(estimator): {"zipmap": False, **graph_outputs.options}},
            target_opset=OPSET,
            custom_conversion_functions={SimpleImputer: _convert_imputer},
        )
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            "model must have steps that skl2onnx converts, for one X of numbers; for columns of "
            f"text call skl2onnx.to_onnx after register_converters. skl2onnx reports: {error}"
        ) from error


def _by_position(step: BaseEstimator) -> BaseEstimator:
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


def _graph_outputs_of(scope: Any, estimator: BaseEstimator) -> GraphOutputs:
    """Return the prediction methods that the options of a conversion ask for."""
    defaults = dict(GraphOutputs.defaults)  # what is given is filled in
    given = scope.get_options(estimator, defaults, fail=False)
    return GraphOutputs(estimator, **{name: given[name] for name in GraphOutputs.defaults})


def _parse(alias: str, scope: Any, model: Any, inputs: Any, custom_parsers: Any = None) -> Any:
    operator = scope.declare_local_operator(alias, model)
    operator.inputs = inputs
    graph_outputs = _graph_outputs_of(scope, model)
    for name, example in zip(graph_outputs.names, graph_outputs.examples, strict=True):
        like = labels_of(graph_outputs.plan.task) if name == "label" else example.numpy()
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
    kind = import_onnx().TensorProto.DOUBLE
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
    from skl2onnx.common import data_types

    kinds = {"int64": "Int64", "float32": "Float", "float64": "Double", "object": "String"}
    return getattr(data_types, f"{kinds[like.dtype.name]}TensorType")([None, *shape])


def _infer_nothing(operator: object) -> None:
    """Leave shapes and types as `_parse` has declared them."""


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Add the graph of an estimator, under names of its own."""
    graph_outputs = _graph_outputs_of(scope, operator.raw_operator)
    opset = container.target_opset
    graph = graph_of(graph_outputs, opset).graph
    outputs = [output.full_name for output in operator.outputs]
    names = dict(zip(graph_outputs.names, outputs, strict=True))
    names["X"] = scope.get_unique_variable_name("rows")
    dtype = graph.input[0].type.tensor_type.elem_type
    given = [operator.inputs[0].full_name]
    # The version makes it the opset of the whole graph.
    container.add_node("Cast", given, [names["X"]], op_version=opset, to=dtype)

    def new(name: str) -> str:
        if name and name not in names:
            names[name] = scope.get_unique_variable_name(name)
        return names.get(name, "")

    rename(graph, new)
    for node in graph.node:
        node.name = scope.get_unique_operator_name(node.op_type)
    container.initializers.extend(graph.initializer)
    container.nodes.extend(graph.node)
