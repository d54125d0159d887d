# SPDX-License-Identifier: BSD-3-Clause
"""Predictions of the members of a fitted model: one function for each kind of model.

Class probabilities are arrays (n, S, K), with columns in the order of the model's ``classes_``.
Moments of regressors are arrays (n, S, t, 3): the mean, the variance that the model predicts, and
the multiple of the residual variance that is added to it. The variance is found by what a regressor
offers, so that no package is imported for it:

==========================================  ==================================================
``predict(X, return_std=True)``             scikit-learn's Bayesian regressors, scikit-optimize
``pred_dist(X)``                            NGBoost
``predict(X, output_type="quantiles")``     TabPFN, TabICL and their kin
``predict(X, quantiles=levels)``            quantile-forest
levels of the constructor                   sklearn-quantile (``q``), XGBoost (``quantile_alpha``),
                                            CatBoost (``loss_function="MultiQuantile:alpha=..."``)
==========================================  ==================================================
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import singledispatch

import numpy as np
import torch
from scipy.special import expit, ndtr, ndtri, softmax
from sklearn import ensemble
from sklearn.base import MetaEstimatorMixin, is_classifier
from sklearn.compose import TransformedTargetRegressor
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import ARDRegression, BayesianRidge
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils import check_array
from sklearn.utils.parallel import Parallel, delayed
from torch import nn

from .._data.checks import refuse_masked
from .._estimator.base import NetEstimator
from .._estimator.functions import align_classes, predict_members, transformed_members
from .._estimator.unwrapping import components_and_rows, final_step, has_members, tags_of
from .._utils.validation import errors_about

_TOLERANCE = 1e-3  # of a sum of probabilities from one: half precision has three digits
_MOST_VOTES = 100  # sum of the whole numbers that stand for weights of voters, at most
N_FUNCTIONS = 20  # drawn from a posterior over functions
_SHARE_OF_ROUNDING = 1e-3  # over impurity at the root, where impurities are variances

# Losses under which CatBoost's virtual ensembles predict logits, or means and variances.
_CATBOOST_LOGITS = frozenset({"Logloss", "CrossEntropy", "MultiClass"})
_CATBOOST_MOMENTS = frozenset({"RMSE", "RMSEWithUncertainty"})
LEVELS = np.arange(1, 40) / 40  # at which models that know all of their quantiles are asked
# Parameters of `predict` and of constructors that take levels.
_ARGUMENTS = ("quantiles", "alphas")
_PARAMETERS = ("q", "quantile_alpha")


def read_probabilities(model, X) -> np.ndarray:
    """Class probabilities (n, S, K) of a fitted classifier's members."""
    if has_members(model):
        return predict_members(model, X)
    model, X = final_step(model, X)
    return without_rounding(members_of_classifier(model, X))


def read_moments(model, X, n_targets: int) -> np.ndarray:
    """Moments (n, S, t, 3) of a fitted regressor's members."""
    if has_members(model):
        return moments_of_members(predict_members(model, X))
    model, X = final_step(model, X)
    return members_of_regressor(model, X, n_targets)


@singledispatch
def members_of_classifier(model, X) -> np.ndarray:
    """One member, unless the type of the model is registered below."""
    if _catboost_loss(model) in _CATBOOST_LOGITS:
        logits = _virtual_ensembles(model, X)
        if logits.shape[-1] > 1:
            return softmax(logits, axis=-1)
        return np.concatenate([expit(-logits), expit(logits)], axis=-1)
    if not hasattr(model, "predict_proba"):
        raise _without_probabilities(model)
    return model.predict_proba(as_net_takes(model, X))[:, None]


