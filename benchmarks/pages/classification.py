# SPDX-License-Identifier: BSD-3-Clause
"""Classification, and students that predict a distribution."""

from __future__ import annotations

from statistics import mean
from typing import Any

from _pages import Table, block, comparisons, limits, marked, named, pick, stored, table

# Most by which students of mixtures may be behind in NLL, where it is not .01.
MOST_GAP = {"power-plant": 0.03}


@block
def hydra_sets() -> Table:
    """Hydra+ and its rivals on four sets."""
    rows = (
        [
            name,
            model,
            *pick(full, "nll ece test.rank_correlation test.median_ratio"),
            *pick(some, "left_out.median_ratio"),
            *pick(full, "test.tv_epistemic"),
            *pick(some, "left_out.tv_epistemic ood_auroc"),
            *pick(full, "parameters fit_seconds"),
        ]
        for name, found in stored("hydra")["sets"].items()
        for model, full in found["all"].items()
        for some in [found["some_left_out"][model]]
    )
    return table(
        "data set | model | NLL:.3f | ECE:.3f | rank of epistemic:.3f | median ratio, test:.2f | "
        "left out:.2f | TV, test:.3f | left out:.3f | AUROC:.3f | parameters:, | fit, s:.1f",
        rows,
    )


@block
def hydra_targets() -> Table:
    """What Hydra+ should reach, by set."""
    sets = stored("hydra")["sets"]
    by_target = zip(*(found["targets"] for found in sets.values()), strict=True)
    rows = (
        [
            named(first["target"]),
            None if "below" in first["target"] else limits(first),
            *(marked(row["value"], ".3f", row["reached"]) for row in (first, *others)),
        ]
        for first, *others in by_target
    )
    return table(" | ".join(["quantity", "target", *sets]), rows)


@block
def hydra_toys() -> Table:
    """The toy problems of the paper."""
    paths = (
        "problem model heads nll epistemic_around rank_correlation median_ratio parameters "
        "papers_parameters fit_seconds"
    )
    return table(
        "problem | model | heads:d | NLL:.3f | mean epistemic:.3f | rank:.3f | median ratio:.2f | "
        "parameters:, | in the paper:, | fit, s:.1f",
        (pick(row, paths) for row in stored("hydra")["toys"]),
    )


@block
def forest_scores() -> Table:
    """Forests and their students."""
    rows = []
    for name, found in stored("forest")["results"].items():
        ranks = {"student": found["fidelity"]["rank_correlation"]}
        for model, scores in found["scores"].items():
            values = pick(scores, "accuracy nll ece parameters fit_seconds")
            rows.append([name, model, *values, ranks.get(model)])
    return table(
        "data set | model | accuracy:.4f | NLL:.3f | ECE:.3f | parameters:, | fit, s:.0f | "
        "rank of epistemic:.2f",
        rows,
    )


@block
def forest_times() -> Table:
    """How fast a forest and its student predict."""
    results = stored("forest")["results"].values()
    return comparisons([row for found in results for row in found["times"]])


@block
def trees_students() -> Table:
    """Students of boosting and of mixtures, by set."""
    rows = []
    for row in stored("trees")["results"]:
        is_mixed, wanted = row["teacher"] == "mixed", MOST_GAP.get(row["set"], 0.01)
        rank = row["rank"]
        cells = [
            *(row["set"], row["teacher"]),
            marked(row["gap"], "+.3f", row["gap"] <= wanted if is_mixed else None),
            marked(row["rmse_ratio"], ".3f", None if is_mixed else row["rmse_ratio"] <= 1.01),
            None if rank is None else marked(rank, ".2f", rank >= 0.9 if is_mixed else None),
            *pick(row, "teacher_seconds student_seconds"),
        ]
        for graph in ("graph_row", "mean_row"):
            faster = row["teacher_row"] / row[graph]
            cells.append(marked(faster, ".0f", faster >= 200 if is_mixed else None))
        rows.append(cells)
    return table(
        "data set | teacher | gap | ratio | rank | teacher, s:.0f | student, s:.0f | one sample | "
        "mean alone",
        rows,
    )


@block
def conformal_coverage(kind: str) -> Table:
    """Coverage of each interval on test rows: of "all", or of the third that is least "sure"."""
    key = {"all": "coverage", "unsure": "coverage_of_unsure"}[kind]
    return by_scale(key, ".3f")


@block
def conformal_width() -> Table:
    """Mean width of each interval, in standard deviations of y, and what a fit costs."""
    return by_scale("width", ".2f")


def by_scale(key: str, spec: str) -> Table:
    """A score of the student's own intervals and of conformal ones, a row for each set."""
    found = stored("conformal")["results"]
    scales = ("own", "constant", "total", "epistemic")
    rows = [
        [name, *(row[scale][key] for scale in scales), row["calibration_rows"], row["fit_seconds"]]
        for name, row in found.items()
    ]
    means = (mean(column) for column in list(zip(*rows, strict=True))[1:5])
    rows.append(["mean", *means, None, None])
    return table(
        f"data set | own:{spec} | conformal, constant:{spec} | by the total part:{spec} | "
        f"by the epistemic part:{spec} | calibration samples:.0f | fit, CPU s:.0f",
        rows,
    )


@block
def logits_cifar() -> Table:
    """SVHN told from CIFAR-10 by students of stored logits."""
    found = stored("logits")["results"]["cifar10"]
    wanted = {row["target"].rpartition(", ")[2]: row for row in found["targets"]}
    rows = []
    for name, model in found["models"].items():
        row: list[Any] = [name, model["auroc"], None, None, None]
        if name in wanted:
            gap = marked(model["difference"], "+.3f", wanted[name]["reached"])
            row[2:] = [gap, interval(model), limits(wanted[name])]
        rows.append(row)
    return table("model | AUROC:.3f | minus the ensemble's | 95 % interval | target", rows)


def interval(found: dict[str, Any]) -> str:
    """Ends of a confidence interval."""
    return "{:+z.3f} to {:+z.3f}".format(*found["interval"])


@block
def logits_proxies() -> Table:
    """Rank correlation of the uncertainties of an ensemble and of a Dirichlet in its place."""
    found = stored("logits")["results"]["imagenet"]
    names = {
        "with the one": "Eq. 17, with the one added",
        "without the one": "without it, as used for predictions",
        "released": "as released by the authors",
        "by mutual information": "by mutual information, with the one",
    }
    measures = "total mutual_information reverse_mutual_information pairwise_kl"
    rows = [[names[name], *pick(row, measures)] for name, row in found["proxies"].items()]
    rows[0][1:] = [marked(row["value"], ".3f", row["reached"]) for row in found["targets"]]
    rows.append(["target of Eq. 17", *(limits(row) for row in found["targets"])])
    return table(
        "proxy | total:.3f | mutual information:.3f | reverse mutual information:.3f | "
        "pairwise divergence:.3f",
        rows,
    )


@block
def logits_models() -> Table:
    """Students of one ImageNet network's logits."""
    models = stored("logits")["results"]["imagenet"]["models"]
    paths = "log_loss accuracy rank_total rank_mutual_information"
    return table(
        "model | log loss:.3f | accuracy:.3f | rank of total:.3f | rank of mutual information:.3f",
        ([name, *pick(row, paths)] for name, row in models.items()),
    )
