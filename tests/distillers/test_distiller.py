# SPDX-License-Identifier: BSD-3-Clause
"""What the distillers share: teachers, answers out of fold or given, transfer samples, weights."""

from __future__ import annotations

import warnings
from inspect import signature
from typing import ClassVar

import joblib
import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.ensemble import (
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch.callbacks import Callback

from skdistill import DistributionDistiller, predict_members
from skdistill._engine import StreamedRows
from skdistill._training.trainer import learning_rate_for
from skdistill.distillers import _spec, _student
from skdistill.modules import MLP, stack
from skdistill.settings import Heads, HydraLoss, Runtime
from skdistill.transfer import GaussianNoise, Mixup, TransferOnly, TransferSet


def assert_same_members(first, second, X, **tolerance):
    np.testing.assert_allclose(first.predict_members(X), second.predict_members(X), **tolerance)


@pytest.fixture
def rows_learnt(monkeypatch):
    """Fit a model, and return the samples that each student in it was to learn from at first."""

    def fit(model, *args, **kwargs):
        caught = []
        original = _student.training_rows

        def spy(*spied):
            rows, total_weight = original(*spied)
            of_epoch = rows.stretches(0) if isinstance(rows, StreamedRows) else [rows]
            caught.append(of_epoch[0])
            return rows, total_weight

        with monkeypatch.context() as patch:
            patch.setattr(_student, "training_rows", spy)
            model.fit(*args, **kwargs)
        return caught

    return fit


class Witness(BaseEstimator):
    """Two members that tell samples they were fitted on from others; notes what it is asked."""

    def fit(self, X, y, sample_weight=None):
        self.rows_ = np.asarray(X)
        self.asked_ = []
        return self

    def predict(self, X):
        raise NotImplementedError

    def _is_known(self, X):
        self.asked_.append(X)
        return (np.asarray(X)[:, None] == self.rows_).all(axis=-1).any(axis=1)


class WitnessClassifier(ClassifierMixin, Witness):
    """Gives its first class, the last in the alphabet, .8 where it knows the sample, else .2."""

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.unique(y)[::-1]
        return super().fit(X, y)

    def predict_members(self, X):
        first = np.where(self._is_known(X), 0.8, 0.2)
        others = (1 - first) / (len(self.classes_) - 1)
        columns = [first, *[others] * (len(self.classes_) - 1)]
        return np.repeat(np.stack(columns, axis=-1)[:, None], 2, axis=1)


class WitnessRegressor(RegressorMixin, Witness):
    """Gives 1 where it knows the sample, else 0."""

    def predict_members(self, X):
        mean = np.repeat(self._is_known(X).astype(float)[:, None], 2, axis=1)
        return np.stack([mean, np.ones_like(mean)], axis=-1)[:, :, None]


@pytest.fixture
def witness(task):
    return WitnessClassifier() if task.is_classification else WitnessRegressor()


def says_known(answers):
    """What a witness has said of each sample, from its answers as losses take them."""
    told = answers[:, 0, -1] if answers.ndim == 3 else answers[:, 0, 0, 0]
    return told > (np.log(0.5) if answers.ndim == 3 else 0.5)


def plain(task):
    """Settings with which answers reach the loss unscaled."""
    return {} if task.is_classification else {"normalize": "X"}


# --- Teachers ---------------------------------------------------------------------------------


def test_an_unfitted_teacher_is_cloned(task):
    teacher = task.ensemble(module__hidden_units=(5,))
    before = repr(vars(teacher))
    model = task.student(teacher).fit(*task.data)
    assert repr(vars(teacher)) == before
    assert model.teacher is teacher
    assert model.teacher_ is not teacher
    assert_same_members(model.teacher_, clone(teacher).fit(*task.data), task.X)


def test_a_frozen_teacher_is_used_as_it_is(frozen, task):
    before = frozen.estimator.predict_members(task.X)
    model = task.student(frozen).fit(*task.data)
    assert model.teacher_ is frozen
    np.testing.assert_array_equal(frozen.estimator.predict_members(task.X), before)


@pytest.mark.parametrize("wrap", [lambda t: t, lambda t: make_pipeline(StandardScaler(), t)])
def test_a_teacher_of_the_other_kind_is_refused(wrap, task):
    X = task.X
    other, y, kinds = LogisticRegression(), np.repeat([0, 1], 30), ("regressor", "classifier")
    if task.is_classification:
        other, y, kinds = LinearRegression(), X[:, 0], kinds[::-1]
    other = wrap(other)
    name = type(other).__name__
    message = f"teacher must be a {kinds[0]} to teach {task.Student.__name__}; {name} is a"
    with pytest.raises(ValueError, match=f"{message} {kinds[1]}"):
        task.student(other).fit(*task.data)
    with pytest.raises(ValueError, match=f"is a {kinds[1]}"):
        task.student(FrozenEstimator(other.fit(X, y))).fit(*task.data)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("wrap", [lambda t: t, lambda t: make_pipeline(StandardScaler(), t)])
def test_a_teacher_that_knows_columns_by_name_is_asked_without_warnings(wrap, library, task):
    X, y = task.data
    frames = pytest.importorskip(library)
    frame = frames.DataFrame(dict(zip("abc", X.T, strict=True)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = task.student(wrap(task.ensemble())).fit(frame, y)
        frozen = task.student(FrozenEstimator(model.teacher_)).fit(frame, y)
        unnamed = task.student(wrap(task.ensemble())).fit(X, y)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(model.predict_members(frame), unnamed.predict_members(X), rtol=1e-6)
    assert frozen.predict(frame).shape == (60,)


def test_a_seed_reaches_what_the_teacher_left_open(task):
    X, y = task.data
    teacher = make_pipeline(StandardScaler(), task.ensemble(random_state=None))
    first, second, other = (
        task.student(teacher, random_state=seed).fit(X, y) for seed in (0, 0, 1)
    )
    assert_same_members(first, second, X)
    members, others = (predict_members(model.teacher_, X) for model in (first, other))
    assert (members != others).all()
    own = task.student(task.ensemble(random_state=5), random_state=0).fit(X, y)
    assert own.teacher_.random_state == 5
    assert task.student(teacher, random_state=None).fit(X, y).teacher_[-1].random_state is None


# --- Member predictions instead of a teacher --------------------------------------------------


@pytest.fixture
def members(frozen, task):
    return frozen.predict_members(task.X)


@pytest.mark.parametrize("weight", [None, np.tile([1.0, 2.0, 0.0], 20)], ids=["", "weighted"])
@pytest.mark.parametrize("as_given", [np.asarray, np.ndarray.tolist], ids=["array", "list"])
def test_member_predictions_are_as_good_as_the_teacher(as_given, weight, frozen, members, task):
    X, y = task.data
    told = task.student(None).fit(X, y, sample_weight=weight, member_predictions=as_given(members))
    taught = task.student(frozen, transfer=None).fit(X, y, sample_weight=weight)
    assert_same_members(told, taught, X, rtol=1e-12)
    assert not hasattr(told, "teacher_")


@pytest.mark.parametrize("distil", ["heads", "family"])
def test_the_default_learns_the_variance_without_bias(distil, members, task):
    """Three members, widened by hand so that the variance has a divisor of 2, are the same."""
    spread = np.sqrt(3 / 2)
    if task.is_classification:
        logits = np.log(members)
        centre = logits.mean(axis=1, keepdims=True)
        widened = softmax(centre + spread * (logits - centre), axis=-1)
    else:
        widened = members.copy()
        means = members[..., 0]
        centre = means.mean(axis=1, keepdims=True)
        widened[..., 0] = centre + spread * (means - centre)

    def fitted(ddof, known):
        model = task.student(None)
        if distil == "family":
            kind = "classifier" if task.is_classification else "regressor"
            shared = {"max_epochs": 5, "normalize": "y", "random_state": 0}
            model = DistributionDistiller(kind, module__hidden_units=(8,), **shared)
        return model.set_params(ddof=ddof).fit(*task.data, member_predictions=known)

    student, by_hand = fitted(1, members), fitted(0, widened)
    assert signature(type(student)).parameters["ddof"].default == 1
    for found, expected in zip(
        *(model.predict_uncertainty(task.X) for model in (student, by_hand)), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_second_fit_of_another_kind_leaves_nothing_of_the_first(classification, regression):
    small = {"max_epochs": 1, "module__hidden_units": (4,)}
    model = DistributionDistiller(RandomForestClassifier(2), **small).fit(*classification.data)
    model.set_params(teacher=RandomForestRegressor(2), family="gaussian").fit(*regression.data)
    fresh = DistributionDistiller(RandomForestRegressor(2), **small).fit(*regression.data)
    assert vars(model).keys() == vars(fresh).keys()
    with pytest.raises(ValueError, match="X_transfer must have"):
        model.fit(*regression.data, X_transfer=np.zeros((2, 9)))
    assert not {"module_", "teacher_", "n_members_", "flops_"} & vars(model).keys()


def assert_answers_belong_to_their_rows(rows, members, task):
    index = [np.flatnonzero((row == task.X).all(axis=1)).item() for row in rows.X.numpy()]
    found = rows.predictions.exp().numpy() if task.is_classification else rows.predictions.numpy()
    np.testing.assert_allclose(found, members[index])


@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: make_pipeline(StandardScaler(), m)])
def test_member_predictions_are_routed_as_metadata(wrap, members, task, rows_learnt):
    with config_context(enable_metadata_routing=True):
        model = task.student(None, max_epochs=1, **plain(task))
        model = wrap(model.set_fit_request(member_predictions=True))
        search = GridSearchCV(model, {}, cv=3, error_score="raise")
        learnt = rows_learnt(search, *task.data, member_predictions=members)
    assert [len(rows) for rows in learnt] == [40, 40, 40, 60]
    for rows in learnt:
        if not isinstance(model, Pipeline):  # which has scaled the samples
            assert_answers_belong_to_their_rows(rows, members, task)


# --- Answers out of fold ----------------------------------------------------------------------


HALVES = [(np.arange(30), np.arange(30, 60)), (np.arange(30, 60), np.arange(30))]


@pytest.mark.parametrize("cv", [3, KFold(4), HALVES], ids=["number", "splitter", "pairs"])
def test_answers_come_from_teachers_that_have_not_seen_the_row(cv, witness, task, rows_learnt):
    X, y = task.data
    model = task.student(witness, teacher_cv=cv, transfer=None, **plain(task))
    (rows,) = rows_learnt(model, X, y)
    np.testing.assert_array_equal(rows.X.numpy(), X)
    assert not says_known(rows.predictions).any()
    assert len(model.teacher_.rows_) == 60
    (rows,) = rows_learnt(task.student(witness, transfer=None, **plain(task)), X, y)
    assert says_known(rows.predictions).all()


@pytest.mark.parametrize("transfer", ["auto", "noise", "munge", Mixup()])
def test_the_teacher_of_all_rows_answers_for_rows_that_are_made(
    transfer, witness, task, rows_learnt, monkeypatch
):
    X, y = task.data
    model = task.student(witness, teacher_cv=3, transfer=transfer, **plain(task))
    # Witnesses know samples to the last digit.
    monkeypatch.setattr("skdistill._engine.drawn_rows", lambda rows, draw, seed: rows)
    (rows,) = rows_learnt(model, X, y)
    assert says_known(rows.predictions).tolist() == [False] * 60 + [True] * 60
    assert rows.targets[1].tolist() == [1.0] * 60 + [0.0] * 60


def test_a_class_missing_from_a_fold_has_no_probability(classification, rows_learnt):
    X, y = classification.data
    y = np.where(np.arange(60) < 10, "yew", y)  # in the first fold only
    model = classification.student(classification.ensemble(), teacher_cv=KFold(6))
    (rows,) = rows_learnt(model, X, y)
    ruled_out = rows.predictions[..., 3].isinf()
    assert ruled_out[:10].all()
    assert not ruled_out[10:60].any()
    assert np.isfinite(model.predict_log_proba(X)).all()


# --- Grid search and memory -------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "as_path"), [(None, False), (0, True)])
@pytest.mark.slow
def test_memory_fits_each_teacher_once_per_fold(seed, as_path, task, tmp_path):
    counted = task.counting_ensemble()
    memory = str(tmp_path) if as_path else joblib.Memory(tmp_path, verbose=0)
    grid = {"module__hidden_units": [(4,), (4, 4)], "heads": [1, 3]}
    model = task.student(counted, memory=memory, max_epochs=1, random_state=seed)
    search = GridSearchCV(model, grid, cv=3, error_score="raise").fit(*task.data)
    assert counted.n_fits == 3 + 1
    assert search.best_estimator_.teacher_.predict(task.X).shape == (60,)
    search.fit(*task.data)
    assert counted.n_fits == 3 + 1


def test_memory_tells_teachers_data_and_weights_apart(task, tmp_path):
    X, y = task.data
    counted = task.counting_ensemble()
    model = task.student(counted, memory=str(tmp_path), max_epochs=1)
    model.fit(X, y).fit(X, y)
    assert counted.n_fits == 1
    model.fit(X, y, sample_weight=np.arange(60.0))
    model.fit(X, y[::-1].copy())
    clone(model).set_params(teacher__lr=0.1).fit(X, y)
    assert counted.n_fits == 4


# --- Transfer samples -------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [np.asarray, TransferSet, np.ndarray.tolist])
def test_transfer_rows_are_appended_without_labels(wrap, frozen, further, task, rows_learnt):
    (rows,) = rows_learnt(task.student(frozen), *task.data, X_transfer=wrap(further))
    np.testing.assert_array_equal(rows.X.numpy(), np.concatenate([task.X, further]))
    labels, labelled = rows.targets
    assert labelled.tolist() == [1.0] * 60 + [0.0] * 25
    if task.is_classification:
        assert np.unique(task.y)[labels[:60].numpy()].tolist() == task.y.tolist()
    else:
        expected = (task.y - task.y.mean()) / task.y.std()
        np.testing.assert_allclose(labels[:60, 0].numpy(), expected)
    assert rows.weight is None


def test_labels_of_transfer_rows_are_never_used(frozen, further, task):
    settings = {
        "loss": HydraLoss(teacher_weight=0.0, spread_weight=0.0),
        "transfer": None,
        "batch_size": 100,
    }
    only_labels = task.student(frozen, **settings)
    with_rows = clone(only_labels).fit(*task.data, X_transfer=further)
    without = clone(only_labels).fit(*task.data)
    # The loss is a mean over 85 samples instead of 60, which Adam does not notice.
    assert_same_members(with_rows, without, task.X, rtol=1e-4)


# --- Samples that are made --------------------------------------------------------------------


def asked_in_training(model):
    """Samples that the teacher was asked about in training, all batches together."""
    return np.concatenate([rows for rows in model.teacher_.asked_ if len(rows) > 1])


def test_noise_is_in_units_of_each_columns_deviation(task, witness):
    X, y = np.column_stack([task.X * [1.0, 10.0, 100.0], np.full(60, 3.0)]), task.y
    model = task.student(witness, transfer=GaussianNoise(0.3), max_epochs=25)
    copies = asked_in_training(model.fit(X, y)).reshape(20, 60, 4)
    np.testing.assert_array_equal(copies[0], X)
    noise = copies[1:] - X
    shares = noise.std(axis=(0, 1))[:3] / X.std(axis=0)[:3]
    # Each sample draws its share of the noise, the square of a uniform number: E[u^4] = 1/5.
    np.testing.assert_allclose(shares, 0.3 / np.sqrt(5), rtol=0.16)  # 4 standard errors
    np.testing.assert_array_equal(noise[..., 3], 0.0)
    np.testing.assert_allclose(noise.mean(axis=(0, 1))[:3] / X.std(axis=0)[:3], 0.0, atol=0.02)
    assert len(np.unique(copies[:, 0, 0])) == 20


def test_auto_draws_no_rows_for_numbers_on_large_tables(witness, task, monkeypatch):
    monkeypatch.setattr(_spec, "_MANY_ROWS", 59)
    model = task.student(witness, batch_size=20).fit(*task.data)
    is_asked_once = np.array_equal(asked_in_training(model), task.X)
    assert is_asked_once != task.is_classification


@pytest.mark.parametrize("transfer", ["mixup", "munge", Mixup(0.5)])
def test_made_rows_come_on_top_without_labels(transfer, task, witness, further, rows_learnt):
    settings = {"max_epochs": 2, "module__embeddings": None}
    model = task.student(witness, transfer=transfer, **settings)
    (rows,) = rows_learnt(model, *task.data, X_transfer=further)
    assert len(rows) == 2 * 85
    assert rows.targets[1].tolist() == [1.0] * 60 + [0.0] * 110
    # One epoch, copied, as the next batch overwrites the last one.
    batches = [(X[0].clone(), labelled[0] == 1) for X, ((_, _, labelled), _) in rows]
    dealt, is_labelled = (torch.cat(parts).numpy() for parts in zip(*batches, strict=True))
    is_known = (dealt[:, None] == np.concatenate([task.X, further])).all(axis=-1).any(axis=1)
    assert is_known[is_labelled].all()  # labels stand for samples as they are
    assert 25 <= is_known[~is_labelled].sum() < 60  # munge leaves some as they are


@pytest.mark.parametrize("transfer", ["mixup", "munge"])
@pytest.mark.parametrize("given", [False, True])
def test_made_rows_alone(given, transfer, task, witness, further):
    model = task.student(witness, transfer=TransferOnly(transfer), max_epochs=2)
    model.fit(*task.data, X_transfer=further if given else None)
    source = further if given else task.X
    asked = asked_in_training(model)
    assert len(asked) == 2 * len(source)
    assert model.teacher_._is_known(asked).mean() < 0.3
    if transfer != "munge":  # which draws from normals
        assert (asked >= source.min(axis=0)).all()
        assert (asked <= source.max(axis=0)).all()


# --- Weights ----------------------------------------------------------------------------------


def test_weights_go_to_the_teacher_and_to_the_loss(frozen, task):
    X, y = task.data
    weight = np.linspace(0.1, 3, 60)
    model = task.student(task.ensemble(), transfer=None).fit(X, y, sample_weight=weight)
    assert_same_members(model.teacher_, task.ensemble().fit(X, y, sample_weight=weight), X)
    weighted = task.student(frozen, transfer=None).fit(X, y, sample_weight=weight)
    unweighted = task.student(frozen, transfer=None).fit(X, y)
    assert (weighted.predict_members(X) != unweighted.predict_members(X)).all()


# --- Epochs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_inputs", "rate"), [(10, 0.01), (150, 0.01), (600, 0.0025)])
def test_auto_takes_smaller_steps_where_units_have_many_inputs(n_inputs, rate):
    network = stack([MLP(n_inputs, 2, hidden_units=(16,))])
    assert learning_rate_for("auto", network) == pytest.approx(rate)
    assert learning_rate_for("auto", network, low_noise_factor=4.0) == pytest.approx(rate / 4)
    assert learning_rate_for(0.3, network, low_noise_factor=4.0) == 0.3


def encoded(means, variances):
    """Predictions of M members for n samples and one target, from arrays of (n, M) by broadcast."""
    return np.stack(np.broadcast_arrays(means, variances), axis=-1)[:, :, None].astype(float)


@pytest.mark.parametrize(
    ("means", "variances", "weight", "expected"),
    [
        ([[0, 0]], [[3e-3, 3e-3]], [1], 1),
        ([[0, 0]], [[0.5, 0.5]], [1], 1),
        ([[5, 5]], [[1e-5, 3e-3 / 8 - 1e-5]], [1], 2),  # the mean is 3e-3 / 16
        ([[-0.01, 0.01]], [[3e-3 / 16 - 1e-4] * 2], [1], 2),  # 1e-4 of which is epistemic
        ([[0, 0]] * 2, [[3e-3] * 2, [3e-3 / 256] * 2], [1, 1], 2),  # the geometric mean of samples
        ([[0, 0]] * 2, [[3e-3] * 2, [3e-3 / 256] * 2], [3, 1], 2**0.5),
        ([[0, 0]], [[0, 0]], [1], 4),
    ],
)
def test_auto_is_finer_where_the_teacher_predicts_little_variance(
    means, variances, weight, expected
):
    found = _student.low_noise_factor(encoded(means, variances), np.array(weight))
    assert found == pytest.approx(expected, abs=0.005)


class Rates(Callback):
    """Notes the learning rate at the beginning of each epoch."""

    seen: ClassVar[list[float]] = []

    def on_train_begin(self, net, **kwargs):
        self.seen.clear()

    def on_epoch_begin(self, net, **kwargs):
        self.seen.append(net.optimizer_.param_groups[0]["lr"])


@pytest.mark.parametrize("family", ["gaussian", "mixture", "latent_factor"])
def test_students_of_teachers_without_noise_are_trained_finer(family, regression):
    X, y = regression.data
    members = np.stack([y, np.full_like(y, 1e-9 * y.var())], axis=-1)[:, None, None]
    members = np.repeat(members, 2, axis=1)
    members[:, 1, :, 0] += 1e-5 * y.std()
    settings = {"module__hidden_units": (4,), "family": family, "random_state": 0}
    student = DistributionDistiller("regressor", callbacks=[Rates()], **settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_student, "_SEEN_PER_ROOT", 110)  # 14 epochs of 60 samples
        patch.setattr(_student, "_EPOCHS_WITHIN", (1, 24))
        student.fit(X, y, member_predictions=members)
        assert student.n_epochs_ == len(Rates.seen) == 114
        assert Rates.seen[0] == student.net_.lr == 0.01 / 4
        # With little time left, training is as fine, and has as many epochs as that allows.
        student.set_params(max_time=0.05).fit(X, y, member_predictions=members)
        assert 1 <= student.n_epochs_ < 114
        # Steps are smaller by no more than there are more epochs for them.
        student.set_params(max_time=None, max_epochs=28).fit(X, y, member_predictions=members)
        assert student.net_.lr == pytest.approx(0.01 / 2)


@pytest.mark.parametrize(
    ("params", "fit_params", "expected"),
    [
        ({}, {}, 14),  # 60 samples
        ({}, {"X_transfer": np.zeros((25, 3))}, 12),  # and 25
        ({"transfer": TransferOnly("auto")}, {"X_transfer": np.zeros((25, 3))}, 22),
        ({"transfer": "mixup"}, {}, 10),  # and 60 that are made
        ({}, {"sample_weight": np.tile([1.0, 0.0, 0.0], 20)}, 24),  # 20 clipped from 25
        ({"max_epochs": 3}, {}, 3),
    ],
)
def test_auto_counts_the_rows_learnt_from(params, fit_params, expected, frozen, task, monkeypatch):
    monkeypatch.setattr(_student, "_SEEN_PER_ROOT", 110)
    monkeypatch.setattr(_student, "_EPOCHS_WITHIN", (1, 24))
    model = task.student(frozen, **{"max_epochs": "auto", **params}).fit(*task.data, **fit_params)
    assert model.n_epochs_ == len(model.history_) == expected


# --- Ctrl-C, divergence, unusual input --------------------------------------------------------


@pytest.fixture
def interrupted(ctrl_c, task):
    """Fit a student until Ctrl-C comes in step number `at`."""

    def fit(teacher, at):
        settings = {
            "optimizer": ctrl_c,
            "optimizer__at": at,
            "batch_size": 20,
            "runtime": Runtime(device="cpu"),
        }
        model = task.student(teacher, **settings)
        with pytest.raises(KeyboardInterrupt):
            model.fit(*task.data)
        return model

    return fit


def test_ctrl_c_keeps_the_student_as_trained_so_far(frozen, task, interrupted):
    model = interrupted(frozen, at=8)  # in the third epoch
    assert [("train_loss" in row) for row in model.history_] == [True, True, False]
    assert model.predict(task.X).shape == (60,)
    assert model.n_parameters_ > 0


@pytest.mark.parametrize("teacher_cv", [None, 3])
def test_ctrl_c_while_the_teacher_learns(teacher_cv, task, ctrl_c):
    teacher = task.ensemble(
        optimizer=ctrl_c, optimizer__at=8, batch_size=20, runtime=Runtime(device="cpu")
    )
    model = task.student(teacher, teacher_cv=teacher_cv)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*task.data)
    with pytest.raises(NotFittedError):
        model.predict(task.X)


@pytest.mark.parametrize("fails", ["data", "module", "teacher", "members"])
def test_a_second_fit_that_fails_leaves_nothing_of_the_first(fails, task):
    X, y = task.data
    model = task.student(task.ensemble()).fit(X, y)
    given = {}
    if fails == "data":
        X = np.full_like(X, np.nan)
    if fails == "module":
        model.set_params(heads=Heads(head_layers=9))
    if fails == "teacher":
        model.set_params(teacher=task.ensemble(n_members=0))
    if fails == "members":
        model.set_params(teacher=None)
        given = {"member_predictions": np.zeros(3)}
    with pytest.raises(ValueError, match=r"contains NaN|head_layers|n_members|member_predictions"):
        model.fit(X, y, **given)
    assert not {"module_", "teacher_"} & vars(model).keys()
    with pytest.raises(NotFittedError):
        model.predict(task.X)


@pytest.mark.parametrize(
    "how",
    [*({"transfer": name} for name in ("noise", "mixup", "munge")), {"teacher_cv": 2}],
    ids=str,
)
def test_the_student_does_not_depend_on_working_memory(how, task, frozen, tally):
    # What is drawn in the places of the samples depended on how many answers fit the memory.
    settings = {"max_epochs": 1, "batch_size": 10, "module__hidden_units": (4,), "random_state": 0}
    for Student in (task.Student, DistributionDistiller):
        teacher = task.ensemble(max_epochs=1) if "teacher_cv" in how else frozen
        model = Student(teacher, **settings, **how).fit(*task.data)
        with config_context(working_memory=0.001):
            bounded = clone(model).fit(*task.data)
        found, expected = (m.predict_uncertainty(task.X).total for m in (bounded, model))
        np.testing.assert_allclose(found, expected, rtol=1e-7)
        tally("fits under a small working_memory")
