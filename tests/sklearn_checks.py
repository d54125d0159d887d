# SPDX-License-Identifier: BSD-3-Clause
"""scikit-learn's checks of estimators, under names that are made once for each estimator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import estimator_checks_generator


def cases_of(
    estimators: Iterable[BaseEstimator],
    is_wanted: Callable[[partial], bool] = lambda check: True,
    failing: Callable[[Any], dict[str, str]] = lambda estimator: {},
) -> list[Any]:
    """Cases of ``(estimator, check)``; those known to fail are marked with the reason.

    ``parametrize_with_checks`` writes an estimator as text for each of its checks, and takes a
    quarter of the time in which pytest finds all tests for that.
    """
    cases = []
    for estimator in estimators:
        text = "".join(repr(estimator).split())
        reasons = failing(estimator)
        for _, check in estimator_checks_generator(estimator):
            if is_wanted(check):
                name = check.func.__name__
                marks = [pytest.mark.xfail(reason=reasons[name])] if name in reasons else []
                given = (f"{key}={value}" for key, value in check.keywords.items())
                label = "-".join((text, name, *given))
                cases.append(pytest.param(estimator, check, marks=marks, id=label))
    return cases
