# SPDX-License-Identifier: BSD-3-Clause
"""Draw the front picture: what an ensemble does not know, what its student says of it, their cost.

python doc/images/teacher_and_student.py
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median

import matplotlib.pyplot as plt
import numpy as np
import torch
from PIL import Image
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdistill import BayesianEnsembleClassifier, HydraPlusClassifier, predict_uncertainty
from skdistill.datasets import make_spirals
from skdistill.modules import n_parameters

EXTENT = 11  # of the maps; the arms of the spirals reach to 2 pi
COLORS = ["0.45", "#0072b2"]  # of teacher and student; also told apart as grey values


def fitted(n_members: int, epochs: int) -> tuple[np.ndarray, dict]:
    """Samples around three spirals, and Pipelines around a teacher and its student."""
    X, y = make_spirals(240, random_state=0)
    settings = {
        "module__hidden_units": (100, 100, 100),
        "max_epochs": epochs,
        "random_state": 0,
    }
    teacher = BayesianEnsembleClassifier(n_members, **settings)
    model = make_pipeline(StandardScaler(), HydraPlusClassifier(teacher, **settings)).fit(X, y)
    return X, {
        f"Teacher: {n_members} networks": make_pipeline(model[0], model[-1].teacher_),
        "Student: 1 network": model,
    }


def milliseconds(models: dict, rows: np.ndarray) -> list[float]:
    """Time in which each model predicts the uncertainty of samples, a median; they take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(15):
        for name, model in models.items():
            start = time.perf_counter()
            predict_uncertainty(model, rows)
            seconds[name].append(time.perf_counter() - start)
    return [1000 * median(values) for values in seconds.values()]


def draw_maps(axes: list[plt.Axes], models: dict, X: np.ndarray) -> None:
    """Epistemic uncertainty around the samples, on one scale for both models."""
    line = np.linspace(-EXTENT, EXTENT, 160)
    grid = np.column_stack([axis.ravel() for axis in np.meshgrid(line, line)])
    maps = [predict_uncertainty(model, grid).epistemic for model in models.values()]
    for ax, title, epistemic in zip(axes, models, maps, strict=True):
        image = ax.imshow(
            epistemic.reshape(line.size, line.size),
            extent=(-EXTENT, EXTENT, -EXTENT, EXTENT),
            origin="lower",
            vmin=0,
            vmax=np.max(maps),
        )
        ax.scatter(*X.T, s=7, c="white", edgecolors="black", lw=0.3, label="training samples")
        ax.set(xticks=[], yticks=[])
        ax.set_title(title, fontsize="medium")
    axes[0].legend(loc="lower right", fontsize=12, markerscale=2, handletextpad=0)
    axes[0].figure.colorbar(image, ax=axes, label="epistemic uncertainty [nats]")


def draw_bars(ax: plt.Axes, title: str, values: list[float], spec: str) -> None:
    """One bar for the teacher, one for the student."""
    bars = ax.barh(["teacher", "student"], values, color=COLORS, height=0.6)
    ax.bar_label(bars, labels=[f" {value:{spec}}" for value in values])
    ax.set_title(title, fontsize="medium")
    ax.set(xticks=[], xlim=(0, 1.6 * max(values)))
    ax.invert_yaxis()
    ax.tick_params(length=0)
    ax.spines[["top", "right", "bottom"]].set_visible(False)


def draw(n_members: int, epochs: int) -> plt.Figure:
    """Maps of teacher and student, their parameters, and their time for many samples."""
    torch.set_num_threads(1)
    X, models = fitted(n_members, epochs)
    plt.rcParams["font.size"] = 15
    figure, axes = plt.subplot_mosaic(
        [["teacher", "student", "size"], ["teacher", "student", "time"]],
        figsize=(11, 3.9),
        layout="constrained",
        width_ratios=(1, 1, 0.85),
    )
    draw_maps([axes["teacher"], axes["student"]], models, X)
    sizes = [n_parameters(model[-1].module_) for model in models.values()]
    draw_bars(axes["size"], "Parameters", sizes, ",")
    rows = np.resize(X, (10_000, X.shape[1]))
    draw_bars(axes["time"], "10,000 samples [ms]", milliseconds(models, rows), ".0f")
    return figure


def main() -> None:
    """Read the arguments, draw and save."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--members", type=int, default=20, help="networks of the ensemble")
    parser.add_argument("--epochs", type=int, default=200, help="epochs of both models")
    parser.add_argument("--picture", default=Path(__file__).with_suffix(".png"), help="file")
    options = parser.parse_args()
    draw(options.members, options.epochs).savefig(options.picture, dpi=75)
    # 256 colours: half the size, and no difference to be seen
    Image.open(options.picture).convert("RGB").quantize(256).save(options.picture, optimize=True)


if __name__ == "__main__":
    main()
