# SPDX-License-Identifier: BSD-3-Clause
"""Ensemble of classification networks."""

from __future__ import annotations

from sklearn.base import ClassifierMixin

from .._read_offs import DistributionEstimator
from .._rules import ClassWeight
from ..modules import MLP
from ._fit import PARAMETER_TABLE, fit_ensemble


class BayesianEnsembleClassifier(ClassifierMixin, DistributionEstimator):
    """Ensemble of networks that each predict class probabilities.

    Every member minimises the cross-entropy of the labels with a Gaussian prior on the weights;
    members differ in their initial weights and in the order of their minibatches, as in deep
    ensembles [1]_, or are draws from the posterior, see `inference`. All members are trained at
    once, as one stack. The predicted probabilities are the mean over members; the entropy of that
    mean is the total uncertainty, the members' mean entropy its aleatoric part, and the mutual
    information of label and member the epistemic part [2]_, all in nats.

    Parameters
    ----------
    n_members : int, default=20
        Number of networks.
    module : callable, default=MLP
        Class (or function) that builds one member from ``in_features``, ``out_features`` and what
        is given as ``module__<name>``; for the MLP, ``module__hidden_units=(50, 50)`` unless given.
        Its outputs are the logits of the classes. For images and series ``in_features`` is the
        shape of a row, see :class:`skdistill.modules.ConvNet` and its kin.
    inference : "deep_ensemble", SGLD, SGHMC or MCDropout, default="deep_ensemble"
        How members come about: trained each from weights of its own; drawn from the posterior by
        Markov chains, see :class:`skdistill.samplers.SGLD` and
        :class:`~skdistill.samplers.SGHMC`, which bring their own step size (`optimizer`, `lr` and
        `lr_schedule` do not matter then) and run for `max_epochs` in all; or by dropping units of
        one network, see :class:`~skdistill.samplers.MCDropout`.
    prior_scale : float, default=10.0
        Scale of the Gaussian prior on the weights of each layer, of standard deviation
        ``prior_scale / sqrt(fan_in)``: a weight decay (L2) of ``fan_in / (prior_scale**2 * n)`` on
        the mean loss, where n is the sum of the sample weights. Biases have a flat prior;
        ``numpy.inf`` gives the weights one too.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, as everywhere in scikit-learn; they multiply `sample_weight`.
    bootstrap : bool, default=False
        Whether each member gets a bootstrap sample of the rows, drawn in proportion to
        `sample_weight`.
    optimizer : str or torch optimizer class, default="Adam"
        Name of an optimizer in ``torch.optim``, or its class; its parameters are given as
        ``optimizer__<name>``.
    lr : float, default=0.01
        Learning rate.
    lr_schedule : {"cosine", None}, default="cosine"
        Schedule of the learning rate over the epochs.
    max_epochs : int, default=50
        Number of epochs.
    batch_size : int, default=32
        Rows of a minibatch; all rows at once if there are not more.
    clip_norm : float, default=None
        Largest norm of each member's gradient.
    early_stopping : bool, default=False
        Whether to hold out `validation_fraction` of the rows, and to end each member's training,
        with its best weights, when its loss on them has not improved by `tol` for
        `n_iter_no_change` epochs.
    validation_fraction : float, default=0.1
        Share of the rows, and of every class, that `early_stopping` holds out.
    n_iter_no_change : int or "auto", default="auto"
        Epochs without improvement after which a member stops; "auto" is a quarter of `max_epochs`
        and at least 20. Far fewer stop members before the learning rate has fallen, and with it
        the loss.
    tol : float, default=1e-4
        Smallest decrease of the validation loss that counts as improvement.
    max_restarts : int, default=3
        How often members whose loss becomes infinite, not a number or explodes are trained anew
        from another seed. Members that still diverge are left out, with a warning.
    member_block, callbacks, device, compile, n_threads, verbose
        As in :class:`BayesianEnsembleRegressor`.
    random_state : int, RandomState instance or None, default=None
    **kwargs
        ``module__<name>``, ``optimizer__<name>`` and ``callbacks__<callback>__<name>``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    n_members_ : int
        Number of members that were trained successfully.
    n_epochs_ : int
        Number of epochs that training was set to.
    n_restarts_ : ndarray of shape (n_members,)
        How often each member was restarted.
    best_epochs_ : ndarray of shape (`n_members_`,)
        Epoch of each member's weights, only with `early_stopping`.
    module_ : CategoricalStack
        The members, as one torch module.
    net_ : skorch.NeuralNet
        The net around `module_`, built when asked for.
    sampler_diagnostics_ : SamplerDiagnostics
        Only with Markov chains: split R-hat and effective sample size of what they predict, for up
        to 500 rows of the training data.
    history_ : list of dict
        One row for each epoch: losses (means over members), durations and the block of members
        trained.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)

    Notes
    -----
    Ctrl-C during fit keeps the members trained so far, as they are, and raises
    ``KeyboardInterrupt``; before the end of the first epoch the estimator stays unfitted. When
    Markov chains diverge, the error names step size and iteration, and the finite states that were
    kept before it are the members.

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

    _parameter_table = {
        **PARAMETER_TABLE,
        "class_weight": ClassWeight(),
    }

    _kind = "classifier"
    _module_defaults = {"classifier": {"hidden_units": (50, 50)}}

    def __init__(
        self,
        n_members=20,
        *,
        module=MLP,
        inference="deep_ensemble",
        prior_scale=10.0,
        class_weight=None,
        bootstrap=False,
        optimizer="Adam",
        lr=0.01,
        lr_schedule="cosine",
        max_epochs=50,
        batch_size=32,
        clip_norm=None,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change="auto",
        tol=1e-4,
        max_restarts=3,
        member_block="auto",
        callbacks=None,
        device="auto",
        compile="auto",
        n_threads="auto",
        verbose=0,
        random_state=None,
        **kwargs,
    ):
        self.n_members = n_members
        self.module = module
        self.inference = inference
        self.prior_scale = prior_scale
        self.class_weight = class_weight
        self.bootstrap = bootstrap
        self.optimizer = optimizer
        self.lr = lr
        self.lr_schedule = lr_schedule
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.clip_norm = clip_norm
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.max_restarts = max_restarts
        self.member_block = member_block
        self.callbacks = callbacks
        self.device = device
        self.compile = compile
        self.n_threads = n_threads
        self.verbose = verbose
        self.random_state = random_state
        self._set_extra_params(kwargs)

    def fit(self, X, y, sample_weight=None):
        """Train the members.

        Parameters
        ----------
        X, sample_weight : as in :meth:`BayesianEnsembleRegressor.fit`
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        self
        """
        return fit_ensemble(self, X, y, sample_weight)
