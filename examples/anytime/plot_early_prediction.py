"""
Early classification of time series
===================================

A recurrent network reads a whole series before it predicts. The student has a quarter of its units.
It is a B-DISTIL booster of one round that is trained to predict at every time step, as E-RNN is,
and stops as soon as it is confident. Most series need not be read to their end.

The series are noisy waves of six frequencies, each of which starts at a random time.
"""

# %%
# The series
# ----------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.frozen import FrozenEstimator

from skdistill import BayesianEnsembleClassifier, BDistilBooster
from skdistill.modules import Recurrent
from skdistill.settings import Connection, WeakLearnerSearch

n_rounds = 1  # small networks to learn from the teacher
max_epochs = 15  # epochs of each network

n_series, n_train, n_times = 1500, 1000, 32
rng = np.random.default_rng(0)
y, phase = rng.integers(6, size=n_series), rng.uniform(0, 2 * np.pi, (n_series, 1))
time, start = np.arange(n_times), rng.integers(n_times // 2, size=(n_series, 1))
angle = 0.25 * (y[:, None] + 1) * time + phase
waves = np.stack([np.sin(angle), np.cos(angle)], axis=-1) * (time >= start)[..., None]
X = (waves + 0.3 * rng.normal(size=waves.shape)).astype(np.float32)  # (series, times, channels)
X_train, X_test, y_train, y_test = X[:n_train], X[n_train:], y[:n_train], y[n_train:]

# %%
# Teacher and booster
# -------------------

teacher = BayesianEnsembleClassifier(
    1,
    module=Recurrent,
    module__cell="gru",
    module__hidden_units=(64,),
    max_epochs=max_epochs,
    random_state=0,
).fit(X_train, y_train)
booster = BDistilBooster(
    FrozenEstimator(teacher),
    n_rounds=n_rounds,
    module=Recurrent,
    module__cell="gru",
    module__hidden_units=(16,),
    early=True,
    connection=Connection(connect="always"),
    search=WeakLearnerSearch(max_search=3),
    max_epochs=max_epochs,
    random_state=0,
).fit(X_train, y_train)

# %%
# Results
# -------
#
# A higher threshold takes longer to reach, and gives a higher accuracy.

print(f"teacher at the end: accuracy {teacher.score(X_test, y_test):.3f}")
print(f"booster at the end: accuracy {booster.score(X_test, y_test):.3f}")
print(f"{'threshold':>9}{'accuracy':>10}{'share of the time':>19}")
thresholds = (0.5, 0.6, 0.7, 0.8, 0.9)
for threshold in thresholds:
    labels, steps = booster.predict_early(X_test, threshold)
    print(f"{threshold:9}{np.mean(labels == y_test):10.3f}{steps.mean() / n_times:19.3f}")

# %%
# Figure
# ------
#
# Left: the share of series predicted after each time step, for two thresholds. Right: the accuracy
# against the mean share of the series that is read. A threshold of .8 loses hardly any accuracy,
# and saves more than a quarter of the time.

figure, axes = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
reading = [(t, *booster.predict_early(X_test, t)) for t in thresholds]
for threshold, style, color in ((0.5, "--", "#E69F00"), (0.8, "-", "#0072B2")):
    _, steps = booster.predict_early(X_test, threshold)
    predicted = [np.mean(steps <= step) for step in range(n_times + 1)]
    axes[0].step(range(n_times + 1), predicted, style, color=color, where="post", label=threshold)
axes[0].set(
    xlabel="time steps read",
    ylabel="share of the series predicted",
    title="When a series is predicted",
    ylim=(0, 1.02),
)
axes[0].legend(title="threshold")
read = [steps.mean() / n_times for _, _, steps in reading]
right = [np.mean(labels == y_test) for _, labels, _ in reading]
axes[1].plot(read, right, "o-", color="#0072B2", label="booster, by threshold")
for (threshold, _, _), x, height in zip(reading, read, right, strict=True):
    axes[1].annotate(
        f"{threshold:g}", (x, height), xytext=(4, -12), textcoords="offset points", fontsize="small"
    )
axes[1].axhline(
    teacher.score(X_test, y_test), color="0.3", linestyle=":", label="teacher, at the end"
)
axes[1].margins(x=0.12, y=0.12)  # room for the thresholds
axes[1].set(
    xlabel="share of the series read, on average", ylabel="accuracy", title="Accuracy against time"
)
axes[1].legend(loc="lower right", fontsize="small")
plt.show()
