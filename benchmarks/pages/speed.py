# SPDX-License-Identifier: BSD-3-Clause
"""Speed, memory, and what large tables cost."""

from __future__ import annotations

from typing import Any

from _pages import (
    TASKS,
    Table,
    block,
    comparisons,
    duration,
    marked,
    named,
    pick,
    stored,
    table,
)

N_HUGE, EPOCHS_OF_HUGE = 10**8, 10  # rows, and the epochs that max_epochs="auto" takes of them


@block
def engine_training() -> Table:
    """How many times as fast a fit is as others."""
    peers = ("skorch", "plain loop", "Bagging of MLPs", "bare torch loop")
    settings: dict[str, dict[str, str]] = {}
    for row in stored("engine")["training"]:
        faster = row["ratio"] if row["measure"] == "times as fast" else 1 / row["ratio"]
        ratios = settings.setdefault(row["setting"], {})
        column = row["peer"] if row["ours"] == "skdistill" else f"{row['peer']}, {row['ours']}"
        ratios[column] = marked(faster, ".3g", row["reached"])
    columns = [*peers, "skorch, defaults", "bare torch loop, defaults"]
    rows = ([named(setting), *map(ratios.get, columns)] for setting, ratios in settings.items())
    return table(" | ".join(["samples x features", *columns]), rows)


@block
def engine_costs() -> Table:
    """What a fit costs beside its steps."""
    overhead, memory = stored("engine")["overhead"], stored("engine")["memory"]
    beyond = duration(overhead["overhead_seconds"])
    rows = [["one epoch, without its steps", named(overhead["setting"]), beyond]]
    rows += [
        [f"peak memory, {row['contender']}", named(row["setting"]), f"{row['peak_mib']:.1f} MiB"]
        for row in memory
        if row["members"] == 10  # the other loops were measured with two
    ]
    return table("what | setting | measured", rows)


@block
def predict_times() -> Table:
    """How fast prediction is."""
    return comparisons(stored("predict")["prediction"])


@block
def calls_times() -> Table:
    """What a sample costs in each call, by input and number of samples."""
    by_call: dict[tuple[str, str], list[str]] = {}
    rows = stored("calls")["calls"]
    columns = list(dict.fromkeys((row["n"], row["input"]) for row in rows))
    columns.sort(key=lambda column: column[0])
    for row in rows:
        times = by_call.setdefault((row["model"], row["outputs"]), [""] * len(columns))
        times[columns.index((row["n"], row["input"]))] = f"{row['us_per_sample']:.3g}"
    header = [f"{n:,}, {kind}" for n, kind in columns]
    return table(
        " | ".join(["model", "outputs", *header]),
        ([*call, *times] for call, times in by_call.items()),
    )


@block
def maps_times() -> Table:
    """Ten million samples."""
    paths = "model outputs samples seconds cpu_s per_second peak_mib"
    return table(
        "model | outputs | samples:, | s:.0f | CPU s:.0f | samples per second:,.0f | MiB:.0f",
        (pick(row, paths) for row in stored("maps")["maps"]),
    )


@block
def predict_memory() -> Table:
    """By how much memory grows in a prediction."""
    paths = "model method rows working_memory_mib copy_and_results_mib peak_mib"
    return table(
        "model | method | samples:, | working memory, MiB:d | copy and twice the result, MiB:.1f | "
        "peak growth, MiB:.1f",
        (pick(row, paths) for row in stored("predict")["memory"]),
    )


@block
def serving_times() -> Table:
    """Serving by a student, its exported forms and its teacher; targets are those of the file."""
    found = stored("serving")
    most, least = found["targets"].values()
    rows = []
    for row in found["serving"]:
        us, speed = row["one_row_us"], row["rows_per_second"]
        rows.append(
            [
                row["model"],
                TASKS[row["task"]],
                marked(us, ".0f", row["model"] != "file" or us <= most),
                marked(speed, ",.0f", row["model"] != "file, 2 threads" or speed >= least),
                row["kilobytes"],
            ]
        )
    return table("model | predicts | one sample, µs | samples per second | kB:.0f", rows)


@block
def persistence_times() -> Table:
    """Writing and reading models in four ways; the target is that of the student's file."""
    found = stored("persistence")
    most, rows = found["target_ms"], []
    for row in found["persistence"]:
        wanted = (row["model"], row["way"]) == ("student", "save")
        times = (
            marked(row[key], ".1f", not wanted or row[key] <= most)
            for key in ("write_cpu_ms", "write_wall_ms", "read_cpu_ms", "read_wall_ms")
        )
        rows.append([row["model"], row["way"], *times, row["kilobytes"]])
    return table("model | way | write, CPU ms | wall | read, CPU ms | wall | kB:,.0f", rows)


@block
def persistence_cold() -> Table:
    """New processes that load a model."""
    rows = (pick(row, "process cpu_s wall_s") for row in stored("persistence")["cold_start"])
    return table("new process | CPU s:.2f | wall:.2f", rows)


