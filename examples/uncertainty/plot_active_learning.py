"""
Which rows are worth a label?
=============================

Those about which more labels would help: where the epistemic part is large. The total uncertainty
is large where there is much noise, too, and a strategy that goes by it keeps asking about noise,
which no number of labels removes. Here half of the line is noisy and known, the other half is
quiet and has hardly been seen. Labels that are chosen by the epistemic part go there.
"""

# %%
# The problem
# -----------
#
# Left of zero the noise has a standard deviation of .5, right of it of .05.

import matplotlib.pyplot as plt
import numpy as np

from skdistill import BayesianEnsembleRegressor

n_members = 5  # networks of the ensemble
max_epochs = 300  # epochs of each fit
n_queries = 6  # times that labels are asked for
n_at_once = 5  # labels at a time


def truth(x):
    return np.sin(2 * x)


def label(x, rng):
    """Measure rows: noise depends on the side."""
    return truth(x) + np.where(x < 0, 0.5, 0.05) * rng.standard_normal(x.shape)


pool = np.linspace(-3, 3, 301)

# %%
# Both strategies
# ---------------
#
# Of the pool, the five most uncertain points are labelled at a time, at least .2 apart. The error
# is that of the mean against the truth, over the whole line.


def choose(uncertainty):
    """The most uncertain points of the pool that are not neighbours."""
    chosen = []
    for candidate in pool[np.argsort(-uncertainty)]:
        if all(abs(candidate - other) >= 0.2 for other in chosen):
            chosen.append(candidate)
        if len(chosen) == n_at_once:
            return np.array(chosen)
    raise ValueError("the pool has too few points that are .2 apart")


def run(part):
    """Label by a part of the uncertainty; return points and errors after each query."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-3, 0, 40), rng.uniform(0, 3, 3)])
    y, errors = label(x, rng), []
    for _ in range(n_queries):
        model = BayesianEnsembleRegressor(n_members, max_epochs=max_epochs, random_state=0)
        model.fit(x[:, np.newaxis], y)
        errors.append(np.sqrt(np.mean((model.predict(pool[:, np.newaxis]) - truth(pool)) ** 2)))
        chosen = choose(getattr(model.predict_uncertainty(pool[:, np.newaxis]), part))
        x, y = np.append(x, chosen), np.append(y, label(chosen, rng))
    return x[43:], errors


found = {part: run(part) for part in ("epistemic", "total")}
print(f"{'by':10}{'error, first':>14}{'last':>8}{'labels in the noisy half':>26}")
for part, (x, errors) in found.items():
    print(f"{part:10}{errors[0]:14.3f}{errors[-1]:8.3f}{np.mean(x < 0):26.0%}")

# %%
# The picture
# -----------

figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
looks = {"epistemic": ("o-", "#0072B2"), "total": ("s--", "#D55E00")}
bins = np.linspace(-3, 3, 13)
for shift, (part, (x, errors)) in zip((-0.1, 0.1), found.items(), strict=True):
    style, color = looks[part]
    counts, _ = np.histogram(x, bins)
    axes[0].bar((bins[1:] + bins[:-1]) / 2 + shift, counts, 0.2, color=color, label=f"by {part}")
    asked = n_at_once * np.arange(n_queries)
    axes[1].plot(asked, errors, style, color=color, label=f"by {part}")
axes[0].axvspan(-3, 0, color="0.93", zorder=0, label="noisy half")
axes[0].set(xlabel="x", ylabel="labels asked for", title="Where the labels go")
axes[1].set(xlabel="labels asked for", ylabel="RMSE to the truth", title="What they bring")
axes[1].set_ylim(bottom=0)
axes[0].legend(fontsize="small")
axes[1].legend()
plt.show()
