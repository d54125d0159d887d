# SPDX-License-Identifier: BSD-3-Clause
"""Hydra+: one network with a head for each member of the teacher (Ferianc & Rodrigues, 2022)."""

from __future__ import annotations

from functools import partial
from numbers import Integral, Real
from typing import Any, Self

from sklearn.base import ClassifierMixin, RegressorMixin, clone

from ..._data.columns import COLUMN_PARAMETERS
from ..._estimator.base import available_if, with_callbacks
from ..._estimator.predicting import DistributionEstimator
from ..._method.task import Task
from ..._training.stream import is_stream
from ..._utils.validation import Number, OneOf, Schedule
from ..._utils.warnings import warn
from ...ensembles import BayesianEnsembleClassifier, BayesianEnsembleRegressor
from ...modules import MLP
from ...transfer import GaussianNoise
from .._fit._calibration import calibrated
from .._fit._kinds import check_kind
from .._fit._parameters import NORMALIZE_Y, PARAMETER_TABLE, PRUNING_PARAMETERS, STUDENT_PARAMETERS
from .._fit._spec import FitMode, begun
from .._fit._student import train_student
from .._fit._teacher import fit_teacher_of, has_fitted_teacher
from .._fit._validate import fit_spec, stream_spec
from ._plan import HydraPlan

# Default number of heads above which a warning suggests fewer, for forests say.
_MANY_HEADS = 100

# What transfer="auto" stands for where it is not as usual.
_AUTO_TRANSFER = {"classifier": GaussianNoise(share_power=1.5)}

_HYDRA_PARAMETERS = {
    **PARAMETER_TABLE,
    "head_layers": Number(Integral, 1),
    "n_heads": Number(Integral, 1, others=(None,)),
    "alpha": Number(Real, 0, 1),
    "beta": Number(Real, 0, 1),
    "diversity_weight": Schedule(),
    "diversity": OneOf(("mean", "pairwise")),
    "spread_weight": Number(Real, 0),
    **PRUNING_PARAMETERS,
    **STUDENT_PARAMETERS,
}


@with_callbacks
def _fit(hydra: Any, X, y, *arguments, default: Any = None, mode_of: Any = FitMode.of_fit) -> Any:
    """Fit a teacher, if there is no fitted one, and distil it into a core with heads.

    `default` is the class of the teacher that None stands for; for `mode_of` see :func:`fit_spec`.
    """
    if hydra.teacher is not None:
        check_kind(hydra.teacher, arguments[-1])
    columns = {name: getattr(hydra, name) for name in COLUMN_PARAMETERS}
    reading = {"mode_of": mode_of, "auto_transfer": _AUTO_TRANSFER.get(hydra._kind)}
    read: Any = stream_spec if is_stream(X) else fit_spec
    spec = read(hydra, partial(hydra_plan, hydra), X, y, *arguments, **reading)
    with begun(hydra, spec) as (spec, task):
        make = None if default is None else partial(default, **columns)
        predictions = fit_teacher_of(spec, task, make)
        vars(hydra).update(predictions.facts)
        plan = spec.plan.taught_by(predictions.count(spec.X))
        _warn_of_many_heads(plan)
        fitted: Any = spec.mode.before
        for fitted in train_student(spec, plan, predictions, task, n_heads_=plan.n_heads):
            hydra._keep(fitted)
        if hydra.calibrate is not None:
            hydra._keep(calibrated(fitted, spec, clone(hydra)))
    return hydra


def hydra_plan(hydra: Any, task: Task) -> HydraPlan:
    """Return the plan of a student, as far as it is known before its teacher is fitted."""
    if hydra.transfer_only and hydra.alpha < 1:
        raise ValueError(
            "alpha must be 1 with transfer_only=True, whose rows have no labels; got "
            f"{hydra.alpha!r}."
        )
    return HydraPlan(
        task,
        hydra.head_layers,
        float(hydra.alpha),
        float(hydra.beta),
        hydra.diversity_weight,
        hydra.diversity,
        hydra.spread_weight,
        getattr(hydra, "aggregate_temperature", 1.0),
        getattr(hydra, "member_temperature", 1.0),
        wanted_heads=hydra.n_heads,
    )


