# SPDX-License-Identifier: BSD-3-Clause
"""Outside referees: ScoringBench's scores, and TabTune's students beside ours."""

from __future__ import annotations

from statistics import mean, median

from _pages import Table, block, duration, stored, table


@block
def referees_scores() -> Table:
    """ScoringBench's scores of each table, means over the folds that all models have."""
    rows = stored("scoring_bench")["results"]
    models = list(dict.fromkeys(row["model"] for row in rows))
    scores = ("crps", "log_score", "crls", "interval_score_95", "coverage_95", "rmse")
    found = []
    for name in dict.fromkeys(row["set"] for row in rows):
        of = {
            who: [row for row in rows if (row["set"], row["model"]) == (name, who)]
            for who in models
        }
        folds = set.intersection(*({row["fold"] for row in of[who]} for who in models))
        for who in models if folds else ():
            shared = [row for row in of[who] if row["fold"] in folds]
            means = (mean(row[score] for row in shared) for score in scores)
            seconds = duration(median(row["fit_seconds"] for row in shared))
            found.append([name, len(folds), who.replace("_", " "), *means, seconds])
    return table(
        "table | folds:d | model | CRPS:.4f | log score:.3f | CRLS:.3f | interval score 95:.3f | "
        "coverage 95:.3f | RMSE:.4f | fit",
        found,
    )


@block
def referees_students(kind: str) -> Table:
    """TabTune's students and ours of the same teachers, of classes or of numbers."""
    key, score = {"classes": ("auc", "log_loss"), "numbers": ("r2", "crps")}[kind]
    found = (
        [
            *(row["set"], row["teacher"], row["model"]),
            *map(row.get, (key, "retained", score, "rank", "ratio")),
            *(duration(row[f"{what}_seconds"]) for what in ("fit", "one", "all")),
        ]
        for row in stored("tab_tune")["results"]
        if key in row
    )
    heading = {"classes": "AUC:.4f | retained:.1%", "numbers": "R2:.4f | retained:.1%"}[kind]
    return table(
        f"table | teacher | model | {heading} | {score.replace('_', ' ').replace('crps', 'CRPS')}"
        ":.4f | rank of epistemic:.3f | median ratio:.2f | fit | one sample | all test samples",
        found,
    )
