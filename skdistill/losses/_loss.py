# SPDX-License-Identifier: BSD-3-Clause
"""Losses with their gradients, weighted sums of them, a bound on one sample, and pairs of heads.

A loss is written once, as a function that returns the loss of every sample, (..., n), and the
gradient of their sum with respect to the prediction, its first argument. The prediction is a tensor
of outputs, (..., n, p), or a :class:`Gaussian`, and may have an axis of heads before the samples,
(..., M, n, p), over which the loss sums.
"""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, TypeVar, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Pairs = tuple[Tensor, Tensor]

Inputs = ParamSpec("Inputs")
Gradient = TypeVar("Gradient", covariant=True)


if TYPE_CHECKING:  # the same to mypy, which knows the type of what it returns
    computed_once = functools.cached_property
else:

    def computed_once(function):
        """A cached property without the lock of Python 3.11's, which torch.compile cannot pass."""
        name = f"_{function.__name__}"

        def value(self):
            if not hasattr(self, name):
                setattr(self, name, function(self))
            return getattr(self, name)

        return property(value)


class Loss(Protocol[Inputs, Gradient]):
    """A differentiable loss of a prediction, its first argument."""

    @property
    def and_gradient(self) -> Callable[Inputs, tuple[Tensor, Gradient]]:
        """The loss of every sample, with the gradient of their sum."""

    def __call__(self, *args: Inputs.args, **kwargs: Inputs.kwargs) -> Tensor: ...


def loss_with_gradient(
    and_gradient: Callable[Inputs, tuple[Tensor, Gradient]],
) -> Loss[Inputs, Gradient]:
    """Make a function that returns a loss and its gradient the ``and_gradient`` of that loss."""
    signature = inspect.signature(and_gradient)
    first = next(iter(signature.parameters))

    @functools.wraps(and_gradient)
    def loss(*args: Any, **kwargs: Any) -> Tensor:
        prediction, *others = args or (kwargs.pop(first),)
        return differentiable(and_gradient, prediction, *others, **kwargs)

    # To mypy functions have no attributes of their own; the cast below tells it of these.
    loss.__signature__ = signature.replace(return_annotation="Tensor")  # type: ignore[attr-defined]
    loss.and_gradient = and_gradient  # type: ignore[attr-defined]
    and_gradient.__qualname__ += ".and_gradient"  # where pickle finds it
    return cast(Loss[Inputs, Gradient], loss)


def differentiable(
    and_gradient: Callable[..., tuple[Tensor, Any]], prediction: Any, *args: Any, **kwargs: Any
) -> Tensor:
    """Loss of a prediction, for autograd, given the function that returns it with its gradient."""
    parts = _parts(prediction)
    detached = [part.detach() for part in parts]
    with torch.no_grad():
        loss, gradient = and_gradient(_like(prediction, detached), *args, **kwargs)
    if torch.is_grad_enabled():
        for part, d_part in zip(parts, _parts(gradient), strict=True):
            loss = _WithGradient.apply(loss, part, d_part)  # type: ignore[no-untyped-call]  # torch's
    return loss


def by_autograd(loss: Callable[..., Tensor], outputs: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    """Loss of outputs and the gradient of its sum, which autograd finds."""
    with torch.enable_grad():
        outputs = outputs.detach().requires_grad_()
        losses = loss(outputs, *args)
        (gradient,) = torch.autograd.grad(losses.sum(), outputs)
    return losses.detach(), gradient


class _WithGradient(torch.autograd.Function):
    """A loss as it is; its derivative with respect to `part` is the gradient that is given."""

    generate_vmap_rule = True

    @staticmethod
    def forward(loss: Tensor, part: Tensor, gradient: Tensor) -> Tensor:
        return loss.view_as(loss)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        _, part, gradient = inputs
        ctx.save_for_backward(gradient)
        ctx.shape = part.shape

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor, Tensor, None]:
        (gradient,) = ctx.saved_tensors
        d_part = gradient * _for_gradient(d_loss, gradient)
        return d_loss, d_part.sum_to_size(ctx.shape), None


# --- weighted sums ----------------------------------------------------------------------------


class Term(NamedTuple):
    """A loss, its arguments after the prediction, and its weight: a number, or one per sample."""

    loss: Loss[..., Any]
    arguments: tuple[Any, ...] = ()
    weight: float | Tensor = 1.0


