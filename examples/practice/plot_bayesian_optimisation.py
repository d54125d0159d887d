"""
Bayesian optimisation with BoTorch
==================================

A student whose heads disagree where there are no data is a surrogate model for BoTorch. The
objective is the yield of a synthetic reaction, and each experiment is expensive. After ten
experiments that BoTorch proposes, the best yield is on average higher than after ten random ones.
Install BoTorch with ``pip install skdistill[botorch]``.
"""

# %%
# Reaction
# --------
#
# Its yield is an unknown function of temperature and acidity.

import warnings

import matplotlib.pyplot as plt
import numpy as np
import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.optim import optimize_acqf
from sklearn.exceptions import ConvergenceWarning

from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
from skdistill.integrations.botorch import MembersModel
from skdistill.samplers import DeepEnsemble

n_members = 10  # networks of the teacher
max_epochs = 200  # epochs of each model
n_searches = 4  # each from other first experiments

low, high = np.array([20.0, 3.0]), np.array([100.0, 10.0])
bounds = torch.from_numpy(np.stack([low, high]))
n_rounds = 5
n_first, n_a_round = 8, 2


def yield_of(settings):
    temperature, acidity = settings.T
    ridge = 6.2 + 0.03 * (temperature - 72)
    return 90 * np.exp(-(((temperature - 72) / 30) ** 2) - ((acidity - ridge) / 2) ** 2)


def at_random(n_settings, seed):
    return low + (high - low) * np.random.default_rng(seed).random((n_settings, 2))


# %%
# Search
# ------
#
# Two experiments run in parallel in each round. The student is fitted to the measured yields, and
# `MembersModel` makes it a BoTorch model. The acquisition function is the log expected improvement
# under its epistemic uncertainty; its gradients pass through the networks.


def propose(settings, measured, seed):
    teacher = BayesianEnsembleRegressor(
        n_members,
        # There are no samples to spare, and no noise to calibrate.
        inference=DeepEnsemble(bootstrap=True, calibrate=None),
        prior_scale=10.0,
        max_epochs=max_epochs,
        random_state=seed,
    )
    student = HydraPlusRegressor(teacher, max_epochs=max_epochs, random_state=seed)
    student.fit(settings, measured)
    model = MembersModel(student)
    acquisition = qLogExpectedImprovement(model, best_f=float(measured.max()))
    options = {"num_restarts": 3, "raw_samples": 64, "options": {"maxiter": 30}}
    found, _ = optimize_acqf(acquisition, bounds, q=n_a_round, **options)
    return found.numpy()


warnings.simplefilter("ignore", ConvergenceWarning)  # of students of eight samples
best, searches = [], []
for seed in range(n_searches):
    torch.manual_seed(seed)  # BoTorch draws from the global generator
    settings = at_random(n_first, seed)
    for round_ in range(n_rounds):
        settings = np.vstack([settings, propose(settings, yield_of(settings), round_)])
    best.append(np.maximum.accumulate(yield_of(settings)))
    searches.append(settings)

# %%
# Baseline: as many random experiments, a thousand times.

n_all = n_first + n_rounds * n_a_round
random = [np.maximum.accumulate(yield_of(at_random(n_all, seed))) for seed in range(1000)]
best, random = np.array(best), np.array(random)
print(f"best yield after {n_all} experiments, mean of {n_searches} searches:")
print(f"proposed: {best[:, -1].mean():.0f} %, at random: {random[:, -1].mean():.0f} %")
print(f"worst search: {best[:, -1].min():.0f} %; maximum: 90 %")

# %%
# Figure
# ------
#
# Left: the second search. Proposals are where the yield may be high, and in unexplored corners.
# Right: the best yield so far of all searches.

figure, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3.8), layout="constrained")
grid = np.stack(np.meshgrid(*np.linspace(low, high, 80).T), axis=-1)
field = yield_of(grid.reshape(-1, 2)).reshape(80, 80)
contours = left.contour(grid[..., 0], grid[..., 1], field, levels=6, cmap="Greys", vmin=-40)
left.clabel(contours, fmt="%.0f %%", fontsize="x-small")
shown = searches[1]
points = {"clip_on": False, "zorder": 3}  # some proposals are on the edge
left.scatter(*shown[:n_first].T, marker="s", color="#E69F00", label="first, at random", **points)
left.scatter(*shown[n_first:].T, marker="o", color="#0072B2", label="proposed", **points)
left.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)
left.set(xlabel="temperature [°C]", ylabel="pH", title="One search")

counts = np.arange(n_first, n_all + 1)
for curve in best:
    right.plot(counts, curve[n_first - 1 :], color="#0072B2", alpha=0.3, linewidth=1)
right.plot(counts, best[:, n_first - 1 :].mean(0), "o-", color="#0072B2", label="proposed, mean")
middle = random[:, n_first - 1 :]
right.plot(counts, middle.mean(0), "s--", color="#D55E00", label="at random, mean")
right.axhline(90, color="0.5", linestyle=":", label="maximum")
right.legend(fontsize="small", loc="lower right")
right.set(xlabel="experiments", ylabel="best yield so far [%]", title="All searches")
plt.show()
