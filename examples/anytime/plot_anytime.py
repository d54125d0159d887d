"""
Anytime prediction with B-DISTIL
================================

A network of three layers of 128 units is decomposed into seven small networks (B-DISTIL). Each is
trained to correct the errors of those before it, so the mean approaches the teacher round by round.
Prediction may stop after any round: when a budget of operations is spent, at a deadline, or, sample
by sample, when the prediction is confident.

The data are the paper's toy problem: 32 normal variables, and the class is whether a point lies
outside an ellipsoid.
"""

# %%
# Teacher and booster
# -------------------
#
# The baseline is the average of as many networks that are trained independently.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split

from skdistill import BayesianEnsembleClassifier, BDistilBooster
from skdistill.datasets import make_ellipsoid
from skdistill.settings import Connection

n_rounds = 7  # rounds of the booster
max_epochs = 10  # epochs of each network

X, y = make_ellipsoid(12_000, random_state=0)
X = X.astype(np.float32)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=4000, random_state=0)

teacher = BayesianEnsembleClassifier(
    1,
    module__hidden_units=(128, 128, 128),
    lr=2e-3,
    batch_size=256,
    max_epochs=max_epochs,
    random_state=0,
).fit(X_train, y_train)


def decomposed(n_rounds, seed=0):
    """The teacher in so many networks with two layers of sixteen units."""
    return BDistilBooster(
        FrozenEstimator(teacher),
        n_rounds=n_rounds,
        module__hidden_units=(16, 16),
        connection=Connection(connect="always"),
        batch_size=128,
        max_epochs=max_epochs,
        random_state=seed,
    ).fit(X_train, y_train)


booster = decomposed(n_rounds)
cost_of_one = booster.rounds_[0].flop

alone = [decomposed(1, seed) for seed in range(booster.n_rounds_)]
probabilities = np.cumsum([network.predict_proba(X_test) for network in alone], axis=0)
average = (probabilities.argmax(axis=-1) == y_test).mean(axis=1)

# %%
# Figure
# ------
#
# Left: all samples use the same number of rounds. Up to the fourth round the booster and the
# average of networks are equally accurate, to .003. Then the booster improves, while the average
# does not. From the fourth round on the booster is at least as accurate as its teacher.
#
# Right: early exit. With ``early_exit=0.9`` a sample stops as soon as the mean of the rounds so far
# gives a class a probability of .9. That is as accurate as all rounds, to .002, at two fifths of
# the operations.

teacher_cost = 2 * sum((a + 1) * b for a, b in [(32, 128), (128, 128), (128, 128), (128, 2)])
figure, axes = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
costs_of_rounds = np.cumsum([found.flop for found in booster.rounds_])
staged = booster.staged_score(X_test, y_test)
axes[0].plot(costs_of_rounds, staged, "o-", color="#0072B2", label="booster")
costs_of_networks = cost_of_one * np.arange(1, booster.n_rounds_ + 1)
axes[0].plot(costs_of_networks, average, "s:", color="#E69F00", label="average of networks")
axes[0].axhline(teacher.score(X_test, y_test), color="0.3", linestyle="--", label="teacher")
axes[0].legend(loc="lower right", fontsize="small")  # clear of the teacher's line
axes[0].set(xlabel="Operations per sample", ylabel="Accuracy", title="Fixed number of rounds")
axes[0].set_xlim(left=0)
print("round   accuracy   of the teacher's operations")
for number, (cost, score) in enumerate(zip(costs_of_rounds, staged, strict=True), 1):
    print(f"{number:5}{score:11.3f}{cost / teacher_cost:15.1%}")
print(f"teacher{teacher.score(X_test, y_test):9.3f}")

thresholds = [0.6, 0.8, 0.9, 0.95, 0.99, 0.999]
costs, scores = [], []
for threshold in thresholds:
    labels, exits = booster.predict(X_test, early_exit=threshold, return_exits=True)
    print(f"early exit at {threshold:5}: {exits.flop / costs_of_rounds[-1]:.0%} of the operations")
    costs.append(exits.flop)
    scores.append((labels == y_test).mean())
axes[1].plot(
    costs_of_rounds, staged, "o-", color="#0072B2", label="the same rounds for all samples"
)
axes[1].plot(costs, scores, "s-", color="#D55E00", label="early exit, by threshold")
for threshold, cost, score in zip(thresholds, costs, scores, strict=True):
    axes[1].annotate(
        f"{threshold:g}", (cost, score), xytext=(0, 6), textcoords="offset points", ha="right"
    )
axes[1].margins(y=0.1)  # room for the thresholds
axes[1].set(
    xlabel="Operations per sample, mean",
    ylabel="Accuracy",
    title="Early exit",
)
axes[1].legend(fontsize="small")
plt.show()
