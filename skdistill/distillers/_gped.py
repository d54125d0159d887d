# SPDX-License-Identifier: BSD-3-Clause
"""GPED: a student learns posterior expectations, of the draws of chains (Vadera et al., 2020)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .._estimator.base import Fitted, ObservedTask
from .._estimator.batched import check_rows, read_in_chunks
from .._method.plan import Objective, Plan, TrainingBudget
from .._method.task import Buffers, RegressionTask, Task
from .._training.trainer import NO_MATTER
from .._utils.typing import Callbacks, Folds, Memory, ModelClass, OptimizerClass, RandomStateLike
from .._utils.validation import OneOf, SettingsRule
from ..distributions import Dirichlet, EmpiricalGaussian, ExpectedCategorical, Gaussian
from ..ensembles import BayesianEnsembleClassifier, BayesianEnsembleRegressor
from ..expectations import KNOWN, Expectation
from ..modules import MLP, DistributionStack
from ..pruning import GroupLasso
from ..samplers import SGHMC, SGLD
from ..settings import Checkpoint, Estimate, Optimizer, Runtime
from ..transfer import TransferMaker, TransferOnly, TransferSet, make_transfer
from ._base import PRUNING, Distiller
from ._spec import FitSpec
from ._student import train_student, with_approximation_error
from ._teacher import MemberPredictions

_ESTIMATES = ("online", "stochastic")
# Expectations that a student needs to predict, and those that it learns by default, by its task.
_NEEDED = {
    "classifier": (("predictive",), ("dirichlet",)),
    "regressor": (("mean", "aleatoric", "epistemic"),),
}
_AUTO = {"classifier": ("predictive", "share"), "regressor": ("mean", "aleatoric", "epistemic")}
_AUTO_OF_ONE = {**_AUTO, "classifier": ("predictive", "entropy")}  # what one sample tells


class GPEDDistiller(MetaEstimatorMixin, Distiller):
    """Distil posterior expectations into one network, without storing posterior samples [1]_.

    With an unfitted teacher whose members are drawn by Markov chains, no posterior sample is
    stored (Algorithm 1): after every H-th iteration the chains' states predict for minibatches of
    the transfer set, and update the means of its predictions. The student learns from these when
    the chains have ended, by a gradient step for each H-th iteration; one of last samples, with
    "stochastic" estimates, takes its steps while they run. For classification it learns the
    predictive distribution and the split of its entropy into aleatoric and epistemic uncertainty;
    for regression, the mean and the aleatoric and epistemic variance; and custom expectations.

    With any other teacher, fitted or without chains, the student learns the expectations over its
    stored members. :class:`DistributionDistiller` documents the supported teachers.

    Parameters
    ----------
    teacher : estimator, "classifier" or "regressor"
        Best a :class:`BayesianEnsembleClassifier` or :class:`BayesianEnsembleRegressor` with
        ``inference=SGLD(...)`` or ``SGHMC(...)``, whose ``max_epochs``, ``inference__burn_in`` and
        ``inference__thinning`` are the paper's T, B and H; for H, "auto" is 1. The student learns
        from all chains at once; ``n_members`` has no effect.
    expectations : tuple of str and Expectation, or "auto", default="auto"
        What the student learns. By name, of a classifier: "predictive", the class probabilities,
        which are always needed; "share", the share of the mutual information in their entropy;
        "entropy", the expected entropy, as in the paper; "variance", the expected variance of each
        class's indicator, p (1 - p). Of a regressor: "mean", "aleatoric" and "epistemic", all of
        them needed. "auto" is a regressor's three or ("predictive", "share"), but with
        ``estimate="stochastic"`` ("predictive", "entropy"), as one sample tells no share. Those of
        your own are :class:`skdistill.expectations.Expectation` objects; an
        :class:`~skdistill.expectations.EntropyExpectation` learns "entropy" by another loss.
        ``"dirichlet"`` alone is the paper's baseline, EnD2 inside the same loop: a Dirichlet is
        fitted to mean log probabilities, see :class:`~skdistill.expectations.DirichletExpectation`.
    estimate : {"online", "stochastic"}, dict or Estimate, default="online"
        Mean over all samples that have predicted a row of the transfer set, or the last one; a dict
        gives it by the names of expectations. See :class:`skdistill.settings.Estimate`.
    module : callable, default=MLP
        Builds the student from ``in_features``, ``out_features`` and the parameters
        ``module__<name>``; for the MLP, ``module__hidden_units=(128, 128)`` and, for regressors,
        ``module__activation=("tanh", "silu")`` unless given.
    transfer : str, TransferMaker, TransferOnly or None, default="auto"
        How further samples are generated from X and `X_transfer`; None lets the student learn from
        these alone. "auto" is None, but with chains and all estimates "online", for tables of at
        most 50,000 samples, ``Munge(base=Mixup(), share=0.5)``. Up to nine for each sample are
        generated once, and have running means too, fewer where chains are short; with
        ``estimate="stochastic"`` new ones take the samples' places each time. Estimates
        must not be of both kinds then. With other teachers, see :class:`HydraPlusRegressor`.
    pruning
        As in :class:`HydraPlusRegressor`. With chains, the pruned student is fine-tuned on the
        means of the whole transfer set, if all estimates are "online", and else not.
    teacher_cv, memory, max_epochs, max_time
        As in :class:`HydraPlusRegressor`; with chains they must have their defaults.
    lr, optimizer, batch_size, callbacks, runtime, normalize, categorical_features, verbose
        As in :class:`HydraPlusRegressor`, but 100 rows a minibatch. Beside chains the epochs of a
        ``runtime__checkpoint`` are those of the chains, with which the student is one stage.
    random_state : int, RandomState instance or None, default=None
        As in :class:`HydraPlusRegressor`.
    **kwargs
        ``module__<name>``, ``optimizer__<name>`` and ``callbacks__<callback>__<name>``.

    Attributes
    ----------
    teacher_ : estimator
        The fitted teacher; of chains only the last states.
    monitor_ : dict of str to ndarray
        The teacher's expectations for the rows of `X_monitor`, by name, in the shape of
        :meth:`predict_expectation`. Of chains, the mean over states at most 100 of the student's
        steps apart.
    monitor_error_ : dict of str to float
        Mean absolute difference between the student's expectations and those of `monitor_`.
    n_epochs_ : int
        Number of epochs that the student's training was set to. Of one that learns while chains
        run, an epoch is its steps in an epoch of the chains, or in as many as have 20 iterations if
        these are short, but a hundred steps at most.
    classes_, n_outputs_, n_parameters_, flops_, module_, net_, history_, n_features_in_, \
            feature_names_in_
        As in :class:`DistributionDistiller`.

    Notes
    -----
    Of a classifier the epistemic part is the predicted share of the predicted entropy, and the
    aleatoric part the rest. With "entropy" in the place of "share", as in the paper, the aleatoric
    part is the expected entropy, but at most the total. Expected entropies and variances are
    softplus of an output; the paper has exponentials.

    A regressor's epistemic part includes the mean squared error of the student in the teacher's
    mean, found on new samples.

    Bayesian Dark Knowledge [2]_ is ``expectations="predictive", estimate="stochastic",
    transfer=GaussianNoise(share_power=0)``, with a student of the teacher's architecture.

    Ctrl-C keeps the student as trained so far and raises ``KeyboardInterrupt``; before the end of
    its first epoch it stays unfitted. `teacher_` is not kept if the chains had not ended.

    References
    ----------
    .. [1] M. Vadera, B. Jalaian and B. Marlin, "Generalized Bayesian Posterior Expectation
       Distillation for Deep Neural Networks", UAI 2020.
    .. [2] A. K. Balan, V. Rathod, K. P. Murphy and M. Welling, "Bayesian Dark Knowledge",
       NeurIPS 2015.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from skdistill import BayesianEnsembleClassifier, GPEDDistiller
    >>> from skdistill.samplers import SGLD
    >>> X, y = load_iris(return_X_y=True)
    >>> chain = BayesianEnsembleClassifier(inference=SGLD(1e-3, prior_precision=1), max_epochs=100)
    >>> student = GPEDDistiller(chain, random_state=0).fit(scale(X), y)
    >>> total, aleatoric, epistemic = student.predict_uncertainty(scale(X)[:3])
    >>> student.predict_expectation(scale(X)[:3], "share").shape
    (3,)
    """

    _plan: ExpectationsPlan
    _parameter_table = {**Distiller._parameter_table, **PRUNING, "estimate": SettingsRule(Estimate)}
    _auto_transfer = {"classifier": None, "regressor": None}  # beside chains see `distil_online`
    _module_defaults = {
        "classifier": {"hidden_units": (128, 128)},
        "regressor": {"hidden_units": (128, 128), "activation": ("tanh", "silu")},
    }

    def __init__(
        self,
        teacher: BaseEstimator | str,
        *,
        expectations: str | Sequence[str | Expectation] = "auto",
        estimate: str | dict[str, str] | Estimate = "online",
        module: ModelClass = MLP,
        transfer: str | TransferMaker | TransferOnly | None = "auto",
        teacher_cv: Folds = None,
        pruning: GroupLasso | None = None,
        optimizer: str | OptimizerClass | Optimizer = "Adam",
        lr: float | str = "auto",
        max_epochs: int | str = "auto",
        max_time: float | None = None,
        batch_size: int = 100,
        normalize: bool | str = True,
        categorical_features: str | ArrayLike | None = "from_dtype",
        memory: str | Memory | None = None,
        callbacks: Callbacks = None,
        runtime: Runtime | None = None,
        verbose: int | bool = 0,
        random_state: RandomStateLike = None,
        **kwargs: object,
    ):
        self._set_arguments(locals())

    def fit(
        self,
        X: object,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        X_transfer: object = None,
        member_predictions: ArrayLike | None = None,
        X_monitor: object = None,
    ) -> Self:
        """Fit teacher and student.

        Parameters
        ----------
        X, y, sample_weight : as in :meth:`DistributionDistiller.fit`
        X_transfer, member_predictions : as in :meth:`DistributionDistiller.fit`
        X_monitor : array-like of shape (n_monitor, n_features) or TransferSet, default=None
            Rows of interest, for which the teacher's expectations are kept as `monitor_`, and
            compared with the student's, as `monitor_error_`.

        Returns
        -------
        self
        """
        arguments = X, y, sample_weight, X_transfer, member_predictions
        self._fit(*arguments, X_monitor=X_monitor)
        if X_monitor is not None:
            rows = X_monitor.rows if isinstance(X_monitor, TransferSet) else X_monitor
            self.monitor_error_ = {
                label: float(np.abs(self.predict_expectation(rows, label) - expected).mean())
                for label, expected in self.monitor_.items()
            }
        return self

    def _plan_of(self, task: Task) -> ExpectationsPlan:
        """Return the plan of a student; raise for parameters that do not go together."""
        ensembles = BayesianEnsembleClassifier, BayesianEnsembleRegressor
        is_ensemble = isinstance(self.teacher, ensembles)
        runs_chains = is_ensemble and isinstance(self.teacher.inference, (SGLD, SGHMC))
        estimate = Estimate.of(self.estimate).kind
        plan = expectations_plan(task, self.expectations, estimate, not runs_chains)
        if plan.replays:
            return plan
        estimates = plan.estimates
        defaults = {"max_epochs": "auto", "max_time": None, "teacher_cv": None, "memory": None}
        for name, value in defaults.items():
            if getattr(self, name) != value:
                raise ValueError(
                    f"{name} must be {value!r} beside chains: the student learns while they run, "
                    f"for teacher__max_epochs epochs. Got {getattr(self, name)!r}."
                )
        is_wrapped = isinstance(self.transfer, TransferOnly)
        transfer = self.transfer.transfer if is_wrapped else self.transfer
        transfer = None if isinstance(transfer, str) and transfer == "auto" else transfer
        make_transfer(transfer)  # raises an error for others
        if transfer is not None and len(set(estimates)) > 1:
            raise ValueError(
                "estimate must be 'online' or 'stochastic' for all expectations beside chains with "
                f"a transfer. Got {self.estimate!r} with transfer={self.transfer!r}."
            )
        finetune_epochs = "auto" if self.pruning is None else self.pruning.finetune_epochs
        if finetune_epochs not in ("auto", 0) and "stochastic" in estimates:
            raise ValueError(
                "pruning__finetune_epochs must be 'auto' or 0 beside chains unless all estimates "
                "are 'online': the last samples are gone when the student has been pruned. Got "
                f"{finetune_epochs!r}."
            )
        return plan

    def _stages(
        self, spec: FitSpec, predictions: MemberPredictions | None, task: ObservedTask
    ) -> Iterator[Fitted]:
        if predictions is None:
            from .._engine import CheckpointFile
            from .._serialization.digest import digests
            from ._gped_chains import distil_online

            checkpoint: Any = nullcontext()
            if (wanted := spec.checkpoint) is not None:
                belongs_to = digests(self, {**spec.data, "X_monitor": spec.X_monitor}, NO_MATTER)
                wanted = Checkpoint.of(wanted)
                checkpoint = CheckpointFile(wanted.path, wanted.every, belongs_to)
            yield from distil_online(spec, task, checkpoint)
            return
        plan = spec.plan
        predictions.count(spec.X)
        for fitted in train_student(spec, plan, predictions, task):
            fitted = with_approximation_error(fitted, spec, predictions)
            yield fitted
        if spec.X_monitor is not None:
            expected = plan.target_of(predictions.predict(spec.X_monitor))
            yield plan.monitored(fitted, torch.from_numpy(expected))

    def predict_expectation(self, X: object, name: str) -> np.ndarray:
        """Predict an expectation.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        name : str
            One of `expectations`.

        Returns
        -------
        values : ndarray of shape (n_samples,), or (n_samples, n_values) where it has several
            In units of y, or their square, for "mean", "aleatoric" and "epistemic"; for "dirichlet"
            expected log probabilities at its temperature; otherwise values of `g`.
        """
        check_is_fitted(self)
        plan = self._plan
        X = check_rows(self, X, self._recipe.row_shape)
        OneOf(tuple(plan.by_label)).check(name, "name")
        values = read_in_chunks(self.module_, X, lambda o, _: plan.predicted(name, o[0]))
        return plan.in_units(name, torch.from_numpy(values), self.module_).numpy()


@dataclass(frozen=True)
class ExpectationsPlan(Plan):
    """One network whose outputs are posterior expectations."""

    task: Task
    expectations: tuple[Expectation, ...]
    estimates: tuple[str, ...]  # of each of them, "online" or "stochastic"
    n_values: tuple[int, ...]  # how many values each g gives
    columns: tuple[slice, ...]  # place of each among the outputs
    replays: bool = True  # whether it learns from stored members, not from running estimates
    calibration: Any = None  # of the fitted student

    has_members = False
    in_distribution: ClassVar[tuple[str, ...]]  # expectations that the distribution tells

    @property
    def all_online(self) -> bool:
        """Whether no expectation is estimated by last samples."""
        return "stochastic" not in self.estimates

    @property
    def n_outputs(self) -> int:
        return self.columns[-1].stop

    @property
    def meaning_of_outputs(self) -> str:
        return f"as many as {list(self.by_label)} have values"

    @property
    def by_label(self) -> dict[str, tuple[Expectation, slice]]:
        """Expectations, and their places among the outputs."""
        pairs = zip(self.expectations, self.columns, strict=True)
        return {expectation.label: (expectation, columns) for expectation, columns in pairs}

    def predicted(self, label: str, outputs: Tensor) -> Tensor:
        """Return the values of an expectation, (n, k), for outputs (n, p)."""
        expectation, columns = self.by_label[label]
        return expectation.predict(outputs[:, columns])

    def values(self, members: object) -> np.ndarray:
        """g of members, rows first: (n, S, sum of n_values); pooled, S = 1, if all is online."""
        values = [expectation.of_members(members) for expectation in self.expectations]
        if not self.all_online:
            return torch.cat(values, dim=-1).transpose(0, 1).numpy()
        return self.pooled(values).unsqueeze(1).numpy()

    def pooled(self, values: Sequence[Tensor]) -> Tensor:
        """Pool g over the members: tensors (S, ..., k) to one of shape (..., sum of k)."""
        pairs = zip(self.expectations, values, strict=True)
        return torch.cat([expectation.pooled(g) for expectation, g in pairs], dim=-1)

    def targets_of(self, mean: Tensor) -> Tensor:
        """Turn mean values (..., sum of n_values) into a student's targets (..., n_outputs)."""
        pairs = zip(self.expectations, mean.split(self.n_values, dim=-1), strict=True)
        return torch.cat([expectation.target(part) for expectation, part in pairs], dim=-1)

    def target_of(self, values: np.ndarray) -> np.ndarray:
        """Return the targets of the student, (n, n_outputs), for :meth:`values` of members."""
        parts = torch.from_numpy(values).movedim(1, 0).split(self.n_values, dim=-1)
        return self.targets_of(self.pooled(parts)).numpy()

    def in_units(self, label: str, values: Tensor, module: DistributionStack) -> Tensor:
        """Return values (n, k) of an expectation in y's units, of shape (n,) if k is one."""
        return values[:, 0] if values.shape[1] == 1 else values

    def auxiliary_outputs(self, outputs: Tensor, module: DistributionStack) -> dict[str, Tensor]:
        """Return the other expectations, as ``expectation_<name>``."""
        return {
            f"expectation_{label}": self.in_units(label, e.predict(outputs[0, :, at]), module)
            for label, (e, at) in self.by_label.items()
            if label not in self.in_distribution
        }

    def monitored(self, fitted: Fitted, means: Tensor) -> Fitted:
        """Return a student with the teacher's expectations for `X_monitor`, given as targets."""
        monitor = {
            label: self.in_units(label, means[:, columns].cpu(), fitted.module).numpy()
            for label, (_, columns) in self.by_label.items()
        }
        return replace(fitted, facts=fitted.facts | {"monitor_": monitor})

    def objective(self, module: DistributionStack, training_budget: TrainingBudget) -> Objective:
        return ExpectationObjective(self)


