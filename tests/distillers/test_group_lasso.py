# SPDX-License-Identifier: BSD-3-Clause
"""Students that lose units while they learn."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from skdistill import BayesianEnsembleRegressor, HydraPlusRegressor
from skdistill.model_selection import flops
from skdistill.modules import n_parameters
from skdistill.pruning import GroupLasso, widths


@pytest.fixture(scope="module")
def pruned(task, frozen):
    settings = {"module__hidden_units": (40, 30), "max_epochs": 160, "module__embeddings": None}
    settings |= {"pruning": GroupLasso(0.5), "transfer": None}
    return task.student(frozen, **settings).fit(*task.data)


@pytest.mark.slow
def test_students_get_smaller(pruned, task):
    assert sum(widths(pruned.module_)) < 40 + 30
    assert pruned.n_parameters_ == n_parameters(pruned.module_)
    assert pruned.flops_ == flops(pruned, task.X)
    assert all(parameter.grad is None for parameter in pruned.module_.parameters())
    full = clone(pruned).set_params(pruning=None).fit(*task.data)
    assert pruned.n_parameters_ < full.n_parameters_
    assert pruned.flops_ < full.flops_
    assert len(full.history_) == 160
    assert len(pruned.history_) == 160 + 160


def test_rows_in_bins_are_trained_on_again_after_pruning():
    X = np.random.RandomState(0).standard_normal((200, 2))
    teacher = BayesianEnsembleRegressor(2, max_epochs=2, random_state=0)
    student = HydraPlusRegressor(teacher, pruning=GroupLasso(0.1), transfer=None, random_state=0)
    student.set_params(max_epochs=2, module__hidden_units=(8, 8)).fit(X, X[:, 0])
    assert student._recipe.inputs.has_bins
    assert len(student.history_) == 2 + 2


@pytest.mark.slow
def test_training_can_begin_again_with_new_weights(pruned, task):
    """What is trained is then a student of these widths, as a first fit trains it."""
    fits = [pruned, clone(pruned).set_params(pruning__restart=True).fit(*task.data)]
    kept, restarted = (fit.history_[160]["train_loss"] for fit in fits)
    assert widths(fits[1].module_) == widths(fits[0].module_)
    assert len(fits[1].history_) == 320
    assert restarted > kept
    assert fits[1].history_[-1]["train_loss"] < fits[1].history_[159]["train_loss"]
    copied = pickle.loads(pickle.dumps(fits[1]))
    np.testing.assert_array_equal(copied.predict_members(task.X), fits[1].predict_members(task.X))


def with_norm(in_features, out_features):
    return nn.Sequential(
        nn.Linear(in_features, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, out_features)
    )


def test_modules_that_cannot_be_pruned_are_named_before_the_teacher_is_fitted(task):
    teacher = task.counting_ensemble()
    with pytest.raises(ValueError, match="go through LayerNorm cannot be removed"):
        task.Student(teacher, module=with_norm, pruning=GroupLasso(0.1)).fit(*task.data)
    assert type(teacher).n_fits == 0


def test_the_step_is_proximal_on_flat_buffers_as_on_modules(task, frozen):
    """The same training, once on flat buffers and once by autograd on the module."""
    from skorch.callbacks import Callback

    class Listener(Callback):
        def on_batch_end(self, net, **kwargs):
            pass

    settings = {"module__hidden_units": (9,), "transfer": None, "max_epochs": 3}
    settings["pruning"] = GroupLasso(0.3, finetune_epochs=0)
    fits = [
        task.student(frozen, callbacks=callbacks, **settings).fit(*task.data)
        for callbacks in (None, [("listener", Listener())])
    ]
    assert [fit.history_[0]["engine"] for fit in fits] == ["closed_form", "stacked"]
    for one, other in zip(*(fit.module_.parameters() for fit in fits), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)
