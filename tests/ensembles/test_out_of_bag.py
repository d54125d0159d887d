# SPDX-License-Identifier: BSD-3-Clause
"""Samples that members leave out: they have no influence, and calibrate and tune the ensemble."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from joblib import parallel_config
from scipy.optimize import minimize_scalar
from scipy.special import softmax
from scipy.stats import norm
from sklearn.base import clone
from small_models import assert_same_weights, weights

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
)
from skdistill._estimator.calibration import Temperature, fit_bias
from skdistill._method.task import TASKS
from skdistill._training.trainer import SEED_LIMIT
from skdistill.distributions import EmpiricalCategorical, EmpiricalGaussian
from skdistill.ensembles import _tuning
from skdistill.ensembles._out_of_bag import N_PARTS, OutOfBag, Parts
from skdistill.modules import PiecewiseLinear
from skdistill.samplers import DeepEnsemble
from skdistill.settings import Optimizer, Runtime

SMALL = {
    "max_epochs": 6,
    "module__hidden_units": (6,),
    "random_state": 0,
    "runtime": Runtime(device="cpu"),
}

ONE_KIND = {**SMALL, "module__embeddings": None}

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
NUMBERS = 5 + X @ [1.0, -2.0, 0.5] + 0.5 * RNG.normal(size=80)
LABELS = np.digitize(NUMBERS, [4.0, 6.0])
ENSEMBLES = [(BayesianEnsembleRegressor, NUMBERS), (BayesianEnsembleClassifier, LABELS)]


def parts_of(kind, y):
    """The parts that a fit to y with ``random_state=0`` draws."""
    task = TASKS[kind](np.unique(y)) if kind == "classifier" else TASKS[kind].check(y)[1]
    return Parts.drawn(task, y, np.random.RandomState(0).randint(SEED_LIMIT), n_networks=20)


# ------------------------------------------------------------------------------------------
# Who leaves out what
# ------------------------------------------------------------------------------------------


def test_every_tenth_member_leaves_out_a_row_in_another_partition():
    are_seen = parts_of("regressor", np.arange(100.0)).are_seen(range(20))
    for partition in (are_seen[:10], are_seen[10:]):
        np.testing.assert_array_equal((~partition).sum(0), 1)
    assert (are_seen[:10] != are_seen[10:]).any(1).all()


def test_two_members_leave_out_the_same_rows_of_all_classes_in_equal_shares():
    y = np.repeat([0, 1], [70, 30])
    are_seen = parts_of("classifier", y).are_seen(range(20))
    np.testing.assert_array_equal((~are_seen).sum(0), 2)
    np.testing.assert_array_equal(are_seen[::2], are_seen[1::2])
    for member in range(20):
        assert np.bincount(y[~are_seen[member]]).tolist() == [7, 3]


def test_on_large_tables_five_members_leave_out_the_same_rows(monkeypatch):
    monkeypatch.setattr("skdistill.ensembles._out_of_bag.MANY_ROWS", 100)
    are_seen = parts_of("regressor", np.arange(100.0)).are_seen(range(20))
    for first in (0, 5, 10, 15):
        np.testing.assert_array_equal(are_seen[first : first + 5], are_seen[[first] * 5])
    n_absent = (~are_seen).sum(0)
    assert sorted(set(n_absent)) == [0, 5]
    assert (n_absent == 5).sum() == 4 * 100 // N_PARTS


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"inference": DeepEnsemble(bootstrap=True)},
        {"n_jobs": 2, "runtime": Runtime(member_block=2)},
    ],
)
def test_rows_left_out_have_no_influence(params):
    y = NUMBERS.copy()
    left_out = parts_of("regressor", y).of_row[0] == 1
    y[left_out] += 100
    settings = {**SMALL, "normalize": "X", "inference": DeepEnsemble(calibrate="oob"), **params}
    first, second = (BayesianEnsembleRegressor(4, **settings).fit(X, t) for t in (NUMBERS, y))
    for name, value in weights(first).items():
        if name.startswith("network."):
            np.testing.assert_array_equal(weights(second)[name][1], value[1])
            assert (weights(second)[name][[0, 2, 3]] != value[[0, 2, 3]]).any()


# ------------------------------------------------------------------------------------------
# Calibration
# ------------------------------------------------------------------------------------------


def raw_members(ensemble, X=X):
    """What members predict without calibration and functions."""
    module = ensemble.module_
    ensemble.module_ = copy.copy(module)
    ensemble.module_.calibration = ensemble.module_.functions = None
    members = ensemble.predict_members(X)
    ensemble.module_ = module
    return members


def out_of_bag(ensemble, y, X=X):
    """Members' predictions of each sample by the two of 20 that have left it out, (n, 2, ...)."""
    left_out = ~parts_of(ensemble._kind, y).are_seen(range(20)).T
    members = raw_members(ensemble, X)
    return np.stack([of_row[judging] for of_row, judging in zip(members, left_out, strict=True)])