@dataclass(frozen=True)
class CategoricalExpectationsPlan(ExpectationsPlan):
    """Expectations of class probabilities."""

    in_distribution: ClassVar[tuple[str, ...]] = ("predictive",)

    @property
    def tells_parts(self) -> bool:  # type: ignore[override]  # a constant in the base
        labels = self.by_label.keys()
        return "predictive" not in labels or not labels.isdisjoint({"share", "entropy"})

    def encode_members(self, members: np.ndarray, scaling: Buffers, dtype) -> np.ndarray:
        return self.values(torch.from_numpy(members.astype(dtype)).transpose(0, 1))

    def read(self, outputs: Tensor) -> ExpectedCategorical | Dirichlet:
        known, expected = KNOWN["classifier"], None
        at = {label: columns for label, (_, columns) in self.by_label.items()}
        if "predictive" not in at:
            return Dirichlet.from_outputs(outputs[..., at["dirichlet"]], 0.0)
        log_mean = outputs[0, :, at["predictive"]].log_softmax(-1)
        if "share" in at:
            rest = known["share"].predict(-outputs[0, :, at["share"]]).squeeze(-1)  # 1 - sigmoid(z)
            expected = rest * torch.special.entr(log_mean.exp()).sum(-1)
        elif "entropy" in at:
            expected = known["entropy"].predict(outputs[0, :, at["entropy"]]).squeeze(-1)
        return ExpectedCategorical(log_mean, expected)

    def members_of(self, student: BaseEstimator, chains: object, outputs: Tensor) -> Tensor:
        """Return the members' predictions for outputs (S, n, p) of the chains' module."""
        return outputs.softmax(-1)


