# SPDX-License-Identifier: BSD-3-Clause
"""Costs against what is counted by hand, the choice of the cheapest student against its rule."""

from __future__ import annotations

import pickle
import time

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_iris, make_regression
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Lasso, Ridge
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    RandomizedSearchCV,
    ShuffleSplit,
    StratifiedKFold,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn_checks import cases_of

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    HydraPlusRegressor,
    predict_uncertainty,
)
from skdistill.metrics import get_scorer as scorer_of
from skdistill.model_selection import (
    CheapestStudentSearchCV,
    CheapestWithin,
    cross_val_predict_uncertainty,
    flops,
    latency,
    make_cost_scorer,
    n_parameters,
    nondominated,
    pareto_front,
)
from skdistill.modules import ConvNet
from skdistill.samplers import DeepEnsemble
from skdistill.transfer import TransferSet


@pytest.fixture(scope="module")
def data():
    return make_regression(40, 4, noise=5.0, random_state=0)


@pytest.fixture(scope="module")
def ensemble(data):
    """Three networks of 4 -> 5 -> 2, and nothing else."""
    model = BayesianEnsembleRegressor(
        3, max_epochs=1, module__hidden_units=(5,), distance_aware=False, random_state=0
    )
    return model.fit(*data)


N_WEIGHTS = 4 * 5 + 5 * 2
N_PARAMETERS = N_WEIGHTS + 5 + 2


# --- costs ----------------------------------------------------------------------------------


def test_of_an_ensemble_by_hand(ensemble, data):
    assert n_parameters(ensemble) == 3 * N_PARAMETERS
    assert flops(ensemble, data[0]) == 3 * 2 * N_WEIGHTS  # a product and a sum for each weight


def test_of_a_student_by_hand(ensemble, data):
    student = HydraPlusRegressor(
        FrozenEstimator(ensemble), max_epochs=1, module__hidden_units=(6, 5), transfer=None
    ).fit(*data)
    core, heads = 4 * 6 + 6 * 5, (3 + 1) * 5 * 2  # the last is the gain
    assert flops(student, data[0]) == 2 * (core + heads)
    assert n_parameters(student) == student.n_parameters_ == core + heads + 6 + 5 + (3 + 1) * 2


def test_of_convolutions_by_hand():
    X = np.random.default_rng(0).normal(size=(20, 6, 6))
    model = BayesianEnsembleClassifier(
        2, module=ConvNet, module__channels=(3,), module__hidden_units=(4,), max_epochs=1
    ).fit(X, np.arange(20) % 2)
    one = 2 * (3 * 9 * 36 + 27 * 4 + 4 * 2)  # 3 x 3 at 36 pixels, pooled to 3 x 3
    assert flops(model, X) == 2 * one


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: make_pipeline(StandardScaler(), model),
        lambda model: make_pipeline(None, make_pipeline("passthrough", model)),
        lambda model: TransformedTargetRegressor(model, transformer=StandardScaler()),
        lambda model: GridSearchCV(model, {"lr": [0.01]}, cv=2),
    ],
)
def test_seen_through_meta_estimators(wrap, ensemble, data):
    model = FrozenEstimator(wrap(clone(ensemble)).fit(*data))
    assert n_parameters(model) == 3 * N_PARAMETERS
    assert flops(model, data[0]) == 3 * 2 * N_WEIGHTS
    assert make_cost_scorer(n_parameters)(model, *data) == -3 * N_PARAMETERS
    assert make_cost_scorer(flops)(model, data[0]) == -3 * 2 * N_WEIGHTS
    assert make_cost_scorer(latency)(model, *data) < 0


def test_a_pipeline_may_change_the_number_of_columns(ensemble, data):
    class Doubling(BaseEstimator):
        def fit(self, X, y=None):
            self.fitted_ = True
            return self

        def transform(self, X):
            return np.hstack([X, X])

    model = make_pipeline(Doubling(), clone(ensemble)).fit(*data)
    assert flops(model, data[0]) == 3 * 2 * (8 * 5 + 5 * 2)


