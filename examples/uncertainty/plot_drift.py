"""
Drift monitoring
================

Labels come late, if at all, but epistemic uncertainty needs none. A student classifies digits from
a scanner whose sensor degrades: each batch is a little noisier than the one before. A monitor of
the uncertainty detects the drift while the student still classifies nearly all
images correctly.
"""

# %%
# Student
# -------

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from skdistill import BayesianEnsembleClassifier, HydraPlusClassifier, SchemaWarning
from skdistill.monitoring import DriftMonitor

n_members = 10  # networks of the teacher
max_epochs = 60  # epochs of each model

X, y = load_digits(return_X_y=True)
X_train, X_rest, y_train, y_rest = train_test_split(X, y, test_size=0.7, random_state=0)
X_valid, X_stream, y_valid, y_stream = train_test_split(
    X_rest, y_rest, test_size=1000, random_state=0
)
teacher = BayesianEnsembleClassifier(n_members, max_epochs=max_epochs, random_state=0)
student = HydraPlusClassifier(teacher, max_epochs=max_epochs, random_state=0)
student.fit(X_train, y_train)

# %%
# Alarm
# -----
#
# A monitor compares the stream with held-out validation images. Its p-value is valid after every
# batch: if nothing changes, it is ever at most .01 in at most one of a hundred streams. Each image
# occurs once: repeated ones are not independent. skdistill itself warns of values outside the range
# of training; these warnings are silenced here.

warnings.simplefilter("ignore", SchemaWarning)
rng = np.random.default_rng(0)
monitor = DriftMonitor(student, X_valid, alpha=0.01, random_state=0)

last_good = 7
p_values, epistemic, accuracies = [], [], []
for batch, rows in enumerate(np.split(np.arange(len(X_stream)), 20)):
    noise = 0.5 * max(0, batch - last_good)  # of 16 levels of grey
    images = X_stream[rows] + rng.normal(0, noise, (len(rows), 64))
    images = np.clip(np.round(images), 0, 16)
    p_values.append(monitor.update(images).p_value_)
    epistemic.append(student.predict_uncertainty(images).epistemic.mean())
    accuracies.append(student.score(images, y_stream[rows]))
p_values, accuracies = np.array(p_values), np.array(accuracies)
after = np.arange(len(p_values)) > last_good
print(f"alarms before the noise: {np.sum(p_values[~after] <= monitor.alpha)} of {np.sum(~after)}")
alarm = np.flatnonzero(after & (p_values <= monitor.alpha))
if len(alarm):
    print(f"first alarm: batch {alarm[0]}, {alarm[0] - last_good} batches after it began")
    print(f"accuracy in that batch: {accuracies[alarm[0]]:.2f}")
print(f"accuracy before: {accuracies[~after].mean():.2f}, at the end: {accuracies[-5:].mean():.2f}")

# %%
# Figure
# ------
#
# Not every change moves images away from the training images. With fading contrast they approach
# the mean image, and the epistemic uncertainty rises late. Therefore the monitor also tests the
# total uncertainty.

figure, axes = plt.subplots(3, 1, figsize=(6.5, 6.4), layout="constrained", sharex=True)
axes[0].plot(np.maximum(p_values, 1e-12), "o-", color="#0072B2", markersize=4, label="p-value")
axes[0].axhline(monitor.alpha, color="#D55E00", linestyle="--", label="level")
axes[0].set(yscale="log", ylabel="p-value", title="Without labels")
axes[1].plot(epistemic, "o-", color="#0072B2", markersize=4, label="mean of a batch")
axes[1].set(yscale="log", ylabel="epistemic part [nats]")
axes[2].plot(accuracies, "s-", color="black", markersize=4, label="batch")
axes[2].set(
    xticks=range(0, len(p_values), 2),
    xlabel="batch of 50 images",
    ylabel="accuracy",
    title="Accuracy (needs labels)",
)
for ax in axes:
    ax.axvspan(last_good, len(p_values) - 1, color="0.93", zorder=0, label="noise grows")
axes[0].legend(fontsize="small")
plt.show()
