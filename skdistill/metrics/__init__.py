# SPDX-License-Identifier: BSD-3-Clause
"""Metrics of predictive distributions: scores, calibration, and fidelity to the teacher.

Every metric takes arrays and returns a float, curves return arrays, and
:func:`epistemic_calibration` returns a Bunch; only :func:`fidelity` compares estimators. Means over
samples are weighted by ``sample_weight``, so an integer weight is the same as repeating the sample.
With several targets the metric is computed for each, and averaged uniformly. Where samples are
ordered by their uncertainty, ties are averaged over all orders. A ValueError names an argument of
the wrong shape, or with values that it cannot have.

Scores are those of [1]_ and [3]_, calibration is that of [5]_, and fidelity to the teacher follows
[2]_ and [4]_. Those of class probabilities are :func:`sklearn.metrics.log_loss` and
:func:`sklearn.metrics.brier_score_loss`. A search takes any of them as a
function, ``scoring=lambda model, X, y: -crps(y, predict_members(model, X))``.

References
----------
.. [1] T. Gneiting, A. E. Raftery. "Strictly Proper Scoring Rules, Prediction, and Estimation".
   Journal of the American Statistical Association 102, 2007.
.. [2] J. Lindqvist, A. Olmin, F. Lindsten, L. Svensson. "A General Framework for Ensemble
   Distribution Distillation". MLSP 2020.
.. [3] B. Lakshminarayanan, A. Pritzel, C. Blundell. "Simple and Scalable Predictive Uncertainty
   Estimation using Deep Ensembles". NeurIPS 2017.
.. [4] M. P. Vadera, B. Jalaian, B. M. Marlin. "Generalized Bayesian Posterior Expectation
   Distillation for Deep Neural Networks". UAI 2020.
.. [5] V. Kuleshov, N. Fenner, S. Ermon. "Accurate Uncertainties for Deep Learning Using Calibrated
   Regression". ICML 2018.
"""

from ._classification import expected_calibration_error
from ._regression import (
    crps,
    gaussian_nll,
    interval_coverage,
    mixture_nll,
    regression_calibration_curve,
    regression_calibration_error,
)
from ._rejection import (
    aurc,
    ause,
    prediction_rejection_ratio,
    risk_coverage_curve,
)
from ._uncertainty import (
    epistemic_calibration,
    epistemic_fidelity,
    fidelity,
    ood_auroc,
    uncertainty_ndcg,
    uncertainty_total_variation,
)

__all__ = [
    "aurc",
    "ause",
    "crps",
    "epistemic_calibration",
    "epistemic_fidelity",
    "expected_calibration_error",
    "fidelity",
    "gaussian_nll",
    "interval_coverage",
    "mixture_nll",
    "ood_auroc",
    "prediction_rejection_ratio",
    "regression_calibration_curve",
    "regression_calibration_error",
    "risk_coverage_curve",
    "uncertainty_ndcg",
    "uncertainty_total_variation",
]
