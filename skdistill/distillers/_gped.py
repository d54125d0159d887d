# SPDX-License-Identifier: BSD-3-Clause
"""GPED: a student learns expectations over a posterior while a chain draws from it."""

from __future__ import annotations

import contextlib
from functools import partial
from itertools import accumulate, pairwise
from numbers import Real
from typing import Any

import numpy as np
import torch
from sklearn import get_config
from sklearn.base import is_classifier
from sklearn.utils import check_array
from sklearn.utils.metaestimators import available_if
from torch import Tensor, nn

from .._base import SEED_LIMIT, Objective, own_dropout, with_callbacks
from .._checkpoint import Checkpoint
from .._parameters import DunderParameters
from .._read_offs import DistributionClassifier, DistributionRegressor
from .._rules import FilePath, Number, OneOf
from ..distributions import Dirichlet, ExpectedCategorical, ExpectedGaussian, Gaussian
from ..ensembles import BayesianEnsembleClassifier, BayesianEnsembleRegressor
from ..expectations import KNOWN, Expectation
from ..modules import (
    MLP,
    flop_per_row,
    stack,
    weights_and_fan_ins,
)
from ..samplers import SGHMC, SGLD
from ..transfer import TransferSet
from ._distiller import PRUNING_PARAMETERS, Distiller, Lesson
from ._fit_teacher import fit_teacher, seed_where_unset
from ._gped_estimates import Targets, pooled, targets_of
from ._gped_objectives import ExpectationObjective, ReplayObjective
from ._meta import MetaDistiller, student_can

_ESTIMATES = ("online", "stochastic")

# What a student needs to predict, by its task; and what it learns by default.
_NEEDED = {
    "classifier": (("predictive",), ("dirichlet",)),
    "regressor": (("mean", "aleatoric", "epistemic"),),
}
_AUTO = {"classifier": ("predictive", "entropy"), "regressor": ("mean", "aleatoric", "epistemic")}

# Parameters that change nothing about a fit.
_NO_MATTER = ("checkpoint", "checkpoint_interval", "verbose", "n_threads")


def runs_chains(teacher: Any) -> bool:
    """Tell whether a teacher is an ensemble to be drawn by Markov chains, and not drawn yet."""
    ensembles = BayesianEnsembleClassifier, BayesianEnsembleRegressor
    return isinstance(teacher, ensembles) and isinstance(teacher.inference, (SGLD, SGHMC))


def chosen_expectations(expectations: Any, task: str) -> list[Expectation]:
    """Expectations by name or as they are, checked."""
    known = KNOWN[task]
    if isinstance(expectations, str):
        expectations = _AUTO[task] if expectations == "auto" else (expectations,)
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
                f"expectations must be names, for a {task} of {sorted(known)}, or Expectation "
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
    if not any(set(needed) <= set(labels) for needed in _NEEDED[task]):
        needed = " or ".join(map(repr, _NEEDED[task]))
        raise ValueError(
            f"expectations must contain {needed} for a {task} to predict; got {labels}."
        )
    return chosen


def chosen_estimates(estimate: Any, expectations: list[Expectation]) -> list[str]:
    """Estimate of each expectation, checked."""
    labels = [expectation.label for expectation in expectations]
    given = estimate if isinstance(estimate, dict) else dict.fromkeys(labels, estimate)
    if not (
        set(given) <= set(labels)
        and all(isinstance(e, str) and e in _ESTIMATES for e in given.values())
    ):
        raise ValueError(
            f"estimate must be one of {list(_ESTIMATES)}, or a dict of them by names of {labels}; "
            f"got {estimate!r}."
        )
    for expectation in expectations:
        if expectation.is_variance and given.get(expectation.label) == "stochastic":
            raise ValueError(
                f"estimate of {expectation.label!r} must be 'online': no one sample tells it; got "
                f"{estimate!r}."
            )
    return [given.get(label, "online") for label in labels]


