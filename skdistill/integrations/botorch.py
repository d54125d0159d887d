# SPDX-License-Identifier: BSD-3-Clause
"""Fitted regressors as models of BoTorch, for Bayesian optimisation.

Import it as ``from skdistill.integrations.botorch import MembersModel``; it needs BoTorch:
``pip install skdistill[botorch]``.
"""

import copy

import torch
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .._estimator.predicting import DistributionEstimator
from .._estimator.unwrapping import inside

try:
    from botorch.models.ensemble import EnsembleModel
except ImportError as error:
    raise ImportError(
        "skdistill.integrations.botorch needs BoTorch: pip install skdistill[botorch]."
    ) from error

__all__ = ["MembersModel"]


class MembersModel(EnsembleModel):
    r"""The members of a fitted regressor as an ``EnsembleModel`` of BoTorch.

    The posterior at a point is the empirical distribution of the members' means, its variance is
    the epistemic uncertainty, and acquisition functions differentiate through the networks. The
    noise that the members predict is no part of it.

    Parameters
    ----------
    estimator : estimator
        A fitted ensemble or student of numbers that has ``predict_members``, or a search or
        FrozenEstimator around one. Its networks are copied.
    dtype : torch.dtype, default=torch.float64
        Of the copies; optimisers of acquisition functions take float64 for granted.

    Attributes
    ----------
    num_outputs : int
        Number of targets.

    Raises
    ------
    TypeError
        If `estimator` has no members to predict with, is a classifier, or has its target
        transformed by TransformedTargetRegressor.
    ValueError
        If a transformer stands before `estimator` in a Pipeline.

    Notes
    -----
    BoTorch's variance is that of a sample of S members, with S - 1 in the denominator; the
    epistemic part of ``predict_uncertainty`` is that of the members themselves, with S. Columns of
    categories are codes, see the estimator's ``categories_``.

    The defaults expect noise: with a dozen samples all members may be one constant. For few values
    without noise, ``prior_scale=100``, ``DeepEnsemble(calibrate=None)``, ``max_epochs=1000`` and
    ``module__activation="silu"`` let members follow the values and differ elsewhere.

    Examples
    --------
    >>> from botorch.acquisition import qLogExpectedImprovement
    >>> from botorch.optim import optimize_acqf
    >>> import torch
    >>> from skdistill import BayesianEnsembleRegressor
    >>> from skdistill.integrations.botorch import MembersModel
    >>> from skdistill.samplers import DeepEnsemble
    >>> X = torch.rand(20, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> y = -((X[:, 0] - 0.3) ** 2)
    >>> how = {"inference": DeepEnsemble(calibrate=None), "prior_scale": 100.0, "max_epochs": 1000}
    >>> ensemble = BayesianEnsembleRegressor(5, **how, random_state=0)
    >>> model = MembersModel(ensemble.fit(X, y))
    >>> acquisition = qLogExpectedImprovement(model, best_f=y.max())
    >>> bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    >>> candidate, _ = optimize_acqf(acquisition, bounds, q=1, num_restarts=2, raw_samples=32)
    >>> tuple(candidate.shape)
    (1, 1)
    """

    def __init__(self, estimator: BaseEstimator, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        estimator = _with_members(estimator)
        self.n_features = estimator.n_features_in_
        self._num_outputs = estimator.n_outputs_
        self.stack = copy.deepcopy(estimator.module_).eval().requires_grad_(False).to(dtype)
        # Random functions are always in float64: near samples large terms cancel.
        self.stack.functions = copy.deepcopy(estimator.module_.functions)

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the batches of models; there are none."""
        return torch.Size()

    def forward(self, X: Tensor) -> Tensor:
        """Predict the mean of every member.

        Parameters
        ----------
        X : Tensor of shape (..., n, n_features)

        Returns
        -------
        means : Tensor of shape (..., n_members, n, n_targets)
            In units of y.
        """
        if X.ndim < 2 or X.shape[-1] != self.n_features:
            raise ValueError(
                f"X must have shape (..., n, {self.n_features}), as many features as in fit; got "
                f"{tuple(X.shape)}."
            )
        rows = X.reshape(-1, self.n_features).to(next(self.stack.parameters()))
        members = self.stack.members(self.stack.outputs(rows), rows)
        means = members[..., 0]  # (samples, S, n_targets)
        return means.unflatten(0, X.shape[:-1]).transpose(-3, -2).to(X.dtype)


def _with_members(model: BaseEstimator) -> DistributionEstimator:
    """Return the fitted regressor inside a model, which takes the columns as they are given."""
    while (inner := inside(model, fitted=True)) is not None:
        if isinstance(model, Pipeline) and len(model) > 1:
            raise ValueError(
                "estimator must take the columns as they are given, so that the acquisition is "
                f"differentiable in them; got a Pipeline with {type(model[0]).__name__} in front. "
                "normalize=True standardises columns inside the networks."
            )
        model = inner
    if isinstance(model, DistributionEstimator):
        check_is_fitted(model)
        if model._kind == "regressor" and model._plan.has_members:
            return model
    raise TypeError(
        "estimator must be a regressor of skdistill with predict_members, such as an ensemble or "
        f"HydraPlusRegressor; got {type(model).__name__}."
    )
