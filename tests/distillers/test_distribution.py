# SPDX-License-Identifier: BSD-3-Clause
"""DistributionDistiller: what each family learns, held against the members themselves."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    DistributionDistiller,
    losses,
    predict_uncertainty,
)
from skdistill.distributions import (
    ClassDistribution,
    EmpiricalCategorical,
    EmpiricalGaussian,
    Gaussian,
    NumericDistribution,
)
from skdistill.families import (
    DirichletFamily,
    DropoutHeadFamily,
    GaussHeadFamily,
    GaussianFamily,
    LogitNormalFamily,
    MixtureFamily,
    known_families,
)
from skdistill.modules import MLP, GaussianHead, stack
from skdistill.settings import Optimizer
from skdistill.transfer import TransferOnly

N_ROWS = 6
X = np.eye(N_ROWS)  # samples that a linear network can tell what it likes about
BY_KIND = {kind: known_families(kind) for kind in ("regressor", "classifier")}
EVERY = [(kind, name) for kind, known in BY_KIND.items() for name in known]
TELLING = [(kind, name) for kind, name in EVERY if BY_KIND[kind][name].tells_parts]


def linear(task, **params):
    """A student that fits every row of X by itself, to convergence."""
    settings = {
        "module__hidden_units": (),
        "max_epochs": 800,
        "lr": 0.1,
        "random_state": 0,
        "transfer": None,
        "normalize": False,
        "ddof": 0,
    }
    return DistributionDistiller(task, **{**settings, **params})


def gaussian_members(seed=0, n_members=7):
    """Means and variances, (n, S, 1, 2)."""
    draw = np.random.default_rng(seed)
    means = draw.normal(size=(N_ROWS, n_members, 1))
    return np.stack([means, draw.uniform(0.2, 2.0, means.shape)], axis=-1)


def as_gaussians(members):
    return Gaussian(*torch.from_numpy(members).transpose(0, 1).unbind(-1))


def categorical_members(n_classes=4, seed=0, n_members=7):
    """Probabilities, (n, S, K)."""
    draw = np.random.default_rng(seed)
    return draw.dirichlet(np.full(n_classes, 3.0), size=(N_ROWS, n_members))


def small_student(kind, **params):
    """An unfitted student of a small ensemble."""
    ensemble = {"regressor": BayesianEnsembleRegressor, "classifier": BayesianEnsembleClassifier}
    settings = {
        "teacher": ensemble[kind](n_members=3, max_epochs=5, module__hidden_units=(8,)),
        "max_epochs": 5,
        "module__hidden_units": (8,),
        "random_state": 0,
    }
    return DistributionDistiller(**{**settings, **params})


@pytest.fixture(scope="module")
def data():
    draw = np.random.default_rng(0)
    X = draw.normal(size=(60, 3))
    return X, X[:, 0] + 0.1 * draw.normal(size=60), np.digitize(X[:, 0], [-0.5, 0.5])


def target_of(kind, data):
    return data[1] if kind == "regressor" else data[2]


# --- What each family learns ------------------------------------------------------------------


@pytest.mark.slow
def test_moments_keep_what_the_student_misses_out_of_the_epistemic_part():
    """Members are the same curve, a little shifted, and the student can learn straight lines."""
    rows = np.linspace(-1, 1, 200)[:, None].astype(np.float32)
    curve, shifts = np.cos(3 * rows), 0.1 * np.array([-1.0, 0.0, 1.0])
    means = curve + shifts
    members = np.stack([means, np.full_like(means, 0.04)], axis=-1)[:, :, None]
    shared = {"module__hidden_units": (), "transfer": None, "normalize": "X", "lr": 0.03}
    shared["ddof"] = 0
    shared["module__embeddings"] = None  # a line it is without bins
    found = {}
    for loss in ("nll", "moments"):
        family = GaussianFamily(loss=loss)
        student = DistributionDistiller("regressor", family=family, random_state=0, **shared)
        student.fit(rows, curve[:, 0], member_predictions=members)
        found[loss] = student.predict_uncertainty(rows).epistemic.mean()
    assert found["moments"] == pytest.approx(shifts.var(), rel=0.1)
    assert found["nll"] > 10 * shifts.var()  # the variance of the curve around a line is .4


@pytest.mark.parametrize("loss", ["nll", "moments"])
@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_the_gaussian_family_learns_the_members_moments(covariance, loss):
    members = gaussian_members()
    model = linear("regressor", family=GaussianFamily(covariance, loss))
    model.fit(X, np.zeros(N_ROWS), member_predictions=members)
    found = model.predict_distribution(X)
    z = losses.gaussian_parameters(as_gaussians(members))
    variance, mean = torch.var_mean(z, dim=0, correction=0)
    epistemic = np.var(members[..., 0, 0], axis=1)
    np.testing.assert_allclose(model.predict(X), members[..., 0, 0].mean(1), atol=1e-3)
    np.testing.assert_allclose(model.predict_uncertainty(X).epistemic, epistemic, rtol=1e-2)
    np.testing.assert_allclose(found.raw_mean, mean[:, 1:], atol=2e-3)
    np.testing.assert_allclose(found.raw_variance, variance[:, 1:], rtol=1e-2)


@pytest.mark.slow
def test_the_normal_inverse_gamma_family_starts_and_ends_where_its_likelihood_is_best():
    members = gaussian_members(n_members=40)
    model = linear("regressor", family="normal_inverse_gamma")
    found = model.fit(X, np.zeros(N_ROWS), member_predictions=members).predict_distribution(X)
    target = losses.normal_inverse_gamma_target(as_gaussians(members))
    np.testing.assert_allclose(found.mean, target.mean, atol=1e-2)
    np.testing.assert_allclose(found.nu, 1 / target.scatter, rtol=5e-2)
    np.testing.assert_allclose(found.beta / found.alpha, target.harmonic, rtol=1e-2)


@pytest.mark.slow
def test_the_normal_inverse_wishart_family_shares_one_ratio_among_the_targets():
    pairs = [gaussian_members(seed, n_members=40) for seed in (0, 1)]
    members = np.concatenate(pairs, axis=2)
    model = linear("regressor", family="normal_inverse_wishart")
    model.fit(X, np.zeros((N_ROWS, 2)), member_predictions=members)
    found = model.predict_distribution(X)
    target = losses.normal_inverse_gamma_target(as_gaussians(members))
    np.testing.assert_allclose(found.mean, target.mean, atol=2e-2)
    nu = 1 / target.scatter.mean(-1, keepdim=True)
    np.testing.assert_allclose(found.nu, nu, rtol=5e-2)
    np.testing.assert_allclose(found.psi / found.degrees, target.harmonic, rtol=2e-2)
    _, aleatoric, epistemic = model.predict_uncertainty(X)
    np.testing.assert_allclose(aleatoric / epistemic, found.nu.expand(-1, 2), rtol=1e-5)


@pytest.mark.slow
def test_the_mixture_family_learns_the_total_only():
    members = gaussian_members()
    model = linear("regressor", family="mixture")
    model.fit(X, np.zeros(N_ROWS), member_predictions=members)
    expected = EmpiricalGaussian.from_members(members)
    found = model.predict_uncertainty(X)
    np.testing.assert_allclose(found.total, expected.variance[:, 0], rtol=1e-2)
    assert found.aleatoric is None
    assert found.epistemic is None


@pytest.mark.slow
def test_the_logit_normal_family_learns_the_members_moments():
    members = categorical_members()
    model = linear("classifier", family=LogitNormalFamily(loss="nll"))
    model.fit(X, np.arange(N_ROWS) % 4, member_predictions=members)
    z = np.log(members[..., :-1]) - np.log(members[..., -1:])
    found = model.predict_distribution(X)
    np.testing.assert_allclose(found.logit_mean, z.mean(1), atol=2e-3)
    np.testing.assert_allclose(found.logit_variance, z.var(1), rtol=2e-2)


@pytest.mark.parametrize("smoothing", ["auto", 0.1])
def test_the_logit_normal_family_learns_mean_and_information_of_the_members(smoothing):
    members = categorical_members()
    members[0] = members[0] ** 3 / (members[0] ** 3).sum(-1, keepdims=True)  # surer
    members[1, 0] = [0.0, 1.0, 0.0, 0.0]  # as of a tree
    model = linear("classifier", family=LogitNormalFamily(smoothing=smoothing, n_samples=2000))
    model.fit(X, np.arange(N_ROWS) % 4, member_predictions=members)
    found = model.predict_distribution(X)
    if smoothing != "auto":
        members = (1 - smoothing) * members + smoothing / 4
    log_probs = np.log(np.maximum(members, 1e-30))
    expected = EmpiricalCategorical(torch.from_numpy(log_probs).transpose(0, 1))
    np.testing.assert_allclose(found.mean, expected.mean, atol=5e-3)
    information = expected.uncertainty().epistemic
    # but for what differs between draws of 32 in training, most where members disagree most
    np.testing.assert_allclose(found.uncertainty().epistemic, information, rtol=0.1)


@pytest.mark.slow
def test_a_covariance_of_low_rank_keeps_what_logits_share():
    draw = np.random.default_rng(0)
    shared = draw.normal(size=(N_ROWS, 200, 1)) * [1.0, -1.0] + 0.3 * draw.normal(
        size=(N_ROWS, 200, 2)
    )
    logits = np.concatenate([shared, np.zeros((N_ROWS, 200, 1))], axis=-1)
    members = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    model = linear("classifier", family=LogitNormalFamily(covariance=1))
    model.fit(X, np.arange(N_ROWS) % 3, member_predictions=members)
    found = model.predict_distribution(X)
    factor = found.factor.numpy()
    covariance = factor @ np.swapaxes(factor, 1, 2) + [np.diag(v) for v in found.logit_variance]
    expected = [np.cov(rows.T, bias=True) for rows in shared]
    np.testing.assert_allclose(covariance, expected, atol=0.03)


@pytest.mark.slow
def test_the_dirichlet_family_learns_mean_and_information_of_the_members():
    members = categorical_members()
    members[0] = members[0] ** 12 / (members[0] ** 12).sum(-1, keepdims=True)  # surer by far
    model = linear("classifier", family="dirichlet")
    model.fit(X, np.arange(N_ROWS) % 4, member_predictions=members)
    found = model.predict_distribution(X)
    expected = EmpiricalCategorical(torch.from_numpy(np.log(members)).transpose(0, 1))
    np.testing.assert_allclose(found.mean, expected.mean, atol=2e-3)
    information = expected.uncertainty().epistemic
    np.testing.assert_allclose(found.uncertainty().epistemic, information, rtol=2e-2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "seed"), [("reverse_kl", 0), ("reverse_kl", 3), ("reverse_kl", 8), ("forward_kl", 0)]
)
def test_divergences_from_the_proxy_converge_on_digits(loss, seed):
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=seed, stratify=y)
    teacher = BayesianEnsembleClassifier(n_members=10, max_epochs=30)
    family = DirichletFamily(loss=loss)
    model = DistributionDistiller(
        teacher, family=family, transfer=None, max_epochs=30, random_state=seed
    ).fit(X, y)
    of_student, of_teacher = (
        log_loss(y_test, m.predict_proba(X_test)) for m in (model, model.teacher_)
    )
    assert of_student < of_teacher + 0.05
    assert model.predict_distribution(X_test).precision.max() < 1e7


def test_the_dirichlet_likelihood_is_at_its_maximum():
    members = categorical_members(n_members=30)
    model = linear("classifier", family=DirichletFamily("nll", smoothing=0.0))
    model.fit(X, np.arange(N_ROWS) % 4, member_predictions=members)
    alpha = model.predict_distribution(X).concentrations
    # Where the likelihood is stationary, E log p under the Dirichlet is the members' mean log p.
    expected = torch.digamma(alpha) - torch.digamma(alpha.sum(-1, keepdim=True))
    np.testing.assert_allclose(expected, np.log(members).mean(1), atol=5e-3)


@pytest.mark.slow
def test_plain_distillation_learns_the_mean():
    members = categorical_members()
    model = linear("classifier", family="mixture")
    model.fit(X, np.arange(N_ROWS) % 4, member_predictions=members)
    np.testing.assert_allclose(model.predict_proba(X), members.mean(1), atol=1e-3)
    assert model.predict_uncertainty(X).epistemic is None


RANDOM_HEADS = (GaussHeadFamily, DropoutHeadFamily)


@pytest.mark.parametrize("family", RANDOM_HEADS)
def test_random_heads_learn_the_mean_and_differ(family):
    members = np.tile(categorical_members(), (40, 1, 1))
    rows, y = np.tile(X, (40, 1)), np.arange(40 * N_ROWS) % 4
    model = DistributionDistiller(
        "classifier", family=family(n_samples=30), transfer=None, max_epochs=40, random_state=0
    ).fit(rows, y, member_predictions=members)
    np.testing.assert_allclose(model.predict_proba(X), members[:N_ROWS].mean(1), atol=0.1)
    assert model.predict_members(X).shape == (N_ROWS, 30, 4)
    assert (model.predict_uncertainty(X).epistemic > 1e-6).all()


def test_in_training_random_heads_are_drawn_for_each_row(data):
    params = {"family": "dropout_head", "module__embeddings": None}
    model = small_student("classifier", **params).fit(data[0], data[2])
    network, rows = model.module_.network, torch.ones(1, 5, 3, dtype=torch.float64)
    assert network(rows).shape == (1, 100, 5, 3)
    assert (network(rows).diff(dim=-2) == 0).all()
    outputs = network.train()(rows)
    assert outputs.shape == (1, 3, 5, 3)  # a head for each of three members
    assert (outputs.diff(dim=-2) != 0).any()


@pytest.mark.parametrize(("kind", "family"), EVERY)
def test_every_family_on_data(kind, family, data):
    model = small_student(kind, family=family).fit(data[0], target_of(kind, data))
    wanted = NumericDistribution if kind == "regressor" else ClassDistribution
    found = model.predict_distribution(data[0])
    assert isinstance(found, wanted)
    assert type(model.family_) is BY_KIND[kind][family]
    total, *parts = predict_uncertainty(model, data[0])
    if (kind, family) not in TELLING:
        assert parts == [None, None]
    else:
        np.testing.assert_allclose(total, sum(parts), rtol=1e-6)
        assert min(part.min() for part in parts) >= 0
    one_by_one = np.concatenate([model.predict(row[None]) for row in data[0]])
    np.testing.assert_allclose(model.predict(data[0]), one_by_one, rtol=1e-12)
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copied.predict(data[0]), model.predict(data[0]))
    assert hasattr(model, "predict_members") is hasattr(found, "members")
    assert hasattr(model, "sample_members") is (family == "latent_factor")
    assert model.sample_y(data[0], 3, random_state=0).shape == (60, 3)


# --- Labels, temperature ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
def test_the_supervised_term_is_the_likelihood_of_the_labels(kind, data):
    y = target_of(kind, data)
    model = small_student(kind, supervised_weight=2.0).fit(data[0], y)
    objective = model._plan.objective(model.module_, model._training_budget)
    other = clone(model).set_params(supervised_weight=0.0).fit(data[0], y)
    plain = other._plan.objective(other.module_, other._training_budget)
    n = 5
    outputs = torch.randn(1, n, model._plan.n_outputs, dtype=torch.float64)
    if kind == "regressor":
        answers, codes = torch.rand(1, n, 3, 1, 2).double(), torch.randn(1, n, 1).double()
    else:
        answers, codes = torch.randn(1, n, 3, 3).double().log_softmax(-1), torch.arange(n)[None] % 3
    labelled = torch.tensor([[1.0, 1.0, 0.0, 1.0, 0.0]])
    targets = (answers, codes, labelled)
    log_prob = model._plan.read(outputs).log_prob(codes[0]).reshape(n)
    expected = plain(outputs, targets) - 2.0 * labelled * log_prob
    torch.testing.assert_close(objective(outputs, targets), expected)
    gradient = objective.loss_and_gradient(outputs, targets)[1]
    torch.autograd.gradcheck(
        lambda z: objective(z, targets), outputs.requires_grad_(), eps=1e-6, atol=1e-5
    )
    (by_autograd,) = torch.autograd.grad(objective(outputs, targets).sum(), outputs)
    torch.testing.assert_close(gradient, by_autograd)


@pytest.mark.parametrize("family", [DirichletFamily, MixtureFamily])
def test_the_temperature_softens_both_sides_and_falls_to_one(family, data):
    model = small_student("classifier", family=family(temperature=(3.0, 2, 6)))
    model.fit(*data[::2])
    objective = model._plan.objective(model.module_, model._training_budget)
    temperatures = []
    for epoch in range(9):
        objective.begin_epoch(epoch)
        temperatures.append(float(objective.temperature))
    assert temperatures == [3.0, 3.0, 3.0, 2.5, 2.0, 1.5, 1.0, 1.0, 1.0]
    objective.begin_epoch(0)
    answers = torch.randn(1, 4, 3, 3).double().log_softmax(-1)
    targets = (answers, torch.zeros(1, 4).long(), torch.ones(1, 4))
    outputs = torch.randn(1, 4, 3, dtype=torch.float64)
    hot = objective(outputs, targets)
    softened = ((answers / 3).log_softmax(-1), *targets[1:])
    objective.begin_epoch(8)
    torch.testing.assert_close(hot, 9 * objective(outputs / 3, softened))


# --- A classifier or a regressor, as the teacher is -------------------------------------------


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
def test_the_distiller_is_what_its_teacher_is(kind, data):
    model = small_student(kind)
    assert is_classifier(model) is (kind == "classifier")
    assert is_regressor(model) is (kind == "regressor")
    assert hasattr(model, "predict_proba") is (kind == "classifier")
    assert hasattr(model, "predict_interval") is (kind == "regressor")
    with pytest.raises(NotFittedError, match="DistributionDistiller"):
        model.predict(data[0])
    with pytest.raises(AttributeError, match="classes_"):
        _ = model.classes_
    model.fit(data[0], target_of(kind, data))
    assert hasattr(model, "classes_") is (kind == "classifier")
    assert model.teacher_.n_members == 3
    assert model.n_features_in_ == 3
    assert model.set_params(teacher="classifier").fit  # settings change nothing that is fitted
    assert hasattr(model, "predict_proba") is (kind == "classifier")


def test_a_failed_fit_keeps_the_teacher_and_is_not_fitted(data):
    model = small_student(
        "regressor", lr=1e30, optimizer=Optimizer("SGD", clip_norm=None), batch_size=5
    )
    with pytest.raises(ValueError, match="student's loss"):
        model.fit(data[0], data[1])
    assert model.teacher_.n_members == 3
    with pytest.raises(NotFittedError):
        model.predict(data[0])


def test_the_penalty_of_a_gaussian_head_is_its_divergence_from_the_prior(data):
    model = small_student("classifier", family="gauss_head").fit(data[0], data[2])
    head = model.module_.network
    assert isinstance(head, GaussianHead)
    expected = 0.0
    for mean, raw in ((head.layer.weight, head.raw_std), (head.layer.bias, head.raw_bias_std)):
        q = torch.distributions.Normal(mean, torch.nn.functional.softplus(raw))
        prior = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
        expected = expected + torch.distributions.kl_divergence(q, prior).sum()
    penalty = model._plan.objective(model.module_, model._training_budget).penalty(model.module_)
    torch.testing.assert_close(penalty, expected.view(1) / 60)


def test_outputs_of_a_gaussian_head_have_the_variance_of_its_weights():
    head = GaussianHead(torch.nn.Identity(), stack([MLP(3, 2, ())])[0], 1, 20_000).double().eval()
    stds = torch.rand(1, 3, 2).double(), torch.rand(1, 1, 2).double()
    for raw, std in zip((head.raw_std, head.raw_bias_std), stds, strict=True):
        raw.data = std.expm1().log()
    rows = torch.randn(1, 4, 3).double()
    expected = rows[0].square() @ stds[0][0].square() + stds[1][0].square()
    torch.testing.assert_close(head(rows)[0].var(0), expected, rtol=0.05, atol=0)


def test_the_prior_of_a_gaussian_head_weighs_as_one_against_all_rows(data):
    X, _, y = data
    model = small_student("classifier", family="gauss_head", transfer=None)
    n_rows = {
        "plain": model.fit(X, y)._training_budget.n_rows,
        "weighted": model.fit(X, y, sample_weight=np.full(60, 2.0))._training_budget.n_rows,
        "with more": model.fit(X, y, X_transfer=X[:7])._training_budget.n_rows,
    }
    assert n_rows == {"plain": 60, "weighted": 120, "with more": 67}
    model.set_params(transfer=TransferOnly()).fit(X, y, X_transfer=X[:7])
    assert model._training_budget.n_rows == 7
    model.set_params(transfer="mixup").fit(X, y)
    assert model._training_budget.n_rows == 60


# --- Bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        (
            {"max_precision": 1e4},
            TypeError,
            r"unknown .*'max_precision'.* Give family=DirichletFamily\(max_precision=...\) instead",
        ),
        ({"loss": "nll"}, TypeError, "family=GaussianFamily.*or family=LogitNormalFamily"),
        (
            {"family": LogitNormalFamily(1, loss="moments")},
            ValueError,
            "loss must be 'auto' or 'nll' .* low rank.*got 'moments'",
        ),
        (
            {"family": DirichletFamily(temperature=2.0)},
            ValueError,
            "temperature must be 1.*or fall",
        ),
        (
            {"transfer": TransferOnly("mixup"), "supervised_weight": 1.0},
            ValueError,
            "supervised_weight must be 0",
        ),
    ],
)
def test_bad_parameters(params, error, message, data):
    with pytest.raises(error, match=message):
        small_student("classifier", **params).fit(data[0], data[2])


# Another value of each setting of a family; of some settings, the others that it is read with.
OTHER = {
    "covariance": "full",
    "loss": "nll",
    "max_precision": 3.0,
    "smoothing": 0.1,
    "temperature": (4.0, 0, 4),
    "n_factors": 1,
    "n_samples": 7,
    "dropout_rate": 0.1,
}
READ_WITH = {"max_precision": {"loss": "reverse_kl"}}
OF_FAMILY = {("logit_normal", "covariance"): 1}
SETTINGS = [(*one, name) for one in EVERY for name in BY_KIND[one[0]][one[1]]().get_params()]


@pytest.mark.parametrize(("kind", "family", "name"), SETTINGS)
def test_a_setting_is_read_or_refused(kind, family, name):
    """No setting is taken that changes nothing."""
    rows = np.random.default_rng(0).normal(size=(12, 2))
    if kind == "regressor":
        y, members = rows[:, 0], np.abs(np.random.default_rng(1).normal(size=(12, 3, 1, 2))) + 0.1
    else:
        y, members = np.arange(12) % 4, np.concatenate([categorical_members(n_members=3)] * 2)
    before = BY_KIND[kind][family](**READ_WITH.get(name, {}))
    model = DistributionDistiller(
        kind, family=before, max_epochs=3, module__hidden_units=(4,), random_state=0
    ).fit(rows, y, member_predictions=members)
    other = OF_FAMILY.get((family, name), OTHER[name])
    changed = clone(model).set_params(**{f"family__{name}": other})
    assert changed.family.get_params()[name] == other != before.get_params()[name]
    if name not in model._plan.family.get_params():
        with pytest.raises(ValueError, match=f"{name} must be .* for a {kind}, which does not"):
            changed.fit(rows, y, member_predictions=members)
        return
    changed.fit(rows, y, member_predictions=members)
    outputs = [m.predict_uncertainty(rows).total for m in (model, changed)]
    assert not np.array_equal(*outputs), f"{name} is taken and changes nothing"
    assert changed.family_.get_params()[name] == other


# --- Members that never disagree --------------------------------------------------------------


def agreeing(kind, n_members):
    """Samples, labels, and what members say who agree."""
    rows = np.random.default_rng(0).normal(size=(40, 2))
    if kind == "regressor":
        members = np.stack([rows[:, :1], np.full((40, 1), 0.1)], axis=-1)
        return rows, rows[:, 0], np.repeat(members[:, None], n_members, axis=1)
    p = 1 / (1 + np.exp(-rows[:, 0]))
    members = np.stack([p, 1 - p], axis=-1)
    return rows, np.arange(40) % 2, np.repeat(members[:, None], n_members, axis=1)


@pytest.mark.parametrize(("kind", "family"), TELLING)
def test_where_members_agree_there_is_no_epistemic_part(kind, family):
    rows, y, members = agreeing(kind, 4)
    model = DistributionDistiller(kind, family=family, max_epochs=60, random_state=0)
    with pytest.warns(UserWarning, match="members never disagreed") as warned:
        model.fit(rows, y, member_predictions=members)
    assert len(warned) == 1
    total, aleatoric, epistemic = model.predict_uncertainty(rows)
    assert (epistemic == 0).all()
    np.testing.assert_array_equal(aleatoric, total)
    expected = (
        0.1
        if kind == "regressor"
        else EmpiricalCategorical(torch.from_numpy(np.log(members)).transpose(0, 1))
        .uncertainty()
        .total
    )
    # The variances of numbers cover what a draw of the last layer misses.
    is_drawn = kind == "regressor" and family in ("gauss_head", "dropout_head")
    np.testing.assert_allclose(total, expected, atol=0.2 if is_drawn else 0.08)
    if family in ("logit_normal", "gauss_head", "dropout_head"):
        assert model.predict_members(rows).shape[:2] == (40, 1)
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copied.predict_uncertainty(rows).total, total)
    assert (copied.predict_uncertainty(rows).epistemic == 0).all()
    members[0, 0] = members[0, 0, ..., ::-1]  # one of them differs, on one sample
    model.set_params(max_epochs=3).fit(rows, y, member_predictions=members)
    assert (model.predict_uncertainty(rows).epistemic > 0).all()


@pytest.mark.parametrize(("kind", "family"), TELLING)
def test_one_member_cannot_tell_the_parts(kind, family):
    rows, y, members = agreeing(kind, 1)
    model = DistributionDistiller(kind, family=family, max_epochs=5, random_state=0)
    with pytest.warns(UserWarning, match="one member") as warned:
        model.fit(rows, y, member_predictions=members)
    assert len(warned) == 1
    for fitted in (model, pickle.loads(pickle.dumps(model))):
        total, *parts = fitted.predict_uncertainty(rows)
        assert parts == [None, None]
        assert np.isfinite(total).all()
