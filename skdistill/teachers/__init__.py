# SPDX-License-Identifier: BSD-3-Clause
"""Teachers: adapters that give fitted or unfitted models members to imitate."""

from .._estimator.functions import align_classes as align_classes
from .._estimator.unwrapping import is_prefitted as is_prefitted
from . import _gaussian_process  # noqa: F401 -- registers its members
from ._held_out import in_chunks as in_chunks
from ._members import check_member_predictions as check_member_predictions
from ._mixed import MixedModels
from ._models import FittedModels, QuantileModels
from ._teacher import Teacher, as_teacher, out_of_fold_members
from ._teacher import interpolates as interpolates
from ._thresholds import Splits as Splits
from ._thresholds import splits_of as splits_of

__all__ = [
    "as_teacher",
    "Teacher",
    "FittedModels",
    "MixedModels",
    "QuantileModels",
    "out_of_fold_members",
]
