# SPDX-License-Identifier: BSD-3-Clause
"""What README and the guide show: why distil, which student, sequences, reached and missed."""

from __future__ import annotations

from math import inf
from statistics import mean, median
from typing import Any

import suite
import uci
from _pages import TASKS, Table, block, duration, limits, pick, plus_minus, spread, stored, table

from pages.classification import MOST_GAP
from pages.defaults import TABLES, of_students
from pages.posteriors import GPED_AUROC
from pages.regression import by_set

FIDELITY_NLL = 0.01  # what a student may be behind its teacher, on average
DEEP_ENSEMBLES_NLL = 0.05  # what a teacher may be behind those published
MOST_RANK = {"NLL": 1.15, "log loss": 1.8}  # mean ranks of the teacher among peers
Highlight = tuple[str, str, str, bool, str]  # what, measured, wanted, reached, page


def translation(file: str, headings: str, keys: str) -> Table:
    """Means and standard deviations over repetitions."""
    names = {
        "words": "share of words not in training",
        "single": "single network",
        "ensemble": "ensemble",
        "proxy": "its proxies, no student",
        "EnD": '`"mixture"` (EnD)',
        "EnD2": '`"nll"` (EnD2)',
        "proxy student": '`"reverse_kl"`',
        "proxy student, released form": '`"reverse_kl_reference"`',
        "proxy student, longer": '`"reverse_kl"`, twice the epochs',
        "proxy student, shown more": '`"reverse_kl"`, trained on more',
    }

    def written(key: str, found: dict[str, float] | None) -> str | None:
        spec = ".3f" if key == "nll" else ".1f"
        return found and plus_minus(found["mean"], found["std"], spec)

    results = stored(file)["results"]
    rows = (
        [shown, *map(written, keys.split(), values)]
        for name, shown in names.items()
        if any(values := pick(results.get(name, {}), keys))
    )
    return table(f"loss or model | {headings}", rows)


@block
def translation_quality(file: str) -> Table:
    """How good translations are, and how well uncertainty ranks their errors."""
    return translation(
        file,
        "exact, % | edits per token, % | NLL per token | PRR by EoE, % | PRR by RMI, %",
        "accuracy error_rate nll prr_eoe prr_rmi",
    )


@block
def translation_detection() -> Table:
    """How well sentences of another kind are told."""
    return translation(
        "translation",
        "rare words, EoE | RMI | permuted, EoE | RMI | a noun never seen, EoE | RMI",
        "rare_eoe rare_rmi permuted_eoe permuted_rmi foreign_eoe foreign_rmi",
    )


@block
def sentences_detection() -> Table:
    """How well sentences with unknown words or in unknown languages are told from known ones."""
    return translation(
        "sentences",
        "unknown word, EoE | RMI | near language, EoE | RMI | far language, EoE | RMI | "
        "ambiguous, EoE | RMI",
        "word_eoe word_rmi near_eoe near_rmi far_eoe far_rmi ambiguous_eoe ambiguous_rmi",
    )


@block
def sentences_less_ambiguous() -> Table:
    """How well the same are told from sentences with several meanings."""
    return translation(
        "sentences",
        "unknown word, EoE | RMI | near language, EoE | RMI | far language, EoE | RMI",
        " ".join(
            f"{of}_less_ambiguous_{by}" for of in ("word", "near", "far") for by in ("eoe", "rmi")
        ),
    )


@block
def why_distil() -> Table:
    """What one network saves, by its teacher."""
    forest = stored("forest")["results"]["adult"]
    trees, student = (forest["scores"][model] for model in ("forest", "student"))
    one_tree_row = next(row for row in forest["times"] if row["setting"] == "adult, models, 1 row")
    mixture, _ = worst_mixture()
    chain = stored("gped_share")["quality"]["0"]
    heads = of_students("hydra", TABLES["regression"]).values()
    one_row_us = {row["call"]: row["one_row_us"] for row in stored("predict")["one_row"]}
    rows = [
        [
            "random forest of 500 trees (adult)",
            duration(one_tree_row["peer_seconds"]),
            duration(one_tree_row["ours_seconds"]),
            student["nll"] - trees["nll"],
            f"{student['parameters'] / trees['parameters']:.3f}",
            "forest",
        ],
        [
            f"mixture of networks, a Gaussian process and boosting ({mixture['set']})",
            duration(mixture["teacher_row"]),
            f"{duration(mixture['graph_row'])}, in ONNX",
            mixture["gap"],
            None,
            "forest",
        ],
        [
            f"Markov chain of {chain['GPED']['iterations']:,} iterations (MNIST)",
            None,
            None,
            chain["GPED"]["nll"] - chain["teacher"]["nll"],
            "one network for the chain",
            "gped",
        ],
        [
            f"ensemble of 20 networks ({len(heads)} regression tables)",
            duration(1e-6 * one_row_us["HydraPlusRegressor.teacher_.predict"]),
            duration(1e-6 * one_row_us["HydraPlusRegressor.predict"]),
            mean(row["nll_gap"] for row in heads),
            spread((o["parameters"] / t["parameters"] for _, t, o in by_set()), ".2f"),
            "fidelity speed regression",
        ],
    ]
    return table(
        "teacher | latency, one sample | student's latency | NLL, student minus teacher:+.3f | "
        "parameters, student / teacher | page",
        ([*cells, ", ".join(map(link, pages.split()))] for *cells, pages in rows),
    )


