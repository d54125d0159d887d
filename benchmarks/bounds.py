# SPDX-License-Identifier: BSD-3-Clause
"""Rates, counts and prices: predictions of a target that is known to stay within limits.

A quarter of a table is held out; the default ensemble is fitted on the rest, 2,000 rows at most.
Its predicted distribution is used in three ways, and a second ensemble predicts a transform of y:

plain         as it is
clipped       limits of its quantiles and means are those of y, in a TransformedTargetRegressor
truncated     what is beyond a limit is left out, and the rest scaled to a probability of one
transformed   an ensemble of log(1 + y), or of the logit of y's place between two limits, without
              ``distance_aware``, in a TransformedTargetRegressor; means by quadrature
LightGBM      a booster a quantile, sorted, and a booster of the mean; default parameters

CRPS is twice the mean pinball loss of the quantiles .05, .10, ..., .95, of all alike. Coverage is
that of 90 % intervals, "outside" the share of intervals that end beyond a limit. CRPS and RMSE are
in standard deviations of y. No setting was chosen.

    python benchmarks/bounds.py
"""

from __future__ import annotations

import time
from statistics import mean
from typing import Any

import numpy as np
import torch
from _common import asked, print_table, save
from _datasets import table
from lightgbm import LGBMRegressor
from scipy.special import expit, logit
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import mean_pinball_loss, root_mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import FunctionTransformer

from skdistill import BayesianEnsembleRegressor, predict_members, predict_quantiles

# Per cent in telecommunication, and of fat in meat; performance of computers; prices of houses of
# two censuses, which cut them off; distances between atoms.
BOUNDS = {
    "pol": (0, 100),
    "tecator": (0, 100),
    "machine_cpu": (0, np.inf),
    "houses": (0, 500_001),
    "house": (0, 500_001),
    "protein": (0, np.inf),
}
LEVELS = np.arange(1, 20) / 20  # the first and the last are the ends of 90 % intervals
MOST_ROWS = 2000


def truncated(distribution: Any, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Quantiles (n, q) and means (n,) of what lies within the limits, by bisection."""
    means = distribution.mean
    reach = float(means.abs().max() + 50 * distribution.variance.sqrt().max())
    ends = [torch.full_like(means, end) for end in (max(low, -reach), min(high, reach))]
    below, above = map(distribution.cdf, ends)
    nodes = (np.arange(40) + 0.5) / 40  # quantiles of which the mean is taken
    found = []
    for level in (*LEVELS, *nodes):
        left, right = ends
        for _ in range(40):
            middle = (left + right) / 2
            is_left = distribution.cdf(middle) > below + level * (above - below)
            left, right = torch.where(is_left, left, middle), torch.where(is_left, middle, right)
        found.append(((left + right) / 2)[:, 0].numpy())
    quantiles = np.stack(found, axis=1)
    return quantiles[:, : len(LEVELS)], quantiles[:, len(LEVELS) :].mean(axis=1)


def transformed(low: float, high: float, n_rows: int, settings: dict[str, Any]) -> Any:
    """Ensemble of the logarithm of y, or of the logit of its place between the limits."""
    if np.isinf(high):
        functions = {"func": np.log1p, "inverse_func": np.expm1}
    else:  # moved off the limits as by Smithson and Verkuilen (2006)

        def func(y):
            return logit(((y - low) / (high - low) * (n_rows - 1) + 0.5) / n_rows)

        def inverse_func(z):
            share = (expit(z) * n_rows - 0.5) / (n_rows - 1)
            return low + (high - low) * np.clip(share, 0, 1)

        functions = {"func": func, "inverse_func": inverse_func}
    model = BayesianEnsembleRegressor(distance_aware=False, **settings)
    return TransformedTargetRegressor(model, check_inverse=False, **functions)


def run_split(name: str, split: int, options) -> dict[str, Any]:
    """Scores of all contenders on the held-out rows."""
    X, y = table(name)
    most = 100 if options.quick else MOST_ROWS
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=split)
    X, y, X_test, y_test = X[:most], y[:most], X_test[:most], y_test[:most]
    low, high = BOUNDS[name]
    settings = {"random_state": split} | ({"max_epochs": 2} if options.quick else {})
    start = time.process_time()
    model = BayesianEnsembleRegressor(**settings).fit(X, y)
    seconds = time.process_time() - start
    distribution = model.predict_distribution(X_test)
    plain = distribution.quantile(LEVELS.tolist())[:, 0].numpy()
    limits = {"a_min": low, "a_max": high}
    clip = FunctionTransformer(inverse_func=np.clip, inv_kw_args=limits, check_inverse=False)
    clipped = TransformedTargetRegressor(FrozenEstimator(model), transformer=clip).fit(X, y)
    quantiles = predict_quantiles(clipped, X_test, LEVELS)
    found = {
        "plain": (plain, model.predict(X_test), seconds),
        "clipped": (quantiles, clipped.predict(X_test), seconds),
        "truncated": (*truncated(distribution, low, high), seconds),
    }
    start = time.process_time()
    priced = transformed(low, high, len(y), settings).fit(X, y)
    seconds = time.process_time() - start
    means = predict_members(priced, X_test)[:, :, 0, 0].mean(axis=1)
    found["transformed"] = predict_quantiles(priced, X_test, LEVELS), means, seconds
    start = time.process_time()
    boosting = {"n_jobs": 1, "verbose": -1, "random_state": split}
    boosters = [LGBMRegressor(objective="quantile", alpha=a, **boosting).fit(X, y) for a in LEVELS]
    booster = LGBMRegressor(**boosting).fit(X, y)
    seconds = time.process_time() - start
    quantiles = np.sort(np.stack([one.predict(X_test) for one in boosters], axis=1), axis=1)
    found["LightGBM"] = quantiles, booster.predict(X_test), seconds
    scores: dict[str, Any] = {"rows": len(y)}
    for contender, (quantiles, means, seconds) in found.items():
        lower, upper = quantiles[:, 0], quantiles[:, -1]
        losses = [
            mean_pinball_loss(y_test, quantile, alpha=level)
            for level, quantile in zip(LEVELS, quantiles.T, strict=True)
        ]
        scores[contender] = {
            "coverage": float(np.mean((lower <= y_test) & (y_test <= upper))),
            "outside": float(np.mean((lower < low) | (upper > high))),
            "width": float(np.mean(upper - lower) / y.std()),
            "crps": float(2 * np.mean(losses) / y.std()),
            "rmse": float(root_mean_squared_error(y_test, means) / y.std()),
            "fit_seconds": seconds,
        }
    return scores


def main() -> None:
    options = asked(__doc__, sets=tuple(BOUNDS), splits=3)
    results: dict[str, Any] = {}
    for name in options.sets:
        splits = [run_split(name, split, options) for split in range(options.splits)]
        of_all = {k: scores for k, scores in splits[0].items() if k != "rows"}
        results[name] = {"rows": splits[0]["rows"]} | {
            contender: {key: mean(one[contender][key] for one in splits) for key in scores}
            for contender, scores in of_all.items()
        }
        print_table(
            ["set", "rows", "contender", *results[name]["plain"]],
            [
                [name, results[name]["rows"], contender, *results[name][contender].values()]
                for contender in of_all
            ],
        )
        save(options, results=results)


if __name__ == "__main__":
    main()