@pytest.mark.parametrize("n", [80, 160])
def test_the_temperature_of_numbers_has_the_least_crps_on_rows_left_out(n):
    rows = np.random.default_rng(1).normal(size=(n, 3))
    y = rows @ [1.0, -2.0, 0.5] + np.random.default_rng(2).normal(size=n)
    ensemble = BayesianEnsembleRegressor(20, **ONE_KIND).fit(rows, y)
    mean, variance = np.moveaxis(out_of_bag(ensemble, y, rows)[:, :, 0], -1, 0) / y.std()
    variance /= y.std()  # of standardised targets
    members = raw_members(ensemble, rows)[:, :, 0, 0] / y.std()
    # Members k and k + 10 have the same noise: they differ by all else.
    apart = np.square(members[:, :10] - members[:, 10:]).mean() / 2
    spread = members.var(1, ddof=1)
    common = min(np.clip(1 - apart / spread.mean(), 0.1, 1) / 0.9, 1)
    stated = spread * (common * (1 - 1 / 20) + 1 / 2 - 1 / 20)
    functions = ensemble._recipe.functions  # members differ by them, too
    added = (functions.scale / y.std()) ** 2 * functions.left_out
    y = y / y.std()

    def loss(log_temperature):
        total = np.exp(log_temperature) * variance.mean(1) + stated + added
        std, centre = np.sqrt(total), mean.mean(1)
        z = (y - centre) / std
        crps = std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
        return crps.sum()

    best = np.exp(minimize_scalar(loss, bounds=(-3, 3), method="bounded").x)
    assert ensemble.calibration_.temperature == pytest.approx(best, rel=1e-3)
    assert ensemble.calibration_.spread == pytest.approx(common, rel=1e-6)
    assert 0.1 < common < 1


def test_the_temperature_of_classes_is_extrapolated_to_all_members():
    ensemble = BayesianEnsembleClassifier(20, **SMALL).fit(X, LABELS)
    log_probs = np.log(out_of_bag(ensemble, LABELS))

    def least(loss_of):  # logarithm of the temperature with the least log loss
        def loss(log_temperature):
            p = softmax(log_probs / np.exp(log_temperature), axis=-1)
            return loss_of(p[np.arange(len(X)), :, LABELS]) + log_temperature**2 / 2

        return minimize_scalar(loss, bounds=(-3, 3), method="bounded").x

    of_one = least(lambda p: -np.log(p).mean(1).sum())
    of_two = least(lambda p: -np.log(p.mean(1)).sum())
    assert of_one > of_two
    slope = 2 * (of_one - of_two)  # of the line through 1 and 1/2, taken to 1/20
    best = np.exp(of_two - slope * (1 / 2 - 1 / 20))
    assert ensemble.calibration_.temperature == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize("k", [2, 5])
def test_temperature_and_loss_of_many_members_are_told_by_few(k):
    rng = np.random.default_rng(0)
    n, n_members = 20_000, 20
    truth = rng.normal(size=(n, 3))  # logits, of which members are too sure
    logits = torch.from_numpy(3 * (truth + 0.5 * rng.normal(size=(n_members, n, 3))))
    y = (truth + rng.gumbel(size=(n, 3))).argmax(1)

    def found(n_judging, of_members):
        judging = EmpiricalCategorical.from_logits(logits[:n_judging])
        bag = OutOfBag(judging, torch.from_numpy(y), torch.ones(n, dtype=torch.float64))
        return np.array(
            [np.log(bag.temperature(of_members).temperature), bag.nll(None, of_members)]
        )

    best = found(n_members, n_members)
    assert (found(k, k) > best + [np.log(1.05), 0.01]).all()
    assert (abs(found(k, n_members) - best) < (found(k, k) - best) / 2).all()


