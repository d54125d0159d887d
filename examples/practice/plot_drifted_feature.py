"""
Drift of a single feature
=========================

A clinic predicts the progression of diabetes, and a new device measures the blood pressure ten
millimetres too high. Labels, which would reveal the error, are not available yet. `DriftMonitor`
does not need them. Its p-value is valid after every batch, and it names the feature.
"""

# %%
# The student and its reference
# -----------------------------
#
# The reference has held-out patients, because a model is more certain on its training samples.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
from skdistill.monitoring import DriftMonitor

n_members = 5  # networks of the teacher
max_epochs = 50  # epochs of each model
n_streams = 20  # other orders of the patients

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X_fit, X_rest, y_fit, _ = train_test_split(X, y, train_size=140, random_state=0)
teacher = BayesianEnsembleRegressor(n_members, max_epochs=max_epochs, random_state=0)
student = HydraPlusRegressor(teacher, max_epochs=max_epochs, random_state=0).fit(X_fit, y_fit)

# %%
# The stream
# ----------
#
# Batches have ten patients each. The new device comes with the seventh, and is off by .7 of a
# standard deviation. The monitor watches the ten features and two parts of the uncertainty.

n_reference, n_batches, n_before = 112, 19, 6


def watch(X_rest, offset):
    """The monitor after the stream, and its p-values: of all columns, and of each, by batch."""
    monitor = DriftMonitor(student, X_rest[:n_reference], alpha=0.01, random_state=0)
    p_values, of_columns = [], []
    for batch in range(n_batches):
        start = n_reference + 10 * batch
        X_batch = X_rest[start : start + 10]
        if batch >= n_before:
            X_batch = X_batch.assign(bp=X_batch["bp"] + offset)
        p_values.append(monitor.update(X_batch).p_value_)
        of_columns.append(monitor.p_values_)
    return monitor, np.array(p_values), np.array(of_columns)


monitor, p_values, of_columns = watch(X_rest, offset=10)
_, without, _ = watch(X_rest, offset=0)
print(f"drifted features: {monitor.features_}")
print(f"smallest p-value with the new device {p_values.min():.1e}, without {without.min():.2f}")

# %%
# Repeated with permuted patients:

alarms = []
for seed in range(n_streams):
    _, found, _ = watch(X_rest.sample(frac=1, random_state=seed), offset=10)
    is_alarm = found <= monitor.alpha
    alarms.append(np.argmax(is_alarm) + 1 - n_before if is_alarm.any() else np.inf)
alarms = np.array(alarms)
print(f"alarms before the new device: {np.sum(alarms <= 0)} of {n_streams} streams")
print(f"median delay: {10 * np.median(alarms):.0f} patients; no alarm: {np.isinf(alarms).sum()}")

# %%
# Figure
# ------
#
# Left, the p-value with the new device, and with the old one throughout. Right, those of the
# columns at the end: blood pressure alone is below the level. The student's uncertainty does not
# change: the pressure is within the training range.

figure, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3.8), layout="constrained")
batches = np.arange(1, n_batches + 1)
left.axvspan(n_before + 0.5, n_batches + 0.5, color="0.93", zorder=0, label="new device")
left.plot(batches, p_values, "o-", color="#0072B2", markersize=4, label="with the new device")
left.plot(batches, without, "s--", color="black", markersize=3, label="with the old one")
left.axhline(monitor.alpha, color="#D55E00", linestyle="--", label="alarm level")
left.legend(fontsize="small", loc="lower left")
left.set(xlabel="batch of ten patients", ylabel="p-value", yscale="log", title="All columns")

has_moved = np.isin(monitor.columns_, monitor.features_)
colors = np.where(has_moved, "#0072B2", "0.6")
right.scatter(of_columns[-1], monitor.columns_, c=colors)
right.axvline(monitor.alpha, color="#D55E00", linestyle="--", label="alarm level")
right.invert_yaxis()
right.legend(fontsize="small", loc="lower left")
right.set(xlabel="p-value at the end", xscale="log", title="Each column")
plt.show()