@dataclass(frozen=True)
class GaussianExpectationsPlan(ExpectationsPlan):
    """Expectations of the means and variances of numbers."""

    in_distribution: ClassVar[tuple[str, ...]] = ("mean", "aleatoric", "epistemic")

    def encode_members(self, members: np.ndarray, scaling: Buffers, dtype) -> np.ndarray:
        moments = super().encode_members(members, scaling, dtype)
        return self.values(Gaussian(*torch.from_numpy(moments).transpose(0, 1).unbind(-1)))

    def read(self, outputs: Tensor) -> EmpiricalGaussian:
        parts = (self.by_label[label] for label in ("mean", "aleatoric", "epistemic"))
        mean, aleatoric, epistemic = (e.predict(outputs[0, :, columns]) for e, columns in parts)
        return EmpiricalGaussian(mean.unsqueeze(0), aleatoric.unsqueeze(0), epistemic)

    def predicted(self, label: str, outputs: Tensor) -> Tensor:
        values = super().predicted(label, outputs)
        if label == "epistemic" and self.calibration is not None:
            values = values + values.new_tensor(self.calibration.variance)
        return values

    def read_mean(self, outputs: Tensor) -> Tensor:
        return self.predicted("mean", outputs[0])

    def members_of(self, student: Any, chains: Any, outputs: Tensor) -> Gaussian:
        """Return the members' predictions for outputs (S, n, p) of the chains' module."""
        # From the scale of the teacher's training to that of the student's, mostly the same.
        scale = (chains.y_scale / student.y_scale).to(outputs)
        mean, variance = Gaussian.from_outputs(outputs)
        shift = ((chains.y_loc - student.y_loc) / student.y_scale).to(outputs)
        return Gaussian(shift + scale * mean, scale.square() * variance)

    def in_units(self, label: str, values: Tensor, module: Any) -> Tensor:
        scale, loc = module.y_scale.cpu(), module.y_loc.cpu()
        if label == "mean":
            values = loc + scale * values
        elif label in ("aleatoric", "epistemic"):
            values = scale.square() * values
        return super().in_units(label, values, module)


