# SPDX-License-Identifier: BSD-3-Clause
"""Calibration of a fitted student on rows that were held out, for the parameter `calibrate`."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from .._reading import read_in_chunks
from .._tasks import Numbers
from .._warnings import warn
from ..distributions import EmpiricalCategorical, EmpiricalGaussian
from ._setup import Setup
from ._stage import Stage
from ._teacher import MemberPredictions

# Epistemic parts count as at least this much: their powers, which may be negative, stay finite.
_LEAST = 1e-30

_LOG_LEAST = math.log(_LEAST)

# Limits of a temperature; how little its loss changes when it is found; and by how little, in
# proportion, the last of at most so many rounds changes a calibration.
_TEMPERATURES = (0.01, 100.0)
_TOLERANCE = 1e-12
_CONVERGED, _MOST_ROUNDS = 1e-5, 30


@dataclass(frozen=True)
class Calibration:
    """What turns a student's distribution into a calibrated one.

    The members' densities, or probabilities, are raised to the power ``1 / temperature``, which
    multiplies the aleatoric variance of numbers by the temperature, and divides the logits of
    classes by it. Then the epistemic part e becomes ``scale * e ** power``: exactly for numbers,
    and nearly for classes, whose spread is multiplied so that it would if it were small.

    Parameters
    ----------
    scale, power, temperature : float or tuple of float, default=1.0
        One for each target of several. Variances of numbers are in units of their variance in
        training if ``normalize_y`` is true.
    """

    scale: Any = 1.0
    power: Any = 1.0
    temperature: Any = 1.0

    def __call__(self, distribution: Any) -> Any:
        """Return the calibrated distribution, of the same kind."""
        tempered = distribution.tempered(self.temperature)
        epistemic = tempered.uncertainty().epistemic.clamp(min=_LEAST)
        like = {"dtype": epistemic.dtype, "device": epistemic.device}
        scale, power = (torch.as_tensor(v, **like) for v in (self.scale, self.power))
        return tempered.widened(scale * epistemic ** (power - 1))


def calibrate(distiller: Any, setup: Setup, predictions: MemberPredictions) -> None:
    """Calibrate the fitted student on the rows that `setup` has held out, if it has."""
    if setup.held_out is None:
        return
    assert predictions.predict is not None  # member_predictions are refused
    module, task = distiller.module_, distiller._plan.task
    X, y, weight = setup.held_out
    X, y, _ = Stage(goes_on=True, task=task).begin(distiller, X, y)
    weight = task.weights_of_rows(y, weight)
    outputs = read_in_chunks(module, X, lambda outputs: outputs.transpose(0, 1), raw=True)
    found = fit_calibration(
        module.read(torch.from_numpy(outputs).transpose(0, 1).double()),
        _distribution_of(task, torch.from_numpy(predictions.predict(X)).double()),
        torch.from_numpy(task.encode(y, setup.scaling, np.float64)),
        torch.ones(len(X)).double() if weight is None else torch.from_numpy(weight),
    )
    if np.min(found.power) == 0:
        warn(
            "The student's epistemic uncertainty does not rise with its members' on the rows that "
            "calibrate holds out, and is constant now.",
        )
    distiller.calibration_ = module.calibration = found
    distiller._plan = replace(distiller._plan, calibration=found)


def _distribution_of(task: Any, members: Tensor) -> Any:
    """Return encoded predictions of members, (n, S, ...), as a distribution."""
    members = members.transpose(0, 1)
    if isinstance(task, Numbers):
        return EmpiricalGaussian(*members.unbind(-1))
    return EmpiricalCategorical(members)


def fit_calibration(student: Any, members: Any, y: Tensor, weight: Tensor) -> Calibration:
    """Fit the calibration of a student.

    The map is the line through the logarithms of its epistemic part and of the members', by least
    squares, with a slope that is not negative; rows where either is 0 do not count. The temperature
    is that of the largest likelihood of the labels. The two are fitted in turn: for numbers the
    first round is exact, as the map does not depend on the temperature.

    Parameters
    ----------
    student, members : distribution
        Predictions for n rows, in float64, of the student and of its teacher's members.
    y : Tensor of shape (n, t), or of int64 of shape (n,)
        Targets, or codes of classes.
    weight : Tensor of shape (n,)

    Returns
    -------
    Calibration
    """
    share = (weight / weight.sum()).unsqueeze(-1)
    goal = _logarithm(members)
    found = Calibration(*[_plain(torch.ones(goal.shape[1]))] * 3)
    for _ in range(_MOST_ROUNDS):
        before = found
        found = _with_temperature(_with_map(found, student, goal, share), student, y, share)
        if np.allclose(astuple(found), astuple(before), rtol=_CONVERGED):
            break
    return found


def _with_map(found: Calibration, student: Any, goal: Tensor, share: Tensor) -> Calibration:
    """Move scale and power towards the line: all the way where the epistemic part has them."""
    own = _logarithm(student.tempered(found.temperature))
    missing = goal - _logarithm(found(student))
    share = share * ((goal > _LOG_LEAST) & (own > _LOG_LEAST))
    share = share / share.sum(0).clamp(min=_LEAST)
    centre = (share * own).sum(0)
    variance = (share * (own - centre).square()).sum(0)
    covariance = (share * (own - centre) * missing).sum(0)
    power = torch.as_tensor(found.power, dtype=torch.float64)
    rise = torch.where(variance > _LEAST, covariance / variance, 0.0).clamp(min=-power)
    factor = ((share * missing).sum(0) - rise * centre).exp()
    scale = torch.as_tensor(found.scale, dtype=torch.float64) * factor
    return replace(found, scale=_plain(scale), power=_plain(power + rise))


def _with_temperature(found: Calibration, student: Any, y: Tensor, share: Tensor) -> Calibration:
    """Take the temperature of the largest likelihood, for this map."""

    def tempered(logarithm: np.ndarray) -> Calibration:
        return replace(found, temperature=_plain(torch.from_numpy(logarithm).exp()))

    def loss(logarithm: np.ndarray) -> float:
        log_prob = tempered(logarithm)(student).log_prob(y)
        return -(share * log_prob.view(len(y), -1)).sum().item()

    start = np.log(np.atleast_1d(found.temperature))
    limits = [tuple(np.log(_TEMPERATURES))] * len(start)
    return tempered(minimize(loss, start, bounds=limits, tol=_TOLERANCE).x)


def _logarithm(distribution: Any) -> Tensor:
    """Logarithm of the epistemic part, (n, t), or (n, 1) for classes."""
    epistemic = distribution.uncertainty().epistemic
    return epistemic.reshape(len(epistemic), -1).clamp(min=_LEAST).log()


def _plain(values: Tensor) -> float | tuple[float, ...]:
    """Return one number as such, several as a tuple."""
    return values.item() if len(values) == 1 else tuple(values.tolist())