@pytest.mark.parametrize(("error", "temperature"), [(0.07, 0.0275), (1e-4, 0.0125)])
def test_where_there_is_hardly_noise_the_epistemic_part_stays(error, temperature):
    rng = np.random.default_rng(0)
    mean = torch.zeros(1, 50_000, 1, dtype=torch.float64)
    y = torch.from_numpy(error * rng.normal(size=(50_000, 1)))
    spread = torch.full_like(y, 0.002)[None]  # which 1/4 of is what the noise is at least
    judged = EmpiricalGaussian(mean, mean + 0.04)
    found = OutOfBag(judged, y, torch.ones(50_000, dtype=torch.float64), spread).temperature(20)
    assert found.spread == 1
    # One of 20 members errs by 1 - 1/20 of their variance more than all, which state as much.
    total = 0.04 * 0.0275 + 0.002 * 2 * (1 - 1 / 20)
    assert total == pytest.approx(0.07**2)
    assert found.temperature == pytest.approx(temperature, rel=0.05)


def test_biases_bring_the_frequencies_of_classes_back():
    rng = np.random.default_rng(0)
    y = torch.from_numpy((rng.random(400) < 0.1).astype(int))
    logits = torch.from_numpy(rng.normal(size=(1, 400, 2)))
    weight = torch.ones(400, dtype=torch.float64)
    found = fit_bias(Temperature(2.0), EmpiricalCategorical.from_logits(logits), y, weight)
    mean = found(EmpiricalCategorical.from_logits(logits)).mean.mean(0).numpy()
    assert np.allclose(mean, softmax(logits[0] / 2 + torch.tensor(found.bias), axis=1).mean(0))
    # The gradient of the log loss with a normal prior is zero.
    frequencies = np.bincount(y, minlength=2) / 400
    expected = -np.array(found.bias) / (0.4**2 * 400)
    np.testing.assert_allclose(mean - frequencies, expected, atol=1e-7)
    assert abs(mean - frequencies).max() < 0.02


def test_every_target_has_its_temperature():
    y = np.column_stack([NUMBERS, RNG.normal(size=80)])
    found = BayesianEnsembleRegressor(10, **SMALL).fit(X, y)
    first, second = found.calibration_.temperature
    assert first != second
    calibrated = found.predict_uncertainty(X).aleatoric
    found.module_.calibration = None
    np.testing.assert_allclose(
        calibrated, found.predict_uncertainty(X).aleatoric * [first, second], rtol=1e-9
    )


def test_what_members_have_in_common_is_what_they_say_they_vary_by():
    y = np.column_stack([NUMBERS, RNG.normal(size=80)])
    found = BayesianEnsembleRegressor(20, distance_aware=False, **ONE_KIND).fit(X, y)
    spread = np.array(found.calibration_.spread)
    assert spread.shape == (2,)
    assert ((spread > 0.1) & (spread < 1)).all()
    mean, calibrated = found.predict(X), found.predict_uncertainty(X).epistemic
    found.module_.calibration = None
    epistemic = found.predict_uncertainty(X).epistemic
    np.testing.assert_allclose(calibrated, epistemic * spread, rtol=1e-9)
    np.testing.assert_allclose(mean, found.predict(X), rtol=1e-9)


@pytest.mark.parametrize(
    ("n_members", "params"),
    [
        (11, {}),  # one pair of members with the same draws says too little
        (20, {"inference": DeepEnsemble(bootstrap=False)}),
        (20, {"inference": DeepEnsemble(bootstrap=True)}),
    ],
)
def test_without_pairs_of_the_same_draws_members_vary_by_all_they_do(n_members, params):
    found = BayesianEnsembleRegressor(n_members, **{**SMALL, **params}).fit(X, NUMBERS)
    assert found.calibration_.spread == 1


# ------------------------------------------------------------------------------------------
# Two kinds of members
# ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_two_kinds():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 3))
    y = rows @ [1.0, -2.0, 0.5] + 0.5 * rng.normal(size=300)
    settings = {**SMALL, "max_epochs": 30, "distance_aware": False}
    return BayesianEnsembleRegressor(20, **settings).fit(rows, y), rows, y


