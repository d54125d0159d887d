# SPDX-License-Identifier: BSD-3-Clause
"""Random perturbations of the data of each member, by which members vary as posterior draws do.

Each member minimises a loss of its own: of targets to which noise is added (randomise, then
optimise: Bardsley, Solonen, Haario & Laine, 2014), or of samples with random weights (the Bayesian
bootstrap: Rubin, 1981). In a linear model with Gaussian noise the former are exact draws of the
posterior. Within every ten members the draws of a sample are stratified, so that they nearly cancel
in the mean.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import gammaincinv, ndtri

N_STRATA = 10  # members in turn with one draw in each stratum; as many others have the same draws
_TINY = 1e-15  # keeps noise finite and weights positive


def stratified(seed: Sequence[int], members: Sequence[int], shape: tuple[int, ...]) -> np.ndarray:
    """Draw uniform numbers of `shape` for each of the members, (S, *shape).

    A member's draws depend on `seed` and its number alone. Those of members 20 g to 20 g + 9 are a
    Latin hypercube: each tenth of the unit interval has one of them. The ten members that follow
    have the same draws, so that two networks tell what of their difference is due to the draws.
    """
    drawn = np.empty((len(members), *shape))
    groups = np.asarray(members) // (2 * N_STRATA)
    for group in np.unique(groups):
        generator = np.random.default_rng([*seed, group])
        strata = np.broadcast_to(np.arange(N_STRATA, dtype=np.uint8), (*shape, N_STRATA))
        strata = generator.permuted(strata, axis=-1)
        of_group = generator.random((*shape, N_STRATA))
        of_group += strata  # in place, as the draws of large tables take much memory
        for row in np.flatnonzero(groups == group):
            drawn[row] = of_group[..., members[int(row)] % N_STRATA] / N_STRATA
    return drawn.clip(_TINY, 1 - _TINY)


def pairs_with_same_draws(members: Sequence[int]) -> np.ndarray:
    """Return the places of any two members, (n_pairs, 2), that have the same draws."""
    place = {member: k for k, member in enumerate(members)}
    is_first = [member % (2 * N_STRATA) < N_STRATA for member in members]
    found = [
        (place[member], place[member + N_STRATA])
        for member, first in zip(members, is_first, strict=True)
        if first and member + N_STRATA in place
    ]
    return np.array(found, dtype=int).reshape(-1, 2)


def share_in_common(
    values: np.ndarray, pairs: np.ndarray, kinds: Sequence[np.ndarray]
) -> np.ndarray:
    """Share, (t,), of the variance of members' predictions that is due to their draws.

    An ensemble's prediction varies, from one sample of the data to another, by what members have in
    common in their response; members differ by more. `values` are (S, m, t), `pairs` (n_pairs, 2)
    places of members with the same draws, `kinds` the places of each kind's members, one of a pair
    in each. 1 where there are less than two pairs, or members agree; at least 0.1.
    """
    if len(pairs) < 2:
        return np.ones(values.shape[-1])
    deviations, variances = np.empty_like(values), []
    for members in kinds:
        deviations[members] = values[members] - values[members].mean(0)
        variances.append(np.square(deviations[members]).sum((0, 1)) / (len(members) - 1))
    variance = np.sqrt(variances[0] * variances[-1])
    first, second = deviations[pairs.T]
    covariance = (first * second).sum(1).mean(0)
    if len(kinds) == 1:
        # Deviations of members with nothing in common have a covariance of -1 / S of the variance.
        covariance += variance / len(values)
    share = np.divide(covariance, variance, out=np.ones_like(variance), where=variance > 0)
    found: np.ndarray = np.clip(share, 0.1, 1.0)
    return found


def noise_of_targets(uniform: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Turn uniform numbers into noise in standard deviations; weight w is a mean of w samples."""
    noise: np.ndarray = ndtri(uniform)
    return noise if weight is None else noise / np.sqrt(weight)[:, None]


def random_weights(uniform: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Turn uniform numbers into weights of a Bayesian bootstrap, of mean 1: means of w draws."""
    drawn = -np.log1p(-uniform) if weight is None else gammaincinv(weight, uniform) / weight
    found: np.ndarray = np.maximum(drawn, _TINY)
    return found
