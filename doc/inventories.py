"""Write ``_inventories/``: addresses in the documentation of other libraries.

``python doc/inventories.py sklearn path/to/objects.inv`` takes the inventory that lies beside the
pages of scikit-learn's documentation, and keeps the classes and functions that our own sources
name. With these files Sphinx links to other documentation without a network.
"""

import argparse
import builtins
import re
import zlib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def names_used():
    """Return all dotted names of our sources, names that they import, and builtins."""
    pages = [*ROOT.glob("doc/*.rst"), *ROOT.glob("doc/user_guide/*.rst")]
    scripts = [*ROOT.glob("examples/**/*.py"), *ROOT.glob("skdistill/**/*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in (*pages, *scripts))
    names = {name for name in dir(builtins) if not name.startswith("_")}
    names |= {*re.findall(r"\w+(?:\.\w+)+", text)}
    for module, imported in re.findall(r"from ([\w.]+) import (\([^)]*\)|.*)", text):
        names |= {f"{module}.{name}" for name in re.findall(r"\w+", imported)}
    return names


def filtered(inventory, names):
    """Return an inventory, of version 2, with only those Python objects that are named."""
    *header, body = inventory.split(b"\n", 4)
    kept = []
    for line in zlib.decompress(body).decode().splitlines(keepends=True):
        name, kind, *_ = line.split()
        if name in names and kind.startswith("py:") and kind != "py:module":
            kept.append(line)
    return b"\n".join([*header, zlib.compress("".join(kept).encode(), 9)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", help="its name in intersphinx_mapping")
    parser.add_argument("inventory", type=Path, help="objects.inv of its documentation")
    arguments = parser.parse_args()
    target = ROOT / "doc" / "_inventories" / f"{arguments.library}.inv"
    target.write_bytes(filtered(arguments.inventory.read_bytes(), names_used()))
