# SPDX-License-Identifier: BSD-3-Clause
"""Ensemble distribution distillation: one network that predicts a distribution over predictions."""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import Any, Self, cast

import numpy as np
import torch
from sklearn.base import MetaEstimatorMixin
from sklearn.utils import check_random_state

from ..._estimator.base import available_if, fit_task, with_callbacks
from ..._estimator.batched import read_rows
from ..._estimator.predicting import DistributionEstimator
from ..._estimator.warm_start import is_trained
from ..._method.task import Task
from ..._training.stream import is_stream
from ..._training.trainer import SEED_LIMIT
from ..._utils.ranks import current_ranks
from ..._utils.validation import AnyOf, Number, OneOf, Schedule, Seed
from ..._utils.warnings import warn
from ...modules import MLP
from .._fit._calibration import calibrate
from .._fit._fit_mode import FitMode
from .._fit._kinds import check_kind, kind_as_teacher
from .._fit._parameters import NORMALIZE_Y, PARAMETER_TABLE, PRUNING, STUDENT_PARAMETERS
from .._fit._student import first_predictions, train_student
from .._fit._teacher import MemberPredictions, fit_teacher_of, has_fitted_teacher
from .._fit._validate import Setup, set_up, set_up_stream
from ._families import FAMILIES, FAMILY_SETTINGS
from ._family import FamilyPlan
from ._latent_factor import FactorPlan

_LOSSES = ("auto", "moments", "reverse_kl", "reverse_kl_reference", "forward_kl", "nll")

# Members whose predictions differ by no more agree: on standardised targets, or in nats.
_ROUNDING = 1e-6


def _draws_functions(distiller: Any) -> bool:
    """Condition for ``available_if``: the student's family has whole functions to draw."""
    plan = vars(distiller).get("_plan")
    if plan is None:
        return isinstance(distiller.family, str) and distiller.family == "latent_factor"
    return plan.draws_functions and plan.tells_parts


class Agreement:
    """Whether a teacher's members have agreed in all the predictions that they have made.

    Parameters
    ----------
    predictions : MemberPredictions
    holds : bool, default=True
        Whether they have agreed before.

    Attributes
    ----------
    holds : bool
    predictions : MemberPredictions
        The same, but every further prediction is compared.
    """

    def __init__(self, predictions: MemberPredictions, holds: bool = True):
        self.holds = holds
        self._predict = predictions.predict
        predict = None if predictions.predict is None else self._predict_and_compare
        self.predictions = predictions._replace(predict=predict)
        if predictions.of_X is not None:
            self._compare(predictions.of_X)

    def join(self) -> None:
        """Take into account what other ranks have compared, which ask for rows of their own."""
        ranks = current_ranks()
        self.holds = self.holds if ranks is None else ranks.all_hold(self.holds)

    def _predict_and_compare(self, rows: np.ndarray) -> np.ndarray:
        assert self._predict is not None
        return self._compare(self._predict(rows))

    def _compare(self, members: np.ndarray) -> np.ndarray:
        """Note whether members' predictions agree, and return them."""
        if self.holds:
            same = np.isclose(members, members[:, :1], rtol=_ROUNDING, atol=_ROUNDING)
            self.holds = bool(same.all())
        return members


def chosen_family(distiller: Any, kind: str) -> str:
    """Return the name of the family, checked, that `distiller` is to predict."""
    families = FAMILIES[kind]
    is_auto = isinstance(distiller.family, str) and distiller.family == "auto"
    name = next(iter(families)) if is_auto else distiller.family
    if not isinstance(name, str) or name not in families:
        raise ValueError(
            f"family must be 'auto' or one of {sorted(families)} with a {kind} as teacher, got "
            f"{distiller.family!r}."
        )
    return name


