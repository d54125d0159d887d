"""
Out-of-distribution detection on digits
=======================================

An ensemble is trained on handwritten digits without 8 and 9. On these its members disagree, so its
epistemic uncertainty separates them from known digits. A student, trained without these classes
too, detects them nearly as well. Rotated digits are farther from the training images, and the
student detects nearly all of them.
"""

# %%
# Teacher and students
# --------------------
#
# All pixels are standardised by one scale. A random function that vanishes at the training images
# is added to each network of the teacher; the student has the same functions.
# ``distance_aware=False`` omits them.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from skdistill import (
    BayesianEnsembleClassifier,
    HydraPlusClassifier,
    SchemaWarning,
    predict_uncertainty,
)
from skdistill.metrics import ood_auroc

n_members = 20  # networks of the ensemble
max_epochs = 100  # epochs of each model


def turned(images):
    """Images of eight by eight pixels, one in a row, turned by 90 degrees."""
    return np.rot90(images.reshape(-1, 8, 8), axes=(1, 2)).reshape(-1, 64)


X, y = load_digits(return_X_y=True)
X = X / 16  # from 0, white, to 1, black
X_unseen = X[y >= 8]
X_train, X_test, y_train, y_test = train_test_split(
    X[y < 8], y[y < 8], test_size=0.3, random_state=0
)

settings = {"max_epochs": max_epochs, "random_state": 0}
teacher = BayesianEnsembleClassifier(n_members, **settings)
teacher.fit(X_train, y_train)
student = HydraPlusClassifier(FrozenEstimator(teacher), **settings)
models = {
    "without random functions": BayesianEnsembleClassifier(
        n_members, distance_aware=False, **settings
    ).fit(X_train, y_train),
    "teacher": teacher,
    "student": student.fit(X_train, y_train),
}

# %%
# Results
# -------
#
# The area under the ROC curve (AUROC) is the probability that an out-of-distribution image has a
# larger epistemic uncertainty than a test image of a known digit: .5 is chance, 1 is perfect.
# skdistill warns of values outside the range of training, which are intended here.

warnings.simplefilter("ignore", SchemaWarning)
print(f"{'':28}{'known digits':>22}{'AUROC':>10}{'AUROC':>10}")
print(f"{'':28}{'accuracy':>12}{'log loss':>10}{'8 and 9':>10}{'turned':>10}")
for name, model in models.items():
    known, unseen, sideways = (
        predict_uncertainty(model, rows).epistemic for rows in (X_test, X_unseen, turned(X_test))
    )
    accuracy, loss = model.score(X_test, y_test), log_loss(y_test, model.predict_proba(X_test))
    print(
        f"{name:28}{accuracy:12.3f}{loss:10.3f}"
        f"{ood_auroc(known, unseen):10.3f}{ood_auroc(known, sideways):10.3f}"
    )

# %%
# Figure
# ------
#
# Above, how uncertain teacher and student are of known digits and of 8 and 9. Below, the student's
# most uncertain in-distribution and least uncertain out-of-distribution digits.

figure = plt.figure(figsize=(9, 5), layout="constrained")
above, below = figure.subfigures(2, 1, height_ratios=(5, 3))
known, unseen = (
    {name: predict_uncertainty(models[name], rows)._asdict() for name in ("teacher", "student")}
    for rows in (X_test, X_unseen)
)
panels = above.subplots(1, 3, sharey=True)
for ax, part in zip(panels, ("total", "aleatoric", "epistemic"), strict=True):
    bins = np.linspace(0, np.log(8) if part != "epistemic" else 1, 40)
    for which, found, color in (("known digits", known, "#0072B2"), ("8 and 9", unseen, "#D55E00")):
        for name, look in (("teacher", {"alpha": 0.35}), ("student", {"histtype": "step"})):
            values, label = found[name][part], f"{name}, {which}"
            weights = np.full(len(values), 1 / len(values))
            ax.hist(values, bins, weights=weights, color=color, label=label, **look)
    ax.set(xlabel=f"{part} uncertainty [nats]", yscale="log", ylim=(1e-3, 1))
panels[0].set_ylabel("share of images")
ax.legend(fontsize="small")

epistemic = predict_uncertainty(student, X_test).epistemic
least_sure = X_test[np.argsort(epistemic)[::-1]]
most_sure = X_unseen[np.argsort(predict_uncertainty(student, X_unseen).epistemic)]
for panel, images, title in zip(
    below.subfigures(1, 2),
    (least_sure, most_sure),
    ("Known digits with the most epistemic uncertainty", "8 and 9 with the least"),
    strict=True,
):
    panel.suptitle(title)
    for ax, image in zip(panel.subplots(1, 6), images, strict=False):
        ax.imshow(image.reshape(8, 8), cmap="gray_r")
        ax.set_title(f"read as {student.predict([image])[0]}", fontsize="small")
        ax.set_axis_off()
plt.show()
