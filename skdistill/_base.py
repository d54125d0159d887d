# SPDX-License-Identifier: BSD-3-Clause
"""What all estimators share: parameters, validation, the call of the engine, state, read-offs."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn import get_config
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from ._parameters import DunderParameters
from ._process import torch_threads
from ._rules import Number, OneOf, Seed, check_parameters, errors_about
from ._warnings import warn
from .modules import (
    GLOBAL_GENERATOR_LOCK,
    MLP,
    build_members,
    count_flop,
    flop_per_row,
    n_parameters,
)
from .pruning import narrow

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn < 1.9 has no callbacks

    class _NoTask:
        """A task that nobody watches."""

        def subcontext(self, **kwargs):
            return self

        def call_on_fit_task_begin(self, **kwargs):
            return self

        def call_on_fit_task_end(self, **kwargs):
            return False

        def propagate_callback_context(self, sub_estimator):
            return contextlib.nullcontext()

    class CallbackSupportMixin:  # type: ignore[no-redef]
        def _init_callback_context(self, **kwargs):
            return _NoTask()

    def with_callbacks(method):
        return method


SEED_LIMIT = 2**31 - 1

# Weights of rows that sum to more, or to less than its inverse, are beyond float32's arithmetic.
_LARGEST_TOTAL = 1e30

# They want a closure, sparse gradients, or matrices only.
_UNSUITED_OPTIMIZERS = frozenset({"LBFGS", "Muon", "Optimizer", "SparseAdam"})


class Objective(nn.Module):
    """What a stack minimises: a loss for each row, and perhaps a penalty on the weights."""

    def forward(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Tensor:
        """Return the loss of every member and row, of shape (S, n)."""
        raise NotImplementedError

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        """Return the losses, (S, n), and the gradient of their sum, of the shape of `outputs`.

        Autograd finds the gradient unless a subclass knows it in closed form. A row's loss must not
        depend on other rows' outputs.
        """
        with torch.enable_grad():
            outputs = outputs.detach().requires_grad_()
            losses = self(outputs, targets)
            (gradient,) = torch.autograd.grad(losses.sum(), outputs)
        return losses.detach(), gradient

    def penalty(self, module: Any) -> Tensor | None:
        """Return what is added to each member's loss, of shape (S,), or None."""
        return None

    first_epoch = 0  # number of the epoch that training begins with

    def begin_epoch(self, epoch: int) -> None:
        """Prepare for epoch number `epoch`, counted from 0."""


