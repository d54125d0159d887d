# SPDX-License-Identifier: BSD-3-Clause
"""The base of all estimators: their parameters and their state."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any, Self, TypeVar, cast

import torch
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.utils import metaestimators
from sklearn.utils.validation import check_is_fitted
from torch import nn

from .._data.schema import InputSchema, Schema
from .._method.plan import Plan, TrainingBudget, rebuild_module, weights_of
from .._training.trainer import Training, check_signature, device_of
from .._utils.process import torch_threads
from .._utils.reporting import reporting
from .._utils.validation import (
    Number,
    OneOf,
    Seed,
    SettingsRule,
    advice_on,
    check_nested,
    check_parameters,
    part_of,
)
from .._utils.warnings import each_warning_once, warn, without_schema_warnings
from .._version import API_PAGE, __version__
from ..settings import Optimizer, Runtime

try:
    from sklearn.callback import CallbackSupportMixin
    from sklearn.callback import with_callbacks as _with_callbacks
except ImportError:  # scikit-learn < 1.9 has no callbacks

    class _NoTask:
        """A task without callbacks."""

        def subcontext(self, **kwargs):
            return self

        def call_on_fit_task_begin(self, **kwargs):
            return self

        def call_on_fit_task_end(self, **kwargs):
            return False

        def propagate_callback_context(self, sub_estimator):
            return contextlib.nullcontext()

    class CallbackSupportMixin:  # type: ignore[no-redef]  # the same name for both versions
        def _init_callback_context(self, **kwargs):
            return _NoTask()

    def _with_callbacks(method):
        return method


Method = TypeVar("Method", bound=Callable[..., Any])


def with_callbacks(fit: Method) -> Method:
    """scikit-learn's decorator of `fit`, with the method's types; each warning is given once."""
    return cast(Method, _with_callbacks(each_warning_once()(fit)))


def available_if(check: Callable[[Any], bool]) -> Callable[[Method], Method]:
    """scikit-learn's decorator of methods that some estimators lack, with the method's types."""
    return cast(Callable[[Method], Method], metaestimators.available_if(check))


# Parts of an estimator whose parameters it takes, as ``<part>__<name>``.
_PARTS = ("module", "optimizer", "callbacks")

# Those of the optimizer that are ours, of an Optimizer object.
_OF_STEPS = frozenset(Optimizer._defaults())


# Attributes that hold the trained stack, in the order of a Fitted, and all private ones of a fit.
_ATTRIBUTES = ("_plan", "_recipe", "module_", "_history", "_training_budget")
_PRIVATE = (*_ATTRIBUTES, "_input_schema", "_parts_drawn", "_training_state", "_member_numbers")


class NetEstimator(CallbackSupportMixin, BaseEstimator):
    """Base of everything that trains a stack of networks and holds the result.

    Parameters of the module and of the optimiser are given as ``module__<name>`` and
    ``optimizer__<name>``, those of named callbacks as ``callbacks__<callback>__<name>``. They are
    attributes like any other parameter, and ``get_params``, ``set_params`` and ``clone`` know them.
    """

    _doc_link_module, _doc_link_template = "skdistill", API_PAGE

    # Rules of the parameters; classes add their own.
    _parameter_table: dict[str, Any] = {
        "lr": Number(Real, 0, closed="neither"),
        "max_epochs": Number(Integral, 1),
        "max_time": Number(Real, 0, closed="neither", others=(None,)),
        "batch_size": Number(Integral, 1),
        "optimizer": SettingsRule(Optimizer),
        "runtime": SettingsRule(Runtime, OneOf((None,)), ("dtype", "member_block")),
        "verbose": Number(Integral, 0, others=(True, False)),
        "random_state": Seed(),
    }

    _clip_norm: float | None = 5.0  # what Optimizer(clip_norm="auto") stands for: of a student

    # Parameters of an MLP whose defaults differ from its own, for classifiers and regressors.
    _module_defaults: dict[str, dict[str, Any]]

    module_: Any  # a stack that predicts distributions
    _input_schema = InputSchema(None, None)
    _unknown_params: list[str] = []  # of the constructor
    n_epochs_: int
    n_features_in_: int
    _kind: str  # of the task: "regressor" or "classifier"
    _plan: Plan
    _recipe: Any
    _history: list[dict[str, Any]]

    # --- parameters

    def _set_arguments(self, given: dict[str, Any]) -> None:
        """Store a constructor's arguments, its ``locals()``; fit reports unknown keywords."""
        arguments, extra = dict(given), given["kwargs"]
        del arguments["self"], arguments["kwargs"]
        self.__dict__.update(arguments | extra)
        if unknown := [name for name in extra if not _is_of_part(name)]:
            self._unknown_params = unknown

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        own = [name for name in vars(self) if _is_of_part(name)]
        own += self._unknown_params
        return {**super().get_params(deep=deep), **{name: getattr(self, name) for name in own}}

    def set_params(self, **params: object) -> Self:
        own = {k: v for k, v in params.items() if not _is_of_part(k)}
        check_nested(self, own)
        known = self.get_params(deep=False)
        for name in own:
            if name.partition("__")[0] not in known:
                raise ValueError(
                    f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: "
                    f"{sorted(known)}, and {[f'{part}__<name>' for part in _PARTS]}."
                    f"{advice_on(self, name, [*known, *_PARTS])}"
                )
        super().set_params(**own)
        self.__dict__.update({k: v for k, v in params.items() if _is_of_part(k)})
        return self

    # --- state: numpy arrays and plain Python only, so that pickle, joblib and skops work

    def _keep(self, facts: Mapping[str, object]) -> None:
        """Keep what a fit has found, as attributes."""
        self.__dict__.update(facts)

    def _reset(self) -> None:
        """Remove all attributes of an earlier fit, so that a failing one leaves no old model."""
        for name in _learnt(self):
            delattr(self, name)

    @property
    def history_(self) -> Any:
        """Losses, learning rate and seconds of each epoch, as skorch's ``History`` of dicts.

        ``history_[:, "train_loss"]`` gives a column.
        """
        from .._engine import History  # skorch takes most of a second to import

        if "_history" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no history_ before fit.")
        return History(self._history)

    @property
    def net_(self):
        """A skorch net around the fitted module, with its history; it is for inspection."""
        check_is_fitted(self)
        objective = self._plan.objective(self.module_, self._training_budget)
        training = Training.of(self.get_params(deep=False), self._clip_norm)
        training = replace(training, low_noise_factor=self._training_budget.refinement)
        net = training.net(self.module_, objective, self.n_epochs_).initialize()
        net.history.extend(self._history)
        return net

    @property
    def categories_(self) -> dict[int, list]:
        """Categories of each categorical column of X, by its number, in the order of their codes.

        Exported models take these codes.
        """
        check_is_fitted(self)
        return dict(self._input_schema.categories)

    @property
    def schema_(self) -> Schema:
        """The columns of X in `fit`: names, kinds, ranges, categories, shares of missing values.

        Models of images and series have none.
        """
        if not self._input_schema.is_table:
            raise AttributeError(
                f"{type(self).__name__} has no schema_: it is one of tables, in fit."
            )
        return self._input_schema.described()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "module_")

    def __getstate__(self):
        state = {**super().__getstate__(), "_skdistill_version": __version__}
        if "module_" in state:
            state["_weights"] = weights_of(state.pop("module_"))
        return state

    def __setstate__(self, state):
        state = dict(state)
        if (version := state.pop("_skdistill_version", None)) != __version__:
            writer = "an older version, which noted no number" if version is None else version
            warn(
                f"{type(self).__name__} was pickled by skdistill {writer} and is loaded by "
                f"{__version__}: its predictions may be wrong, or fail. Load it with the version "
                "that pickled it, or fit it anew.",
            )
        weights = state.pop("_weights", None)
        if "history_" in state:  # of before it was a property
            state["_history"] = state.pop("history_")
        super().__setstate__(state)
        if weights is not None:
            with torch_threads(1):  # torch's threads would not be there in a forked child
                module = rebuild_module(self._plan, self._recipe, weights)
            self.module_ = module.to(available_device(Runtime.of(self.runtime).device))