@singledispatch
def members_of_regressor(model, X, n_targets: int) -> np.ndarray:
    """One member, with a variance if it predicts one, unless its type is registered below."""
    if (loss := _catboost_loss(model)) in _CATBOOST_MOMENTS:
        members = _virtual_ensembles(model, X)[:, :, None]
        return moments_of_members(members) if loss != "RMSE" else moments_of_means(members[..., 0])
    own = predictive_moments(model, X)
    means = np.asarray(model.predict(as_net_takes(model, X))) if own is None else own[0]
    means = means.reshape(len(means), 1, -1)
    if means.shape[-1] != n_targets:
        raise ValueError(
            f"teacher must predict {n_targets} target(s), as y has; {type(model).__name__} "
            f"predicts {means.shape[-1]}."
        )
    if own is None:
        return moments_of_means(means)
    variances = np.broadcast_to(own[1].reshape(len(means), 1, -1), means.shape)
    return moments_of_members(np.stack([means, variances], axis=-1))


def check_probabilities(model) -> None:
    """Raise TypeError for a classifier without probabilities; a fitted meta-estimator tells."""
    inner, _ = final_step(model)
    dispatch = members_of_classifier.dispatch
    has_members_here = dispatch(type(inner)) is not dispatch(object) or has_members(model)
    is_meta = isinstance(inner, MetaEstimatorMixin) or isinstance(model, MetaEstimatorMixin)
    gives = has_members_here or hasattr(type(inner) if is_meta else inner, "predict_proba")
    if tags_of(model).estimator_type == "classifier" and not gives:
        raise _without_probabilities(inner)


def _without_probabilities(model) -> TypeError:
    """Return the error for a classifier that gives no class probabilities."""
    return TypeError(
        f"teacher must predict probabilities, which {type(model).__name__} does not; put it in "
        "sklearn's CalibratedClassifierCV."
    )


def shares_of_groups(widths: np.ndarray, n_groups: int) -> np.ndarray:
    """Share (n_groups, S) of members in mixtures of neighbours.

    Side by side, as wide as their weights (S,), the members fill a line, which is cut into pieces
    of one length. Where a cut divides a member it belongs to two groups, so that groups of equal
    weights have the members' mixture.
    """
    ends = n_groups * np.cumsum(widths) / widths.sum()
    starts = np.concatenate([[0], ends[:-1]])
    groups = np.arange(n_groups)[:, None]
    shares = np.maximum(np.minimum(ends, groups + 1) - np.maximum(starts, groups), 0)
    return shares / shares.sum(axis=1, keepdims=True)


def group_probabilities(members: np.ndarray, n_groups: int) -> np.ndarray:
    """Mixtures (n, at most n_groups, K) of neighbouring members (n, S, K)."""
    if n_groups == 1:
        return members.mean(axis=1, keepdims=True)  # in which votes are equal that are equal
    shares = shares_of_groups(np.ones(members.shape[1]), min(n_groups, members.shape[1]))
    return shares.astype(members.dtype) @ members


def group_moments(moments: np.ndarray, n_groups: int) -> np.ndarray:
    """Moments (n, at most n_groups, t, 3) of mixtures of neighbours, by total variance."""
    shares = shares_of_groups(np.ones(moments.shape[1]), min(n_groups, moments.shape[1]))
    grouped = np.moveaxis(np.tensordot(shares, moments, axes=(1, 1)), 0, 1)
    gaps = moments[..., 0] - moments[..., 0].mean(axis=1, keepdims=True)
    grouped[..., 1] += shares @ np.square(gaps) - np.square(shares @ gaps)
    return grouped


@members_of_classifier.register(ensemble.RandomForestClassifier)
@members_of_classifier.register(ensemble.ExtraTreesClassifier)
def _(model, X):
    return _from_leaves(model, X, lambda tree, leaves: tree.tree_.value[leaves, 0], dtype_for(X))


@members_of_regressor.register(ensemble.RandomForestRegressor)
@members_of_regressor.register(ensemble.ExtraTreesRegressor)
def _(model, X, n_targets):
    return _from_leaves(model, X, _leaf_moments, np.float64)


