# SPDX-License-Identifier: BSD-3-Clause
"""Random functions that vanish at training samples: what they are, who has them, what they do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

import skdistill
from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    DistributionDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill._data.encoding import InputEncoding
from skdistill._method.random_functions import (
    RandomFunctions,
    UnseenValues,
    find_functions,
    squared_exponential,
)
from skdistill.distributions import (
    Dirichlet,
    EmpiricalCategorical,
    EmpiricalGaussian,
    GaussianNormal,
    LogitNormal,
    NormalInverseGamma,
)
from skdistill.metrics import ood_auroc
from skdistill.samplers import DeepEnsemble
from skdistill.teachers import MixedModels, as_teacher

RNG = np.random.RandomState(0)
X = np.concatenate([RNG.uniform(-4, -1, (60, 1)), RNG.uniform(1, 4, (60, 1))])
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.standard_normal(120)
LABELS = (Y > 0).astype(int) + (np.abs(X[:, 0]) > 2.5)
FAR = np.array([[-1e6], [-100.0], [100.0], [1e6]])
FAST = {"n_members": 4, "max_epochs": 5, "random_state": 0}
FAST["inference"] = DeepEnsemble(bootstrap=False)


def functions(
    n_members=3,
    scale=(2.0,),
    n=40,
    d=2,
    length_scale=0.7,
    radius=1e9,
    growth=1.0,
    usual=0.0,
    gaps=(),
    unknown=3.0,
):
    """Functions of standardised samples, at which they vanish; they do not grow by default.

    Gaps (column, lower, upper) have a unit and a deviation of 2.
    """
    rng = np.random.RandomState(1)
    samples = rng.standard_normal((n, d))
    columns, lower, upper = zip(*gaps, strict=True) if gaps else [()] * 3
    ends = np.array(lower, dtype=float), np.array(upper, dtype=float)
    deviation = np.full((len(gaps), len(scale)), 2.0)
    unseen = UnseenValues(np.array(columns, dtype=int), *ends, np.full(len(gaps), 2.0), deviation)
    return RandomFunctions(
        encoding=InputEncoding(np.zeros(d), np.ones(d), np.zeros(d, int), np.zeros(d, bool)),
        relevance=np.ones(d),
        length_scale=length_scale,
        radius=radius,
        growth=growth,
        inducing=samples,
        frequencies=rng.standard_normal((10_000, d)) / length_scale,
        phases=rng.uniform(0, 2 * np.pi, 10_000),
        scale=np.array(scale),
        usual=usual,
        left_out=0.1,
        unknown=np.full((d, len(scale)), unknown),
        unseen=unseen,
        seed=3,
        members=tuple(range(n_members)),
    )


def first_column(rows):
    return np.nan_to_num(rows[:, :1])


def values(found, rows):
    return found.module()(torch.tensor(rows)).numpy()


def variance(found, rows):
    return found.module().variance(torch.tensor(rows)).numpy()


# --- What they are ----------------------------------------------------------------------------


@pytest.mark.parametrize("usual", [0.0, 0.5])
@pytest.mark.parametrize("n_members", [2, 9])
def test_draws_have_the_variance_of_the_conditioned_gaussian_process(n_members, usual):
    found = functions(n_members=n_members, usual=usual, scale=(2.0, 0.5))
    rows = np.random.RandomState(2).uniform(-3, 3, (50, 2))
    kernel = squared_exponential(found.inducing, found.inducing, 0.7) + 1e-4 * np.eye(40)
    cross = squared_exponential(rows, found.inducing, 0.7)
    left = 1 - np.einsum("ij,ji->i", cross, np.linalg.solve(kernel, cross.T))
    expected = np.maximum(left - usual, 0)
    assert 0 < (expected > 0).sum() <= 50 * (1 - usual)
    expected = np.column_stack([4 * expected, expected / 4])
    exact = {"rtol": 1e-5, "atol": 4e-6}  # of the prior variance, since kernels are in float32
    np.testing.assert_allclose(variance(found, rows), expected, **exact)
    np.testing.assert_allclose(values(found, rows).var(0), expected, **exact)


def test_samples_beside_others_get_what_they_get_alone():
    found = functions(n=40, usual=0.5)
    rows = np.concatenate([found.inducing[:5], found.inducing[5:8] + 0.4, found.inducing[8:] * 4])
    together, of_rows = values(found, rows), variance(found, rows)
    assert 5 <= (of_rows == 0).sum() < len(rows) - 5
    for i, row in enumerate(rows):
        np.testing.assert_allclose(values(found, row[None])[:, 0], together[:, i], rtol=1e-4)
        np.testing.assert_allclose(variance(found, row[None])[0], of_rows[i], rtol=1e-4)


@pytest.mark.parametrize("n_missing", [1, 2])
def test_draws_have_a_variance_of_its_own_for_each_value_that_is_missing(n_missing):
    rows = np.random.RandomState(2).uniform(-1, 1, (5, 2))
    rows[:, :n_missing] = np.nan
    found = functions(n_members=9)
    of_process = variance(functions(n_members=9, unknown=0.0), rows)
    at_rows = values(found, rows)
    np.testing.assert_allclose(at_rows.var(0) - of_process, 9.0 * n_missing, rtol=1e-6)
    np.testing.assert_allclose(variance(found, rows) - of_process, 9.0 * n_missing)
    np.testing.assert_allclose(at_rows.mean(0), 0, atol=1e-10)


@pytest.mark.parametrize(
    ("gap", "value", "share"),
    [
        ((-1.0, 1.0), 0.0, 1.0),  # of Brownian bridges: 4 (v - a) (b - v) / ((b - a) unit)
        ((-1.0, 1.0), 0.5, 0.75),
        ((-0.25, 0.25), 0.0, 0.25),
        ((-3.0, 3.0), 0.0, 1.0),  # and no more
        ((-1.0, 1.0), 1.5, 0.0),
        ((-1.0, 1.0), np.nan, 0.0),
        ((1.0, np.inf), 1.1, 0.2),  # of Wiener processes: 4 (v - a) / unit
        ((1.0, np.inf), 101.0, 200.0),  # without an end
        ((1.0, np.inf), 1e300, 5e8),
        ((-np.inf, 1.0), 0.9, 0.2),
        ((-np.inf, 1.0), 2.0, 0.0),
    ],
)
def test_draws_have_a_variance_of_its_own_in_a_gap_of_a_column(gap, value, share):
    row = np.array([[0.3, value]])
    without, found = (
        values(functions(n_members=9, gaps=gaps), row)[..., 0] for gaps in ((), [(1, *gap)])
    )
    # An edge is wider by 1e-5 units than its sample, which rounding may move.
    np.testing.assert_allclose(found.var(0) - without.var(0), 4 * share, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-10)


def test_gaps_of_columns_are_found():
    rng = np.random.RandomState(0)
    rows = rng.uniform(-1, 1, (400, 3))
    rows[:, 0] += np.sign(rows[:, 0])  # from -2 to -1, and from 1 to 2
    rows[:, 2] = rows[:, 2] > 0
    y = rows[:, :1] + np.sin(5 * rows[:, [1]]) + 0 * rows[:, [2]]
    found = find_functions(rows, y, None, _smooth, None, False, rng).unseen
    assert found.columns.tolist() == [0, 0, 0, 1, 1]  # the flag has no effect
    below, beyond, between = range(3)
    assert (found.lower[below], found.upper[below]) == (-np.inf, rows[:, 0].min())
    assert (found.lower[beyond], found.upper[beyond]) == (rows[:, 0].max(), np.inf)
    assert -1.05 < found.lower[between] < -0.99 < 0.99 < found.upper[between] < 1.05
    np.testing.assert_allclose(found.unit, np.sqrt(12) * rows.std(0)[found.columns])


def _smooth(rows):
    rows = np.nan_to_num(rows)
    return rows[:, :1] + np.sin(5 * rows[:, [1]])


def test_a_gap_is_less_unknown_if_what_is_in_it_can_be_told_from_both_sides():
    rng = np.random.RandomState(0)
    rows = rng.uniform(-1, 1, (400, 2))
    for frequency, share in ((1, 0.3), (60, 1.0)):

        def predict(X, frequency=frequency):
            return np.sin(frequency * np.nan_to_num(X[:, :1], nan=0.5))

        found = find_functions(rows, predict(rows), None, predict, None, False, rng)
        assert set(found.unseen.columns) == {0}
        np.testing.assert_allclose(found.unseen.deviation, share * found.unknown[[0, 0]])


def test_draws_vanish_at_the_samples_and_have_mean_zero_everywhere():
    found = functions(n_members=20)
    at_samples = values(found, found.inducing)
    assert np.abs(at_samples).max() < 2 * 5 * 0.01  # five deviations of the nugget's
    rows = np.random.RandomState(2).uniform(-3, 3, (30, 2))
    np.testing.assert_allclose(values(found, rows).mean(0), 0, atol=1e-10)
    assert values(found, rows).std(0).max() > 1


def test_a_members_draw_depends_on_its_number_alone():
    rows = np.random.RandomState(2).uniform(-3, 3, (5, 2))
    few, many = functions(n_members=2), functions(n_members=5)
    few, many = (values(f.of_members(range(2)), rows) for f in (few, many))
    np.testing.assert_array_equal(few, many)


def test_draws_grow_with_the_distance_beyond_the_radius():
    rows = np.array([[200.0, 0.0], [400.0, 0.0], [1e6, 0.0], [2e6, 0.0]])
    near, far, farther, farthest = values(functions(radius=10.0, growth=0.5), rows)[:, :, 0].T
    np.testing.assert_allclose(far / near, (1 + 0.5 * 390) / (1 + 0.5 * 190))
    np.testing.assert_allclose(farthest / farther, 2, rtol=1e-4)


@pytest.mark.parametrize(("wanted", "growth"), [(12.0, 4.0), (1.5, 2.0), (1e9, 64.0)])
def test_growth_rises_to_what_is_wanted_far_from_all_samples(wanted, growth):
    found = functions(radius=3.0, growth=2.0)
    asked = []

    def epistemic(functions, rows):
        asked.append(rows)
        return np.full(len(rows), 3 * functions.growth)

    rows = np.random.default_rng(0).standard_normal((300, 2))
    grown = found.growing_as(rows, epistemic, lambda far: np.full(len(far), wanted))
    assert grown.growth == pytest.approx(growth, rel=0.01)
    assert (grown is found) == (growth == 2.0)
    at = np.linalg.norm(asked[0], axis=1)
    np.testing.assert_allclose(np.unique(at.round(6)), [11, 67])  # 8 and 64 beyond the radius


def test_the_variance_at_samples_left_out_is_that_of_the_conditioned_process(monkeypatch):
    monkeypatch.setattr("skdistill._method.random_functions._LEFT", 0.0)  # all are inducing points
    rng = np.random.RandomState(0)
    rows = rng.standard_normal((150, 2))
    found = find_functions(rows, rows[:, :1], None, first_column, None, False, rng)
    weighted = found.relevance * (rows - rows.mean(0)) / rows.std(0)
    kernel, variances = squared_exponential(weighted, weighted, found.length_scale), []
    for k in range(150):
        others = np.arange(150) != k
        inner = kernel[np.ix_(others, others)] + 1e-4 * np.eye(149)
        variances.append(1 - kernel[k, others] @ np.linalg.solve(inner, kernel[others, k]))
    assert found.usual == pytest.approx(np.quantile(variances, 0.98), rel=1e-6)
    left = np.maximum(np.array(variances) - found.usual, 0)
    assert found.left_out == pytest.approx(left.mean(), rel=1e-6)


def test_functions_vanish_at_samples_that_are_dense_and_without_noise():
    # What the inducing points leave there is by chance: two ensembles would rank samples by it.
    rng = np.random.RandomState(0)
    rows, further = rng.uniform(-1, 1, (1_200, 2)), rng.uniform(-1, 1, (1_000, 2))
    found = find_functions(rows, _smooth(rows), None, _smooth, None, False, rng)
    among, beyond = (variance(found.of_members(range(2)), x) for x in (further, further + 3))
    assert (among > 0).mean() < 0.05
    assert (beyond > 0).all()


# --- What is unknown --------------------------------------------------------------------------

TABLE = RNG.standard_normal((400, 3))
SUM = TABLE @ [1.0, 2.0, 0.0] + 0.1 * RNG.standard_normal(400)


def missing(column, rows=TABLE):
    found = rows.copy()
    found[:, column] = np.nan
    return found


@pytest.fixture(scope="module")
def summed():
    teacher = BayesianEnsembleRegressor(5, max_epochs=30, random_state=0).fit(TABLE, SUM)
    frozen = FrozenEstimator(teacher)
    student = HydraPlusRegressor(frozen, max_epochs=20, random_state=0).fit(TABLE, SUM)
    family = DistributionDistiller(frozen, max_epochs=20, random_state=0).fit(TABLE, SUM)
    return teacher, student, family


@pytest.mark.parametrize("which", [0, 1, 2])
def test_intervals_without_a_column_hold_what_they_promise(summed, which):
    model = summed[which]
    for column, deviation in ((0, 1.0), (1, 2.0)):
        mean, std = model.predict(missing(column), return_std=True)
        assert 0.85 <= np.mean(np.abs(SUM - mean) < 1.645 * std) <= 0.96
        parts = model.predict_uncertainty(missing(column))
        np.testing.assert_allclose(np.median(parts.epistemic), deviation**2, rtol=0.35)
        usual = model.predict_uncertainty(TABLE).aleatoric
        assert np.median(parts.aleatoric) < 2 * np.median(usual)
    without_noise = model.predict_uncertainty(missing(2)).epistemic
    assert np.median(without_noise) < 0.2


# --- Distributions that they displace ---------------------------------------------------------


def drawn(*shape, seed=0):
    found = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()
    return found - found.mean(0)


@pytest.mark.parametrize(
    "distribution",
    [
        GaussianNormal.from_outputs(drawn(3, 8), "diagonal"),
        NormalInverseGamma.from_outputs(drawn(3, 8)),
    ],
    ids=lambda d: type(d).__name__,
)
def test_numbers_keep_mean_and_aleatoric_part(distribution):
    further = drawn(3, 2, seed=1).square()
    found = distribution.with_mean_variance(further)
    before, after = distribution.uncertainty(), found.uncertainty()
    torch.testing.assert_close(found.mean, distribution.mean)
    torch.testing.assert_close(after.aleatoric, before.aleatoric)
    torch.testing.assert_close(after.epistemic, before.epistemic + further)


def test_members_get_one_function_each():
    members = EmpiricalGaussian(drawn(4, 3, 2), torch.ones(4, 3, 2).double())
    functions_at = drawn(4, 3, 2, seed=1)
    torch.testing.assert_close(members.displaced(functions_at).means, members.means + functions_at)
    logits = drawn(4, 3, 5)
    classes = EmpiricalCategorical.from_logits(logits).displaced(drawn(4, 3, 5, seed=1))
    expected = (logits + drawn(4, 3, 5, seed=1)).softmax(-1)
    torch.testing.assert_close(classes.members.transpose(0, 1), expected)


def test_members_whose_means_are_uncertain_are_wider_gaussians():
    before = EmpiricalGaussian(drawn(5, 4, 2), drawn(5, 4, 2, seed=1).exp())
    further, y = drawn(4, 2, seed=2).exp(), drawn(4, 2, seed=3)
    found = before.with_mean_variance(further)
    wider = EmpiricalGaussian(before.means, before.variances + further)
    generators = (torch.Generator().manual_seed(0) for _ in range(2))
    for read in (
        lambda d: d.log_prob(y),
        lambda d: d.cdf(y),
        lambda d: d.quantile([0.1, 0.6]),
        lambda d: d.variance,
        lambda d: d.mean,
        lambda d: d.sample(7, next(generators)),
    ):
        torch.testing.assert_close(read(found), read(wider), rtol=1e-12, atol=0)
    assert torch.equal(found.members, before.members)
    factor = drawn(4, 2, seed=4).exp()
    epistemic = before.uncertainty().epistemic + further
    for changed, expected in (
        (found.with_mean_variance(further), epistemic + further),
        (found.widened(factor), factor * epistemic),
        (found.tempered(2.0), epistemic),
        (found.affine(3.0, 2.0), 4 * epistemic),
    ):
        torch.testing.assert_close(changed.uncertainty().epistemic, expected)


def test_a_dirichlet_has_the_moments_of_the_mixture_of_displaced_ones():
    before, functions_at = Dirichlet(drawn(3, 4).exp() * 5), drawn(10, 3, 4, seed=1)
    found = before.displaced(functions_at)
    means = (before.log_mean + functions_at).softmax(-1)
    torch.testing.assert_close(found.mean, means.mean(0))
    parts = [torch.distributions.Dirichlet(before.precision.unsqueeze(-1) * m) for m in means]
    squares = torch.stack([(p.variance + p.mean.square()).sum(-1) for p in parts]).mean(0)
    now = torch.distributions.Dirichlet(found.concentrations)
    torch.testing.assert_close((now.variance + now.mean.square()).sum(-1), squares)
    unmoved = before.displaced(torch.zeros(2, 3, 4).double())
    torch.testing.assert_close(unmoved.concentrations, before.concentrations)


def test_a_dirichlet_next_to_a_corner_of_the_simplex_keeps_its_precision():
    before = Dirichlet(torch.tensor([[0.4, 1e-12], [3.0, 2e-14]], dtype=torch.float64))
    assert torch.equal(before.displaced(torch.zeros(2, 2, 2)).concentrations, before.concentrations)
    unmoved = before.displaced(torch.full((2, 2, 2), 1e-30).double())
    expected = torch.tensor([[0.4, 1e-12], [3.0, 1e-12]], dtype=torch.float64)  # none is smaller
    torch.testing.assert_close(unmoved.concentrations, expected, rtol=1e-9, atol=0)


def test_a_logit_normal_has_the_covariance_of_the_functions():
    before = LogitNormal(drawn(3, 2), torch.full((3, 2), 0.3).double(), n_samples=20_000)
    functions_at = drawn(6, 3, 3, seed=1)
    factor = before.displaced(functions_at).factor
    relative = functions_at[..., :2] - functions_at[..., 2:]
    torch.testing.assert_close(
        factor @ factor.mT, torch.einsum("snp,snq->npq", relative, relative) / 6
    )


# --- Estimators that have them ----------------------------------------------------------------


@pytest.fixture(scope="module")
def ensembles():
    """By kind, ensembles with the functions and without, of the same networks."""
    pairs = {}
    for Ensemble, y in ((BayesianEnsembleRegressor, Y), (BayesianEnsembleClassifier, LABELS)):
        model = Ensemble(**FAST).fit(X, y)
        pairs[model._kind] = model, Ensemble(**FAST, distance_aware=False).fit(X, y)
    return pairs


def test_the_mean_stays_and_members_disagree_in_the_gap(ensembles):
    aware, plain = ensembles["regressor"]
    rows = np.linspace(-5, 5, 101)[:, None]
    np.testing.assert_allclose(aware.predict(rows), plain.predict(rows), atol=1e-8)
    added = (aware.predict_members(rows) - plain.predict_members(rows))[..., 0]
    found = aware._recipe.functions.module()(torch.tensor(rows)).numpy()
    np.testing.assert_allclose(added, found.transpose(1, 0, 2), atol=1e-8)
    spread = added.std(axis=1)[:, 0]
    assert spread[50] > 3 * spread[[20, 80]].max()  # 0 is in the gap, -3 and 3 among the samples
    assert spread[[0, 100]].min() > spread[50]


def test_the_variance_of_the_functions_is_added_to_what_members_disagree_by(ensembles):
    aware, plain = ensembles["regressor"]
    rows = np.linspace(-5, 5, 101)[:, None]
    of_functions = variance(aware._recipe.functions, rows)[:, 0]
    found, before = aware.predict_uncertainty(rows), plain.predict_uncertainty(rows)
    np.testing.assert_allclose(found.epistemic, before.epistemic + of_functions, rtol=1e-6)
    np.testing.assert_allclose(
        found.aleatoric,
        before.aleatoric * aware.calibration_.temperature / plain.calibration_.temperature,
    )
    distribution = aware.predict_distribution(rows)
    for part, expected in zip(distribution.uncertainty(), found, strict=True):
        np.testing.assert_allclose(part.numpy()[:, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(
        distribution.interval(0.8)[:, 0].numpy(), aware.predict_interval(rows, 0.8), rtol=1e-6
    )


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
def test_far_samples_are_the_most_uncertain(kind, ensembles):
    aware, _ = ensembles[kind]
    near, far = (aware.predict_uncertainty(rows).epistemic for rows in (X, FAR))
    assert ood_auroc(near, far) == 1
    if kind == "classifier":
        assert aware.predict_proba(FAR).max(axis=1).mean() < 0.9


@pytest.mark.parametrize(
    ("params", "rows"),
    [
        ({"distance_aware": False}, slice(None)),
        ({"n_members": 1}, slice(None)),
        ({}, slice(0, 4)),
    ],
    ids=["switched off", "one member", "few samples"],
)
def test_who_has_none(params, rows):
    model = BayesianEnsembleRegressor(**{**FAST, **params}).fit(X[rows], Y[rows])
    assert model._recipe.functions is None


@pytest.mark.parametrize(
    "student",
    [
        HydraPlusRegressor(max_epochs=2),
        HydraPlusRegressor(heads=3, max_epochs=2),
        DistributionDistiller("regressor", max_epochs=2),
        DistributionDistiller("regressor", family="normal_inverse_gamma", max_epochs=2),
        HydraPlusClassifier(max_epochs=2),
        DistributionDistiller("classifier", family="logit_normal", max_epochs=2),
        DistributionDistiller("classifier", family="dirichlet", max_epochs=2),
    ],
    ids=lambda s: f"{type(s).__name__} {getattr(s, 'family', s.get_params().get('n_heads'))}",
)
def test_students_have_the_functions_of_their_teacher(student, ensembles):
    is_numeric = student._kind == "regressor"
    teacher, _ = ensembles["regressor" if is_numeric else "classifier"]
    student.set_params(teacher=FrozenEstimator(teacher), random_state=0)
    student.fit(X, Y if is_numeric else LABELS)
    own, of_teacher = (model._recipe.functions for model in (student, teacher))
    assert own.members == of_teacher.members[: len(own.members)]
    assert own.seed == of_teacher.seed
    np.testing.assert_array_equal(own.inducing, of_teacher.inducing)
    near, far = (student.predict_uncertainty(rows).epistemic for rows in (X, FAR))
    assert ood_auroc(near, far) == 1
    if own.members == of_teacher.members:
        ratio = (far / teacher.predict_uncertainty(FAR).epistemic)[[0, 3]]
        np.testing.assert_allclose(ratio, 1, atol=0.1 if is_numeric else 0.9)


def _ensemble(**params):
    return BayesianEnsembleRegressor(**{**FAST, **params})


@pytest.mark.parametrize("in_pipeline", [False, True])
def test_students_of_mixed_models_have_functions_of_their_own(in_pipeline):
    kinds = [_ensemble(n_members=20), DecisionTreeRegressor(min_samples_leaf=10, random_state=0)]
    teacher = as_teacher(MixedModels(kinds, weights="equal"), epistemic_scale=None)
    teacher.set_params(estimator__random_state=0)
    teacher = make_pipeline(StandardScaler(), teacher) if in_pipeline else teacher
    teacher.fit(X, Y)
    student = DistributionDistiller(FrozenEstimator(teacher), max_epochs=30, random_state=0)
    student.fit(X, Y)
    # Half of the mixture has functions of variance v: its mean has a quarter of v.
    rng = np.random.RandomState(0)
    by_itself = find_functions(
        X, Y[:, None], None, lambda rows: student.predict(rows)[:, None], None, False, rng
    )
    expected = np.sqrt(0.25) * by_itself.scale
    np.testing.assert_allclose(student._recipe.functions.scale, expected, rtol=1e-4)
    far = np.linspace(-1000, 1000, 41)[:, np.newaxis]
    found, of_teacher = (skdistill.predict_uncertainty(m, far) for m in (student, teacher))
    ratio = np.median(np.sqrt(found.epistemic / of_teacher.epistemic))
    assert 0.7 < ratio < 1.4


def test_targets_have_functions_in_their_own_units():
    targets = np.column_stack([Y, 1e6 * Y + 3, np.ones(120)])
    model = BayesianEnsembleRegressor(**FAST).fit(X, targets)
    scale = model._recipe.functions.scale
    np.testing.assert_allclose(scale[1] / scale[0], 1e6, rtol=0.5)
    assert scale[2] == 0
    assert np.isfinite(model.predict_uncertainty(FAR).total).all()
