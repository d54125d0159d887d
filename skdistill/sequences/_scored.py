# SPDX-License-Identifier: BSD-3-Clause
"""Sequences with the probabilities and uncertainties of their tokens."""

from dataclasses import dataclass

import numpy as np

from ..distributions import Uncertainty


@dataclass(frozen=True, eq=False)  # the == of arrays has no single truth value
class ScoredSequences:
    r"""Sequences, B for each row of input, and the uncertainty with which they were predicted.

    A token :math:`y_t` is predicted from those before it, and the uncertainty of a sequence is the
    sum of those of its tokens. The uncertainty of a row is the mean over its sequences, each
    weighted by its probability among the B [1]_:

    .. math::

       \sum_b \pi_b \, \frac{1}{L_b} \sum_{t=1}^{L_b} u(y_t \mid y_{<t}, x),
       \qquad \pi_b = \frac{P(y^{(b)} \mid x)}{\sum_c P(y^{(c)} \mid x)}.

    Over all sequences, and with sums in place of the means over tokens, that is the chain rule: the
    entropy and the reverse mutual information of the whole sequence, exactly.

    Parameters
    ----------
    tokens : ndarray of int64 of shape (n, B, T)
        Sequences, the most probable first, padded at the end.
    is_scored : ndarray of bool of shape (n, B, T)
        Tokens that were predicted: neither padding nor given.
    log_probs : ndarray of shape (n, B, T)
        Log probabilities of the tokens in nats, 0 for those that are not scored. Where a row
        has fewer than B sequences, the missing ones begin with ``-inf``.
    token_uncertainty : Uncertainty
        Arrays of shape (n, B, T), in nats: the entropy of the next token's expected distribution
        (EoE), its expected entropy, and the mutual information, the difference of the two. The
        parts are None where the model cannot tell them.
    token_reverse_mutual_information : ndarray of shape (n, B, T) or None
        Expected divergence of the expected distribution from the members': RMI, in nats.

    References
    ----------
    .. [1] A. Malinin and M. Gales, "Uncertainty Estimation in Autoregressive Structured
       Prediction", ICLR 2021, Section 3.
    """

    tokens: np.ndarray
    is_scored: np.ndarray
    log_probs: np.ndarray
    token_uncertainty: Uncertainty
    token_reverse_mutual_information: np.ndarray | None

    @property
    def sequence_log_probs(self) -> np.ndarray:
        """Log probabilities of the sequences, of shape (n, B), in nats."""
        return self.log_probs.sum(-1)

    @property
    def weights(self) -> np.ndarray:
        """Share of each sequence in the probability of all B, of shape (n, B)."""
        log_probs = self.sequence_log_probs
        shares = np.exp(log_probs - log_probs.max(1, keepdims=True))
        return shares / shares.sum(1, keepdims=True)

    def uncertainty(self, per_token: bool = True) -> Uncertainty:
        """Uncertainty of the rows, and its parts.

        Parameters
        ----------
        per_token : bool, default=True
            Whether to average over the tokens of a sequence; else they add up.

        Returns
        -------
        Uncertainty
            Arrays of shape (n,), in nats: entropy of the expected distributions, expected entropy,
            mutual information. The parts are None if the model has none.
        """
        total, aleatoric, epistemic = (
            None if part is None else self._of_rows(part, per_token)
            for part in self.token_uncertainty
        )
        return Uncertainty(total, aleatoric, epistemic, measure="entropy")

    def reverse_mutual_information(self, per_token: bool = True) -> np.ndarray | None:
        """Expected divergence of the prediction from the members': RMI, in nats.

        Parameters
        ----------
        per_token : as in :meth:`uncertainty`

        Returns
        -------
        information : ndarray of shape (n,), or None if the model has no members
        """
        information = self.token_reverse_mutual_information
        return None if information is None else self._of_rows(information, per_token)

    def expected_pairwise_kl(self, per_token: bool = True) -> np.ndarray | None:
        """Expected divergence between two members, in nats: the sum of both mutual informations.

        Parameters
        ----------
        per_token : as in :meth:`uncertainty`

        Returns
        -------
        divergence : ndarray of shape (n,), or None if the model has no members
        """
        reverse = self.reverse_mutual_information(per_token)
        return None if reverse is None else self.uncertainty(per_token).epistemic + reverse

    def surprise(self, per_token: bool = True) -> np.ndarray:
        """Negative log probability of the sequences, in nats: a total uncertainty.

        Parameters
        ----------
        per_token : as in :meth:`uncertainty`

        Returns
        -------
        surprise : ndarray of shape (n,)
        """
        return self._of_rows(-self.log_probs, per_token)

    def _of_rows(self, values: np.ndarray, per_token: bool) -> np.ndarray:
        """Mean over sequences of the values (n, B, T) of their tokens."""
        sums = values.sum(-1)
        if per_token:
            sums = sums / np.maximum(self.is_scored.sum(-1), 1)
        weights = self.weights
        return (weights * np.where(weights > 0, sums, 0)).sum(-1)
