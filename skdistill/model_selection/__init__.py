# SPDX-License-Identifier: BSD-3-Clause
"""Costs of a student, scores away from the training samples, and checks of the epistemic part.

Random folds measure performance on samples like those of training; :func:`unseen_scores` scores the
prediction and the uncertainty for others, such as a
:class:`~sklearn.model_selection.PredefinedSplit` holds out. :func:`disagreement_of_halves` and
:func:`uncertainty_curve` tell whether the epistemic part is what more samples would remove. A
scorer of a cost, to be given as ``scoring=``, is a function of ``(estimator, X, y)`` that returns
the cost's negative.
"""

from ._costs import flops, latency, n_parameters
from ._epistemic import disagreement_of_halves, uncertainty_curve
from ._unseen import unseen_scores

__all__ = [
    "disagreement_of_halves",
    "flops",
    "latency",
    "n_parameters",
    "uncertainty_curve",
    "unseen_scores",
]
