# SPDX-License-Identifier: BSD-3-Clause
"""The recurrent network of sequences: what its predictions depend on, and what it starts from."""

from __future__ import annotations

import pytest
import torch

from skdistill.modules import RecurrentSequenceModel


def network(in_features=20, seed=0, **params):
    generator = torch.Generator().manual_seed(seed)
    return RecurrentSequenceModel(in_features, 30, hidden_units=8, generator=generator, **params)


def tokens(n, length, seed=0):
    return torch.randint(1, 20, (n, length), generator=torch.Generator().manual_seed(seed))


def test_what_follows_a_token_does_not_matter_to_it():
    source, target = tokens(4, 6), tokens(4, 7, seed=1)
    changed = torch.cat([target[:, :3], tokens(4, 4, seed=2)], 1)
    for model, inputs in ((network(), (source,)), (network(None), ())):
        whole, other = model(*inputs, target), model(*inputs, changed)
        torch.testing.assert_close(whole[:, :3], other[:, :3])
        assert not torch.allclose(whole[:, 3:], other[:, 3:])
        torch.testing.assert_close(whole[:, :3], model(*inputs, target[:, :3]))


@pytest.mark.parametrize("pad_token", [0, 19])
def test_padding_of_the_source_is_not_attended_to(pad_token):
    model = network(pad_token=pad_token)
    source, target = tokens(4, 6) % 19 + (pad_token == 0), tokens(4, 5, seed=1)
    padded = torch.nn.functional.pad(source, (0, 3), value=pad_token)
    torch.testing.assert_close(model(padded, target), model(source, target))


def test_every_word_of_the_source_matters():
    source, target = tokens(1, 4), tokens(1, 5, seed=1)
    expected = network()(source, target)
    for i in range(4):
        changed = source.clone()
        changed[0, i] = (changed[0, i] + 1) % 20
        assert not torch.allclose(network()(changed, target), expected)


def test_weights_come_from_the_generator_alone():
    before = torch.get_rng_state()
    a, b, other = network(), network(), network(seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    for x, y, z in zip(a.parameters(), b.parameters(), other.parameters(), strict=True):
        assert torch.equal(x, y)
        assert not torch.equal(x, z)