def _warn_of_many_heads(plan: HydraPlan) -> None:
    if plan.wanted_heads is None and plan.n_members > _MANY_HEADS:
        warn(
            f"The teacher has {plan.n_members} members, and with n_heads=None the student a head "
            "for each. Fewer are cheaper: n_heads=20, say, or "
            "as_teacher(teacher, max_members=20).",
        )


class HydraPlusRegressor(RegressorMixin, DistributionEstimator):
    """Distil an ensemble into one network with a shared core and many heads (Hydra+ [1]_).

    Member n of the teacher is imitated by head n mod M. The loss is Eq 10 of [1]_, plus two terms
    of ours that match the spread of the heads to that of the members::

        (1 - alpha) L1 + alpha ((1 - beta) L2 + beta L3) + diversity_weight L4
            + spread_weight (residual mismatch / 2 + spread mismatch / 4)

    with L1 the label's likelihood, L2 the KL divergence between the aggregates, L3 the mean KL
    divergence between each member and its head, L4 how alike the heads' weights are; see
    :mod:`skdistill.losses` for each. One more head tells the gain: the factor by which the heads'
    epistemic variance is multiplied for the scale of the members', part of what the spread mismatch
    compares. What it adds is taken from the heads' variances, so that the total stays.

    Parameters
    ----------
    teacher : estimator, default=None
        A regressor: an unfitted one is cloned and fitted as `teacher_`, one in
        ``sklearn.frozen.FrozenEstimator`` is used as it is, None is a default
        :class:`BayesianEnsembleRegressor` that reads columns as the student does. Forests, bagging
        and lists of fitted models have members too, see :func:`skdistill.teachers.as_teacher`.
    module : callable, default=MLP
        Builds the student from ``in_features``, ``out_features`` and the parameters
        ``module__<name>``, as an ``nn.Sequential``; for the MLP,
        ``module__hidden_units=(128, 128)`` and ``module__activation=("tanh", "silu")`` unless
        given.
    head_layers : int, default=1
        How many of the module's last layers with parameters belong to a head; the others are the
        core that the heads share.
    n_heads : int, default=None
        Number of heads M; None is one for each member. With fewer heads than members, head
        n mod M imitates member n; with more, head m imitates member m mod N. One head is plain
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
        out too small; it grows linearly to this over the epochs. 0 gives the paper's loss, without
        a gain.
    transfer : {"auto", "noise", "mixup", "munge", "box", "disagreement"}, TransferMaker or None, \
            default="auto"
        How further rows are generated from X and `X_transfer`, for the teacher to predict, up to 20
        for each of these and about 100,000 in all. They are generated once, and are dealt in turn:
        those of an epoch are X, or one further row for each. "noise", ``GaussianNoise()``, adds
        Gaussian noise to the rows, which keep their labels; "disagreement" also moves half of these
        to where the members disagree more. The others generate as many rows again, without labels.
        None generates none.
        "auto" is noise with the correlations of the columns that leaves columns with few values
        alone, ``GaussianNoise(correlated=True, categorical="auto")``, or None for more than 50,000
        rows, and with `member_predictions`, which are known for X alone. See
        :mod:`skdistill.transfer`; the settings of an object can be searched over, as
        ``transfer__scale``.
    transfer_only : bool, default=False
        Whether the student learns from `X_transfer` without X, and from the rows that `transfer`
        generates without those that they are generated from.
    weight_decay : float, default=0.0
        L2 penalty on the weights of the student's layers; biases have none.
    group_lasso : float, default=0.0
        Weight of the group lasso that silences hidden units and filters, which are then removed,
        see :mod:`skdistill.pruning`. With Adam try .01 to .3. `module` builds the student before
        pruning.
    prune_threshold : float, default=1e-3
        Units whose weights have a smaller norm are removed. With a constant learning rate it has
        to be larger than the steps.
    finetune_epochs : int or "auto", default="auto"
        Number of epochs of training after pruning, without group lasso; "auto" is half of
        `max_epochs`.
    max_epochs : int or "auto", default="auto"
        Number of epochs; "auto" is 9,000 over the root of the number of rows, between 10 and 400.
        Where the teacher's variance is below .003 of that of y it is more, by the fourth root of
        this ratio and at most four times as much, and ``lr="auto"`` is less by the same factor.
    max_time : float, default=None
        Seconds that `fit` may take in all, as in :class:`BayesianEnsembleRegressor`, the fit of the
        teacher included. An ensemble that is fitted here, and has no `max_time` of its own, gets
        half of the time, which the fits of `teacher_cv` share; other teachers take as long as they
        take. The student has what is left, with `finetune_epochs` a part of it for these; with
        `calibrate` each of the two students has half of all. `partial_fit` does not read it.
    batch_size : int or "auto", default="auto"
        Rows of a minibatch; "auto" is 128, or a third of the rows if that is less, but at least 32;
        on tables of more than 19,200 rows it is one in 150 of them, up to 256.
    lr : float or "auto", default="auto"
        Learning rate; "auto" is .01, and for layers whose units have more than 150 inputs 1.5 over
        their number: each step moves a unit by so much. See `max_epochs` for tables next to
        without noise.
    optimizer, lr_schedule, clip_norm
        As in :class:`BayesianEnsembleRegressor`.
    normalize_X, categorical_features
        As in :class:`BayesianEnsembleRegressor`. The teacher gets the columns as they are.
    normalize_y : bool, default=True
        Whether to standardise the targets for training. Outputs are in y's units all the same.
    memory : None, str or joblib.Memory, default=None
        Where to cache the fit of the teacher, so that a grid search over the student fits it once
        for each fold.
    teacher_cv : int, cross-validation splitter or iterable, default=None
        Folds for out-of-fold predictions of X: each row is predicted by a clone of the teacher that
        was fitted without it. Members of an overfitted teacher agree on the rows they were fitted
        on, so that a student learns from other rows alone where they disagree. `teacher_` is fitted
        on all rows and predicts `X_transfer` and the rows that `transfer` generates, which are used
        besides X then, with noise too.
    calibrate : float, default=None
        Share of the rows, in (0, 1), on which a second student is calibrated that is fitted without
        them, to mend this one by what is found, as ``TunedThresholdClassifierCV`` does with
        ``refit=True``: the scale and power of the epistemic part by the members, and the
        temperature of the rest by the labels, see `calibration_`. So `fit` takes twice as long; the
        second teacher is fitted without the rows too. One in a ``FrozenEstimator`` is taken as it
        is, and the temperature holds for new rows only if X are rows on which it was not fitted.
        Labels hold out their share of each class. None changes nothing. Not with batches,
        `member_predictions` and `partial_fit`.
    warm_start : bool, default=False
        Whether `fit` goes on from the student of the fit before, as in
        :class:`DistributionDistiller`.
    checkpoint, checkpoint_every
        As in :class:`BayesianEnsembleRegressor`, the fit of the teacher included.
    callbacks, dtype, device, compile, n_threads
        As in :class:`BayesianEnsembleRegressor`.
    verbose : int, default=0
        As in :class:`BayesianEnsembleRegressor`, the fit of the teacher included.
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
        With `calibrate`: the numbers `scale`, `power` and `temperature`, tuples of them for several
        targets. Members' aleatoric variances are multiplied by the temperature, and the epistemic
        part e becomes ``scale * e ** power``, in units of y's variance in training if `normalize_y`
        is true.
    module_ : GaussianStack
        The student, as a torch module.
    n_epochs_, n_parameters_, flops_, net_, history_
        As in :class:`DistributionDistiller`.
    n_outputs_, n_features_in_, feature_names_in_
        As in :class:`DistributionDistiller`.

    Notes
    -----
    Hydra is ``alpha=1, beta=1, diversity_weight=0, spread_weight=0, transfer=None``, and
    Hinton's distillation ``n_heads=1, alpha=1, beta=0, spread_weight=0, transfer=None``. Variances
    are softplus of a raw output where the paper has exponentials.

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

    _kind = "regressor"
    _parameter_table = {**_HYDRA_PARAMETERS, **NORMALIZE_Y}
    # Bounded first, so that far from the data the student levels off as its teacher does.
    _module_defaults = {"regressor": {"hidden_units": (128, 128), "activation": ("tanh", "silu")}}

    def __init__(
        self,
        teacher: Any = None,
        *,
        module: Any = MLP,
        head_layers: int = 1,
        n_heads: int | None = None,
        alpha: float = 1.0,
        beta: float = 0.5,
        diversity_weight: Any = 0.0,
        diversity: str = "mean",
        spread_weight: float = 0.3,
        transfer: Any = "auto",
        transfer_only: bool = False,
        teacher_cv: Any = None,
        calibrate: float | None = None,
        weight_decay: float = 0.0,
        group_lasso: float = 0.0,
        prune_threshold: float = 1e-3,
        finetune_epochs: int | str = "auto",
        optimizer: Any = "Adam",
        lr: float | str = "auto",
        lr_schedule: str | None = "cosine",
        max_epochs: int | str = "auto",
        max_time: float | None = None,
        batch_size: int | str = "auto",
        clip_norm: float | None = 5.0,
        normalize_X: bool = True,
        categorical_features: Any = "from_dtype",
        normalize_y: bool = True,
        memory: Any = None,
        warm_start: bool = False,
        checkpoint: Any = None,
        checkpoint_every: Any = 60.0,
        callbacks: Any = None,
        dtype: str = "auto",
        device: Any = "auto",
        compile: bool | str = "auto",
        n_threads: int | str = "auto",
        verbose: int | bool = 0,
        random_state: Any = None,
        **kwargs: Any,
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
        self.transfer = transfer
        self.transfer_only = transfer_only
        self.teacher_cv = teacher_cv
        self.calibrate = calibrate
        self.weight_decay = weight_decay
        self.group_lasso = group_lasso
        self.prune_threshold = prune_threshold
        self.finetune_epochs = finetune_epochs
        self.optimizer = optimizer
        self.lr = lr
        self.lr_schedule = lr_schedule
        self.max_epochs = max_epochs
        self.max_time = max_time
        self.batch_size = batch_size
        self.clip_norm = clip_norm
        self.normalize_X = normalize_X
        self.categorical_features = categorical_features
        self.normalize_y = normalize_y
        self.memory = memory
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.callbacks = callbacks
        self.dtype = dtype
        self.device = device
        self.compile = compile
        self.n_threads = n_threads
        self.verbose = verbose
        self.random_state = random_state
        self._set_extra_params(kwargs)

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        X_transfer: Any = None,
        member_predictions: Any = None,
    ) -> Self:
        """Fit the teacher, if it is not fitted, and distil it.

        Parameters
        ----------
        X, y, sample_weight, X_transfer : as in :meth:`DistributionDistiller.fit`
        member_predictions : as in :meth:`DistributionDistiller.fit`
            `teacher` is None then.

        Returns
        -------
        self
        """
        arguments = X, y, sample_weight, X_transfer, member_predictions
        return _fit(self, *arguments, default=BayesianEnsembleRegressor)

    @available_if(has_fitted_teacher)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train for one epoch on the given rows, as :meth:`DistributionDistiller.partial_fit` does.

        Parameters
        ----------
        X, y, sample_weight : as in :meth:`fit`

        Returns
        -------
        self
        """
        arguments = X, y, sample_weight, None, None
        return _fit(self, *arguments, mode_of=FitMode.of_pass)


