# SPDX-License-Identifier: BSD-3-Clause
"""The two toy problems of Hydra+ (Ferianc & Rodrigues, 2022)."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_random_state, check_scalar


def make_hydra_regression(n_samples=240, noise=1.0, random_state=None):
    """Generate the toy regression problem of Hydra+ [1]_.

    Inputs are uniform on [-6, 6] and ``y = sin x - 0.1 x + 0.1 x^2 + 0.01 x^3 + noise * N(0, 1)``.
    What lies outside [-6, 6] shows what a model says where it has seen nothing.

    Parameters
    ----------
    n_samples : int, default=240
        Number of rows.
    noise : float, default=1.0
        Standard deviation of the noise, which is the aleatoric part of the uncertainty.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, 1)
    y : ndarray of shape (n_samples,)

    References
    ----------
    .. [1] M. Ferianc and M. Rodrigues (2022), "Simple Regularisation for Uncertainty-Aware
           Knowledge Distillation", Appendix A.3.

    Examples
    --------
    >>> from skdistill.datasets import make_hydra_regression
    >>> X, y = make_hydra_regression(random_state=0)
    >>> X.shape, y.shape
    ((240, 1), (240,))
    """
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    check_scalar(noise, "noise", Real, min_val=0)
    random_state = check_random_state(random_state)
    x = random_state.uniform(-6.0, 6.0, size=n_samples)
    f = np.sin(x) - 0.1 * x + 0.1 * x**2 + 0.01 * x**3
    return x[:, np.newaxis], f + noise * random_state.standard_normal(n_samples)


def make_spirals(n_samples=240, n_arms=3, noise=0.5, random_state=None):
    """Generate the toy classification problem of Hydra+ [1]_: arms of a spiral around (0, 0).

    Each class is one turn of an Archimedean spiral, on which the radius is the angle. The angle is
    ``2 pi sqrt(U)`` with U uniform on [0, 1], so that the points lie about as dense far out as near
    the middle; each is then moved by up to `noise` along both axes, and the k-th arm is turned by
    ``2 pi k / n_arms``. Beyond a radius of ``2 pi`` there is nothing to learn from.

    Parameters
    ----------
    n_samples : int, default=240
        Number of rows, shared out evenly among the arms.
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
        Number of the arm. The arms take turns, so that the first rows hold them all.

    References
    ----------
    .. [1] M. Ferianc and M. Rodrigues (2022), "Simple Regularisation for Uncertainty-Aware
           Knowledge Distillation", Appendix A.2;
           https://github.com/martinferianc/hydra_plus, where the noise is told.

    Examples
    --------
    >>> from skdistill.datasets import make_spirals
    >>> X, y = make_spirals(random_state=0)
    >>> X.shape, y[:6]
    ((240, 2), array([0, 1, 2, 0, 1, 2]))
    """
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    check_scalar(n_arms, "n_arms", Integral, min_val=2)
    check_scalar(noise, "noise", Real, min_val=0)
    random_state = check_random_state(random_state)
    y = np.arange(n_samples) % n_arms
    theta = 2 * np.pi * np.sqrt(random_state.uniform(size=n_samples))
    # In the complex plane a turn is a product.
    shift = random_state.uniform(0, noise, size=(n_samples, 2)) @ [1, 1j]
    z = (theta * np.exp(1j * theta) + shift) * np.exp(2j * np.pi * y / n_arms)
    return np.column_stack([z.real, z.imag]), y
