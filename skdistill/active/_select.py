# SPDX-License-Identifier: BSD-3-Clause
"""Selection of the samples of a pool to label next."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import check_random_state, gen_batches
from torch import Tensor, nn

from .. import modules
from .._estimator.batched import as_rows, check_rows
from .._estimator.unwrapping import innermost
from .._training.trainer import SEED_LIMIT
from .._utils.typing import RandomStateLike
from .._utils.validation import Number, OneOf, Seed

METHODS = ("auto", "lcmd", "margin")

_N_FEATURES, _N_FEATURES_OF_MANY = 512, 128  # of the sketch; fewer for large pools
_LARGE = 2**28  # bytes of the features of a pool
_ROWS = 65_536  # samples that are read of an array or a frame at a time
_CHUNK = 1024  # samples at a time: their intermediate values stay in the cache


def select_batch(
    model: BaseEstimator,
    X_pool: Any,
    n: int,
    *,
    X_train: Any = None,
    method: str = "auto",
    max_candidates: int = 1_000_000,
    random_state: RandomStateLike = None,
) -> np.ndarray:
    """Select the samples of a pool to label next.

    Parameters
    ----------
    model : estimator
        Fitted to the samples that are labelled. For "lcmd" a student or ensemble of this package
        with fully connected layers, or a Pipeline, search or FrozenEstimator around one; for
        "margin" any classifier with ``predict_proba``.
    X_pool : array-like or frame of shape (n_pool, n_features_in)
        Samples without labels. Memory maps are read piece by piece.
    n : int
        Number of samples to select.
    X_train : array-like or frame, default=None
        The samples that are labelled, without which "lcmd", which alone uses it, may select samples
        like them.
    method : {"auto", "lcmd", "margin"}, default="auto"
        How samples are selected, see Notes; "auto" is "margin" for classifiers, else "lcmd".
    max_candidates : int, default=1_000_000
        "lcmd" draws so many samples of a larger pool, and selects among them.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    indices : ndarray of shape (n,)
        Distinct places in the pool, in the order of selection.

    Raises
    ------
    TypeError
        If the model does not predict what the method needs.
    ValueError
        If the pool has fewer than `n` samples, or an argument is invalid.

    Notes
    -----
    lcmd
        Largest cluster, maximum distance, of gradient features [1]_: samples in the pool that are
        unlike those labelled, and unlike each other, more of them where there are more samples. The
        features are random projections of the gradients of the predictions with respect to the
        weights, 512 of them, or 128 for more than 131,072 samples.
    margin
        The smallest difference between the two largest class probabilities.

    References
    ----------
    .. [1] Holzmüller, Zaverkin, Kästner & Steinwart (2023), "A Framework and Benchmark for Deep
           Batch Active Learning for Regression", JMLR 24.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skdistill import BayesianEnsembleRegressor, DistributionDistiller
    >>> from skdistill.active import select_batch
    >>> X, y = load_diabetes(return_X_y=True)
    >>> X_train, y_train, X_pool = X[:100], y[:100], X[100:]
    >>> teacher = BayesianEnsembleRegressor(3, max_epochs=5, random_state=0)
    >>> student = DistributionDistiller(teacher, max_epochs=5, random_state=0)
    >>> indices = select_batch(
    ...     student.fit(X_train, y_train), X_pool, 20, X_train=X_train, random_state=0
    ... )
    >>> X_pool[indices].shape
    (20, 10)
    """
    Number(Integral, 1).check(n, "n")
    OneOf(METHODS).check(method, "method")
    Number(Integral, 1).check(max_candidates, "max_candidates")
    Seed().check(random_state, "random_state")
    rng = check_random_state(random_state)
    if max_candidates < n:
        raise ValueError(f"max_candidates must be at least n={n}, got {max_candidates}.")
    X_pool = _as_table(X_pool, "X_pool")
    n_pool = len(X_pool)
    if n_pool < n:
        raise ValueError(f"n must be at most {n_pool}, the number of samples in X_pool; got {n}.")
    if method == "auto":
        method = "margin" if is_classifier(model) else "lcmd"
    if method == "lcmd":
        n_kept = min(n_pool, max_candidates)
        fits = 4 * n_kept * _N_FEATURES <= _LARGE
        n_features = _N_FEATURES if fits else _N_FEATURES_OF_MANY
        sketch = GradientSketch(model, n_features, int(rng.randint(SEED_LIMIT)))
        centres = None
        if X_train is not None:
            X_train = _as_table(X_train, "X_train")
            if not len(X_train):
                raise ValueError("X_train must have samples, or be None; got none.")
            _, centres = _sketched(sketch, X_train, max_candidates, rng)
        places, features = _sketched(sketch, X_pool, max_candidates, rng)
        return places[lcmd(features, n, centres)]
    if not (is_classifier(model) and hasattr(model, "predict_proba")):
        raise TypeError(
            f'method="margin" needs a classifier with predict_proba, got {type(model).__name__}.'
        )
    found = np.concatenate([margins(model.predict_proba(piece)) for _, piece in _pieces(X_pool)])
    return np.argsort(found, kind="stable")[:n]


def _as_table(X: Any, name: str) -> Any:
    if not hasattr(X, "__len__"):
        raise TypeError(f"{name} must be an array or a frame, got {type(X).__name__}.")
    return X if hasattr(X, "shape") else np.asarray(X)


def _pieces(X: Any, places: np.ndarray | None = None) -> Iterator[tuple[slice, Any]]:
    """Iterate over the samples at some places of an array or frame, or over all, some at a time."""
    n = len(X) if places is None else len(places)
    for start in range(0, n, _ROWS):
        part = slice(start, min(start + _ROWS, n))
        rows = part if places is None else places[part]
        yield part, X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def _sketched(
    sketch: GradientSketch, X: Any, capacity: int, rng: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Places in X of all samples, or of `capacity` drawn of more; and their features."""
    places = np.arange(len(X))
    if len(X) > capacity:
        places = np.sort(rng.choice(len(X), capacity, replace=False))
    features = np.empty((len(places), sketch.n_features), np.float32)
    for part, rows in _pieces(X, places):
        features[part] = sketch(rows)
    return places, features


