# SPDX-License-Identifier: BSD-3-Clause
"""B-DISTIL: a teacher decomposed into small networks, each of which improves on those before it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .._data.encoding import EMBEDDED_FROM, MANY_ROWS
from .._estimator.base import available_if
from .._estimator.batched import as_rows, check_rows, read_distribution, rows_at_a_time
from .._estimator.predicting import check_return_std, is_a
from .._method.plan import NetworkSettings
from .._method.task import Task
from .._utils.typing import Callbacks, Folds, Memory, ModelClass, OptimizerClass, RandomStateLike
from .._utils.validation import Number, OneOf, SettingsRule
from ..distributions import Distribution
from ..modules import MLP
from ..settings import Connection, Optimizer, Runtime, WeakLearnerSearch
from ..transfer import TransferMaker, TransferOnly
from ._base import Distiller
from ._bdistil_anytime import (
    Anytime,
    EarlyExits,
    LimitedRun,
    Limits,
    predict_after_each_round,
    predict_along_time,
    predict_within,
)
from ._bdistil_search import LearnerRecipes, Round, RoundsPlan, play_game


class BDistilBooster(MetaEstimatorMixin, Distiller):
    """Decompose a teacher into small networks whose mean approaches it round by round [1]_.

    Each round searches for a *weak learner*, a network whose errors oppose the sum of the errors of
    those before it, and adds it if the mean then comes closer to the teacher on the training
    samples. Prediction may stop after any round: after a number of rounds, operations or seconds,
    or sample by sample. The booster is a classifier if its teacher is one, else a regressor.

    Parameters
    ----------
    teacher : estimator, "classifier" or "regressor"
        The model to decompose: one that predicts probabilities or numbers, such as a boosting model
        of scikit-learn, an ensemble, whose mean is learnt, or FittedModels of a torch module. An
        unfitted one is cloned and fitted as `teacher_`, one in ``sklearn.frozen.FrozenEstimator``
        is used as it is. A name goes with `member_predictions` in `fit`.
    n_rounds : int, default=7
        Number of learners, T, at most.
    module : callable or list of callables, default=MLP
        Model class, or several of growing cost, of which the next is searched when there is no weak
        learner in one. Each builds a network from ``in_features``, ``out_features`` and the
        parameters ``module__<name>``, as an ``nn.Sequential``; for the MLP,
        ``module__hidden_units=(32, 32)`` unless given.
    connection : {"none", "residual", "dense", "lstm", "gru"} or Connection, default="residual"
        Whether and how learners read those before them, see
        :class:`skdistill.settings.Connection`.
    search : WeakLearnerSearch, default=None
        How the learner of a round is searched, see :class:`skdistill.settings.WeakLearnerSearch`;
        None is ``WeakLearnerSearch()``.
    early : bool, default=False
        Whether series are to be predicted before their end, by `predict_early`: the task loss is
        then a mean over the time steps, as in E-RNN [2]_. For classifiers and networks such as
        :class:`skdistill.modules.Recurrent`.
    transfer : str, TransferMaker, TransferOnly or None, default=None
        How as many further samples are generated, once, from X and `X_transfer` for the teacher to
        predict.
    teacher_cv, memory
        As in :class:`HydraPlusRegressor`.
    max_epochs : int or "auto", default="auto"
        Number of epochs of each learner; "auto" shows it 300,000 samples in all, but each of them
        at least 10 and at most 200 times.
    max_time : float, default=None
        Seconds that `fit` may take in all, that of the teacher included, as in
        :class:`HydraPlusRegressor`. All rounds to come share what is left equally; when it is up
        the rounds found are kept, with a warning if they are fewer than `n_rounds`.
    batch_size : int, default=64
        Rows of a minibatch.
    lr : float, default=0.01
        Learning rate.
    optimizer, callbacks, runtime, normalize, categorical_features, random_state
        As in :class:`HydraPlusRegressor`.
    verbose : int, default=0
        As in :class:`HydraPlusRegressor`. All rounds are one stage; 2 also prints a line after
        each: what was found, and about how long the rest takes.
    **kwargs
        ``module__<name>``, ``optimizer__<name>`` and ``callbacks__<callback>__<name>``.

    Attributes
    ----------
    teacher_ : estimator
        The fitted teacher.
    n_rounds_ : int
        Number of learners that were found.
    rounds_ : list of Round
        The learner of each round and its cost: a named tuple of the number of the model class
        (`module`), `n_connections`, `n_searches`, the smallest `edge` over the columns, the
        `weight` in the mean, the `distance` of the mean from the teacher on the training samples,
        which falls from round to round, and `flop`, `connection_flop`, `n_parameters` and
        `n_connection_parameters`, all for one sample.
    eta_ : ndarray of shape (n_columns,)
        Learning rate of the samples' weights for each logit or mean; 0 where the teacher is
        constant.
    n_epochs_ : int
        Number of epochs of each learner; with `max_time` the largest.
    n_parameters_ : int
        Number of parameters of all learners.
    module_ : CategoricalStack or GaussianStack
        The learners, as a torch module.
    history_ : list of dict
        One row for each epoch of each learner, with the number of its round.
    classes_, n_outputs_, net_, n_features_in_, feature_names_in_
        As in :class:`DistributionDistiller`.

    Notes
    -----
    The spread of the rounds is not that of a posterior: learners correct each other. So
    `predict_uncertainty` gives the total alone, the entropy of the probabilities, or the variance
    that the learners have taken over from the teacher, with the mean squared error of their mean
    in the teacher's, found on new samples; its parts are None.

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

    _parameter_table = {
        **Distiller._parameter_table,
        "n_rounds": Number(Integral, 1),
        "connection": SettingsRule(Connection, Connection._parameter_table["kind"]),
        "search": SettingsRule(WeakLearnerSearch, OneOf((None,))),
        "early": OneOf((True, False)),
    }
    _module_defaults = {
        "classifier": {"hidden_units": (32, 32)},
        "regressor": {"hidden_units": (32, 32)},
    }

    _embedded_from = dict.fromkeys(EMBEDDED_FROM, MANY_ROWS)  # inputs are most of its cost
    _takes_model_classes = True
    _stages = staticmethod(play_game)
    rounds_: list[Round]

    def __init__(
        self,
        teacher: BaseEstimator | str,
        *,
        n_rounds: int = 7,
        module: ModelClass | list[ModelClass] = MLP,
        connection: str | Connection = "residual",
        search: WeakLearnerSearch | None = None,
        early: bool = False,
        transfer: str | TransferMaker | TransferOnly | None = None,
        teacher_cv: Folds = None,
        optimizer: str | OptimizerClass | Optimizer = "Adam",
        lr: float = 0.01,
        max_epochs: int | str = "auto",
        max_time: float | None = None,
        batch_size: int = 64,
        normalize: bool | str = True,
        categorical_features: str | ArrayLike | None = "from_dtype",
        memory: str | Memory | None = None,
        callbacks: Callbacks = None,
        runtime: Runtime | None = None,
        verbose: int | bool = 0,
        random_state: RandomStateLike = None,
        **kwargs: object,
    ):
        self._set_arguments(locals())

    def _plan_of(self, task: Task) -> RoundsPlan:
        connection, search = Connection.of(self.connection), WeakLearnerSearch.of(self.search)
        if task.kind == "regressor" and search.temperature != 1:
            raise ValueError(
                "search__temperature must be 1 with a regressor as teacher, whose loss is the "
                f"squared error; got {search.temperature!r}."
            )
        if task.kind == "regressor" and self.early:
            raise ValueError(
                "early must be False with a regressor as teacher, which has no class to be "
                f"confident of early; got {self.early!r}."
            )
        last = 0 if connection.kind == "none" else connection.expansions - 1
        first = min(last, 1) if connection.connect == "always" else 0
        numbers = range(len(self.module) if isinstance(self.module, (list, tuple)) else 1)
        if not numbers:
            raise ValueError("module must have at least one model class, got an empty list.")
        return RoundsPlan(
            task,
            connection.head_layers,
            connection.kind,
            self.early,
            search.gamma,
            search.temperature,
            tuple(itertools.product(numbers, range(first, last + 1))),
        )

    def _recipe_of(self, *how: Any) -> LearnerRecipes:
        own = self.get_params(deep=False), self._module_defaults[self._kind]
        modules = self.module if isinstance(self.module, (list, tuple)) else [self.module]
        networks = (NetworkSettings.of(*own, module) for module in modules)
        return LearnerRecipes(tuple(one.recipe(*how) for one in networks))

    def predict(self, X: ArrayLike, return_std: bool = False, **limits: Any) -> Any:
        """Predict the class of each sample, or its mean.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        return_std : bool, default=False
            Whether a regressor is to return the standard deviation too.
        **limits : dict
            What the prediction may cost:

            - ``max_rounds``, a number of rounds, at most ``n_rounds``;
            - ``max_flops``, a number of floating-point operations for a sample;
            - ``deadline``, in seconds from now: a round that is not finished then is given up. The
              first is always run. All samples go from round to round together, and the activations
              that later rounds need are in memory, regardless of ``working_memory``;
            - ``early_exit``, a threshold at which a sample skips the further rounds, and
              ``exit_on``, its quantity: "confidence", the probability of the class, has to be at
              least the threshold; "spread", the epistemic uncertainty that the rounds so far would
              have if they were members (mutual information in nats, or variance in squared units of
              y), at most. "auto" is the confidence of classifiers and the spread of regressors;
            - ``return_exits=True``, to return also where the samples left.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_targets)
            Labels, or means in units of y; with ``return_std`` a tuple of means and standard
            deviations.
        exits : EarlyExits, only with ``return_exits``
            A named tuple: `rounds`, ndarray of shape (n_samples,), how many rounds each sample went
            through; `shares`, of shape (`n_rounds_`,), the share of the samples that left after
            each round; and `flop`, the mean of the operations that the samples took.
        """
        check_return_std(self, return_std)

        def means_and_std(distribution: Any) -> tuple[np.ndarray, np.ndarray]:
            variance = self._plan.task.per_target(distribution.variance.cpu().numpy())
            return self._points(distribution), np.sqrt(variance)

        return self._predict_within(X, means_and_std if return_std else self._points, limits)

    @available_if(is_a("classifier"))
    def predict_proba(self, X: ArrayLike, **limits: object) -> np.ndarray:
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
        return self._predict_within(X, _probabilities, limits)

    def staged_predict(self, X: ArrayLike) -> Iterator[np.ndarray]:
        """Predict after each round.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        predictions : iterator of ndarray of shape (n_samples,) or (n_samples, n_targets)
        """
        X = self._rows(X)
        return predict_after_each_round(self.module_, X, self._points, self.n_rounds_)

    @available_if(is_a("classifier"))
    def staged_predict_proba(self, X: ArrayLike) -> Iterator[np.ndarray]:
        """Predict the probability of each class after each round.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        probabilities : iterator of ndarray of shape (n_samples, n_classes)
        """
        X = self._rows(X)
        return predict_after_each_round(self.module_, X, _probabilities, self.n_rounds_)

    def staged_score(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> np.ndarray:
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
        stages = list(self.staged_predict(X))
        score = self._plan.task.score
        return np.array([score(y, stage, sample_weight=sample_weight) for stage in stages])

    def anytime(
        self,
        X: ArrayLike,
        method: str = "predict",
        *,
        max_rounds: int | None = None,
        max_flops: float | None = None,
        deadline: float | None = None,
    ) -> Anytime:
        """Predict round by round, each time better, until you stop.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        method : {"predict", "predict_proba"}, default="predict"
            What to predict.
        max_rounds : int, default=None
            Number of rounds at most.
        max_flops : float, default=None
            Number of floating-point operations for a sample at most.
        deadline : float, default=None
            Seconds from now after which the iteration ends; a round that is not finished then is
            given up.

        Returns
        -------
        predictions : iterator
            Each step runs a round and gives the prediction after it. ``predictions.result`` is the
            best so far, that of the first round to begin with, ``predictions.n_rounds`` the number
            of its rounds, and ``predictions.stop()`` ends the iteration, also from another thread.

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
        X = self._rows(X)
        reads = {"predict": self._points}
        if self._kind == "classifier":
            reads["predict_proba"] = _probabilities
        OneOf(tuple(reads)).check(method, "method")
        given = {"max_rounds": max_rounds, "max_flops": max_flops, "deadline": deadline}
        limits, costs = self._limits_and_costs(given)
        rows, size = as_rows(self.module_, X), rows_at_a_time(self.module_, X)
        run = LimitedRun(self.module_, rows, limits.affordable(costs), limits, size)
        return Anytime(run, reads[method])

    @available_if(lambda self: self._kind == "classifier" and vars(self).get("_plan", self).early)
    def predict_early(self, X: ArrayLike, threshold: float) -> tuple[np.ndarray, np.ndarray]:
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
        Number(Real, 0, 1).check(threshold, "threshold")
        codes, steps = predict_along_time(self.module_, self._rows(X), self.n_rounds_, threshold)
        return self._plan.task.decode(codes), steps

    def _rows(self, X) -> np.ndarray:
        check_is_fitted(self)
        return check_rows(self, X, self._recipe.row_shape)

    def _limits_and_costs(self, given: dict[str, Any]) -> tuple[Limits, list[float]]:
        """Limits, checked, and the floating-point operations of each round for a sample."""
        if unknown := sorted(set(given) - set(Limits._fields)):
            raise TypeError(f"limits of a prediction are {list(Limits._fields)}, got {unknown}.")
        limits = Limits(**given)
        limits.check(max(self.n_rounds, self.n_rounds_), self._kind == "classifier")
        return limits, [found.flop for found in self.rounds_]

    def _points(self, distribution: Distribution) -> np.ndarray:
        """Labels, or means in units of y."""
        task = self._plan.task
        return task.decode(task.point(distribution).cpu().numpy())

    def _predict_within(self, X, read: Callable[[Distribution], object], limits: dict[str, object]):
        """Predict a distribution within limits, and return what `read` makes of it."""
        return_exits = limits.pop("return_exits", False)
        OneOf((True, False)).check(return_exits, "return_exits")
        if not return_exits and all(limit is None for limit in limits.values()):
            return read(self.predict_distribution(X))
        X = self._rows(X)
        given, costs = self._limits_and_costs(limits)
        n_rounds = given.affordable(costs)
        if not return_exits and given.early_exit is given.deadline is None:
            network, encode = self.module_.network, self.module_.encode

            def run(rows: Tensor) -> Tensor:  # nothing is kept of each round
                return network.first(encode(rows), n_rounds).unsqueeze(0)

            return read(read_distribution(self.module_, X, run))
        found, taken = predict_within(self.module_, X, read, n_rounds, given)
        return (found, EarlyExits.after(taken, costs)) if return_exits else found


def _probabilities(distribution: Any) -> np.ndarray:
    return distribution.mean.cpu().numpy()
