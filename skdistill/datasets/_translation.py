# SPDX-License-Identifier: BSD-3-Clause
"""A synthetic translation task."""

from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from .._utils.validation import Number, OneOf

_N_ADJECTIVES, _N_NOUNS, _N_VERBS = 12, 24, 8
_N_WORDS = _N_ADJECTIVES + _N_NOUNS + _N_VERBS
_N_PHRASES = 2, 3  # of the shortest sentence, of the longest
_EVERY = 2  # every second noun has two translations
_FIRST_WORD = 3  # after pad, begin and end

DOMAINS = ("known", "rare", "permuted", "foreign")


class TranslationTokens(NamedTuple):
    """Numbers of special tokens, and how many tokens there are in all.

    ``pad``, ``begin`` and ``end`` have the same number in both languages; ``n_source`` and
    ``n_target`` count the tokens of each, these included.
    """

    pad: int
    begin: int
    end: int
    n_source: int
    n_target: int


#: Special tokens of :func:`make_translation`, and the sizes of its two vocabularies.
TRANSLATION_TOKENS = TranslationTokens(
    pad=0,
    begin=1,
    end=2,
    n_source=_FIRST_WORD + 2 * _N_WORDS,
    n_target=_FIRST_WORD + _N_WORDS + _N_NOUNS // _EVERY,
)


def make_translation(
    n_samples: int = 2000, domain: str = "known", ambiguity: float = 0.4, random_state: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Generate sentences of a made-up language, each with a translation.

    A sentence has two or three phrases with a verb between them; a phrase is a noun, or as often an
    adjective and a noun. The translation puts the noun first, and ends in the end token. Of words
    of a kind the r-th has a probability in proportion to 1 / r (Zipf's law). Every second noun has
    two translations: after an adjective it is always the first, alone it is the second with
    probability `ambiguity`, which is noise that nobody can predict.

    Parameters
    ----------
    n_samples : int, default=2000
        Number of sentences.
    domain : {"known", "rare", "permuted", "foreign"}, default="known"
        Kind of sentences. All others are out of distribution for a model of
        "known" ones: "rare" ones have frequent and rare words exchanged, "permuted" ones have
        their words in random order, "foreign" ones have a noun that occurs nowhere else.
    ambiguity : float, default=0.4
        Probability of the second translation, from 0 to 1.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, 8), int64
        Tokens of the sentences, padded with 0. A foreign noun has the number of the known one
        of the same meaning plus 44.
    y : ndarray of shape (n_samples, 9), int64
        Tokens of the translations, each followed by the end token and padded with 0. Permuted
        sentences have the translation of the original ones.

    Examples
    --------
    >>> from skdistill.datasets import make_translation
    >>> X, y = make_translation(2, random_state=0)
    >>> X
    array([[17, 41, 30,  0,  0,  0,  0,  0],
           [ 5, 16, 39, 25, 39,  6, 18,  0]])
    >>> y
    array([[17, 41, 30,  2,  0,  0,  0,  0,  0],
           [16,  5, 39, 25, 39, 18,  6,  2,  0]])
    """
    Number(Integral, 1).check(n_samples, "n_samples")
    Number(Real, 0, 1).check(ambiguity, "ambiguity")
    OneOf(DOMAINS).check(domain, "domain")
    rng = check_random_state(random_state)
    fewest, most = _N_PHRASES
    shape = n_samples, most
    adjectives, nouns, verbs = (
        _draw_words(rng, n_words, shape, domain == "rare")
        for n_words in (_N_ADJECTIVES, _N_NOUNS, _N_VERBS)
    )
    n_phrases = rng.randint(fewest, most + 1, size=(n_samples, 1))
    is_there = np.arange(most) < n_phrases
    has_adjective = is_there & (rng.uniform(size=shape) < 0.5)
    has_verb = np.arange(most) < n_phrases - 1
    is_second = (nouns % _EVERY == 0) & ~has_adjective
    is_second &= rng.uniform(size=shape) < ambiguity
    meanings = np.where(is_second, _N_WORDS + nouns // _EVERY, _N_ADJECTIVES + nouns)
    nouns, verbs = _N_ADJECTIVES + nouns, _N_ADJECTIVES + _N_NOUNS + verbs

    source = _interleaved(adjectives, nouns, verbs)
    is_source = _interleaved(has_adjective, is_there, has_verb)
    if domain == "permuted":
        order = rng.uniform(size=source.shape).argsort(axis=1)
        source, is_source = (np.take_along_axis(a, order, 1) for a in (source, is_source))
    source += _FIRST_WORD
    if domain == "foreign":  # the noun of one of the phrases
        source[np.arange(n_samples), 1 + 3 * rng.randint(n_phrases[:, 0])] += _N_WORDS
    target = _FIRST_WORD + _interleaved(meanings, adjectives, verbs)
    is_target = _interleaved(is_there, has_adjective, has_verb)
    X, y = _in_a_row(source, is_source), _in_a_row(target, is_target)
    y[np.arange(n_samples), is_target.sum(1)] = TRANSLATION_TOKENS.end
    return X[:, : 3 * most - 1], y


def _draw_words(rng, n_words, shape, rare_first):
    """Numbers of words, the r-th with a probability in proportion to 1 / r; or from the last on."""
    chances = 1 / np.arange(1, n_words + 1)
    drawn = rng.choice(n_words, size=shape, p=chances / chances.sum())
    return n_words - 1 - drawn if rare_first else drawn


def _interleaved(*words):
    """Words of one kind after the other, phrase by phrase: (n, phrases * kinds)."""
    return np.stack(words, axis=-1).reshape(len(words[0]), -1)


def _in_a_row(tokens, is_there):
    """Move the tokens that are there to the front, with padding after them."""
    tokens = np.where(is_there, tokens, TRANSLATION_TOKENS.pad)
    order = np.argsort(~is_there, axis=1, kind="stable")
    return np.take_along_axis(tokens, order, axis=1)
