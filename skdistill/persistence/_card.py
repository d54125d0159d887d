# SPDX-License-Identifier: BSD-3-Clause
"""What a saved model says of itself to readers: its configuration and a model card."""

import inspect
import json
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from .._estimator.unwrapping import innermost
from .._utils.messages import name_of

# Facts of a fitted model, by attribute, in words.
_FACTS = {
    "n_features_in_": "columns of X",
    "n_outputs_": "targets",
    "n_tokens_": "tokens",
    "classes_": "classes",
    "family_": "family of distributions",
    "n_members_": "members",
    "n_heads_": "heads",
    "n_rounds_": "rounds",
    "n_epochs_": "epochs",
    "n_parameters_": "parameters",
    "flops_": "floating-point operations for a sample",
}

_TASKS = {"classifier": "classification", "regressor": "regression"}

_CARD = """\
---
library_name: skdistill
tags:
- skdistill
- uncertainty
- {task}
---

# {estimator}

A model for {task} that tells how uncertain it is, fitted with skdistill: {steps}.

```python
import skdistill

model = skdistill.load("path of this folder")
```

Loading runs no code of this folder. How accurate and how well calibrated the model is, and on which
data, is for its author to add.

| fitted | |
| --- | --- |
{fitted}

| parameter that is not the default | |
| --- | --- |
{parameters}

| written with | |
| --- | --- |
{libraries}
"""


def config_of(model: object, about: dict[str, Any]) -> dict[str, Any]:
    """Return what a fitted model is, as plain values for ``config.json``, with more about it."""
    estimator, *_ = innermost(model, None, "module_")
    defaults = inspect.signature(type(estimator)).parameters
    changed = {
        name: value
        for name, value in estimator.get_params(deep=False).items()
        if name != "teacher"
        and not (name in defaults and repr(defaults[name].default) == repr(value))
    }
    known = {words: name for name, words in _FACTS.items() if hasattr(estimator, name)}
    facts = {words: getattr(estimator, name) for words, name in known.items()}
    task, steps = estimator._plan.task, model.steps if isinstance(model, Pipeline) else []
    config = {
        "library_name": "skdistill",
        "estimator": type(estimator).__name__,
        "task": "classification" if task is None else _TASKS[task.kind],
        "pipeline": [type(step).__name__ for _, step in steps],
        "fitted": facts,
        "parameters": changed,
        **about,
    }
    return json.loads(json.dumps(config, default=_plain))


def card_of(config: dict[str, Any]) -> str:
    """Return a model card, in Markdown, that says what a configuration says."""
    tables = {
        name: "\n".join(f"| {key} | {_text(value)} |" for key, value in config[name].items())
        for name in ("fitted", "parameters", "libraries")
    }
    steps = " → ".join(config["pipeline"]) or config["estimator"]
    return _CARD.format(**{**config, **tables, "steps": steps})


def _plain(value: object) -> Any:
    """Return a value as JSON can have it."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    return name_of(value) if callable(value) else repr(value)


def _text(value: object) -> str:
    """Return a value as it stands in a table."""
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return str(value).replace("|", "\\|").replace("\n", " ")
