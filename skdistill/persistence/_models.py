# SPDX-License-Identifier: BSD-3-Clause
"""Saving and loading fitted models.

In JSON, models and what they are made of are ``{"object": [name, state]}``, see :mod:`._names`.
"""

import inspect
import json
import os
from collections import UserList
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.compose import make_column_selector
from sklearn.utils.validation import check_is_fitted
from torch.overrides import TorchFunctionMode

from .._estimator.base import NetEstimator
from .._serialization.container import pack, read, write_atomically
from .._serialization.json import Decoder, Encoder
from .._utils.validation import FilePath, OneOf, Settings
from .._version import __version__
from ._names import NAMES, registered_name

_FORMAT = "skdistill model", "1"  # and its version


def save(model: BaseEstimator, path: str | os.PathLike, *, include_teacher: bool = False) -> None:
    """Save a fitted model, atomically, to a file that is safe to load.

    The model that :func:`load` returns has the same predictions, bit for bit.

    Parameters
    ----------
    model : estimator
        A fitted estimator of skdistill, or a Pipeline of scikit-learn's scalers, imputers and
        encoders, or a TransformedTargetRegressor, around one.
    path : str or os.PathLike
        Of the file, ``"student.safetensors"`` say.
    include_teacher : bool, default=False
        Whether to keep teachers, which must be estimators of skdistill then. Without them the
        loaded model predicts all the same; its parameter `teacher`, which is None, "classifier" or
        "regressor" then, has to be set before it is fitted again.

    Raises
    ------
    TypeError
        If the model holds what cannot be saved, such as a function without a name, see
        :func:`register`.
    sklearn.exceptions.NotFittedError
        If the model is not fitted.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import os, tempfile
    >>> import skdistill
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = skdistill.BayesianEnsembleClassifier(2, max_epochs=2).fit(X, y)
    >>> path = os.path.join(tempfile.mkdtemp(), "iris.safetensors")
    >>> skdistill.save(model, path)
    >>> skdistill.load(path).predict_proba(X[:5]).shape
    (5, 3)
    """
    FilePath().check(path, "path")
    OneOf((True, False)).check(include_teacher, "include_teacher")
    check_is_fitted(model)
    encoder = Encoder(partial(_encode_object, include_teacher))
    text = json.dumps(encoder.encode(model), separators=(",", ":"), allow_nan=False)
    write_atomically(Path(path), *pack(*_FORMAT, text, encoder.arrays))


def load(path: str | os.PathLike) -> BaseEstimator:
    """Load a model saved by :func:`save`.

    Loading runs no code from the file. Sizes and shapes are checked before memory is allocated. The
    SHA-256 of the file detects damage, but not a change by somebody who computes it anew.

    Parameters
    ----------
    path : str or os.PathLike

    Returns
    -------
    model : estimator

    Raises
    ------
    ValueError
        If the file is damaged, no regular file, no model of skdistill, of another format version,
        or holds what is not known here. The message names the file.
    OSError
        If there is no such file, or it cannot be read.
    """
    FilePath().check(path, "path")
    try:
        text, arrays = read(Path(path), *_FORMAT)
        decoder = Decoder(arrays, {"name": lambda _, name: _named(name), "object": _object})
        model = decoder.decode_all(json.loads(text))
        if not isinstance(model, BaseEstimator) or isinstance(model, Settings):
            raise ValueError("it holds no model")
        return model
    except OSError:
        raise
    except Exception as error:  # of any kind: the file may say anything
        raise ValueError(f"{os.fspath(path)!r} cannot be loaded: {error}.") from error


# --- models as JSON ---------------------------------------------------------------------------


# Calls that may build networks, in all and for each array: ten times what ours take.
_CALLS, _CALLS_PER_ARRAY = 1_000, 100


def _encode_object(include_teacher: bool, encoder: Encoder, value: object, place: str) -> Any:
    kind = type(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, UserList):  # of a ColumnTransformer's remainder, before scikit-learn 1.9
        return encoder.encode(value.data, place)
    if _has_state(kind) and (name := registered_name(kind)) is not None:
        return {"object": [name, encoder.encode(_state_of(value, include_teacher), place)]}
    if callable(value) and (name := registered_name(value)) is not None:
        return {"name": name}
    raise TypeError(f"{place or 'model'} cannot be saved: {_advice(value)}")


