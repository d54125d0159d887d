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
from .._data.schema import InputSchema
from .._estimator.predicting import DistributionEstimator
from .._estimator.unwrapping import inside
from ._columns import by_column, column_names, with_input_names
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


def pipeline_graph(
    steps: list[BaseEstimator], graph_outputs: GraphOutputs, estimator: Any, inputs: str
) -> Any:
    """Convert the fitted steps of a Pipeline, and the estimator after them."""
    from skl2onnx import convert_sklearn

    register_converters()
    pipeline = make_pipeline(_by_position(steps[0]), *steps[1:], estimator)
    like, n_columns = graph_outputs.inputs["X"].numpy(), steps[0].n_features_in_
    kinds = [("X", _tensor_type(like, [n_columns]))]
    if inputs == "columns":
        names, text = column_names(steps[0], graph_outputs.names), _text_columns(pipeline[0])
        dtypes = [np.dtype(object) if k in text else like.dtype for k in range(n_columns)]
        kinds = [(f"x{k}", _tensor_type(np.empty(0, d), [1])) for k, d in enumerate(dtypes)]
    try:
        proto = convert_sklearn(
            pipeline,
            initial_types=kinds,
            options={id(estimator): {"zipmap": False, **graph_outputs.options}},
            target_opset=OPSET,
            custom_conversion_functions={SimpleImputer: _convert_imputer},
        )
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            "model must have steps that skl2onnx converts, for one X of numbers; columns of text "
            "take inputs='columns', or skl2onnx.to_onnx after register_converters. skl2onnx "
            f"reports: {error}"
        ) from error
    return with_input_names(proto, names) if inputs == "columns" else proto


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


def _check_columns(variables: Sequence[Any], are_text: list[bool], schema: InputSchema) -> None:
    """Raise a ValueError unless variables are the columns of `fit`, with text where it had text."""
    widths, n_columns = [variable.type.shape[1] for variable in variables], len(schema.dtypes)
    if widths != [1] * n_columns:
        raise ValueError(
            f"The graph must have one input X of {n_columns} numbers, or {n_columns} inputs of one "
            f"column each, as fit had; got inputs of {widths} columns."
        )
    for number, (variable, is_text) in enumerate(zip(variables, are_text, strict=True)):
        if is_text != (number in schema.text):
            kinds = "numbers", "text"
            raise ValueError(
                f"The input {variable.raw_name!r} must hold {kinds[not is_text]}, as in fit; got "
                f"{kinds[is_text]}."
            )


def _tensor_type(like: np.ndarray, shape: Sequence[int]) -> Any:
    """Return skl2onnx's type of arrays (n, *shape) with the dtype of `like`."""
    from skl2onnx.common import data_types

    kinds = {"int64": "Int64", "float32": "Float", "float64": "Double", "object": "String"}
    return getattr(data_types, f"{kinds[like.dtype.name]}TensorType")([None, *shape])


def _infer_nothing(operator: object) -> None:
    """Leave shapes and types as `_parse` has declared them."""


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Add the graph of an estimator, under names of its own."""
    from skl2onnx.common.data_types import StringTensorType

    graph_outputs = _graph_outputs_of(scope, operator.raw_operator)
    opset = container.target_opset
    proto = graph_of(graph_outputs, opset)
    are_text = [isinstance(variable.type, StringTensorType) for variable in operator.inputs]
    if len(are_text) > 1 or are_text[0]:  # a variable for each column, and not one of numbers
        schema = operator.raw_operator._input_schema
        _check_columns(operator.inputs, are_text, schema)
        container.node_domain_version_pair_sets.add(("ai.onnx.ml", OPSET["ai.onnx.ml"]))
        proto = by_column(proto, schema)
    graph = proto.graph
    outputs = [output.full_name for output in operator.outputs]
    names = dict(zip(graph_outputs.names, outputs, strict=True))
    for variable, rows in zip(operator.inputs, graph.input, strict=True):
        names[rows.name] = scope.get_unique_variable_name(rows.name)
        dtype, given = rows.type.tensor_type.elem_type, [variable.full_name]
        # The version makes it the opset of the whole graph.
        container.add_node("Cast", given, [names[rows.name]], op_version=opset, to=dtype)

    def new(name: str) -> str:
        if name and name not in names:
            names[name] = scope.get_unique_variable_name(name)
        return names.get(name, "")

    rename(graph, new)
    for node in graph.node:
        node.name = scope.get_unique_operator_name(node.op_type)
    container.initializers.extend(graph.initializer)
    container.nodes.extend(graph.node)
