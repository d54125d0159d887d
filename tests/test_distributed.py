# SPDX-License-Identifier: BSD-3-Clause
"""Predictions for blocks of dask and ray are those for all rows at once."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    predict_interval,
    predict_members,
    predict_uncertainty,
)
from skdistill.distributed import predict

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = X @ [1.0, -2.0, 0.5]
SMALL = {"n_members": 2, "max_epochs": 20, "module__hidden_units": (5,), "random_state": 0}


@pytest.fixture(scope="module")
def regressor():
    return make_pipeline(StandardScaler(), BayesianEnsembleRegressor(**SMALL)).fit(X, Y)


@pytest.fixture(scope="module")
def classifier():
    return BayesianEnsembleClassifier(**SMALL).fit(X, np.where(Y > 0, "up", "down"))


def all_at_once(model, method):
    if method == "predict_uncertainty":
        return np.stack([*predict_uncertainty(model, X)], axis=-1)
    functions = {"predict_members": predict_members, "predict_interval": predict_interval}
    return functions[method](model, X) if method in functions else getattr(model, method)(X)


def assert_as_at_once(found, expected):
    """Equal, to rounding where they are numbers: products of few samples round in another way."""
    assert found.shape == expected.shape
    if expected.dtype.kind == "f":
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
    else:
        np.testing.assert_array_equal(found, expected)


OF_REGRESSORS = ("predict", "predict_uncertainty", "predict_interval", "predict_members")
OF_CLASSIFIERS = ("predict", "predict_proba", "predict_uncertainty", "predict_members")


@pytest.mark.parametrize("method", OF_REGRESSORS)
def test_arrays_of_dask(method, regressor):
    rows = pytest.importorskip("dask.array").from_array(X, chunks=(25, 2))
    lazy = predict(regressor, rows, method)
    assert lazy.chunks[0] == (25, 25, 10)
    assert lazy.shape == all_at_once(regressor, method).shape
    assert_as_at_once(lazy.compute(), all_at_once(regressor, method))


@pytest.mark.parametrize("method", OF_CLASSIFIERS)
def test_classes_of_rows_in_arrays_of_dask(method, classifier):
    rows = pytest.importorskip("dask.array").from_array(X, chunks=(25, -1))
    found = predict(classifier, rows, method).compute()
    assert_as_at_once(found, all_at_once(classifier, method))


COLUMNS = {
    "predict_proba": ["down", "up"],
    "predict_uncertainty": ["total", "aleatoric", "epistemic"],
    "predict_interval": ["lower", "upper"],
}


@pytest.fixture
def frame():
    pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(X, index=np.arange(100, 160), columns=["a", "b", "c"])


@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("method", ["predict", *COLUMNS])
def test_frames_of_dask_keep_their_index(method, frame, regressor, classifier):
    import dask.dataframe

    model = regressor if method == "predict_interval" else classifier
    rows = dask.dataframe.from_pandas(frame, npartitions=3)
    rows = rows.map_partitions(lambda part: part[part.index >= 130])  # none of the first is left
    lazy = predict(model, rows, method)
    found = lazy.compute()
    assert list(found.index) == list(range(130, 160))
    assert_as_at_once(found.to_numpy(), all_at_once(model, method)[30:])
    if method in COLUMNS:
        assert list(found.columns) == list(lazy.columns) == COLUMNS[method]
    else:
        assert found.name == lazy.name == "predict"


def test_names_of_columns_reach_the_model(frame):
    import dask.dataframe

    model = BayesianEnsembleRegressor(**SMALL).fit(frame, Y)
    rows = dask.dataframe.from_pandas(frame, npartitions=2)
    assert_as_at_once(predict(model, rows).compute().to_numpy(), model.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        predict(model, rows.rename(columns={"a": "other"}))


def test_what_a_frame_cannot_hold_is_refused(frame, classifier):
    import dask.dataframe

    rows = dask.dataframe.from_pandas(frame, npartitions=2)
    with pytest.raises(ValueError, match=r"method must give .* 'predict_members' gives shape"):
        predict(classifier, rows, "predict_members")


@pytest.mark.slow  # ray takes ten seconds to start
@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("is_table", [True, False])
def test_datasets_of_ray(is_table, ray, regressor, classifier):
    pandas = pytest.importorskip("pandas")
    if is_table:
        table = pandas.DataFrame(X, columns=["a", "b", "c"])
        found = predict(classifier, ray.data.from_pandas(table), "predict").to_pandas()
        assert_as_at_once(found["predict"].to_numpy(), all_at_once(classifier, "predict"))
        return
    blocks = ray.data.from_numpy(np.array_split(X, 3))
    found = predict(regressor, blocks, "predict_uncertainty").take_all()
    values = np.stack([row["predict_uncertainty"] for row in found])
    expected = all_at_once(regressor, "predict_uncertainty")
    order = [int(np.abs(expected - value).sum(-1).argmin()) for value in values]
    assert sorted(order) == list(range(len(X)))  # ray does not promise the order of blocks
    assert_as_at_once(values, expected[order])


def test_a_part_that_cannot_be_told_is_not_a_number():
    array = pytest.importorskip("dask.array")
    model = BayesianEnsembleRegressor(**{**SMALL, "n_members": 1}).fit(X, Y)
    found = predict(model, array.from_array(X), "predict_uncertainty").compute()
    np.testing.assert_allclose(found[:, 0], predict_uncertainty(model, X).total)
    assert np.isnan(found[:, 1:]).all()


def test_other_data_methods_and_models_are_named(regressor):
    with pytest.raises(TypeError, match=r"data must be a dask Array.* got numpy.ndarray"):
        predict(regressor, X)
    with pytest.raises(ValueError, match=r"method must be one of .* got 'transform'"):
        predict(regressor, X, "transform")
    with pytest.raises(TypeError, match="model must have predict_proba"):
        predict(regressor, X, "predict_proba")
    array = pytest.importorskip("dask.array")
    with pytest.raises(TypeError, match="Ridge has no predict_interval"):
        predict(Ridge().fit(X, Y), array.from_array(X), "predict_interval")