class NetEstimator(CallbackSupportMixin, DunderParameters):
    """Base of everything that trains a stack of networks and holds the result.

    Parameters of the module and of the optimiser are given as ``module__<name>`` and
    ``optimizer__<name>``, those of named callbacks as ``callbacks__<callback>__<name>``.
    """

    # What the parameters may be; classes add their own.
    _parameter_table: dict[str, Any] = {
        "lr": Number(Real, 0, closed="neither"),
        "max_epochs": Number(Integral, 1),
        "batch_size": Number(Integral, 1),
        "clip_norm": Number(Real, 0, closed="neither", others=(None,)),
        "lr_schedule": OneOf((None, "cosine")),
        "compile": OneOf(("auto", True, False)),
        "n_threads": Number(Integral, 1, others=("auto",)),
        "verbose": Number(Integral, 0, others=(True, False)),
        "random_state": Seed(),
    }

    # Defaults of the module's parameters where they are not the module's own.
    _module_defaults: dict[str, Any] = {}

    module_: Any  # a stack that predicts distributions
    n_epochs_: int

    # --- parameters

    def _check_parameters(self) -> None:
        """Hold every parameter against the table, and look for names that nobody knows."""
        self._refuse_unknown_parameters()
        check_parameters(self)
        for module in self._model_classes():
            if isinstance(module, nn.Module) or not callable(module):
                raise TypeError(
                    f"module must be a class or function that builds a network, got {module!r}."
                )
            _check_signature(module, self._params_of("module"), "module")
        if not isinstance(self.callbacks, (list, tuple, type(None))):
            raise TypeError(
                "callbacks must be a list of skorch callbacks or of (name, callback) pairs, got "
                f"{self.callbacks!r}."
            )
        _check_signature(self._optimizer_class(), self._params_of("optimizer"), "optimizer")
        with errors_about("device"):
            weight = torch.zeros(1, device=self._device())
            weight.cpu()  # not so on a device without numbers, such as "meta"
        self._check_optimizer_settings(weight.requires_grad_())

    def _check_optimizer_settings(self, weight: Tensor) -> None:
        """Try the settings of an optimizer of torch on a weight: some fail in its first step."""
        settings, optimizer = self._params_of("optimizer"), self._optimizer_class()
        if not settings or not optimizer.__module__.startswith("torch."):
            return
        weight.grad = torch.ones_like(weight)
        try:
            optimizer([weight], **{"lr": self.lr, **settings}).step()
        except Exception as error:  # whatever an optimizer does with what it does not expect
            given = {f"optimizer__{name}": value for name, value in settings.items()}
            raise ValueError(f"{optimizer.__name__} cannot take {given}: {error}") from error

    def _model_classes(self) -> list[Any]:
        """What is given as `module`, one by one where it may be several."""
        return [self.module]

    def _optimizer_class(self) -> type[torch.optim.Optimizer]:
        found: Any = self.optimizer
        if isinstance(found, str):
            found = getattr(torch.optim, found, None)
        is_class = isinstance(found, type) and issubclass(found, torch.optim.Optimizer)
        if not is_class or found.__name__ in _UNSUITED_OPTIMIZERS:
            raise ValueError(
                "optimizer must be a torch optimizer class or the name of one in torch.optim, "
                f"such as 'Adam', and none of {sorted(_UNSUITED_OPTIMIZERS)}; got "
                f"{self.optimizer!r}."
            )
        return found

    # --- data

    def _validate_fit_data(self, X, y, sample_weight):
        """Check the training data; keep the rows whose weight is positive.

        Returns
        -------
        X : array of shape (n, ...)
        y : array of shape (n, ...)
            Targets as the subclass wants them.
        weight : array of shape (n,) or None
        """
        self.__dict__.pop("module_", None)  # a fit that fails leaves no model of other data behind
        X, y = self._check_X_y(X, y)
        self._row_shape = X.shape[1:]
        self._set_recipe()
        weight = self._weight_of_rows(y, sample_weight)
        if weight is not None:
            X, y, weight = (array[weight > 0] for array in (X, y, weight))
        return X, y, weight

    def _check_X_y(self, X, y):
        """Check inputs and targets; note what is to be known of the latter."""
        raise NotImplementedError

    def _weight_of_rows(self, y, sample_weight) -> np.ndarray | None:
        return check_weights(sample_weight, len(y))

    def _target_buffers(self, y, weight, dtype) -> dict[str, np.ndarray]:
        """What the module needs to undo the encoding of the targets, by the name of its buffer."""
        raise NotImplementedError

    def _encoded(self, y, buffers, dtype) -> np.ndarray:
        """Targets as the loss compares them with the outputs."""
        raise NotImplementedError

    # --- the module and its training

    @property
    def _out_features(self) -> int:
        """How many numbers the network gives for a row."""
        raise NotImplementedError

    @property
    def _out_features_mean(self) -> str:
        """What these numbers are, for messages."""
        raise NotImplementedError

    def _set_recipe(self) -> None:
        """Note how to build the network, for unpickling, whatever `set_params` changes later."""
        self._recipe = self._recipe_of(self.module)

    def _recipe_of(self, module: Any) -> dict[str, Any]:
        """How to build a network of a model class."""
        defaults = self._module_defaults if module is MLP else {}
        in_features = self._row_shape[0] if len(self._row_shape) == 1 else self._row_shape
        widths = {"in_features": in_features, "out_features": self._out_features}
        return {
            "module": module,
            "kwargs": {**widths, **defaults, **self._params_of("module")},
            "head_layers": getattr(self, "head_layers", None),
        }

    def _build_members(self, seeds: list[int]) -> list[nn.Module]:
        """One network for each seed."""
        members = build_members(self._recipe["module"], seeds, **self._recipe["kwargs"])
        if "widths" not in self._recipe:
            return members
        return [narrow(member, self._recipe["widths"]) for member in members]

    def _build_network(self, seeds: list[int]) -> nn.Module:
        """Build the stack, with a network (or head) for each seed."""
        raise NotImplementedError

    def _wrap(self, network: nn.Module, buffers: dict[str, Tensor]) -> Any:
        """Make a stack one that predicts distributions; `buffers` may lack what has a default."""
        raise NotImplementedError

    def _build_module(
        self, seeds: list[int], dtype: torch.dtype, buffers: dict[str, Tensor] | None = None
    ) -> Any:
        """The stack that predicts distributions, checked to give as many numbers as it should."""
        network: Any = self._build_network(seeds).to(dtype=dtype)
        module = self._wrap(network, buffers or {}).eval()
        with torch.no_grad():
            outputs = module(torch.zeros(1, 3, *self._row_shape, dtype=dtype))
        expected = (3, self._out_features)
        given = tuple(outputs.shape[len(network.lead) :])
        if given != expected:
            raise ValueError(
                f"module must give a tensor of shape (n, {expected[1]}), "
                f"{self._out_features_mean}; {_name_of(self._recipe['module'])} gives {given} for "
                "3 rows."
            )
        return module

    def _device(self) -> torch.device:
        if isinstance(self.device, str) and self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            return torch.device(self.device)
        except (RuntimeError, TypeError) as error:
            raise ValueError(
                f"device must be 'auto' or a torch device such as 'cpu', got {self.device!r}."
            ) from error

    def _step(self, optimizer_class: type[torch.optim.Optimizer]) -> str:
        """How the engine runs a training step, as `compile` and the device have it."""
        if self.compile != "auto":
            return "compiled" if self.compile else "eager"
        # An optimizer that is not made for capture would freeze its learning rate in the graph.
        capturable = "capturable" in inspect.signature(optimizer_class).parameters
        return "captured" if self._device().type == "cuda" and capturable else "eager"

    def _make_net(
        self, module, objective, callbacks=(), optimizer=None, n_epochs=None, **net_settings
    ):
        """The skorch net around a stack, set as this estimator's parameters say.

        `optimizer` is a class and its settings that take the place of the user's, and of the
        schedule of the learning rate.
        """
        from . import _engine  # skorch takes most of a second to import, and predicting needs none

        n_epochs = self.n_epochs_ if n_epochs is None else n_epochs
        if optimizer is None:
            optimizer_class = self._optimizer_class()
            step = self._step(optimizer_class)
            settings = {
                **_engine.optimizer_defaults(optimizer_class, self.lr, step),
                **self._params_of("optimizer"),
            }
            if self.lr_schedule == "cosine":
                callbacks = [("lr_schedule", _engine.cosine_schedule(n_epochs)), *callbacks]
        else:
            optimizer_class, settings = optimizer
            step = self._step(optimizer_class)
        return _engine.StackNet(
            module,
            objective,
            optimizer=optimizer_class,
            lr=self.lr,
            max_epochs=n_epochs,
            batch_size=self.batch_size,
            clip_norm=self.clip_norm,
            step=step,
            **net_settings,
            callbacks=[*(self.callbacks or ()), *callbacks],
            device=str(self._device()),
            verbose=self.verbose,
            **{f"optimizer__{name}": value for name, value in settings.items()},
            **{f"callbacks__{name}": value for name, value in self._params_of("callbacks").items()},
        )

    def _train(self, module: nn.Module, objective, rows, valid=None, **net_settings):
        """Train a stack on `rows` and return its net; the caller's threads and seeds are kept."""
        from ._engine import suited_threads

        flop = 3 * rows.batch_size * flop_per_row(module, rows.X.shape[1:])  # forward and backward
        net = self._make_net(module, objective, flop_per_step=flop, **net_settings)
        with (
            suited_threads(flop, self.n_threads),
            own_dropout(module, rows.generators[0].initial_seed()),
        ):
            net.fit(rows, valid)
        return net

    def _keep(self, net, module, guard) -> None:
        """Make the trained student the fitted module; pass a Ctrl-C on."""
        if net.interrupted_ and not any("train_loss" in row for row in net.history):
            raise KeyboardInterrupt  # before the end of the first epoch: nothing to keep
        if guard.diverged_.any():
            if net.interrupted_:
                raise KeyboardInterrupt
            raise ValueError(
                "The student's loss became infinite, not a number, or exploded. Try a smaller lr "
                f"than {self.lr} or clip_norm than {self.clip_norm}; teacher_, if any, is kept."
            )
        self._set_module(module)
        self.history_ = [*getattr(self, "history_", ()), *net.history]
        if net.interrupted_:
            raise KeyboardInterrupt
        if guard.worse_.any():
            self._warn_of_worse("The student is")

    def _warn_of_worse(self, who_is: str) -> None:
        """Warn that training has left something worse than a constant prediction."""
        warn(
            f"{who_is} worse than a constant prediction on the training rows: the last loss is far "
            f"above that of outputs of zero. Try a smaller lr than {self.lr}, clip_norm, more "
            "epochs, or X with scaled columns.",
            ConvergenceWarning,
        )

    def _set_module(self, module) -> None:
        """Keep a module without gradients, and what it costs."""
        module.zero_grad()
        self.module_ = module
        self.n_parameters_ = n_parameters(module)
        self.flops_ = count_flop(module, self._row_shape)

    @property
    def net_(self):
        """A skorch net around the fitted module, built anew, with the history of its training.

        It is for looking at; predict with the estimator.
        """
        check_is_fitted(self)
        net = self._make_net(self.module_, self._objective()).initialize()
        net.history.extend(self.history_)
        return net

    def _objective(self) -> Objective:
        """What the stack minimises, in the state in which training begins."""
        raise NotImplementedError

    # --- state: numpy arrays and plain Python only, so that pickle, joblib and skops work

    @property
    def _n_networks(self) -> int:
        """How many seeds `_build_network` wants to rebuild the fitted module."""
        raise NotImplementedError

    def _load_weights(self, weights: dict[str, np.ndarray]) -> None:
        """Set the fitted module to the network built anew, with these weights."""
        tensors = {name: torch.tensor(value) for name, value in weights.items()}
        buffers = {name: value for name, value in tensors.items() if "." not in name}
        # The location and scale of the targets may be kept more precisely than the network.
        dtypes = {value.dtype for value in tensors.values() if value.is_floating_point()}
        dtype = min(dtypes, key=lambda dtype: dtype.itemsize)
        module = self._build_module([0] * self._n_networks, dtype, buffers)
        module.load_state_dict(tensors)
        device = self._device()
        if device.type == "cuda" and not torch.cuda.is_available():
            warn(f"device={self.device!r} is not there; the model is put on the CPU.")
            device = torch.device("cpu")
        self.module_ = module.eval().to(device)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "module_")

    def __getstate__(self):
        state = dict(super().__getstate__())
        if "module_" in state:
            state["_weights"] = weights_of(state.pop("module_"))
        return state

    def __setstate__(self, state):
        state = dict(state)
        weights = state.pop("_weights", None)
        super().__setstate__(state)
        if weights is not None:
            with torch_threads(1):  # torch's threads would not be there in a forked child
                self._load_weights(weights)


