# SPDX-License-Identifier: BSD-3-Clause
"""What a fit needs of an ensemble's parameters: their rules, and their values, read once."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from inspect import signature
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from .._data.columns import COLUMN_PARAMETERS
from .._data.encoding import MANY_ROWS, InputSettings
from .._estimator.base import NetworkSettings, checked_training
from .._estimator.predicting import DistributionEstimator
from .._training.trainer import Training
from .._utils.settings import SettingsRule
from .._utils.validation import Number, NumberOfJobs, OneOf, did_you_mean
from ..modules import MLP, shares_weights
from ..samplers import SGHMC, SGLD, DeepEnsemble, MCDropout
from ..settings import EarlyStopping, Runtime

# What parameters must be where members share weights, and are trained as one network.
_WITH_SHARING = {"warm_start": (False,), "inference__bootstrap": ("auto", False)}

# Of max_time, kept for what follows training: a share, seconds, samples, a share; doc/design.rst.
_SHARE_AFTER, _SECONDS_OF_FUNCTIONS, _SAMPLES_OF_FUNCTIONS, _MOST_AFTER = 0.03, 0.5, 2_000, 0.5


class InferenceRule:
    """Rule of `inference`; `objects` are settings that may be given instead of the name."""

    objects = (DeepEnsemble, SGLD, SGHMC, MCDropout)

    def check(self, value: Any, name: str) -> None:
        if type(value) in self.objects:
            value.check()
        elif not (isinstance(value, str) and value == "deep_ensemble"):
            raise ValueError(
                f"{name} must be 'deep_ensemble', or a DeepEnsemble(...), SGLD(...), SGHMC(...) or "
                f"MCDropout(...) of skdistill.samplers, an object and not its class; got {value!r}."
                + did_you_mean(value, ("deep_ensemble",))
            )


PARAMETER_TABLE = {
    **DistributionEstimator._parameter_table,
    "lr": Number(Real, 0, closed="neither", others=("auto",)),
    "n_members": Number(Integral, 1),
    "max_epochs": Number(Integral, 1, others=("auto",)),
    "batch_size": Number(Integral, 1, others=("auto",)),
    "runtime": SettingsRule(Runtime, OneOf((None,))),
    "inference": InferenceRule(),
    "prior_scale": Number(Real, 1e-15, 1e15, others=(np.inf,)),
    "distance_aware": OneOf((True, False)),
    "warm_start": OneOf((True, False)),
    "n_jobs": NumberOfJobs(),
    **COLUMN_PARAMETERS,
}


@dataclass(frozen=True)
class EnsembleSpec:
    """What a fit needs of an ensemble's parameters, whose names the fields have."""

    kind: str  # of the task, "regressor" or "classifier"
    networks: NetworkSettings
    training: Training
    changed: frozenset[str]  # names of parameters that differ from their defaults
    n_members: int
    inference: Any
    prior_scale: float
    bootstrap: bool | str
    max_epochs: int | str
    batch_size: int | str
    early_stopping: EarlyStopping | None
    max_restarts: int
    member_block: int | str
    warm_start: bool
    tune: str | None
    calibrate: str | None
    distance_aware: bool
    n_jobs: Any
    normalize: bool | str
    class_weight: Any = None
    beta: float = 0.0
    inputs: InputSettings | None = None  # until the columns of X are known

    @classmethod
    def of(cls, ensemble: BaseEstimator) -> EnsembleSpec:
        """Read an ensemble's parameters; raise a ValueError for what does not go together."""
        training = checked_training(ensemble)
        names, given = {field.name for field in fields(cls)}, ensemble.get_params(deep=False)
        known = signature(type(ensemble)).parameters
        changed = {n for n, v in given.items() if n not in known or not _is(v, known[n].default)}
        own = {name: value for name, value in given.items() if name in names}
        if own["inference"] == "deep_ensemble":
            own["inference"] = DeepEnsemble()
        trained = own["inference"] if isinstance(own["inference"], DeepEnsemble) else DeepEnsemble()
        own |= trained.get_params(deep=False)
        own["early_stopping"] = EarlyStopping.of(trained.early_stopping)
        own["member_block"] = Runtime.of(ensemble.runtime).member_block
        networks = NetworkSettings.of(given, ensemble._module_defaults[ensemble._kind])
        spec = cls(ensemble._kind, networks, training, frozenset(changed), **own)
        spec._check_inference()
        if shares_weights(networks.module):
            spec._check_sharing()
        return spec

    @property
    def trains_each(self) -> bool:
        """Whether each member is trained from weights of its own."""
        return isinstance(self.inference, DeepEnsemble)

    @property
    def perturbs(self) -> bool:
        """Whether the data of each member are perturbed."""
        return self.trains_each and self.bootstrap == "auto"

    @property
    def runs_chains(self) -> bool:
        """Whether members are draws of Markov chains."""
        return isinstance(self.inference, (SGLD, SGHMC))

    def may_have_two_kinds(self, n_samples: int) -> bool:
        """Tell whether half of the members may be smooth networks, see `EnsemblePlan`."""
        layers = ("module__activation", "module__embeddings", "module__residual")
        return (
            self.kind == "regressor"
            and n_samples < MANY_ROWS
            and self.perturbs
            and self.training.budget is None
            and self.networks.module is MLP
            and all(map(self.is_default, layers))
        )

    def is_default(self, name: str) -> bool:
        """Tell whether the user has left a parameter of the ensemble, or of the MLP, as it is."""
        takes = self.networks.module is MLP or not name.startswith("module__")
        return takes and name not in self.changed

    def with_parameters(self, params: dict[str, Any]) -> EnsembleSpec:
        """Return what other values of some parameters stand for."""
        start = "module__"
        of_module = {k.removeprefix(start): v for k, v in params.items() if k.startswith(start)}
        own = {k: v for k, v in params.items() if not k.startswith(start) and k != "lr"}
        settings, inputs = {**self.networks.settings, **of_module}, self.inputs
        if inputs is not None and "embeddings" in of_module:
            inputs = replace(inputs, embeddings=of_module["embeddings"])
        return replace(
            self,
            networks=replace(self.networks, settings=settings),
            training=replace(self.training, lr=params.get("lr", self.training.lr)),
            inputs=inputs,
            **own,
        )

    def keeping_time(self, n_samples: int) -> EnsembleSpec:
        """Return how to train with time left, of `max_time`, for what comes after."""
        budget = self.training.budget
        if budget is None:
            return self
        share = min(1.0, n_samples / _SAMPLES_OF_FUNCTIONS) if self.distance_aware else 0.0
        seconds = _SHARE_AFTER * budget.seconds + share * _SECONDS_OF_FUNCTIONS
        budget = budget.keeping_for_work(seconds, _MOST_AFTER)
        return replace(self, training=replace(self.training, budget=budget))

    def _check_inference(self) -> None:
        """Raise a ValueError for parameters that do not go with `inference`."""
        if self.trains_each:
            return
        kind = type(self.inference).__name__
        if self.warm_start:
            raise ValueError(f"warm_start must be False with inference={kind}(...), got True.")
        if self.runs_chains and self.training.budget is not None:
            raise ValueError(
                f"max_time must be None with inference={kind}(...), whose burn-in and step size "
                "follow the max_epochs that all chains run for; got "
                f"{self.training.budget.seconds!r}."
            )
        if self.runs_chains and self.training.clip_norm is not None:
            raise ValueError(
                f"optimizer__clip_norm must be None with inference={kind}(...), whose chains would "
                f"no longer draw from the posterior; got {self.training.clip_norm!r}."
            )

    def _check_sharing(self) -> None:
        """Raise a ValueError for parameters that do not go with members that share weights."""
        name = self.networks.module.__name__
        if not self.trains_each:
            raise ValueError(
                f"inference must be 'deep_ensemble' with module={name}, whose members share "
                f"weights; got {self.inference!r}."
            )
        for parameter, values in {**_WITH_SHARING, "inference__tune": ("auto", None)}.items():
            given = getattr(self, parameter.removeprefix("inference__"))
            if given not in values:
                raise ValueError(
                    f"{parameter} must be {values[-1]!r} with module={name}, whose members share "
                    f"weights; got {given!r}."
                )
        if "n_members" in self.networks.settings:
            raise ValueError(
                f"module__n_members must not be given with module={name}: n_members is their "
                "number."
            )
        if self.batch_size != "auto" and int(self.batch_size) < self.n_members:
            raise ValueError(
                f"batch_size must be at least n_members={self.n_members} with module={name}, since "
                f"each sample of a minibatch trains one member; got {self.batch_size}."
            )


def _is(value: object, default: object) -> bool:
    """Tell whether a parameter is its default; arrays, which no default is, are not compared."""
    return type(value) is type(default) and bool(value == default)
