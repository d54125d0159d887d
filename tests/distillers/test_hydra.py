# SPDX-License-Identifier: BSD-3-Clause
"""HydraPlusRegressor: teachers, transfer rows, heads, the loss, and how faithful it is."""

from __future__ import annotations

import copy
import itertools
import warnings
from functools import partial
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import config_context
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch.callbacks import Callback
from torch import nn
from torch.distributions import Normal, kl_divergence

from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor, predict_members
from skdistill.distillers import _distiller
from skdistill.distillers._hydra_objectives import GaussianHydraObjective
from skdistill.modules import MLP
from skdistill.transfer import GaussianNoise, TransferSet


def ensemble(**params):
    settings = {"n_members": 3, "max_epochs": 5, "module__hidden_units": (8,), "random_state": 0}
    return BayesianEnsembleRegressor(**{**settings, **params})


def student(teacher, **params):
    settings = {"max_epochs": 5, "module__hidden_units": (8,), "random_state": 0}
    return HydraPlusRegressor(teacher, **{**settings, **params})


def assert_same_members(first, second, X, **tolerance):
    np.testing.assert_allclose(first.predict_members(X), second.predict_members(X), **tolerance)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    return X, 4.0 + X @ [1.0, -2.0, 0.5] + 0.3 * rng.normal(size=60)


@pytest.fixture(scope="module")
def fitted(data):
    return ensemble(max_epochs=20).fit(*data)


@pytest.fixture
def frozen(fitted):
    return FrozenEstimator(fitted)


# ------------------------------------------------------------------------------------------
# Teachers
# ------------------------------------------------------------------------------------------


def test_no_teacher_is_a_default_ensemble(data):
    X, y = data
    model = student(None, max_epochs=1).fit(X[:20], y[:20])
    assert isinstance(model.teacher_, BayesianEnsembleRegressor)
    expected = BayesianEnsembleRegressor().get_params()
    params = model.teacher_.get_params()
    assert params.pop("random_state") is not None
    assert expected.pop("random_state") is None
    assert params == expected
    assert model.n_heads_ == model.teacher_.n_members_ == 20
    assert model.teacher is None


def test_an_unfitted_teacher_is_cloned(data):
    X, y = data
    teacher = ensemble(module__hidden_units=(5,))
    before = copy.deepcopy(vars(teacher))
    model = student(teacher).fit(X, y)
    assert vars(teacher) == before
    assert model.teacher is teacher
    assert model.teacher_ is not teacher
    assert_same_members(model.teacher_, clone(teacher).fit(X, y), X)


def test_a_fitted_teacher_that_is_not_frozen_is_fitted_anew(data):
    X, y = data
    teacher = ensemble().fit(X, -y)
    before = teacher.predict(X)
    model = student(teacher).fit(X, y)
    np.testing.assert_array_equal(teacher.predict(X), before)
    assert_same_members(model.teacher_, ensemble().fit(X, y), X)


def test_a_frozen_teacher_is_used_as_it_is(frozen, data):
    X, y = data
    before = frozen.estimator.predict_members(X)
    model = student(frozen).fit(X, y)
    assert model.teacher_ is frozen
    np.testing.assert_array_equal(frozen.estimator.predict_members(X), before)


def test_an_unfitted_frozen_teacher_says_so(data):
    with pytest.raises(NotFittedError):
        student(FrozenEstimator(ensemble())).fit(*data)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda teacher: make_pipeline(StandardScaler(), teacher),
        lambda teacher: make_pipeline(StandardScaler(), StandardScaler(), teacher),
        lambda teacher: GridSearchCV(teacher, {"lr": [0.01]}, cv=2),
        lambda teacher: TransformedTargetRegressor(teacher, transformer=StandardScaler()),
    ],
    ids=["pipeline", "longer pipeline", "search", "target"],
)
def test_a_teacher_inside_meta_estimators(wrap, data):
    X, y = data
    model = student(wrap(ensemble()), max_epochs=60, spread_weight=0.0, transfer=None).fit(X, y)
    assert predict_members(model.teacher_, X).shape == model.predict_members(X).shape
    teacher = model.teacher_.predict(X)
    assert np.mean((model.predict(X) - teacher) ** 2) < 0.2 * np.var(teacher)


def test_the_student_inside_a_pipeline_sees_what_its_teacher_sees(data):
    X, y = data
    scaled = StandardScaler().fit_transform(1000 * X)
    inside = make_pipeline(StandardScaler(), student(ensemble())).fit(1000 * X, y)
    by_hand = student(ensemble()).fit(scaled, y)
    np.testing.assert_allclose(inside.predict(1000 * X), by_hand.predict(scaled))


@pytest.mark.parametrize(
    "teacher",
    [LogisticRegression(), make_pipeline(StandardScaler(), LogisticRegression())],
    ids=["bare", "pipeline"],
)
def test_a_classifier_cannot_teach_a_regressor(teacher, data):
    name = type(teacher).__name__
    message = f"teacher must be a regressor to teach HydraPlusRegressor; {name} is a classifier"
    X, y = data
    with pytest.raises(ValueError, match=message):
        student(teacher).fit(X, y)
    with pytest.raises(ValueError, match="is a classifier"):
        student(FrozenEstimator(teacher.fit(X, y > 4))).fit(X, y)


def test_a_teacher_without_members_is_one_member(data):
    X, y = data
    model = student(LinearRegression(), max_epochs=300).fit(X, y)
    assert model.n_heads_ == 1
    assert model.predict_uncertainty(X).epistemic is None
    _, std = model.predict(X, return_std=True)
    residual = np.sqrt(model.teacher_.residual_variance_)  # its only uncertainty
    assert np.median(std) == pytest.approx(residual.item(), rel=0.1)


def test_a_teacher_fitted_on_other_columns(frozen, data):
    X, y = data
    with pytest.raises(ValueError, match="teacher was fitted on 3 columns, but X has 2"):
        student(frozen).fit(X[:, :2], y)


def test_a_teacher_fitted_on_columns_of_other_names(data):
    pd = pytest.importorskip("pandas")
    X, y = data
    X = pd.DataFrame(X, columns=["a", "b", "c"])
    teacher = FrozenEstimator(ensemble().fit(X, y))
    message = r"teacher was fitted on the columns \['a', 'b', 'c'\], but X has \['a', 'c', 'b'\]"
    with pytest.raises(ValueError, match=message):
        student(teacher).fit(X[["a", "c", "b"]], y)


