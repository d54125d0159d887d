# SPDX-License-Identifier: BSD-3-Clause
"""A value of the wrong kind is a TypeError or ValueError that names the argument, everywhere."""

from __future__ import annotations

import inspect
import re
from functools import cache, partial

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    BDistilBooster,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
    SequenceDistributionDistiller,
)
from skdistill.expectations import Expectation
from skdistill.modules import RecurrentSequenceModel
from skdistill.pruning import GroupLasso
from skdistill.samplers import SGHMC, SGLD, DeepEnsemble, MCDropout
from skdistill.sequences import SpecialTokens
from skdistill.settings import (
    Checkpoint,
    Connection,
    EarlyStopping,
    Estimate,
    Heads,
    Optimizer,
    Runtime,
    WeakLearnerSearch,
)
from skdistill.teachers import Teacher
from skdistill.transfer import Disagreement, GaussianNoise, Mixup, Munge, UniformBox

pytestmark = pytest.mark.filterwarnings("ignore")

GARBAGE = {
    "tensor": torch.tensor(2),
    "tensor of several": torch.tensor([0.5, 2.0]),
    "tensor that requires grad": torch.tensor(0.5, requires_grad=True),
    "uint8": np.uint8(3),
    "array": np.array([1, 2]),
    "10**30": 10**30,
    "10**400": 10**400,
    "negative": -(10**30),
    "NaN": float("nan"),
    "inf": float("inf"),
    "float16": np.float16(0.5),
    "string of a number": "3",
    "list": [],
    "dict": {},
    "object": object(),
    "class": dict,
    "complex": 1j,
    "bytes": b"3",
    "None": None,
    "NumPy bool": np.True_,
}
DATA = {
    "samples that require grad": torch.ones(12, 2, requires_grad=True),
    "numbers that require grad": torch.ones(12, requires_grad=True),
    "too large": [[10**400, 1]] * 12,
    "too large numbers": [10**400] * 12,
    "complex samples": np.full((12, 2), 1j),
    "words": [["ash", "elm"]] * 12,
    "ragged": [[1], [1, 2]] * 6,
    "objects": [object()] * 12,
    "tiny numbers": [1e-300] * 12,
    "no samples": np.empty((0, 2)),
    "tokens": np.full((6, 4), 10**6),
}

rng = np.random.default_rng(0)
X = rng.normal(size=(12, 2))
Y = {"regressor": X[:, 0] + 2, "classifier": np.array([0, 1] * 6)}
TOKENS = np.array([[3, 4, 2, 0], [5, 3, 4, 2]] * 3)
SMALL = {"max_epochs": 1, "module__hidden_units": (2,)}

CHAIN = {**SMALL, "batch_size": 3}
BOOST = {**SMALL, "n_rounds": 1}


@cache
def teacher(kind: str):
    model = LinearRegression() if kind == "regressor" else LogisticRegression()
    return FrozenEstimator(Teacher(model).fit(X, Y[kind]))


def sequence_members():
    return [RecurrentSequenceModel(6, 6, hidden_units=2)]


MODELS = {
    "ensemble": (BayesianEnsembleRegressor(2, **SMALL), "regressor"),
    "ensemble of classes": (BayesianEnsembleClassifier(2, **SMALL), "classifier"),
    "SGLD": (BayesianEnsembleRegressor(2, inference=SGLD(1e-5, burn_in=0), **CHAIN), "regressor"),
    "SGHMC": (
        BayesianEnsembleClassifier(2, inference=SGHMC(1e-5, burn_in=0), **CHAIN),
        "classifier",
    ),
    "dropout": (BayesianEnsembleRegressor(2, inference=MCDropout(), **SMALL), "regressor"),
    "Hydra": (HydraPlusRegressor(teacher("regressor"), **SMALL), "regressor"),
    "Hydra of classes": (HydraPlusClassifier(teacher("classifier"), **SMALL), "classifier"),
    "booster": (BDistilBooster(teacher("regressor"), **BOOST), "regressor"),
    "booster of classes": (
        BDistilBooster(teacher("classifier"), **BOOST),
        "classifier",
    ),
    "GPED": (
        GPEDDistiller(
            teacher("regressor"),
            expectations=["mean", "aleatoric", "epistemic", Expectation(lambda m: m.mean)],
            **SMALL,
        ),
        "regressor",
    ),
    "GPED of classes": (GPEDDistiller(teacher("classifier"), **SMALL), "classifier"),
    "Teacher": (Teacher(LinearRegression()), "regressor"),
    "sequences": (
        SequenceDistributionDistiller(sequence_members(), max_epochs=1, module__hidden_units=2),
        "sequences",
    ),
    **{
        f"distiller with {type(maker).__name__}": (
            DistributionDistiller(teacher(kind), transfer=maker, **SMALL),
            kind,
        )
        for maker, kind in (
            (GaussianNoise(), "regressor"),
            (Mixup(), "classifier"),
            (Munge(), "regressor"),
            (UniformBox(), "classifier"),
            (Disagreement(), "regressor"),
        )
    },
}

# Groups of parameters, as objects.
GROUPS = {
    "inference": DeepEnsemble(early_stopping=EarlyStopping()),
    "optimizer": Optimizer(),
    "runtime": Runtime(checkpoint=Checkpoint("state")),
    "heads": Heads(),
    "estimate": Estimate(),
    "connection": Connection(),
    "search": WeakLearnerSearch(),
    "pruning": GroupLasso(0.1),
    "tokens": SpecialTokens(),
}

