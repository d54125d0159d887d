"""
Proxy Dirichlet for a thousand classes
======================================

Eight networks predict probabilities of a thousand classes for each of 500 samples. The logits are
synthetic, with a spread similar to that of networks on ImageNet. The proxy is the Dirichlet that a
student with ``loss="reverse_kl"`` learns instead of the members: one concentration for each class.
It ranks the samples by epistemic uncertainty as the ensemble does: where the networks disagree, the
proxy is wide.

In training, one is added to each concentration; without it such a student is hard to train (see
:ref:`sphx_glr_auto_examples_many_classes_plot_gradient_ratio.py`). Predictions omit it: it adds a
thousand in all, as much as a typical precision, and would make the networks look uncertain nearly
everywhere.
"""

# %%
# Logits
# ------

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.ticker import NullFormatter
from scipy.stats import spearmanr

from skdistill.distributions import Dirichlet, EmpiricalCategorical
from skdistill.losses import proxy_concentrations, proxy_target

n_members = 8  # networks to use, eight at most


def made_up(n_members, n_rows=500, n_classes=1000):
    """Logits of networks that agree more about some samples than about others."""
    rng = np.random.default_rng(0)
    clear, spread = rng.uniform(7, 13, n_rows), rng.uniform(1, 2.4, (1, n_rows, 1))
    common = rng.standard_normal((n_rows, n_classes))
    common[np.arange(n_rows), rng.integers(n_classes, size=n_rows)] += clear
    return common + spread * rng.standard_normal((n_members, n_rows, n_classes))


logits = made_up(n_members)
members = torch.from_numpy(logits).log_softmax(-1)  # (S, n, K)

# %%
# Uncertainty measures
# --------------------
#
# The total uncertainty is the entropy of the mean. Three measures quantify the disagreement of the
# members: the mutual information, which is the epistemic part of `predict_uncertainty`; the reverse
# mutual information, which the paper of the proxy uses (Ryabinin, Malinin & Gales, 2021); and their
# sum, the expected divergence between two members.

ensemble = EmpiricalCategorical(members)
mean, precision = proxy_target(members)
proxies = {
    "with the one": Dirichlet(proxy_concentrations(mean, precision)),
    "without the one": Dirichlet(proxy_concentrations(mean, precision, offset=0.0)),
}


def measures_of_ensemble():
    """What the members say."""
    total, _, information = ensemble.uncertainty()
    reverse = (mean * (mean.log() - members.mean(0))).sum(-1)  # mean KL(mean || member)
    return total, information, reverse, information + reverse


def measures_of_dirichlet(dirichlet):
    """The same in closed form."""
    total, _, information = dirichlet.uncertainty()
    reverse, pairwise = dirichlet.reverse_mutual_information, dirichlet.expected_pairwise_kl
    return total, information, reverse, pairwise


titles = ["total", "mutual information", "reverse mutual information", "pairwise divergence"]
theirs = measures_of_ensemble()
ours = {name: measures_of_dirichlet(proxy) for name, proxy in proxies.items()}

# %%
# Results
# -------
#
# Rank correlation of proxy and ensemble over samples, and their mean largest probability.

print(f"\n{'rank correlation':18}" + "".join(f"{title:>28}" for title in titles))
for name, measures in ours.items():
    ranks = (spearmanr(a, b)[0] for a, b in zip(theirs, measures, strict=True))
    print(f"{name:18}" + "".join(f"{rank:28.3f}" for rank in ranks))
print(f"\nLargest probability, on average: ensemble {mean.amax(-1).mean():.2f}", end="")
for name, proxy in proxies.items():
    print(f", proxy {name} {proxy.mean.amax(-1).mean():.2f}", end="")
print(f"\nPrecision without the one, median: {precision.median():.0f}")

# %%
# Figure
# ------
#
# Each point is a sample. On the grey line proxy and ensemble agree.

figure, axes = plt.subplots(2, 2, figsize=(8, 7), layout="constrained")
looks = {"with the one": ("x", "#E69F00"), "without the one": (".", "#0072B2")}
for i, (ax, title) in enumerate(zip(axes.flat, titles, strict=True)):
    for name, (marker, color) in looks.items():
        ax.plot(theirs[i], ours[name][i], marker, color=color, ms=4, alpha=0.5, label=name)
    low, high = theirs[i].min().item(), theirs[i].max().item()
    ax.plot([low, high], [low, high], color="0.6", zorder=0)
    ax.set(title=title.capitalize(), xlabel="ensemble [nats]", xscale="log", yscale="log")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_formatter(NullFormatter())
for ax in axes[:, 0]:
    ax.set_ylabel("proxy [nats]")
axes[0, 0].legend(title="proxy")
plt.show()
