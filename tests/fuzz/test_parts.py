# SPDX-License-Identifier: BSD-3-Clause
"""Metrics, distributions, transfer sets, networks and settings, called with anything."""

from __future__ import annotations

import inspect
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from skdistill import metrics, modules
from skdistill.distributions import (
    Dirichlet,
    EmpiricalCategorical,
    EmpiricalGaussian,
    ExpectedCategorical,
    ExpectedGaussian,
    GaussianNormal,
    LogitNormal,
    NormalInverseGamma,
    NormalInverseWishart,
)
from skdistill.expectations import Expectation
from skdistill.samplers import SGHMC, SGLD, MCDropout
from skdistill.teachers import FittedModels, as_teacher, check_member_predictions
from skdistill.transfer import (
    Disagreement,
    GaussianNoise,
    Mixup,
    Munge,
    TransferSet,
    make_transfer,
)

# ------------------------------------------------------------------------------------------
# Metrics
# ------------------------------------------------------------------------------------------

QUANTILES = [0.1, 0.5, 0.9]


@st.composite
def predictions(draw, n):
    """What metrics take, by the names of their arguments, for n samples."""

    def floats(shape, low, high):
        return draw(arrays(np.float64, shape, elements=st.floats(low, high)))

    y_true, y_pred = floats(n, -100, 100), floats(n, -100, 100)
    members = np.stack([floats((n, 3, 1), -100, 100), floats((n, 3, 1), 1e-2, 100)], axis=-1)
    prob = floats((n, 3), 1e-3, 1)
    width = floats(n, 0, 10)
    return {
        "y_true": y_true,
        "y_pred": y_pred,
        "y_std": floats(n, 1e-2, 100),
        "y_members": members,
        "y_interval": np.stack([y_pred, y_pred + width], axis=1),
        "y_quantiles": np.sort(floats((n, 3), -100, 100), axis=1),
        "y_prob": prob / prob.sum(1, keepdims=True),
        "labels_true": np.resize([0, 1, 2, 1], n),
        "labels_pred": np.resize([0, 2, 2, 1], n),
        "losses": floats(n, 0, 10),
        "uncertainty": floats(n, 0, 10),
        "squared_error": floats(n, 0, 10),
        "epistemic": floats(n, 0, 10),
        "teacher": floats(n, 0, 10),
        "student": floats(n, 0, 10),
        "a": floats(n, 0, 10),
        "b": floats(n, 0, 10),
        "in_distribution": floats(n, 0, 10),
        "out_of_distribution": floats(n, 0, 10),
        "quantiles": QUANTILES,
        "coverage": 0.8,
        "k": 2,
        "n_candidates": 3,
        "n_trials": 4,
    }


# Arguments whose samples are labels, and the range of what is returned.
OF_LABELS = {"expected_calibration_error"}
METRICS: dict[str, tuple[float, float]] = {
    "gaussian_nll": (-math.inf, math.inf),
    "mixture_nll": (-math.inf, math.inf),
    "crps": (0, math.inf),
    "interval_coverage": (0, 1),
    "regression_calibration_error": (0, 1),
    "regression_calibration_curve": (0, 1),
    "ause": (0, math.inf),
    "expected_calibration_error": (0, 1),
    "risk_coverage_curve": (0, 10),
    "aurc": (0, 10),
    "prediction_rejection_ratio": (-math.inf, 1),
    "ood_auroc": (0, 1),
    "uncertainty_total_variation": (0, 1),
    "epistemic_calibration": (-1, math.inf),
    "epistemic_fidelity": (-1, math.inf),
    "uncertainty_ndcg": (0, 1),
}
# Arguments that are arrays: numpy and scikit-learn check them, and name what they can.
NO_ARRAYS = {"coverage", "k", "n_candidates", "n_trials", "n_bins", "strategy", "bins"}
NO_ARRAYS |= {"random_state"}


def arguments(metric, known):
    """Arguments that have no default, by name."""
    function = getattr(metrics, metric)
    required = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if metric in OF_LABELS and name in ("y_true", "y_pred"):
            required[name] = known[name.replace("y_", "labels_")]
        elif parameter.default is parameter.empty or name in ("k", "n_candidates", "n_trials"):
            required[name] = known[name]
    return required


