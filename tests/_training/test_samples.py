# SPDX-License-Identifier: BSD-3-Clause
"""Data that do not fit in memory: batches that are read again and again, and memory maps."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.frozen import FrozenEstimator

from skdistill import (
    BayesianEnsembleClassifier,
    BayesianEnsembleRegressor,
    DistributionDistiller,
    HydraPlusClassifier,
    HydraPlusRegressor,
    predict_frame,
)
from skdistill._data import encoding
from skdistill._training.samples import Samples, Stream, _Examples
from skdistill._utils import moments
from skdistill.samplers import SGLD, DeepEnsemble
from skdistill.settings import Runtime
from skdistill.streams import Batches, predict_batches

SMALL = {"max_epochs": 3, "module__hidden_units": (8,), "random_state": 0}


class Cut:
    """Arrays or frames, cut into batches each time that they are read."""

    def __init__(self, *arrays, size=70, buffer_rows=100_000):
        self.arrays, self.size, self.buffer_rows = arrays, size, buffer_rows
        self.n_passes = 0

    def __iter__(self):
        self.n_passes += 1
        for start in range(0, len(self.arrays[0]), self.size):
            yield tuple(array[start : start + self.size] for array in self.arrays)


class Given:
    """Batches that are listed, of which one reading may differ from the next."""

    def __init__(self, *passes):
        self.passes = list(passes)

    def __iter__(self):
        return iter(self.passes.pop(0) if len(self.passes) > 1 else self.passes[0])


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    y = 100 + X @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=500)
    return X, y, rng.uniform(0.1, 3.0, size=500)


def words(y):
    return np.where(y > np.median(y), "high", "low")


def ensemble(kind="regressor", **params):
    is_regressor = kind == "regressor"
    cls = BayesianEnsembleRegressor if is_regressor else BayesianEnsembleClassifier
    return cls(**{"n_members": 3, "inference": DeepEnsemble(calibrate=None), **SMALL, **params})


def forest(kind, X, y):
    cls = RandomForestRegressor if kind == "regressor" else RandomForestClassifier
    return FrozenEstimator(cls(4, min_samples_leaf=5, random_state=0).fit(X, y))


def hydra(kind, *args, **params):
    cls = HydraPlusRegressor if kind == "regressor" else HydraPlusClassifier
    return cls(*args, **{**SMALL, **params})


MODELS = {
    "ensemble": lambda kind, X, y: ensemble(kind),
    "hydra of an ensemble": lambda kind, X, y: hydra(kind, ensemble(kind)),
    "hydra of a fitted ensemble": lambda kind, X, y: hydra(
        kind, FrozenEstimator(ensemble(kind).fit(X, y)), transfer=None
    ),
    "distribution of a forest": lambda kind, X, y: DistributionDistiller(
        forest(kind, X, y), **SMALL
    ),
}


def targets_of(kind, y):
    return y if kind == "regressor" else words(y)


@pytest.mark.parametrize(("kind", "is_weighted"), [("regressor", True), ("classifier", False)])
@pytest.mark.parametrize("model", MODELS)
def test_one_batch_trains_what_the_arrays_train(model, kind, is_weighted, table):
    X, y, weight = table
    y = targets_of(kind, y)
    data = (X, y, weight) if is_weighted else (X, y)
    plain = MODELS[model](kind, X, y).set_params(runtime=Runtime(dtype="float64"))
    if model != "ensemble":  # of a stream samples are drawn anew in each epoch, of arrays once
        plain.set_params(transfer=None)
    if model == "hydra of an ensemble":
        plain.set_params(teacher__runtime=Runtime(dtype="float64"))
    expected = clone(plain).fit(*data)
    found = clone(plain).fit(Cut(*data, size=len(X)))
    uncertainties = (model.predict_uncertainty(X).total for model in (found, expected))
    # Sums of weights are rounded in another way; members of classes have weights of their own.
    has_weights = is_weighted or (kind == "classifier" and "ensemble" in model)
    np.testing.assert_allclose(*uncertainties, rtol=1e-5 if has_weights else 0.0)
    if not is_weighted:
        np.testing.assert_array_equal(found.predict(X), expected.predict(X))
    assert found.n_epochs_ == expected.n_epochs_
    assert found.n_features_in_ == 3


def test_the_first_reading_finds_the_scales_of_the_arrays(table):
    X, y, weight = table
    y = np.column_stack([y, 1e-3 * y])
    whole, parts = (Stream(ensemble(), Cut(X, y, weight, size=n)) for n in (500, 33))
    assert parts.n_rows == 500
    assert parts.total_weight == pytest.approx(weight.sum())
    found, expected = parts.y_moments, whole.y_moments
    np.testing.assert_allclose(found.loc, expected.loc, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(found.scale, expected.scale, rtol=1e-13)
    in_memory = ensemble().fit(X, y, weight).module_
    for name, value in parts.scaling(parts.task, True).items():
        np.testing.assert_allclose(value, getattr(in_memory, name), rtol=1e-12)


def test_rows_of_weight_zero_are_left_out(table):
    X, y, weight = table
    weight = weight.copy()
    weight[70:140] = 0.0  # all of a batch
    weight[200:220] = 0.0
    kept = weight > 0
    found = ensemble().fit(Cut(X, y, weight))
    expected = ensemble().fit(X[kept], y[kept], weight[kept])
    np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=1e-6)


def test_a_label_may_come_late(table):
    X, y, _ = table
    order = np.argsort(y)
    found = ensemble("classifier").fit(Cut(X[order], words(y)[order]))
    assert found.classes_.tolist() == ["high", "low"]
    assert found.score(X, words(y)) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(("library", "is_categorical"), [("pandas", True), ("polars", False)])
def test_categories_may_come_late_or_lack(library, is_categorical, table):
    pd, frames = pytest.importorskip("pandas"), pytest.importorskip(library)
    X, y, _ = table
    town = np.repeat(["Rome", "Oslo", "Bern", "Oslo", None], 100)
    y = y + 10 * (town == "Oslo")
    parts = []
    for rows in (slice(start, start + 100) for start in range(0, 500, 100)):
        part = pd.DataFrame({"x": X[rows, 0], "z": X[rows, 1], "town": town[rows]})
        part["town"] = part["town"].astype("category" if is_categorical else "str")
        parts.append((frames.DataFrame(part), y[rows]))
    whole = frames.DataFrame(pd.DataFrame({"x": X[:, 0], "z": X[:, 1], "town": town}))
    settings = {"max_epochs": 40, "runtime": Runtime(dtype="float64"), "module__embeddings": None}
    for make in (ensemble, lambda **params: hydra("regressor", ensemble(**params), **params)):
        model = make(**settings).fit(Given(parts))
        assert model.categories_ == {2: ["Rome", "Oslo", "Bern"]}
        assert model.score(whole, y) > 0.6 * make(**settings).fit(whole, y).score(whole, y)
        np.testing.assert_array_equal(model._recipe.inputs.n_categories, [0, 0, 3])


def test_examples_are_evenly_spaced():
    examples = _Examples(100)
    rows = np.arange(12_345)
    for part in np.array_split(rows, 77):
        examples.add(Samples(part, part, part))
    kept = examples.part().X
    assert 50 <= len(kept) <= 100
    np.testing.assert_array_equal(kept, rows[:: kept[1]])


# ------------------------------------------------------------------------------------------
# What is refused
# ------------------------------------------------------------------------------------------

ROWS = np.arange(12.0).reshape(4, 3)
Y = np.arange(4.0)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "X must give at least one batch"),
        ([ROWS], r"Batch 0: a batch must be a tuple \(X, y\)"),
        ([(ROWS, Y), (ROWS[:, :2], Y)], "Batch 1: X has 2 features, but .* expecting 3"),
        ([(ROWS, Y), (ROWS.astype(np.float32), Y)], "Batch 1: .*X of dtype float64.* got float32"),
        ([(ROWS, Y), (ROWS, Y, Y)], "Batch 1: it must have sample_weight: False"),
        ([(ROWS, Y), (ROWS + np.nan, Y)], "Batch 1: .*contains NaN"),
    ],
)
def test_batches_that_do_not_go_together_are_refused(batches, message):
    with pytest.raises((TypeError, ValueError), match=message):
        ensemble().fit(Given(batches))


def test_what_can_be_read_once_only_is_refused_before_it_is_read(table):
    X, y, _ = table
    batches = iter(Cut(X, y))
    for once in (batches, ((X, y) for _ in range(2)), zip([X], [y], strict=True)):
        with pytest.raises(TypeError, match="can be read once only"):
            ensemble().fit(once)
    assert len(next(batches)[0]) == 70


def test_batches_that_change_from_reading_to_reading_are_refused():
    first = [(ROWS, Y), (ROWS, Y)]
    for later in (first[:1], first + first[:1]):
        with pytest.raises(
            ValueError, match="same samples each time that it is read, got 8 samples"
        ):
            ensemble().fit(Given(first, later))
    labels = [(ROWS, [0, 1, 0, 1])]
    with pytest.raises(ValueError, match=r"Batch 0: y must hold labels of the classes \[0, 1\]"):
        ensemble("classifier").fit(Given(labels, [(ROWS, [0, 1, 2, 1])]))


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("inference__early_stopping", {"inference": DeepEnsemble(early_stopping=True)}),
        ("inference__bootstrap", {"inference": DeepEnsemble(bootstrap=True)}),
        ("warm_start", {"warm_start": True}),
        ("runtime__checkpoint", {"runtime": Runtime(checkpoint="file")}),
        ("inference", {"inference": SGLD(1e-3)}),
    ],
)
def test_ensembles_name_what_batches_do_not_go_with(name, params, table):
    X, y, _ = table
    with pytest.raises(ValueError, match=f"^{name} must be .* where X gives batches"):
        ensemble(**params).fit(Cut(X, y))


# ------------------------------------------------------------------------------------------
# Sources
# ------------------------------------------------------------------------------------------


class Iterable(torch.utils.data.IterableDataset):
    def __init__(self, X, y):
        self.X, self.y = torch.tensor(X), torch.tensor(y)

    def __iter__(self):
        yield from zip(self.X.split(100), self.y.split(100), strict=True)


def frame_of(table):
    pandas = pytest.importorskip("pandas")
    X, y, weight = table
    return pandas.DataFrame({**dict(zip("abc", X.T, strict=True)), "y": y, "w": weight})


def lazy_frame(frame, folder):
    return pytest.importorskip("polars").DataFrame(frame.to_dict("list")).lazy()


def parquet_files(frame, folder):
    pyarrow = pytest.importorskip("pyarrow")
    dataset = pytest.importorskip("pyarrow.dataset")
    arrow = pyarrow.Table.from_pandas(frame, preserve_index=False)
    sizes: dict = {"max_rows_per_group": 64, "max_rows_per_file": 128}
    dataset.write_dataset(
        arrow, folder, format="parquet", **sizes, existing_data_behavior="overwrite_or_ignore"
    )
    return dataset.dataset(folder, format="parquet")


def dask_frame(frame, folder):
    return pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=8)


@pytest.mark.parametrize("make", [lazy_frame, parquet_files, dask_frame])
def test_tables_give_batches(make, table, tmp_path):
    frame = frame_of(table)
    batches = Batches(make(frame, tmp_path), target="y", weight="w", batch_size=60, buffer_rows=128)
    assert max(len(X) for X, _, _ in batches) <= 64
    found = ensemble().fit(batches)
    assert found.feature_names_in_.tolist() == ["a", "b", "c"]
    X = frame[["a", "b", "c"]]
    expected = ensemble().fit(Cut(X, frame["y"], frame["w"], buffer_rows=128))
    np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=1e-6)
    # Several targets, and a teacher that knows the columns by their names.
    batches = Batches(make(frame, tmp_path), target=["y", "w"])
    teacher = FrozenEstimator(
        RandomForestRegressor(3, min_samples_leaf=5, random_state=0).fit(X, frame[["y", "w"]])
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        student = hydra("regressor", teacher).fit(batches)
    assert student.n_outputs_ == 2


@pytest.mark.parametrize("make", [lazy_frame, parquet_files, dask_frame])
def test_tables_are_predicted_batch_by_batch(make, table, tmp_path):
    frame = frame_of(table)
    model = ensemble().fit(frame[["a", "b", "c"]], frame["y"])
    source, folder = make(frame, tmp_path / "files"), tmp_path / "out" / "predicted"
    settings = {"keep": ["w"], "batch_size": 60, "coverage": 0.8}
    found = predict_batches(model, source, folder, **settings).to_table().to_pandas()
    expected = predict_frame(model, frame[["a", "b", "c"]], 0.8)
    assert [*found] == [*expected, "w"]
    np.testing.assert_allclose(found[[*expected]], expected, rtol=1e-5)
    np.testing.assert_array_equal(found["w"], frame["w"])
    # What is there stays, what is missing is predicted.
    paths = sorted(folder.iterdir())
    assert len(paths) >= 8
    times = [path.stat().st_mtime_ns for path in paths]
    paths[3].unlink()
    paths[5].rename(paths[5].with_suffix(".part"))  # of a process that was killed
    again = predict_batches(model, source, folder, **settings).to_table().to_pandas()
    assert again.equals(found)
    assert sorted(folder.iterdir()) == paths
    changed = [path.stat().st_mtime_ns != time for path, time in zip(paths, times, strict=True)]
    assert np.flatnonzero(changed).tolist() == [3, 5]
    other = clone(model).set_params(random_state=1).fit(frame[["a", "b", "c"]], frame["y"])
    with pytest.raises(ValueError, match=r"got '.*predicted' with another part-000000.parquet"):
        predict_batches(other, source, folder, **settings)


def test_maps_are_predicted_batch_by_batch(table, tmp_path):
    for module in ("pandas", "pyarrow"):
        pytest.importorskip(module)
    X, y, _ = table
    np.save(tmp_path / "map.npy", X)
    source = np.load(tmp_path / "map.npy", mmap_mode="r")
    for number, kind in enumerate(("regressor", "classifier")):
        model = ensemble(kind).fit(X, targets_of(kind, y))
        found = predict_batches(model, source, tmp_path / str(number), batch_size=200)
        assert [file.count_rows() for file in found.get_fragments()] == [200, 200, 100]
        expected = predict_frame(model, X)
        assert found.schema.names == [*expected]
        np.testing.assert_allclose(
            found.to_table()["std" if number == 0 else "total"],
            expected["std" if number == 0 else "total"],
            rtol=1e-5,
        )
    with pytest.raises(ValueError, match="folder must be empty"):  # other batches
        predict_batches(model, source, tmp_path / "1", batch_size=100)
    with pytest.raises(ValueError, match="keep must be empty where source has no columns"):
        predict_batches(model, source, tmp_path / "2", keep=["w"])


def dask_arrays(table, chunks, columns=2):
    array = pytest.importorskip("dask.array")
    X, *others = table
    return [
        array.from_array(X, chunks=(chunks, columns)),
        *(array.from_array(values, chunks=123) for values in others),
    ]


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
def test_arrays_of_dask_give_their_blocks(kind, table):
    X, y, weight = table
    data = X, targets_of(kind, y), weight
    expected = ensemble(kind).fit(Cut(*data, size=200, buffer_rows=128))
    batches = Batches.from_dask(*dask_arrays(data, 200), buffer_rows=128)
    assert [[len(part) for part in batch] for batch in batches] == [[200] * 3, [200] * 3, [100] * 3]
    np.testing.assert_array_equal(
        ensemble(kind).fit(batches).predict_frame(X), expected.predict_frame(X)
    )
    assert len(next(iter(Batches.from_dask(*dask_arrays(data[:2], 100))))) == 2
    images = pytest.importorskip("dask.array").zeros((10, 4, 6), chunks=(4, 2, 3))
    assert next(X.shape for X, _ in Batches.from_dask(images, images[:, 0, 0])) == (4, 4, 6)


# ------------------------------------------------------------------------------------------
# Memory
# ------------------------------------------------------------------------------------------


# 6.4 MB each. From 10,000 samples on, each column has a number of bins of its own.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "is_weighted", "shape"),
    [("ensemble", True, (20_000, 80)), ("hydra", False, (8_000, 200))],
)
def test_a_memory_map_is_not_copied(make, is_weighted, shape, tmp_path, monkeypatch):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=shape).astype(np.float32))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")  # it may not be written to
    monkeypatch.setattr(moments, "_PIECE", 2**16)
    monkeypatch.setattr(encoding, "_SAMPLES_OF_SPLINE", 1000)  # which take time, not memory
    params = {**SMALL, "max_epochs": 1, "batch_size": 400}
    # Random functions take as much memory for some samples, however many there are.
    teacher = ensemble(distance_aware=False, **params)
    model = teacher
    if make == "hydra":
        model = hydra("regressor", FrozenEstimator(teacher.fit(mapped[:500], mapped[:500, 0])))
        model.set_params(**params)
    X, y = np.array(mapped), mapped[:, 0] - mapped[:, 1]
    weight = np.linspace(1.0, 2.0, len(y)) if is_weighted else None
    expected = model.fit(X, y, weight).predict(X)
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.fit(mapped, y, weight)
            peak_of_fit = tracemalloc.get_traced_memory()[1]
            tracemalloc.reset_peak()
            found = model.predict(mapped)
            peak_of_predict = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(X, mapped)
    assert peak_of_fit < X.nbytes / 2, peak_of_fit
    assert peak_of_predict < X.nbytes / 2, peak_of_predict
