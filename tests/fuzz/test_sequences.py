# SPDX-License-Identifier: BSD-3-Clause
"""Models of sequences, asked about any tokens, and with nonsense."""

from __future__ import annotations

import inspect
import pickle
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from skdistill import SequenceDistributionDistiller
from skdistill.modules import RecurrentSequenceModel
from skdistill.sequences import SequenceEnsemble, token_error_rates

PAD, BEGIN, END, *WORDS = range(6)
MODELS = ["members", "members_of_language", "student", "student_of_language", "mean"]


def network(has_source, seed):
    generator = torch.Generator().manual_seed(seed)
    return RecurrentSequenceModel(6 if has_source else None, 6, 4, generator=generator)


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    has_source = "language" not in request.param
    members = [network(has_source, seed) for seed in range(2)]
    if request.param.startswith("members"):
        return SequenceEnsemble(members, has_source=has_source)
    student = SequenceDistributionDistiller(
        members,
        family="mixture" if request.param == "mean" else "dirichlet",
        module__hidden_units=4,
        max_epochs=1,
        random_state=0,
    )
    y = np.array([[3, 4, 5, END], [5, END, PAD, PAD]])
    return student.fit(y, y if has_source else None)


@st.composite
def sequences(draw, longest=4):
    """Samples of words, each ended and padded."""
    n = draw(st.integers(1, 3))
    rows = draw(
        st.lists(st.lists(st.sampled_from(WORDS), max_size=longest - 1), min_size=n, max_size=n)
    )
    out = np.full((n, longest), PAD)
    for row, words in zip(out, rows, strict=True):
        row[: len(words) + 1] = [*words, END]
    return draw(st.sampled_from([out, out.astype(np.uint8), out.astype(np.float32), out.tolist()]))


def has_source(model):
    return model._has_source


def check_scored(model, scored, n, beam_size):
    tokens, log_probs = scored.tokens, scored.log_probs
    assert tokens.shape == log_probs.shape == scored.is_scored.shape
    assert tokens.shape[:2] == (n, beam_size)
    assert ((tokens >= 0) & (tokens < model.n_tokens_)).all()
    assert not np.isnan(log_probs).any()
    assert (log_probs <= 0).all()
    assert (scored.sequence_log_probs[:, 0] > -np.inf).all()
    np.testing.assert_allclose(scored.weights.sum(1), 1, rtol=1e-6)
    parts = scored.uncertainty()
    assert np.isfinite(parts.total).all()
    assert (parts.total >= 0).all()
    if parts.aleatoric is not None:
        assert (parts.aleatoric >= 0).all()
        assert (parts.epistemic >= 0).all()
        assert (scored.reverse_mutual_information() >= -1e-6).all()
        np.testing.assert_allclose(parts.aleatoric + parts.epistemic, parts.total, atol=1e-6)
    assert (scored.surprise() >= 0).all()


@given(data=st.data())
def test_sequences_keep_to_what_is_documented(model, data, fuzz, tally):
    tally("fuzzed cases")
    X = data.draw(sequences(), label="X")
    beam_size, max_length = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    given_tokens = X if has_source(model) else np.asarray(X)[:, :1]
    found = model.generate(given_tokens, beam_size, max_length)
    n = len(X)
    check_scored(model, found, n, beam_size)
    assert found.tokens.shape[2] <= max_length
    own = np.asarray(found.tokens)[np.asarray(found.is_scored)]
    assert not np.isin(own, [PAD, BEGIN]).any(), "padding and begin token are never predicted"
    first, later = found.sequence_log_probs[:, :-1], found.sequence_log_probs[:, 1:]
    assert (later <= first + 1e-5).all(), "the most probable comes first"
    greedy = model.predict(given_tokens, max_length)
    np.testing.assert_array_equal(greedy, model.generate(given_tokens, 1, max_length).tokens[:, 0])
    scored = model.score_sequences(X, X if has_source(model) else None)
    check_scored(model, scored, n, 1)
    row = data.draw(st.integers(0, n - 1), label="row")
    part = np.asarray(X)[row : row + 1]
    alone = model.score_sequences(part, part if has_source(model) else None)
    np.testing.assert_allclose(alone.log_probs[0], scored.log_probs[row], atol=1e-4)
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copied.predict(given_tokens, max_length), greedy)


