# SPDX-License-Identifier: BSD-3-Clause
"""What the benchmark scripts share: fair timing, peak memory, data, tables and JSON.

Times are CPU seconds of one thread. Contenders run in turn, round after round, and ratios are
medians over rounds of ratios within a round, so that a busy neighbour slows both sides alike.
"""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from _defaults import defaults_of_script, replaced
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

import skdistill
from skdistill.distributions import Uncertainty
from skdistill.metrics import epistemic_fidelity, uncertainty_total_variation

RESULTS = Path(__file__).parent / "results"
_START = time.perf_counter()

_PACKAGES = (
    *("torch", "numpy", "scipy", "scikit-learn", "skorch", "onnxruntime"),
    *("ngboost", "catboost", "lightgbm"),
)


# What a script is asked, and what it leaves behind ----------------------------------------------


class Among(NamedTuple):
    """The default of an option, and what it is chosen from."""

    default: Any
    choices: Iterable[str]


def asked(description: str | None, **options: Any) -> argparse.Namespace:
    """What a script is asked on its command line; from here on it has one thread.

    An option takes what its default is: a number, one or some of its choices, parameters K=V of an
    empty dict, or a flag that is False. `quick` and `output` are those of all scripts; results go
    to ``results/<script>.json``.
    """
    name = Path(sys.argv[0]).stem
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    told = "default: %(default)s"
    quick = "tiny sizes: see that it runs, believe no number"
    parser.add_argument("--quick", action="store_true", help=quick)
    output = RESULTS / f"{name}.json"
    parser.add_argument("--output", type=Path, default=output, help=f"JSON file to write ({told})")
    for option, default in options.items():
        own: dict[str, Any] = {"help": told}
        if isinstance(default, Among):
            default, own["choices"] = default.default, list(default.choices)
        elif isinstance(default, (list, tuple)):
            own["choices"] = list(default)
        if default is False:
            own = {"action": "store_true"}
        elif isinstance(default, dict):
            own = {"nargs": "*", "type": parameter, "metavar": "K=V"}
        elif isinstance(default, (list, tuple)):
            own |= {"nargs": "+", "metavar": option.rstrip("s").upper()}
        elif isinstance(default, (int, float)):
            own["type"] = type(default)
        parser.add_argument(f"--{option.replace('_', '-')}", default=default, **own)
    found = parser.parse_args()
    for option, default in options.items():
        if isinstance(default, dict):
            setattr(found, option, dict(getattr(found, option)))
        elif isinstance(value := getattr(found, option), tuple):
            setattr(found, option, list(value))
    shared = Path(__file__).parents[2] / "shared" / "data"
    if shared.exists():
        os.environ.setdefault("SKDISTILL_DATA", str(shared))
    one_thread()
    return found


def save(options: argparse.Namespace, **content: Any) -> None:
    """Write `content` with what it was asked, date, machine, versions, defaults and minutes."""
    settings = {k: v for k, v in vars(options).items() if k not in ("output", "resume")}
    write_json(options.output, record(settings=settings, **content))


def measured(
    units: Sequence[Any],
    run: Callable[..., tuple[list[dict[str, Any]], list[dict[str, Any]]]],
    options: argparse.Namespace,
    rows: list[dict[str, Any]],
    identity: Callable[[dict[str, Any]], tuple],
    order: Callable[[dict[str, Any]], Any],
) -> list[dict[str, Any]]:
    """`rows` and those of all units, ``options.jobs`` at a time; written after each of them.

    `run` returns the rows of a unit, and what failed.
    """
    start, failures = time.perf_counter(), []
    done = Parallel(options.jobs, return_as="generator")(delayed(run)(unit) for unit in units)
    for number, (unit, (new, failed)) in enumerate(zip(units, done, strict=True), 1):
        rows = sorted(replaced(rows, new, identity), key=order)
        failures += failed
        save(options, failures=failures, results=rows)
        minutes = (time.perf_counter() - start) / 60
        print(f"[{number}/{len(units)}, {minutes:.0f} min]", *filter(None, unit), flush=True)
        for failure in failed:
            print(f"    failed: {failure['error']}", flush=True)
    return rows


def parameter(text: str) -> tuple[str, Any]:
    """Name and value of a parameter that is given as ``name=value``."""
    name, value = text.split("=", 1)
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value  # a string without quotes, such as a path


def arrays(file: str, names: str) -> list[np.ndarray]:
    """Arrays of a file in the folder that SKDISTILL_DATA names."""
    with stored(file) as content:
        return [content[name] for name in names.split()]