@members_of_regressor.register(DecisionTreeRegressor)
def _(model, X, n_targets):
    return _leaf_moments(model, model.apply(X))[:, None]


def _from_leaves(forest, X, read: Callable, dtype) -> np.ndarray:
    """Results of ``read(tree, leaves)`` for each tree; X is validated once, not tree by tree."""
    leaves = forest.apply(X)
    first = read(forest.estimators_[0], leaves[:1, 0])[0]
    out = np.empty((*leaves.shape, *first.shape), dtype=dtype)

    def fill(s: int) -> None:
        out[:, s] = read(forest.estimators_[s], leaves[:, s])

    jobs = (delayed(fill)(s) for s in range(leaves.shape[1]))
    Parallel(n_jobs=forest.n_jobs, require="sharedmem")(jobs)
    return out


def _leaf_moments(model, leaves: np.ndarray) -> np.ndarray:
    """Moments (n, t, 3) of a regression tree from the leaves (n,) that samples end in.

    A leaf's variance is that of its n samples, to which one sample of the residual variance is
    added::

        variance = impurity + residual variance / n

    so that a leaf of one sample has the residual variance, and one of many samples its own. (The
    variance of n samples about their own mean is too small by a factor of 1 - 1 / n.) Impurity is
    computed as a difference of squares; where y is so far from 0 that rounding dominates, leaves
    have the residual variance.
    """
    tree = model.tree_
    moments = moments_of_means(tree.value[leaves, :, 0])
    rounding = np.finfo(np.float64).eps * np.square(tree.value[0]).max()
    is_variance = model.criterion in ("squared_error", "friedman_mse")
    knows_variance = is_variance and rounding < _SHARE_OF_ROUNDING * tree.impurity[0]
    if knows_variance and moments.shape[1] == 1:  # with more targets, impurity is their mean
        moments[:, 0, 1] = tree.impurity[leaves]
        moments[:, 0, 2] = 1 / tree.n_node_samples[leaves]
    return moments


@members_of_classifier.register(ensemble.BaggingClassifier)
@members_of_classifier.register(ensemble.VotingClassifier)
def _(model, X):
    codes = np.arange(len(model.classes_))
    counts_votes = isinstance(model, ensemble.VotingClassifier) and model.voting == "hard"

    def read(member, rows):
        """Probabilities (n, K) of one member, zero for classes that it has not seen."""
        if counts_votes or not hasattr(member, "predict_proba"):
            return (member.predict(rows)[:, None] == codes).astype(dtype_for(rows))
        return align_classes(member.predict_proba(rows), member.classes_, codes)

    return _of_components(model, X, read)


@members_of_regressor.register(ensemble.BaggingRegressor)
@members_of_regressor.register(ensemble.VotingRegressor)
def _(model, X, n_targets):
    return _of_components(model, X, lambda member, rows: moments_of_one(member, rows, n_targets))


def _of_components(model, X, read: Callable) -> np.ndarray:
    """Results of ``read(member, rows)`` for each member, repeated as its weight says."""
    models, weights, rows_of_each = zip(*components_and_rows(model, X), strict=True)
    jobs = map(delayed(read), models, rows_of_each)
    members = np.stack(Parallel(n_jobs=model.n_jobs, require="sharedmem")(jobs), axis=1)
    counts = range(1, _MOST_VOTES + 1) if np.ptp(weights) else [len(models)]
    for n_members in counts:  # which have equal weights
        votes = n_members * np.array(weights)
        if np.allclose(votes, np.round(votes), rtol=0, atol=1e-6):
            return members.repeat(np.round(votes).astype(int), axis=1)
    raise ValueError(
        f"weights of {type(model).__name__} must be as whole numbers that sum to at most "
        f"{_MOST_VOTES}, such as [2, 1, 1], because the members of a teacher have equal weights; "
        f"got {list(model.weights)}."
    )