@pytest.mark.parametrize("metric", METRICS)
@given(data=st.data())
def test_metrics_lie_in_their_range_or_refuse_by_name(metric, data, fuzz, tally):
    tally("fuzzed cases")
    n = data.draw(st.integers(3, 8), label="n")
    function = getattr(metrics, metric)
    given_values = arguments(metric, data.draw(predictions(n), label="arguments"))
    names = set(inspect.signature(function).parameters) - {"return_std", "classwise", "labels"}
    spoilt = data.draw(st.sampled_from(["nothing", *sorted(names)]), label="spoilt")
    if spoilt.endswith(("weight", "weights")):
        weight = st.lists(st.floats(0, 1e6), min_size=n, max_size=n)
        given_values[spoilt] = data.draw(st.one_of(weight, fuzz.nonsense()), label="value")
    elif spoilt in NO_ARRAYS:
        known_to_be_long = spoilt in ("n_trials", "bins", "n_bins")
        value = fuzz.nonsense().filter(
            # Tensors raise an OverflowError when they are compared to it.
            lambda v: not (known_to_be_long and isinstance(v, int) and v == 10**30)
        )
        given_values[spoilt] = data.draw(value, label="value")
    elif spoilt != "nothing":
        good = np.asarray(given_values[spoilt])
        given_values[spoilt] = data.draw(fuzz.no_rows(good.astype(float)), label="value")
    is_array = spoilt != "nothing" and spoilt not in NO_ARRAYS
    with warnings.catch_warnings(), fuzz.refused_by_name("X" if is_array else spoilt):
        warnings.simplefilter("ignore")  # of scores that are not defined, which are NaN then
        values = numbers_in(function(**given_values))
        if is_array and not spoilt.endswith(("weight", "weights")):
            return  # other numbers than those above, if they are any, have no range that is known
        low, high = METRICS[metric]
        assert ((values >= low - 1e-9) & (values <= high + 1e-9)).all(), values


def numbers_in(score) -> np.ndarray:
    """All numbers of a score, a curve or several of them, but those that are not defined."""
    parts = score if isinstance(score, tuple) else (score,)
    parts = score.values() if isinstance(score, dict) else parts
    values = np.concatenate([np.ravel(np.asarray(part, dtype=float)) for part in parts])
    return values[~np.isnan(values)]


# ------------------------------------------------------------------------------------------
# Distributions
# ------------------------------------------------------------------------------------------


def expected_gaussian(outputs):
    mean, first, second = outputs[0].tensor_split(3, dim=-1)
    return ExpectedGaussian(mean, first.exp(), second.exp())


def expected_categorical(outputs):
    log_mean = outputs[0].log_softmax(-1)
    return ExpectedCategorical(log_mean, outputs[0].exp().mean(-1))


# How each is made of outputs (S, n, p), for p of these.
OF_NUMBERS = {
    "EmpiricalGaussian": (EmpiricalGaussian.from_outputs, 4),
    "GaussianNormal": (GaussianNormal.from_outputs, 8),
    "GaussianNormal-full": (lambda z: GaussianNormal.from_outputs(z, "full"), 10),
    "NormalInverseGamma": (NormalInverseGamma.from_outputs, 8),
    "NormalInverseWishart": (NormalInverseWishart.from_outputs, 6),
    "ExpectedGaussian": (expected_gaussian, 6),
}
OF_CLASSES = {
    "EmpiricalCategorical": (EmpiricalCategorical.from_logits, 3),
    "Dirichlet": (Dirichlet.from_outputs, 3),
    "LogitNormal": (LogitNormal.from_outputs, 4),
    "LogitNormal-rank": (lambda z: LogitNormal.from_outputs(z, rank=1, n_samples=7), 6),
    "ExpectedCategorical": (expected_categorical, 3),
}


@st.composite
def outputs_of(draw, n_outputs, n_members):
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    shape = (n_members, draw(st.integers(1, 4)), n_outputs)
    bound = draw(st.sampled_from([1, 10, 50]))
    return torch.from_numpy(draw(arrays(dtype, shape, elements=st.floats(-bound, bound, width=32))))


def check_parts(distribution, fuzz, dtype):
    total, aleatoric, epistemic = (part.numpy() for part in distribution.uncertainty())
    for part in (total, aleatoric, epistemic):
        assert np.isfinite(part).all()
        assert (part >= 0).all()
    fuzz.assert_close(aleatoric + epistemic, total, dtype, "the parts' sum")


