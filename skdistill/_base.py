# SPDX-License-Identifier: BSD-3-Clause
"""What all estimators share: parameters, validation, the call of the engine, state, read-offs."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Iterator
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn import get_config
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import check_array, check_random_state, check_scalar
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from .distributions import EmpiricalGaussian, Uncertainty
from .modules import (
    GLOBAL_GENERATOR_LOCK,
    MLP,
    GaussianStack,
    StackedModule,
    build_members,
    n_parameters,
    weights_and_fan_ins,
)

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


# Rows are predicted in chunks whose activations take about this many bytes, to stay in the cache.
_CHUNK_BYTES = 2**23

# Up to this many numbers, arrays of rows are checked by hand and predicted in one piece.
_FEW = 4096

SEED_LIMIT = 2**31 - 1

# They want a closure, sparse gradients, or matrices only.
_UNSUITED_OPTIMIZERS = frozenset({"LBFGS", "Muon", "Optimizer", "SparseAdam"})


# ------------------------------------------------------------------------------------------
# Parameters
# ------------------------------------------------------------------------------------------


class Number(NamedTuple):
    """A number between bounds, or one of `others`; `closed` says which bounds are allowed."""

    kind: type
    low: float | None = None
    high: float | None = None
    closed: str = "both"
    others: tuple = ()

    def check(self, value: Any, name: str) -> None:
        if any(type(value) is type(other) and value == other for other in self.others):
            return
        alternatives = "".join(f", or {other!r}" for other in self.others)
        if isinstance(value, bool) or not isinstance(value, self.kind) or value != value:
            kind = "an integer" if self.kind is Integral else "a number"
            raise TypeError(f"{name} must be {kind}{alternatives}, got {value!r}.")
        if value in (np.inf, -np.inf):
            raise ValueError(f"{name} must be finite{alternatives}, got {value!r}.")
        check_scalar(
            value,
            name,
            self.kind,
            min_val=self.low,
            max_val=self.high,
            include_boundaries=self.closed,
        )


class OneOf(NamedTuple):
    """One of a few values."""

    values: tuple

    def check(self, value: Any, name: str) -> None:
        if not any(value is option or value == option for option in self.values):
            raise ValueError(f"{name} must be one of {list(self.values)}, got {value!r}.")


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

    def begin_epoch(self, epoch: int) -> None:
        """Prepare for epoch number `epoch`, counted from 0."""


class NetEstimator(CallbackSupportMixin, BaseEstimator):
    """Base of everything that trains a stack of networks and holds the result.

    Parameters of the module and of the optimiser are given as ``module__<name>`` and
    ``optimizer__<name>``, those of named callbacks as ``callbacks__<callback>__<name>``. They are
    attributes like any other parameter, and ``get_params``, ``set_params`` and ``clone`` know them.
    """

    _dunder_prefixes = ("module", "optimizer", "callbacks")

    # What the parameters may be; classes add their own.
    _parameter_table: dict[str, Number | OneOf] = {
        "lr": Number(Real, 0, closed="neither"),
        "max_epochs": Number(Integral, 1),
        "batch_size": Number(Integral, 1),
        "clip_norm": Number(Real, 0, closed="neither", others=(None,)),
        "lr_schedule": OneOf((None, "cosine")),
        "normalize_y": OneOf((True, False)),
        "compile": OneOf(("auto", True, False)),
    }

    # Defaults of the module's parameters where they are not the module's own.
    _module_defaults: dict[str, Any] = {}

    module_: GaussianStack
    n_epochs_: int

    # --- scikit-learn's parameter protocol, with double underscores

    def _dunder_params(self) -> dict[str, Any]:
        """Parameters given as ``module__...`` and the like."""
        prefixes = tuple(f"{prefix}__" for prefix in self._dunder_prefixes)
        return {name: value for name, value in vars(self).items() if name.startswith(prefixes)}

    def _params_of(self, prefix: str) -> dict[str, Any]:
        start = f"{prefix}__"
        return {
            name.removeprefix(start): value
            for name, value in self._dunder_params().items()
            if name.startswith(start)
        }

    def _set_extra_params(self, params: dict[str, Any]) -> None:
        """Store the keyword arguments of the constructor; unknown ones are reported by fit."""
        self.__dict__.update(params)
        unknown = [name for name in params if name.split("__")[0] not in self._dunder_prefixes]
        if unknown:
            self._unknown_params = unknown

    def get_params(self, deep=True):
        unknown = {name: getattr(self, name) for name in getattr(self, "_unknown_params", ())}
        return {**super().get_params(deep=deep), **self._dunder_params(), **unknown}

    def set_params(self, **params):
        prefixes = tuple(f"{prefix}__" for prefix in self._dunder_prefixes)
        dunder = {name: value for name, value in params.items() if name.startswith(prefixes)}
        super().set_params(**{k: v for k, v in params.items() if k not in dunder})
        self.__dict__.update(dunder)
        return self

    def _check_parameters(self) -> None:
        """Hold every parameter against the table, and look for names that nobody knows."""
        if unknown := getattr(self, "_unknown_params", ()):
            raise TypeError(
                f"{type(self).__name__} got unknown parameters {sorted(unknown)}; it takes "
                f"{self._get_param_names()}, and parameters of its parts as "
                f"{[f'{prefix}__<name>' for prefix in self._dunder_prefixes]}."
            )
        for name, constraint in self._parameter_table.items():
            constraint.check(getattr(self, name), name)
        if isinstance(self.module, nn.Module) or not callable(self.module):
            raise TypeError(
                f"module must be a class or function that builds a network, got {self.module!r}."
            )
        if not isinstance(self.callbacks, (list, tuple, type(None))):
            raise TypeError(
                "callbacks must be a list of skorch callbacks or of (name, callback) pairs, got "
                f"{self.callbacks!r}."
            )
        _check_signature(self.module, self._params_of("module"), "module")
        _check_signature(self._optimizer_class(), self._params_of("optimizer"), "optimizer")

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
        X : array of shape (n, d), y : array of shape (n, t), weight : array of shape (n,) or None
        """
        self.__dict__.pop("module_", None)  # a fit that fails leaves no model of other data behind
        X, y = validate_data(
            self,
            X,
            y,
            dtype=(np.float64, np.float32),
            order="C",  # torch knows no negative strides
            multi_output=True,
            y_numeric=True,
        )
        if y.ndim == 2 and y.shape[1] == 1:
            warnings.warn(
                "A column-vector y was passed when a 1d array was expected. Please change the "
                "shape of y to (n_samples,), for example using ravel().",
                DataConversionWarning,
                stacklevel=3,
            )
            y = y.ravel()
        self._y_is_1d = y.ndim == 1
        y = y.reshape(len(y), -1).astype(np.float64)
        self.n_outputs_ = y.shape[1]
        self._set_recipe()
        weight = check_weights(sample_weight, len(X))
        if weight is not None:
            X, y, weight = (array[weight > 0] for array in (X, y, weight))
        return X, y, weight

    def _target_scale(self, y, weight, dtype) -> tuple[np.ndarray, np.ndarray]:
        """Location and scale by which targets (n, t) are standardised for training."""
        if not self.normalize_y:
            return np.zeros_like(y[0]), np.ones_like(y[0])
        y_loc, y_scale = standardisation(y, weight)
        limits = np.finfo(dtype)
        held = (y_scale > np.sqrt(limits.tiny)) & (y_scale < np.sqrt(limits.max))
        if not (held & (np.abs(y_loc) < limits.max)).all():
            raise ValueError(
                f"y has a standard deviation of {y_scale.tolist()}, whose square "
                f"{np.dtype(dtype)} cannot hold; rescale y, or pass X as float64."
            )
        return y_loc, y_scale

    def _validate_rows(self, X) -> Tensor:
        """Check rows to predict and put them where the module is."""
        check_is_fitted(self)
        if not self._is_plain(X):
            X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        # A copy: torch warns of memory that it may not write to (memory-mapped arrays).
        dtype = self.module_.y_loc.dtype
        device = self.module_.y_loc.device
        return torch.tensor(np.ascontiguousarray(X), dtype=dtype, device=device)

    def _is_plain(self, X) -> bool:
        """Whether `X` is a small array that `validate_data` would return as it is.

        Checking one row by `validate_data` takes longer than predicting it.
        """
        return (
            type(X) is np.ndarray
            and X.ndim == 2
            and X.dtype in (np.float32, np.float64)
            and 0 < X.size <= _FEW
            and X.shape[1] == self.n_features_in_
            and not hasattr(self, "feature_names_in_")
            and bool(np.isfinite(X).all())
        )

    # --- the module and its training

    def _set_recipe(self) -> None:
        """Note how to build the network, for unpickling, whatever `set_params` changes later."""
        defaults = self._module_defaults if self.module is MLP else {}
        widths = {"in_features": self.n_features_in_, "out_features": 2 * self.n_outputs_}
        kwargs = {**widths, **defaults, **self._params_of("module")}
        self._recipe = {
            "module": self.module,
            "kwargs": kwargs,
            "head_layers": getattr(self, "head_layers", None),
        }

    def _build_members(self, seeds: list[int]) -> list[nn.Module]:
        """One network for each seed."""
        return build_members(self._recipe["module"], seeds, **self._recipe["kwargs"])

    def _build_network(self, seeds: list[int]) -> nn.Module:
        """Build the stack, with a network (or head) for each seed."""
        raise NotImplementedError

    def _build_module(self, seeds: list[int], y_loc: Tensor, y_scale: Tensor) -> GaussianStack:
        """The stack with the scale of y, checked to give two numbers per target."""
        network: Any = self._build_network(seeds).to(dtype=y_loc.dtype)
        module = GaussianStack(network, y_loc, y_scale).eval()
        with torch.no_grad():
            outputs = module(torch.zeros(1, 3, self.n_features_in_, dtype=y_loc.dtype))
        expected = (3, 2 * self.n_outputs_)
        given = tuple(outputs.shape[len(network.lead) :])
        if given != expected:
            raise ValueError(
                f"module must give a tensor of shape (n, {expected[1]}), a mean and a raw variance "
                f"for each of {self.n_outputs_} target(s); {_name_of(self._recipe['module'])} "
                f"gives {given} for 3 rows."
            )
        return module

    def _device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            return torch.device(self.device)
        except (RuntimeError, TypeError) as error:
            raise ValueError(
                f"device must be 'auto' or a torch device such as 'cpu', got {self.device!r}."
            ) from error

    def _step(self) -> str:
        """How the engine runs a training step, as `compile` and the device have it."""
        if self.compile != "auto":
            return "compiled" if self.compile else "eager"
        # An optimizer that is not made for capture would freeze its learning rate in the graph.
        capturable = "capturable" in inspect.signature(self._optimizer_class()).parameters
        return "captured" if self._device().type == "cuda" and capturable else "eager"

    def _make_net(self, module: nn.Module, objective, callbacks=(), weight_decay=()):
        """The skorch net around a stack, set as this estimator's parameters say."""
        from . import _engine  # skorch takes most of a second to import, and predicting needs none

        optimizer = self._optimizer_class()
        settings = {
            **_engine.optimizer_defaults(optimizer, self.lr, self._step()),
            **self._params_of("optimizer"),
        }
        if self.lr_schedule == "cosine":
            callbacks = [("lr_schedule", _engine.cosine_schedule(self.n_epochs_)), *callbacks]
        return _engine.StackNet(
            module,
            objective,
            optimizer=optimizer,
            lr=self.lr,
            max_epochs=self.n_epochs_,
            batch_size=self.batch_size,
            weight_decay=weight_decay,
            clip_norm=self.clip_norm,
            step=self._step(),
            callbacks=[*(self.callbacks or ()), *callbacks],
            device=str(self._device()),
            verbose=self.verbose,
            **{f"optimizer__{name}": value for name, value in settings.items()},
            **{f"callbacks__{name}": value for name, value in self._params_of("callbacks").items()},
        )

    def _train(self, module: nn.Module, objective, rows, valid=None, **net_settings):
        """Train a stack on `rows` and return its net; the caller's threads and seeds are kept."""
        from ._engine import suited_threads

        net = self._make_net(module, objective, **net_settings)
        with suited_threads(n_parameters(module), rows.batch_size), _own_dropout(module, rows):
            net.fit(rows, valid)
        return net

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
        module = self._build_module([0] * self._n_networks, tensors["y_loc"], tensors["y_scale"])
        module.load_state_dict(tensors)
        device = self._device()
        if device.type == "cuda" and not torch.cuda.is_available():
            warnings.warn(
                f"device={self.device!r} is not there; the model is put on the CPU.", stacklevel=2
            )
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
            self._load_weights(weights)


