# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of several metrics predict from."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats


def predictions(n_targets=None, n_samples=30, n_members=4, n_classes=3, seed=0):
    """Predictions worth comparing; `std` comes in few levels, so that there are ties.

    Classes, losses and entropies have one value for each sample, whatever `n_targets`.
    """
    rng = np.random.default_rng(seed)
    shape = (n_samples,) if n_targets is None else (n_samples, n_targets)
    std = rng.choice([0.3, 0.7, 1.1, 2.0], size=shape)
    y_pred = rng.normal(size=shape)
    y_true = y_pred + std * rng.normal(size=shape)
    columns = y_pred.reshape(n_samples, -1)
    means = columns[:, None, :] + 0.5 * rng.normal(size=(n_samples, n_members, columns.shape[1]))
    variances = rng.gamma(2.0, size=means.shape)
    y_prob = rng.multinomial(10, np.full(n_classes, 1 / n_classes), size=n_samples) / 10
    labels = [rng.choice(n_classes, p=p) for p in y_prob]
    return {
        "y_true": y_true,
        "y_pred": y_pred,
        "std": std,
        "other_std": std * rng.gamma(5.0, 0.2, size=shape),
        "members": np.stack([means, variances], axis=-1),
        "interval": y_pred[..., None] + std[..., None] * np.array([-1.0, 1.5]),
        "quantiles": y_pred[..., None] + std[..., None] * stats.norm.ppf([0.1, 0.25, 0.5, 0.9]),
        "labels": np.array(labels, dtype=float),
        "y_prob": y_prob,
        "losses": rng.choice([0.0, 0.5, 2.0], size=n_samples),
        "entropy": rng.choice([0.1, 0.2, 0.5, 0.7, 1.0], size=n_samples),
    }


@pytest.fixture(scope="session")
def make_predictions():
    """The function above, a fixture since test files cannot import from one another."""
    return predictions
