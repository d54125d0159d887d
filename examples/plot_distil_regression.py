"""
Does one network keep what twenty know?
=======================================

An ensemble of twenty networks learns the progression of diabetes in 442 patients; one network, a
Hydra+ student, is then taught to predict what the ensemble predicts, uncertainty included. The
table compares the two on patients that neither has seen. The picture follows one measurement, the
body mass index, from the patients' range to well outside it: there the ensemble's members part
company, the epistemic band widens, and the student's widens with it.
"""

# %%
# Teacher and student
# -------------------
#
# The student is a scikit-learn estimator like any other. It fits its teacher first; the progress
# bars show the epochs of both.

import argparse
import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdistill import (
    BayesianEnsembleRegressor,
    HydraPlusRegressor,
    predict_interval,
    predict_members,
    predict_uncertainty,
)
from skdistill.displays import SparsificationDisplay, UncertaintyBandDisplay
from skdistill.metrics import ause, epistemic_fidelity, interval_coverage, mixture_nll
from skdistill.modules import n_parameters

parser = argparse.ArgumentParser(description="Distil an ensemble into one network.")
parser.add_argument("--members", type=int, default=20, help="networks of the ensemble")
parser.add_argument("--epochs", type=int, default=None, help="epochs; each model's own by default")
parser.add_argument("--picture", default="distil_regression.png", help="file to write")
options, _ = parser.parse_known_args()
epochs = {} if options.epochs is None else {"max_epochs": options.epochs}

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)

student = HydraPlusRegressor(
    BayesianEnsembleRegressor(options.members, random_state=0, **epochs),
    random_state=0,
    **epochs,
)
model = make_pipeline(StandardScaler(), student)
try:
    from sklearn.callback import ProgressBar

    model.set_callbacks(ProgressBar(max_propagation_depth=2))
except ImportError:  # scikit-learn before 1.9, or no rich
    student.set_params(verbose=1)
model.fit(X_train, y_train)

# The teacher on the same footing: behind the same scaler.
teacher = make_pipeline(model[0], model[-1].teacher_)

# %%
# The table
# ---------
#
# AUSE is the area between the error that remains when the least certain patients are left out and
# what the best order would leave: how well the uncertainty ranks the errors, 0 being perfect.


def milliseconds(predict, n_runs=50):
    """Median time of a call."""
    times = []
    for _ in range(n_runs):
        start = time.perf_counter()
        predict()
        times.append(time.perf_counter() - start)
    return 1e3 * np.median(times)


def row(fitted):
    """What the table says of a model."""
    mean = fitted.predict(X_test)
    return {
        "RMSE": np.sqrt(np.mean((mean - y_test) ** 2)),
        "NLL": mixture_nll(y_test, predict_members(fitted, X_test)),
        "AUSE": ause(y_test, mean, predict_uncertainty(fitted, X_test).total),
        "90 % coverage": interval_coverage(y_test, predict_interval(fitted, X_test, 0.9)),
        "parameters": n_parameters(fitted[-1].module_),
        "prediction [ms]": milliseconds(lambda: fitted[-1].predict(X_test.to_numpy())),
    }


rows = {f"teacher ({options.members} networks)": row(teacher), "student (1 network)": row(model)}
columns = next(iter(rows.values()))
print(f"\n{'':24}" + "".join(f"{name:>17}" for name in columns))
for name, numbers in rows.items():
    cells = (
        f"{value:,}" if isinstance(value, int) else f"{value:.3f}" for value in numbers.values()
    )
    print(f"{name:24}" + "".join(f"{cell:>17}" for cell in cells))

teacher_parts, student_parts = (predict_uncertainty(m, X_test) for m in (teacher, model))
fidelity = epistemic_fidelity(teacher_parts.epistemic, student_parts.epistemic)
print(
    f"\nEpistemic variance, student against teacher: rank correlation "
    f"{fidelity.rank_correlation:.2f}, median ratio {fidelity.median_ratio:.2f}"
)

# %%
# The picture
# -----------
#
# Above, the prediction with its aleatoric and total band, of the teacher and of the student, as
# the body mass index varies and all else stays at its median. Below, the epistemic part alone, and
# the error that is left when the least certain patients are set aside.

figure, axes = plt.subplots(2, 2, figsize=(11, 8.5), layout="constrained")
for ax, (name, fitted) in zip(axes[0], {"Teacher": teacher, "Student": model}.items(), strict=True):
    UncertaintyBandDisplay.from_estimator(
        fitted, X_train, y_train, feature="bmi", extend=0.5, ax=ax, name=name
    )
    ax.set(
        title=f"{name}: what it predicts", xlabel="body mass index", ylabel="disease progression"
    )
low = min(ax.get_ylim()[0] for ax in axes[0])
high = max(ax.get_ylim()[1] for ax in axes[0])
for ax in axes[0]:
    ax.set_ylim(low, high)

width = X_train["bmi"].max() - X_train["bmi"].min()
grid = X_train.median().to_frame().T.loc[np.zeros(200, dtype=int)]
grid["bmi"] = np.linspace(X_train["bmi"].min() - width / 2, X_train["bmi"].max() + width / 2, 200)
for name, fitted, style in (("Teacher", teacher, "-"), ("Student", model, "--")):
    epistemic = predict_uncertainty(fitted, grid).std().epistemic
    axes[1, 0].plot(grid["bmi"], epistemic, style, label=name)
    SparsificationDisplay.from_estimator(fitted, X_test, y_test, ax=axes[1, 1], name=name)
axes[1, 0].axvspan(X_train["bmi"].min(), X_train["bmi"].max(), color="0.93", zorder=0, label="data")
axes[1, 0].set(
    title="The epistemic part alone",
    xlabel="body mass index",
    ylabel="epistemic standard deviation",
)
axes[1, 0].legend()
axes[1, 1].set_title("The errors that the uncertainty finds")
figure.savefig(options.picture, dpi=120)
print(f"Picture: {options.picture}")