@pytest.mark.parametrize("cost", [n_parameters, flops])
def test_models_without_networks(cost, data):
    with pytest.raises(
        TypeError, match=f"Ridge has no module_; skdistill.model_selection.{cost.__name__}"
    ):
        cost(Ridge().fit(*data), data[0])


class Sleeper(BaseEstimator):
    """Takes a millisecond for a sample, and ten times that the first two times."""

    n_calls, seen = 0, ()

    def predict(self, X):
        self.n_calls += 1
        self.seen = (*self.seen, (len(X), torch.get_num_threads()))
        time.sleep(1e-3 * len(X) * (10 if self.n_calls <= 2 else 1))


@pytest.mark.parametrize("make", [np.asarray, pd.DataFrame, lambda X: X.tolist()])
def test_latency_is_the_median_of_calls_on_one_thread(make, data):
    model = Sleeper()
    n_threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = latency(model, make(data[0][:3]), batch_size=5, n_repeats=4)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(n_threads)
    assert 5e-3 <= found < 40e-3
    assert model.seen == ((5, 1),) * 5


@pytest.mark.parametrize("name", ["batch_size", "n_repeats"])
def test_latency_of_nothing(name, ensemble, data):
    with pytest.raises(ValueError, match=f"{name} must be an integer >= 1, got 0"):
        latency(ensemble, data[0], **{name: 0})


def test_wide_networks_take_longer(data):
    models = [
        BayesianEnsembleRegressor(1, max_epochs=1, module__hidden_units=(width, width)).fit(*data)
        for width in (8, 1000)
    ]
    small, large = (latency(model, data[0], batch_size=512, n_repeats=5) for model in models)
    assert small < large


def test_scorers_are_pickled_and_shown():
    scorer = pickle.loads(pickle.dumps(make_cost_scorer(latency, batch_size=7)))
    assert repr(scorer) == "EstimatorScorer(neg_cost, cost=latency, batch_size=7)"
    assert repr(make_cost_scorer(flops)) == "EstimatorScorer(neg_cost, cost=flops)"
    assert make_cost_scorer(lambda model, X: 3)(None, None) == -3.0


# --- the front ------------------------------------------------------------------------------


def test_front_against_all_pairs():
    rng = np.random.default_rng(0)
    costs, scores = rng.integers(0, 8, size=(2, 60)).astype(float)
    found = nondominated(costs, scores)

    def is_beaten(i):
        is_as_good = (costs <= costs[i]) & (scores >= scores[i])
        return (is_as_good & ((costs < costs[i]) | (scores > scores[i]))).any()

    expected = {(costs[i], scores[i]) for i in range(60) if not is_beaten(i)}
    assert {(costs[i], scores[i]) for i in found} == expected
    assert len(found) == len(expected), "equal ones once"
    assert (np.diff(costs[found]) > 0).all()
    assert (np.diff(scores[found]) > 0).all()


def test_what_is_no_number_is_not_on_the_front():
    nan = np.nan
    assert nondominated([1, 2, nan, 4], [nan, 0.5, 0.9, 0.6]).tolist() == [1, 3]
    assert nondominated([nan], [1.0]).tolist() == []
    assert nondominated([], []).tolist() == []


def test_shapes_that_differ():
    with pytest.raises(ValueError, match=r"same shape.*\(2,\) and \(3,\)"):
        nondominated([1, 2], [1, 2, 3])


RESULTS = {
    "params": [{}] * 5,
    "split0_test_score": [0.80, 0.94, 0.96, 0.97, np.nan],
    "split1_test_score": [0.80, 0.86, 0.92, 0.91, np.nan],
    "mean_test_score": [0.80, 0.90, 0.94, 0.94, np.nan],
    "mean_test_neg_n_parameters": [-1.0, -2.0, -30.0, -40.0, -0.5],
    "mean_fit_time": [5.0, 4.0, 3.0, 2.0, 1.0],
}


def test_front_of_a_search():
    assert pareto_front(RESULTS).tolist() == [0, 1, 2]
    assert pareto_front(RESULTS, cost="mean_fit_time").tolist() == [3]


