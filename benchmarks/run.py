# SPDX-License-Identifier: BSD-3-Clause
"""Measure again what was measured with older defaults, cheapest first, then write the pages.

Files are older where defaults that their scripts depend on have changed since (_defaults.py). How
long a script will take is what it took the last time; one of which that is not known comes last.
What scripts print is kept in build/benchmarks/. One that fails, or is stopped because the time is
up, leaves its results file as it was, unless it can resume what it has measured by then.

    python benchmarks/run.py --dry-run           # what is older, and how long it would take
    python benchmarks/run.py --hours 2           # start nothing that would take longer
    python benchmarks/run.py predict uci         # these alone, if they are older
    python benchmarks/run.py --all --hours 8     # those with today's defaults, too
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import TextIO

import report
from _common import RESULTS
from _pages import read

FOLDER = Path(__file__).parent
LOGS = FOLDER.parent / "build" / "benchmarks"
SECONDS_BETWEEN_LOOKS = 2.0


def minutes_of(name: str) -> float | None:
    """How long a results file took the last time; None where it does not say."""
    return read(name).get("minutes")


def wanted(names: list[str], also_todays: bool) -> list[str]:
    """Which of some files, or of all, to measure, cheapest first."""
    found = [name for name in names or report.COMMANDS if also_todays or report.is_older(name)]
    return sorted(found, key=lambda name: (minutes_of(name) is None, minutes_of(name), name))


def measure(name: str, end: float) -> str:
    """Run what writes a results file, until `end`; return what came of it."""
    path, log = RESULTS / f"{name}.json", LOGS / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    before, outcome = path.read_bytes(), "stopped"
    script, *arguments = shlex.split(report.command_of(name))
    try:
        with log.open("w", encoding="utf-8") as output:
            outcome = run(script, arguments, output, minutes_of(name), end)
    finally:
        if outcome != "measured" and "--resume" not in arguments:
            path.write_bytes(before)
        read.cache_clear()
    return outcome if outcome == "measured" else f"{outcome}, see {log}"


def run(
    script: str, arguments: list[str], output: TextIO, minutes: float | None, end: float
) -> str:
    """Run a script, with a bar on a terminal; tell whether it failed or had to be stopped."""
    began = time.monotonic()
    command = [sys.executable, FOLDER / script, *arguments]
    with subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            while process.poll() is None:
                if time.monotonic() > end:
                    return "stopped"
                if sys.stdout.isatty():
                    passed = (time.monotonic() - began) / 60
                    print(f"\r{bar(passed, minutes)}", end="", flush=True)
                time.sleep(SECONDS_BETWEEN_LOOKS)
        finally:
            process.kill()  # nothing where it has ended
            print(end="\r" if sys.stdout.isatty() else "")
    return "failed" if process.returncode else "measured"


def bar(passed: float, expected: float | None, width: int = 30) -> str:
    """How far a script is, by the minutes that it is expected to take."""
    if not expected:
        return f"{passed:5.1f} min"
    done = round(width * min(passed / expected, 1))
    return f"[{'#' * done}{'.' * (width - done)}] {passed:5.1f} of about {expected:.1f} min"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="results files (default: all)")
    parser.add_argument("--all", action="store_true", help="measure today's again, too")
    parser.add_argument("--hours", type=float, default=float("inf"), help="in all, at most")
    parser.add_argument("--dry-run", action="store_true", help="measure nothing")
    options = parser.parse_args()
    if unknown := set(options.names) - set(report.COMMANDS):
        parser.error(f"no such results: {', '.join(sorted(unknown))}")
    end = time.monotonic() + 3600 * options.hours
    names = wanted(options.names, options.all)
    for number, name in enumerate(names, 1):
        minutes = minutes_of(name)
        told = "for an unknown time" if minutes is None else f"for about {minutes:g} min"
        print(f"{number} of {len(names)}: {name}, {told}", flush=True)
        if options.dry_run:
            continue
        left = (end - time.monotonic()) / 60
        if left < (minutes or 0):
            print(f"  left out: {left:.0f} min are left")
            continue
        print(f"  {measure(name, end)}", flush=True)
    if names and not options.dry_run:
        report.write_pages()


if __name__ == "__main__":
    main()
