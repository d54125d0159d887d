# SPDX-License-Identifier: BSD-3-Clause
"""Networks and their stacks against the same networks written out and run one by one."""

from __future__ import annotations

import warnings
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from skdistill.modules import (
    ACTIVATIONS,
    MLP,
    MultiHead,
    StackedModule,
    StackedSequential,
    build_member,
    n_parameters,
    split_head,
    stack,
)

S, M, N, D, OUT = 3, 4, 7, 5, 2  # members, heads, samples, inputs, outputs


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def randn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=generator(seed), dtype=dtype)


def mlps(n, **kwargs):
    kwargs = {"hidden_units": (6, 4), "activation": "tanh", **kwargs}
    return [MLP(D, OUT, generator=generator(seed), **kwargs).double() for seed in range(n)]


def one_by_one(members, rows):
    """Outputs of members on samples (S, n, ...) of their own, or shared ones (1, n, ...)."""
    rows = rows.expand(len(members), *rows.shape[1:])
    return torch.stack([member(x) for member, x in zip(members, rows, strict=True)])


def close(actual, expected, **tolerance):
    torch.testing.assert_close(actual, expected, **{"rtol": 1e-10, "atol": 1e-12, **tolerance})


# --- MLP ------------------------------------------------------------------------------------

BY_NAME = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "silu": F.silu,
    "gelu": F.gelu,
    "identity": lambda x: x,
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_mlp_is_affine_maps_with_activations_between(activation):
    net = MLP(D, OUT, hidden_units=(6, 4), activation=activation).double()
    x = randn(N, D)
    weights = [(layer.weight, layer.bias) for layer in net if isinstance(layer, nn.Linear)]
    assert [tuple(w.shape) for w, _ in weights] == [(6, D), (4, 6), (OUT, 4)]
    expected = x
    for weight, bias in weights[:-1]:
        expected = BY_NAME[activation](expected @ weight.t() + bias)
    weight, bias = weights[-1]
    close(net(x), expected @ weight.t() + bias)


def test_mlp_drops_hidden_units_in_training_only():
    plain, dropping = (
        MLP(D, OUT, hidden_units=(60, 40), dropout=rate, generator=generator()).double()
        for rate in (0.0, 0.25)
    )
    x = randn(N, D)
    close(dropping.eval()(x), plain(x))
    drops = [k for k, layer in enumerate(dropping) if isinstance(layer, nn.Dropout)]
    assert drops == [2, 5]  # after the activations
    active = nn.Sequential(*list(plain)[:2])(x)
    hidden = nn.Sequential(*list(dropping.train())[:3])(x)
    kept = hidden[active > 0] / active[active > 0]
    assert set(kept.round(decimals=9).tolist()) == {0.0, round(4 / 3, 9)}
    assert 0.15 < (kept == 0).double().mean() < 0.35


# --- one member -----------------------------------------------------------------------------


def normalised(in_features, out_features, dropout=0.0):
    """A module that knows no generator and that no stack is made for by hand."""
    return nn.Sequential(
        nn.Linear(in_features, 6),
        nn.LayerNorm(6),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(6, out_features),
    )


