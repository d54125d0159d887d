"""
Hydra and Hydra+ on three spirals
=================================

An ensemble of twenty networks classifies the three arms of a spiral. On the arms its members agree.
Away from them their decision boundaries differ, and the uncertainty is epistemic, not aleatoric.
Two students are distilled from the ensemble: by Hydra, which imitates each member on the training
samples, and by Hydra+ with the defaults of this package. On the arms both predict as well as the
teacher. Away from them Hydra has lost most of the disagreement, and Hydra+ has kept most of it.

Hydra+ also uses teacher predictions at points around the training samples, and minimises the
difference of the spreads; :doc:`/measured/classification` measures the effect of each. Both inherit
the teacher's errors. Beyond the arms the teacher is uncertain. Between their ends it is still
certain, where the logits of its networks are larger than the random functions that are added to
them (:doc:`/user_guide/unseen`).

The problem is that of the first figure of Ferianc & Rodrigues (2022).
"""

# %%
# Teacher and students
# --------------------
#
# The ensemble is fitted once, frozen, and used as the teacher of both students.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import log_loss

from skdistill import (
    BayesianEnsembleClassifier,
    HydraPlusClassifier,
    SchemaWarning,
    predict_uncertainty,
)
from skdistill.datasets import make_spirals
from skdistill.metrics import epistemic_fidelity
from skdistill.settings import HydraLoss

warnings.simplefilter("ignore", SchemaWarning)  # the maps are beyond the samples on purpose
n_members = 20  # networks of the ensemble
max_epochs = 200  # epochs of each model
settings = {
    "module__hidden_units": (100, 100, 100),
    "max_epochs": max_epochs,
    "random_state": 0,
}

X, y = make_spirals(240, random_state=0)
ensemble = BayesianEnsembleClassifier(n_members, **settings)
models = {
    "Teacher": ensemble.fit(X, y),
    "Hydra": HydraPlusClassifier(
        FrozenEstimator(ensemble),
        loss=HydraLoss(member_weight=1, spread_weight=0),
        transfer=None,
        **settings,
    ).fit(X, y),
    "Hydra+": HydraPlusClassifier(FrozenEstimator(ensemble), **settings).fit(X, y),
}

# %%
# Results
# -------
#
# On held-out samples of the arms, and on points of a square of side 40 outside the arms.

X_test, y_test = make_spirals(3000, random_state=1)
X_away = np.random.default_rng(0).uniform(-20, 20, size=(6000, 2))
X_away = X_away[np.hypot(*X_away.T) > 8]

taught = {}
print(f"{'':8}{'log loss':>10}{'epistemic uncertainty [nats]':>32}{'as the teacher, away':>34}")
print(f"{'':8}{'on arms':>10}{'on arms':>16}{'away':>16}{'ratio of means':>18}{'ranks':>16}")
for name, model in models.items():
    on_arms, away = (predict_uncertainty(model, rows).epistemic for rows in (X_test, X_away))
    taught.setdefault("away", away)
    loss = log_loss(y_test, model.predict_proba(X_test))
    ranks = epistemic_fidelity(taught["away"], away).rank_correlation
    ratio = away.mean() / taught["away"].mean()
    print(
        f"{name:8}{loss:10.3f}{on_arms.mean():16.4f}{away.mean():16.4f}{ratio:18.2f}{ranks:16.2f}"
    )

# %%
# Figure
# ------
#
# All maps have the same scale, from 0 to log 3, the entropy of the uniform distribution.

grid = np.meshgrid(*[np.linspace(-20, 20, 150)] * 2)
points = np.column_stack([values.ravel() for values in grid])
colours = ListedColormap(["#3f90da", "#ffa90e", "#bd1f01"])
figure, axes = plt.subplots(3, 4, figsize=(9, 6.8), layout="constrained", sharex=True, sharey=True)
for row, (name, model) in zip(axes, models.items(), strict=True):
    classes = model.predict(points).reshape(grid[0].shape)
    row[0].pcolormesh(*grid, classes, cmap=colours, alpha=0.45, rasterized=True)
    row[0].scatter(*X.T, c=y, cmap=colours, s=8, edgecolors="white", linewidths=0.3)
    row[0].set_ylabel(f"{name}\n\nfeature 1")
    parts = predict_uncertainty(model, points)._asdict()
    for ax, part in zip(row[1:], ("total", "aleatoric", "epistemic"), strict=True):
        values = parts[part].reshape(grid[0].shape)
        drawn = ax.pcolormesh(
            *grid, values, cmap="cividis", vmin=0, vmax=np.log(3), rasterized=True
        )
figure.colorbar(drawn, ax=axes, label="uncertainty [nats]", shrink=0.5)
for ax, title in zip(axes[0], ("Predicted class", "Total", "Aleatoric", "Epistemic"), strict=True):
    ax.set_title(title)
for ax in axes[-1]:
    ax.set_xlabel("feature 0")
plt.show()
