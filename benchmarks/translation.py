# SPDX-License-Identifier: BSD-3-Clause
"""Translation: an ensemble and its students, as in Tables 3 and 4 of Ryabinin et al. (2021).

Five recurrent networks learn to translate between the two made-up languages of make_translation,
where half of the nouns have two translations that nobody can tell apart; with `--data real` they
read dates, measures and amounts of money that are written in five languages (_sentences.py, with
packages of requirements/peers.txt). They are distilled into one: their mean (EnD), the likelihood
of their probabilities under a Dirichlet (EnD2, with smoothing and a temperature that falls from 2.5
to 1), and the reverse divergence from the proxy, in the form that the authors released and as it
stands. "proxy student, longer" has twice the epochs. "proxy student, shown more" learns besides
from as many sentences again of other kinds, which nobody but the ensemble has translated. "proxy"
is the ensemble with a proxy in the place of its members at each token: the best that its students
could do.

The first table has the quality of translations: the share of sentences without an error, edit
distance over length, negative log likelihood of the references' tokens, and how well each
uncertainty ranks the edit distances (prediction rejection ratio in percent). The second has how
well each uncertainty tells sentences of another kind from those of training (area under the ROC
curve in percent). Made-up ones have frequent and rare words exchanged, are in random order, or have
a noun never seen; real ones have several meanings, have a word never seen, or are in languages near
to those of training or far from them. "words" is the share of words that the training sentences do
not have, without a model.

Sentences are translated by a beam of 5. The total uncertainty is the entropy of the expected
distribution (EoE), the epistemic one the reverse mutual information (RMI), both by the chain rule
and per token; a single network and EnD have no epistemic one. Figures are means over repetitions,
each with an ensemble of its own, and their standard deviations; "single" is also a mean over the
members.

    python benchmarks/translation.py
    python benchmarks/translation.py --repeats 1 --students reverse_kl
    python benchmarks/translation.py --data real
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from _common import Among, asked, print_table, save, versions
from torch.nn.functional import cross_entropy, pad

from skdistill import SequenceDistributionDistiller
from skdistill.datasets import TRANSLATION_TOKENS, make_translation
from skdistill.distributions import Dirichlet
from skdistill.families import DirichletFamily, MixtureFamily
from skdistill.losses import proxy_concentrations, proxy_precision
from skdistill.metrics import ood_auroc, prediction_rejection_ratio
from skdistill.modules import RecurrentSequenceModel
from skdistill.sequences import SequenceEnsemble, token_error_rates
from skdistill.settings import Runtime

PAD, BEGIN = TRANSLATION_TOKENS.pad, TRANSLATION_TOKENS.begin
BEAM = 5

MEASURES = {"eoe": "EoE", "rmi": "RMI"}
STUDENTS = {
    "mixture": "EnD",
    "nll": "EnD2",
    "reverse_kl": "proxy student",
    "reverse_kl_reference": "proxy student, released form",
}


class Data(NamedTuple):
    """Where sentences come from: pairs of `n` sources and targets of a domain, by a seed."""

    draw: Callable[[int, str, int], tuple[np.ndarray, np.ndarray]]
    words: Callable[[np.ndarray], list[list]]  # of each source
    n_source: int  # tokens
    n_target: int
    domains: Sequence[str]  # to be told from "known" sentences
    more: Sequence[str]  # to be shown to the last student
    n_train: int = 2000
    n_test: int = 300
    n_epochs: int = 12  # of members and of students
    batch_size: int = 64
    lr: float = 0.005
    max_length: int | None = None  # of what is generated
    packages: Sequence[str] = ()  # that sentences depend on


def made_up() -> Data:
    """The languages of make_translation."""
    domains = "rare", "permuted", "foreign"

    def draw(n: int, domain: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
        return make_translation(n, domain, random_state=seed)

    def words(X: np.ndarray) -> list[list[int]]:
        return [row[row != PAD].tolist() for row in X]

    sizes = TRANSLATION_TOKENS.n_source, TRANSLATION_TOKENS.n_target
    return Data(draw, words, *sizes, domains, domains)


def real() -> Data:
    """Dates, measures and amounts as ten countries write them."""
    import _sentences  # its packages are not in the environment

    return Data(
        _sentences.make_sentences,
        _sentences.words,
        _sentences.N_PIECES,
        len(_sentences.TARGETS),
        list(_sentences.DOMAINS),
        ["more"],
        n_train=10_000,
        n_test=200,
        n_epochs=8,
        batch_size=128,
        lr=0.015,
        max_length=_sentences.LONGEST_TARGET,
        packages=("num2words", "babel", "sentencepiece"),
    )


DATA = {"made-up": made_up, "real": real}


class Proxy(SequenceEnsemble):
    """The ensemble, with the proxy of its members at each token in their place."""

    def _distribution(self, source, target_in, at):
        members = self.member_statistics(source, target_in, at)
        precision = proxy_precision(members.mean, members.mean_log, 1e3 * self.n_tokens_)
        return Dirichlet(proxy_concentrations(members.mean, precision, offset=1e-6))


def trained(
    data: Data, X: np.ndarray, y: np.ndarray, n_epochs: int, seed: int
) -> RecurrentSequenceModel:
    """A network that has learnt to translate, by plain torch."""
    generator = torch.Generator().manual_seed(seed)
    network = RecurrentSequenceModel(data.n_source, data.n_target, generator=generator)
    source, target = torch.tensor(X), torch.tensor(y)
    read = pad(target[:, :-1], (1, 0), value=BEGIN)
    optimizer = torch.optim.Adam(network.parameters(), data.lr, fused=True)
    n_steps = n_epochs * -(-len(X) // data.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n_steps)
    for _ in range(n_epochs):
        for rows in torch.randperm(len(X), generator=generator).split(data.batch_size):
            logits = network(source[rows], read[rows]).flatten(0, 1)
            loss = cross_entropy(logits, target[rows].flatten(), ignore_index=PAD)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return network


def with_more(data: Data, X: np.ndarray, y: np.ndarray, ensemble: SequenceEnsemble, seed: int):
    """As many sentences again, of other kinds, with translations by the ensemble."""
    n_each = -(-len(X) // len(data.more))
    more = [
        data.draw(n_each, domain, 10_000 + 10 * seed + i)[0] for i, domain in enumerate(data.more)
    ]
    translated = ensemble.predict(np.vstack(more), max_length=y.shape[1])
    missing = y.shape[1] - translated.shape[1]
    return np.vstack([X, *more]), np.vstack([y, np.pad(translated, ((0, 0), (0, missing)))])


def student_of(data: Data, members: list, loss: str, X, y, n_epochs: int, seed: int):
    """A student of the members; EnD2 with a temperature that falls over half of the epochs."""
    temperature = (2.5, 0, max(1, n_epochs // 2)) if loss == "nll" else 1.0
    family = (
        MixtureFamily()
        if loss == "mixture"
        else DirichletFamily(loss=loss, temperature=temperature)
    )
    return SequenceDistributionDistiller(
        members,
        family=family,
        max_epochs=n_epochs,
        batch_size=data.batch_size,
        lr=data.lr,
        runtime=Runtime(device="cpu"),
        module__in_features=data.n_source,
        random_state=seed,
    ).fit(X, y)


def uncertainties(sequences) -> dict[str, np.ndarray]:
    """What there is of EoE and RMI, for each row."""
    found = {
        "eoe": sequences.uncertainty().total,
        "rmi": sequences.reverse_mutual_information(),
    }
    return {name: values for name, values in found.items() if values is not None}


def scores(
    data: Data, model, X: np.ndarray, y: np.ndarray, others: dict[str, np.ndarray]
) -> dict[str, float]:
    """Everything that the tables show of one model."""
    sequences = model.generate(X, BEAM, data.max_length)
    rates = token_error_rates(y, sequences.tokens[:, 0], PAD)
    known = uncertainties(sequences)
    found = {
        "accuracy": 100 * float((rates == 0).mean()),
        "error_rate": 100 * float(rates.mean()),
        "nll": -model.score(X, y),
    }
    for name, values in known.items():
        found[f"prr_{name}"] = 100 * prediction_rejection_ratio(rates, values)
    of_others = {
        domain: uncertainties(model.generate(rows, BEAM, data.max_length))
        for domain, rows in others.items()
    }
    for name, values in known.items():
        for domain, of_domain in of_others.items():
            found[f"{domain}_{name}"] = 100 * ood_auroc(values, of_domain[name])
        if "ambiguous" in others:
            ambiguous = of_others["ambiguous"][name]
            for domain in set(others) - {"ambiguous"}:
                auroc = ood_auroc(ambiguous, of_others[domain][name])
                found[f"{domain}_less_ambiguous_{name}"] = 100 * auroc
    return found


def unseen_words(
    data: Data, X: np.ndarray, X_test: np.ndarray, others: dict[str, np.ndarray]
) -> dict[str, float]:
    """How well the share of words that X does not have, in the place of EoE, tells sentences."""
    known = set().union(*data.words(X))

    def shares(rows: np.ndarray) -> list[float]:
        return [np.mean([word not in known for word in words] or 0.0) for words in data.words(rows)]

    of_test = shares(X_test)
    return {
        f"{domain}_eoe": 100 * ood_auroc(of_test, shares(rows)) for domain, rows in others.items()
    }


def run(
    data: Data, seed: int, losses: list[str], sizes: dict[str, int]
) -> dict[str, list[dict[str, float]]]:
    """Scores of all models of one repetition, those of single networks member by member."""
    n_epochs = sizes["epochs"]
    X, y = data.draw(sizes["train"], "known", 3 * seed)
    X_test, y_test = data.draw(sizes["test"], "known", 3 * seed + 1)
    others = {domain: data.draw(sizes["test"], domain, 3 * seed + 2)[0] for domain in data.domains}
    start = time.process_time()
    members = [trained(data, X, y, n_epochs, 100 * seed + m) for m in range(sizes["members"])]
    seconds = {"ensemble": time.process_time() - start}
    ensemble = SequenceEnsemble(members)
    models = {"ensemble": ensemble, "proxy": Proxy(members)}
    lessons = {STUDENTS[loss]: (loss, X, y, n_epochs) for loss in losses}
    more = with_more(data, X, y, ensemble, seed)
    lessons["proxy student, longer"] = "reverse_kl", X, y, 2 * n_epochs
    lessons["proxy student, shown more"] = "reverse_kl", *more, n_epochs
    for name, lesson in lessons.items():
        start = time.process_time()
        models[name] = student_of(data, members, *lesson, seed)
        seconds[name] = time.process_time() - start
    singles = [scores(data, SequenceEnsemble([m]), X_test, y_test, others) for m in members]
    for single in singles:  # one member says nothing of knowledge
        for name in [name for name in single if "rmi" in name]:
            del single[name]
    found = {"words": [unseen_words(data, X, X_test, others)], "single": singles}
    for name, model in models.items():
        row = scores(data, model, X_test, y_test, others)
        found[name] = [row | ({"fit_seconds": seconds[name]} if name in seconds else {})]
    return found


def summary(runs: list[dict[str, list[dict[str, float]]]]) -> dict[str, dict[str, dict]]:
    """Mean and standard deviation of each score of each model."""
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in runs:
        for model, rows in one.items():
            for row in rows:
                for name, value in row.items():
                    values[model][name].append(value)
    return {
        model: {
            name: {"mean": float(np.mean(v)), "std": float(np.std(v))} for name, v in of.items()
        }
        for model, of in values.items()
    }


def cell(score: dict[str, float] | None, digits: int = 1) -> str | None:
    if score is None:
        return None
    return f"{score['mean']:.{digits}f} +- {score['std']:.{digits}f}"


def report(results: dict[str, dict[str, dict]], domains: Sequence[str]) -> None:
    print_table(
        ["model", "exact %", "edits %", "NLL", "PRR by EoE", "PRR by RMI", "fit CPU s"],
        [
            [
                model,
                *(cell(row.get(name)) for name in ("accuracy", "error_rate")),
                cell(row.get("nll"), 3),
                *(cell(row.get(name)) for name in ("prr_eoe", "prr_rmi", "fit_seconds")),
            ]
            for model, row in results.items()
        ],
    )
    print()
    columns = [(domain, name) for domain in domains for name in MEASURES]
    print_table(
        ["model", *(f"{domain} by {MEASURES[name]}" for domain, name in columns)],
        [
            [model, *(cell(row.get(f"{domain}_{name}")) for domain, name in columns)]
            for model, row in results.items()
        ],
    )


def main() -> None:
    options = asked(__doc__, repeats=3, students=list(STUDENTS), data=Among("made-up", DATA))
    data = DATA[options.data]()
    sizes = {"train": data.n_train, "test": data.n_test, "epochs": data.n_epochs, "members": 5}
    n_repeats = options.repeats
    if options.quick:
        sizes, n_repeats = {"train": 100, "test": 30, "epochs": 2, "members": 2}, 1
    runs = []
    for seed in range(n_repeats):
        runs.append(run(data, seed, options.students, sizes))
        results = summary(runs)
        save(options, versions=versions(*data.packages), sizes=sizes, results=results)
    report(results, data.domains)


if __name__ == "__main__":
    main()
