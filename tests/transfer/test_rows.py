# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.model_selection import GridSearchCV, cross_val_score

from skdistill.transfer import TransferSet


class Seen(RegressorMixin, BaseEstimator):
    """Remembers what transfer samples fit was given."""

    given: list = []

    def __init__(self, alpha=0):
        self.alpha = alpha

    def fit(self, X, y, X_transfer=None):
        Seen.given.append((len(X), X_transfer))
        self.fitted_ = True
        return self

    def predict(self, X):
        return np.zeros(len(X))


@pytest.fixture(autouse=True)
def nothing_seen():
    Seen.given = []


X, y = np.arange(20.0).reshape(10, 2), np.arange(10.0)


def test_folds_take_the_rows_whole():
    rows = TransferSet(X)
    GridSearchCV(Seen(), {"alpha": [0, 1]}, cv=5).fit(X, y, X_transfer=rows)
    cross_val_score(Seen(), X, y, cv=5, params={"X_transfer": rows})
    assert [n for n, _ in Seen.given] == 10 * [8] + [10] + 5 * [8]
    assert all(given is rows for _, given in Seen.given)


def test_bare_rows_as_many_as_X_are_cut():
    # The reason why TransferSet exists.
    GridSearchCV(Seen(), {}, cv=5).fit(X, y, X_transfer=X)
    assert {len(given) for _, given in Seen.given} == {8, 10}


@pytest.mark.parametrize(
    "way", [copy.copy, copy.deepcopy, lambda rows: pickle.loads(pickle.dumps(rows))]
)
def test_copies(way):
    np.testing.assert_array_equal(way(TransferSet(X)).rows, X)
