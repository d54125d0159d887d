# SPDX-License-Identifier: BSD-3-Clause
"""Students of sequence models: their loss, their rows, what they predict."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from skdistill import SequenceDistributionDistiller, losses
from skdistill.datasets import TRANSLATION_TOKENS, make_translation
from skdistill.distillers._sequence import TokenObjective
from skdistill.families import DirichletFamily, MixtureFamily
from skdistill.modules import RecurrentSequenceModel
from skdistill.sequences import SequenceEnsemble
from skdistill.settings import Optimizer

SIZES = TRANSLATION_TOKENS.n_source, TRANSLATION_TOKENS.n_target
DIRICHLET = ["reverse_kl", "reverse_kl_reference", "forward_kl", "nll"]


def family(name, **settings):
    """The family that minimises a loss of this name at each token."""
    if name == "mixture":
        return MixtureFamily(**settings)
    return DirichletFamily(loss=name, **settings)


def network(seed, sizes=SIZES, **params):
    generator = torch.Generator().manual_seed(seed)
    return RecurrentSequenceModel(*sizes, hidden_units=8, generator=generator, **params)


def distiller(teacher, **params):
    settings = {"module__hidden_units": 8, "max_epochs": 2, "random_state": 0, **params}
    return SequenceDistributionDistiller(teacher, **settings)


@pytest.fixture(scope="module")
def members():
    return [network(seed) for seed in range(3)]


@pytest.fixture(scope="module")
def data():
    return make_translation(100, random_state=0)


@pytest.fixture(scope="module")
def student(members, data):
    return distiller(members).fit(*data)


# --- The loss ---------------------------------------------------------------------------------

N, T, K = 4, 5, 6


@pytest.fixture
def batch():
    """Outputs (1, n, T * K), members' logits (S, n, T, K), and where there are tokens (1, n, T)."""
    generator = torch.Generator().manual_seed(0)
    draw = partial(torch.randn, generator=generator, dtype=torch.float64)
    is_token = torch.arange(T) < torch.tensor([[5], [1], [3], [4]])
    return draw(1, N, T * K), 2 * draw(3, N, T, K), is_token.unsqueeze(0).double()


def objective_of(name, temperature):
    settings = {} if name in ("mixture", "nll") else {"max_precision": 1e4}
    return TokenObjective(family(name, temperature=temperature, **settings)._for_tokens())


def known(objective, members, is_token, temperature=1.0):
    """What is to be learnt from members at each token, noise where there is none."""
    statistics = losses.MemberStatistics(temperature, 1e-3)
    for member in members:
        statistics.add(member)
    target = objective.family._target_of_tokens(statistics).unsqueeze(0)
    return torch.where(is_token.bool().unsqueeze(-1), target, 1e3 * torch.rand_like(target))


@pytest.mark.parametrize("name", ["mixture", *DIRICHLET])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_a_row_has_the_mean_loss_of_its_tokens(name, temperature, batch):
    outputs, members, is_token = batch
    objective = objective_of(name, temperature)
    found = objective(outputs, (known(objective, members, is_token, temperature), is_token))
    target = {
        "mixture": lambda s: (s.mean,),
        "nll": lambda s: (s.mean_log, 0.0),
        "reverse_kl_reference": lambda s: (s.mean, losses.proxy_precision(s.mean, s.mean_log, 1e4)),
    }
    function = {
        "mixture": losses.cross_entropy,
        "nll": losses.dirichlet_nll,
        "reverse_kl": lambda z, beta: losses.dirichlet_reverse_kl(z, beta) / beta.sum(-1),
        "reverse_kl_reference": losses.dirichlet_reverse_kl_reference,
        "forward_kl": lambda z, beta: losses.dirichlet_forward_kl(z, beta - 1, 0.0),
    }
    for row in range(N):
        expected = []
        for t in range(int(is_token[0, row].sum())):
            statistics = losses.MemberStatistics(temperature, 1e-3)
            for member in members[:, row, t]:
                statistics.add(member.unsqueeze(0))
            of_proxy = (losses.proxy_precision(statistics.mean, statistics.mean_log, 1e4),)
            concentrations = (losses.proxy_concentrations(statistics.mean, *of_proxy),)
            arguments = target.get(name, lambda s: concentrations)(statistics)  # noqa: B023 - used at once
            z = outputs.view(N, T, K)[row, t].unsqueeze(0) / temperature
            expected.append(temperature**2 * function[name](z, *arguments))
        torch.testing.assert_close(found[0, row], torch.cat(expected).mean())


