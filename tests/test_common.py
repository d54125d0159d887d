# SPDX-License-Identifier: BSD-3-Clause
"""scikit-learn's contract over everything public, and the documentation that stands in the code."""

from __future__ import annotations

import copy
import doctest
import importlib.util
import inspect
import io
import pickle
import pkgutil
import unittest
from functools import partial
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_regression
from sklearn.frozen import FrozenEstimator
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn_checks import cases_of

import skdistill
from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    BDistilBooster,
    DistributionDistiller,
    GPEDDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
)
from skdistill.estimator_checks import expected_failed_checks
from skdistill.families import known_families
from skdistill.samplers import SGHMC, SGLD, MCDropout
from skdistill.settings import Heads, Runtime, WeakLearnerSearch

# --- check_estimator --------------------------------------------------------------------------


EPOCHS = 4
# Checks of how well an estimator learns; they have five times as many epochs.
OF_LEARNING = {"check_classifiers_train", "check_regressors_train"}


def small_ensemble(**params):
    return BayesianEnsembleRegressor(**{"n_members": 3, "max_epochs": EPOCHS, **params})


def small_classifier(**params):
    return BayesianEnsembleClassifier(**{"n_members": 3, "max_epochs": EPOCHS, **params})


def small_student(**params):
    return HydraPlusRegressor(**{"teacher": small_ensemble(), "max_epochs": EPOCHS, **params})


def small_student_of_classes(**params):
    return HydraPlusClassifier(**{"teacher": small_classifier(), "max_epochs": EPOCHS, **params})


def small_booster(make_teacher=small_ensemble, **params):
    settings = {
        "teacher": make_teacher(),
        "n_rounds": 2,
        "search": WeakLearnerSearch(max_search=2),
        "max_epochs": EPOCHS,
    }
    return BDistilBooster(**{**settings, **params})


def small_distiller(make_teacher=small_ensemble, **params):
    return DistributionDistiller(**{"teacher": make_teacher(), "max_epochs": EPOCHS, **params})


def small_gped(make_teacher=small_ensemble, **params):
    return GPEDDistiller(**{"teacher": make_teacher(), **params})


MAKERS = [small_ensemble, small_classifier, small_student, small_student_of_classes]

# Small steps, as some checks have columns about 100; most chains are too short to converge then.
CHAINS = [SGLD(step_size=5e-5), SGHMC(step_size=5e-6, n_chains=2)]
few_draws = pytest.mark.filterwarnings(
    "ignore:R-hat is above:sklearn.exceptions.ConvergenceWarning"
)


def run_check(estimator, check):
    if check.func.__name__ in OF_LEARNING:
        params = estimator.get_params()
        epochs = {name: params[name] for name in params if name.endswith("max_epochs")}
        more = {name: 5 * n for name, n in epochs.items() if not isinstance(n, str)}
        estimator = clone(estimator).set_params(**more)
    try:
        check(estimator)
    except unittest.SkipTest as reason:  # pandas or SCIPY_ARRAY_API is missing
        pytest.fail(f"a check was skipped: {reason}")


# Every check; other settings of theirs have only the checks below that could turn out otherwise.
# How well each learns is held against closed forms where it is tested.
WHOLE = [
    small_ensemble(),
    small_classifier(),
    small_student(),
    small_student_of_classes(calibration_fraction=0.3),
    small_booster(),
    small_distiller(),
    small_gped(max_epochs=EPOCHS),
]
VARIANTS = [
    small_student(calibration_fraction=0.3),
    small_booster(small_classifier),
    *(small_distiller(family=family) for family in known_families("regressor")),
    *(small_distiller(small_classifier, family=family) for family in known_families("classifier")),
    *(
        make(n_members=4, inference=inference, max_epochs=12)
        for make, inference in zip(MAKERS[:2], CHAINS, strict=True)
    ),
    small_gped(partial(small_ensemble, inference=CHAINS[0], max_epochs=12)),
    small_gped(small_classifier, max_epochs=EPOCHS),
    small_classifier(inference=MCDropout(), max_epochs=3),
]
OF_VARIANTS = {
    "check_estimators_dtypes",
    "check_fit2d_1sample",
}


def checks_of(estimators, names=None):
    """Cases of the checks of these names, or of all; less those that are known to fail.

    Of all, learning has the arrays that are most unlike the usual ones; the usual ones have names.
    """

    def is_wanted(check):
        name, keywords = check.func.__name__, check.keywords
        if names:
            return name in names and not keywords
        usual = {"readonly_memmap": True, "X_dtype": "float32"}
        return name not in OF_LEARNING or keywords == usual

    for estimator in estimators:
        failing = expected_failed_checks(estimator)
        cases = cases_of([estimator], is_wanted)
        yield from (case for case in cases if case.values[1].func.__name__ not in failing)