@st.composite
def any_tokens(draw):
    shape = (draw(st.integers(0, 3)), draw(st.integers(0, 4)))
    dtype = draw(st.sampled_from([np.int64, np.float64, np.uint8, np.int32]))
    low = 0 if dtype is np.uint8 else -1
    elements = st.integers(low, 8) if dtype is not np.float64 else st.floats(-1, 8)
    return draw(arrays(dtype, shape, elements=elements))


@given(data=st.data())
def test_nonsense_is_refused_by_name(model, data, fuzz, tally):
    tally("fuzzed cases")
    X = np.array([[3, 4, END], [5, END, PAD]])
    y = X if has_source(model) else None
    calls = {
        "predict": {"X": X, "max_length": 4},
        "generate": {"X": X, "beam_size": 2, "max_length": 4},
        "score_sequences": {"X": X, "y": y},
        "score": {"X": X, "y": y},
        "predict_uncertainty": {"X": X},
    }
    method = data.draw(st.sampled_from(sorted(calls)), label="method")
    spoilt = data.draw(st.sampled_from(sorted(calls[method])), label="argument")
    strategy = fuzz.nonsense()
    if spoilt in ("X", "y"):
        strategy = st.one_of(any_tokens(), fuzz.no_rows(X.astype(float)), strategy)
    value = data.draw(strategy, label="value")
    before = model.predict(X)
    with fuzz.refused_by_name(spoilt):
        getattr(model, method)(**{**calls[method], spoilt: value})
    np.testing.assert_array_equal(model.predict(X), before)


TOKENS = np.array([[3, 4, END], [5, END, PAD]])


@given(data=st.data())
def test_nonsense_in_making_one_is_refused_by_name(data, fuzz, tally):
    tally("fuzzed cases")
    members = [network(True, seed) for seed in range(2)]
    names = {
        *inspect.signature(SequenceDistributionDistiller).parameters,
        *("module__hidden_units", "optimizer__betas"),
    } - {"kwargs", "max_epochs"}
    spoilt = data.draw(st.sampled_from(sorted(names)), label="parameter")
    value = data.draw(fuzz.nonsense(), label="value")
    small = {"teacher": members, "module__hidden_units": 3, "max_epochs": 1, "random_state": 0}
    if spoilt.endswith(("threads", "units")) and isinstance(value, int) and value == 10**30:
        return
    with (
        warnings.catch_warnings(),
        fuzz.refused_by_name(spoilt.split("__")[-1], "lr", spoilt),
    ):
        warnings.simplefilter("ignore")
        student = SequenceDistributionDistiller(**{**small, spoilt: value}).fit(TOKENS, TOKENS)
        check_scored(student, student.generate(TOKENS, 2, 4), 2, 2)


@given(data=st.data())
def test_data_that_are_no_tokens_are_refused(data, fuzz, tally):
    tally("fuzzed cases")
    student = SequenceDistributionDistiller(
        [network(True, 0), network(True, 1)], module__hidden_units=3, max_epochs=1, random_state=0
    )
    arguments = {"X": TOKENS, "y": TOKENS, "sample_weight": None}
    spoilt = data.draw(st.sampled_from(sorted(arguments)), label="argument")
    arguments[spoilt] = data.draw(
        st.one_of(any_tokens(), fuzz.no_rows(TOKENS.astype(float))), label="value"
    )
    with warnings.catch_warnings(), fuzz.refused_by_name(spoilt):
        warnings.simplefilter("ignore")
        student.fit(**arguments)
        check_scored(student, student.generate(TOKENS, 2, 4), 2, 2)


@given(data=st.data())
def test_token_error_rates(data, fuzz, tally):
    tally("fuzzed cases")
    said = data.draw(sequences(), label="y_pred")
    rates = token_error_rates(said, said)
    assert (rates == 0).all()
    value = data.draw(st.one_of(any_tokens(), fuzz.nonsense()), label="value")
    spoilt = data.draw(st.sampled_from(["y_true", "y_pred", "pad_token"]), label="argument")
    arguments = {"y_true": said, "y_pred": said, "pad_token": PAD, spoilt: value}
    with fuzz.refused_by_name(spoilt, "padding"):
        rates = token_error_rates(**arguments)
        assert np.isfinite(rates).all()
        assert (rates >= 0).all()
