"""Write ``_inventories/``: the addresses of other libraries' names that our documentation links.

``python doc/inventories.py sklearn path/to/objects.inv`` takes the inventory of a library's
documentation (``docs-address/objects.inv``), and keeps what our pages, docstrings and examples
name. With these files Sphinx links to other documentation, and needs no network.
"""

import argparse
import builtins
import re
from pathlib import Path

from sphinx.util.inventory import InventoryFile

DOC = Path(__file__).parent
# Terms and sections that numpydoc links in the types of parameters.
OF_NUMPYDOC = {"python": {"bltin-boolean-values", "iterable", "sequence", "generator"}}


def names_used():
    """Words of our sources that may be names: dotted ones, and what is imported of a module."""
    sources = [*DOC.glob("*.rst"), *(DOC / "user_guide").glob("*.rst")]
    sources += [*(DOC.parent / "skdistill").rglob("*.py"), *(DOC.parent / "examples").rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    names = set(re.findall(r"\w+(?:\.\w+)+", text))
    for module, imported in re.findall(r"from ([\w.]+) import ([\w, ]+)", text):
        names |= {f"{module}.{name.strip()}" for name in imported.split(",")}
    return names | set(dir(builtins))


def write(library, source):
    """Write the file of a library."""
    names = names_used() | OF_NUMPYDOC.get(library, set())
    inventory = InventoryFile.loads(source.read_bytes(), uri="")
    target = DOC / "_inventories" / f"{library}.inv"
    ...


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", help="its name in `intersphinx_mapping` of conf.py")
    parser.add_argument("inventory", type=Path, help="objects.inv of its documentation")
    arguments = parser.parse_args()
    write(arguments.library, arguments.inventory)
