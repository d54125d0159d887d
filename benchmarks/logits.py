# SPDX-License-Identifier: BSD-3-Clause
"""Distribution distillation of stored logits of real networks: ImageNet and CIFAR-10.

ImageNet: 8 networks, 1,000 classes, 500 photographs, each of a class of its own.

proxy     the Dirichlet of Eq 17 of Ryabinin et al. (2021) itself, beside the ensemble that it
          stands for: Spearman's rank correlation of total uncertainty and of three measures of what
          the members do not agree about, each with the ensemble's own: mutual information, reverse
          mutual information (which the paper reads) and their sum, the expected pairwise
          divergence. It comes with the one added to all concentrations, without it, with the
          released code's precision, which is larger by the number of classes, and with a precision
          by the members' mutual information in the place of the reverse one
students  a linear layer each, which is given what the first member says (its log probabilities,
          less each class's mean) and starts as the identity: whatever it learns of a class it has
          to learn from photographs of other classes. Cross-fitted in five folds

CIFAR-10: 4 ResNets; students see the first one's logits, standardised, and learn from the 10,000
training rows what all four say. Settings are those of a small grid that rank held-out training rows
best, a quarter of them, by epistemic uncertainty as the ensemble does; then all training rows are
used. AUROC is that of SVHN against CIFAR's test rows by epistemic uncertainty; the interval of the
difference, 95 %, is that of a paired bootstrap.

The folder of logits is logits/ in the one that the environment variable SKDISTILL_DATA names.

    python benchmarks/logits.py
    python benchmarks/logits.py --sets imagenet
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from _common import asked, print_table, save, target
from _common import stored as open_stored
from scipy.stats import spearmanr
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, ParameterGrid, train_test_split
from torch import nn

from skdistill import DistributionDistiller
from skdistill.distributions import Dirichlet, EmpiricalCategorical
from skdistill.families import DirichletFamily, Family, MixtureFamily, make_family
from skdistill.losses import proxy_concentrations, proxy_target
from skdistill.metrics import ood_auroc

WITH_ONE, WITHOUT_ONE = "with the one", "without the one"
MEASURES = ("total", "mutual_information", "reverse_mutual_information", "pairwise_kl")
RANK_AT_LEAST, AUROC_LOST_AT_MOST = 0.95, 0.03
OUT_OF_TRAINING = ("test", "svhn")

LINEAR_STUDENTS: dict[str, Family] = {
    "dirichlet, reverse KL": DirichletFamily("reverse_kl"),
    "dirichlet, released": DirichletFamily("reverse_kl_reference"),
    "dirichlet, forward KL": DirichletFamily("forward_kl"),
    "dirichlet, NLL": DirichletFamily("nll"),
    "mixture": MixtureFamily(),
}

# What is tried on held-out training rows of CIFAR-10.
GRIDS: dict[str, dict[str, tuple]] = {
    "logit_normal": {
        "covariance": ("diagonal", 1, 2),
        "loss": ("nll",),
        "smoothing": (0.0, 1e-3),
        "max_epochs": (10, 30),
    },
    "dirichlet": {
        "temperature": (1.0, (2.0, 0, 10), (3.0, 0, 10)),
        "smoothing": (0.0, 1e-3),
        "max_epochs": (10, 30),
    },
}


def stored(name: str) -> dict[str, np.ndarray]:
    """Arrays of a file of logits, those of logits (S, n, K) in float64."""
    with open_stored(f"logits/{name}") as data:
        return {
            key: values.astype(np.float64) if "logits" in key else values
            for key, values in data.items()
        }


def ensemble(logits: np.ndarray) -> EmpiricalCategorical:
    """The members that gave these logits (S, n, K)."""
    return EmpiricalCategorical.from_logits(torch.from_numpy(logits))


def converged(fit: Callable, *args) -> Any:
    """What a fit returns, None if the student diverged."""
    try:
        return fit(*args)
    except ValueError as error:
        if "loss became infinite" not in str(error):
            raise
        return None


def rank(a, b) -> float:
    return float(spearmanr(a, b)[0])


# ImageNet -----------------------------------------------------------------------------------------


def measures(distribution: EmpiricalCategorical | Dirichlet) -> dict[str, np.ndarray]:
    """Total uncertainty, and three measures of what is not known."""
    total, _, information = distribution.uncertainty()
    reverse = distribution.reverse_mutual_information
    values = (total, information, reverse, distribution.expected_pairwise_kl)
    return {name: value.numpy() for name, value in zip(MEASURES, values, strict=True)}


def compare_proxies(members: EmpiricalCategorical) -> dict[str, dict[str, float]]:
    """Rank correlation of each measure, the ensemble's with that of its proxy."""
    mean, precision = proxy_target(members.log_probs)
    by_information = (mean.shape[-1] - 1) / (2 * members.uncertainty().epistemic)
    forms = {
        WITH_ONE: proxy_concentrations(mean, precision),
        WITHOUT_ONE: proxy_concentrations(mean, precision, offset=0.0),
        "released": proxy_concentrations(mean, precision + mean.shape[-1]),
        "by mutual information": proxy_concentrations(mean, by_information),
    }
    theirs = measures(members)
    return {
        form: {
            name: rank(theirs[name], ours)
            for name, ours in measures(Dirichlet(concentrations)).items()
        }
        for form, concentrations in forms.items()
    }


