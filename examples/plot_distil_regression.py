"""
Ensemble distillation for regression
====================================

The target is the size of the largest cell nuclei in each of 569 images of tissue, and the features
are means over the nuclei. An ensemble of twenty networks is fitted first. One network, a Hydra+
student, then learns to predict what the ensemble predicts, uncertainty included. On held-out images
the student is as accurate, and its uncertainty ranks the errors equally well. Where images are few
and the members of the ensemble disagree, the student's epistemic uncertainty is large, too.
"""

# %%
# Teacher and student
# -------------------
#
# The student is a scikit-learn estimator. It fits its teacher first. Features may have any units:
# both models standardise them.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor, SchemaWarning
from skdistill.displays import UncertaintyBandDisplay
from skdistill.metrics import (
    ause,
    epistemic_fidelity,
    interval_coverage,
    mixture_nll,
    risk_coverage_curve,
)
from skdistill.model_selection import flops, n_parameters

n_members = 20  # networks of the ensemble
max_epochs = "auto"  # as many as suit the number of samples

nuclei = load_breast_cancer(as_frame=True).data
shape = ["texture", "smoothness", "compactness", "concavity", "concave points", "symmetry"]
X = nuclei[["mean radius", *(f"mean {name}" for name in shape)]]
y = nuclei["worst area"]  # mean of the three largest, in pixels
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)

teacher = BayesianEnsembleRegressor(n_members, max_epochs=max_epochs, random_state=0)
student = HydraPlusRegressor(teacher, max_epochs=max_epochs, random_state=0).fit(X_train, y_train)
models = {f"teacher ({n_members} networks)": student.teacher_, "student (1 network)": student}

# %%
# Results
# -------
#
# AUSE measures how well the uncertainty ranks the errors, 0 being perfect: it is the area between
# the error that remains when the most uncertain images are removed and that of the optimal order.
# Operations are those of predicting one image.


def row(model):
    """What the table says of a model."""
    mean = model.predict(X_test)
    return {
        "RMSE [pixels]": np.sqrt(np.mean((mean - y_test) ** 2)),
        "NLL": mixture_nll(y_test, model.predict_members(X_test)),
        "AUSE": ause(y_test, mean, model.predict_uncertainty(X_test).total),
        "90 % coverage": interval_coverage(y_test, model.predict_interval(X_test, 0.9)),
        "parameters": n_parameters(model),
        "operations": flops(model, X_test),
    }


rows = {name: row(model) for name, model in models.items()}
columns = next(iter(rows.values()))
print(f"{'':24}" + "".join(f"{name:>17}" for name in columns))
for name, numbers in rows.items():
    cells = (
        f"{value:,}" if isinstance(value, int) else f"{value:.3g}" for value in numbers.values()
    )
    print(f"{name:24}" + "".join(f"{cell:>17}" for cell in cells))

parts = [model.predict_uncertainty(X_test).epistemic for model in models.values()]
fidelity = epistemic_fidelity(*parts)
print(
    f"\nEpistemic variance, student against teacher: rank correlation "
    f"{fidelity.rank_correlation:.2f}, median ratio {fidelity.median_ratio:.2f}"
)

# %%
# Figure
# ------
#
# Top: predictions of teacher and student with aleatoric and total bands, as a function of the mean
# radius; all other features are at their medians. Where there are many images, the epistemic part
# is small, and the two bands nearly coincide. It grows where there are few, and beyond the data.
# Bottom: the epistemic part alone, and the error that remains when the most uncertain images are
# rejected. skdistill warns of values outside the range of training; here they are intended.

warnings.simplefilter("ignore", SchemaWarning)

figure, axes = plt.subplots(2, 2, figsize=(8, 6.8), layout="constrained")
axes[0, 1].sharey(axes[0, 0])
low, high = X_train["mean radius"].min(), X_train["mean radius"].max()
grid = X_train.median().to_frame().T.loc[np.zeros(200, dtype=int)]
grid["mean radius"] = np.linspace(low - 0.3 * (high - low), high + 0.3 * (high - low), 200)
looks = {"Teacher": ("-", "#0072B2"), "Student": ("--", "#D55E00")}
for ax, (name, (style, color)), model in zip(axes[0], looks.items(), models.values(), strict=True):
    UncertaintyBandDisplay.from_estimator(
        model, X_train, y_train, feature="mean radius", extend=0.3, ax=ax, name="prediction"
    )
    ax.get_legend().remove()
    ax.set(title=name, xlabel="mean radius [pixels]", ylabel="largest area [pixels]")
    epistemic = model.predict_uncertainty(grid).std().epistemic
    axes[1, 0].plot(grid["mean radius"], epistemic, style, color=color, label=name)
    errors = (model.predict(X_test) - y_test) ** 2
    curve = risk_coverage_curve(errors, model.predict_uncertainty(X_test).total)
    axes[1, 1].plot(*curve, style, color=color, label=name)
axes[1, 1].plot(*risk_coverage_curve(errors, errors), ":", color="0.3", label="best order")
axes[1, 1].legend()
axes[1, 0].axvspan(low, high, color="0.93", zorder=0, label="data")
axes[1, 0].set(
    title="Epistemic uncertainty",
    xlabel="mean radius [pixels]",
    ylabel="standard deviation [pixels]",
)
axes[1, 0].legend()
axes[1, 1].set(
    title="Ranking of errors by uncertainty",
    xlabel="share of images kept, most certain first",
    ylabel="mean squared error of these",
)
band = axes[0, 0].get_legend_handles_labels()
figure.legend(*band, loc="outside upper center", ncols=4, fontsize="small")
plt.show()
