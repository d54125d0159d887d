# SPDX-License-Identifier: BSD-3-Clause
"""Columns that are standardised, embedded, missing, or hold categories."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.impute import MissingIndicator
from sklearn.linear_model import LinearRegression
from sklearn.metrics import log_loss
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    BDistilBooster,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusRegressor,
)
from skdistill._data.columns import Columns
from skdistill._data.encoding import Bins, InputEncoding
from skdistill._utils.moments import Moments
from skdistill.modules import InputEncoder, PiecewiseLinear
from skdistill.modules._inputs import compressed
from skdistill.samplers import DeepEnsemble, MCDropout
from skdistill.transfer import GaussianNoise, Munge, prepare_with_missing

SMALL = {"max_epochs": 3, "module__hidden_units": (6,), "random_state": 0}


def ensemble(**params):
    return BayesianEnsembleRegressor(**{"n_members": 2, **SMALL, **params})


ESTIMATORS = {
    "ensemble": ensemble,
    "hydra": lambda: HydraPlusRegressor(ensemble(), **SMALL),
    "distribution": lambda: DistributionDistiller(ensemble(), **SMALL),
    "gped": lambda: GPEDDistiller(ensemble(), **SMALL),
    "bdistil": lambda: BDistilBooster(ensemble(), n_rounds=2, **SMALL),
}


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal([3.0, -50.0, 0.0], [0.1, 20.0, 1e4], size=(80, 3))
    return X, X[:, 0] * 10 - X[:, 1] / 20 + X[:, 2] / 1e4


@pytest.fixture
def frame(rows):
    """A frame of pandas: numbers, some missing, a categorical column and one of text."""
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(rows[0], columns=["a", "b", "c"])
    table.loc[::7, "b"] = np.nan
    table["kind"] = pd.Categorical(np.where(rows[0][:, 0] > 3, "large", "small"))
    table["town"] = np.resize(["Rome", "Oslo", None], 80)
    return table


# --- The encoding -----------------------------------------------------------------------------


def test_inputs_are_those_of_scikit_learns_transformers(rows):
    X = np.column_stack([rows[0], np.resize([0.0, 1.0, 2.0], 80)])
    X[::5, 1] = np.nan
    sizes = np.array([0, 0, 0, 3])
    found = InputEncoding.of(X, None, n_categories=sizes).module(torch.float64)(torch.tensor(X))
    numbers = np.nan_to_num(StandardScaler().fit_transform(X[:, :3]))  # ignores missing ones
    is_missing = MissingIndicator().fit_transform(X[:, :3])
    one_hot = OneHotEncoder(sparse_output=False).fit_transform(X[:, 3:])
    np.testing.assert_allclose(found, np.hstack([numbers, is_missing, one_hot]), atol=1e-12)


def test_numbers_far_out_grow_as_a_logarithm():
    z = torch.tensor([-105.0, -5.0, -4.9, 0.0, 3.0, 5.0, 6.0, torch.nan])
    expected = [-5 - np.log(101), -5, -4.9, 0, 3, 5, 5 + np.log(2), np.nan]
    np.testing.assert_allclose(compressed(z), expected, rtol=1e-6)
    X = np.append(np.zeros(999), 1.0)[:, None] * 7  # like a pixel at the edge
    (largest,) = InputEncoding.of(X, None).module(torch.float64)(torch.tensor(X))[-1]
    assert largest == pytest.approx(5 + np.log((1 - 1e-3) / np.sqrt(999e-6) - 4), rel=1e-3)
    assert InputEncoding.of(X, None, normalize=False) is None


def test_weights_have_the_effect_of_repetitions(rows):
    X, y = rows
    X[::9, 0] = np.nan
    weight = np.resize([1, 2, 3], 80)
    for bins in ("quantile", "tree"):
        settings = PiecewiseLinear(4, bins)
        one = InputEncoding.of(X, weight.astype(float), bins=Bins(settings, y))
        again = X.repeat(weight, axis=0)
        other = InputEncoding.of(again, None, bins=Bins(settings, y.repeat(weight)))
        np.testing.assert_allclose(one.loc, other.loc)
        np.testing.assert_allclose(one.scale, other.scale)
        if bins == "quantile":  # a leaf of a tree has a least number of samples
            for edges, expected in zip(one.edges, other.edges, strict=True):
                np.testing.assert_allclose(edges, expected)


def test_a_number_is_the_share_of_each_bin_below_it():
    encoder = InputEncoder(np.zeros(1), np.ones(1), edges=[np.array([0.0, 1.0, 3.0])])
    found = encoder(torch.tensor([[-2.0], [0.25], [2.0], [9.0]], dtype=torch.float64))
    np.testing.assert_allclose(found, [[-2, 0, 0], [0.25, 0.25, 0], [2, 1, 0.5], [9, 1, 1]])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_encoding_is_that_of_each_column_by_itself(dtype):
    loc = np.array([3.0, 7.0, 0.0, -2e3, 0.0, 1.0])
    scale = np.array([2.0, 1.0, 1.0, 50.0, 1.0, 4.0])
    sizes, has_indicator = np.array([0, 0, 3, 0, 2, 0]), np.array([True, False] * 3)
    edges = [np.linspace(-2, 2, 9), np.zeros(0), np.zeros(0), np.array([-1.0, 0.5, 0.6])]
    edges += [np.zeros(0), np.array([-3.0, 3.0])]
    encoder = InputEncoder(loc, scale, sizes, has_indicator, edges, compresses=True).to(dtype)
    X = np.random.default_rng(0).normal(loc, 3 * scale, size=(40, 6))
    X[:, 2], X[:, 4] = np.resize([0, 1, 2, np.nan, 7], 40), np.resize([0, 1], 40)
    largest = 1e300 if dtype == torch.float64 else 1e30
    X[:3, 0], X[:3, 3] = (np.nan, largest, -largest), (-largest, np.nan, largest)
    X = torch.tensor(X, dtype=dtype).double().numpy()  # as the encoder has it
    z = (np.where(np.isnan(X), loc, X) - loc) / scale
    numbers = np.flatnonzero(sizes == 0)
    beyond = np.maximum(np.abs(z) - 5, 0)
    parts = [(np.clip(z, -5, 5) + np.sign(z) * np.log1p(beyond))[:, numbers]]
    parts += [np.isnan(X[:, [column]]) for column in numbers if has_indicator[column]]
    parts += [X[:, [column]] == np.arange(sizes[column]) for column in (2, 4)]
    parts += [
        np.interp(z[:, [column]], bounds, [0, 1])
        for column in numbers
        for bounds in itertools.pairwise(edges[column])
    ]
    expected = np.concatenate(parts, axis=1)
    found = encoder(torch.tensor(X, dtype=dtype))
    assert found.shape == (40, encoder.n_inputs)
    assert found.dtype == dtype
    tolerance = 1e-11 if dtype == torch.float64 else 2e-3  # a bin is narrow, and far from 0
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


def test_bins_of_a_tree_are_its_leaves(rows):
    X, y = rows
    tree = DecisionTreeRegressor(max_leaf_nodes=4, min_samples_leaf=2, random_state=0)
    thresholds = tree.fit(X[:, :1], y).tree_.threshold
    edges = Bins(PiecewiseLinear(4, "tree"), y).edges(X[:, 0], None)
    expected = [X[:, 0].min(), *sorted(thresholds[thresholds != -2]), X[:, 0].max()]
    np.testing.assert_allclose(edges, expected)


def test_quantiles_hold_about_as_many_rows_each(rows):
    edges = Bins(PiecewiseLinear(4), rows[1]).edges(rows[0][:, 2], None)
    counts, _ = np.histogram(rows[0][:, 2], edges)
    assert len(counts) == 4
    assert np.abs(counts - 20).max() <= 1
    assert len(Bins(PiecewiseLinear(4), rows[1]).edges(np.ones(80), None)) == 0
    assert len(Bins(PiecewiseLinear(4), rows[1]).edges(np.full(80, np.nan), None)) == 0


def test_columns_of_zeros_and_ones_are_taken_as_they_are(rows):
    X = np.column_stack([rows[0], np.arange(80) == 0, np.arange(80) % 2, np.linspace(0, 1, 80)])
    weight = np.linspace(1, 2, 80)
    moments = Moments()
    for part in (slice(30), slice(30, None)):
        moments.add(X[part], weight[part])
    limits = X.min(axis=0), X.max(axis=0)
    for found in (
        InputEncoding.of(X, weight),
        InputEncoding.of_moments(moments, limits, X, weight),
    ):
        np.testing.assert_array_equal(found.loc == 0, [False] * 3 + [True] * 2 + [False])
        np.testing.assert_array_equal(found.scale == 1, [False] * 3 + [True] * 2 + [False])


@pytest.mark.parametrize(
    ("n_rows", "model", "is_embedded"),
    [
        (199, BayesianEnsembleRegressor, False),
        (200, BayesianEnsembleRegressor, True),
        (200, partial(BayesianEnsembleRegressor, inference=DeepEnsemble(calibrate=None)), False),
        (9_999, partial(BayesianEnsembleRegressor, inference=DeepEnsemble(calibrate=None)), False),
        (10_000, partial(BayesianEnsembleRegressor, inference=DeepEnsemble(calibrate=None)), True),
        (9_999, partial(BayesianEnsembleRegressor, inference=MCDropout()), False),
        (49, BayesianEnsembleClassifier, False),
        (50, BayesianEnsembleClassifier, True),
        (10_000, BayesianEnsembleClassifier, True),
    ],
)
def test_auto_embeds_tables_of_many_samples(n_rows, model, is_embedded):
    X = np.random.default_rng(0).normal(size=(n_rows, 2))
    y = X[:, 0] > 0 if model is BayesianEnsembleClassifier else X.prod(axis=1) + (X**2).sum(axis=1)
    fitted = model(1, max_epochs=1, module__hidden_units=(4,), random_state=0).fit(X, y)
    inputs = fitted.module_.inputs
    n_inputs = 2 if inputs is None else inputs.n_inputs
    assert n_inputs == 2 + 2 * 8 * is_embedded


def test_bins_tell_classes_that_change_at_steps_by_few_samples():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(1_100, 4))
    y = np.where((abs(X) < 0.5)[:, :2].any(axis=1), "in", "out")  # a linear model tells nothing

    def log_loss_of(**params):
        found = BayesianEnsembleClassifier(10, random_state=0, **params).fit(X[:100], y[:100])
        return log_loss(y[100:], found.predict_proba(X[100:]))

    assert log_loss_of() < log_loss_of(module__embeddings=None) - 0.02


@pytest.mark.parametrize("are_weighted", [False, True])
def test_large_tables_have_as_many_bins_as_suit_a_column(are_weighted):
    # The spline of least BIC, whose likelihood is that of a linear model.
    rng = np.random.default_rng(0)
    n, spec = 10_000, PiecewiseLinear()
    x = rng.uniform(size=n)
    weight = rng.integers(1, 3, n).astype(float) if are_weighted else np.ones(n)
    for y, expected in ((x, 0), (np.sin(4 * x), 8), (np.sin(60 * x), 64)):
        y = (y + 0.3 * rng.standard_normal(n))[:, None]
        edges = Bins(spec, y, by_bic=True).edges(x, weight)
        bic = {}
        for number in (0, 8, 16, 32, 64):
            own = np.quantile(
                x, np.linspace(0, 1, number + 1), method="inverted_cdf", weights=weight
            )
            design = (
                x[:, None] if number == 0 else ((x[:, None] - own[:-1]) / np.diff(own)).clip(0, 1)
            )
            fit = LinearRegression().fit(design, y, sample_weight=weight)
            mse = np.average((y - fit.predict(design))[:, 0] ** 2, weights=weight)
            bic[number] = n * np.log(mse) + np.log(n) * design.shape[1]
        assert min(bic, key=bic.get) == expected == max(len(edges) - 1, 0)


# --- Missing values ---------------------------------------------------------------------------


@pytest.mark.parametrize("maker", [GaussianNoise(), Munge()], ids=repr)
def test_new_rows_lack_what_theirs_lack(maker):
    X = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    X[::4, 1] = torch.nan
    draw = prepare_with_missing(maker, X, None)
    drawn = draw(X, torch.arange(50), torch.Generator().manual_seed(0))
    assert torch.equal(drawn.isnan(), X.isnan())
    assert not torch.equal(drawn.nan_to_num(), X.nan_to_num())


# --- Categories -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ESTIMATORS)
def test_frames_with_categories_text_and_gaps_are_learnt(name, frame, rows):
    y = rows[1] + 20 * (frame["kind"] == "large")
    model = ESTIMATORS[name]().set_params(max_epochs=60)
    if name != "ensemble":
        model.set_params(teacher__max_epochs=60)
    model.fit(frame, y)
    assert model.score(frame, y) > 0.7
    assert model.module_.inputs.n_inputs == 3 + 1 + 2 + 2
    strange = frame.copy()
    strange["kind"], strange["town"] = "huge", "Bern"
    lacking = frame.assign(kind=None, town=None)
    np.testing.assert_array_equal(model.predict(strange), model.predict(lacking))


def test_the_most_frequent_categories_are_kept():
    X = np.repeat(np.arange(300), np.arange(300, 0, -1)).astype(float)[:, None]
    found = Columns.of(X, [0])
    assert found.categories[0] == list(range(255))
    np.testing.assert_array_equal(found.encode([[0.0], [254.0], [255.0]]), [[0], [254], [np.nan]])


class Witness(ClassifierMixin, BaseEstimator):
    """Notes the tables that it is asked about."""

    def fit(self, X, y):
        self.classes_, self.asked_ = np.unique(y), []
        self.n_features_in_, self.feature_names_in_ = X.shape[1], np.array(X.columns, dtype=object)
        return self

    def predict_proba(self, X):
        self.asked_.append(X)
        is_large = np.asarray(X["kind"] == "large", dtype=float)
        return np.column_stack([1 - 0.8 * is_large, 0.8 * is_large])

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


@pytest.mark.parametrize("transfer", ["noise", "munge", "mixup"])
def test_a_teacher_is_asked_about_tables_like_those_that_it_was_fitted_on(transfer, frame):
    y = np.asarray(frame["kind"])
    model = DistributionDistiller(Witness(), transfer=transfer, **SMALL).fit(frame, y)
    drawn = model.teacher_.estimator_.asked_[-1]
    assert list(drawn.columns) == list(frame.columns)
    assert drawn["kind"].dtype == frame["kind"].dtype
    assert set(drawn["kind"].dropna()) == {"large", "small"}
    assert set(drawn["town"].dropna()) == {"Rome", "Oslo"}
    assert not set(drawn["a"]) <= set(frame["a"])


def test_bins_end_where_a_wide_gap_begins():
    rng = np.random.RandomState(0)
    column = np.concatenate([rng.uniform(-4, -1, 130), rng.uniform(1, 4, 270)])
    edges = Bins(PiecewiseLinear(8), np.zeros(400)).edges(column, None)
    assert column[:130].max() in edges
    assert column[130:].min() in edges
    # A few samples beyond a gap are no reason for a bin of their own.
    column = np.append(rng.uniform(0, 1, 400), [9.0, 10.0])
    assert len(Bins(PiecewiseLinear(8), np.zeros(402)).edges(column, None)) == 9