def test_the_second_ten_of_twenty_members_are_smooth_and_without_bins(of_two_kinds):
    ensemble, rows, _ = of_two_kinds
    assert ensemble.calibration_.are_smooth == (False,) * 10 + (True,) * 10
    encoded = ensemble.module_.encode(torch.tensor(rows).float())
    weight = ensemble.module_.network[0].weight.detach()  # (S, n_inputs, n_units)
    assert encoded.shape[1] > 3
    assert (weight[10:, 3:] == 0).all()
    assert (weight[:10, 3:] != 0).any()
    outputs = ensemble.module_.outputs(torch.tensor(rows).float())
    for member, activation in ((0, torch.tanh), (19, torch.nn.functional.silu)):
        first, last = (ensemble.module_.network[k] for k in (0, -1))
        hidden = activation(encoded @ first.weight[member] + first.bias[member])
        expected = hidden @ last.weight[member] + last.bias[member]
        torch.testing.assert_close(outputs[member], expected, rtol=1e-5, atol=1e-5)


def test_predictions_of_two_kinds_are_weighted(of_two_kinds):
    ensemble, rows, y = of_two_kinds
    calibration, scale = ensemble.calibration_, y.std()
    means = raw_members(ensemble, rows)[:, :, 0, 0]
    kinds, w = (means[:, :10], means[:, 10:]), calibration.of_smooth
    assert 0.5 < w < 1  # the function is a plane
    centre = (1 - w) * kinds[0].mean(1) + w * kinds[1].mean(1)
    np.testing.assert_allclose(ensemble.predict(rows), centre, atol=1e-5 * scale)
    np.testing.assert_allclose(ensemble.predict(rows[:1]), centre[:1], atol=1e-5 * scale)
    within = (1 - w) * kinds[0].var(1) + w * kinds[1].var(1)
    apart = w * (1 - w) * np.square(kinds[0].mean(1) - kinds[1].mean(1))
    found = ensemble.predict_uncertainty(rows).epistemic
    np.testing.assert_allclose(found, calibration.spread * within + apart, rtol=1e-4)
    restored = pickle.loads(pickle.dumps(ensemble))
    np.testing.assert_array_equal(restored.predict(rows), ensemble.predict(rows))


def test_the_weight_of_a_kind_has_the_least_error_of_many_members():
    rng, n = np.random.default_rng(0), 4000
    y, spread = rng.normal(size=(n, 1)), np.array([0.2, 0.1])[:, None, None]
    bias = rng.normal(size=(2, n, 1)) * [[[0.5]], [[0.3]]]
    judges = y + bias + np.sqrt(spread) * rng.normal(size=(2, n, 1))
    judged = EmpiricalGaussian(torch.tensor(judges), torch.ones(2, n, 1, dtype=torch.float64))
    found = OutOfBag(
        judged,
        torch.tensor(y),
        torch.ones(n, dtype=torch.float64),
        spreads=torch.tensor(spread * np.ones((2, n, 1))),
        common=torch.tensor([0.33]),
        weights=(0.5, 0.5),
        apart=torch.tensor(np.square(bias[0] - bias[1])),
    )._weighing_kinds()
    assert found.weights[1] == pytest.approx(0.5**2 / (0.5**2 + 0.3**2), abs=0.04)
    # Two of one kind have 1 / .55 times as much in common as two of two kinds.
    a, b = found.weights
    due = 0.6 * (a**2 * 0.2 + b**2 * 0.1) + 2 * a * b * 0.33 * np.sqrt(0.02)
    np.testing.assert_allclose(found.common, due / (a * 0.2 + b * 0.1), rtol=1e-6)


@pytest.mark.parametrize("params", [{}, {"n_members": 40}, {"member_block": 7}])
def test_members_of_two_kinds_are_the_same_however_they_are_trained(of_two_kinds, params):
    first, rows, y = of_two_kinds
    expected, grown = clone(first), clone(first).set_params(warm_start=True)
    block = {"runtime": Runtime(device="cpu", member_block=params.pop("member_block", "auto"))}
    grown.set_params(n_members=20, **block).fit(rows, y)
    if params:
        grown.set_params(**params).fit(rows, y)
        expected.set_params(**params).fit(rows, y)
    else:
        expected = first
    assert grown.calibration_.are_smooth == expected.calibration_.are_smooth
    np.testing.assert_allclose(grown.predict(rows), expected.predict(rows), atol=1e-4)


def test_members_are_of_one_kind_where_layers_are_given(of_two_kinds):
    _, rows, y = of_two_kinds
    for n_members, params in (
        (14, {}),  # four would be too few
        (20, {"module__activation": "tanh"}),
        (20, {"module__embeddings": None}),
    ):
        found = BayesianEnsembleRegressor(n_members, **{**SMALL, **params}).fit(rows, y)
        assert found.calibration_.are_smooth == ()