def test_a_teacher_of_other_targets(frozen, data):
    X, y = data
    with pytest.raises(ValueError, match=r"shape \(1, S, 2, 2\).*got \(1, 3, 1, 2\)"):
        student(frozen).fit(X, np.column_stack([y, y]))


@pytest.mark.parametrize("variance", [-1.0, 0.0, np.nan, np.inf])
def test_a_teacher_whose_variances_are_none_is_named(variance, data):
    with pytest.raises(
        ValueError, match=r"^the answers of teacher Asked must be .*positive,"
    ):
        student(Asked(variance)).fit(*data)


def test_a_teacher_that_knows_columns_by_name_teaches_on_arrays(data):
    pd = pytest.importorskip("pandas")
    X, y = data
    teacher = FrozenEstimator(ensemble().fit(pd.DataFrame(X, columns=["a", "b", "c"]), y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = student(teacher).fit(X, y)
    assert_same_members(model, student(ensemble()).fit(X, y), X)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("wrap", [lambda t: t, lambda t: make_pipeline(StandardScaler(), t)])
def test_a_teacher_that_knows_columns_by_name_is_asked_without_warnings(wrap, library, data):
    X, y = data
    frames = pytest.importorskip(library)
    frame = frames.DataFrame(dict(zip("abc", X.T, strict=True)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = student(wrap(ensemble())).fit(frame, y)
        frozen = student(FrozenEstimator(model.teacher_)).fit(frame, y)
        plain = student(wrap(ensemble())).fit(X, y)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(model.predict(frame), plain.predict(X), rtol=1e-6)
    assert frozen.predict(frame).shape == (60,)


def test_a_seed_reaches_what_the_teacher_left_open(data):
    X, y = data
    teacher = make_pipeline(StandardScaler(), ensemble(random_state=None))
    first, second, other = (student(teacher, random_state=seed).fit(X, y) for seed in (0, 0, 1))
    assert_same_members(first, second, X)
    assert (first.teacher_.predict(X) != other.teacher_.predict(X)).all()
    own = student(ensemble(random_state=5), random_state=0).fit(X, y)
    assert own.teacher_.random_state == 5
    assert student(teacher, random_state=None).fit(X, y).teacher_[-1].random_state is None


def test_the_students_draws_do_not_depend_on_the_teachers_seed(data):
    X, y = data
    built: list[torch.Tensor] = []

    def build(in_features, out_features):
        network = nn.Sequential(nn.Linear(in_features, out_features))
        built.append(network[0].weight.detach().clone())
        return network

    for teacher in (ensemble(random_state=None), FrozenEstimator(ensemble().fit(X, y))):
        HydraPlusRegressor(teacher, module=build, max_epochs=1, random_state=0).fit(X, y)
    # The first network of each fit only tries the module out.
    for first, second in zip(built[1:4], built[5:], strict=True):
        assert torch.equal(first, second)


# ------------------------------------------------------------------------------------------
# Grid search and memory
# ------------------------------------------------------------------------------------------


class Counted(BayesianEnsembleRegressor):
    """An ensemble whose fits are counted."""

    n_fits = 0

    def fit(self, X, y, sample_weight=None):
        Counted.n_fits += 1
        return super().fit(X, y, sample_weight)


@pytest.fixture
def counted():
    Counted.n_fits = 0
    return Counted(2, max_epochs=2, module__hidden_units=(4,))


def test_the_grid_search_of_the_readme(data):
    X, y = data
    grid = {"module__hidden_units": [(50,), (50, 50)], "alpha": [0.5, 0.9]}
    search = GridSearchCV(HydraPlusRegressor(ensemble(), max_epochs=2), grid, cv=2).fit(X, y)
    assert search.best_estimator_.get_params()["module__hidden_units"] in [(50,), (50, 50)]
    sizes = {len(params["module__hidden_units"]) for params in search.cv_results_["params"]}
    assert sizes == {1, 2}
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict(X).shape == (60,)


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("as_path", [False, True])
def test_memory_fits_each_teacher_once_per_fold(seed, as_path, counted, data, tmp_path):
    memory = str(tmp_path) if as_path else joblib.Memory(tmp_path, verbose=0)
    grid = {"module__hidden_units": [(4,), (4, 4)], "alpha": [0.5, 0.9]}
    model = student(counted, memory=memory, max_epochs=1, random_state=seed)
    search = GridSearchCV(model, grid, cv=3).fit(*data)
    assert Counted.n_fits == 3 + 1
    assert search.best_estimator_.teacher_.predict(data[0]).shape == (60,)
    search.fit(*data)
    assert Counted.n_fits == 3 + 1


def test_without_memory_each_candidate_fits_its_teacher(counted, data):
    GridSearchCV(student(counted, max_epochs=1), {"alpha": [0.5, 0.9]}, cv=3).fit(*data)
    assert Counted.n_fits == 2 * 3 + 1


def test_memory_changes_nothing_but_the_time(data, tmp_path):
    X, y = data
    plain = student(ensemble(random_state=None)).fit(X, y)
    memory = joblib.Memory(tmp_path, verbose=0)
    for _ in range(2):
        cached = student(ensemble(random_state=None), memory=memory).fit(X, y)
        assert_same_members(cached, plain, X)
        assert_same_members(cached.teacher_, plain.teacher_, X)


def test_a_frozen_teacher_is_not_written_to_memory(frozen, data, tmp_path):
    student(frozen, memory=str(tmp_path), max_epochs=1).fit(*data)
    assert not list(tmp_path.rglob("*.pkl"))


def test_memory_tells_teachers_data_and_weights_apart(counted, data, tmp_path):
    X, y = data
    model = student(counted, memory=str(tmp_path), max_epochs=1)
    model.fit(X, y).fit(X, y)
    assert Counted.n_fits == 1
    model.fit(X, y, sample_weight=np.arange(60.0))
    model.fit(X, -y)
    clone(model).set_params(teacher__lr=0.1).fit(X, y)
    assert Counted.n_fits == 4


# ------------------------------------------------------------------------------------------
# Transfer rows
# ------------------------------------------------------------------------------------------


def rows_learnt(monkeypatch, model, *args, **kwargs):
    """Fit a student and return the rows it was to learn from."""
    caught = []
    original = HydraPlusRegressor._taught_rows

    def spy(self, *args):
        caught.append(original(self, *args))
        return caught[-1]

    monkeypatch.setattr(HydraPlusRegressor, "_taught_rows", spy)
    model.fit(*args, **kwargs)
    monkeypatch.undo()
    return caught[-1]


@pytest.fixture(scope="module")
def further():
    return np.random.default_rng(1).normal(size=(25, 3))


@pytest.mark.parametrize("wrap", [np.asarray, TransferSet, np.ndarray.tolist])
def test_transfer_rows_are_appended_without_labels(wrap, frozen, further, data, monkeypatch):
    X, y = data
    rows = rows_learnt(monkeypatch, student(frozen), X, y, X_transfer=wrap(further))
    np.testing.assert_array_equal(rows.X.numpy(), np.concatenate([X, further]))
    labels, labelled = rows.targets
    assert labelled.tolist() == [1.0] * 60 + [0.0] * 25
    np.testing.assert_allclose(labels[:60, 0].numpy(), (y - y.mean()) / y.std())
    assert rows.weight is None


def test_transfer_rows_alone(frozen, further, data, monkeypatch):
    X, y = data
    model = student(frozen, transfer_only=True)
    rows = rows_learnt(monkeypatch, model, X, y, X_transfer=further)
    np.testing.assert_array_equal(rows.X.numpy(), further)
    assert rows.targets[1].tolist() == [0.0] * 25
    by_chance = student(frozen, transfer_only=True).fit(X, y[::-1].copy(), X_transfer=further)
    by_chance.module_.y_loc, by_chance.module_.y_scale = model.module_.y_loc, model.module_.y_scale
    assert_same_members(model, by_chance, X)  # the labels do not matter


def test_transfer_rows_weigh_one(frozen, further, data, monkeypatch):
    X, y = data
    weight = np.linspace(0.5, 4, 60)
    rows = rows_learnt(monkeypatch, student(frozen), X, y, sample_weight=weight, X_transfer=further)
    expected = np.concatenate([weight, np.ones(25)])
    np.testing.assert_allclose(rows.weight.numpy(), [expected / expected.mean()])


def test_labels_of_transfer_rows_are_never_used(frozen, further, data):
    X, y = data
    only_labels = student(frozen, alpha=0.0, spread_weight=0.0, transfer=None, batch_size=100)
    with_rows = clone(only_labels).fit(X, y, X_transfer=further)
    without = clone(only_labels).fit(X, y)
    # The loss is a mean over 85 rows instead of 60, which Adam does not notice.
    assert_same_members(with_rows, without, X, rtol=1e-4)


@pytest.mark.parametrize("wrap", [np.asarray, TransferSet])
def test_transfer_rows_with_the_wrong_number_of_columns(wrap, frozen, further, data):
    with pytest.raises(ValueError, match="X_transfer must have 3 columns as X has, got 2"):
        student(frozen).fit(*data, X_transfer=wrap(further[:, :2]))


def test_transfer_rows_with_other_names(data, further):
    pd = pytest.importorskip("pandas")
    X, y = pd.DataFrame(data[0], columns=["a", "b", "c"]), data[1]
    rows = pd.DataFrame(further, columns=["c", "b", "a"])
    with pytest.raises(ValueError, match=r"X_transfer has the columns \['c', 'b', 'a'\]"):
        student(ensemble()).fit(X, y, X_transfer=TransferSet(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        student(ensemble()).fit(X, y, X_transfer=TransferSet(rows[["a", "b", "c"]]))
        student(ensemble()).fit(X, y, X_transfer=further)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_transfer_rows_must_be_finite(value, frozen, further, data):
    with pytest.raises(ValueError, match=r"X_transfer contains (NaN|infinity)"):
        student(frozen).fit(*data, X_transfer=np.where(further > 1, value, further))


def test_rows_without_labels_need_the_teacher_alone(frozen, further, data):
    model = student(frozen, transfer_only=True, alpha=0.9)
    with pytest.raises(ValueError, match=r"^alpha must be 1 with transfer_only=True.*got 0\.9"):
        model.fit(*data, X_transfer=further)


def test_transfer_only_needs_rows(frozen, data):
    with pytest.raises(ValueError, match="transfer_only=True needs X_transfer in fit"):
        student(frozen, transfer_only=True).fit(*data)


def test_a_transfer_set_goes_whole_through_a_grid_search(data, monkeypatch):
    X, y = data
    seen = []
    original = HydraPlusRegressor._validate_transfer

    def spy(self, X_transfer, dtype):
        rows = original(self, X_transfer, dtype)
        seen.append(len(rows))
        return rows

    monkeypatch.setattr(HydraPlusRegressor, "_validate_transfer", spy)
    search = GridSearchCV(student(ensemble(max_epochs=1), max_epochs=1), {"alpha": [0.5, 1]}, cv=3)
    search.fit(X, y, X_transfer=TransferSet(X))  # as many rows as X, and yet not cut
    assert seen == 7 * [60]


def test_transfer_rows_are_routed_as_metadata(further, data):
    X, y = data
    with config_context(enable_metadata_routing=True):
        model = student(ensemble(max_epochs=1), max_epochs=1)
        model.set_fit_request(X_transfer=True, sample_weight=True)
        model.set_score_request(sample_weight=True)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=True), model)
        params = {"X_transfer": TransferSet(further), "sample_weight": np.ones(60)}
        scores = cross_val_score(pipeline, X, y, params=params, cv=2, error_score="raise")
    assert np.isfinite(scores).all()


def test_a_pipeline_transforms_the_transfer_rows_too(frozen, further, data, monkeypatch):
    X, y = data
    with config_context(enable_metadata_routing=True):
        model = student(frozen, transfer_only=True).set_fit_request(X_transfer=True)
        steps = [("scale", StandardScaler()), ("distil", model)]
        pipeline = Pipeline(steps, transform_input=["X_transfer"])
        rows = rows_learnt(monkeypatch, pipeline, X, y, X_transfer=further)
    expected = StandardScaler().fit(X).transform(further)
    np.testing.assert_allclose(rows.X.numpy(), expected)


# ------------------------------------------------------------------------------------------
# Weights
# ------------------------------------------------------------------------------------------


def test_weights_go_to_the_teacher_and_to_the_loss(frozen, data):
    X, y = data
    weight = np.linspace(0.1, 3, 60)
    model = student(ensemble(), transfer=None).fit(X, y, sample_weight=weight)
    assert_same_members(model.teacher_, ensemble().fit(X, y, sample_weight=weight), X)
    weighted = student(frozen, transfer=None).fit(X, y, sample_weight=weight)
    plain = student(frozen, transfer=None).fit(X, y)
    assert (weighted.predict(X) != plain.predict(X)).all()


def test_weights_go_to_the_last_step_of_a_teaching_pipeline(data):
    X, y = data
    weight = np.linspace(0.1, 3, 60)
    model = student(make_pipeline(StandardScaler(), ensemble())).fit(X, y, sample_weight=weight)
    expected = ensemble().fit(StandardScaler().fit_transform(X), y, sample_weight=weight)
    np.testing.assert_allclose(
        predict_members(model.teacher_, X),
        expected.predict_members(StandardScaler().fit_transform(X)),
    )


def test_rows_of_weight_zero_are_as_if_they_were_not_there(data):
    X, y = data
    weight = np.tile([1.0, 2.0, 0.0], 20)
    strange, kept = np.where(weight > 0, y, 1e9), weight > 0
    weighted = student(ensemble()).fit(X, strange, sample_weight=weight)
    dropped = student(ensemble()).fit(X[kept], y[kept], sample_weight=weight[kept])
    assert_same_members(weighted, dropped, X)


def test_integer_weights_equal_repetitions_without_noise(frozen, data):
    X, y = data
    weight = np.tile([1, 2, 0], 20)
    settings = {"transfer": None, "batch_size": 100, "alpha": 0.7}
    weighted = student(frozen, **settings).fit(X, y, sample_weight=weight)
    repeated = student(frozen, **settings).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert_same_members(weighted, repeated, X, rtol=1e-6)


# ------------------------------------------------------------------------------------------
# Heads
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_heads", "expected"), [(None, 3), (1, 1), (2, 2), (3, 3), (5, 5)])
def test_any_number_of_heads(n_heads, expected, frozen, data):
    X, y = data
    model = student(frozen, n_heads=n_heads).fit(X, y)
    assert model.n_heads_ == expected
    assert model.predict_members(X).shape == (60, expected, 1, 2)
    assert np.isfinite(model.predict_members(X)).all()
    core, heads = 8 * 4, expected * (8 + 1) * 2
    assert model.n_parameters_ == core + heads


def test_one_head_cannot_tell_the_parts(frozen, data):
    total, aleatoric, epistemic = student(frozen, n_heads=1).fit(*data).predict_uncertainty(data[0])
    assert (total > 0).all()
    assert aleatoric is None
    assert epistemic is None


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"n_heads": 0}, ValueError, "n_heads"),
        ({"n_heads": -2}, ValueError, "n_heads"),
        ({"n_heads": 1.5}, TypeError, "n_heads"),
        ({"head_layers": 0}, ValueError, "head_layers"),
        ({"head_layers": 3}, ValueError, "head_layers must be between 1 and 2"),
        ({"alpha": 1.5}, ValueError, "alpha"),
        ({"beta": -0.5}, ValueError, "beta"),
        ({"spread_weight": -1.0}, ValueError, "spread_weight"),
        ({"transfer": GaussianNoise(-1.0)}, ValueError, "scale"),
        ({"transfer": "salt"}, ValueError, "transfer must be"),
        ({"weight_decay": -1.0}, ValueError, "weight_decay"),
        ({"diversity": "max"}, ValueError, "diversity must be one of"),
        ({"transfer_only": "yes"}, ValueError, "transfer_only must be one of"),
        ({"diversity_weight": -0.1}, ValueError, "diversity_weight must be"),
        ({"diversity_weight": "much"}, ValueError, "diversity_weight must be"),
        ({"diversity_weight": (0.1, 5)}, ValueError, "diversity_weight must be"),
        ({"diversity_weight": (0.1, 5, 5)}, ValueError, "diversity_weight must be"),
        ({"diversity_weight": (0.1, -1, 5)}, ValueError, "diversity_weight must be"),
        ({"diversity_weight": (-0.1, 1, 5)}, ValueError, "diversity_weight must be"),
        ({"diversity_weight": (0.1, None, 5)}, ValueError, "diversity_weight must be"),
        ({"diversity_weight": np.nan}, ValueError, "diversity_weight must be"),
        ({"diversity_weight": (np.nan, 1, 5)}, ValueError, "diversity_weight must be"),
        ({"diversity_weight": (0.1, np.nan, 5)}, ValueError, "diversity_weight must be"),
        ({"diversity_weight": (0.1, 1, np.nan)}, ValueError, "diversity_weight must be"),
        ({"max_epochs": "foo"}, TypeError, "max_epochs must be an integer, or 'auto', got 'foo'"),
        ({"n_heads": np.nan}, TypeError, "n_heads must be (a number|an integer).*, got nan"),
    ],
)
def test_parameters_out_of_range_are_named(params, error, message, frozen, data):
    with pytest.raises(error, match=message):
        student(frozen, **params).fit(*data)


