# SPDX-License-Identifier: BSD-3-Clause
"""Measure again what was measured with older defaults, cheapest first, then write the pages.

How long a script will take is what it took the last time; one of which that is not known comes
last. A script that fails leaves its results file as it was.

    python benchmarks/run.py --dry-run           # what is older, and how long it would take
    python benchmarks/run.py                     # measure it
    python benchmarks/run.py predict uci         # these alone, older or not
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

import report
from _common import RESULTS
from _pages import read

FOLDER = Path(__file__).parent


def minutes_of(name: str) -> float:
    """How long a results file took the last time; infinity where it does not say."""
    return read(name).get("minutes", float("inf"))


def measure(name: str) -> None:
    """Run what writes a results file."""
    path = RESULTS / f"{name}.json"
    before = path.read_bytes()
    script, *arguments = shlex.split(report.command_of(name))
    try:
        subprocess.run([sys.executable, FOLDER / script, *arguments], check=True)
    except BaseException:
        path.write_bytes(before)
        raise
    read.cache_clear()


def main() -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="results files")
    parser.add_argument("--dry-run", action="store_true", help="measure nothing")
    options = parser.parse_args()
    if unknown := set(options.names) - set(report.COMMANDS):
        parser.error(f"no such results: {', '.join(sorted(unknown))}")
    names = options.names or filter(report.is_older, report.COMMANDS)
    for name in sorted(names, key=minutes_of):
        print(f"{name}, about {minutes_of(name):g} min", flush=True)
        if not options.dry_run:
            measure(name)
    if not options.dry_run:
        report.write_pages()


if __name__ == "__main__":
    main()
