# SPDX-License-Identifier: BSD-3-Clause
"""Data that the tests of teachers share."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_classification, make_regression


@pytest.fixture(scope="module")
def classes():
    """Samples of three classes, labelled by strings, with noise."""
    X, codes = make_classification(
        150, 5, n_informative=3, n_classes=3, flip_y=0.2, n_clusters_per_class=1, random_state=0
    )
    return X, np.array(["ash", "elm", "oak"])[codes]


@pytest.fixture(scope="module")
def numbers():
    return make_regression(120, 4, noise=20.0, random_state=0)
