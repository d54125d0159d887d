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
    HydraPlusClassifier,
    predict_frame,
    predict_uncertainty,
)

SMALL = {"max_epochs": 10, "lr": 0.02, "module__hidden_units": (16,), "random_state": 0}


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