def weights_of(module: nn.Module) -> dict[str, np.ndarray]:
    """Parameters and buffers of a module as numpy arrays."""
    return {name: value.detach().cpu().numpy() for name, value in module.state_dict().items()}


@contextlib.contextmanager
def own_dropout(module: nn.Module, seed: int) -> Iterator[None]:
    """Give modules that draw from torch's global generator a seed, and put its state back.

    Most stacks draw nothing, and leave the global generator alone also under threads.
    """
    if not draws_globally(module):
        yield
        return
    with GLOBAL_GENERATOR_LOCK.held(), torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def draws_globally(module: nn.Module) -> bool:
    """Tell whether a stack may draw from torch's global generator, for dropout."""
    return any(getattr(part, "draws_globally", False) for part in module.modules())


def check_trainable(X: np.ndarray, dtype, name: str = "X") -> None:
    """Raise ValueError if the squares that training takes of a value would overflow."""
    check_magnitude(X, math.sqrt(np.finfo(dtype).max), name)


def check_magnitude(X: np.ndarray, limit: float, name: str = "X") -> None:
    """Raise ValueError if a value is beyond `limit`, naming its place."""
    place, value = largest(X)
    if abs(value) > limit:
        raise ValueError(
            f"{name} must be within {limit:.3g} of 0, beyond which the model's arithmetic "
            f"overflows; got {value:.6g} at {list(place)}, its row and column. Scale the columns, "
            "or leave out the row."
        )