def test_columns_that_are_not_there():
    message = r"no metric or column 'neg_flops'; it has \['mean_fit_time', 'neg_n_par.*', 'score'\]"
    with pytest.raises(ValueError, match=message):
        pareto_front(RESULTS, cost="neg_flops")
    with pytest.raises(ValueError, match="no metric or column 'accuracy'"):
        pareto_front(RESULTS, score="accuracy")


# --- the rule -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "tolerance", "expected"),
    [
        ("absolute", 0.0, 2),  # two are best, the cheaper of them
        ("absolute", 0.039, 2),
        ("absolute", 0.041, 1),
        ("absolute", 1.0, 0),
        ("relative", 0.042, 2),  # of .94: down to .9005
        ("relative", 0.043, 1),
        # Folds of the best, .96 and .92: deviation .02 sqrt(2), standard error .02.
        ("standard_error", 1.0, 2),
        ("standard_error", 1.99, 2),
        ("standard_error", 2.01, 1),
    ],
)
def test_rule_by_hand(unit, tolerance, expected):
    assert CheapestWithin(tolerance=tolerance, unit=unit)(RESULTS) == expected


def test_rule_for_scores_that_are_negative():
    results = {"mean_test_score": [-1.0, -1.09, -1.2], "mean_test_neg_n_parameters": [-3, -2, -1]}
    rule = CheapestWithin(tolerance=0.1, unit="relative")
    assert rule(results) == 1
    assert type(rule(results)) is int


def test_of_equally_cheap_ones_the_best():
    results = {"mean_test_score": [0.8, 0.9, 0.85], "mean_test_neg_n_parameters": [-1, -1, -1]}
    assert CheapestWithin(tolerance=1.0, unit="absolute")(results) == 1


def test_one_fold_has_no_standard_error():
    results = {k: v for k, v in RESULTS.items() if "split1" not in k}
    with pytest.raises(ValueError, match="needs two folds or more, got 1"):
        CheapestWithin()(results)


def test_nothing_but_nan():
    results = {"mean_test_score": [np.nan], "mean_test_neg_n_parameters": [-1]}
    with pytest.raises(ValueError, match="No candidate has both a score and a cost"):
        CheapestWithin(unit="absolute")(results)


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"tolerance": -1.0}, ValueError, "tolerance"),
        ({"tolerance": np.nan}, TypeError, "tolerance"),
        ({"tolerance": "1"}, TypeError, "tolerance"),
        ({"unit": "percent"}, ValueError, "unit must be one of"),
    ],
)
def test_rules_that_are_none(params, error, message, data):
    with pytest.raises(error, match=message):
        CheapestWithin(**params)
    search = CheapestStudentSearchCV(Ridge(), {"alpha": [1.0]}, cost=alpha_cost, **params)
    with pytest.raises(error, match=message):
        search.fit(*data)


GRID = {"module__hidden_units": [(30,), (3,), (10,)]}
SCORING = {
    "nll": scorer_of("neg_log_loss"),
    "accuracy": "accuracy",
    "size": make_cost_scorer(n_parameters),
}


@pytest.mark.parametrize(
    "search", [GridSearchCV, lambda *args, **kw: RandomizedSearchCV(*args, n_iter=3, **kw)]
)
def test_rule_in_the_searches_of_scikit_learn(search):
    rule = CheapestWithin(cost="size", score="accuracy", tolerance=1.0, unit="absolute")
    model = BayesianEnsembleClassifier(2, max_epochs=2, random_state=0)
    found = search(model, GRID, scoring=SCORING, refit=rule, cv=2).fit(*load_iris(return_X_y=True))
    assert found.best_params_ == {"module__hidden_units": (3,)}
    assert pickle.loads(pickle.dumps(clone(found))).refit.cost == "size"
    assert pareto_front(found.cv_results_, cost="size", score="nll")[0] == found.best_index_


# --- the search -----------------------------------------------------------------------------


