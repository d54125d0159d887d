# SPDX-License-Identifier: BSD-3-Clause
"""Data sets of the papers: synthetic data, tables for regression and classification, and images.

They are those of Hydra+ [1]_, B-DISTIL [2]_ and GPED [3]_, and further ones.
Real data sets are read from the folder that the environment variable ``SKDISTILL_DATA`` names, or
else downloaded once, with :func:`sklearn.datasets.fetch_openml`, and cached in `data_home`.

References
----------
.. [1] M. Ferianc, M. Rodrigues. "Simple Regularisation for Uncertainty-Aware Knowledge
   Distillation" (Hydra+), 2022.
.. [2] "Progressive Knowledge Distillation: Building Ensembles for Efficient Inference" (B-DISTIL).
.. [3] M. Vadera, B. Jalaian, B. Marlin. "Generalized Bayesian Posterior Expectation Distillation
   for Deep Neural Networks" (GPED), UAI 2020.
"""

from ._changes import mask_squares, move, split_labelled
from ._fetching import IMAGE_SETS as IMAGE_SETS
from ._fetching import TABULAR_CLASSIFICATION_SETS as TABULAR_CLASSIFICATION_SETS
from ._fetching import UCI_REGRESSION_SETS as UCI_REGRESSION_SETS
from ._fetching import draw_splits as draw_splits
from ._fetching import fetch_images, fetch_tabular_classification, fetch_uci_regression
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
    "fetch_images",
    "fetch_tabular_classification",
    "fetch_uci_regression",
    "make_cube",
    "make_ellipsoid",
    "make_hydra_regression",
    "make_spirals",
    "make_translation",
    "mask_squares",
    "move",
    "split_labelled",
]
