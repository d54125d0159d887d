# SPDX-License-Identifier: BSD-3-Clause
"""Hydra+ for classes and for numbers alike: heads, modules, weights of the terms, training."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch.callbacks import Callback
from torch import nn
from torch.distributions import Categorical, Normal, kl_divergence

from skdistill import predict_members
from skdistill._engine import _traced
from skdistill._method.plan import TrainingBudget
from skdistill._method.task import ClassificationTask, RegressionTask
from skdistill.modules import MLP
from skdistill.settings import Heads, HydraLoss, Optimizer


def n_outputs(task):
    """Outputs of a head: a logit for each of three classes, or a mean and a raw variance."""
    return 3 if task.is_classification else 2


# --- Teachers ---------------------------------------------------------------------------------


def test_no_teacher_is_a_default_ensemble(task):
    model = task.student(None, max_epochs=1).fit(task.X[:20], task.y[:20])
    assert type(model.teacher_) is task.Ensemble
    expected = task.Ensemble(normalize=model.normalize).get_params()
    params = model.teacher_.get_params()
    assert params.pop("random_state") is not None
    assert expected.pop("random_state") is None
    assert params == expected
    assert model.n_heads_ == model.teacher_.n_members_ == 20
    assert model.teacher is None


@pytest.mark.parametrize(
    "wrap",
    [
        lambda teacher: make_pipeline(StandardScaler(), teacher),
        lambda teacher: make_pipeline(StandardScaler(), StandardScaler(), teacher),
        lambda teacher: GridSearchCV(teacher, {"lr": [0.01]}, cv=2),
    ],
    ids=["pipeline", "longer pipeline", "search"],
)
def test_a_teacher_inside_meta_estimators(wrap, task):
    settings = {"max_epochs": 60, "loss": HydraLoss(spread_weight=0.0), "transfer": None}
    model = task.student(wrap(task.ensemble()), **settings).fit(*task.data)
    teacher, student = predict_members(model.teacher_, task.X), model.predict_members(task.X)
    assert teacher.shape == student.shape
    teacher, student = (members.mean(axis=1)[:, 0] for members in (teacher, student))
    assert np.mean((student - teacher) ** 2) < 0.2 * np.var(teacher)


# --- Heads ------------------------------------------------------------------------------------


def n_networks(task, n_heads):
    """Heads, and for numbers one more network that tells their gain."""
    return n_heads + (n_heads > 1 and not task.is_classification)


@pytest.mark.parametrize(
    ("n_heads", "expected"), [("auto", 3), (None, 3), (1, 1), (2, 2), (3, 3), (5, 5)]
)
def test_any_number_of_heads(n_heads, expected, frozen, task):
    model = task.student(frozen, heads=n_heads, module__embeddings=None).fit(*task.data)
    assert model.n_heads_ == expected
    members = model.predict_members(task.X)
    assert members.shape[:2] == (60, expected)
    assert np.isfinite(members).all()
    of_head = (8 + 1) * n_outputs(task)
    assert model.n_parameters_ == 8 * 4 + n_networks(task, expected) * of_head


@pytest.mark.parametrize(("head_layers", "n_shared"), [(1, 2), (2, 1), (3, 0)])
def test_head_layers_says_where_the_heads_begin(head_layers, n_shared, frozen, task):
    settings = {"heads": Heads(head_layers=head_layers), "module__hidden_units": (8, 6)}
    model = task.student(frozen, **settings).fit(*task.data)
    network = model.module_.network
    assert len(list(network.core.parameters())) == 2 * n_shared
    assert len(network.head_weights()) == head_layers
    assert {weight.shape[:2] for weight in network.head_weights()} == {(1, n_networks(task, 3))}
    assert np.isfinite(model.predict_members(task.X)).all()


class Shifted(nn.Sequential):
    def forward(self, x):
        return super().forward(x) + 3.0


MISTAKES = {
    "head_layers": ({"heads": Heads(head_layers=4)}, "head_layers must be between 1 and 3"),
    "own forward": (
        {"module": lambda in_features, out_features: Shifted(nn.Linear(in_features, out_features))},
        "without a forward of its own.*got Shifted",
    ),
    "width": (
        {"module": lambda in_features: nn.Sequential(nn.Linear(in_features, 4))},
        r"module must give a tensor of shape \(n, [23]\)",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_of_the_module_are_found_before_the_teacher_is_fitted(mistake, task):
    params, message = MISTAKES[mistake]
    counted = task.counting_ensemble()
    with pytest.raises(ValueError, match=message):
        task.Student(counted, **params).fit(*task.data)
    assert counted.n_fits == 0


def normalised(in_features, out_features):
    return nn.Sequential(
        nn.Linear(in_features, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, out_features)
    )


# --- Weights of the terms ---------------------------------------------------------------------


def objective_of(task, n_epochs, **settings):
    """The objective of a student of three members that trains for `n_epochs`."""
    model = task.Student(loss=HydraLoss(**settings))
    task_ = (
        ClassificationTask(np.arange(2))
        if "Classifier" in task.Student.__name__
        else RegressionTask(1, True)
    )
    return model._plan_of(task_).of_members(3).objective(None, TrainingBudget(n_epochs))


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (0.5, [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]),
        ((0.8, 1, 5), [0.0, 0.0, 0.2, 0.4, 0.6, 0.8]),
        ([0.8, 0, 2], [0.0, 0.4, 0.8, 0.8, 0.8, 0.8]),
    ],
)
def test_the_ramp_of_the_diversity_term(setting, expected, task):
    objective = objective_of(task, n_epochs=6, diversity_weight=setting)
    weights = []
    for epoch in range(6):
        objective.begin_epoch(epoch)
        weights.append(objective.diversity_weight.item())
    assert weights == pytest.approx(expected, abs=1e-6)


class Weights(Callback):
    """Writes down the weights of the spread and of the diversity in each epoch."""

    def on_train_begin(self, net, **kwargs):
        self.seen = []

    def on_epoch_end(self, net, **kwargs):
        criterion = net.criterion_
        self.seen.append((criterion.spread_weight.item(), criterion.diversity_weight.item()))


@pytest.mark.parametrize("diversity", ["mean", "pairwise"])
def test_the_diversity_term_turns_heads_apart(diversity, frozen, task):
    def likeness(model):
        (weight,) = model.module_.network.head_weights()  # (1, M, units, fan in)
        pairs = itertools.combinations(weight[0], 2)
        return np.mean([torch.cosine_similarity(a, b, dim=-1).mean().item() for a, b in pairs])

    settings = {"max_epochs": 30, "batch_size": 60}
    without, ramped, constant = (
        task.student(
            frozen, loss=HydraLoss(diversity=diversity, diversity_weight=weight), **settings
        ).fit(*task.data)
        for weight in (0.0, (1.0, 0, 40), 1.0)
    )
    assert likeness(constant) < likeness(ramped) < likeness(without)


# --- Training ---------------------------------------------------------------------------------


def trained_by_hand(networks, X, loss, max_epochs):
    """Full-batch Adam on a core and heads made of the networks' first and last layers."""
    core, heads = networks[0][:-1].double(), nn.ModuleList(net[-1].double() for net in networks)
    optimizer = torch.optim.Adam([*core.parameters(), *heads.parameters()], lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max_epochs)
    for _ in range(max_epochs):
        optimizer.zero_grad()
        loss(torch.stack([head(core(X)) for head in heads])).mean().backward()
        optimizer.step()
        schedule.step()
    return core, heads


