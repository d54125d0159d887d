# SPDX-License-Identifier: BSD-3-Clause
"""Small fits at fixed seeds predict what they predicted when `reference.npz` was written.

Saved and loaded, they predict the same, bit for bit.

A change of structure leaves these values as they are; a change of behaviour writes them anew, with
``python tests/test_reference.py``, and says why.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    BDistilBooster,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
    load,
    save,
)
from skdistill.families import DirichletFamily, GaussianFamily
from skdistill.modules import ConvNet, Recurrent
from skdistill.pruning import GroupLasso
from skdistill.samplers import SGHMC, SGLD, DeepEnsemble, MCDropout
from skdistill.settings import Connection, EarlyStopping, WeakLearnerSearch

VALUES = Path(__file__).with_name("reference.npz")
N_ROWS, N_PREDICTED = 60, 7


def rows(shape: tuple[int, ...] = (3,)) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(N_ROWS, *shape))


def numbers(X: np.ndarray, n_targets: int = 1) -> np.ndarray:
    noise = np.random.default_rng(1).normal(size=(len(X), n_targets))
    columns = X.reshape(len(X), -1)
    y = 4 + np.sin(columns[:, :1]) - 2 * columns[:, 1:2] + 0.3 * noise
    return y if n_targets > 1 else y.ravel()


def labels(X: np.ndarray) -> np.ndarray:
    return np.array(["a", "b", "c"])[np.digitize(numbers(X), [3.0, 5.0])]


def ensemble(kind: type = BayesianEnsembleRegressor, **params: Any) -> Any:
    small = {"n_members": 3, "max_epochs": 10, "module__hidden_units": (8,), "random_state": 0}
    return kind(**{**small, **params})


def distil(kind: type, teacher: Any, **params: Any) -> Any:
    small = {"max_epochs": 10, "module__hidden_units": (8,), "random_state": 0}
    return kind(teacher, **{**small, **params})


def of_classes(**params: Any) -> Any:
    return ensemble(BayesianEnsembleClassifier, **params)


CHAINS = {"inference": SGLD(1e-3, prior_precision=1, n_chains=2), "n_members": 4, "max_epochs": 12}
DYNAMIC_CHAINS = {**CHAINS, "inference": SGHMC(1e-5, prior_precision=1)}
DROPOUT = {"inference": MCDropout()}
SMALL_ROUNDS = {"n_rounds": 3, "search": WeakLearnerSearch(max_search=2)}

# Each makes an estimator; what it is fitted on follows from the name's last word.
ESTIMATORS: dict[str, Callable[[], Any]] = {
    "ensemble numbers": ensemble,
    "ensemble bootstrap numbers": lambda: ensemble(
        inference=DeepEnsemble(bootstrap=True), batch_size=16
    ),
    "ensemble stopped numbers": lambda: ensemble(
        inference=DeepEnsemble(early_stopping=EarlyStopping(n_iter_no_change=2))
    ),
    "ensemble several numbers": ensemble,
    "ensemble sgld numbers": lambda: ensemble(**CHAINS),
    "ensemble sghmc numbers": lambda: ensemble(**DYNAMIC_CHAINS),
    "ensemble dropout numbers": lambda: ensemble(**DROPOUT),
    "ensemble classes": of_classes,
    "ensemble balanced classes": lambda: of_classes(class_weight="balanced", batch_size=16),
    "ensemble sgld classes": lambda: of_classes(**CHAINS),
    "ensemble dropout classes": lambda: of_classes(**DROPOUT),
    "ensemble images classes": lambda: of_classes(
        module=ConvNet, module__channels=(4,), max_epochs=4
    ),
    "ensemble series classes": lambda: of_classes(module=Recurrent, max_epochs=4),
    "hydra numbers": lambda: distil(HydraPlusRegressor, ensemble()),
    "hydra several numbers": lambda: distil(HydraPlusRegressor, ensemble()),
    "hydra mixup numbers": lambda: distil(HydraPlusRegressor, ensemble(), transfer="mixup"),
    "hydra pruned numbers": lambda: distil(HydraPlusRegressor, ensemble(), pruning=GroupLasso(0.3)),
    "hydra folds numbers": lambda: distil(HydraPlusRegressor, ensemble(), teacher_cv=3),
    "hydra classes": lambda: distil(HydraPlusClassifier, of_classes()),
    "hydra munge classes": lambda: distil(HydraPlusClassifier, of_classes(), transfer="munge"),
    "hydra forest classes": lambda: distil(
        HydraPlusClassifier, RandomForestClassifier(5, max_depth=3, random_state=0)
    ),
    **{
        f"distribution {family} {width}numbers": lambda family=family: distil(
            DistributionDistiller, ensemble(), family=family
        )
        for family in (
            "gaussian",
            "latent_factor",
            "normal_inverse_gamma",
            "normal_inverse_wishart",
            "mixture",
        )
        for width in ("", "several ")
    },
    "distribution full numbers": lambda: distil(
        DistributionDistiller,
        ensemble(),
        family=GaussianFamily(covariance="full"),
        supervised_weight=0.2,
    ),
    **{
        f"distribution {family} classes": lambda family=family: distil(
            DistributionDistiller, of_classes(), family=family
        )
        for family in (
            "logit_normal",
            "dirichlet",
            "mixture",
            "gauss_head",
            "dropout_head",
        )
    },
    **{
        f"distribution {loss} classes": lambda loss=loss: distil(
            DistributionDistiller, of_classes(), family=DirichletFamily(loss=loss)
        )
        for loss in ("reverse_kl_reference", "nll")
    },
    "distribution tempered classes": lambda: distil(
        DistributionDistiller,
        of_classes(),
        family=DirichletFamily(temperature=(2.0, 2, 8)),
        supervised_weight=0.1,
    ),
    "gped online numbers": lambda: distil(GPEDDistiller, ensemble(**CHAINS), max_epochs="auto"),
    "gped online classes": lambda: distil(GPEDDistiller, of_classes(**CHAINS), max_epochs="auto"),
    "gped stochastic classes": lambda: distil(
        GPEDDistiller, of_classes(**CHAINS), max_epochs="auto", estimate="stochastic"
    ),
    "gped replay numbers": lambda: distil(GPEDDistiller, ensemble()),
    "gped replay classes": lambda: distil(GPEDDistiller, of_classes()),
    "gped dirichlet classes": lambda: distil(GPEDDistiller, of_classes(), expectations="dirichlet"),
    "booster numbers": lambda: distil(BDistilBooster, ensemble(), **SMALL_ROUNDS),
    "booster several numbers": lambda: distil(BDistilBooster, ensemble(), **SMALL_ROUNDS),
    "booster classes": lambda: distil(BDistilBooster, of_classes(), **SMALL_ROUNDS),
    "booster lstm classes": lambda: distil(
        BDistilBooster,
        of_classes(),
        connection=Connection("lstm", connect="always"),
        **SMALL_ROUNDS,
    ),
}


def data_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Samples and targets for the estimator of that name."""
    words = name.split()
    shape = {"images": (1, 6, 6), "series": (5, 2)}.get(words[1], (3,))
    X = rows(shape)
    if words[-1] == "classes":
        return X, labels(X)
    return X, numbers(X, 2 if "several" in words else 1)


