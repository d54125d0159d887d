# SPDX-License-Identifier: BSD-3-Clause
"""Models in MLflow answer as the estimators do; a store in a local folder, and no network."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skdistill.integrations.mlflow
from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    DistributionDistiller,
    predict_frame,
)

SMALL = {"max_epochs": 3, "module__hidden_units": (4,), "random_state": 0}
COLUMNS = ["prediction", "std", "aleatoric", "epistemic", "lower", "upper"]

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(30, 3)), columns=["a", "b", "c"], index=range(100, 130))
y = X["a"].to_numpy() + 10


@pytest.fixture
def mlflow(monkeypatch, tmp_path):
    """MLflow, with its store in a folder."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    found = pytest.importorskip("mlflow")
    before = found.get_tracking_uri()
    found.set_tracking_uri((tmp_path / "store").as_uri())
    yield found
    found.set_tracking_uri(before)


@pytest.fixture(scope="module")
def student():
    teacher = BayesianEnsembleRegressor(3, **SMALL)
    return DistributionDistiller(teacher, family="normal_inverse_gamma", **SMALL)


@pytest.fixture(scope="module")
def model(student):
    return make_pipeline(StandardScaler(), student).fit(X, y)


@pytest.fixture
def served(mlflow, model, tmp_path):
    """The model as MLflow serves it, with a signature."""
    skdistill.integrations.mlflow.save_model(model, tmp_path / "model", input_example=X[:3])
    return mlflow.pyfunc.load_model(str(tmp_path / "model"))


@pytest.mark.slow
def test_a_saved_model_answers_with_the_table_of_its_estimator(mlflow, model, tmp_path):
    folder = tmp_path / "model"
    skdistill.integrations.mlflow.save_model(model, folder)
    frame = mlflow.pyfunc.load_model(str(folder)).predict(X[5:9])
    assert list(frame) == COLUMNS
    pd.testing.assert_frame_equal(frame, predict_frame(model, X[5:9]), check_exact=True)
    np.testing.assert_array_equal(frame["prediction"], model.predict(X[5:9]))


def test_the_artifact_is_a_file_of_save_and_no_pickle(mlflow, model, tmp_path):
    skdistill.integrations.mlflow.save_model(model, tmp_path / "model")
    files = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert not [path for path in files if path.suffix in (".pkl", ".pickle", ".joblib")]
    (file,) = (tmp_path / "model" / "data").iterdir()
    loaded = skdistill.load(file)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    needed = (tmp_path / "model" / "requirements.txt").read_text().split()
    assert f"skdistill=={skdistill.__version__}" in needed
    assert not [line for line in needed if "+" in line]  # of builds that PyPI does not have


def test_with_a_signature_columns_are_put_in_order_and_missing_ones_refused(mlflow, model, served):
    wanted = predict_frame(model, X)
    pd.testing.assert_frame_equal(served.predict(X.assign(d=1.0)[["d", "c", "b", "a"]]), wanted)
    with pytest.raises(mlflow.exceptions.MlflowException, match=r"missing inputs \['c'\]"):
        served.predict(X[["a", "b"]])


def test_a_classifier_has_its_own_columns(mlflow, tmp_path):
    model = BayesianEnsembleClassifier(3, **SMALL).fit(X, np.where(y > 10, "up", "down"))
    skdistill.integrations.mlflow.save_model(model, tmp_path / "model", input_example=X[:3])
    served = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    assert served.metadata.signature.params is None
    frame = served.predict(X)
    assert list(frame) == ["prediction", "total", *COLUMNS[2:4], "proba_down", "proba_up"]
    pd.testing.assert_frame_equal(frame, model.predict_frame(X))


def test_what_predicts_no_distribution_is_refused(mlflow, tmp_path):
    with pytest.raises(TypeError, match=r"skdistill\.mlflow\.save_model takes a fitted skdistill"):
        skdistill.integrations.mlflow.save_model(LinearRegression().fit(X, y), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_without_mlflow_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ImportError, match=r"pip install skdistill\[mlflow\]"):
        skdistill.integrations.mlflow.save_model(None, "folder")
