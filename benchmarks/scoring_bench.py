# SPDX-License-Identifier: BSD-3-Clause
"""ScoringBench as a referee: its folds, its scores of whole distributions, its own entries.

ScoringBench (Landsgesell & Knoll, 2026, arXiv 2603.29928) scores the probabilities that a regressor
gives to bins. Its settings are kept: five folds, shuffled with its seed, with at most 2,400
training and 600 test samples. Its code computes all scores. Tables are those of its list that are
here; y has mean 0 and deviation 1, and of PMLB's larger tables there are 4,500 samples.

teacher, hydra, distribution  BayesianEnsembleRegressor, and its HydraPlusRegressor and
                              DistributionDistiller, with their defaults, by
                              _scoringbench_wrapper.py, which is ready for a pull request there
xgb_vector_quantile, catboost_quantile
                              its entries with its settings, XGBoost on the CPU

Its entries by foundation models want weights from elsewhere. Seconds are CPU seconds of a fit of
one thread, a student's without its teacher's. Results are written after every fit; --resume
measures what the file lacks, and ours anew where defaults have changed since.

ScoringBench is a repository, not a package:

    git clone https://github.com/jonaslandsgesell/ScoringBench
    pip install --no-deps -r requirements/peers.txt
    PYTHONPATH=ScoringBench python benchmarks/scoring_bench.py --resume
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from statistics import mean
from typing import Any

import _defaults
import epistemic
import numpy as np
from _common import Among, asked, print_table, record, resumed, versions, write_json
from _datasets import table
from scipy.stats import rankdata
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import KFold

from skdistill import BayesianEnsembleRegressor, DistributionDistiller, HydraPlusRegressor
from skdistill.settings import Runtime

SETS = (
    *("boston", "energy", "concrete", "kin8nm", "houses", "pollen", "puma8nh", "2dplanes"),
    *("bng_lowbwt", "pol"),
)
SMALL = SETS[:2]  # that are measured where none are named
OURS = ("teacher", "hydra", "distribution")
PEERS = ("xgb_vector_quantile", "catboost_quantile")
SCORES = (
    *("crps", "log_score", "crls", "interval_score_90", "interval_score_95"),
    *("energy_score_beta_0.5", "coverage_90", "coverage_95", "rmse", "r2"),
)
RANKED = ("crps", "log_score", "crls", "interval_score_95", "rmse")  # the less, the better

Row = dict[str, Any]


def timed(fit: Any, *args: Any) -> tuple[Any, float]:
    """What a call returns, and its CPU seconds."""
    start = time.process_time()
    return fit(*args), time.process_time() - start


def splits(n: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Training and test samples of each fold, as scoringbench/runner.py draws them."""
    from scoringbench.config import N_FOLDS, SAMPLE_SIZE, SEED

    caps = SAMPLE_SIZE * (N_FOLDS - 1) // N_FOLDS, SAMPLE_SIZE // N_FOLDS
    folds = KFold(N_FOLDS, shuffle=True, random_state=SEED).split(np.arange(n))
    for number, parts in enumerate(folds):
        train, test = (
            np.random.default_rng(SEED * 10007 + number + i).choice(part, cap, replace=False)
            if len(part) > cap
            else part
            for i, (part, cap) in enumerate(zip(parts, caps, strict=True))
        )
        yield train, test


def contenders(teacher: Any, params: Row) -> dict[str, Any]:
    """Unfitted models by name; students are those of this teacher, fitted before they are."""
    from _scoringbench_wrapper import SkdistillWrapper
    from scoringbench.wrappers import CatBoostQuantileWrapper, XGBQuantileVectorWrapper

    own = {"random_state": 0, "runtime": Runtime(device="cpu"), **params}
    students = HydraPlusRegressor, DistributionDistiller
    return {
        "teacher": SkdistillWrapper(teacher),
        **{
            name: SkdistillWrapper(kind(FrozenEstimator(teacher), **own))
            for name, kind in zip(OURS[1:], students, strict=True)
        },
        "xgb_vector_quantile": XGBQuantileVectorWrapper(
            n_bins=50, xgb_params={"device": "cpu", "nthread": 1}
        ),
        "catboost_quantile": CatBoostQuantileWrapper(
            catboost_params={"thread_count": 1, "allow_writing_files": False}
        ),
    }


