# SPDX-License-Identifier: BSD-3-Clause
"""Networks, and stacks of networks that are trained and evaluated as one.

A *stack* is one module that holds S networks of the same architecture. Every parameter of it has
a leading member axis, so that slice ``m`` of every parameter is member ``m``, and one batched
product does the work of S small ones. Everything the engine trains is a stack; a single student
is a stack of one.

Stacks map samples of shape (S, n, ...), one set of samples for each member, or (1, n, ...), samples
that the members share, to outputs of shape (S, n, ...). Wherever a stack has two leading axes,
members and heads, the same holds for both.
"""

from ._connections import CONNECTIONS, Booster, Learner, Rounds
from ._convolutional import ConvNet, ResNet
from ._function_draws import FunctionDraws, Gaps, UnknownDraws
from ._inputs import InputEncoder
from ._models import (
    CategoricalStack,
    DistributionStack,
    GaussianStack,
    MultiHead,
    activations_per_row,
    count_flop,
    flop_per_row,
    n_parameters,
    parts_of,
    split_head,
    widest_activation,
)
from ._networks import (
    ACTIVATIONS,
    ELEMENTWISE,
    GLOBAL_GENERATOR_LOCK,
    MLP,
    PiecewiseLinear,
    ResidualLayer,
    build_member,
    build_members,
)
from ._random import DropoutHead, GaussianHead, RandomHead, with_dropout
from ._recurrent import Recurrent, RecurrentSequenceModel
from ._stacks import (
    SharedLinear,
    StackedActivation,
    StackedLinear,
    StackedModule,
    StackedSequential,
    first_parameter,
    is_plain_sequential,
    member_state,
    shares_weights,
    stack,
    unstack,
    weights_and_fan_ins,
)
from ._tabm import TabM

# What users call by name; the rest is for the layers above.
__all__ = [
    "MLP",
    "ConvNet",
    "ResNet",
    "Recurrent",
    "RecurrentSequenceModel",
    "PiecewiseLinear",
    "TabM",
    "n_parameters",
    "stack",
]
