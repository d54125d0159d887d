# SPDX-License-Identifier: BSD-3-Clause
"""The bound on what one sample can do: nothing below the limit, the logarithm beyond."""

from __future__ import annotations

import math

import torch

from skdistill import losses


def test_below_the_limit_nothing_changes_to_the_last_bit():
    loss, gradient = torch.linspace(-40, 300, 50).float(), torch.randn(50, 4)
    found = losses.log_tailed_clip(loss, gradient, 300.0)
    assert torch.equal(found[0], loss)
    assert torch.equal(found[1], gradient)


def test_beyond_the_limit_it_is_the_logarithm_with_its_gradient():
    # Of the loss exp(z), whose gradient in z is itself.
    row = torch.tensor([0.0, 2.0, 5.0, 40.0], dtype=torch.float64).exp()
    loss, gradient = losses.log_tailed_clip(row, row.unsqueeze(-1), 10.0)
    expected = [1.0, math.exp(2), 10 * (1 + 5 - math.log(10)), 10 * (1 + 40 - math.log(10))]
    torch.testing.assert_close(loss.tolist(), expected)
    torch.testing.assert_close(gradient.squeeze(-1).tolist(), [1.0, math.exp(2), 10.0, 10.0])
