# SPDX-License-Identifier: BSD-3-Clause
"""GPED: posterior expectations distilled while the chain runs.

images  MNIST with 10,000 labelled images and D' of all 60,000 (Vadera et al., 2020), without a mask
        and with squares of 15 x 15 pixels missing (29 %); every image has a mask of its own. Chain
        and student are perceptrons of 400 and 400 units, the chain's step is 8e-5. What is measured
        on test images and on 5,000 of KMNIST: the student, and the chain, whose expectations on
        these images are averaged while it runs, once for each of its epochs after burn-in.
        The paper has T = 1,000,000 iterations, H = 100; here T is --iterations, H = 1
small   methods beside chains whose step sizes are found (SGLD() without arguments), and GPED beside
        one chain of step size .02 / N, means over seeds and their standard errors: scikit-learn's
        digits of 8 x 8 pixels, 600 with labels, 600 without, the others held back, and 2,000 of
        KMNIST brought to 8 x 8 pixels as rows far out; and numbers, half of the training rows
        without targets, where the rank is that of the epistemic variance of held-back rows

GPED             the default: the share of the mutual information in the predictive entropy
GPED U_o         the paper's: running means of the predictive distribution and of the entropy
GPED U_s         the last sample's predictive distribution, and the running mean of the entropy
EnD2             a Dirichlet by its likelihood at temperature 2.5, inside the same loop
none generated   students without generated samples, one of them wider, one that learns from the
                 held-back digits too

    python benchmarks/gped.py --parts images --output benchmarks/results/gped_share.json
    python benchmarks/gped.py --parts small --output benchmarks/results/gped_small.json
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import _datasets
import numpy as np
from _common import asked, print_table, save
from _datasets import load_uci_regression
from scipy.stats import entropy, spearmanr
from sklearn.datasets import load_digits, make_friedman1
from sklearn.metrics import log_loss
from sklearn.preprocessing import scale

from skdistill import BayesianEnsembleClassifier, BayesianEnsembleRegressor, GPEDDistiller
from skdistill.datasets import mask_squares
from skdistill.metrics import ood_auroc, uncertainty_ndcg
from skdistill.samplers import SGLD
from skdistill.settings import Estimate

# The noise of chains does not depend on what ensembles of networks do by default.
RESTS_ON = ("ensemble sgld", "gped online")

N_LABELLED, N_OTHER, BATCH_SIZE = 10_000, 5_000, 100
MASKS = {"0": 0, "29": 15}  # per cent, and pixels of the square's side
CHAIN = SGLD(8e-5, prior_precision=10, burn_in=0.3, thinning=1)
# Pixels are taken as they are, in [0, 1].
NETWORK: dict[str, Any] = {"module__hidden_units": (400, 400), "normalize": False}
PAPERS: dict[str, Any] = {
    "expectations": ("predictive", "entropy"),
    "estimate": Estimate(n_asked=1),
    "transfer": None,
}
METHODS: dict[str, dict[str, Any]] = {
    "GPED": {},
    "GPED U_o": PAPERS,
    "GPED U_s": {**PAPERS, "estimate": Estimate({"predictive": "stochastic"}, n_asked=1)},
    "EnD2": {**PAPERS, "expectations": "dirichlet"},
}
N_FAR = 2_000
SETS_OF_NUMBERS = ("concrete", "energy", "friedman1")
SMALL_CHAINS: dict[str, Callable[[int], SGLD]] = {  # by the number of rows
    "one chain": lambda n: SGLD(0.02 / n, prior_precision=1),
    "SGLD()": lambda n: SGLD(),
}
SEEN = "the same, held-out digits seen"  # without their labels
SMALL_METHODS = {  # of digits
    **{name: (method, "SGLD()") for name, method in METHODS.items()},
    "GPED, one chain": (METHODS["GPED"], "one chain"),
    # What the gap to the chains is from: samples to learn from, width, or what no student can know.
    "GPED, none generated": ({"transfer": None}, "SGLD()"),
    "the same, 256 units": ({"transfer": None, "module__hidden_units": (256, 256)}, "SGLD()"),
    SEEN: ({"transfer": None}, "SGLD()"),
}

# Images -------------------------------------------------------------------------------------------


class Images(NamedTuple):
    """Rows of 784 numbers in [0, 1], or images of them, and labels of those that have some."""

    X: np.ndarray
    y: np.ndarray
    X_transfer: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    X_other: np.ndarray  # of KMNIST


def load(side: int) -> Images:
    """Images with squares missing."""
    mnist, other = _datasets.load_images("mnist"), _datasets.load_images("kmnist")
    masked = partial(mask_squares, size=side)
    data = masked(mnist.data, random_state=0).reshape(len(mnist.data), -1)
    strange = other.data[~other.is_train][:N_OTHER]
    outside = masked(strange, random_state=1).reshape(len(strange), -1)
    train, test = np.flatnonzero(mnist.is_train), np.flatnonzero(~mnist.is_train)
    labelled, unlabelled = np.split(train, [min(N_LABELLED, len(train) // 6)])
    data, outside = (part.astype(np.float32) / 255 for part in (data, outside))
    target = mnist.target
    return Images(
        data[labelled], target[labelled], data[unlabelled], data[test], target[test], outside
    )


def run_images(images: Images, n_iterations: int) -> dict[str, dict[str, Any]]:
    """Scores of the chain and of its student."""
    start = time.process_time()
    n_epochs = max(1, n_iterations // -(-len(images.X) // BATCH_SIZE))
    settings = {"batch_size": BATCH_SIZE, **NETWORK}
    teacher = BayesianEnsembleClassifier(inference=CHAIN, max_epochs=n_epochs, **settings)
    distiller = GPEDDistiller(teacher, random_state=0, lr=2e-3, **settings)
    shown = np.concatenate([images.X_test, images.X_other])
    distiller.fit(images.X, images.y, X_transfer=images.X_transfer, X_monitor=shown)
    seconds = time.process_time() - start
    parts, said = parts_of_chain(distiller.monitor_), distiller.predict_uncertainty(shown)
    own = scores(distiller.predict_proba(shown), said, images, parts)
    return {
        "teacher": scores(distiller.monitor_["predictive"], parts, images),
        "GPED": {**own, "cpu_seconds": seconds, "iterations": n_iterations},
    }


def scores(
    proba, parts: tuple, images: Images, parts_of_teacher: tuple | None = None
) -> dict[str, Any]:
    """What is reported of a student, or of its teacher, from what it says about all images."""
    n = len(images.y_test)
    total, aleatoric, epistemic = parts
    found = {
        "nll": log_loss(images.y_test, proba[:n]),
        "accuracy": float((proba[:n].argmax(1) == images.y_test).mean()),
        "ood_auroc_total": ood_auroc(total[:n], total[n:]),
        "ood_auroc_epistemic": ood_auroc(epistemic[:n], epistemic[n:]),
        **dict.fromkeys(("entropy_mae", "ndcg_total", "ndcg_epistemic")),
    }
    if parts_of_teacher is not None:
        (of_total, of_aleatoric, of_epistemic) = (part[:n] for part in parts_of_teacher)
        found |= {
            "entropy_mae": float(np.abs(aleatoric[:n] - of_aleatoric).mean()),
            "ndcg_total": uncertainty_ndcg(of_total, total[:n], random_state=0),
            "ndcg_epistemic": uncertainty_ndcg(of_epistemic, epistemic[:n], random_state=0),
        }
    return found


def parts_of_chain(monitored: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """Total, aleatoric and epistemic uncertainty of what a chain says on average, in nats."""
    total = entropy(monitored["predictive"], axis=1)
    share = monitored.get("share")
    aleatoric = monitored["entropy"] if share is None else (1 - share) * total
    return total, aleatoric, np.maximum(total - aleatoric, 0)


# Small --------------------------------------------------------------------------------------------


def small_images(seed: int) -> Images:
    """Digits of 8 x 8 pixels, in an order by the seed, and KMNIST's brought to that size."""
    digits, other = load_digits(), _datasets.load_images("kmnist")
    order = np.random.RandomState(seed).permutation(len(digits.data))
    X, y = (digits.data[order] / 16).astype(np.float32), digits.target[order]
    strange = other.data[~other.is_train][:N_FAR].reshape(-1, 28, 28)[:, 2:26, 2:26] / 255
    outside = strange.reshape(-1, 8, 3, 8, 3).mean((2, 4)).reshape(-1, 64).astype(np.float32)
    return Images(X[:600], y[:600], X[600:1200], X[1200:], y[1200:], outside)


