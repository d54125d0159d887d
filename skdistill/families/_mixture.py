# SPDX-License-Identifier: BSD-3-Clause
"""The mean of the members' predictions: plain ensemble distillation (Lindqvist et al., 2020)."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from .. import losses
from .._utils.validation import Schedule
from ..distributions import EmpiricalCategorical, EmpiricalGaussian, Gaussian
from ._family import Family, NumericFamily


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
    _parameter_table = {"temperature": Schedule(positive=True)}

    temperature: Any = 1.0

    def for_task(self, task: Any) -> Family:
        super().for_task(task)
        return self._as(self._numeric(), task) if task.kind == "regressor" else self

    def _numeric(self) -> type[Family]:
        return GaussianMixture

    def n_outputs(self, size: int) -> int:
        return size

    def distribution(self, outputs: Tensor) -> Any:
        return EmpiricalCategorical.from_logits(outputs)

    def loss_and_gradient(
        self, outputs: Tensor, members: Any, *, temperature: Tensor, given: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        softened = (members / temperature).softmax(-1).mean(-3)  # Eq 5
        return losses.cross_entropy.and_gradient(outputs, softened)

    # --- tokens of sequences ------------------------------------------------------------------

    weight_of_uniform: ClassVar[float] = 0.0

    def _for_tokens(self) -> Family:
        self.check()
        return self

    def _target_of_tokens(self, statistics: losses.MemberStatistics) -> Tensor:
        return statistics.mean

    def _loss_of_tokens(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return losses.cross_entropy.and_gradient(outputs, target)


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
        mixture = losses.moments(members)[0]
        return losses.normal_nll.and_gradient(outputs, mixture)  # Eq 6
