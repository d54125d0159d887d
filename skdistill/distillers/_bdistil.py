# SPDX-License-Identifier: BSD-3-Clause
"""B-DISTIL: a teacher decomposed into small networks, each of which improves on those before it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import gen_batches
from sklearn.utils.metaestimators import available_if
from torch import Tensor

from .._base import SEED_LIMIT, Objective, rows_in_memory
from .._parameters import DunderParameters
from .._read_offs import DistributionClassifier, DistributionRegressor, check_outputs
from .._rules import Number, OneOf
from ..losses import DistillationGame
from ..modules import (
    CONNECTIONS,
    MLP,
    Booster,
    Learner,
    Rounds,
    build_member,
    flop_per_row,
    n_parameters,
    stack,
)
from ._bdistil_anytime import Anytime, EarlyExits, LimitedRun, Limits
from ._bdistil_search import Round, Search, WeakLearnerObjective
from ._distiller import Distiller, Lesson
from ._meta import MetaDistiller, student_can

# Teachers' probabilities are at least this before the logarithm is taken.
_LEAST_PROBABILITY = 1e-6

# Teachers' variances likewise, in units of the standardised targets.
_LEAST_VARIANCE = 1e-5

# For max_epochs="auto": how many rows each learner is to see, and within how many epochs.
_ROWS_SEEN = 300_000
_EPOCHS_WITHIN = (10, 200)


class ProgressiveDistillation(DunderParameters):
    """Parameters of :class:`BDistilBooster`, and of the students that it builds."""

    def __init__(
        self,
        teacher,
        *,
        n_rounds=7,
        module=MLP,
        head_layers=1,
        connection="residual",
        expansions=2,
        connect="when_needed",
        max_search=5,
        gamma=1.0,
        temperature=1.0,
        eta="auto",
        early=False,
        transfer=None,
        transfer_only=False,
        teacher_cv=None,
        weight_decay=0.0,
        optimizer="Adam",
        lr=0.01,
        lr_schedule="cosine",
        max_epochs="auto",
        batch_size=32,
        clip_norm=5.0,
        normalize_y=True,
        memory=None,
        callbacks=None,
        device="auto",
        compile="auto",
        n_threads="auto",
        verbose=0,
        random_state=None,
        **kwargs,
    ):
        self.teacher = teacher
        self.n_rounds = n_rounds
        self.module = module
        self.head_layers = head_layers
        self.connection = connection
        self.expansions = expansions
        self.connect = connect
        self.max_search = max_search
        self.gamma = gamma
        self.temperature = temperature
        self.eta = eta
        self.early = early
        self.transfer = transfer
        self.transfer_only = transfer_only
        self.teacher_cv = teacher_cv
        self.weight_decay = weight_decay
        self.optimizer = optimizer
        self.lr = lr
        self.lr_schedule = lr_schedule
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.clip_norm = clip_norm
        self.normalize_y = normalize_y
        self.memory = memory
        self.callbacks = callbacks
        self.device = device
        self.compile = compile
        self.n_threads = n_threads
        self.verbose = verbose
        self.random_state = random_state
        self._set_extra_params(kwargs)


class BDistilStudent(ProgressiveDistillation, Distiller):
    """What students for classes and for numbers share: rounds, and what is read off them."""

    _parameter_table = {
        **Distiller._parameter_table,
        "n_rounds": Number(Integral, 1),
        "head_layers": Number(Integral, 1),
        "connection": OneOf(("none", *CONNECTIONS)),
        "expansions": Number(Integral, 1),
        "connect": OneOf(("when_needed", "always")),
        "max_search": Number(Integral, 1),
        "gamma": Number(Real, 0, closed="neither"),
        "temperature": Number(Real, 0, closed="neither"),
        "eta": Number(Real, 0, closed="neither", others=("auto",)),
        "early": OneOf((True, False)),
        "weight_decay": Number(Real, 0),
    }
    _module_defaults = {"hidden_units": (32, 32)}

    rounds_: list[Round]

    # --- what the student is made of

    def _model_classes(self) -> list[Any]:
        if not isinstance(self.module, (list, tuple)):
            return [self.module]
        if not self.module:
            raise ValueError("module must have at least one model class, got an empty list.")
        return list(self.module)

    def _set_recipe(self) -> None:
        self._recipes = [self._recipe_of(module) for module in self._model_classes()]
        self._recipe = self._recipes[0]
        self._structure: list[tuple[int, int]] = []

    def _recipe_of(self, module: Any) -> dict[str, Any]:
        connects = {"connection": self.connection, "over_time": self.early}
        return {**super()._recipe_of(module), **connects}

    def classes(self) -> list[tuple[int, int]]:
        """Classes to search, each the number of a model class and of its connections."""
        last = 0 if self.connection == "none" else self.expansions - 1
        first = min(last, 1) if self.connect == "always" else 0
        return list(itertools.product(range(len(self._recipes)), range(first, last + 1)))

    def build_learner(self, number: int, sources, seed: int) -> Learner:
        """Build a learner of a model class that reads some earlier ones, the last first."""
        recipe = self._recipes[number]
        return Learner(
            build_member(recipe["module"], seed, **recipe["kwargs"]),
            self._row_shape,
            recipe["head_layers"],
            recipe["connection"],
            sources,
            recipe["over_time"],
            torch.Generator().manual_seed(seed),
        )

    def cost_of_network(self, number: int) -> tuple[float, int]:
        """Floating-point operations for a row, and parameters, of a network without connections."""
        recipe = self._recipes[number]
        network = build_member(recipe["module"], 0, **recipe["kwargs"])
        return flop_per_row(stack([network]), self._row_shape), n_parameters(network)

    def new_booster(self, learners: list[Learner], loc: Tensor, bound: Tensor) -> Booster:
        """Put learners together."""
        return Booster(learners, loc, bound, centred=is_classifier(self))

    def _build_network(self, seeds: list[int]) -> Booster:
        """Booster of the learners found, or of one of each class before there are any."""
        learners: list[Learner] = []
        structure = self._structure or self.classes()
        for (number, n_sources), seed in zip(structure, itertools.cycle(seeds)):
            sources = learners[::-1][:n_sources]
            learners.append(self.build_learner(number, sources, seed))
        zeros = torch.zeros(self._out_features)
        return self.new_booster(learners, zeros, zeros.clone())

    @property
    def _n_networks(self) -> int:
        return len(self._structure)

    @property
    def _tells_parts(self) -> bool:
        return False  # rounds correct each other: their spread is no posterior's

    def _load_weights(self, weights: dict[str, np.ndarray]) -> None:
        super()._load_weights(weights)
        self.module_.network.put_side_by_side()

    def _objective(self) -> Objective:
        """What the learner of the first round minimises."""
        return WeakLearnerObjective(self.module_.network, self.task_temperature, 1 / self.gamma)

    # --- fit

    @property
    def task_temperature(self) -> float | None:
        """Temperature of the task loss; None for the squared error."""
        raise NotImplementedError  # by the task: classes or numbers

    @property
    def _n_played(self) -> int:
        """How many of the outputs, the first, the game is about."""
        raise NotImplementedError  # by the task: classes or numbers

    def _target_of(self, answers: np.ndarray) -> np.ndarray:
        """What learners are to say, (n, L), of the answers of a teacher (n, S, ...)."""
        raise NotImplementedError  # by the task: classes or numbers

    def _count_epochs(self, n_rows: int) -> int:
        if self.max_epochs != "auto":
            return self.max_epochs
        low, high = _EPOCHS_WITHIN
        return min(max(_ROWS_SEEN // n_rows, low), high)

    def _rows_and_targets(self, lesson: Lesson, ask, maker, seed: int) -> tuple:
        """Rows of the game, what is to be said of them, and their weights.

        The game is between learners and rows that stay as they are: those that `transfer` makes are
        made once.
        """
        X, _, weight, answers, _ = self._rows_with_transfer(lesson, ask)
        if maker is not None:
            rows = torch.tensor(X)
            draw = maker.prepare(rows, torch.tensor(weight))
            generator = torch.Generator().manual_seed(seed)
            made = draw(rows, torch.arange(len(X)), generator).numpy()
            if self.transfer_only:
                X, answers = made, None
            else:
                X, weight = np.concatenate([X, made]), np.concatenate([weight, weight])
                answers = None if answers is None else np.concatenate([answers, ask(made)])
        if answers is not None:
            return X, self._target_of(answers), weight
        portions = gen_batches(len(X), rows_in_memory(ask(X[:1])))
        return X, np.concatenate([self._target_of(ask(X[rows])) for rows in portions]), weight

    def _distil(self, lesson: Lesson, ask, maker, buffers, task, random_state) -> None:
        """Play the game; what was found is kept also if it is interrupted."""
        seed = int(random_state.randint(SEED_LIMIT))
        X, target, weight = self._rows_and_targets(lesson, ask, maker, seed)
        rows = torch.tensor(X, device=self._device())
        self.n_epochs_ = self._count_epochs(len(rows))
        game = DistillationGame(
            torch.tensor(target, device=rows.device),
            self.n_rounds,
            None if self.eta == "auto" else self.eta,
            torch.tensor(weight, device=rows.device),
            self._n_played,
        )
        subtask = task.subcontext(task_name="student", max_subtasks=None)
        subtask.call_on_fit_task_begin(estimator=self)
        search = Search(self, game, rows, subtask, random_state)
        try:
            search.play()
        finally:
            if search.rounds:
                self._keep_rounds(search, buffers)
        subtask.call_on_fit_task_end(estimator=self)

    def _keep_rounds(self, search: Search, buffers: dict[str, np.ndarray]) -> None:
        """Make what was found the fitted module."""
        self._structure = [(found.module, found.n_connections) for found in search.rounds]
        self.rounds_ = search.rounds
        self.n_rounds_ = len(search.rounds)
        self.eta_ = search.game.eta.cpu().numpy()
        self.history_ = search.history
        self.n_parameters_ = n_parameters(search.booster)
        tensors = {name: torch.tensor(value) for name, value in buffers.items()}
        search.booster.put_side_by_side()
        self.module_ = self._wrap(search.booster, tensors).eval().to(search.played.x.device)

    # --- predictions from some of the rounds

    def _labels_or_means(self, distribution: Any) -> np.ndarray:
        """What `predict` gives of a distribution: labels (n,), or means in units of y."""
        raise NotImplementedError  # by the task: classes or numbers

    def _check_limits(self, limits: dict[str, Any]) -> Limits:
        if unknown := sorted(set(limits) - set(Limits._fields)):
            raise TypeError(f"limits of a prediction are {list(Limits._fields)}, got {unknown}.")
        given = Limits(**limits)
        given.check(max(self.n_rounds, self.n_rounds_), is_classifier(self))
        return given

    @property
    def _costs(self) -> list[float]:
        """Floating-point operations of each round for a row."""
        return [found.flop for found in self.rounds_]

    def _read_within(self, X, read: Callable[[Any], Any], return_exits=False, **limits):
        """What `read` takes from the distribution that is predicted within limits."""
        OneOf((True, False)).check(return_exits, "return_exits")
        if not return_exits and all(limit is None for limit in limits.values()):
            return read(self.predict_distribution(X))
        X, given = self._validate_rows(X), self._check_limits(limits)
        n_rounds, size = given.affordable(self._costs), self._rows_at_a_time(X)

        def parts(rows: Tensor, first: int) -> list[np.ndarray]:
            run = LimitedRun(self.module_, rows, n_rounds, given, size, first)
            outputs, taken = run.outputs()
            found = read(self.module_.of_outputs(outputs.unsqueeze(0)))
            return [*(found if isinstance(found, tuple) else (found,)), taken]

        # Until a deadline all rows go from round to round together.
        *found, taken = self._by_chunks(X, parts, size if given.deadline is None else len(X))
        result = tuple(found) if len(found) > 1 else found[0]
        return (result, EarlyExits.after(taken, self._costs)) if return_exits else result

    def _staged(self, X, read: Callable[[Any], np.ndarray]) -> Iterator[np.ndarray]:
        """What `read` takes from the distribution after each round."""
        X = self._validate_rows(X)

        def after_each_round(rows: Tensor, first: int) -> Iterator[np.ndarray]:
            run = LimitedRun(self.module_, rows, self.n_rounds_, Limits(), first=first)
            while run.advance():
                yield read(run.distribution())

        yield from self._by_chunks(X, after_each_round, self._rows_at_a_time(X))

    def _by_chunks(
        self, X: np.ndarray, parts: Callable[[Tensor, int], Iterable[np.ndarray]], size: int
    ) -> list[np.ndarray]:
        """The arrays, rows first, of which `parts` gives those for `size` rows at a time.

        It is given the rows, and the number of the first.
        """
        whole: list[np.ndarray] = []
        for rows in gen_batches(len(X), size):
            for number, part in enumerate(parts(self._as_tensor(X[rows]), rows.start)):
                if rows.start == 0:  # written into place: pieces would fragment the memory
                    whole.append(np.empty((len(X), *part.shape[1:]), dtype=part.dtype))
                whole[number][rows] = part
        return whole

    def staged_predict(self, X) -> Iterator[np.ndarray]:
        return self._staged(X, self._labels_or_means)

    def staged_score(self, X, y, sample_weight=None) -> np.ndarray:
        score = accuracy_score if is_classifier(self) else r2_score
        stages = self.staged_predict(X)
        return np.array([score(y, said, sample_weight=sample_weight) for said in stages])

    def anytime(self, X, method, max_rounds, max_flops, deadline) -> Anytime:
        reads = self._reads()
        OneOf(tuple(reads)).check(method, "method")
        X = self._validate_rows(X)
        limits = {"max_rounds": max_rounds, "max_flops": max_flops, "deadline": deadline}
        given = self._check_limits(limits)
        n_rounds = given.affordable(self._costs)
        rows, size = self._as_tensor(X), self._rows_at_a_time(X)
        return Anytime(LimitedRun(self.module_, rows, n_rounds, given, size), reads[method])

    def _reads(self) -> dict[str, Callable[[Any], np.ndarray]]:
        """What can be read off round by round, by the name of the method."""
        return {"predict": self._labels_or_means}


class BDistilStudentRegressor(BDistilStudent, DistributionRegressor):
    """Student of a regressor: means are a game, raw variances are learnt beside them."""

    _parameter_table = {
        **DistributionRegressor._parameter_table,
        **BDistilStudent._parameter_table,
    }
    task_temperature = None

    def _check_weights_of_terms(self) -> None:
        if self.temperature != 1:
            raise ValueError(
                "temperature must be 1 with a regressor as teacher, whose loss is the squared "
                f"error; got {self.temperature!r}."
            )
        if self.early:
            raise ValueError(
                "early must be False with a regressor as teacher, which has no class to be "
                f"confident of early; got {self.early!r}."
            )

    @property
    def _n_played(self) -> int:
        return self.n_outputs_

    def _target_of(self, answers: np.ndarray) -> np.ndarray:
        means, variances = answers[..., 0], answers[..., 1]
        variance = variances.mean(1) + means.var(1)
        raw_variance = np.log(np.expm1(np.maximum(variance, _LEAST_VARIANCE)))  # softplus inverted
        return np.concatenate([means.mean(1), raw_variance], axis=1)

    def _labels_or_means(self, distribution) -> np.ndarray:
        return self._per_target(distribution.mean.cpu().numpy())

    def _means_and_deviations(self, distribution) -> tuple[np.ndarray, np.ndarray]:
        variance = self._per_target(distribution.variance.cpu().numpy())
        return self._labels_or_means(distribution), np.sqrt(variance)

    def predict(self, X, return_std=False, **limits):
        OneOf((True, False)).check(return_std, "return_std")
        read = self._means_and_deviations if return_std else self._labels_or_means
        return self._read_within(X, read, **limits)


class BDistilStudentClassifier(BDistilStudent, DistributionClassifier):
    """Student of a classifier: the game is about centred logits."""

    @property
    def task_temperature(self) -> float:
        return self.temperature

    @property
    def _n_played(self) -> int:
        return len(self.classes_)

    def _target_of(self, answers: np.ndarray) -> np.ndarray:
        proba = np.exp(answers).mean(1)
        logits = np.log(np.maximum(proba, _LEAST_PROBABILITY))
        return logits - logits.mean(1, keepdims=True)

    def _labels_or_means(self, distribution) -> np.ndarray:
        return self.classes_[distribution.mean.argmax(-1).cpu().numpy()]

    def _probabilities(self, distribution) -> np.ndarray:
        return distribution.mean.cpu().numpy()

    def _reads(self):
        return {**super()._reads(), "predict_proba": self._probabilities}

    def predict(self, X, **limits):
        return self._read_within(X, self._labels_or_means, **limits)

    def predict_proba(self, X, **limits):
        return self._read_within(X, self._probabilities, **limits)

    def staged_predict_proba(self, X) -> Iterator[np.ndarray]:
        return self._staged(X, self._probabilities)

    @available_if(lambda self: self.early)
    def predict_early(self, X, threshold) -> tuple[np.ndarray, np.ndarray]:
        Number(Real, 0, 1).check(threshold, "threshold")
        rows = self._as_tensor(self._validate_rows(X))
        size = self._chunk_rows()
        parts = [
            self._early(rows[start : start + size], threshold, start)
            for start in range(0, len(rows), size)
        ]
        codes, steps = (np.concatenate(part) for part in zip(*parts, strict=True))
        return self.classes_[codes], steps

    @torch.inference_mode()
    def _early(self, rows: Tensor, threshold: float, start: int) -> tuple[np.ndarray, np.ndarray]:
        """Codes of the classes, and how many time steps had been read when they were sure."""
        rounds = Rounds(self.module_.network, rows, over_time=True)
        for _ in self.rounds_:
            rounds.advance()
        check_outputs(rounds.mean, rows, range(start, start + len(rows)), axis=1)
        proba = torch.softmax(rounds.mean, -1).cpu().numpy()  # (time, n, K)
        is_sure = proba.max(-1) >= threshold
        is_sure[-1] = True
        first = is_sure.argmax(0)
        return proba[first, np.arange(len(rows))].argmax(-1), first + 1


class BDistilBooster(ProgressiveDistillation, MetaDistiller):
    """Decompose a teacher into small networks whose mean comes nearer to it round by round [1]_.

    Each round looks for a *weak learner*, a network that errs against the sum of the errors made
    before it, and adds it to the mean. Any of the first rounds alone gives a prediction, so that
    accuracy can be traded for time when predicting: by a number of rounds, of operations or of
    seconds, or row by row. It is a classifier or a regressor as its teacher is.

    Parameters
    ----------
    teacher : estimator, "classifier" or "regressor"
        The model to decompose: one that predicts probabilities or numbers, such as a boosting model
        of scikit-learn, an ensemble, whose mean is learnt, or ``as_teacher`` of a torch module. An
        unfitted one is cloned and fitted as `teacher_`, one in ``sklearn.frozen.FrozenEstimator``
        is used as it is. A name goes with `member_predictions` in `fit`.
    n_rounds : int, default=7
        Number of learners, T, at most.
    module : callable or list of callables, default=MLP
        Model class, or several of growing cost, of which the next is searched when there is no weak
        learner in one. Each builds a network from ``in_features``, ``out_features`` and what is
        given as ``module__<name>``, as an ``nn.Sequential``; for the MLP,
        ``module__hidden_units=(32, 32)`` unless given.
    head_layers : int, default=1
        How many of a network's last layers with parameters come after the connections. With 2, the
        learners of an MLP get deeper round by round.
    connection : {"none", "residual", "dense", "lstm", "gru"}, default="residual"
        How a learner takes in the last hidden activations of an earlier one: not at all, adding
        them, beside its own, or through the gates of an LSTM or a GRU, which have a weight for each
        unit. Where widths differ they are projected, except for "dense".
    expansions : int, default=2
        Classes that a model class is expanded to, R. The first has no connections; the r-th reads
        the r - 1 learners before it.
    connect : {"when_needed", "always"}, default="when_needed"
        Whether to search the class without connections first. Learners without connections can run
        side by side; those with connections make more of the same number of rounds.
    max_search : int, default=5
        Networks to train in a class until one is a weak learner. Each weighs the barrier three
        times as much as the one before.
    gamma : float, default=1.0
        Inverse weight of the barrier in the first of these. The larger, the more a learner minds
        the teacher, and the less the errors made before it.
    temperature : float, default=1.0
        Temperature of the task loss, the cross-entropy between teacher and learner. 1 for
        regressors, whose task loss is the squared error.
    eta : float or "auto", default="auto"
        Learning rate of the rows' weights; "auto" is that of Theorem 1 of [1]_.
    early : bool, default=False
        Whether series are to be predicted before their end: the task loss is then a mean over the
        time steps, as in E-RNN [2]_, and there is `predict_early`. For classifiers and networks
        such as :class:`skdistill.modules.Recurrent`.
    transfer : {"auto", "noise", "mixup", "munge", "box"}, TransferMaker or None, default=None
        Further rows, made once of X and `X_transfer` and as many as these, about which the teacher
        is asked too.
    transfer_only, teacher_cv
        As in :class:`HydraPlusRegressor`.
    weight_decay : float, default=0.0
        L2 penalty on the weights of the learners' layers; biases have none.
    max_epochs : int or "auto", default="auto"
        Number of epochs of each learner; "auto" shows it 300,000 rows in all, but each of them at
        least 10 and at most 200 times.
    optimizer, lr, lr_schedule, batch_size, clip_norm
        As in :class:`BayesianEnsembleRegressor`.
    normalize_y : bool, default=True
        Whether to standardise the targets of a regressor for training.
    memory : None, str or joblib.Memory, default=None
        Where to cache the fit of the teacher.
    callbacks, device, compile, n_threads, verbose
        As in :class:`BayesianEnsembleRegressor`.
    random_state : int, RandomState instance or None, default=None
        Unless None, it also seeds every ``random_state`` of the teacher that is None.
    **kwargs
        ``module__<name>``, ``optimizer__<name>`` and ``callbacks__<callback>__<name>``.

    Attributes
    ----------
    student_ : estimator
        What the prediction is handed on to; it has the attributes below, too.
    teacher_ : estimator
        The fitted teacher.
    n_rounds_ : int
        Number of learners that were found.
    rounds_ : list of Round
        What each round found, and what it costs: a named tuple of the number of the model class
        (`module`), `n_connections`, `n_searches`, the smallest `edge` over the columns, and
        `flop`, `connection_flop`, `n_parameters` and `n_connection_parameters`, all for one row.
    eta_ : ndarray of shape (n_columns,)
        Learning rate of the rows' weights for each logit or mean; 0 where the teacher is constant.
    classes_ : ndarray of shape (n_classes,)
        Only for classifiers.
    n_epochs_ : int
        Number of epochs of each learner.
    n_parameters_ : int
        Number of parameters of all learners.
    module_ : CategoricalStack or GaussianStack
        The learners, as a torch module.
    history_ : list of dict
        One row for each epoch of each learner, with the number of its round.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)

    Notes
    -----
    The spread of the rounds is not that of a posterior: learners correct each other. So
    `predict_uncertainty` gives the total alone, the entropy of the probabilities, or the variance
    that the learners have taken over from the teacher; its parts are None.

    If no weak learner is found in any class, the rounds before are kept, with a warning. Ctrl-C
    keeps the rounds that are finished and raises ``KeyboardInterrupt``.

    References
    ----------
    .. [1] "Progressive Knowledge Distillation: Building Ensembles for Efficient Inference"
           (B-DISTIL).
    .. [2] Dennis et al. (2018), "Multiple Instance Learning for Efficient Sequential Data
           Classification on Resource-constrained Devices".

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import HistGradientBoostingClassifier
    >>> from skdistill import BDistilBooster
    >>> X, y = load_iris(return_X_y=True)
    >>> teacher = HistGradientBoostingClassifier(max_iter=20)
    >>> booster = BDistilBooster(teacher, n_rounds=2, max_epochs=20, random_state=0).fit(X, y)
    >>> booster.predict_proba(X[:5], max_rounds=1).shape
    (5, 3)
    """

    _students = {
        "classifier": BDistilStudentClassifier,
        "regressor": BDistilStudentRegressor,
    }

    @available_if(student_can("predict"))
    def predict(self, X, **limits):
        """Predict the class of each row, or its mean.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        **limits : dict
            What the prediction may cost:

            - ``max_rounds``, a number of rounds, at most ``n_rounds``;
            - ``max_flops``, a number of floating-point operations for a row;
            - ``deadline``, in seconds from now: a round that is not finished then is given up. The
              first is always run. All rows go from round to round together, and what the next round
              needs of them is held in memory, whatever scikit-learn's ``working_memory`` is;
            - ``early_exit``, a threshold at which a row leaves between rounds, and ``exit_on``, of
              what: "confidence", the probability of the class being at least the threshold, or
              "spread", the epistemic uncertainty that the rounds so far would have if they were
              members (mutual information in nats, or variance in squared units of y) being at most
              the threshold. "auto" is the confidence of classifiers and the spread of regressors;
            - ``return_exits=True``, to return also where the rows left;
            - ``return_std=True``, for regressors, to return the standard deviation too.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_targets)
            Labels, or means in units of y; with ``return_std`` a tuple of means and standard
            deviations.
        exits : EarlyExits, only with ``return_exits``
            A named tuple: `rounds`, ndarray of shape (n_samples,), how many rounds each row went
            through; `shares`, of shape (`n_rounds_`,), the share of the rows that left after each
            round; and `flop`, the mean of the operations that the rows took.
        """
        return self._fitted_student().predict(X, **limits)

    @available_if(student_can("predict_proba"))
    def predict_proba(self, X, **limits):
        """Predict the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        **limits : dict
            What the prediction may cost, as in :meth:`predict`.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        exits : EarlyExits, only with ``return_exits``
            As in :meth:`predict`.
        """
        return self._fitted_student().predict_proba(X, **limits)

    def staged_predict(self, X):
        """Predict after each round.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Yields
        ------
        y : ndarray of shape (n_samples,) or (n_samples, n_targets)
        """
        yield from self._fitted_student().staged_predict(X)

    @available_if(student_can("staged_predict_proba"))
    def staged_predict_proba(self, X):
        """Predict the probability of each class after each round.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Yields
        ------
        proba : ndarray of shape (n_samples, n_classes)
        """
        yield from self._fitted_student().staged_predict_proba(X)

    def staged_score(self, X, y, sample_weight=None):
        """Return the accuracy, or R2, after each round.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        scores : ndarray of shape (`n_rounds_`,)
        """
        return self._fitted_student().staged_score(X, y, sample_weight)

    def anytime(self, X, method="predict", *, max_rounds=None, max_flops=None, deadline=None):
        """Predict better and better, until the prediction is wanted.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        method : {"predict", "predict_proba"}, default="predict"
            What to predict.
        max_rounds : int, default=None
            Number of rounds at most.
        max_flops : float, default=None
            Number of floating-point operations for a row at most.
        deadline : float, default=None
            Seconds from now after which the iteration ends; a round that is not finished then is
            given up.

        Returns
        -------
        predictions : iterator
            Each step runs a round and gives the prediction after it. ``predictions.result`` is the
            best so far, at any time: that of the first round to begin with.
            ``predictions.n_rounds`` tells how many rounds it is of, and ``predictions.stop()`` ends
            the iteration, also from another thread.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.linear_model import LinearRegression
        >>> from skdistill import BDistilBooster
        >>> X, y = load_diabetes(return_X_y=True)
        >>> booster = BDistilBooster(LinearRegression(), n_rounds=2, max_epochs=5, random_state=0)
        >>> predictions = booster.fit(X, y).anytime(X, deadline=60)
        >>> for prediction in predictions:
        ...     if predictions.n_rounds == 1:  # good enough
        ...         predictions.stop()
        >>> predictions.result.shape
        (442,)
        """
        return self._fitted_student().anytime(X, method, max_rounds, max_flops, deadline)

    @available_if(student_can("predict_early"))
    def predict_early(self, X, threshold):
        """Predict the class of each series as soon as it is clear enough.

        All rounds go along the series together; the first time step decides at which the
        probability of a class is at least the threshold, or else the last.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_times, n_channels)
        threshold : float
            From 0 to 1.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Labels.
        steps : ndarray of shape (n_samples,), int
            How many time steps had been read, from 1 to `n_times`.
        """
        return self._fitted_student().predict_early(X, threshold)
