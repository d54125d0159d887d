# SPDX-License-Identifier: BSD-3-Clause
"""What a student of distribution distillation predicts, and how it learns that from members."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn

from .._utils.validation import Settings, check_parameters
from ..losses import by_autograd
from ..modules import stack

SMOOTHING = 1e-3  # weight of the uniform distribution, for a likelihood of probabilities of zero


class Family(Settings, ABC):
    """Base of the families of distributions that :class:`skdistill.DistributionDistiller` learns.

    A subclass holds settings, by a constructor that assigns them, and defines :meth:`n_outputs`,
    :meth:`distribution`, and :meth:`loss_per_sample`, or :meth:`loss_and_gradient` where the
    gradient is known. Targets are standardised; `size` is their number t, or that of classes K. M
    members stand on the axis before the samples: a :class:`skdistill.distributions.Gaussian` of
    shape (..., M, n, t), or log probabilities (..., M, n, K).

    Attributes
    ----------
    kinds : tuple of str
        "regressor", "classifier" or both: the teachers it goes with.
    name : str
        By which ``family=`` finds one of the library's own.
    tells_parts : bool
        Whether aleatoric and epistemic uncertainty can be told apart.
    has_members : bool
        Whether the distribution has members, or draws that stand for them: ``predict_members``.
    takes_functions : bool
        Whether random functions of the teacher can displace what is predicted, see
        :doc:`/user_guide/unseen`.
    temperature : float or tuple (temperature, first_epoch, last_epoch)
        Divides the outputs in training, and the loss is multiplied by its square.
    """

    kinds: ClassVar[tuple[str, ...]] = ("regressor", "classifier")
    name: ClassVar[str] = ""
    tells_parts: ClassVar[bool] = True
    has_members: ClassVar[bool] = False
    takes_functions: ClassVar[bool] = True
    temperature: Any = 1.0

    @abstractmethod
    def n_outputs(self, size: int) -> int:
        """Return the number of outputs of the network for a sample.

        Parameters
        ----------
        size : int

        Returns
        -------
        n_outputs : int
        """

    @abstractmethod
    def distribution(self, outputs: Tensor) -> Any:
        """Return the distribution that outputs stand for.

        Parameters
        ----------
        outputs : Tensor of shape (S, n, p)
            S is 1, or the number of heads that :meth:`build` makes.

        Returns
        -------
        NumericDistribution or ClassDistribution
        """

    def loss_per_sample(self, outputs: Tensor, members: Any) -> Tensor:
        """Return the loss of each sample, (1, n), whose gradient autograd finds.

        Parameters
        ----------
        outputs : Tensor of shape (1, n, p)
        members : Gaussian or Tensor

        Returns
        -------
        loss : Tensor of shape (1, n)
        """
        raise TypeError(f"{type(self).__name__} must define loss_per_sample or loss_and_gradient.")

    def loss_and_gradient(
        self, outputs: Tensor, members: Any, *, temperature: Tensor, given: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the loss of each sample, and the gradient of their sum.

        Parameters
        ----------
        outputs : Tensor of shape (1, n, p) or (1, S, n, p)
            Divided by the temperature.
        members : Gaussian or Tensor
        temperature : Tensor of shape ()
            1 but for families that have the setting.
        given : Tensor or None
            What :meth:`given` returns for the epoch.

        Returns
        -------
        loss : Tensor of shape (1, n)
        gradient : Tensor of the shape of outputs
        """
        return by_autograd(self.loss_per_sample, outputs, members)

    def check(self) -> None:
        """Raise a TypeError or ValueError for settings that break the rules of the class."""
        check_parameters(self, f"{type(self).__name__}: ")

    def for_task(self, task: Any) -> Family:
        """Return the family that learns a task; raise for settings that do not go with it.

        Parameters
        ----------
        task : RegressionTask or ClassificationTask
            Has a `kind`, "regressor" or "classifier", and a `size`.

        Returns
        -------
        family : Family
        """
        self.check()
        if task.kind not in self.kinds:
            raise ValueError(
                f"family must be one for a {task.kind}, as the teacher is; got {self!r}, which is "
                f"for a {' or '.join(self.kinds)}."
            )
        return self

    def _for_tokens(self) -> Any:
        """Return the family that learns the next token of sequences; raise if there is none.

        It has `weight_of_uniform`, by which members are smoothed; `_target_of_tokens`, which makes
        targets (N, width) of ``MemberStatistics``; and `_loss_of_tokens` with its gradient.
        """
        raise ValueError(
            "family must be one that learns from statistics of members at each token, such as "
            f"DirichletFamily() or MixtureFamily(), got {self!r}."
        )

    def mean(self, outputs: Tensor, size: int) -> Tensor:
        """Return the mean of :meth:`distribution` alone, (n, t): what ``predict`` takes.

        Parameters
        ----------
        outputs : Tensor of shape (S, n, p)
        size : int

        Returns
        -------
        mean : Tensor of shape (n, t)
        """
        mean: Tensor = self.distribution(outputs).mean
        return mean

    def initial_outputs(self, members: Any, weight: Tensor) -> Tensor | None:
        """Return outputs (p,) at which training begins, for all samples; by default at random.

        Parameters
        ----------
        members : Gaussian or Tensor
            For some samples.
        weight : Tensor of shape (n,)
            Of these samples.

        Returns
        -------
        outputs : Tensor of shape (p,) or None
        """
        return None

    def informed(self, members: Any, weight: Tensor) -> Family:
        """Return the family with what members tell before the network is built.

        Parameters
        ----------
        members : Gaussian or Tensor
        weight : Tensor of shape (n,)

        Returns
        -------
        family : Family
        """
        return self

    def informed_as(self, fitted: object) -> Family:
        """Return the family with what that of a student knows which training goes on from.

        Parameters
        ----------
        fitted : Family

        Returns
        -------
        family : Family
        """
        return self

    def prepare_members(self, members: np.ndarray) -> np.ndarray:
        """Return members' predictions, samples first, as the loss is to see them.

        Parameters
        ----------
        members : ndarray of shape (n, M, ...)

        Returns
        -------
        members : ndarray of the same shape
        """
        return members

    def given(self, epoch: int, size: int) -> np.ndarray | None:
        """Return what the loss is given in an epoch beside the members, if anything.

        Parameters
        ----------
        epoch : int
        size : int

        Returns
        -------
        given : ndarray or None
        """
        return None

    def build(self, network: nn.Module, n_members: int) -> Any:
        """Return the stack that is trained, of the network that the module built.

        Parameters
        ----------
        network : nn.Module
        n_members : int

        Returns
        -------
        stack : nn.Module
        """
        return stack([network])

    def penalty(self, network: Any) -> Tensor | None:
        """Return what is added to the sum of the losses of all samples, of shape (1,), if any.

        Parameters
        ----------
        network : nn.Module

        Returns
        -------
        penalty : Tensor of shape (1,) or None
        """
        return None

    def _as(self, kind: type[Family], task: Any) -> Family:
        """Return a family that does a part of this one; other settings must be defaults."""
        defaults, settings = self._defaults(), self.get_params(deep=False)
        known = kind._defaults()
        for name in sorted(settings.keys() - known.keys()):
            if settings[name] != defaults[name]:
                raise ValueError(
                    f"{type(self).__name__}: {name} must be {defaults[name]!r} for a {task.kind}, "
                    f"which does not read it; got {settings[name]!r}."
                )
        return kind(**{name: settings[name] for name in settings.keys() & known.keys()})


class NumericFamily(Family):
    """A distribution over Gaussians, of whose outputs the t means come first."""

    kinds: ClassVar[tuple[str, ...]] = ("regressor",)

    def mean(self, outputs: Tensor, size: int) -> Tensor:
        return outputs.narrow(-1, 0, size).mean(dim=0)


def without_zeros(members: np.ndarray) -> np.ndarray:
    """Mix members (n, M, K) with their mean in the samples where one gives a class no probability.

    The mean, with a trace of the uniform distribution, has the weight of one more member.
    """
    rows = (members == 0).any(axis=(1, 2))
    if not rows.any():
        return members
    share = 1 / (members.shape[1] + 1)
    mean = members[rows].mean(axis=1, keepdims=True)
    further = (1 - SMOOTHING) * mean + SMOOTHING / members.shape[2]
    members = members.copy()
    members[rows] = (1 - share) * members[rows] + share * further
    return members
