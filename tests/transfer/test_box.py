# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from skdistill.transfer import UniformBox

X = torch.tensor([[0.0, -3.0, 7.0], [4.0, -1.0, 7.0], [1.0, -2.0, 7.0]], dtype=torch.float64)


def in_box(maker, n=4000, X=X):
    draw = maker.prepare(X)
    index = torch.zeros(n, dtype=torch.long)
    return draw(X[index], index, torch.Generator().manual_seed(0)).numpy()


@pytest.mark.parametrize("expand", [0.0, 0.25])
def test_columns_are_uniform_between_the_bounds(expand):
    new = in_box(UniformBox(expand))
    for column, low, high in ((0, 0.0, 4.0), (1, -3.0, -1.0)):
        margin = expand * (high - low)
        box = stats.uniform(low - margin, high - low + 2 * margin)
        assert stats.kstest(new[:, column], box.cdf).pvalue > 0.01
        assert new[:, column].min() >= low - margin
        assert new[:, column].max() <= high + margin
    assert (new[:, 2] == 7.0).all()


def test_columns_are_independent():
    new = in_box(UniformBox())
    assert abs(np.corrcoef(new[:, 0], new[:, 1])[0, 1]) < 4 / np.sqrt(len(new))


def test_no_rounding_leads_out_of_the_box():
    edge = torch.tensor([[0.1], [0.1 + 3e-8]], dtype=torch.float32)  # a few numbers apart
    new = in_box(UniformBox(), X=edge)
    assert len(np.unique(new)) > 2
    assert new.min() == edge.min()
    assert new.max() == edge.max()


def test_categorical_columns_are_as_frequent_as_in_the_rows():
    rows = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.0, 1.0], [1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    new = in_box(UniformBox(categorical=[(1, 2)]), X=rows)
    assert (new[:, 1] + new[:, 2] == 1).all()
    assert new[:, 1].mean() == pytest.approx(0.25, abs=4 * np.sqrt(3 / 16 / len(new)))


def test_categorical_variables_are_independent():
    rows = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    new = in_box(UniformBox(categorical=[0, 1]), X=rows)
    assert (new[:, 0] == new[:, 1]).mean() == pytest.approx(0.5, abs=2 / np.sqrt(len(new)))
