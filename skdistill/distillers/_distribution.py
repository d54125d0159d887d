# SPDX-License-Identifier: BSD-3-Clause
"""Ensemble distribution distillation: one network that predicts a distribution over predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from .. import losses
from .._estimator.base import Fitted, ObservedTask, available_if
from .._estimator.batched import read_rows
from .._method.plan import LARGE_LOSS, Objective, Plan, TrainingBudget
from .._method.task import Buffers, Task
from .._training.trainer import SEED_LIMIT
from .._utils.typing import Callbacks, Folds, Memory, ModelClass, OptimizerClass, RandomStateLike
from .._utils.validation import Number, OneOf, Seed, value_at_epoch
from .._utils.warnings import warn
from ..distributions import EmpiricalCategorical, EmpiricalGaussian, Gaussian
from ..families import Family, make_family
from ..modules import MLP, DistributionStack
from ..pruning import GroupLasso
from ..settings import Optimizer, Runtime
from ..transfer import TransferMaker, TransferOnly
from ._base import FamilyRule, IncrementalDistiller
from ._spec import FitSpec
from ._student import first_predictions, train_student, with_plan
from ._teacher import MemberPredictions

_ROUNDING = 1e-6  # difference of members that agree: of standardised targets, or in nats


class DistributionDistiller(MetaEstimatorMixin, IncrementalDistiller):
    """Distil an ensemble into one network that predicts a distribution over predictions.

    The student, one network without heads, is a classifier if its teacher is one, else a regressor.
    For each sample it predicts the distribution of the members' predictions [1]_, [2]_: its mean is
    the prediction, and its spread the epistemic uncertainty.

    `family` defines the distribution and its loss, see :mod:`skdistill.families`. Those for
    regression are "gaussian", "normal_inverse_gamma", "normal_inverse_wishart" and "latent_factor",
    which draws functions; those for classification are "dirichlet" and "logit_normal". Both have
    "mixture", which has the total uncertainty only, and, for comparison only, the random last
    layers "gauss_head" and "dropout_head".

    Parameters
    ----------
    teacher : estimator, "classifier" or "regressor"
        An unfitted estimator is cloned and fitted as `teacher_`, one in
        ``sklearn.frozen.FrozenEstimator`` is used as it is; see
        :func:`skdistill.teachers.as_teacher` for models with members. With `member_predictions` in
        `fit` it is the name of the task.
    family : str or Family, default="auto"
        What the student predicts: a name, or an object with settings, such as
        ``DirichletFamily(max_precision=1e4)``, which a search reaches as ``family__max_precision``,
        or one of your own, see :doc:`/user_guide/own_family`. "auto" is "gaussian" for a regressor
        and "dirichlet" for a classifier, whose uncertainties came closest to the teacher's on
        held-out samples (letter, pendigits, satimage; the sets of UCI).
    supervised_weight : float, default=0.0
        Weight of the labels' negative log-likelihood (lambda in Eqs 16 and 17 of [1]_).
    ddof : {0, 1}, default=1
        As in :class:`HydraPlusRegressor`; of a classifier's members, of their logits.
    module : callable, default=MLP
        As in :class:`HydraPlusRegressor` or :class:`HydraPlusClassifier`, but it need not build an
        ``nn.Sequential``, except for the random heads, where the last layer must be linear.
    transfer : str, TransferMaker, TransferOnly or None, default="auto"
        As in :class:`HydraPlusRegressor`; for a classifier "auto" is
        ``GaussianNoise(scale=1.0, correlated=True)``, on large tables too, and half of it of a
        teacher that has trees or mixes models.
    teacher_cv, memory, max_epochs, max_time, batch_size, pruning, lr
        As in :class:`HydraPlusRegressor`.
    optimizer, callbacks, runtime, normalize, categorical_features, verbose, random_state
        As in :class:`HydraPlusRegressor`.
    calibration_fraction : float, default=None
        As in :class:`HydraPlusRegressor`. Not with ``family="normal_inverse_wishart"``, whose
        targets have one strength of belief in common.
    warm_start : bool, default=False
        Whether `fit` goes on from the student of the fit before: `max_epochs` is the number of
        epochs in all, so ``set_params(max_epochs=more)`` trains for the further ones. With
        ``Optimizer(lr_schedule=None)`` and the same data the student is, on a CPU bit for bit, that
        of one fit, but for weights that grow over the epochs of the first; "cosine" falls from `lr`
        anew. `teacher_`, the classes, and the location and scale of y are kept, and if `warm_start`
        was True before, so is the state of the optimizer, which makes a pickle about three times as
        large. Not with `pruning`.
    **kwargs
        ``module__<name>``, ``optimizer__<name>`` and ``callbacks__<callback>__<name>``.

    Attributes
    ----------
    teacher_ : estimator
        The fitted teacher.
    family_ : Family
        What the student predicts, with its settings.
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
        Number of epochs that training was set to, or with `max_time` that it took, the last maybe
        in part.
    n_parameters_ : int
        Number of parameters of the student.
    flops_ : int
        Floating-point operations for a sample, see :func:`skdistill.model_selection.flops`.
    module_ : nn.Module
        The student, as a torch module.
    net_ : skorch.NeuralNet
        The net around `module_`, built when asked for.
    history_ : list of dict
        One row for each epoch.
    n_features_in_, feature_names_in_
        Number of the columns of X, and their names, if they have some.

    Notes
    -----
    A teacher of one member cannot tell the parts of the uncertainty, and neither can its student:
    they are None. Where members never disagree on the training and transfer sets, the student
    predicts their mean, with an epistemic part of 0. A warning says so in either case.

    Ctrl-C: see :class:`HydraPlusRegressor`.

    References
    ----------
    .. [1] J. Lindqvist, A. Olmin, F. Lindsten and L. Svensson, "A general framework for ensemble
       distribution distillation", MLSP 2020.
    .. [2] M. Ryabinin, A. Malinin and M. Gales, "Scaling Ensemble Distribution Distillation to Many
       Classes with Proxy Targets", NeurIPS 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skdistill import BayesianEnsembleClassifier, DistributionDistiller
    >>> X, y = load_iris(return_X_y=True)
    >>> teacher = BayesianEnsembleClassifier(n_members=5, max_epochs=20)
    >>> student = DistributionDistiller(teacher, max_epochs=20, random_state=0).fit(X, y)
    >>> total, aleatoric, epistemic = student.predict_uncertainty(X[:3])
    >>> total.shape
    (3,)
    """

    _plan: FamilyPlan
    _parameter_table = {
        **IncrementalDistiller._parameter_table,
        "family": FamilyRule(),
        "supervised_weight": Number(Real, 0),
    }

    def __init__(
        self,
        teacher: BaseEstimator | str,
        *,
        family: str | Family = "auto",
        supervised_weight: float = 0.0,
        ddof: int = 1,
        module: ModelClass = MLP,
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

    def _plan_of(self, task: Task) -> FamilyPlan:
        family, weight = make_family(self.family, task.kind), self.supervised_weight
        if weight and isinstance(self.transfer, TransferOnly):
            raise ValueError(
                "supervised_weight must be 0 with transfer=TransferOnly(...), whose samples have "
                f"no labels; got {weight!r}."
            )
        known = vars(self).get("family_", family)  # of the fit that training goes on from
        if type(family) is not type(known):
            raise ValueError(
                f"family must be {known!r}, as in the fit that training goes on from; got "
                f"{self.family!r}."
            )
        return FamilyPlan(task, clone(family).for_task(task), weight, ddof=int(self.ddof))

    def _stages(
        self, spec: FitSpec, predictions: MemberPredictions, task: ObservedTask
    ) -> Iterator[Fitted]:
        before: Any = spec.before
        family = clone(make_family(self.family, spec.kind))
        agree = before is None or before.plan.members_agree  # in all that they have predicted

        def compared(members: np.ndarray) -> np.ndarray:
            nonlocal agree
            if agree:
                same = np.isclose(members, members[:, :1], rtol=_ROUNDING, atol=_ROUNDING)
                agree = bool(same.all())
            return members

        if predictions.of_X is not None:
            compared(predictions.of_X)
        if (predict := predictions.predict) is not None:
            predictions = predictions._replace(predict=lambda rows: compared(predict(rows)))
        plan = replace(spec.plan, n_members=predictions.count(spec.X))
        if _defines(plan.family, "informed"):  # which completes it, before the network is built
            if before is None:
                plan = plan.informed(*map(torch.as_tensor, first_predictions(spec, predictions)))
            else:
                plan = replace(plan, family=plan.family.informed_as(before.plan.family))
            spec = replace(spec, recipe=spec.recipe.with_outputs(plan.n_outputs))
        if plan.n_members == 1 and family.tells_parts:
            warn(
                "The teacher has one member, and so no spread to learn: the student cannot tell "
                "the parts of the uncertainty, which are None."
            )
        fitted, facts = before, {"n_members_": plan.n_members, "family_": family}

        def read(fitted: Any) -> Fitted:
            """Return a student that predicts the mean of members that agree, if they do."""
            if not (agree and fitted.plan.family.tells_parts):
                return fitted
            return with_plan(replace(fitted.plan, members_agree=True), fitted)

        for fitted in train_student(spec, plan, predictions, task, **facts):
            yield read(fitted)
        yield read(fitted)
        if agree and family.tells_parts and plan.n_members > 1:
            warn(
                "The teacher's members never disagreed about the samples that the student learnt "
                "from: its epistemic uncertainty is 0 everywhere. Let it learn from other samples, "
                "by transfer or X_transfer, or from out-of-fold predictions, by teacher_cv."
            )

    @available_if(
        lambda self: (
            "_plan" not in vars(self)
            or (hasattr(self._plan.family, "process") and self._plan.tells_parts)
        )
    )
    def sample_members(
        self,
        X: ArrayLike,
        n_members: int = 1,
        *,
        with_residual: bool = True,
        random_state: RandomStateLike = None,
    ) -> np.ndarray:
        """Draw members that the teacher could have had, each of them a function of all samples.

        Only students of "latent_factor" have this method, if the teacher had several members. The
        factors of a member are drawn once for all samples, so that it errs on neighbouring samples
        alike, as the teacher's members do.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        n_members : int, default=1
            Number of draws.
        with_residual : bool, default=True
            Whether the residual variance, which no factor explains, is drawn too, for each sample
            by itself: then the draws have the epistemic variance of each sample, else they depend
            smoothly on X, and what is drawn for a sample does not depend on the others.
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        members : ndarray of shape (n_samples, n_members, n_targets, 2)
            Means ``[..., 0]`` in units of y, and variances ``[..., 1]`` in squared units, the
            expected noise variance of the sample for all draws.

        Raises
        ------
        ValueError
            If the student was calibrated, which is done sample by sample.
        """
        if hasattr(self, "calibration_"):
            raise ValueError(
                "calibration_fraction must be None for sample_members: a student is calibrated "
                f"sample by sample, and members span all; got {self.calibration_fraction!r}."
            )
        Number(Integral, 1).check(n_members, "n_members")
        OneOf((True, False)).check(with_residual, "with_residual")
        Seed().check(random_state, "random_state")
        check_is_fitted(self)
        seed = int(check_random_state(random_state).randint(SEED_LIMIT))
        generator = torch.Generator().manual_seed(seed)
        module, plan = self.module_, self._plan
        buffers = dict(module.named_buffers(recurse=False))

        def read(outputs: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
            found = (outputs,) if module.functions is None else (outputs, module.functions(rows))
            return tuple(part.transpose(0, 1) for part in found)

        parts = (torch.from_numpy(part).transpose(0, 1) for part in read_rows(self, X, read))
        outputs, added = next(parts), torch.zeros(1)
        for values in parts:  # each member has one of the draws where X is unknown
            chosen = (seed + torch.arange(n_members)) % len(values)
            added = values[chosen] / buffers.get("y_scale", 1.0)

        def draw(outputs: torch.Tensor) -> Any:
            family: Any = plan.family
            process = family.process(outputs)
            drawn = process.mean.expand(n_members, -1, -1)
            if not plan.members_agree:
                drawn = process.draw(n_members, generator, with_residual)
            return family.of_functions(drawn + added.to(drawn), outputs)

        drawn = plan.task.wrap(module.network, buffers, draw)
        return drawn.of_parts(outputs).members.numpy()


@dataclass(frozen=True)
class FamilyPlan(Plan):
    """A network that predicts a distribution over predictions, of one family."""

    task: Task
    family: Family  # that for the task
    supervised_weight: float = 0.0  # of the labels' negative log-likelihood
    n_members: int = 2  # of the teacher; one cannot tell the parts of the uncertainty
    members_agree: bool = False  # never disagreed in training: their mean alone is predicted
    calibration: Any = None  # of the fitted student
    ddof: int = 0

    @property
    def tells_parts(self) -> bool:  # type: ignore[override]  # a constant in the base
        return self.family.tells_parts and self.n_members > 1

    @property
    def takes_functions(self) -> bool:  # type: ignore[override]  # a constant in the base
        return self.family.takes_functions

    @property
    def has_members(self) -> bool:  # type: ignore[override]  # a constant in the base
        return self.family.has_members

    @property
    def has_start(self) -> bool:  # type: ignore[override]  # a constant in the base
        return _defines(self.family, "initial_outputs")

    @property
    def n_outputs(self) -> int:
        return self.family.n_outputs(self.task.size)

    @property
    def meaning_of_outputs(self) -> str:
        what = "class(es)" if self.task.kind == "classifier" else "target(s)"
        return f"the outputs of {type(self.family).__name__} for {self.task.size} {what}"

    def informed(self, predictions: Tensor, weight: Tensor) -> FamilyPlan:
        """Return the plan with what encoded predictions of members, (n, M, ...), tell of them."""
        return replace(self, family=self.family.informed(self.members(predictions), weight))

    def build(self, recipe: Any, seeds: Sequence[int]) -> Any:
        (network,) = recipe.build(seeds)
        return self.family.build(network, self.n_members)

    def encode_members(self, members: np.ndarray, scaling: Buffers, dtype) -> np.ndarray:
        return super().encode_members(self.family.prepare_members(members), scaling, dtype)

    def members(self, predictions: Tensor) -> Any:
        """Return members' predictions (..., n, M, ...) in the form that families take."""
        if self.task.kind == "classifier":
            return predictions.transpose(-3, -2)
        return Gaussian(*predictions.transpose(-4, -3).unbind(-1))

    def read(self, outputs: Tensor) -> Any:
        found = self.family.distribution(outputs)
        if not self.members_agree:
            return found
        if self.task.kind == "classifier":
            return EmpiricalCategorical(found.log_mean.unsqueeze(0))
        parts = found.mean, found.uncertainty().aleatoric
        return EmpiricalGaussian(*(part.unsqueeze(0) for part in parts))

    def read_mean(self, outputs: Tensor) -> Tensor:
        return self.family.mean(outputs, self.task.size)

    def start(self, module: DistributionStack, predictions: Tensor, weight: Tensor) -> None:
        outputs = self.family.initial_outputs(self.members(predictions), weight)
        *_, last = module.parameters()
        if outputs is not None and last.shape[-1] == outputs.shape[-1]:  # it is a bias
            with torch.no_grad():
                last.copy_(outputs.expand_as(last))

    def objective(self, module: DistributionStack, training_budget: TrainingBudget) -> Objective:
        return DistributionObjective(self, training_budget.n_rows, next(module.parameters()))


