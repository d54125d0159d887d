# SPDX-License-Identifier: BSD-3-Clause
"""Inference methods of ensembles: deep ensembles, MC dropout and Markov chains.

Stochastic-gradient Markov chains draw the weights of networks from their posterior.

The target is exp(-U / temperature) with the potential U = -log posterior: N times the mean loss
less the log prior, where N is the sum of the sample weights. A training loop computes the gradient
of U / N, of the mean loss and the weight decay tau / (2 N) ||w||^2 of a prior N(0, 1/tau); the
updates multiply it by N.

Each sampler is a function that updates one tensor, a ``torch.optim.Optimizer`` around it, and the
settings that a user gives as ``inference=SGLD(step_size=...)``. R-hat and the effective sample size
tell whether chains have converged.
"""

from ._diagnostics import effective_sample_size
from ._diagnostics import r_hat_of_chains as r_hat_of_chains
from ._diagnostics import split_r_hat as split_r_hat
from ._settings import SGHMC, SGLD, DeepEnsemble, MCDropout
from ._settings import kept_iterations as kept_iterations
from ._updates import SGHMCOptimizer as SGHMCOptimizer
from ._updates import SGLDOptimizer as SGLDOptimizer
from ._updates import sghmc_step as sghmc_step
from ._updates import sgld_step as sgld_step

__all__ = ["SGLD", "SGHMC", "MCDropout", "DeepEnsemble", "effective_sample_size"]
