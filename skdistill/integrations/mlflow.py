# SPDX-License-Identifier: BSD-3-Clause
"""Fitted models in MLflow, as a pyfunc that answers with one table of everything predicted.

The artifact is a file of :func:`skdistill.save`, never a pickle. ``mlflow.pyfunc.load_model`` loads
it, and so do MLflow's servers.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

from sklearn.base import BaseEstimator, is_regressor

from .._estimator.functions import predict_frame
from .._estimator.unwrapping import innermost
from .._serialization.container import LIBRARIES
from ..persistence import load, save

__all__ = ["log_model", "save_model"]

_REQUIREMENTS = ("conda_env", "pip_requirements", "extra_pip_requirements")


def save_model(model: BaseEstimator, path: str | os.PathLike[str], **params: object) -> None:
    """Save a fitted model as an MLflow model, in a folder of the local file system.

    ``mlflow.pyfunc.load_model(path).predict(X)`` then gives the table of
    :func:`skdistill.predict_frame`: the columns `prediction`, `std`, `aleatoric`, `epistemic`,
    `lower` and `upper` for numbers.

    Parameters
    ----------
    model : estimator
        What :func:`skdistill.save` takes. Teachers are left out.
    path : str or os.PathLike
        Of a folder that does not exist yet, or is empty.
    **params
        More arguments of ``mlflow.pyfunc.save_model``. ``input_example=X[:3]`` gives the model a
        signature: MLflow then refuses samples that lack a column, orders columns and leaves out
        what is too much, and callers may choose the `coverage` of a regressor's interval. MLflow
        has no categorical columns: those of the example become text or numbers, which callers give.
        By default ``pip_requirements`` are the versions that the model is saved with.

    Raises
    ------
    TypeError, sklearn.exceptions.NotFittedError
        As :func:`skdistill.save` does, and if the model predicts no distribution.
    """
    _write("save_model", model, {"path": path, **params})


def log_model(model: BaseEstimator, name: str, **params: object) -> Any:
    """Log a fitted model to the active run of MLflow, or to a new one; see :func:`save_model`.

    Parameters
    ----------
    model : estimator
    name : str
        Of the logged model.
    **params
        More arguments of ``mlflow.pyfunc.log_model``, such as ``registered_model_name``.

    Returns
    -------
    info : mlflow.models.model.ModelInfo
        ``mlflow.pyfunc.load_model(info.model_uri)`` loads the model.
    """
    return _write("log_model", model, {"name": name, **params})


def _write(function: str, model: BaseEstimator, params: dict[str, Any]) -> Any:
    """Give a model's file to a function of ``mlflow.pyfunc``, with this module as its loader."""
    try:
        import mlflow.pyfunc
    except ImportError as error:
        raise ImportError(
            "skdistill.integrations.mlflow needs MLflow: pip install skdistill[mlflow]."
        ) from error
    innermost(model, None, "predict_frame", f"mlflow.{function}")
    example = params.get("input_example")
    if example is not None and "signature" not in params:
        outputs, coverage = predict_frame(model, example), {"coverage": 0.9}
        params["input_example"] = example = _without_categoricals(example)
        params["signature"] = mlflow.models.infer_signature(
            example, outputs, coverage if is_regressor(model) else None
        )
    if not any(name in params for name in _REQUIREMENTS):  # MLflow would load the model to guess
        versions = {name: version.partition("+")[0] for name, version in LIBRARIES.items()}
        params["pip_requirements"] = [f"{name}=={version}" for name, version in versions.items()]
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "model.safetensors")
        save(model, file)
        write = getattr(mlflow.pyfunc, function)
        return write(loader_module=__name__, data_path=file, **params)


def _without_categoricals(example: Any) -> Any:
    """Return a frame with the values of categorical columns, as signatures have no such type."""
    if not hasattr(example, "select_dtypes"):
        return example
    columns = example.select_dtypes("category")
    plain = {name: columns[name].astype(object).infer_objects() for name in columns}
    return example.assign(**plain)


def _load_pyfunc(path: str) -> _Pyfunc:
    """Load what MLflow has stored; it calls this function by its name."""
    return _Pyfunc(load(path))


class _Pyfunc:
    """A model with the interface of MLflow."""

    def __init__(self, model: BaseEstimator):
        self.model = model

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        return predict_frame(self.model, model_input, **(params or {}))
