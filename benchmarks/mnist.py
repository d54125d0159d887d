# SPDX-License-Identifier: BSD-3-Clause
"""MNIST with 10,000 labels, GPED's network of 784-400-400-10 units: three kinds of inference.

deep ensemble  networks trained each from weights of its own
SGLD           one chain with GPED's eta 4e-6, prior precision 10 and batches of 100, the first half
               left out. Each length is a run of its own; GPED's has 1,000,000 iterations
MC dropout     one network, units dropped

GPED (Vadera et al., 2020, Table 6) reports a negative log-likelihood of .137 for its teacher with
10,000 labels and no mask. The deep ensemble should be there within two minutes on two cores: wall
time, on a machine that does nothing else; CPU time is printed beside it. OOD AUROC is how well the
total and the epistemic uncertainty tell MNIST's test images from KMNIST's.

With --masks 29 squares of 15 x 15 pixels are missing from all images, those of training and
KMNIST's too, which makes them uncertain (GPED's App. A.1); every image has a mask of its own.

Training are the first 10,000 images. With --validation the next 10,000 take the place of the test
images; settings were chosen so, never on test images.

    python benchmarks/mnist.py
    python benchmarks/mnist.py --masks 0 29 --methods "deep ensemble"
    python benchmarks/mnist.py --methods "deep ensemble" --validation --param max_epochs=10
"""

from __future__ import annotations

import time
import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from _common import argument_parser, parameter, print_table, record, write_json
from _datasets import load_images
from gped import MASKS
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss

from skdistill import BayesianEnsembleClassifier
from skdistill.datasets import mask_squares
from skdistill.metrics import expected_calibration_error, ood_auroc
from skdistill.samplers import SGLD, MCDropout

N_TRAIN, N_VALIDATION = 10_000, 10_000
NLL, SECONDS = 0.137, 120  # GPED's teacher; wall time on two cores
BATCH_SIZE = 100
HIDDEN_UNITS = (400, 400)

COMMON: dict[str, Any] = {
    "module__hidden_units": HIDDEN_UNITS,
    "batch_size": BATCH_SIZE,
    "normalize": False,  # pixels are in [0, 1], as in the paper
}
CHAIN = SGLD(step_size=4e-6, prior_precision=10)

METHODS: dict[str, dict[str, Any]] = {
    "deep ensemble": {"n_members": 10, "lr": 4e-3, "max_epochs": 10},
    "MC dropout": {"n_members": 50, "inference": MCDropout(0.2), "lr": 2e-3, "max_epochs": 30},
    "SGLD, 2,000 iterations": {"n_members": 50, "inference": CHAIN, "max_epochs": 20},
    "SGLD, 10,000 iterations": {"n_members": 50, "inference": CHAIN, "max_epochs": 100},
}


class Images(NamedTuple):
    """Images (n, 28, 28) of numbers in [0, 1], and the digits that they show."""

    X_train: np.ndarray
    X_test: np.ndarray
    X_other: np.ndarray  # of KMNIST
    y_train: np.ndarray
    y_test: np.ndarray


def load(validation: bool, side: int = 0) -> Images:
    """Images with squares of so many pixels a side missing."""
    mnist, other = load_images("mnist"), load_images("kmnist")
    train, test = np.flatnonzero(mnist.is_train), ~mnist.is_train
    if validation:
        test = train[N_TRAIN : N_TRAIN + N_VALIDATION]
    train = train[:N_TRAIN]
    images = (mnist.data[train], mnist.data[test], other.data[~other.is_train])
    images = (mask_squares(part, side, random_state=seed) for seed, part in enumerate(images))
    in_unit = (part.astype(np.float32) / 255 for part in images)
    return Images(*in_unit, mnist.target[train], mnist.target[test])


def flattened(images: Images) -> Images:
    """Rows of 784 numbers in place of images."""
    return Images(*(part.reshape(len(part), -1) for part in images[:3]), *images[3:])


def run(method: dict[str, Any], images: Images) -> dict[str, float]:
    """Fit an ensemble and score it."""
    ensemble = BayesianEnsembleClassifier(**COMMON, random_state=0).set_params(**method)
    wall, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        # The table is there to show how far short chains come.
        warnings.simplefilter("ignore", ConvergenceWarning)
        ensemble.fit(images.X_train, images.y_train)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    proba = ensemble.predict_proba(images.X_test)
    inside = ensemble.predict_uncertainty(images.X_test)
    outside = ensemble.predict_uncertainty(images.X_other)
    steps = -(-len(images.X_train) // BATCH_SIZE)
    return {
        "members": ensemble.n_members_,
        "iterations": ensemble.n_epochs_ * steps,
        "nll": log_loss(images.y_test, proba),
        "accuracy": float((proba.argmax(1) == images.y_test).mean()),
        "ece": expected_calibration_error(images.y_test, proba),
        "ood_auroc_total": ood_auroc(inside.total, outside.total),
        "ood_auroc_epistemic": ood_auroc(inside.epistemic, outside.epistemic),
        "wall_seconds": wall,
        "cpu_seconds": cpu,
    }


def report(results: dict[str, dict[str, dict]]) -> None:
    for mask, found in results.items():
        print_table(
            [f"mask {mask} %", "members", "iterations", "NLL", "accuracy", "ECE", "OOD total"]
            + ["epistemic", "wall s", "CPU s"],
            [[name, *row.values()] for name, row in found.items()],
        )
    if "deep ensemble" in results.get("0", {}):
        row = results["0"]["deep ensemble"]
        reached = row["nll"] <= NLL and row["wall_seconds"] <= SECONDS
        print(
            f"\ndeep ensemble: NLL {row['nll']:.4f}, target <= {NLL}, in "
            f"{row['wall_seconds']:.0f} s of wall time on {torch.get_num_threads()} threads, "
            f"target <= {SECONDS} s: {'reached' if reached else 'NOT reached'}"
        )


def main() -> None:
    parser = argument_parser(__doc__, "mnist")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--masks", nargs="+", default=["0"], choices=MASKS, help="per cent")
    parser.add_argument("--validation", action="store_true", help="score on training images")
    parser.add_argument("--param", nargs="*", default=[], type=parameter, metavar="K=V")
    parser.add_argument("--threads", type=int, default=2, help="as many as there are free cores")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    changes = dict(options.param)
    if options.quick:
        changes = {**changes, "n_members": 2, "max_epochs": 1}
    settings = {key: value for key, value in vars(options).items() if key != "output"}
    results: dict[str, dict[str, dict]] = {}
    for mask in options.masks:
        images, found = flattened(load(options.validation, MASKS[mask])), {}
        results[mask] = found
        if options.quick:
            images = Images(*(part[:300] for part in images))
        for name in options.methods:
            found[name] = run({**METHODS[name], **changes}, images)
            print(f"done: mask {mask} %, {name}", flush=True)
            write_json(options.output, record(settings=settings, results=results))
    print()
    report(results)


if __name__ == "__main__":
    main()
