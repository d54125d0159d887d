# SPDX-License-Identifier: BSD-3-Clause
"""The mean of the members' predictions (Lindqvist et al., 2020), and random last layers."""

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

from torch import Tensor, nn

from .. import losses
from .._utils.validation import Number, Schedule
from ..distributions import EmpiricalCategorical, EmpiricalGaussian, Gaussian
from ..modules import DropoutHead, GaussianHead, RandomHead, StackedLinear, split_head, stack
from ._family import Family, NumericFamily


class GaussianMixture(NumericFamily):
    """One Gaussian with the moments of the members' mixture."""

    tells_parts: ClassVar[bool] = False
    has_members: ClassVar[bool] = True
    takes_functions: ClassVar[bool] = False

    def n_outputs(self, size: int) -> int:
        return 2 * size

    def distribution(self, outputs: Tensor) -> EmpiricalGaussian:
        return EmpiricalGaussian.from_outputs(outputs)

    def loss_and_gradient(
        self, outputs: Tensor, members: Gaussian, *, temperature: Tensor, given: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        return losses.normal_nll.and_gradient(outputs, losses.moments(members)[0])  # Eq 6


@dataclass(eq=False, repr=False)
class MixtureFamily(Family):
    """One Gaussian, or the probabilities, of the members' mixture.

    It is plain ensemble distillation, and has the total uncertainty only. Equations are those of
    Lindqvist et al. (2020).

    Parameters
    ----------
    temperature : float or tuple (temperature, first_epoch, last_epoch), default=1.0
        Of a classifier: divides the logits of members and student in training. Of a tuple it falls
        linearly to 1 between two epochs.
    """

    name: ClassVar[str] = "mixture"
    tells_parts: ClassVar[bool] = False
    has_members: ClassVar[bool] = True
    takes_functions: ClassVar[bool] = False  # one member has the total alone
    _numeric: ClassVar[type[Family]] = GaussianMixture  # for a regressor
    _parameter_table = {"temperature": Schedule(positive=True)}

    temperature: Any = 1.0

    def for_task(self, task: Any) -> Family:
        super().for_task(task)
        return self._as(self._numeric, task) if task.kind == "regressor" else self

    def n_outputs(self, size: int) -> int:
        return size

    def distribution(self, outputs: Tensor) -> Any:
        return EmpiricalCategorical.from_logits(outputs)

    def loss_and_gradient(
        self, outputs: Tensor, members: Any, *, temperature: Tensor, given: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        softened = (members / temperature).softmax(-1).mean(-3)  # Eq 5
        return losses.cross_entropy.and_gradient(outputs, softened)

    # --- tokens of sequences

    weight_of_uniform: ClassVar[float] = 0.0

    def _for_tokens(self) -> Family:
        self.check()
        return self

    def _target_of_tokens(self, statistics: losses.MemberStatistics) -> Tensor:
        return statistics.mean

    def _loss_of_tokens(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return losses.cross_entropy.and_gradient(outputs, target)


class _RandomHeads(Family):
    """Last layers whose weights, or inputs, are drawn at random (Hydra+'s Gauss and Drop, L3)."""

    tells_parts: ClassVar[bool] = True
    n_samples: int
    dropout_rate: float | None = None  # None is Gaussian weights

    def build(self, network: nn.Module, n_members: int) -> RandomHead:
        core, head = split_head(network, 1)
        layer = list(stack([head]).children())[-1]
        if not isinstance(layer, StackedLinear):
            raise ValueError(f"module must end in a linear layer with a random head, got {head}.")
        parts, rate = (stack([core]), layer, n_members, self.n_samples), self.dropout_rate
        return GaussianHead(*parts) if rate is None else DropoutHead(*parts, rate=rate)

    def penalty(self, network: Any) -> Tensor | None:
        # Return the divergence from the prior: with it the loss is the evidence lower bound.
        return network.divergence() if self.dropout_rate is None else None


@dataclass(eq=False, repr=False)
class NumericHeads(_RandomHeads, GaussianMixture):
    """Draws that predict a mean and a raw variance for each target."""

    n_samples: int = 100
    dropout_rate: float | None = None

    def loss_and_gradient(
        self, outputs: Tensor, members: Gaussian, *, temperature: Tensor, given: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        return losses.of_gaussian_outputs.and_gradient(outputs, losses.individuality, members)


@dataclass(eq=False, repr=False)
class GaussHeadFamily(_RandomHeads, MixtureFamily):
    """Gaussian weights of the last layer by local reparametrisation ("Gauss" of Hydra+).

    For comparison only: draws are independent of the member that they are compared with, so that
    the loss depends on the mixture alone, and the epistemic part does not follow the teacher's.

    Parameters
    ----------
    temperature : float or tuple (temperature, first_epoch, last_epoch), default=1.0
        As of :class:`MixtureFamily`.
    n_samples : int, default=100
        How many draws stand for the distribution at prediction: the same for every sample.
    """

    name: ClassVar[str] = "gauss_head"
    _numeric: ClassVar[type[Family]] = NumericHeads
    _parameter_table = {**MixtureFamily._parameter_table, "n_samples": Number(Integral, 1)}

    n_samples: int = 100

    _for_tokens = Family._for_tokens

    def loss_and_gradient(
        self, outputs: Tensor, members: Any, *, temperature: Tensor, given: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        softened = (members / temperature).log_softmax(-1)
        return losses.categorical_individuality.and_gradient(outputs, softened)  # Hydra+, L3


@dataclass(eq=False, repr=False)
class DropoutHeadFamily(GaussHeadFamily):
    """Dropout before the last layer ("Drop" of Hydra+), as :class:`GaussHeadFamily` for comparison.

    Parameters
    ----------
    temperature, n_samples
        As of :class:`GaussHeadFamily`.
    dropout_rate : float, default=0.5
        Probability that an input of the last layer is dropped.
    """

    name: ClassVar[str] = "dropout_head"
    _parameter_table = {
        **GaussHeadFamily._parameter_table,
        "dropout_rate": Number(Real, 0, 1, closed="left"),
    }

    dropout_rate: float = 0.5
