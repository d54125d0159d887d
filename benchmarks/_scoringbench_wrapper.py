# SPDX-License-Identifier: BSD-3-Clause
"""skdistill in ScoringBench: the file that a pull request there adds to scoringbench/wrappers/.

MODELS in its run_bench_regression.py then has

    "skdistill_ensemble": lambda: SkdistillWrapper(BayesianEnsembleRegressor(random_state=0)),
    "skdistill_hydra": lambda: SkdistillWrapper(HydraPlusRegressor(random_state=0)),

This file does not import scoring_bench.py, and nothing else of this folder.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import norm
from scoringbench.wrappers.base import DistributionPrediction, ProbabilisticWrapper

from skdistill import predict_quantiles

# Levels of the edges of a hundred bins, which are equally wide for a Gaussian: 0.08 deviations.
LEVELS = norm.cdf(np.linspace(-4, 4, 101))


class SkdistillWrapper(ProbabilisticWrapper):
    """A regressor of skdistill, whose quantiles are the edges of each sample's bins.

    Parameters
    ----------
    model : estimator
        A regressor with ``predict_quantiles``, or a Pipeline around one.
    """

    def __init__(self, model):
        self.model = model

    def fit(self, X, y):
        self.model.fit(X, y)
        return self

    def predict(self, X):
        return self.model.predict(X)

    def predict_distribution(self, X):
        edges = predict_quantiles(self.model, X, LEVELS)
        masses = np.diff([0.0, *LEVELS[1:-1], 1.0])  # what lies beyond is in the outer bins
        return DistributionPrediction(
            probas=np.tile(masses, (len(edges), 1)),
            bin_edges=edges,
            bin_midpoints=(edges[:, :-1] + edges[:, 1:]) / 2,
            mean=self.predict(X),
        )
