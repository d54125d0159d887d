# SPDX-License-Identifier: BSD-3-Clause
"""The search for weak learners, round by round (B-DISTIL, Algorithms 1 and 2)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from .. import losses
from .._base import SEED_LIMIT, Objective
from .._warnings import warn
from ..modules import Booster, Learner, Rounds, n_parameters, stack, unstack, weights_and_fan_ins

# Each restart of a search weighs the barrier so many times as much as the one before.
_RAMP = 3.0


class Round(NamedTuple):
    """What a round found, and what it costs for one row.

    Attributes
    ----------
    module : int
        Number of the learner's model class in the list of them.
    n_connections : int
        How many earlier learners it reads.
    n_searches : int
        How many networks were trained until one was a weak learner.
    edge : float or None
        Smallest edge over the columns (Definition 1); None in the first round, which needs none.
    flop, connection_flop : float
        Floating-point operations of the learner with its connections, and of these alone.
    n_parameters, n_connection_parameters : int
        The same for parameters.
    """

    module: int
    n_connections: int
    n_searches: int
    edge: float | None
    flop: float
    connection_flop: float
    n_parameters: int
    n_connection_parameters: int


class WeakLearnerObjective(Objective):
    """What a learner minimises (Eq 6): a task loss, and the barrier.

    Given the targets, (1, n, L), and the wanted signs of the errors, (1, n, L). Outputs are raw,
    (1, n, L), or (1, time, n, L), where the task loss is a mean over the time steps (the loss of
    E-RNN) and the barrier is for the last.

    Parameters
    ----------
    booster : Booster
        Whose bounds to keep to.
    temperature : float or None
        Of the cross-entropy between classes; None is half the squared error.
    barrier_weight : float
        Weight of the barrier, 1 / gamma.
    """

    def __init__(self, booster: Booster, temperature: float | None, barrier_weight: float):
        super().__init__()
        self.loc, self.bound, self.centred = booster.loc, booster.bound, booster.centred
        self.temperature = temperature
        self.barrier_weight = barrier_weight

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        target, signs = targets
        bounded = losses.bounded_outputs(outputs, self.loc, self.bound, self.centred)
        bounded = bounded.view(1, -1, *target.shape[1:])  # (1, time, n, L)
        loss, gradient = self._task_loss(bounded, target.unsqueeze(1))
        error = bounded[:, -1] - target
        barrier, d_barrier = losses.log_barrier.and_gradient(error, signs, self.bound)
        loss = loss.mean(1) + self.barrier_weight * barrier  # Eq 6
        gradient = gradient / bounded.shape[1]
        gradient[:, -1] += self.barrier_weight * d_barrier
        gradient = losses.gradient_of_raw(gradient, bounded, self.loc, self.bound, self.centred)
        return loss, gradient.view_as(outputs)

    def _task_loss(self, bounded: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        if self.temperature is None:
            error = bounded - target
            return 0.5 * error.square().sum(-1), error
        softened = torch.softmax(target / self.temperature, -1).expand_as(bounded)
        term = losses.Term(losses.cross_entropy, (softened,))
        return losses.tempered_sum([term], bounded, self.temperature)


class Search:
    """The game, played until there are as many learners as wanted or no further one is found.

    Parameters
    ----------
    student : BDistilStudent
        Whose settings to use; it builds the learners and trains them.
    game : losses.DistillationGame
    X : Tensor of shape (N, ...)
        The rows, on the device on which to train.
    task : sklearn.callback.CallbackContext
        The task whose subtasks the trainings are.
    random_state : RandomState

    Attributes
    ----------
    booster : Booster
        The learners found so far.
    rounds : list of Round
    history : list of dict
        One row for each epoch of the learners that were accepted.
    """

    def __init__(self, student, game: losses.DistillationGame, X: Tensor, task, random_state):
        self.student = student
        self.game = game
        self.task = task
        self.random_state = random_state
        self.target = game.target.to(X.dtype)
        self.weight = _unless_equal(game.weight.to(X.dtype).T)
        self.booster = student.new_booster([], game.loc.to(X), game.bound.to(X))
        self.played = Rounds(self.booster, X)
        self.classes = student.classes()
        self.rounds: list[Round] = []
        self.history: list[dict[str, Any]] = []

    def play(self) -> None:
        """Find learners (Algorithm 1)."""
        while len(self.rounds) < self.student.n_rounds and not (self.rounds and self.game.is_over):
            learner = self.find()
            if learner is None:
                warn(
                    f"No weak learner was found in round {len(self.rounds) + 1}; the rounds before "
                    "it are kept. Try larger networks, a smaller gamma, more connections or a "
                    "larger max_search.",
                    ConvergenceWarning,
                )
                return
            self.booster.learners.append(learner)
            with torch.no_grad():
                self.game.add(self.played.advance())

    def find(self) -> Learner | None:
        """Find a weak learner (FIND-WL, Algorithm 2).

        A class in which there is none is not searched again: classes only grow.
        """
        n_searches = 0
        while self.classes:
            number, n_sources = self.classes[0]
            n_sources = min(n_sources, len(self.rounds))
            for restart in range(self.student.max_search if self.rounds else 1):
                n_searches += 1
                sources = self.booster.learners[::-1][:n_sources]
                learner = self.student.build_learner(number, sources, self._seed())
                learner.to(self.played.x)
                history = self.train(learner, _RAMP**restart / self.student.gamma)
                if history is not None and self._accept(learner, number, n_searches):
                    self.history += [{**row, "round": len(self.rounds)} for row in history]
                    return learner
            self.classes.pop(0)
        return None

    def _accept(self, learner: Learner, number: int, n_searches: int) -> bool:
        """Note the round if the learner is a weak one."""
        with torch.no_grad():
            outputs = self.played.try_out(learner)
        if not self.game.accepts(outputs):
            return False
        edges = self.game.edges(outputs)[self.game.is_played]
        flop, n_own = self.student.cost_of_network(number)
        n_total = n_parameters(learner)
        self.rounds.append(
            Round(
                module=number,
                n_connections=len(learner.connections),
                n_searches=n_searches,
                edge=edges.min().item() if self.rounds else None,
                flop=flop + learner.connection_flop,
                connection_flop=learner.connection_flop,
                n_parameters=n_total,
                n_connection_parameters=n_total - n_own,
            )
        )
        return True

    def train(self, learner: Learner, barrier_weight: float) -> list[dict[str, Any]] | None:
        """Train a learner (Eq 6); return the history, None if it diverged."""
        from .._engine import DivergenceGuard, Rows, TaskPerEpoch

        student, guard = self.student, DivergenceGuard()
        X = learner.pack(self.played.x, self.played.sources_of(learner))
        signs = self.game.signs().to(X)
        rows = Rows(X, (self.target, signs), self.weight, student.batch_size, [self._seed()])
        module = stack([learner.trainable()])
        subtask = self.task.subcontext(task_name="learner", max_subtasks=student.n_epochs_)
        subtask.call_on_fit_task_begin(estimator=student)
        net = student._train(
            module,
            WeakLearnerObjective(self.booster, student.task_temperature, barrier_weight),
            rows,
            callbacks=[TaskPerEpoch(subtask, student), guard],
            weight_decay=[(w, student.weight_decay) for w, _ in weights_and_fan_ins(module)],
        )
        subtask.call_on_fit_task_end(estimator=student)
        if net.interrupted_:
            raise KeyboardInterrupt
        if guard.diverged_.any():
            if not self.rounds:
                raise ValueError(
                    "The first learner's loss became infinite, not a number, or exploded. Try a "
                    f"smaller lr than {student.lr} or clip_norm than {student.clip_norm}; teacher_ "
                    "is kept."
                )
            return None
        if guard.worse_.any():
            student._warn_of_worse(f"Learner {len(self.rounds)} is")
        (trained,) = unstack(module)
        learner.load_trained(trained)
        return list(net.history)

    def _seed(self) -> int:
        return int(self.random_state.randint(SEED_LIMIT))


def _unless_equal(weight: Tensor) -> Tensor | None:
    """Weights of rows, None if they are all the same."""
    return None if bool((weight == weight[0, 0]).all()) else weight