@few_draws
@pytest.mark.parametrize(("estimator", "check"), list(checks_of(WHOLE)))
def test_sklearn_contract(estimator, check):
    run_check(estimator, check)


@few_draws
@pytest.mark.parametrize(("estimator", "check"), list(checks_of(VARIANTS, OF_VARIANTS)))
def test_sklearn_contract_of_variants(estimator, check):
    run_check(estimator, check)


def test_exemptions_are_those_that_fail_and_scikit_learn_takes_them():
    """Without them `check_estimator` raises, with them it passes: no tag can tell of them."""
    model = small_student(teacher=small_ensemble(max_epochs=1), max_epochs=2)
    names = expected_failed_checks(model)
    checks = dict(
        (check.func.__name__, check) for _, check in estimator_checks_generator(clone(model))
    )
    assert set(names) < set(checks)
    for name in names:
        with pytest.raises(AssertionError, match="sample_weight"):
            checks[name](clone(model))


@pytest.mark.parametrize(
    "make",
    [
        small_student,
        small_student_of_classes,
        small_distiller,
        partial(small_distiller, small_classifier),
    ],
)
def test_weights_equal_repetitions_where_no_rows_are_drawn(make):
    checks = {
        check.func.__name__: (estimator, check)
        for estimator, check in estimator_checks_generator(make(transfer=None))
    }
    (name,) = expected_failed_checks(make())
    run_check(*checks[name])


# Checks whose outcome depends on the defaults. All others do with few epochs and members, above,
# what they would do with many.
OF_AMOUNTS = {  # that epochs chosen by the samples suit few, and count their weights
    "check_fit2d_1sample",
    "check_fit2d_1feature",
    "check_classifiers_one_label",
    "check_classifiers_one_label_sample_weights",
    "check_sample_weight_equivalence_on_dense_data",
}
LEAVING_ALONE = {  # that a fit leaves parameters as they are, such as a teacher of None
    "check_dont_overwrite_parameters",
    "check_estimators_overwrite_params",
    "check_dict_unchanged",
}
OF_DEFAULTS = {
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_mixin_order",
    "check_parameters_default_constructible",
    "check_no_attributes_set_in_init",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_get_params_invariance",
    "check_set_params",
}


def checks_of_defaults():
    ensembles = (BayesianEnsembleRegressor, BayesianEnsembleClassifier)
    students = (HydraPlusRegressor, HydraPlusClassifier)
    yield from checks_of([cls() for cls in (*ensembles, *students)], OF_DEFAULTS | LEAVING_ALONE)
    # Few members are as many as many here; what they learn, README's numbers tell.
    few = [cls(4) for cls in ensembles]
    few += [cls(make()) for cls, make in zip(students, MAKERS[:2], strict=True)]
    yield from checks_of(few, OF_AMOUNTS)
    yield from checks_of([BDistilBooster(small_ensemble())], OF_DEFAULTS)
    yield from checks_of([DistributionDistiller(small_classifier())], OF_DEFAULTS)


@few_draws
@pytest.mark.parametrize(("estimator", "check"), list(checks_of_defaults()))
def test_sklearn_contract_with_defaults(estimator, check, request):
    if check.func.__name__ in LEAVING_ALONE:
        request.getfixturevalue("few_epochs")  # parameters are what they are by default
    run_check(estimator, check)


# --- Parameters with double underscores -------------------------------------------------------

CLASSES = [
    BayesianEnsembleRegressor,
    BayesianEnsembleClassifier,
    HydraPlusRegressor,
    HydraPlusClassifier,
]
STUDENTS = (HydraPlusRegressor, HydraPlusClassifier)
DUNDER = {
    "module__hidden_units": (7, 5),
    "module__activation": "relu",
    "optimizer__weight_decay": 0.25,
    "callbacks__print_log__sink": print,
}


@pytest.fixture(scope="module")
def data():
    X, y = make_regression(40, 3, noise=5.0, random_state=0)
    return X, np.digitize(y, np.quantile(y, [0.3, 0.6]))  # numbers to regress on, and labels


