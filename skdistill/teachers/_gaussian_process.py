# SPDX-License-Identifier: BSD-3-Clause
"""Gaussian processes as teachers: functions drawn from the posterior are the members.

A member is one function: the same for all rows, however they are chunked. It is drawn by
Matheron's rule (Wilson et al., 2020, "Efficiently Sampling Functions from Gaussian Process
Posteriors", Eq 12),

    f_s(x) = prior_s(x) + k(x, X) (K + noise)^-1 (y - prior_s(X) - e_s),

with prior functions of random features. Its distances from the mean are then scaled, row by row, so
that the S members have the mean and the latent variance of the Gaussian process, not of S draws.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import expit
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor, kernels
from sklearn.utils.validation import check_is_fitted, validate_data

from ._members import (
    N_FUNCTIONS,
    members_of_classifier,
    members_of_regressor,
    moments_of_functions,
    standard_draws,
)

_N_FEATURES = 512  # random ones of a prior; also rows, at most, of a prior without spectrum
_MOST_STEPS, _TOLERANCE = 100, 1e-7  # towards the mean probability that members should have
_TINY = np.finfo(np.float64).tiny

Features = Callable[[np.ndarray], np.ndarray]


@members_of_regressor.register(GaussianProcessRegressor)
def _(model, X, n_targets):
    """The latent variance lies between the members, the kernel's noise and alpha within them."""
    check_is_fitted(model, "kernel_")  # without it, predict gives the prior
    mean = model.predict(X).reshape(-1, n_targets)
    X, posterior = _rows(model, X), _posterior_of(model)
    latent = posterior.variance(X)[:, None] * posterior.scale**2
    noise = posterior.noise(X)[:, None] * posterior.scale**2
    return moments_of_functions(mean, latent, posterior.draws(X), noise)


@members_of_classifier.register(GaussianProcessClassifier)
def _(model, X):
    """Laplace's approximation of each binary problem; of several, one class against the rest."""
    predicted, base = model.predict_proba(X), model.base_estimator_
    binary = base.estimators_ if hasattr(base, "estimators_") else [base]
    if not all(hasattr(one, "W_sr_") for one in binary):  # they do not stand for one class each
        return predicted[:, None]
    X, each = _rows(model, X), []
    for one in binary:
        posterior = _posterior_of(one)
        mean = one.kernel_(X, one.X_train_) @ (one.y_train_ - one.pi_)
        latent = posterior.variance(X) + posterior.noise(X)
        each.append(expit(mean[:, None] + np.sqrt(latent)[:, None] * posterior.draws(X)[..., 0]))
    odds = np.stack([1 - each[0], each[0]] if len(each) == 1 else each, axis=-1)
    # Classes are weighted so that the mean of these few draws is the model's prediction, which
    # integrates over all functions.
    for _ in range(_MOST_STEPS):
        members = odds / odds.sum(axis=-1, keepdims=True)
        found = members.mean(axis=1)
        if np.abs(found - predicted).max() < _TOLERANCE:
            break
        odds = members * (predicted / np.maximum(found, _TINY))[:, None]
    return members


def _rows(model, X) -> np.ndarray:
    """Rows as the kernel takes them."""
    is_vector = model.kernel_.requires_vector_input
    dtype = "numeric" if is_vector else None
    return validate_data(model, X, reset=False, ensure_2d=is_vector, dtype=dtype)


@dataclass(frozen=True)
class _Posterior:
    """What members are computed from, in units of the standardised targets."""

    model: Any  # a fitted Gaussian process, of numbers or of one binary problem
    kernel: Any  # the kernel without its noise
    root: np.ndarray  # (n,), see `_posterior_of`
    alpha: float
    scale: np.ndarray  # (t,), units of y to one of the standardised targets
    features: Features  # of the prior, (n, m)
    weights: np.ndarray  # of prior functions, (m, S, t)
    corrections: np.ndarray  # that make them posterior ones, (n, S, t)

    def variance(self, X: np.ndarray) -> np.ndarray:
        """Variance (n,) of the function, without noise."""
        whitened = self.root[:, None] * self.kernel(self.model.X_train_, X)
        explained = solve_triangular(self.model.L_, whitened, lower=True, check_finite=False)
        return np.maximum(self.kernel.diag(X) - np.square(explained).sum(axis=0), 0)

    def noise(self, X: np.ndarray) -> np.ndarray:
        """Variance (n,) of an observation about the function."""
        return self.model.kernel_.diag(X) - self.kernel.diag(X) + self.alpha

    def draws(self, X: np.ndarray) -> np.ndarray:
        """Draws (n, S, t) of the function less its mean, of mean 0 and variance 1 in every row."""
        draws = np.tensordot(self.features(X), self.weights, axes=1)
        draws -= np.tensordot(self.kernel(X, self.model.X_train_), self.corrections, axes=1)
        return standard_draws(draws)


# Fitted models to the arrays that they were fitted to, and what has been made of these. A model
# that is fitted again has other arrays.
_POSTERIORS: WeakKeyDictionary[Any, tuple[Any, _Posterior]] = WeakKeyDictionary()


