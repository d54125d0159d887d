# SPDX-License-Identifier: BSD-3-Clause
"""Networks for images."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from .._utils.validation import OneOf
from ._networks import (
    MLP,
    activation_named,
    one_for_each,
    row_shape,
    started,
    whole_number,
    whole_numbers,
)

_POOLINGS = {"max": nn.MaxPool2d, "avg": nn.AvgPool2d}

_CHANNELS_PER_GROUP = 16  # as good as any (Wu and He, 2018, "Group Normalization", Table 3)


class ConvNet(nn.Sequential):
    r"""Convolutional network: convolutions with pooling, then a multi-layer perceptron.

    Weights and biases start as torch's layers do: uniform on :math:`\pm 1/\sqrt{\text{fan in}}`.

    Parameters
    ----------
    in_features : tuple of int
        Shape of one image: (height, width), which is one channel, or (channels, height, width).
    out_features : int
        Width of the output.
    channels : tuple of int, default=(16, 32)
        Number of filters of each convolution.
    kernel_size, padding : int or tuple of int, default=3 and 1
        Height and width of the filters, of stride one, and zeros on each side of what they read;
        a tuple has one for each convolution.
    pooling : {"max", "avg"} or None, default="max"
        Pooling after each convolution and its activation.
    pool_size : int, default=2
        Height, width and stride of the pooling.
    activation : {"relu", "tanh", "silu", "gelu", "identity"}, default="relu"
        Activation after each convolution and each hidden layer.
    hidden_units : tuple of int, default=(64,)
        Width of each hidden layer between the convolutions and the output.
    generator : torch.Generator, default=None
        Source of the initial weights; None is torch's global generator.

    Raises
    ------
    ValueError
        If `in_features` is not the shape of an image, or too small for the convolutions.

    Notes
    -----
    Settings of published networks, with ``padding=0``:

    - ``channels=(10, 20), kernel_size=4, hidden_units=(80,)``, MNIST, and ``channels=(16, 32),
      kernel_size=5, hidden_units=(200, 50)``, CIFAR-10 (GPED, Vadera et al., 2020, App. A.2);
    - ``channels=(32, 64), kernel_size=5, hidden_units=(128,)``, the teacher of Hydra+ for images
      of 28 x 28 (Ferianc and Rodrigues, 2022, App. A.4).

    Examples
    --------
    LeNet-5 (LeCun et al., 1998, "Gradient-based learning applied to document recognition"):

    >>> from skdistill.modules import ConvNet, n_parameters
    >>> of_lenet = {"channels": (6, 16), "kernel_size": 5, "padding": (2, 0), "pooling": "avg"}
    >>> lenet = ConvNet((28, 28), 10, activation="tanh", hidden_units=(120, 84), **of_lenet)
    >>> n_parameters(lenet)
    61706
    """

    def __init__(
        self,
        in_features: Sequence[int],
        out_features: int,
        channels: Sequence[int] = (16, 32),
        kernel_size: int | Sequence[int] = 3,
        padding: int | Sequence[int] = 1,
        pooling: str | None = "max",
        pool_size: int = 2,
        activation: str = "relu",
        hidden_units: int | Sequence[int] = (64,),
        generator: torch.Generator | None = None,
    ):
        depth, height, width = _image_shape(in_features)
        channels = whole_numbers("channels", channels)
        kernels = one_for_each("kernel_size", kernel_size, len(channels))
        paddings = one_for_each("padding", padding, len(channels), least=0)
        pool_size = whole_number("pool_size", pool_size)
        OneOf((*_POOLINGS, None)).check(pooling, "pooling")

        layers: list[nn.Module] = [_AddChannel()] if len(in_features) == 2 else []
        for filters, kernel, zeros in zip(channels, kernels, paddings, strict=True):
            convolution = nn.Conv2d(depth, filters, kernel, padding=zeros, device="meta")
            layers.append(started(convolution, depth * kernel**2, generator))
            layers.append(activation_named(activation))
            depth = filters
            height, width = (size + 2 * zeros - kernel + 1 for size in (height, width))
            if pooling is not None:
                layers.append(_POOLINGS[pooling](pool_size))
                height, width = height // pool_size, width // pool_size
            if min(height, width) < 1:
                raise ValueError(
                    f"in_features={in_features!r} is too small an image: channels={channels}, "
                    f"kernel_size={kernel_size}, padding={padding} and pool_size={pool_size} leave "
                    "no pixel of it."
                )
        n_values = depth * height * width
        head = MLP(n_values, out_features, hidden_units, activation, generator=generator)
        super().__init__(*layers, nn.Flatten(), *head)


class ResNet(nn.Sequential):
    """Residual network for small images, made of basic blocks [1]_.

    A convolution of 3 x 3, stages of residual blocks, the mean over the pixels, a linear layer.
    Every stage but the first halves height and width.

    Parameters
    ----------
    in_features, out_features, generator : as in :class:`ConvNet`
    blocks : tuple of int, default=(2, 2, 2, 2)
        Number of blocks in each stage. Each block has two convolutions of 3 x 3.
    channels : tuple of int, default=(64, 128, 256, 512)
        Number of filters in each stage.
    normalization : {"group", "batch"} or None, default="group"
        What follows each convolution: group normalisation with 16 channels in a group (one group,
        where the channels cannot be divided so), batch normalisation, or nothing.
    activation : {"relu", "tanh", "silu", "gelu", "identity"}, default="relu"
        Activation after each normalisation.

    Notes
    -----
    The default is ResNet-18 for images of 32 x 32, with a first convolution of 3 x 3 and no pooling
    after it, and group normalisation. ``normalization="batch"`` makes it the usual one, and with
    ``channels=(32, 64, 128, 256)`` the teacher of Hydra+ (Appendix A.5) for CIFAR-10, whose heads
    are its last two blocks: ``head_layers=3``.

    With batch normalisation a row's output depends, in training, on the other rows of its batch,
    whatever their weights. Every member has running averages of its own. A batch of one row cannot
    be normalised once the image is down to one pixel: torch raises an error.

    References
    ----------
    .. [1] He, Zhang, Ren, Sun (2016), "Deep Residual Learning for Image Recognition".

    Examples
    --------
    >>> from skdistill.modules import ResNet, n_parameters
    >>> n_parameters(ResNet((3, 32, 32), 10))
    11173962
    """

    def __init__(
        self,
        in_features: Sequence[int],
        out_features: int,
        blocks: int | Sequence[int] = (2, 2, 2, 2),
        channels: int | Sequence[int] = (64, 128, 256, 512),
        normalization: str | None = "group",
        activation: str = "relu",
        generator: torch.Generator | None = None,
    ):
        depth, _, _ = _image_shape(in_features)
        channels = whole_numbers("channels", channels)
        blocks = one_for_each("blocks", blocks, len(channels))

        convolution = partial(_Convolution, normalization=normalization, generator=generator)
        layers: list[nn.Module] = [_AddChannel()] if len(in_features) == 2 else []
        layers += [convolution(depth, channels[0], 3), activation_named(activation)]
        depth = channels[0]
        for stage, (filters, n_blocks) in enumerate(zip(channels, blocks, strict=True)):
            for k in range(n_blocks):
                stride = 2 if stage > 0 and k == 0 else 1
                layers.append(BasicBlock(depth, filters, stride, activation, convolution))
                depth = filters
        head = MLP(depth, out_features, (), generator=generator)
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), *head)


class BasicBlock(nn.Module):
    """Two convolutions of 3 x 3 and a shortcut around them (He et al., Eqs 1 and 2).

    The shortcut is the identity, or a convolution of 1 x 1 where the shape changes.
    """

    def __init__(
        self,
        depth: int,
        filters: int,
        stride: int,
        activation: str,
        convolution: Callable[..., nn.Module],
    ):
        super().__init__()
        self.residual = nn.Sequential(
            convolution(depth, filters, 3, stride),
            activation_named(activation),
            convolution(filters, filters, 3),
        )
        has_same_shape = depth == filters and stride == 1
        self.shortcut = nn.Identity() if has_same_shape else convolution(depth, filters, 1, stride)
        self.activation = activation_named(activation)

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, depth, height, width) to (n, filters, height / stride, width / stride)."""
        return self.activation(self.residual(x) + self.shortcut(x))  # Eqs 1 and 2