def moments_of_one(model, X, n_targets: int) -> np.ndarray:
    """Moments (n, t, 3) of a model as one member, the mixture of its own members."""
    return group_moments(read_moments(model, X, n_targets), 1)[:, 0]


@members_of_regressor.register(BayesianRidge)
@members_of_regressor.register(ARDRegression)
def _(model, X, n_targets):
    """Draws of the coefficients: the noise is 1 / alpha_, and the rest lies between members."""
    values, vectors = np.linalg.eigh(model.sigma_)
    roots = vectors * np.sqrt(np.maximum(values, 0))
    plain = copy.copy(model)  # predict checks the names of columns, and needs an array for std
    vars(plain).pop("feature_names_in_", None)
    rows = check_array(X, dtype=[np.float64, np.float32])
    mean, (_, std) = model.predict(X), plain.predict(rows, return_std=True)
    rows = rows - model.X_offset_
    if rows.shape[1] != len(roots):  # columns whose coefficient is zero
        rows = rows[:, model.lambda_ < model.threshold_lambda]
    # The same lines for all samples, in every process.
    weights = np.random.RandomState(0).normal(size=(len(roots), N_FUNCTIONS))
    draws = standard_draws((rows @ roots @ weights)[..., None])
    noise = np.full((len(rows), 1), 1 / model.alpha_)
    latent = np.maximum(np.square(std)[:, None] - noise, 0)
    return moments_of_functions(mean[:, None], latent, draws, noise)


@members_of_regressor.register(TransformedTargetRegressor)
def _(model, X, n_targets):
    """Members of the model inside, through the inverse transform, if they have variances."""
    moments = read_moments(model.regressor_, X, n_targets)
    if moments[..., 2].any():  # the residual variance is that of y, after the transform
        return moments_of_means(np.reshape(model.predict(X), (len(moments), 1, n_targets)))
    inverse = model.transformer_.inverse_transform
    return moments_of_members(transformed_members([inverse], moments[..., :2]))


def _catboost_loss(model) -> str | None:
    """Name of the loss of a CatBoost model; None for other models."""
    modules = (cls.__module__.split(".")[0] for cls in type(model).__mro__)
    return model.get_all_params()["loss_function"] if "catboost" in modules else None


