# SPDX-License-Identifier: BSD-3-Clause
"""Synthetic data: toy problems of Hydra+ and B-DISTIL, and a translation task."""

from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from .._utils.typing import RandomStateLike
from .._utils.validation import Number, OneOf


def make_hydra_regression(
    n_samples: int = 240, noise: float = 1.0, random_state: RandomStateLike = None
) -> tuple[np.ndarray, np.ndarray]:
    """Generate the toy regression problem of Hydra+ (Ferianc & Rodrigues 2022, App. A.3).

    Inputs are uniform on [-6, 6] and ``y = sin x - 0.1 x + 0.1 x^2 + 0.01 x^3 + noise * N(0, 1)``.

    Parameters
    ----------
    n_samples : int, default=240
        Number of samples.
    noise : float, default=1.0
        Standard deviation of the noise, which is the aleatoric part of the uncertainty.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, 1)
    y : ndarray of shape (n_samples,)
    """
    Number(Integral, 1).check(n_samples, "n_samples")
    Number(Real, 0).check(noise, "noise")
    rng = check_random_state(random_state)
    x = rng.uniform(-6.0, 6.0, size=n_samples)
    f = np.sin(x) - 0.1 * x + 0.1 * x**2 + 0.01 * x**3
    return x[:, np.newaxis], f + noise * rng.standard_normal(n_samples)


def make_spirals(
    n_samples: int = 240, n_arms: int = 3, noise: float = 0.5, random_state: RandomStateLike = None
) -> tuple[np.ndarray, np.ndarray]:
    """Generate the toy classification problem of Hydra+: arms of a spiral around (0, 0).

    Each class is one turn of an Archimedean spiral, on which the radius is the angle. The angle is
    ``2 pi sqrt(U)`` with U uniform on [0, 1], so that the points lie about as dense far out as near
    the middle; each is then moved by up to `noise` along both axes, and the k-th arm is turned by
    ``2 pi k / n_arms``. Beyond a radius of ``2 pi`` there are no data. The problem is that of
    Ferianc & Rodrigues (2022), App. A.2; https://github.com/martinferianc/hydra_plus has the noise.

    Parameters
    ----------
    n_samples : int, default=240
        Number of samples, divided evenly among the arms.
    n_arms : int, default=3
        Number of arms, which are the classes.
    noise : float, default=0.5
        Side of the square over which a point is moved uniformly; the arms are ``2 pi / n_arms``
        apart.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
    y : ndarray of shape (n_samples,), int
        Number of the arm. The arms take turns, so that the first samples hold them all.
    """
    Number(Integral, 1).check(n_samples, "n_samples")
    Number(Integral, 2).check(n_arms, "n_arms")
    Number(Real, 0).check(noise, "noise")
    rng = check_random_state(random_state)
    y = np.arange(n_samples) % n_arms
    theta = 2 * np.pi * np.sqrt(rng.uniform(size=n_samples))
    # In the complex plane a turn is a product.
    shift = rng.uniform(0, noise, size=(n_samples, 2)) @ [1, 1j]
    z = (theta * np.exp(1j * theta) + shift) * np.exp(2j * np.pi * y / n_arms)
    return np.column_stack([z.real, z.imag]), y


def make_ellipsoid(
    n_samples: int = 1000, n_features: int = 32, random_state: RandomStateLike = None
) -> tuple[np.ndarray, np.ndarray]:
    """Generate the two classes of B-DISTIL, Sec 5.1, inside and outside an ellipsoid.

    Inputs are standard normal, and the class is 1 where ``x' A x`` is above its median, with
    ``A = M M' / n_features`` and M a matrix of standard normals. Rows of one call share A.

    Parameters
    ----------
    n_samples : int, default=1000
        Number of samples.
    n_features : int, default=32
        Number of columns.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,), int
    """
    Number(Integral, 1).check(n_samples, "n_samples")
    Number(Integral, 1).check(n_features, "n_features")
    rng = check_random_state(random_state)
    M = rng.standard_normal((n_features, n_features))
    X = rng.standard_normal((n_samples, n_features))
    level = np.square(X @ M).sum(axis=1) / n_features  # x' A x
    return X, (level > np.median(level)).astype(int)


def make_cube(
    n_samples: int = 1000,
    n_features: int = 32,
    n_vertices: int = 16,
    n_classes: int = 4,
    random_state: RandomStateLike = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Generate the classes of B-DISTIL, Sec 5.1, around vertices of a cube.

    Inputs are standard normal, and the class is that of the nearest of `n_vertices` vertices of
    ``{-1, 1}^n_features``, drawn at random, which the classes share evenly. Samples of one call
    share the vertices.

    Parameters
    ----------
    n_samples, n_features, random_state : as in :func:`make_ellipsoid`
    n_vertices : int, default=16
        Number of vertices.
    n_classes : int, default=4
        Number of classes, at most `n_vertices`.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,), int
    """
    Number(Integral, 1).check(n_samples, "n_samples")
    Number(Integral, 1).check(n_features, "n_features")
    Number(Integral, 2).check(n_vertices, "n_vertices")
    Number(Integral, 2, n_vertices).check(n_classes, "n_classes")
    rng = check_random_state(random_state)
    vertices = rng.choice([-1.0, 1.0], size=(n_vertices, n_features))
    X = rng.standard_normal((n_samples, n_features))
    nearest = (X @ vertices.T).argmax(axis=1)  # all vertices have the same length
    return X, nearest % n_classes


_N_ADJECTIVES, _N_NOUNS, _N_VERBS = 12, 24, 8
_N_WORDS = _N_ADJECTIVES + _N_NOUNS + _N_VERBS
_N_PHRASES = 2, 3  # of the shortest sentence, of the longest
_EVERY = 2  # every second noun has two translations
_FIRST_WORD = 3  # after pad, begin and end

DOMAINS = ("known", "rare", "permuted", "foreign")


class TranslationTokens(NamedTuple):
    """Numbers of special tokens, and how many tokens there are in all."""

    pad: int  # these three are the same in both languages
    begin: int
    end: int
    n_source: int  # tokens of each language, special ones included
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
    adjective and a noun. The translation puts the noun first. Of words of a kind the r-th has a
    probability in proportion to 1 / r (Zipf's law). Every second noun has two translations: after
    an adjective the first, alone the second with probability `ambiguity`, which is noise.

    Parameters
    ----------
    n_samples : int, default=2000
        Number of sentences.
    domain : {"known", "rare", "permuted", "foreign"}, default="known"
        Kind of sentences. All others are out of distribution for a model of "known" ones: "rare"
        ones have frequent and rare words exchanged, "permuted" ones have their words in random
        order, "foreign" ones have a noun that occurs nowhere else.
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