class _Convolution(nn.Sequential):
    """A convolution that keeps height and width, but for its stride, and its normalisation."""

    def __init__(
        self,
        depth: int,
        filters: int,
        kernel: int,
        stride: int = 1,
        *,
        normalization: str | None,
        generator: torch.Generator | None,
    ):
        OneOf(("group", "batch", None)).check(normalization, "normalization")
        convolution = nn.Conv2d(
            depth,
            filters,
            kernel,
            stride,
            padding=kernel // 2,
            bias=normalization is None,  # the normalisations have biases of their own
            device="meta",
        )
        layers: list[nn.Module] = [started(convolution, depth * kernel**2, generator)]
        if normalization == "group":
            n_groups = math.gcd(filters, max(1, filters // _CHANNELS_PER_GROUP))
            layers.append(nn.GroupNorm(n_groups, filters))
        elif normalization == "batch":
            layers.append(nn.BatchNorm2d(filters))
        super().__init__(*layers)


class _AddChannel(nn.Module):
    """Add the channel axis to images (n, height, width)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.unsqueeze(-3)


def _image_shape(in_features: object) -> tuple[int, ...]:
    """Channels, height and width of the images."""
    form = "(height, width) or (channels, height, width)"
    return (1, *row_shape(in_features, (2, 3), form))[-3:]
