# SPDX-License-Identifier: BSD-3-Clause
"""Hydra+: one network with a head for each member of the teacher (Ferianc & Rodrigues, 2022)."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.base import clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_memory
from torch import Tensor

from .. import losses
from .._base import SEED_LIMIT, Objective, with_callbacks
from .._columns import standardisation
from .._parameters import Number, OneOf
from .._read_offs import DistributionRegressor
from .._teaching import as_teacher_rows, fit_teacher, seed_where_unset
from .._through import predict_members
from ..distributions import Gaussian
from ..ensembles import BayesianEnsembleRegressor
from ..modules import (
    MLP,
    GaussianStack,
    MultiHead,
    n_parameters,
    split_head,
    stack,
    weights_and_fan_ins,
)
from ..transfer import TransferSet

# Weights of the two spread-matching terms for `spread_weight=1`.
_RESIDUAL_WEIGHT = 0.5
_SPREAD_WEIGHT = 0.25

# For max_epochs="auto": how many rows the student is to see, and within how many epochs.
_ROWS_SEEN = 800_000
_EPOCHS_WITHIN = (50, 400)


class HydraPlusRegressor(DistributionRegressor):
    """Distil an ensemble into one network with a shared core and many heads (Hydra+ [1]_).

    Member n of the teacher is imitated by head n mod M. The loss is Eq 10 of [1]_, plus two terms
    of ours that match the spread of the heads to that of the members::

        (1 - alpha) L1 + alpha ((1 - beta) L2 + beta L3) + diversity_weight L4
            + spread_weight (residual mismatch / 2 + spread mismatch / 4)

    with L1 the label's likelihood, L2 the KL divergence between the aggregates, L3 the mean KL
    divergence between each member and its head, L4 how alike the heads' weights are; see
    :mod:`skdistill.losses` for each.

    Parameters
    ----------
    teacher : estimator, default=None
        A regressor with members: an unfitted one is cloned and fitted as `teacher_`, one in
        ``sklearn.frozen.FrozenEstimator`` is used as it is, None is a default
        :class:`BayesianEnsembleRegressor`.
    module : callable, default=MLP
        Builds the student from ``in_features``, ``out_features`` and what is given as
        ``module__<name>``, as an ``nn.Sequential``; for the MLP,
        ``module__hidden_units=(128, 128)`` and ``module__activation=("tanh", "silu")`` unless
        given.
    head_layers : int, default=1
        How many of the module's last layers with parameters belong to a head; the others are the
        core that the heads share.
    n_heads : int, default=None
        Number of heads M; None is one for each member. With fewer heads than members, member n
        goes to head n mod M; with more, head m imitates member m mod N. One head is plain
        distillation (Hinton's), which cannot tell the parts of the uncertainty.
    alpha : float, default=1.0
        Weight of the teacher against the labels, from 0 to 1.
    beta : float, default=0.5
        Weight of the individual members (L3) against their aggregate (L2), from 0 to 1.
    diversity_weight : float or tuple (weight, first_epoch, last_epoch), default=0.0
        Weight of L4 (lambda in [1]_), constant or growing linearly from 0 between two epochs.
    diversity : {"mean", "pairwise"}, default="mean"
        Whether L4 compares a head's weights with the heads' mean (Eq 9) or with each other head's.
    spread_weight : float, default=0.3
        Weight of the spread-matching terms, without which the student's epistemic variance comes
        out too small; it grows linearly to this over the epochs. 0 gives the paper's loss.
    jitter : float, default=0.7
        Largest standard deviation of the Gaussian noise added to the rows anew in every epoch, in
        units of each column's standard deviation. Every row draws its share of it, the square of a
        uniform number, so that many stay nearly as they are; the teacher is asked about the noisy
        rows.
    transfer_only : bool, default=False
        Whether the student learns from `X_transfer` instead of X and `X_transfer`.
    weight_decay : float, default=0.0
        L2 penalty on the weights of the student's layers; biases have none.
    max_epochs : int or "auto", default="auto"
        Number of epochs; "auto" shows the student 800,000 rows in all, but each of them at least
        50 and at most 400 times.
    optimizer, lr, lr_schedule, batch_size, clip_norm
        As in :class:`BayesianEnsembleRegressor`.
    normalize_y : bool, default=True
        Whether to standardise the targets for training. Outputs are in y's units all the same.
    memory : None, str or joblib.Memory, default=None
        Where to cache the fit of the teacher, so that a grid search over the student fits it once
        for each fold.
    callbacks, device, compile, n_threads, verbose
        As in :class:`BayesianEnsembleRegressor`.
    random_state : int, RandomState instance or None, default=None
        Unless None, it also seeds every ``random_state`` of the teacher that is None.
    **kwargs
        ``module__<name>``, ``optimizer__<name>`` and ``callbacks__<callback>__<name>``.

    Attributes
    ----------
    teacher_ : estimator
        The fitted teacher.
    n_heads_ : int
    n_epochs_ : int
        Number of epochs that training was set to.
    n_parameters_ : int
        Number of parameters of the student.
    module_ : GaussianStack
        The student, as a torch module.
    net_ : skorch.NeuralNet
        The net around `module_`, built when asked for.
    history_ : list of dict
        One row for each epoch.
    n_outputs_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)

    Notes
    -----
    Hydra is ``alpha=1, beta=1, diversity_weight=0, spread_weight=0, jitter=0``, and Hinton's
    distillation ``n_heads=1, alpha=1, beta=0, spread_weight=0, jitter=0``. Variances are softplus
    of a raw output where the paper has exponentials.

    Ctrl-C during the student's training keeps it as trained so far and raises
    ``KeyboardInterrupt``; before the end of its first epoch the student stays unfitted, with its
    `teacher_` kept. Ctrl-C during the teacher's fit keeps nothing.

    References
    ----------
    .. [1] Ferianc & Rodrigues (2022), "Simple Regularisation for Uncertainty-Aware Knowledge
           Distillation".

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor, predict_uncertainty
    >>> X, y = load_diabetes(return_X_y=True)
    >>> teacher = BayesianEnsembleRegressor(n_members=5, max_epochs=20)
    >>> student = HydraPlusRegressor(teacher, max_epochs=20, random_state=0)
    >>> student = make_pipeline(StandardScaler(), student).fit(X, y)
    >>> total, aleatoric, epistemic = predict_uncertainty(student, X[:3])
    >>> total.shape
    (3,)
    """

    _parameter_table = {
        **DistributionRegressor._parameter_table,
        "max_epochs": Number(Integral, 1, others=("auto",)),
        "head_layers": Number(Integral, 1),
        "n_heads": Number(Integral, 1, others=(None,)),
        "alpha": Number(Real, 0, 1),
        "beta": Number(Real, 0, 1),
        "diversity": OneOf(("mean", "pairwise")),
        "spread_weight": Number(Real, 0),
        "jitter": Number(Real, 0),
        "transfer_only": OneOf((True, False)),
        "weight_decay": Number(Real, 0),
    }
    # Bounded first, so that far from the data the student levels off as its teacher does.
    _module_defaults = {"hidden_units": (128, 128), "activation": ("tanh", "silu")}

    def __init__(
        self,
        teacher=None,
        *,
        module=MLP,
        head_layers=1,
        n_heads=None,
        alpha=1.0,
        beta=0.5,
        diversity_weight=0.0,
        diversity="mean",
        spread_weight=0.3,
        jitter=0.7,
        transfer_only=False,
        weight_decay=0.0,
        optimizer="Adam",
        lr=0.01,
        lr_schedule="cosine",
        max_epochs="auto",
        batch_size=32,
        clip_norm=5.0,
        normalize_y=True,
        memory=None,
        callbacks=None,
        device="auto",
        compile="auto",
        n_threads="auto",
        verbose=0,
        random_state=None,
        **kwargs,
    ):
        self.teacher = teacher
        self.module = module
        self.head_layers = head_layers
        self.n_heads = n_heads
        self.alpha = alpha
        self.beta = beta
        self.diversity_weight = diversity_weight
        self.diversity = diversity
        self.spread_weight = spread_weight
        self.jitter = jitter
        self.transfer_only = transfer_only
        self.weight_decay = weight_decay
        self.optimizer = optimizer
        self.lr = lr
        self.lr_schedule = lr_schedule
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.clip_norm = clip_norm
        self.normalize_y = normalize_y
        self.memory = memory
        self.callbacks = callbacks
        self.device = device
        self.compile = compile
        self.n_threads = n_threads
        self.verbose = verbose
        self.random_state = random_state
        self._set_extra_params(kwargs)

    @with_callbacks
    def fit(self, X, y, sample_weight=None, X_transfer=None):
        """Fit the teacher, if it is not fitted, and distil it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs, best standardised. float32 is computed in float32, all else in float64.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, in the teacher's fit and in the student's loss.
        X_transfer : array-like of shape (n_rows, n_features) or TransferSet, default=None
            Further rows, without labels, on which the student imitates the teacher, with weight
            1. In a cross-validation wrap them as :class:`skdistill.transfer.TransferSet`.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If a parameter or an argument is not what it may be, the teacher is a classifier, has
            no members or was fitted on other columns, the module's output does not have two
            columns for each target, or the student diverged.
        KeyboardInterrupt
            On Ctrl-C; during the student's training with what was trained kept.
        """
        self._check_parameters()
        self._check_weights_of_terms()
        random_state = check_random_state(self.random_state)
        self.__dict__.pop("teacher_", None)
        raw_X, raw_y = X, y
        X, y, weight = self._validate_fit_data(X, y, sample_weight)
        if self._y_is_1d and np.asarray(raw_y).ndim == 2:
            raw_y = np.asarray(raw_y).ravel()  # a column: warned of once, not by the teacher again
        X_transfer = self._validate_transfer(X_transfer, X.dtype)
        # A module that does not fit is found before the teacher takes its time.
        self._build_module([0], torch.float64)
        task = self._init_callback_context(max_subtasks=2)
        task.call_on_fit_task_begin(estimator=self, X=raw_X, y=raw_y)
        self._fit_teacher(raw_X, raw_y, sample_weight, task, random_state)
        dress = as_teacher_rows(raw_X, getattr(self.teacher_, "feature_names_in_", None))
        self._distil(X, y, weight, X_transfer, dress, task, random_state)
        task.call_on_fit_task_end(estimator=self, X=raw_X, y=raw_y)
        return self

    def _check_weights_of_terms(self) -> None:
        _check_diversity_weight(self.diversity_weight)
        if self.transfer_only and self.alpha < 1:
            raise ValueError(
                "alpha must be 1 with transfer_only=True, whose rows have no labels; got "
                f"{self.alpha!r}."
            )

    def _validate_transfer(self, X_transfer, dtype) -> np.ndarray:
        """Transfer rows as an array of shape (n_rows, n_features); none for None."""
        if isinstance(X_transfer, TransferSet):
            X_transfer = X_transfer.rows
        if X_transfer is None:
            if self.transfer_only:
                raise ValueError("transfer_only=True needs X_transfer in fit, got None.")
            return np.empty((0, self.n_features_in_), dtype=dtype)
        names = getattr(X_transfer, "columns", None)
        X_transfer = check_array(X_transfer, dtype=dtype, input_name="X_transfer")
        if X_transfer.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X_transfer must have {self.n_features_in_} columns as X has, got "
                f"{X_transfer.shape[1]}."
            )
        self._check_names(names, "X_transfer has")
        return X_transfer

    def _fit_teacher(self, X, y, sample_weight, task, random_state) -> None:
        seed = int(random_state.randint(SEED_LIMIT))
        teacher = BayesianEnsembleRegressor() if self.teacher is None else clone(self.teacher)
        if is_classifier(teacher):
            raise ValueError(
                f"teacher must be a regressor to teach {type(self).__name__}; "
                f"{type(teacher).__name__} is a classifier."
            )
        if self.random_state is not None:
            seed_where_unset(teacher, seed)
        subtask = task.subcontext(task_name="teacher")
        memory = None if isinstance(teacher, FrozenEstimator) else self.memory
        fit = check_memory(memory).cache(fit_teacher, ignore=["task", "student"])
        self.teacher_ = fit(teacher, X, y, sample_weight, subtask, self)
        self._check_teacher()

    def _check_teacher(self) -> None:
        n_features = getattr(self.teacher_, "n_features_in_", self.n_features_in_)
        if n_features != self.n_features_in_:
            raise ValueError(
                f"teacher was fitted on {n_features} columns, but X has {self.n_features_in_}."
            )
        names = getattr(self.teacher_, "feature_names_in_", None)
        self._check_names(names, "teacher was fitted on")

    def _check_names(self, names, whose: str) -> None:
        """Hold the names of columns, if there are any, against those of X."""
        own_names = getattr(self, "feature_names_in_", None)
        if names is not None and own_names is not None and list(names) != list(own_names):
            raise ValueError(f"{whose} the columns {list(names)}, but X has {list(own_names)}.")

    def _distil(self, X, y, weight, X_transfer, dress, task, random_state) -> None:
        """Train the student on the teacher's answers to rows as `dress` hands them over."""
        from .._engine import DivergenceGuard, TaskPerEpoch

        y_loc, y_scale = self._target_scale(y, weight, X.dtype)

        def ask(rows: np.ndarray) -> np.ndarray:
            """Standardised members of the teacher, (n, N, t, 2)."""
            members = predict_members(self.teacher_, dress(rows)).astype(np.float64)
            _check_members(members, self.n_outputs_)
            members[..., 0] = (members[..., 0] - y_loc) / y_scale
            members[..., 1] /= y_scale**2
            return members.astype(rows.dtype)

        n_members = self._count_members(ask, X[:1])
        self.n_heads_ = n_members if self.n_heads is None else self.n_heads
        seeds = random_state.randint(SEED_LIMIT, size=self.n_heads_ + 1).tolist()
        rows = self._transfer_rows(X, (y - y_loc) / y_scale, weight, X_transfer, ask, seeds.pop())
        buffers = {"y_loc": torch.tensor(y_loc), "y_scale": torch.tensor(y_scale)}
        module = self._build_module(seeds, rows.X.dtype, buffers)
        self.n_epochs_ = self._count_epochs(len(rows))
        guard = DivergenceGuard()
        subtask = task.subcontext(task_name="student", max_subtasks=self.n_epochs_)
        subtask.call_on_fit_task_begin(estimator=self)
        net = self._train(
            module,
            self._objective(n_members),
            rows,
            callbacks=[TaskPerEpoch(subtask, self), guard],
            weight_decay=[(w, self.weight_decay) for w, _ in weights_and_fan_ins(module)],
        )
        self._keep(net, module, guard)
        subtask.call_on_fit_task_end(estimator=self)

    def _count_members(self, ask, row: np.ndarray) -> int:
        try:
            return ask(row).shape[1]
        except TypeError as error:
            raise TypeError(
                "teacher must have members to imitate; of "
                f"{type(self.teacher_).__name__} was heard: {error}"
            ) from error

    def _count_epochs(self, n_rows: int) -> int:
        if self.max_epochs != "auto":
            return self.max_epochs
        low, high = _EPOCHS_WITHIN
        return min(max(_ROWS_SEEN // n_rows, low), high)

    def _transfer_rows(self, X, y, weight, X_transfer, ask, seed):
        """Rows to learn from, with their labels and whether they have one."""
        from .._engine import TaughtRows

        labelled = np.repeat([1.0, 0.0], [len(X), len(X_transfer)])
        weight = np.ones(len(X)) if weight is None else weight
        weight = np.concatenate([weight, np.ones(len(X_transfer))])
        X = np.concatenate([X, X_transfer])
        y = np.concatenate([y, np.zeros((len(X_transfer), y.shape[1]))])
        if self.transfer_only:
            X, y, weight, labelled = (a[labelled == 0] for a in (X, y, weight, labelled))
        noise = self.jitter * standardisation(X, weight, constant=0.0)[1]

        def on_device(values: np.ndarray) -> Tensor:
            return torch.tensor(values.astype(X.dtype), device=self._device())

        return TaughtRows(
            on_device(X),
            (on_device(y), on_device(labelled)),
            None if (weight == weight[0]).all() else on_device(weight[None]),
            self.batch_size,
            [seed],
            teacher=ask,
            noise=on_device(noise),
        )

    def _keep(self, net, module: GaussianStack, guard) -> None:
        """Make the trained student the fitted module; pass a Ctrl-C on."""
        if net.interrupted_ and not any("train_loss" in row for row in net.history):
            raise KeyboardInterrupt  # before the end of the first epoch: nothing to keep
        if guard.diverged_.any():
            if net.interrupted_:
                raise KeyboardInterrupt
            raise ValueError(
                "The student's loss became infinite, not a number, or exploded. Try a smaller lr "
                f"than {self.lr} or clip_norm than {self.clip_norm}; teacher_ is kept."
            )
        self.module_ = module
        self.history_ = list(net.history)
        self.n_parameters_ = n_parameters(module)
        if net.interrupted_:
            raise KeyboardInterrupt

    def _build_network(self, seeds: list[int]) -> MultiHead:
        head_layers = self._recipe["head_layers"]
        networks = self._build_members(seeds)
        cores, heads = zip(*(split_head(net, head_layers) for net in networks), strict=True)
        return MultiHead(stack(cores[:1]), stack(heads, lead=(1, len(heads))))

    @property
    def _n_networks(self) -> int:
        return self.n_heads_

    def _objective(self, n_members: int | None = None) -> HydraObjective:
        n_members = self.n_heads_ if n_members is None else n_members
        return HydraObjective(self, n_members, self.n_heads_)


class HydraObjective(Objective):
    """The loss of Hydra+ (Eq 10) with spread matching.

    Targets are the teacher's members (S, n, N, t, 2), the labels (S, n, t), and whether a row has
    a label (S, n). Outputs are the heads', (S, M, n, 2 t).

    Parameters
    ----------
    settings : HydraPlusRegressor
        Whose weights of the terms to use.
    n_members, n_heads : int
    """

    member_index: Tensor
    head_index: Tensor
    diversity_weight: Tensor
    spread_weight: Tensor

    def __init__(self, settings, n_members: int, n_heads: int):
        super().__init__()
        self.settings = settings
        self.in_order = n_members == n_heads
        member_index, head_index = losses.pairing(n_members, n_heads)
        self.register_buffer("member_index", member_index)
        self.register_buffer("head_index", head_index)
        self.register_buffer("diversity_weight", torch.zeros(()))
        self.register_buffer("spread_weight", torch.zeros(()))
        self.begin_epoch(0)

    def begin_epoch(self, epoch: int) -> None:
        settings = self.settings
        self.diversity_weight.fill_(_diversity_weight(settings.diversity_weight, epoch))
        # Means first: in early epochs the steep gradients of the spread would drown theirs.
        self.spread_weight.fill_(settings.spread_weight * (epoch + 1) / settings.n_epochs_)

    def forward(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Tensor:
        total = torch.zeros_like(targets[-1])
        for weight, loss, _, arguments in self._terms(Gaussian.from_outputs(outputs), *targets):
            total = total + weight * loss(*arguments)
        return total

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        heads = losses.Mixture(*Gaussian.from_outputs(outputs))
        total = torch.zeros_like(targets[-1])
        d_mean, d_variance = torch.zeros_like(heads.mean), torch.zeros_like(heads.mean)
        for weight, _, loss_and_gradient, arguments in self._terms(heads, *targets):
            loss, gradient = loss_and_gradient(*arguments)
            for value, more in zip((total, d_mean, d_variance), (loss, *gradient), strict=True):
                if isinstance(weight, Tensor):
                    value.addcmul_(more, weight)
                else:
                    value.add_(more, alpha=weight)
        return total, losses.gradient_of_outputs(outputs, Gaussian(d_mean, d_variance))

    def _terms(self, heads: Gaussian, answers: Tensor, y: Tensor, labelled: Tensor):
        """Yield each term's weight, its function without and with gradient, and their arguments."""
        members = losses.Mixture(*answers.transpose(-4, -3).unbind(-1))  # (S, N, n, t)
        settings = self.settings
        alpha, beta = settings.alpha, settings.beta
        both = members, heads
        paired = both if self.in_order else (*both, (self.member_index, self.head_index))
        L1 = _labelled_correctness, _labelled_correctness_and_gradient
        L2 = losses.aggregation, losses.aggregation_and_gradient
        L3 = losses.individuality, losses.individuality_and_gradient
        residual = losses.residual_mismatch, losses.residual_mismatch_and_gradient
        spread = losses.spread_mismatch, losses.spread_mismatch_and_gradient
        if alpha < 1:
            yield 1 - alpha, *L1, (heads, y, labelled)
        if alpha > 0 and beta < 1:
            yield alpha * (1 - beta), *L2, both
        if alpha > 0 and beta > 0:
            yield alpha * beta, *L3, paired
        if settings.spread_weight > 0:
            yield _RESIDUAL_WEIGHT * self.spread_weight, *residual, paired
            yield _SPREAD_WEIGHT * self.spread_weight, *spread, both

    def penalty(self, module: Any) -> Tensor | None:
        if self.settings.diversity_weight == 0:
            return None
        weights = module.network.head_weights()
        return self.diversity_weight * losses.diversity(weights, self.settings.diversity)  # L4


def _labelled_correctness(heads: Gaussian, y: Tensor, labelled: Tensor) -> Tensor:
    """L1 of the rows that have a label, 0 for the others."""
    return labelled * losses.correctness(heads, y)


def _labelled_correctness_and_gradient(
    heads: Gaussian, y: Tensor, labelled: Tensor
) -> tuple[Tensor, Gaussian]:
    loss, gradient = losses.correctness_and_gradient(heads, y)
    share = labelled.unsqueeze(-2).unsqueeze(-1)
    return labelled * loss, Gaussian(share * gradient.mean, share * gradient.variance)


def _diversity_weight(setting, epoch: int) -> float:
    """Weight of L4 in an epoch: constant, or on the ramp (weight, first_epoch, last_epoch)."""
    if isinstance(setting, Real):
        return float(setting)
    weight, first, last = setting
    return weight * min(max((epoch - first) / (last - first), 0.0), 1.0)


def _check_diversity_weight(setting) -> None:
    is_ramp = isinstance(setting, (tuple, list)) and len(setting) == 3
    weight, first, last = setting if is_ramp else (setting, 0, 1)
    numbers = all(isinstance(value, Real) for value in (weight, first, last))
    if not (numbers and weight >= 0 and 0 <= first < last):
        raise ValueError(
            "diversity_weight must be a number that is not negative, or a tuple (weight, "
            f"first_epoch, last_epoch) with 0 <= first_epoch < last_epoch; got {setting!r}."
        )


def _check_members(members: np.ndarray, n_targets: int) -> None:
    if members.ndim != 4 or members.shape[2:] != (n_targets, 2):
        raise ValueError(
            f"teacher must predict members of shape (n, S, {n_targets}, 2), a mean and a variance "
            f"for each of S members and {n_targets} target(s); got {members.shape}."
        )
    if not (np.isfinite(members).all() and (members[..., 1] > 0).all()):
        raise ValueError(
            "teacher must predict finite means and positive, finite variances; got means from "
            f"{members[..., 0].min():.3g} to {members[..., 0].max():.3g} and variances from "
            f"{members[..., 1].min():.3g} to {members[..., 1].max():.3g}."
        )
