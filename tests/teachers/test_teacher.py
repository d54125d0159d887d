# SPDX-License-Identifier: BSD-3-Clause
"""Teachers against what their models predict, variances by hand, and every error."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    cross_val_predict,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn_checks import cases_of

from skdistill import BayesianEnsembleRegressor, HydraPlusClassifier, HydraPlusRegressor, teachers
from skdistill.teachers import Teacher, out_of_fold_members

# Members as their models have them; test_epistemic_scale.py is about the scale.
as_teacher = partial(teachers.as_teacher, epistemic_scale=None)

LABELS = np.array(["ash", "elm", "oak"])
N_TREES = 12


def trees(cls, **params):
    return cls(n_estimators=N_TREES, random_state=0, **params)


# --- Classifiers ------------------------------------------------------------------------------

VOTERS = [("nb", GaussianNB()), ("tree", DecisionTreeClassifier(max_depth=3, random_state=0))]

CLASSIFIERS = {
    "forest": (trees(RandomForestClassifier), N_TREES),
    "weighted forest": (trees(RandomForestClassifier, class_weight="balanced"), N_TREES),
    "bagging": (BaggingClassifier(max_features=0.6, n_estimators=7, random_state=0), 7),
    "bagging of votes": (BaggingClassifier(LinearSVC(), n_estimators=3, random_state=0), 3),
    "bagging of few samples": (
        BaggingClassifier(KNeighborsClassifier(1), n_estimators=9, max_samples=3, random_state=0),
        9,
    ),
    "weighted voting": (VotingClassifier(VOTERS, voting="soft", weights=[0.75, 0.25]), 4),
    "voting of one": (
        VotingClassifier([*VOTERS, ("no", "drop")], voting="soft", weights=[0, 2, 9]),
        1,
    ),
    "AdaBoost": (AdaBoostClassifier(n_estimators=5, random_state=0), 1),
    "one tree": (DecisionTreeClassifier(max_depth=2, random_state=0), 1),
    "pipeline in a search in a pipeline": (
        make_pipeline(
            StandardScaler(),
            GridSearchCV(
                make_pipeline(StandardScaler(), trees(ExtraTreesClassifier)),
                {"extratreesclassifier__max_depth": [2]},
                cv=2,
            ),
        ),
        N_TREES,
    ),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_mean_over_members_is_the_models_own_prediction(name, classes):
    model, n_members = CLASSIFIERS[name]
    X, y = classes
    teacher = as_teacher(model).fit(X, y)
    members = teacher.predict_members(X)
    assert members.shape == (len(X), n_members, 3)
    assert teacher.n_members_ == n_members
    own = clone(model).fit(X, y)
    assert_allclose(members.mean(axis=1), own.predict_proba(X), atol=1e-12)
    assert_allclose(teacher.predict_proba(X), own.predict_proba(X), atol=1e-12)
    assert_array_equal(teacher.predict(X), own.predict(X))
    assert_array_equal(teacher.classes_, LABELS)
    assert teacher.score(X, y) == own.score(X, y)


def test_members_that_have_not_seen_a_class_give_it_no_probability(classes):
    X, y = classes
    bag = CLASSIFIERS["bagging of few samples"][0]
    teacher = as_teacher(bag).fit(X, y)
    seen = [set(member.classes_) for member in teacher.estimator_.estimators_]
    assert any(len(codes) < 3 for codes in seen)
    members = teacher.predict_members(X)
    for member, codes in enumerate(seen):
        assert set(np.flatnonzero(members[:, member].any(axis=0))) <= codes
    assert_allclose(members.sum(axis=-1), 1)


def test_hard_voters_give_all_probability_to_their_class(classes):
    X, y = classes
    model = VotingClassifier([*VOTERS, ("svm", LinearSVC())], voting="hard", weights=[2, 1, 1])
    teacher = as_teacher(model).fit(X, y)
    members = teacher.predict_members(X)
    assert members.shape == (len(X), 4, 3)
    votes = np.stack([voter.predict(X) for voter in teacher.estimator_.estimators_], axis=1)
    assert_array_equal(members.argmax(axis=-1), votes[:, [0, 0, 1, 2]])
    assert set(np.unique(members)) == {0, 1}
    assert_array_equal(teacher.predict(X), teacher.estimator_.predict(X))


# --- Regressors -------------------------------------------------------------------------------

REGRESSORS = {
    "extra trees": (trees(ExtraTreesRegressor, min_samples_leaf=3), N_TREES),
    "bagging": (BaggingRegressor(max_features=0.6, n_estimators=7, random_state=0), 7),
    "weighted voting": (
        VotingRegressor([("a", Ridge()), ("b", KNeighborsRegressor())], weights=[1, 2]),
        3,
    ),
    "AdaBoost": (AdaBoostRegressor(n_estimators=4, random_state=0), 1),
    "transformed target": (
        TransformedTargetRegressor(Ridge(), transformer=StandardScaler()),
        1,
    ),
    "pipeline": (make_pipeline(StandardScaler(), trees(RandomForestRegressor)), N_TREES),
    "search": (GridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=2), 1),
}


ONE = {"voting", "weighted voting", "AdaBoost", "histograms"}  # take one target


@pytest.mark.parametrize(
    ("name", "n_targets"),
    [(name, 0) for name in REGRESSORS] + [(name, 2) for name in REGRESSORS if name not in ONE],
)
def test_the_mean_over_members_is_the_models_own_mean(name, n_targets, numbers):
    model, n_members = REGRESSORS[name]
    X, y = numbers
    if n_targets:
        y = np.stack([y, X[:, 0] - y], axis=1)
    teacher = as_teacher(model).fit(X, y)
    members = teacher.predict_members(X)
    assert members.shape == (len(X), n_members, max(n_targets, 1), 2)
    own = clone(model).fit(X, y).predict(X)
    assert_allclose(members[..., 0].mean(axis=1).reshape(own.shape), own)
    assert_allclose(teacher.predict(X), own)
    assert (members[..., 1] > 0).all()


def test_residual_variance_by_cross_validation(numbers):
    X, y = numbers
    teacher = as_teacher(Ridge()).fit(X, y)
    folds = KFold(5, shuffle=True, random_state=0)
    expected = np.mean((y - cross_val_predict(Ridge(), X, y, cv=folds)) ** 2)
    assert_allclose(teacher.residual_variance_, [expected])
    assert_allclose(teacher.predict_members(X)[..., 1], expected)
    assert_allclose(teacher.predict_uncertainty(X).total, expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_residual_variance_out_of_bag(weighted, numbers):
    X, y = numbers
    weight = np.random.default_rng(0).uniform(0.5, 2, len(y)) if weighted else None
    model = RandomForestRegressor(60, oob_score=True, random_state=0)
    teacher = as_teacher(make_pipeline(StandardScaler(), model)).fit(X, y, sample_weight=weight)
    held_out = teacher.estimator_[-1].oob_prediction_
    expected = np.average((y - held_out) ** 2, weights=weight)
    assert_allclose(teacher.residual_variance_, [expected])


def test_variance_of_leaves_by_hand():
    X = np.array([[0.0], [0.0], [0.0], [0.0], [1.0]])
    y = np.array([1.0, 2.0, 3.0, 6.0, 10.0])
    teacher = as_teacher(DecisionTreeRegressor(max_depth=1)).fit(X, y)
    residual = teacher.residual_variance_[0]
    # Leaf at 0: mean 3, variance (4 + 1 + 0 + 9) / 4 = 3.5, of four samples; at 1: one sample.
    members = teacher.predict_members(np.array([[0.0], [1.0]]))[:, 0, 0]
    assert_allclose(members, [[3, 3.5 + residual / 4], [10, residual]])


# --- max_members ------------------------------------------------------------------------------


def test_mixtures_of_members_keep_mean_and_total(classes, numbers):
    for model, (X, y) in [
        (trees(RandomForestClassifier), classes),
        (trees(RandomForestRegressor, min_samples_leaf=3), numbers),
    ]:
        every = as_teacher(model).fit(X, y)
        some = as_teacher(model, max_members=4).fit(X, y)
        assert some.n_members_ == 4
        assert_allclose(some._members(X, 1), every._members(X, 1), rtol=1e-10, atol=1e-12)
        whole, grouped = every.predict_uncertainty(X), some.predict_uncertainty(X)
        assert_allclose(grouped.total, whole.total, rtol=1e-10)
        assert (grouped.epistemic <= whole.epistemic * (1 + 1e-9) + 1e-12).all()


# --- batch_size -------------------------------------------------------------------------------

ASKED: list[int] = []


class Counted:
    """Notes about how many samples each call asks."""

    def predict(self, X):
        ASKED.append(len(X))
        return super().predict(X)


class CountedLine(Counted, LinearRegression):
    pass


class CountedNeighbors(Counted, KNeighborsClassifier):
    def predict_proba(self, X):
        ASKED.append(len(X))
        return super().predict_proba(X)


@pytest.mark.parametrize("model", [CountedLine(), CountedNeighbors()])
def test_models_are_asked_about_so_many_samples_at_a_time(model, classes, numbers):
    """Memory of a model that learns in context grows with the samples it is asked about."""
    X, y = classes if is_classifier(model) else numbers
    whole, teacher = as_teacher(model).fit(X, y), as_teacher(model, batch_size=7)
    expected, unseen = whole.predict_members(X), out_of_fold_members(whole, X, y, random_state=0)
    kind = HydraPlusClassifier if is_classifier(model) else HydraPlusRegressor
    ASKED.clear()
    assert_allclose(teacher.fit(X, y).predict_members(X), expected)
    assert_allclose(out_of_fold_members(teacher, X, y, random_state=0), unseen)
    student = kind(teacher, max_epochs=2, teacher_cv=3, transfer="mixup", random_state=0)
    student.fit(X, y)
    assert max(ASKED) == 7
    assert sum(ASKED) > 4 * len(X)
    assert student.teacher_.get_params()["batch_size"] == 7


# --- Which models become what -----------------------------------------------------------------

ENSEMBLE = BayesianEnsembleRegressor(3, max_epochs=2, random_state=0)


@pytest.mark.parametrize(
    "model",
    [
        ENSEMBLE,
        make_pipeline(StandardScaler(), ENSEMBLE),
        GridSearchCV(ENSEMBLE, {"lr": [0.01, 0.02]}, cv=2),
        GridSearchCV(make_pipeline(StandardScaler(), ENSEMBLE), {}, cv=2),
        FrozenEstimator(ENSEMBLE),
        TransformedTargetRegressor(ENSEMBLE, transformer=StandardScaler()),
        make_pipeline(TransformedTargetRegressor(ENSEMBLE)),
        Teacher(LinearRegression()),
        make_pipeline(StandardScaler(), Teacher(LinearRegression())),
    ],
)
def test_what_has_members_is_returned_as_it_is(model):
    assert as_teacher(model) is model


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (RandomForestClassifier(), "classifier"),
        (GridSearchCV(make_pipeline(Ridge()), {}), "regressor"),
        (FrozenEstimator(GaussianNB()), "classifier"),
    ],
)
def test_a_teacher_is_what_its_model_is(model, kind):
    teacher = as_teacher(model)
    assert is_classifier(teacher) == (kind == "classifier")
    assert is_regressor(teacher) == (kind == "regressor")
    assert hasattr(teacher, "predict_proba") == (kind == "classifier")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (None, "teacher must be an estimator, or a list.*Got None"),
        (RandomForestClassifier, "teacher must be an estimator.*RandomForestClassifier"),
        (np.zeros(3), "teacher must be an estimator"),
        (make_pipeline(StandardScaler(), "passthrough"), "teacher must be an estimator.*passthr"),
        (StandardScaler(), "classifier or a regressor, and StandardScaler is neither"),
        (LinearSVC(), "probabilities, which LinearSVC does not.*CalibratedClassifierCV"),
        (make_pipeline(SVC()), "must predict probabilities, which SVC does not"),
    ],
)
def test_what_cannot_teach_is_named(model, message):
    with pytest.raises(TypeError, match=message):
        as_teacher(model)


# --- scikit-learn's contract, weights, frames -------------------------------------------------


TEACHERS = [
    as_teacher(VotingClassifier(VOTERS, voting="soft")),
    as_teacher(Ridge()),
]


@pytest.mark.parametrize(("estimator", "check"), cases_of(TEACHERS))
def test_sklearn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


MODELS_WITH_WEIGHTS = [
    Ridge(),
    make_pipeline(StandardScaler(), Ridge()),
    GridSearchCV(make_pipeline(StandardScaler(), Ridge()), {"ridge__alpha": [1.0]}, cv=2),
    make_pipeline(StandardScaler(), GridSearchCV(Ridge(), {"alpha": [1.0]}, cv=2)),
    make_pipeline(
        "passthrough",
        GridSearchCV(make_pipeline(StandardScaler(), Ridge()), {"ridge__alpha": [1.0]}, cv=2),
    ),
]


@pytest.mark.parametrize("model", MODELS_WITH_WEIGHTS)
def test_weights_reach_the_last_step(model, numbers):
    X, y = numbers
    weight = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    teacher = as_teacher(model).fit(X, y, sample_weight=weight)
    rows = X if isinstance(model, Ridge) else StandardScaler().fit_transform(X)
    assert_allclose(teacher.predict(X), Ridge().fit(rows, y, weight).predict(rows))


# --- CatBoost and LightGBM --------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_virtual_ensembles_of_catboost_classifiers(n_classes, classes):
    catboost = pytest.importorskip("catboost")
    X, y = classes
    y = np.where(y == "elm", "ash", y) if n_classes == 2 else y
    model = catboost.CatBoostClassifier(
        iterations=60, posterior_sampling=True, verbose=0, random_seed=0, allow_writing_files=False
    )
    teacher = as_teacher(model).fit(X, y)
    members = teacher.predict_members(X)
    assert members.shape == (len(X), 10, n_classes)
    settings = {"prediction_type": "TotalUncertainty", "virtual_ensembles_count": 10}
    referee = teacher.estimator_.virtual_ensembles_predict(X, **settings)
    total, aleatoric, _ = teacher.predict_uncertainty(X)
    assert_allclose(referee, np.stack([aleatoric, total], axis=1), rtol=1e-6)
    assert (teacher.predict(X) == teacher.estimator_.predict(X).ravel()).mean() > 0.9
    # The last virtual member is the whole model.
    assert_allclose(members[:, -1], teacher.estimator_.predict_proba(X), rtol=1e-6)


@pytest.mark.parametrize("loss", ["RMSE", "RMSEWithUncertainty", "MAE"])
def test_virtual_ensembles_of_catboost_regressors(loss, numbers):
    catboost = pytest.importorskip("catboost")
    X, y = numbers
    model = catboost.CatBoostRegressor(
        iterations=60, loss_function=loss, verbose=0, random_seed=0, allow_writing_files=False
    )
    teacher = as_teacher(model).fit(X, y)
    members = teacher.predict_members(X)
    own = teacher.estimator_.predict(X)
    if loss == "MAE":
        assert_allclose(members[:, 0, 0, 0], own)
        assert teacher.n_members_ == 1
        return
    referee = teacher.estimator_.virtual_ensembles_predict(
        X, prediction_type="TotalUncertainty", virtual_ensembles_count=10
    )
    _, aleatoric, epistemic = teacher.predict_uncertainty(X)
    assert_allclose(members[..., 0].mean(axis=1)[:, 0], referee[:, 0], rtol=1e-6)
    assert_allclose(epistemic, referee[:, 1], rtol=1e-6)
    if loss == "RMSE":
        assert_allclose(aleatoric, teacher.residual_variance_[0])
    else:
        assert teacher.residual_variance_ is None
        assert_allclose(aleatoric, referee[:, 2], rtol=1e-6)
