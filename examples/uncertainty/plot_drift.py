"""
Does a model notice that its world has changed?
===============================================

Labels come late, if at all, but the epistemic part of the uncertainty needs none. A student reads
digits from a scanner whose sensor wears out: each batch is a little noisier than the one before.
The student still reads nearly all of them when the mean epistemic uncertainty of a batch leaves the
range in which batches of good images lie.
"""

# %%
# The student
# -----------

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from skdistill import BayesianEnsembleClassifier, HydraPlusClassifier, SchemaWarning

n_members = 10  # networks of the teacher
max_epochs = 60  # epochs of each model

X, y = load_digits(return_X_y=True)
X_train, X_rest, y_train, y_rest = train_test_split(X, y, test_size=0.6, random_state=0)
X_valid, X_stream, y_valid, y_stream = train_test_split(
    X_rest, y_rest, test_size=0.5, random_state=0
)
teacher = BayesianEnsembleClassifier(n_members, max_epochs=max_epochs, random_state=0)
student = HydraPlusClassifier(teacher, max_epochs=max_epochs, random_state=0)
student.fit(X_train, y_train)

# %%
# The alarm
# ---------
#
# It rings above 99 % of the means of batches of 50 that are drawn from validation images. Nothing
# about the stream is needed to set it. skdistill itself warns of values outside the range of
# training; these warnings are left out here.

warnings.simplefilter("ignore", SchemaWarning)
rng = np.random.default_rng(0)
good = student.predict_uncertainty(X_valid).epistemic
limit = np.quantile(rng.choice(good, size=(2000, 50)).mean(axis=1), 0.99)

n_batches, last_good = 40, 15
means, accuracies = [], []
for batch in range(n_batches):
    rows = rng.choice(len(X_stream), 50, replace=False)
    noise = 0.25 * max(0, batch - last_good)  # of 16 levels of grey
    images = X_stream[rows] + rng.normal(0, noise, (50, 64))
    means.append(student.predict_uncertainty(images).epistemic.mean())
    accuracies.append(student.score(images, y_stream[rows]))
means, accuracies = np.array(means), np.array(accuracies)
after = np.arange(n_batches) > last_good
print(f"alarms before the noise: {np.sum(means[~after] > limit)} of {np.sum(~after)}")
alarm = np.flatnonzero(after & (means > limit))
if len(alarm):
    print(f"first alarm: batch {alarm[0]}, {alarm[0] - last_good} batches after it began")
    print(f"accuracy in that batch: {accuracies[alarm[0]]:.2f}")
print(f"accuracy before: {accuracies[~after].mean():.2f}, at the end: {accuracies[-5:].mean():.2f}")

# %%
# The picture
# -----------
#
# Not every change takes images away from those of training. Where their contrast fades to grey they
# come nearer to the middle of these, and the epistemic part rises late: watch the total too.

figure, axes = plt.subplots(2, 1, figsize=(6.5, 4.8), layout="constrained", sharex=True)
axes[0].plot(means, "o-", color="#0072B2", markersize=4, label="mean of a batch")
axes[0].axhline(limit, color="#D55E00", linestyle="--", label="limit")
axes[0].set(yscale="log", ylabel="epistemic part [nats]", title="What is seen without labels")
axes[1].plot(accuracies, "s-", color="black", markersize=4, label="batch")
axes[1].set(xlabel="batch of 50 images", ylabel="accuracy", title="What labels would tell")
for ax in axes:
    ax.axvspan(last_good, n_batches - 1, color="0.93", zorder=0, label="noise grows")
axes[0].legend(fontsize="small")
plt.show()
