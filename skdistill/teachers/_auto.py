# SPDX-License-Identifier: BSD-3-Clause
"""The models of a mixture that nobody has named."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler

from ..ensembles import BayesianEnsembleClassifier, BayesianEnsembleRegressor

# An exact Gaussian process takes the cube of the number of samples: 1,000 about 5 s a fit.
_MOST_OF_PROCESS = 1_000

# So many trees that boosting stops early, by a tenth of the samples.
_BOOSTING = {
    "max_iter": 1_000,
    "learning_rate": 0.05,
    "early_stopping": True,
    "n_iter_no_change": 20,
}


def models_for(
    task: str,
    X: np.ndarray | None = None,
    y: np.ndarray | None = None,
    max_time: float | None = None,
) -> list[BaseEstimator]:
    """Return an ensemble of networks, boosting, and a Gaussian process where it can be had.

    That is for regression on at most 1,000 samples of numbers without missing values, and fewer
    with a short `max_time`. Without samples it is the models that any X and y have.
    """
    if task == "classification":
        boosting: BaseEstimator = HistGradientBoostingClassifier(**_BOOSTING)
        return [BayesianEnsembleClassifier(), _with_codes(boosting, X)]
    boosting = _with_codes(HistGradientBoostingRegressor(**_BOOSTING), X)
    if y is not None and y.ndim > 1:
        boosting = MultiOutputRegressor(boosting)
    models = [BayesianEnsembleRegressor(), boosting]
    if X is not None and _has_process(X, max_time):
        kernel = ConstantKernel() * RBF(X.shape[1] ** 0.5) + WhiteKernel(0.1)
        process = GaussianProcessRegressor(kernel, normalize_y=True)
        models.append(make_pipeline(StandardScaler(), process))
    return models


def _with_codes(boosting: BaseEstimator, X) -> BaseEstimator:
    """Put what makes numbers of text before boosting, which takes categories but no text."""
    text = make_column_selector(dtype_include=["object", "string"])
    if not hasattr(X, "iloc") or not text(X):
        return boosting
    unknown = {"handle_unknown": "use_encoded_value", "unknown_value": np.nan}
    encoder = OrdinalEncoder(**unknown, encoded_missing_value=np.nan)
    columns = make_column_transformer(
        (encoder, text), remainder="passthrough", verbose_feature_names_out=False
    )
    return make_pipeline(columns.set_output(transform="pandas"), boosting)


def _has_process(X, max_time: float | None) -> bool:
    """Tell whether X is a table of finite numbers, so small that a process can be had in time."""
    share = len(X) / _MOST_OF_PROCESS
    seconds = 6 * 5.0 * share**3  # of five folds and all samples
    if share > 1 or (max_time is not None and seconds > max_time / 2):
        return False
    try:
        return X.ndim == 2 and bool(np.isfinite(np.asarray(X, dtype=float)).all())
    except (TypeError, ValueError):
        return False