@pytest.mark.parametrize("name", OF_NUMBERS)
@given(data=st.data())
def test_distributions_of_numbers(name, data, fuzz, tally):
    tally("fuzzed cases")
    build, n_outputs = OF_NUMBERS[name]
    n_members = data.draw(st.integers(1, 3)) if name.startswith("Empirical") else 1
    outputs = data.draw(outputs_of(n_outputs, n_members), label="outputs")
    dtype = outputs.numpy().dtype
    distribution = build(outputs)
    scale = data.draw(st.sampled_from([1.0, 1e-3, 1e5]), label="scale")
    if hasattr(distribution, "affine"):
        size = distribution.mean.shape[-1]
        distribution = distribution.affine(torch.full((size,), 2.0), torch.full((size,), scale))
    mean = distribution.mean.numpy()
    assert np.isfinite(mean).all()
    assert (distribution.variance > 0).all()
    check_parts(distribution, fuzz, dtype)
    levels = sorted(data.draw(st.lists(st.floats(1e-6, 1 - 1e-6), min_size=1, max_size=4)))
    quantiles = distribution.quantile(levels)
    assert quantiles.shape == (*mean.shape, len(levels))
    assert quantiles.isfinite().all()
    assert (quantiles.diff() >= 0).all()
    if dtype == np.float64:
        at = torch.stack([distribution.cdf(q) for q in quantiles.unbind(-1)], -1)
        wanted = torch.tensor(levels, dtype=at.dtype).expand_as(at)
        torch.testing.assert_close(at, wanted, rtol=1e-4, atol=1e-6)
    drawn = distribution.sample(3, torch.Generator().manual_seed(0))
    assert drawn.shape == (3, *mean.shape)
    assert drawn.isfinite().all()
    log_prob = distribution.log_prob(distribution.mean)
    assert log_prob.isfinite().all()


@pytest.mark.parametrize("name", OF_CLASSES)
@given(data=st.data())
def test_distributions_of_classes(name, data, fuzz, tally):
    tally("fuzzed cases")
    build, n_outputs = OF_CLASSES[name]
    n_members = data.draw(st.integers(1, 3)) if name.startswith("Empirical") else 1
    outputs = data.draw(outputs_of(n_outputs, n_members), label="outputs")
    dtype = outputs.numpy().dtype
    distribution = build(outputs)
    mean, log_mean = distribution.mean.numpy(), distribution.log_mean.numpy()
    n = outputs.shape[1]
    assert mean.shape == (n, 3)
    assert ((mean >= 0) & (mean <= 1 + 1e-6)).all()
    fuzz.assert_close(mean.sum(1), np.ones(n), dtype, "sum")
    fuzz.assert_close(np.exp(log_mean), mean, dtype, "exp(log_mean)")
    check_parts(distribution, fuzz, dtype)
    drawn = distribution.sample(3, torch.Generator().manual_seed(0)).numpy()
    assert drawn.shape == (3, n)
    assert np.isin(drawn, [0, 1, 2]).all()
    codes = torch.from_numpy(drawn[0])
    fuzz.assert_close(
        distribution.log_prob(codes).exp().numpy(), mean[np.arange(n), drawn[0]], dtype, "log_prob"
    )


CALLS = {"quantile": "quantiles", "interval": "coverage", "sample": "n_samples", "log_prob": "y"}


@pytest.mark.parametrize("name", {**OF_NUMBERS, **OF_CLASSES})
@given(data=st.data())
def test_distributions_refuse_nonsense_by_name(name, data, fuzz, tally):
    tally("fuzzed cases")
    build, n_outputs = {**OF_NUMBERS, **OF_CLASSES}[name]
    distribution = build(torch.zeros(1, 2, n_outputs))
    calls = sorted(set(CALLS) & set(dir(distribution)))
    method = data.draw(st.sampled_from(calls), label="method")
    value = data.draw(fuzz.nonsense(), label="value")
    with fuzz.refused_by_name(CALLS[method], "codes", "q"):
        answer = getattr(distribution, method)(value)
        assert torch.as_tensor(answer).isfinite().all()


# ------------------------------------------------------------------------------------------
# Transfer sets, settings, teachers
# ------------------------------------------------------------------------------------------

TRANSFER = [GaussianNoise, Mixup, Munge, Disagreement]


class LargeSumsDisagree:
    """What is known of a teacher whose members disagree the more, the larger a sample's sum is."""

    has_gradient = True

    def of_some(self, generator):
        return lambda rows: rows.sum(1)


