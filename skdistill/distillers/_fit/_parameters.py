# SPDX-License-Identifier: BSD-3-Clause
"""Rules of the parameters that distillers share."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
from torch import Tensor

from ..._data.columns import COLUMN_PARAMETERS
from ..._estimator.predicting import DistributionEstimator
from ..._utils.settings import SettingsRule
from ..._utils.validation import Number, OneOf, is_number
from ...families import Family, known_families
from ...pruning import GroupLasso
from ...settings import Runtime
from ...transfer import MAKERS, make_transfer, maker_given


class TransferRule:
    """Rule of `transfer`; `objects` are the settings that its names stand for."""

    objects = tuple(MAKERS.values())

    def check(self, value: object, name: str) -> None:
        try:
            given = maker_given(value)
            if not (isinstance(given, str) and given == "auto"):
                make_transfer(given)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error} It may also be 'auto'.") from None


class FamilyRule:
    """Rule of `family`, whose name also depends on the teacher; `objects` as of `transfer`."""

    objects = tuple(known_families("regressor", "classifier").values())

    def check(self, value: object, name: str) -> None:
        if not isinstance(value, (str, Family)):
            raise TypeError(
                f"{name} must be a name, or a Family such as {self.objects[0].__name__}(), got "
                f"{value!r}."
            )


class FoldsRule:
    """Rule of `teacher_cv`."""

    def check(self, value: Any, name: str) -> None:
        is_count = is_number(value, Integral)
        is_folds = hasattr(value, "split") or isinstance(value, Iterable)
        are_no_folds = isinstance(value, (str, bytes, type, np.ndarray, Tensor))
        if are_no_folds or not (value is None or is_count or is_folds):
            raise TypeError(
                f"{name} must be None, a number of folds, a cross-validation splitter, or an "
                f"iterable of pairs of train and test samples; got {value!r}."
            )
        if is_count and value < 2:
            raise ValueError(f"{name} must be at least 2 folds, got {value!r}.")


class MemoryRule:
    """Rule of `memory`."""

    def check(self, value: object, name: str) -> None:
        if not (value is None or isinstance(value, str) or hasattr(value, "cache")):
            raise ValueError(
                f"{name} must be None, the path of a folder as a string, or a joblib.Memory, got "
                f"{value!r}."
            )


PARAMETER_TABLE = {
    **DistributionEstimator._parameter_table,
    "lr": Number(Real, 0, closed="neither", others=("auto",)),
    "max_epochs": Number(Integral, 1, others=("auto",)),
    "transfer": TransferRule(),
    "teacher_cv": FoldsRule(),
    "memory": MemoryRule(),
    **COLUMN_PARAMETERS,
}

STUDENT_PARAMETERS = {
    "calibration_fraction": Number(Real, 0, 1, closed="neither", others=(None,)),
    "runtime": SettingsRule(Runtime, OneOf((None,)), ("member_block",)),
    "batch_size": Number(Integral, 1, others=("auto",)),
    "warm_start": OneOf((True, False)),
}

PRUNING = {"pruning": SettingsRule(GroupLasso, OneOf((None,)))}