@pytest.mark.parametrize("module", [MLP, normalised])
def test_a_member_is_its_seed_and_leaves_the_global_generator_alone(module):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    build = partial(build_member, module, in_features=D, out_features=OUT)
    first = build(seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    again, other = build(seed=1), build(seed=2)
    assert all(map(torch.equal, first.parameters(), again.parameters()))
    assert not torch.equal(first[0].weight, other[0].weight)


# --- stacks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [(S, N, D), (1, N, D), (S, 1, D), (1, 1, D)])
def test_a_stack_of_mlps_is_its_members(rows):
    members = mlps(S)
    stacked = stack(members)
    assert isinstance(stacked, StackedSequential)
    close(stacked(randn(*rows)), one_by_one(members, randn(*rows)))


@pytest.mark.parametrize("n_members", [1, 2])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("n_rows", [1, 5, N])  # fewer and more than the units of a layer
def test_heads_are_stacked_for_each_member(n_members, shared, n_rows):
    heads = mlps(n_members * M)
    stacked = stack(heads, lead=(n_members, M))
    rows = randn(n_members, 1 if shared else M, n_rows, D)
    flat = rows.expand(n_members, M, n_rows, D).flatten(0, 1)
    close(stacked(rows), one_by_one(heads, flat).unflatten(0, (n_members, M)))


def test_the_gradient_of_a_member_does_not_depend_on_the_others():
    members = mlps(S)
    stacked, x = stack(members), randn(1, N, D)
    stacked(x).square().sum().backward()
    for m, member in enumerate(members):
        member(x[0]).square().sum().backward()
        close(stacked[0].weight.grad[m], member[0].weight.grad.t())
        close(stacked[-1].bias.grad[m, 0], member[-1].bias.grad)


# --- stacks of any module -------------------------------------------------------------------


def members_of(module, n=S, **kwargs):
    built = [build_member(module, s, in_features=D, out_features=OUT, **kwargs) for s in range(n)]
    return [member.double() for member in built]


def test_members_drop_different_units_in_training_and_none_in_prediction():
    (member,) = members_of(normalised, n=1, dropout=0.5)
    stacked = stack([member] * S)
    rows = randn(1, N, D)
    trained, again = stacked.train()(rows), stacked(rows)
    assert not torch.allclose(trained[0], trained[1])
    assert not torch.allclose(trained, again)
    predicted = stacked.eval()(rows)
    assert torch.equal(predicted[0], predicted[1])
    assert torch.equal(predicted, stacked(rows))


def batch_normalised(in_features, out_features, **kwargs):
    return nn.Sequential(
        nn.Linear(in_features, 6),
        nn.BatchNorm1d(6, **kwargs),
        nn.ReLU(),
        nn.Linear(6, out_features),
    )


class Gated(nn.Module):
    """Its way through depends on the samples, after running statistics have been updated."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.norm = nn.BatchNorm1d(in_features)
        self.positive = nn.Linear(in_features, out_features)
        self.negative = nn.Linear(in_features, out_features)

    def forward(self, x):
        normalised = self.norm(x)
        return self.positive(normalised) if x.sum() > 0 else self.negative(normalised) - 1


# Running averages over all batches ask for the number of batches as a number, which vmap has not.
NEEDS_A_LOOP = [
    pytest.param(Gated, {}, "Gated", id="control flow"),
    pytest.param(batch_normalised, {"momentum": None}, "Sequential", id="cumulative average"),
]


@pytest.mark.parametrize(("module", "kwargs", "name"), NEEDS_A_LOOP)
def test_what_cannot_be_vectorised_runs_one_by_one_and_says_so(module, kwargs, name):
    members = [member.train() for member in members_of(module, **kwargs)]
    stacked, rows = stack(members).train(), randn(S, N, D)
    with pytest.warns(UserWarning, match=f"{name} cannot be vectorised over members") as caught:
        outputs = stacked(rows)
    assert len(caught) == 1
    close(outputs, one_by_one(members, rows))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        close(stacked(rows), one_by_one(members, rows))


@pytest.mark.filterwarnings("ignore:.*cannot be vectorised")
@pytest.mark.parametrize(
    ("module", "kwargs"),
    [(batch_normalised, {}), *((case.values[0], case.values[1]) for case in NEEDS_A_LOOP)],
)
def test_running_statistics_are_those_of_the_members_run_singly(module, kwargs):
    members = [member.train() for member in members_of(module, **kwargs)]
    stacked = stack(members).train()
    for seed in range(3):
        rows = 2 + randn(S, N, D, seed=seed)
        close(stacked(rows), one_by_one(members, rows))
    for name, buffer in stacked.named_buffers():
        own = torch.stack([dict(m.named_buffers())[name.replace("__", ".")] for m in members])
        close(buffer, own, msg=lambda text, name=name: f"{name}: {text}")
    stacked.eval()
    rows = randn(1, N, D)
    close(stacked(rows), one_by_one([member.eval() for member in members], rows))


# --- modules with code of their own ---------------------------------------------------------


class ShiftedSequential(nn.Sequential):
    def forward(self, x):
        return super().forward(x) + 3.0


class ShiftedLinear(nn.Linear):
    def forward(self, x):
        return super().forward(x) + 3.0


def same_layer_twice(in_features, out_features):
    layer = nn.Linear(in_features, in_features)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(in_features, out_features))


def same_weight_twice(in_features, out_features):
    first, second = nn.Linear(in_features, in_features), nn.Linear(in_features, in_features)
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second, nn.Linear(in_features, out_features))


def hooked(in_features, out_features):
    network = nn.Sequential(nn.Linear(in_features, out_features))
    network[0].register_forward_hook(lambda layer, inputs, output: output + 3.0)
    return network


def hooked_as_a_whole(in_features, out_features):
    network = nn.Sequential(nn.Linear(in_features, out_features))
    network.register_forward_hook(lambda layer, inputs, output: output + 3.0)
    return network


WITH_CODE_OF_THEIR_OWN = {
    "sequential": lambda i, o: ShiftedSequential(nn.Linear(i, o)),
    "linear": lambda i, o: nn.Sequential(ShiftedLinear(i, o)),
    "same layer twice": same_layer_twice,
    "same weight twice": same_weight_twice,
    "weight norm": lambda i, o: nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(i, o))
    ),
    "hook": hooked,
    "hook of the whole": hooked_as_a_whole,
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of weight norm under vmap
@pytest.mark.parametrize("name", WITH_CODE_OF_THEIR_OWN)
def test_modules_with_code_of_their_own_stay_what_they_are(name):
    torch.manual_seed(0)
    members = [WITH_CODE_OF_THEIR_OWN[name](D, OUT).double() for _ in range(S)]
    stacked, rows = stack(members), randn(1, N, D)
    assert isinstance(stacked, StackedModule)
    close(stacked(rows), one_by_one(members, rows))
    assert n_parameters(stacked) == S * n_parameters(members[0])  # tied weights stay tied


# --- heads ----------------------------------------------------------------------------------


@pytest.mark.parametrize("head_layers", [1, 2, 3])
def test_core_and_head_together_are_the_network(head_layers):
    (network,) = mlps(1)
    core, head = split_head(network, head_layers)
    assert sum(isinstance(layer, nn.Linear) for layer in head) == head_layers
    assert isinstance(head[0], nn.Linear)
    close(head(core(randn(N, D))), network(randn(N, D)))


@pytest.mark.parametrize("head_layers", [0, 4, -1])
def test_a_head_has_between_one_and_all_layers_with_parameters(head_layers):
    with pytest.raises(ValueError, match=r"head_layers must be between 1 and 3.*got"):
        split_head(mlps(1)[0], head_layers)


@pytest.mark.parametrize("module", [same_layer_twice, same_weight_twice])
def test_no_head_is_cut_that_shares_weights_with_the_core(module):
    with pytest.raises(ValueError, match=r"module must not share weights.*head_layers=2"):
        split_head(module(D, OUT), 2)
    core, head = split_head(module(D, OUT), 1)
    assert n_parameters(core) + n_parameters(head) == n_parameters(module(D, OUT))


def multi_head(networks, head_layers, n_members=1):
    """A stack of members, each the core of its first network with the heads of all of its own."""
    cores, heads = zip(*(split_head(network, head_layers) for network in networks), strict=True)
    n_heads = len(networks) // n_members
    return MultiHead(stack(cores[::n_heads]), stack(heads, lead=(n_members, n_heads)))


@pytest.mark.parametrize("build", [mlps, lambda n: members_of(normalised, n)])
@pytest.mark.parametrize("n_members", [1, 2])
def test_multi_head_is_its_core_and_heads_by_hand(build, n_members):
    networks = build(n_members * M)
    cut = [split_head(network.eval(), 1) for network in networks]
    rows = randn(n_members, N, D)
    expected = torch.stack(
        [
            torch.stack([cut[s * M + m][1](cut[s * M][0](rows[s])) for m in range(M)])
            for s in range(n_members)
        ]
    )
    close(multi_head(networks, 1, n_members).eval()(rows), expected)


@pytest.mark.parametrize(
    ("widths", "n_heads", "expected"),
    [
        # Toy classification of Hydra+: core 2-100-100-100, heads 100-100-3.
        ((2, 100, 100, 100, 100, 3), 20, 228_560),
        ((2, 100, 100, 100, 100, 3), 10, 124_530),
        ((2, 100, 100, 100, 100, 3), 5, 72_515),
        # Toy regression: core 1-50-50, heads 50-50-2.
        ((1, 50, 50, 50, 2), 20, 55_690),
        ((1, 50, 50, 50, 2), 10, 29_170),
        ((1, 50, 50, 50, 2), 5, 15_910),
    ],
)
def test_parameter_counts_of_the_paper(widths, n_heads, expected):
    networks = [MLP(widths[0], widths[-1], widths[1:-1]) for _ in range(n_heads)]
    assert n_parameters(multi_head(networks, head_layers=2)) == expected


@pytest.mark.parametrize(
    ("widths", "expected"), [((2, 100, 100, 100, 100, 3), 618_060), ((1, 50, 50, 50, 2), 106_040)]
)
def test_parameter_counts_of_the_papers_teachers(widths, expected):
    assert n_parameters(stack([MLP(widths[0], widths[-1], widths[1:-1])] * 20)) == expected
