# SPDX-License-Identifier: BSD-3-Clause
"""Models whose predictions are known, and what the tests read off the pictures.

Fixtures, since test files cannot import from one another.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from skdistill.distributions import Uncertainty

pytest.importorskip("matplotlib")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


class SineRegressor(RegressorMixin, BaseEstimator):
    """sin(x0) + mean of the other columns; noise grows with |x0|, ignorance with x0 ** 2."""

    def __init__(self, n_targets=None, tells_parts=True):
        self.n_targets = n_targets
        self.tells_parts = tells_parts

    def fit(self, X, y):
        self.n_features_in_ = np.shape(X)[1]
        return self

    def _shaped(self, values):
        if self.n_targets is None:
            return values
        return values[:, None] * np.arange(1.0, self.n_targets + 1)

    def predict(self, X):
        self.seen_ = X
        X = np.asarray(X, dtype=float)
        return self._shaped(np.sin(X[:, 0]) + X[:, 1:].mean(axis=1))

    def predict_uncertainty(self, X):
        X = np.asarray(X, dtype=float)
        aleatoric = self._shaped(0.1 + 0.1 * np.abs(X[:, 0]))
        epistemic = self._shaped(0.05 * X[:, 0] ** 2)
        parts = (aleatoric, epistemic) if self.tells_parts else (None, None)
        return Uncertainty(aleatoric + epistemic, *parts, measure="variance")

    def predict_quantiles(self, X, quantiles):
        std = np.sqrt(self.predict_uncertainty(X).total)
        return self.predict(X)[..., None] + std[..., None] * stats.norm.ppf(quantiles)


class SectorClassifier(ClassifierMixin, BaseEstimator):
    """Three members that put the classes in sectors around the origin, each turned a little."""

    def __init__(self, labels=("blue", "green", "red"), tells_parts=True, scale=1.0):
        self.labels = labels
        self.tells_parts = tells_parts
        self.scale = scale

    def fit(self, X, y):
        self.classes_ = np.sort(self.labels)
        return self

    def predict_members(self, X):
        turns = np.array([-0.3, 0.0, 0.3])[:, None]
        angles = turns + 2 * np.pi * np.arange(len(self.classes_)) / len(self.classes_)
        directions = np.stack([np.cos(angles), np.sin(angles)])  # (2, members, classes)
        columns = np.asarray(X, dtype=float)[:, :2]
        return softmax(self.scale * np.einsum("nd,dsk->nsk", columns, directions), axis=-1)

    def predict_proba(self, X):
        return self.predict_members(X).mean(axis=1)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def predict_uncertainty(self, X):
        total = stats.entropy(self.predict_proba(X), axis=-1)
        aleatoric = stats.entropy(self.predict_members(X), axis=-1).mean(axis=1)
        parts = (aleatoric, total - aleatoric) if self.tells_parts else (None, None)
        return Uncertainty(total, *parts, measure="entropy")


def _make_data(n_targets=None, n_samples=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, size=(n_samples, 3))
    model = SineRegressor(n_targets).fit(X, None)
    noise = np.sqrt(model.predict_uncertainty(X).total)
    return model, X, model.predict(X) + noise * rng.normal(size=noise.shape)


def _make_classes(n_samples=80, seed=0, **params):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_samples, 2)) * 2
    model = SectorClassifier(**params).fit(X, None)
    return model, X, np.array([rng.choice(model.classes_, p=p) for p in model.predict_proba(X)])


def _edges(band):
    vertices = band.get_paths()[0].vertices
    n_points = (len(vertices) - 3) // 2
    return vertices[1 : n_points + 1, 1], vertices[n_points + 2 : -1, 1][::-1]


@pytest.fixture(scope="session")
def sine_regressor():
    """The regressor's class."""
    return SineRegressor


@pytest.fixture(scope="session")
def make_data():
    """Returns a SineRegressor, samples of three columns, and targets from its distribution."""
    return _make_data


@pytest.fixture(scope="session")
def make_classes():
    """Returns a SectorClassifier, samples of two columns, and labels from its distribution."""
    return _make_classes


@pytest.fixture(scope="session")
def edges():
    """Lower and upper edge of a fill_between, each of shape (n_points,)."""
    return _edges


@pytest.fixture(scope="session")
def legend_texts():
    """Texts in the legend of a display with one axes."""
    return lambda display: [text.get_text() for text in display.ax_.get_legend().get_texts()]
