# SPDX-License-Identifier: BSD-3-Clause
"""Models in files: what is saved comes back, what cannot be is refused, damage is found.

That every estimator and family comes back bit for bit is held by ``test_reference.py``.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from damage import NOT_KNOWN, count_refused
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)
from skorch.callbacks import EpochScoring

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusRegressor,
    SequenceDistributionDistiller,
    load,
    predict_interval,
    predict_uncertainty,
    save,
)
from skdistill.datasets import TRANSLATION_TOKENS, make_translation
from skdistill.expectations import Expectation
from skdistill.modules import RecurrentSequenceModel
from skdistill.persistence import register
from skdistill.persistence._names import NAMES

SMALL = {"max_epochs": 3, "module__hidden_units": (4,), "random_state": 0}
VERSION_1 = Path(__file__).with_name("version_1.safetensors")
EXPECTED_1 = [0.6731449122159462, 0.6775405258999544, 0.6596866220558748]

X = np.random.default_rng(0).normal(size=(40, 3))
Y = X[:, 0] - X[:, 1]


def ensemble(**params):
    return BayesianEnsembleRegressor(3, **{**SMALL, **params})


def again(model, path, **params):
    """The model, saved and loaded."""
    save(model, path / "model", **params)
    return load(path / "model")


@pytest.fixture
def names():
    """The names, of which those that are registered in the test are forgotten after it."""
    before = dict(NAMES)
    yield NAMES
    NAMES.clear()
    NAMES.update(before)


# --- What comes back --------------------------------------------------------------------------


def test_a_pipeline_comes_back(pipeline, table, tmp_path):
    loaded = again(pipeline, tmp_path)
    assert (loaded.predict(table[0]) == pipeline.predict(table[0])).all()
    assert (loaded.predict_proba(table[0]) == pipeline.predict_proba(table[0])).all()
    for part, same in zip(
        predict_uncertainty(loaded, table[0]), predict_uncertainty(pipeline, table[0]), strict=True
    ):
        assert (part == same).all()
    assert list(loaded.feature_names_in_) == ["a", "b", "word"]
    with pytest.raises(ValueError, match="columns are missing"):
        loaded.predict(table[0].rename(columns={"a": "c"}))


@pytest.mark.parametrize(
    "step",
    [
        KBinsDiscretizer(3, encode="onehot-dense", strategy="uniform"),
        KNNImputer(),
        MinMaxScaler(),
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan),
        PolynomialFeatures(),
        PowerTransformer(),
        QuantileTransformer(n_quantiles=10),
        RobustScaler(),
        SimpleImputer(strategy="median", add_indicator=True),
        StandardScaler().set_output(transform="pandas"),
        TargetEncoder(),
        FunctionTransformer(),
        make_column_transformer((StandardScaler(), slice(0, 2)), remainder="passthrough"),
        make_union(StandardScaler(), RobustScaler()),
    ],
    ids=lambda step: type(step).__name__,
)
def test_steps_come_back(step, tmp_path):
    model = make_pipeline(step, ensemble(max_epochs=1)).fit(X, Y)
    assert (again(model, tmp_path).predict(X) == model.predict(X)).all()


def test_limits_of_the_target_come_back(tmp_path):
    limits = {"a_min": 0, "a_max": None}
    clip = FunctionTransformer(inverse_func=np.clip, inv_kw_args=limits)
    model = TransformedTargetRegressor(ensemble(max_epochs=1), transformer=clip).fit(X, abs(Y))
    interval = predict_interval(model, X)
    assert interval.min() == 0
    assert (predict_interval(again(model, tmp_path), X) == interval).all()


def test_teachers_are_left_out_or_kept(tmp_path):
    teacher = FrozenEstimator(ensemble().fit(X, Y))
    model = HydraPlusRegressor(make_pipeline(StandardScaler(), ensemble()), **SMALL).fit(X, Y)
    frozen = DistributionDistiller(teacher, **SMALL).fit(X, Y)
    assert again(model, tmp_path).teacher is None
    alone = again(frozen, tmp_path)
    assert alone.teacher == "regressor"
    assert not hasattr(alone, "teacher_")
    size = os.path.getsize(tmp_path / "model")
    both = again(frozen, tmp_path, include_teacher=True)
    assert os.path.getsize(tmp_path / "model") > size
    assert (both.teacher_.predict(X) == frozen.teacher_.predict(X)).all()
    loaded = again(model, tmp_path, include_teacher=True)
    assert (loaded.teacher_.predict(X) == model.teacher_.predict(X)).all()


def test_a_student_of_sequences_comes_back(tmp_path):
    data = make_translation(30, random_state=0)
    sizes = TRANSLATION_TOKENS.n_source, TRANSLATION_TOKENS.n_target
    members = [RecurrentSequenceModel(*sizes, hidden_units=4) for _ in range(2)]
    model = SequenceDistributionDistiller(
        members, max_epochs=1, module__hidden_units=4, random_state=0
    ).fit(*data)
    loaded = again(model, tmp_path)
    found, expected = (m.score_sequences(*data) for m in (loaded, model))
    assert (found.log_probs == expected.log_probs).all()
    with pytest.raises(TypeError, match=r"teacher/0 cannot be saved.*RecurrentSequenceModel"):
        save(model, tmp_path / "with", include_teacher=True)


def test_what_is_registered_may_be_saved(names, tmp_path):
    def margin(probs):
        first, second = probs.topk(2).values.unbind(-1)
        return first - second

    class Linear(torch.nn.Linear):
        pass

    expectations = "predictive", "entropy", Expectation(margin, link="sigmoid")
    model = GPEDDistiller(
        BayesianEnsembleClassifier(2, **SMALL),
        module=Linear,
        expectations=expectations,
        max_epochs=1,
    ).fit(X, Y > 0)
    with pytest.raises(TypeError, match=r"expectations/2/g cannot be saved: .*margin has no name"):
        save(model, tmp_path / "model")
    register("my margin", margin)
    with pytest.raises(TypeError, match=r"module cannot be saved: .*Linear has no name"):
        save(model, tmp_path / "model")
    register("my linear", Linear)
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    found, expected = (m.predict_expectation(X, "margin") for m in (loaded, model))
    assert (found == expected).all()
    del names["my margin"]
    with pytest.raises(ValueError, match=r"needs 'my margin', which is not known.*register"):
        load(tmp_path / "model")


# --- What is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ensemble(callbacks=[EpochScoring("r2")]), r"callbacks/0 .*EpochScoring"),
        (lambda: make_pipeline(FunctionTransformer(np.sinh), ensemble()), r"steps/0/1/func .*sinh"),
        (lambda: make_pipeline(StandardScaler(), LinearRegression()), r"steps/1/1 .*LinearRegr"),
        (lambda: RandomForestRegressor(2), "model cannot be saved: .*RandomForest"),
        (lambda: GridSearchCV(LinearRegression(), {}, cv=2), "GridSearchCV. Save its best_estima"),
    ],
)
def test_what_cannot_be_saved_is_refused_by_name(make, message, tmp_path):
    with pytest.raises(TypeError, match=message):
        save(make().fit(X, Y), tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_a_failed_write_leaves_the_last_file(tmp_path, monkeypatch):
    model = ensemble().fit(X, Y)
    save(model, tmp_path / "model")
    before = (tmp_path / "model").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *names: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            save(model.set_params(lr=0.1), tmp_path / "model")
    assert os.listdir(tmp_path) == ["model"]
    assert (tmp_path / "model").read_bytes() == before


# --- Damage and malice ------------------------------------------------------------------------


def state(parts):
    return parts.content["object"][1]["dict"]


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "model"
    teacher = BayesianEnsembleClassifier(3, **SMALL)
    save(DistributionDistiller(teacher, **SMALL).fit(X, Y > 0), path)
    return path.read_bytes()


def settings(**values):
    def change(parts):
        recipe = state(parts)["_recipe"]["object"][1]["dict"]
        recipe["settings"]["dict"] |= values

    return change


def of_plan(**values):
    return lambda parts: state(parts)["_plan"]["object"][1]["dict"].update(values)


OBJECTS = [
    {"object": ["NetworkRecipe", {"dict": {"module": 3}}]},
    {"object": ["sklearn.StandardScaler", {"dict": {"transform": 1}}]},
]

CHANGES = [
    lambda parts: parts.metadata.update(format="skdistill checkpoint"),
    *(lambda parts, node=node: state(parts).update(extra=node) for node in [*NOT_KNOWN, *OBJECTS]),
    lambda parts: state(parts).pop("_recipe"),
    lambda parts: state(parts)["_weights"]["dict"].popitem(),
    *(
        settings(hidden_units=units)
        for units in (10**9, [10**9, 10**9], [4] * 20_000, [5], [4, 4], [], "4", [-1], 1e9)
    ),
    settings(out_features=10**12),
    of_plan(size=10**12),
    of_plan(n_members="many", task=None),
]


def test_damaged_files_are_refused(content, tmp_path, tally):
    path = tmp_path / "model"
    match = r"model' cannot be loaded: "
    n_files = count_refused(lambda: load(path), path, content, CHANGES, match)
    assert n_files >= 200
    tally("damaged files", n_files)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "model")
    with pytest.raises(ValueError, match=r"model' cannot be loaded: it is no regular file"):
        load(tmp_path / "model")


# --- The format -------------------------------------------------------------------------------


def test_a_file_of_version_1_stays_loadable(table):
    model = load(VERSION_1)
    np.testing.assert_allclose(model.predict_proba(table[0][:3])[:, 0], EXPECTED_1, rtol=1e-6)
    assert model[-1].teacher_.n_members_ == 3