def fitted(name: str) -> Any:
    """The estimator of that name, fitted."""
    return ESTIMATORS[name]().fit(*data_of(name))


def predictions(model: Any, name: str) -> np.ndarray:
    """What a model predicts for a few samples: probabilities or means, and uncertainties."""
    X, _ = data_of(name)
    predict = model.predict_proba if hasattr(model, "predict_proba") else model.predict
    parts = (part for part in model.predict_uncertainty(X[:N_PREDICTED]) if part is not None)
    columns = [predict(X[:N_PREDICTED]), *parts]
    return np.column_stack([np.reshape(column, (N_PREDICTED, -1)) for column in columns])


@pytest.fixture(scope="module")
def reference() -> dict[str, np.ndarray]:
    with np.load(VALUES) as found:
        return dict(found)


@pytest.mark.filterwarnings("ignore")  # R-hat of short chains, rounds that find no weak learner
@pytest.mark.parametrize("name", ESTIMATORS)
def test_predictions_are_those_of_the_reference(name, reference, tmp_path):
    model = fitted(name)
    found = predictions(model, name)
    # Weights begin as draws in float32, whose last digit is another on other processors, and ten
    # epochs make up to 4e-6 of it, as of random last digits on one processor.
    np.testing.assert_allclose(found, reference[name], rtol=2e-5, atol=1e-9)
    save(model, tmp_path / "a")
    loaded = load(tmp_path / "a")
    np.testing.assert_array_equal(predictions(loaded, name), found)
    assert loaded.history_ == model.history_
    save(loaded, tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_reference_has_these_cases_and_no_others(reference):
    assert set(reference) == set(ESTIMATORS)


if __name__ == "__main__":
    np.savez_compressed(VALUES, **{name: predictions(fitted(name), name) for name in ESTIMATORS})