def small_student(name: str, images: Images, n_epochs: int, seed: int) -> dict:
    """Scores of a student and of the chains that have taught it."""
    method, chains_of = SMALL_METHODS[name]
    shown = np.concatenate([images.X_test, images.X_other])
    inference = SMALL_CHAINS[chains_of](len(images.X))
    teacher = BayesianEnsembleClassifier(inference=inference, max_epochs=n_epochs)
    begin = time.process_time()
    student = GPEDDistiller(teacher, random_state=seed, **method)
    further = [images.X_transfer, images.X_test] if name == SEEN else [images.X_transfer]
    student.fit(images.X, images.y, X_transfer=np.concatenate(further), X_monitor=shown)
    seconds = time.process_time() - begin
    said, chains = student.monitor_, {}
    own = student.predict_proba(shown), student.predict_uncertainty(shown)
    parts = None
    if "predictive" in said:
        parts = parts_of_chain(said)
        chains = scores(said["predictive"], parts, images)
    found = {**scores(*own, images, parts), "cpu_seconds": seconds}
    if parts is not None:
        n = len(images.y_test)
        found["rank"] = spearmanr(parts[-1][:n], own[1].epistemic[:n]).statistic
        found["chains_auroc"] = chains["ood_auroc_epistemic"]
        found["chains_nll"] = chains["nll"]
    return found


