# SPDX-License-Identifier: BSD-3-Clause
"""Other ways by which members may differ where there are no data, beside random functions.

Gaps and tails of unseen.py are cut out of the training samples of the first usual split, never of
test samples; two features of each of six sets, at most --max-rows samples. A tenth of the samples
that are left is held out. All ways are ensembles of 20 networks with the defaults, except for what
is named:

default     random functions
none        no random functions
no bins     neither random functions nor piecewise-linear embeddings
unbounded   "no bins", with units "silu"
frequencies "no bins", with periodic embeddings of ten times the default scale
both        ten members with and ten without piecewise-linear embeddings, no random functions
last layer  "none", and for each member the closed-form posterior of its last layer's weights, whose
            variance is added to that of the mean; prior and noise precision by the evidence
anchored    networks with one output and without embeddings, trained by Adam in full batches, each
            regularised towards its initial weights (anchored MAP) at noise of .05 of the variance
            of y; the predicted noise is the error on a tenth of the samples, not trained on

Half an hour on one core.

    python benchmarks/other_ways.py
"""

from __future__ import annotations

import itertools
import math
import time
import warnings
from collections.abc import Callable
from statistics import mean
from typing import Any

import numpy as np
import torch
import unseen
from _common import argument_parser, one_thread, print_table, record, write_json
from _datasets import load_uci_regression
from sklearn.linear_model import BayesianRidge
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from skdistill import BayesianEnsembleRegressor
from skdistill.distributions import EmpiricalGaussian
from skdistill.metrics import ood_auroc
from skdistill.model_selection import GapSplit, TailSplit
from skdistill.modules import Periodic

N_MEMBERS, N_HIDDEN, N_STEPS, GIVEN_NOISE = 20, 50, 1000, 0.05
Predict = Callable[[np.ndarray], EmpiricalGaussian]


def ensemble(X, y, **params) -> Predict:
    return BayesianEnsembleRegressor(random_state=0, **params).fit(X, y).predict_distribution


def none(X, y, **params) -> Predict:
    return ensemble(X, y, distance_aware=False, **params)


