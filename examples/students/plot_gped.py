"""
Distillation of a Markov chain with GPED
========================================

A Markov chain draws thousands of networks from the posterior, and the epistemic uncertainty is
large where they disagree. Averaging over all of them is expensive in time and memory. GPED does not
store them. While the chain runs, each of its networks predicts for a few unlabelled points, and the
student takes a gradient step towards the mean of these predictions. Afterwards the student predicts
the chain's uncertainty at the cost of one network.
"""

# %%
# Chain and student
# -----------------
#
# The student should learn the uncertainty far from the data too, so the transfer set has points
# from all over the plane. They need no labels; only the chain predicts for them.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from skdistill import BayesianEnsembleClassifier, GPEDDistiller
from skdistill.samplers import SGLD

max_epochs = 1000  # epochs of the chain

X, y = make_moons(200, noise=0.15, random_state=0)
plane = np.random.RandomState(0).uniform([-3, -2.5], [4, 3], size=(2000, 2))
side = np.linspace(0, 1, 80)
grid = np.stack(np.meshgrid(-3 + 7 * side, -2.5 + 5.5 * side), axis=-1).reshape(-1, 2)

chain = BayesianEnsembleClassifier(
    inference=SGLD(step_size=5e-4, prior_precision=1, burn_in=0.2, thinning=2),
    max_epochs=max_epochs,
    module__activation="tanh",
)
student = GPEDDistiller(chain, random_state=0).fit(X, y, X_transfer=plane, X_monitor=grid)

# %%
# The chain's predictions on the grid are averaged while it runs, as `monitor_`. They are for
# comparison only; the student does not learn from them.


def epistemic(proba, share):
    """Mutual information, a share of the entropy of the mean, in nats."""
    return -share * (proba * np.log(np.maximum(proba, 1e-12))).sum(axis=1)


says = student.predict_uncertainty(grid)
doubts = {
    "the chain": epistemic(student.monitor_["predictive"], student.monitor_["share"]),
    "the student": says.epistemic,
}
print(f"{'':14}{'mean':>12}{'near the data':>16}{'far away':>12}")
far = np.abs(grid - [0.5, 0.25]).max(axis=1) > 2
for name, doubt in doubts.items():
    print(f"{name:14}{doubt.mean():12.3f}{doubt[~far].mean():16.3f}{doubt[far].mean():12.3f}")
print(f"correlation of the two: {np.corrcoef(*doubts.values())[0, 1]:.3f}")

# %%
# Figure
# ------
#
# The chain's networks disagree between the moons and behind them. The student's map has the same
# ridges.

figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), sharey=True, layout="constrained")
levels = np.arange(0, max(doubt.max() for doubt in doubts.values()) + 0.05, 0.05)
for ax, (name, doubt) in zip(axes, doubts.items(), strict=True):
    drawn = ax.contourf(*(grid.T.reshape(2, 80, 80)), doubt.reshape(80, 80), levels, cmap="viridis")
    looks = (("o", "white", "black"), ("^", "black", "white"))
    for label, (marker, color, edge) in enumerate(looks):
        ax.scatter(
            *X[y == label].T,
            marker=marker,
            s=20,
            c=color,
            edgecolors=edge,
            linewidths=0.5,
            label=label,
        )
    ax.set(title=name.capitalize(), xlabel="first feature")
axes[0].set_ylabel("second feature")
axes[0].legend(title="class", loc="lower right", facecolor="0.8")
figure.colorbar(drawn, ax=axes, label="epistemic uncertainty [nats]")
plt.show()
