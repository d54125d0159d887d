# SPDX-License-Identifier: BSD-3-Clause
"""Ensembles of networks that each predict a mean and a variance, or class probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin, RegressorMixin

from .._data.columns import COLUMN_PARAMETERS
from .._estimator.predicting import DistributionEstimator
from .._utils.typing import Callbacks, ModelClass, OptimizerClass, RandomStateLike
from .._utils.validation import (
    ClassWeight,
    Number,
    NumberOfJobs,
    OneOf,
    SettingsRule,
)
from ..modules import MLP
from ..samplers import SGHMC, SGLD, DeepEnsemble, MCDropout
from ..settings import Optimizer, Runtime
from ._fit import fit_ensemble

_INFERENCE = (DeepEnsemble, SGLD, SGHMC, MCDropout)


class BayesianEnsemble(DistributionEstimator):
    """Base of the two ensembles."""

    _parameter_table = {
        **DistributionEstimator._parameter_table,
        "lr": Number(Real, 0, closed="neither", others=("auto",)),
        "n_members": Number(Integral, 1),
        "max_epochs": Number(Integral, 1, others=("auto",)),
        "batch_size": Number(Integral, 1, others=("auto",)),
        "runtime": SettingsRule(Runtime, OneOf((None,))),
        "inference": SettingsRule(_INFERENCE, OneOf(("deep_ensemble",))),
        "prior_scale": Number(Real, 1e-15, 1e15, others=(np.inf,)),
        "distance_aware": OneOf((True, False)),
        "warm_start": OneOf((True, False)),
        "n_jobs": NumberOfJobs(),
        **COLUMN_PARAMETERS,
    }

    _clip_norm = None

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Train the members.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs, also as a frame with categories; images or series of shape (n_samples, ...),
            best standardised, if `module` takes them. float32 is computed in float32, all else in
            float64. Predictions have the same dtype, but are float64 where float32 would round
            targets that are far from 0. A memory map is not copied. Or batches that need not fit in
            memory: an object that gives ``(X, y)`` or ``(X, y, sample_weight)`` batch by batch each
            time that it is iterated over, see :mod:`skdistill.streams`.
        y : array-like of shape (n_samples,) or (n_samples, n_targets), default=None
            Targets, or labels of shape (n_samples,); None with batches.
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If a parameter or an argument is invalid, or does not go with batches, the module's
            output does not have the width that it should, or every member diverged.
        KeyboardInterrupt
            On Ctrl-C; what was trained so far is kept.
        """
        return fit_ensemble(self, X, y, sample_weight)