class FromIdentity(nn.Linear):
    """A linear layer that at first gives its inputs and `start`."""

    def __init__(self, in_features: int, out_features: int, start):
        super().__init__(in_features, out_features)
        nn.init.eye_(self.weight)
        with torch.no_grad():
            self.bias.copy_(torch.as_tensor(start))


def fit_linear(members: EmpiricalCategorical, y: np.ndarray, family: Family, max_epochs: int):
    """A linear student of these members, and the inputs' means.

    Each class has one row, so some are not among the rows. A row of weight zero for each makes them
    known.
    """
    log_probs = members.log_probs[0].numpy()
    n_rows, n_classes = log_probs.shape
    loc = log_probs.mean(axis=0)
    start = loc
    if family.tells_parts:
        _, precision = proxy_target(members.log_probs)
        start = loc + precision.median().log().item()
    student = DistributionDistiller(
        "classifier",
        module=FromIdentity,
        module__start=start,
        transfer=None,
        normalize=False,  # the identity is to stay one
        lr=1e-4,  # a step of one size moves an output by that of a thousand weights
        max_epochs=max_epochs,
        random_state=0,
        family=family,
    )
    X = np.concatenate([log_probs - loc, np.zeros((n_classes, n_classes))])
    answers = members.members.numpy()
    nobody = np.full((n_classes, *answers.shape[1:]), 1 / n_classes)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        student.fit(
            X.astype(np.float32),
            np.concatenate([y, np.arange(n_classes)]),
            sample_weight=np.repeat([1.0, 0.0], [n_rows, n_classes]),
            member_predictions=np.concatenate([answers, nobody]),
        )
    return student, loc


def said_by(student: DistributionDistiller, X: np.ndarray) -> dict[str, np.ndarray]:
    """Probabilities of these rows, and of what is in `MEASURES` all that the student can tell."""
    said = {"proba": student.predict_proba(X), "total": student.predict_uncertainty(X).total}
    distribution = student.predict_distribution(X)
    if isinstance(distribution, Dirichlet):
        said |= measures(distribution)
    return said


def cross_fitted(
    members: EmpiricalCategorical, y: np.ndarray, family: Family, max_epochs: int, n_folds: int
) -> dict[str, Any]:
    """Scores of linear students on the rows that they were not fitted on."""
    log_probs = members.log_probs
    tests, parts = [], []
    for train, test in KFold(n_folds, shuffle=True, random_state=0).split(y):
        part = EmpiricalCategorical(log_probs[:, train])
        fitted = converged(fit_linear, part, y[train], family, max_epochs)
        if fitted is None:
            return {"diverged": True}
        student, loc = fitted
        tests.append(test)
        parts.append(said_by(student, (log_probs[0, test].numpy() - loc).astype(np.float32)))
    order = np.argsort(np.concatenate(tests))
    said = {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}
    scores = {"diverged": False, **scored(said["proba"], y)}
    theirs = measures(members)
    ranks = {f"rank_{name}": rank(theirs[name], said[name]) for name in MEASURES if name in said}
    return scores | ranks