@pytest.mark.parametrize("name", ["mixture", *DIRICHLET])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_gradients_are_those_of_finite_differences(name, temperature, batch):
    outputs, members, is_token = batch
    objective = objective_of(name, temperature)
    targets = known(objective, members, is_token), is_token
    assert torch.autograd.gradcheck(
        lambda z: objective(z, targets), outputs.clone().requires_grad_(), rtol=1e-3, atol=1e-5
    )


@pytest.mark.parametrize("name", ["mixture", *DIRICHLET])
def test_padding_has_no_influence_on_loss_or_gradient(name, batch):
    outputs, members, is_token = batch
    objective = objective_of(name, 1.0)
    target = known(objective, members, is_token)
    loss, gradient = objective.loss_and_gradient(outputs, (target, is_token))
    is_pad = ~is_token.bool()
    assert not gradient.unflatten(-1, (T, K))[is_pad].any()
    noisy, noisy_target = outputs.clone(), target.clone()
    noisy.view(1, N, T, K)[is_pad] = torch.tensor(float("nan"), dtype=noisy.dtype)
    noisy_target[is_pad] = torch.inf
    for found, expected in zip(
        objective.loss_and_gradient(noisy, (noisy_target, is_token)), (loss, gradient), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


# --- Training ---------------------------------------------------------------------------------


def weights(model):
    return [value.numpy() for value in model.module_.state_dict().values()]


def assert_same(a, b, **tolerance):
    for x, y in zip(weights(a), weights(b), strict=True):
        np.testing.assert_allclose(x, y, **tolerance)


def read_before(y):
    """What is read before each token: the begin token, and the tokens but the last."""
    return torch.tensor(np.pad(y[:, :-1], ((0, 0), (1, 0)), constant_values=1))


def test_tokens_of_all_sequences_weigh_alike(members):
    X, y = make_translation(6, random_state=1)
    student = distiller(members, batch_size=100, max_epochs=1, lr=1e-30).fit(X, y)
    family, read, at = student.family_, read_before(y), torch.tensor(y != 0)
    statistics = SequenceEnsemble(members).member_statistics(torch.tensor(X), read, at)
    rows = torch.cat([torch.tensor(X), read, read[:, :1]], 1).float()
    outputs = student.module_(rows.unsqueeze(0)).view(*y.shape, -1)[at].detach()
    loss, _ = family._loss_of_tokens(outputs, family._target_of_tokens(statistics))
    expected = pytest.approx(float(loss.mean()), rel=1e-4)
    assert student.history_[0]["train_loss"] == expected


def test_sequences_without_a_token_are_left_out(members, data, student):
    X, y = data
    with_empty = distiller(members).fit(np.vstack([X, X[:1]]), np.vstack([y, np.zeros_like(y[:1])]))
    assert_same(with_empty, student, rtol=1e-4, atol=1e-6)


class Table(nn.Module):
    """A language model that only looks at the last token."""

    def __init__(self, out_features, generator=None):
        super().__init__()
        self.logits = nn.Embedding(out_features, out_features)
        nn.init.normal_(self.logits.weight, generator=generator)

    def forward(self, tokens):
        return self.logits(tokens)


@pytest.fixture(scope="module")
def tables():
    return [Table(5, torch.Generator().manual_seed(seed)) for seed in range(10)]


TEXTS = np.array([[3, 4, 3, 3, 2], [4, 4, 2, 0, 0], [3, 2, 0, 0, 0], [2, 0, 0, 0, 0]])


@pytest.mark.slow
@pytest.mark.parametrize("loss", DIRICHLET)
def test_a_student_that_can_hold_it_has_what_members_know(loss, tables):
    """Where the student can hold the best Dirichlet, its informations are the members'."""
    student = SequenceDistributionDistiller(
        tables,
        family=DirichletFamily(loss=loss, smoothing=0.0),
        module=Table,
        max_epochs=800,
        lr=0.1,
        optimizer=Optimizer(clip_norm=None),
        random_state=0,
    ).fit(TEXTS)
    ensemble = SequenceEnsemble(tables, has_source=False)
    read = torch.tensor([[1, 3, 4]])
    everywhere = torch.ones_like(read, dtype=torch.bool)
    statistics = ensemble.member_statistics(None, read, everywhere)
    found = student._distribution(None, read, everywhere)
    precision = losses.proxy_precision(statistics.mean, statistics.mean_log)
    if loss == "nll":  # the best mean log probability is the members'
        alpha = found.concentrations.double()
        mean_log = alpha.digamma() - alpha.sum(-1, keepdim=True).digamma()
        torch.testing.assert_close(mean_log.float(), statistics.mean_log, rtol=0.02, atol=0.02)
        return
    added = 5 if loss == "reverse_kl_reference" else 0
    expected = losses.proxy_concentrations(statistics.mean, precision + added, offset=0.0)
    torch.testing.assert_close(found.concentrations, expected, rtol=0.02, atol=0.02)


# --- Prediction -------------------------------------------------------------------------------


def test_generating_from_a_student(student, data):
    X, _ = data
    found = student.generate(X[:5], beam_size=3, max_length=6)
    assert found.tokens.shape == (5, 3, 6)
    total, aleatoric, epistemic = found.uncertainty()
    np.testing.assert_allclose(total, aleatoric + epistemic)
    assert (found.reverse_mutual_information() >= epistemic).all(), "so it is of any Dirichlet"
    np.testing.assert_allclose(
        found.expected_pairwise_kl(), epistemic + found.reverse_mutual_information()
    )
    assert (np.diff(found.sequence_log_probs, axis=1) <= 1e-6).all(), "the most probable first"
    np.testing.assert_array_equal(
        student.predict(X[:5], 6), student.generate(X[:5], 1, 6).tokens[:, 0]
    )


def test_uncertainty_is_read_off_the_dirichlet_of_each_token(student, data):
    X, y = (array[:3] for array in data)
    scored = student.score_sequences(X, y)
    at = torch.tensor(y != 0)
    with torch.inference_mode():
        dirichlet = student._distribution(torch.tensor(X), read_before(y), at)
    np.testing.assert_allclose(
        scored.token_uncertainty.epistemic[:, 0][at], dirichlet.uncertainty().epistemic, rtol=1e-6
    )
    np.testing.assert_allclose(
        scored.log_probs[:, 0][at],
        dirichlet.log_mean[range(at.sum()), y[at]],
        rtol=1e-6,
    )
    assert scored.is_scored[:, 0].tolist() == at.tolist()


def test_narrower_sources_are_padded(student, data):
    X = data[0][:, :4] * (np.arange(4) < 3)
    wide = np.pad(X, ((0, 0), (0, 4)))
    np.testing.assert_array_equal(student.predict(X, 6), student.predict(wide, 6))
    with pytest.raises(ValueError, match="X must have at most 8 columns, as in fit; got 9"):
        student.predict(np.pad(X, ((0, 0), (0, 5))))


def test_a_language_model_is_distilled():
    members = [network(seed, (None, 5)) for seed in range(3)]
    student = distiller(members, max_epochs=3).fit(TEXTS)
    assert student.n_tokens_ == 5
    found = student.generate([[3, 4], [3, 0]], beam_size=2, max_length=7)
    assert (found.tokens[0, :, :2] == [3, 4]).all()
    assert np.isfinite(student.score(TEXTS))