@pytest.mark.parametrize(("head_layers", "n_shared"), [(1, 2), (2, 1), (3, 0)])
def test_head_layers_says_where_the_heads_begin(head_layers, n_shared, frozen, data):
    model = student(frozen, head_layers=head_layers, module__hidden_units=(8, 6)).fit(*data)
    network = model.module_.network
    assert len(list(network.core.parameters())) == 2 * n_shared
    assert len(network.head_weights()) == head_layers
    assert {weight.shape[:2] for weight in network.head_weights()} == {(1, 3)}
    assert np.isfinite(model.predict(data[0])).all()


def test_a_module_without_layers_to_cut(frozen, data):
    class Whole(nn.Module):
        def __init__(self, in_features, out_features):
            super().__init__()
            self.linear = nn.Linear(in_features, out_features)

        def forward(self, x):
            return self.linear(x)

    with pytest.raises(ValueError, match=r"module must build an nn\.Sequential.*Whole"):
        HydraPlusRegressor(frozen, module=Whole).fit(*data)


def test_a_wrong_width_is_named(frozen, data):
    def forgets_the_variance(in_features, out_features):
        return nn.Sequential(nn.Linear(in_features, out_features // 2))

    with pytest.raises(ValueError, match=r"shape \(n, 2\), .*forgets_the_variance gives \(3, 1\)"):
        HydraPlusRegressor(frozen, module=forgets_the_variance).fit(*data)


class Shifted(nn.Sequential):
    def forward(self, x):
        return super().forward(x) + 3.0


class Pair(nn.Linear):
    def forward(self, x):
        return super().forward(x).chunk(2, dim=-1)


MISTAKES = {
    "head_layers": ({"head_layers": 4}, "head_layers must be between 1 and 3"),
    "activation": ({"module__activation": "swish"}, "activation must be one of"),
    "no layers": (
        {"module": lambda in_features, out_features: nn.Bilinear(in_features, 1, out_features)},
        r"module must build an nn\.Sequential",
    ),
    "own forward": (
        {"module": lambda in_features, out_features: Shifted(nn.Linear(in_features, out_features))},
        "without a forward of its own.*got Shifted",
    ),
    "width": (
        {"module": lambda in_features: nn.Sequential(nn.Linear(in_features, 3))},
        r"module must give a tensor of shape \(n, 2\)",
    ),
    "pair": (
        {"module": lambda in_features: nn.Sequential(Pair(in_features, 2))},
        "module must give a tensor",
    ),
    "flat": (
        {"module": lambda in_features: nn.Sequential(nn.Linear(in_features, 1), nn.Flatten(0))},
        r"module must give a tensor of shape \(n, 2\)",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_of_the_module_are_found_before_the_teacher_is_fitted(mistake, counted, data):
    params, message = MISTAKES[mistake]
    with pytest.raises(ValueError, match=message):
        HydraPlusRegressor(counted, **params).fit(*data)
    assert Counted.n_fits == 0


def own_default(in_features, out_features, hidden_units=(11,)):
    return MLP(in_features, out_features, hidden_units)


def test_defaults_for_the_mlp_are_for_no_other_module(frozen, data):
    own = HydraPlusRegressor(frozen, module=own_default, max_epochs=1).fit(*data)
    assert own.n_parameters_ == 11 * 4 + 3 * 2 * 12
    default = HydraPlusRegressor(frozen, max_epochs=1).fit(*data)
    assert default.n_parameters_ == 128 * 4 + 128 * 129 + 3 * 2 * 129


def half_frozen(in_features, out_features, norm=nn.Identity):
    first, last = nn.Linear(in_features, 8), nn.Linear(8, out_features)
    nn.init.constant_(first.weight, 0.25).requires_grad_(False)
    nn.init.constant_(last.bias, 0.25).requires_grad_(False)
    return nn.Sequential(first, norm(), nn.Tanh(), last)


@pytest.mark.parametrize("norm", [nn.Identity, nn.Softplus], ids=["by hand", "vmap"])
def test_frozen_weights_stay_as_they_are_and_count(norm, frozen, data):
    params = {"module": half_frozen, "module__norm": norm, "weight_decay": 0.1}
    model = HydraPlusRegressor(frozen, max_epochs=2, random_state=0, **params).fit(*data)
    values = [p.detach() for p in model.module_.parameters()]  # weight, bias of core, of heads
    assert [(value == 0.25).all().item() for value in values] == [True, False, False, True]
    assert model.n_parameters_ == 8 * 4 + 3 * 2 * 9


def test_a_users_own_sequential_with_normalisation(frozen, data):
    def normalised(in_features, out_features):
        return nn.Sequential(
            nn.Linear(in_features, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, out_features)
        )

    X, y = data
    model = HydraPlusRegressor(
        frozen, module=normalised, diversity_weight=0.01, spread_weight=0.0, random_state=0
    ).fit(X, y)
    teacher = frozen.predict(X)
    assert np.mean((model.predict(X) - teacher) ** 2) < 0.1 * np.var(teacher)
    assert model.n_parameters_ == 16 * 4 + 32 + 3 * 2 * 17


# ------------------------------------------------------------------------------------------
# The loss
# ------------------------------------------------------------------------------------------


def answers_and_outputs(n_members, n_heads, n=7, t=2, seed=0):
    """Random answers of a teacher, outputs of a student, labels, and the Gaussians they are."""
    generator = torch.Generator().manual_seed(seed)
    draw = partial(torch.randn, generator=generator, dtype=torch.float64)
    means, variances = draw(n_members, n, t), draw(n_members, n, t).exp()
    outputs = draw(n_heads, n, 2 * t)
    raw = outputs[..., t:]
    return SimpleNamespace(
        answers=torch.stack([means, variances], dim=-1).transpose(0, 1).unsqueeze(0),
        outputs=outputs.unsqueeze(0),
        y=draw(1, n, t),
        labelled=(torch.arange(n) % 2).double().unsqueeze(0),
        members=Normal(means, variances.sqrt()),
        heads=Normal(outputs[..., :t], (nn.functional.softplus(raw) + 1e-6).sqrt()),
    )


def objective_of(n_members, n_heads, n_epochs=4, **settings):
    """The objective of a student that trains for `n_epochs`."""
    model = HydraPlusRegressor(**settings)
    model.n_epochs_ = n_epochs
    return GaussianHydraObjective(model, n_members, n_heads)


def loss(case, epoch=3, **settings):
    """What the student minimises in an epoch, by default the last of four, for each row."""
    n_members, n_heads = case.members.mean.shape[0], case.heads.mean.shape[0]
    objective = objective_of(n_members, n_heads, **{"spread_weight": 0.0, **settings})
    objective.begin_epoch(epoch)
    return objective(case.outputs, (case.answers, case.y, case.labelled)).squeeze(0)


def matched(mixture):
    """The Gaussian with the moments of a mixture, member by member on the first axis."""
    mean = mixture.mean.mean(0)
    variance = (mixture.variance + mixture.mean.square()).mean(0) - mean.square()
    return Normal(mean, variance.sqrt())


def entropy_left_out(gaussian):
    """What the loss is more than the divergence: a constant of the teacher, in nats."""
    return (gaussian.variance.log() + 1).div(2).sum(-1)


def test_plain_hydra_is_the_mean_divergence_of_members_and_heads():
    case = answers_and_outputs(n_members=4, n_heads=4)
    expected = kl_divergence(case.members, case.heads).sum(-1).mean(0)
    constant = entropy_left_out(case.members).mean(0)
    torch.testing.assert_close(loss(case, alpha=1, beta=1), expected + constant)


@pytest.mark.parametrize(("n_members", "n_heads"), [(5, 2), (2, 5)])
def test_member_n_goes_to_head_n_mod_m(n_members, n_heads):
    case = answers_and_outputs(n_members, n_heads)
    pairs = [(k % n_members, k % n_heads) for k in range(5)]
    divergences = [
        kl_divergence(
            Normal(case.members.mean[n], case.members.stddev[n]),
            Normal(case.heads.mean[m], case.heads.stddev[m]),
        ).sum(-1)
        for n, m in pairs
    ]
    constant = entropy_left_out(case.members)[[n for n, _ in pairs]].mean(0)
    expected = torch.stack(divergences).mean(0) + constant
    torch.testing.assert_close(loss(case, alpha=1, beta=1), expected)


def test_hinton_is_the_divergence_from_the_matched_teacher():
    case = answers_and_outputs(n_members=4, n_heads=1)
    teacher, head = matched(case.members), Normal(case.heads.mean[0], case.heads.stddev[0])
    expected = kl_divergence(teacher, head).sum(-1) + entropy_left_out(teacher)
    torch.testing.assert_close(loss(case, alpha=1, beta=0), expected)


def test_the_label_term_is_the_likelihood_of_labelled_rows():
    case = answers_and_outputs(n_members=3, n_heads=3)
    likelihood = -case.heads.log_prob(case.y).sum(-1).mean(0) - np.log(2 * np.pi)  # two targets
    torch.testing.assert_close(loss(case, alpha=0), case.labelled[0] * likelihood)


def test_equation_10_mixes_the_three_terms():
    case = answers_and_outputs(n_members=3, n_heads=3)
    l1, l2, l3 = loss(case, alpha=0), loss(case, alpha=1, beta=0), loss(case, alpha=1, beta=1)
    expected = 0.3 * l1 + 0.7 * (0.6 * l2 + 0.4 * l3)
    torch.testing.assert_close(loss(case, alpha=0.7, beta=0.4), expected)


@pytest.mark.parametrize("epoch", [0, 1, 3])
@pytest.mark.parametrize(("n_members", "n_heads"), [(3, 3), (5, 2), (2, 5), (3, 1)])
def test_spread_matching_by_hand(n_members, n_heads, epoch):
    case = answers_and_outputs(n_members, n_heads)
    added = loss(case, epoch, spread_weight=2.0) - loss(case, epoch, spread_weight=0.0)
    teacher, head = case.members.mean, case.heads.mean
    e_t, e_s = teacher.var(0, correction=0), head.var(0, correction=0)
    teacher, head = teacher - teacher.mean(0), head - head.mean(0)  # before they are paired
    n_pairs = max(n_members, n_heads)
    residual = torch.stack([head[k % n_heads] - teacher[k % n_members] for k in range(n_pairs)])
    residuals = (residual.square() / (e_t + 1e-4)).mean(0).sum(-1)
    spreads = ((e_s + 1e-5).log() - (e_t + 1e-5).log()).square().sum(-1)
    weight = 2.0 * (epoch + 1) / 4
    torch.testing.assert_close(added, weight * (0.5 * residuals + 0.25 * spreads))


def test_the_spread_weight_grows_linearly_to_its_full_size():
    objective = objective_of(3, 3, n_epochs=5, spread_weight=2.0)
    weights = [objective.spread_weight.item()]  # before training: as in the first epoch
    for epoch in range(5):
        objective.begin_epoch(epoch)
        weights.append(objective.spread_weight.item())
    assert weights == pytest.approx([0.4, 0.4, 0.8, 1.2, 1.6, 2.0])
    assert "spread_weight" in dict(objective.named_buffers())  # goes to the device, graphs read it


class Weights(Callback):
    """Writes down the weights of the spread and of the diversity in each epoch."""

    def on_train_begin(self, net, **kwargs):
        self.seen = []

    def on_epoch_end(self, net, **kwargs):
        criterion = net.criterion_
        self.seen.append((criterion.spread_weight.item(), criterion.diversity_weight.item()))


def test_training_follows_the_ramps(frozen, data):
    weights = Weights()
    settings = {"spread_weight": 0.8, "diversity_weight": (0.6, 1, 3), "max_epochs": 4}
    student(frozen, callbacks=[weights], **settings).fit(*data)
    expected = [(0.2, 0.0), (0.4, 0.0), (0.6, 0.3), (0.8, 0.6)]
    np.testing.assert_allclose(weights.seen, expected, atol=1e-6)


def test_the_defaults_are_a_faithful_student():
    params = HydraPlusRegressor().get_params()
    expected = {
        "alpha": 1.0,
        "beta": 0.5,
        "diversity_weight": 0.0,
        "spread_weight": 0.3,
        "transfer": "auto",
        "max_epochs": "auto",
    }
    assert {name: params[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (0.5, [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]),
        ((0.8, 1, 5), [0.0, 0.0, 0.2, 0.4, 0.6, 0.8]),
        ([0.8, 0, 2], [0.0, 0.4, 0.8, 0.8, 0.8, 0.8]),
    ],
)
def test_the_ramp_of_the_diversity_term(setting, expected):
    objective = objective_of(3, 3, n_epochs=6, diversity_weight=setting)
    weights = []
    for epoch in range(6):
        objective.begin_epoch(epoch)
        weights.append(objective.diversity_weight.item())
    assert weights == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("diversity", ["mean", "pairwise"])
def test_the_diversity_term_turns_heads_apart(diversity, frozen, data):
    def likeness(model):
        (weight,) = model.module_.network.head_weights()  # (1, M, units, fan in)
        pairs = itertools.combinations(weight[0], 2)
        return np.mean([torch.cosine_similarity(a, b, dim=-1).mean().item() for a, b in pairs])

    plain, ramped, constant = (
        student(frozen, diversity=diversity, diversity_weight=weight, max_epochs=30).fit(*data)
        for weight in (0.0, (0.1, 0, 40), 0.1)
    )
    assert likeness(constant) < likeness(ramped) < likeness(plain)


def test_weight_decay_shrinks_the_weights(frozen, data):
    norms = [
        sum(
            p.square().sum().item()
            for name, p in student(frozen, weight_decay=decay, max_epochs=40)
            .fit(*data)
            .module_.named_parameters()
            if "weight" in name
        )
        for decay in (0.0, 1.0)
    ]
    assert norms[1] < 0.5 * norms[0]


# ------------------------------------------------------------------------------------------
# Epochs
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_rows", "expected"),
    [
        (1, 400),
        (2000, 400),  # 2,000 rows 400 times are 800,000
        (2001, 399),
        (8000, 100),
        (12_345, 64),
        (16_000, 50),
        (16_001, 50),
        (10**9, 50),
    ],
)
def test_auto_shows_as_many_rows_whatever_their_number(n_rows, expected):
    assert HydraPlusRegressor()._count_epochs(n_rows) == expected
    assert HydraPlusRegressor(max_epochs=7)._count_epochs(n_rows) == 7


@pytest.mark.parametrize(
    ("params", "fit_params", "expected"),
    [
        ({}, {}, 14),  # 60 rows
        ({}, {"X_transfer": np.zeros((25, 3))}, 10),  # and 25
        ({"transfer_only": True}, {"X_transfer": np.zeros((25, 3))}, 34),
        ({}, {"sample_weight": np.tile([1.0, 0.0, 0.0], 20)}, 40),  # 20 clipped from 42
        ({"max_epochs": 3}, {}, 3),
    ],
)
def test_auto_counts_the_rows_learnt_from(params, fit_params, expected, frozen, data, monkeypatch):
    monkeypatch.setattr(_distiller, "_ROWS_SEEN", 850)
    monkeypatch.setattr(_distiller, "_EPOCHS_WITHIN", (1, 40))
    model = student(frozen, **{"max_epochs": "auto", **params}).fit(*data, **fit_params)
    assert model.n_epochs_ == len(model.history_) == expected


# ------------------------------------------------------------------------------------------
# Training, against a loop in a few lines of torch
# ------------------------------------------------------------------------------------------


def trained_by_hand(networks, X, members, divergence, max_epochs):
    """Full-batch Adam on a core and heads made of the networks' first and last layers."""
    core, heads = networks[0][:-1].double(), nn.ModuleList(net[-1].double() for net in networks)
    optimizer = torch.optim.Adam([*core.parameters(), *heads.parameters()], lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max_epochs)
    for _ in range(max_epochs):
        optimizer.zero_grad()
        outputs = torch.stack([head(core(X)) for head in heads])
        variances = nn.functional.softplus(outputs[..., 1]) + 1e-6
        divergence(members, Normal(outputs[..., 0], variances.sqrt())).mean().backward()
        optimizer.step()
        schedule.step()
    return core, heads


def divergence_from_matched(members, heads):
    return kl_divergence(matched(members), Normal(heads.mean[0], heads.stddev[0]))


IDENTITIES = {
    "Hydra": ({"beta": 1.0}, kl_divergence),
    "Hinton": ({"beta": 0.0, "n_heads": 1}, divergence_from_matched),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_training_equals_a_bare_loop(name, frozen, data):
    X, y = data
    settings, divergence = IDENTITIES[name]
    built: list[nn.Sequential] = []

    def build(in_features, out_features):
        first, second, last = nn.Linear(in_features, 8), nn.Linear(8, 6), nn.Linear(6, out_features)
        network = nn.Sequential(first, nn.Tanh(), second, nn.ReLU(), last)
        built.append(copy.deepcopy(network))
        return network

    model = HydraPlusRegressor(
        frozen,
        module=build,
        alpha=1.0,
        spread_weight=0.0,
        transfer=None,
        clip_norm=None,
        batch_size=60,
        max_epochs=40,
        random_state=0,
        **settings,
    ).fit(X, y)

    means, variances = np.moveaxis(frozen.predict_members(X)[:, :, 0], -1, 0)  # (n, N)
    teacher = Normal(
        torch.tensor((means.T - y.mean()) / y.std()), torch.tensor(np.sqrt(variances.T) / y.std())
    )
    built = built[1:]  # the first only tries the module out
    core, heads = trained_by_hand(built, torch.tensor(X), teacher, divergence, max_epochs=40)
    network = model.module_.network
    for layer in (0, 2):
        expected = core[layer].weight.detach().T
        torch.testing.assert_close(network.core[layer].weight[0].detach(), expected)
    for m, head in enumerate(heads):
        torch.testing.assert_close(network.heads[0].weight[0, m].detach(), head.weight.detach().T)
        torch.testing.assert_close(network.heads[0].bias[0, m, 0].detach(), head.bias.detach())


# ------------------------------------------------------------------------------------------
# Jitter
# ------------------------------------------------------------------------------------------


class Asked(RegressorMixin, BaseEstimator):
    """A regressor with two members that writes down the rows it is asked about."""

    def __init__(self, variance=1.0):
        self.variance = variance
        self.rows = []

    def __sklearn_clone__(self):
        return self

    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.zeros(len(X))

    def predict_members(self, X):
        self.rows.append(X)
        means = np.stack([X[:, 0], X[:, 0] + 1], axis=1)
        return np.stack([means, np.full_like(means, self.variance)], axis=-1)[:, :, None, :]


def test_noise_is_in_units_of_each_columns_deviation(data):
    X, y = data
    X = np.column_stack([X * [1.0, 10.0, 100.0], np.full(60, 3.0)])
    asked = Asked()
    student(asked, transfer=GaussianNoise(0.3), max_epochs=100, batch_size=60).fit(X, y)
    epochs = np.stack([rows for rows in asked.rows if len(rows) == 60])
    assert len(epochs) == 100
    noise = epochs - X
    shares = noise.std(axis=(0, 1))[:3] / X.std(axis=0)[:3]
    # Each row draws its share of the noise, the square of a uniform number: E[u^4] = 1/5.
    np.testing.assert_allclose(shares, 0.3 / np.sqrt(5), rtol=0.07)  # 4 standard errors
    np.testing.assert_array_equal(noise[..., 3], 0.0)
    np.testing.assert_allclose(noise.mean(axis=(0, 1))[:3] / X.std(axis=0)[:3], 0.0, atol=0.02)
    assert len(np.unique(epochs[:, 0, 0])) == 100


def test_without_noise_the_teacher_is_asked_once_about_each_row(data):
    asked = Asked()
    student(asked, transfer=None, batch_size=20).fit(*data)
    assert sum(len(rows) for rows in asked.rows if len(rows) > 1) == 60


# ------------------------------------------------------------------------------------------
# Fidelity
# ------------------------------------------------------------------------------------------


def test_spread_matching_makes_the_epistemic_part_faithful():
    def draw(n, seed):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, 3))
        noise = 0.2 + 0.6 * (X[:, 0] > 0)
        return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + noise * rng.normal(size=n)

    X, y = draw(250, seed=0)
    X_test, y_test = draw(1000, seed=1)
    relu = {"module__activation": "relu"}
    teacher = ensemble(n_members=8, max_epochs=50, module__hidden_units=(50,), **relu).fit(X, y)
    truth = teacher.predict_uncertainty(X_test)
    rank, ratio = {}, {}
    for spread_weight in (0.0, 1.0):
        model = student(
            FrozenEstimator(teacher),
            spread_weight=spread_weight,
            max_epochs=200,
            module__hidden_units=(96,),
            **relu,
        ).fit(X, y)
        parts = model.predict_uncertainty(X_test)
        rank[spread_weight] = stats.spearmanr(truth.epistemic, parts.epistemic).statistic
        ratio[spread_weight] = np.median(parts.epistemic / truth.epistemic)
        # Whatever the spread, mean and total variance follow the teacher's.
        assert np.corrcoef(model.predict(X_test), teacher.predict(X_test))[0, 1] > 0.97
        assert np.median(parts.total / truth.total) == pytest.approx(1.0, abs=0.15)
    assert rank[1.0] > rank[0.0] + 0.05
    assert rank[1.0] > 0.75
    assert ratio[0.0] < 0.6
    assert 0.65 < ratio[1.0] < 1.35
    assert model.score(X_test, y_test) == pytest.approx(teacher.score(X_test, y_test), abs=0.05)


def test_several_targets(data):
    X, y = data
    Y = np.column_stack([y, 100 * X[:, 0], X[:, 1] ** 2])
    model = student(
        ensemble(max_epochs=30), max_epochs=100, module__hidden_units=(32,), spread_weight=0.0
    ).fit(X, Y)
    teacher = model.teacher_.predict(X)
    error = ((model.predict(X) - teacher) ** 2).mean(axis=0) / teacher.var(axis=0)
    assert (error < 0.1).all()
    assert model.predict_members(X).shape == (60, 3, 3, 2)


# ------------------------------------------------------------------------------------------
# Ctrl-C, divergence, unusual input
# ------------------------------------------------------------------------------------------


@pytest.fixture
def interrupted(ctrl_c):
    """Fit a model until Ctrl-C comes in step number `at`."""

    def fit(data, teacher, at, **params):
        settings = {"optimizer": ctrl_c, "optimizer__at": at, "batch_size": 20, "device": "cpu"}
        model = student(teacher, **{**settings, **params})
        with pytest.raises(KeyboardInterrupt):
            model.fit(*data)
        return model

    return fit


def test_ctrl_c_keeps_the_student_as_trained_so_far(frozen, data, interrupted):
    model = interrupted(data, frozen, at=8)  # in the third epoch
    assert [("train_loss" in row) for row in model.history_] == [True, True, False]
    assert model.predict(data[0]).shape == (60,)
    assert model.n_parameters_ > 0


def test_ctrl_c_before_the_end_of_the_first_epoch_keeps_the_teacher_only(data, interrupted):
    model = interrupted(data, ensemble(), at=2)
    with pytest.raises(NotFittedError):
        model.predict(data[0])
    assert model.teacher_.predict(data[0]).shape == (60,)


def test_ctrl_c_while_the_teacher_learns(data, ctrl_c):
    teacher = ensemble(optimizer=ctrl_c, optimizer__at=8, batch_size=20, device="cpu")
    model = student(teacher)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*data)
    with pytest.raises(NotFittedError):
        model.predict(data[0])


def test_a_student_that_diverges_says_so_and_keeps_its_teacher(data):
    model = student(ensemble(), optimizer="SGD", lr=1e6, clip_norm=None)
    with pytest.raises(ValueError, match=r"student's loss.*smaller lr than 1000000\.0.*teacher_"):
        model.fit(*data)
    assert model.teacher_.predict(data[0]).shape == (60,)
    with pytest.raises(NotFittedError):
        model.predict(data[0])


@pytest.mark.parametrize("fails", ["data", "module", "teacher"])
def test_a_second_fit_that_fails_leaves_nothing_of_the_first(fails, data):
    X, y = data
    model = student(ensemble()).fit(X, y)
    if fails == "module":
        model.set_params(head_layers=9)
    if fails == "teacher":
        model.set_params(teacher=ensemble(n_members=0))
    with pytest.raises(ValueError, match=r"Input y contains NaN|head_layers|n_members"):
        model.fit(X, np.full(60, np.nan) if fails == "data" else y)
    assert not {"module_", "teacher_"} & vars(model).keys()
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_few_rows(n, data):
    X, y = data
    model = student(ensemble()).fit(X[:n], y[:n])
    assert np.isfinite(model.predict_members(X)).all()


def test_constant_y_and_a_column_of_constants(data):
    X = np.column_stack([data[0], np.full(60, 2.0)])
    model = student(ensemble(max_epochs=50), max_epochs=50).fit(X, np.full(60, 7.0))
    np.testing.assert_allclose(model.predict(X), 7.0, atol=0.3)
    assert (model.predict_uncertainty(X).total > 0).all()


def test_the_same_seed_gives_the_same_student(frozen, data):
    X, y = data
    first, second, other = (student(frozen, random_state=seed).fit(X, y) for seed in (0, 0, 1))
    assert_same_members(first, second, X)
    assert (first.predict(X) != other.predict(X)).all()


@pytest.mark.parametrize("transfer", [None, GaussianNoise(0.3)])
def test_working_memory_bounds_the_questions_and_changes_nothing(transfer, frozen, data):
    X, y = data
    settings = {"transfer": transfer, "batch_size": 20}
    plain = student(frozen, **settings).fit(X, y)
    with config_context(working_memory=0.001):  # some twenty rows of three members
        bounded = student(frozen, **settings).fit(X, y)
    if transfer is None:
        assert_same_members(bounded, plain, X)
    assert np.isfinite(bounded.predict(X)).all()
