# SPDX-License-Identifier: BSD-3-Clause
"""Regression and classification as tasks.

A task checks and encodes targets and members' predictions, and decodes predictions. It is
independent of networks and losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.special import log_softmax
from sklearn.exceptions import DataConversionWarning
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor, nn

from .._data.checks import SMALL_OUTPUT, check_trainable, check_weights
from .._data.schema import InputSchema, read_table
from .._utils.moments import pieces, resolves, standardisation
from .._utils.validation import errors_about
from .._utils.warnings import warn
from ..distributions import EmpiricalCategorical, EmpiricalGaussian
from ..modules import CategoricalStack, GaussianStack

Buffers = dict[str, np.ndarray]

_MANY_ROWS = 200  # samples from which on dtype="auto" may be float32, see doc/design.rst


@dataclass(frozen=True)
class RegressionTask:
    """Predicting t real numbers for each sample, each by a mean and a variance."""

    size: int  # number of targets t
    is_1d: bool  # y had no axis of targets, so that predictions have none either
    dtype: str | None = None  # of the predictions; None is that of the networks

    kind: ClassVar[str] = "regressor"
    reading: ClassVar[dict[str, bool]] = {"multi_output": True, "y_numeric": True}
    measure: ClassVar[str] = "variance"  # of the uncertainty
    score = staticmethod(r2_score)

    @classmethod
    def check(
        cls, y: np.ndarray, known: RegressionTask | None = None
    ) -> tuple[np.ndarray, RegressionTask]:
        """Return targets of :func:`read_samples`, (n, t), and their task; `known` is of before."""
        task = cls(1 if y.ndim == 1 else y.shape[1], y.ndim == 1)
        if known is not None and task.size != known.size:
            raise ValueError(
                f"y must have {known.size} target(s), as in the fit before; got {task.size}."
            )
        with errors_about("y"):
            return y.reshape(len(y), -1).astype(np.float64), task

    @staticmethod
    def check_targets(y: np.ndarray) -> np.ndarray:
        """Return targets, checked, as (n,) or (n, t)."""
        if np.iscomplexobj(y):
            raise ValueError(f"y must be real numbers, got {y.dtype}.")
        if y.ndim == 2 and y.shape[1] == 1:
            warn(
                "A column-vector y was passed when a 1d array was expected. Please change the "
                "shape of y to (n_samples,), for example using ravel().",
                DataConversionWarning,
            )
            return y.ravel()
        return y

    @property
    def fitted_attributes(self) -> dict[str, object]:
        """Public attributes of an estimator fitted to the task."""
        return {"n_outputs_": self.size}

    @property
    def n_outputs(self) -> int:
        """Number of outputs of a network that predicts the task directly."""
        return 2 * self.size

    @property
    def meaning_of_outputs(self) -> str:
        return f"a mean and a raw variance for each of {self.size} target(s)"

    def weights_of_rows(self, y, sample_weight, class_weight=None) -> np.ndarray | None:
        return check_weights(sample_weight, len(y))

    def scaling(self, y, weight, dtype, normalize_y: bool = True) -> Buffers:
        """Location and scale by which targets (n, t) are standardised, for the module's buffers."""
        if not normalize_y:
            check_trainable(y, dtype, "y, which normalize does not standardise,")
            return self.scaling_by(np.zeros_like(y[0]), np.ones_like(y[0]), dtype)
        counted = y if weight is None else y[weight > 0]
        varies = (counted != counted[0]).any(axis=0)
        return self.scaling_by(*standardisation(y, weight, constant=0.0), dtype, varies)

    def scaling_by(self, y_loc, y_scale, dtype, varies: np.ndarray | bool = False) -> Buffers:
        """Buffers of a location and scale, (t,), 0 where constant; raise if not held."""
        if ((y_scale == 0) & varies).any():
            raise ValueError(
                f"y must vary by more than float64 rounds around {y_loc.tolist()}; subtract a "
                "constant from y before it is converted to float64."
            )
        y_scale = np.where(y_scale == 0, 1.0, y_scale)
        limits = np.finfo(dtype)
        held = (y_scale > np.sqrt(limits.tiny)) & (SMALL_OUTPUT * y_scale < np.sqrt(limits.max))
        if not (held & np.isfinite(y_loc)).all():
            raise ValueError(
                f"y has a standard deviation of {y_scale.tolist()}, whose square "
                f"{np.dtype(dtype)} cannot hold; rescale y, or pass X as float64."
            )
        # Predictions have the dtype of these: float32 would round targets far from 0 (dates, say)
        # to the same value.
        dtype = self.dtype or dtype
        if not resolves(dtype, y_loc, y_scale):
            dtype = np.float64
        return {"y_loc": y_loc.astype(dtype), "y_scale": y_scale.astype(dtype)}

    def encode(self, y, scaling: Buffers, dtype) -> np.ndarray:
        """Return standardised targets."""
        return ((y - scaling["y_loc"]) / scaling["y_scale"]).astype(dtype)

    @property
    def shape_of_members(self) -> dict[str, int]:
        """Expected size of members' predictions, for `check_member_predictions`."""
        return {"n_targets": self.size}

    def encode_members(
        self, members: np.ndarray, scaling: Buffers, dtype, spread: float = 1.0
    ) -> np.ndarray:
        """Return moments of standardised targets, (n, S, t, 2), spread by a factor."""
        y_loc, y_scale = scaling["y_loc"], scaling["y_scale"]
        if not resolves(members.dtype, y_loc, y_scale):
            raise ValueError(
                f"The teacher's predictions, or member_predictions, are {members.dtype}, which "
                f"cannot tell apart means around {y_loc.tolist()} whose standard deviation is "
                f"{y_scale.tolist()}; give them as float64."
            )
        encoded = np.empty(members.shape, dtype)
        is_held = True
        for part in pieces(members):
            moments = members[part].astype(np.float64)  # a copy
            means = (moments[..., 0] - y_loc) / y_scale
            if spread != 1:
                centre = means.mean(axis=1, keepdims=True)
                means = centre + spread * (means - centre)
            moments[..., 0] = means
            moments[..., 1] /= np.square(y_scale)
            with np.errstate(over="ignore"):
                encoded[part] = moments
            is_held &= bool(np.isfinite(encoded[part]).all() and (encoded[part, ..., 1] > 0).all())
        if not is_held:
            raise ValueError(
                "The teacher's predictions, or member_predictions, must have means and variances "
                f"that {np.dtype(dtype)} can hold in units of y's standard deviation "
                f"{y_scale.tolist()}."
            )
        return encoded

    def wrap(self, network: nn.Module, buffers: dict[str, Tensor], read=None) -> GaussianStack:
        """Return a stack that predicts distributions; `buffers` may be empty."""
        like = next(network.parameters())
        y_loc = buffers.get("y_loc", like.new_zeros(self.size)).to(like.device)
        y_scale = buffers.get("y_scale", like.new_ones(self.size)).to(like.device)
        return GaussianStack(network, y_loc, y_scale, read or EmpiricalGaussian.from_outputs)

    def per_target(self, array: Any) -> Any:
        """Drop the axis of the targets, the second, if y had none."""
        return array.squeeze(1) if self.is_1d else array

    def point(self, distribution: Any) -> Tensor:
        """Return the point prediction: the mean, (n, t)."""
        return distribution.mean

    def draws(self, distribution: Any, n_samples: int, generator: torch.Generator) -> Tensor:
        """Draw targets, (n, t, n_samples)."""
        return distribution.sample(n_samples, generator).permute(1, 2, 0)

    def decode(self, array: np.ndarray) -> np.ndarray:
        """Return points or draws in the shape of y."""
        return self.per_target(array)


