# SPDX-License-Identifier: BSD-3-Clause
"""What the guide shows: which student, and students of sequences."""

from __future__ import annotations

from statistics import mean, median
from typing import Any

from _pages import TASKS, Table, block, duration, pick, plus_minus, spread, stored, table

from pages.defaults import TABLES, of_students


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
    take = "DistributionDistiller"
    if student == "hydra":
        take = f"HydraPlus{'Regressor' if kind == 'regression' else 'Classifier'}"
    return [f"{kind}, {what}", link(take), measured, f"{seconds} s", one_row(kind, student)]


def link(name: str) -> str:
    """A class, with the page that it has."""
    return f":class:`~skdistill.{name}`"


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
    place = {"model": "Hydra+", "outputs": "mean", "input": "array", "n": 1}
    rows = stored("calls")["calls"]
    us = next(row["us_per_sample"] for row in rows if row.items() >= place.items())
    return f"{duration(1e-6 * us)} for `predict`"


def gped_choice() -> list[Any]:
    """A chain's expectations."""
    found = stored("gped_share")["quality"]["0"]
    ours, chain = found["GPED"], found["teacher"]
    return [
        "MCMC posterior, without stored samples",
        link("GPEDDistiller"),
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
        link("BDistilBooster"),
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
        link("SequenceDistributionDistiller"),
        f"synthetic languages: {gaps('translation', 'foreign_rmi', 'unseen nouns')}. "
        f"Dates and amounts: {gaps('sentences', 'word_rmi', 'unseen words')}",
        f"{seconds:.1f} s",
        None,
    ]
