"""
Conformal intervals under covariate shift
=========================================

Conformal intervals have their nominal coverage if new samples have the same distribution as the
held-out samples. Here they do not: a feature has shifted to where there were few training samples.
Weighting the held-out samples by a likelihood ratio, known or estimated, restores the coverage.
"""

# %%
# The shift
# ---------
#
# In training and among the held-out samples, low values of the first feature are frequent; among
# future samples, high ones. How y depends on the features has not changed.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer, StandardScaler

from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
from skdistill.decision import ConformalRegressor
from skdistill.metrics import interval_coverage

n_members = 5  # networks of the teacher
max_epochs = 50  # epochs of each model
n_draws = 20  # of the held-out samples

X, y = make_friedman1(20_000, n_features=5, noise=1, random_state=0)
rng = np.random.default_rng(0)


def draw(n_samples, slope):
    """Samples, the likelier the larger `slope` times the first feature is."""
    weights = np.exp(slope * X[:, 0])
    rows = rng.choice(len(X), n_samples, replace=False, p=weights / weights.sum())
    return X[rows], y[rows]


def known_ratio(X):
    return np.exp(3 * X[:, 0])


X_fit, y_fit = draw(200, -1.5)
teacher = BayesianEnsembleRegressor(n_members, max_epochs=max_epochs, random_state=0)
student = HydraPlusRegressor(teacher, max_epochs=max_epochs, random_state=0).fit(X_fit, y_fit)

# %%
# Coverage and width
# ------------------
#
# Intervals have one width, or one scaled by the total uncertainty of the student. The ratio is 1
# (plain), known, or estimated by a classifier that separates 500 unlabelled future samples from 500
# held-out ones.

classifier = make_pipeline(
    StandardScaler(),
    SplineTransformer(knots="quantile", extrapolation="linear"),
    LogisticRegression(max_iter=1000),
)
ratios = {"plain": None, "known ratio": known_ratio, "estimated ratio": classifier}
scales = {"one width": None, "scaled": "total"}
X_test, y_test = draw(2000, 1.5)
coverage, width = np.empty((2, len(scales), len(ratios), n_draws))
for i in range(n_draws):
    X_held_out, y_held_out = draw(500, -1.5)
    X_new, _ = draw(500, 1.5)
    for j, scale in enumerate(scales.values()):
        for k, ratio in enumerate(ratios.values()):
            model = ConformalRegressor(
                FrozenEstimator(student), uncertainty=scale, likelihood_ratio=ratio
            )
            model.fit(X_held_out, y_held_out, X_new=X_new if ratio is classifier else None)
            interval = model.predict_interval(X_test, coverage=0.9)
            coverage[j, k, i] = interval_coverage(y_test, interval)
            width[j, k, i] = np.median(interval[:, 1] - interval[:, 0])

print(f"{'':12}{'':18}{'coverage':>10}{'width':>8}")
for j, scale in enumerate(scales):
    for k, ratio in enumerate(ratios):
        print(f"{scale:12}{ratio:18}{coverage[j, k].mean():10.3f}{width[j, k].mean():8.2f}")
print(f"effective sample size with estimated weights: {model.n_effective_:.0f} of 500")

# %%
# Figure
# ------
#
# Each point is a draw of the held-out samples, the bar their mean. Plain intervals of one width
# cover too little, and scaled ones lose less, since the student is more uncertain where training
# samples are sparse. With weights both cover about nine of ten on average; the draws differ more,
# since the effective sample size is smaller.

figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.8), layout="constrained")
colors = {"one width": "#D55E00", "scaled": "#0072B2"}
for ax, values in zip(axes, (coverage, width), strict=True):
    for j, scale in enumerate(scales):
        for k in range(len(ratios)):
            place = k + 0.3 * (j - 0.5)
            spread = place + np.linspace(-0.08, 0.08, n_draws)
            label = scale if k == 0 else None
            ax.plot(spread, values[j, k], ".", color=colors[scale], alpha=0.5, label=label)
            ax.plot(place, values[j, k].mean(), "k_", markersize=22, markeredgewidth=2)
    ax.set_xticks(range(len(ratios)), list(ratios))
    ax.set(xlabel="likelihood ratio")
axes[0].axhline(0.9, color="0.5", linestyle="--", label="nominal")
axes[0].legend(fontsize="small", loc="upper left")
axes[0].set(ylabel="share of y covered", title="Coverage after the shift")
axes[1].set(ylabel="median width [units of y]", title="Width of the intervals")
plt.show()
