# SPDX-License-Identifier: BSD-3-Clause
"""Costs of a student, splitters that leave regions out, and checks of the epistemic part.

Random folds measure performance on samples like those of training; :class:`GapSplit` and
:class:`TailSplit` hold out-of-distribution samples out, for which :func:`unseen_scores` scores the
prediction and the uncertainty. :func:`disagreement_of_halves` and :func:`uncertainty_curve` tell
whether the epistemic part is what more samples would remove. A scorer of a cost, to be given as
``scoring=``, is a function of ``(estimator, X, y)`` that returns the cost's negative.
"""

from ._costs import flops, latency, n_parameters
from ._epistemic import disagreement_of_halves, uncertainty_curve
from ._gaps_and_tails import GapSplit, TailSplit
from ._unseen import unseen_scores

__all__ = [
    "GapSplit",
    "TailSplit",
    "disagreement_of_halves",
    "flops",
    "latency",
    "n_parameters",
    "uncertainty_curve",
    "unseen_scores",
]