@block
def parallel_times() -> Table:
    """Seconds on the clock of one job, and of two."""
    rows = [
        [
            named(row["setting"]),
            row["ours"],
            row["peer_seconds"],
            row["ours_seconds"],
            marked(row["ratio"], ".2f", row["reached"]),
            row["target"],
        ]
        for row in stored("parallel")["cores"]
    ]
    return table(
        "setting | by | one, s:.2f | two, s:.2f | times as fast | target, at least:.1f", rows
    )


@block
def many_classes_step() -> Table:
    """Time of a step with forty thousand classes."""
    return comparisons(stored("many_classes")["step"])


@block
def many_classes_memory() -> Table:
    """Memory of a step with forty thousand classes."""
    found = stored("many_classes")["memory"]
    shares = {"reverse KL": marked(found["share_of_naive"], ".2f", found["reached"])}
    rows = ([name, peak, shares.get(name)] for name, peak in found["peak_mib"].items())
    share = f"share of the naive form, target at most {found['target']:g}"
    return table(f"loss | peak, MiB:.0f | {share}", rows)


@block
def scale_defaults() -> Table:
    """What teacher and student cost by default."""
    return table(
        "samples:, | epochs | teacher, CPU s:.1f | student:.1f | both, wall-clock s:.0f | "
        "MiB of X:.0f | beyond X, teacher:.0f | both:.0f | NLL, teacher:.3f | student:.3f",
        (
            [
                row["n_rows"],
                "{}, {}".format(*row["epochs"]),
                *row["cpu_seconds"],
                sum(row["wall_seconds"]),
                row["x_mib"],
                *row["growth_mib"],
                *row["nll"],
            ]
            for row in stored("scale")["sizes"]["pairs"]
        ),
    )


@block
def scale_peers() -> Table:
    """What gradient boosting costs on the same tables."""
    keys = "peer n_rows cpu_seconds growth_mib rmse"
    rows = (pick(row, keys) for row in stored("scale")["sizes"]["peers"])
    return table("peer | samples:, | CPU s:.1f | MiB beyond X:.0f | RMSE:.3f", rows)


@block
def scale_files() -> Table:
    """A student whose rows are in Parquet files."""
    keys = "teacher n_rows epochs cpu_seconds wall_seconds rows_per_second peak_mib"
    heading = (
        "teacher | samples:, | epochs | CPU s:.0f | wall-clock s:.0f | samples per second:,.0f | "
    )
    return table(f"{heading}peak, MiB:.0f", [pick(stored("scale")["parquet"], keys)])


@block
def scale_growth() -> Table:
    """Seconds by what grows, and slopes."""
    rows: list[list[Any]] = []
    for axis, found in stored("scale")["growth"].items():
        for i, model in enumerate(("teacher", "student")):
            sizes = " / ".join(f"{fit[axis]:,}" for fit in found["fits"])
            seconds = " / ".join(f"{fit['cpu_seconds'][i]:.2f}" for fit in found["fits"])
            last = found["last_slopes"][i]
            rows.append([named(axis[2:]), model, sizes, seconds, found["slopes"][i], last])
    return table("by | model | sizes | CPU s | slope:.2f | of the last step:.2f", rows)


@block
def scale_targets() -> Table:
    """Targets of large data sets."""
    return table(
        "target | measured | at most:g",
        (
            [named(row["target"]), marked(row["value"], ".3g", row["reached"]), row["high"]]
            for row in stored("scale")["targets"]
        ),
    )


@block
def scale_arithmetic() -> Table:
    """What a fit of 100,000,000 rows would take, from seconds and bytes measured on few of them."""
    found = stored("scale")["example"]
    n_rows, d, n_members, n_classes = pick(found, "n_rows n_columns n_members n_classes")
    teacher, student = (seconds / n_rows for seconds in found["cpu_seconds"])
    hours = [seconds * EPOCHS_OF_HUGE * N_HUGE / 3600 for seconds in (teacher, student)]
    row_bytes, answer_bytes = 4 * d, 4 * n_members * n_classes
    gib, tib = 2**30, 2**40
    rows = [
        ["teacher, µs per sample and member", f"{1e6 * teacher / n_members:.2f}"],
        ["teacher, core hours", f"{hours[0]:,.0f}"],
        ["teacher, hours on as many cores as members", f"{hours[0] / n_members:,.1f}"],
        ["student, µs per sample, its teacher's predictions included", f"{1e6 * student:,.0f}"],
        ["student, hours on one core", f"{hours[1]:,.0f}"],
        [
            "student of a 50th of the samples, hours on one core",
            f"{hours[1] / 50:.1f}",
        ],
        ["samples in float32, GiB", f"{N_HUGE * row_bytes / gib:.0f}"],
        [
            "samples read by all members in all epochs, TiB",
            f"{N_HUGE * row_bytes * n_members * EPOCHS_OF_HUGE / tib:.1f}",
        ],
        [
            "predictions of the members, if they were kept, TiB",
            f"{N_HUGE * answer_bytes / tib:.1f}",
        ],
        ["peak beyond X of the fit of few samples, GiB", f"{found['growth_mib'][1] / 1024:.2f}"],
    ]
    return table("what | amount", rows)
