# SPDX-License-Identifier: BSD-3-Clause
"""Distribution distillation of sequence models (Ryabinin, Malinin & Gales, 2021)."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from .._data.checks import check_weights
from .._estimator.base import (
    NetEstimator,
    checked_training,
    fit_task,
    with_callbacks,
)
from .._method.plan import NetworkRecipe, Objective, Plan, TrainingBudget, build_module
from .._training.trainer import SEED_LIMIT, resumable
from .._utils.reporting import stage
from .._utils.typing import Callbacks, ModelClass, OptimizerClass, RandomStateLike
from .._utils.validation import part_of, value_at_epoch
from .._utils.warnings import warn
from ..families import Family, make_family
from ..modules import DistributionStack, RecurrentSequenceModel, stack
from ..sequences import TOKENS_RULE, SequenceEnsemble, SequencePredictor, SpecialTokens
from ..settings import Optimizer, Runtime
from ._base import FamilyRule
from ._student import Student

_CHUNK_BYTES = 2**24  # of the members' predictions at a time


class SequenceDistributionDistiller(SequencePredictor, NetEstimator):
    r"""Distil an ensemble of sequence models into one that predicts their disagreement [1]_.

    At each token the student predicts a Dirichlet distribution over the probabilities of the next
    one. It is trained on given sequences (teacher forcing) to minimise its divergence from a proxy,
    a Dirichlet with the mean of the members' probabilities and approximately their spread. The mean
    of the Dirichlet is the prediction. Its entropy and informations give the total, aleatoric and
    epistemic uncertainty of the token and, by the chain rule, those of the sequence.

    Parameters
    ----------
    teacher : list of nn.Module
        Trained members with one vocabulary, as :class:`skdistill.sequences.SequenceEnsemble` takes
        them: called as ``module(source, target)``, or ``module(target)`` for language models, with
        logits of shape (n, T, K).
    tokens : SpecialTokens, default=None
        The tokens that begin, end and pad sequences; None is ``SpecialTokens()``, of
        :mod:`skdistill.sequences`.
    family : {"dirichlet", "mixture"} or Family, default="dirichlet"
        What the student predicts at each token, and how it learns that: a
        :class:`~skdistill.families.DirichletFamily`, whose loss is "reverse_kl" unless it says
        another, or, of probabilities only, a :class:`~skdistill.families.MixtureFamily` (EnD). With
        a Dirichlet ``loss="nll"`` hardly learns from members that are mostly sure; the temperature
        usually falls for it, as in ``temperature=(2.5, 0, 10)``.
    module : callable, default=RecurrentSequenceModel
        Builds the student, which is called as the members are, from what is given as
        ``module__<name>`` and, if it takes them, ``in_features``, one more than the largest token
        of X (None for a language model), ``out_features``, the number of tokens that members
        predict, and ``pad_token``. Give ``module__in_features`` if there are other sources than
        those of X.
    optimizer, lr, max_epochs, max_time, batch_size
        As in :class:`skdistill.BayesianEnsembleRegressor`, but with other defaults.
    callbacks, runtime, verbose
        As in :class:`skdistill.BayesianEnsembleRegressor`.
    random_state : int, RandomState instance or None, default=None
        Source of the first weights and of the order of the samples.
    **kwargs
        ``module__<name>``, ``optimizer__<name>`` and ``callbacks__<callback>__<name>``.

    Attributes
    ----------
    n_tokens_ : int
        Number of tokens that are predicted: K.
    n_members_ : int
        Number of members of the teacher.
    family_ : Family
        What the student predicts at each token, with its settings.
    history_ : list of dict
        One row for each epoch; losses are means over tokens.
    module_, net_, n_epochs_, n_parameters_, flops_
        As in :class:`skdistill.DistributionDistiller`.
    n_features_in_ : int
        Largest number of tokens of a source.

    See Also
    --------
    skdistill.sequences.SequenceEnsemble : The members themselves, with the same methods.

    Notes
    -----
    The members' predictions are summarised one member and a few samples at a time; once for all
    samples if the summaries fit scikit-learn's ``working_memory``, or a file in half of the memory
    of the computer, else for as many minibatches as do.

    ``clone``, and hence every search, copies the members.

    The members are part of the parameters, so that a pickle holds them as torch modules. After
    ``set_params(teacher=None)`` it holds the fitted student alone, as arrays of numpy.

    References
    ----------
    .. [1] M. Ryabinin, A. Malinin and M. Gales, "Scaling Ensemble Distribution Distillation to Many
       Classes with Proxy Targets", NeurIPS 2021.

    Examples
    --------
    >>> from skdistill import SequenceDistributionDistiller
    >>> from skdistill.datasets import TRANSLATION_TOKENS, make_translation
    >>> from skdistill.modules import RecurrentSequenceModel
    >>> sizes = TRANSLATION_TOKENS.n_source, TRANSLATION_TOKENS.n_target
    >>> members = [RecurrentSequenceModel(*sizes) for _ in range(3)]  # to be trained
    >>> X, y = make_translation(100, random_state=0)
    >>> student = SequenceDistributionDistiller(members, max_epochs=2, random_state=0).fit(X, y)
    >>> sequences = student.generate(X[:4], beam_size=2)
    >>> sequences.uncertainty().total.shape, sequences.reverse_mutual_information().shape
    ((4,), (4,))
    """

    _plan: TokensPlan
    _parameter_table = {
        **NetEstimator._parameter_table,
        "tokens": TOKENS_RULE,
        "family": FamilyRule(),
    }

    def __init__(
        self,
        teacher: Sequence[nn.Module],
        *,
        tokens: SpecialTokens | None = None,
        family: str | Family = "dirichlet",
        module: ModelClass = RecurrentSequenceModel,
        optimizer: str | OptimizerClass | Optimizer = "Adam",
        lr: float = 0.005,
        max_epochs: int = 30,
        max_time: float | None = None,
        batch_size: int = 64,
        callbacks: Callbacks = None,
        runtime: Runtime | None = None,
        verbose: int | bool = 0,
        random_state: RandomStateLike = None,
        **kwargs: object,
    ):
        self._set_arguments(locals())

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Distil the members on given sequences.

        Parameters
        ----------
        X : array-like of int of shape (n_samples, n_source)
            Tokens of the sources, padded at the end; for language models, the sequences.
        y : array-like of int of shape (n_samples, n_target), default=None
            Tokens of the targets, without ``tokens.begin``, each with ``tokens.end`` as its last
            one unless it is cut short, and then padded. None is for language models, and sequences
            without a token are left out.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the sequences' tokens.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If a parameter or an argument is invalid, a member gives NaN or anything but
            logits, members have different vocabularies, or the student diverged.
        KeyboardInterrupt
            On Ctrl-C; what was trained so far is kept.
        """
        training = checked_training(self)
        random_state = check_random_state(self.random_state)
        has_source = y is not None
        tokens = SpecialTokens.of(self.tokens)
        teacher = SequenceTeacher(self.teacher, has_source=has_source, tokens=tokens)
        family = clone(make_family(self.family, "classifier"))._for_tokens()
        if len(teacher.members) == 1 and family.tells_parts:
            warn(
                "teacher has one member, which cannot disagree with itself: the student cannot "
                "tell the parts of the uncertainty, which are None. Give several."
            )
        self._reset()
        self._has_source, self._tokens, self.n_tokens_ = has_source, tokens, teacher.n_tokens_
        self.n_members_, self.family_ = len(teacher.members), family
        data = self._check_sequences(X, y, sample_weight)
        rows, n_source = data[0], self.n_features_in_ if has_source else 0
        n_target = rows.shape[1] - 1 - n_source
        plan = TokensPlan(family, self.n_tokens_, n_source, n_target, self.n_members_)
        filled_in = {
            "in_features": int(rows[:, :n_source].max()) + 1 if n_source else None,
            "out_features": self.n_tokens_,
            "pad_token": tokens.pad,
        }
        accepted = inspect.signature(self.module).parameters
        module_settings = {name: value for name, value in filled_in.items() if name in accepted}
        module_settings |= part_of(vars(self), "module")
        recipe = NetworkRecipe(self.module, module_settings, rows.shape[1:])
        named = dict(zip(("X and y", "tokens", "sample_weight"), data, strict=True))
        with (
            fit_task(self, self.max_epochs, X, y, sample_weight) as task,
            resumable(self, random_state, named) as random_state,
        ):
            seed, order_seed = random_state.randint(SEED_LIMIT, size=2).tolist()
            module = build_module(plan, recipe, [seed], torch.float32)
            budget = TrainingBudget(self.max_epochs)
            objective = plan.objective(module, budget)
            settings = self.batch_size, training.device, order_seed
            with stage("predictions of the teacher"):
                learnt = _training_rows(plan, teacher, tokens.pad, objective, data, *settings)
            student = Student(training, plan, recipe, budget, self.max_epochs)
            callbacks = [task.per_epoch(student.in_training)]
            with stage(f"student, {self.max_epochs} epochs"):
                for fitted in student.train(module, objective, learnt, self.max_epochs, callbacks):
                    self._keep(fitted.attributes)
        return self

    def _check_sequences(self, X, y, sample_weight) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Samples (n, S + 1 + T): source, begin token and target; and where a target has a token.

        Last are weights by which tokens of all samples weigh alike.
        """
        source = super()._check_source(X)
        self.n_features_in_ = source.shape[1]
        source, target = self._check_pairs(source, y)
        is_token = target != self._tokens.pad
        if not is_token.any():
            raise ValueError(
                f"{'y' if self._has_source else 'X'} must hold a token to predict, got padding "
                f"({self._tokens.pad}) only."
            )
        begin = np.full((len(target), 1), self._tokens.begin)
        parts = [source, begin, target] if self._has_source else [begin, target]
        rows = np.hstack(parts).astype(np.float32)
        given = check_weights(sample_weight, len(is_token))
        n_tokens = is_token.sum(1, dtype=np.float64)
        weight = n_tokens if given is None else given * n_tokens
        kept = weight > 0
        return rows[kept], is_token[kept].astype(np.float32), weight[kept]

    @property
    def _tells_parts(self) -> bool:
        return self._plan.tells_parts

    def _check_source(self, X):
        check_is_fitted(self)
        source = super()._check_source(X)
        if not self._has_source:
            return source
        if source.shape[1] > self.n_features_in_:
            raise ValueError(
                f"X must have at most {self.n_features_in_} columns, as in fit; got "
                f"{source.shape[1]}. Pad the sources of fit to have room for longer ones."
            )
        n_known = self._recipe.settings.get("in_features")
        if n_known is not None and source.max() >= n_known:
            raise ValueError(
                f"X must hold tokens below {n_known}, the student's vocabulary; got "
                f"{source.max()}. Give module__in_features to have room for more than X of fit has."
            )
        return source

    def _distribution(self, source, target_in, at):
        parts = [target_in, target_in[:, :1]]  # the last token of a sample is read by nobody
        if source is not None:
            n_missing = self.n_features_in_ - source.shape[1]
            parts.insert(0, nn.functional.pad(source, (0, n_missing), value=self._tokens.pad))
        weight = next(self.module_.parameters())
        rows = torch.cat(parts, 1).to(weight)
        logits = self.module_(rows.unsqueeze(0)).view(*target_in.shape, self.n_tokens_)
        return self._plan.family.distribution(logits[at.to(logits.device)].unsqueeze(0))


class SequenceTeacher(SequenceEnsemble):
    """The members, called "teacher" in messages."""

    _called = "teacher"


def _training_rows(
    plan: TokensPlan,
    teacher: SequenceEnsemble,
    pad_token: int,
    objective: TokenObjective,
    data: tuple[np.ndarray, np.ndarray, np.ndarray],
    batch_size: int,
    device: torch.device,
    seed: int,
) -> Any:
    """Return the training set, with the targets at the tokens of its samples."""
    from .._engine import DistillationRows

    rows, is_token, weight = (
        torch.tensor(array, dtype=torch.float32, device=device) for array in data
    )
    size = max(1, _CHUNK_BYTES // (4 * plan.n_tokens * is_token.shape[1]))

    # While the temperature falls, what members predict changes from epoch to epoch: they are asked
    # anew, as if samples had been drawn.
    is_constant = isinstance(plan.family.temperature, Real)

    def targets(batch: np.ndarray) -> Tensor:
        """Targets at the tokens of some samples, (n, T, width); zeros where there is padding."""
        found = []
        for few in torch.from_numpy(batch).long().split(size):
            source, target = few.tensor_split([plan.n_source], dim=1)
            is_token = target[:, 1:] != pad_token
            statistics = teacher.member_statistics(
                source if plan.n_source else None,
                target[:, :-1],
                is_token,
                float(objective.temperature),
                plan.family.weight_of_uniform,
            )
            at_tokens = plan.family._target_of_tokens(statistics)
            found.append(at_tokens.new_zeros(*is_token.shape, at_tokens.shape[-1]))
            found[-1][is_token.to(at_tokens.device)] = at_tokens
        return torch.cat(found)

    return DistillationRows(
        rows,
        (is_token,),
        weight[None],
        batch_size,
        [seed],
        teacher=targets,
        draw=None if is_constant else lambda X, index, generator: X,
    )


@dataclass(frozen=True)
class TokensPlan(Plan):
    """A network that predicts a distribution over the probabilities of the next token."""

    family: Any  # that for tokens
    n_tokens: int  # that are predicted: K
    n_source: int  # how many of a sample's tokens are the source; 0 for a language model
    n_target: int  # how many tokens of a sample are predicted
    n_members: int  # of the teacher

    task: Any = None  # neither numbers nor classes of samples

    @property
    def tells_parts(self) -> bool:  # type: ignore[override]  # a constant in the base
        return self.family.tells_parts and self.n_members > 1

    @property
    def n_outputs(self) -> int:
        return self.n_tokens * self.n_target

    @property
    def meaning_of_outputs(self) -> str:
        return f"logits of {self.n_tokens} tokens after each token of the target, side by side"

    def build(self, recipe: NetworkRecipe, seeds: Sequence[int]) -> nn.Module:
        return stack([TokenRows(network, self.n_source) for network in recipe.build(seeds)])

    def wrap(self, network: nn.Module, buffers: dict[str, Tensor]) -> Any:
        return network

    def objective(
        self, module: DistributionStack, training_budget: TrainingBudget
    ) -> TokenObjective:
        return TokenObjective(self.family)


class TokenObjective(Objective):
    """Mean over a sample's tokens of the loss of each.

    Targets are those at each token, (1, n, T, width), and whether there is a token, (1, n, T):
    where there is none, neither outputs nor targets matter. Outputs are the logits of all tokens
    side by side, (1, n, T * K). A temperature T divides them, as it does the members', and the
    loss is multiplied by T^2.
    """

    temperature: Tensor

    def __init__(self, family: Any):
        super().__init__()
        self.family = family
        self.register_buffer("temperature", torch.ones(()))
        self.begin_epoch(0)

    def begin_epoch(self, epoch: int) -> None:
        self.temperature.fill_(value_at_epoch(self.family.temperature, epoch, end=1.0))

    def loss_and_gradient(
        self, outputs: Tensor, targets: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        target, is_token = targets
        logits = outputs.unflatten(-1, (is_token.shape[-1], -1))  # (1, n, T, K)
        temperature = self.temperature
        loss, gradient = self.family._loss_of_tokens(logits / temperature, target)
        loss, gradient = loss * temperature**2, gradient.mul_(temperature)
        share, is_pad = is_token / is_token.sum(-1, keepdim=True), is_token == 0
        gradient.masked_fill_(is_pad.unsqueeze(-1), 0.0).mul_(share.unsqueeze(-1))
        return (share * loss.masked_fill(is_pad, 0.0)).sum(-1), gradient.flatten(-2)


class TokenRows(nn.Module):
    """A network of tokens, the first `n_source` of them the source, as one of numbers."""

    def __init__(self, network: nn.Module, n_source: int):
        super().__init__()
        self.network = network
        self.n_source = n_source

    def forward(self, rows: Tensor) -> Tensor:
        """Map tokens (n, S + 1 + T) to logits (n, T * K)."""
        tokens = rows.long()
        source, target_in = tokens[:, : self.n_source], tokens[:, self.n_source : -1]
        logits = self.network(source, target_in) if self.n_source else self.network(target_in)
        return logits.flatten(1)
