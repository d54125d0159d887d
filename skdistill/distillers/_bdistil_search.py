# SPDX-License-Identifier: BSD-3-Clause
"""The learners of a booster, and their search round by round (B-DISTIL, Algorithms 1 and 2)."""

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import gen_batches
from torch import Tensor

from .. import losses
from .._estimator.base import Fitted, ObservedTask
from .._estimator.batched import rows_within
from .._method.plan import NetworkRecipe, Objective, Plan, TrainingBudget, as_tensors
from .._method.random_functions import UnknownColumns
from .._method.task import RegressionTask, Task
from .._training.trainer import n_epochs_for, on_device
from .._utils.messages import time_left
from .._utils.process import rows_asked
from .._utils.reporting import print_line, stage
from .._utils.warnings import warn
from ..losses import DistillationGame
from ..modules import Booster, Learner, Rounds, count_flop, n_parameters, stack, unstack
from ..settings import WeakLearnerSearch
from ..transfer import prepare_with_missing
from ._spec import FitSpec
from ._student import training_set, widen_where_unknown, with_approximation_error
from ._teacher import MemberPredictions

# See doc/design.rst.
_ROWS_SEEN = 300_000  # samples that max_epochs="auto" shows each learner
_EPOCHS_WITHIN = (10, 200)  # limits of these epochs
_ROWS_SEEN_AT_MOST = 2_000_000  # samples, on large tables
_STEP = 3.0  # factor between barriers until both kinds of failure have been seen
_LEAST_WEIGHT = 0.01  # of a learner in the mean; below it a lighter barrier is tried
_LEAST_PROBABILITY = 1e-6  # of a teacher, before the logarithm is taken
_LEAST_VARIANCE = 1e-5  # likewise, of standardised targets


class Round(NamedTuple):
    """The learner found in a round, and its cost for one sample."""

    module: int  # number of the model class
    n_connections: int  # how many earlier learners it reads
    n_searches: int  # how many networks were trained until one was accepted
    edge: float | None  # smallest over the columns (Definition 1); the first round needs none
    weight: float  # in the mean: 1, or less if the learner would overshoot with 1
    # Of the mean from the teacher on the training samples after the round: root mean squared
    # difference of centred logits, or of means in the units of the training.
    distance: float
    flop: float  # floating-point operations, those of the connections included
    connection_flop: float  # of these alone; likewise for parameters
    n_parameters: int
    n_connection_parameters: int


def play_game(
    spec: FitSpec, predictions: MemberPredictions, task: ObservedTask
) -> Iterator[Fitted]:
    """Search learners for a booster; those found are given also if the search is interrupted."""
    (seed,) = spec.draw_seeds(1)
    with stage("transfer samples"):
        X, target, weight = (
            on_device(values, device=spec.training.device)
            for values in _rows_and_targets(spec, predictions, seed)
        )
    n_rounds, eta = spec.params["n_rounds"], WeakLearnerSearch.of(spec.params["search"]).eta
    size = spec.plan.task.size  # of regressors the means; raw variances are learnt beside them
    game = DistillationGame(target, n_rounds, None if eta == "auto" else eta, weight, size)
    task = task.subtask("student", max_subtasks=None)
    with task.running(), stage(f"booster, {n_rounds} rounds"):
        search = Search(spec, game, X, task)
        try:
            search.play()
        finally:
            if search.rounds:
                yield with_approximation_error(search.fitted(), spec, predictions)


