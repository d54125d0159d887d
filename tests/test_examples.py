# SPDX-License-Identifier: BSD-3-Clause
"""Every page of the gallery runs, small, and prints and draws what it is about."""

from __future__ import annotations

import ast
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from sklearn import datasets

EXAMPLES = Path(__file__).parents[1] / "examples"

FEW = {"n_members": 2, "max_epochs": 2}
FEW_ROUNDS = {"n_rounds": 2, "max_epochs": 2}

# What each page prints, and the constants at its top that make it run quickly.
PAGES = {
    "plot_abstention": ("above max_risk", FEW | {"n_draws": 2}),
    "plot_active_learning": ("of each seed", FEW | {"n_seeds": 1}),
    "plot_anytime": ("of the teacher's operations", FEW_ROUNDS),
    "plot_bayesian_optimisation": ("at random:", FEW | {"n_searches": 2, "n_rounds": 2}),
    "plot_cheapest_student": ("RMSE in validation", FEW),
    "plot_decompose_boosting": ("ms per sample", FEW_ROUNDS),
    "plot_distil_forest": ("student (1 network)", FEW | {"n_trees": 20}),
    "plot_distil_regression": ("RMSE", FEW),
    "plot_drift": ("accuracy before", FEW),
    "plot_early_prediction": ("share of the time", FEW_ROUNDS),
    "plot_gped": ("the student", {"max_epochs": 2}),
    "plot_gradient_ratio": ("reverse KL, with the one", {"n_classes_max": 1000}),
    "plot_grid_search": ("seconds for a fit", FEW),
    "plot_imagenet_logits": ("rank correlation", {"n_members": 2}),
    "plot_onnx_without_torch": ("the server has imported torch: False", FEW),
    "plot_own_expectation": ("share of votes", {"max_epochs": 2}),
    "plot_own_module": ("student of it", FEW),
    "plot_report": ("width of 90 % intervals", FEW),
    "plot_spirals": ("Hydra+", FEW),
    "plot_translation": ("edits per word", FEW),
    "plot_two_decompositions": ("student of the distribution", FEW),
    "plot_unseen_digits": ("without random functions", FEW),
    "plot_watch_a_fit": ("best epoch of each member", FEW),
}
PATHS = {path.stem: path for path in EXAMPLES.rglob("plot_*.py")}


def with_constants(path, constants):
    """The source of a page with other values of its constants; each must be there, once."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    left = dict(constants)
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if name in left:
                statement.value = ast.copy_location(ast.Constant(left.pop(name)), statement.value)
    assert not left, f"{path.name} does not set {sorted(left)}"
    return ast.unparse(tree)


def few_digits(load=datasets.load_digits, **kwargs):
    """The first of the digits."""
    return tuple(values[:450] for values in load(**kwargs))


def test_every_page_is_known():
    assert sorted(PAGES) == sorted(PATHS)


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(PAGES))
def test_page(page, run_script, monkeypatch, tmp_path, few_epochs):
    printed_by_it, constants = PAGES[page]
    script = tmp_path / f"{page}.py"
    script.write_text(with_constants(PATHS[page], constants), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda: None)
    if page != "plot_drift":  # whose stream takes a thousand
        monkeypatch.setattr(datasets, "load_digits", few_digits)
    assert printed_by_it in run_script(script)
    drawn = [plt.figure(number) for number in plt.get_fignums()]
    assert drawn
    for figure in drawn:
        figure.canvas.draw()
        assert all(ax.has_data() for ax in figure.axes), "an empty panel"
        assert any(ax.get_xlabel() for ax in figure.axes), "no label"
