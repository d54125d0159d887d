# SPDX-License-Identifier: BSD-3-Clause
"""How much the members of a teacher disagree, for makers of transfer sets that ask."""

from __future__ import annotations

import copy
from typing import Any

import torch
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from torch import Tensor

from ..._method.task import Task
from ...distributions import EmpiricalGaussian
from ...ensembles import BayesianEnsembleClassifier, BayesianEnsembleRegressor
from ...losses import Categories
from ...modules import GaussianStack, stack, unstack
from ...teachers import Teacher
from ...transfer import Measure, prepare_lacking
from ._spec import FitSpec
from ._teacher import Predict, distribution_of, inside_wrappers, predictor_of

# Members whose gradients are asked for at a time.
_N_ASKED = 2


def prepare_maker(spec: FitSpec, X: Tensor, weight: Tensor | None, teacher: BaseEstimator) -> Any:
    """Return what draws samples, by a maker that is told of the fitted teacher if it asks, or None.

    It is a ValueError if the teacher has one member, which disagrees with nobody.
    """
    maker, task = spec.maker, spec.plan.task
    if maker is None:
        return None
    if not maker.asks_teacher:
        return prepare_lacking(maker, X, weight)
    # Not what the student learns from, such as expectations, but what the members predict.
    predict = predictor_of(teacher, spec, task)
    if (count := predict(spec.X[:1]).shape[1]) < 2:
        name = type(inside_wrappers(teacher, FrozenEstimator, Teacher)).__name__
        raise ValueError(
            f"transfer={spec.settings.transfer!r} needs a teacher of at least two members; {name} "
            f"has {count}."
        )
    model = inside_wrappers(teacher, FrozenEstimator)
    is_ensemble = isinstance(model, (BayesianEnsembleClassifier, BayesianEnsembleRegressor))
    # Of categories its networks may know other codes.
    asks_networks = is_ensemble and spec.schema.columns is None
    networks = NetworksThatDisagree(model.module_, X) if asks_networks else None
    return prepare_lacking(maker, X, weight, networks or AnswersThatDisagree(task, predict))


class NetworksThatDisagree:
    """Disagreement of networks, a random pair of which is asked, with gradients.

    Parameters
    ----------
    module : GaussianStack or CategoricalStack
        That of an ensemble.
    like : Tensor
        Of the dtype and on the device of the samples.
    """

    has_gradient = True

    def __init__(self, module: Any, like: Tensor):
        self.networks = [
            network.to(like).requires_grad_(False) for network in unstack(module.network)
        ]
        self.encode = copy.deepcopy(module).to(like).encode
        self.is_numeric = isinstance(module, GaussianStack)
        self.temperature = 1.0 if module.calibration is None else module.calibration.temperature

    def of_some(self, generator: torch.Generator) -> Measure:
        n_networks, device = len(self.networks), generator.device
        asked = torch.randperm(n_networks, generator=generator, device=device)[:_N_ASKED]
        network = stack([self.networks[number] for number in asked.tolist()])
        network.eval().requires_grad_(False)

        def measure(rows: Tensor) -> Tensor:
            outputs = network(self.encode(rows).unsqueeze(0))
            if self.is_numeric:
                return EmpiricalGaussian.from_outputs(outputs).uncertainty().epistemic.sum(-1)
            # (S, K, n) inside; uncertainty() passes no gradient
            members = Categories(outputs / self.temperature)
            return (members.probs * members.log_ratio).sum(-2).mean(0)

        return measure


class AnswersThatDisagree:
    """Disagreement of all members of any teacher, by what it predicts.

    Parameters
    ----------
    task : RegressionTask or ClassificationTask
    predict : callable
        Predicts samples with the teacher's members.
    """

    has_gradient = False

    def __init__(self, task: Task, predict: Predict):
        self.task, self.predict = task, predict

    def of_some(self, generator: torch.Generator) -> Measure:
        return self._measure

    def _measure(self, rows: Tensor) -> Tensor:
        members = torch.from_numpy(self.predict(rows.cpu().numpy()))
        epistemic = distribution_of(self.task, members).uncertainty().epistemic
        return epistemic.reshape(len(rows), -1).sum(-1).to(rows)
