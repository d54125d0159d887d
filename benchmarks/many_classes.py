# SPDX-License-Identifier: BSD-3-Clause
"""Forty thousand classes: what a step of distribution distillation costs before the network.

Ten members' logits for a batch of 256 rows come in, and the gradient of the loss in the student's
outputs goes out. Making the target of the members is part of the step.

reverse KL     dirichlet_reverse_kl of the outputs and proxy_concentrations(*proxy_target(members))
cross-entropy  torch's, with the members' mean probabilities as soft targets, which are summed one
               member after the other: plain ensemble distillation, total uncertainty only
naive          Eqs 14 and 17 of Ryabinin et al. (2021) as they stand, in torch and float32, with the
               log probabilities of all members at once, and the gradient by autograd. With float64,
               which differences of such logarithms need, it takes twice the memory

On one thread. Times are CPU seconds, contenders take turns, ratios are medians over rounds. Memory
is the peak growth during a step, the gradient included, in a fresh process.

The gradient ratio rho (Eq 12 of the paper) compares the gradient in the output of the class that
has all probability but 1e-4 with that of one of the others, over the number of classes: a loss
whose rho falls with that number learns improbable classes first.

    python benchmarks/many_classes.py
    python benchmarks/many_classes.py --classes 1000 --rows 1000
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from _common import (
    asked,
    comparison,
    interleaved,
    one_thread,
    peak_growth,
    print_comparisons,
    print_table,
    save,
)
from torch import Tensor
from torch.nn import functional

from skdistill import losses

N_MEMBERS = 10
OURS, SOFT, NAIVE = "reverse KL", "cross-entropy", "naive"
MEMORY_AT_MOST = 0.15  # of the naive loss's

EPSILON = 1e-4  # what a sparse target gives to all classes but the first


# The step -----------------------------------------------------------------------------------------


def reverse_kl(outputs: Tensor, members: Tensor) -> Tensor:
    target = losses.proxy_concentrations(*losses.proxy_target(members))
    return losses.dirichlet_reverse_kl(outputs, target)


def cross_entropy(outputs: Tensor, members: Tensor) -> Tensor:
    mean = torch.zeros_like(members[0])
    for member in members:
        mean += member.softmax(-1)
    return functional.cross_entropy(outputs, mean.div_(len(members)), reduction="none")


def naive(outputs: Tensor, members: Tensor) -> Tensor:
    log_probs = members.log_softmax(-1)
    mean, mean_log = log_probs.exp().mean(0), log_probs.mean(0)
    divergence = (mean * (mean.log() - mean_log)).sum(-1, keepdim=True)
    beta = mean * (mean.shape[-1] - 1) / (2 * divergence) + 1  # Eq 17
    alpha = outputs.exp() + 1
    alpha_0, beta_0 = alpha.sum(-1), beta.sum(-1)
    expected_log = alpha.digamma() - alpha_0.digamma().unsqueeze(-1)
    return (
        (beta.lgamma() - alpha.lgamma() + (alpha - beta) * expected_log).sum(-1)
        + alpha_0.lgamma()
        - beta_0.lgamma()
    )  # Eq 14


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    OURS: reverse_kl,
    SOFT: cross_entropy,
    NAIVE: naive,
}


def logits(n_members: int, n_rows: int, n_classes: int) -> tuple[Tensor, Tensor]:
    """Outputs of a student, (n, K), and logits of members that agree as those of real nets do."""
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(n_rows, n_classes, generator=generator)
    members = torch.randn(n_members, n_rows, n_classes, generator=generator)
    return outputs, members.add_(outputs, alpha=2.0)


def step(name: str, outputs: Tensor, members: Tensor) -> Tensor:
    """Gradient of a loss's mean over the rows."""
    outputs = outputs.detach().requires_grad_()
    LOSSES[name](outputs, members).mean().backward()
    assert outputs.grad is not None
    return outputs.grad


# Time and memory ----------------------------------------------------------------------------------


def times(n_rows: int, n_classes: int, n_rounds: int) -> list[dict[str, Any]]:
    """The loss beside cross-entropy and beside its naive form."""
    outputs, members = logits(N_MEMBERS, n_rows, n_classes)
    seconds = interleaved(
        {name: partial(step, name, outputs, members) for name in LOSSES}, n_rounds
    )
    compare = partial(comparison, f"{n_rows} x {n_classes}", seconds, ours=OURS)
    return [compare(SOFT, at_most=1.6), compare(NAIVE, at_least=2)]


def prepared(name: str, n_rows: int, n_classes: int) -> Callable[[], Tensor]:
    """A step in a fresh process, what torch sets up at the first one set up."""
    one_thread()
    step(name, *logits(2, 2, 10))
    return partial(step, name, *logits(N_MEMBERS, n_rows, n_classes))


def memory(n_rows: int, n_classes: int) -> dict[str, Any]:
    """Peak memory that a step of each adds, in MiB, and ours as a share of the naive one's."""
    peaks = {name: peak_growth(prepared, name, n_rows, n_classes) for name in LOSSES}
    share = peaks[OURS] / peaks[NAIVE]
    return {
        "peak_mib": peaks,
        "share_of_naive": share,
        "target": MEMORY_AT_MOST,
        "reached": share <= MEMORY_AT_MOST,
    }


# The gradient ratio -------------------------------------------------------------------------------


def gradient_ratios(n_classes: int) -> dict[str, float]:
    """rho of each loss at initialisation, where all outputs are 0, for a sparse target (Fig 1)."""
    target = torch.full((1, n_classes), EPSILON / (n_classes - 1), dtype=torch.float64)
    target[0, 0] = 1 - EPSILON
    beta, outputs = 100 * n_classes * target, torch.zeros_like(target)
    steps = {
        "cross-entropy": losses.cross_entropy.and_gradient(outputs, target),
        "NLL": losses.dirichlet_nll.and_gradient(outputs, target.log(), offset=0.0),
        "forward KL": losses.dirichlet_forward_kl.and_gradient(outputs, beta, offset=0.0),
        "reverse KL": losses.dirichlet_reverse_kl.and_gradient(outputs, beta, offset=0.0),
    }
    return {
        name: (gradient[0, 0] / gradient[0, 1]).abs().item() / n_classes  # Eq 12
        for name, (_, gradient) in steps.items()
    }


def main() -> None:
    options = asked(__doc__, classes=40_000, rows=256, rounds=7)  # rows of the batch
    size = (8, 1000) if options.quick else (options.rows, options.classes)
    results = times(*size, n_rounds=1 if options.quick else options.rounds)
    peaks = memory(*size)
    ratios = {n_classes: gradient_ratios(n_classes) for n_classes in (10, 100, 1000)}

    print(f"Rows x classes, {N_MEMBERS} members, forward and backward, target included")
    print_comparisons(results)
    print()
    print_table(["peak memory of", "MiB"], list(peaks["peak_mib"].items()))
    print(
        f"{OURS} takes {peaks['share_of_naive']:.3f} of what the naive loss takes, "
        f"target <= {MEMORY_AT_MOST:g}: {'reached' if peaks['reached'] else 'NOT reached'}"
    )
    print("\nGradient ratio rho at initialisation")
    print_table(["classes", *ratios[10]], [[n, *row.values()] for n, row in ratios.items()])
    save(options, step=results, memory=peaks, gradient_ratio=ratios)


if __name__ == "__main__":
    main()