@pytest.mark.parametrize(("few", "many"), [(3, 6), (6, 24)])
@pytest.mark.parametrize(("cls", "y"), ENSEMBLES)
def test_further_members_leave_out_rows_as_in_one_fit(cls, y, few, many):
    settings = {"inference": DeepEnsemble(tune=None), "runtime": Runtime(member_block=3)}
    params = {**SMALL, **settings, "distance_aware": False}  # functions are of the first members
    grown = cls(few, warm_start=True, **params).fit(X, y)
    grown.set_params(n_members=many).fit(X, y)
    at_once = cls(many, **params).fit(X, y)
    assert_same_weights(grown, at_once)
    assert grown.calibration_ == at_once.calibration_


# ------------------------------------------------------------------------------------------
# Tuning
# ------------------------------------------------------------------------------------------


def test_the_best_setting_trains_all_members():
    blocks = Runtime(device="cpu", member_block=4)
    settings = {**SMALL, "max_epochs": 30, "runtime": blocks}
    tuned = BayesianEnsembleRegressor(10, inference=DeepEnsemble(tune="oob"), **settings).fit(
        X, NUMBERS
    )
    assert [trial["params"] for trial in tuned.tuning_] == [
        {"prior_scale": 3.0},
        {"prior_scale": 6.0},
        {
            "prior_scale": 3.0,
            "module__activation": "silu",
            "module__embeddings": None,
            "max_epochs": 30,
        },
    ]
    best = min(tuned.tuning_, key=lambda trial: trial["loss"])["params"]
    alike = BayesianEnsembleRegressor(10, **settings)
    alike.set_params(**best).fit(X, NUMBERS)
    assert_same_weights(tuned, alike)
    assert tuned.calibration_ == alike.calibration_
    assert tuned.get_params()["prior_scale"] == 3.0
    assert len(tuned.history_) == len(alike.history_)


def test_a_smooth_table_gets_the_weaker_prior(monkeypatch):
    monkeypatch.setattr(_tuning, "_TRIED", {"regressor": ((1.0, {}), (10.0, {}))})
    x = np.linspace(-3, 3, 100)[:, None]
    settings = {
        "max_epochs": 60,
        "normalize": "y",
        "random_state": 0,
        "inference": DeepEnsemble(tune="oob"),
    }
    found = BayesianEnsembleRegressor(6, prior_scale=0.3, **settings).fit(x, np.sin(2 * x[:, 0]))
    weak, strong = found.tuning_[1]["loss"], found.tuning_[0]["loss"]
    assert weak < strong - 0.5


@pytest.mark.parametrize(
    ("kind", "y", "embeddings"),
    [
        (BayesianEnsembleRegressor, NUMBERS, PiecewiseLinear(32)),
        (BayesianEnsembleClassifier, LABELS, PiecewiseLinear(16, "tree")),
    ],
)
def test_large_tables_try_finer_embeddings(kind, y, embeddings, monkeypatch):
    monkeypatch.setattr(_tuning, "MANY_ROWS", len(X))
    model = kind(3, inference=DeepEnsemble(tune="oob"), max_epochs="auto", random_state=0).fit(X, y)
    given, *_, other = (trial["params"] for trial in model.tuning_)
    assert set(given) == {"prior_scale"}
    assert repr(other["module__embeddings"]) == repr(embeddings)
    assert other.get("max_epochs", 40) == 40
    settings = {
        "inference": DeepEnsemble(tune="oob"),
        "module__embeddings": None,
        "max_epochs": 2,
        "random_state": 0,
    }
    tried = [set(trial["params"]) for trial in kind(3, **settings).fit(X, y).tuning_]
    # Beside the parameters given only another prior is left, which is tried for classes.
    assert tried == [{"prior_scale"}] * (2 if kind is BayesianEnsembleClassifier else 1)


