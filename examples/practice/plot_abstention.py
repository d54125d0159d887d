"""
Abstention with a guaranteed error rate
=======================================

A classifier that may abstain makes fewer errors where it predicts. `SelectivePredictor` abstains
where the uncertainty is above a threshold. It chooses the threshold such that the error rate of the
other samples is at most `max_risk`, with probability 1 - `delta`. Here a student classifies digits,
and the guarantee is checked on a hundred held-out sets.
"""

# %%
# The student
# -----------
#
# It learns from 300 images, so that about one in twenty of the others is misclassified.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split

from skdistill import BayesianEnsembleClassifier, HydraPlusClassifier
from skdistill.decision import SelectivePredictor

n_members = 5  # networks of the teacher
max_epochs = 50  # epochs of each model
n_draws = 100  # of the held-out samples
max_risk, delta = 0.02, 0.1

X, y = load_digits(return_X_y=True)
X_fit, X_test, y_fit, y_test = train_test_split(X, y, train_size=300, stratify=y, random_state=0)
teacher = BayesianEnsembleClassifier(n_members, max_epochs=max_epochs, random_state=0)
student = HydraPlusClassifier(teacher, max_epochs=max_epochs, random_state=0).fit(X_fit, y_fit)

uncertainty = student.predict_uncertainty(X_test).total
is_wrong = student.predict(X_test) != y_test
print(f"error rate of all {len(X_test)} test images: {is_wrong.mean():.3f}")

# %%
# A hundred thresholds
# --------------------
#
# Each is chosen with 700 held-out images, drawn from the test images with replacement. They are
# independent samples of a population that is known, so that the true error rate is known too: it is
# that of all test images. The plain threshold is the largest one below which the error rate of the
# held-out images is at most `max_risk`.


def plain_threshold(uncertainty, is_wrong):
    order = np.argsort(uncertainty)
    error_rates = np.cumsum(is_wrong[order]) / np.arange(1, len(order) + 1)
    return uncertainty[order][error_rates <= max_risk].max(initial=-np.inf)


def coverage_and_error(is_answered):
    return is_answered.mean(), is_wrong[is_answered].mean() if is_answered.any() else 0.0


rng = np.random.default_rng(0)
guaranteed, plain = [], []
for _ in range(n_draws):
    held_out = rng.integers(len(X_test), size=700)
    model = SelectivePredictor(FrozenEstimator(student), max_risk, delta=delta)
    model.fit(X_test[held_out], y_test[held_out])
    guaranteed.append(coverage_and_error(uncertainty < model.threshold_))
    threshold = plain_threshold(uncertainty[held_out], is_wrong[held_out])
    plain.append(coverage_and_error(uncertainty <= threshold))
guaranteed, plain = np.array(guaranteed), np.array(plain)

print(f"{'threshold':12}{'coverage':>10}{'error rate':>12}{'above max_risk':>16}")
for name, found in (("guaranteed", guaranteed), ("plain", plain)):
    coverage, error = found.mean(0)
    broken = np.mean(found[:, 1] > max_risk)
    print(f"{name:12}{coverage:10.2f}{error:12.4f}{broken:16.2f}")

# %%
# Figure
# ------
#
# Left, the error rate as a function of the coverage, and the first threshold of each kind. Right,
# the error rates of all thresholds. Those of plain thresholds exceed `max_risk` about every second
# time. The guarantee costs some coverage, and is violated in less than one case in ten.

order = np.argsort(uncertainty)
coverages = np.arange(1, len(order) + 1) / len(order)
figure, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3.8), layout="constrained")
left.plot(coverages, np.cumsum(is_wrong[order]) / np.arange(1, len(order) + 1), color="black")
left.plot(*guaranteed[0], "o", color="#0072B2", markersize=8, label="guaranteed threshold")
left.plot(*plain[0], "s", color="#D55E00", markersize=8, label="plain threshold")
left.axhline(max_risk, color="0.5", linestyle="--", label="max_risk")
left.legend(fontsize="small", loc="upper left")
left.set(xlabel="coverage", ylabel="selective risk", title="One draw")

bins = np.linspace(0, 2 * max_risk, 21)
for found, label, color in ((plain, "plain", "#D55E00"), (guaranteed, "guaranteed", "#0072B2")):
    right.hist(found[:, 1], bins, color=color, alpha=0.6, label=label)
right.axvline(max_risk, color="0.5", linestyle="--", label="max_risk")
right.legend(fontsize="small")
right.set(xlabel="selective risk", ylabel="draws", title=f"{n_draws} draws")
plt.show()