def lcmd(features: np.ndarray, n: int, centres: np.ndarray | None = None) -> np.ndarray:
    """Select n distinct places by the largest cluster's maximum distance.

    Each sample belongs to the cluster of its closest centre; at first these are the labelled
    samples, or the one with the largest norm. Of the cluster with the largest sum of squared
    distances the sample that is farthest from the centre is selected, and is a centre from then on
    (LCMD, Holzmüller et al., 2023, Section 3.3; "TP mode" with `centres`). Where all others equal a
    centre, the first ones follow.
    """
    dtype, n_first = features.dtype, 0 if centres is None else len(centres)
    kept = np.empty((n_first + n, features.shape[1]), dtype)
    norms = _squares(features)
    closest, distances = np.zeros(len(features), np.int32), np.full(len(features), np.inf, dtype)
    if centres is not None:
        kept[:n_first] = centres
        closest, distances = _nearest(features, kept[:n_first])
    # What rounding may add to squared distances, which are differences of squared norms at first.
    slack = 64 * np.finfo(dtype).eps * norms.max()
    is_left, selected = np.ones(len(features), bool), np.empty(n, np.int64)
    for place in range(n):
        number = n_first + place
        if number == 0:
            chosen = int(norms.argmax())
        else:
            sums = np.bincount(closest, distances, minlength=number)
            largest = sums.argmax()
            members = np.flatnonzero((closest == largest) & is_left)
            chosen = int(is_left.argmax())  # where all others equal a centre
            if len(members) and sums[largest] > 0:
                chosen = int(members[distances[members].argmax()])
        selected[place], is_left[chosen], distances[chosen] = chosen, False, 0
        kept[number] = features[chosen]
        # By the triangle inequality a sample cannot be closer to the new centre than to its own if
        # these are twice as far apart as it is from its own.
        apart = _squares(kept[:number] - kept[number]) if number else np.zeros(1, dtype)
        near = np.flatnonzero(is_left & (4.01 * distances + slack >= apart[closest]))
        found = np.empty(len(near), dtype)
        for start in range(0, len(near), _CHUNK):
            part = slice(start, start + _CHUNK)
            found[part] = _squares(features[near[part]] - kept[number])
        is_closer = found < distances[near]
        near = near[is_closer]
        distances[near], closest[near] = found[is_closer], number
    return selected


