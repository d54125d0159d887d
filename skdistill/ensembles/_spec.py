# SPDX-License-Identifier: BSD-3-Clause
"""The state of an ensemble's fit as one value: its parameters, the samples, what is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from inspect import signature
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import torch
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator

from .._data.columns import COLUMN_PARAMETERS
from .._data.encoding import EMBEDDED_FROM, MANY_ROWS, InputSettings
from .._estimator.base import Fitted, NetworkSettings, checked_training
from .._estimator.predicting import DistributionEstimator
from .._estimator.warm_start import same_recipe
from .._method.plan import NetworkRecipe
from .._training.stream import Stream
from .._training.trainer import Training, batch_size_for, n_epochs_for
from .._utils.settings import SettingsRule
from .._utils.validation import Number, NumberOfJobs, OneOf, did_you_mean
from ..modules import MLP, shares_weights, widest_activation
from ..samplers import SGHMC, SGLD, DeepEnsemble, MCDropout
from ..settings import EarlyStopping, Runtime
from ._out_of_bag import Parts
from ._plan import EnsemblePlan

# What parameters must be where members share weights, and are trained as one network.
_WITH_SHARING = {"warm_start": (False,), "bootstrap": ("auto", False), "tune": ("auto", None)}

# How these were chosen: see doc/design.rst.
_BLOCK_ACTIVATIONS = 2**19  # activations in the widest layer of a block of members, on a CPU
_FIT_ACTIVATIONS = 2**27  # activations of a fit, from which on blocks are trained side by side
_LEAST_BLOCK = 10  # members
_EPOCHS = {"regressor": 100, "classifier": 50}  # of max_epochs="auto"
_ROWS_SEEN_AT_MOST = 3_000_000  # samples that a member is shown on large tables
_ROWS_SEEN_IN_BINS, _ROWS_OF_HALF = 80_000, 10_000  # samples shown; samples up to half the epochs
_LEAST_ROWS_SEEN, _MOST_EPOCHS = 40_000, 300  # samples shown on small tables; epochs at most
_RATE, _RATE_OF_LARGE, _EPOCHS_OF_RATES = 0.01, 0.003, (50, 85)  # lr="auto"; epochs between them
_MORE_EPOCHS_OF_SHARED = 2  # times the epochs, where members share weights
_SHARED_BATCH_SIZE = 128  # samples of each member, there


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


class Samples(NamedTuple):
    """Samples in memory, their targets and their weights, which may be None."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None

    def at(self, rows: np.ndarray) -> Samples:
        weight = None if self.weight is None else self.weight[rows]
        return Samples(self.X[rows], self.y[rows], weight)


