# SPDX-License-Identifier: BSD-3-Clause
"""The names by which classes and functions stand in files.

They are for ever: a class that gets another name keeps its old one here.
"""

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn import compose, frozen, impute, pipeline, preprocessing

from .. import distillers, ensembles, modules
from .._data.columns import Columns
from .._data.encoding import InputEncoding
from .._data.schema import InputSchema
from .._estimator.calibration import ApproximationError, Calibration, Temperature
from .._method.plan import NetworkRecipe, Plan, TrainingBudget
from .._method.random_functions import RandomFunctions, UnknownColumns, UnseenValues
from .._method.task import TASKS
from .._utils.validation import Settings
from ..distillers import LearnerRecipes, Round
from ..ensembles import SamplerDiagnostics
from ..expectations import KNOWN

# Steps of a pipeline around a model: their state is arrays and plain values.
_STEPS = (
    *(compose.ColumnTransformer, compose.TransformedTargetRegressor, compose.make_column_selector),
    *(frozen.FrozenEstimator, pipeline.FeatureUnion, pipeline.Pipeline),
    *(impute.KNNImputer, impute.MissingIndicator, impute.SimpleImputer),
    *(preprocessing.Binarizer, preprocessing.FunctionTransformer, preprocessing.KBinsDiscretizer),
    *(preprocessing.LabelBinarizer, preprocessing.LabelEncoder, preprocessing.MaxAbsScaler),
    *(preprocessing.MinMaxScaler, preprocessing.Normalizer, preprocessing.OneHotEncoder),
    *(preprocessing.OrdinalEncoder, preprocessing.PolynomialFeatures),
    *(preprocessing.PowerTransformer, preprocessing.QuantileTransformer),
    *(preprocessing.RobustScaler, preprocessing.StandardScaler, preprocessing.TargetEncoder),
)


# Functions that transform targets, and columns.
_ELEMENTWISE = (np.clip, np.exp, np.expm1, np.log, np.log1p, np.sqrt, np.square)


def _descendants(base: Any) -> Iterator[type]:
    """Classes of skdistill that inherit from a class."""
    for cls in base.__subclasses__():
        if cls.__module__.startswith("skdistill."):
            yield cls
            yield from _descendants(cls)


def _public(package: Any) -> list[type]:
    """Classes that a package exports."""
    found = (getattr(package, name) for name in package.__all__)
    return [value for value in found if inspect.isclass(value)]


_OURS = [
    *_public(ensembles),
    *_public(distillers),
    *(*TASKS.values(), TrainingBudget, LearnerRecipes, NetworkRecipe, Round, SamplerDiagnostics),
    *(Calibration, Columns, InputEncoding, InputSchema, RandomFunctions, Temperature),
    *(ApproximationError, UnknownColumns, UnseenValues),
    *_descendants(Plan),
    *_descendants(Settings),
]

NAMES: dict[str, Any] = {
    **{cls.__name__: cls for cls in (*_OURS, *_public(modules))},
    **{f"sklearn.{cls.__name__}": cls for cls in _STEPS},
    **{f"numpy.{function.__name__}": function for function in _ELEMENTWISE},
    **{
        f"torch.optim.{name}": cls
        for name, cls in vars(torch.optim).items()
        if inspect.isclass(cls) and issubclass(cls, torch.optim.Optimizer)
    },
    **{
        f"expectation of a {task}: {name}": expectation.g
        for task, known in KNOWN.items()
        for name, expectation in known.items()
    },
}

#: Names of the types of ours that a fitted model may hold, as ``skops.io.load(trusted=...)`` takes
#: them.
TRUSTED = sorted({f"{cls.__module__}.{cls.__qualname__}" for cls in (*_OURS, *_public(modules))})


def register(name: str, value: object) -> None:
    """Let files hold a model class or function of your own, by a name.

    Register it before :func:`save`, and in each process before :func:`load`.

    Parameters
    ----------
    name : str
        The name that stands in the file.
    value : class or function
        A model class or function given as ``module=``, a class whose objects are given as
        ``family=``, the ``g`` of an :class:`~skdistill.expectations.Expectation`, or a transformer
        of a pipeline whose state is arrays and plain values. :func:`load` calls it with arguments
        that the file gives.

    Raises
    ------
    ValueError
        If the name stands for something else.
    """
    if not isinstance(name, str) or not callable(value):
        raise TypeError(
            f"register takes a name and a class or function; got {name!r} and {value!r}."
        )
    if NAMES.setdefault(name, value) is not value:
        raise ValueError(f"name {name!r} stands for {NAMES[name]!r} already.")


def registered_name(value: object) -> str | None:
    """Return the name of a class or function, None for others."""
    return next((name for name, known in NAMES.items() if known is value), None)