def scored(proba: np.ndarray, y: np.ndarray) -> dict[str, float]:
    labels = np.arange(proba.shape[1])
    proba = proba / proba.sum(axis=1, keepdims=True)  # float32 rounds
    return {
        "log_loss": log_loss(y, proba, labels=labels),
        "accuracy": float(np.mean(proba.argmax(axis=1) == y)),
    }


def run_imagenet(quick: bool) -> dict[str, Any]:
    data = stored("imagenet1k_ensemble_500")
    members, y = ensemble(data["logits"]), data["y"].astype(int)
    first = EmpiricalCategorical(members.log_probs[:1])
    proxies = compare_proxies(members)
    theirs, entropy = measures(members), first.uncertainty().total.numpy()
    of_first = {f"rank_{name}": rank(theirs[name], entropy) for name in MEASURES}
    models = {
        "ensemble": scored(members.mean.numpy(), y),
        "first member": {**scored(first.mean.numpy(), y), **of_first},
    }
    students = dict(list(LINEAR_STUDENTS.items())[:1]) if quick else LINEAR_STUDENTS
    for name, family in students.items():
        n_epochs, n_folds = (1, 2) if quick else (30, 5)
        models[name] = cross_fitted(members, y, family, n_epochs, n_folds)
    ranks = proxies[WITH_ONE]
    targets = [
        target(f"rank of {name}, proxy", ranks[name], low=RANK_AT_LEAST) for name in MEASURES
    ]
    return {"proxies": proxies, "models": models, "targets": targets}


def report_imagenet(results: dict[str, Any]) -> None:
    print("ImageNet: rank correlations of proxy and ensemble")
    print_table(
        ["proxy", *MEASURES],
        [[form, *ranks.values()] for form, ranks in results["proxies"].items()],
    )
    print("\nImageNet: linear students of the first member's logits, cross-fitted")
    keys = ("log_loss", "accuracy", *(f"rank_{m}" for m in MEASURES))
    print_table(
        ["model", "log loss", "accuracy", *(f"rank {m}" for m in MEASURES)],
        [
            [name, "diverged"] if row.get("diverged") else [name, *map(row.get, keys)]
            for name, row in results["models"].items()
        ],
    )


# CIFAR-10 -----------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """The first member's logits, standardised on the training rows, what all say, and labels.

    `X` and `members` are held by part: "train", "test" and "svhn".
    """

    X: dict[str, np.ndarray]
    members: dict[str, EmpiricalCategorical]
    y_train: np.ndarray
    y_test: np.ndarray

    def epistemic(self, part: str) -> np.ndarray:
        """The ensemble's uncertainty."""
        return self.members[part].uncertainty().epistemic.numpy()


def load_cifar(quick: bool) -> Rows:
    data = stored("cifar10_resnet_ensemble_logits")
    few = slice(200 if quick else None)
    logits = {part: data[f"{part}_logits"][:, few] for part in ("train", *OUT_OF_TRAINING)}
    loc, scale = logits["train"][0].mean(axis=0), logits["train"][0].std(axis=0)
    return Rows(
        {part: ((values[0] - loc) / scale).astype(np.float32) for part, values in logits.items()},
        {part: ensemble(values) for part, values in logits.items()},
        data["y_train"][few],
        data["y_test"][few],
    )


def fit_student(rows: Rows, kept, family: str, settings: dict) -> DistributionDistiller:
    """A student that has learnt from the training rows `kept`."""
    learnt = make_family(family, "classifier")
    known = learnt.get_params()
    learnt.set_params(**{name: value for name, value in settings.items() if name in known})
    others = {name: value for name, value in settings.items() if name not in known}
    student = DistributionDistiller(
        "classifier", family=learnt, transfer=None, random_state=0, **others
    )
    answers = rows.members["train"].members[kept].numpy()
    return student.fit(rows.X["train"][kept], rows.y_train[kept], member_predictions=answers)


