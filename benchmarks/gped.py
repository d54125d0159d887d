# SPDX-License-Identifier: BSD-3-Clause
"""GPED: posterior expectations distilled while the chain runs, its speed and what it reaches.

Speed, one chain and one student of 784-400-400 units on batches of 100 rows, H = 1:

loop             GPEDDistiller(BayesianEnsembleClassifier(inference=SGLD(...))), all of fit
sum of the two   bare SGLD steps and bare student steps (targets known before), as many of each
matrix products  those of both, and of the sample's answers to the student's rows: the limit

Times are CPU seconds on one thread, contenders take turns, ratios are medians over rounds.

Quality, MNIST with 10,000 labelled images and D' of all 60,000 (Vadera et al., 2020, Tables 6, 8 to
13), without a mask and with squares of 15 x 15 pixels missing (29 %); every image has a mask of its
own. What is measured on test images and on 5,000 of KMNIST:

GPED             the default: the share of the mutual information in the predictive entropy
GPED U_o         the paper's: running means of the predictive distribution and of the entropy
GPED U_s         the last sample's predictive distribution, and the running mean of the entropy
EnD2             a Dirichlet by its likelihood at temperature 2.5, inside the same loop

The teacher is the chain, whose expectations on these images are averaged while it runs, once for
each of its epochs after burn-in. The paper has T = 1,000,000 iterations, H = 100; here T, H and the
number of student steps are printed beside the results. --network CNN is the paper's convolutional
network (Appendix A.2), for teacher and student, and --chain paper its step sizes, of 4e-6 and 1e-3,
with burn-in B = 1,000 and H = 100; --chain found is one chain with the step sizes of SGLD(), which
are found in burn-in. With --validation the next 10,000 training
images take the place of the test images, and leave D'; settings were chosen so.

Small, the same methods beside chains whose step sizes are found (SGLD() without arguments), and
GPED beside one chain of step size .02 / N, means over seeds and their standard errors:
scikit-learn's digits of 8 x 8 pixels, 600 with labels, 600 without, the others held back, and 2,000
of KMNIST brought to 8 x 8 pixels as rows far out; students without generated samples, one of them
wider, one that learns from the held-back digits too; and numbers, half of the training rows without
targets, where the rank is that of the epistemic variance of held-back rows, by the student and by
the chains, for both kinds of chains.

    python benchmarks/gped.py --parts speed
    python benchmarks/gped.py --parts quality --masks 0 --methods "GPED U_o" --validation
    python benchmarks/gped.py --iterations 20000
    python benchmarks/gped.py --parts quality --network CNN --chain paper --masks 0
    python benchmarks/gped.py --parts small --output small.json
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from _common import (
    argument_parser,
    interleaved,
    one_thread,
    parameter,
    print_table,
    record,
    write_json,
)
from _datasets import load_images, load_uci_regression
from scipy.stats import entropy, spearmanr
from sgld import WIDE, Setting, products, rows
from sklearn.datasets import load_digits, make_friedman1
from sklearn.metrics import log_loss
from sklearn.preprocessing import scale

from skdistill import BayesianEnsembleClassifier, BayesianEnsembleRegressor, GPEDDistiller
from skdistill.datasets import mask_squares
from skdistill.metrics import ood_auroc, uncertainty_ndcg
from skdistill.modules import ConvNet
from skdistill.samplers import SGLD
from skdistill.settings import Estimate, Optimizer

T_OF_THE_PAPER = 1_000_000
LOOP = 1.25  # times the sum of a bare SGLD step and a bare student step, at most

N_LABELLED, N_VALIDATION, N_OTHER, BATCH_SIZE = 10_000, 10_000, 5_000, 100
MASKS = {"0": 0, "29": 15}  # per cent, and pixels of the square's side
PRIOR_PRECISION = 10

CHAIN: dict[str, Any] = {"step_size": 8e-5, "burn_in": 0.3, "thinning": 1}
CHAINS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # and the steps of their students
    "ours": (CHAIN, {"lr": 2e-3}),
    "found": ({"n_chains": 1, "thinning": 1}, {"lr": 2e-3}),  # in burn-in, as SGLD() does
    # Halved every 200 epochs, which are more than there are here.
    "paper": (
        {"step_size": 4e-6, "burn_in": 1000, "thinning": 100},
        {"lr": 1e-3, "optimizer": Optimizer(lr_schedule=None)},
    ),
}
NETWORKS: dict[str, dict[str, Any]] = {  # of teacher and student
    # Pixels are taken as they are, in [0, 1].
    "perceptron": {"module__hidden_units": (400, 400), "normalize": False},
    "CNN": {  # Appendix A.2
        "module": ConvNet,
        "module__channels": (10, 20),
        "module__kernel_size": 4,
        "module__padding": 0,
        "module__hidden_units": (80,),
    },
}
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
# Table 6: teacher's NLL, student's U_o and U_s, with .02 to spare; the MAE is that of U_o.
TARGETS = {"teacher": 0.157, "GPED U_o": 0.204, "GPED U_s": 0.263, "entropy_mae": 0.02}


# Speed --------------------------------------------------------------------------------------------


def chain(setting: Setting) -> BayesianEnsembleClassifier:
    return BayesianEnsembleClassifier(
        1,
        inference=SGLD(4e-6, prior_precision=PRIOR_PRECISION, burn_in=0),
        module__hidden_units=setting.widths[1:-1],
        batch_size=setting.batch_size,
        max_epochs=setting.n_epochs,
        normalize=False,
        random_state=0,
    )


def student(setting: Setting, teacher: Any, **params) -> GPEDDistiller:
    return GPEDDistiller(
        teacher,
        module__hidden_units=setting.widths[1:-1],
        batch_size=setting.batch_size,
        normalize=False,
        random_state=0,
        **params,
    )


def all_products(setting: Setting) -> Callable[[], None]:
    """Call that does the matrix products of a chain, of a student, and of the answers."""
    both = [products(setting), products(setting)]
    inputs = [torch.randn(setting.batch_size, width) for width in setting.widths[:-1]]
    weights = [
        torch.randn(shape) for shape in zip(setting.widths[:-1], setting.widths[1:], strict=True)
    ]
    outputs = [torch.empty(setting.batch_size, width) for width in setting.widths[1:]]

    def run() -> None:
        for part in both:
            part()
        for _ in range(setting.n_steps):
            for a, b, out in zip(inputs, weights, outputs, strict=True):
                torch.mm(a, b, out=out)

    return run


def speed(setting: Setting, n_rounds: int) -> dict[str, Any]:
    """Milliseconds of a step of each contender, and their ratios."""
    X, y = (part.numpy() for part in rows(setting))
    answers = np.random.RandomState(0).dirichlet(np.ones(setting.widths[-1]), (len(X), 1))
    bare = student(setting, "classifier", max_epochs=setting.n_epochs)
    seconds = interleaved(
        {
            "SGLD": lambda: chain(setting).fit(X, y),
            "student": lambda: bare.fit(X, y, member_predictions=answers),
            "loop": lambda: student(
                setting, chain(setting), estimate=Estimate(n_asked=1), transfer=None
            ).fit(X, y),
            "matrix products": all_products(setting),
        },
        n_rounds,
    )
    step = {name: median(times) / setting.n_steps for name, times in seconds.items()}
    turns = zip(*seconds.values(), strict=True)
    ratios = [(loop / (sgld + alone), gemm / loop) for sgld, alone, loop, gemm in turns]
    over_sum, gemm_share = (median(column) for column in zip(*ratios, strict=True))
    return {
        "setting": str(setting),
        "step_ms": {name: 1e3 * value for name, value in step.items()},
        "steps_per_second": 1 / step["loop"],
        "over_sum": over_sum,
        "target": LOOP,
        "reached": over_sum <= LOOP,
        "gemm_share": gemm_share,
        "hours_for_a_million_iterations": {
            "H=1": step["loop"] * T_OF_THE_PAPER / 3600,
            "H=100": (step["SGLD"] + (step["loop"] - step["SGLD"]) / 100) * T_OF_THE_PAPER / 3600,
        },
    }


def print_speed(found: dict[str, Any]) -> None:
    print_table(["one step of", "ms"], list(found["step_ms"].items()))
    hours = found["hours_for_a_million_iterations"]
    print(
        f"\n{found['setting']}: {found['steps_per_second']:.0f} iterations a second with a student "
        f"step each, {found['gemm_share']:.0%} of it matrix products\n"
        f"{found['over_sum']:.3g} times the sum of the two bare steps, target <= {LOOP}: "
        f"{'reached' if found['reached'] else 'NOT reached'}\n"
        f"T = 1,000,000 takes {hours['H=1']:.1f} hours at H = 1, {hours['H=100']:.1f} at H = 100"
    )


# Quality ------------------------------------------------------------------------------------------


class Images(NamedTuple):
    """Rows of 784 numbers in [0, 1], or images of them, and labels of those that have some."""

    X: np.ndarray
    y: np.ndarray
    X_transfer: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    X_other: np.ndarray  # of KMNIST


def load(side: int, validation: bool) -> Images:
    """Images with squares missing."""
    mnist, other = load_images("mnist"), load_images("kmnist")
    masked = partial(mask_squares, size=side)
    data = masked(mnist.data, random_state=0).reshape(len(mnist.data), -1)
    strange = other.data[~other.is_train][:N_OTHER]
    outside = masked(strange, random_state=1).reshape(len(strange), -1)
    train, test = np.flatnonzero(mnist.is_train), np.flatnonzero(~mnist.is_train)
    labelled, unlabelled = train[:N_LABELLED], train[N_LABELLED:]
    if validation:
        test, unlabelled = unlabelled[:N_VALIDATION], unlabelled[N_VALIDATION:]
    data, outside = (part.astype(np.float32) / 255 for part in (data, outside))
    target = mnist.target
    return Images(
        data[labelled], target[labelled], data[unlabelled], data[test], target[test], outside
    )


def as_images(rows: Images) -> Images:
    """Images (n, 28, 28) for a convolutional network, in place of rows."""
    return Images(*(part.reshape(-1, 28, 28) if part.ndim == 2 else part for part in rows))


def fitted(
    method: dict, images: Images, n_iterations: int, changes: dict, network: str, chain: str
) -> GPEDDistiller:
    """Chain and student, with what the chain says about the test images and KMNIST's."""
    steps = -(-len(images.X) // BATCH_SIZE)
    sampler, of_student = CHAINS[chain]
    teacher = BayesianEnsembleClassifier(
        inference=SGLD(prior_precision=PRIOR_PRECISION, **sampler),
        batch_size=BATCH_SIZE,
        max_epochs=max(1, n_iterations // steps),
        **NETWORKS[network],
    )
    student = {**NETWORKS[network], **of_student, **method}
    distiller = GPEDDistiller(teacher, batch_size=BATCH_SIZE, random_state=0, **student)
    shown = np.concatenate([images.X_test, images.X_other])
    return distiller.set_params(**changes).fit(
        images.X, images.y, X_transfer=images.X_transfer, X_monitor=shown
    )


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


def run(
    names: list[str], images: Images, n_iterations: int, *setting: Any
) -> Iterator[tuple[str, dict]]:
    """Scores of the teacher and of each method; the chain is the same every time.

    `setting` are the last arguments of `fitted`.
    """
    shown = np.concatenate([images.X_test, images.X_other])
    parts = None
    for name in names:
        wall, cpu = time.perf_counter(), time.process_time()
        distiller = fitted(METHODS[name], images, n_iterations, *setting)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        if parts is None and not {"entropy", "share"}.isdisjoint(distiller.monitor_):
            parts = parts_of_chain(distiller.monitor_)
            yield "teacher", scores(distiller.monitor_["predictive"], parts, images)
        own = {
            **scores(
                distiller.predict_proba(shown), distiller.predict_uncertainty(shown), images, parts
            ),
            "wall_seconds": wall,
            "cpu_seconds": cpu,
            "iterations": n_iterations,
            "student_steps": n_student_steps(distiller, len(images.X), n_iterations),
        }
        yield name, own


def n_student_steps(distiller: GPEDDistiller, n_rows: int, n_iterations: int) -> int:
    inference = distiller.teacher_.inference
    return len(inference.sampling_iterations(n_iterations)) // inference.thinning


def reached(mask: str, name: str, row: dict[str, Any]) -> bool | None:
    """Whether the targets are reached, which are for images without a mask."""
    if mask != "0" or name not in TARGETS:
        return None
    close = name != "GPED U_o" or row["entropy_mae"] <= TARGETS["entropy_mae"]
    return row["nll"] <= TARGETS[name] and close


def print_quality(mask: str, results: dict[str, dict]) -> None:
    print_table(
        [f"mask {mask} %", "NLL", "accuracy", "OOD total", "epistemic", "entropy MAE"]
        + ["nDCG total", "epistemic", "wall s", "CPU s", "T", "student steps", "reached"],
        [
            [name, *row.values(), *[None] * (11 - len(row)), reached(mask, name, row)]
            for name, row in results.items()
        ],
    )


# Small --------------------------------------------------------------------------------------------


def small_images(seed: int) -> Images:
    """Digits of 8 x 8 pixels, in an order by the seed, and KMNIST's brought to that size."""
    digits, other = load_digits(), load_images("kmnist")
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
    parser = argument_parser(__doc__, "gped")
    parser.add_argument(
        "--parts", nargs="+", default=["speed", "quality"], choices=["speed", "quality", "small"]
    )
    parser.add_argument("--rounds", type=int, default=7, help="rounds to take medians over")
    parser.add_argument("--iterations", type=int, default=10_000, help="T, of the quality part")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--masks", nargs="+", default=list(MASKS), choices=MASKS, help="per cent")
    parser.add_argument("--network", default="perceptron", choices=NETWORKS)
    parser.add_argument("--chain", default="ours", choices=CHAINS, help="step sizes, burn-in and H")
    parser.add_argument("--seeds", type=int, default=5, help="of the small part")
    parser.add_argument("--validation", action="store_true", help="score on training images")
    parser.add_argument("--param", nargs="*", default=[], type=parameter, metavar="K=V")
    options = parser.parse_args()
    one_thread()

    settings = {key: value for key, value in vars(options).items() if key != "output"}
    content: dict[str, Any] = {"settings": settings}
    if "speed" in options.parts:
        setting, n_rounds = WIDE, options.rounds
        if options.quick:
            setting, n_rounds = WIDE._replace(n_rows=200, n_epochs=1), 1
        content["speed"] = speed(setting, n_rounds)
        print_speed(content["speed"])
        write_json(options.output, record(**content))
    if "small" in options.parts:
        content["small"] = small(options.quick, options.seeds)
        print_small(content["small"])
        write_json(options.output, record(**content))
    if "quality" in options.parts:
        content["quality"] = {}
        for mask in options.masks:
            images, n_iterations = load(MASKS[mask], options.validation), options.iterations
            if options.quick:
                images, n_iterations = Images(*(part[:150] for part in images)), 15
            if options.network == "CNN":
                images = as_images(images)
            found = content["quality"][mask] = {}
            setting = dict(options.param), options.network, options.chain
            for name, row in run(options.methods, images, n_iterations, *setting):
                found[name] = row
                print(f"done: {name}", flush=True)
                write_json(options.output, record(**content))
            print()
            print_quality(mask, content["quality"][mask])


if __name__ == "__main__":
    main()
