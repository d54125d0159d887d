# SPDX-License-Identifier: BSD-3-Clause
"""Hydra+: one network with a head for each member of the teacher (Ferianc & Rodrigues, 2022)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from torch import Tensor

from .. import losses
from .._estimator.base import Fitted, ObservedTask, available_if
from .._method.plan import LARGE_LOSS, NetworkRecipe, Objective, Plan, TrainingBudget
from .._method.task import RegressionTask, Task
from .._utils.typing import Callbacks, Folds, Memory, ModelClass, OptimizerClass, RandomStateLike
from .._utils.validation import OneOf, SettingsRule, value_at_epoch
from ..distributions import EmpiricalGaussian, Gaussian
from ..ensembles import BayesianEnsembleClassifier, BayesianEnsembleRegressor
from ..losses import Term, weighted_sum
from ..modules import MLP, DistributionStack, MultiHead, split_head, stack
from ..pruning import GroupLasso
from ..settings import Heads, HydraLoss, Optimizer, Runtime
from ..transfer import GaussianNoise, TransferMaker, TransferOnly
from ._base import IncrementalDistiller, has_fitted_teacher
from ._spec import FitSpec
from ._student import train_student
from ._teacher import MemberPredictions

# See doc/design.rst.
_RESIDUAL_FLOOR, _SPREAD_FLOOR = 1e-4, 1e-5  # added to epistemic variances of standardised targets
_RESIDUAL_WEIGHT = 0.5  # of the mismatch of residuals for numbers, for `spread_weight=1`
_SPREAD_WEIGHT = 0.25  # of the mismatch of spreads, likewise
_LARGEST_LOG_GAIN = math.log(10.0)  # bound of the logarithm of the gain of the epistemic variance
_SHARE_KEPT = 0.5  # of a head's variance, at least, where the gain takes from it
_MOST_HEADS = 20  # of heads="auto"
_CHUNK = 2**17  # outputs of the samples whose loss for classes is computed at a time


class HydraPlus(IncrementalDistiller):
    """Base of the classifier and the regressor, which have the same parameters."""

    _parameter_table = {
        **IncrementalDistiller._parameter_table,
        "heads": SettingsRule(Heads, Heads._parameter_table["n_heads"]),
        "loss": SettingsRule(HydraLoss, OneOf((None,))),
    }
    _auto_transfer = {"classifier": GaussianNoise(share_power=1.5)}

    def __init__(
        self,
        teacher: BaseEstimator | None = None,
        *,
        module: ModelClass = MLP,
        heads: int | str | Heads | None = "auto",
        loss: HydraLoss | None = None,
        ddof: int = 1,
        transfer: str | TransferMaker | TransferOnly | None = "auto",
        teacher_cv: Folds = None,
        calibration_fraction: float | None = None,
        pruning: GroupLasso | None = None,
        optimizer: str | OptimizerClass | Optimizer = "Adam",
        lr: float | str = "auto",
        max_epochs: int | str = "auto",
        max_time: float | None = None,
        batch_size: int | str = "auto",
        normalize: bool | str = True,
        categorical_features: str | ArrayLike | None = "from_dtype",
        memory: str | Memory | None = None,
        warm_start: bool = False,
        callbacks: Callbacks = None,
        runtime: Runtime | None = None,
        verbose: int | bool = 0,
        random_state: RandomStateLike = None,
        **kwargs: object,
    ):
        self._set_arguments(locals())

    def _default_teacher(self) -> BaseEstimator:
        is_classifier = self._kind == "classifier"
        ensemble = BayesianEnsembleClassifier if is_classifier else BayesianEnsembleRegressor
        # It reads X as the student does, and always standardises y.
        normalize = True if self.normalize in (True, "X") else "y"
        return ensemble(normalize=normalize, categorical_features=self.categorical_features)

    def _plan_of(self, task: Task) -> HydraPlan:
        """Return the plan of a student, as far as it is known before its teacher is fitted."""
        loss = copy.copy(HydraLoss.of(self.loss))
        if isinstance(self.transfer, TransferOnly) and loss.teacher_weight < 1:
            raise ValueError(
                "loss__teacher_weight must be 1 with transfer=TransferOnly(...), whose samples "
                f"have no labels; got {loss.teacher_weight!r}."
            )
        heads = self.heads if isinstance(self.heads, Heads) else Heads(self.heads)
        wanted, ddof = heads.n_heads, int(self.ddof)
        return HydraPlan(task, heads.head_layers, loss, wanted_heads=wanted, ddof=ddof)

    def _stages(
        self, spec: FitSpec, predictions: MemberPredictions, task: ObservedTask
    ) -> Iterator[Fitted]:
        plan = spec.plan.of_members(predictions.count(spec.X))
        return train_student(spec, plan, predictions, task, n_heads_=plan.n_heads)


class HydraPlusRegressor(RegressorMixin, HydraPlus):
    """Distil an ensemble of regressors into one network with a shared core and many heads [1]_.

    Head n mod M imitates member n of the teacher. The loss is Eq 10 of [1]_, plus two terms of this
    package that match the spread of the heads to that of the members::

        (1 - alpha) L1 + alpha ((1 - beta) L2 + beta L3) + diversity_weight L4
            + spread_weight (residual mismatch / 2 + spread mismatch / 4)

    with L1 the label's likelihood, L2 the KL divergence between the aggregates, L3 the mean KL
    divergence between each member and its head, and L4 how similar the heads' weights are; see
    :mod:`skdistill.losses` for each. One more head predicts a gain. It multiplies the heads'
    epistemic variance to match the members' scale, and is part of the spread mismatch. What it adds
    is subtracted from the heads' variances, so that the total variance does not change.

    Parameters
    ----------
    teacher : estimator, default=None
        A regressor: an unfitted one is cloned and fitted as `teacher_`, one in
        ``sklearn.frozen.FrozenEstimator`` is used as it is, None is a default
        :class:`BayesianEnsembleRegressor` that reads columns as the student does. Forests, bagging
        and lists of fitted models have members too, see :func:`skdistill.teachers.as_teacher`.
    module : callable, default=MLP
        Builds the student from ``in_features``, ``out_features`` and the parameters
        ``module__<name>``, as an ``nn.Sequential``; the MLP has, unless given,
        ``module__hidden_units=(128, 128)`` and ``module__activation=("tanh", "silu")``.
    heads : int, "auto", None or Heads, default="auto"
        Number of heads M, or :class:`skdistill.settings.Heads`; None is one for each member, "auto"
        also, but at most 20, which then imitate several members each.
    loss : HydraLoss, default=None
        Weights of its terms; None is :class:`skdistill.settings.HydraLoss` with its defaults.
    ddof : {0, 1}, default=1
        Delta degrees of freedom of the epistemic variance that the student learns: the squared
        deviations of S members are divided by S - ddof. 1 estimates the variance of infinitely many
        members without bias; 0 imitates the teacher's own, (S - 1) / S of it on average.
    transfer : {"auto", "noise", "mixup", "munge"}, TransferMaker, TransferOnly or None, \
            default="auto"
        How further samples are generated from X and `X_transfer`, for the teacher to predict, up to
        20 for each of these (19 by noise) and about 100,000 in all, see :mod:`skdistill.transfer`.
        They are generated once, and are dealt in turn: those of an epoch are X, or one further
        sample for each. "noise" adds Gaussian noise to the samples, which keep their labels.
        The others generate as many samples again, without labels. "auto" is
        ``GaussianNoise(correlated=True, categorical="auto")``, or None for more than 50,000
        samples, and with `member_predictions`, which are known for X alone; of a teacher that has
        trees, or mixes models, half of the further samples are from between neighbours, by
        :class:`~skdistill.transfer.Munge`. The settings of an object can be searched over, as
        ``transfer__scale``. :class:`~skdistill.transfer.TransferOnly` keeps the student from X.
    pruning : GroupLasso, default=None
        How hidden units are removed, see :class:`skdistill.pruning.GroupLasso`; None removes none.
    max_epochs : int or "auto", default="auto"
        Number of epochs; "auto" is 9,000 over the root of the number of samples, between 10 and
        400. Where the teacher's variance is below .003 of that of y, ``lr="auto"`` is less by the
        fourth root of this ratio r, but at most four times; "auto" has r times as many epochs then,
        and r^2 / 2 times where r is above 2. With a given number lr is less by no more than that
        exceeds what is usual. Students of trees have twice as many.
    max_time : float, default=None
        Seconds that `fit` may take, as in :class:`BayesianEnsembleRegressor`, that of the teacher
        included. An ensemble that is fitted here, without a `max_time` of its own, gets half of the
        time, which the fits of `teacher_cv` share; others take as long as they take. The student
        has what is left, with `pruning` a part of it for what follows that; with
        `calibration_fraction` each of the two students has half of all. Not read by `partial_fit`.
    batch_size : int or "auto", default="auto"
        Rows of a minibatch; "auto" is 128, or a third of the rows if that is less, but at least 32;
        on tables of more than 19,200 samples it is one in 150 of them, up to 256.
    lr : float or "auto", default="auto"
        Learning rate; "auto" is .01, and for layers whose units have more than 150 inputs 1.5 over
        their number. See `max_epochs` for tables next to without noise.
    optimizer, callbacks, runtime, normalize, categorical_features, verbose
        As in :class:`BayesianEnsembleRegressor`. The teacher gets the columns as they are, and
        prints as much.
    memory : None, str or joblib.Memory, default=None
        Where the fit of the teacher is cached, so that a grid search over the student fits it once
        for each fold.
    teacher_cv : int, cross-validation splitter or iterable, default=None
        Folds for out-of-fold predictions of X, each by a clone of the teacher that was fitted
        without the sample: members of an overfitted teacher agree on the samples that they were
        fitted on, and disagree on others alone. `teacher_` is fitted on all samples and predicts
        `X_transfer` and the samples that `transfer` generates, which are used besides X then, with
        noise too.
    calibration_fraction : float, default=None
        Share of the samples, in (0, 1), on which a second student, fitted without them, is
        calibrated; this one takes the values over, as ``TunedThresholdClassifierCV`` does with
        ``refit=True``: the scale and power of the epistemic part by the members, and the
        temperature of the rest by the labels, see `calibration_`. So `fit` takes twice as long, and
        a teacher is fitted without the samples too. One in a ``FrozenEstimator`` is taken as it
        is: the temperature holds for new samples only if it was not fitted on X. Samples of classes
        are stratified. Not with batches, `member_predictions` and `partial_fit`.
    warm_start : bool, default=False
        Whether `fit` goes on from the student of the fit before, as in
        :class:`DistributionDistiller`.
    random_state : int, RandomState instance or None, default=None
        Unless None, it also seeds every ``random_state`` of the teacher that is None.
    **kwargs
        ``module__<name>``, ``optimizer__<name>`` and ``callbacks__<callback>__<name>``.

    Attributes
    ----------
    teacher_ : estimator
        The fitted teacher.
    n_heads_ : int
        Number of heads of the student.
    calibration_ : Calibration
        With `calibration_fraction`: the numbers `scale`, `power` and `temperature`, tuples of them
        for several targets. Members' aleatoric variances are multiplied by the temperature, and the
        epistemic part e becomes ``scale * e ** power``, in units of y's variance in training if
        `normalize` covers y.
    module_ : GaussianStack
        The student, as a torch module.
    n_epochs_, n_parameters_, flops_, net_, history_, n_outputs_, n_features_in_, feature_names_in_
        As in :class:`DistributionDistiller`.

    Notes
    -----
    Hydra and Hinton's distillation: see :class:`skdistill.settings.HydraLoss`. Variances are
    softplus of a raw output where the paper has exponentials.

    Ctrl-C raises ``KeyboardInterrupt`` and keeps the student as trained so far, or before the end
    of its first epoch `teacher_` alone, and during the teacher's fit nothing.

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

    _kind = "regressor"
    _parameter_table = {
        **HydraPlus._parameter_table,
        "loss": SettingsRule(
            HydraLoss, OneOf((None,)), ("aggregate_temperature", "member_temperature")
        ),
    }

    @available_if(has_fitted_teacher)
    def partial_fit(  # type: ignore[override]  # it has no classes
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Train for one epoch on these samples, as :meth:`DistributionDistiller.partial_fit` does.

        Parameters
        ----------
        X, y, sample_weight : as in :meth:`fit`

        Returns
        -------
        self
        """
        return self._fit(X, y, sample_weight, is_pass=True)


class HydraPlusClassifier(ClassifierMixin, HydraPlus):
    """Distil an ensemble of classifiers into one network with a shared core and many heads [1]_.

    Head n mod M imitates member n of the teacher. The loss is Eq 10 of [1]_, plus a term of this
    package that matches the heads' mutual information to that of the members::

        (1 - alpha) L1 + alpha ((1 - beta) L2 + beta L3) + diversity_weight L4
            + spread_weight (log MI of the heads - log MI of the members)^2

    with L1 the label's cross-entropy, L2 that between the aggregates, L3 the mean one between each
    member and its head, both softened by a temperature, and L4 how similar the heads' weights are;
    see :mod:`skdistill.losses` for each. Without the last term, distillation keeps the ranking by
    epistemic uncertainty, but not its scale.

    Parameters
    ----------
    teacher : estimator, default=None
        As in :class:`HydraPlusRegressor`, but a classifier; None is a default
        :class:`BayesianEnsembleClassifier`.
    module : callable, default=MLP
        As in :class:`HydraPlusRegressor`, but for the MLP ``module__hidden_units=(192, 128)`` and
        ``module__activation=("relu", "silu")``.
    ddof : {0, 1}, default=1
        As in :class:`HydraPlusRegressor`, of the members' logits.
    heads, loss, teacher_cv, calibration_fraction, memory, warm_start, pruning, lr, max_epochs
        As in :class:`HydraPlusRegressor`.
    max_time, batch_size, optimizer, callbacks, runtime, normalize, categorical_features, verbose
        As in :class:`HydraPlusRegressor`.
    random_state : int, RandomState instance or None, default=None
    transfer : str, TransferMaker, TransferOnly or None, default="auto"
        As in :class:`HydraPlusRegressor`, but "auto" is a little more noise, of each column by
        itself, on large tables too: ``GaussianNoise(share_power=1.5)``.
    **kwargs
        ``module__<name>``, ``optimizer__<name>`` and ``callbacks__<callback>__<name>``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    teacher_, n_heads_
        As in :class:`HydraPlusRegressor`.
    calibration_ : Calibration
        With `calibration_fraction`: the numbers `scale`, `power` and `temperature`. Members' logits
        are divided by the temperature, and then spread so that the mutual information e becomes
        about ``scale * e ** power``.
    module_ : CategoricalStack
        The student, as a torch module.
    n_epochs_, n_parameters_, flops_, net_, history_, n_features_in_, feature_names_in_
        As in :class:`DistributionDistiller`.

    Notes
    -----
    Ctrl-C: see :class:`HydraPlusRegressor`.

    References
    ----------
    .. [1] Ferianc & Rodrigues (2022), "Simple Regularisation for Uncertainty-Aware Knowledge
           Distillation".

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skdistill import BayesianEnsembleClassifier, HydraPlusClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> teacher = BayesianEnsembleClassifier(n_members=5, max_epochs=20)
    >>> student = HydraPlusClassifier(teacher, max_epochs=20, random_state=0).fit(X, y)
    >>> total, aleatoric, epistemic = student.predict_uncertainty(X[:3])
    >>> total.shape
    (3,)
    """

    _kind = "classifier"


@dataclass(frozen=True)
class HydraPlan(Plan):
    """A core with heads; member n is imitated by head n mod M.

    With a gain one more head, the last, tells by which factor the members' epistemic variance
    exceeds that of the heads, which miss some of what sets the members apart.
    """

    task: Task
    head_layers: int
    loss: HydraLoss
    n_networks: int = 1  # heads M, and one more with a gain; 1 before the teacher is fitted
    n_members: int = 1  # of the teacher
    has_gain: bool = False
    calibration: Any = None  # of the fitted student
    wanted_heads: Any = "auto"  # see `Heads`
    ddof: int = 0

    def of_members(self, n_members: int) -> HydraPlan:
        """Return the plan of a student of so many members, known when they are fitted."""
        words: dict[Any, int] = {"auto": min(n_members, _MOST_HEADS), None: n_members}
        n_heads: int = words.get(self.wanted_heads, self.wanted_heads)
        is_numeric = isinstance(self.task, RegressionTask)
        has_gain = is_numeric and n_heads > 1 and self.loss.spread_weight > 0
        return replace(self, n_networks=n_heads + has_gain, n_members=n_members, has_gain=has_gain)

    @property
    def takes_functions(self) -> bool:  # type: ignore[override]  # a constant in the base
        return self.wanted_heads != 1

    @property
    def n_heads(self) -> int:  # type: ignore[override]  # a constant in the base
        return self.n_networks - self.has_gain

    @property
    def tells_parts(self) -> bool:  # type: ignore[override]  # a constant in the base
        return self.n_heads > 1

    @property
    def read(self) -> Callable[[Tensor], Any] | None:  # type: ignore[override]  # a constant in the base
        return gained if self.has_gain else None

    def read_mean(self, outputs: Tensor) -> Tensor:
        return outputs.narrow(0, 0, self.n_heads).narrow(2, 0, self.task.size).mean(dim=0)

    def build(self, recipe: NetworkRecipe, seeds: Sequence[int]) -> MultiHead:
        networks = recipe.build(seeds)
        cores, heads = zip(*(split_head(net, self.head_layers) for net in networks), strict=True)
        return MultiHead(stack(cores[:1]), stack(heads, lead=(1, len(heads))))

    def objective(self, module: DistributionStack, training_budget: TrainingBudget) -> Objective:
        is_numeric = isinstance(self.task, RegressionTask)
        kind = GaussianHydraObjective if is_numeric else CategoricalHydraObjective
        return kind(self, training_budget.n_epochs, training_budget.refinement)


class HydraObjective(Objective):
    """The loss of Hydra+ (Eq 10) with a term that matches spreads; subclasses define the terms.

    Targets are the teacher's members (S, n, N, ...), the labels (S, n, ...), and whether a sample
    has a label (S, n). Outputs are the heads', (S, M, n, ...).
    """

    member_index: Tensor
    head_index: Tensor
    diversity_weight: Tensor
    spread_weight: Tensor

    def __init__(self, plan: HydraPlan, n_epochs: int, low_noise_factor: float):
        super().__init__()
        self.plan = plan
        self.n_epochs = n_epochs
        self.residual_floor = _RESIDUAL_FLOOR / low_noise_factor**2
        self.spread_floor = _SPREAD_FLOOR / low_noise_factor**2
        self.in_order = plan.n_members == plan.n_heads
        member_index, head_index = losses.pairing(plan.n_members, plan.n_heads)
        self.register_buffer("member_index", member_index)
        self.register_buffer("head_index", head_index)
        self.register_buffer("diversity_weight", torch.zeros(()))
        self.register_buffer("spread_weight", torch.zeros(()))
        self.begin_epoch(0)

    def begin_epoch(self, epoch: int) -> None:
        loss = self.plan.loss
        self.diversity_weight.fill_(value_at_epoch(loss.diversity_weight, epoch, start=0.0))
        # Means first: in early epochs the steep gradients of the spread would drown theirs.
        share = min(1.0, (epoch + 1) / self.n_epochs)
        self.spread_weight.fill_(loss.spread_weight * share)

    @property
    def pairs(self) -> tuple[Tensor, Tensor] | None:
        """Which member goes with which head; None in order."""
        return None if self.in_order else (self.member_index, self.head_index)

    def penalty(self, module: Any) -> Tensor | None:
        if self.plan.loss.diversity_weight == 0:
            return None
        weights = [weight[:, : self.plan.n_heads] for weight in module.network.head_weights()]
        return self.diversity_weight * losses.diversity(weights, self.plan.loss.diversity)  # L4


def split_gain(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Split outputs (..., M + 1, n, 2 t) into those of heads and the log gain (..., n, t)."""
    n_heads, n_targets = outputs.shape[-3] - 1, outputs.shape[-1] // 2
    raw = outputs.select(-3, n_heads).narrow(-1, 0, n_targets)
    log_gain = _LARGEST_LOG_GAIN * torch.tanh(raw / _LARGEST_LOG_GAIN)  # within its bounds
    return outputs.narrow(-3, 0, n_heads), log_gain


def gained(outputs: Tensor) -> EmpiricalGaussian:
    """Heads whose means are as far apart as the members', for outputs (M + 1, n, 2 t).

    By the loss a head's variance covers what it misses of its members. What the gain adds to the
    epistemic part is therefore taken from the variances, as far as they have it: the total stays.
    """
    own, log_gain = split_gain(outputs)
    means, variances = Gaussian.from_outputs(own)
    gain = log_gain.exp()
    centre = means.mean(0)
    residuals = means - centre
    taken = (gain - 1) * (residuals * residuals).mean(0)
    means = torch.addcmul(centre, gain.sqrt(), residuals)
    return EmpiricalGaussian(means, torch.maximum(variances - taken, _SHARE_KEPT * variances))


class GaussianHydraObjective(HydraObjective):
    """The loss for numbers: members (S, n, N, t, 2), labels (S, n, t), outputs (S, M, n, 2 t)."""

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        predictions, y, labelled = targets
        members = losses.Mixture(*predictions.transpose(-4, -3).unbind(-1))  # (S, N, n, t)
        own, log_gain = outputs, None
        if self.plan.has_gain:
            own, log_gain = split_gain(outputs)
        heads = losses.Mixture(*Gaussian.from_outputs(own))
        alpha, beta = float(self.plan.loss.teacher_weight), float(self.plan.loss.member_weight)
        terms: list[Term] = []  # of the heads, whose weight is not zero
        if alpha < 1:
            terms.append(Term(losses.correctness, (y,), (1 - alpha) * labelled))  # L1
        if alpha > 0 and beta < 1:
            terms.append(Term(losses.aggregation, (members,), alpha * (1 - beta)))  # L2
        if alpha > 0 and beta > 0:
            arguments: tuple = members, self.pairs
            terms.append(Term(losses.individuality, arguments, alpha * beta))  # L3
        if self.plan.loss.spread_weight > 0:
            weight = self.spread_weight
            arguments = members, self.pairs, self.residual_floor
            terms.append(Term(losses.residual_mismatch, arguments, _RESIDUAL_WEIGHT * weight))
            arguments = members, log_gain, self.spread_floor
            terms.append(Term(losses.spread_mismatch, arguments, _SPREAD_WEIGHT * weight))
        loss, gradient = weighted_sum(terms, heads)
        slope = losses.gradient_of_outputs(own, gradient)
        if log_gain is not None:
            d_log_gain = losses.spread_error(heads, members, log_gain, self.spread_floor)
            d_log_gain = d_log_gain.mul_(self.spread_weight).mul_(2 * _SPREAD_WEIGHT)
            d_tanh = 1 - (log_gain / _LARGEST_LOG_GAIN).square()  # 1 - tanh^2
            d_raw = d_log_gain * d_tanh
            d_last = torch.cat((d_raw, torch.zeros_like(d_raw)), dim=-1)
            slope = torch.cat((slope, d_last.unsqueeze(-3)), dim=-3)
        # Where members agree to a floor, residuals of heads that are not trained yet are far off.
        limit = LARGE_LOSS * y.shape[-1]
        loss, slope = losses.log_tailed_clip(loss.unsqueeze(-2), slope, limit)
        return loss.squeeze(-2), slope


class CategoricalHydraObjective(HydraObjective):
    """Of members' log probabilities (S, n, N, K), codes (S, n) and logits (S, M, n, K)."""

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        _, n_heads, n_rows, n_classes = outputs.shape
        size = max(1, _CHUNK // (n_heads * n_classes))
        if size >= n_rows:
            return weighted_sum(self._terms(*targets), losses.Categories(outputs))
        loss, gradient = torch.empty_like(targets[-1]), torch.empty_like(outputs)
        for start in range(0, n_rows, size):  # few samples at a time: temporaries stay in the cache
            rows = slice(start, start + size)
            terms = self._terms(*(target[:, rows] for target in targets))
            heads = losses.Categories(outputs[:, :, rows])
            loss[:, rows], gradient[:, :, rows] = weighted_sum(terms, heads)
        return loss, gradient

    def _terms(self, predictions: Tensor, y: Tensor, labelled: Tensor) -> Iterator[Term]:
        """Terms whose weight is not zero."""
        members = losses.KnownCategories(predictions.transpose(-3, -2))  # (S, N, n, K)
        loss = self.plan.loss
        alpha, beta = float(loss.teacher_weight), float(loss.member_weight)
        if alpha < 1:
            yield Term(losses.categorical_correctness, (y,), (1 - alpha) * labelled)  # L1
        if alpha > 0 and beta < 1:
            arguments: tuple = members, loss.aggregate_temperature
            yield Term(losses.categorical_aggregation, arguments, alpha * (1 - beta))  # L2
        if alpha > 0 and beta > 0:
            arguments = members, self.pairs, loss.member_temperature
            yield Term(losses.categorical_individuality, arguments, alpha * beta)  # L3
        if loss.spread_weight > 0:
            yield Term(losses.information_mismatch, (members,), self.spread_weight)
