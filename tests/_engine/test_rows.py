# SPDX-License-Identifier: BSD-3-Clause
"""Samples dealt in minibatches, and samples for which a teacher predicts."""

from __future__ import annotations

import copy
import functools

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context

from skdistill._engine import DistillationRows, Rows, StreamedRows, _rows, drawn_rows
from skdistill.modules import InputEncoder
from skdistill.transfer import GaussianNoise


def numbered_rows(n=23, weight=None, batch_size=5, seeds=(1, 2, 3)):
    """Samples that say their number: X is (i, -i), the target 10 i."""
    number = torch.arange(n, dtype=torch.float64)
    X = torch.stack([number, -number], dim=1)
    return Rows(X, (10 * number,), weight, batch_size, seeds)


def epoch(rows):
    """Copies of the batches of one epoch, each of which the next one overwrites."""
    return [copy.deepcopy(batch) for batch in rows]


def dealt(rows):
    """One epoch: batches of X (S, size, 2), of the target, and of the weight."""
    batches = epoch(rows)
    X = [X for X, _ in batches]
    targets = [target for _, ((target,), _) in batches]
    return X, targets, [weight for _, (_, weight) in batches]


@pytest.mark.parametrize("gather_bytes", [1, 700, 2**22])
def test_an_epoch_deals_every_row_once_to_every_member(monkeypatch, gather_bytes):
    monkeypatch.setattr(_rows, "_GATHER_BYTES", gather_bytes)
    rows = numbered_rows()
    previous = None
    for _ in range(3):
        X, targets, weights = dealt(rows)
        assert [tuple(x.shape) for x in X] == [(3, 5, 2)] * 4 + [(3, 3, 2)]
        assert weights == [None] * 5
        order = torch.cat(X, dim=1)[..., 0]  # (S, n)
        assert_array_equal(order.sort().values, np.tile(np.arange(23), (3, 1)))
        assert_array_equal(torch.cat(X, dim=1)[..., 1], -order)
        assert_array_equal(torch.cat(targets, dim=1), 10 * order)
        for one, other in ((0, 1), (0, 2), (1, 2)):
            assert not torch.equal(order[one], order[other])
        assert previous is None or not torch.equal(order, previous)
        previous = order


@pytest.mark.parametrize("n_members", [1, 3])
@pytest.mark.parametrize("batch_size", [5, 100])
def test_weights_follow_their_rows(n_members, batch_size):
    # Of mean one, so that they are dealt as they are given.
    weight = 1 + torch.arange(n_members * 23, dtype=torch.float64).view(n_members, 23) / 100
    weight = weight / weight.mean(1, keepdim=True)
    X, _, weights = dealt(numbered_rows(weight=weight, batch_size=batch_size))
    for x, w in zip(X, weights, strict=True):
        for m in range(len(w)):
            number = x[m if len(x) > 1 else 0, :, 0].long()
            assert_array_equal(w[m], weight[m if n_members > 1 else 0, number])