@dataclass(frozen=True, eq=False)
class ClassificationTask:
    """Predicting one of K classes for each sample, by their probabilities."""

    labels: np.ndarray  # sorted, (K,)
    dtype: str | None = None  # of the predictions; None is that of the networks

    kind: ClassVar[str] = "classifier"
    reading: ClassVar[dict[str, bool]] = {}  # settings of scikit-learn's checks of X and y
    measure: ClassVar[str] = "entropy"
    score = staticmethod(accuracy_score)

    @classmethod
    def check(
        cls, y: np.ndarray, known: ClassificationTask | None = None
    ) -> tuple[np.ndarray, ClassificationTask]:
        """Return labels of :func:`read_samples` as codes, positions in `labels`, and their task."""
        labels, codes = np.unique(y, return_inverse=True)
        if known is not None:
            return known.codes_of(labels)[codes], known
        return codes, cls.of_labels(labels, "y")

    @staticmethod
    def check_targets(y: np.ndarray) -> np.ndarray:
        """Return labels, checked."""
        with errors_about("y"):
            check_classification_targets(y)
        return y

    @classmethod
    def of_labels(cls, labels, name: str) -> ClassificationTask:
        """Return the task of telling labels apart; a ValueError about `name` if there are none."""
        found = np.unique(labels)
        if len(found) < 2:
            raise ValueError(
                f"{name} must hold at least two classes to tell apart; it has one class, "
                f"{found.tolist()}."
            )
        return cls(found)

    def codes_of(self, labels: np.ndarray) -> np.ndarray:
        """Return the codes of labels of y; a ValueError names those that are not known."""
        codes = {label: code for code, label in enumerate(self.labels.tolist())}
        if unknown := [label for label in labels.tolist() if label not in codes]:
            raise ValueError(
                f"y must hold labels of the classes {self.labels.tolist()}, which are known from "
                f"before; got {unknown}."
            )
        return np.array([codes[label] for label in labels.tolist()])

    @property
    def size(self) -> int:
        """Number of classes K."""
        return len(self.labels)

    @property
    def fitted_attributes(self) -> dict[str, object]:
        return {"classes_": self.labels}

    @property
    def n_outputs(self) -> int:
        return self.size

    @property
    def meaning_of_outputs(self) -> str:
        return "a logit for each class"

    def weights_of_rows(self, codes, sample_weight, class_weight=None) -> np.ndarray | None:
        """Weights of the samples, times those of their classes."""
        weight = check_weights(sample_weight, len(codes))
        if class_weight is None:
            return weight
        weight = np.ones(len(codes)) if weight is None else weight
        totals = np.bincount(codes, weight, minlength=self.size)
        # scikit-learn's function takes labels such as "1" for numbers, and knows weights of samples
        # only from version 1.7 on.
        if class_weight == "balanced":
            n_each, ones = np.count_nonzero(totals) * totals, np.ones_like(totals)
            of_class = np.divide(totals.sum(), n_each, ones, where=totals > 0)
        else:
            labels = self.labels.tolist()
            missing = [label for label in labels if label not in class_weight]
            unknown = [label for label in class_weight if label not in labels]
            if missing and unknown:
                raise ValueError(
                    f"class_weight has weights for {unknown}, which are no classes of y, and none "
                    f"for {missing}, which are."
                )
            of_class = np.array([class_weight.get(label, 1.0) for label in labels])
        return check_weights(of_class[codes] * weight, len(codes), "class_weight")

    def scaling(self, y, weight, dtype, normalize_y: bool = True) -> Buffers:
        return {}  # classes have no scale

    def scaling_by(self, y_loc, y_scale, dtype, varies=False) -> Buffers:
        return {}

    def encode(self, y, scaling: Buffers, dtype) -> np.ndarray:
        return y

    @property
    def shape_of_members(self) -> dict[str, int]:
        return {"n_classes": self.size}

    def encode_members(
        self, members: np.ndarray, scaling: Buffers, dtype, spread: float = 1.0
    ) -> np.ndarray:
        """Return log-probabilities, (n, S, K), logits `spread` times as far apart if finite."""
        encoded = np.empty(members.shape, dtype)
        with np.errstate(divide="ignore"):
            for part in pieces(members):
                encoded[part] = np.log(members[part])
                if spread != 1:
                    is_finite = np.isfinite(encoded[part]).all(axis=(1, 2))
                    logits = np.log(members[part][is_finite], dtype=np.float64)
                    centre = logits.mean(axis=1, keepdims=True)
                    logits = log_softmax(centre + spread * (logits - centre), axis=-1)
                    encoded[part][is_finite] = logits
        return encoded

    def wrap(self, network: nn.Module, buffers: dict[str, Tensor], read=None) -> CategoricalStack:
        dtype = None if self.dtype is None else getattr(torch, self.dtype)
        return CategoricalStack(network, read or EmpiricalCategorical.from_logits, dtype)

    def per_target(self, array: object) -> Any:
        return array

    def point(self, distribution: Any) -> Tensor:
        """Return the point prediction: the code of the most probable class, (n,)."""
        return distribution.mean.argmax(-1)

    def draws(self, distribution: Any, n_samples: int, generator: torch.Generator) -> Tensor:
        """Draw codes of classes, (n, n_samples)."""
        return distribution.sample(n_samples, generator).t()

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return the labels of codes."""
        return self.labels[codes]


Task = RegressionTask | ClassificationTask


def read_samples(
    estimator: Any, X: Any, y: Any, schema: InputSchema | None = None
) -> tuple[np.ndarray, np.ndarray, InputSchema]:
    """Check X and y of `fit` by scikit-learn and the task, against the schema of a fit before."""
    task = TASKS[estimator._kind]
    with errors_about("X and y"):
        (X, y), schema = read_table(estimator, X, y, schema=schema, **task.reading)
    y = task.check_targets(y)
    check_trainable(X, X.dtype)
    return X, y, schema


def dtype_to_compute(
    wanted: str,
    device: object,
    given: str,
    shape: tuple[int, ...],
    limits: Callable[[], tuple[np.ndarray, np.ndarray]],
) -> str:
    """Return the dtype to compute in: "auto" is that of X, `given`, or float32 for large tables.

    On Apple's GPUs, which have no float64, it is float32; ValueError where "float64" is wanted.

    float32 must tell apart values of a column between its `limits`, and hold their squares. It is
    faster by a factor of two to three, and the noise of training is far above its rounding.
    """
    if str(device).startswith("mps"):
        if wanted == "float64":
            raise ValueError(
                "runtime__dtype must be 'auto' or 'float32' with device='mps', which has no "
                f"float64; got {wanted!r}. Take device='cpu' for float64."
            )
        return "float32"
    if wanted != "auto":
        return wanted
    if len(shape) != 2 or shape[0] < _MANY_ROWS:
        return given
    low, high = (limit.astype(np.float64) for limit in limits())
    largest, spread = np.maximum(np.abs(low), np.abs(high)), high - low
    varies = spread > 0
    is_held = largest.max(initial=0) < math.sqrt(np.finfo(np.float32).max)
    resolved = is_held and resolves(np.float32, largest[varies], spread[varies])
    return "float32" if resolved else given


TASKS: dict[str, type[RegressionTask] | type[ClassificationTask]] = {
    "regressor": RegressionTask,
    "classifier": ClassificationTask,
}