class GPED(DunderParameters):
    """Parameters of :class:`GPEDDistiller`, and of the students that it builds."""

    def __init__(
        self,
        teacher,
        *,
        expectations="auto",
        estimate="online",
        module=MLP,
        transfer=None,
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
        batch_size=100,
        clip_norm=5.0,
        normalize_y=True,
        checkpoint=None,
        checkpoint_interval=60.0,
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
        self.expectations = expectations
        self.estimate = estimate
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
        self.checkpoint = checkpoint
        self.checkpoint_interval = checkpoint_interval
        self.memory = memory
        self.callbacks = callbacks
        self.device = device
        self.compile = compile
        self.n_threads = n_threads
        self.verbose = verbose
        self.random_state = random_state
        self._set_extra_params(kwargs)


class GPEDStudent(GPED, Distiller):
    """What students for classes and for numbers share."""

    _parameter_table = {
        **Distiller._parameter_table,
        **PRUNING_PARAMETERS,
        "weight_decay": Number(Real, 0),
        "checkpoint": FilePath(),
        "checkpoint_interval": Number(Real, 0),
    }

    # --- what is learnt

    def _check_weights_of_terms(self) -> None:
        """Hold parameters against each other, and note the expectations."""
        task = "classifier" if is_classifier(self) else "regressor"
        self._expectations = chosen_expectations(self.expectations, task)
        self._estimates = chosen_estimates(self.estimate, self._expectations)
        if runs_chains(self.teacher):
            self._check_beside_chains()
        elif self.checkpoint is not None:
            raise ValueError(
                "checkpoint must be None unless the teacher is an ensemble with inference=SGLD(...)"
                f" or SGHMC(...) that is not fitted; got {self.checkpoint!r}."
            )

    def _check_beside_chains(self) -> None:
        for name, value in (("max_epochs", "auto"), ("teacher_cv", None), ("memory", None)):
            if getattr(self, name) != value:
                raise ValueError(
                    f"{name} must be {value!r} beside chains: the student learns while they run, "
                    f"as long as teacher__max_epochs says. Got {getattr(self, name)!r}."
                )
        if self.transfer not in (None, "auto") and "online" in self._estimates:
            raise ValueError(
                "estimate must be 'stochastic' beside chains with a transfer, whose rows are other "
                "ones each time: no mean can be kept of what is said about them. Got "
                f"{self.estimate!r} with transfer={self.transfer!r}."
            )
        if self.finetune_epochs not in ("auto", 0) and "stochastic" in self._estimates:
            raise ValueError(
                "finetune_epochs must be 'auto' or 0 beside chains unless all estimates are "
                "'online': the last samples are gone when the student has been pruned. Got "
                f"{self.finetune_epochs!r}."
            )

    def _set_recipe(self) -> None:
        """Note how many values and outputs each expectation has, tried out on some members."""
        values = [expectation.of_members(self._example) for expectation in self._expectations]
        self._n_values = [value.shape[-1] for value in values]
        pairs = zip(self._expectations, values, strict=True)
        ends = accumulate((e.target(value).shape[-1] for e, value in pairs), initial=0)
        self._columns = [slice(*ends) for ends in pairwise(ends)]
        super()._set_recipe()

    @property
    def _example(self) -> Any:
        """Two members and three rows."""
        raise NotImplementedError  # by the task: classes or numbers

    def _columns_of(self, label: str) -> slice | None:
        """Place of an expectation among the outputs."""
        labels = [expectation.label for expectation in self._expectations]
        return self._columns[labels.index(label)] if label in labels else None

    @property
    def _out_features(self) -> int:
        return self._columns[-1].stop

    @property
    def _out_features_mean(self) -> str:
        labels = [expectation.label for expectation in self._expectations]
        return f"as many as {labels} have values"

    @property
    def _n_networks(self) -> int:
        return 1

    def _count_networks(self, n_members: int) -> int:
        return 1

    def _build_network(self, seeds: list[int]) -> nn.Module:
        return stack(self._build_members(seeds))

    def _reader(self) -> dict[str, Any]:
        return {"read": self._distribution_of}

    def _distribution_of(self, outputs: Tensor) -> Any:
        """Distribution that outputs (1, n, n_outputs) mean, on the scale of training."""
        raise NotImplementedError  # by the task: classes or numbers

    def _values(self, members: Any) -> np.ndarray:
        """g of members, rows first: (n, S, sum of n_values), or pooled, S = 1, if that will do."""
        values = [expectation.of_members(members) for expectation in self._expectations]
        if "stochastic" in self._estimates:
            return torch.cat(values, dim=-1).transpose(0, 1).numpy()
        return pooled(self._expectations, values).unsqueeze(1).numpy()

    def _student_objective(self, n_members: int) -> Objective:
        return ReplayObjective(self._expectations, self._columns, self._estimates, self._n_values)

    def _objective(self) -> Objective:
        return ExpectationObjective(self._expectations, self._columns)

    # --- how it is learnt

    def fit(
        self,
        X,
        y,
        sample_weight=None,
        X_transfer=None,
        member_predictions=None,
        X_monitor=None,
    ):
        self._X_monitor = X_monitor  # until _distil knows what its rows are to be like
        try:
            return super().fit(X, y, sample_weight, X_transfer, member_predictions)
        finally:
            del self._X_monitor

    def _fit_teacher(self, X, y, sample_weight, task, seed: int) -> np.ndarray | None:
        if not runs_chains(self.teacher):
            return super()._fit_teacher(X, y, sample_weight, task, seed)
        self.teacher_ = self._unfitted_teacher()
        self.teacher_._check_parameters()
        if self.random_state is not None:
            seed_where_unset(self.teacher_, seed)
        subtask = task.subcontext(task_name="teacher")
        chains = partial(fit_teacher, self.teacher_, X, y, sample_weight, subtask, self)
        self._start_chains = chains  # by _distil, beside the student
        return None

    def _distil(self, lesson: Lesson, ask, maker, buffers, task, random_state) -> None:
        start_chains = self.__dict__.pop("_start_chains", None)
        monitored = self._monitored_rows(lesson.X.dtype)
        if start_chains is not None:
            with self._checkpoint_of(lesson, monitored, buffers) as checkpoint:
                self._distil_online(
                    start_chains, lesson, monitored, maker, buffers, random_state, checkpoint
                )
                if checkpoint is not None:
                    checkpoint.remove()
            return
        if monitored is not None and ask is None:
            raise ValueError("X_monitor must be None with member_predictions: nobody can be asked.")
        super()._distil(lesson, ask, maker, buffers, task, random_state)
        if monitored is not None:
            values = torch.from_numpy(ask(monitored)).movedim(1, 0).split(self._n_values, dim=-1)
            mean = pooled(self._expectations, values)
            self._set_monitor(monitored, targets_of(self._expectations, self._n_values, mean))

    def _monitored_rows(self, dtype) -> np.ndarray | None:
        """Rows of interest, checked."""
        for name in ("monitor_", "monitor_error_"):
            self.__dict__.pop(name, None)
        if self._X_monitor is None:
            return None
        is_wrapped = isinstance(self._X_monitor, TransferSet)
        rows = self._X_monitor.rows if is_wrapped else self._X_monitor
        rows = check_array(rows, dtype=dtype, input_name="X_monitor", allow_nd=True)
        if rows.shape[1:] != self._row_shape:
            raise ValueError(
                f"X_monitor must have rows of shape {self._row_shape} as X has, got "
                f"{rows.shape[1:]}."
            )
        return rows

    def _distil_online(
        self, start_chains, lesson: Lesson, monitored, maker, buffers, random_state, checkpoint
    ) -> None:
        """Run the chains and the student together (Algorithm 1)."""
        from ._gped_loop import Monitor, OnlineDistillation, Stream, n_epochs, n_waiting

        seeds = random_state.randint(SEED_LIMIT, size=2).tolist()
        due, epoch_length = self._due_iterations(len(lesson.X))
        rows = self._transfer_rows(lesson, maker, seeds.pop())
        tensors = {name: torch.tensor(value) for name, value in buffers.items()}
        module = self._build_module(seeds, rows.X.dtype, tensors)
        self.n_epochs_ = n_epochs(due, epoch_length, n_waiting(rows))
        what = self._expectations, self._n_values
        device, limit = rows.X.device, get_config()["working_memory"] * 2**20
        distillation = OnlineDistillation(
            self._student_net(module, rows),
            Stream(rows),
            Targets(*what, self._estimates, len(rows), device, limit),
            partial(self._members_of, module),
            due,
            self.n_threads,
        )
        if monitored is not None:
            shown = torch.tensor(monitored, device=device)
            distillation.monitor = Monitor(shown, rows.batch_size, *what)
        distillation.checkpoint = checkpoint
        self._run_chains(start_chains, distillation, seeds[0])
        self._keep(distillation.student, module, distillation.guard)
        if self.group_lasso:
            self._remove_silent_units()
            self._finetune(distillation, len(due))
        if distillation.monitor is not None:
            self._set_monitor(monitored, distillation.monitor.values())

    def _student_net(self, module: nn.Module, rows) -> Any:
        """The student's net, ready for training."""
        from .._engine import DivergenceGuard

        return self._make_net(
            module,
            self._objective(),
            callbacks=[("guard", DivergenceGuard())],
            flop_per_step=3 * rows.batch_size * flop_per_row(module, self._row_shape),
            weight_decay=[(w, self.weight_decay) for w, _ in weights_and_fan_ins(module)],
            after_step=self._group_lasso(module),
        ).initialize()

    def _finetune(self, distillation, n_steps: int) -> None:
        """Train what is left of the student on the running means, if they are all kept."""
        from .._engine import DivergenceGuard, Rows

        shown = distillation.stream.rows
        n_batches = -(-len(shown) // shown.batch_size)
        n_more = self.finetune_epochs
        if n_more == "auto":
            n_more = -(-n_steps // (2 * n_batches))  # half of the steps before
        if "stochastic" in self._estimates or not n_more:
            return
        met, targets = distillation.targets.met()
        weight = None if shown.weight is None else shown.weight[:, met]
        seeds = [shown.generators[0].initial_seed() + 1]
        rows = Rows(shown.X[met], (targets.to(shown.X),), weight, shown.batch_size, seeds)
        guard = DivergenceGuard()
        decay = [(w, self.weight_decay) for w, _ in weights_and_fan_ins(self.module_)]
        net = self._train(
            self.module_,
            self._objective(),
            rows,
            callbacks=[guard],
            weight_decay=decay,
            n_epochs=n_more,
        )
        self._keep(net, self.module_, guard)

    def _due_iterations(self, n_rows: int) -> tuple[np.ndarray, int]:
        """Iterations of the chains after which the student takes a step, and length of an epoch."""
        teacher, inference = self.teacher_, self.teacher_.inference
        epoch_length = -(-n_rows // min(teacher.batch_size, n_rows))
        n_iterations = teacher.max_epochs * epoch_length
        every = 1 if inference.thinning == "auto" else inference.thinning
        due = inference.sampling_iterations(n_iterations)[every - 1 :: every]  # line 6
        if not len(due):
            raise ValueError(
                f"teacher__inference__burn_in={inference.burn_in!r} and thinning="
                f"{inference.thinning!r} leave the student none of the chains' {n_iterations} "
                f"iterations, teacher__max_epochs={teacher.max_epochs} times {epoch_length}."
            )
        return due, epoch_length

    def _transfer_rows(self, lesson: Lesson, maker, seed: int) -> Any:
        """The transfer set D': rows whose only target is their place in it."""
        from ._gped_loop import DrawnRows

        X, _, weight, *_ = self._rows_with_transfer(lesson, None)
        device, dtype = self._device(), torch.from_numpy(X[:0]).dtype
        rows, weights = (torch.as_tensor(a, dtype=dtype, device=device) for a in (X, weight))
        is_weighted = not (weight == weight[0]).all()
        return DrawnRows(
            rows,
            (torch.arange(len(rows), device=device),),
            weights[None] if is_weighted else None,
            self.batch_size,
            [seed],
            None if maker is None else maker.prepare(rows, weights if is_weighted else None),
        )

    def _checkpoint_of(self, lesson: Lesson, monitored, buffers) -> Any:
        """The checkpoint, if there is to be one, or None, to enter."""
        if self.checkpoint is None:
            return contextlib.nullcontext()
        from .._fingerprint import digests

        data = {
            "X": lesson.X,
            "y": (lesson.y, buffers, getattr(self, "classes_", None)),
            "sample_weight": lesson.weight,
            "X_transfer": lesson.X_transfer,
            "X_monitor": monitored,
        }
        belongs_to = digests(self, data, _NO_MATTER)
        return Checkpoint(self.checkpoint, self.checkpoint_interval, belongs_to)

    def _run_chains(self, start_chains, distillation, seed: int) -> None:
        """Fit the teacher beside the student; of the chains only the last states are kept."""
        from ._gped_loop import StudentStopped

        teacher, net = self.teacher_, distillation.student
        names = ("callbacks", "n_members", "inference__thinning")
        own = {name: teacher.get_params()[name] for name in names}
        teacher.set_params(
            callbacks=[*(teacher.callbacks or ()), ("distillation", distillation)],
            n_members=teacher.inference.n_chains,
            inference__thinning="auto",
        )
        net.notify("on_train_begin", X=distillation.stream.rows, y=None)
        try:
            with own_dropout(net.module_, seed):
                start_chains()
            self._check_teacher()
        except KeyboardInterrupt:  # while the chains took a step
            net.interrupted_ = True
        except StudentStopped:
            pass  # _keep will say why
        except Exception as error:  # of any kind: a state that does not fit fails anywhere
            if distillation.is_loading:
                raise distillation.checkpoint.misfit(error) from error
            raise
        finally:
            teacher.set_params(**own)
            if not teacher.__sklearn_is_fitted__():
                del self.teacher_
        net.notify("on_train_end", X=distillation.stream.rows, y=None)

    def _members_of(self, student: Any, chains: Any, outputs: Tensor) -> Any:
        """Members that the outputs (S, n, p) of the chains' module stand for."""
        raise NotImplementedError  # by the task: classes or numbers

    # --- what is read off

    def predict_expectation(self, X, name):
        X = self._validate_rows(X)
        labels = [expectation.label for expectation in self._expectations]
        OneOf(tuple(labels)).check(name, "name")
        columns = self._columns[labels.index(name)]
        outputs = self._read_checked(X, lambda outputs: outputs[0, :, columns], raw=True)
        expectation = self._expectations[self._columns.index(columns)]
        return self._in_units(expectation, expectation.predict(torch.from_numpy(outputs)))

    def _in_units(self, expectation: Expectation, values: Tensor) -> np.ndarray:
        """Values (n, k) of an expectation in the units of y, of shape (n,) if k is one."""
        return (values[:, 0] if values.shape[1] == 1 else values).numpy()

    def _set_monitor(self, rows: np.ndarray, values: Tensor) -> None:
        """Note the teacher's expectations for rows of interest, and how far the student is off."""
        self.monitor_, self.monitor_error_ = {}, {}
        for expectation, columns in zip(self._expectations, self._columns, strict=True):
            name = expectation.label
            self.monitor_[name] = self._in_units(expectation, values[:, columns].cpu())
            error = self.predict_expectation(rows, name) - self.monitor_[name]
            self.monitor_error_[name] = float(np.abs(error).mean())

    @available_if(lambda self: False)
    def predict_members(self, X):
        """Not there: a student of expectations has no members."""


class GPEDStudentClassifier(GPEDStudent, DistributionClassifier):
    """Student of a classifier."""

    _parameter_table = {**DistributionClassifier._parameter_table, **GPEDStudent._parameter_table}
    _module_defaults = {"hidden_units": (128, 128)}

    @property
    def _example(self) -> Tensor:
        n_classes = len(self.classes_)
        return torch.full((2, 3, n_classes), 1 / n_classes)

    @property
    def _tells_parts(self) -> bool:
        return self._columns_of("predictive") is None or self._columns_of("entropy") is not None

    def _encoded_members(self, members, buffers, dtype):
        """g of the members' probabilities, rows first."""
        return self._values(torch.from_numpy(members.astype(dtype)).transpose(0, 1))

    def _members_of(self, student, chains, outputs):
        return outputs.softmax(-1)

    def _distribution_of(self, outputs: Tensor) -> ExpectedCategorical | Dirichlet:
        predictive, entropy = self._columns_of("predictive"), self._columns_of("entropy")
        if predictive is None:
            return Dirichlet.from_outputs(outputs[..., self._columns_of("dirichlet")], 0.0)
        log_mean = outputs[0, :, predictive].log_softmax(-1)
        if entropy is None:
            return ExpectedCategorical(log_mean)
        expected = KNOWN["classifier"]["entropy"].predict(outputs[0, :, entropy])
        return ExpectedCategorical(log_mean, expected.squeeze(-1))


class GPEDStudentRegressor(GPEDStudent, DistributionRegressor):
    """Student of a regressor."""

    _parameter_table = {**DistributionRegressor._parameter_table, **GPEDStudent._parameter_table}
    _module_defaults = {"hidden_units": (128, 128), "activation": ("tanh", "silu")}

    @property
    def _example(self) -> Gaussian:
        shape = 2, 3, self.n_outputs_
        return Gaussian(torch.zeros(shape), torch.ones(shape))

    @property
    def _tells_parts(self) -> bool:
        return True

    def _encoded_members(self, members, buffers, dtype):
        """g of the members' Gaussians on the scale of training, rows first."""
        moments = super()._encoded_members(members, buffers, dtype)
        return self._values(Gaussian(*torch.from_numpy(moments).transpose(0, 1).unbind(-1)))

    def _members_of(self, student, chains, outputs):
        # From the scale of the teacher's training to that of the student's, mostly the same.
        scale = (chains.y_scale / student.y_scale).to(outputs)
        mean, variance = Gaussian.from_outputs(outputs)
        shift = ((chains.y_loc - student.y_loc) / student.y_scale).to(outputs)
        return Gaussian(shift + scale * mean, scale.square() * variance)

    def _distribution_of(self, outputs: Tensor) -> ExpectedGaussian:
        pairs = zip(self._expectations, self._columns, strict=True)
        values = {e.label: e.predict(outputs[0, :, columns]) for e, columns in pairs}
        return ExpectedGaussian(*(values[label] for label in ("mean", "aleatoric", "epistemic")))

    def _in_units(self, expectation, values):
        scale, loc = self.module_.y_scale.cpu(), self.module_.y_loc.cpu()
        if expectation.label == "mean":
            values = loc + scale * values
        elif expectation.label in ("aleatoric", "epistemic"):
            values = scale.square() * values
        return super()._in_units(expectation, values)


class GPEDDistiller(GPED, MetaDistiller):
    """Distil posterior expectations into one network, while chains draw from the posterior [1]_.

    With a teacher whose members are to be drawn by Markov chains, the student learns while these
    run, and no sample is kept (Algorithm 1): after every iteration that is due, the chains' states
    are asked about a minibatch of the transfer set, and the student takes a step towards what they
    say on average. It learns expectations over the posterior directly, without a distribution that
    stands for them: of a classifier the predictive distribution and the expected entropy, which
    tell total, aleatoric and epistemic uncertainty; of a regressor mean, aleatoric and epistemic
    variance; and expectations of your own.

    With any other teacher, a fitted one or one without chains, the members that it has are replayed
    instead: see :class:`DistributionDistiller` for what a teacher may be.

    Parameters
    ----------
    teacher : estimator, "classifier" or "regressor"
        Best a :class:`BayesianEnsembleClassifier` or :class:`BayesianEnsembleRegressor` with
        ``inference=SGLD(...)`` or ``SGHMC(...)``, whose ``max_epochs``, ``inference__burn_in`` and
        ``inference__thinning`` are the paper's T, B and H; for H, "auto" is 1. Several chains teach
        the student together. Its ``n_members`` is of no matter.
    expectations : tuple of str and Expectation, or "auto", default="auto"
        What the student learns. By name, of a classifier: "predictive", the class probabilities,
        which are always needed; "entropy", the expected entropy; "variance", the expected variance
        of each class's indicator, p (1 - p). Of a regressor: "mean", "aleatoric" and "epistemic",
        which are all needed. "auto" is ("predictive", "entropy"), or the three. Those of your own
        are :class:`skdistill.expectations.Expectation` objects. ``"dirichlet"`` alone is the
        paper's comparator, EnD2 inside the same loop: mean log probabilities at temperature 2.5, to
        which a Dirichlet is fitted.
    estimate : {"online", "stochastic"} or dict, default="online"
        What stands for an expectation about a row of the transfer set: "online" (U_o, Eq 10), the
        mean of all samples that the row has met, or "stochastic" (U_s, Eq 9), the last one; a dict
        gives it by the names of expectations, "online" for the others. "online" keeps a float32
        sum for each value of each row, and a count: for n rows and k values ``4 n (k + 1)`` bytes,
        2.6 MiB for MNIST; sums beyond scikit-learn's ``working_memory`` lie in a temporary file.
        Of a teacher's stored members, "online" is the mean over all of them, "stochastic" one of
        them, another for each row of a minibatch.
    module : callable, default=MLP
        Builds the student from ``in_features``, ``out_features`` and what is given as
        ``module__<name>``; for the MLP, ``module__hidden_units=(128, 128)`` and, for regressors,
        ``module__activation=("tanh", "silu")`` unless given.
    transfer : {"noise", "mixup", "munge", "box", "auto"}, TransferMaker or None, default=None
        None lets the student learn from X and `X_transfer` as they are. Beside chains, rows that a
        maker draws take their place, fresh each time, and need ``estimate="stochastic"``. With
        other teachers, and for "auto", see :class:`HydraPlusRegressor`.
    transfer_only, weight_decay
        As in :class:`HydraPlusRegressor`.
    group_lasso, prune_threshold, finetune_epochs
        As in :class:`HydraPlusRegressor`. Beside chains, what is left of the student is trained on
        the running means, in epochs that show it the whole transfer set; if not all estimates are
        "online", it is not.
    teacher_cv, memory, max_epochs
        As in :class:`HydraPlusRegressor`; beside chains only their defaults make sense.
    optimizer, lr, lr_schedule, batch_size, clip_norm
        As in :class:`BayesianEnsembleRegressor`, for the student.
    normalize_y : bool, default=True
        Whether to standardise the targets of a regressor for training.
    checkpoint : str or path, default=None
        File that holds the state of a fit beside chains while it lasts. A fit that finds it, with
        the same data and parameters, goes on where the one that wrote it was when it was killed,
        to the same student (on a CPU bit for bit); at the end the file is removed. One that is
        damaged, of another fit, or in use by another fit, is refused with a ValueError, and so are
        parameters that cannot be told from others, such as objects that hold a lock. What
        callbacks of your own remember is not part of it.
    checkpoint_interval : float, default=60.0
        Seconds between two writings, at least; it is written at the end of an epoch of the chains.
    callbacks, device, compile, n_threads, verbose
        As in :class:`BayesianEnsembleRegressor`, for the student.
    random_state : int, RandomState instance or None, default=None
        Unless None, it also seeds every ``random_state`` of the teacher that is None.
    **kwargs
        ``module__<name>``, ``optimizer__<name>`` and ``callbacks__<callback>__<name>``.

    Attributes
    ----------
    student_ : estimator
        The fitted student. Its attributes, those below, are the distiller's too.
    teacher_ : estimator
        The fitted teacher; of chains only the last states.
    monitor_ : dict of str to ndarray
        What the teacher expects for the rows of `X_monitor`, by the names of expectations, in the
        shape of :meth:`predict_expectation`. Of chains, the mean over states from time to time,
        each time that the student has been taught by some: at most 100 of its steps.
    monitor_error_ : dict of str to float
        Mean absolute difference between the student's expectations and those of `monitor_`.
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted. Only for classifiers.
    n_outputs_ : int
        Number of targets. Only for regressors.
    n_epochs_ : int
        Number of epochs that the student's training was set to. Beside chains one of them is the
        student's steps in an epoch of the chains, or a hundred of these, whichever is less.
    n_parameters_ : int
        Number of parameters of the student.
    flops_ : float
        Floating-point operations of the student for one row.
    module_ : nn.Module
        The student, as a torch module.
    net_ : skorch.NeuralNet
        The net around `module_`, built when asked for.
    history_ : list of dict
        One row for each of the student's epochs.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)

    Notes
    -----
    Expected entropies and variances are softplus of an output; the paper has exponentials. The
    aleatoric part is the expected entropy, but at most the total, so that no part is negative.

    Bayesian Dark Knowledge [2]_ is ``expectations="predictive", estimate="stochastic",
    transfer=GaussianNoise(share_power=0)``, with a student of the teacher's architecture.

    Ctrl-C keeps the student as trained so far and raises ``KeyboardInterrupt``; before the end of
    its first epoch it stays unfitted. `teacher_` is not kept then.

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
    >>> student.predict_expectation(scale(X)[:3], "entropy").shape
    (3,)
    """

    _students = {"classifier": GPEDStudentClassifier, "regressor": GPEDStudentRegressor}

    @with_callbacks
    def fit(
        self,
        X,
        y,
        sample_weight=None,
        X_transfer=None,
        member_predictions=None,
        X_monitor=None,
    ):
        """Fit teacher and student.

        Parameters
        ----------
        X, y, sample_weight : as in :meth:`DistributionDistiller.fit`
        X_transfer, member_predictions : as in :meth:`DistributionDistiller.fit`
        X_monitor : array-like of shape (n_monitor, n_features) or TransferSet, default=None
            Rows of interest: of the teacher's expectations about them a running mean is kept, as
            `monitor_`, against which the student is scored, as `monitor_error_`.

        Returns
        -------
        self
        """
        return self._fit_student(
            X,
            y,
            sample_weight,
            X_transfer=X_transfer,
            member_predictions=member_predictions,
            X_monitor=X_monitor,
        )

    @available_if(student_can("predict_expectation"))
    def predict_expectation(self, X, name):
        """Predict an expectation.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        name : str
            One of `expectations`.

        Returns
        -------
        values : ndarray of shape (n_samples,), or (n_samples, n_values) where it has several
            In units of y, or their square, for those of numbers that are known by name; else what
            `g` gave.
        """
        return self._fitted_student().predict_expectation(X, name)