def link(page: str) -> str:
    """A page of measurements, as README names it."""
    return f"[{page}](doc/measured/{page}.rst)"


@block
def which_student() -> Table:
    """Which student to take, by task."""
    return table(
        "task | estimator | measured | fit | one sample",
        [
            choice("regression", "one head per member", "hydra"),
            choice("classification", "one head per member", "hydra"),
            choice("regression", "one distribution", "distribution"),
            choice("classification", "one distribution", "distribution"),
            gped_choice(),
            bdistil_choice(),
            sequence_choice(),
        ],
    )


def choice(kind: str, what: str, student: str) -> list[Any]:
    """A student of tables, by what suite.py found."""
    found = of_students(student, TABLES[kind]).values()
    gap, rank = mean(row["nll_gap"] for row in found), median(row["rank"] for row in found)
    measured = f"{len(found)} tables: mean NLL {gap:+.3f}; epistemic rank correlation {rank:.2f}"
    seconds = spread((row["fit_seconds"] for row in found), ".0f")
    take = "`DistributionDistiller`"
    if student == "hydra":
        take = f"`HydraPlus{'Regressor' if kind == 'regression' else 'Classifier'}`"
    return [f"{kind}, {what}", take, measured, f"{seconds} s", one_row(kind, student)]


def one_row(kind: str, student: str) -> str | None:
    """Time for a row, of the students that it was measured of."""
    if student == "distribution":
        times = {
            row["model"]: f"{row['one_row_us']:.0f} µs"
            for row in stored("serving")["serving"]
            if TASKS[row["task"]] == kind
        }
        by_file = f"{times['file']} in ONNX, {times['C']} in C"
        return f"{times['student']} for all outputs, {by_file}"
    if kind == "classification":
        return None
    one_row_us = {row["call"]: row["one_row_us"] for row in stored("predict")["one_row"]}
    return f"{duration(1e-6 * one_row_us['HydraPlusRegressor.predict'])} for `predict`"


def gped_choice() -> list[Any]:
    """A chain's expectations."""
    found = stored("gped_share")["quality"]["0"]
    ours, chain = found["GPED"], found["teacher"]
    return [
        "MCMC posterior, without stored samples",
        "`GPEDDistiller`",
        f"MNIST: NLL {ours['nll'] - chain['nll']:+.3f}; mean absolute error of "
        f"the expected entropy {ours['entropy_mae']:.3f} nats",
        f"{ours['cpu_seconds']:.0f} s with the chain",
        None,
    ]


def bdistil_choice() -> list[Any]:
    """A model decomposed into small networks."""
    found = stored("bdistil")["results"]["letter"]
    first = found["times"][0]
    return [
        "anytime prediction",
        "`BDistilBooster`",
        f"letter, gradient boosting as teacher: first round {first['ratio']:.0f} times "
        f"as fast for one sample, accuracy {found['booster'][0]:.3f} "
        f"({found['teacher']:.3f})",
        None,
        f"{duration(first['ours_seconds'])} for a round",
    ]


def sequence_choice() -> list[Any]:
    """Sequences."""

    def gaps(file: str, unknown: str, words: str) -> str:
        found = stored(file)["results"]
        ours, theirs = found["proxy student"], found["ensemble"]
        return (
            f"NLL per token {ours['nll']['mean'] - theirs['nll']['mean']:+.3f}; AUROC of {words} "
            f"{ours[unknown]['mean']:.0f} % ({theirs[unknown]['mean']:.0f} %)"
        )

    seconds = stored("translation")["results"]["proxy student"]["fit_seconds"]["mean"]
    return [
        "translation, language models",
        "`SequenceDistributionDistiller`",
        f"synthetic languages: {gaps('translation', 'foreign_rmi', 'unseen nouns')}. "
        f"Dates and amounts: {gaps('sentences', 'word_rmi', 'unseen words')}",
        f"{seconds:.1f} s",
        None,
    ]


@block
def highlights() -> Table:
    """Some of the targets, reached and missed."""
    found = [
        deep_ensembles(),
        hydra_student("NLL less the teacher's", "NLL of Hydra+ minus its teacher's"),
        gaussian_student(),
        forest_student(),
        training(),
        *places(),
        mixed_student(),
        hydra_student(
            "median ratio, classes left out", "Epistemic entropy of unseen classes, Hydra+"
        ),
        masked_chain(),
        cube(),
    ]
    rows = (
        [
            what,
            measured,
            wanted,
            "yes" if reached else "**no**",
            link(page),
        ]
        for what, measured, wanted, reached, page in found
    )
    return table("quantity | measured | target | reached | page", rows)