def search(rows: Rows, family: str) -> list[dict[str, Any]]:
    """Candidates with their scores on held-out training rows, the best first.

    One that diverges ranks rows as well as chance.
    """
    fit, held_out = train_test_split(np.arange(len(rows.y_train)), test_size=0.25, random_state=0)
    theirs = rows.epistemic("train")[held_out]
    tried = []
    for settings in ParameterGrid(GRIDS[family]):
        student = converged(fit_student, rows, fit, family, settings)
        score = 0.0
        if student is not None:
            ours = student.predict_uncertainty(rows.X["train"][held_out]).epistemic
            score = rank(theirs, ours)
        tried.append({"settings": settings, "diverged": student is None, "rank": score})
    return sorted(tried, key=lambda row: row["rank"], reverse=True)


def bootstrap(test, svhn, n_resamples: int) -> list[float]:
    """Interval of the AUROC of the second of two models less that of the first.

    `test` and `svhn` hold the uncertainties of rows, (n, 2): the same rows are drawn for both
    models.
    """
    rng = np.random.default_rng(0)

    def difference() -> float:
        a, b = (rows[rng.integers(len(rows), size=len(rows))] for rows in (test, svhn))
        first, second = (ood_auroc(a[:, i], b[:, i]) for i in range(2))
        return second - first

    drawn = [difference() for _ in range(n_resamples)]
    return np.quantile(drawn, [0.025, 0.975]).tolist()


def run_family(rows: Rows, family: str, quick: bool) -> dict[str, Any]:
    """Scores of the best candidate of a family."""
    tried = search(rows, family)
    settings = tried[0]["settings"]
    student = fit_student(rows, slice(None), family, settings)
    pairs = {
        part: np.stack(
            [rows.epistemic(part), student.predict_uncertainty(rows.X[part]).epistemic], axis=1
        )
        for part in OUT_OF_TRAINING
    }
    theirs, ours = (ood_auroc(*(pairs[part][:, i] for part in OUT_OF_TRAINING)) for i in range(2))
    return {
        "auroc": ours,
        "difference": ours - theirs,
        "interval": bootstrap(**pairs, n_resamples=20 if quick else 1000),
        "rank_epistemic_test": rank(*pairs["test"].T),
        "accuracy": student.score(rows.X["test"], rows.y_test),
        "settings": settings,
        "tried": tried,
    }


def run_cifar(quick: bool) -> dict[str, Any]:
    rows = load_cifar(quick)
    alone = {
        part: EmpiricalCategorical(rows.members[part].log_probs[:1]).uncertainty().total.numpy()
        for part in OUT_OF_TRAINING
    }
    models: dict[str, dict[str, Any]] = {
        "ensemble": {"auroc": ood_auroc(*map(rows.epistemic, OUT_OF_TRAINING))},
        "first member, total": {"auroc": ood_auroc(*alone.values())},
    }
    models |= {family: run_family(rows, family, quick) for family in GRIDS}
    targets = [
        target(
            f"AUROC less the ensemble's, {family}",
            models[family]["difference"],
            low=-AUROC_LOST_AT_MOST,
        )
        for family in GRIDS
    ]
    return {"models": models, "targets": targets}


def report_cifar(results: dict[str, Any]) -> None:
    print("CIFAR-10: SVHN by epistemic uncertainty")
    keys = ("auroc", "difference", "rank_epistemic_test", "accuracy", "settings")
    print_table(
        ["model", "AUROC", "difference", "95 % interval", "rank, test", "accuracy", "settings"],
        [
            [name, row["auroc"], row.get("difference"), interval_text(row.get("interval"))]
            + [row.get(key) for key in keys[2:]]
            for name, row in results["models"].items()
        ],
    )


def interval_text(interval: list[float] | None) -> str | None:
    return None if interval is None else "{:.4f} to {:.4f}".format(*interval)


SETS = {"imagenet": (run_imagenet, report_imagenet), "cifar10": (run_cifar, report_cifar)}


def main() -> None:
    options = asked(__doc__, sets=list(SETS))
    results = {}
    for name in options.sets:
        run, report = SETS[name]
        results[name] = run(options.quick)
        report(results[name])
        print()
        print_table(
            ["target", "value", "at least", "reached"],
            [
                [row[key] for key in ("target", "value", "low", "reached")]
                for row in results[name]["targets"]
            ],
        )
        print()
    save(options, results=results)


if __name__ == "__main__":
    main()