def weighted_sum(terms: Iterable[Term], prediction: object) -> tuple[Tensor, Any]:
    """Weighted sum (..., n) of at least one loss of a prediction (..., n, p), and its gradient."""
    sums: list[Tensor] = []
    for loss, arguments, weight in terms:
        value, gradient = loss.and_gradient(prediction, *arguments)
        values = [value, *_parts(gradient)]
        weights = [weight] * len(values)
        if isinstance(weight, Tensor) and weight.ndim:
            weights[1:] = [_for_gradient(weight, d_part) for d_part in values[1:]]
        if sums:
            sums = list(map(_add, sums, values, weights))
        elif isinstance(weight, Tensor) or weight != 1:
            sums = list(map(torch.mul, values, weights))
        else:
            sums = values
    return sums[0], _like(gradient, sums[1:])


def tempered_sum(
    terms: Iterable[Term], outputs: Tensor, temperature: float | Tensor
) -> tuple[Tensor, Tensor]:
    """:func:`weighted_sum` for outputs divided by a temperature T, multiplied by T^2.

    So its gradient, with respect to the outputs before they are divided, keeps its scale.
    """
    loss, gradient = weighted_sum(terms, outputs / temperature)
    return loss * temperature**2, gradient.mul_(temperature)


def log_tailed_clip(loss: Tensor, gradient: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    """Loss that grows as its logarithm from a limit on: ``limit (1 + ln(loss / limit))``.

    A likelihood grows with the square of the outputs, or exponentially: without a limit, one sample
    far from all others outweighs them until the network recovers.
    """
    excess = (loss / limit).clamp(min=1.0)
    return loss.clamp(max=limit) + limit * excess.log(), gradient / excess.unsqueeze(-1)


def _add(total: Tensor, more: Tensor, weight: float | Tensor) -> Tensor:
    if isinstance(weight, Tensor):
        return torch.addcmul(total, more, weight)
    return torch.add(total, more, alpha=weight)


def _for_gradient(values: Tensor, gradient: Tensor) -> Tensor:
    """Values of samples, (..., n), shaped to multiply a gradient, (..., n, p) or (..., M, n, p)."""
    if gradient.ndim > values.ndim + 1:
        values = values.unsqueeze(-2)
    return values.unsqueeze(-1)


def _parts(prediction: Any) -> tuple[Tensor, ...]:
    """The tensor itself, or mean and variance of a Gaussian."""
    return (prediction,) if isinstance(prediction, Tensor) else tuple(prediction)


def _like(prediction: object, parts: list[Tensor]) -> Any:
    """A prediction of the same kind, made of other tensors."""
    return parts[0] if isinstance(prediction, Tensor) else type(prediction)(*parts)


# --- members and heads ------------------------------------------------------------------------


def pairing(n_members: int, n_heads: int) -> tuple[Tensor, Tensor]:
    """Numbers of members and of the heads that imitate them: member n goes to head n mod M.

    With more heads than members, head m imitates member m mod N. Both have max(N, M) entries.
    """
    pairs = torch.arange(max(n_members, n_heads))
    return pairs % n_members, pairs % n_heads


def at(values: Tensor, index: Tensor | None) -> Tensor:
    """Entries of the axis of members or heads; all of them for None."""
    return values if index is None else values.index_select(-3, index)


def diversity(weights: list[Tensor], reference: str = "mean", eps: float = 1e-8) -> Tensor:
    """L4 of Hydra+: how alike the heads' weights are (Hydra+, Eq 9).

    Summed over layers, of weights (..., M, n_units, fan_in), and heads as in Eq 9, but a mean over
    the units of a layer: M for each layer of M identical heads. A unit's weights are compared with
    their "mean" over heads (Eq 9), which has a degenerate minimiser, one long head against M - 1
    equal ones, or, "pairwise", with the same unit of every other head.
    """
    n_heads, layers = weights[0].shape[-3], []
    for weight in weights:
        if reference == "mean":
            mean = weight.mean(-3, keepdim=True)
            cosines = torch.cosine_similarity(mean, weight, dim=-1, eps=eps).mean(-2)
        else:
            unit = weight / weight.norm(dim=-1, keepdim=True).clamp_min(eps)
            # |sum of unit vectors|^2 = sum of their |.|^2 + sum of the cosines of the pairs.
            pairs: Tensor = unit.sum(-3).square().sum(-1) - unit.square().sum((-3, -1))
            cosines = pairs / max(n_heads * (n_heads - 1), 1)
        layers.append(cosines.mean(-1))
    return (n_heads * (1.0 + torch.stack(layers)) / 2.0).sum(0)  # Eq 9
