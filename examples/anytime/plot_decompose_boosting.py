"""
Decomposition of a gradient boosting model
==========================================

Gradient boosting predicts after all its trees or not at all: for a single sample its 1,000 trees
(100 for each of ten digits) take milliseconds. Decomposed into seven small networks, it predicts in
a fraction of that time after the first network, and more accurately after the others.
"""

# %%
# Decomposition
# -------------
#
# The booster uses only the teacher's probabilities, so any classifier will do. The learners are
# trained on the training images and on as many mixtures of two of them (mixup), for which the
# teacher predicts too. They have no connections here, so they can run in parallel.

from timeit import Timer

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split

from skdistill import BDistilBooster

n_rounds = 7  # rounds of the booster
max_epochs = 40  # epochs of each network

X, y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)

booster = BDistilBooster(
    HistGradientBoostingClassifier(random_state=0),
    n_rounds=n_rounds,
    module__hidden_units=(64, 32),
    connection="none",
    transfer="mixup",
    max_epochs=max_epochs,
    random_state=0,
).fit(X_train, y_train)
teacher = booster.teacher_

# %%
# Results
# -------
#
# Agreement is with the teacher's labels. The networks are smoother than the trees, so they may well
# be more accurate.

row = X_test[:1]


def milliseconds(call):
    return 1e3 * min(Timer(call).repeat(20, number=10)) / 10


times = [
    milliseconds(lambda n=n: booster.predict(row, max_rounds=n + 1))
    for n in range(booster.n_rounds_)
]
print(f"{'':10}{'accuracy':>10}{'agreement':>11}{'ms per sample':>14}")
said = teacher.predict(X_test)
for number, labels in enumerate(booster.staged_predict(X_test)):
    print(
        f"round {number + 1:<4}{np.mean(labels == y_test):10.3f}{np.mean(labels == said):11.3f}"
        f"{times[number]:14.3f}"
    )
time_of_teacher = milliseconds(lambda: teacher.predict(row))
print(f"{'teacher':10}{teacher.score(X_test, y_test):10.3f}{1:11.3f}{time_of_teacher:14.3f}")

# %%
# Figure
# ------
#
# Left: accuracy against operations. Right: an image that the first round misclassifies, while all
# rounds together and the teacher are correct; of these, the one whose probabilities change most.
# Its probabilities are those of the mean of the rounds so far, and of the teacher.

figure, axes = plt.subplot_mosaic(
    [["cost", "stages"], ["cost", "image"]],
    figsize=(8, 4.6),
    layout="constrained",
    height_ratios=(3, 1),
)
costs = np.cumsum([found.flop for found in booster.rounds_])
axes["cost"].plot(costs, booster.staged_score(X_test, y_test), "o-", label="booster")
score_of_teacher = teacher.score(X_test, y_test)
axes["cost"].axhline(score_of_teacher, color="0.3", linestyle="--", label="teacher")
axes["cost"].set(xlabel="Floating-point operations for a sample", ylabel="Accuracy")
axes["cost"].set_xlim(left=0)
axes["cost"].legend(fontsize="small")
stages = np.stack([*booster.staged_predict_proba(X_test), teacher.predict_proba(X_test)])
found = [labels == y_test for labels in booster.staged_predict(X_test)]
helped = ~found[0] & found[-1] & (said == y_test)
busy = np.abs(np.diff(stages, axis=0)).sum(axis=(0, 2))
shown = np.where(helped, busy, -1).argmax()
image = axes["stages"].imshow(
    stages[:, shown].T, origin="lower", aspect="auto", cmap="Blues", vmin=0, vmax=1
)
names = [*(str(n + 1) for n in range(booster.n_rounds_)), "\nteacher"]
axes["stages"].set(
    xticks=range(len(names)),
    xticklabels=names,
    yticks=range(10),
    xlabel="Round",
    ylabel="Digit",
    title="Probabilities of the image below",
)
figure.colorbar(image, ax=axes["stages"], label="Probability")
axes["image"].imshow(X_test[shown].reshape(8, 8), cmap="gray_r")
axes["image"].set(xticks=[], yticks=[], xlabel=f"a {y_test[shown]}")
plt.show()