def weights_of(module: nn.Module) -> dict[str, np.ndarray]:
    """Parameters and buffers of a module as numpy arrays."""
    return {name: value.detach().cpu().numpy() for name, value in module.state_dict().items()}


@contextlib.contextmanager
def _own_dropout(module: nn.Module, rows) -> Iterator[None]:
    """Give modules that draw from torch's global generator a seed, and put its state back.

    Stacks made by hand draw nothing, and leave the global generator alone also under threads.
    """
    if not any(isinstance(part, StackedModule) for part in module.modules()):
        yield
        return
    with GLOBAL_GENERATOR_LOCK, torch.random.fork_rng():
        torch.manual_seed(rows.generators[0].initial_seed())
        yield


def standardisation(
    values: np.ndarray, weight: np.ndarray | None, constant: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and standard deviation of each column; `constant` for constant columns."""
    values = values.astype(np.float64)
    loc = np.average(values, axis=0, weights=weight)
    largest = np.abs(values - loc).max(axis=0)
    unit = np.where(largest > 0, largest, 1.0)  # or else squares might over- or underflow
    scale = unit * np.sqrt(np.average(((values - loc) / unit) ** 2, axis=0, weights=weight))
    is_constant = scale <= 10 * np.finfo(np.float64).eps * np.abs(loc)
    return loc, np.where(is_constant, constant, scale)


def check_weights(sample_weight, n: int, name: str = "sample_weight") -> np.ndarray | None:
    """Check weights of rows: None, a number, or an array of shape (n,), none of them negative."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, Real):
        sample_weight = np.full(n, sample_weight)
    weight = check_array(sample_weight, dtype=np.float64, ensure_2d=False, input_name=name)
    if weight.shape != (n,):
        raise ValueError(f"{name} must have shape ({n},), got {weight.shape}.")
    if (weight < 0).any():
        raise ValueError(
            f"{name} must not be negative, got a smallest value of {weight.min():.6g}."
        )
    if not weight.any():
        raise ValueError(f"{name} must have at least one positive value, got zeros only.")
    return weight


def _name_of(module: Callable) -> str:
    return getattr(module, "__name__", type(module).__name__)


def _check_signature(build: Callable, given: dict[str, Any], prefix: str) -> None:
    """Hold the names given as ``prefix__<name>`` against what `build` takes."""
    accepted = inspect.signature(build).parameters
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


# ------------------------------------------------------------------------------------------
# What is read off the predicted distribution
# ------------------------------------------------------------------------------------------


class DistributionRegressor(RegressorMixin, NetEstimator):
    """Regressor whose predictions are all read off :meth:`predict_distribution`."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict_distribution(self, X) -> EmpiricalGaussian:
        """Predict the distribution that everything else is read off.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        distribution : EmpiricalGaussian
            Means and variances of the members, tensors of shape (S, n_samples, n_targets).
        """
        members = self._read(X, lambda d: d.members)
        return EmpiricalGaussian.from_members(members)

    def predict(self, X, return_std=False):
        """Predict the mean.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        return_std : bool, default=False
            Whether to return the standard deviation too.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_targets)
            In units of y.
        std : ndarray of the same shape, only if `return_std`
            Square root of the total variance, in units of y.
        """
        if not return_std:
            return self._per_target(self._read(X, lambda d: d.mean))
        mean, variance = self._read(X, lambda d: (d.mean, d.variance))
        return self._per_target(mean), np.sqrt(self._per_target(variance))

    def predict_uncertainty(self, X) -> Uncertainty:
        """Predict the total, aleatoric and epistemic variance.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        uncertainty : Uncertainty
            Arrays of shape (n_samples,) or (n_samples, n_targets), in squared units of y, with
            ``total = aleatoric + epistemic``. Unpacks like a tuple of the three; ``.std()`` gives
            their square roots. A single network cannot tell the parts: they are None.
        """
        check_is_fitted(self)
        if self._n_networks == 1:
            total = self._per_target(self._read(X, lambda d: d.variance))
            return Uncertainty(total, None, None, measure="variance")
        parts = self._read(X, lambda d: tuple(d.uncertainty()))
        total, aleatoric, epistemic = map(self._per_target, parts)
        return Uncertainty(total, aleatoric, epistemic, measure="variance")

    def predict_interval(self, X, coverage=0.9):
        """Predict the central interval that holds y with probability `coverage`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        coverage : float, default=0.9
            Strictly between 0 and 1.

        Returns
        -------
        interval : ndarray of shape (n_samples, 2) or (n_samples, n_targets, 2)
            Lower and upper end, quantiles of the mixture of members, in units of y.
        """
        return self._per_target(self._read(X, lambda d: d.interval(coverage)))

    def predict_quantiles(self, X, quantiles):
        """Predict quantiles of the mixture of members, exact to rounding.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        quantiles : float or array-like of shape (n_quantiles,)
            Strictly between 0 and 1.

        Returns
        -------
        quantiles : ndarray of shape (n_samples, n_quantiles) or (n_samples, n_targets, n_quantiles)
            In units of y.
        """
        return self._per_target(self._read(X, lambda d: d.quantile(quantiles)))

    def predict_members(self, X):
        """Predict the mean and the variance of every member.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        members : ndarray of shape (n_samples, n_members, n_targets, 2)
            Means ``[..., 0]`` in units of y, variances ``[..., 1]`` in squared units.
        """
        return self._read(X, lambda d: d.members)

    def sample_y(self, X, n_samples=1, random_state=None):
        """Draw targets: a member at random, then from its Gaussian.

        The same draws serve every row, so what is drawn for a row does not depend on the others.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
        n_samples : int, default=1
            Number of draws for each row.
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        y : ndarray of shape (n_samples_X, n_samples) or (n_samples_X, n_targets, n_samples)
            In units of y.
        """
        check_scalar(n_samples, "n_samples", Integral, min_val=1)
        seed = int(check_random_state(random_state).randint(SEED_LIMIT))

        def draw(distribution):
            generator = torch.Generator().manual_seed(seed)
            return distribution.sample(n_samples, generator).permute(1, 2, 0)

        return self._per_target(self._read(X, draw))

    def _read(self, X, read: Callable[[EmpiricalGaussian], Any]):
        """Predict chunk by chunk and keep what `read` takes from each, rows first, as numpy.

        `read` gives a tensor, or a tuple of tensors.
        """
        X = self._validate_rows(X)
        size = len(X) if X.numel() <= _FEW else self._chunk_rows()
        with torch.inference_mode():
            first = read(self.module_.distribution(X[:size]))
            parts = first if isinstance(first, tuple) else (first,)
            # Written into place: results kept chunk by chunk would fragment the memory.
            out = [np.empty((len(X), *part.shape[1:]), dtype=_numpy_dtype(part)) for part in parts]
            for start in range(0, len(X), size):
                if start:
                    chunk = read(self.module_.distribution(X[start : start + size]))
                    parts = chunk if isinstance(chunk, tuple) else (chunk,)
                for array, part in zip(out, parts, strict=True):
                    array[start : start + size] = part.cpu().numpy()
        return tuple(out) if isinstance(first, tuple) else out[0]

    def _chunk_rows(self) -> int:
        """Rows to predict at a time, within scikit-learn's ``working_memory``."""
        # Each layer's outputs, for every network: as many numbers as it has weights per input.
        widths = sum(w.numel() // fan_in for w, fan_in in weights_and_fan_ins(self.module_))
        affordable = min(_CHUNK_BYTES, int(get_config()["working_memory"] * 2**20))
        return max(1, affordable // (8 * widths))

    def _per_target(self, array: np.ndarray) -> np.ndarray:
        """Drop the axis of the targets, the second, if y had none."""
        return array[:, 0] if self._y_is_1d else array


def _numpy_dtype(tensor: Tensor) -> np.dtype:
    return tensor[:0].cpu().numpy().dtype
