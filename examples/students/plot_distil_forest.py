"""
Distillation of a random forest
===============================

A random forest of 500 trees classifies handwritten digits. One network with two layers of 192 and
128 units is distilled from it. The student is as accurate, and its inference is faster. The
speed-up is largest for a single image, for which the forest has to call all its trees.
"""

# %%
# Teacher and student
# -------------------
#
# Any ensemble of scikit-learn can be a teacher. `as_teacher` groups the 500 trees into twenty
# members, so the student needs twenty heads, not 500. The transfer set has the images and mixtures
# of two of them (mixup). A temperature of 1 leaves the members' probabilities unchanged, since
# those of trees are soft enough.

from functools import partial
from time import process_time
from timeit import Timer

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from skdistill import HydraPlusClassifier, predict_uncertainty
from skdistill.metrics import risk_coverage_curve
from skdistill.settings import HydraLoss
from skdistill.teachers import as_teacher

n_trees = 500
n_members = 20  # members that the trees are put into
max_epochs = 50  # epochs of the student

X, y = load_digits(return_X_y=True)
X = X.astype(np.float32) / 16  # trees count in float32 anyway; the network is faster in it
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0)

forest = RandomForestClassifier(n_trees, random_state=0).fit(X_train, y_train)
student = HydraPlusClassifier(
    as_teacher(FrozenEstimator(forest), max_members=n_members),
    transfer="mixup",
    loss=HydraLoss(member_temperature=1),
    max_epochs=max_epochs,
    random_state=0,
).fit(X_train, y_train)

# %%
# Results
# -------
#
# The student's total uncertainty is below the forest's: it learns from the training samples of the
# trees, on which the forest is more certain than on new ones.

n_rows = [1, 10, 100, 1000, 10000]
rows = np.resize(X_test, (n_rows[-1], X_test.shape[1]))


def milliseconds(model):
    """Time of the processor that the model takes for so many samples, the shortest of ten."""
    timers = [Timer(partial(model.predict_proba, rows[:n]), timer=process_time) for n in n_rows]
    return [1e3 * min(timer.repeat(10, number=1)) for timer in timers]


def describe(model, uncertain, n_numbers):
    """A row of the table for a model; `uncertain` is the model for its uncertainty."""
    return {
        "accuracy": model.score(X_test, y_test),
        "log loss": log_loss(y_test, model.predict_proba(X_test)),
        "total uncertainty": predict_uncertainty(uncertain, X_test).total.mean(),
        "nodes, parameters": n_numbers,
    }


n_nodes = sum(tree.tree_.node_count for tree in forest.estimators_)
table = {
    "forest (500 trees)": describe(forest, student.teacher_, n_nodes),
    "student (1 network)": describe(student, student, student.n_parameters_),
}
times = dict(zip(table, map(milliseconds, (forest, student)), strict=True))

columns = [*next(iter(table.values())), "ms for 1 sample", "ms for 1,000"]
print(f"{'':20}" + "".join(f"{column:>19}" for column in columns))
for name, numbers in table.items():
    values = [*numbers.values(), times[name][0], times[name][3]]
    cells = (f"{value:,}" if isinstance(value, int) else f"{value:.3g}" for value in values)
    print(f"{name:20}" + "".join(f"{cell:>19}" for cell in cells))

ratios = dict(zip(n_rows, np.divide(*times.values()), strict=True))
agreement = np.mean(forest.predict(X_test) == student.predict(X_test))
print(
    f"\nThe student predicts the forest's class for {agreement:.1%} of the test images, and is "
    + ", ".join(f"{ratio:.0f}" for ratio in ratios.values())
    + " times as fast for "
    + ", ".join(f"{n:,}" for n in ratios)
    + " samples."
)

# %%
# Figure
# ------
#
# Left: prediction time. Right: the error rate when the most uncertain images are rejected. The
# student's uncertainty ranks its errors as well as the forest's does.

looks = dict(zip(table, ("o-", "s--"), strict=True))
figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
for name, model in zip(table, (student.teacher_, student), strict=True):
    axes[0].loglog(n_rows, times[name], looks[name], label=name)
    wrong = model.predict(X_test) != y_test
    curve = risk_coverage_curve(wrong, predict_uncertainty(model, X_test).total)
    axes[1].plot(*curve, looks[name][1:], label=name.split()[0])
axes[0].set(xlabel="samples", ylabel="CPU time [ms]", title="Prediction time")
axes[0].legend()
axes[1].set(
    xlim=(0.7, 1),
    xlabel="coverage",
    ylabel="error rate",
    title="Risk-coverage curves",
)
axes[1].legend(fontsize="small")
plt.show()
