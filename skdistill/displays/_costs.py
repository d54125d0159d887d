# SPDX-License-Identifier: BSD-3-Clause
"""Scores against costs: of students, of a booster round by round, and early in a series."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any, Self

import numpy as np
from sklearn.utils import check_consistent_length

from .._estimator.unwrapping import innermost
from .._utils.typing import ArrayLike, BaseEstimator
from ..model_selection import costs_and_scores, nondominated
from ._display import (
    CLASS_COLORS,
    CONTRAST_COLOR,
    LINE_COLOR,
    REFERENCE_COLOR,
    Axes,
    Display,
    documented_dataclass,
    draw,
    label_log_axis,
    labelled,
    literal,
)

_LABELS = {
    "neg_flops": "FLOPs for a sample",
    "neg_n_parameters": "Number of parameters",
    "neg_latency": "Latency in seconds",
}
_MARKERS = ("o", "s", "^", "D", "v")


@documented_dataclass
class ParetoDisplay(Display):
    """Scores of the candidates of one or several searches against their costs.

    One panel for each pair of a score and a cost, as in Fig 2 of GPED [1]_: the candidates, and a
    line through those on the Pareto front, which no other candidate beats in cost without being
    worse. It compares, say, pruned students with an exhaustive search over widths. A dashed line
    shows the teacher's score, a dotted one the cost of a student of the teacher's architecture.

    Parameters
    ----------
    costs : dict of dict of str to ndarray of shape (n_candidates,)
        ``costs[cost][search]`` are the candidates' costs in the search of that name, smaller is
        better.
    scores : dict of dict of str to ndarray of shape (n_candidates,)
        ``scores[score][search]`` are their mean scores, greater is better. Scores whose name begins
        with "neg\\_" are drawn with the opposite sign.
    teacher_scores : dict of str to float, default=None
        The teacher's score, by the name of the score.
    base_costs : dict of str to float, default=None
        Cost of a student of the teacher's architecture, by the name of the cost.

    Attributes
    ----------
    fronts_, points_ : dict of dict of dict of str to matplotlib Line2D and PathCollection
        ``fronts_[score][cost][search]`` is the line through the Pareto front, `points_` has the
        candidates.

    See Also
    --------
    skdistill.model_selection.pareto_front : The candidates on the front.

    References
    ----------
    .. [1] Vadera, Jalaian, Marlin (2020), "Generalized Bayesian Posterior Expectation Distillation
       for Deep Neural Networks".

    Examples
    --------
    >>> from skdistill.displays import ParetoDisplay
    >>> cv_results = {
    ...     "params": [{}, {}, {}],
    ...     "mean_test_neg_flops": [-1e3, -1e4, -1e5],
    ...     "mean_test_neg_log_loss": [-0.5, -0.3, -0.35],
    ... }
    >>> ParetoDisplay.from_cv_results(cv_results, scores=["neg_log_loss"], costs=["neg_flops"])
    <...ParetoDisplay object at ...>
    """

    costs: dict[str, dict]
    scores: dict[str, dict]
    teacher_scores: Any = None
    base_costs: Any = None

    def plot(self, ax: Any = None, *, point_kwargs: Any = None, **kwargs: object) -> Self:
        """Draw the panels.

        Parameters
        ----------
        ax : array-like of matplotlib Axes, default=None
            One for each pair of a score and a cost, the costs of the first score first. None
            creates a new figure.
        point_kwargs : dict, default=None
            Keywords of `scatter`, for the candidates.
        **kwargs : dict
            Keywords of `plot`, for the lines through the fronts.
        """
        pairs = [(score, cost) for score in self.scores for cost in self.costs]
        axes = self._open_panels(ax, len(pairs), (3.6, 3.4))
        from matplotlib.ticker import EngFormatter

        self.points_: dict[str, dict] = {score: {} for score in self.scores}
        self.fronts_: dict[str, dict] = {score: {} for score in self.scores}
        for panel, (score, cost) in zip(axes, pairs, strict=True):
            if score in (self.teacher_scores or {}):
                value = _sign(score) * self.teacher_scores[score]
                panel.axhline(value, color=REFERENCE_COLOR, linestyle="--", label="teacher")
            if cost in (self.base_costs or {}):
                value = self.base_costs[cost]
                panel.axvline(value, color=REFERENCE_COLOR, linestyle=":", label="base student")
            self._draw_searches(panel, score, cost, point_kwargs, kwargs)
            panel.set(xlabel=_LABELS.get(cost, _plain(cost)), ylabel=_plain(score), xscale="log")
            label_log_axis(panel.xaxis, *panel.get_xlim())
            panel.xaxis.set_major_formatter(EngFormatter(sep=""))  # 20k, 50k
        axes[0].legend(fontsize="small")
        return self

    def _draw_searches(self, ax, score, cost, point_kwargs, front_kwargs):
        points, fronts = self.points_[score], self.fronts_[score]
        points[cost], fronts[cost] = {}, {}
        colors = cycle([LINE_COLOR, CONTRAST_COLOR, *CLASS_COLORS])
        for name, color, marker in zip(self.scores[score], colors, cycle(_MARKERS), strict=False):
            costs, scores = self.costs[cost][name], self.scores[score][name]
            shown, front = _sign(score) * scores, nondominated(costs, scores)
            look = {"color": color, "marker": marker}
            style = {**look, "alpha": 0.35, "s": 25, "linewidth": 0}
            points[cost][name] = draw(ax, "scatter", costs, shown, given=point_kwargs, **style)
            style, at = {**look, "markersize": 5, "label": name}, (costs[front], shown[front])
            fronts[cost][name] = draw(ax, "plot", *at, given=front_kwargs, **style)

    @classmethod
    def from_cv_results(
        cls,
        cv_results: Any,
        *,
        scores: Sequence[str] = ("score",),
        costs: Sequence[str] = ("neg_flops", "neg_n_parameters"),
        teacher_scores: Mapping[str, float] | None = None,
        base_costs: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the candidates of searches.

        Parameters
        ----------
        cv_results : dict
            The ``cv_results_`` of a search, or of several searches by name.
        scores : sequence of str, default=("score",)
            Names of metrics of the searches; "score" is that of a search with one metric.
        costs : sequence of str, default=("neg_flops", "neg_n_parameters")
            Names of costs among the metrics, or of other columns that are better when smaller, see
            :func:`skdistill.model_selection.pareto_front`.
        teacher_scores, base_costs : as in :class:`ParetoDisplay`
        """
        cls._needs_matplotlib("from_cv_results")
        searches = {"candidates": cv_results} if "params" in cv_results else dict(cv_results)
        read = {
            (score, cost, name): costs_and_scores(results, cost, score)
            for score in scores
            for cost in costs
            for name, results in searches.items()
        }
        return cls(
            costs={c: {name: read[scores[0], c, name][0] for name in searches} for c in costs},
            scores={s: {name: read[s, costs[0], name][1] for name in searches} for s in scores},
            teacher_scores=teacher_scores,
            base_costs=base_costs,
        ).plot(**kwargs)


