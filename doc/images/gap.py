# SPDX-License-Identifier: BSD-3-Clause
"""Draw the guide's first picture: epistemic uncertainty in a gap and beyond the data.

python doc/images/gap.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.frozen import FrozenEstimator

from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor


def samples(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return samples of a sine with noise, none of which lies between -1 and 1."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-4, -1, n // 2), rng.uniform(1, 4, n // 2)])
    return x[:, None], np.sin(2 * x) + 0.1 * rng.normal(size=n)


def draw(n: int, settings: dict) -> plt.Figure:
    """Fit an ensemble, one without random functions and a student, and draw what they predict."""
    X, y = samples(n)
    teacher = BayesianEnsembleRegressor(**settings).fit(X, y)
    models = {
        "distance_aware=False": BayesianEnsembleRegressor(distance_aware=False, **settings),
        "Teacher: 20 networks": FrozenEstimator(teacher),
        "Student: 1 network": HydraPlusRegressor(FrozenEstimator(teacher), random_state=0),
    }
    grid = np.linspace(-6, 6, 300)[:, None]
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), sharey=True, layout="constrained")
    for ax, (name, model) in zip(axes, models.items(), strict=True):
        model = model.estimator if isinstance(model, FrozenEstimator) else model.fit(X, y)
        mean, std = model.predict(grid), model.predict_uncertainty(grid).std()
        for spread, color, label in (
            (std.total, "#9ecae1", "total"),
            (std.aleatoric, "#3182bd", "aleatoric"),
        ):
            ends = mean - 1.645 * spread, mean + 1.645 * spread
            ax.fill_between(grid[:, 0], *ends, color=color, label=label)
        ax.plot(grid, np.sin(2 * grid), "k--", lw=1, label="truth")
        ax.plot(grid, mean, color="k", lw=1.5, label="mean")
        ax.plot(X, y, ".", color="0.25", ms=2, alpha=0.5, label="training samples")
        ax.set(title=name, xlabel="x", ylim=(-4, 4))
    axes[0].set_ylabel("y")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5)
    return figure


def main() -> None:
    """Read the arguments, draw and save."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--epochs", default="auto", help="epochs of the ensembles")
    parser.add_argument("--picture", default=Path(__file__).with_suffix(".png"), help="file")
    options = parser.parse_args()
    epochs = options.epochs if options.epochs == "auto" else int(options.epochs)
    draw(options.samples, {"max_epochs": epochs, "random_state": 0}).savefig(
        options.picture, dpi=85
    )


if __name__ == "__main__":
    main()
