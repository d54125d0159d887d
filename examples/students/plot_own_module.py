"""
Custom torch modules
====================

Teacher and student accept any function or class that builds a torch module. Here the module encodes
that the problem is periodic: its inputs are the sine and cosine of the angle. Outside the range of
the training angles a plain perceptron cannot extrapolate; this teacher and its student can.
"""

# %%
# Module
# ------
#
# It is built from the number of features and the width of the output, which for regression is a
# mean and a raw variance for each target; ``module__<name>`` passes further arguments. Ensembles
# train all members at once. The module of a Hydra+ student is an ``nn.Sequential``, since its last
# two layers become heads, one for each member. With ``normalize="y"`` the inputs, here angles, are
# not standardised. The random functions of an ensemble are not periodic, and would widen the
# intervals outside the training angles: ``distance_aware=False`` omits them.

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor

n_members = 10  # networks of the teacher
max_epochs = 300  # epochs of each model


class Circle(nn.Module):
    """Map angles (n, d), in radians, to their sines and cosines (n, 2 d)."""

    def forward(self, x):
        return torch.cat([x.sin(), x.cos()], dim=-1)


def periodic(in_features, out_features, width=32):
    """Build a perceptron on the circle, with two hidden layers of `width` units."""
    return nn.Sequential(
        Circle(),
        nn.Linear(2 * in_features, width),
        nn.Tanh(),
        nn.Linear(width, width),
        nn.Tanh(),
        nn.Linear(width, out_features),
    )


rng = np.random.default_rng(0)
X = rng.uniform(-np.pi, np.pi, size=(200, 1))


def truth(angle):
    return np.sin(angle) + 0.5 * np.cos(2 * angle)


y = truth(X[:, 0]) + 0.1 * rng.standard_normal(200)
settings = {"max_epochs": max_epochs, "random_state": 0}
own = {"module": periodic, "module__width": 32, "normalize": "y"}
models = {
    "perceptron": BayesianEnsembleRegressor(n_members, **settings),
    "own module": BayesianEnsembleRegressor(n_members, distance_aware=False, **own, **settings),
}
student = HydraPlusRegressor(models["own module"], **own, **settings).fit(X, y)
models["perceptron"].fit(X, y)
models["own module"] = student.teacher_
models["student of it"] = student

# %%
# Results
# -------
#
# Root mean squared error to the true function, on the training period and on the adjacent ones.

grid = np.linspace(-3 * np.pi, 3 * np.pi, 601)[:, np.newaxis]
within = np.abs(grid[:, 0]) <= np.pi
print(f"{'':16}{'within':>8}{'beyond':>8}")
for name, model in models.items():
    squares = (model.predict(grid) - truth(grid[:, 0])) ** 2
    print(f"{name:16}{squares[within].mean() ** 0.5:8.3f}{squares[~within].mean() ** 0.5:8.3f}")

# %%
# Figure
# ------

figure, axes = plt.subplots(3, 1, figsize=(6.5, 6), layout="constrained", sharex=True, sharey=True)
turns = grid[:, 0] / np.pi
for ax, (name, model) in zip(axes, models.items(), strict=True):
    mean, std = model.predict(grid, return_std=True)
    ax.plot(X[:, 0] / np.pi, y, ".", color="0.6", markersize=3, label="data")
    ax.plot(turns, truth(grid[:, 0]), "k:", label="truth")
    ax.plot(turns, mean, color="#0072B2", label="prediction")
    ax.fill_between(
        turns, mean - 2 * std, mean + 2 * std, color="#9CCEEE", alpha=0.6, label="± 2 std"
    )
    ax.set(title=name.capitalize(), ylabel="y", ylim=(-3, 3))
axes[-1].set_xlabel("angle [half turns]")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
plt.show()