def _sign(score):
    return -1.0 if score.startswith("neg_") else 1.0


def _plain(name):
    return literal(name.removeprefix("neg_").replace("_", " ").capitalize())


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
        Other curves by name, such as that of single networks that cost as much.

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
        """Draw the curves."""
        ax = self._open(ax)
        label = (self.name if name is None else name) or "booster"
        style: dict[str, Any] = {"color": LINE_COLOR, "linewidth": 2, "marker": "o", "label": label}
        self.line_ = draw(ax, "plot", self.costs, self.scores, given=kwargs, **style)
        self.reference_lines_ = {}
        looks = cycle(zip(CLASS_COLORS[1:], _MARKERS[1:], strict=False))
        references = (self.references or {}).items()
        for (label, curve), (color, marker) in zip(references, looks, strict=False):
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
        """Draw both curves."""
        ax, name = self._open(ax), self.name if name is None else name
        of = f"{name}: " if name else ""
        label = labelled(f"{of}accuracy", f"{self.accuracies[-1]:.3f} at the end")
        curve = self.times, self.accuracies
        self.line_ = draw(ax, "plot", *curve, given=kwargs, linewidth=2, label=label)
        style = {"color": self.line_.get_color(), "label": f"{of}share predicted"}
        self.share_line_ = draw(ax, "plot", self.times, self.shares, linestyle="--", **style)
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