def expectations_plan(
    task: Task, expectations: object, estimate: Any, replays: bool
) -> ExpectationsPlan:
    """Return the plan for expectations and their estimates, checked and tried on two members."""
    kind, known = task.kind, KNOWN[task.kind]
    if isinstance(expectations, str):
        auto = _AUTO_OF_ONE if isinstance(estimate, str) and estimate == "stochastic" else _AUTO
        expectations = auto[kind] if expectations == "auto" else (expectations,)
    if not isinstance(expectations, (tuple, list)):
        raise TypeError(
            f"expectations must be a tuple of names, of {sorted(known)}, and of Expectation "
            f"objects, or 'auto'; got {expectations!r}."
        )
    chosen: list[Expectation] = []
    for expectation in expectations:
        if isinstance(expectation, str) and expectation in known:
            expectation = known[expectation]
        elif not isinstance(expectation, Expectation):
            raise ValueError(
                f"expectations must be names, for a {kind} of {sorted(known)}, or Expectation "
                f"objects; got {expectation!r}."
            )
        elif type(expectation) is Expectation and expectation.label in known:
            raise ValueError(
                f"expectations of your own need names of their own, none of {sorted(known)}; got "
                f"{expectation!r}."
            )
        expectation.check()
        chosen.append(expectation)
    labels = [expectation.label for expectation in chosen]
    if len(set(labels)) < len(labels):
        raise ValueError(f"expectations must have names of their own, got {labels}.")
    if not any(set(needed) <= set(labels) for needed in _NEEDED[kind]):
        needed = " or ".join(map(repr, _NEEDED[kind]))
        raise ValueError(
            f"expectations must contain {needed} for a {kind} to predict; got {labels}."
        )
    given = estimate if isinstance(estimate, dict) else dict.fromkeys(labels, estimate)
    is_known = all(isinstance(e, str) and e in _ESTIMATES for e in given.values())
    if not (set(given) <= set(labels) and is_known):
        raise ValueError(
            f"estimate must be one of {list(_ESTIMATES)}, or a dict of them by names of {labels}; "
            f"got {estimate!r}."
        )
    for expectation in chosen:
        if expectation.needs_several and given.get(expectation.label) == "stochastic":
            raise ValueError(
                f"estimate of {expectation.label!r} must be 'online': no one sample tells it; got "
                f"{estimate!r}."
            )
    estimates = tuple(given.get(label, "online") for label in labels)
    shape = 2, 3, task.size
    plan: type[ExpectationsPlan]
    members: Tensor | Gaussian
    if isinstance(task, RegressionTask):
        plan, members = GaussianExpectationsPlan, Gaussian(torch.zeros(shape), torch.ones(shape))
    else:
        plan, members = CategoricalExpectationsPlan, torch.full(shape, 1 / task.size)
    values = [expectation.of_members(members) for expectation in chosen]
    pairs = zip(chosen, values, strict=True)
    ends = accumulate((e.target(value).shape[-1] for e, value in pairs), initial=0)
    n_values = tuple(value.shape[-1] for value in values)
    columns = tuple(slice(*ends) for ends in pairwise(ends))
    return plan(task, tuple(chosen), estimates, n_values, columns, replays)


