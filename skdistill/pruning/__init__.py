# SPDX-License-Identifier: BSD-3-Clause
"""Structured pruning: group lasso during training, then removal of units and filters.

The weights that lead to a unit, or a convolution's filter, are one group of the penalty
:math:`R(\\phi) = \\sum_k \\sqrt{n_k c_k} \\lVert \\phi_{G_k} \\rVert_2`, which makes whole groups
zero; n_k is the number of weights in group k, and c_k what the unit costs, see
:class:`ProximalStep` (GPED [1]_, section 3.3, has no root). A unit without inputs
is a constant, so that the network does the same without it.
Units of the output layer are no groups, and biases belong to none.

References
----------
.. [1] Vadera, Jalaian, Marlin (2020), "Generalized Bayesian Posterior Expectation Distillation for
   Deep Neural Networks", section 3.3 and Appendix A.2.
"""

from ._group_lasso import GroupLasso, ProximalStep, shrink
from ._removal import narrow as narrow
from ._removal import prune, widths
from ._removal import unit_norms as unit_norms

__all__ = ["GroupLasso", "ProximalStep", "prune", "shrink", "widths"]
