# SPDX-License-Identifier: BSD-3-Clause
"""Toy problems: the two of Hydra+ (Ferianc & Rodrigues 2022), and the two of B-DISTIL."""

from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_random_state

from .._utils.typing import RandomStateLike
from .._utils.validation import Number


def make_hydra_regression(
    n_samples: int = 240, noise: float = 1.0, random_state: RandomStateLike = None
) -> tuple[np.ndarray, np.ndarray]:
    """Generate the toy regression problem of Hydra+ (Ferianc & Rodrigues 2022, App. A.3).

    Inputs are uniform on [-6, 6] and ``y = sin x - 0.1 x + 0.1 x^2 + 0.01 x^3 + noise * N(0, 1)``.
    Outside of [-6, 6] one sees what a model predicts where it has no data.

    Parameters
    ----------
    n_samples : int, default=240
        Number of samples.
    noise : float, default=1.0
        Standard deviation of the noise, which is the aleatoric part of the uncertainty.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, 1)
    y : ndarray of shape (n_samples,)
    """
    Number(Integral, 1).check(n_samples, "n_samples")
    Number(Real, 0).check(noise, "noise")
    rng = check_random_state(random_state)
    x = rng.uniform(-6.0, 6.0, size=n_samples)
    f = np.sin(x) - 0.1 * x + 0.1 * x**2 + 0.01 * x**3
    return x[:, np.newaxis], f + noise * rng.standard_normal(n_samples)


def make_spirals(
    n_samples: int = 240, n_arms: int = 3, noise: float = 0.5, random_state: RandomStateLike = None
) -> tuple[np.ndarray, np.ndarray]:
    """Generate the toy classification problem of Hydra+: arms of a spiral around (0, 0).

    Each class is one turn of an Archimedean spiral, on which the radius is the angle. The angle is
    ``2 pi sqrt(U)`` with U uniform on [0, 1], so that the points lie about as dense far out as near
    the middle; each is then moved by up to `noise` along both axes, and the k-th arm is turned by
    ``2 pi k / n_arms``. Beyond a radius of ``2 pi`` there are no data. The problem is that of
    Ferianc & Rodrigues (2022), App. A.2; https://github.com/martinferianc/hydra_plus has the noise.

    Parameters
    ----------
    n_samples : int, default=240
        Number of samples, divided evenly among the arms.
    n_arms : int, default=3
        Number of arms, which are the classes.
    noise : float, default=0.5
        Side of the square over which a point is moved uniformly; the arms are ``2 pi / n_arms``
        apart.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
    y : ndarray of shape (n_samples,), int
        Number of the arm. The arms take turns, so that the first samples hold them all.
    """
    Number(Integral, 1).check(n_samples, "n_samples")
    Number(Integral, 2).check(n_arms, "n_arms")
    Number(Real, 0).check(noise, "noise")
    rng = check_random_state(random_state)
    y = np.arange(n_samples) % n_arms
    theta = 2 * np.pi * np.sqrt(rng.uniform(size=n_samples))
    # In the complex plane a turn is a product.
    shift = rng.uniform(0, noise, size=(n_samples, 2)) @ [1, 1j]
    z = (theta * np.exp(1j * theta) + shift) * np.exp(2j * np.pi * y / n_arms)
    return np.column_stack([z.real, z.imag]), y


def make_ellipsoid(
    n_samples: int = 1000, n_features: int = 32, random_state: RandomStateLike = None
) -> tuple[np.ndarray, np.ndarray]:
    """Generate the two classes of B-DISTIL, Sec 5.1, inside and outside an ellipsoid.

    Inputs are standard normal, and the class is 1 where ``x' A x`` is above its median, with
    ``A = M M' / n_features`` and M a matrix of standard normals. Rows of one call share A.

    Parameters
    ----------
    n_samples : int, default=1000
        Number of samples.
    n_features : int, default=32
        Number of columns.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,), int
    """
    Number(Integral, 1).check(n_samples, "n_samples")
    Number(Integral, 1).check(n_features, "n_features")
    rng = check_random_state(random_state)
    M = rng.standard_normal((n_features, n_features))
    X = rng.standard_normal((n_samples, n_features))
    level = np.square(X @ M).sum(axis=1) / n_features  # x' A x
    return X, (level > np.median(level)).astype(int)


def make_cube(
    n_samples: int = 1000,
    n_features: int = 32,
    n_vertices: int = 16,
    n_classes: int = 4,
    random_state: RandomStateLike = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Generate the classes of B-DISTIL, Sec 5.1, around vertices of a cube.

    Inputs are standard normal, and the class is that of the nearest of `n_vertices` vertices of
    ``{-1, 1}^n_features``, drawn at random, which the classes share evenly. Samples of one call
    share the vertices.

    Parameters
    ----------
    n_samples, n_features, random_state : as in :func:`make_ellipsoid`
    n_vertices : int, default=16
        Number of vertices.
    n_classes : int, default=4
        Number of classes, at most `n_vertices`.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,), int
    """
    Number(Integral, 1).check(n_samples, "n_samples")
    Number(Integral, 1).check(n_features, "n_features")
    Number(Integral, 2).check(n_vertices, "n_vertices")
    Number(Integral, 2, n_vertices).check(n_classes, "n_classes")
    rng = check_random_state(random_state)
    vertices = rng.choice([-1.0, 1.0], size=(n_vertices, n_features))
    X = rng.standard_normal((n_samples, n_features))
    nearest = (X @ vertices.T).argmax(axis=1)  # all vertices have the same length
    return X, nearest % n_classes
