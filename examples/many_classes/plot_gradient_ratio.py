"""
Gradients of Dirichlet losses
=============================

The gradient of a loss with respect to a network's outputs shows what the network learns first. Here
one class has nearly all the probability, and the figure compares its gradient with that of all
other classes together. For cross-entropy the two are equal, whatever the number of classes. With
the likelihood of a Dirichlet (NLL) or the forward Kullback-Leibler divergence, the improbable
classes dominate at the start of training, and more so with more classes. With the reverse
divergence they do not; in `DistributionDistiller` it is ``loss="reverse_kl"``. Near the end of
training the reverse divergence and the likelihood have nearly the same ratio, unless one is added
to all concentrations. The default loss, ``"moments"``, learns the mean by its cross-entropy.

The figure combines the first and the third figure of Ryabinin, Malinin & Gales (2021).
"""

# %%
# Gradient ratio
# --------------
#
# The target gives the first class a probability of all but 1e-4. Its Dirichlet has a precision of a
# hundred for each class. One network is at the start of training: all its outputs are zero. The
# other is near the end: it gives the other classes five times their probability, at a precision of
# ninety.

import matplotlib.pyplot as plt
import numpy as np
import torch

from skdistill import losses

n_classes_max = 10_000  # largest number of classes


def sparse(epsilon, n_classes):
    """Probabilities of one sample: the first class has all but epsilon."""
    probs = torch.full((1, n_classes), epsilon / (n_classes - 1), dtype=torch.float64)
    probs[0, 0] = 1 - epsilon
    return probs


def ratio(loss, outputs, *target):
    """The first class's gradient over the second's, for each class (rho, Eq 12)."""
    outputs = outputs.clone().requires_grad_()
    loss(outputs, *target).sum().backward()
    first, second = outputs.grad[0, :2].abs().tolist()
    return first / second / outputs.shape[1]


def ratios(outputs, n_classes):
    """rho of each loss for a network with these outputs."""
    target = sparse(1e-4, n_classes)
    beta = 100 * n_classes * target
    return {
        "cross-entropy": ratio(losses.cross_entropy, outputs, target),
        "NLL": ratio(losses.dirichlet_nll, outputs, target.log(), 0.0),
        "forward KL": ratio(losses.dirichlet_forward_kl, outputs, beta, 0.0),
        "reverse KL": ratio(losses.dirichlet_reverse_kl, outputs, beta, 0.0),
        "reverse KL, with the one": ratio(losses.dirichlet_reverse_kl, outputs, beta + 1, 1.0),
    }


states = {
    "at the beginning": lambda n_classes: torch.zeros(1, n_classes, dtype=torch.float64),
    "near the end": lambda n_classes: (90 * n_classes * sparse(5e-4, n_classes)).log(),
}

# %%
# Results
# -------

sizes = np.geomspace(10, n_classes_max, 13).astype(int)
found = {
    state: [ratios(outputs(n_classes), n_classes) for n_classes in sizes]
    for state, outputs in states.items()
}

shown = [0, len(sizes) // 2, len(sizes) - 1]
for state, rows in found.items():
    print(f"{state:32}" + "".join(f"{sizes[i]:>10,} classes" for i in shown))
    for name in rows[0]:
        print(f"{name:32}" + "".join(f"{rows[i][name]:18.2g}" for i in shown))
    print()

# %%
# Figure
# ------
#
# Above the dotted line the probable class dominates the gradient. Near the end of training the
# likelihood and the reverse divergence without the one have nearly the same ratio.

looks = {
    "cross-entropy": ("o-", "black"),
    "NLL": ("s-", "#E69F00"),
    "forward KL": ("^--", "#56B4E9"),
    "reverse KL": ("D-", "#0072B2"),
    "reverse KL, with the one": ("v--", "#CC79A7"),
}
figure, axes = plt.subplots(1, 2, figsize=(8, 4.6), layout="constrained", sharey=True)
for ax, (state, rows) in zip(axes, found.items(), strict=True):
    for name, (style, color) in looks.items():
        ax.loglog(sizes, [row[name] for row in rows], style, color=color, markersize=4, label=name)
    ax.axhline(1, color="0.5", linestyle=":")
    ax.set(title=f"A network {state}", xlabel="number of classes")
axes[0].set_ylabel(r"gradient ratio $\rho$")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
plt.show()
