# SPDX-License-Identifier: BSD-3-Clause
"""Ensemble of heteroscedastic Gaussian regression networks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from torch import Tensor, nn

from .._base import (
    SEED_LIMIT,
    DistributionRegressor,
    Number,
    Objective,
    OneOf,
    weights_of,
    with_callbacks,
)
from ..distributions import Gaussian
from ..losses import gaussian_nll, gaussian_nll_and_gradient
from ..modules import MLP, stack, weights_and_fan_ins

# On a CPU as many members are trained together as have about this many activations in their widest
# layer; with more of them the work no longer fits the cache.
_BLOCK_ACTIVATIONS = 2**19


class BayesianEnsembleRegressor(DistributionRegressor):
    """Ensemble of networks that each predict a mean and a variance.

    Every member minimises the negative log-likelihood of a Gaussian (or its beta-NLL [2]_) with a
    Gaussian prior on the weights; members differ in their initial weights and in the order of
    their minibatches, as in deep ensembles [1]_. All members are trained at once, as one stack.

    Parameters
    ----------
    n_members : int, default=20
        Number of networks.
    module : callable, default=MLP
        Class (or function) that builds one member from ``in_features``, ``out_features`` and what
        is given as ``module__<name>``; for the MLP, ``module__hidden_units=(50, 50)`` and
        ``module__activation="tanh"`` unless given. Its outputs are a mean and a raw variance for
        each target; the variance is the softplus of the latter.
    inference : {"deep_ensemble"}, default="deep_ensemble"
        How members are drawn.
    prior_scale : float, default=3.0
        Scale of the Gaussian prior on the weights of each layer, of standard deviation
        ``prior_scale / sqrt(fan_in)``: a weight decay (L2) of ``fan_in / (prior_scale**2 * n)`` on
        the mean loss, where n is the sum of the sample weights. Biases have a flat prior;
        ``numpy.inf`` gives the weights one too.
    beta : float, default=0.5
        Exponent of the variance that weights each row's loss (beta-NLL [2]_); 0 is the likelihood.
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
    max_epochs : int, default=100
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
        Share of the rows that `early_stopping` holds out, between 0 and 1.
    n_iter_no_change : int, default=20
        Epochs without improvement after which a member stops.
    tol : float, default=1e-4
        Smallest decrease of the validation loss that counts as improvement.
    max_restarts : int, default=3
        How often members whose loss becomes infinite, not a number or explodes are trained anew
        from another seed. Members that still diverge are left out, with a warning.
    normalize_y : bool, default=True
        Whether to standardise the targets for training. Outputs are in y's units all the same.
    callbacks : list of skorch callbacks, default=None
        Also as (name, callback) pairs.
    device : str, default="auto"
        Torch device; "auto" is CUDA when there is one.
    compile : bool or "auto", default="auto"
        "auto" replays training steps as CUDA graphs on a GPU and does nothing on a CPU; True
        passes them through ``torch.compile``, which takes seconds once; False does neither.
    verbose : int, default=0
        Whether skorch prints a line for each epoch.
    random_state : int, RandomState instance or None, default=None
    **kwargs
        ``module__<name>``, ``optimizer__<name>`` and ``callbacks__<callback>__<name>``.

    Attributes
    ----------
    n_members_ : int
        Number of members that were trained successfully.
    n_epochs_ : int
        Number of epochs that training was set to.
    n_restarts_ : ndarray of shape (n_members,)
        How often each member was restarted.
    best_epochs_ : ndarray of shape (`n_members_`,)
        Epoch of each member's weights, only with `early_stopping`.
    module_ : GaussianStack
        The members, as one torch module.
    net_ : skorch.NeuralNet
        The net around `module_`, built when asked for.
    history_ : list of dict
        One row for each epoch: losses (means over members, on the standardised scale), durations
        and the block of members trained.
    n_outputs_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)

    Notes
    -----
    Ctrl-C during fit keeps the members trained so far, as they are, and raises
    ``KeyboardInterrupt``; before the end of the first epoch the estimator stays unfitted.

    References
    ----------
    .. [1] Lakshminarayanan et al. (2017), "Simple and Scalable Predictive Uncertainty Estimation
           using Deep Ensembles".
    .. [2] Seitzer et al. (2022), "On the Pitfalls of Heteroscedastic Uncertainty Estimation with
           Probabilistic Neural Networks".

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

    _parameter_table = {
        **DistributionRegressor._parameter_table,
        "n_members": Number(Integral, 1),
        "inference": OneOf(("deep_ensemble",)),
        "prior_scale": Number(Real, 0, closed="neither", others=(np.inf,)),
        "beta": Number(Real, 0),
        "bootstrap": OneOf((True, False)),
        "early_stopping": OneOf((True, False)),
        "validation_fraction": Number(Real, 0, 1, closed="neither"),
        "n_iter_no_change": Number(Integral, 1),
        "tol": Number(Real, 0),
        "max_restarts": Number(Integral, 0),
    }

    _module_defaults = {"hidden_units": (50, 50), "activation": "tanh"}

    def __init__(
        self,
        n_members=20,
        *,
        module=MLP,
        inference="deep_ensemble",
        prior_scale=3.0,
        beta=0.5,
        bootstrap=False,
        optimizer="Adam",
        lr=0.01,
        lr_schedule="cosine",
        max_epochs=100,
        batch_size=32,
        clip_norm=None,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=20,
        tol=1e-4,
        max_restarts=3,
        normalize_y=True,
        callbacks=None,
        device="auto",
        compile="auto",
        verbose=0,
        random_state=None,
        **kwargs,
    ):
        self.n_members = n_members
        self.module = module
        self.inference = inference
        self.prior_scale = prior_scale
        self.beta = beta
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
        self.normalize_y = normalize_y
        self.callbacks = callbacks
        self.device = device
        self.compile = compile
        self.verbose = verbose
        self.random_state = random_state
        self._set_extra_params(kwargs)

    @with_callbacks
    def fit(self, X, y, sample_weight=None):
        """Train the members.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs, best standardised. float32 is computed in float32, all else in float64.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If a parameter or an argument is not what it may be, the module's output does not have
            two columns for each target, or every member diverged.
        KeyboardInterrupt
            On Ctrl-C, with what was trained kept.
        """
        self._check_parameters()
        X, y, weight = self._validate_fit_data(X, y, sample_weight)
        random_state = check_random_state(self.random_state)
        self.n_epochs_ = self.max_epochs
        train, valid = self._split(X, y, weight, random_state)
        trainer = _MemberTrainer(self, train, valid)
        n_blocks = -(-self.n_members // trainer.block_size)
        task = self._init_callback_context(max_subtasks=n_blocks * self.n_epochs_)
        task.call_on_fit_task_begin(estimator=self, X=X, y=y)
        try:
            trainer.train_all(random_state, task)
        except KeyboardInterrupt:
            if trainer.weights:
                self._gather(trainer)
            raise
        self._gather(trainer)
        task.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def _split(self, X, y, weight, random_state):
        """Training rows, and validation rows or None; an absent weight is None."""
        if not self.early_stopping:
            return (X, y, weight), None
        split = partial(
            train_test_split, test_size=self.validation_fraction, random_state=random_state
        )
        if weight is None:
            X_train, X_valid, y_train, y_valid = split(X, y)
            return (X_train, y_train, None), (X_valid, y_valid, None)
        parts = split(X, y, weight)
        return parts[::2], parts[1::2]

    def _block_size(self, n_rows: int) -> int:
        """How many members to train together on so many rows."""
        if self._device().type != "cpu":
            return self.n_members
        weights = weights_and_fan_ins(self._build_network([0]))
        widest = max((w.numel() // fan_in for w, fan_in in weights), default=1)
        return max(1, _BLOCK_ACTIVATIONS // (min(self.batch_size, n_rows) * widest))

    def _gather(self, trainer: _MemberTrainer) -> None:
        """Make one fitted module of the members that were trained."""
        members = [trainer.weights[m] for m in sorted(trainer.weights)]
        self.n_members_ = len(members)
        self.n_restarts_ = trainer.n_restarts
        self.history_ = trainer.history
        self.__dict__.pop("best_epochs_", None)
        if self.early_stopping:
            self.best_epochs_ = np.array([trainer.best_epochs[m] for m in sorted(trainer.weights)])
        stacked = {
            f"network.{name}": np.stack([member[name] for member in members]) for name in members[0]
        }
        scale = {"y_loc": trainer.y_loc, "y_scale": trainer.y_scale}
        scale = {name: value.astype(trainer.dtype) for name, value in scale.items()}
        self._load_weights({**stacked, **scale})

    def _build_network(self, seeds: list[int]) -> nn.Module:
        return stack(self._build_members(seeds))

    @property
    def _n_networks(self) -> int:
        return self.n_members_

    def _objective(self) -> Objective:
        return GaussianObjective(self.beta)


class GaussianObjective(Objective):
    """Negative log-likelihood of the targets under each member's Gaussian, or its beta-NLL."""

    def __init__(self, beta: float):
        super().__init__()
        self.beta = beta

    def forward(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Tensor:
        (y,) = targets
        # beta-NLL is no proper score: members are validated by the likelihood itself.
        return gaussian_nll(Gaussian.from_outputs(outputs), y, self.beta if self.training else 0.0)

    def loss_and_gradient(self, outputs: Tensor, targets: tuple[Tensor, ...]):
        (y,) = targets
        return gaussian_nll_and_gradient(outputs, y, self.beta if self.training else 0.0)


class _MemberTrainer:
    """Trains members block by block, anew where they diverge, and keeps what is trained.

    Attributes
    ----------
    weights : dict of int to dict of str to ndarray
        Parameters of each member that has been trained.
    n_restarts : ndarray of shape (n_members,)
    best_epochs : dict of int to int
    history : list of dict
    """

    def __init__(self, estimator: BayesianEnsembleRegressor, train, valid):
        self.estimator = estimator
        self.weights: dict[int, dict[str, np.ndarray]] = {}
        self.best_epochs: dict[int, int] = {}
        self.n_restarts = np.zeros(estimator.n_members, dtype=int)
        self.history: list[dict] = []
        X, y, weight = train
        self.block_size = estimator._block_size(len(X))
        self.n_rows = len(X) if weight is None else float(weight.sum())
        self.dtype = X.dtype
        self.y_loc, self.y_scale = estimator._target_scale(y, weight, X.dtype)
        self.train = self._as_tensors(train)
        self.valid = None if valid is None else self._as_tensors(valid)

    def _as_tensors(self, data):
        """Inputs, standardised targets, and weights of shape (1, n) or None."""
        X, y, weight = data
        y = (y - self.y_loc) / self.y_scale
        weight = None if weight is None else weight[None]
        return [None if array is None else self._tensor(array) for array in (X, y, weight)]

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.tensor(array.astype(self.dtype), device=self.estimator._device())

    def train_all(self, random_state: np.random.RandomState, task) -> None:
        """Train every member, those that diverge from up to `max_restarts` other seeds.

        The epochs of the first attempt are reported as subtasks of `task`.
        """
        estimator = self.estimator
        pending = list(range(estimator.n_members))
        for attempt in range(estimator.max_restarts + 1):
            seeds = random_state.randint(SEED_LIMIT, size=len(pending)).tolist()
            for block in _batched(list(zip(pending, seeds, strict=True)), self.block_size):
                self._train_block(dict(block), task if attempt == 0 else None)
            pending = [m for m in pending if m not in self.weights]
            if not pending:
                return
            if attempt < estimator.max_restarts:
                self.n_restarts[pending] += 1
                _warn_diverged(pending, "trained anew from another seed")
        if not self.weights:
            raise ValueError(
                f"Every member diverged, also after {estimator.max_restarts} restarts. Try a "
                f"smaller lr than {estimator.lr}, clip_norm, or other module parameters."
            )
        _warn_diverged(pending, f"left out after {estimator.max_restarts} restarts")

    def _train_block(self, seeds: dict[int, int], task) -> None:
        """Train the members that are the keys of `seeds`."""
        from .._engine import DivergenceGuard, MemberEarlyStopping, Rows, TaskPerEpoch

        estimator = self.estimator
        X, y, _weight = self.train
        module = estimator._build_module(
            list(seeds.values()), self._tensor(self.y_loc).cpu(), self._tensor(self.y_scale).cpu()
        )
        # Not the seed of the weights again: the order of the rows is another random draw.
        order_seeds = [seed + SEED_LIMIT for seed in seeds.values()]
        rows = Rows(X, (y,), self._weights_of_rows(seeds), estimator.batch_size, order_seeds)
        callbacks = [] if task is None else [TaskPerEpoch(task, estimator)]
        valid, stopping = None, None
        if self.valid is not None:
            X_valid, y_valid, weight_valid = self.valid
            valid = Rows(X_valid, (y_valid,), weight_valid)
            stopping = MemberEarlyStopping(estimator.n_iter_no_change, estimator.tol)
            callbacks.append(stopping)
        guard = DivergenceGuard(stopping)
        callbacks.append(guard)
        net = estimator._train(
            module,
            estimator._objective(),
            rows,
            valid,
            callbacks=callbacks,
            weight_decay=self._prior(module),
        )
        if net.interrupted_ and not any("train_loss" in row for row in net.history):
            raise KeyboardInterrupt  # before the end of the first epoch: nothing to keep
        self.history += [{**row, "members": list(seeds)} for row in net.history]
        weights = weights_of(module.network)
        for k, member in enumerate(seeds):
            if not guard.diverged_[k]:
                self.weights[member] = {name: value[k] for name, value in weights.items()}
                if stopping is not None:
                    self.best_epochs[member] = int(stopping.best_epoch_[k])
        if net.interrupted_:
            raise KeyboardInterrupt

    def _prior(self, module: nn.Module) -> list[tuple[nn.Parameter, float]]:
        """Weight decay of each layer that stands for the prior N(0, prior_scale^2 / fan_in)."""
        scale = self.estimator.prior_scale
        if np.isinf(scale):
            return []
        return [(w, fan_in / scale**2 / self.n_rows) for w, fan_in in weights_and_fan_ins(module)]

    def _weights_of_rows(self, seeds: dict[int, int]) -> Tensor | None:
        """Weights of the training rows: shared, (1, n), or of each member's bootstrap, (S, n)."""
        X, _, weight = self.train
        if not self.estimator.bootstrap:
            return weight
        n = len(X)
        shares = np.full(n, 1 / n) if weight is None else weight[0].cpu().double().numpy()
        counts = [
            np.random.RandomState(seed).multinomial(n, shares / shares.sum())
            for seed in seeds.values()
        ]
        return torch.tensor(np.stack(counts)).to(X)


def _batched(items: list, size: int) -> Iterator[list]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _warn_diverged(members: list[int], consequence: str) -> None:
    warnings.warn(
        f"The loss of member(s) {members} became infinite, not a number, or exploded; they are "
        f"{consequence}. A smaller lr or clip_norm may help.",
        ConvergenceWarning,
        stacklevel=4,
    )
