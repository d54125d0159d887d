# SPDX-License-Identifier: BSD-3-Clause
"""Hydra+: one network with a head for each member of the teacher (Ferianc & Rodrigues, 2022)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Self

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from ..._estimator.base import Fitted, ObservedTask, available_if
from ..._method.task import Task
from ..._utils.typing import Callbacks, Folds, Memory, ModelClass, OptimizerClass, RandomStateLike
from ..._utils.validation import OneOf, SettingsRule
from ...ensembles import BayesianEnsembleClassifier, BayesianEnsembleRegressor
from ...modules import MLP
from ...pruning import GroupLasso
from ...settings import Heads, HydraLoss, Optimizer, Runtime
from ...transfer import GaussianNoise, TransferMaker, TransferOnly
from .._fit._base import IncrementalDistiller, has_fitted_teacher
from .._fit._spec import FitSpec
from .._fit._student import train_student
from ._plan import HydraPlan


class HydraPlus(IncrementalDistiller):
    """Base of the classifier and the regressor, which have the same parameters."""

    _parameter_table = {
        **IncrementalDistiller._parameter_table,
        "heads": SettingsRule(Heads, Heads._parameter_table["n_heads"]),
        "loss": SettingsRule(HydraLoss, OneOf((None,))),
    }
    _module_defaults = {  # see doc/design.rst
        "classifier": {"hidden_units": (192, 128), "activation": ("relu", "silu")},
        "regressor": {"hidden_units": (128, 128), "activation": ("tanh", "silu")},
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

    def _stages(self, spec: FitSpec, task: ObservedTask) -> Iterator[Fitted]:
        predictions = self._fit_teacher(spec, task)
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
    transfer : {"auto", "noise", "mixup", "munge", "disagreement"}, TransferMaker, \
            TransferOnly or None, default="auto"
        How further samples are generated from X and `X_transfer`, for the teacher to predict, up to
        20 for each of these (19 by noise) and about 100,000 in all, see :mod:`skdistill.transfer`.
        They are generated once, and are dealt in turn: those of an epoch are X, or one further
        sample for each. "noise" adds Gaussian noise to the samples, which keep their labels;
        "disagreement" also moves half of these to where the members disagree more. The others
        generate as many samples again, without labels. "auto" is ``GaussianNoise(correlated=True,
        categorical="auto")``, or None for more than 50,000 samples, and with `member_predictions`,
        which are known for X alone; of a teacher that has trees, or mixes models, half of the
        further samples are from between neighbours, by :class:`~skdistill.transfer.Munge`. The
        settings of an object can be searched over, as ``transfer__scale``.
        :class:`~skdistill.transfer.TransferOnly` keeps the student from X.
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
        their number: each step moves a unit by so much. See `max_epochs` for tables next to
        without noise.
    optimizer, callbacks, runtime
        As in :class:`BayesianEnsembleRegressor`.
    normalize, categorical_features
        As in :class:`BayesianEnsembleRegressor`. The teacher gets the columns as they are.
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
    verbose
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
    transfer : str, TransferMaker, TransferOnly or None, default="auto"
        As in :class:`HydraPlusRegressor`, but "auto" is a little more noise, of each column by
        itself, on large tables too: ``GaussianNoise(share_power=1.5)``.
    max_time, batch_size, normalize, categorical_features, verbose, random_state
        As in :class:`HydraPlusRegressor`.
    optimizer, callbacks, runtime
        As in :class:`BayesianEnsembleRegressor`.
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