def run(name: str, number: int, models: list[str], quick: bool) -> Iterator[Row]:
    """A row for each of the models on one fold of a table."""
    from scoringbench.metrics import compute_metrics

    X, y = table(name)
    y = (y - y.mean()) / y.std()
    train, test = list(splits(len(y)))[number]
    of_students = {"max_epochs": 2} if quick else {}
    of_teacher = {"n_members": 3, **of_students} if quick else {}
    teacher = BayesianEnsembleRegressor(random_state=0, runtime=Runtime(device="cpu"), **of_teacher)
    everyone = contenders(teacher, of_students)
    needed = {*models, "teacher"} if {*models} & {*OURS} else {*models}
    for who in (who for who in everyone if who in needed):
        model, seconds = timed(everyone[who].fit, X[train], y[train])
        if who in models:
            scores = compute_metrics(model.predict_distribution(X[test]), y[test])
            found = {"fit_seconds": seconds, **{key: scores[key] for key in SCORES}}
            place = {"set": name, "fold": number, "model": who, "n_train": len(train)}
            yield place | {key: epistemic.rounded(float(value)) for key, value in found.items()}


def by_set(rows: list[Row], score: str, who: str) -> dict[str, float]:
    """Means over folds, by table."""
    of = [row for row in rows if row["model"] == who]
    names = dict.fromkeys(row["set"] for row in of)
    return {name: mean(row[score] for row in of if row["set"] == name) for name in names}


def ranks(rows: list[Row], score: str) -> dict[str, float]:
    """Mean ranks of the models over the tables that all of them have."""
    means = {who: by_set(rows, score, who) for who in dict.fromkeys(row["model"] for row in rows)}
    shared = set.intersection(*(set(of) for of in means.values()))
    found = [rankdata([of[name] for of in means.values()]) for name in sorted(shared)]
    return dict(zip(means, np.mean(found, axis=0).tolist(), strict=True)) if found else {}


def report(rows: list[Row]) -> None:
    models = list(dict.fromkeys(row["model"] for row in rows))
    columns = ("crps", "log_score", "crls", "interval_score_95", "coverage_95", "r2")
    print_table(
        ["set", "model", *columns, "fit s"],
        [
            [
                name,
                who,
                *(by_set(rows, score, who).get(name) for score in (*columns, "fit_seconds")),
            ]
            for name in dict.fromkeys(row["set"] for row in rows)
            for who in models
        ],
    )
    print("\nMean ranks")
    print_table(
        ["score", *models],
        [[score, *(ranks(rows, score).get(who) for who in models)] for score in RANKED],
    )


def identity(row: Row) -> tuple:
    """What there is one row of."""
    return row["set"], row["fold"], row["model"]


def main() -> None:
    everyone = [*OURS, *PEERS]
    options = asked(__doc__, sets=Among(list(SMALL), SETS), models=everyone, resume=False)
    try:
        import scoringbench
    except ImportError as error:
        raise SystemExit(f"ScoringBench is not on PYTHONPATH, see --help: {error}") from error
    settings = {"quick": options.quick, "scoringbench": scoringbench.__version__}
    found = resumed(options.output, settings) if options.resume else None
    rows = _defaults.kept(found, OURS) if found else []
    warnings.simplefilter("ignore")  # of quick runs, which have learnt nothing
    for name in options.sets:
        for number in range(1 if options.quick else scoringbench.config.N_FOLDS):
            known = {identity(row) for row in rows if "older" not in row}
            todo = [who for who in options.models if (name, number, who) not in known]
            for row in run(name, number, todo, options.quick):
                rows = _defaults.replaced(rows, [row], identity)
                content = {"settings": settings, "results": rows}
                of_others = versions("xgboost-cpu")
                write_json(options.output, record(**content, versions=of_others))
                print(*identity(row), f"{row['fit_seconds']:.1f} s", flush=True)
    report(rows)


if __name__ == "__main__":
    main()
