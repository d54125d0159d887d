"""
Grid search with a cached teacher
=================================

In a grid search over the parameters of a student, the teacher is the same for all candidates of a
fold. With ``memory=`` the first candidate fits and caches it, and the others load it and take less
time. Everything else is as in any search of scikit-learn.
"""

# %%
# Search
# ------
#
# The student is a step of a Pipeline, whose first step imputes missing values. A teacher is found
# in the cache if its samples, its parameters and its ``random_state`` are the same, so the latter
# must be an integer.

import tempfile

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skdistill import BayesianEnsembleClassifier, HydraPlusClassifier
from skdistill.settings import HydraLoss

n_members = 20  # networks of the teacher
max_epochs = 60  # epochs of each model

X, y = load_wine(return_X_y=True, as_frame=True)
X = X.mask(np.random.default_rng(0).random(X.shape) < 0.05)  # lose a value in twenty

with tempfile.TemporaryDirectory() as folder:
    student = HydraPlusClassifier(
        BayesianEnsembleClassifier(n_members, max_epochs=max_epochs, random_state=0),
        loss=HydraLoss(),
        memory=folder,
        max_epochs=max_epochs,
        random_state=0,
    )
    search = GridSearchCV(
        make_pipeline(SimpleImputer(), student),
        {
            "hydraplusclassifier__module__hidden_units": [(16,), (64,)],
            "hydraplusclassifier__loss__spread_weight": [0.0, 0.1],
        },
        scoring="neg_log_loss",
        cv=3,
    ).fit(X, y)

# %%
# Results
# -------

print(f"{'units':>6}{'spread weight':>15}{'log loss':>10}{'seconds for a fit':>19}")
results = search.cv_results_
names = []
for params, score, seconds in zip(
    results["params"], results["mean_test_score"], results["mean_fit_time"], strict=True
):
    weight, (units,) = params.values()  # by name
    names.append(f"{units} units\nweight {weight}")
    print(f"{units:6}{weight:15}{-score:10.3f}{seconds:19.2f}")

# %%
# Figure
# ------
#
# The fit time of the first candidate includes the teachers of its folds.

figure, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ax.bar(names, results["mean_fit_time"], color="#0072B2")
ax.set(
    xlabel="candidate, in the order of the search",
    ylabel="seconds for a fit",
    title="The teacher is fitted for the first candidate only",
)
plt.show()
