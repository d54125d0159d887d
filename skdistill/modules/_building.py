# SPDX-License-Identifier: BSD-3-Clause
"""Building networks from seeds."""

import inspect
from collections.abc import Callable, Sequence

import torch
from torch import nn

from .._utils.process import ProcessLock

# Modules that draw from torch's global generator are built, and trained, one at a time.
GLOBAL_GENERATOR_LOCK = ProcessLock()


def build_member(module: Callable[..., nn.Module], seed: int, **kwargs) -> nn.Module:
    """Build one network with weights drawn from `seed`.

    `module` is called with those of ``in_features``, ``out_features`` and ``generator`` that its
    signature takes, and with whatever the user gave. Torch's global generator stays as it was.
    """
    (member,) = build_members(module, [seed], **kwargs)
    return member


def build_members(
    module: Callable[..., nn.Module], seeds: Sequence[int], **kwargs
) -> list[nn.Module]:
    """Build a network for each seed, as :func:`build_member` does; equal seeds share one."""
    accepted = inspect.signature(module).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
    for width in ("in_features", "out_features"):
        if not takes_any and width not in accepted:
            kwargs.pop(width, None)

    def build(seed: int) -> nn.Module:
        if "generator" in accepted:
            return module(generator=torch.Generator().manual_seed(seed), **kwargs)
        with GLOBAL_GENERATOR_LOCK.held(), torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed GPUs too
            return module(**kwargs)

    built = {seed: build(seed) for seed in dict.fromkeys(seeds)}
    return [built[seed] for seed in seeds]