@pytest.fixture(scope="module")
def fitted(data):
    found = {}
    for make, make_student in (MAKERS[::2], MAKERS[1::2]):
        teacher = make(random_state=0).fit(*data)
        student = make_student(teacher=FrozenEstimator(teacher), random_state=0).fit(*data)
        found |= {type(teacher): teacher, type(student): student}
    return found


@pytest.mark.parametrize("cls", CLASSES)
def test_clone_and_get_params_know_dunder_names(cls):
    estimator = clone(cls(**DUNDER))
    params = estimator.get_params(deep=False)
    assert {name: params[name] for name in DUNDER} == DUNDER
    assert cls().get_params(deep=False).keys() == params.keys() - DUNDER.keys()


def test_dunder_parameters_reach_module_and_optimizer(data):
    ensemble = small_ensemble(
        module__hidden_units=(7, 5), optimizer="SGD", optimizer__momentum=0.5, max_epochs=1, lr=1e-3
    ).fit(*data)
    widths = [
        layer.weight.shape[-1] for layer in ensemble.module_.network if hasattr(layer, "lead")
    ]
    assert widths == [7, 5, 2]
    assert isinstance(ensemble.net_.optimizer_, torch.optim.SGD)
    assert ensemble.net_.optimizer_.param_groups[0]["momentum"] == 0.5


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"n_member": 5}, TypeError, r"unknown parameters \['n_member'\]; it takes .*module__"),
        ({"modul__x": 5}, TypeError, r"unknown parameters \['modul__x'\]"),
        ({"module__depth": 2}, ValueError, r"MLP takes no \['module__depth'\].*hidden_units"),
        ({"optimizer__mass": 2}, ValueError, r"Adam takes no \['optimizer__mass'\].*betas"),
        ({"callbacks__nobody__x": 2}, ValueError, "nobody"),
    ],
)
def test_unknown_names_survive_clone_and_are_reported_by_fit(make, params, error, message, data):
    estimator = clone(make(**params))
    assert {name: estimator.get_params()[name] for name in params} == params
    with pytest.raises(error, match=message):
        estimator.fit(*data)
    assert not hasattr(estimator, "module_")


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"lr": 0.0}, ValueError, "lr"),
        ({"max_epochs": 1.5}, TypeError, "max_epochs"),
        ({"optimizer": "Adamm"}, ValueError, "optimizer must be a torch optimizer"),
        (
            {"runtime": Runtime(device="foo")},
            ValueError,
            "device must be 'auto' or a torch device.*got 'foo'",
        ),
        ({"module": torch.nn.Linear(3, 2)}, TypeError, "module must be a class or function"),
    ],
)
@pytest.mark.parametrize("make", MAKERS)
def test_parameters_out_of_range_are_named_by_fit(make, params, error, message, data):
    with pytest.raises(error, match=message):
        make(**params).fit(*data)


# --- Copies -----------------------------------------------------------------------------------


def through_pickle(estimator, tmp_path):
    return pickle.loads(pickle.dumps(estimator))


def through_joblib(estimator, tmp_path):
    joblib.dump(estimator, tmp_path / "model.joblib")
    return joblib.load(tmp_path / "model.joblib")