@dataclass(frozen=True, eq=False)
class EnsembleSpec:
    """Everything that a fit of an ensemble needs.

    :meth:`of` reads the parameters, whose names the first fields have. `fit_ensemble` adds the
    samples, and :meth:`planned` what is trained on them, and how much.
    """

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

    # The samples, that have a weight above 0.
    inputs: InputSettings | None = None  # how they are encoded
    task: Any = None
    before: Fitted | None = None  # the fit that this one adds members to
    train: Any = None  # Samples, or a Stream
    valid: Samples | None = None  # those that early stopping holds out
    n_rows: int = 0
    total_weight: float = 0.0
    dtype: Any = None  # what is computed in
    scaling: Any = None  # Buffers, of the targets
    parts: Parts | None = None  # which samples each member leaves out; None if it has them all
    perturbation_seed: int | None = None  # of the data of members; None if they stay as they are
    calibrates: bool = False
    smooth: frozenset[int] = frozenset()  # numbers of the smooth ones of two kinds of networks

    # What is trained.
    plan: Any = None  # EnsemblePlan
    recipe: Any = None  # NetworkRecipe
    n_epochs: int = 0
    n_at_once: int = 0  # samples of a minibatch
    block_size: int = 1  # networks that are trained as one stack
    n_blocks: int = 1
    n_tasks: int = 1  # blocks side by side

    @classmethod
    def of(cls, ensemble: BaseEstimator) -> EnsembleSpec:
        """Read an ensemble's parameters; raise a ValueError for what does not go together."""
        training = checked_training(ensemble)
        params, known = ensemble.get_params(deep=False), signature(type(ensemble)).parameters
        defaults = {name: parameter.default for name, parameter in known.items()}
        unchanged = {  # arrays, which no default is, are not compared
            name
            for name, value in params.items()
            if name in defaults and type(value) is type(defaults[name]) and value == defaults[name]
        }
        names = {field.name for field in fields(cls)}
        own = {name: value for name, value in params.items() if name in names}
        if own["inference"] == "deep_ensemble":
            own["inference"] = DeepEnsemble()
        trained = own["inference"] if isinstance(own["inference"], DeepEnsemble) else DeepEnsemble()
        own |= trained.get_params(deep=False)
        if not isinstance(given := trained.early_stopping, EarlyStopping):
            own["early_stopping"] = EarlyStopping() if given else None
        own["member_block"] = Runtime.of(ensemble.runtime).member_block
        networks = NetworkSettings.of(params, ensemble._module_defaults[ensemble._kind])
        changed = frozenset(params.keys() - unchanged)
        spec = cls(ensemble._kind, networks, training, changed, **own)
        inference = type(spec.inference).__name__
        if not spec.trains_each and spec.warm_start:
            raise ValueError(f"warm_start must be False with inference={inference}(...), got True.")
        if spec.runs_chains and training.budget is not None:
            raise ValueError(
                f"max_time must be None with inference={inference}(...), whose burn-in and step "
                "size follow the max_epochs that all chains run for; got "
                f"{training.budget.seconds!r}."
            )
        if spec.runs_chains and training.clip_norm is not None:
            raise ValueError(
                f"optimizer__clip_norm must be None with inference={inference}(...), whose chains "
                f"would no longer draw from the posterior; got {training.clip_norm!r}."
            )
        if not shares_weights(networks.module):
            return spec
        module = f"module={networks.module.__name__}"
        if not spec.trains_each:
            raise ValueError(
                f"inference must be 'deep_ensemble' with {module}, whose members share weights; "
                f"got {spec.inference!r}."
            )
        for name, values in _WITH_SHARING.items():
            if (given := getattr(spec, name)) not in values:
                start = "" if name in params else "inference__"
                raise ValueError(
                    f"{start}{name} must be {values[-1]!r} with {module}, whose members share "
                    f"weights; got {given!r}."
                )
        if "n_members" in networks.settings:
            raise ValueError(
                f"module__n_members must not be given with {module}: n_members is their number."
            )
        if spec.batch_size != "auto" and int(spec.batch_size) < spec.n_members:
            raise ValueError(
                f"batch_size must be at least n_members={spec.n_members} with {module}, since "
                f"each sample of a minibatch trains one member; got {spec.batch_size}."
            )
        return spec

    @property
    def trains_each(self) -> bool:
        """Whether each member is trained from weights of its own."""
        return isinstance(self.inference, DeepEnsemble)

    @property
    def runs_chains(self) -> bool:
        """Whether members are draws of Markov chains."""
        return isinstance(self.inference, (SGLD, SGHMC))

    def is_default(self, name: str) -> bool:
        """Tell whether the user has left a parameter of the ensemble, or of the MLP, as it is."""
        takes = self.networks.module is MLP or not name.startswith("module__")
        return takes and name not in self.changed

    @property
    def numbers_before(self) -> list[int]:
        """Numbers of the members before; some may have diverged, or been interrupted."""
        facts = {"n_members_": 0} if self.before is None else self.before.facts
        return list(facts.get("_member_numbers", range(facts["n_members_"])))

    @property
    def validates_out_of_bag(self) -> bool:
        """Whether the samples that a member leaves out tell which epoch's weights it keeps.

        They do so for classes on large tables, see doc/design.rst.
        """
        is_asked = self.trains_each and self.parts is not None and self.valid is None
        return is_asked and self.kind == "classifier" and self.n_rows >= MANY_ROWS

    def plan_of(self, networks: Sequence[int]) -> EnsemblePlan:
        """Return the plan of the networks of these numbers alone."""
        are_smooth = tuple(n in self.smooth for n in networks) if self.smooth else ()
        return replace(self.plan, n_networks=len(networks), are_smooth=are_smooth)

    def planned(self, params: dict[str, Any] | None = None) -> EnsembleSpec:
        """Return what is trained, and how much, with these values of some parameters."""
        start, params = "module__", params or {}
        of_module = {k.removeprefix(start): v for k, v in params.items() if k.startswith(start)}
        own = {k: v for k, v in params.items() if not k.startswith(start) and k != "lr"}
        settings = {**self.networks.settings, **of_module}
        spec = replace(self, networks=replace(self.networks, settings=settings), **own)
        rate = spec.inference.rate if isinstance(spec.inference, MCDropout) else None
        beta, module = 0.0 if spec.runs_chains else spec.beta, spec.networks.module
        if shares_weights(module):
            plan = EnsemblePlan(spec.task, 1, beta, n_sharing=spec.n_members)
        else:
            plan = EnsemblePlan(spec.task, spec.n_members, beta, rate)
        if spec.n_rows < plan.n_sharing:
            raise ValueError(
                f"X must have at least n_members={spec.n_members} samples to train on with module="
                f"{module.__name__}, of whose members each has samples of its own; got "
                f"{spec.n_rows}."
            )
        # Bins make members overconfident: uncalibrated, they are for large tables (doc/design.rst).
        embedded_from, inputs = EMBEDDED_FROM if spec.calibrates else MANY_ROWS, spec.inputs
        if inputs is not None and "embeddings" in of_module:
            inputs = replace(inputs, embeddings=of_module["embeddings"])
        if isinstance(spec.train, Stream):
            row_shape, encoding = spec.train.row_shape, spec.train.inputs(inputs, embedded_from)
        else:
            row_shape = spec.train.X.shape[1:]
            encoding = inputs and inputs.encoding(*spec.train, embedded_from)
        recipe = spec.networks.recipe(plan, row_shape, encoding)
        if spec.before is not None:
            recipe = same_recipe(spec.before.recipe, recipe)
        are_in_bins = recipe.inputs is not None and recipe.inputs.has_bins
        n_epochs, n_at_once = amount_of_training(spec, spec.n_rows, are_in_bins)
        training, lr = spec.training, params.get("lr", spec.training.lr)
        if lr == "auto":
            is_large = spec.kind == "regressor" and are_in_bins and spec.n_rows >= MANY_ROWS
            share = float(np.interp(n_epochs, _EPOCHS_OF_RATES, (0.0, 1.0)))
            is_less = is_large and not shares_weights(module)
            lr = _RATE ** (1.0 - share) * _RATE_OF_LARGE**share if is_less else _RATE
        device = training.device
        n_left = plan.n_networks - len(spec.numbers_before)
        size, n_blocks, n_tasks, n_threads = 1, 1, 1, training.n_threads
        if spec.trains_each:
            if plan.n_networks > 1:
                size = block_size(spec, recipe, device, spec.n_rows)
            n_blocks = -(-n_left // size)
            if n_blocks > 1 and device.type == "cpu":
                n_tasks = effective_n_jobs(spec.n_jobs)
                # Also of one job: several threads round large matrix products in another way.
                if n_threads == "auto" and (spec.n_jobs is not None or n_tasks > 1):
                    n_threads = 1
        return replace(
            spec,
            training=replace(training, lr=float(lr), n_threads=n_threads),
            plan=plan,
            recipe=recipe,
            n_epochs=n_epochs,
            n_at_once=n_at_once,
            block_size=size,
            n_blocks=n_blocks,
            n_tasks=n_tasks,
        )


def amount_of_training(
    spec: EnsembleSpec, n_rows: int, are_in_bins: bool = False
) -> tuple[int, int]:
    """Return the number of epochs and the rows of a minibatch, for so many rows.

    Chains have the same on large tables: their step size is suited to a size of minibatches, and
    with fewer epochs they would end before they are where they should be.
    """
    n_of_small, most, batch_size = _EPOCHS[spec.kind], _ROWS_SEEN_AT_MOST, spec.batch_size
    n_seen, least = 0, n_of_small
    if shares_weights(spec.networks.module):
        n_of_small, most = (_MORE_EPOCHS_OF_SHARED * number for number in (n_of_small, most))
        least = n_of_small
        if batch_size == "auto":
            batch_size = max(_SHARED_BATCH_SIZE, batch_size_for("auto", n_rows), spec.n_members)
    elif are_in_bins and spec.kind == "regressor":
        half = n_of_small // 2
        n_seen = _ROWS_SEEN_IN_BINS
        if spec.trains_each:
            n_of_small = max(n_of_small, min(_LEAST_ROWS_SEEN // n_rows, _MOST_EPOCHS))
        least = min(max(half, half * n_rows**2 // _ROWS_OF_HALF**2), n_of_small)
    if spec.runs_chains:
        n_rows = 1
    return (
        n_epochs_for(spec.max_epochs, n_rows, n_seen, least, n_of_small, most),
        batch_size_for(batch_size, n_rows),
    )


def block_size(spec: EnsembleSpec, recipe: NetworkRecipe, device: torch.device, n_rows: int) -> int:
    """Return how many members to train together on so many samples."""
    if spec.member_block != "auto":
        return int(spec.member_block)
    if device.type != "cpu":
        return spec.n_members
    (member,) = recipe.build([0])
    widest = widest_activation(member, recipe.input_shape)
    are_in_bins = recipe.inputs is not None and recipe.inputs.has_bins
    n_epochs, batch_size = amount_of_training(spec, n_rows, are_in_bins)
    most = max(1, _BLOCK_ACTIVATIONS // (min(batch_size, n_rows) * widest))
    n_members = spec.n_members
    is_long = n_rows * n_epochs * n_members * widest >= _FIT_ACTIVATIONS
    n_blocks = n_members // _LEAST_BLOCK if is_long else 1
    return min(most, -(-n_members // n_blocks)) if n_blocks > 1 else most
