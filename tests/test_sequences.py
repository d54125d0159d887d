# SPDX-License-Identifier: BSD-3-Clause
"""Sequences: beam search, scores and ensembles against lists of all sequences of small models."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from skdistill.distributions import Uncertainty
from skdistill.modules import RecurrentSequenceModel
from skdistill.sequences import (
    ScoredSequences,
    SequenceEnsemble,
    beam_search,
    token_error_rates,
)

PAD, BEGIN, END, *WORDS = range(5)
LONGEST = 3


class Language(nn.Module):
    """Language model with random weights that gives no probability to padding and begin token."""

    def __init__(self, seed: int):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.network = RecurrentSequenceModel(None, 5, hidden_units=8, generator=generator)

    def forward(self, tokens):
        logits = 4 * self.network(tokens).double()
        return torch.cat([torch.full_like(logits[..., :2], -torch.inf), logits[..., 2:]], -1)


def all_sequences() -> list[list[int]]:
    """Every sequence that ends in the end token, or has the largest length without one."""
    ended = [[*words, END] for n in range(LONGEST) for words in itertools.product(WORDS, repeat=n)]
    return ended + [list(words) for words in itertools.product(WORDS, repeat=LONGEST)]


def token_probs(member: nn.Module, sequence: list[int]) -> np.ndarray:
    """Probabilities (T, K) of the tokens of a sequence, each asked about by itself."""
    probs = []
    for t in range(len(sequence)):
        read = torch.tensor([[BEGIN, *sequence[:t]]])
        with torch.no_grad():
            probs.append(member(read)[0, -1].softmax(-1).numpy())
    return np.stack(probs)


def chosen(probs: np.ndarray, sequence: list[int]) -> float:
    """Product of the probabilities (T, K) of the tokens of a sequence."""
    return math.prod(probs[np.arange(len(sequence)), sequence])


@pytest.fixture(scope="module")
def members() -> list[nn.Module]:
    return [Language(seed) for seed in range(3)]


# --- Search -----------------------------------------------------------------------------------

TOKENS = {"begin_token": BEGIN, "end_token": END, "pad_token": PAD}


def search(member, beam_size, prefix=None, max_length=LONGEST):
    """Sequences of one row that a member finds, and their log probabilities."""
    prefix = torch.empty(1, 0, dtype=torch.long) if prefix is None else torch.tensor([prefix])

    def next_log_probs(tokens):
        return member(tokens.flatten(0, 1))[:, -1].log_softmax(-1).unflatten(0, tokens.shape[:2])

    with torch.no_grad():
        found, log_probs = beam_search(next_log_probs, prefix, beam_size, max_length, **TOKENS)
    return [[t for t in row if t != PAD] for row in found[0].tolist()], log_probs[0].numpy()


def test_a_beam_as_wide_as_there_are_sequences_finds_them_all_in_order(members):
    for member in members:
        expected = {tuple(s): chosen(token_probs(member, s), s) for s in all_sequences()}
        assert sum(expected.values()) == pytest.approx(1)
        found, log_probs = search(member, 20)
        n = len(expected)
        assert [tuple(s) for s in found[:n]] == sorted(expected, key=expected.get, reverse=True)
        np.testing.assert_allclose(np.exp(log_probs[:n]), sorted(expected.values())[::-1], 1e-5)
        assert found[n:] == [[]] * (20 - n), "there are no more"
        assert np.isneginf(log_probs[n:]).all()


@pytest.mark.parametrize("begin_token", [BEGIN, 7], ids=["a token", "beyond the vocabulary"])
def test_the_begin_token_is_never_predicted(begin_token):
    def next_log_probs(tokens):  # most probable of all is the begin token, if it is one
        log_probs = torch.tensor([0.0, 0.6, 0.1, 0.2, 0.1]).log()
        return log_probs.expand(*tokens.shape[:2], 5)

    special = {**TOKENS, "begin_token": begin_token}
    prefix = torch.zeros((2, 0), dtype=torch.int64)
    found, log_probs = beam_search(next_log_probs, prefix, 3, LONGEST, **special)
    if begin_token == BEGIN:
        assert not (found == BEGIN).any()
        assert found[0, 0].tolist() == [END, PAD, PAD], "of .1, and 3 3 3 of .008"
    else:
        assert found[0, 0].tolist() == [1, 1, 1]
    assert log_probs.isfinite().all()


def test_a_sequence_goes_on_from_what_is_given(members):
    for prefix in ([4], [3, 4], [4, PAD]):
        given = [token for token in prefix if token != PAD]
        all_found, log_probs = search(members[0], 20, prefix)
        found = [s for s in all_found if s]
        expected = [s for s in all_sequences() if s[: len(given)] == given]
        assert sorted(found) == sorted(expected)
        # What is given is certain: the others' probabilities add up to one.
        assert np.exp(log_probs).sum() == pytest.approx(1)


@functools.cache
def levenshtein(a: tuple, b: tuple) -> int:
    if not a or not b:
        return len(a) + len(b)
    replaced = levenshtein(a[1:], b[1:]) + (a[0] != b[0])
    return min(replaced, 1 + levenshtein(a[1:], b), 1 + levenshtein(a, b[1:]))


def test_error_rates_are_edit_distances():
    rng = np.random.default_rng(0)
    y_true, y_pred = rng.integers(1, 4, size=(60, 6)), rng.integers(1, 4, size=(60, 5))
    for y in (y_true, y_pred):
        y[np.arange(y.shape[1]) >= rng.integers(1, y.shape[1] + 1, size=(60, 1))] = 0
    expected = []
    for row in zip(y_true, y_pred, strict=True):
        a, b = (tuple(y[y != 0].tolist()) for y in row)
        expected.append(levenshtein(a, b) / len(a))
    np.testing.assert_allclose(token_error_rates(y_true, y_pred), expected)


# --- Ensembles --------------------------------------------------------------------------------

NOTHING = [[PAD]]


@pytest.fixture
def ensemble(members):
    return SequenceEnsemble(members, has_source=False)


def entropy(probs):
    return -np.sum(probs * np.log(np.where(probs > 0, probs, 1)), axis=-1)


def test_the_chain_rule_gives_the_informations_of_whole_sequences(ensemble, members):
    """Entropy and RMI of the distribution over all sequences, listed one by one."""
    sequences = all_sequences()
    of_member = np.array([[chosen(token_probs(m, s), s) for s in sequences] for m in members])
    of_mean = [chosen(np.mean([token_probs(m, s) for m in members], axis=0), s) for s in sequences]
    expected_entropy = entropy(np.array(of_mean))
    expected_information = np.mean(np.sum(of_mean * np.log(of_mean / of_member), axis=1))

    found = ensemble.generate(NOTHING, beam_size=20, max_length=LONGEST)
    assert found.uncertainty(per_token=False).total == pytest.approx(expected_entropy, 1e-6)
    assert found.reverse_mutual_information(per_token=False) == pytest.approx(
        expected_information, 1e-6
    )
    assert found.surprise(per_token=False) == pytest.approx(expected_entropy, 1e-6)


def test_tokens_are_scored_by_the_mean_of_the_members(ensemble, members):
    sequence = [4, 3, END]
    scored = ensemble.score_sequences([[*sequence, PAD]])
    probs = np.stack([token_probs(m, sequence) for m in members])
    mean, floor = probs.mean(0), np.where(probs > 0, probs, 1)
    total, aleatoric = entropy(mean), entropy(probs).mean(0)
    log_ratio = np.where(probs > 0, np.log(np.where(mean > 0, mean, 1) / floor), 0)
    reverse = np.sum(mean * log_ratio, -1).mean(0)
    pairwise = np.mean(
        [
            [np.sum(p * np.log(floor[i] / floor[j]), -1) for j in range(3)]
            for i, p in enumerate(probs)
        ],
        axis=(0, 1),
    )
    assert scored.is_scored.tolist() == [[[True, True, True, False]]]
    at = scored.is_scored[0, 0]
    np.testing.assert_allclose(
        np.exp(scored.log_probs[0, 0, at]), mean[np.arange(3), sequence], rtol=1e-6
    )
    of_tokens = scored.token_uncertainty
    np.testing.assert_allclose(of_tokens.total[0, 0, at], total, rtol=1e-6)
    np.testing.assert_allclose(of_tokens.aleatoric[0, 0, at], aleatoric, rtol=1e-6)
    np.testing.assert_allclose(
        scored.token_reverse_mutual_information[0, 0, at], reverse, rtol=1e-6
    )
    assert scored.expected_pairwise_kl() == pytest.approx(pairwise.mean(), 1e-6)
    for values in (*of_tokens, scored.token_reverse_mutual_information, scored.log_probs):
        assert values[0, 0, 3] == 0, "padding"


def test_uncertainty_of_rows_by_hand():
    log_probs = np.log([[[0.5, 0.6, 1.0], [0.2, 1.0, 1.0], [1.0, 1.0, 1.0]]])
    log_probs[0, 2, 0] = -np.inf
    tokens = np.array([[[3, 4, END], [END, PAD, PAD], [PAD, PAD, PAD]]])
    total = np.array([[[1.0, 2.0, 3.0], [4.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])
    half = Uncertainty(total, total / 2, total / 2, measure="entropy")
    scored = ScoredSequences(tokens, tokens != PAD, log_probs, half, total / 4)
    np.testing.assert_allclose(np.exp(scored.sequence_log_probs), [[0.3, 0.2, 0.0]])
    np.testing.assert_allclose(scored.weights, [[0.6, 0.4, 0.0]])
    np.testing.assert_allclose(scored.uncertainty().total, [0.6 * 2 + 0.4 * 4])
    np.testing.assert_allclose(scored.uncertainty(per_token=False).total, [0.6 * 6 + 0.4 * 4])
    np.testing.assert_allclose(scored.reverse_mutual_information(), [0.25 * 2.8])
    np.testing.assert_allclose(scored.expected_pairwise_kl(), [0.75 * 2.8])
    surprise = [-0.6 * np.log(0.3) / 3 - 0.4 * np.log(0.2)]
    np.testing.assert_allclose(scored.surprise(), surprise)


def test_given_tokens_are_part_of_the_sequence_and_not_scored(ensemble):
    found = ensemble.generate([[4, 3], [3, PAD]], beam_size=2, max_length=4)
    assert (found.tokens[0, :, :2] == [4, 3]).all()
    assert (found.tokens[1, :, 0] == 3).all()
    assert not found.is_scored[0, :, :2].any()
    assert not found.is_scored[1, :, 0].any()
    np.testing.assert_array_equal(found.is_scored[..., 2:], found.tokens[..., 2:] != PAD)
    whole = ensemble.score_sequences(found.tokens[:, 0])
    at = found.is_scored[:, 0]
    np.testing.assert_allclose(whole.log_probs[:, 0][at], found.log_probs[:, 0][at])


def test_members_summed_up_one_by_one_are_the_ensemble(ensemble, members):
    target_in = torch.tensor([[BEGIN, 3, 4], [BEGIN, 4, PAD]])
    at = target_in != PAD
    statistics = ensemble.member_statistics(None, target_in, at)
    logits = torch.stack([member(target_in)[at] for member in members]).detach()
    torch.testing.assert_close(statistics.mean, logits.softmax(-1).mean(0))
    assert statistics.mean_log.isfinite().all()
    assert statistics.n_members == 3
