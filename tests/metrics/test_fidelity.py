# SPDX-License-Identifier: BSD-3-Clause
"""A student held against its teacher and a larger ensemble."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.datasets import make_regression
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import root_mean_squared_error
from small_models import ensemble, student

from skdistill.metrics import (
    epistemic_fidelity,
    fidelity,
    gaussian_nll,
    uncertainty_total_variation,
)

PARTS = ("total", "aleatoric", "epistemic")
OF_A_PART = ("rank_correlation", "median_ratio", "relative_error", "total_variation")


@pytest.fixture(scope="module")
def data():
    return make_regression(60, 3, noise=5.0, random_state=0)


@pytest.fixture(scope="module")
def models(data):
    teacher = ensemble().fit(*data)
    return {
        "teacher": teacher,
        "student": student(FrozenEstimator(teacher)).fit(*data),
        "reference": ensemble(n_members=6, random_state=1).fit(*data),
    }


def test_the_table_holds_what_the_metrics_give(models, data):
    X, y = data
    weight = np.arange(1.0, 61.0)
    table = fidelity(X=X, y=y, sample_weight=weight, **models)
    assert list(table) == [
        "student_to_teacher",
        "student_to_reference",
        "teacher_to_reference",
    ]
    names = ["nll_gap", "rmse_gap", *(f"{part}_{name}" for part in PARTS for name in OF_A_PART)]
    for pair, column in table.items():
        assert list(column) == names
        one, other = (models[name] for name in pair.split("_to_"))
        (mean, std), (its_mean, its_std) = (m.predict(X, return_std=True) for m in (one, other))
        nlls = [
            gaussian_nll(y, *of, sample_weight=weight) for of in ((mean, std), (its_mean, its_std))
        ]
        assert column["nll_gap"] == pytest.approx(nlls[0] - nlls[1])
        rmses = [root_mean_squared_error(y, of, sample_weight=weight) for of in (mean, its_mean)]
        assert column["rmse_gap"] == pytest.approx(rmses[0] - rmses[1])
        for part in PARTS:
            mine, its = (getattr(m.predict_uncertainty(X), part) for m in (one, other))
            kept = epistemic_fidelity(its, mine, sample_weight=weight)
            tv = uncertainty_total_variation(mine, its, a_weights=weight, b_weights=weight)
            assert [column[f"{part}_{name}"] for name in OF_A_PART] == [*kept, tv]


def test_ranks_are_spearmans_and_labels_may_be_missing(models, data):
    X, _ = data
    table = fidelity(models["teacher"], models["student"], X)
    assert list(table) == ["student_to_teacher"]
    assert not [name for name in table["student_to_teacher"] if name.endswith("gap")]
    parts = [models[name].predict_uncertainty(X).epistemic for name in ("teacher", "student")]
    rank = table["student_to_teacher"]["epistemic_rank_correlation"]
    assert rank == pytest.approx(spearmanr(*parts).statistic)


def test_a_part_that_a_model_cannot_tell_is_left_out(models, data):
    X, _ = data
    one_head = student(FrozenEstimator(models["teacher"]), heads=1).fit(*data)
    column = fidelity(models["teacher"], one_head, X)["student_to_teacher"]
    assert list(column) == [f"total_{name}" for name in OF_A_PART]