@pytest.mark.parametrize(("is_noisy", "scale"), [(True, 3.0), (False, 10.0)])
def test_noisy_labels_get_a_stronger_prior_by_default(is_noisy, scale, capfd):
    rng = np.random.RandomState(0)
    x = rng.normal(size=(400, 2))
    y = np.sin(5 * x[:, 0]) + x[:, 1] + is_noisy * rng.normal(scale=3.0, size=400) > 0
    model = BayesianEnsembleClassifier(10, verbose=1, random_state=0).fit(x, y)
    stages = dict.fromkeys(line.split(": ")[1] for line in capfd.readouterr().out.splitlines())
    assert list(stages) == ["10 members", "10 members with a stronger prior"][: 1 + is_noisy]
    tried = {trial["params"]["prior_scale"]: trial["loss"] for trial in model.tuning_}
    assert list(tried) == ([10.0, 3.0] if is_noisy else [10.0])
    assert min(tried, key=tried.__getitem__) == scale
    alike = BayesianEnsembleClassifier(10, prior_scale=scale, random_state=0).fit(x, y)
    np.testing.assert_allclose(model.predict_proba(x), alike.predict_proba(x), atol=1e-4)


# ------------------------------------------------------------------------------------------
# The epoch that members for classes keep, on large tables
# ------------------------------------------------------------------------------------------


@pytest.fixture
def every_table_is_large(monkeypatch):
    for file in ("_spec", "_fit"):
        monkeypatch.setattr(f"skdistill.ensembles.{file}.MANY_ROWS", len(X))


def left_out_brier(model, parts):
    """Brier score of each member for the samples that it leaves out, as many of each."""
    X_tensor = torch.as_tensor(X)
    with torch.no_grad():
        probs = softmax(model.module_.outputs(X_tensor).numpy(), axis=-1)
    found = []
    for member, rows in enumerate(parts.left_out(range(len(probs)))):
        errors = probs[member, rows] - np.eye(3)[LABELS[rows]]
        found.append((errors**2).sum(1).mean())
    return np.array(found)


@pytest.mark.usefixtures("every_table_is_large")
def test_members_for_classes_keep_the_epoch_of_the_least_brier_score():
    settings = {**SMALL, "lr": 0.1, "optimizer": Optimizer(lr_schedule=None), "max_epochs": 30}
    settings["inference"] = DeepEnsemble(tune=None)
    model = BayesianEnsembleClassifier(12, **settings).fit(X, LABELS)
    parts = parts_of("classifier", LABELS)
    kept = left_out_brier(model, parts)
    assert model.best_epochs_.shape == (12,)
    assert model.best_epochs_.min() < 30
    epochs = [BayesianEnsembleClassifier(12, **{**settings, "max_epochs": 1}).fit(X, LABELS)]
    assert epochs[0].history_[0]["valid_loss"] == pytest.approx(
        left_out_brier(epochs[0], parts).mean()
    )
    # No member is worse than at its first epoch, which it might have kept.
    assert (kept <= left_out_brier(epochs[0], parts) + 1e-4).all()
    assert min(row["valid_loss"] for row in model.history_) >= kept.mean() - 1e-4


@pytest.mark.parametrize("member", [0, 7, 13])
def test_members_leave_out_as_many_rows_each(member):
    parts = parts_of("classifier", LABELS[:76])
    (places,) = parts.left_out([member])
    assert places.shape == (76 // N_PARTS,)
    assert not parts.are_seen([member])[0, places].any()


@pytest.mark.parametrize(
    ("kind", "y", "params"),
    [
        (BayesianEnsembleRegressor, NUMBERS, {}),
        (BayesianEnsembleClassifier, LABELS, {"inference": DeepEnsemble(calibrate=None)}),
    ],
)
@pytest.mark.usefixtures("every_table_is_large")
def test_other_members_keep_their_last_epoch(kind, y, params):
    assert not hasattr(kind(3, **{**SMALL, **params}).fit(X, y), "best_epochs_")


@pytest.mark.usefixtures("every_table_is_large")
def test_best_epochs_do_not_depend_on_jobs_and_go_on():
    settings = {**SMALL, "lr": 0.1, "runtime": Runtime(member_block=2)}
    whole = BayesianEnsembleClassifier(4, **settings).fit(X, LABELS)
    with parallel_config("threading"):
        side = BayesianEnsembleClassifier(4, n_jobs=2, **settings).fit(X, LABELS)
    assert_same_weights(side, whole)
    part = BayesianEnsembleClassifier(2, warm_start=True, **settings).fit(X, LABELS)
    part.set_params(n_members=4).fit(X, LABELS)
    assert part.best_epochs_.tolist() == whole.best_epochs_.tolist()
    assert_same_weights(part, whole)