class AlphaCost:
    """Cost of a linear model for the tests: the smaller alpha or C, the dearer."""

    def __call__(self, estimator, X):
        return -estimator.alpha if hasattr(estimator, "alpha") else -estimator.C

    def __eq__(self, other):
        return type(other) is AlphaCost

    def __hash__(self):
        return 0

    def __repr__(self):  # a function's has its address, which differs between pytest's workers
        return "alpha_cost"


alpha_cost = AlphaCost()


SEARCHES = [
    CheapestStudentSearchCV(
        estimator, grid, cost=alpha_cost, cv=2, error_score="raise", unit="absolute"
    )
    for estimator, grid in (
        (Lasso(), {"alpha": [1e-3, 1e-2]}),
        (LinearSVC(), {"C": [0.1, 1.0]}),
    )
]


def failing(search):
    """As scikit-learn has it for GridSearchCV."""
    is_regressor = hasattr(search.estimator, "alpha")
    return {"check_supervised_y_2d": "DataConversionWarning not caught"} if is_regressor else {}


@pytest.mark.parametrize(("estimator", "check"), cases_of(SEARCHES, failing=failing))
def test_sklearn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


def small_classifier():
    params = {"max_epochs": 30, "distance_aware": False, "random_state": 0}
    inference = DeepEnsemble(bootstrap=False)
    return BayesianEnsembleClassifier(2, inference=inference, **params)


def test_chooses_the_cheapest_within_the_tolerance(iris):
    search = CheapestStudentSearchCV(
        small_classifier(), GRID, scoring="neg_log_loss", tolerance=0.2, unit="absolute", cv=3
    ).fit(*iris)
    results = search.cv_results_
    scores, costs = results["mean_test_score"], -results["mean_test_neg_n_parameters"]
    assert costs.tolist() == [2 * (4 * w + w + 3 * w + 3) for w in (30, 3, 10)]
    is_close = scores >= scores.max() - 0.2
    assert is_close.sum() == 2, "the smallest is to be too bad"
    assert search.best_index_ == np.argmin(np.where(is_close, costs, np.inf)) == 2
    assert search.best_score_ == scores[2]
    assert (
        search.best_cost_
        == costs[2]
        == n_parameters(search)
        == n_parameters(search.best_estimator_)
    )
    assert search.best_params_ == {"module__hidden_units": (10,)}
    assert search.get_params()["scoring"] == "neg_log_loss"
    assert search.refit is True
    assert search.score(*iris) == scorer_of("neg_log_loss")(search.best_estimator_, *iris)
    assert search.predict(iris[0]).tolist() == search.best_estimator_.predict(iris[0]).tolist()


@pytest.mark.slow
def test_no_tolerance_is_a_grid_search(iris):
    params = {"scoring": "neg_log_loss", "cv": 3}
    search = CheapestStudentSearchCV(small_classifier(), GRID, tolerance=0.0, **params).fit(*iris)
    plain = GridSearchCV(small_classifier(), GRID, **params).fit(*iris)
    assert search.best_index_ == plain.best_index_
    assert search.best_score_ == plain.best_score_
    assert search.score(*iris) == plain.score(*iris)
    assert search.multimetric_ is False
    for key in plain.cv_results_.keys() - {"params"}:
        if "time" not in key:
            np.testing.assert_array_equal(search.cv_results_[key], plain.cv_results_[key])


def test_without_refit(iris):
    search = CheapestStudentSearchCV(
        small_classifier(), GRID, refit=False, tolerance=9, unit="absolute", cost="flops", cv=2
    ).fit(*iris)
    assert search.best_params_ == {"module__hidden_units": (3,)}
    assert search.best_cost_ == 2 * 2 * (4 * 3 + 3 * 3)
    assert not hasattr(search, "best_estimator_")
    with pytest.raises(AttributeError, match="has no attribute 'predict'"):
        search.predict(iris[0])


