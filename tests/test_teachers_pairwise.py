# SPDX-License-Identifier: BSD-3-Clause
"""Teacher x task x table: every teacher of the user guide in a default fit, with a bound."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import skorch
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

from skdistill import HydraPlusClassifier, HydraPlusRegressor
from skdistill.teachers import FittedModels, QuantileModels, as_teacher

N = 120
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * RNG.normal(size=N)
TARGETS = {"numbers": Y, "classes": np.digitize(Y, [-0.7, 0.5])}


def frame():
    """The table as a frame with text and gaps."""
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(X, columns=["x", "z", "w"])
    table["text"] = np.where(X[:, 2] > 0, "up", "down")
    table.loc[::9, "w"] = np.nan
    return table


def columns():
    """What makes numbers of the frame, as a user would."""
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    return make_column_transformer((numbers, ["x", "z", "w"]), (OneHotEncoder(), ["text"]))


def of(numbers, classes, *args, **params):
    return lambda task, table: (numbers if task == "numbers" else classes)(*args, **params)


def composed(numbers, classes, **params):
    """A vote or stack of a linear model, a forest and a Pipeline."""

    def make(task, table):
        line, forest = MODELS["linear"](task, table), MODELS["extra trees"](task, table)
        members = [("l", line), ("f", forest), ("p", make_pipeline(StandardScaler(), forest))]
        return (numbers if task == "numbers" else classes)(members, **params)

    return make


def bag(task, table):
    tree = MODELS["extra trees"](task, table).set_params(n_estimators=3)
    kind = BaggingRegressor if task == "numbers" else BaggingClassifier
    return kind(make_pipeline(StandardScaler(), tree), random_state=0)


def quantiles(task, table):
    levels = [0.1, 0.5, 0.9]
    settings = {"loss": "quantile", "max_iter": 30}
    models = [HistGradientBoostingRegressor(quantile=level, **settings) for level in levels]
    return as_teacher(QuantileModels(models, levels))


class Network(nn.Module):
    """A network of a user's; for classes skorch expects probabilities, and as_teacher logits."""

    def __init__(self, n_features, n_outputs, returns_probabilities):
        super().__init__()
        torch.manual_seed(0)
        layers = nn.Linear(n_features, 8), nn.Tanh(), nn.Linear(8, n_outputs)
        self.layers = nn.Sequential(*layers).double()
        self.returns_probabilities = returns_probabilities

    def forward(self, x):
        outputs = self.layers(x)
        return outputs.softmax(-1) if self.returns_probabilities else outputs.squeeze(-1)


def skorch_net(task, table):
    n_outputs, kind = {
        "numbers": (1, skorch.NeuralNetRegressor),
        "classes": (3, skorch.NeuralNetClassifier),
    }[task]
    settings = {"max_epochs": 30, "lr": 0.1, "verbose": 0, "train_split": None}
    return kind(Network(N_FEATURES[table], n_outputs, task == "classes"), **settings)


def torch_modules(task, table):
    """Two modules, which are fitted to what the columns become."""
    n_outputs = 1 if task == "numbers" else 3
    loss = nn.functional.mse_loss if task == "numbers" else nn.functional.cross_entropy
    Z = TABLES[table]()
    Z = torch.tensor(Z if table == "array" else columns().fit_transform(Z))
    modules = [
        nn.Sequential(nn.Linear(Z.shape[1], 8), nn.Tanh(), nn.Linear(8, n_outputs)).double()
        for _ in range(2)
    ]
    y = torch.tensor(TARGETS[task]).reshape((-1, 1) if task == "numbers" else (-1,))
    for module in modules:
        optimizer = torch.optim.Adam(module.parameters(), lr=0.02)
        for _ in range(100):
            optimizer.zero_grad()
            loss(module(Z), y).backward()
            optimizer.step()
    if task == "numbers":
        return as_teacher(FittedModels(modules, task="regression"))
    return as_teacher(FittedModels(modules, task="classification", classes=[0, 1, 2]))


TABLES = {"array": lambda: X, "frame": frame}
N_FEATURES = {"array": 3, "frame": 5}
SEED = {"random_state": 0}

MODELS = {
    "forest": of(RandomForestRegressor, RandomForestClassifier, **SEED),
    "linear": of(Ridge, LogisticRegression),
    "extra trees": of(ExtraTreesRegressor, ExtraTreesClassifier, 20, **SEED),
    "gradient boosting": of(GradientBoostingRegressor, GradientBoostingClassifier, **SEED),
    "histogram boosting": of(HistGradientBoostingRegressor, HistGradientBoostingClassifier),
    "vote": composed(VotingRegressor, lambda members: VotingClassifier(members, voting="soft")),
    "stack": composed(StackingRegressor, StackingClassifier, cv=2),
    "bag of pipelines": bag,
    "Gaussian process": lambda task, table: (
        GaussianProcessRegressor(RBF() + WhiteKernel())
        if task == "numbers"
        else GaussianProcessClassifier()
    ),
    "neighbours": of(KNeighborsRegressor, KNeighborsClassifier),
    "quantiles": quantiles,
    "quantiles of a frame": quantiles,
    "skorch": skorch_net,
    "torch": torch_modules,
}
# A fit of each teacher; tasks and tables take turns.
WAYS = list(itertools.product(TARGETS, TABLES))
CASES = [
    (name, "numbers" if name.startswith("quantiles") else WAYS[number % 4][0], WAYS[number % 4][1])
    for number, name in enumerate(MODELS)
]


def distance(student, teacher, table, task):
    """Between predictions: of the teacher's deviation, or the mean total variation."""
    if task == "numbers":
        found, expected = student.predict(table), teacher.predict(table)
        return np.sqrt(np.mean((found - expected) ** 2)) / expected.std()
    found, expected = student.predict_proba(table), teacher.predict_proba(table)
    return np.abs(found - expected).sum(axis=1).mean() / 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "task", "table"), CASES)
@pytest.mark.slow
def test_a_student_of_any_teacher_is_near_it(name, task, table):
    model, X = MODELS[name](task, table), TABLES[table]()
    teacher = model if table == "array" else make_pipeline(columns(), model)
    kind = HydraPlusRegressor if task == "numbers" else HydraPlusClassifier
    student = kind(teacher, max_epochs=30, random_state=0).fit(X, TARGETS[task])
    # A constant is at 1 for numbers, and at about .4 for classes.
    assert distance(student, student.teacher_, X, task) < (0.4 if task == "numbers" else 0.15)