def small_numbers(name: str, chains: str, n_epochs: int, seed: int) -> dict:
    """How the epistemic variance of held-back rows is ranked, beside the chains' own."""
    if name == "friedman1":
        X, y = make_friedman1(4000, noise=1.0, random_state=seed)
    else:
        data = load_uci_regression(name)
        X, y = data.data, data.target
    X, y = scale(X).astype(np.float32), np.ravel(y)
    order = np.random.RandomState(seed).permutation(len(X))
    labelled, others, shown = np.split(order, [3 * len(X) // 8, 3 * len(X) // 4])
    inference = SMALL_CHAINS[chains](len(labelled))
    teacher = BayesianEnsembleRegressor(inference=inference, max_epochs=n_epochs)
    student = GPEDDistiller(teacher, random_state=seed)
    student.fit(X[labelled], y[labelled], X_transfer=X[others], X_monitor=X[shown])
    epistemic, mean = (student.predict_expectation(X[shown], k) for k in ("epistemic", "mean"))
    return {
        "rank": spearmanr(student.monitor_["epistemic"], epistemic).statistic,
        "rmse": float(np.sqrt(np.mean((mean - y[shown]) ** 2)) / y.std()),
    }


def over_seeds(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means of numbers, None where there is none, and standard errors under `errors`."""
    known = {key: [row[key] for row in rows] for key, value in rows[0].items() if value is not None}
    found: dict[str, Any] = {**rows[0], **{key: float(np.mean(known[key])) for key in known}}
    if len(rows) > 1:
        root = np.sqrt(len(rows))
        found["errors"] = {key: float(np.std(known[key], ddof=1) / root) for key in known}
    return found


def small(quick: bool, n_seeds: int) -> dict[str, dict[str, dict]]:
    """Scores of all methods on digits, and of both kinds of chains on numbers."""
    n_epochs, seeds = (4, range(1)) if quick else (100, range(n_seeds))
    images = [small_images(seed) for seed in seeds]
    digits = {
        name: over_seeds([small_student(name, images[s], n_epochs, s) for s in seeds])
        for name in SMALL_METHODS
    }
    names = SETS_OF_NUMBERS[-1:] if quick else SETS_OF_NUMBERS
    numbers = {
        f"{name}, {chains}": over_seeds([small_numbers(name, chains, n_epochs, s) for s in seeds])
        for name in names
        for chains in SMALL_CHAINS
    }
    return {"digits": digits, "numbers": numbers}


def print_small(found: dict[str, dict[str, dict]]) -> None:
    columns = ["nll", "chains_nll", "accuracy", "ood_auroc_total", "ood_auroc_epistemic"]
    columns += ["chains_auroc", "rank", "entropy_mae", "cpu_seconds"]
    rows = [[name, *map(row.get, columns)] for name, row in found["digits"].items()]
    print_table(["digits", *columns], rows)
    rows = [[name, row["rank"], row["rmse"]] for name, row in found["numbers"].items()]
    print_table(["numbers", "rank", "RMSE / sd"], rows)


def main() -> None:
    options = asked(__doc__, parts=["images", "small"], iterations=20_000, seeds=3)
    content: dict[str, Any] = {}
    if "small" in options.parts:
        content["small"] = small(options.quick, options.seeds)
        print_small(content["small"])
        save(options, **content)
    for mask, side in MASKS.items() if "images" in options.parts else ():
        images, n_iterations = load(side), options.iterations
        if options.quick:
            images, n_iterations = Images(*(part[:150] for part in images)), 15
        found = content.setdefault("quality", {})[mask] = run_images(images, n_iterations)
        save(options, **content)
        keys = list(found["GPED"])
        rows = [[name, *map(row.get, keys)] for name, row in found.items()]
        print_table([f"mask {mask} %", *keys], rows)


if __name__ == "__main__":
    main()
