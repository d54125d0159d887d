# SPDX-License-Identifier: BSD-3-Clause
"""An ensemble's fit as one value: its parameters, the samples, the networks and their objective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from inspect import signature
from typing import Any

import numpy as np
import torch
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from .._data.encoding import EMBEDDED_FROM, MANY_ROWS, InputSettings
from .._estimator.base import Fitted, checked_training
from .._estimator.warm_start import same_recipe
from .._method.plan import NetworkRecipe, NetworkSettings, Objective, Plan, TrainingBudget
from .._method.task import Task
from .._training.samples import Samples
from .._training.trainer import Training, batch_size_for, n_epochs_for
from ..losses import cross_entropy, gaussian_nll
from ..modules import MLP, shares_weights, stack, widest_activation, with_dropout
from ..samplers import SGHMC, SGLD, DeepEnsemble, MCDropout
from ..settings import EarlyStopping, Runtime
from ._out_of_bag import Parts

# What parameters must be where members share weights, and are trained as one network.
_WITH_SHARING = {"warm_start": (False,), "bootstrap": ("auto", False), "tune": ("auto", None)}

# How these were chosen: see doc/design.rst.
_SMOOTH = "silu"  # activation of smooth networks
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
    trains_each: bool  # whether each member is trained from weights of its own
    runs_chains: bool  # whether members are draws of Markov chains
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
    numbers_before: tuple[int, ...] = ()  # of its members; some may have diverged, or be missing
    train: Any = None  # Samples, or a Stream
    valid: Samples | None = None  # those that early stopping holds out
    n_rows: int = 0
    total_weight: float = 0.0
    dtype: Any = None  # what is computed in
    scaling: Any = None  # Buffers, of the targets
    parts: Parts | None = None  # which samples each member leaves out; None if it has them all
    perturbation_seed: int | None = None  # of the data of members; None if they stay as they are
    calibrates: bool = False
    # Whether the samples that a member leaves out tell which epoch's weights it keeps: they do so
    # for classes on large tables, see doc/design.rst.
    validates_out_of_bag: bool = False
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
        own["inference"] = DeepEnsemble.of(own["inference"])
        own["trains_each"] = isinstance(own["inference"], DeepEnsemble)
        own["runs_chains"] = isinstance(own["inference"], (SGLD, SGHMC))
        trained = own["inference"] if own["trains_each"] else DeepEnsemble()
        own |= trained.get_params(deep=False)
        own["early_stopping"] = EarlyStopping.of(trained.early_stopping) or None
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

    def is_default(self, name: str) -> bool:
        """Tell whether the user has left a parameter of the ensemble, or of the MLP, as it is."""
        takes = self.networks.module is MLP or not name.startswith("module__")
        return takes and name not in self.changed

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
        embedded_from = EMBEDDED_FROM[spec.kind] if spec.calibrates else MANY_ROWS
        inputs = spec.inputs
        if inputs is not None and "embeddings" in of_module:
            inputs = replace(inputs, embeddings=of_module["embeddings"])
        encoding = None if inputs is None else spec.train.inputs(inputs, embedded_from)
        recipe = spec.networks.recipe(plan, spec.train.row_shape, encoding)
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


# --- the networks, and what they minimise


@dataclass(frozen=True)
class EnsemblePlan(Plan):
    """Networks side by side, each of which predicts the task."""

    task: Task
    n_networks: int = 1
    beta: float = 0.0  # exponent of the variance in the beta-NLL of numbers
    dropout_rate: float | None = None  # where members are draws of dropout
    n_sharing: int = 1  # members of one network, which share its weights
    are_smooth: tuple[bool, ...] = ()  # of networks of two kinds, see `build`
    calibration: Any = None  # of the fitted ensemble

    @property
    def tells_parts(self) -> bool:  # type: ignore[override]  # a constant in the base
        return self.n_networks * self.n_sharing > 1

    def members_of(self, networks: Sequence[int]) -> list[int]:
        """Numbers of the members of networks of these numbers."""
        k = self.n_sharing
        return [k * network + member for network in networks for member in range(k)]

    def build(self, recipe: NetworkRecipe, seeds: Sequence[int]) -> nn.Module:
        """Build the stack; smooth networks have weights of bins of zero, which remain so."""
        members: list[Any] = recipe.build(seeds)
        if any(self.are_smooth):
            settings = {**recipe.settings, "activation": _SMOOTH}
            smooth: list[Any] = replace(recipe, settings=settings).build(seeds)
            if n_bins := n_bins_of(recipe):
                n_plain = recipe.input_shape[0] - n_bins
                for weight in (network[0].weight.data for network in smooth):
                    weight[:, :n_plain] *= (weight.shape[1] / n_plain) ** 0.5
                    weight[:, n_plain:] = 0.0
            kinds = zip(self.are_smooth, members, smooth, strict=True)
            members = [other if is_smooth else member for is_smooth, member, other in kinds]
        if shares_weights(recipe.module):
            (network,) = members
            return network  # a stack already
        if self.dropout_rate is not None:
            members = [
                with_dropout(member, self.dropout_rate, recipe.input_shape, seed)
                for member, seed in zip(members, seeds, strict=True)
            ]
        return stack(members)

    def read_mean(self, outputs: Tensor) -> Tensor:
        if self.calibration is None or not self.calibration.are_smooth:
            return super().read_mean(outputs)
        means = outputs.narrow(-1, 0, self.task.size)
        return (self.calibration.weights.to(means)[:, None, None] * means).sum(0)

    def objective(self, module: Any, training_budget: TrainingBudget) -> Objective:
        is_numeric = self.task.kind == "regressor"
        objective = GaussianObjective(self.beta) if is_numeric else CategoricalObjective()
        if len(module.network.lead) == 1:
            return objective

        # Members that share weights, and have overfitted one by one, may be better together, and
        # they stop together: by the loss of their mixture.
        def loss_of_mixture(outputs: Tensor, y: Tensor) -> Tensor:  # (1, k, n, p)
            log_prob: Tensor = module.read(outputs[0]).log_prob(y[0])
            return -log_prob.reshape(1, outputs.shape[-2], -1).sum(-1)

        return ValidatedBy(objective, loss_of_mixture)


def n_bins_of(recipe: NetworkRecipe) -> int:
    """Return how many inputs, the last ones, are piecewise-linear encodings."""
    inputs = recipe.inputs
    return 0 if inputs is None else inputs.module(torch.float32).n_bins


class GaussianObjective(Objective):
    """Negative log-likelihood of the targets under each member's Gaussian, or its beta-NLL."""

    def __init__(self, beta: float):
        super().__init__()
        self.beta = beta

    def loss_and_gradient(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Any:
        y, *noise = targets  # of each member's own
        # beta-NLL is no proper score: members are validated by the likelihood itself.
        beta = self.beta if self.training else 0.0
        return gaussian_nll.and_gradient(outputs, y, beta, noise=noise[0] if noise else None)


class CategoricalObjective(Objective):
    """Cross-entropy of the labels under each member's class probabilities."""

    def loss_and_gradient(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Any:
        (codes,) = targets
        return cross_entropy.and_gradient(outputs, codes.expand(outputs.shape[:-1]))


class ValidatedBy(Objective):
    """An objective that is trained by, and another loss in validation, which needs no gradient.

    The latter takes outputs, (S, n, p), or (1, k, n, p) of k members that share weights, and
    targets to the loss of every network and sample, (S, n).
    """

    def __init__(self, objective: Objective, loss: Callable[[Tensor, Tensor], Tensor]):
        super().__init__()
        self.objective, self.loss = objective, loss

    def forward(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Tensor:
        if self.training:
            return super().forward(outputs, targets)
        return self.loss(outputs, targets[0])

    def loss_and_gradient(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Any:
        return self.objective.loss_and_gradient(outputs, targets)


def brier_score(outputs: Tensor, codes: Tensor) -> Tensor:
    """Brier score of the probabilities, of members that share weights that of their mean.

    A temperature mends overconfident probabilities, which raise the log loss before accuracy falls,
    and the Brier score less so (doc/design.rst).
    """
    probs = outputs.softmax(-1)
    if probs.ndim == 4:  # of members that share weights
        probs = probs.mean(1)
    codes = codes.expand(probs.shape[:-1]).unsqueeze(-1)
    return probs.scatter_add(-1, codes, torch.full_like(probs[..., :1], -1.0)).square().sum(-1)