def divergence_of_numbers(members, y, n_heads):
    """Mean divergence of members from outputs (M, n, 2), or of the matched member from one."""
    means, variances = np.moveaxis(members[:, :, 0], -1, 0)  # (n, N)
    means, variances = (means.T - y.mean()) / y.std(), variances.T / y.var()
    if n_heads == 1:
        variances = (variances + means**2).mean(0) - means.mean(0) ** 2
        means = means.mean(0)
    teacher = Normal(torch.tensor(means), torch.tensor(variances).sqrt())

    def loss(outputs):
        variances = nn.functional.softplus(outputs[..., 1]) + 1e-6
        return kl_divergence(teacher, Normal(outputs[..., 0], variances.sqrt()))

    return loss


def divergence_of_classes(members, y, n_heads):
    """The same for class probabilities and logits (M, n, K), at temperatures of 3 and of 2."""
    temperature = 2.0 if n_heads == 1 else 3.0
    softened = (torch.tensor(members).log() / temperature).softmax(-1).transpose(0, 1)
    teacher = Categorical(softened.mean(0) if n_heads == 1 else softened)

    def loss(outputs):
        return temperature**2 * kl_divergence(teacher, Categorical(logits=outputs / temperature))

    return loss


IDENTITIES = {
    "Hydra": {"loss__member_weight": 1.0},
    "Hinton": {"loss__member_weight": 0.0, "heads": 1},
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_training_equals_a_bare_loop(name, frozen, task):
    X, y = task.data
    built: list[nn.Sequential] = []

    def build(in_features, out_features):
        first, second, last = nn.Linear(in_features, 8), nn.Linear(8, 6), nn.Linear(6, out_features)
        network = nn.Sequential(first, nn.Tanh(), second, nn.ReLU(), last)
        built.append(copy.deepcopy(network))
        return network

    loss = HydraLoss(spread_weight=0.0)
    settings = {"loss": loss, "transfer": None, "optimizer": Optimizer(clip_norm=None)}
    settings |= {"normalize": "y", "ddof": 0}
    if task.is_classification:
        loss.set_params(aggregate_temperature=2.0, member_temperature=3.0)
    model = task.Student(
        frozen, module=build, lr=0.01, batch_size=60, max_epochs=40, random_state=0, **settings
    )
    model.set_params(**IDENTITIES[name]).fit(X, y)

    divergence = divergence_of_classes if task.is_classification else divergence_of_numbers
    loss = divergence(frozen.predict_members(X), y, model.n_heads_)
    built = built[1:]  # the first only tries the module out
    core, heads = trained_by_hand(built, torch.tensor(X), loss, max_epochs=40)
    network = model.module_.network
    for layer in (0, 2):
        expected = core[layer].weight.detach().T
        torch.testing.assert_close(network.core[layer].weight[0].detach(), expected)
    for m, head in enumerate(heads):
        torch.testing.assert_close(network.heads[0].weight[0, m].detach(), head.weight.detach().T)
        torch.testing.assert_close(network.heads[0].bias[0, m, 0].detach(), head.bias.detach())


class Listener(Callback):
    """Listens to batches, which makes the engine train by skorch's own loop, with autograd."""

    def on_batch_end(self, net, **kwargs):
        pass


@pytest.mark.parametrize("module", [MLP, normalised])
@pytest.mark.parametrize("n_heads", [2, 3])
def test_training_is_the_same_on_every_engine(n_heads, module, frozen, further, task, monkeypatch):
    monkeypatch.setattr(_traced, "_STEPS_WORTH_RECORDING", 4)
    # Two heads for numbers carry rounding on, up to a thousandfold in an epoch: 1e-11 after the
    # first, 1e-9 after the second, in which the diversity counts too, and 1e-5 after the eighth.
    settings = {
        "loss": HydraLoss(teacher_weight=0.7, diversity_weight=(0.1, 0, 1)),
        "optimizer__weight_decay": 0.01,
    }
    settings = {**settings, "batch_size": 17, "max_epochs": 2, "random_state": 0}
    fast = task.Student(frozen, module=module, heads=n_heads, **settings)
    slow = clone(fast).set_params(callbacks=[Listener()])
    weight = np.linspace(0.5, 2, 60)
    for model, engines in ((fast, {"closed_form", "traced"}), (slow, {"stacked", "vmap"})):
        model.fit(*task.data, sample_weight=weight, X_transfer=further)
        assert {row["engine"] for row in model.history_} < engines
    np.testing.assert_allclose(
        fast.predict_members(task.X), slow.predict_members(task.X), rtol=1e-6
    )