@pytest.mark.parametrize("scoring", [["accuracy", "neg_log_loss"], {"a": "accuracy"}])
def test_several_scores(scoring, iris):
    name = next(iter(scoring))
    search = CheapestStudentSearchCV(
        small_classifier(), GRID, scoring=scoring, refit=name, tolerance=9, unit="absolute", cv=2
    ).fit(*iris)
    assert search.best_params_ == {"module__hidden_units": (3,)}
    assert search.multimetric_ is True
    assert search.score(*iris) == search.best_estimator_.score(*iris)
    with pytest.raises(
        ValueError, match="refit must be the name of the score that matters, one of"
    ):
        clone(search).set_params(refit=True).fit(*iris)


def test_latency_as_the_cost(iris):
    search = CheapestStudentSearchCV(small_classifier(), GRID, cost="latency", cv=2).fit(*iris)
    assert 0 < search.best_cost_ < 1
    assert "mean_test_neg_latency" in search.cv_results_


def test_weights_of_rows_are_scored_and_routed(iris):
    weight = np.arange(150.0)
    search = CheapestStudentSearchCV(small_classifier(), GRID, cv=2)
    unrouted = search.fit(*iris, sample_weight=weight).cv_results_
    with sklearn.config_context(enable_metadata_routing=True):
        model = small_classifier()
        model.set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        routed = clone(search).set_params(estimator=model).fit(*iris, sample_weight=weight)
    assert (routed.cv_results_["mean_test_score"] != 0).all()
    assert unrouted["mean_test_neg_n_parameters"].tolist() == (
        routed.cv_results_["mean_test_neg_n_parameters"].tolist()
    )


@pytest.mark.parametrize("cost", ["size", 3, None])
def test_costs_that_are_none(cost, iris):
    search = CheapestStudentSearchCV(small_classifier(), GRID, cost=cost)
    with pytest.raises(ValueError, match=r"cost must be one of \['n_param.* or callable"):
        search.fit(*iris)


def test_copies_of_the_fitted_search(iris):
    search = CheapestStudentSearchCV(small_classifier(), GRID, cv=2).fit(*iris)
    copied = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(copied.predict_proba(iris[0]), search.predict_proba(iris[0]))
    assert copied.best_cost_ == search.best_cost_
    assert "best_index_" not in vars(clone(search))


# --- cross-validation -----------------------------------------------------------------------


def small_ensemble(n_members=3, kind=BayesianEnsembleRegressor):
    return kind(n_members, max_epochs=2, module__hidden_units=(5,), random_state=0)


def left_out(model, X, y, folds, of_step="", weight=None):
    """Uncertainty of samples by models that are fitted without their fold, written out."""
    parts = np.empty((3, *y.shape)) if y.dtype == float else np.empty((3, len(y)))
    for train, test in folds:
        params = {} if weight is None else {f"{of_step}sample_weight": weight[train]}
        fitted = clone(model).fit(X[train], y[train], **params)
        for part, found in zip(parts, predict_uncertainty(fitted, X[test]), strict=True):
            part[test] = found
    return parts


def assert_parts(found, expected, measure="variance"):
    assert found.measure == measure
    for part, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(part, wanted)


def test_rows_are_predicted_by_fits_without_them(data):
    X, y = data
    folds = KFold(3, shuffle=True, random_state=0)
    expected = left_out(small_ensemble(), X, y, folds.split(X))
    model = small_ensemble()
    assert_parts(cross_val_predict_uncertainty(model, X, y, cv=folds), expected)
    assert not hasattr(model, "n_features_in_")
    in_fit = small_ensemble().fit(X, y).predict_uncertainty(X).total
    assert not np.allclose(expected[0], in_fit)


def test_weights_reach_the_last_step_of_a_pipeline(data):
    X, y = data
    model = make_pipeline(StandardScaler(), small_ensemble())
    weight, of_step = np.linspace(0.1, 2, len(y)), "bayesianensembleregressor__"
    params = {f"{of_step}sample_weight": weight}
    found = cross_val_predict_uncertainty(model, X, y, cv=3, params=params)
    folds = list(KFold(3).split(X))
    assert_parts(found, left_out(model, X, y, folds, of_step, weight))
    assert not np.allclose(found.total, left_out(model, X, y, folds)[0])