def _state_of(value: object, include_teacher: bool) -> dict[str, object]:
    """What an object of a registered class is made of."""
    if isinstance(value, Settings):
        return value.get_params(deep=False)
    if is_dataclass(value):
        saved = (field.name for field in fields(value) if field.metadata.get("is_saved", True))
        return {name: getattr(value, name) for name in saved}
    if isinstance(value, tuple):  # a named one, which mypy cannot know: no others are registered
        return value._asdict()  # type: ignore[attr-defined]
    if not isinstance(value, BaseEstimator):
        return vars(value)
    state = dict(value.__getstate__())
    state.pop("_skdistill_version", None)
    if isinstance(value, NetEstimator) and "teacher" in state and not include_teacher:
        state.pop("teacher_", None)
        state["teacher"] = value._kind if isinstance(value, MetaEstimatorMixin) else None
    return state


def _has_state(cls: type) -> bool:
    """Whether objects of a class are made of values; networks, say, are not."""
    kinds = (tuple, Settings, BaseEstimator, make_column_selector)
    return is_dataclass(cls) or issubclass(cls, kinds)


def _advice(value: object) -> str:
    value = type(value) if isinstance(value, Settings) else value  # a family of the user's, say
    if callable(value) and hasattr(value, "__name__"):
        return (
            f"{value.__name__} has no name that load would know. Give it one, here and before "
            "load: skdistill.persistence.register(name, value)."
        )
    if hasattr(value, "best_estimator_"):
        return f"it is a {type(value).__name__}. Save its best_estimator_, which predicts the same."
    return (
        f"it is a {type(value).__module__}.{type(value).__qualname__}. Files hold models of "
        "skdistill, scikit-learn's scalers, imputers and encoders, arrays and plain values."
    )


def _named(name: str) -> Any:
    if name not in NAMES:
        raise ValueError(
            f"it needs {name!r}, which is not known. If that is yours, call "
            f"skdistill.persistence.register({name!r}, ...) first"
        )
    return NAMES[name]


def _object(decoder: Decoder, content: list) -> Any:
    name, encoded = content
    cls, state = _named(name), decoder.decode(encoded)
    if not (isinstance(cls, type) and _has_state(cls)):
        raise ValueError(f"{name!r} is nothing that could have a state")
    if is_dataclass(cls) or issubclass(cls, (tuple, Settings)):
        return cls(**state)
    if covered := [key for key in state if callable(getattr(cls, key, None))]:
        raise ValueError(f"it has values in place of the methods {covered} of {name}")
    model: Any = cls.__new__(cls)
    if issubclass(cls, NetEstimator):
        _restore(model, state)
    elif issubclass(cls, BaseEstimator):
        model.__setstate__(state)
    else:
        vars(model).update(state)
    return model


def _restore(model: NetEstimator, state: dict[str, Any]) -> None:
    """Give an estimator its state; refuse networks that are not those of the weights."""
    given = (p for p in inspect.signature(type(model)).parameters.values() if p.name not in state)
    newer = {p.name: p.default for p in given if p.default is not p.empty}
    weights = state.get("_weights", {})
    n_networks = state["_plan"].n_networks if weights else 1
    full = [array for array in weights.values() if array.size]
    if n_networks > max([1, len(full), *(size for array in full for size in array.shape)]):
        raise ValueError(f"it has no weights for {n_networks} networks")
    with _Budget(_CALLS + _CALLS_PER_ARRAY * len(weights) * n_networks):
        model.__setstate__({**state, **newer, "_skdistill_version": __version__})


class _Budget(TorchFunctionMode):
    """Stops what calls torch more often than building a file's networks takes."""

    def __init__(self, n_calls: int):
        super().__init__()
        self.n_calls = n_calls

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.n_calls -= 1
        if self.n_calls < 0:
            raise ValueError("its networks have more layers than there are weights for")
        return func(*args, **(kwargs or {}))