def stored(file: str) -> Any:
    """Open a file in the folder that SKDISTILL_DATA names."""
    folder = os.environ.get("SKDISTILL_DATA")
    if not folder:
        raise SystemExit(f"SKDISTILL_DATA must name the folder of data that holds {file}.npz")
    return np.load(Path(folder, f"{file}.npz"), allow_pickle=False)


def record(**content) -> dict[str, Any]:
    """`content` with date, machine, versions, defaults and the minutes that the script took."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "minutes": round((time.perf_counter() - _START) / 60, 1),
        "defaults": defaults_of_script(Path(sys.argv[0]).name),
        **content,
    }


def machine() -> dict[str, Any]:
    """Processor, cores, memory and system."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
    }


def hardware(machine: dict[str, Any]) -> dict[str, Any]:
    """What of a machine tells whether results can stand side by side: not its kernel's release."""
    return {**machine, "system": machine["system"].partition("-")[0]}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def versions(*more: str) -> dict[str, str]:
    """Versions of Python and of the packages that are installed, and of `more` of them."""
    found = {"python": platform.python_version(), "skdistill": skdistill.__version__}
    for package in (*_PACKAGES, *more):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue  # an optional peer
    return found


def write_json(path: str | Path, content: dict[str, Any]) -> None:
    """Write `content` as JSON, making the folder if need be."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")  # a script that is stopped leaves the old file whole
    new.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    new.replace(path)


def resumed(path: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """Content of a results file that can stand beside this run; None where there is no file.

    The machine, but for the release of its kernel, and all of `settings` have to be the same.
    """
    if not path.exists():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    then = {"machine": hardware(found["machine"]), **found["settings"]}
    for what, value in {"machine": hardware(machine()), **settings}.items():
        if then[what] != value:
            raise SystemExit(f"{path} cannot be used: its {what} is {then[what]}, not {value}.")
    return found


def print_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table for people: True is "yes", False "NO"; None and missing cells are blank."""
    table = [list(header)] + [[_cell(value) for value in row] for row in rows]
    table = [row + [""] * (len(header) - len(row)) for row in table]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    table.insert(1, ["-" * width for width in widths])
    for row in table:
        cells = [
            cell.ljust(width) if j == 0 or not _is_number(cell) else cell.rjust(width)
            for j, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def _is_number(cell: str) -> bool:
    return cell[:1].isdigit() or cell[:1] == "-"


# Time ---------------------------------------------------------------------------------------------


def one_thread() -> None:
    """Give torch, BLAS and OpenMP one thread, here and in the processes started from here."""
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
    torch.set_num_threads(1)
    threadpool_limits(1)


def interleaved(
    contenders: dict[str, Callable[[], Any]],
    n_rounds: int,
    n_calls: int = 1,
    clock: Callable[[], Any] = time.process_time,
    first_counts: bool = False,
) -> dict[str, list[Any]]:
    """Seconds of a call of each contender, in each of `n_rounds` rounds; CPU seconds by default.

    Contenders take turns, in reversed order every other round. One call of each comes first and
    is not counted, unless `first_counts`: it pays for imports, allocation and caches.
    """
    for call in () if first_counts else contenders.values():
        call()
    seconds: dict[str, list[Any]] = {name: [] for name in contenders}
    for i in range(n_rounds):
        for name in list(contenders)[:: -1 if i % 2 else 1]:
            call = contenders[name]
            start = clock()
            for _ in range(n_calls):
                call()
            seconds[name].append((clock() - start) / n_calls)
    return seconds


def ratio(seconds: dict[str, list[float]], name: str, reference: str) -> float:
    """Median over rounds of the ratio of two contenders' times."""
    return median(a / b for a, b in zip(seconds[name], seconds[reference], strict=True))


def comparison(
    setting: str,
    seconds: dict[str, list[float]],
    peer: str,
    *,
    ours: str = "skdistill",
    at_least: float | None = None,
    at_most: float | None = None,
) -> dict[str, Any]:
    """Our time beside a peer's.

    The ratio says how many times as fast as the peer we are; with `at_most` given, how many times
    as long we take.
    """
    if at_most is None:
        factor, target = ratio(seconds, peer, ours), at_least
        reached = None if target is None else factor >= target
    else:
        factor, target = ratio(seconds, ours, peer), at_most
        reached = factor <= target
    return {
        "setting": setting,
        "ours": ours,
        "ours_seconds": median(seconds[ours]),
        "peer": peer,
        "peer_seconds": median(seconds[peer]),
        "measure": "times as fast" if at_most is None else "times as long",
        "ratio": factor,
        "target": target,
        "reached": reached,
        "rounds": len(seconds[ours]),
    }


def print_comparisons(rows: Sequence[dict[str, Any]]) -> None:
    """Print what `comparison` returns, a line for each."""
    sign = {"times as fast": ">=", "times as long": "<="}
    print_table(
        ["setting", "ours", "CPU s", "peer", "CPU s", "we are", "target", "reached"],
        [
            [
                row["setting"],
                row["ours"],
                row["ours_seconds"],
                row["peer"],
                row["peer_seconds"],
                f"{row['ratio']:.3g} {row['measure']}",
                None if row["target"] is None else f"{sign[row['measure']]} {row['target']:g}",
                row["reached"],
            ]
            for row in rows
        ],
    )


def scaled(seconds: dict[str, list[float]], name: str, factor: float) -> dict[str, list[float]]:
    """The same times, those of one contender multiplied by `factor`."""
    return {**seconds, name: [factor * second for second in seconds[name]]}


# Memory -------------------------------------------------------------------------------------------


def peak_growth(prepare: Callable[..., Callable[[], Any]], *args) -> float:
    """MiB by which memory grows at most during a call, in a process of its own.

    ``prepare(*args)`` is run in a new process and returns the call that is measured. It should
    need less memory at its peak than when it returns, since peaks are all that the system tells.
    """
    return in_new_process(_measured, prepare, args)


def _measured(prepare: Callable[..., Callable[[], Any]], args: tuple) -> float:
    call = prepare(*args)
    before = peak_mib()
    call()
    return peak_mib() - before


def in_new_process(function: Callable[..., Any], *args) -> Any:
    """What a function returns that is called in a process of its own, which may start others."""
    context = multiprocessing.get_context("spawn")
    results, end = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(end, function, args))
    process.start()
    end.close()
    try:
        return results.recv()
    except EOFError as error:
        raise RuntimeError(f"{function.__name__}{args} failed; its error is above.") from error
    finally:
        process.terminate()  # by itself it would wait for idle processes of its own
        process.join()


