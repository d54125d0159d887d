# SPDX-License-Identifier: BSD-3-Clause
"""What users call on a fitted estimator: all of it is read off the predicted distribution."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn import get_config
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from ._base import (
    SEED_LIMIT,
    NetEstimator,
    check_magnitude,
    check_trainable,
    check_weights,
    largest,
)
from ._rules import Number, OneOf, Seed, errors_about
from ._standardisation import resolves, standardisation
from ._warnings import warn
from .distributions import Uncertainty
from .modules import CategoricalStack, GaussianStack, activations_per_row

# Rows are predicted in chunks whose activations take about this many bytes, to stay in the cache.
_CHUNK_BYTES = 2**22

# Up to this many numbers, arrays of rows are checked by hand and predicted in one piece.
_FEW = 4096

# Neither squares nor exponentials of smaller outputs overflow, nor their products with a scale of
# y, which is kept this factor below what its dtype can hold the square of.
_SMALL = 64.0


class DistributionEstimator(NetEstimator):
    """Estimator whose predictions are all read off the distribution that its module predicts."""

    _measure: str  # of its uncertainty

    def predict_uncertainty(self, X) -> Uncertainty:
        """Predict the total, aleatoric and epistemic uncertainty.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        uncertainty : Uncertainty
            Arrays of shape (n_samples,), or (n_samples, n_targets) for several targets, with
            ``total = aleatoric + epistemic``: variances in squared units of y for regression,
            entropies in nats for classification. Unpacks like a tuple of the three. A single
            network cannot tell the parts: they are None.
        """
        check_is_fitted(self)
        if not self._tells_parts:
            total = self._per_target(self._read(X, lambda d: d.uncertainty().total))
            return Uncertainty(total, None, None, measure=self._measure)
        parts = self._read(X, lambda d: tuple(d.uncertainty()))
        total, aleatoric, epistemic = map(self._per_target, parts)
        return Uncertainty(total, aleatoric, epistemic, measure=self._measure)

    def predict_distribution(self, X):
        """Predict the distribution that everything else is read off.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        distribution : object
            One of :mod:`skdistill.distributions`: for members :class:`EmpiricalGaussian
            <skdistill.distributions.EmpiricalGaussian>` in units of y, or
            :class:`EmpiricalCategorical <skdistill.distributions.EmpiricalCategorical>`.
        """
        X = self._validate_rows(X)
        outputs = self._read_checked(X, lambda outputs: outputs.transpose(0, 1), raw=True)
        return self.module_.of_outputs(torch.from_numpy(outputs).transpose(0, 1))

    @property
    def _tells_parts(self) -> bool:
        """Whether aleatoric and epistemic uncertainty can be told apart."""
        return self._n_networks > 1

    def _reader(self) -> dict[str, Callable[[Tensor], Any]]:
        """How the stack is to read its outputs, if not as members."""
        return {}

    def _per_target(self, array: np.ndarray) -> np.ndarray:
        """Drop the axis of the targets, the second, if y had none."""
        return array

    def _validate_rows(self, X) -> np.ndarray:
        """Check rows to predict."""
        check_is_fitted(self)
        if self._is_plain(X):
            return X
        with errors_about("X"):
            self._check_axes(X)
            X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False, allow_nd=True)
        if X.shape[1:] != self._row_shape:
            raise ValueError(
                f"X must have rows of shape {self._row_shape}, as in fit; got {X.shape[1:]}."
            )
        return X

    def _check_axes(self, X) -> None:
        """Tell a single image or series, say, before scikit-learn takes an axis for features."""
        n_axes = 1 + len(self._row_shape)
        if n_axes > 2 and np.ndim(X) != n_axes:
            raise ValueError(
                f"X must have {n_axes} axes, rows of shape {self._row_shape} as in fit; got an "
                f"array of shape {np.shape(X)}. A single row is X[None]."
            )

    def _as_tensor(self, X: np.ndarray) -> Tensor:
        """Put rows where the module is."""
        # A copy: torch warns of memory that it may not write to (memory-mapped arrays).
        weight = next(self.module_.parameters())
        rows = torch.tensor(np.ascontiguousarray(X), dtype=weight.dtype, device=weight.device)
        if X.dtype.itemsize > weight.dtype.itemsize and not _is_finite(rows):
            check_magnitude(X, torch.finfo(weight.dtype).max)
        return rows

    def _is_plain(self, X) -> bool:
        """Whether `X` is a small array that `validate_data` would return as it is.

        Checking one row by `validate_data` takes longer than predicting it.
        """
        return (
            type(X) is np.ndarray
            and X.dtype in (np.float32, np.float64)
            and 0 < X.size <= _FEW
            and X.shape[1:] == self._row_shape
            and not hasattr(self, "feature_names_in_")
            and bool(np.isfinite(X).all())
        )

    def _read(self, X, read: Callable[[Any], Any], **kwargs):
        """Check rows, predict them and keep what `read` takes, as :meth:`_read_checked` does."""
        return self._read_checked(self._validate_rows(X), read, **kwargs)

    def _read_checked(
        self,
        X: np.ndarray,
        read: Callable[[Any], Any],
        raw: bool = False,
        may_be_infinite: bool = False,
    ):
        """Predict chunk by chunk and keep what `read` takes from each, rows first, as numpy.

        `read` is given a distribution, or the outputs if `raw`, and gives a tensor, or a tuple of
        tensors. Outputs must be finite, and so must be what is read, unless it `may_be_infinite`.
        """
        rows = self._as_tensor(X)
        size = self._rows_at_a_time(X)
        with torch.inference_mode():
            out: list[np.ndarray] = []
            for start in range(0, len(X), size):
                outputs = self.module_.outputs(rows[start : start + size])
                is_small = _is_small(outputs)
                if not is_small:
                    check_outputs(outputs, X[start:], range(start, len(X)), axis=-2)
                found = read(outputs if raw else self.module_.of_outputs(outputs))
                parts = found if isinstance(found, tuple) else (found,)
                # Written into place: results kept chunk by chunk would fragment the memory.
                out = out or [_empty_like(part, len(X)) for part in parts]
                for array, part in zip(out, parts, strict=True):
                    if not (is_small or may_be_infinite):
                        check_outputs(part, X[start:], range(start, len(X)))
                    array[start : start + size] = part.cpu().numpy()
        return tuple(out) if isinstance(found, tuple) else out[0]

    def _rows_at_a_time(self, X: np.ndarray) -> int:
        return len(X) if X.size <= _FEW else self._chunk_rows()

    def _chunk_rows(self) -> int:
        """Rows to predict at a time, within scikit-learn's ``working_memory``."""
        affordable = min(_CHUNK_BYTES, int(get_config()["working_memory"] * 2**20))
        return max(1, affordable // (8 * activations_per_row(self.module_, self._row_shape)))


class DistributionRegressor(RegressorMixin, DistributionEstimator):
    """Regressor whose predictions are all read off :meth:`predict_distribution`."""

    _parameter_table = {
        **DistributionEstimator._parameter_table,
        "normalize_y": OneOf((True, False)),
    }
    _measure = "variance"

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    # --- targets

    def _check_X_y(self, X, y):
        """Inputs, and targets of shape (n, t)."""
        with errors_about("X and y"):
            X, y = validate_data(
                self,
                X,
                y,
                dtype=(np.float64, np.float32),
                order="C",  # torch knows no negative strides
                allow_nd=True,
                multi_output=True,
                y_numeric=True,
            )
        if np.iscomplexobj(y):
            raise ValueError(f"y must be real numbers, got {y.dtype}.")
        check_trainable(X, X.dtype)
        if y.ndim == 2 and y.shape[1] == 1:
            warn(
                "A column-vector y was passed when a 1d array was expected. Please change the "
                "shape of y to (n_samples,), for example using ravel().",
                DataConversionWarning,
            )
            y = y.ravel()
        self._y_is_1d = y.ndim == 1
        with errors_about("y"):
            y = y.reshape(len(y), -1).astype(np.float64)
        self.n_outputs_ = y.shape[1]
        return X, y

    def _target_buffers(self, y, weight, dtype):
        y_loc, y_scale = self._target_scale(y, weight, dtype)
        # What is predicted is in the dtype of these, and would be rounded to nothing by float32
        # where y is far from 0: dates, say.
        if not resolves(dtype, y_loc, y_scale):
            dtype = np.float64
        return {"y_loc": y_loc.astype(dtype), "y_scale": y_scale.astype(dtype)}

    def _encoded(self, y, buffers, dtype):
        """Standardised targets."""
        return ((y - buffers["y_loc"]) / buffers["y_scale"]).astype(dtype)

    def _target_scale(self, y, weight, dtype) -> tuple[np.ndarray, np.ndarray]:
        """Location and scale by which targets (n, t) are standardised for training."""
        if not self.normalize_y:
            check_trainable(y, dtype, "y, with normalize_y=False,")
            return np.zeros_like(y[0]), np.ones_like(y[0])
        y_loc, y_scale = standardisation(y, weight)
        limits = np.finfo(dtype)
        held = (y_scale > np.sqrt(limits.tiny)) & (_SMALL * y_scale < np.sqrt(limits.max))
        if not (held & np.isfinite(y_loc)).all():
            raise ValueError(
                f"y has a standard deviation of {y_scale.tolist()}, whose square "
                f"{np.dtype(dtype)} cannot hold; rescale y, or pass X as float64."
            )
        return y_loc, y_scale

    def _encoded_members(self, members, buffers, dtype):
        """Moments of standardised targets, (n, S, t, 2)."""
        if not resolves(members.dtype, buffers["y_loc"], buffers["y_scale"]):
            raise ValueError(
                f"The teacher's answers, or member_predictions, are {members.dtype}, which cannot "
                f"tell apart means around {buffers['y_loc'].tolist()} whose standard deviation is "
                f"{buffers['y_scale'].tolist()}; give them as float64."
            )
        members = members.astype(np.float64)  # a copy
        members[..., 0] = (members[..., 0] - buffers["y_loc"]) / buffers["y_scale"]
        members[..., 1] /= np.square(buffers["y_scale"])
        with np.errstate(over="ignore"):
            members = members.astype(dtype)
        if not (np.isfinite(members).all() and (members[..., 1] > 0).all()):
            raise ValueError(
                "The teacher's answers, or member_predictions, must have means and variances that "
                f"{np.dtype(dtype)} can hold in units of y's standard deviation "
                f"{buffers['y_scale'].tolist()}."
            )
        return members

    @property
    def _out_features(self) -> int:
        return 2 * self.n_outputs_

    @property
    def _out_features_mean(self) -> str:
        return f"a mean and a raw variance for each of {self.n_outputs_} target(s)"

    def _wrap(self, network: nn.Module, buffers: dict[str, Tensor]) -> GaussianStack:
        like = next(network.parameters())
        y_loc = buffers.get("y_loc", like.new_zeros(self.n_outputs_)).to(like.device)
        y_scale = buffers.get("y_scale", like.new_ones(self.n_outputs_)).to(like.device)
        return GaussianStack(network, y_loc, y_scale, **self._reader())

    def _per_target(self, array: np.ndarray) -> np.ndarray:
        return array[:, 0] if self._y_is_1d else array

    # --- read-offs

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
        OneOf((True, False)).check(return_std, "return_std")
        if not return_std:
            return self._per_target(self._read(X, lambda d: d.mean))
        mean, variance = self._read(X, lambda d: (d.mean, d.variance))
        return self._per_target(mean), np.sqrt(self._per_target(variance))

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
        with errors_about("quantiles"):
            levels = torch.as_tensor(quantiles, dtype=torch.float64).tolist()
        return self._per_target(self._read(X, lambda d: d.quantile(levels)))

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
        Number(Integral, 1).check(n_samples, "n_samples")
        Seed().check(random_state, "random_state")
        seed = int(check_random_state(random_state).randint(SEED_LIMIT))

        def draw(distribution):
            generator = torch.Generator().manual_seed(seed)
            return distribution.sample(n_samples, generator).permute(1, 2, 0)

        return self._per_target(self._read(X, draw))


class DistributionClassifier(ClassifierMixin, DistributionEstimator):
    """Classifier whose predictions are all read off :meth:`predict_distribution`."""

    _measure = "entropy"
    classes_: np.ndarray

    # --- targets

    def _check_X_y(self, X, y):
        """Inputs, and class codes of shape (n,), positions in ``classes_``."""
        dtypes = (np.float64, np.float32)
        with errors_about("X and y"):
            X, y = validate_data(self, X, y, dtype=dtypes, order="C", allow_nd=True)
        with errors_about("y"):
            check_classification_targets(y)
        check_trainable(X, X.dtype)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                "y must hold at least two classes to tell apart; it has one class, "
                f"{self.classes_.tolist()}."
            )
        return X, codes

    def _weight_of_rows(self, codes, sample_weight) -> np.ndarray | None:
        weight = check_weights(sample_weight, len(codes))
        class_weight = getattr(self, "class_weight", None)
        if class_weight is None:
            return weight
        weight = np.ones(len(codes)) if weight is None else weight
        of_class = _weights_of_classes(class_weight, self.classes_, np.bincount(codes, weight))
        return check_weights(of_class[codes] * weight, len(codes), "class_weight")

    def _target_buffers(self, y, weight, dtype):
        return {}

    def _encoded(self, y, buffers, dtype):
        """Class codes."""
        return y

    def _encoded_members(self, members, buffers, dtype):
        """Log-probabilities, (n, S, K); ``-inf`` for what a member rules out."""
        with np.errstate(divide="ignore"):
            return np.log(members).astype(dtype)

    @property
    def _out_features(self) -> int:
        return len(self.classes_)

    @property
    def _out_features_mean(self) -> str:
        return "a logit for each class"

    def _wrap(self, network: nn.Module, buffers: dict[str, Tensor]) -> CategoricalStack:
        return CategoricalStack(network, **self._reader())

    # --- read-offs

    def predict(self, X):
        """Predict the most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Labels, as given to `fit`.
        """
        codes = self._read(X, lambda d: d.mean.argmax(-1))
        return self.classes_[codes]

    def predict_proba(self, X):
        """Predict the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            Mean over members; columns in the order of ``classes_``.
        """
        return self._read(X, lambda d: d.mean)

    def predict_log_proba(self, X):
        """Predict the logarithm of each class's probability.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_proba : ndarray of shape (n_samples, n_classes)
        """
        return self._read(X, lambda d: d.log_mean, may_be_infinite=True)

    def predict_members(self, X):
        """Predict the class probabilities of every member.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        members : ndarray of shape (n_samples, n_members, n_classes)
        """
        return self._read(X, lambda d: d.members)

    def sample_y(self, X, n_samples=1, random_state=None):
        """Draw labels from the predicted probabilities.

        The same draws serve every row, so what is drawn for a row does not depend on the others.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
        n_samples : int, default=1
            Number of draws for each row.
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        y : ndarray of shape (n_samples_X, n_samples)
        """
        Number(Integral, 1).check(n_samples, "n_samples")
        Seed().check(random_state, "random_state")
        seed = int(check_random_state(random_state).randint(SEED_LIMIT))

        def draw(distribution):
            return distribution.sample(n_samples, torch.Generator().manual_seed(seed)).t()

        codes = self._read(X, draw)
        return self.classes_[codes]


