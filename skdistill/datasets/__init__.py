# SPDX-License-Identifier: BSD-3-Clause
"""Synthetic data sets of the papers, and masked images.

They are those of Hydra+ [1]_, B-DISTIL [2]_ and GPED [3]_, and further ones. Real tables and images
are downloaded by :func:`sklearn.datasets.fetch_openml`, see :doc:`/user_guide/tables`.

References
----------
.. [1] M. Ferianc, M. Rodrigues. "Simple Regularisation for Uncertainty-Aware Knowledge
   Distillation" (Hydra+), 2022.
.. [2] "Progressive Knowledge Distillation: Building Ensembles for Efficient Inference" (B-DISTIL).
.. [3] M. Vadera, B. Jalaian, B. Marlin. "Generalized Bayesian Posterior Expectation Distillation
   for Deep Neural Networks" (GPED), UAI 2020.
"""

from ._changes import mask_squares
from ._synthetic import (
    TRANSLATION_TOKENS,
    make_cube,
    make_ellipsoid,
    make_hydra_regression,
    make_spirals,
    make_translation,
)

__all__ = [
    "TRANSLATION_TOKENS",
    "make_cube",
    "make_ellipsoid",
    "make_hydra_regression",
    "make_spirals",
    "make_translation",
    "mask_squares",
]