def _defines(family: Family, method: str) -> bool:
    """Whether a family has a method of its own in the place of the default."""
    return getattr(type(family), method) is not getattr(Family, method)


class DistributionObjective(Objective):
    """Loss of a family against the members, and of the labels (Eqs 16 and 17).

    Targets are the members' predictions (1, n, M, ...), the labels (1, n, ...), and whether a
    sample has a label (1, n). A temperature T divides the logits of both sides, and the loss is
    multiplied by T^2. A family's penalty is divided by `n_rows`, the sum of the samples' weights.
    """

    temperature: Tensor
    given: Tensor | None  # by the family, in this epoch

    def __init__(self, plan: FamilyPlan, n_rows: float, like: Tensor):
        super().__init__()
        self.plan = plan
        self.n_rows = n_rows
        self.limit = LARGE_LOSS * plan.task.size
        first = float(value_at_epoch(plan.family.temperature, 0, end=1.0))
        self.register_buffer("temperature", torch.tensor(first))
        given = plan.family.given(0, plan.task.size)
        self.register_buffer("given", None if given is None else torch.tensor(given).to(like))

    def begin_epoch(self, epoch: int) -> None:
        family, size = self.plan.family, self.plan.task.size
        self.temperature.fill_(value_at_epoch(family.temperature, epoch, end=1.0))
        if self.given is not None:
            self.given.copy_(torch.tensor(family.given(epoch, size)))

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        predictions, y, labelled = targets
        members, temperature = self.plan.members(predictions), self.temperature
        loss, gradient = self.plan.family.loss_and_gradient(
            outputs / temperature, members, temperature=temperature, given=self.given
        )
        loss, gradient = loss * temperature**2, gradient.mul_(temperature)
        weight = self.plan.supervised_weight
        if weight:

            def nll(outputs: Tensor, y: Tensor) -> Tensor:
                student = self.plan.family.distribution(outputs.flatten(0, -3))
                return losses.label_nll(student, y.squeeze(0)).unsqueeze(0)

            of_labels, slope = losses.by_autograd(nll, outputs, y)
            loss = loss + weight * labelled * of_labels  # Eqs 16 and 17
            gradient = gradient + weight * labelled.unsqueeze(-1) * slope
        return losses.log_tailed_clip(loss, gradient, self.limit)

    def penalty(self, module: nn.Module) -> Tensor | None:
        penalty = self.plan.family.penalty(module.network)
        return None if penalty is None else penalty / self.n_rows
