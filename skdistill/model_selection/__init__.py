# SPDX-License-Identifier: BSD-3-Clause
"""Costs of a student, the search for the cheapest one within a tolerance, and cross-validation.

Costs are better when smaller; their scorers return the negative, as scikit-learn's ``neg_`` scorers
do. Random folds measure performance on samples like those of training; :class:`GapSplit` and
:class:`TailSplit` hold out-of-distribution samples out, for which :func:`score_unseen` scores the
prediction and the uncertainty. :func:`disagreement_of_halves` and :func:`uncertainty_curve` tell
whether the epistemic part is what more samples would remove.
"""

from ._epistemic import disagreement_of_halves, uncertainty_curve
from ._gaps_and_tails import GapSplit, TailSplit
from ._search import (
    CheapestStudentSearchCV,
    CheapestWithin,
    flops,
    latency,
    make_cost_scorer,
    n_parameters,
    pareto_front,
)
from ._search import costs_and_scores as costs_and_scores
from ._search import nondominated as nondominated
from ._unseen import cross_val_predict_uncertainty, score_unseen, unseen_scores

__all__ = [
    "cross_val_predict_uncertainty",
    "disagreement_of_halves",
    "flops",
    "latency",
    "make_cost_scorer",
    "n_parameters",
    "pareto_front",
    "score_unseen",
    "uncertainty_curve",
    "unseen_scores",
    "CheapestStudentSearchCV",
    "CheapestWithin",
    "GapSplit",
    "TailSplit",
]
