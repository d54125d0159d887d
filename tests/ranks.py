# SPDX-License-Identifier: BSD-3-Clause
"""What each process of test_data_parallel.py runs: ``python ranks.py folder rank``."""

from __future__ import annotations

import os
import pickle
import runpy
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
from sklearn.frozen import FrozenEstimator
from skorch.callbacks import Callback
from torch import nn

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill._engine import _traced
from skdistill.distributed import data_parallel
from skdistill.pruning import GroupLasso
from skdistill.settings import Optimizer, Runtime

N_RANKS, BATCH_SIZE = 2, 10

# In batches of 20 the last has 1 sample, which one rank is dealt, or 7.
X = np.random.default_rng(0).normal(size=(107, 3))
Y = X[:, 0] - X[:, 1] ** 2
LABELS = np.digitize(Y, [-1.0, 0.5])
WEIGHT = np.random.default_rng(1).uniform(0.5, 2.0, size=107)
FEW = slice(101)

SMALL = {"max_epochs": 4, "module__hidden_units": (6,), "random_state": 0}
TEACHER = BayesianEnsembleRegressor(3, max_epochs=3, module__hidden_units=(5,))
CLASSIFIER = BayesianEnsembleClassifier(3, max_epochs=3, module__hidden_units=(5,))


class Freeze(Callback):
    """Freezes the first layer, so that steps go through autograd."""

    def on_train_begin(self, net, **kwargs):
        next(net.module_.parameters()).requires_grad_(False)


class Listen(Callback):
    """Listens to batches, so that skorch's own loop runs."""

    def on_batch_end(self, net, **kwargs):
        pass


class End(Callback):
    """Ends one process, without a word to the others."""

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == 2 and torch.distributed.get_rank() == 1:
            os._exit(1)


class Batches:
    buffer_rows = 40

    def __iter__(self):
        for start in range(0, 107, 30):
            yield X[start : start + 30], Y[start : start + 30]


def normalised(in_features, out_features):
    return nn.Sequential(
        nn.Linear(in_features, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, out_features)
    )


def with_dropout(in_features, out_features):
    return nn.Sequential(
        nn.Linear(in_features, 6), nn.Dropout(0.3), nn.Tanh(), nn.Linear(6, out_features)
    )


def with_batch_norm(in_features, out_features):
    return nn.Sequential(
        nn.Linear(in_features, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, out_features)
    )


def clipped_tightly(**settings):
    return HydraPlusRegressor(
        TEACHER, optimizer=Optimizer(clip_norm=0.01), optimizer__weight_decay=0.1, **settings
    )


# What is compared with one process: an estimator and its samples.
MODELS = {
    "hydra": (lambda **s: HydraPlusRegressor(TEACHER, **s), (X[FEW], Y[FEW])),
    "hydra, clipped": (clipped_tightly, (X, Y)),
    "hydra of classes": (lambda **s: HydraPlusClassifier(CLASSIFIER, **s), (X, LABELS)),
    "where members disagree": (
        lambda **s: HydraPlusClassifier(CLASSIFIER, transfer="disagreement", **s),
        (X, LABELS),
    ),
    "without noise": (
        lambda **s: HydraPlusRegressor(TEACHER, transfer=None, **s),
        (X[FEW], Y[FEW]),
    ),
    "pruned": (lambda **s: HydraPlusRegressor(TEACHER, pruning=GroupLasso(2.4), **s), (X, Y)),
    "weighted": (lambda **s: DistributionDistiller(TEACHER, **s), (X, Y, WEIGHT)),
    "dirichlet": (lambda **s: DistributionDistiller(CLASSIFIER, **s), (X, LABELS)),
    "expectations": (lambda **s: GPEDDistiller(TEACHER, **s), (X, Y)),
    "stream": (lambda **s: DistributionDistiller(TEACHER, **s), (Batches(),)),
    "frozen layer": (
        lambda **s: DistributionDistiller(TEACHER, callbacks=[Freeze()], **s),
        (X[FEW], Y[FEW]),
    ),
    "listened to": (lambda **s: HydraPlusRegressor(TEACHER, callbacks=[Listen()], **s), (X, Y)),
    "traced": (
        lambda **s: DistributionDistiller(
            TEACHER, module=normalised, **{k: v for k, v in s.items() if "__" not in k}
        ),
        (X, Y),
    ),
}


