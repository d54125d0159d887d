# SPDX-License-Identifier: BSD-3-Clause
"""UCI regression by the protocol of Hernandez-Lobato & Adams (2015): teacher, student and peers.

Every set is split into 90 % training and 10 % test rows twenty times (five for protein). Inputs
are standardised on the training rows. The same settings serve all sets: skdistill's defaults. With
--validation the last fifth of each training part takes the place of the test rows; settings were
chosen so, never on test rows.

    python benchmarks/uci.py                      # teacher and student on all sets at hand
    python benchmarks/uci.py --sets boston wine --splits 5 --peers gp mlp ngboost
    python benchmarks/uci.py --validation --student-param batch_size=64
    python benchmarks/uci.py --student distribution --splits 5
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import torch
from _common import argument_parser, parameter, print_table, record, write_json
from _datasets import load_uci_regression
from joblib import Parallel, delayed
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics import r2_score, root_mean_squared_error
from sklearn.preprocessing import StandardScaler

from skdistill import BayesianEnsembleRegressor, DistributionDistiller, HydraPlusRegressor
from skdistill.metrics import ause, epistemic_fidelity, gaussian_nll, interval_coverage
from skdistill.modules import n_parameters

# Deep Ensembles (Lakshminarayanan et al., 2017, Table 1): RMSE and NLL; NGBoost's NLL (Duan et
# al., 2020, Table 1).
DEEP_ENSEMBLES = {
    "boston": (3.28, 2.41),
    "concrete": (6.03, 3.06),
    "energy": (2.09, 1.38),
    "kin8nm": (0.09, -1.20),
    "naval": (0.00, -5.63),
    "power-plant": (4.11, 2.79),
    "protein": (4.71, 2.83),
    "wine": (0.64, 0.94),
    "yacht": (1.58, 1.18),
}
NGBOOST = {
    "boston": 2.43,
    "concrete": 3.04,
    "energy": 0.60,
    "kin8nm": -0.49,
    "naval": -5.34,
    "power-plant": 2.79,
    "protein": 2.81,
    "wine": 0.91,
    "yacht": 0.20,
}

SETS = ("boston", "concrete", "energy", "power-plant", "protein", "wine")  # by default

# What the student is, and its settings where they are not the defaults.
STUDENTS = {
    "hydra": (HydraPlusRegressor, {}),
    "distribution": (DistributionDistiller, {"module__hidden_units": (75,)}),
}

PEER_ROWS = {"gp": 2000}  # exact Gaussian processes cost the cube of the rows


def load_split(name: str, split: int, validation: bool):
    """Standardised float32 training and test rows of one split."""
    data = load_uci_regression(name)
    train, test = data.train_indices[split], data.test_indices[split]
    if validation:
        train = np.random.RandomState(split).permutation(train)
        train, test = train[: int(0.8 * len(train))], train[int(0.8 * len(train)) :]
    scaler = StandardScaler().fit(data.data[train])
    X_train, X_test = (scaler.transform(data.data[i]).astype(np.float32) for i in (train, test))
    return X_train, X_test, data.target[train], data.target[test]


def timed(call):
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


def scores(model, X, y) -> dict[str, float]:
    """Scores of a model that predicts a distribution."""
    log_prob = model.predict_distribution(X).log_prob(torch.tensor(y).view(-1, 1))
    mean, std = model.predict(X, return_std=True)
    return {
        "rmse": root_mean_squared_error(y, mean),
        "nll": -float(log_prob.mean()),
        "gaussian_nll": gaussian_nll(y, mean, std),
        "ause": ause(y, mean, std),
        "coverage_90": interval_coverage(y, model.predict_interval(X, 0.9)),
        "r2": r2_score(y, mean),
        "parameters": n_parameters(model.module_.network),
    }


def run_split(name: str, split: int, options) -> dict:
    """Teacher and student on one split, and what the student kept of the teacher."""
    X_train, X_test, y_train, y_test = load_split(name, split, options.validation)
    teacher = BayesianEnsembleRegressor(random_state=split, **dict(options.teacher_param))
    teacher, teacher_seconds = timed(lambda: teacher.fit(X_train, y_train))
    kind, settings = STUDENTS[options.student]
    student = kind(FrozenEstimator(teacher), random_state=split)
    student.set_params(**{**settings, **dict(options.student_param)})
    student, student_seconds = timed(lambda: student.fit(X_train, y_train))
    fidelity = epistemic_fidelity(
        teacher.predict_uncertainty(X_test).epistemic,
        student.predict_uncertainty(X_test).epistemic,
    )
    result = {
        "teacher": {**scores(teacher, X_test, y_test), "fit_seconds": teacher_seconds},
        "student": {**scores(student, X_test, y_test), "fit_seconds": student_seconds},
        "fidelity": fidelity._asdict(),
    }
    for peer in options.peers:
        if len(X_train) <= PEER_ROWS.get(peer, np.inf):
            result[peer] = run_peer(peer, X_train, X_test, y_train, y_test, split)
    return result


def gaussian_process(kernel, n_columns: int, seed: int, kind=GaussianProcessRegressor):
    """A process with a kernel that has a length scale for each column, and with noise."""
    noisy = ConstantKernel() * kernel(np.ones(n_columns)) + WhiteKernel()
    return kind(noisy, normalize_y=True, random_state=seed)


def run_peer(peer: str, X_train, X_test, y_train, y_test, split: int) -> dict[str, float]:
    """RMSE and NLL of a well-known regressor with its defaults."""
    start = time.process_time()
    loc, scale = y_train.mean(), y_train.std()
    if peer == "gp":
        model = gaussian_process(RBF, X_train.shape[1], split)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a length scale at its bound is an irrelevant column
            mean, std = model.fit(X_train, y_train).predict(X_test, return_std=True)
    elif peer == "mlp":
        from sklearn.neural_network import MLPRegressor

        model = MLPRegressor(
            hidden_layer_sizes=(50, 50), max_iter=500, early_stopping=True, random_state=split
        )
        model.fit(X_train, (y_train - loc) / scale)
        mean = loc + scale * model.predict(X_test)
        residual = y_train - (loc + scale * model.predict(X_train))
        std = np.full(len(mean), residual.std())
    else:
        from ngboost import NGBRegressor

        model = NGBRegressor(random_state=split, verbose=False).fit(X_train, y_train)
        predicted = model.pred_dist(X_test)
        mean, std = predicted.loc, predicted.scale
    return {
        "rmse": root_mean_squared_error(y_test, mean),
        "nll": gaussian_nll(y_test, mean, std),
        "fit_seconds": time.process_time() - start,
    }


def averages(splits: list[dict]) -> dict:
    """Mean over splits of every number; standard errors beside the means."""
    out: dict = {}
    for model in splits[0]:
        rows = [split[model] for split in splits]
        out[model] = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
        out[model] |= {
            f"{key}_sem": float(np.std([row[key] for row in rows]) / np.sqrt(len(rows)))
            for key in ("rmse", "nll")
            if key in rows[0]
        }
    return out


def rounded(value: float | None) -> float | int | None:
    """Counts as counts."""
    return int(value) if value is not None and value > 1000 else value


def report(results: dict[str, dict], options) -> None:
    header = ["set", "model", "RMSE", "NLL", "NLL Gauss", "AUSE", "cover 90", "parameters", "fit s"]
    keys = ["rmse", "nll", "gaussian_nll", "ause", "coverage_90", "parameters", "fit_seconds"]
    rows = []
    for name, result in results.items():
        for model, numbers in result.items():
            if model != "fidelity":
                rows.append([name, model, *(rounded(numbers.get(key)) for key in keys)])
        rmse, nll = DEEP_ENSEMBLES[name]
        rows.append([name, "(Deep Ensembles)", rmse, nll])
        rows.append([name, "(NGBoost)", None, NGBOOST[name]])
    print_table(header, rows)
    header = ["set", "rank of epistemic", "median ratio", "NLL gap", "RMSE ratio", "AUSE gap"]
    rows = []
    for name, result in results.items():
        teacher, student, fidelity = (result[k] for k in ("teacher", "student", "fidelity"))
        rows.append(
            [
                name,
                fidelity["rank_correlation"],
                fidelity["median_ratio"],
                student["nll"] - teacher["nll"],
                student["rmse"] / teacher["rmse"],
                student["ause"] - teacher["ause"],
                student["parameters"] / teacher["parameters"],
            ]
        )
    print()
    print_table([*header, "parameters"], rows)


def main() -> None:
    parser = argument_parser(__doc__, "uci")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(DEEP_ENSEMBLES))
    parser.add_argument("--splits", type=int, default=20, help="how many of the splits to run")
    parser.add_argument("--validation", action="store_true", help="score on held-out training rows")
    parser.add_argument("--peers", nargs="*", default=[], choices=["gp", "mlp", "ngboost"])
    parser.add_argument("--student", default="hydra", choices=list(STUDENTS))
    parser.add_argument("--teacher-param", nargs="*", default=[], type=parameter, metavar="K=V")
    parser.add_argument("--student-param", nargs="*", default=[], type=parameter, metavar="K=V")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    if options.quick:
        options.sets, options.splits = options.sets[:1], 1
        for given in (options.teacher_param, options.student_param):
            given.append(("max_epochs", 2))

    settings = {key: value for key, value in vars(options).items() if key != "output"}
    results = {}
    for name in options.sets:
        try:
            n_splits = min(options.splits, len(load_uci_regression(name).train_indices))
        except OSError as error:
            print(f"{name}: left out. {error}")
            continue
        splits = Parallel(n_jobs=options.jobs)(
            delayed(run_split)(name, split, options) for split in range(n_splits)
        )
        results[name] = averages(splits)
        report({name: results[name]}, options)
        write_json(options.output, record(settings=settings, results=results))
    print()
    report(results, options)


if __name__ == "__main__":
    main()