class HydraPlusClassifier(ClassifierMixin, DistributionEstimator):
    """Distil an ensemble of classifiers into one network with a core and many heads [1]_.

    Member n of the teacher is imitated by head n mod M. The loss is Eq 10 of [1]_, plus a term of
    ours that matches the heads' mutual information to that of the members::

        (1 - alpha) L1 + alpha ((1 - beta) L2 + beta L3) + diversity_weight L4
            + spread_weight (log MI of the heads - log MI of the members)^2

    with L1 the label's cross-entropy, L2 the cross-entropy between the aggregates, L3 the mean
    cross-entropy between each member and its head, both softened by a temperature, and L4 how
    alike the heads' weights are; see :mod:`skdistill.losses` for each. With classes the members'
    ranking by epistemic uncertainty survives distillation well, but its scale does not; the last
    term keeps it.

    Parameters
    ----------
    teacher : estimator, default=None
        A classifier: an unfitted one is cloned and fitted as `teacher_`, one in
        ``sklearn.frozen.FrozenEstimator`` is used as it is, None is a default
        :class:`BayesianEnsembleClassifier`. Forests, bagging and lists of fitted models have
        members too, see :func:`skdistill.teachers.as_teacher`.
    module : callable, default=MLP
        Builds the student from ``in_features``, ``out_features`` and the parameters
        ``module__<name>``, as an ``nn.Sequential``; for the MLP,
        ``module__hidden_units=(128, 128)`` and ``module__activation=("relu", "silu")`` unless
        given.
    head_layers, n_heads, alpha, beta, diversity_weight, diversity
        As in :class:`HydraPlusRegressor`.
    aggregate_temperature : float, default=1.0
        Temperature of L2, by which logits are divided; the loss is multiplied by its square.
    member_temperature : float, default=4.0
        Temperature of L3.
    spread_weight : float, default=0.3
        Weight of the term that matches the mutual information; it grows linearly to this over the
        epochs. 0 gives the paper's loss.
    transfer : {"auto", "noise", "mixup", "munge", "box", "disagreement"}, TransferMaker or None, \
            default="auto"
        As in :class:`HydraPlusRegressor`, but "auto" is a little more noise, of each column by
        itself, on large tables too: ``GaussianNoise(share_power=1.5)``.
    transfer_only, teacher_cv, calibrate, memory, weight_decay, warm_start
        As in :class:`HydraPlusRegressor`.
    max_epochs, max_time, batch_size
        As in :class:`HydraPlusRegressor`.
    group_lasso, prune_threshold, finetune_epochs
        As in :class:`HydraPlusRegressor`.
    lr : float or "auto", default="auto"
        As in :class:`HydraPlusRegressor`.
    optimizer, lr_schedule, clip_norm
        As in :class:`BayesianEnsembleRegressor`.
    normalize_X, categorical_features
        As in :class:`BayesianEnsembleRegressor`.
    checkpoint, checkpoint_every
        As in :class:`BayesianEnsembleRegressor`, the fit of the teacher included.
    callbacks, dtype, device, compile, n_threads
        As in :class:`BayesianEnsembleRegressor`.
    verbose : int, default=0
        As in :class:`BayesianEnsembleRegressor`, the fit of the teacher included.
    random_state : int, RandomState instance or None, default=None
        Unless None, it also seeds every ``random_state`` of the teacher that is None.
    **kwargs
        ``module__<name>``, ``optimizer__<name>`` and ``callbacks__<callback>__<name>``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    teacher_ : estimator
        The fitted teacher.
    n_heads_ : int
        Number of heads of the student.
    calibration_ : Calibration
        With `calibrate`: the numbers `scale`, `power` and `temperature`. Members' logits are
        divided by the temperature, and then spread so that the mutual information e becomes about
        ``scale * e ** power``.
    module_ : CategoricalStack
        The student, as a torch module.
    n_epochs_, n_parameters_, flops_, net_, history_, n_features_in_, feature_names_in_
        As in :class:`DistributionDistiller`.

    Notes
    -----
    Hydra, Hinton's distillation and Ctrl-C: see :class:`HydraPlusRegressor`.

    References
    ----------
    .. [1] Ferianc & Rodrigues (2022), "Simple Regularisation for Uncertainty-Aware Knowledge
           Distillation".

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skdistill import BayesianEnsembleClassifier, HydraPlusClassifier, predict_uncertainty
    >>> X, y = load_iris(return_X_y=True)
    >>> teacher = BayesianEnsembleClassifier(n_members=5, max_epochs=20)
    >>> student = HydraPlusClassifier(teacher, max_epochs=20, random_state=0)
    >>> student = make_pipeline(StandardScaler(), student).fit(X, y)
    >>> total, aleatoric, epistemic = predict_uncertainty(student, X[:3])
    >>> total.shape
    (3,)
    """

    _kind = "classifier"
    _parameter_table = {
        **_HYDRA_PARAMETERS,
        "aggregate_temperature": Number(Real, 0, closed="neither"),
        "member_temperature": Number(Real, 0, closed="neither"),
    }
    # Rectified first, as the teacher; then smooth, which ranks rows by the epistemic part better.
    _module_defaults = {"classifier": {"hidden_units": (128, 128), "activation": ("relu", "silu")}}

    def __init__(
        self,
        teacher: Any = None,
        *,
        module: Any = MLP,
        head_layers: int = 1,
        n_heads: int | None = None,
        alpha: float = 1.0,
        beta: float = 0.5,
        diversity_weight: Any = 0.0,
        diversity: str = "mean",
        aggregate_temperature: float = 1.0,
        member_temperature: float = 4.0,
        spread_weight: float = 0.3,
        transfer: Any = "auto",
        transfer_only: bool = False,
        teacher_cv: Any = None,
        calibrate: float | None = None,
        weight_decay: float = 0.0,
        group_lasso: float = 0.0,
        prune_threshold: float = 1e-3,
        finetune_epochs: int | str = "auto",
        optimizer: Any = "Adam",
        lr: float | str = "auto",
        lr_schedule: str | None = "cosine",
        max_epochs: int | str = "auto",
        max_time: float | None = None,
        batch_size: int | str = "auto",
        clip_norm: float | None = 5.0,
        normalize_X: bool = True,
        categorical_features: Any = "from_dtype",
        memory: Any = None,
        warm_start: bool = False,
        checkpoint: Any = None,
        checkpoint_every: Any = 60.0,
        callbacks: Any = None,
        dtype: str = "auto",
        device: Any = "auto",
        compile: bool | str = "auto",
        n_threads: int | str = "auto",
        verbose: int | bool = 0,
        random_state: Any = None,
        **kwargs: Any,
    ):
        self.teacher = teacher
        self.module = module
        self.head_layers = head_layers
        self.n_heads = n_heads
        self.alpha = alpha
        self.beta = beta
        self.diversity_weight = diversity_weight
        self.diversity = diversity
        self.aggregate_temperature = aggregate_temperature
        self.member_temperature = member_temperature
        self.spread_weight = spread_weight
        self.transfer = transfer
        self.transfer_only = transfer_only
        self.teacher_cv = teacher_cv
        self.calibrate = calibrate
        self.weight_decay = weight_decay
        self.group_lasso = group_lasso
        self.prune_threshold = prune_threshold
        self.finetune_epochs = finetune_epochs
        self.optimizer = optimizer
        self.lr = lr
        self.lr_schedule = lr_schedule
        self.max_epochs = max_epochs
        self.max_time = max_time
        self.batch_size = batch_size
        self.clip_norm = clip_norm
        self.normalize_X = normalize_X
        self.categorical_features = categorical_features
        self.memory = memory
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.callbacks = callbacks
        self.dtype = dtype
        self.device = device
        self.compile = compile
        self.n_threads = n_threads
        self.verbose = verbose
        self.random_state = random_state
        self._set_extra_params(kwargs)

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        X_transfer: Any = None,
        member_predictions: Any = None,
    ) -> Self:
        """Fit the teacher, if it is not fitted, and distil it.

        Parameters
        ----------
        X, y, sample_weight : as in :meth:`HydraPlusRegressor.fit`
        X_transfer, member_predictions : as in :meth:`HydraPlusRegressor.fit`

        Returns
        -------
        self
        """
        arguments = X, y, sample_weight, X_transfer, member_predictions
        return _fit(self, *arguments, default=BayesianEnsembleClassifier)

    @available_if(has_fitted_teacher)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, classes: Any = None) -> Self:
        """Train for one epoch on the given rows, as :meth:`DistributionDistiller.partial_fit` does.

        Parameters
        ----------
        X, y, sample_weight : as in :meth:`fit`
        classes : array-like of shape (n_classes,), default=None
            The labels of all classes; the first call needs them.

        Returns
        -------
        self
        """
        arguments = X, y, sample_weight, None, None
        mode_of = partial(FitMode.of_pass, classes=classes)
        return _fit(self, *arguments, mode_of=mode_of)