def fitted(name, batch_size):
    make, arguments = MODELS[name]
    return make(batch_size=batch_size, **SMALL).fit(*arguments)


def state_of(student):
    return {name: value.numpy().copy() for name, value in student.module_.state_dict().items()}


def found_in(student):
    row = student.history_[-1]
    losses = [row["train_loss"] for row in student.history_]
    return {"losses": losses, "engine": row["engine"], "state": state_of(student)}


def train(rank):
    """Fit what is the same as in one process, and what is the same in all ranks at least."""
    found = {}
    with data_parallel():
        for name in MODELS:
            found[name] = found_in(fitted(name, BATCH_SIZE))
        for module in (with_dropout, with_batch_norm):
            student = DistributionDistiller(TEACHER, module=module, max_epochs=2, random_state=0)
            found[module.__name__] = found_in(student.fit(X, Y))
        # Without a seed; the teacher too.
        found["no seed"] = found_in(HydraPlusRegressor(TEACHER, max_epochs=2).fit(X, Y))
    teacher = FrozenEstimator(BayesianEnsembleRegressor(2, max_epochs=2, random_state=0).fit(X, Y))
    student = HydraPlusRegressor(teacher, batch_size=BATCH_SIZE, **SMALL)
    with data_parallel():
        for _ in range(2):
            student.partial_fit(X, Y)
    found["passes"] = found_in(student)
    return found


def error_of(act):
    try:
        act()
    except Exception as error:  # of any kind: the test looks which
        return f"{type(error).__name__}: {error}"
    return "no error"


class Failing(BayesianEnsembleRegressor):
    def fit(self, X, y, sample_weight=None):
        raise OSError("no space left")


def refuse(rank):
    """Fits that fail, on all ranks, and leave them in step."""
    student = HydraPlusRegressor(TEACHER, **SMALL)
    others = BayesianEnsembleRegressor(3, random_state=rank).fit(X, Y)
    with data_parallel():
        return {
            "X": error_of(lambda: student.fit(X + rank, Y)),
            "lr": error_of(lambda: HydraPlusRegressor(TEACHER, lr=0.01 * (rank + 1)).fit(X, Y)),
            "few samples": error_of(
                lambda: DistributionDistiller(FrozenEstimator(others), **SMALL).fit(X[:1], Y[:1])
            ),
            "ensemble": error_of(lambda: TEACHER.fit(X, Y)),
            "checkpoint": error_of(
                lambda: HydraPlusRegressor(TEACHER, runtime=Runtime(checkpoint="f")).fit(X, Y)
            ),
            "max_time": error_of(lambda: HydraPlusRegressor(TEACHER, max_time=9).fit(X, Y)),
            "teacher": error_of(lambda: HydraPlusRegressor(Failing(2)).fit(X, Y)),
            # A fit after all of these: nothing is left over.
            "none": error_of(lambda: student.fit(X, Y)),
        }


def die(rank):
    """Rank 1 ends after two epochs."""
    student = HydraPlusRegressor(TEACHER, callbacks=[End()], **SMALL)
    with data_parallel():
        error = error_of(lambda: student.fit(X, Y))
    return {"error": error, "is_fitted": hasattr(student, "module_")}


def guide(folder):
    """Run the script of the guide, which joins the processes and parts them again."""
    before = Path.cwd()
    os.chdir(folder)
    runpy.run_path("train.py")
    os.chdir(before)


if __name__ == "__main__":
    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    warnings.simplefilter("ignore")
    found = {"guide": guide(folder)}
    _traced._STEPS_WORTH_RECORDING = 10
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'meeting'}",
        rank=rank,
        world_size=N_RANKS,
        timeout=timedelta(seconds=60),
    )
    for act in (train, refuse, die):
        found[act.__name__] = act(rank)
        (folder / f"{rank}.pickle").write_bytes(pickle.dumps(found))
    os._exit(0)  # gloo's threads abort a process at its end that has lost another
