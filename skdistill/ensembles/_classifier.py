# SPDX-License-Identifier: BSD-3-Clause
"""Ensemble of classification networks."""

from collections.abc import Mapping
from typing import Any, Self

from sklearn.base import ClassifierMixin

from .._estimator.predicting import DistributionEstimator
from .._utils.typing import ArrayLike, Callbacks, ModelClass, OptimizerClass, RandomStateLike
from .._utils.validation import ClassWeight
from ..modules import MLP
from ..samplers import SGHMC, SGLD, DeepEnsemble, MCDropout
from ..settings import Optimizer, Runtime
from ._fit import fit_ensemble
from ._spec import PARAMETER_TABLE


class BayesianEnsembleClassifier(ClassifierMixin, DistributionEstimator):
    """Ensemble of networks that each predict class probabilities.

    Every member minimises the cross-entropy of the labels with a Gaussian prior on the weights.
    Members differ in their initial weights and in the order of their minibatches, as in deep
    ensembles [1]_, and in the weights of the samples, see :class:`skdistill.samplers.DeepEnsemble`;
    or they are draws from the posterior, see `inference`. The predicted probabilities
    are the mean over members. The entropy of that mean is the total uncertainty, the members' mean
    entropy the aleatoric part, and the mutual information of label and member the epistemic part
    [2]_, all in nats.

    Parameters
    ----------
    n_members : int, default=20
        Number of networks.
    module : callable, default=MLP
        As in :class:`BayesianEnsembleRegressor`; for the MLP, ``module__hidden_units=(50, 50)``
        unless given. Its outputs are the logits of the classes. For images and series
        ``in_features`` is the shape of a sample, see :class:`skdistill.modules.ConvNet` and its
        kin.
    prior_scale : float, default=10.0
        As in :class:`BayesianEnsembleRegressor`. If ten members or more are overconfident, 3.0 is
        tried, see ``tune="auto"`` of :class:`skdistill.samplers.DeepEnsemble` and `tuning_`.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, as everywhere in scikit-learn; they multiply `sample_weight`.
    max_epochs : int or "auto", default="auto"
        Number of epochs; "auto" is 50, but on tables of more than 60,000 samples as many as show
        each member 3,000,000 samples in all, and at least 10. Chains run for 50 in any case.
    inference, optimizer, lr, max_time, batch_size, categorical_features, n_jobs
        As in :class:`BayesianEnsembleRegressor`; "auto" is a learning rate of .01.
    normalize : bool, "X" or "y", default=True
        As in :class:`BayesianEnsembleRegressor`. Labels stay as they are: "y" is False.
    callbacks, runtime, verbose
        As in :class:`BayesianEnsembleRegressor`.
    warm_start
        As in :class:`BayesianEnsembleRegressor`; y may hold no labels but those of the first fit.
    distance_aware : bool, default=True
        As in :class:`BayesianEnsembleRegressor`; draws are added to the members' logits, so that no
        class is sure far from all samples.
    random_state : int, RandomState instance or None, default=None
    **kwargs
        ``module__<name>``, ``optimizer__<name>`` and ``callbacks__<callback>__<name>``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    calibration_ : Temperature
        With calibration: its `temperature` divides the members' logits in all predictions, and its
        `bias`, one for each class, is added to them.
    module_ : CategoricalStack
        The members, as one torch module.
    n_members_, n_epochs_, n_restarts_, best_epochs_, tuning_, net_, sampler_diagnostics_, history_
        As in :class:`BayesianEnsembleRegressor`.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Notes
    -----
    Ctrl-C during fit and chains that diverge: see :class:`BayesianEnsembleRegressor`.

    References
    ----------
    .. [1] Lakshminarayanan et al. (2017), "Simple and Scalable Predictive Uncertainty Estimation
           using Deep Ensembles".
    .. [2] Depeweg et al. (2018), "Decomposition of Uncertainty in Bayesian Deep Learning for
           Efficient and Risk-sensitive Learning".

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skdistill import BayesianEnsembleClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> ensemble = BayesianEnsembleClassifier(n_members=5, random_state=0).fit(X, y)
    >>> ensemble.predict_proba(X[:2]).shape
    (2, 3)
    >>> total, aleatoric, epistemic = ensemble.predict_uncertainty(X[:2])
    """

    _parameter_table = {**PARAMETER_TABLE, "class_weight": ClassWeight()}

    _kind, _clip_norm = "classifier", None
    _module_defaults = {"classifier": {"hidden_units": (50, 50)}}

    def __init__(
        self,
        n_members: int = 20,
        *,
        module: ModelClass = MLP,
        inference: str | DeepEnsemble | SGLD | SGHMC | MCDropout = "deep_ensemble",
        prior_scale: float = 10.0,
        class_weight: str | Mapping[Any, float] | None = None,
        optimizer: str | OptimizerClass | Optimizer = "Adam",
        lr: float | str = "auto",
        max_epochs: int | str = "auto",
        max_time: float | None = None,
        batch_size: int | str = "auto",
        normalize: bool | str = True,
        categorical_features: str | ArrayLike | None = "from_dtype",
        warm_start: bool = False,
        distance_aware: bool = True,
        n_jobs: int | None = None,
        callbacks: Callbacks = None,
        runtime: Runtime | None = None,
        verbose: int | bool = 0,
        random_state: RandomStateLike = None,
        **kwargs: object,
    ):
        self._set_arguments(locals())

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Train the members.

        Parameters
        ----------
        X, sample_weight : as in :meth:`BayesianEnsembleRegressor.fit`
        y : array-like of shape (n_samples,), default=None
            Labels; None with batches.

        Returns
        -------
        self
        """
        return fit_ensemble(self, X, y, sample_weight)
