# SPDX-License-Identifier: BSD-3-Clause
"""Families of distributions that a student may predict, each with its loss.

``DistributionDistiller(teacher, family="dirichlet")`` is ``family=DirichletFamily()``. Names end in
``Family`` because :class:`skdistill.distributions.Dirichlet` is the distribution itself, which such
a student predicts. For custom families, subclasses of :class:`Family`, see
:doc:`/user_guide/own_family`.
"""

from .._utils.validation import did_you_mean
from ._dirichlet import DirichletFamily
from ._family import Family
from ._gaussian import GaussianFamily, NormalInverseGammaFamily, NormalInverseWishartFamily
from ._latent_factor import LatentFactorFamily
from ._logit_normal import LogitNormalFamily
from ._mixture import DropoutHeadFamily, GaussHeadFamily, MixtureFamily

__all__ = [
    "DirichletFamily",
    "DropoutHeadFamily",
    "Family",
    "GaussHeadFamily",
    "GaussianFamily",
    "LatentFactorFamily",
    "LogitNormalFamily",
    "MixtureFamily",
    "NormalInverseGammaFamily",
    "NormalInverseWishartFamily",
]

_AUTO: dict[str, type[Family]] = {"regressor": GaussianFamily, "classifier": DirichletFamily}


def known_families(*kinds: str) -> dict[str, type[Family]]:
    """Return the library's families by name, those for one of these kinds of teacher."""
    found = (globals()[name] for name in __all__ if name != "Family")
    return {family.name: family for family in found if set(kinds) & set(family.kinds)}


def make_family(family: object, kind: str) -> Family:
    """Return the family that a user gives as ``family=``: itself, by its name, or "auto"."""
    if isinstance(family, Family):
        return family
    known = {"auto": _AUTO[kind], **known_families(kind)}
    if isinstance(family, str) and family in known:
        return known[family]()
    error = ValueError if isinstance(family, str) else TypeError
    raise error(
        f"family must be one of {list(known)} with a {kind} as teacher, or a Family such as "
        f"{_AUTO[kind].__name__}(), got {family!r}.{did_you_mean(family, known)}"
    )