def family_plan(distiller: Any, name: str, task: Task) -> FamilyPlan:
    """Return the plan of a family; raise for parameters that do not go with it."""
    if distiller.transfer_only and distiller.supervised_weight:
        raise ValueError(
            "supervised_weight must be 0 with transfer_only=True, whose rows have no labels; "
            f"got {distiller.supervised_weight!r}."
        )
    is_constant = isinstance(distiller.temperature, Real) and distiller.temperature != 1
    if name == "dirichlet" and is_constant:
        raise ValueError(
            "temperature must be 1 with family='dirichlet', or fall to it: (temperature, "
            "first_epoch, last_epoch). A constant one would raise the precision to its power; "
            f"got {distiller.temperature!r}."
        )
    plan = FAMILIES[task.kind][name].of(distiller, task)
    _refuse_unread(distiller, name, plan)
    return plan


def _refuse_unread(distiller: Any, name: str, plan: FamilyPlan) -> None:
    """Raise a ValueError for a parameter that other families read, set for this one."""
    defaults = inspect.signature(type(distiller).__init__).parameters
    for setting in sorted(FAMILY_SETTINGS - plan.settings):
        value, default = getattr(distiller, setting), defaults[setting].default
        if value != default:
            by_loss = f" and loss={distiller.loss!r}" if "loss" in plan.settings else ""
            raise ValueError(
                f"{setting} must be {default!r} with family={name!r}{by_loss}, which does not "
                f"read it; got {value!r}."
            )


@with_callbacks
def _fit(distiller: Any, fit_mode_of: Any, X, y, *arguments) -> Any:
    """Fit the teacher, if it is not fitted, and distil it; for `fit_mode_of` see :func:`set_up`."""
    check_kind(distiller.teacher, arguments[-1])

    def plan_of(task: Task) -> FamilyPlan:
        return family_plan(distiller, chosen_family(distiller, task.kind), task)

    begin: Any = set_up_stream if is_stream(X) else set_up
    setup = begin(distiller, plan_of, X, y, *arguments, fit_mode_of=fit_mode_of)
    agreed = distiller._plan.members_agree if setup.fit_mode.goes_on else True
    distiller.family_ = _same_family(distiller, setup)
    with (
        fit_task(distiller, setup.for_callbacks, 2) as context,
        setup.resumable(distiller) as setup,
    ):
        agreement = Agreement(fit_teacher_of(distiller, setup, context), agreed)
        n_members = agreement.predictions.count(setup.X)
        plan = replace(setup.plan, n_members=n_members)
        if plan.learns_from_members:
            plan = _informed(distiller, setup, plan, agreement.predictions)
            setup = setup._replace(recipe=setup.recipe.with_outputs(plan.n_outputs))
        if n_members == 1 and plan.can_tell_parts:
            warn(
                "The teacher has one member, and so no spread to learn: the student cannot tell "
                "the parts of the uncertainty, which are None.",
            )
        try:
            train_student(
                distiller, setup, agreement.predictions, plan, context, n_members_=n_members
            )
            agreement.join()
        finally:
            if is_trained(distiller) and agreement.holds and plan.can_tell_parts:
                distiller._predict_expected_only()
        calibrate(distiller, setup)
    return distiller


def _informed(
    distiller: Any, setup: Setup, plan: FamilyPlan, predictions: MemberPredictions
) -> FamilyPlan:
    """Return the plan with what is to be known of the members before the network is built."""
    if setup.fit_mode.goes_on:
        return plan.informed_as(distiller._plan)
    return plan.informed(*map(torch.as_tensor, first_predictions(setup, predictions)))


def _same_family(distiller: Any, setup: Setup) -> str:
    """Return the name of the family; raise if the fitted student is of another."""
    name = chosen_family(distiller, setup.plan.task.kind)
    if setup.fit_mode.goes_on and name != distiller.family_:
        raise ValueError(
            f"family must be {distiller.family_!r}, as in the fit that training goes on from; got "
            f"{distiller.family!r}."
        )
    return name


