# SPDX-License-Identifier: BSD-3-Clause
"""Saving and loading fitted models."""

import json
import os
from pathlib import Path

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._serialization.atomic import write_atomically
from .._serialization.container import LIBRARIES, pack, read, unpack
from .._utils.validation import FilePath, OneOf
from ._card import card_of, config_of
from ._objects import decoder_of_models, encoder_of_models

_FORMAT = "skdistill model", "1"  # and its version
_MODEL = "model.safetensors"  # in a folder as the Hugging Face hub has them


def save(
    model: BaseEstimator,
    path: str | os.PathLike,
    *,
    include_teacher: bool = False,
    layout: str = "file",
) -> None:
    """Save a fitted model to a file that is safe to load.

    The file is written atomically. The model that :func:`load` returns has the same predictions,
    bit for bit.

    Parameters
    ----------
    model : estimator
        A fitted estimator of skdistill, or a Pipeline of scikit-learn's scalers, imputers and
        encoders around one.
    path : str or os.PathLike
        Of the file, ``"student.safetensors"`` say, or of the folder.
    include_teacher : bool, default=False
        Whether to keep teachers, which must be estimators of skdistill then. Without them the
        loaded model predicts all the same; its parameter `teacher` is None, or says "classifier"
        or "regressor", and has to be set before it is fitted again.
    layout : {"file", "hub"}, default="file"
        "hub" makes a folder in the manner of the Hugging Face hub, with the file
        ``model.safetensors``, parameters in ``config.json``, and a model card, ``README.md``.

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
    OneOf(("file", "hub")).check(layout, "layout")
    check_is_fitted(model)
    encoder = encoder_of_models(include_teacher)
    text = json.dumps(encoder.encode(model), separators=(",", ":"), allow_nan=False)
    content = pack(*_FORMAT, text, encoder.arrays)
    if layout == "file":
        write_atomically(Path(path), *content)
        return
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / _MODEL, *content)
    config = config_of(model, {"libraries": LIBRARIES, "format_version": _FORMAT[1]})
    write_atomically(folder / "config.json", (json.dumps(config, indent=2) + "\n").encode())
    write_atomically(folder / "README.md", card_of(config).encode())


def load(path: str | os.PathLike) -> BaseEstimator:
    """Load a model saved by :func:`save`.

    Loading runs no code from the file. Sizes and shapes are checked before memory is allocated. The
    SHA-256 of the file detects damage, but not a change by somebody who computes it anew.

    Parameters
    ----------
    path : str or os.PathLike
        Of the file or folder.

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
    file = Path(path)
    try:
        content = read(file / _MODEL if file.is_dir() else file)
        text, arrays = unpack(content, *_FORMAT)
        del content  # as large as the arrays
        model = decoder_of_models(arrays).decode_all(json.loads(text))
        if not isinstance(model, BaseEstimator):
            raise ValueError("it holds no model")
        return model
    except OSError:
        raise
    except Exception as error:  # of any kind: the file may say anything
        raise ValueError(f"{os.fspath(path)!r} cannot be loaded: {error}.") from error