def largest(X: np.ndarray) -> tuple[tuple[int, ...], float]:
    """Place and value of the largest magnitude."""
    flat = max(int(X.argmax()), int(X.argmin()), key=lambda i: abs(float(X.flat[i])))
    return tuple(int(i) for i in np.unravel_index(flat, X.shape)), float(X.flat[flat])


def rows_in_memory(answer: np.ndarray | Tensor) -> int:
    """How many rows' answers fit scikit-learn's ``working_memory``, given that to one row."""
    return max(1, int(get_config()["working_memory"] * 2**20) // answer.nbytes)


def check_weights(sample_weight, n: int, name: str = "sample_weight") -> np.ndarray | None:
    """Check weights of rows: None, a number, or an array of shape (n,), none of them negative."""
    if sample_weight is None:
        return None
    with errors_about(name):
        if isinstance(sample_weight, Real):
            sample_weight = np.full(n, float(sample_weight))
        weight = check_array(sample_weight, dtype=np.float64, ensure_2d=False, input_name=name)
    if weight.shape != (n,):
        raise ValueError(f"{name} must have shape ({n},), got {weight.shape}.")
    if (weight < 0).any():
        raise ValueError(
            f"{name} must not be negative, got a smallest value of {weight.min():.6g}."
        )
    if not weight.any():
        raise ValueError(f"{name} must have at least one positive value, got zeros only.")
    total = weight.sum()
    if not 1 / _LARGEST_TOTAL <= total <= _LARGEST_TOTAL:
        raise ValueError(
            f"{name} must have a sum from {1 / _LARGEST_TOTAL:g} to {_LARGEST_TOTAL:g}, got "
            f"{total:.6g}; multiply it by a number."
        )
    return weight


def _name_of(module: Callable) -> str:
    return getattr(module, "__name__", type(module).__name__)


def _check_signature(build: Callable, given: dict[str, Any], prefix: str) -> None:
    """Hold the names given as ``prefix__<name>`` against what `build` takes."""
    try:
        accepted = inspect.signature(build).parameters
    except ValueError as error:
        raise TypeError(f"{prefix} must tell which arguments it takes: {error}.") from error
    if any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
        return
    unknown = sorted(set(given) - set(accepted))
    if unknown:
        raise ValueError(
            f"{_name_of(build)} takes no {[f'{prefix}__{name}' for name in unknown]}; it takes "
            f"{[f'{prefix}__{name}' for name in accepted if name not in _ENGINE_GIVES]}."
        )


# Arguments of modules and optimizers that the engine fills in.
_ENGINE_GIVES = frozenset({"in_features", "out_features", "generator", "params", "lr"})