def _send(end: Any, function: Callable[..., Any], args: tuple) -> None:
    end.send(function(*args))


def peak_mib() -> float:
    """Peak resident memory of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux lets a new process inherit its parent's ru_maxrss
        return _from_status(status, "VmHWM") / 1024
    import resource  # there is none on Windows

    unit = 2**20 if platform.system() == "Darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _from_status(status: Path, name: str) -> int:
    """A number from a file that Linux keeps for each process."""
    line = next(line for line in status.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1])


# What is wanted, and what students keep -----------------------------------------------------------


def target(
    name: str, value: float, low: float | None = None, high: float | None = None
) -> dict[str, Any]:
    """A line of a table of targets."""
    reached = (low is None or value >= low) and (high is None or value <= high)
    return {
        "target": name,
        "value": float(value),
        "low": low,
        "high": high,
        "reached": bool(reached),
    }


def fidelity_of_parts(theirs: Uncertainty, ours: Uncertainty) -> dict[str, float]:
    """How close a student's uncertainties, those that it can tell, are to its teacher's."""
    out = {}
    if ours.epistemic is not None:
        out.update(epistemic_fidelity(theirs.epistemic, ours.epistemic)._asdict())
    pairs = zip(("total", "aleatoric", "epistemic"), theirs, ours, strict=True)
    for part, of_teacher, of_student in pairs:
        if of_student is not None:
            out[f"tv_{part}"] = uncertainty_total_variation(of_teacher, of_student)
    return out


# Data ---------------------------------------------------------------------------------------------


def made_up_table(
    n_rows: int, n_columns: int = 20, seed: int = 0, dtype: str = "float64"
) -> tuple[np.ndarray, np.ndarray]:
    """Normal columns and a target of the first seven, some of it noise whose scale varies.

    Rows are made in chunks, so that hardly more memory is ever held than they take.
    """
    rng = np.random.default_rng(seed)
    X, y = np.empty((n_rows, n_columns), dtype), np.empty(n_rows)
    for start in range(0, n_rows, 1000):
        rows = slice(start, start + 1000)
        X[rows] = rng.standard_normal(X[rows].shape)
        a, b, c, d, e, f, g = X[rows, :7].T
        mean = np.sin(2 * a) + b * c + np.abs(d) + 0.5 * e * (f > 0)
        y[rows] = mean + 0.3 * np.exp(0.5 * g) * rng.standard_normal(len(mean))
    return X, y