COPIES = {
    "pickle": through_pickle,
    "joblib": through_joblib,
    "deepcopy": lambda estimator, _: copy.deepcopy(estimator),
    "copy": lambda estimator, _: copy.copy(estimator),
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("cls", CLASSES)
def test_copies_are_of_what_was_fitted_whatever_was_set_later(cls, way, fitted, data, tmp_path):
    estimator = copy.deepcopy(fitted[cls])
    expected = estimator.predict_members(data[0])
    later = {"module__activation": "relu", "module__hidden_units": (3, 2, 1)}
    estimator.set_params(**later, **({"heads": Heads(head_layers=2)} if cls in STUDENTS else {}))
    copied = COPIES[way](COPIES[way](estimator, tmp_path), tmp_path)
    np.testing.assert_array_equal(copied.predict_members(data[0]), expected)
    assert copied.get_params()["module__hidden_units"] == (3, 2, 1)


@pytest.mark.parametrize("state", ["unfitted", "fitted"])
@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize(
    ("version", "named"), [("0.0.7", "0.0.7"), (None, "an older version, which noted no number")]
)
def test_a_pickle_of_another_version_is_loaded_with_a_warning(cls, state, version, named, fitted):
    estimator = fitted[cls] if state == "fitted" else clone(fitted[cls])
    written = estimator.__getstate__()
    assert written.pop("_skdistill_version") == skdistill.__version__
    if version is not None:
        written["_skdistill_version"] = version
    loaded = cls.__new__(cls)
    message = f"{cls.__name__} was pickled by skdistill {named} and is loaded by .* fit it anew"
    with pytest.warns(UserWarning, match=message):
        loaded.__setstate__(written)
    assert "_skdistill_version" not in vars(loaded), "it would pass for what wrote the next pickle"
    assert repr(loaded) == repr(estimator)


class Recorder(pickle.Unpickler):
    """Notes the modules that a pickle asks for."""

    def __init__(self, file):
        super().__init__(file)
        self.modules: set[str] = set()

    def find_class(self, module, name):
        self.modules.add(module.split(".")[0])
        return super().find_class(module, name)


@pytest.mark.parametrize("state", ["unfitted", "fitted"])
@pytest.mark.parametrize("cls", CLASSES)
def test_pickles_hold_nothing_of_torch_or_skorch(cls, state, fitted):
    estimator = fitted[cls] if state == "fitted" else clone(fitted[cls])
    recorder = Recorder(io.BytesIO(pickle.dumps(estimator)))
    recorder.load()
    assert "skdistill" in recorder.modules
    assert not recorder.modules & {"torch", "skorch"}


# --- Documentation in the code ----------------------------------------------------------------


def all_modules():
    """Names of all modules, less one that only BoTorch's users can import, where there is none."""
    walk = pkgutil.walk_packages(skdistill.__path__, prefix="skdistill.")
    names = [skdistill.__name__, *(info.name for info in walk)]
    if importlib.util.find_spec("botorch") is None:
        names.remove("skdistill.integrations.botorch")
    return names


def public_modules():
    return [name for name in all_modules() if "._" not in name]


def modules_with_examples():
    for name in all_modules():
        if ">>> " in Path(importlib.util.find_spec(name).origin).read_text(encoding="utf-8"):
            marks = [pytest.mark.slow] if ".export." in name else []  # to make graphs takes long
            yield pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_in_docstrings_run(name):
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    found = doctest.testmod(importlib.import_module(name), optionflags=flags)
    assert found.failed == 0


def public_objects():
    """Everything that an ``__all__`` of a public module lists, each once, by its dotted name."""
    found = {}
    for module in map(importlib.import_module, public_modules()):
        for name in getattr(module, "__all__", ()):
            obj = getattr(module, name)
            if inspect.isfunction(obj) or inspect.isclass(obj):
                found.setdefault(f"{obj.__module__}.{name}", obj)
    return found


def is_protocol(cls):
    return getattr(cls, "_is_protocol", False)


def overrides(cls, attribute):
    """Whether a base class of ours describes a method already, so that a sentence is enough."""
    ours = (base for base in cls.__mro__[1:] if base.__module__.startswith("skdistill"))
    return any(getattr(vars(base).get(attribute), "__doc__", None) for base in ours)


# What numpydoc's validator would have and we do not: sections that are optional (SA01, EX01, ES01),
# the start of the text on a line of its own (GL01, GL02) and results without names (RT02), as
# scikit-learn; words beside names whose type says all (PR04, PR07, RT03), parameters in groups that
# belong together (PR03), and verbs where a summary begins with a noun in the plural (SS05).
NOT_HELD = {"SA01", "EX01", "ES01", "GL01", "GL02", "RT02", "PR03", "PR04", "PR07", "RT03", "SS05"}


def names_with_docstrings(name, obj):
    """Dotted names of an object and of its public methods that have a docstring of their own."""
    yield name
    for attribute in dir(obj) if inspect.isclass(obj) else ():
        value = inspect.getattr_static(obj, attribute)
        function = inspect.unwrap(getattr(value, "__func__", getattr(value, "fn", value)))
        is_ours = inspect.isfunction(function) and function.__module__.startswith("skdistill")
        owner = next((base for base in obj.__mro__ if attribute in vars(base)), obj)
        if overrides(owner, attribute) or attribute.startswith("_"):
            continue
        if is_ours and function.__doc__:
            yield f"{name}.{attribute}"


def test_docstrings_are_valid_for_numpydoc():
    validate = pytest.importorskip("numpydoc.validate").validate
    found = []
    for name, obj in public_objects().items():
        has_fields = inspect.isclass(obj) and (is_protocol(obj) or hasattr(obj, "_fields"))
        ignored = NOT_HELD | ({"PR01"} if has_fields else set())
        found += [
            f"{each}: {code} {message}"
            for each in names_with_docstrings(name, obj)
            for code, message in validate(each)["errors"]
            if code not in ignored
        ]
    assert not found, "\n".join(found)