class ExpectationObjective(Objective):
    """Sum of the expectations' losses.

    Targets are theirs, (..., n, n_outputs), or, of members that are stored, g of each, (..., n, S,
    sum of n_values). Of the latter an "online" expectation is the mean over members, which the
    running mean converges to, and a "stochastic" one is one member, another for every row. With
    rows in a new order in every epoch this is a random draw; else the members take turns.
    """

    is_online: Tensor
    offset: Tensor

    def __init__(self, plan: ExpectationsPlan):
        super().__init__()
        self.plan = plan
        online = torch.tensor([estimate == "online" for estimate in plan.estimates])
        self.register_buffer("is_online", online.repeat_interleave(torch.tensor(plan.n_values)))
        self.register_buffer("offset", torch.zeros((), dtype=torch.int64))

    def begin_epoch(self, epoch: int) -> None:
        self.offset.fill_(epoch)

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        plan = self.plan
        target = self.of_members(targets[0]) if plan.replays else targets[0]
        total, gradient = outputs.new_zeros(outputs.shape[:-1]), torch.empty_like(outputs)
        for expectation, columns in zip(plan.expectations, plan.columns, strict=True):
            loss, slope = expectation.loss_and_gradient(outputs[..., columns], target[..., columns])
            total.add_(loss, alpha=expectation.weight)
            torch.mul(slope, expectation.weight, out=gradient[..., columns])
        return total, gradient

    def of_members(self, members: Tensor) -> Tensor:
        """Return the targets, given g of stored members."""
        mean = self.plan.pooled(members.movedim(-2, 0).split(self.plan.n_values, dim=-1))  # Eq 4
        if not self.plan.all_online:
            n_rows, n_members, n_values = members.shape[-3:]
            turn = (torch.arange(n_rows, device=members.device) + self.offset) % n_members
            turn = turn.view(-1, 1, 1).expand(*members.shape[:-2], 1, n_values)
            one = members.gather(-2, turn).squeeze(-2)  # U_s, Eq 9
            mean = torch.where(self.is_online, mean, one)
        return self.plan.targets_of(mean)