def test_weights_and_groups_are_routed(data):
    X, y = data
    weight, groups = np.linspace(0.1, 2, len(y)), np.arange(len(y)) % 4
    folds = list(GroupKFold(2).split(X, y, groups))
    found = cross_val_predict_uncertainty(
        small_ensemble(), X, y, cv=GroupKFold(2), groups=groups, params={"sample_weight": weight}
    )
    expected = left_out(small_ensemble(), X, y, folds, weight=weight)
    assert_parts(found, expected)
    with sklearn.config_context(enable_metadata_routing=True):
        model = make_pipeline(small_ensemble().set_fit_request(sample_weight=True))
        routed = {"sample_weight": weight, "groups": groups}
        found = cross_val_predict_uncertainty(model, X, y, cv=GroupKFold(2), params=routed)
        assert_parts(found, expected)
        with pytest.raises(ValueError, match=r"sample_weight.*are passed but"):
            cross_val_predict_uncertainty(small_ensemble(), X, y, params={"sample_weight": weight})


def test_folds_of_classes_are_stratified():
    X, y = load_iris(return_X_y=True)
    X, y = X[::3], np.array(["rose", "iris", "aster"])[y[::3]]  # sorted: KFold would lose classes
    model = small_ensemble(kind=BayesianEnsembleClassifier)
    found = cross_val_predict_uncertainty(model, X, y, cv=3)
    assert_parts(found, left_out(model, X, y, StratifiedKFold(3).split(X, y)), "entropy")


def test_frames_and_several_targets_and_one_network(data):
    X, y = data
    Y = np.column_stack([y, -y])
    found = cross_val_predict_uncertainty(small_ensemble(), pd.DataFrame(X).add_prefix("x"), Y)
    assert_parts(found, left_out(small_ensemble(), X, Y, KFold(5).split(X)))
    total, aleatoric, epistemic = cross_val_predict_uncertainty(small_ensemble(1), X, Y, cv=2)
    assert total.shape == Y.shape
    assert aleatoric is None
    assert epistemic is None


def test_transfer_rows_are_those_of_every_fold(data):
    X, y = data
    student = HydraPlusRegressor(small_ensemble(), max_epochs=20, random_state=0)
    rows = TransferSet(X[:7] + 1)
    found = cross_val_predict_uncertainty(student, X, y, cv=2, params={"X_transfer": rows})
    for train, test in KFold(2).split(X):
        fitted = clone(student).fit(X[train], y[train], X_transfer=rows)
        np.testing.assert_array_equal(found.total[test], fitted.predict_uncertainty(X[test]).total)


def test_rows_must_be_left_out_once(data):
    with pytest.raises(ValueError, match="only works for partitions"):
        cross_val_predict_uncertainty(small_ensemble(), *data, cv=ShuffleSplit(2, random_state=0))


def test_models_without_uncertainty_are_named(data):
    with pytest.raises(TypeError, match="Ridge has no predict_uncertainty"):
        cross_val_predict_uncertainty(Ridge(), *data)


@pytest.mark.parametrize("cost", [flops, latency])
@pytest.mark.parametrize(
    ("X", "error"), [(None, TypeError), ({}, TypeError), (3, TypeError), ([], ValueError)]
)
def test_costs_need_samples(cost, X, error, data):
    model = BayesianEnsembleRegressor(2, max_epochs=1, module__hidden_units=(4,)).fit(*data)
    with pytest.raises(error, match="X must "):
        cost(model, X)
    with pytest.raises(ValueError, match="X must have at least one sample"):
        cost(model, data[0][:0])


def test_flops_of_one_dimension_are_refused(data):
    model = BayesianEnsembleRegressor(2, max_epochs=1, module__hidden_units=(4,)).fit(*data)
    with pytest.raises(ValueError, match="X must have samples and features"):
        flops(model, data[0][0])


@pytest.mark.parametrize("cost", [np.nan, "flops"])
def test_a_cost_that_cannot_be_called_is_named(cost):
    with pytest.raises(TypeError, match="cost must be callable"):
        make_cost_scorer(cost)
