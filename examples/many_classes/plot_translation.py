"""
Uncertainty in machine translation
==================================

Five networks translate between two synthetic languages. Half of the nouns have two translations,
and the context does not determine which one is used. The ensemble separates two kinds of
uncertainty. Its members agree that an ambiguous word has two translations, and disagree about a
word absent from training. One network, distilled with a Dirichlet distribution over the
probabilities of the next word, replaces the five and still separates most of the two kinds.

The method is that of Ryabinin, Malinin & Gales (2021), "Scaling Ensemble Distribution Distillation
to Many Classes with Proxy Targets", with sentences short enough for a laptop.
"""

# %%
# Ensemble
# --------
#
# Members can be any torch modules that are called as ``module(source, target)`` and return, at each
# token of the target, the logits of the next token. These are trained by a few lines of plain
# torch.

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.nn.functional import cross_entropy, pad

from skdistill import SequenceDistributionDistiller
from skdistill.datasets import TRANSLATION_TOKENS, make_translation
from skdistill.metrics import ood_auroc
from skdistill.modules import RecurrentSequenceModel
from skdistill.sequences import SequenceEnsemble, token_error_rates

n_members = 5  # networks of the ensemble
max_epochs = 12  # epochs of each model

sizes = TRANSLATION_TOKENS.n_source, TRANSLATION_TOKENS.n_target
X, y = make_translation(2000, random_state=0)
source, target = torch.tensor(X), torch.tensor(y)
read = pad(target[:, :-1], (1, 0), value=TRANSLATION_TOKENS.begin)


def trained_translator(seed):
    """A network that has learnt to give the next token of the target."""
    generator = torch.Generator().manual_seed(seed)
    network = RecurrentSequenceModel(*sizes, generator=generator)
    optimizer = torch.optim.Adam(network.parameters(), 0.005)
    for _ in range(max_epochs):
        for rows in torch.randperm(len(X), generator=generator).split(64):
            logits = network(source[rows], read[rows]).flatten(0, 1)
            loss = cross_entropy(logits, target[rows].flatten(), ignore_index=0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network


members = [trained_translator(seed) for seed in range(n_members)]

# %%
# Student
# -------
#
# It is trained on the ensemble's training sentences, and has embeddings for words that do not occur
# in them: ``module__in_features``.

student = SequenceDistributionDistiller(
    members, max_epochs=max_epochs, module__in_features=sizes[0], random_state=0
)
models = {"ensemble": SequenceEnsemble(members), "student": student.fit(X, y)}

# %%
# Results
# -------
#
# Sentences with an unseen word are detected by the epistemic uncertainty (reverse mutual
# information) and by the total uncertainty. The ensemble detects nearly all of them, the student
# most.

X_test, y_test = make_translation(300, random_state=1)
X_foreign, _ = make_translation(300, "foreign", random_state=2)
print(f"{'':10}{'edits per word':>16}{'unseen words found by (AUROC)':>40}")
print(f"{'':26}{'total uncertainty':>22}{'epistemic':>18}")
for name, model in models.items():
    known, foreign = model.generate(X_test), model.generate(X_foreign)
    edits = token_error_rates(y_test, known.tokens[:, 0]).mean()
    by_total = ood_auroc(known.uncertainty().total, foreign.uncertainty().total)
    by_knowledge = ood_auroc(
        known.reverse_mutual_information(), foreign.reverse_mutual_information()
    )
    print(f"{name:10}{edits:16.3f}{by_total:22.3f}{by_knowledge:18.3f}")

# %%
# Figure
# ------
#
# Each point is a noun at the end of the same sentence, by the total (entropy) and the epistemic
# uncertainty (reverse mutual information) of its translation. Nouns with two translations are to
# the right of those with one, and somewhat above them. In the ensemble all nouns that are in no
# training sentence are far above both; in the student they spread over a wider range, and are above
# all but a few.

nouns = {
    "one translation": (np.arange(16, 39, 2), "o", "#0072B2"),
    "two translations": (np.arange(15, 39, 2), "^", "#E69F00"),
    "absent from training": (np.arange(59, 83), "x", "black"),
}
adjective, noun, verb, end = 3, 16, 39, TRANSLATION_TOKENS.end
figure, axes = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    for kind, (last, marker, color) in nouns.items():
        sentences = [[adjective, noun, verb, word] for word in last]
        # What is uncertain about the fourth word does not depend on which one is written.
        scored = model.score_sequences(sentences, [[noun, adjective, verb, end]] * len(last))
        total = scored.token_uncertainty.total[:, 0, 3]
        knowledge = scored.token_reverse_mutual_information[:, 0, 3]
        ax.loglog(total, knowledge, marker, color=color, alpha=0.8, label=kind)
    ax.set(title=name, xlabel="total uncertainty [nats]", ylabel="epistemic uncertainty [nats]")
axes[0].legend(title="noun")
plt.show()