# Of these what the others have not is tried, the parameters of a part.
VARIANTS = ["SGLD", "SGHMC", "dropout", "distiller with Munge", "distiller with UniformBox"]
VARIANTS += ["distiller with Disagreement"]

# Of these the parts get all that is above, and of the others these few.
OF_ALL_PARTS = ["ensemble", "Hydra", "booster", "GPED", "sequences", *VARIANTS]
FEW = ["complex", "tensor of several"]


def data(kind):
    return (TOKENS, TOKENS) if kind == "sequences" else (X, Y[kind])


def problem(call, parameter: str) -> str | None:
    """What is wrong with the error that a call raises, if it raises one."""
    try:
        call()
    except (TypeError, ValueError) as error:
        names = "|".join(parameter.split("__"))
        is_named = re.search(rf"(?<![A-Za-z])({names})(?![A-Za-z])", str(error))
        return None if is_named else f"{type(error).__name__} without the name: {error}"
    except Exception as error:  # every other kind is what the test looks for
        return f"{type(error).__name__}: {error}"
    return None


def problems(call, names, garbage=GARBAGE) -> list[str]:
    """What is wrong with the errors of ``call(name, value)``."""
    pairs = [(name, what) for name in names for what in garbage]
    found = [problem(partial(call, name, garbage[what]), name) for name, what in pairs]
    return [f"{name}={what}: {p}" for (name, what), p in zip(pairs, found, strict=True) if p]


def with_groups(name: str):
    """The model, and the names of its own parameters and of those of parts to be tried."""
    model, is_variant = clone(MODELS[name][0]), name in VARIANTS
    own = model.get_params(deep=False)
    groups = {} if is_variant else {k: v for k, v in GROUPS.items() if k in own}
    model.set_params(**groups)
    parts = tuple(f"{part}__" for part in ("inference", "transfer", *groups))
    nested = [part for part in model.get_params() if part.startswith(parts)]
    return model, [] if is_variant else [*own], nested


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_parameters(name, tally, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a file or folder may be called "3"
    _, kind = MODELS[name]
    model, own, parts = with_groups(name)

    def fit(parameter, value):
        if parameter == "runtime__compile" and value is np.True_:
            return  # it is taken, and compiling takes seconds
        clone(model).set_params(**{parameter: value}).fit(*data(kind))

    # A part is the same object in all estimators: what is to be held is that each checks it.
    of_parts = GARBAGE if name in OF_ALL_PARTS else {what: GARBAGE[what] for what in FEW}
    assert problems(fit, own) + problems(fit, parts, of_parts) == []
    tally("garbage arguments", len(own) * len(GARBAGE) + len(parts) * len(of_parts))


# What X and y of a Teacher may be is said by the estimator in it.
OWN_MODELS = [name for name in MODELS if name != "Teacher" and name not in VARIANTS]


@pytest.mark.parametrize("name", OWN_MODELS)
def test_data(name, tally):
    model, kind = MODELS[name]
    names = ["X", "y", *({"sample_weight", "X_transfer", "member_predictions"} & fit_takes(model))]

    def fit(argument, value):
        X, y = data(kind)
        clone(model).fit(**{"X": X, "y": y, argument: value})

    assert problems(fit, names, GARBAGE | DATA) == []
    tally("garbage arguments", len(names) * len(GARBAGE | DATA))


def fit_takes(model) -> set[str]:
    return set(inspect.signature(model.fit).parameters)


PREDICTIONS = {
    "predict": ["X", "return_std", "return_exits", "max_rounds", "max_flops", "deadline",
                "early_exit", "exit_on", "max_length"],
    "predict_proba": ["X", "max_rounds", "early_exit"],
    "predict_interval": ["X", "coverage"],
    "predict_frame": ["X", "coverage"],
    "predict_quantiles": ["X", "quantiles"],
    "sample_y": ["X", "n_samples", "random_state"],
    "predict_uncertainty": ["X"],
    "predict_members": ["X"],
    "predict_distribution": ["X"],
    "predict_expectation": ["X", "name"],
    "anytime": ["X", "method", "max_rounds", "max_flops", "deadline"],
    "generate": ["X", "beam_size", "max_length"],
    "score_sequences": ["X", "y"],
}  # fmt: skip
NEEDED = {"predict_quantiles": {"quantiles": 0.5}, "predict_expectation": {"name": "mean"}}


@pytest.mark.parametrize("name", OWN_MODELS)
def test_prediction_arguments(name, tally):
    model, kind = MODELS[name]
    X, y = data(kind)
    fitted = clone(model).fit(X, y)
    for method, names in PREDICTIONS.items():
        if not hasattr(fitted, method):
            continue
        takes = inspect.signature(getattr(fitted, method)).parameters
        own = names if any(p.kind is p.VAR_KEYWORD for p in takes.values()) else takes
        own = [name for name in names if name in own]
        given = {"X": X, **NEEDED.get(method, {}), **({"y": y} if "y" in own else {})}

        def call(argument, value, method=method, given=given):
            getattr(fitted, method)(**{**given, argument: value})

        assert problems(call, own, GARBAGE | DATA) == [], method
        tally("garbage arguments", len(own) * len(GARBAGE | DATA))