def deep_ensembles() -> Highlight:
    """Teachers beside the published Deep Ensembles."""
    behind = {name: theirs["nll"] - uci.DEEP_ENSEMBLES[name][1] for name, theirs, _ in by_set()}
    name = max(behind, key=behind.__getitem__)
    what = f"NLL of the teacher minus that of Deep Ensembles, worst of {len(behind)} sets ({name})"
    reached = behind[name] <= DEEP_ENSEMBLES_NLL
    return what, f"{behind[name]:+.3f}", f"at most {DEEP_ENSEMBLES_NLL:+g}", reached, "regression"


def places() -> list[Highlight]:
    """Mean ranks of the default teacher among the peers."""
    rows, found = stored("suite")["results"], []
    for heading, most in MOST_RANK.items():
        of = suite.field(rows, "teacher", heading)
        if len(of.gaps) in (len(suite.NUMBERS), len(suite.CLASSES)):  # all that there are
            rank, n, n_tables = of.ranks["teacher"], len(of.ranks), len(of.gaps)
            what = (
                f"{heading}, mean rank of the default teacher among {n} models, {n_tables} tables"
            )
            found.append((what, f"{rank:.2f}", f"at most {most:g}", rank <= most, "defaults"))
    return found


def worst_mixture() -> tuple[dict[str, Any], int]:
    """The mixture with the largest gap to its student, and how many there are."""
    found = [row for row in stored("trees")["results"] if row["teacher"] == "mixed"]
    return max(found, key=lambda row: row["gap"]), len(found)


def mixed_student() -> Highlight:
    """Students of mixtures, where the gap is largest."""
    row, n_sets = worst_mixture()
    name, gap, most = row["set"], row["gap"], MOST_GAP.get(row["set"], 0.01)
    what = f"NLL of its student minus that of the mixed teacher, worst of {n_sets} sets ({name})"
    return what, f"{gap:+.3f}", f"at most {most:+g}", gap <= most, "forest"


def hydra_student(target: str, what: str) -> Highlight:
    """The worst set, in one of the targets of hydra.py."""
    rows = {
        name: row
        for name, found in stored("hydra")["sets"].items()
        for row in found["targets"]
        if row["target"] == target
    }
    name, row = min(rows.items(), key=lambda item: margin(item[1]))
    measured = f"{row['value']:.3f}" + " times the teacher's" * ("ratio" in target)
    what = f"{what}, worst of {len(rows)} sets ({name})"
    return what, measured, limits(row), row["reached"], "classification"


def margin(target: dict[str, Any]) -> float:
    """By how much a target is kept; negative where it is missed."""
    low, high, value = pick(target, "low high value")
    return min(inf if low is None else value - low, inf if high is None else high - value)


def gaussian_student() -> Highlight:
    """A distribution over numbers from one network."""
    students = of_students("distribution", TABLES["regression"]).values()
    found = [row["nll_gap"] for row in students]
    what = f"NLL of `DistributionDistiller` minus its teacher's, mean of {len(found)} tables"
    reached = mean(found) <= FIDELITY_NLL
    return what, f"{mean(found):+.3f}", f"at most {FIDELITY_NLL:+g}", reached, "fidelity"


def forest_student() -> Highlight:
    """A forest as one network."""
    row = stored("forest")["results"]["adult"]["times"][0]
    what = "Predictions of a network distilled from 500 trees, test samples of adult"
    measured = f"{row['ratio']:.0f} times as fast"
    return what, measured, f"at least {row['target']} times", row["reached"], "forest"


def training() -> Highlight:
    """Speed of training."""
    rows = stored("engine")["training"]
    row = rows[0]
    defaults = next(r for r in rows if (r["ours"], r["peer"]) == ("defaults", row["peer"]))
    what = "Training ten networks on 506 samples, compared with a loop over skorch nets"
    measured = f"{row['ratio']:.0f} times as fast, {defaults['ratio']:.0f} times with all defaults"
    return what, measured, f"at least {row['target']} times", row["reached"], "speed"


def masked_chain() -> Highlight:
    """What a student of a chain keeps on masked images."""
    rows = stored("gped_share")["quality"]["29"]
    gap = rows["GPED"]["ood_auroc_epistemic"] - rows["teacher"]["ood_auroc_epistemic"]
    what = "AUROC by epistemic uncertainty, `GPEDDistiller` minus its chain, masked MNIST"
    return what, f"{gap:+.3f}", f"at least {-GPED_AUROC}", gap >= -GPED_AUROC, "gped"


def cube() -> Highlight:
    """A booster beside an average."""
    row = stored("bdistil")["results"]["cube"]["targets"][0]
    what = "Accuracy of an average of as many networks minus that of `BDistilBooster`, cube"
    return what, f"{row['value']:.4f}", f"at most {row['high']:g}", row["reached"], "b_distil"
