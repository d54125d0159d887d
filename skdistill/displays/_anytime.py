# SPDX-License-Identifier: BSD-3-Clause
"""Predictions of a booster after each round, and early in a series."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils import check_consistent_length

from .._estimator.unwrapping import innermost
from ._drawing import (
    CLASS_COLORS,
    LINE_COLOR,
    REFERENCE_COLOR,
    given_or_new_axes,
    import_pyplot,
    labelled,
    merge_style,
)

_MARKERS = ("s", "^", "D", "v")


@dataclass(kw_only=True, eq=False, repr=False)
class AnytimeDisplay:
    """Score of a booster after each round against what the rounds cost (B-DISTIL [1]_, Fig 2).

    Use :meth:`from_estimator` to create it. All parameters are stored as attributes.

    Parameters
    ----------
    costs : ndarray of shape (n_rounds,)
        Floating-point operations for a row, of all rounds so far.
    scores : ndarray of shape (n_rounds,)
        Score after each round.
    teacher_score : float, default=None
        Score of the teacher, a dashed line.
    references : dict of str to tuple (costs, scores), default=None
        Other curves by name, such as single networks that cost as much (the oracle that knows the
        budget), or the plain average of as many networks.
    name : str, default=None
        Name of the booster in the legend.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The booster's curve.
    teacher_line_ : matplotlib Line2D or None
        The teacher's score.
    reference_lines_ : dict of str to matplotlib Line2D
        The other curves by name.
    ax_, figure_ : matplotlib Axes and Figure
        Where all is drawn.

    See Also
    --------
    skdistill.BDistilBooster : What predicts round by round.

    References
    ----------
    .. [1] "Progressive Knowledge Distillation: Building Ensembles for Efficient Inference".

    Examples
    --------
    >>> from skdistill.displays import AnytimeDisplay
    >>> AnytimeDisplay(costs=[100, 200, 300], scores=[0.8, 0.88, 0.9], teacher_score=0.91).plot()
    <...AnytimeDisplay object at ...>
    """

    costs: np.ndarray
    scores: np.ndarray
    teacher_score: float | None = None
    references: dict[str, tuple] | None = None
    name: str | None = None

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None creates a new figure.
        name : str, default=None
            Name of the booster in the legend; None uses the stored one.
        **kwargs : dict
            Keywords of `plot`, for the booster's curve.

        Returns
        -------
        display : AnytimeDisplay
            The display itself.
        """
        ax = given_or_new_axes(ax, f"{type(self).__name__}.plot")
        from matplotlib.lines import Line2D

        name = self.name if name is None else name
        defaults = {"color": LINE_COLOR, "linewidth": 2, "marker": "o"}
        style = merge_style(Line2D, {**defaults, "label": name or "booster"}, kwargs)
        self.line_ = ax.plot(self.costs, self.scores, **style)[0]
        self.reference_lines_ = {}
        looks = itertools.cycle(zip(CLASS_COLORS[1:], _MARKERS, strict=False))
        for label, curve in (self.references or {}).items():
            color, marker = next(looks)
            self.reference_lines_[label] = ax.plot(
                *curve, color=color, marker=marker, linestyle=":", label=label
            )[0]
        self.teacher_line_ = None
        if self.teacher_score is not None:
            self.teacher_line_ = ax.axhline(
                self.teacher_score, color=REFERENCE_COLOR, linestyle="--", label="teacher"
            )
        ax.set(xlabel="Floating-point operations for a row", ylabel="Score")
        ax.set_xlim(left=0)
        ax.legend(fontsize="small")
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        teacher_score: float | None = None,
        references: Any = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw what a fitted booster scores after each round.

        Parameters
        ----------
        estimator : estimator
            Fitted :class:`skdistill.BDistilBooster`, or a Pipeline or a search around one.
        X : array-like of shape (n_samples, n_features)
            Rows, preferably held out.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            True labels or values.
        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.
        teacher_score, references : as in :class:`AnytimeDisplay`
        name : str, default=None
            Name of the booster in the legend; None uses the name of its class.
        **kwargs : dict
            Keywords of :meth:`plot`, such as `ax`.

        Returns
        -------
        display : AnytimeDisplay
            The display, drawn.
        """
        import_pyplot(f"{cls.__name__}.from_estimator")
        booster, X, _ = innermost(estimator, X, "staged_score")
        display = cls(
            costs=np.cumsum([found.flop for found in booster.rounds_]),
            scores=booster.staged_score(X, y, sample_weight),
            teacher_score=teacher_score,
            references=references,
            name=type(estimator).__name__ if name is None else name,
        )
        return display.plot(**kwargs)


@dataclass(kw_only=True, eq=False, repr=False)
class EarlyPredictionDisplay:
    """How many series are predicted by each time step, and how many of these rightly [1]_.

    Use :meth:`from_estimator` or :meth:`from_predictions` to create it. All parameters are stored
    as attributes.

    Parameters
    ----------
    times : ndarray of shape (n_times,)
        Share of the time that has passed at each step, from 1 / n_times to 1.
    shares : ndarray of shape (n_times,)
        Share of the series that have been predicted by then.
    accuracies : ndarray of shape (n_times,)
        Accuracy among them; NaN where there are none.
    name : str, default=None
        Name of the model in the legend.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The accuracy.
    share_line_ : matplotlib Line2D
        The share that is predicted.
    ax_, figure_ : matplotlib Axes and Figure
        Where all is drawn.

    See Also
    --------
    skdistill.BDistilBooster.predict_early : What predicts early.

    References
    ----------
    .. [1] "Progressive Knowledge Distillation: Building Ensembles for Efficient Inference",
           Table 1.

    Examples
    --------
    >>> from skdistill.displays import EarlyPredictionDisplay
    >>> EarlyPredictionDisplay.from_predictions(
    ...     y_true=[0, 1, 1, 0], y_pred=[0, 1, 0, 0], steps=[2, 3, 3, 5], n_times=5
    ... )
    <...EarlyPredictionDisplay object at ...>
    """

    times: np.ndarray
    shares: np.ndarray
    accuracies: np.ndarray
    name: str | None = None

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        """Draw both curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on. None creates a new figure.
        name : str, default=None
            Name of the model in the legend; None uses the stored one.
        **kwargs : dict
            Keywords of `plot`, for the accuracy.

        Returns
        -------
        display : EarlyPredictionDisplay
            The display itself.
        """
        ax = given_or_new_axes(ax, f"{type(self).__name__}.plot")
        from matplotlib.lines import Line2D

        name = self.name if name is None else name
        last = f"{self.accuracies[-1]:.3f} at the end"
        label = labelled(f"{name}: accuracy" if name else "accuracy", last)
        style = merge_style(Line2D, {"linewidth": 2, "label": label}, kwargs)
        self.line_ = ax.plot(self.times, self.accuracies, **style)[0]
        self.share_line_ = ax.plot(
            self.times,
            self.shares,
            color=self.line_.get_color(),
            linestyle="--",
            label=f"{name}: share predicted" if name else "share predicted",
        )[0]
        ax.set(xlabel="Share of the time", ylabel="Accuracy, share predicted", xlim=(0, 1))
        ax.set_ylim(0, 1.05)
        ax.legend(fontsize="small", loc="lower right")
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        threshold: float = 0.9,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw how early a fitted booster predicts series.

        Parameters
        ----------
        estimator : estimator
            Fitted :class:`skdistill.BDistilBooster` with ``early=True``, or a Pipeline or a search
            around one.
        X : array-like of shape (n_samples, n_times, n_channels)
            Series, preferably held out.
        y : array-like of shape (n_samples,)
            True labels.
        threshold : float, default=0.9
            Probability of a class at which a series is predicted.
        name : str, default=None
            Name of the model in the legend; None uses the name of its class.
        **kwargs : dict
            Keywords of :meth:`plot`, such as `ax`.

        Returns
        -------
        display : EarlyPredictionDisplay
            The display, drawn.
        """
        import_pyplot(f"{cls.__name__}.from_estimator")
        booster, X, _ = innermost(estimator, X, "predict_early")
        y_pred, steps = booster.predict_early(X, threshold)
        name = type(estimator).__name__ if name is None else name
        return cls.from_predictions(y, y_pred, steps, np.shape(X)[1], name=name, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_pred: Any,
        steps: Any,
        n_times: int,
        *,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw how early given predictions were made.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            True labels.
        y_pred : array-like of shape (n_samples,)
            Predicted labels.
        steps : array-like of shape (n_samples,)
            How many time steps had been read, from 1 to `n_times`.
        n_times : int
            Length of the series.
        name : str, default=None
            Name of the model in the legend.
        **kwargs : dict
            Keywords of :meth:`plot`, such as `ax`.

        Returns
        -------
        display : EarlyPredictionDisplay
            The display, drawn.
        """
        import_pyplot(f"{cls.__name__}.from_predictions")
        check_consistent_length(y_true, y_pred, steps)
        steps = np.asarray(steps)
        is_right = np.asarray(y_true) == np.asarray(y_pred)
        done = np.cumsum(np.bincount(steps, minlength=n_times + 1))[1:]
        right = np.cumsum(np.bincount(steps, is_right, minlength=n_times + 1))[1:]
        display = cls(
            times=np.arange(1, n_times + 1) / n_times,
            shares=done / len(steps),
            accuracies=np.divide(right, done, np.full(n_times, np.nan), where=done > 0),
            name=name,
        )
        return display.plot(**kwargs)