def _rows_and_targets(
    spec: FitSpec, predictions: MemberPredictions, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Samples of the game, which stay the same, the learners' targets there, and their weights."""
    plan = spec.plan
    predict: Any = predictions.predict  # not None where it is called
    X, _, weight, members, _ = training_set(spec, predictions)
    if spec.maker is not None:
        rows, weights = (on_device(values, device=torch.device("cpu")) for values in (X, weight))
        draw = prepare_with_missing(spec.maker, rows, weights)
        generator = torch.Generator().manual_seed(seed)
        drawn = draw(rows, torch.arange(len(X)), generator).numpy()
        if spec.transfer_only:
            X, members = drawn, None
        else:
            X, weight = np.concatenate([X, drawn]), np.concatenate([weight, weight])
    # In portions of the samples: the predictions of which targets are made take memory.
    targets: list[np.ndarray] = []
    if members is not None:
        portions = gen_batches(len(members), rows_asked(members[:1]))
        targets += [plan.target_of(members[rows]) for rows in portions]
    asked = X[sum(map(len, targets)) :]
    if len(asked):
        portions = gen_batches(len(asked), rows_asked(predict(asked[:1])))
        targets += [plan.target_of(predict(asked[rows])) for rows in portions]
    return X, np.concatenate(targets), weight


@dataclass
class Barrier:
    """Weight of the barrier (Eq 6), bisected: too light finds no learner, too heavy overshoots."""

    weight: float
    is_fixed: bool = False
    _too_light: float = 0.0
    _too_heavy: float = math.inf

    def change(self, was_too_light: bool) -> None:
        """Choose the next weight: by steps, until it is known to be between two weights."""
        if self.is_fixed:
            return
        if was_too_light:
            self._too_light = self.weight
        else:
            self._too_heavy = self.weight
        if not self._too_light:
            self.weight /= _STEP
        elif math.isinf(self._too_heavy):
            self.weight *= _STEP
        else:
            self.weight = math.sqrt(self._too_light * self._too_heavy)


class Search:
    """The game, on samples X (N, ...), until there are `n_rounds` learners or no further one."""

    def __init__(self, spec: FitSpec, game: DistillationGame, X: Tensor, task: ObservedTask):
        self.spec = spec
        self.n_rounds = spec.params["n_rounds"]
        settings = WeakLearnerSearch.of(spec.params["search"])
        self.max_search, self.is_literal = settings.max_search, settings.literal
        max_epochs = spec.params["max_epochs"]
        self.n_epochs = n_epochs_for(
            max_epochs, len(X), _ROWS_SEEN, *_EPOCHS_WITHIN, _ROWS_SEEN_AT_MOST
        )
        self.plan: RoundsPlan = spec.plan
        self.game = game
        self.task = task
        inputs = spec.recipe.inputs
        self.inputs = None if inputs is None else inputs.module(X.dtype).to(X.device)
        X = X if self.inputs is None else self.inputs(X)
        self.target = game.target.to(X.dtype)
        weight = game.weight.to(X.dtype).T
        self.weight = None if bool((weight == weight[0, 0]).all()) else weight
        loc, bound = game.loc.to(X), game.bound.to(X)
        self.network = Booster([], loc, bound, centred=self.plan.is_centred)
        self.classes = list(self.plan.classes)
        self.barrier_weights: dict[tuple[int, int], float] = {}  # by class, of its last learner
        self.played = Rounds(self.network, X, reach=max(number for _, number in self.classes))
        self.rounds: list[Round] = []
        self.history: list[dict[str, Any]] = []

    def play(self) -> None:
        """Find learners (Algorithm 1)."""
        start = time.monotonic()
        n_rounds, budget = self.n_rounds, self.spec.training.budget
        while len(self.rounds) < n_rounds and not (self.rounds and self.game.is_over):
            if not self.find():
                message = (
                    f"No weak learner was found in round {len(self.rounds) + 1}; the rounds before "
                    "it are kept. Try larger networks, a larger max_epochs, more connections "
                    "or a larger max_search."
                )
                if budget is not None and self.rounds and self.spec.training.is_out_of_time:
                    message = (
                        f"max_time={budget.seconds!r} ended the search after {len(self.rounds)} of "
                        f"n_rounds={n_rounds} rounds, which are kept. Give more time, or fewer "
                        "rounds."
                    )
                warn(message, ConvergenceWarning)
                return
            if self.spec.params["verbose"] > 1:
                found, n_done = self.rounds[-1], len(self.rounds)
                left = time_left(time.monotonic() - start, n_done, n_rounds - n_done)
                print_line(
                    f"round {n_done} of {n_rounds}: network {found.n_searches} that was tried, of "
                    f"class {found.module} with {found.n_connections} connections, weight "
                    f"{found.weight:.2g}, distance {found.distance:.4g}, {left}"
                )

    def find(self) -> bool:
        """Find a weak learner (FIND-WL, Algorithm 2), never again in a class that had none."""
        n_searches = 0
        while self.classes:
            number = self.classes[0][0]
            expansions = (min(n, len(self.rounds)) for of, n in self.classes if of == number)
            for n_sources in dict.fromkeys(expansions):
                start = self.barrier_weights.get((number, n_sources), 1 / self.plan.gamma)
                barrier = Barrier(start if self.rounds else 0.0, self.is_literal)
                for _ in range(self.max_search if self.rounds else 1):
                    if self.rounds and self.spec.training.is_out_of_time:
                        return False  # beside those that there are
                    n_searches += 1
                    if self._try_learner(number, n_sources, n_searches, barrier):
                        if len(self.rounds) > 1:
                            self.barrier_weights[number, n_sources] = barrier.weight
                        return True
            self.classes = [later for later in self.classes if later[0] > number]
        return False

    def _try_learner(self, number: int, n_sources: int, n_searches: int, barrier: Barrier) -> bool:
        """Train a learner and add it if it brings the mean nearer; else change the barrier."""
        sources = self.network.learners[::-1][:n_sources]
        recipe = self.spec.recipe.of_classes[number]
        learner = self.plan.build_learner(recipe, sources, *self.spec.draw_seeds(1))
        learner.to(self.played.x)
        phase = f"round {len(self.rounds) + 1} of {self.n_rounds}, network {n_searches}"
        history = self.train(learner, barrier.weight, phase)
        if history is None:  # it diverged
            barrier.change(was_too_light=False)
            return False
        with torch.no_grad():
            hidden, outputs = self.played.run(learner, rows_within(learner.n_activations))
        if not self.game.is_weak_learner(outputs):
            barrier.change(was_too_light=True)
            return False
        weight = 1.0 if self.is_literal else self.game.weight_of(outputs)
        if weight < _LEAST_WEIGHT:
            barrier.change(was_too_light=False)
            return False
        edges = self.game.edges(outputs)[self.game.is_played] if self.rounds else None
        self.game.add(outputs, weight)
        self.played.keep_hidden(hidden)
        self.network.append(learner, weight)
        self.rounds.append(
            Round(
                module=number,
                n_connections=len(learner.connections),
                n_searches=n_searches,
                edge=None if edges is None else edges.min().item(),
                weight=self.network.weights[-1].item(),
                distance=self.game.distance(),
                flop=count_flop(self.network, learner.row_shape) - sum(r.flop for r in self.rounds),
                connection_flop=learner.connection_flop,
                n_parameters=n_parameters(learner),
                n_connection_parameters=learner.n_connection_parameters,
            )
        )
        self.history += [{**row, "round": len(self.rounds)} for row in history]
        return True

    def train(
        self, learner: Learner, barrier_weight: float, phase: str
    ) -> list[dict[str, Any]] | None:
        """Train a learner (Eq 6); return the history, None if it diverged."""
        from .._engine import Rows

        batch_size = self.spec.params["batch_size"]
        X = learner.pack(self.played.x, self.played.sources_of(learner))
        targets = self.target, self.game.wanted(self.is_literal).to(self.target)
        rows = Rows(X, targets, self.weight, batch_size, self.spec.draw_seeds(1))
        module = stack([learner.trainable()])
        task = self.task.subtask("learner", max_subtasks=self.n_epochs)
        with task.running():
            net = self.spec.training.fit(
                module,
                WeakLearnerObjective(self.network, self.plan.task_temperature, barrier_weight),
                rows,
                self.n_epochs,
                callbacks=[task.per_epoch()],
                phase=phase,
                share=1 / (self.n_rounds - len(self.rounds)),  # of the time left
            )
        if net.interrupted_:
            raise KeyboardInterrupt
        if net.guard.diverged_.any():
            if not self.rounds:
                raise ValueError(
                    "The first learner's loss became infinite, not a number, or exploded. Try a "
                    f"smaller lr than {net.lr} or clip_norm than {self.spec.training.clip_norm}; "
                    "teacher_ is kept."
                )
            return None
        if net.guard.worse_.any():
            self.spec.training.warn_of_worse(f"Learner {len(self.rounds)} is", net.lr)
        (trained,) = unstack(module)
        learner.load_trained(trained)
        return list(net.history)

    def fitted(self) -> Fitted:
        spec, network, n_epochs = self.spec, self.network, self.n_epochs
        structure = tuple((found.module, found.n_connections) for found in self.rounds)
        plan = replace(self.plan, structure=structure)
        if spec.training.budget is not None:
            n_epochs = max(row["epoch"] for row in self.history)
        network.put_side_by_side()
        module = plan.wrap(network, as_tensors(spec.scaling)).eval()
        module.inputs = self.inputs
        module = module.to(self.played.x.device)
        functions = widen_where_unknown(module, spec.recipe, plan.task, spec.X)
        facts = {
            "rounds_": self.rounds,
            "n_rounds_": len(self.rounds),
            "eta_": self.game.eta.cpu().numpy(),
            "n_epochs_": n_epochs,
            "n_parameters_": n_parameters(network),
        }
        recipe = spec.recipe._replace(functions=functions)
        return Fitted(plan, recipe, module, self.history, TrainingBudget(n_epochs), facts)


class LearnerRecipes(NamedTuple):
    """How to build the networks of each model class, which read the same samples."""

    of_classes: tuple[NetworkRecipe, ...]
    functions: UnknownColumns | None = None

    @property
    def is_builtin(self) -> bool:
        """Whether all networks are of :mod:`skdistill.modules`."""
        return all(recipe.is_builtin for recipe in self.of_classes)

    def __getattr__(self, name: str) -> Any:
        """Return what all have in common, such as `row_shape` and `inputs`, from the first."""
        return getattr(self.of_classes[0], name)


@dataclass(frozen=True)
class RoundsPlan(Plan):
    """A series of learners, whose mean is the prediction; settings are the booster's."""

    task: Task
    head_layers: int
    connection: str
    early: bool
    gamma: float
    temperature: float
    classes: tuple[tuple[int, int], ...]  # to search: number of a model class, of connections
    structure: tuple[tuple[int, int], ...] = ()  # the same for each learner that was found
    calibration: Any = None  # of the fitted student

    tells_parts = False  # learners correct each other

    @property
    def is_centred(self) -> bool:
        """Whether outputs are logits, of which only the differences matter."""
        return not isinstance(self.task, RegressionTask)

    @property
    def n_networks(self) -> int:  # type: ignore[override]  # a constant in the base
        return max(1, len(self.structure))

    @property
    def task_temperature(self) -> float | None:
        """Temperature of the task loss; None for the squared error."""
        return None if isinstance(self.task, RegressionTask) else self.temperature

    def build_learner(
        self, recipe: NetworkRecipe, sources: Sequence[Learner], seed: int
    ) -> Learner:
        """Build a learner of a model class that reads some earlier ones, the last first."""
        (network,) = recipe.build([seed])
        return Learner(
            network,
            recipe.input_shape,
            self.head_layers,
            self.connection,
            sources,
            self.early,
            torch.Generator().manual_seed(seed),
        )

    def build(self, recipe: LearnerRecipes, seeds: Sequence[int]) -> Booster:
        """Build a booster of the learners found, or of one of each class before there are any."""
        learners: list[Learner] = []
        structure = self.structure or self.classes
        for (number, n_sources), seed in zip(structure, itertools.cycle(seeds), strict=False):
            sources = learners[::-1][:n_sources]
            learners.append(self.build_learner(recipe.of_classes[number], sources, seed))
        zeros = torch.zeros(self.n_outputs)
        return Booster(learners, zeros, zeros.clone(), centred=self.is_centred)

    def complete(self, module: Any) -> None:
        module.network.put_side_by_side()

    def objective(self, module: Any, training_budget: TrainingBudget) -> Objective:
        """Return what the learner of the first round minimises."""
        return WeakLearnerObjective(module.network, self.task_temperature, 1 / self.gamma)

    def target_of(self, predictions: np.ndarray) -> np.ndarray:
        """Return the targets of learners, (n, L), for members' predictions (n, S, ...)."""
        if isinstance(self.task, RegressionTask):
            means, variances = predictions[..., 0], predictions[..., 1]
            variance = np.maximum(variances.mean(1) + means.var(1), _LEAST_VARIANCE)
            raw_variance = variance + np.log(-np.expm1(-variance))  # softplus inverted
            return np.concatenate([means.mean(1), raw_variance], axis=1)
        logits = np.log(np.maximum(np.exp(predictions).mean(1), _LEAST_PROBABILITY))
        return logits - logits.mean(1, keepdims=True)


class WeakLearnerObjective(Objective):
    """Objective of a learner (Eq 6): a task loss, and the barrier with weight 1 / gamma.

    Its targets are the values to learn, (1, n, L), and what is wanted of the errors, (1, n, L).
    Outputs are raw, (1, n, L), or (1, time, n, L), where the task loss is a mean over the time
    steps (the loss of E-RNN) and the barrier is for the last. `temperature` is that of the
    cross-entropy between classes; None is half the squared error.
    """

    def __init__(self, booster: Booster, temperature: float | None, barrier_weight: float):
        super().__init__()
        self.loc, self.bound, self.centred = booster.loc, booster.bound, booster.centred
        self.temperature = temperature
        self.barrier_weight = barrier_weight

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        target, wanted = targets
        over_time = outputs.ndim > target.ndim
        bounded = losses.bounded_outputs(outputs, self.loc, self.bound, self.centred)
        wanted_outputs = target.unsqueeze(1) if over_time else target
        if self.temperature is None:
            gradient = bounded - wanted_outputs
            loss = 0.5 * gradient.square().sum(-1)
        else:
            softened = torch.softmax(wanted_outputs / self.temperature, -1).expand_as(bounded)
            term = losses.Term(losses.cross_entropy, (softened,))
            loss, gradient = losses.tempered_sum([term], bounded, self.temperature)
        last, at_end = bounded, gradient
        if over_time:
            loss, gradient = loss.mean(1), gradient / bounded.shape[1]
            last, at_end = bounded[:, -1], gradient[:, -1]
        if self.barrier_weight:
            barrier, d_barrier = losses.log_barrier.and_gradient(last - target, wanted, self.bound)
            loss = torch.add(loss, barrier, alpha=self.barrier_weight)  # Eq 6
            at_end.add_(d_barrier, alpha=self.barrier_weight)
        return loss, losses.gradient_of_raw(gradient, bounded, self.loc, self.bound, self.centred)
