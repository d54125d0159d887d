# SPDX-License-Identifier: BSD-3-Clause
"""Ensemble distribution distillation: one network that predicts a distribution over predictions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.utils.metaestimators import available_if
from torch import Tensor, nn

from .. import losses
from .._base import Objective
from .._parameters import DunderParameters
from .._read_offs import DistributionClassifier, DistributionRegressor
from .._rules import AnyOf, Number, OneOf, Schedule, value_at_epoch
from .._warnings import warn
from ..distributions import Gaussian
from ..modules import MLP, GaussianHead, StackedLinear, split_head, stack
from ._distiller import PRUNING_PARAMETERS, Ask, Distiller, Lesson
from ._families import (
    SETTINGS,
    CategoricalMixtureFamily,
    DirichletFamily,
    DirichletLikelihoodFamily,
    DropoutHeadFamily,
    Family,
    GaussianFamily,
    GaussianHeadFamily,
    GaussianMixtureFamily,
    HeadFamily,
    LogitNormalFamily,
    NormalInverseGammaFamily,
    NormalInverseWishartFamily,
)
from ._meta import MetaDistiller

_LOSSES = ("reverse_kl", "reverse_kl_reference", "forward_kl", "nll")
_AUTO = {"regressor": "gaussian", "classifier": "dirichlet"}

# Precision of the proxy, at most, for each class.
_PRECISION_PER_CLASS = 1e3

# Loss of a row for each class or target, in nats, from which on it counts as its logarithm; but for
# the first steps of some, rows of ordinary fits stay below a tenth of it.
_LARGE_LOSS = 300.0

# Weight of the uniform distribution where the likelihood would see probabilities of zero.
_SMOOTHING = 1e-3

# Members whose answers differ by no more agree: on standardised targets, or in nats.
_ROUNDING = 1e-6

# Rows, at most, that the teacher is asked about to begin with.
_ROWS_FOR_START = 256


class DistributionObjective(Objective):
    """Loss of a family against the members, and of the labels (Eqs 16 and 17).

    A row's loss that is too large to be of use grows as its logarithm.

    Targets are the members' predictions (1, n, M, ...), the labels (1, n, ...), and whether a row
    has a label (1, n). A temperature T divides the logits of both sides, and the loss is multiplied
    by T^2.

    Parameters
    ----------
    settings : DistributionDistillation
        Whose temperature and weight of the labels to use.
    family : Family
    members_of : callable
        Takes the predictions to what the family takes for members.
    n_rows : float
        How many rows there are, the sum of their weights; it matters for a Gaussian head only.
    """

    temperature: Tensor

    def __init__(self, settings, family: Family, members_of: Callable, n_rows: float):
        super().__init__()
        self.settings = settings
        self.family = family
        self.members_of = members_of
        self.n_rows = n_rows
        self.limit = _LARGE_LOSS * family.size
        self.register_buffer("temperature", torch.ones(()))
        self.begin_epoch(0)

    def begin_epoch(self, epoch: int) -> None:
        self.temperature.fill_(value_at_epoch(self.settings.temperature, epoch, end=1.0))

    def forward(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> Tensor:
        answers, y, labelled = targets
        term = self.family.term(self.members_of(answers), self.temperature)
        loss = term.loss(outputs / self.temperature, *term.arguments)
        total = self.temperature.square() * term.weight * loss
        weight = self.settings.supervised_weight
        if weight:
            student = self.family.read(outputs.flatten(0, -3))
            of_labels = losses.label_nll(student, y.squeeze(0)).unsqueeze(0)
            total = total + weight * labelled * of_labels  # Eqs 16 and 17
        return losses.logarithmic_beyond(total, self.limit)

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        if self.settings.supervised_weight:
            return super().loss_and_gradient(outputs, targets)
        term = self.family.term(self.members_of(targets[0]), self.temperature)
        loss, gradient = term.loss_and_gradient(outputs / self.temperature, *term.arguments)
        weight = self.temperature * term.weight
        of_outputs = weight if weight.ndim == 0 else weight.unsqueeze(-1)
        loss, gradient = loss * weight * self.temperature, gradient * of_outputs
        return losses.logarithmic_beyond_and_gradient(loss, gradient, self.limit)

    def penalty(self, module: Any) -> Tensor | None:
        if not isinstance(module.network, GaussianHead):
            return None
        return module.network.divergence() / self.n_rows  # the evidence lower bound, per row


class DistributionDistillation(DunderParameters):
    """Parameters of :class:`DistributionDistiller`, and of the students that it builds."""

    def __init__(
        self,
        teacher,
        *,
        family="auto",
        covariance="diagonal",
        loss="reverse_kl",
        max_precision="auto",
        smoothing="auto",
        temperature=1.0,
        supervised_weight=0.0,
        n_samples=100,
        dropout_rate=0.5,
        module=MLP,
        transfer="auto",
        transfer_only=False,
        teacher_cv=None,
        weight_decay=0.0,
        group_lasso=0.0,
        prune_threshold=1e-3,
        finetune_epochs="auto",
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
        self.family = family
        self.covariance = covariance
        self.loss = loss
        self.max_precision = max_precision
        self.smoothing = smoothing
        self.temperature = temperature
        self.supervised_weight = supervised_weight
        self.n_samples = n_samples
        self.dropout_rate = dropout_rate
        self.module = module
        self.transfer = transfer
        self.transfer_only = transfer_only
        self.teacher_cv = teacher_cv
        self.weight_decay = weight_decay
        self.group_lasso = group_lasso
        self.prune_threshold = prune_threshold
        self.finetune_epochs = finetune_epochs
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


class DistributionStudent(DistributionDistillation, Distiller):
    """What students for classes and for numbers share: one network, and a family."""

    _parameter_table = {
        **Distiller._parameter_table,
        "covariance": AnyOf(OneOf(("diagonal", "full")), Number(Integral, 1)),
        "loss": OneOf(_LOSSES),
        "max_precision": Number(Real, 0, closed="neither", others=("auto", float("inf"))),
        "smoothing": Number(Real, 0, 1, closed="left", others=("auto",)),
        "temperature": Schedule(positive=True),
        "supervised_weight": Number(Real, 0),
        "n_samples": Number(Integral, 1),
        "dropout_rate": Number(Real, 0, 1, closed="left"),
        "weight_decay": Number(Real, 0),
        **PRUNING_PARAMETERS,
    }

    _family: Family

    # What makes a family of these settings, by name.
    _families: dict[str, Callable[[Any, int], Family]]

    def _check_weights_of_terms(self) -> None:
        """Hold parameters against each other, and note the family."""
        task = "classifier" if is_classifier(self) else "regressor"
        is_auto = isinstance(self.family, str) and self.family == "auto"
        name = _AUTO[task] if is_auto else self.family
        if not isinstance(name, str) or name not in self._families:
            raise ValueError(
                f"family must be 'auto' or one of {sorted(self._families)} with a {task} as "
                f"teacher, got {self.family!r}."
            )
        if self.transfer_only and self.supervised_weight:
            raise ValueError(
                "supervised_weight must be 0 with transfer_only=True, whose rows have no labels; "
                f"got {self.supervised_weight!r}."
            )
        is_constant = isinstance(self.temperature, Real) and self.temperature != 1
        if name == "dirichlet" and is_constant:
            raise ValueError(
                "temperature must be 1 with family='dirichlet', or fall to it: (temperature, "
                "first_epoch, last_epoch). A constant one would raise the precision to its power; "
                f"got {self.temperature!r}."
            )
        self.family_ = name

    def _set_recipe(self) -> None:
        self._family = self._families[self.family_](self, self._size)
        self._members_agree = self._family.tells_parts  # until an answer shows that they do not
        self._refuse_unread_settings()
        super()._set_recipe()

    def _refuse_unread_settings(self) -> None:
        """Raise a ValueError for a parameter that other families read, set for this one."""
        defaults = inspect.signature(DistributionDistillation.__init__).parameters
        for name in sorted(SETTINGS - self._family.settings):
            value, default = getattr(self, name), defaults[name].default
            if value != default:
                by_loss = f" and loss={self.loss!r}" if "loss" in self._family.settings else ""
                raise ValueError(
                    f"{name} must be {default!r} with family={self.family_!r}{by_loss}, which "
                    f"does not read it; got {value!r}."
                )

    @property
    def _size(self) -> int:
        """Number of targets or classes."""
        raise NotImplementedError  # by the task: classes or numbers

    def _members_of(self, answers: Tensor) -> Any:
        """Answers (..., n, M, ...) of a teacher as the family takes them."""
        raise NotImplementedError  # by the task: classes or numbers

    @property
    def _out_features(self) -> int:
        return self._family.n_outputs

    @property
    def _out_features_mean(self) -> str:
        return self._family.meaning

    @property
    def _tells_parts(self) -> bool:
        return self._family.tells_parts and self.n_members_ > 1

    @property
    def _n_networks(self) -> int:
        return 1

    def _count_networks(self, n_members: int) -> int:
        self.n_members_ = n_members
        if n_members == 1 and self._family.tells_parts:
            warn(
                "The teacher has one member, which disagrees with nobody: the student cannot tell "
                "the parts of the uncertainty, which are None.",
            )
        return 1

    def _build_network(self, seeds: list[int]) -> nn.Module:
        networks = self._build_members(seeds)
        if not isinstance(self._family, HeadFamily):
            return stack(networks)
        core, head = split_head(networks[0], 1)
        layer = list(stack([head]).children())[-1]
        if not isinstance(layer, StackedLinear):
            raise ValueError(
                f"module must end in a linear layer with family={self.family_!r}, got {head}."
            )
        n_drawn = getattr(self, "n_members_", 1)  # unknown yet when the module is tried out
        return self._family.head(stack([core]), layer, n_drawn)

    def _reader(self) -> dict[str, Any]:
        return {"read": self._family.read_agreed if self._members_agree else self._family.read}

    def _set_module(self, module) -> None:
        module.read = self._reader()["read"]  # whether members agree is known after training
        super()._set_module(module)

    def _note_agreement(self, answers: np.ndarray) -> None:
        """Note whether the members still agree, given what they say about further rows."""
        if self._members_agree:
            same = np.isclose(answers, answers[:, :1], rtol=_ROUNDING, atol=_ROUNDING)
            self._members_agree = bool(same.all())

    def _noting_agreement(self, ask: Ask) -> Ask:
        """The same question, whose answers are noted."""

        def ask_and_note(rows: np.ndarray) -> np.ndarray:
            answers = ask(rows)
            self._note_agreement(answers)
            return answers

        return ask_and_note

    def _set_start(self, module: nn.Module, lesson: Lesson, ask: Ask | None) -> None:
        """Set the bias of the last layer to the best outputs that are the same for all rows."""
        *_, last = module.parameters()
        if not self._family.has_start or last.shape[-1] != self._out_features:
            return
        answers, rows = lesson.answers, slice(None)
        if answers is None and ask is not None:
            rows = slice(None, None, -(-len(lesson.X) // _ROWS_FOR_START))
            answers = ask(lesson.X[rows])
        members = self._members_of(torch.as_tensor(answers))
        start = self._family.start(members, torch.as_tensor(lesson.weight[rows]))
        with torch.no_grad():
            last.copy_(start.expand_as(last))

    def _distil(self, lesson: Lesson, ask: Ask | None, *args) -> None:
        n_transfer = len(lesson.X_transfer)
        leaves_out_X = self.transfer_only and n_transfer > 0
        self._n_rows = n_transfer + (0.0 if leaves_out_X else float(lesson.weight.sum()))
        if lesson.answers is not None:
            self._note_agreement(lesson.answers)
        super()._distil(lesson, None if ask is None else self._noting_agreement(ask), *args)
        if self._members_agree and self.n_members_ > 1:
            warn(
                "The teacher's members never disagreed about the rows that the student learnt "
                "from: its epistemic uncertainty is 0 everywhere. Ask about other rows, by "
                "transfer or X_transfer, or members that have not seen them, by teacher_cv.",
            )

    def _student_objective(self, n_members: int) -> Objective:
        return DistributionObjective(self, self._family, self._members_of, self._n_rows)

    def _objective(self) -> Objective:
        return self._student_objective(self.n_members_)

    @available_if(lambda self: self._family.has_members)
    def predict_members(self, X):
        return super().predict_members(X)


class DistributionStudentRegressor(DistributionStudent, DistributionRegressor):
    """Student of a regressor."""

    _parameter_table = {
        **DistributionRegressor._parameter_table,
        **DistributionStudent._parameter_table,
    }
    _module_defaults = {"hidden_units": (128, 128), "activation": ("tanh", "silu")}
    _families = {
        "gaussian": lambda settings, size: GaussianFamily(size, _kind_of_covariance(settings)),
        "normal_inverse_gamma": lambda settings, size: NormalInverseGammaFamily(size),
        "normal_inverse_wishart": lambda settings, size: NormalInverseWishartFamily(size),
        "mixture": lambda settings, size: GaussianMixtureFamily(size),
    }

    @property
    def _size(self) -> int:
        return self.n_outputs_

    def _members_of(self, answers: Tensor) -> Gaussian:
        return Gaussian(*answers.transpose(-4, -3).unbind(-1))


class DistributionStudentClassifier(DistributionStudent, DistributionClassifier):
    """Student of a classifier."""

    _parameter_table = {
        **DistributionClassifier._parameter_table,
        **DistributionStudent._parameter_table,
    }
    _module_defaults = {"hidden_units": (128, 128), "activation": ("relu", "silu")}
    _families = {
        "logit_normal": lambda settings, size: LogitNormalFamily(
            size, _rank(settings), _smoothing(settings), settings.n_samples
        ),
        "dirichlet": lambda settings, size: (
            DirichletLikelihoodFamily if settings.loss == "nll" else DirichletFamily
        )(size, settings.loss, _max_precision(settings, size), _smoothing(settings)),
        "mixture": lambda settings, size: CategoricalMixtureFamily(size),
        "gauss_head": lambda settings, size: GaussianHeadFamily(size, settings.n_samples),
        "dropout_head": lambda settings, size: DropoutHeadFamily(
            size, settings.n_samples, rate=settings.dropout_rate
        ),
    }

    @property
    def _size(self) -> int:
        return len(self.classes_)

    def _members_of(self, answers: Tensor) -> Tensor:
        return answers.transpose(-3, -2)

    def _encoded_members(self, members, buffers, dtype):
        if self.smoothing == "auto" and "smoothing" in self._family.settings:
            members = without_zeros(members)
        return super()._encoded_members(members, buffers, dtype)


def without_zeros(members: np.ndarray) -> np.ndarray:
    """Probabilities of members, none of which is zero where one was; other rows as they are.

    What one of M members gives no probability may have as much as M members cannot tell from none:
    each is mixed with a further one, their mean, whose weight is 1 / (M + 1). The mean stays, but
    for a trace of the uniform distribution, for classes to which nobody gives any.

    Parameters
    ----------
    members : ndarray of shape (n, M, K)

    Returns
    -------
    members : ndarray of shape (n, M, K)
    """
    rows = (members == 0).any(axis=(1, 2))
    if not rows.any():
        return members
    share = 1 / (members.shape[1] + 1)
    mean = members[rows].mean(axis=1, keepdims=True)
    further = (1 - _SMOOTHING) * mean + _SMOOTHING / members.shape[2]
    members = members.copy()
    members[rows] = (1 - share) * members[rows] + share * further
    return members


def _kind_of_covariance(settings) -> str:
    if settings.covariance not in ("diagonal", "full"):
        raise ValueError(
            "covariance must be 'diagonal' or 'full' with family='gaussian', got "
            f"{settings.covariance!r}."
        )
    return settings.covariance


def _rank(settings) -> int:
    """Rank of the part of low rank of a covariance of logits."""
    if settings.covariance == "full":
        raise ValueError(
            "covariance must be 'diagonal' or the rank of its part of low rank with "
            "family='logit_normal', got 'full'."
        )
    return 0 if settings.covariance == "diagonal" else int(settings.covariance)


def _smoothing(settings) -> float:
    if settings.smoothing != "auto":
        return float(settings.smoothing)
    return _SMOOTHING if settings.family_ == "dirichlet" and settings.loss == "nll" else 0.0


def _max_precision(settings, n_classes: int) -> float:
    if settings.max_precision == "auto":
        return _PRECISION_PER_CLASS * n_classes
    return float(settings.max_precision)


class DistributionDistiller(DistributionDistillation, MetaDistiller):
    """Distil an ensemble into one network that predicts a distribution over predictions.

    The student is a classifier or a regressor as its teacher is. For a row it predicts not an
    ensemble's members but the distribution they seem to be drawn from [1]_, [2]_: its mean is the
    prediction, and its spread the epistemic uncertainty. One network without heads says it all.

    ============================  =================================================================
    `family`, for a regressor
    ============================  =================================================================
    ``"gaussian"``                A normal distribution over a member's mean and raw variance (Eqs
                                  12 and 13 of [1]_), its covariance diagonal or full.
    ``"normal_inverse_gamma"``    A normal-inverse-gamma distribution over a member's mean and
                                  variance, for each target by itself; y follows Student's t.
    ``"normal_inverse_wishart"``  The same for all targets together (Eq 11), with one strength of
                                  belief: y follows a multivariate t distribution.
    ``"mixture"``                 One Gaussian with the moments of the members' mixture (Eqs 5 and
                                  6): the total uncertainty only.
    ============================  =================================================================

    ==========================  ===================================================================
    `family`, for a classifier
    ==========================  ===================================================================
    ``"logit_normal"``          A normal distribution over a member's logits less that of the last
                                class (Eqs 9 and 10), diagonal or with a part of low rank.
    ``"dirichlet"``             A Dirichlet distribution over a member's probabilities; see `loss`.
    ``"mixture"``               The members' mean: plain distillation, the total only.
    ``"gauss_head"``            Gaussian weights of the last layer, by local reparametrisation
                                ("Gauss" of [3]_).
    ``"dropout_head"``          Dropout before the last layer ("Drop" of [3]_).
    ==========================  ===================================================================

    The last two are there for comparison: their draws know nothing of which member they are held
    against, so the loss depends on the members' mean alone, and their spread is not the members'.

    Parameters
    ----------
    teacher : estimator, "classifier" or "regressor"
        An unfitted estimator is cloned and fitted as `teacher_`, one in
        ``sklearn.frozen.FrozenEstimator`` is used as it is; see
        :func:`skdistill.teachers.as_teacher` for what has members. Its name alone says what the
        student is to be if `fit` is given `member_predictions`.
    family : str, default="auto"
        What the student predicts, see above. "auto" is "gaussian" for a regressor and "dirichlet"
        for a classifier, whose uncertainties came closest to those of the teacher on rows held out
        from training (letter, pendigits, satimage; the sets of UCI); it is never the Dirichlet
        likelihood.
    covariance : {"diagonal", "full"} or int, default="diagonal"
        Covariance of the families "gaussian", diagonal or full, and "logit_normal", diagonal or
        that plus a part of this rank.
    loss : str, default="reverse_kl"
        What "dirichlet" minimises: ``"reverse_kl"``, the divergence KL(student || proxy) from the
        Dirichlet that is as wide as the members (Eqs 14 and 17 of [2]_), divided by the proxy's
        precision, so that rows on which members agree do not drown the others;
        ``"reverse_kl_reference"``, the form that its authors released (Eq 18), whose proxy is
        narrower; or, for comparison, ``"forward_kl"`` (Eq 13) and ``"nll"``, the
        members' likelihood (Eq 11, EnD2), neither of which trains with many classes.
    max_precision : float, default="auto"
        Largest precision of the proxy, which members that agree would make infinite; "auto" is
        1,000 for each class. In float32 it is 8,400 for each class at most, as much as losses hold.
    smoothing : float, default="auto"
        Weight of the uniform distribution that is mixed into every member for "dirichlet" and
        "logit_normal". "auto" is 1e-3 for ``loss="nll"`` and 0 else; and where one of M members
        gives a class a probability of exactly zero, as trees do, members are mixed with their mean,
        whose weight is 1 / (M + 1): the mean stays, and their disagreement stays finite.
    temperature : float or tuple (temperature, first_epoch, last_epoch), default=1.0
        Divides the logits of members and student in training, with "dirichlet", "mixture" and the
        random heads; constant (not with "dirichlet"), or falling linearly to 1 between two epochs.
        The loss is multiplied by its square.
    supervised_weight : float, default=0.0
        Weight of the labels' negative log-likelihood in the loss (lambda in Eqs 16 and 17 of
        [1]_).
    n_samples : int, default=100
        How many draws stand for the distribution at prediction, with "logit_normal" and the random
        heads: the same for every row, so that predictions are deterministic.
    dropout_rate : float, default=0.5
        Probability that an input of the last layer is dropped, with "dropout_head".
    module : callable, default=MLP
        Builds the student from ``in_features``, ``out_features`` and what is given as
        ``module__<name>``; for the MLP, ``module__hidden_units=(128, 128)``, and
        ``module__activation=("tanh", "silu")`` for a regressor or ``("relu", "silu")`` for a
        classifier, unless given. For the random heads it must be an
        ``nn.Sequential`` that ends in a linear layer.
    transfer, transfer_only, teacher_cv, weight_decay
        As in :class:`HydraPlusRegressor`.
    group_lasso, prune_threshold, finetune_epochs, max_epochs
        As in :class:`HydraPlusRegressor`.
    optimizer, lr, lr_schedule, batch_size, clip_norm
        As in :class:`BayesianEnsembleRegressor`.
    normalize_y : bool, default=True
        Whether to standardise the targets of a regressor for training.
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
    student_ : estimator
        The fitted student. Its attributes, those below, are the distiller's too.
    teacher_ : estimator
        The fitted teacher.
    family_ : str
        What the student predicts.
    n_members_ : int
        Number of members of the teacher.
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted. Only for classifiers.
    n_outputs_ : int
        Number of targets. Only for regressors.
    n_epochs_ : int
        Number of epochs that training was set to.
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
    Concentrations of "dirichlet" are ``exp(z)`` for outputs z. The divergences from the proxy are
    taken with one added to both sides' concentrations, as in [2]_; predictions are read without it,
    as in its authors' code: with many classes it would make most of the mean uniform.

    All uncertainties have a closed form but those of "logit_normal", means over draws (see
    :class:`skdistill.distributions.LogitNormal` for their error), and the expected noise variance
    of "gaussian", which is a Gauss-Hermite quadrature.

    A teacher of one member cannot tell the parts of the uncertainty, and neither can its student:
    they are None. Where members never disagree about a row that the student learns from, it
    predicts what they say, with an epistemic part of 0. A warning says so in either case.

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

    _students = {
        "classifier": DistributionStudentClassifier,
        "regressor": DistributionStudentRegressor,
    }
