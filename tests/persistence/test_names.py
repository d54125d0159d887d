# SPDX-License-Identifier: BSD-3-Clause
"""Names in files: they stay, and skops may trust what they stand for."""

from __future__ import annotations

import pytest

from skdistill.modules import MLP
from skdistill.persistence import TRUSTED, register
from skdistill.persistence._names import NAMES

# Of ours, as of format version 1. None may go.
NAMES_1 = set(
    """
BDistilBooster BayesianEnsembleClassifier BayesianEnsembleRegressor DistributionDistiller
GPEDDistiller HydraPlusClassifier HydraPlusRegressor SequenceDistributionDistiller
ClassificationTask RegressionTask TrainingBudget LearnerRecipes NetworkRecipe Round
SamplerDiagnostics Calibration
CategoricalExpectationsPlan EnsemblePlan FamilyPlan GaussianExpectationsPlan HydraPlan RoundsPlan
TokensPlan Checkpoint EarlyStopping GroupLasso HydraLoss Runtime SpecialTokens DirichletFamily
DropoutHeadFamily GaussHeadFamily GaussianFactors GaussianFamily GaussianMixture
LatentFactorFamily LogitNormalFamily MixtureFamily NormalInverseGammaFamily
NormalInverseWishartFamily NumericHeads
GaussianNoise MCDropout Mixup Munge SGHMC SGLD DirichletExpectation
EntropyExpectation
Expectation _EpistemicVariance _Known ConvNet MLP Recurrent RecurrentSequenceModel ResNet
sklearn.Pipeline sklearn.ColumnTransformer sklearn.StandardScaler sklearn.OneHotEncoder
sklearn.SimpleImputer torch.optim.Adam torch.optim.SGD
""".split()  # noqa: SIM905 -- fewer quotes
)


def test_names_stay():
    assert set(NAMES) >= NAMES_1


def test_a_name_stands_for_one_thing():
    register("MLP", MLP)  # as it is
    with pytest.raises(ValueError, match="'MLP' stands for"):
        register("MLP", dict)
    with pytest.raises(TypeError, match="a name and a class or function"):
        register("number", 1)


def test_skops_needs_to_trust_these_types_only(pipeline, table, tmp_path):
    skops = pytest.importorskip("skops.io")
    student = pipeline[-1]
    skops.dump(student, tmp_path / "student.skops")
    assert set(skops.get_untrusted_types(file=tmp_path / "student.skops")) <= set(TRUSTED)
    loaded = skops.load(tmp_path / "student.skops", trusted=TRUSTED)
    X = pipeline[:-1].transform(table[0])
    assert (loaded.predict_proba(X) == student.predict_proba(X)).all()
