# SPDX-License-Identifier: BSD-3-Clause
"""Sequence models: generation, and the uncertainty of generated sequences.

Models predict one token after the other. The uncertainty of a sequence is that of its tokens, by
the chain rule, and that of an input is the mean over the sequences that a beam search has found, as
in A. Malinin and M. Gales, "Uncertainty Estimation in Autoregressive Structured Prediction" (ICLR
2021). Members of an ensemble are combined at each token: the probability of a sequence is the
product, over its tokens, of the members' mean probabilities.
"""

from ._predictor import SequenceEnsemble
from ._predictor import SequencePredictor as SequencePredictor
from ._predictor import beam_search as beam_search
from ._scored import ScoredSequences
from ._tokens import TOKENS_RULE as TOKENS_RULE
from ._tokens import SpecialTokens, token_error_rates

__all__ = [
    "token_error_rates",
    "ScoredSequences",
    "SequenceEnsemble",
    "SpecialTokens",
]