def both(X, y) -> Predict:
    parts = [none(X, y, n_members=N_MEMBERS // 2)]
    parts.append(none(X, y, n_members=N_MEMBERS // 2, module__embeddings=None))

    def predict(samples):
        found = [part(samples) for part in parts]
        values = zip(*((one.means, one.variances) for one in found), strict=True)
        return EmpiricalGaussian(*map(torch.cat, values))

    return predict


def last_layer(X, y) -> Predict:
    model = BayesianEnsembleRegressor(random_state=0, distance_aware=False).fit(X, y)
    layers = list(model.module_.network)[:-1]

    def features(samples) -> np.ndarray:
        with torch.inference_mode():
            x = torch.as_tensor(samples, dtype=next(model.module_.parameters()).dtype)
            x = model.module_.encode(x).unsqueeze(0)
            for layer in layers:
                x = layer(x)
            return x.double().numpy()

    ridges = [BayesianRidge().fit(of_member, y) for of_member in features(X)]

    def predict(samples):
        pairs = zip(ridges, features(samples), strict=True)
        variances = [np.square(r.predict(f, return_std=True)[1]) - 1 / r.alpha_ for r, f in pairs]
        added = torch.tensor(np.mean(variances, axis=0)).view(-1, 1)
        return model.predict_distribution(samples).with_mean_variance(added)

    return predict


def anchored(X, y) -> Predict:
    """Minimise the squared errors over the noise variance, and the distances from the anchors."""
    scaler, rng = StandardScaler().fit(X), torch.Generator().manual_seed(0)
    loc, scale = y.mean(), y.std()
    widths = (X.shape[1], N_HIDDEN, N_HIDDEN, 1)
    anchors = [
        torch.randn(N_MEMBERS, a + 1, b, generator=rng, dtype=torch.float64) / math.sqrt(a + 1)
        for a, b in itertools.pairwise(widths)
    ]

    def forward(weights: list[Tensor], samples: np.ndarray) -> Tensor:
        out = torch.tensor(scaler.transform(samples)).expand(N_MEMBERS, -1, -1)
        for number, weight in enumerate(weights):
            out = torch.cat([out if number == 0 else out.tanh(), torch.ones_like(out[..., :1])], -1)
            out = out @ weight
        return out

    weights = [anchor.clone().requires_grad_() for anchor in anchors]
    optimizer = torch.optim.Adam(weights, 0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, N_STEPS)
    out, kept = np.split(np.random.default_rng(0).permutation(len(X)), [len(X) // 10])
    goal = torch.tensor((y - loc) / scale).view(-1, 1)
    for _ in range(N_STEPS):
        optimizer.zero_grad()
        loss = (forward(weights, X[kept]) - goal[kept]).square().sum() / GIVEN_NOISE
        for weight, anchor in zip(weights, anchors, strict=True):
            loss = loss + weight.shape[1] * (weight - anchor).square().sum()
        loss.backward()
        optimizer.step()
        schedule.step()
    weights = [weight.detach() for weight in weights]
    noise = float((forward(weights, X[out]).mean(0) - goal[out]).square().mean())

    def predict(samples):
        means = forward(weights, samples)
        return EmpiricalGaussian(means, torch.full_like(means, noise)).affine(
            torch.tensor([loc]), torch.tensor([scale])
        )

    return predict


def without_bins(**params) -> Callable[..., Predict]:
    return lambda X, y: none(X, y, **{"module__embeddings": None, **params})


WAYS: dict[str, Callable[..., Predict]] = {
    "default": ensemble,
    "none": none,
    "no bins": without_bins(),
    "unbounded": without_bins(module__activation="silu"),
    "frequencies": without_bins(module__embeddings=Periodic(scale=1.0)),
    "both": both,
    "last layer": last_layer,
    "anchored": anchored,
}


def folds(name: str, n_features: int, max_rows: int):
    """Gaps and tails along features of a set: samples to train on, held-out and unseen ones."""
    found = load_uci_regression(name)
    index = np.random.default_rng(0).permutation(found.train_indices[0])[:max_rows]
    X, y = found.data[index], found.target[index]
    for kind, splitter in (("gap", GapSplit), ("tail", TailSplit)):
        for column in unseen.evenly(list(splitter().get_features(X)), n_features):
            ((train, test),) = splitter([column]).split(X)
            train = np.random.default_rng(0).permutation(train)
            out, train = np.split(train, [len(train) // 10])
            yield kind, [(X[i], y[i]) for i in (train, out, test)]


def scores(predict: Predict, held_out, cut) -> dict[str, float]:
    found: dict[str, float] = {}
    epistemic = []
    for part, (X, y) in (("held_out", held_out), ("unseen", cut)):
        distribution = predict(X)
        low, high = distribution.interval(0.9)[:, 0].numpy().T
        found[f"{part}_nll"] = -float(distribution.log_prob(torch.tensor(y).view(-1, 1)).mean())
        found[f"{part}_coverage"] = float(((low <= y) & (y <= high)).mean())
        epistemic.append(distribution.uncertainty().epistemic.ravel().numpy())
    return found | {"auroc_epistemic": float(ood_auroc(*epistemic))}


def measured(name: str, n_features: int, max_rows: int) -> list[dict[str, Any]]:
    """Scores of each way on each fold of a set."""
    results = []
    for kind, (train, held_out, cut) in folds(name, n_features, max_rows):
        for way, fit in WAYS.items():
            start = time.process_time()
            predict = fit(*train)
            seconds = time.process_time() - start
            found = {"set": name, "kind": kind, "way": way, "fit_seconds": seconds}
            results.append(found | scores(predict, held_out, cut))
    return results


SCORES = "held_out_nll held_out_coverage unseen_nll unseen_coverage auroc_epistemic fit_seconds"


def means(results: list[dict[str, Any]], kind: str) -> list[list[Any]]:
    """Means over the folds of a kind, for each way: its name, the number of folds, the scores."""
    found = {way: [r for r in results if (r["kind"], r["way"]) == (kind, way)] for way in WAYS}
    return [
        [way, len(of_way), *(mean(r[score] for r in of_way) for score in SCORES.split())]
        for way, of_way in found.items()
    ]


def main() -> None:
    parser = argument_parser(__doc__, "other_ways")
    parser.add_argument("--sets", nargs="+", default=list(unseen.OF_UCI), choices=unseen.OF_UCI)
    parser.add_argument("--features", type=int, default=2, help="of a set, at most")
    parser.add_argument("--max-rows", type=int, default=1000, help="samples of a set at most")
    options = parser.parse_args()
    if options.quick:
        options.sets, options.features, options.max_rows = options.sets[:1], 1, 150
    one_thread()
    unseen.set_folder()
    results: list[dict[str, Any]] = []
    header = ["way", "folds", *(score.replace("_", " ") for score in SCORES.split())]
    for name in options.sets:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # samples are outside the ranges of fit on purpose
            results += measured(name, options.features, options.max_rows)
        settings = {key: getattr(options, key) for key in ("sets", "features", "max_rows")}
        write_json(options.output, record(settings=settings, results=results))
        for kind in ("gap", "tail"):
            print(f"\n{kind}, up to {name}", flush=True)
            print_table(header, means(results, kind))


if __name__ == "__main__":
    main()
