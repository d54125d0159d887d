# SPDX-License-Identifier: BSD-3-Clause
"""What every display keeps to."""

from __future__ import annotations

import inspect
import sys
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skdistill import displays
from skdistill.displays import FidelityDisplay, UncertaintyBandDisplay

OF_ONE_AXES = (UncertaintyBandDisplay,)
OF_A_ROW = {FidelityDisplay: 3}  # axes each

all_displays = pytest.mark.parametrize("cls", [*OF_ONE_AXES, *OF_A_ROW], ids=lambda c: c.__name__)
of_one_axes = pytest.mark.parametrize("cls", OF_ONE_AXES, ids=lambda c: c.__name__)
of_a_row = pytest.mark.parametrize("cls", OF_A_ROW, ids=lambda c: c.__name__)


@pytest.fixture
def draw(make_data, make_classes):
    """Draws a display of a model that suits it, perhaps wrapped in something."""

    def from_estimator(cls, wrap=lambda model: model, **kwargs):
        model, X, y = (make_data if cls is UncertaintyBandDisplay else make_classes)()
        if cls is FidelityDisplay:
            return cls.from_estimators(wrap(model), model, X, reference=model, **kwargs)
        return cls.from_estimator(wrap(model), X, y, **kwargs)

    return from_estimator


def test_every_display_is_held_to_this():
    assert {cls.__name__ for cls in [*OF_ONE_AXES, *OF_A_ROW]} == set(displays.__all__)


@of_one_axes
def test_axes_are_used_when_given_and_made_when_not(cls, draw):
    _, axes = plt.subplots(1, 2)
    display = draw(cls, ax=axes[1])
    assert display.ax_ is axes[1]
    assert display.figure_ is axes[1].figure
    assert not axes[0].lines
    assert draw(cls).ax_ not in axes
    assert display.plot(ax=axes[0]) is display
    assert display.ax_ is axes[0]


@of_a_row
def test_rows_of_axes_are_used_when_given_and_made_when_not(cls, draw):
    _, axes = plt.subplots(2, OF_A_ROW[cls])
    display = draw(cls, ax=axes[1])
    assert list(display.axes_) == list(axes[1])
    assert display.figure_ is axes[1, 0].figure
    assert all(ax.has_data() for ax in axes[1])
    assert not any(ax.has_data() for ax in axes[0])
    assert len(draw(cls).axes_) == OF_A_ROW[cls]
    assert display.plot(ax=axes[0]) is display
    assert list(display.axes_) == list(axes[0])


@all_displays
def test_axes_are_labelled(cls, draw):
    display = draw(cls)
    axes = display.axes_ if cls in OF_A_ROW else [display.ax_]
    assert all(ax.get_xlabel() for ax in axes)
    assert axes[0].get_ylabel()


@all_displays
def test_parameters_are_stored_and_suffice_to_draw_again(cls, draw):
    display = draw(cls)
    parameters = list(inspect.signature(cls).parameters)
    again = cls(**{name: getattr(display, name) for name in parameters})
    assert vars(again).keys() == set(parameters)
    assert vars(again.plot()).keys() == vars(display).keys()


WRAPS = {
    "Pipeline": lambda model: make_pipeline(
        FunctionTransformer(partial(np.multiply, 2.0)).fit([[1.0]]), model
    ),
    "FrozenEstimator": FrozenEstimator,
}


@all_displays
@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_meta_estimators(cls, wrap, draw):
    display = draw(cls, wrap)
    assert isinstance(display, cls)
    if cls in OF_ONE_AXES:
        assert display.name in WRAPS


@all_displays
@pytest.mark.parametrize("method", ["from", "plot"])
def test_without_matplotlib(cls, method, draw, monkeypatch):
    display = draw(cls)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    message = rf"{cls.__name__}.{method}\w* needs matplotlib: pip install skdistill\[plot\]"
    with pytest.raises(ImportError, match=message):
        display.plot() if method == "plot" else draw(cls)