def _weights_of_classes(class_weight, classes: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Weight of each class, whose rows' own weights add up to `totals`.

    scikit-learn's function takes labels such as "1" for numbers, and knows weights of rows only
    from version 1.7 on.
    """
    if class_weight == "balanced":
        n_present = np.count_nonzero(totals)
        return np.divide(totals.sum(), n_present * totals, np.ones_like(totals), where=totals > 0)
    labels = classes.tolist()
    missing = [label for label in labels if label not in class_weight]
    unknown = [label for label in class_weight if label not in labels]
    if missing and unknown:
        raise ValueError(
            f"class_weight has weights for {unknown}, which are no classes of y, and none for "
            f"{missing}, which are."
        )
    return np.array([class_weight.get(label, 1.0) for label in labels])


def check_outputs(values: Tensor, X, numbers: Sequence[int] | Tensor, axis: int = 0) -> None:
    """Hold what is predicted for rows to be finite.

    Parameters
    ----------
    values : Tensor of shape (..., n, ...)
    X : array or Tensor of shape (at least n, ...)
        The rows that it is predicted for.
    numbers : sequence or Tensor of int
        Number of each of these rows in what the user gave.
    axis : int, default=0
        Axis of the rows in `values`.

    Raises
    ------
    ValueError
        If a number is not finite. It names the row, and its largest value. With scikit-learn's
        ``assume_finite=True`` nobody looks.
    """
    if _is_finite(values) or get_config()["assume_finite"]:
        return
    is_wrong = ~values.transpose(0, axis).isfinite().flatten(1).all(1)
    row = int(is_wrong.nonzero()[0])
    (_, *place), value = largest(np.asarray(X[row : row + 1]))
    number = int(numbers[row])
    raise ValueError(
        f"X must have rows for which the model's arithmetic does not overflow; what it predicts "
        f"for row {number} is not finite. The largest value there is X{[number, *place]} = "
        f"{value:.6g}."
    )


def _is_small(outputs: Tensor) -> bool:
    """Whether outputs are so small that nothing that is read off them overflows.

    So it is with most rows that are predicted alone, of whose time it takes a third of what looking
    at each result would.
    """
    return torch.linalg.vector_norm(outputs).item() < _SMALL


def _is_finite(tensor: Tensor) -> bool:
    # A sum is several times faster than looking at each number, but may overflow.
    return math.isfinite(tensor.sum().item()) or bool(tensor.isfinite().all())


def _empty_like(part: Tensor, n_rows: int) -> np.ndarray:
    return np.empty((n_rows, *part.shape[1:]), dtype=_numpy_dtype(part))


def _numpy_dtype(tensor: Tensor) -> np.dtype:
    return tensor[:0].cpu().numpy().dtype
