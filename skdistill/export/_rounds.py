# SPDX-License-Identifier: BSD-3-Clause
"""Rounds of a booster as ONNX graphs, for servers that stop after as many as there is time for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .._serialization.atomic import check_folder, write_atomically
from ..distillers import BDistilBooster
from ._graph import graph_of, with_facts
from ._outputs import GraphOutputs, RoundOutputs


def export_rounds(booster: Any, folder: Any, quantiles: Any = None) -> list[Path]:
    """Write one ONNX graph for each round of a booster.

    The first takes rows `X`; each of the others takes `X` and the state that the one before it has
    left. All give the outputs of :func:`export_onnx`, of the rounds so far together, and a state
    for the next: outputs ``next_<name>`` for its inputs ``<name>``, which are `so_far`, the mean
    of the rounds' outputs, and `activations_<round>`, of the earlier rounds that later ones read.

    Parameters
    ----------
    booster : BDistilBooster
        A fitted one, or a FrozenEstimator around it. Other steps of a Pipeline are not exported.
    folder : path-like
        Where to write ``round_1.onnx``, ``round_2.onnx`` and so on. It must exist.
    quantiles
        As in :func:`export_onnx`.

    Returns
    -------
    paths : list of Path
        The files, round by round.

    Raises
    ------
    ImportError
        If onnx or onnxscript are not installed: ``pip install skdistill[onnx]``.
    TypeError
        If `booster` is no :class:`BDistilBooster`.
    ValueError
        If the booster is a classifier and so has no quantiles.
    FileNotFoundError
        If `folder` does not exist.

    Examples
    --------
    An anytime server runs the graphs in turn::

        given = {"X": rows}
        for session in sessions:  # one onnxruntime.InferenceSession for each file
            names = [output.name for output in session.get_outputs()]
            found = dict(zip(names, session.run(None, given)))
            if there_is_no_more_time():
                break
            state = {name: found[name] for name in names if name.startswith("next_")}
            given = {"X": rows} | {name[5:]: value for name, value in state.items()}
    """
    booster = booster.estimator if isinstance(booster, FrozenEstimator) else booster
    if not isinstance(booster, BDistilBooster):
        raise TypeError(f"booster must be a BDistilBooster, got {type(booster).__name__}.")
    check_is_fitted(booster)
    graph_outputs = GraphOutputs(booster, quantiles)
    paths = [Path(folder) / f"round_{number + 1}.onnx" for number in range(booster.n_rounds_)]
    check_folder(paths[0])
    state: dict[str, Tensor] = {}
    for number, path in enumerate(paths, start=1):
        of_round = RoundOutputs(graph_outputs, number, state)
        state = of_round.state
        proto = with_facts(graph_of(of_round), booster, graph_outputs)
        write_atomically(path, proto.SerializeToString())
    return paths
