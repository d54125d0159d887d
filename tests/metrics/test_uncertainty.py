# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from sklearn.metrics import ndcg_score, roc_auc_score

from skdistill.metrics import (
    epistemic_calibration,
    epistemic_fidelity,
    ood_auroc,
    uncertainty_ndcg,
    uncertainty_total_variation,
)

# Two samples of uncertainties and two models


def test_total_variation_by_hand():
    # Bins [0, 1), [1, 2]: shares 3/4, 1/4 against 1/2, 1/2.
    assert uncertainty_total_variation([0, 0, 0.5, 2], [0, 2], bins=2) == 0.25


def test_total_variation_is_half_of_the_papers_sum():
    rng = np.random.default_rng(0)
    a, b = rng.gamma(2, size=200), rng.gamma(3, size=150)
    edges = np.linspace(min(a.min(), b.min()), max(a.max(), b.max()), 51)
    paper = np.abs(np.histogram(a, edges)[0] / 200 - np.histogram(b, edges)[0] / 150).sum()
    assert_allclose(uncertainty_total_variation(a, b), paper / 2)


def test_fidelity_by_hand():
    fidelity = epistemic_fidelity([1.0, 2.0, 5.0, 4.0], [2.0, 1.0, 5.0, 8.0])
    # Ranks 1 2 4 3 and 2 1 3 4: 1 - 6 * 4 / (4 * 15); ratios 2, .5, 1, 2; |s - t| = 1, 1, 0, 4.
    assert_allclose(fidelity, [0.6, 1.5, 0.5])
    assert fidelity._fields == ("rank_correlation", "median_ratio", "relative_error")


@pytest.mark.parametrize("n_samples", [7, 30])
def test_fidelity_without_weights_is_scipy_and_numpy(n_samples, make_predictions):
    data = make_predictions(n_samples=n_samples)
    teacher, student = data["std"], data["other_std"]
    fidelity = epistemic_fidelity(teacher, student)
    assert_allclose(fidelity.rank_correlation, stats.spearmanr(teacher, student).statistic)
    assert_allclose(fidelity.median_ratio, np.median(student / teacher))
    assert_allclose(fidelity.relative_error, np.abs(student - teacher).mean() / teacher.mean())


def test_fidelity_of_mutual_informations():
    # Members' probabilities (n, S, K): a student whose members disagree half as much in logits.
    rng = np.random.default_rng(0)
    centre, spread = rng.normal(size=(50, 1, 3)), rng.gamma(1, size=(50, 1, 1))
    offsets = spread * rng.normal(size=(50, 8, 3))

    def mutual_information(logits):
        p = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
        return stats.entropy(p.mean(axis=1), axis=1) - stats.entropy(p, axis=2).mean(axis=1)

    teacher = mutual_information(centre + offsets)
    fidelity = epistemic_fidelity(teacher, mutual_information(centre + offsets / 2))
    assert fidelity.rank_correlation > 0.9
    assert 0.2 < fidelity.median_ratio < 0.5  # near 1/4 where small, above it where it saturates
    assert_allclose(epistemic_fidelity(teacher, teacher), [1, 1, 0], atol=1e-15)


# Detection of samples out of distribution


def test_auroc_by_hand():
    # Of 3 * 2 pairs: .2 above .1 only, with a tie at .2; .9 above all.
    assert_allclose(ood_auroc([0.1, 0.2, 0.3], [0.2, 0.9]), (1 + 0.5 + 3) / 6)
    assert ood_auroc([0, 1], [2, 3]) == 1
    assert ood_auroc([2, 3], [0, 1]) == 0


def test_auroc_is_mann_whitneys_statistic_and_sklearns():
    rng = np.random.default_rng(0)
    inside, outside = rng.choice(20, size=80) / 10, rng.choice(25, size=50) / 10
    area = ood_auroc(inside, outside)
    assert_allclose(area, stats.mannwhitneyu(outside, inside).statistic / (80 * 50))
    is_outside = np.r_[np.zeros(80), np.ones(50)]
    assert_allclose(area, roc_auc_score(is_outside, np.r_[inside, outside]))
    assert_allclose(ood_auroc(np.exp(inside), np.exp(outside)), area)
    assert_allclose(ood_auroc(outside, inside), 1 - area)


# Ranking


def test_ndcg_by_hand():
    # Gains 1, 3, 0 in the student's order, best 3, 1, 0; the k-th counts 1 / log2(k + 1).
    ndcg = uncertainty_ndcg([3, 0, 1], [0.5, 0.1, 0.7], k=2, n_candidates=3, n_trials=2)
    assert_allclose(ndcg, (1 + 3 / np.log2(3)) / (3 + 1 / np.log2(3)))


def test_ndcg_of_one_draw_of_all_rows_is_sklearns(make_predictions):
    data = make_predictions()
    teacher, student = data["std"], data["entropy"]
    ndcg = uncertainty_ndcg(teacher, student, k=7, n_candidates=30, n_trials=3)
    assert_allclose(ndcg, ndcg_score([teacher], [student], k=7))


@pytest.mark.slow
def test_ndcg_is_the_mean_over_all_draws():
    rng = np.random.default_rng(0)
    teacher, student = rng.gamma(1, size=(2, 4))
    left_out = [np.delete(np.arange(4), row) for row in range(4)]
    scores = [ndcg_score([teacher[rows]], [student[rows]], k=2) for rows in left_out]
    ndcg = uncertainty_ndcg(teacher, student, k=2, n_candidates=3, n_trials=2000, random_state=0)
    assert_allclose(ndcg, np.mean(scores), atol=4 * np.std(scores) / np.sqrt(2000))


def test_epistemic_calibration_by_hand():
    found = epistemic_calibration(
        [0.0, 4.0, 1.0, 9.0], [1.0, 1.0, 3.0, 5.0], n_bins=2, coverage=0.5
    )
    # z^2 = .455: 0 <= .455, 4 > .455, 1 <= 1.36, 9 > 2.27; ranks 1 3 2 4 and 1.5 1.5 3 4.
    assert found.coverage == 0.5
    assert_allclose(found.bin_epistemic, [1, 4])
    assert_allclose(found.bin_squared_error, [2, 5])
    assert_allclose(found.ratio, [0.5, 0.8])
    assert found.overall == pytest.approx(10 / 14)
    expected = stats.spearmanr([0.0, 4.0, 1.0, 9.0], [1.0, 1.0, 3.0, 5.0]).statistic
    assert found.rank == pytest.approx(expected)


def test_epistemic_calibration_of_known_gaussians():
    rng = np.random.default_rng(0)
    variance = rng.gamma(2.0, size=20_000)
    error = variance * np.square(rng.normal(size=20_000))
    found = epistemic_calibration(error, variance)
    assert found.coverage == pytest.approx(0.9, abs=0.01)
    assert_allclose(found.ratio, 1, atol=0.1)
    assert epistemic_calibration(error, variance, coverage=0.5).coverage == pytest.approx(
        0.5, abs=0.02
    )
    wider = epistemic_calibration(error, 4 * variance)
    assert_allclose(wider.ratio, 4 * found.ratio)
    assert wider.rank == pytest.approx(found.rank)
