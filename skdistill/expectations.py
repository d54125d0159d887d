# SPDX-License-Identifier: BSD-3-Clause
"""Posterior expectations E[g(member)] that a student learns (GPED, Sec 3).

Members are networks that a chain draws from the posterior, or those of any other teacher: class
probabilities of shape (S, n, K), or a ``Gaussian`` whose mean and variance have shape (S, n, t).

Equations are those of GPED: Vadera et al. (2020), "Generalized Bayesian Posterior Expectation
Distillation for Deep Neural Networks".
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from . import losses
from ._utils.messages import name_of
from ._utils.validation import AnyOf, IsCallable, Number, OneOf, Settings, check_parameters

__all__ = ["DirichletExpectation", "EntropyExpectation", "Expectation"]

_FLOOR = 1e-6  # added to both values of a ratio
_LIMITS = (-20.0, 40.0)  # "exp" clips outputs to these; its gradient still leads them back


def _gamma(value: Tensor, target: Tensor) -> Tensor:
    ratio = (target + _FLOOR) / (value + _FLOOR)
    return ratio - ratio.log() - 1


# Loss of each value v and target t, and its derivative in v.
_LOSSES: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "absolute": (lambda v, t: (v - t).abs(), lambda v, t: (v - t).sign()),
    "squared": (lambda v, t: (v - t).square(), lambda v, t: 2 * (v - t)),
    "gamma": (_gamma, lambda v, t: (v - t) / (v + _FLOOR).square()),
    "cross_entropy": (lambda v, t: -torch.xlogy(t, v), lambda v, t: -t / v),
    "binary_cross_entropy": (
        lambda v, t: -torch.xlogy(t, v) - torch.xlogy(1 - t, 1 - v),
        lambda v, t: (v - t) / (v * (1 - v)),
    ),
}

# Values v of outputs, and the gradient in the outputs, given that in the values, d.
_LINKS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "identity": (lambda z: z, lambda v, d: d),
    "exp": (lambda z: z.clamp(*_LIMITS).exp_(), lambda v, d: d * v),
    "softplus": (softplus, lambda v, d: d * -torch.expm1(-v)),
    "sigmoid": (torch.sigmoid, lambda v, d: d * v * (1 - v)),
    "softmax": (lambda z: z.softmax(-1), lambda v, d: v * (d - (v * d).sum(-1, keepdim=True))),
}


@losses.loss_with_gradient
def _expectation_loss(
    outputs: Tensor, target: Tensor, loss: str, link: str
) -> tuple[Tensor, Tensor]:
    """Loss (..., n), summed over the k values, by the names of a loss and a link."""
    if (loss, link) == ("cross_entropy", "softmax"):  # whose logarithm must not underflow
        return losses.cross_entropy.and_gradient(outputs, target)
    if (loss, link) == ("binary_cross_entropy", "sigmoid"):  # nor these
        loss_of_values = softplus(outputs) - target * outputs
        return loss_of_values.sum(-1), outputs.sigmoid() - target
    (value_of, back), (loss_of, slope_of) = _LINKS[link], _LOSSES[loss]
    values = value_of(outputs)
    return loss_of(values, target).sum(-1), back(values, slope_of(values, target))


@dataclass(eq=False, repr=False)
class Expectation(Settings):
    """A posterior expectation that a student learns, Eq 6.

    Parameters
    ----------
    g : callable
        The function to average over the posterior. It takes the members' class probabilities, a
        tensor of shape (S, n, K), or for regression their ``skdistill.distributions.Gaussian``,
        mean and variance of shape (S, n, t) on the scale of training, on which targets are
        standardised unless `normalize` leaves y out. It returns a tensor of shape (S, n), or
        (S, n, k) for k values. It must not be a lambda if the student is to be pickled.
    loss : {"squared", "absolute", "gamma", "cross_entropy", "binary_cross_entropy"} or callable, \
            default="squared"
        Loss of values v and targets t, summed over the k values: ``(v - t)^2``, ``|v - t|``,
        ``t / v - log(t / v) - 1`` of values that are not negative (half the gamma deviance, with
        1e-6 added to both), ``-t log v``, and ``-t log v - (1 - t) log(1 - v)`` of values in
        (0, 1), whose gradient does not vanish where a "sigmoid" is close to 0 or 1 by mistake; or a
        function of values and targets, both (..., n, k), that gives one loss for each sample. Its
        minimiser is the mean of the targets ("cross_entropy": if they sum to 1), but their median
        for "absolute", which with ``estimate="stochastic"`` is not the expectation.
    link : {"identity", "exp", "softplus", "sigmoid", "softmax"} or callable, default="identity"
        Function from the k outputs of the student's network to the k values; "exp" clips outputs to
        [-20, 40].
    name : str, default=None
        Name of the expectation in ``predict_expectation``; None is the name of `g`.
    weight : float, default=1.0
        Factor of its loss in the sum over expectations.

    Examples
    --------
    >>> from skdistill.expectations import Expectation
    >>> def margin(probs):
    ...     first, second = probs.topk(2).values.unbind(-1)
    ...     return first - second
    >>> Expectation(margin, loss="squared", link="sigmoid")
    Expectation(g=<function margin at 0x...>, link='sigmoid')
    """

    needs_several = False  # whether one member tells nothing of it
    is_variance = False  # whether half of its values are variances of the others over members

    _parameter_table = {
        "g": IsCallable(),
        "loss": AnyOf(IsCallable(), OneOf(tuple(_LOSSES))),
        "link": AnyOf(IsCallable(), OneOf(tuple(_LINKS))),
        "weight": Number(Real, 0, closed="neither"),
    }

    g: Any
    loss: Any = "squared"
    link: Any = "identity"
    _: KW_ONLY
    name: Any = None
    weight: float = 1.0

    @property
    def label(self) -> str:
        """Name of the expectation."""
        return self.name or name_of(self.g)

    def check(self) -> None:
        """Raise TypeError or ValueError for the first parameter that is not accepted."""
        check_parameters(self, f"Expectation {self.label!r}: ")

    def of_members(self, members: Any) -> Tensor:
        """Return g of each member, checked.

        Parameters
        ----------
        members : Tensor of shape (S, n, K), or Gaussian of shape (S, n, t)

        Returns
        -------
        values : Tensor of shape (S, n, k)

        Raises
        ------
        ValueError
            If g returns another shape, or NaN.
        """
        values = self.g(members)
        n_members, n_rows, _ = (members if isinstance(members, Tensor) else members.mean).shape
        shape = tuple(values.shape) if isinstance(values, Tensor) else ()
        if shape[:2] != (n_members, n_rows) or len(shape) > 3:
            raise ValueError(
                f"Expectation {self.label!r}: g must give a tensor of shape (S, n) = "
                f"{(n_members, n_rows)}, or (S, n, k), for {n_members} member(s) and {n_rows} "
                f"row(s); got {type(values).__name__} of shape {shape}."
            )
        if values.isnan().any():
            raise ValueError(f"Expectation {self.label!r}: g gives values that are not a number.")
        return values.view(n_members, n_rows, -1)

    def pooled(self, values: Tensor) -> Tensor:
        """Return the mean of the values of several members.

        Parameters
        ----------
        values : Tensor of shape (S, ..., n, k)

        Returns
        -------
        mean : Tensor of shape (..., n, k)
        """
        return values[0] if len(values) == 1 else values.mean(0)

    def target(self, mean: Tensor) -> Tensor:
        """Return the student's target, given the mean of g over members: the mean itself.

        Parameters
        ----------
        mean : Tensor of shape (..., n, k)

        Returns
        -------
        target : Tensor of shape (..., n, k)
        """
        return mean

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the values that outputs of the student's network predict.

        Parameters
        ----------
        outputs : Tensor of shape (..., n, k)

        Returns
        -------
        values : Tensor of shape (..., n, k)
        """
        return self.link(outputs) if callable(self.link) else _LINKS[self.link][0](outputs)

    def loss_and_gradient(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each sample, and the gradient of their sum.

        Parameters
        ----------
        outputs, target : Tensor of shape (..., n, k)

        Returns
        -------
        loss : Tensor of shape (..., n)
        gradient : Tensor of shape (..., n, k)
        """
        if not (callable(self.loss) or callable(self.link)):
            return _expectation_loss.and_gradient(outputs, target, self.loss, self.link)

        def loss_of(outputs: Tensor, target: Tensor) -> Tensor:
            values = self.predict(outputs)
            if callable(self.loss):
                return self.loss(values, target)
            return _expectation_loss(values, target, self.loss, "identity")

        return losses.by_autograd(loss_of, outputs, target)


class _Known(Expectation):
    """An expectation of this module, whose g needs no checks."""

    def of_members(self, members: Any) -> Tensor:
        return self.g(members)


class _OfSeveral(_Known):
    """What members disagree by, which one of them does not tell."""

    needs_several = True

    def loss_and_gradient(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        is_known = ~target.isnan()  # loss and gradient are 0 where the target is still unknown
        loss, gradient = super().loss_and_gradient(outputs, target)
        return loss.where(is_known.all(-1), 0), gradient.where(is_known, 0)


class _EpistemicVariance(_OfSeveral):
    """Variance of the members' means.

    Its values are means followed by variances over members, 0 for one member: E[mu^2] - E[mu]^2
    would lose the variance to rounding where the means are large.
    """

    is_variance = True

    def pooled(self, values: Tensor) -> Tensor:
        pooled = super().pooled(values)
        if len(values) > 1:
            mean, variance = values.chunk(2, dim=-1)[0], pooled.chunk(2, dim=-1)[1]
            variance += mean.var(0, correction=0)
        return pooled

    def target(self, mean: Tensor) -> Tensor:
        return mean.chunk(2, dim=-1)[1]


class _EpistemicShare(_OfSeveral):
    """Share of the members' disagreement in the entropy of their mean: 1 - E[H(p)] / H(E[p]).

    The entropy is concave, so this is in [0, 1], and splits the entropy of any predictive
    distribution into two parts (Eq 3), neither of them negative. The mean of p is kept beside that
    of "predictive", which may be estimated by the last sample alone.

    Its loss is not the squared one, whose gradient vanishes with that of the sigmoid: a student
    that has once stepped too far towards 0, as on small tables, would stay there.
    """

    def target(self, mean: Tensor) -> Tensor:
        probs, expected = mean[..., :-1], mean[..., -1:]
        total = _entropy(probs)
        # Rounding may bring the expected entropy above the total; both are 0 where all are sure.
        return (total - expected).clamp(min=0) / total.clamp(min=torch.finfo(mean.dtype).tiny)


class EntropyExpectation(_Known):
    """Expected entropy of the members, by a loss of your choice: the expectation "entropy".

    Parameters
    ----------
    loss : {"absolute", "squared", "gamma"}, default="absolute"
        As for :class:`Expectation`; "absolute" is the paper's. "squared" weighs unsure samples
        more, and told inputs of another kind apart better on validation samples.
    weight : float, default=1.0
        Factor of its loss in the sum over expectations.

    Examples
    --------
    >>> from skdistill import GPEDDistiller
    >>> from skdistill.expectations import EntropyExpectation
    >>> learnt = ("predictive", EntropyExpectation("squared"))
    >>> student = GPEDDistiller("classifier", expectations=learnt)
    """

    _parameter_table = {
        "loss": OneOf(("absolute", "squared", "gamma")),
        "weight": Expectation._parameter_table["weight"],
    }

    def __init__(self, loss: str = "absolute", weight: float = 1.0):
        super().__init__(_entropy, loss, "softplus", name="entropy", weight=weight)


class DirichletExpectation(_Known):
    """Mean log probabilities, to which a Dirichlet is fitted: the comparator EnD2 of Sec 4 (Eq 11).

    Parameters
    ----------
    temperature : float, default=2.5
        Divides the members' logits and the student's outputs in training (App. A.4), but not in
        prediction: the precision of the student is raised to about this power, so that its
        epistemic part is too small. 1 leaves it as the likelihood has it; the paper's students had
        the better likelihood with 2.5.

    Examples
    --------
    >>> from skdistill import GPEDDistiller
    >>> from skdistill.expectations import DirichletExpectation
    >>> student = GPEDDistiller("classifier", expectations=(DirichletExpectation(1.0),))
    """

    _parameter_table = {"temperature": Number(Real, 0, closed="neither")}

    def __init__(self, temperature: float = 2.5):
        super().__init__(_log_probs, link="exp", name="dirichlet")
        self.temperature = temperature

    def of_members(self, members: Tensor) -> Tensor:
        tiny = torch.finfo(members.dtype).tiny
        return (members.clamp(min=tiny).log() / self.temperature).log_softmax(-1)

    def predict(self, outputs: Tensor) -> Tensor:
        alpha = super().predict(outputs / self.temperature)
        return alpha.digamma() - alpha.sum(-1, keepdim=True).digamma()  # E[log p]

    def loss_and_gradient(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return losses.tempered_sum(
            [losses.Term(losses.dirichlet_nll, (target, 0.0))], outputs, self.temperature
        )


def _log_probs(probs: Tensor) -> Tensor:
    return probs.log()


def _probs(probs: Tensor) -> Tensor:
    return probs


def _entropy(probs: Tensor) -> Tensor:
    return torch.special.entr(probs).sum(-1, keepdim=True)  # -sum p log p: the text lacks the minus


def _probs_and_entropy(probs: Tensor) -> Tensor:
    return torch.cat((probs, _entropy(probs)), dim=-1)


def _class_variance(probs: Tensor) -> Tensor:
    return probs * (1 - probs)


def _mean(members: Any) -> Tensor:
    return members.mean


def _variance(members: Any) -> Tensor:
    return members.variance


def _mean_and_spread(members: Any) -> Tensor:
    return torch.cat((members.mean, torch.zeros_like(members.mean)), dim=-1)


_OF_CLASSES = [
    _Known(_probs, "cross_entropy", "softmax", name="predictive"),
    _EpistemicShare(_probs_and_entropy, "binary_cross_entropy", "sigmoid", name="share"),
    EntropyExpectation(),
    _Known(_class_variance, "absolute", "softplus", name="variance"),
    DirichletExpectation(),
]
_OF_NUMBERS = [
    _Known(_mean, "squared", "identity", name="mean"),
    _Known(_variance, "gamma", "softplus", name="aleatoric"),
    _EpistemicVariance(_mean_and_spread, "gamma", "softplus", name="epistemic"),
]

# The paper uses exp for values >= 0, whose slope far from the target makes training unstable.
KNOWN: dict[str, dict[str, Expectation]] = {
    "classifier": {expectation.label: expectation for expectation in _OF_CLASSES},
    "regressor": {expectation.label: expectation for expectation in _OF_NUMBERS},
}