def _virtual_ensembles(model, X) -> np.ndarray:
    """Raw predictions (n, S, columns) of parts of a CatBoost model (Malinin et al., 2021).

    There are at most half as many parts as trees. If ten are too many, five or two are repeated, so
    that clones that stop early have as many members as others; less than four trees are one member.
    """
    n_parts = next((n for n in (10, 5, 2) if 2 * n <= model.tree_count_), 1)
    if n_parts == 1:
        raw = {"prediction_type": "RawFormulaVal"} if is_classifier(model) else {}
        found = np.asarray(model.predict(X, **raw))
        return found.reshape(len(found), 1, -1)
    settings = {"prediction_type": "VirtEnsembles", "virtual_ensembles_count": n_parts}
    return model.virtual_ensembles_predict(X, **settings).repeat(10 // n_parts, axis=1)


def dtype_for(X) -> type:
    """Return float32 for an X of float32, else float64."""
    return np.float32 if hasattr(X, "dtype") and X.dtype == np.float32 else np.float64


def moments_of_means(means: np.ndarray) -> np.ndarray:
    """Moments (..., 3) of members that predict no variance."""
    return np.stack([means, np.zeros_like(means), np.ones_like(means)], axis=-1)


def moments_of_members(members: np.ndarray) -> np.ndarray:
    """Moments (..., 3) of members (..., 2) with a mean and a variance."""
    return np.concatenate([members, np.zeros_like(members[..., :1])], axis=-1)


def moments_of_functions(mean, latent, draws, noise) -> np.ndarray:
    """Moments (n, S, t, 3) of functions, by mean, variance and noise (n, t), and standard draws."""
    means = mean[:, None] + np.sqrt(latent)[:, None] * draws
    variances = np.broadcast_to(noise[:, None], means.shape)
    return moments_of_members(np.stack([means, variances], axis=-1))


def standard_draws(draws: np.ndarray) -> np.ndarray:
    """Draws (n, S, t), scaled in each sample to mean 0 and variance 1."""
    centred = draws - draws.mean(axis=1, keepdims=True)
    scale = centred.std(axis=1, keepdims=True)
    return centred / np.where(scale > 0, scale, 1.0)


def as_net_takes(model, X):
    """Return X in the dtype of a skorch net's weights; as it is for other models."""
    module = getattr(model, "module_", None)
    if not isinstance(module, nn.Module) or isinstance(model, NetEstimator):
        return X
    parameter = next(module.parameters(), torch.zeros(()))
    return np.asarray(X, dtype=torch.empty(0, dtype=parameter.dtype).numpy().dtype)


def check_member_predictions(
    members: object, n_samples: int, *, n_classes=None, n_targets=None, name="member_predictions"
) -> np.ndarray:
    """Return predictions of members as an array, or raise a ValueError that calls them by `name`.

    They are class probabilities (n_samples, n_members, n_classes), which are divided by their sum;
    or means ``[..., 0]`` and variances ``[..., 1]``, (n_samples, n_members, n_targets, 2), in units
    of y and their squares. float32 stays as it is, all else becomes float64.
    """
    refuse_masked(members, name)
    with errors_about(f"{name} must be an array of numbers"):
        members = np.asarray(members)
        if np.iscomplexobj(members):  # whose imaginary parts astype would drop
            raise ValueError(f"{name} must be real numbers, got {members.dtype}.")
        if members.dtype != np.float32:
            members = members.astype(np.float64, copy=False)
    shape = members.shape
    last: tuple[int | None, ...] = (n_targets, 2)
    words = "samples, members, targets, (mean, variance)"
    if n_targets is None:
        last, words = (n_classes,), "samples, members, class probabilities"
        if len(shape) == 3 and shape[2] == 1:
            words += "; one column p of two classes is given as (1 - p, p)"
    if len(shape) != 2 + len(last) or shape[0] != n_samples or shape[2:] != last or not shape[1]:
        expected = ", ".join(map(str, (n_samples, "S", *last)))
        raise ValueError(
            f"{name} must have shape ({expected}): {words}, with S at least 1; got {shape}."
        )
    if n_targets is None:
        if not members.min() >= 0:  # nor is NaN
            row, member, _ = np.unravel_index(members.argmin(), shape)  # NaN counts as least
            raise ValueError(
                f"{name} must be probabilities from 0 to 1; in sample {row} member {member} gives "
                f"{members[row, member].min():.6g}."
            )
        sums = members @ np.ones(shape[-1], dtype=members.dtype)
        misses = np.abs(sums - 1)
        if not misses.max() <= _TOLERANCE:
            row, member = np.unravel_index(misses.argmax(), misses.shape)
            raise ValueError(
                f"{name} must sum to 1 over the classes, within {_TOLERANCE}; in sample {row} "
                f"member {member} sums to {sums[row, member]:.6g}."
            )
        rounding = shape[-1] * np.finfo(members.dtype).eps
        return members if misses.max() <= rounding else members / sums[..., None]
    wrong = ~(np.isfinite(members).all(axis=-1) & (members[..., 1] > 0))
    if wrong.any():
        row, member, target = np.argwhere(wrong)[0]
        mean, variance = members[row, member, target]
        raise ValueError(
            f"{name} must be finite means and positive, finite variances; in sample {row} member "
            f"{member} gives a mean of {mean:.3g} and a variance of {variance:.3g}."
        )
    return members


def without_rounding(members: np.ndarray) -> np.ndarray:
    """Divide probabilities (n, S, K) by their sums where these have float32's rounding."""
    misses = np.abs(members.sum(axis=-1) - 1).max(initial=0)
    is_rounding = members.shape[-1] * np.finfo(members.dtype).eps < misses <= _TOLERANCE
    return members / members.sum(axis=-1, keepdims=True) if is_rounding else members


def predictive_moments(model, X) -> tuple[np.ndarray, np.ndarray] | None:
    """Mean and variance (n, ...) that a fitted regressor predicts; None without a variance."""
    if hasattr(model, "pred_dist"):
        distribution = model.pred_dist(X)
        return np.asarray(distribution.mean()), np.square(distribution.std())
    accepted = inspect.signature(model.predict).parameters
    # DummyRegressor takes return_std for the sake of its place in pipelines, and returns zeros.
    if "return_std" in accepted and not isinstance(model, DummyRegressor):
        mean, std = model.predict(X, return_std=True)
        return np.asarray(mean), np.square(std)
    found = predicted_quantiles(model, X)
    return None if found is None else moments_of_quantiles(*found)


def predicted_quantiles(model, X) -> tuple[np.ndarray, np.ndarray] | None:
    """Quantiles (n, q) and their levels (q,), of a model that predicts at least two."""
    accepted = inspect.signature(model.predict).parameters
    if named := [name for name in _ARGUMENTS if name in accepted]:
        levels = LEVELS.tolist()
        more = {"output_type": "quantiles"} if "output_type" in accepted else {}
        return _rows_first(model.predict(X, **{named[0]: levels}, **more), LEVELS), LEVELS
    params = model.get_params() if hasattr(model, "get_params") else {}
    given = [params[name] for name in _PARAMETERS if params.get(name) is not None]
    if hasattr(model, "get_all_params"):  # CatBoost
        loss, _, levels = model.get_all_params()["loss_function"].partition(":alpha=")
        given += [levels.split(",")] if loss == "MultiQuantile" else []
    for levels in given:
        levels = np.asarray(levels, dtype=float)
        if levels.ndim == 1 and len(levels) > 1:
            return _rows_first(model.predict(X), levels), levels
    return None


def _rows_first(quantiles, levels: np.ndarray) -> np.ndarray:
    """Quantiles as (n, q): a list has one array for each level; so do some arrays."""
    found = np.asarray(quantiles, dtype=float)
    if isinstance(quantiles, (list, tuple)) or found.shape[1:] != levels.shape:
        found = found.T
    if found.shape[1:] != levels.shape:
        raise ValueError(
            f"teacher must predict a quantile for each sample and each of {len(levels)} levels, "
            f"got shape {found.T.shape}."
        )
    return found


def moments_of_quantiles(
    quantiles: np.ndarray, levels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (n,) of distributions of which some quantiles (n, q) are known.

    Between the levels (q,), and beyond the outer ones, the quantile is linear in the standard
    normal's quantile z. So those of a normal distribution give its moments exactly, from any two
    levels. Quantiles that cross are sorted.
    """
    order = np.argsort(levels)
    z = ndtri(np.asarray(levels)[order])
    values = np.sort(quantiles, axis=1)
    slopes = np.diff(values, axis=1) / np.diff(z)
    offsets = values[:, :-1] - slopes * z[:-1]
    # Moments of the standard normal between the inner levels; the outer pieces have no end.
    ends = np.concatenate([[-np.inf], z[1:-1], [np.inf]])
    density = np.exp(-0.5 * np.square(ends)) / np.sqrt(2 * np.pi)
    weighted = np.where(np.isinf(ends), 0.0, ends) * density
    mass, first = np.diff(ndtr(ends)), -np.diff(density)
    second = mass - np.diff(weighted)
    mean = offsets @ mass + slopes @ first
    gaps = offsets - mean[:, None]  # squares of values far from 0 would lose the variance
    variance = np.square(gaps) @ mass + 2 * (gaps * slopes) @ first + np.square(slopes) @ second
    return mean, np.maximum(variance, 0)
