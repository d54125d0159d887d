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

from _common import hardware
from _defaults import changed
from _pages import FUNCTIONS, READ, block, filled, read, stored
from pages import (  # noqa: F401 -- they tell _pages.py what pages may ask for
    boosters,
    classification,
    decisions,
    defaults,
    epistemic_part,
    front,
    infinite_ensemble,
    posteriors,
    regression,
    speed,
    unseen_samples,
)

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "doc" / "which_student.rst",
    ROOT / "doc" / "user_guide" / "decisions.rst",
    *sorted((ROOT / "doc" / "measured").glob("*.rst")),
]

CNN = "gped.py --parts quality --network CNN --masks 0 --iterations 3000 --methods GPED"
PAPER = "--chain paper --param teacher__inference__thinning=1"

# By results file, the script that wrote it, and its arguments.
COMMANDS = {
    "active": "active.py",
    "active_bmdal": "active.py --network bmdal_reg --parts tables --seeds 2",
    "amounts": "amounts.py",
    "bdistil": "bdistil.py",
    "bdistil_average": "bdistil.py --parts average --seeds 3",
    "bdistil_mnist": "bdistil.py --parts mnist --seeds 2",
    "conformal": "conformal.py",
    "decisions": "decisions.py",
    "drift": "drift.py",
    "engine": "engine.py",
    "epistemic": "epistemic.py --resume",
    "fidelity": "fidelity.py --resume",
    "forest": "forest.py",
    "gped": "gped.py --iterations 20000 --methods 'GPED U_o' 'GPED U_s' EnD2",
    "gped_cnn": CNN,
    "gped_cnn_found": f"{CNN} --chain found",
    "gped_cnn_long": f"{CNN.replace('3000', '10000')} {PAPER}",
    "gped_cnn_paper": f"{CNN} {PAPER}",
    "gped_largest": "gped.py --parts quality --iterations 20000 --methods 'GPED U_o' 'GPED U_s' "
    "EnD2 --param 'module__hidden_units=(1000, 1000)' lr=1e-3",
    "gped_paper": "gped.py --parts quality --masks 0 --methods 'GPED U_s' --iterations 100000 "
    "--chain paper",
    "gped_share": "gped.py --parts quality --methods GPED --iterations 20000",
    "gped_small": "gped.py --parts small",
    "gpu": "gpu.py",
    "hydra": "hydra.py --ablations",
    "latent_factor": "latent_factor.py",
    "logits": "logits.py",
    "many_classes": "many_classes.py",
    "mnist": "mnist.py --threads 1",
    "mnist_masked": "mnist.py --threads 1 --masks 29 --methods 'deep ensemble'",
    "optimise": "optimise.py --parts functions --jobs 2",
    "other_ways": "other_ways.py",
    "parallel": "parallel.py",
    "pareto": "pareto.py",
    "persistence": "persistence.py",
    "predict": "predict.py",
    "scale": "scale.py --million",
    "sentences": "translation.py --data real --repeats 2 --students mixture reverse_kl",
    "serving": "serving.py",
    "sgld": "sgld.py",
    "shift": "shift.py",
    "students": "students.py",
    "suite": "suite.py --resume --peers",
    "tables": "tables.py --resume",
    "translation": "translation.py",
    "trees": "trees.py --resume",
    "uci": "uci.py --jobs 2",
    "uci_distribution": "uci.py --student distribution --splits 5 --jobs 2",
    "unseen": "unseen.py --max-rows 1500 --slow-columns 1 --resume",
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
