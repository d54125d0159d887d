# SPDX-License-Identifier: BSD-3-Clause
"""Masked squares of images."""

from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_array, check_random_state

from .._utils.validation import Number


def mask_squares(
    X: Any, size: int, *, image_shape: Any = None, value: float = 0, random_state: Any = None
) -> np.ndarray:
    """Mask a random square of each image.

    MNIST has hardly any uncertainty to distil; masked images have some (GPED, App. A.1).

    Parameters
    ----------
    X : array-like of shape (n_samples, height, width), (n_samples, channels, height, width) or \
            (n_samples, n_features)
        Images, or samples of their pixels.
    size : int
        Height and width of the squares, m. The masking rate is ``m ** 2 / (height * width)``: for
        images of 28 x 28, 29 % with ``size=15`` and 86 % with ``size=26``.
    image_shape : tuple of int, default=None
        (height, width) or (channels, height, width) of an image, if X holds samples of pixels.
    value : float, default=0
        Value of the pixels of the square, in all channels.
    random_state : int, RandomState instance or None, default=None
        Draws the positions, uniform inside an image.

    Returns
    -------
    X : ndarray of the shape and dtype of `X`
        A copy, masked.

    Raises
    ------
    ValueError
        If X and `image_shape` do not tell the shape of an image, a square does not fit in, or
        X's dtype cannot represent `value`.

    Examples
    --------
    >>> import numpy as np
    >>> from skdistill.datasets import mask_squares
    >>> mask_squares(np.ones((1, 9)), 2, image_shape=(3, 3), random_state=0).reshape(3, 3)
    array([[1., 0., 0.],
           [1., 0., 0.],
           [1., 1., 1.]])
    """
    X = check_array(X, dtype="numeric", allow_nd=True, copy=True)
    shape = X.shape[1:] if image_shape is None else tuple(image_shape)
    if len(shape) not in (2, 3) or np.prod(shape) != np.prod(X.shape[1:]):
        raise ValueError(
            "image_shape must be (height, width) or (channels, height, width) with as many pixels "
            f"as a row of X, of shape {X.shape[1:]}; it may be None only if rows of X have such a "
            f"shape. Got {image_shape!r}."
        )
    *_, height, width = shape
    Number(Integral, 0, min(height, width)).check(size, "size")
    if np.asarray(value).astype(X.dtype) != value:
        raise ValueError(f"value must be one that X, of dtype {X.dtype}, can hold; got {value!r}.")
    random_state = check_random_state(random_state)
    tops = random_state.randint(height - size + 1, size=len(X))
    lefts = random_state.randint(width - size + 1, size=len(X))
    is_row, is_column = (
        (np.arange(n) >= first[:, None]) & (np.arange(n) < first[:, None] + size)
        for n, first in ((height, tops), (width, lefts))
    )
    mask = is_row[:, :, None] & is_column[:, None, :]
    images = X.reshape(len(X), *(1,) * (3 - len(shape)), *shape)
    np.copyto(images, np.asarray(value).astype(X.dtype), where=mask[:, None])
    return images.reshape(X.shape)
