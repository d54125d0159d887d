# SPDX-License-Identifier: BSD-3-Clause
"""Draw README's picture: what an ensemble does not know, what its student says of it, their sizes.

python doc/images/teacher_and_student.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdistill import BayesianEnsembleClassifier, HydraPlusClassifier, predict_uncertainty
from skdistill.datasets import make_spirals
from skdistill.modules import n_parameters

EXTENT = 11  # of the maps; the arms of the spirals reach to 2 pi


def draw(n_members: int, epochs: int) -> plt.Figure:
    """Epistemic uncertainty of teacher and student around three spirals, and their parameters."""
    X, y = make_spirals(240, random_state=0)
    settings = {
        "module__hidden_units": (100, 100, 100),
        "max_epochs": epochs,
        "random_state": 0,
    }
    teacher = BayesianEnsembleClassifier(n_members, **settings)
    model = make_pipeline(StandardScaler(), HydraPlusClassifier(teacher, **settings)).fit(X, y)
    models = {
        f"Teacher: {n_members} networks": make_pipeline(model[0], model[-1].teacher_),
        "Student: 1 network": model,
    }

    plt.rcParams["font.size"] = 13
    figure, axes = plt.subplots(
        1, 3, figsize=(10, 3.6), layout="constrained", width_ratios=(1, 1, 0.55)
    )
    figure.get_layout_engine().set(w_pad=0.1)
    line = np.linspace(-EXTENT, EXTENT, 160)
    grid = np.column_stack([axis.ravel() for axis in np.meshgrid(line, line)])
    maps = [predict_uncertainty(fitted, grid).epistemic for fitted in models.values()]
    for ax, title, epistemic in zip(axes, models, maps, strict=False):
        image = ax.imshow(
            epistemic.reshape(line.size, line.size),
            extent=(-EXTENT, EXTENT, -EXTENT, EXTENT),
            origin="lower",
            vmin=0,
            vmax=np.max(maps),
        )
        ax.scatter(*X.T, s=7, c="white", edgecolors="black", lw=0.3, label="training rows")
        ax.set(title=title, xticks=[], yticks=[])
    axes[0].legend(loc="lower right", fontsize=11, markerscale=2)
    figure.colorbar(image, ax=axes[:2], label="epistemic uncertainty [nats]")

    sizes = [n_parameters(fitted[-1].module_) for fitted in models.values()]
    bars = axes[2].bar(["teacher", "student"], sizes, color=["0.45", "#0072b2"])
    axes[2].bar_label(bars, labels=[f"{size:,}" for size in sizes])
    axes[2].set(title="Parameters", yticks=[])
    axes[2].margins(y=0.12)
    axes[2].spines[["top", "left", "right"]].set_visible(False)
    return figure


def main() -> None:
    """Read the arguments, draw and save."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--members", type=int, default=20, help="networks of the ensemble")
    parser.add_argument("--epochs", type=int, default=200, help="epochs of both models")
    parser.add_argument("--picture", default=Path(__file__).with_suffix(".png"), help="file")
    options = parser.parse_args()
    draw(options.members, options.epochs).savefig(options.picture, dpi=90)


if __name__ == "__main__":
    main()