def _posterior_of(model) -> _Posterior:
    """Posterior of a fitted Gaussian process, computed once.

    (K + noise)^-1 = diag(root) B^-1 diag(root), where the model keeps the Cholesky factor of B:
    root is 1 for numbers, and for classes the square root of minus the log-likelihood's second
    derivative, whose inverse is the variance of the noise.
    """
    stored = _POSTERIORS.get(model)
    if stored is not None and stored[0] is model.L_:
        return stored[1]
    kernel, X = without_noise(model.kernel_), model.X_train_
    random = np.random.RandomState(0)  # members are the same functions in every process
    features = _features(kernel, X, random)
    known = features(X)
    if isinstance(model, GaussianProcessRegressor):
        scale, root, alpha = _scale_of(model), np.ones(len(X)), float(np.mean(model.alpha))
        noise = np.sqrt(model.kernel_.diag(X) - kernel.diag(X) + alpha)
    else:
        scale, root, alpha, noise = np.ones(1), model.W_sr_, 0.0, np.ones(len(X))
    shape = (N_FUNCTIONS, len(scale))
    weights = random.normal(size=(known.shape[1], *shape))
    errors = noise[:, None, None] * random.normal(size=(len(X), *shape))
    gaps = root[:, None, None] * np.tensordot(known, weights, axes=1) + errors
    solved = cho_solve((model.L_, True), gaps.reshape(len(X), -1), check_finite=False)
    corrections = root[:, None, None] * solved.reshape(gaps.shape)
    found = _Posterior(model, kernel, root, alpha, scale, features, weights, corrections)
    _POSTERIORS[model] = model.L_, found
    return found


def without_noise(kernel) -> Any:
    """Return a kernel of the function only: a copy in which every WhiteKernel is zero."""
    inner = kernel.get_params().items()
    noise = kernels.WhiteKernel
    levels = [f"{name}__noise_level" for name, value in inner if isinstance(value, noise)]
    if isinstance(kernel, noise):
        levels = ["noise_level"]
    return clone(kernel).set_params(**dict.fromkeys(levels, 0.0))


def _scale_of(model) -> np.ndarray:
    """Return units of y (t,) to a standardised one: predictions are a line over the means."""
    X = model.X_train_
    means = (model.kernel_(X, X) @ model.alpha_).reshape(len(X), -1)
    if not model.normalize_y:
        return np.ones(means.shape[1])
    predicted, targets = model.predict(X).reshape(means.shape), np.arange(means.shape[1])
    lowest, highest = means.argmin(axis=0), means.argmax(axis=0)
    rise, run = (of[highest, targets] - of[lowest, targets] for of in (predicted, means))
    return np.divide(rise, run, out=np.ones_like(run), where=run > 0)


def _features(kernel, X: np.ndarray, random: np.random.RandomState) -> Features:
    """Features whose inner products are close to a kernel's values.

    Stationary kernels have random ones (Rahimi and Recht, 2007); of the others, those of Nystroem
    with some of the rows X, and one more for the variance that these do not explain.
    """
    spectrum = _spectrum(kernel, X.shape[1], random) if X.ndim == 2 else None
    if spectrum is not None:
        amplitude, frequencies = spectrum
        phases = random.uniform(0, 2 * np.pi, size=len(frequencies))
        height = np.sqrt(2 * amplitude / len(frequencies))
        return lambda rows: height * np.cos(rows @ frequencies.T + phases)
    if isinstance(kernel, kernels.Sum):
        parts = [_features(part, X, random) for part in (kernel.k1, kernel.k2)]
        return lambda rows: np.concatenate([part(rows) for part in parts], axis=1)
    chosen = X[random.permutation(len(X))[:_N_FEATURES]]
    values, vectors = np.linalg.eigh(kernel(chosen, chosen))
    kept = values > np.finfo(np.float64).eps * len(values) * max(values[-1], 0)
    basis = vectors[:, kept] / np.sqrt(values[kept])

    def nystroem(rows: np.ndarray) -> np.ndarray:
        found = kernel(rows, chosen) @ basis
        missed = np.maximum(kernel.diag(rows) - np.square(found).sum(axis=1), 0)
        return np.column_stack([found, np.sqrt(missed)])

    return nystroem


@singledispatch
def _spectrum(kernel, n_columns: int, random) -> tuple[float, np.ndarray] | None:
    """Variance of a stationary kernel and draws (m, d) of its frequencies; None of others."""
    return None


@_spectrum.register(kernels.ConstantKernel)
@_spectrum.register(kernels.WhiteKernel)
def _(kernel, n_columns, random):
    # Noise has been taken out.
    amplitude = kernel.constant_value if isinstance(kernel, kernels.ConstantKernel) else 0.0
    return amplitude, np.zeros((_N_FEATURES, n_columns))


@_spectrum.register(kernels.RBF)
def _(kernel, n_columns, random):
    return 1.0, random.normal(size=(_N_FEATURES, n_columns)) / kernel.length_scale


@_spectrum.register(kernels.Matern)
def _(kernel, n_columns, random):
    normal = random.normal(size=(_N_FEATURES, n_columns)) / kernel.length_scale
    if np.isinf(kernel.nu):
        return 1.0, normal
    freedom = 2 * kernel.nu  # the frequencies have a t distribution
    return 1.0, normal / np.sqrt(random.chisquare(freedom, size=(_N_FEATURES, 1)) / freedom)


@_spectrum.register(kernels.RationalQuadratic)
def _(kernel, n_columns, random):
    # A mixture of RBF kernels, over a gamma distribution of their precisions.
    precisions = random.gamma(kernel.alpha, size=(_N_FEATURES, 1)) / kernel.alpha
    normal = random.normal(size=(_N_FEATURES, n_columns))
    return 1.0, np.sqrt(precisions) / kernel.length_scale * normal


@_spectrum.register(kernels.Sum)
@_spectrum.register(kernels.Product)
def _(kernel, n_columns, random):
    parts = [_spectrum(part, n_columns, random) for part in (kernel.k1, kernel.k2)]
    known = [part for part in parts if part is not None]
    if len(known) < 2:
        return None
    (first, ours), (second, theirs) = known
    if isinstance(kernel, kernels.Product):
        return first * second, ours + theirs
    share = first / (first + second) if first + second > 0 else 0.0
    is_first = random.uniform(size=(_N_FEATURES, 1)) < share
    return first + second, np.where(is_first, ours, theirs)