@pytest.mark.parametrize("maker", TRANSFER)
@given(data=st.data())
def test_transfer_sets_stay_finite_or_are_refused_by_name(maker, data, fuzz, tally):
    tally("fuzzed cases")
    n = data.draw(st.integers(1, 6), label="n")
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    elements = st.floats(-1e6, 1e6, width=8 * np.dtype(dtype).itemsize)
    X = torch.from_numpy(data.draw(arrays(dtype, (n, 3), elements=elements), label="X"))
    names = sorted(inspect.signature(maker).parameters)
    spoilt = data.draw(st.sampled_from(["nothing", *names]), label="spoilt")
    settings = {} if spoilt == "nothing" else {spoilt: data.draw(fuzz.nonsense(), label="value")}
    with fuzz.refused_by_name(spoilt):
        teacher = [LargeSumsDisagree()] * maker.asks_teacher
        draw = maker(**settings).prepare(X, None, *teacher)
        drawn = draw(X, torch.arange(n), torch.Generator().manual_seed(0))
        assert drawn.shape == X.shape
        assert drawn.dtype == X.dtype
        if not isinstance(settings.get(spoilt), float):  # a scale of 1e300 is as good as any
            assert drawn.isfinite().all()
        if maker is Mixup and spoilt == "nothing":
            room = 1e-3 * (1 + X.abs().amax(0))
            assert ((drawn >= X.amin(0) - room) & (drawn <= X.amax(0) + room)).all()


@given(data=st.data())
def test_nonsense_for_a_transfer_set_or_a_teacher_is_refused(data, fuzz, tally):
    tally("fuzzed cases")
    value = data.draw(fuzz.nonsense(), label="value")
    with fuzz.refused_by_name("transfer"):
        make_transfer(value)
    with fuzz.refused_by_name("rows", "X"):
        repr(TransferSet(value))
    with fuzz.refused_by_name("model", "models"):
        as_teacher(value)
    for name in ("task", "classes"):
        with fuzz.refused_by_name(name):
            models = FittedModels(
                [torch.nn.Linear(3, 2)], **{"task": "classification", name: value}
            )
            as_teacher(models)
    for name in ("max_members", "batch_size"):
        with fuzz.refused_by_name(name):
            as_teacher(FittedModels([torch.nn.Linear(3, 2)], "classification"), **{name: value})
    with fuzz.refused_by_name("member_predictions"):
        check_member_predictions(value, 2, n_classes=3)


@pytest.mark.parametrize("settings", [SGLD(1e-3), SGHMC(1e-3), MCDropout(), Expectation(abs)])
@given(data=st.data())
def test_nonsense_for_a_setting_is_refused_by_name(settings, data, fuzz, tally):
    tally("fuzzed cases")
    name = data.draw(st.sampled_from(sorted(settings.get_params())), label="setting")
    value = data.draw(fuzz.nonsense(), label="value")
    spoilt = type(settings)(**{**settings.get_params(), name: value})
    repr(spoilt)
    with fuzz.refused_by_name(name):
        spoilt.check()


# ------------------------------------------------------------------------------------------
# Networks
# ------------------------------------------------------------------------------------------

NETWORKS = {
    "MLP": ({"in_features": 3, "out_features": 2, "hidden_units": (4,)}, (3,)),
    "ConvNet": ({"in_features": (1, 6, 6), "out_features": 2, "channels": (2,)}, (1, 6, 6)),
    "ResNet": (
        {"in_features": (1, 6, 6), "out_features": 2, "blocks": 1, "channels": (2,)},
        (1, 6, 6),
    ),
    "Recurrent": ({"in_features": (4, 2), "out_features": 2, "hidden_units": 3}, (4, 2)),
}


@pytest.mark.parametrize("name", NETWORKS)
@given(data=st.data())
def test_networks_are_stacked_as_they_are_or_refuse_by_name(name, data, fuzz, tally):
    tally("fuzzed cases")
    settings, shape = NETWORKS[name]
    build = getattr(modules, name)
    names = sorted(set(inspect.signature(build).parameters) - {"generator"})
    spoilt = data.draw(st.sampled_from(["nothing", *names]), label="spoilt")
    if spoilt != "nothing":
        value = fuzz.nonsense().filter(lambda v: not (isinstance(v, int) and v > 1000))
        settings = {**settings, spoilt: data.draw(value, label="value")}
    x = torch.from_numpy(
        data.draw(arrays(np.float32, (3, *shape), elements=st.floats(-10, 10, width=32)), label="x")
    )
    with warnings.catch_warnings(), fuzz.refused_by_name(spoilt):
        warnings.simplefilter("ignore")
        members = [build(**settings).eval() for _ in range(2)]
        if spoilt in ("in_features", "out_features"):
            return
        with torch.no_grad():
            stacked = modules.stack(members).eval()(x.unsqueeze(0))
            for member, said in zip(members, stacked, strict=True):
                assert said.isfinite().all()
                torch.testing.assert_close(said, member(x), rtol=1e-4, atol=1e-4)