def _learnt(estimator: NetEstimator) -> dict[str, Any]:
    """Return the attributes that a fit has set."""
    params = estimator.get_params(deep=False)
    return {
        name: value
        for name, value in vars(estimator).items()
        if (name.endswith("_") and not name.startswith("_") and name not in params)
        or name in _PRIVATE
    }


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fit returns: a trained stack, and facts that its estimator tells of it."""

    plan: Plan
    recipe: Any  # NetworkRecipe or LearnerRecipes
    module: Any  # a stack that predicts distributions
    history: list[dict[str, Any]]
    training_budget: TrainingBudget
    facts: dict[str, Any] = field(default_factory=dict)  # further attributes, by name

    @classmethod
    def of(cls, estimator: NetEstimator) -> Fitted | None:
        """Return what an earlier fit of the estimator has returned; None without one."""
        if "module_" not in vars(estimator):
            return None
        facts = _learnt(estimator)
        plan, recipe, module, history, budget = map(facts.pop, _ATTRIBUTES)
        return cls(plan, recipe, module, history, budget, facts)

    @classmethod
    def in_training(cls, plan: Plan, recipe: object, net: Any, budget: TrainingBudget) -> Fitted:
        """Return what a fit would return of a stack that a net trains, if it ended now."""
        module = rebuild_module(plan, recipe, weights_of(net.module_))  # a copy, ready to predict
        return cls(plan, recipe, module.to(net.device), net.history, budget)

    @property
    def attributes(self) -> dict[str, object]:
        """The attributes of a fitted estimator."""
        own = self.plan, self.recipe, self.module, list(self.history), self.training_budget
        return {**self.facts, **dict(zip(_ATTRIBUTES, own, strict=True))}


def _is_of_part(name: str) -> bool:
    """Tell whether a parameter is one of a part, given as ``<part>__<name>``."""
    part, delimiter, inner = name.partition("__")
    is_ours = part == "optimizer" and inner in _OF_STEPS
    return bool(delimiter) and part in _PARTS and not is_ours


def checked_training(estimator: NetEstimator, modules: list[object] | None = None) -> Training:
    """Check every parameter by its rule, and return how stacks of the `modules` are trained."""
    if unknown := estimator._unknown_params:
        raise TypeError(
            f"{type(estimator).__name__} got unknown parameters {sorted(unknown)}; it takes "
            f"{estimator._get_param_names()}, and parameters of its parts as "
            f"{[f'{part}__<name>' for part in _PARTS]}."
            + advice_on(estimator, min(unknown), [*estimator._get_param_names(), *_PARTS])
        )
    check_parameters(estimator)
    params = estimator.get_params(deep=False)
    for module in [estimator.module] if modules is None else modules:
        if isinstance(module, nn.Module) or not callable(module):
            raise TypeError(
                f"module must be a class or function that builds a network, got {module!r}."
            )
        check_signature(module, part_of(params, "module"), "module")
    return Training.of(params, estimator._clip_norm)


@dataclass(frozen=True)
class ObservedTask:
    """A task of a fit, of which scikit-learn's callbacks are told; they ask for the estimator."""

    _context: Any
    _estimator: BaseEstimator
    _given: dict[str, Any]  # X, y and metadata of `fit`

    def subtask(self, name: str, **limits: Any) -> ObservedTask:
        """Return a part of the task; `limits` may be the number of its own parts."""
        context = self._context.subcontext(task_name=name, **limits)
        return ObservedTask(context, self._estimator, self._given)

    @contextlib.contextmanager
    def running(self, **given: Any) -> Iterator[None]:
        """Tell that the task begins, and that it has ended well."""
        self._context.call_on_fit_task_begin(estimator=self._estimator, **given)
        yield
        self._context.call_on_fit_task_end(estimator=self._estimator, **given)

    @contextlib.contextmanager
    def fitting(self, teacher: object, X: object, y: object) -> Iterator[None]:
        """Tell that the task is the fit of a teacher, which may call the callbacks too."""
        propagated = contextlib.nullcontext()
        if not isinstance(teacher, FrozenEstimator):
            propagated = self._context.propagate_callback_context(teacher)
        with propagated, self.running(X=X, y=y):
            yield

    def per_epoch(self, fitted: Callable[[Any], Fitted] | None = None) -> Any:
        """Return the callback of a net, which `fitted` takes to what a fit would return now."""
        from .._engine import TaskPerEpoch

        attributes = None if fitted is None else lambda net: fitted(net).attributes
        return TaskPerEpoch(self._context, self._estimator, self._given, attributes)


@contextlib.contextmanager
def fit_task(
    estimator: NetEstimator, n_subtasks: int, X: object, y: object, sample_weight: object
) -> Iterator[ObservedTask]:
    """Tell callbacks that a fit begins, and has ended well, and the user of its stages."""
    metadata = None if sample_weight is None else {"sample_weight": sample_weight}
    given = {"X": X, "y": y, "metadata": metadata}
    task = estimator._init_callback_context(max_subtasks=n_subtasks)
    task.call_on_fit_task_begin(estimator=estimator, **given)
    with (
        without_schema_warnings(),  # transfer rows and folds may be unlike the table
        reporting(type(estimator).__name__, estimator.verbose),
    ):
        yield ObservedTask(task, estimator, given)
    task.call_on_fit_task_end(estimator=estimator, **given, reconstruction_attributes={})


def available_device(device: object) -> torch.device:
    """Return a torch device; the CPU, with a warning, where there is no such GPU."""
    found = device_of(device)
    if found.type == "meta":
        raise ValueError("runtime__device must be one that holds values, got 'meta'.")
    if found.type == "cuda" and not torch.cuda.is_available():
        warn(f"device={device!r} is not there; the model is put on the CPU.")
        return torch.device("cpu")
    return found
