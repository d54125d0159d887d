# SPDX-License-Identifier: BSD-3-Clause
"""The made-up languages: what is said, and how it is translated."""

from __future__ import annotations

import numpy as np
import pytest

from skdistill.datasets import TRANSLATION_TOKENS, make_translation

N_ADJECTIVES, N_NOUNS, N_VERBS = 12, 24, 8
FIRST_NOUN, FIRST_VERB = 3 + N_ADJECTIVES, 3 + N_ADJECTIVES + N_NOUNS
SECOND = FIRST_VERB + N_VERBS  # first of the second translations
PAD, END = TRANSLATION_TOKENS.pad, TRANSLATION_TOKENS.end


def words(row):
    return [int(token) for token in row if token != PAD]


def kind(token):
    return "anv"[np.searchsorted([FIRST_NOUN, FIRST_VERB], token, side="right")]


def translated(sentence):
    """The sentence with nouns before their adjectives."""
    out = []
    for token in sentence:
        out.append(token)
        if kind(token) == "n" and len(out) > 1 and kind(out[-2]) == "a":
            out[-2:] = out[-1], out[-2]
    return out


def test_sentences_have_the_grammar_and_translations_put_nouns_first():
    X, y = make_translation(300, random_state=0)
    assert X.shape == (300, 8)
    assert y.shape == (300, 9)
    phrases = {"n", "an"}
    for source, target in zip(X, y, strict=True):
        sentence, translation = words(source), words(target)
        said = "".join(map(kind, sentence)).split("v")
        assert len(said) in (2, 3)
        assert set(said) <= phrases
        assert translation.pop() == END
        first = [FIRST_NOUN + 2 * (t - SECOND) if t >= SECOND else t for t in translation]
        assert first == translated(sentence)


def test_nouns_are_ambiguous_only_where_they_stand_alone():
    X, y = make_translation(4000, ambiguity=0.3, random_state=0)
    is_ambiguous = (X >= FIRST_NOUN) & (X < FIRST_VERB) & ((X - FIRST_NOUN) % 2 == 0)
    before = np.pad(X[:, :-1], ((0, 0), (1, 0)))
    alone = is_ambiguous & ~((before >= 3) & (before < FIRST_NOUN))
    after = np.pad(y[:, 1:], ((0, 0), (0, 1)))
    is_second = y >= SECOND
    assert not (is_second & (after >= 3) & (after < FIRST_NOUN)).any(), "an adjective"
    assert is_second.sum() / alone.sum() == pytest.approx(0.3, abs=0.02)
