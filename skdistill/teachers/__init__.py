# SPDX-License-Identifier: BSD-3-Clause
"""Teachers: adapters that give fitted or unfitted models members to imitate."""

from .._estimator.functions import align_classes as align_classes
from .._estimator.unwrapping import is_prefitted as is_prefitted
from . import _gaussian_process  # noqa: F401 -- registers its members
from ._fitted import FittedModels
from ._members import check_member_predictions as check_member_predictions
from ._mixed import MixedModels
from ._out_of_fold import interpolates as interpolates
from ._out_of_fold import out_of_fold_members
from ._predictive import QuantileModels
from ._rows_and_folds import in_chunks as in_chunks
from ._teacher import Teacher, as_teacher
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