@pytest.mark.parametrize("batch_size", [5, 100])
def test_only_the_ratios_of_weights_matter(batch_size):
    weight = torch.rand(3, 23, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    first, second = (
        torch.cat(dealt(numbered_rows(weight=w, batch_size=batch_size))[2], dim=1)
        for w in (weight, weight * torch.tensor([[1e-3], [1.0], [50.0]]))
    )
    torch.testing.assert_close(first, second)
    assert_allclose(first.mean(1), 1.0)


@pytest.mark.parametrize("batch_size", [23, 24, None])
def test_rows_that_fit_one_batch_are_shared_in_order(batch_size):
    rows = numbered_rows(batch_size=batch_size)
    assert rows.batch_size == 23
    for _ in range(2):
        ((X,), (target,), (weight,)) = dealt(rows)
        assert X.shape == (1, 23, 2)
        assert_array_equal(X[0, :, 0], np.arange(23))
        assert_array_equal(target[0], 10 * np.arange(23))
        assert weight is None


@pytest.mark.parametrize("n_weights", [1, 3])
def test_weighted_minibatches_are_unbiased(n_weights):
    generator = torch.Generator().manual_seed(0)
    weight = torch.rand(n_weights, 23, dtype=torch.float64, generator=generator)
    batches = epoch(numbered_rows(weight=weight))
    total = sum(target.shape[1] * (w * target).mean(1) for _, ((target,), w) in batches)
    y = 10 * torch.arange(23, dtype=torch.float64)
    expected = (weight * y).sum(1) / weight.sum(1)
    assert_allclose(total / 23, expected.expand(3))


def test_the_order_of_rows_goes_on_from_its_state():
    numbers = torch.arange(20.0)[:, None]
    rows = Rows(numbers, (numbers,), batch_size=6, seeds=(1, 2))
    first = [batch for batch, _ in epoch(rows)]
    state = rows.state()
    second = [batch for batch, _ in epoch(rows)]
    assert not torch.equal(first[0], second[0])
    rows.load_state(state)
    for one, (other, _) in zip(second, rows, strict=True):
        assert torch.equal(one, other)


# --- samples for which a teacher predicts -------------------------------------------------------


class Teacher:
    """Answers (n, 2, 3) that tell the sample; counts what it was asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, X):
        assert isinstance(X, np.ndarray)
        self.asked.append(len(X))
        return np.stack([X @ np.arange(6.0).reshape(2, 3), np.square(X) @ np.ones((2, 3))], axis=1)


def gaussian_noise(sd):
    """Draws noise whose columns have these standard deviations, as two samples have."""
    return GaussianNoise(scale=1.0, share_power=2.0).prepare(torch.stack([-sd, sd]))


def taught_rows(noise=0.0, batch_size=5, seeds=(1,), n=23):
    teacher = Teacher()
    plain = numbered_rows(n, batch_size=batch_size, seeds=seeds)
    sd = torch.tensor([noise, 0.0], dtype=torch.float64)
    draw = gaussian_noise(sd) if noise else None
    rows = DistillationRows(
        plain.X, plain.targets, None, batch_size, seeds, teacher=teacher, draw=draw
    )
    teacher.asked.clear()  # what it was asked while being built is told apart below
    return rows, teacher


def assert_answers_match(batches):
    for X, ((answers, target), _) in batches:
        expected = Teacher()(X.flatten(0, 1).numpy()).reshape(*X.shape[:2], 2, 3)
        assert_allclose(answers, expected)
        assert_array_equal(target, -10 * X[..., 1])  # the column without noise


def test_a_teacher_without_noise_is_asked_once():
    teacher = Teacher()
    plain = numbered_rows()
    rows = DistillationRows(plain.X, plain.targets, None, 5, (1,), teacher=teacher)
    assert sum(teacher.asked) == 23 + 1  # all samples, and one to learn how large its answers are
    teacher.asked.clear()
    for _ in range(2):
        assert_answers_match(epoch(rows))
    assert teacher.asked == []


@pytest.mark.parametrize("batch_size", [5, 100])
def test_a_teacher_with_noise_is_asked_anew_in_each_epoch(batch_size):
    rows, teacher = taught_rows(noise=0.1, batch_size=batch_size)
    first, second = epoch(rows), epoch(rows)
    assert sum(teacher.asked) == 2 * 23
    for batches in (first, second):
        assert_answers_match(batches)
        X = torch.cat([X for X, _ in batches], dim=1)[0]
        assert_array_equal(X[:, 1].sort(descending=True).values, -np.arange(23.0))
        assert (X[:, 0] != -X[:, 1]).all()  # every sample has noise
    by_row = [
        x[x[:, 1].argsort(descending=True), 0]
        for x in (torch.cat([X for X, _ in batches], dim=1)[0] for batches in (first, second))
    ]
    assert (by_row[0] != by_row[1]).all()  # and another one in the next epoch


# --- a transfer set that is made once -------------------------------------------------------------


def pooled_rows(n_copies=3, n_known=0):
    """Copies of numbered samples, the further ones with noise in their first column."""
    teacher, plain = Teacher(), numbered_rows(seeds=(1,))
    draw = gaussian_noise(torch.tensor([0.1, 0.0], dtype=torch.float64))
    known = torch.from_numpy(Teacher()(plain.X[:n_known].numpy())) if n_known else None

    @functools.cache
    def copy(number):
        X = plain.X
        if number:
            X = torch.cat([X[:n_known], drawn_rows(X[n_known:], draw, seed=7 + number)])
        return DistillationRows(X, plain.targets, None, 5, (1,), teacher=teacher, known=known)

    rows = StreamedRows(lambda epoch: [copy(epoch % n_copies)], len(plain), 5, (1,), plain.X)
    return rows, teacher


def first_column(rows):
    """That of an epoch, in the order of the samples' numbers, and as it is dealt."""
    X = torch.cat([X for X, _ in epoch(rows)], dim=1)[0]
    return X[X[:, 1].argsort(descending=True), 0], X[:, 0]


def test_copies_are_dealt_in_turn_and_each_is_made_once():
    rows, teacher = pooled_rows()
    epochs = [first_column(rows) for _ in range(7)]
    assert_array_equal(epochs[0][0], np.arange(23.0))
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not torch.equal(epochs[one][0], epochs[other][0])
    for number in (3, 6):
        assert_array_equal(epochs[number][0], epochs[0][0])
        assert not torch.equal(epochs[number][1], epochs[0][1])  # in another order
    assert_array_equal(epochs[4][0], epochs[1][0])
    assert sum(teacher.asked) == 3 * (23 + 1)  # one of each to learn how large answers are
    assert_answers_match(epoch(rows))


def test_rows_whose_answers_are_known_are_not_asked_for():
    rows, teacher = pooled_rows(n_known=20)
    for _ in range(3):
        assert_answers_match(epoch(rows))
    assert sum(teacher.asked) == 3 * (3 + 1)


def test_copies_go_on_from_their_state():
    rows, _ = pooled_rows()
    epoch(rows)
    state = rows.state()
    again, _ = pooled_rows()
    again.load_state(state)
    for _ in range(3):
        for found, expected in zip(first_column(again), first_column(rows), strict=True):
            assert_array_equal(found, expected)


@pytest.mark.parametrize("gather_bytes", [100, 2**22])
def test_rows_are_encoded_before_they_are_dealt_if_the_memory_holds_them(monkeypatch, gather_bytes):
    # With 100 bytes, in portions of two samples.
    monkeypatch.setattr(_rows, "_GATHER_BYTES", gather_bytes)
    encoder, calls = InputEncoder(np.ones(2), np.full(2, 3.0), edges=[np.arange(3.0)] * 2), []
    encoder.register_forward_hook(lambda *call: calls.append(call))
    once, in_batches = numbered_rows(), numbered_rows()
    once.encode_by(encoder)
    n_calls = len(calls)
    assert n_calls == (12 if gather_bytes == 100 else 1)
    of_once = [dealt(once)[0] for _ in range(2)]
    assert len(calls) == n_calls
    with config_context(working_memory=1e-3):  # 1,048 bytes; encoded samples take 6 * 8 * 23
        in_batches.encode_by(encoder)
    for epoch in of_once:
        for found, expected in zip(epoch, dealt(in_batches)[0], strict=True):
            assert_array_equal(found, expected)
    assert len(calls) == n_calls + 2 * 5


def noise_of_rows(noise, n, seed=1):
    """What is added to `n` samples in one epoch, in units of the noise asked for."""
    X = torch.zeros(n, len(noise), dtype=torch.float64)
    draw = gaussian_noise(noise)
    rows = DistillationRows(X, (), None, n, (seed,), teacher=lambda rows: rows[:, :1], draw=draw)
    ((found, _),) = rows
    return (found[0] / noise).numpy()


def test_the_columns_of_a_row_have_the_same_share_of_the_noise():
    # Squares of two columns: E[(d1 s)^2 (d2 s)^2] = E[s^4] = 1/9, where shares of their own would
    # give 1/25; the variance of the product is E[d1^4] E[d2^4] E[s^8] - 1/81 = 9/17 - 1/81.
    n = 20_000
    noise = noise_of_rows(torch.tensor([0.1, 3.0], dtype=torch.float64), n)
    squares = noise**2
    assert np.mean(squares.prod(1)) == pytest.approx(1 / 9, abs=4 * np.sqrt((9 / 17 - 1 / 81) / n))
    error = 4 * np.sqrt((1 / 3 - 1 / 25) / n)
    assert_allclose(squares.mean(0), 1 / 5, atol=error)  # each in units of its own
    assert noise.prod(1).mean() == pytest.approx(0, abs=4 * np.sqrt(1 / 9 / n))


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_teacher_is_asked_in_portions_where_memory_is_short(noise, monkeypatch):
    monkeypatch.setattr(_rows, "fits_twice", lambda n_bytes: False)  # no file
    bytes_per_row = 6 * 8
    with config_context(working_memory=10 * bytes_per_row / 2**20):  # MiB: answers of ten samples
        rows, teacher = taught_rows(noise=noise)
    for _ in range(2):
        batches = epoch(rows)
        assert sum(teacher.asked) == 23
        assert max(teacher.asked) <= 10
        assert_answers_match(batches)
        assert_array_equal(
            torch.cat([X for X, _ in batches], dim=1)[0, :, 1].sort(descending=True).values,
            -np.arange(23.0),
        )
        teacher.asked.clear()


# ------------------------------------------------------------------------------------------
# Samples that are read in stretches
# ------------------------------------------------------------------------------------------


def streamed_rows(size, n=23, seeds=(1, 2, 3), batch_size=5):
    """The same samples as :func:`numbered_rows`, read `size` at a time."""
    number = torch.arange(n, dtype=torch.float64)
    X = torch.stack([number, -number], dim=1)

    def stretches(epoch):
        for rows in torch.arange(n).split(size):
            yield Rows(X[rows], (10 * number[rows],), None, batch_size, seeds)

    return StreamedRows(stretches, n, batch_size, seeds, X[:0])


def test_a_single_stretch_is_dealt_as_rows_in_memory_are():
    streamed, in_memory = streamed_rows(23), numbered_rows()
    assert len(streamed) == len(in_memory)
    for _ in range(3):  # epochs
        for found, expected in zip(streamed, in_memory, strict=True):
            assert torch.equal(found[0], expected[0])
            assert torch.equal(found[1][0][0], expected[1][0][0])


def test_every_epoch_shows_each_member_every_row_once_stretch_by_stretch():
    rows, epochs = streamed_rows(10), []
    for _ in range(2):
        X, targets, _ = dealt(rows)
        assert [x.shape[1] for x in X] == [5, 5, 5, 5, 3]
        for start, stop in ((0, 2), (2, 4)):
            seen = torch.cat(X[start:stop], dim=1)[..., 0]
            expected = torch.arange(5.0 * start, 5.0 * stop, dtype=torch.float64)
            assert torch.equal(seen.sort(1).values, expected.expand(3, -1))
            assert not torch.equal(seen[0], seen[1])
            assert torch.equal(torch.cat(targets[start:stop], dim=1), 10 * seen)
        epochs.append(torch.cat(X[:4], dim=1))
    assert not torch.equal(*epochs)


def test_new_rows_of_stretches_go_on_from_one_another():
    draw = GaussianNoise().prepare(torch.tensor([[-1.0], [1.0]]))
    zeros = torch.zeros(12, 1)

    def stretches(epoch):
        for rows in zeros.split(6):
            yield Rows(rows, (rows,), None, 3, [0], draw)

    X = torch.cat([X.flatten() for X, _ in StreamedRows(stretches, 12, 3, [0], zeros[:0])])
    assert len(X.unique()) == 12
