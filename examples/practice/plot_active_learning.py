"""
Active learning with a student
==============================

Samples without a label are cheap, and a label may cost an experiment. `select_batch` selects the
next samples to label by the gradients of a student. This data set has almost no noise, and its
samples are unevenly spread, so the selection helps. Where noise is most of the error, random
selection is as good (:doc:`/measured/decisions`).
"""

# %%
# The pool
# --------
#
# Its samples crowd in one corner, as those of routine measurements do, so that a random batch has
# few of the others. Test samples are distributed as the pool.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split

from skdistill import BayesianEnsembleRegressor, DistributionDistiller
from skdistill.active import select_batch

n_members = 3  # networks of the teacher
max_epochs = 50  # epochs of each model
n_seeds = 3  # each with other samples and other first labels
counts = 64, 128, 256  # labels in each round


def crowded_table(seed):
    rng = np.random.default_rng(seed)
    X = rng.random((2500, 5)) ** 2.5
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    y += 10 * X[:, 3] + 5 * X[:, 4] + rng.normal(0, 0.1, len(X))
    return train_test_split(X, y, train_size=1500, random_state=seed)


# %%
# Rounds of labelling
# -------------------
#
# Both ways begin with the same random labels, and double their number in each round. The samples
# selected by the student are unlike those labelled, and unlike each other, in the gradients of its
# prediction (LCMD). Its mean alone is used, not the random functions that widen the epistemic part,
# so they are off (``distance_aware=False``).


def fitted_student(X, y, seed):
    settings = {"max_epochs": max_epochs, "batch_size": 64, "random_state": seed}
    teacher = BayesianEnsembleRegressor(n_members, distance_aware=False, **settings)
    return DistributionDistiller(teacher, **settings).fit(X, y)


def at_random(student, X, labelled, pool, n, seed):
    return np.random.default_rng(seed).permutation(len(pool))[:n]


def by_student(student, X, labelled, pool, n, seed):
    return select_batch(student, X[pool], n, X_train=X[labelled], random_state=seed)


errors = {at_random: [], by_student: []}
for seed in range(n_seeds):
    X, X_test, y, y_test = crowded_table(seed)
    first = fitted_student(X[: counts[0]], y[: counts[0]], seed)
    for choose, of_seeds in errors.items():
        labelled, student = np.arange(counts[0]), first
        curve = [root_mean_squared_error(y_test, student.predict(X_test))]
        for count in counts[1:]:
            pool = np.setdiff1d(np.arange(len(X)), labelled)
            chosen = choose(student, X, labelled, pool, count - len(labelled), seed)
            labelled = np.concatenate([labelled, pool[chosen]])
            student = fitted_student(X[labelled], y[labelled], seed)
            curve.append(root_mean_squared_error(y_test, student.predict(X_test)))
        of_seeds.append(curve)
random, selected = (np.array(of_seeds) for of_seeds in errors.values())

print(f"{'labels':>8}{'random':>10}{'selected':>10}{'ratio':>8}   of each seed")
for i, count in enumerate(counts):
    ratio = selected[:, i].mean() / random[:, i].mean()
    each = " ".join(f"{value:.2f}" for value in selected[:, i] / random[:, i])
    print(f"{count:8}{random[:, i].mean():10.2f}{selected[:, i].mean():10.2f}{ratio:8.2f}   {each}")

# %%
# Figure
# ------
#
# Thin lines are seeds, thick ones their means. The gain comes with the number of labels; after one
# round it is within the variation between seeds.

figure, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3.8), layout="constrained")
ways = ((random, "random", "#D55E00", "s--"), (selected, "selected", "#0072B2", "o-"))
for curves, label, color, style in ways:
    left.plot(counts, curves.T, style[1:], color=color, alpha=0.35, linewidth=1)
    left.plot(counts, curves.mean(0), style, color=color, label=f"{label}, mean")
left.legend(fontsize="small")
left.set(ylabel="RMSE on test samples", ylim=(0, None), title="Test error")

right.plot(counts, (selected / random).T, color="#0072B2", alpha=0.35, linewidth=1)
right.plot(counts, selected.mean(0) / random.mean(0), "o-", color="#0072B2", label="of the means")
right.axhline(1, color="#D55E00", linestyle="--", label="no gain")
right.legend(fontsize="small", loc="lower left")
right.set(ylabel="RMSE, selected / random", title="Ratio of the errors")
for ax in (left, right):
    ax.set_xscale("log", base=2)
    ax.set_xticks(counts, [str(count) for count in counts])
    ax.set(xlabel="labels")
plt.show()
