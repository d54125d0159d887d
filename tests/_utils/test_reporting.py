# SPDX-License-Identifier: BSD-3-Clause
"""What a fit tells of itself: lines about its stages."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.base import clone

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    BDistilBooster,
    GPEDDistiller,
    HydraPlusRegressor,
)
from skdistill._utils.reporting import reporting, stage
from skdistill.pruning import GroupLasso
from skdistill.samplers import SGLD, DeepEnsemble


def test_a_stage_has_a_line_unless_it_fails_and_fits_within_it_have_none(capsys):
    with reporting("Fit", 1):
        with stage("teacher"), reporting("Inner", 1), stage("members"):
            pass
        with pytest.raises(ValueError), stage("calibration"):  # noqa: PT011 -- any one
            raise ValueError
    with reporting("Fit", 0), reporting("Inner", 1), stage("members"):
        pass
    assert capsys.readouterr().out == "Fit: teacher: 0.0 s\nInner: members: 0.0 s\n"


# --- Fits -------------------------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(40, 3))
Y = X[:, 0] + 0.1 * X[:, 1]
CLASSES = np.where(Y > 0, "up", "down")
SMALL = {"max_epochs": 2, "module__hidden_units": (4,), "random_state": 0}
ENSEMBLE = BayesianEnsembleRegressor(3, **SMALL)
CHAINS = BayesianEnsembleClassifier(3, inference=SGLD(1e-4, burn_in=0), **SMALL)


FITS = {
    "ensemble": (ENSEMBLE, Y, ["3 members"]),
    "tuned": (
        BayesianEnsembleRegressor(3, inference=DeepEnsemble(tune="oob"), **SMALL),
        Y,
        ["3 members, tuned"],
    ),
    "hydra": (
        HydraPlusRegressor(ENSEMBLE, pruning=GroupLasso(0.01), **SMALL),
        Y,
        ["teacher, 3 members", "transfer samples", "student, 4 epochs"],
    ),
    "folds": (
        HydraPlusRegressor(ENSEMBLE, teacher_cv=2, calibration_fraction=0.3, **SMALL),
        Y,
        [
            "teacher, 3 members",
            "out-of-fold predictions",
            "transfer samples",
            "student, 2 epochs",
            "calibration",
        ],
    ),
    "gped of chains": (
        GPEDDistiller(CHAINS, module__hidden_units=(4,), random_state=0),
        CLASSES,
        ["Markov chains", "student, 4 epochs"],
    ),
    "booster": (
        BDistilBooster(ENSEMBLE, n_rounds=2, **SMALL),
        Y,
        ["teacher, 3 members", "transfer samples", "booster, 2 rounds"],
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("model", "y", "stages"), FITS.values(), ids=FITS)
def test_fits_are_silent_unless_asked_and_then_tell_of_their_stages(model, y, stages, capfd):
    data = (X, y) if y is not None else (np.array([[3, 2, 0], [4, 3, 2]]),)
    clone(model).fit(*data)
    assert capfd.readouterr() == ("", "")
    clone(model).set_params(verbose=1).fit(*data)
    name = type(model).__name__
    out, errors = capfd.readouterr()
    without_times = re.sub(r": [\d.]+ s$", "", out, flags=re.MULTILINE)
    assert without_times.splitlines() == [f"{name}: {stage}" for stage in stages]
    assert errors == ""
