# SPDX-License-Identifier: BSD-3-Clause
"""Predictions of a booster after each round, and early in a series."""

import itertools
from typing import Any, Self

import numpy as np
from sklearn.utils import check_consistent_length

from .._estimator.unwrapping import innermost
from .._utils.typing import ArrayLike, BaseEstimator
from ._display import Display, documented_dataclass
from ._drawing import CLASS_COLORS, LINE_COLOR, REFERENCE_COLOR, Axes, draw, labelled

_MARKERS = ("s", "^", "D", "v")


@documented_dataclass
class AnytimeDisplay(Display):
    """Score of a booster after each round against what the rounds cost (B-DISTIL [1]_, Fig 2).

    Parameters
    ----------
    costs, scores : ndarray of shape (n_rounds,)
        Floating-point operations for a sample, of all rounds so far, and score after each round.
    teacher_score : float, default=None
        Score of the teacher, a dashed line.
    references : dict of str to tuple (costs, scores), default=None
        Other curves by name, such as single networks that cost as much (the oracle that knows the
        budget), or the plain average of as many networks.

    Attributes
    ----------
    line_, teacher_line_ : matplotlib Line2D
        The booster's curve, and the teacher's score or None.
    reference_lines_ : dict of str to matplotlib Line2D
        The other curves by name.

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

    def plot(self, ax: Axes | None = None, *, name: str | None = None, **kwargs: object) -> Self:
        """Draw the curves.

        Parameters
        ----------
        **kwargs : dict
            Keywords of `plot`, for the booster's curve.
        """
        ax = self._open(ax)
        label = (self.name if name is None else name) or "booster"
        style: dict[str, Any] = {"color": LINE_COLOR, "linewidth": 2, "marker": "o", "label": label}
        self.line_ = draw(ax, "plot", self.costs, self.scores, given=kwargs, **style)
        self.reference_lines_ = {}
        looks = itertools.cycle(zip(CLASS_COLORS[1:], _MARKERS, strict=False))
        for label, curve in (self.references or {}).items():
            color, marker = next(looks)
            style = {"color": color, "marker": marker, "linestyle": ":", "label": label}
            self.reference_lines_[label] = draw(ax, "plot", *curve, **style)
        self.teacher_line_ = None
        if self.teacher_score is not None:
            style = {"color": REFERENCE_COLOR, "linestyle": "--", "label": "teacher"}
            self.teacher_line_ = ax.axhline(self.teacher_score, **style)
        ax.set(xlabel="Floating-point operations for a sample", ylabel="Score")
        ax.set_xlim(left=0)
        ax.legend(fontsize="small")
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: ArrayLike,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
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
        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.
        teacher_score, references : as in :class:`AnytimeDisplay`
        """
        cls._needs_matplotlib("from_estimator")
        booster, X, _ = innermost(estimator, X, "staged_score")
        return cls(
            costs=np.cumsum([found.flop for found in booster.rounds_]),
            scores=booster.staged_score(X, y, sample_weight),
            teacher_score=teacher_score,
            references=references,
            name=type(estimator).__name__ if name is None else name,
        ).plot(**kwargs)


@documented_dataclass
class EarlyPredictionDisplay(Display):
    """How many series are predicted by each time step, and how many of these rightly [1]_.

    Parameters
    ----------
    times, shares, accuracies : ndarray of shape (n_times,)
        Share of the time that has passed at each step, from 1 / n_times to 1; share of the series
        that have been predicted by then; and accuracy among them, NaN where there are none.

    Attributes
    ----------
    line_, share_line_ : matplotlib Line2D
        The accuracy, and the share that is predicted.

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

    def plot(self, ax: Axes | None = None, *, name: str | None = None, **kwargs: object) -> Self:
        """Draw both curves.

        Parameters
        ----------
        **kwargs : dict
            Keywords of `plot`, for the accuracy.
        """
        ax = self._open(ax)
        name = self.name if name is None else name
        of = f"{name}: " if name else ""
        label = labelled(f"{of}accuracy", f"{self.accuracies[-1]:.3f} at the end")
        curve = self.times, self.accuracies
        self.line_ = draw(ax, "plot", *curve, given=kwargs, linewidth=2, label=label)
        style = {"color": self.line_.get_color(), "linestyle": "--"}
        style["label"] = f"{of}share predicted"
        self.share_line_ = draw(ax, "plot", self.times, self.shares, **style)
        ax.set(xlabel="Share of the time", ylabel="Accuracy, share predicted", xlim=(0, 1))
        ax.set_ylim(0, 1.05)
        ax.legend(fontsize="small", loc="lower right")
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: ArrayLike,
        y: ArrayLike,
        *,
        threshold: float = 0.9,
        name: str | None = None,
        **kwargs: object,
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
        """
        cls._needs_matplotlib("from_estimator")
        booster, X, _ = innermost(estimator, X, "predict_early")
        y_pred, steps = booster.predict_early(X, threshold)
        name = type(estimator).__name__ if name is None else name
        return cls.from_predictions(y, y_pred, steps, np.shape(X)[1], name=name, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        steps: ArrayLike,
        n_times: int,
        *,
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw how early given predictions were made.

        Parameters
        ----------
        y_true, y_pred : array-like of shape (n_samples,)
            True and predicted labels.
        steps : array-like of shape (n_samples,)
            How many time steps had been read, from 1 to `n_times`.
        n_times : int
            Length of the series.
        """
        check_consistent_length(y_true, y_pred, steps)
        steps = np.asarray(steps)
        is_right = np.asarray(y_true) == np.asarray(y_pred)
        done = np.cumsum(np.bincount(steps, minlength=n_times + 1))[1:]
        right = np.cumsum(np.bincount(steps, is_right, minlength=n_times + 1))[1:]
        return cls(
            times=np.arange(1, n_times + 1) / n_times,
            shares=done / len(steps),
            accuracies=np.divide(right, done, np.full(n_times, np.nan), where=done > 0),
            name=name,
        ).plot(**kwargs)
