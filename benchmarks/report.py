# SPDX-License-Identifier: BSD-3-Clause
"""Write the tables of README.md and of doc/measured/ from the files in results/.

The pages hold their own prose. What stands between two comments,

    .. measured: NAME ARGUMENT            <!-- measured: NAME ARGUMENT -->

    .. end                                <!-- end -->

is what the function NAME of pages/ returns, and is replaced. So no measured number is typed;
tests/test_measured.py fails where a page and its files disagree. A number in bold misses its
target.

    python benchmarks/report.py           # or `make measured`

A file is marked as older when defaults that its scripts depend on have changed since
(_defaults.py); run.py measures such files again.
"""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path

from _common import RESULTS, hardware
from _defaults import changed
from _pages import FUNCTIONS, READ, block, filled, read, stored
from pages import (  # noqa: F401 -- they tell _pages.py what pages may ask for
    boosters,
    classification,
    decisions,
    defaults,
    epistemic_part,
    front,
    posteriors,
    referees,
    regression,
    speed,
)

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "doc" / "which_student.rst",
    ROOT / "doc" / "user_guide" / "decisions.rst",
    *sorted((ROOT / "doc" / "measured").glob("*.rst")),
]

# Arguments of what wrote a results file, where there were some, and the script where its name is
# another; "sentences" needs packages of requirements/peers.txt.
COMMANDS = {
    "gped_share": "gped.py --parts images",
    "gped_small": "gped.py --parts small --seeds 5",
    "scoring_bench": "scoring_bench.py --sets boston --models teacher hydra distribution "
    "xgb_vector_quantile --resume",
    "optimise": "optimise.py --runs 6",
    "sentences": "translation.py --data real --repeats 2 --students mixture reverse_kl",
    "suite": "suite.py --resume --peers",
    "tab_tune": "tab_tune.py --resume",
}
COMMANDS |= {
    path.stem: f"{path.stem}.py"
    for path in sorted(RESULTS.glob("*.json"))
    if path.stem not in COMMANDS
}


def command_of(name: str) -> str:
    """What writes a results file, in the folder benchmarks/."""
    script, _, arguments = COMMANDS[name].partition(" ")
    output = f"--output benchmarks/results/{name}.json" if script != f"{name}.py" else ""
    return " ".join(filter(None, [script, arguments, output]))


def is_older(name: str) -> bool:
    """Whether defaults that a results file rests on have changed since."""
    return bool(changed(read(name)))


@block
def source(name: str) -> str:
    """What printed a results file, when, on what machine and with what versions."""
    found = stored(name)
    machine = hardware(found["machine"])
    versions = ", ".join(f"{package} {version}" for package, version in found["versions"].items())
    text = "**Measured with older defaults.** " if is_older(name) else ""
    text += (
        f"Printed by ``python benchmarks/{command_of(name)}`` on {found['date'][:10]}, stored in "
        f"``benchmarks/results/{name}.json``; {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_gib']:g} GiB, {machine['system']}; {versions}."
    )
    return textwrap.fill(text, 100, break_on_hyphens=False)


@block
def older(of: str = "") -> str:
    """Which results files, all or those behind a block, were measured with older defaults."""
    if of:
        READ.clear()
        FUNCTIONS[of]()
        found = [name for name, parts in READ.items() if any(map(changed, parts))]
    else:
        found = list(filter(is_older, COMMANDS))
    if not found:
        return "All were measured with today's defaults."
    files = ", ".join(f"``{name}``" for name in sorted(found))
    text = f"Measured with older defaults, and to be run again: {files}."
    return textwrap.fill(text, 100, break_on_hyphens=False)


def write_pages() -> None:
    """Write all pages anew."""
    for page in PAGES:
        page.write_text(filled(page), encoding="utf-8")


if __name__ == "__main__":
    formatter = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=__doc__, formatter_class=formatter).parse_args()
    write_pages()
