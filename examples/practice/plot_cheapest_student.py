"""
Search for the cheapest student
===============================

A search for the most accurate student selects a large one, even if a student of a sixth of its size
is nearly as accurate. `GridSearchCV` takes a function as its `refit`. This one selects the student
with the fewest parameters whose error is at most one per cent above the lowest.
"""

# %%
# Search
# ------
#
# The cost may be the number of parameters, the operations per sample, or the measured latency: a
# scorer returns its negative. The target is Friedman's function of five features, with noise.

import tempfile

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.model_selection import GridSearchCV, train_test_split

from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
from skdistill.model_selection import n_parameters

n_members = 5  # networks of the teacher
max_epochs = 100  # epochs of each model

X, y = make_friedman1(600, n_features=5, noise=2, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0)


def neg_n_parameters(model, X, y):
    """A scorer: greater is better."""
    return -n_parameters(model)


def cheapest(cv_results):
    """The candidate with the fewest parameters whose error is within 1 % of the lowest."""
    scores = cv_results["mean_test_score"]
    is_close = scores >= 1.01 * scores.max()  # scores are negative
    return np.where(is_close, cv_results["mean_test_neg_n_parameters"], -np.inf).argmax()


with tempfile.TemporaryDirectory() as folder:  # the candidates of a fold share its teacher
    teacher = BayesianEnsembleRegressor(n_members, max_epochs=max_epochs, random_state=0)
    student = HydraPlusRegressor(teacher, memory=folder, max_epochs=max_epochs, random_state=0)
    search = GridSearchCV(
        student,
        {"module__hidden_units": [(4,), (16,), (64,), (128, 128)]},
        scoring={"score": "neg_root_mean_squared_error", "neg_n_parameters": neg_n_parameters},
        refit=cheapest,
        cv=3,
    ).fit(X_train, y_train)

# %%
# Results
# -------

results = search.cv_results_
print(f"{'hidden units':>12}{'parameters':>12}{'RMSE in validation':>20}")
for params, cost, score in zip(
    results["params"],
    results["mean_test_neg_n_parameters"],
    results["mean_test_score"],
    strict=True,
):
    chosen = "  chosen" if params == search.best_params_ else ""
    print(f"{params['module__hidden_units']!s:>12}{-cost:12,.0f}{-score:20.3f}{chosen}")
teacher = search.best_estimator_.teacher_
for name, model in (("teacher", teacher), ("student", search.best_estimator_)):
    error = ((model.predict(X_test) - y_test) ** 2).mean() ** 0.5
    print(f"{name}, test samples: RMSE {error:.3f}, {n_parameters(model):,} parameters")

# %%
# Figure
# ------
#
# Error against cost. Of the students in the grey band the cheapest is selected.

costs, errors = -results["mean_test_neg_n_parameters"], -results["mean_test_score"]
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.plot(costs, errors, "o-", color="#0072B2", label="candidates")
chosen = search.best_index_
style = {"markersize": 14, "markerfacecolor": "none", "color": "#D55E00"}
ax.plot(costs[chosen], errors[chosen], "o", label="selected", **style)
best = errors.min()
ax.axhspan(best, 1.01 * best, color="0.9", zorder=0, label="within 1 % of the best")
ax.set(xscale="log", xlabel="parameters", ylabel="RMSE in validation")
ax.legend()
plt.show()
