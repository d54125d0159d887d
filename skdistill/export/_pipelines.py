# SPDX-License-Identifier: BSD-3-Clause
"""Pipelines as ONNX graphs, by skl2onnx."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline

from .._estimator.unwrapping import inside
from ._columns import column_names, with_input_names
from ._graph import OPSET, graph_of, import_onnx, rename
from ._outputs import GraphOutputs


def steps_before(model: BaseEstimator) -> list[BaseEstimator]:
    """Return the steps of Pipelines before the estimator, in searches and the like too."""
    steps: list[Any] = []
    while model is not None:
        if isinstance(model, Pipeline):
            steps += [step for _, step in model.steps[:-1] if step != "passthrough"]
        model = inside(model)
    return steps


def pipeline_graph(steps: list[BaseEstimator], graph_outputs: GraphOutputs, inputs: str) -> Any:
    """Put the graph of the fitted steps of a Pipeline before that of the estimator after them."""
    from skl2onnx import convert_sklearn

    onnx, proto = import_onnx(), graph_of(graph_outputs)
    pipeline = make_pipeline(_by_position(steps[0]), *steps[1:])
    like, n_columns = graph_outputs.inputs["X"].numpy(), steps[0].n_features_in_
    names, kinds = ["X"], [("X", _tensor_type(like, [n_columns]))]
    if inputs == "columns":
        names, text = column_names(steps[0], graph_outputs.names), _text_columns(pipeline[0])
        dtypes = [np.dtype(object) if k in text else like.dtype for k in range(n_columns)]
        kinds = [(f"x{k}", _tensor_type(np.empty(0, d), [1])) for k, d in enumerate(dtypes)]
    try:
        before = convert_sklearn(
            pipeline,
            initial_types=kinds,
            target_opset=OPSET,
            custom_conversion_functions={SimpleImputer: _convert_imputer},
        )
        (transformed,) = before.graph.output
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            "model must have steps that skl2onnx converts, for one X of numbers; columns of text "
            f"take inputs='columns'. skl2onnx reports: {error}"
        ) from error
    (X,) = proto.graph.input
    name_of_X = X.name  # it is renamed with the others
    cast = onnx.helper.make_node(
        "Cast", [f"step_{transformed.name}"], ["transformed"], to=X.type.tensor_type.elem_type
    )
    rename(proto.graph, lambda name: "transformed" if name == name_of_X else name)
    rename(before.graph, lambda name: f"step_{name}" if name else "")
    nodes = [*before.graph.node, cast, *proto.graph.node]
    for part in ("input", "node"):
        proto.graph.ClearField(part)
    proto.graph.input.extend(before.graph.input)
    proto.graph.node.extend(nodes)
    proto.graph.initializer.extend(before.graph.initializer)
    known = {opset.domain for opset in proto.opset_import}
    proto.opset_import.extend(o for o in before.opset_import if o.domain not in known)
    return with_input_names(proto, names)


def _text_columns(step: BaseEstimator) -> set[int]:
    """Return the columns in which encoders and imputers, of a ColumnTransformer too, found text."""
    parts = step.transformers_ if isinstance(step, ColumnTransformer) else [("", step, slice(None))]
    numbers, found = np.arange(step.n_features_in_), set()
    for _, part, columns in parts:
        part = part[0] if isinstance(part, Pipeline) else part
        for attribute in ("categories_", "statistics_"):
            held = getattr(part, attribute) if hasattr(part, attribute) else []
            kinds = [np.asarray(values).dtype.kind for values in held]
            found |= {k for k, kind in zip(numbers[columns], kinds, strict=False) if kind in "OU"}
    return found


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


def _convert_imputer(scope: Any, operator: Any, container: Any) -> None:
    """Fill in NaN in float64, for which onnxruntime has no Imputer; all else as skl2onnx does."""
    from skl2onnx.common.data_types import DoubleTensorType
    from skl2onnx.operator_converters.imputer_op import convert_sklearn_imputer

    imputer, inputs = operator.raw_operator, operator.inputs
    is_double = len(inputs) == 1 and isinstance(inputs[0].type, DoubleTensorType)
    if not is_double or imputer.add_indicator or np.isnan(imputer.statistics_).any():
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