def _nearest(features: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of each sample's closest centre, and its squared distance."""
    closest, least = np.empty(len(features), np.int32), np.empty(len(features), features.dtype)
    for part in gen_batches(len(features), max(64, 2**20 // len(centres))):
        table = features[part] @ (-2 * centres.T)
        table += _squares(centres)
        closest[part] = table.argmin(1)
        least[part] = np.maximum(table.min(1) + _squares(features[part]), 0)
    return closest, least


def _squares(part: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", part, part)


def margins(proba: np.ndarray) -> np.ndarray:
    """Return how much more probable the first class is than the second, (n,)."""
    two = np.partition(proba, -2, axis=1)[:, -2:]
    return two[:, 1] - two[:, 0]


class GradientSketch:
    r"""Random projections of the gradients of a network's predictions [1]_.

    The predictions are the means, of standardised targets, or the class probabilities. Two samples
    have alike features if a step of training on one changes the prediction for the other. The same
    projections serve all calls.

    For a layer :math:`z = W h + b` with d inputs and the gradient :math:`\delta` of the prediction
    with respect to z, the gradient with respect to the weights, in units of their initial scale, is
    the Kronecker product of :math:`\delta` and :math:`\tilde h = (h / \sqrt d, 1)`. Its sketch is
    :math:`(P \delta) \odot (Q \tilde h) / \sqrt k` with Gaussian matrices P and Q, and the features
    are the sum of the sketches of all layers (Section 3 of [1]_). Their inner products estimate
    those of the gradients, without bias and with a relative error of about :math:`1 / \sqrt k`.
    Other layers (convolutions, periodic embeddings) have no part in them. [1]_ is that of
    :func:`select_batch`.
    """

    def __init__(self, model: BaseEstimator, n_features: int, seed: int):
        self.model, self.n_features = model, n_features
        # For each prediction and each layer the matrices P, (m, out, k), and Q, (1 or m, in + 1,
        # k), for m networks side by side; the last row of Q is that of the bias.
        self.projections: list[tuple[Tensor, Tensor]] = []
        self._generator = torch.Generator().manual_seed(seed)
        self._networks: dict[nn.Module, list[nn.Module]] = {}

    def __call__(self, X: Any) -> np.ndarray:
        """Return features (n, n_features), in float32, of samples."""
        estimator, X, _ = innermost(self.model, X, "module_", "active.select_batch")
        rows = check_rows(estimator, X, estimator._recipe.row_shape)
        features = np.empty((len(rows), self.n_features), np.float32)
        for part in gen_batches(len(rows), _CHUNK):
            found = self._sketch(estimator.module_, as_rows(estimator.module_, rows, part))
            features[part] = found.cpu().numpy()
        return features

    def _sketch(self, module: modules.DistributionStack, x: Tensor) -> Tensor:
        with torch.no_grad():
            encoded = module.encode(x).unsqueeze(0)
        tape: list[tuple[Tensor, Tensor]] = []
        with torch.enable_grad():
            outputs = self._run(module.network, encoded, tape).flatten(0, -3)
            if isinstance(module, modules.GaussianStack):
                means = module.read_mean(outputs)
            else:
                means = module.predicted(outputs).mean
        if not tape:
            raise ValueError(
                "model must have a network with fully connected layers, whose gradients are the "
                f"features; got {type(module.network).__name__}, which has none that are known."
            )
        features, places = x.new_zeros(len(x), self.n_features, dtype=torch.float32), 0
        for column in means.unbind(-1):
            deltas = torch.autograd.grad(
                column.sum(), [z for _, z in tape], retain_graph=True, materialize_grads=True
            )
            for (h, _), delta in zip(tape, deltas, strict=True):
                self._add_layer(features, places, h.flatten(0, -3), delta.flatten(0, -3))
                places += 1
        return features / self.n_features**0.5

    def _run(self, module: nn.Module, h: Tensor, tape: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Return a network's outputs, and note inputs and outputs of fully connected layers.

        These are of shape (*lead, n, width), where the lead of inputs that networks share is 1.
        """
        if isinstance(module, modules.MultiHead):
            return self._run(module.heads, self._run(module.core, h, tape).unsqueeze(1), tape)
        if isinstance(module, modules.StackedModule):
            if module not in self._networks:
                self._networks[module] = modules.unstack(module)
            n_axes, networks = len(module.lead), self._networks[module]
            inputs = h.expand(*module.lead, *h.shape[n_axes:]).flatten(0, n_axes - 1)
            found = [self._run(one, x, tape) for one, x in zip(networks, inputs, strict=True)]
            return torch.stack(found).unflatten(0, module.lead)
        if isinstance(module, modules.StackedSequential) or modules.is_plain_sequential(module):
            for layer in module.children():
                h = self._run(layer, h, tape)
            return h
        if isinstance(module, modules.ResidualLayer):
            return h + module.activation(self._run(module.linear, h, tape))
        outputs: Tensor = module(h)
        if isinstance(module, modules.StackedLinear) or (
            isinstance(module, nn.Linear) and h.ndim == 2
        ):
            outputs = outputs if outputs.requires_grad else outputs.requires_grad_()
            tape.append((h.detach(), outputs) if h.ndim > 2 else (h.detach()[None], outputs[None]))
            return tape[-1][1] if h.ndim > 2 else tape[-1][1][0]
        return outputs

    def _add_layer(self, features: Tensor, place: int, h: Tensor, delta: Tensor) -> None:
        """Add the sketch of one layer, of inputs (1 or m, n, in) and gradients (m, n, out)."""
        h, delta = h.float() / h.shape[-1] ** 0.5, delta.float()
        if place == len(self.projections):
            sizes = (*delta.shape[::2], self.n_features), (len(h), h.shape[-1] + 1, self.n_features)
            drawn = (torch.randn(size, generator=self._generator) for size in sizes)
            P, Q = (matrix.to(h.device) for matrix in drawn)
            self.projections.append((P, Q))
        P, Q = self.projections[place]
        if len(h) == 1:  # networks that share their inputs are one wide layer
            delta, P = delta.transpose(0, 1).flatten(1)[None], P.flatten(0, 1)[None]
        for d, x, of_d, of_x in zip(delta, h, P, Q, strict=True):
            features.addcmul_(d @ of_d, torch.addmm(of_x[-1], x, of_x[:-1]))
