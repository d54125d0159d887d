# SPDX-License-Identifier: BSD-3-Clause
"""The methods of fitted estimators, all of which read off the predicted distribution."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Literal, overload

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn import get_config
from sklearn.compose import TransformedTargetRegressor
from sklearn.utils import ClassifierTags, RegressorTags, check_random_state
from sklearn.utils.validation import check_is_fitted

from .._training.trainer import SEED_LIMIT
from .._utils.validation import Number, OneOf, Seed, errors_about
from .._utils.warnings import calls_of
from ..distributions import Distribution, Uncertainty, split_columns
from .base import NetEstimator, available_if
from .batched import check_rows, read_distribution, read_rows


def as_frame(table: dict[str, np.ndarray], X: Any) -> object:
    """Make a frame of columns, of the kind that scikit-learn's configuration names.

    An array of shape (n, t) becomes t columns, ``<name>_<number>``. If `X` is a frame of pandas, so
    is its index that of the result.
    """
    columns = split_columns(table)
    if get_config()["transform_output"] == "polars":
        import polars

        return polars.DataFrame(columns)
    import pandas

    return pandas.DataFrame(columns, index=X.index if hasattr(X, "iloc") else None)


def deviations(variances: Uncertainty) -> dict[str, np.ndarray]:
    """Columns of a frame, in units of y; a part may be None."""
    names = "std", "aleatoric_std", "epistemic_std"
    parts = zip(names, variances.std(), strict=True)
    return {name: part for name, part in parts if part is not None}


def is_a(kind: str) -> Callable[[DistributionEstimator], bool]:
    """Condition for ``available_if``: the estimator is a "classifier", or a "regressor"."""
    return lambda estimator: estimator._kind == kind


def check_return_std(estimator: DistributionEstimator, return_std: object) -> None:
    """Check the argument; raise where a TransformedTargetRegressor asks, which cannot take two."""
    kinds = (True, False) if estimator._kind == "regressor" else (False,)
    OneOf(kinds).check(return_std, "return_std")
    calls = calls_of(TransformedTargetRegressor, "predict") if return_std else []
    if any(call.get("predict_params", {}).get("return_std") for call in calls):
        raise ValueError(
            "return_std must be False in TransformedTargetRegressor.predict, which transforms "
            "means only; got True. skdistill.predict_uncertainty(model, X).std().total is the "
            "standard deviation in units of y, and skdistill.predict_frame(model, X) has both."
        )


class DistributionEstimator(NetEstimator):
    """Estimator whose predictions are all read off the distribution that its module predicts."""

    classes_: np.ndarray
    _kind: Any  # "classifier", "regressor", or None if it is unknown before fit

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.estimator_type = self._kind
        tags.target_tags.required = self._kind is not None
        tags.input_tags.allow_nan = self.normalize in (True, "X")
        if self._kind == "classifier":
            tags.classifier_tags = ClassifierTags()
        elif self._kind == "regressor":
            tags.regressor_tags = RegressorTags()
            tags.target_tags.multi_output = True
        return tags

    def _read(self, X, read: Callable[[Any], object], **kwargs):
        """Check samples, predict them and return what `read` takes from their distribution."""
        self._plan_of_fit()
        module = self.module_

        def read_outputs(outputs: torch.Tensor, rows: torch.Tensor) -> Any:
            return read(module.of_outputs(outputs, rows))

        return read_rows(self, X, read_outputs, **kwargs)

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = False) -> np.ndarray: ...

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True]) -> tuple[np.ndarray, np.ndarray]: ...

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Predict the mean of each sample's targets, or its most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        return_std : bool, default=False
            Whether a regressor is to return the standard deviation too.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_targets)
            Means in units of y, or labels as given to `fit`.
        std : ndarray of the same shape, only if `return_std`
            Square root of the total variance, in units of y.
        """
        if return_std is False:
            task = self._plan_of_fit().task
            if task.kind == "classifier":
                return task.decode(self._read(X, task.point, name="point"))
            return task.decode(read_rows(self, X, self.module_.mean, name="mean"))
        check_return_std(self, return_std)
        mean, variance = self._read(X, lambda d: (d.mean, d.variance), name="mean and variance")
        per_target = self._plan.task.per_target
        return per_target(mean), np.sqrt(per_target(variance))

    @available_if(is_a("classifier"))
    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Predict the probability of each class. Only classifiers have this method.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        return self._read(X, lambda d: d.mean, name="probabilities")

    @available_if(is_a("classifier"))
    def predict_log_proba(self, X: ArrayLike) -> np.ndarray:
        """Predict the logarithm of each class's probability. Only classifiers have this method.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_proba : ndarray of shape (n_samples, n_classes)
        """
        return self._read(X, lambda d: d.log_mean, may_be_infinite=True)

    def predict_uncertainty(self, X: ArrayLike) -> Uncertainty:
        """Predict the total, aleatoric and epistemic uncertainty.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        uncertainty : Uncertainty
            Arrays of shape (n_samples,), or (n_samples, n_targets) for several targets, with
            ``total = aleatoric + epistemic``: variances in squared units of y for regression,
            entropies in nats for classification. Unpacks like a tuple of the three. The parts are
            None where the model, such as a single network, cannot tell them.
        """
        task = self._plan_of_fit().task
        if not self._plan.tells_parts:
            total = task.per_target(self._read(X, lambda d: d.uncertainty().total, name="total"))
            return Uncertainty(total, None, None, measure=task.measure)
        parts = self._read(X, lambda d: tuple(d.uncertainty()), name="parts")
        total, aleatoric, epistemic = map(task.per_target, parts)
        return Uncertainty(total, aleatoric, epistemic, measure=task.measure)

    @available_if(is_a("regressor"))
    def predict_interval(self, X: ArrayLike, coverage: ArrayLike = 0.9) -> np.ndarray:
        """Predict the central interval that holds y with a given probability, of a regressor.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        coverage : float or array-like of shape (n_coverages,), default=0.9
            Strictly between 0 and 1.

        Returns
        -------
        interval : ndarray of shape (n_samples, 2) or (n_samples, n_targets, 2)
            Lower and upper end, quantiles of the predicted distribution, in units of y. Several
            coverages are one more axis, (n_samples, n_coverages, 2).
        """
        name = f"interval {coverage}" if isinstance(coverage, float) else None
        interval = self._read(X, lambda d: d.interval(coverage), name=name)
        return self._plan.task.per_target(interval)

    @available_if(is_a("regressor"))
    def predict_quantiles(self, X: ArrayLike, quantiles: ArrayLike) -> np.ndarray:
        """Predict quantiles of y, exact to rounding. Only regressors have this method.

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
        found = self._read(X, lambda d: d.quantile(levels), name=f"quantiles {levels}")
        return self._plan.task.per_target(found)

    def predict_frame(self, X: ArrayLike, coverage: ArrayLike = 0.9) -> Any:
        """Predict what a service answers with, as one table.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        coverage : float, default=0.9
            Probability of y being between `lower` and `upper`, for a regressor.

        Returns
        -------
        frame : DataFrame of shape (n_samples, n_columns)
            Of pandas, or of what ``sklearn.set_config(transform_output=...)`` names. The columns of
            a regressor are ``prediction``, ``std``, ``aleatoric_std`` and ``epistemic_std``, the
            roots of the parts of the variance, ``lower`` and ``upper``, all in units of y, each
            with ``_<number of the target>`` behind it if there are several. Those of a classifier
            are ``prediction``, ``total``, ``aleatoric`` and ``epistemic`` in nats, and
            ``proba_<label>`` for each class. Parts that the model cannot tell are missing.
        """
        Number(Real, 0, 1, closed="neither").check(coverage, "coverage")
        plan, is_numeric = self._plan_of_fit(), self._kind == "regressor"
        names = ["total", "aleatoric", "epistemic"][: 3 if plan.tells_parts else 1]

        def read(d):
            parts = d.uncertainty()
            last = d.interval(coverage) if is_numeric else d.mean
            return plan.task.point(d), *(getattr(parts, name) for name in names), last

        # The samples are predicted once.
        point, *parts, last = self._read(X, read, name=f"frame {coverage!r}")
        total, *split = map(plan.task.per_target, parts)
        table = {"prediction": plan.task.decode(point)}
        if is_numeric:
            interval = plan.task.per_target(last)
            aleatoric, epistemic = split or (None, None)
            table |= deviations(Uncertainty(total, aleatoric, epistemic, measure="variance"))
            table |= {"lower": interval[..., 0], "upper": interval[..., 1]}
        else:
            table |= dict(zip(names, (total, *split), strict=True))
            table |= {f"proba_{label}": last[:, k] for k, label in enumerate(self.classes_)}
        return as_frame(table, X)

    def predict_distribution(self, X: ArrayLike) -> Distribution:
        """Predict the distribution that everything else is read off.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        distribution : object
            One of :mod:`skdistill.distributions`, in units of y: for members
            :class:`EmpiricalGaussian <skdistill.distributions.EmpiricalGaussian>` or
            :class:`EmpiricalCategorical <skdistill.distributions.EmpiricalCategorical>`.
        """
        self._plan_of_fit()
        return read_distribution(self.module_, check_rows(self, X, self._recipe.row_shape))

    @available_if(lambda self: "_plan" not in vars(self) or self._plan.has_members)
    def predict_members(self, X: ArrayLike) -> np.ndarray:
        """Predict with each member, or with each draw that stands for one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        members : ndarray of shape (n_samples, n_members, n_classes) or \
                (n_samples, n_members, n_targets, 2)
            Class probabilities; or means ``[..., 0]`` in units of y, and variances ``[..., 1]`` in
            squared units.
        """
        self._plan_of_fit()
        return read_rows(self, X, self.module_.members)

    def sample_y(
        self,
        X: ArrayLike,
        n_samples: int = 1,
        random_state: int | np.random.RandomState | None = None,
    ) -> np.ndarray:
        """Draw targets or labels from the predicted distribution.

        What is drawn for a sample does not depend on the others: the same draws serve all.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
        n_samples : int, default=1
            Number of draws for each sample.
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        y : ndarray of shape (n_samples_X, n_samples) or (n_samples_X, n_targets, n_samples)
            In units of y, or labels.
        """
        Number(Integral, 1).check(n_samples, "n_samples")
        Seed().check(random_state, "random_state")
        seed = int(check_random_state(random_state).randint(SEED_LIMIT))
        task = self._plan_of_fit().task

        def draw(distribution):
            return task.draws(distribution, n_samples, torch.Generator().manual_seed(seed))

        return task.decode(self._read(X, draw))

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy of a classifier, the R2 of a regressor.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        score : float
        """
        predicted = self.predict(X)
        return self._plan.task.score(y, predicted, sample_weight=sample_weight)

    def _plan_of_fit(self):
        """The plan of the fitted module; scikit-learn's error where there is none."""
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)  # which takes as long as a layer of a network, to read tags
        return self._plan