class BayesianEnsembleRegressor(RegressorMixin, BayesianEnsemble):
    """Ensemble of networks that each predict a mean and a variance.

    Every member minimises the negative log-likelihood of a Gaussian (or its beta-NLL [2]_) with a
    Gaussian prior on the weights. Members differ in their initial weights and in the order of their
    minibatches, as in deep ensembles [1]_, and in noise that is added to their targets, see
    :class:`skdistill.samplers.DeepEnsemble`. They are trained together, in stacks.

    Parameters
    ----------
    n_members : int, default=20
        Number of networks. Where `module__activation`, `module__embeddings` and `module__residual`
        are defaults, on tables of less than 10,000 samples and without `max_time`, the second ten
        of every twenty are smooth: with "silu", without piecewise-linear embeddings. Of both kinds,
        if there are five members of each, the samples that members leave out tell the weights, and
        what the kinds' means differ by is epistemic.
    module : callable, default=MLP
        Class (or function) that builds one member from ``in_features``, ``out_features`` and the
        parameters ``module__<name>``; for the MLP, ``module__hidden_units=(50, 50)`` and
        ``module__activation="tanh"`` unless given. Its outputs are a mean and a raw variance for
        each target, whose softplus is the variance. :class:`skdistill.modules.TabM` builds all
        members as one network, whose weights they share.
    inference : "deep_ensemble", DeepEnsemble, SGLD, SGHMC or MCDropout, default="deep_ensemble"
        How members come about: trained each from weights of its own, and how they are bootstrapped,
        stopped, tuned and calibrated, see :class:`skdistill.samplers.DeepEnsemble`; drawn from the
        posterior by Markov chains that run for `max_epochs` in all, see
        :class:`~skdistill.samplers.SGLD` and :class:`~skdistill.samplers.SGHMC`, whose step size
        replaces `optimizer` and `lr`; or by dropping units of one network, see
        :class:`~skdistill.samplers.MCDropout`.
    prior_scale : float, default=3.0
        Scale of the Gaussian prior on the weights of each layer, of standard deviation
        ``prior_scale / sqrt(fan_in)``: a weight decay (L2) of ``fan_in / (prior_scale**2 * n)`` on
        the mean loss, where n is the sum of the sample weights. Biases have a flat prior, and with
        ``numpy.inf`` weights too.
    beta : float, default=0.5
        Exponent of the variance that weights each sample's loss (beta-NLL [2]_); 0 is the
        likelihood, by which Markov chains draw in any case.
    optimizer : str, torch optimizer class or Optimizer, default="Adam"
        Name of an optimizer in ``torch.optim``, or its class, whose parameters are given as
        ``optimizer__<name>``; see :class:`skdistill.settings.Optimizer` for the schedule of the
        learning rate and clipped gradients.
    lr : float or "auto", default="auto"
        Learning rate, at the beginning of its schedule; "auto" is .01, and for tables of at least
        10,000 samples with piecewise-linear embeddings falls to .003 between 50 and 85 epochs.
    max_epochs : int or "auto", default="auto"
        Number of epochs; "auto" is 100, but with piecewise-linear embeddings as many as show each
        member 80,000 samples in all, and at least 50, which from 10,000 samples on grow by their
        square to 100; on tables of less than 400 samples as many as show 40,000, up to 300; on
        tables of more than 30,000 samples as many as show 3,000,000, and at least 10; twice as many
        with ``module=TabM``. Chains run for 100 in any case.
    max_time : float, default=None
        Seconds that `fit` may take in all, held to a tenth from a few seconds on; not with Markov
        chains. Training is as far as the larger of two shares, of its epochs and of its time, and
        the learning rate falls by this. It ends, within an epoch too, with time left for what
        follows: the samples that members leave out and the random functions. Blocks of members and
        settings that are tried share the time; members that diverge are trained anew only while
        there is some. A warning says where it is too short for one epoch. The model depends on the
        speed of the machine then. A fit that goes on from a checkpoint has the time anew.
    batch_size : int or "auto", default="auto"
        Rows of a minibatch; all rows at once if there are not more. "auto" is one in 150 rows, but
        at least 32, or 128 with ``module=TabM``, and at most 256; for chains it is 32.
    normalize : bool, "X" or "y", default=True
        Whether to standardise the columns of a table inside, and the targets for training; "X" or
        "y" is one of the two. Outputs are in y's units all the same. Columns that a scaler has
        standardised are taken as they are. Standardised columns may lack values: a further input
        tells where, if some were missing in `fit`, and else they count as the column's mean.
    categorical_features : "from_dtype", None or array-like, default="from_dtype"
        Columns that hold categories, each of which becomes an input of the networks: names or
        numbers of columns, or a mask; "from_dtype" are the columns of a frame that are categorical
        or text. What was not seen in `fit`, and what is missing, is none of the categories.
    warm_start : bool, default=False
        Whether `fit` keeps the members of the fit before, bit for bit, and trains those that are
        missing of `n_members`; only for deep ensembles. With an int as `random_state`, the same
        data and no member restarted, they are the members that one fit of all would have trained,
        to rounding (bit for bit if blocks of ``runtime__member_block`` begin at the same members).
        Other data may be given, of the same columns and targets; the location and scale of y and
        the tuned setting stay, `calibration_` is found anew, and `max_epochs` and the other
        parameters of training hold for the new members.
    distance_aware : bool, default=True
        Whether to add to each member a draw of a Gaussian process that is zero at the training
        samples [3]_, so that members disagree in gaps and beyond the data, where networks tend to
        agree. It changes little for samples like those of training, see Notes. For tables of at
        least five samples and for two members or more.
    n_jobs : int, default=None
        How many blocks of members are trained side by side on a CPU, as tasks of joblib; -1 is all
        cores. None is 1, or what ``joblib.parallel_config`` says, which also chooses where: in
        processes by default, in threads, or by dask or ray on other machines. The model is the same
        bit for bit for every number and backend, on the same kind of processor. No effect where
        ``runtime__member_block`` leaves one block, with Markov chains or dropout, and on a GPU.
    callbacks : list of skorch callbacks, default=None
        Also as (name, callback) pairs. With several jobs each block of members has copies of them,
        and what they note there stays there.
    runtime : skdistill.settings.Runtime, default=None
        The dtype to compute in, the device, the number of threads and of members that are trained
        together, and the file from which a fit that was killed goes on; None is ``Runtime()``.
    verbose : int, default=0
        0 prints nothing, 1 a line with the seconds of each stage of the fit when it has ended. 2
        prints details too: a table of the epochs, the settings of `tune`, and with several jobs a
        line for each block of members that has ended.
    random_state : int, RandomState instance or None, default=None
    **kwargs
        ``module__<name>``, ``optimizer__<name>`` and ``callbacks__<callback>__<name>``.

    Attributes
    ----------
    n_members_ : int
        Number of members that were trained successfully.
    n_epochs_ : int
        Number of epochs that training was set to; with `max_time` the most that a member was
        trained for, the last of them maybe in part.
    n_restarts_ : ndarray of shape (n_members,)
        How often each member was restarted.
    best_epochs_ : ndarray of shape (`n_members_`,)
        Epoch of each member's weights, if held-out samples decide, see
        :class:`skdistill.samplers.DeepEnsemble`.
    calibration_ : Temperature
        With calibration: its `temperature`, a tuple for several targets, multiplies the members'
        variances in all predictions, and its `spread` the variance of their means.
    tuning_ : list of dict
        With ``inference__tune``, the `params` of each setting that was tried and its `loss`, the
        mean negative log-likelihood in nats of the samples left out, for standardised targets.
    module_ : GaussianStack
        The members, as one torch module.
    net_ : skorch.NeuralNet
        The net around `module_`, built when asked for.
    sampler_diagnostics_ : SamplerDiagnostics
        Only with Markov chains: split R-hat and effective sample size of what they predict, for up
        to 500 samples of the training data.
    history_ : list of dict
        One row for each epoch: losses (means over members, on the standardised scale), durations
        and the block of members trained.
    categories_ : dict of int to list
        Categories of each categorical column, by its number; a category's place is its code.
    schema_ : Schema
        What the columns of X held, if it was a table, see :class:`skdistill.Schema`.
    n_outputs_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)

    Notes
    -----
    Ctrl-C during fit keeps the members trained so far, as they are, and raises
    ``KeyboardInterrupt``; before the end of the first epoch the estimator stays unfitted. With
    several jobs the blocks that have ended are kept, also if a process dies or a cluster goes away;
    a note on the error says how many members there are. When Markov chains diverge, the error names
    step size and iteration, and the finite states that were kept before it are the members.

    With `distance_aware`, distances are those of standardised columns, multiplied by how much the
    members' predictions change when a column is shuffled. The kernel is squared exponential, with
    the length scale of the largest marginal likelihood up to about half the root of the number of
    inputs. Its scale is found on contiguous blocks of samples that a kernel regression leaves out.
    Draws are zero at up to 256 inducing points among the samples, have mean 0 over the members, and
    grow in proportion to the distance from the mean beyond the farthest sample.

    References
    ----------
    .. [1] Lakshminarayanan et al. (2017), "Simple and Scalable Predictive Uncertainty Estimation
           using Deep Ensembles".
    .. [2] Seitzer et al. (2022), "On the Pitfalls of Heteroscedastic Uncertainty Estimation with
           Probabilistic Neural Networks".
    .. [3] Wilson et al. (2020), "Efficiently Sampling Functions from Gaussian Process Posteriors".

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skdistill import BayesianEnsembleRegressor
    >>> X, y = load_diabetes(return_X_y=True, scaled=True)
    >>> X = X / X.std(axis=0)
    >>> ensemble = BayesianEnsembleRegressor(n_members=5, max_epochs=20, random_state=0).fit(X, y)
    >>> mean, std = ensemble.predict(X[:3], return_std=True)
    >>> mean.shape, std.shape
    ((3,), (3,))
    """

    _parameter_table = {**BayesianEnsemble._parameter_table, "beta": Number(Real, 0)}

    _kind = "regressor"
    _module_defaults = {"regressor": {"hidden_units": (50, 50), "activation": "tanh"}}

    def __init__(
        self,
        n_members: int = 20,
        *,
        module: ModelClass = MLP,
        inference: str | DeepEnsemble | SGLD | SGHMC | MCDropout = "deep_ensemble",
        prior_scale: float = 3.0,
        beta: float = 0.5,
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


class BayesianEnsembleClassifier(ClassifierMixin, BayesianEnsemble):
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
    lr : float or "auto", default="auto"
        Learning rate; "auto" is .01.
    inference, optimizer, max_time, batch_size, categorical_features, n_jobs, callbacks, runtime
        As in :class:`BayesianEnsembleRegressor`.
    verbose : int, default=0
        As in :class:`BayesianEnsembleRegressor`.
    normalize : bool, "X" or "y", default=True
        As in :class:`BayesianEnsembleRegressor`. Labels stay as they are: "y" is False.
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

    _parameter_table = {**BayesianEnsemble._parameter_table, "class_weight": ClassWeight()}

    _kind = "classifier"
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
