# SPDX-License-Identifier: BSD-3-Clause
"""No network: what stands in the place of OpenML."""

from __future__ import annotations

import pytest
from sklearn.utils import Bunch

from skdistill.datasets import _fetching


@pytest.fixture
def no_folder(monkeypatch):
    """A user without SKDISTILL_DATA."""
    monkeypatch.delenv("SKDISTILL_DATA", raising=False)


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A folder for data that SKDISTILL_DATA names."""
    monkeypatch.setenv("SKDISTILL_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def openml(monkeypatch):
    """Put an answer in the place of scikit-learn's fetch_openml; returns the calls it got."""

    def replace(answer):
        calls = []

        def fetch_openml(**kwargs):
            calls.append(kwargs)
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(_fetching, "fetch_openml", fetch_openml)
        return calls

    return replace


@pytest.fixture
def openml_bunch():
    """What fetch_openml(as_frame=False, parser="liac-arff") returns."""

    def make(data, target, names, categories=None):
        return Bunch(data=data, target=target, feature_names=names, categories=categories or {})

    return make
