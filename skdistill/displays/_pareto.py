# SPDX-License-Identifier: BSD-3-Clause
"""Scores of students against their costs."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any, Self

from ..model_selection import costs_and_scores, nondominated
from ._display import Display, documented_dataclass
from ._drawing import (
    CLASS_COLORS,
    CONTRAST_COLOR,
    LINE_COLOR,
    REFERENCE_COLOR,
    draw,
    label_log_axis,
)

_LABELS = {
    "neg_flops": "FLOPs for a sample",
    "neg_n_parameters": "Number of parameters",
    "neg_latency": "Latency in seconds",
}
# Artists by score, cost and search.
Drawn = dict[str, dict[str, dict[str, Any]]]

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

        self.points_: Drawn = {score: {cost: {} for cost in self.costs} for score in self.scores}
        self.fronts_: Drawn = {score: {cost: {} for cost in self.costs} for score in self.scores}
        for panel, (score, cost) in zip(axes, pairs, strict=True):
            self._draw_references(panel, score, cost)
            self._draw_searches(panel, score, cost, point_kwargs, kwargs)
            panel.set(xlabel=_LABELS.get(cost, _plain(cost)), ylabel=_plain(score), xscale="log")
            label_log_axis(panel.xaxis, *panel.get_xlim())
            panel.xaxis.set_major_formatter(EngFormatter(sep=""))  # 20k, 50k
        axes[0].legend(fontsize="small")
        return self

    def _draw_references(self, ax, score, cost):
        if score in (self.teacher_scores or {}):
            value = _sign(score) * self.teacher_scores[score]
            ax.axhline(value, color=REFERENCE_COLOR, linestyle="--", label="teacher")
        if cost in (self.base_costs or {}):
            value = self.base_costs[cost]
            ax.axvline(value, color=REFERENCE_COLOR, linestyle=":", label="base student")

    def _draw_searches(self, ax, score, cost, point_kwargs, front_kwargs):
        colors = cycle([LINE_COLOR, CONTRAST_COLOR, *CLASS_COLORS])
        for name, color, marker in zip(self.scores[score], colors, cycle(_MARKERS), strict=False):
            costs, scores = self.costs[cost][name], self.scores[score][name]
            shown, front = _sign(score) * scores, nondominated(costs, scores)
            look = {"color": color, "marker": marker}
            style = {**look, "alpha": 0.35, "s": 25, "linewidth": 0}
            points = draw(ax, "scatter", costs, shown, given=point_kwargs, **style)
            style, at = {**look, "markersize": 5, "label": name}, (costs[front], shown[front])
            self.points_[score][cost][name] = points
            self.fronts_[score][cost][name] = draw(ax, "plot", *at, given=front_kwargs, **style)

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
    return name.removeprefix("neg_").replace("_", " ").capitalize()
