# SPDX-License-Identifier: BSD-3-Clause
"""Changes of data: masked squares of images, removed labels, samples that are moved."""

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_consistent_length

from .._utils.validation import Number, errors_about


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


def split_labelled(
    X: Any, y: Any, n_labelled: int, *, random_state: Any = None
) -> tuple[Any, Any, Any]:
    """Split samples into labelled ones and unlabelled ones.

    A teacher learns from the labelled samples, a student from all (GPED, App. A.1):
    ``student.fit(X_labelled, y_labelled, X_transfer=X_unlabelled)``.

    Parameters
    ----------
    X : array-like of shape (n_samples, ...)
    y : array-like of shape (n_samples,)
    n_labelled : int
        Number of samples that stay labelled, chosen uniformly, from 1 to n_samples.
    random_state : int, RandomState instance or None, default=None
        With the same int, a smaller set is a subset of a larger one.

    Returns
    -------
    X_labelled, y_labelled : array-like of shape (n_labelled, ...) and (n_labelled,)
    X_unlabelled : array-like of shape (n_samples - n_labelled, ...) or None
        None if all samples stay labelled.

    Examples
    --------
    >>> import numpy as np
    >>> from skdistill.datasets import split_labelled
    >>> X, y = np.arange(8).reshape(4, 2), np.arange(4)
    >>> [part.shape for part in split_labelled(X, y, 1, random_state=0)]
    [(1, 2), (1,), (3, 2)]
    """
    check_consistent_length(X, y)
    Number(Integral, 1, len(y)).check(n_labelled, "n_labelled")
    if n_labelled == len(y):
        return X, y, None
    X_labelled, X_unlabelled, y_labelled, _ = train_test_split(
        X, y, train_size=int(n_labelled), random_state=random_state
    )
    return X_labelled, y_labelled, X_unlabelled


def move(X: Any, by: float, feature: int | None = None, scale: Any = None) -> np.ndarray:
    """Move samples by so many standard deviations, in one feature or in all.

    A model should be uncertain of samples that are far from those of training.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Numbers; NaN stays.
    by : float
        Number of standard deviations, negative ones for smaller values.
    feature : int, default=None
        Number of the feature to move. None moves all.
    scale : float or array-like of shape (n_features,), default=None
        Standard deviations of the training samples. None takes those of `X`.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features), float
        ``X + by * scale``, a copy.

    See Also
    --------
    skdistill.model_selection.unseen_scores : Scores a model on such samples.

    Examples
    --------
    >>> import numpy as np
    >>> from skdistill.datasets import move
    >>> move([[0.0, 1.0], [2.0, 1.0]], by=4, feature=0)
    array([[4., 1.],
           [6., 1.]])
    """
    X = check_array(X, dtype=(np.float64, np.float32), ensure_all_finite="allow-nan", copy=True)
    Number(Real, -np.inf).check(by, "by")
    n_features = X.shape[1]
    Number(Integral, -n_features, n_features - 1, others=(None,)).check(feature, "feature")
    with errors_about("scale"):
        stds = np.nanstd(X, axis=0) if scale is None else np.asarray(scale, dtype=float)
        step = np.broadcast_to(by * stds, n_features)
    if scale is not None and not ((stds >= 0) & (stds < np.inf)).all():
        raise ValueError(f"scale must be finite and not negative, got {scale!r}.")
    if feature is None:
        return (X + step).astype(X.dtype)
    X[:, feature] += step[feature]
    return X
