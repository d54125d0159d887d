# SPDX-License-Identifier: BSD-3-Clause
"""The picture on the front page: a student's interval and the two parts of its uncertainty.

python doc/images/one_table.py
"""

import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor, SchemaWarning

# Predictions beyond the data are what the picture is about.
warnings.simplefilter("ignore", SchemaWarning)

data = load_diabetes(scaled=False)
X, y = data.data[:, [2]], data.target  # body mass index
student = HydraPlusRegressor(BayesianEnsembleRegressor(random_state=0), random_state=0).fit(X, y)
grid = np.linspace(8, 58, 400)[:, None]
low, high = student.predict_interval(grid, coverage=0.9).T
_, aleatoric, epistemic = student.predict_uncertainty(grid)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharex=True)
left.fill_between(grid[:, 0], low, high, color="tab:blue", alpha=0.25, label="90 % interval")
left.plot(grid, student.predict(grid), color="tab:blue", label="prediction")
left.plot(X, y, ".", color="0.3", markersize=3, label="442 patients")
left.set_ylabel("disease progression after a year")
right.plot(grid, aleatoric**0.5, color="tab:orange", label="aleatoric: noise, stays")
right.plot(grid, epistemic**0.5, color="tab:green", label="epistemic: falls with more data")
right.set_ylabel("standard deviation")
right.set_ylim(bottom=0)
for axes in (left, right):
    axes.axvspan(X.min(), X.max(), color="0.93", zorder=-1)
    axes.set_xlabel("body mass index (grey: range of the data)")
    axes.legend(loc="upper left", fontsize=8)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=130)
