# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
import torch

from skdistill.distributions import Uncertainty


def test_unpacks_into_its_parts():
    total, aleatoric, epistemic = Uncertainty(5.0, 3.0, 2.0, measure="variance")
    assert (total, aleatoric, epistemic) == (5.0, 3.0, 2.0)


@pytest.mark.parametrize(
    "array", [np.float32, np.float64, torch.tensor], ids=["float32", "float64", "torch"]
)
def test_std_takes_square_roots(array):
    parts = [array(part) for part in ([25.0, 4.0], [16.0, 0.0], [9.0, 4.0])]
    roots = Uncertainty(*parts, measure="variance").std()
    assert roots.measure == "std"
    for root, part, expected in zip(roots, parts, ([5, 2], [4, 0], [3, 2]), strict=True):
        assert type(root) is type(part)
        assert root.dtype == part.dtype
        assert root.tolist() == expected


def test_std_leaves_parts_that_cannot_be_told_none():
    roots = Uncertainty(np.array([4.0]), None, None, measure="variance").std()
    assert roots.total.tolist() == [2.0]
    assert roots.aleatoric is None
    assert roots.epistemic is None


@pytest.mark.parametrize("measure", ["entropy", "std"])
def test_std_needs_a_variance(measure):
    with pytest.raises(ValueError, match=f"needs measure=\"variance\".*'{measure}'"):
        Uncertainty(2.0, 1.0, 1.0, measure=measure).std()


def test_parts_by_name_and_as_a_table():
    pd = pytest.importorskip("pandas")
    total, part = np.array([3.0, 5.0]), np.array([1.0, 4.0])
    uncertainty = Uncertainty(total, part, total - part, measure="variance")
    named = uncertainty._asdict()
    assert list(named) == ["total", "aleatoric", "epistemic"]
    assert all(named[name] is getattr(uncertainty, name) for name in named)
    index = pd.Index(["a", "b"], name="row")
    expected = pd.DataFrame({"total": total, "aleatoric": part, "epistemic": total - part}, index)
    pd.testing.assert_frame_equal(uncertainty.to_frame(index), expected)
    pd.testing.assert_frame_equal(pd.DataFrame(named, index), expected)


def test_a_table_of_several_targets_and_of_parts_that_nobody_knows():
    pytest.importorskip("pandas")
    total = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    frame = Uncertainty(total, None, None, measure="variance").to_frame()
    assert frame.columns.tolist() == ["total_0", "total_1"]
    assert frame["total_1"].tolist() == [2.0, 4.0, 6.0]
