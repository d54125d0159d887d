# SPDX-License-Identifier: BSD-3-Clause
"""What ensembles of classifiers and of regressors share."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from torch import nn

from .._base import with_callbacks
from .._read_offs import DistributionEstimator
from .._rules import Number, OneOf
from ..modules import stack, widest_activation, with_dropout
from ..samplers import SGHMC, SGLD, MCDropout
from ._diagnostics import diagnose
from ._training import ChainTrainer, DropoutTrainer, EnsembleTrainer, Trainer

# On a CPU as many members are trained together as have about this many activations in their widest
# layer; with more of them the work no longer fits the cache.
_BLOCK_ACTIVATIONS = 2**19

# For n_iter_no_change="auto": a part of all epochs, as the learning rate falls over all of them and
# with it the loss, after a long stretch on which noise alone decides about the lowest loss so far.
_PATIENCE_SHARE = 4
_LEAST_PATIENCE = 20

_TRAINERS: dict[type, type[Trainer]] = {
    str: EnsembleTrainer,
    SGLD: ChainTrainer,
    SGHMC: ChainTrainer,
    MCDropout: DropoutTrainer,
}


class InferenceRule:
    """What `inference` may be."""

    def check(self, value: Any, name: str) -> None:
        if type(value) in _TRAINERS and not isinstance(value, str):
            value.check()
        elif not (isinstance(value, str) and value == "deep_ensemble"):
            raise ValueError(
                f"{name} must be 'deep_ensemble', or an SGLD(...), SGHMC(...) or MCDropout(...) of "
                f"skdistill.samplers, an object and not its class; got {value!r}."
            )


class BayesianEnsemble(DistributionEstimator):
    """Ensemble whose members are a posterior's draws, or stand for them."""

    _parameter_table = {
        **DistributionEstimator._parameter_table,
        "n_members": Number(Integral, 1),
        "inference": InferenceRule(),
        "prior_scale": Number(Real, 0, closed="neither", others=(np.inf,)),
        "bootstrap": OneOf((True, False)),
        "early_stopping": OneOf((True, False)),
        "validation_fraction": Number(Real, 0, 1, closed="neither"),
        "n_iter_no_change": Number(Integral, 1, others=("auto",)),
        "tol": Number(Real, 0),
        "max_restarts": Number(Integral, 0),
        "member_block": Number(Integral, 1, others=("auto",)),
    }

    @with_callbacks
    def fit(self, X, y, sample_weight=None):
        """Train the members.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs, best standardised; images or series of shape (n_samples, ...) if `module` takes
            them. float32 is computed in float32, all else in float64. Predictions have the same
            dtype, but are float64 where float32 would round targets that are far from 0.
        y : array-like of shape (n_samples,)
            Targets, for regression also of shape (n_samples, n_targets), or class labels.
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If a parameter or an argument is not what it may be, the module's output does not have
            the width that it should, or every member diverged.
        KeyboardInterrupt
            On Ctrl-C, with what was trained kept.
        """
        self._check_parameters()
        self._check_settings_of_inference()
        X, y, weight = self._validate_fit_data(X, y, sample_weight)
        random_state = check_random_state(self.random_state)
        self.n_epochs_ = self.max_epochs
        train, valid = self._split(X, y, weight, random_state)
        trainer = _TRAINERS[type(self.inference)](self, train, valid)
        task = self._init_callback_context(max_subtasks=trainer.n_blocks * self.n_epochs_)
        task.call_on_fit_task_begin(estimator=self, X=X, y=y)
        try:
            trainer.train_all(random_state, task)
        except (KeyboardInterrupt, ValueError):
            if trainer.weights:
                self._gather(trainer)
            raise
        self._gather(trainer)
        if trainer.worse:
            self._warn_of_worse(f"{trainer.network_is}(s) {trainer.worse} are")
        if isinstance(trainer, ChainTrainer):
            self.sampler_diagnostics_ = diagnose(self, X)
        task.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def _check_settings_of_inference(self) -> None:
        """Refuse what makes no sense together."""
        if self.inference == "deep_ensemble":
            return
        kind = type(self.inference).__name__
        for name in ("bootstrap", "early_stopping"):
            if getattr(self, name):
                raise ValueError(f"{name} must be False with inference={kind}(...), got True.")
        if self._runs_chains and self.clip_norm is not None:
            raise ValueError(
                f"clip_norm must be None with inference={kind}(...), whose chains would no longer "
                f"draw from the posterior; got {self.clip_norm!r}."
            )

    def _split(self, X, y, weight, random_state):
        """Training rows, and validation rows or None; an absent weight is None."""
        if not self.early_stopping:
            return (X, y, weight), None
        labels = self.classes_[y] if is_classifier(self) else None
        try:
            train, valid = train_test_split(
                np.arange(len(X)),
                test_size=self.validation_fraction,
                random_state=random_state,
                stratify=labels,
            )
        except ValueError as error:
            raise ValueError(
                f"early_stopping cannot hold out validation_fraction={self.validation_fraction} "
                f"of the rows{'' if labels is None else ' of every class'}. {error}"
            ) from error
        both = (
            (X[rows], y[rows], None if weight is None else weight[rows]) for rows in (train, valid)
        )
        return tuple(both)

    @property
    def _patience(self) -> int:
        """Epochs without improvement after which a member stops."""
        if self.n_iter_no_change != "auto":
            return self.n_iter_no_change
        return max(_LEAST_PATIENCE, self.max_epochs // _PATIENCE_SHARE)

    def _block_size(self, n_rows: int) -> int:
        """How many members to train together on so many rows."""
        if self.member_block != "auto":
            return self.member_block
        if self._device().type != "cpu":
            return self.n_members
        (member,) = self._build_members([0])
        widest = widest_activation(member, self._row_shape)
        return max(1, _BLOCK_ACTIVATIONS // (min(self.batch_size, n_rows) * widest))

    def _gather(self, trainer: Trainer) -> None:
        """Make one fitted module of the members that were trained."""
        members = [trainer.weights[m] for m in sorted(trainer.weights)]
        self.n_members_ = len(members)
        self.n_restarts_ = trainer.n_restarts
        self.history_ = trainer.history
        for name in ("best_epochs_", "sampler_diagnostics_"):
            self.__dict__.pop(name, None)
        if self.early_stopping:
            self.best_epochs_ = np.array([trainer.best_epochs[m] for m in sorted(trainer.weights)])
        stacked = {
            f"network.{name}": np.stack([member[name] for member in members]) for name in members[0]
        }
        self._load_weights({**stacked, **trainer.buffers})

    def _set_recipe(self) -> None:
        super()._set_recipe()
        if isinstance(self.inference, MCDropout):
            self._recipe["dropout_rate"] = self.inference.rate

    def _build_network(self, seeds: list[int]) -> nn.Module:
        members = self._build_members(seeds)
        rate = self._recipe.get("dropout_rate")
        if rate is not None:
            shape = self._row_shape
            members = [
                with_dropout(m, rate, shape, seed) for m, seed in zip(members, seeds, strict=True)
            ]
        return stack(members)

    @property
    def _runs_chains(self) -> bool:
        return _TRAINERS[type(self.inference)] is ChainTrainer

    @property
    def _n_networks(self) -> int:
        return self.n_members_
