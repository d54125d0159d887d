# SPDX-License-Identifier: BSD-3-Clause
"""Libraries around scikit-learn, each used on our estimators as their users would.

What else is tested with other libraries: dask and ray as backends of joblib in
``tests/ensembles/test_jobs.py``, on their own tables in ``tests/test_guide.py``, ONNX in
``tests/export``, skops in ``tests/persistence/test_names.py``, and scikit-learn's callbacks in
``tests/_training/test_trainer.py``.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.metrics import recall_score
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    HydraPlusClassifier,
    HydraPlusRegressor,
    predict_frame,
    predict_uncertainty,
)

SMALL = {"max_epochs": 10, "lr": 0.02, "module__hidden_units": (16,), "random_state": 0}


def student(**params):
    settings = {**SMALL, **params}
    return HydraPlusRegressor(BayesianEnsembleRegressor(4, **settings), **settings)


def table(n_rows, seed):
    """Samples of which the first two columns matter; there is more noise where the first is > 0."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n_rows, 3))
    noise = 0.1 + 0.4 * (X[:, 0] > 0)
    return X, X[:, 0] - 2 * X[:, 1] ** 2 + noise * rng.normal(size=n_rows)


@pytest.fixture(scope="module")
def fitted():
    """A student, fitted to samples whose first column lies between -1 and 1."""
    return student(max_epochs=30).fit(*table(300, seed=0))


# --- MAPIE: conformal prediction ----------------------------------------------------------------


# --- SHAP: what an uncertainty comes from -------------------------------------------------------


@pytest.mark.slow
def test_shap_explains_epistemic_uncertainty(fitted):
    shap = pytest.importorskip("shap")
    background, far = table(20, seed=4)[0], table(4, seed=5)[0]
    far[:, 1] = 4.0  # off the data by this column

    def epistemic(X):
        return fitted.predict_uncertainty(X).epistemic

    values = shap.PermutationExplainer(epistemic, background)(far).values
    sums = epistemic(far) - epistemic(background).mean()
    np.testing.assert_allclose(values.sum(axis=1), sums, rtol=1e-4, atol=1e-8)  # efficiency
    assert (np.abs(values).argmax(axis=1) == 1).all()


# --- imbalanced-learn: samplers in its Pipeline -------------------------------------------------


def test_a_sampler_in_imbalanced_learns_pipeline_raises_the_recall_of_the_rare_class():
    over_sampling = pytest.importorskip("imblearn.over_sampling")
    from imblearn.pipeline import make_pipeline as make_sampling_pipeline

    X, y = make_classification(600, 4, weights=[0.95], class_sep=0.7, random_state=0)
    train, test = next(StratifiedKFold(2).split(X, y))
    model = HydraPlusClassifier(BayesianEnsembleClassifier(3, **SMALL), **SMALL)
    recalls = []
    for steps in ([], [over_sampling.RandomOverSampler(random_state=0)]):
        pipeline = make_sampling_pipeline(StandardScaler(), *steps, clone(model))
        pipeline.fit(X[train], y[train])
        recalls.append(recall_score(y[test], pipeline.predict(X[test])))
        parts = predict_uncertainty(pipeline, X[test])
        inner = pipeline[-1].predict_uncertainty(pipeline[0].transform(X[test]))
        np.testing.assert_array_equal(parts.epistemic, inner.epistemic)
        assert len(predict_frame(pipeline, X[test])) == len(test)
    assert recalls[1] > recalls[0] + 0.2
