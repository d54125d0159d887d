"""
Ensemble distribution distillation
==================================

The training samples are a sine wave between -3 and 3, with noise that grows to the right. Ten
networks separate the noise (aleatoric) from the uncertainty beyond the data (epistemic). Two small
networks with ten and ten units are distilled from them between -5 and 5. The student of the
*distribution* over the members' predictions keeps both parts. The student of their mixture, which
is plain ensemble distillation, keeps the total uncertainty, but cannot separate its parts.

The problem is that of the second and third figure of Lindqvist, Olmin, Lindsten & Svensson (2020).
"""

# %%
# Teacher and students
# --------------------
#
# The teacher is fitted once, frozen, and used for both students. Their transfer set is unlabelled
# and extends beyond the teacher's data; with ``TransferOnly`` they do not learn from the labelled
# samples.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.frozen import FrozenEstimator

from skdistill import BayesianEnsembleRegressor, DistributionDistiller, predict_uncertainty
from skdistill.metrics import ause, epistemic_fidelity, risk_coverage_curve
from skdistill.transfer import TransferOnly

n_members = 10  # networks of the ensemble
max_epochs = 400  # epochs of each model
settings = {"max_epochs": max_epochs, "random_state": 0}

rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, size=(1000, 1))
noise = 0.15 / (1 + np.exp(-X[:, 0]))
y = np.sin(X[:, 0]) + noise * rng.standard_normal(1000)
X_transfer = rng.uniform(-5, 5, size=(1000, 1))

teacher = BayesianEnsembleRegressor(n_members, **settings).fit(X, y)


def student(family):
    """A student of this family, trained on the unlabelled transfer set only."""
    distiller = DistributionDistiller(
        FrozenEstimator(teacher),
        family=family,
        module__hidden_units=(10, 10),
        transfer=TransferOnly(),
        **settings,
    )
    return distiller.fit(X, y, X_transfer=X_transfer)


models = {
    "ensemble": teacher,
    "student of the distribution": student("gaussian"),
    "student of the mixture": student("mixture"),
}

# %%
# Results
# -------
#
# Standard deviations within and beyond the data; the true one is that of the noise.

grid = np.linspace(-5, 5, 401)[:, np.newaxis]
within = np.abs(grid[:, 0]) <= 3
said = {name: predict_uncertainty(model, grid) for name, model in models.items()}


def cell(variance):
    """Root mean of a variance, if there is one."""
    return f"{'-':>12}" if variance is None else f"{np.sqrt(variance.mean()):12.3f}"


print(f"{'':28}{'within the data':>36}{'beyond':>36}")
print(f"{'':28}" + "".join(f"{part:>12}" for part in ("total", "aleatoric", "epistemic") * 2))
for name, uncertainty in said.items():
    parts = [
        None if part is None else part[rows] for rows in (within, ~within) for part in uncertainty
    ]
    print(f"{name:28}" + "".join(map(cell, parts)))

names = list(models)
fidelity = epistemic_fidelity(said[names[0]].epistemic, said[names[1]].epistemic)
print(
    f"\nEpistemic variance, student of the distribution against ensemble: rank correlation "
    f"{fidelity.rank_correlation:.2f}, median ratio {fidelity.median_ratio:.2f}"
)

# %%
# Figure
# ------
#
# Top: predictions, plus and minus two total standard deviations. Bottom: aleatoric and epistemic
# standard deviations. The data lie between the grey lines. Beyond them the epistemic part grows,
# and the bands contain the truth.

figure, axes = plt.subplots(2, 3, figsize=(9, 5.4), layout="constrained", sharex=True, sharey="row")
x = grid[:, 0]
looks = {"total": ("-", "#0072B2"), "aleatoric": ("--", "#E69F00"), "epistemic": ("-.", "#882255")}
true_noise = 0.15 / (1 + np.exp(-x))
for (above, below), (name, model) in zip(axes.T, models.items(), strict=True):
    mean, std = model.predict(grid), said[name].std()
    above.plot(X[::4], y[::4], ".", color="0.7", markersize=3, label="data")
    above.plot(x, np.sin(x), "k:", label="truth")
    above.plot(x, mean, label="prediction")
    above.fill_between(x, mean - 2 * std.total, mean + 2 * std.total, alpha=0.25, label="± 2 std")
    above.set_title(name.capitalize(), fontsize="medium")
    below.plot(x, true_noise, "k:", label="true noise")
    for part, (style, color) in looks.items():
        if getattr(std, part) is not None:
            below.plot(x, getattr(std, part), style, color=color, label=part)
    below.set_xlabel("x")
    below.legend(fontsize="small")
    for ax in (above, below):
        for end in (-3, 3):
            ax.axvline(end, color="0.85", zorder=0)
axes[0, 0].set(ylabel="y", ylim=(-4, 4))
figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
axes[1, 0].set(ylabel="standard deviation", ylim=(0, None))
plt.show()

# %%
# Sparsification
# --------------
#
# As the most uncertain samples are removed, the mean squared error of the others falls, most for an
# oracle that knows the errors. The area between the two curves (AUSE) compares rankings by the
# total uncertainty. On test samples as those of training all three models rank alike.

X_test = rng.uniform(-3, 3, size=(2000, 1))
y_test = np.sin(X_test[:, 0]) + 0.15 / (1 + np.exp(-X_test[:, 0])) * rng.standard_normal(2000)
figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained", sharey=True)
for ax, (name, model) in zip(axes, models.items(), strict=True):
    mean, total = model.predict(X_test), predict_uncertainty(model, X_test).total
    squares = (y_test - mean) ** 2
    for label, order in {"by uncertainty": total, "oracle": squares}.items():
        coverage, risk = risk_coverage_curve(squares, order)
        ax.plot(1 - coverage, risk / squares.mean(), label=label)
    ax.set_title(f"{name.capitalize()}\nAUSE {ause(y_test, mean, total):.3f}", fontsize="medium")
    ax.set_xlabel("share of samples removed")
axes[0].set_ylabel("error, relative")
axes[0].legend(fontsize="small")
plt.show()