class DistributionDistiller(MetaEstimatorMixin, DistributionEstimator):
    """Distil an ensemble into one network that predicts a distribution over predictions.

    The student is a classifier or a regressor as its teacher is. For a row it predicts not an
    ensemble's members but the distribution they seem to be drawn from [1]_, [2]_: its mean is the
    prediction, and its spread the epistemic uncertainty. The student is one network without heads.

    ============================  =================================================================
    `family`, for a regressor
    ============================  =================================================================
    ``"gaussian"``                A normal distribution over a member's mean and raw variance (Eqs
                                  12 and 13 of [1]_), its covariance diagonal or full.
    ``"normal_inverse_gamma"``    A normal-inverse-gamma distribution over a member's mean and
                                  variance, for each target by itself; y follows Student's t.
    ``"normal_inverse_wishart"``  The same for all targets together (Eq 11), with one strength of
                                  belief: y follows a multivariate t distribution.
    ``"latent_factor"``           A Gaussian process of which the members' means are draws [4]_: as
                                  "gaussian" with ``loss="moments"`` at a row, with the covariance
                                  between rows; see :meth:`sample_members`.
    ``"mixture"``                 One Gaussian with the moments of the members' mixture (Eqs 5 and
                                  6): the total uncertainty only.
    ============================  =================================================================

    ==========================  ===================================================================
    `family`, for a classifier
    ==========================  ===================================================================
    ``"logit_normal"``          A normal distribution over a member's logits less that of the last
                                class (Eqs 9 and 10), diagonal or with a part of low rank. Take it
                                where draws of a member's probabilities are wanted, or logits.
    ``"dirichlet"``             A Dirichlet distribution over a member's probabilities; see `loss`.
    ``"latent_factor"``         A Gaussian process of which the members' logits are draws [4]_:
                                logit-normal at a row, with the covariance between rows. Take it for
                                its draws: the epistemic part is many times too large on rows of
                                which the teacher is sure.
    ``"mixture"``               The members' mean: plain distillation, the total only.
    ==========================  ===================================================================

    For comparison, and for nothing else, there are two more, for classifiers and regressors:
    ``"gauss_head"``, Gaussian weights of the last layer by local reparametrisation, and
    ``"dropout_head"``, dropout before it ("Gauss" and "Drop" of [3]_). Their draws are independent
    of the member that they are compared with, so the loss depends on the members' mixture alone.
    The spread is not learnt: what they give as the epistemic part does not follow the teacher's.

    Parameters
    ----------
    teacher : estimator, "classifier" or "regressor"
        An unfitted estimator is cloned and fitted as `teacher_`, one in
        ``sklearn.frozen.FrozenEstimator`` is used as it is; see
        :func:`skdistill.teachers.as_teacher` for models with members. With `member_predictions` in
        `fit` it is the name of the task.
    family : str, default="auto"
        What the student predicts, see above. "auto" is "gaussian" for a regressor and "dirichlet"
        for a classifier, whose uncertainties came closest to those of the teacher on rows held out
        from training (letter, pendigits, satimage; the sets of UCI); it is never the Dirichlet
        likelihood.
    covariance : {"diagonal", "full"} or int, default="diagonal"
        Covariance of the families "gaussian", diagonal or full, and "logit_normal", diagonal or
        that plus a part of this rank.
    n_factors : int or "auto", default="auto"
        With "latent_factor", number of factors of the members' disagreement that are common to all
        rows; at most one less than there are members. "auto" is how many explain at least a
        twentieth of it each, on 256 rows of X or on all of them where their predictions are known,
        in units of the spread at each row. The rest is a residual variance of the row, so that the
        epistemic part does not depend on it.
    loss : str, default="auto"
        What "dirichlet", "logit_normal" or "gaussian" minimises. With "dirichlet": ``"moments"``,
        the default, which matches the members' mean and their mutual information, the epistemic
        part, each by a term of its own (ours); ``"reverse_kl"``, the divergence KL(student ||
        proxy) from the Dirichlet that is as wide as the members (Eqs 14 and 17 of [2]_), divided by
        the proxy's precision, so that rows on which members agree do not drown the others;
        ``"reverse_kl_reference"``, the form that its authors released (Eq 18), whose proxy is
        narrower; or, for comparison, ``"forward_kl"`` (Eq 13) and ``"nll"``, the members'
        likelihood (Eq 11, EnD2), neither of which trains with many classes. With "logit_normal":
        ``"moments"``, the default of a diagonal covariance, which matches mean and mutual
        information of draws (ours); or ``"nll"``, the likelihood of the members' logits (Eqs 7
        and 10 of [1]_), which alone can tell a covariance of low rank, and which does not train
        with many classes. With "gaussian": ``"moments"``, the default, which matches means and
        covariance each by a term of its own; or ``"nll"``, the members' likelihood (Eq 7 of [1]_),
        which counts what the student misses of the members' mean as their disagreement.
    max_precision : float, default="auto"
        Largest precision of the proxy, for losses that have one, which members that agree would
        make infinite; "auto" is 1,000 for each class. In float32 it is 8,400 for each class at
        most, as much as losses hold.
    smoothing : float, default="auto"
        Weight of the uniform distribution that is mixed into every member's probabilities, for
        "dirichlet", "logit_normal" and "latent_factor". "auto" is 1e-3 for ``loss="nll"`` and 0
        otherwise; and where one of M members gives a class a probability of exactly zero, as trees
        do, members are mixed with their mean, of weight 1 / (M + 1), which leaves the mean as it is
        and makes their disagreement finite; ``loss="moments"`` does not need that.
    temperature : float or tuple (temperature, first_epoch, last_epoch), default=1.0
        Divides the logits of members and student in training, with "dirichlet" and, of a
        classifier, "mixture" and the random heads; constant (not with "dirichlet"), or falling
        linearly to 1 between two epochs. The loss is multiplied by its square.
    supervised_weight : float, default=0.0
        Weight of the labels' negative log-likelihood in the loss (lambda in Eqs 16 and 17 of
        [1]_).
    n_samples : int, default=100
        How many draws stand for the distribution at prediction, with "logit_normal", the random
        heads and, for a classifier, "latent_factor": the same for every row, so that predictions
        are deterministic.
    dropout_rate : float, default=0.5
        Probability that an input of the last layer is dropped, with "dropout_head".
    module : callable, default=MLP
        Builds the student from ``in_features``, ``out_features`` and the parameters
        ``module__<name>``; for the MLP, ``module__hidden_units=(128, 128)``, and
        ``module__activation=("tanh", "silu")`` for a regressor or ``("relu", "silu")`` for a
        classifier, unless given. For the random heads it must be an
        ``nn.Sequential`` that ends in a linear layer.
    transfer : {"auto", "noise", "mixup", "munge", "box", "disagreement"}, TransferMaker or None, \
            default="auto"
        As in :class:`HydraPlusRegressor`; for a classifier "auto" is
        ``GaussianNoise(scale=1.0, correlated=True)``, on large tables too.
    transfer_only, teacher_cv, memory, weight_decay, max_epochs, max_time, batch_size, pruning, lr
        As in :class:`HydraPlusRegressor`.
    calibration_fraction : float, default=None
        As in :class:`HydraPlusRegressor`. Not with ``family="normal_inverse_wishart"``, whose
        targets have one strength of belief in common.
    optimizer, lr_schedule, clip_norm, callbacks, runtime
        As in :class:`BayesianEnsembleRegressor`.
    normalize_X, categorical_features
        As in :class:`BayesianEnsembleRegressor`. The teacher gets the columns as they are.
    normalize_y : bool, default=True
        Whether to standardise the targets of a regressor for training.
    warm_start : bool, default=False
        Whether `fit` goes on from the student of the fit before: `max_epochs` is the number of
        epochs in all, so ``set_params(max_epochs=more)`` trains for the further ones. With
        ``lr_schedule=None`` and the same data the student is, on a CPU bit for bit, that of one fit
        of so many epochs, but for weights that grow over the epochs of the first fit; "cosine"
        falls from `lr` anew, over the further epochs. `teacher_` is kept, and so are the classes,
        and the location and scale of y. The state of the optimizer is kept too, which makes a
        pickle about three times as large, if `warm_start` was True in the fit before. Not with
        `pruning`.
    checkpoint, verbose
        As in :class:`BayesianEnsembleRegressor`, the fit of the teacher included.
    random_state : int, RandomState instance or None, default=None
        Unless None, it also seeds every ``random_state`` of the teacher that is None.
    **kwargs
        ``module__<name>``, ``optimizer__<name>`` and ``callbacks__<callback>__<name>``.

    Attributes
    ----------
    teacher_ : estimator
        The fitted teacher.
    family_ : str
        What the student predicts.
    n_members_ : int
        Number of members of the teacher.
    calibration_ : Calibration
        With `calibration_fraction`, as of :class:`HydraPlusRegressor` and
        :class:`HydraPlusClassifier`.
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted. Only for classifiers.
    n_outputs_ : int
        Number of targets. Only for regressors.
    n_epochs_ : int
        Number of epochs that training was set to; with `max_time` that it took, the last of them
        maybe in part.
    n_parameters_ : int
        Number of parameters of the student.
    flops_ : int
        Floating-point operations for a row, see :func:`skdistill.model_selection.flops`.
    module_ : nn.Module
        The student, as a torch module.
    net_ : skorch.NeuralNet
        The net around `module_`, built when asked for.
    history_ : list of dict
        One row for each epoch.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)

    Notes
    -----
    Concentrations of "dirichlet" are ``exp(z)`` for outputs z. Divergences from the proxy are
    taken with one added to both sides' concentrations, as in [2]_; predictions are read without it,
    as in its authors' code: with many classes it would make most of the mean uniform.

    All uncertainties have a closed form but those of "logit_normal" and, for a classifier,
    "latent_factor", means over draws (see
    :class:`skdistill.distributions.LogitNormal` for their error), and the expected noise variance
    of "gaussian", which is a Gauss-Hermite quadrature.

    A teacher of one member cannot tell the parts of the uncertainty, and neither can its student:
    they are None. Where members never disagree on the training and transfer sets, the student
    predicts their mean, with an epistemic part of 0. A warning says so in either case.

    A parameter that the family does not read must have its default.

    Ctrl-C during the student's training keeps it as trained so far and raises
    ``KeyboardInterrupt``.

    References
    ----------
    .. [1] J. Lindqvist, A. Olmin, F. Lindsten and L. Svensson, "A general framework for ensemble
       distribution distillation", MLSP 2020.
    .. [2] M. Ryabinin, A. Malinin and M. Gales, "Scaling Ensemble Distribution Distillation to Many
       Classes with Proxy Targets", NeurIPS 2021.
    .. [3] M. Ferianc and M. Rodrigues, "Simple Regularisation for Uncertainty-Aware Knowledge
       Distillation", 2022.
    .. [4] S. Park, J. Lee, Y. Shin, I. Ohn and Y. Kim, "Knowledge Distillation of Uncertainty using
       Deep Latent Factor Model", NeurIPS 2025.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skdistill import BayesianEnsembleClassifier, DistributionDistiller
    >>> from skdistill import predict_uncertainty
    >>> X, y = load_iris(return_X_y=True)
    >>> teacher = BayesianEnsembleClassifier(n_members=5, max_epochs=20)
    >>> student = DistributionDistiller(teacher, max_epochs=20, random_state=0)
    >>> student = make_pipeline(StandardScaler(), student).fit(X, y)
    >>> total, aleatoric, epistemic = predict_uncertainty(student, X[:3])
    >>> total.shape
    (3,)
    """

    _plan: FamilyPlan
    _kind = kind_as_teacher
    _parameter_table = {
        **PARAMETER_TABLE,
        **NORMALIZE_Y,
        "covariance": AnyOf(OneOf(("diagonal", "full")), Number(Integral, 1)),
        "n_factors": Number(Integral, 1, others=("auto",)),
        "loss": OneOf(_LOSSES),
        "max_precision": Number(Real, 0, closed="neither", others=("auto", float("inf"))),
        "smoothing": Number(Real, 0, 1, closed="left", others=("auto",)),
        "temperature": Schedule(positive=True),
        "supervised_weight": Number(Real, 0),
        "n_samples": Number(Integral, 1),
        "dropout_rate": Number(Real, 0, 1, closed="left"),
        **PRUNING,
        **STUDENT_PARAMETERS,
    }
    _module_defaults = {
        "classifier": {"hidden_units": (128, 128), "activation": ("relu", "silu")},
        "regressor": {"hidden_units": (128, 128), "activation": ("tanh", "silu")},
    }

    def __init__(
        self,
        teacher: Any,
        *,
        family: Any = "auto",
        covariance: Any = "diagonal",
        n_factors: int | str = "auto",
        loss: str = "auto",
        max_precision: float | str = "auto",
        smoothing: float | str = "auto",
        temperature: Any = 1.0,
        supervised_weight: float = 0.0,
        n_samples: int = 100,
        dropout_rate: float = 0.5,
        module: Any = MLP,
        transfer: Any = "auto",
        transfer_only: bool = False,
        teacher_cv: Any = None,
        calibration_fraction: float | None = None,
        weight_decay: float = 0.0,
        pruning: Any = None,
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
        callbacks: Any = None,
        runtime: Any = None,
        verbose: int | bool = 0,
        random_state: Any = None,
        **kwargs: Any,
    ):
        self._set_arguments(locals())

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
        X : array-like of shape (n_samples, n_features)
            Inputs, best standardised; images or series of shape (n_samples, ...) if `module` takes
            them. float32 is computed in float32, all else in float64. Predictions have the same
            dtype, but are float64 where float32 would round targets that are far from 0.
            Or batches that need not fit in memory: an object that gives ``(X, y)`` or ``(X, y,
            sample_weight)`` batch by batch each time that it is iterated over, see
            :mod:`skdistill.streams`. A memory map is not copied.
        y : array-like of shape (n_samples,), default=None
            Targets, for regression also of shape (n_samples, n_targets), or class labels; None with
            batches.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, in the teacher's fit and in the student's loss.
        X_transfer : array-like of shape (n_rows, n_features) or TransferSet, default=None
            Further rows, without labels, on which the student imitates the teacher, with weight
            1. In a cross-validation wrap them as :class:`skdistill.transfer.TransferSet`.
        member_predictions : array-like, default=None
            Predictions for X of a teacher's members, instead of a teacher: class probabilities of
            shape (n_samples, n_members, n_classes), columns in the order of the sorted labels; or
            means and variances, (n_samples, n_members, n_targets, 2), in units of y. `teacher`
            is "classifier" or "regressor" then, and there are no transfer rows.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If a parameter or an argument is invalid, or does not go with batches, the teacher is
            for another task, has no members or was fitted on other columns or classes, the module's
            output does not have the width that it should, or the student diverged.
        KeyboardInterrupt
            On Ctrl-C; during the student's training it is kept as trained so far.
        """
        return _fit(self, FitMode.of_fit, X, y, sample_weight, X_transfer, member_predictions)

    @available_if(has_fitted_teacher)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, classes: Any = None) -> Self:
        """Train for one epoch on the given rows, going on from the calls before, or from `fit`.

        A student may so learn from rows that come in parts or do not fit in memory. The classes,
        and the location and scale of the targets, are those of the first call, and so is
        `teacher_`. The optimizer's state, the order of the rows and the noise go on from call to
        call, also through pickle and :func:`skdistill.save`; if the student was trained by `fit`
        with ``warm_start=False``, they begin anew. The rows that `transfer` generates are made of
        the given ones.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs, computed in the dtype of the first call.
        y : array-like of shape (n_samples,)
            Targets, for regression also of shape (n_samples, n_targets), or class labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, compared with each other within the call.
        classes : array-like of shape (n_classes,), default=None
            The labels of all classes that y will hold. A classifier's first call needs them.

        Returns
        -------
        self

        Raises
        ------
        AttributeError
            If `teacher` is not fitted: write ``teacher=FrozenEstimator(fitted)``.
        TypeError, ValueError
            As in `fit`; if y holds a label that is not in `classes`, or X other columns than
            before. The student stays as it was.

        Notes
        -----
        Each call counts as an epoch: in `n_epochs_`, in `history_`, and for weights of the loss and
        temperatures that change over the epochs, up to `max_epochs` calls. The learning rate is
        `lr`, without `lr_schedule`, as the last call is not known. So one call with all rows trains
        what `fit` trains with ``max_epochs=1``. `checkpoint` and `max_time` are for `fit` alone. A
        student that is still worse than a constant prediction is not warned of.
        """
        fit_mode_of = partial(FitMode.of_pass, classes=classes)
        return _fit(self, fit_mode_of, X, y, sample_weight, None, None)

    @available_if(_draws_functions)
    def sample_members(
        self, X: Any, n_members: int = 1, *, with_residual: bool = True, random_state: Any = None
    ) -> np.ndarray:
        """Draw members that the teacher could have had, each of them a function of all rows.

        Only students of the family "latent_factor" have this method, whose teacher had several
        members. The factors of a member are drawn once for all rows, so that it errs on
        neighbouring rows alike, as the teacher's members do.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        n_members : int, default=1
            Number of draws.
        with_residual : bool, default=True
            Whether the residual variance, which no factor explains, is drawn too, for each row by
            itself. With it the draws have the epistemic variance of each row; without it they
            depend smoothly on X, and what is drawn for a row does not depend on the others.
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        members : ndarray of shape (n_samples, n_members, n_classes) or \
                (n_samples, n_members, n_targets, 2)
            Class probabilities; or means ``[..., 0]`` in units of y, and variances ``[..., 1]`` in
            squared units, the expected noise variance of the row for all draws.

        Raises
        ------
        ValueError
            If the student was calibrated, which is done row by row.
        """
        if hasattr(self, "calibration_"):
            raise ValueError(
                "calibration_fraction must be None for sample_members: a student is calibrated row "
                f"by row, and members span all rows; got {self.calibration_fraction!r}."
            )
        Number(Integral, 1).check(n_members, "n_members")
        OneOf((True, False)).check(with_residual, "with_residual")
        Seed().check(random_state, "random_state")
        seed = int(check_random_state(random_state).randint(SEED_LIMIT))
        generator = torch.Generator().manual_seed(seed)
        module, plan = self.module_, cast(FactorPlan, self._plan)

        def read(outputs: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
            found = (outputs,) if module.functions is None else (outputs, module.functions(rows))
            return tuple(part.transpose(0, 1) for part in found)

        parts = (torch.from_numpy(part).transpose(0, 1) for part in read_rows(self, X, read))
        outputs, added = next(parts), torch.zeros(1)
        for values in parts:  # each member has one of the draws where X is unknown
            chosen = (seed + torch.arange(n_members)) % len(values)
            added = values[chosen] / getattr(module, "y_scale", 1.0)

        def draw(outputs: torch.Tensor) -> Any:
            return plan.draw(outputs, n_members, generator, with_residual, added)

        buffers = dict(module.named_buffers(recurse=False))
        drawn = plan.task.wrap(module.network, buffers, draw)
        return drawn.of_parts(outputs).members.numpy()

    def _predict_expected_only(self) -> None:
        """Predict the members' mean from now on, with an epistemic part of 0."""
        self._plan = replace(self._plan, members_agree=True)
        self.module_.read = self._plan.read
        if self.n_members_ > 1:
            warn(
                "The teacher's members never disagreed about the rows that the student learnt "
                "from: its epistemic uncertainty is 0 everywhere. Let it learn from other rows, by "
                "transfer or X_transfer, or from out-of-fold predictions, by teacher_cv.",
            )
