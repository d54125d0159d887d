"""Configuration of Sphinx. `make doc` builds everything offline."""

import inspect
import pkgutil
import re
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from docutils import nodes
from sphinx.pycode import ModuleAnalyzer

import skdistill


def data_of(module_name):
    """Name, value and comment of what a module exports that is neither class nor function.

    autosummary overlooks data that are imported from a private file. Their comments start with
    ``#:``. The value of a scorer says no more than its name, and is left out.
    """
    module = import_module(module_name)
    comments = {}
    files = pkgutil.iter_modules(getattr(module, "__path__", ()), f"{module_name}.")
    for name in (module_name, *(file.name for file in files)):
        analyzer = ModuleAnalyzer.for_module(name)
        analyzer.analyze()
        comments |= {name: lines for (_, name), lines in analyzer.attr_docs.items()}
    exported = {name: getattr(module, name) for name in module.__all__}
    return [
        (name, None if callable(value) else repr(value), comments.get(name, []))
        for name, value in exported.items()
        if not (inspect.isclass(value) or inspect.isroutine(value))
    ]


def lacking(name):
    """Public methods that an estimator of one kind lacks, which its twin of the other kind has."""
    other = {"Regressor": "Classifier", "Classifier": "Regressor"}
    twin = re.sub("|".join(other), lambda kind: other[kind[0]], name)
    if twin == name or not hasattr(skdistill, twin):
        return []
    estimator, twin = getattr(skdistill, name)(), getattr(skdistill, twin)()
    found = (name for name in dir(type(estimator)) if not name.startswith("_"))
    return [name for name in found if hasattr(twin, name) and not hasattr(estimator, name)]


project = "skdistill"
author = "The skdistill developers"
copyright = f"2026, {author}"
version = release = skdistill.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "sphinx_codeautolink",
]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]
default_role = "code"

# The API pages follow each module's __all__, so that no name has to be written down twice; what
# skdistill itself exports has its page there and is linked from the module it comes from.
autosummary_generate = True
autosummary_ignore_module_all = False
autosummary_imported_members = True
autosummary_context = {
    "front": skdistill.__all__,
    "lacking": {name: lacking(name) for name in skdistill.__all__},
    "data": {
        f"skdistill.{file.name}": data_of(f"skdistill.{file.name}")
        for file in pkgutil.iter_modules(skdistill.__path__)
        if not file.name.startswith("_")
    },
}
autodoc_typehints = "none"  # numpydoc says it in words
numpydoc_show_class_members = False  # the class template lists them

# Inventories come with the sources, so that building needs no network (see inventories.py).
intersphinx_mapping = {
    library: (address, f"_inventories/{library}.inv")
    for library, address in {
        "python": "https://docs.python.org/3/",
        "scipy": "https://docs.scipy.org/doc/scipy/",
        "sklearn": "https://scikit-learn.org/stable/",
    }.items()
}

# Names in code are links; the blocks of a page are one program.
codeautolink_concat_default = True

# torch's exporter tells its own authors of a name that it will lose.
warnings.filterwarnings("ignore", category=FutureWarning, message=".*LeafSpec")

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "subsection_order": [
        f"../examples/{section}"
        for section in ("students", "uncertainty", "practice", "anytime", "many_classes")
    ],
    "ignore_pattern": "serve_with_onnxruntime",  # a script for a server, which a page links
    "doc_module": ("skdistill",),
    "backreferences_dir": "generated/backreferences",
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,  # their page would fetch a table's script from elsewhere
}

suppress_warnings = [
    # It means the folders above as well, and a checkout may lie in "my projects".
    "sphinx_gallery.space_in_filename",
    # Names in the code of the gallery that sphinx-gallery has linked already.
    "codeautolink.match_name",
]

html_theme = "pydata_sphinx_theme"
html_title = f"skdistill {release}"
html_show_sourcelink = False
html_context = {"default_mode": "auto"}  # light or dark as the reader's system is
html_theme_options = {
    "show_prev_next": False,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,  # up to the API
    # Not on measured/*, whose wide tables need the room.
    "secondary_sidebar_items": {"[!m]**": ["page-toc"]},
}
# Pages without subpages have nothing to show there.
single = "install getting_started which_student coming_from common_mistakes whats_new design"
html_sidebars: dict[str, list[str]] = {name: [] for name in single.split()}
toc_object_entries_show_parents = "hide"  # `predict()`: the names of classes would be cut
html_css_files = ["pages.css"]

# Equations are drawn by MathJax. The one file of it that this takes comes with the pages, so that
# they fetch nothing; without its menu it asks for no further parts either.
mathjax = find_spec("sphinx-mathjax-offline")
if mathjax is None:
    raise ModuleNotFoundError("Equations need MathJax: pip install sphinx-mathjax-offline.")
html_static_path = ["_static", str(Path(mathjax.origin).parent / "static/mathjax/tex-svg.js")]
mathjax_path = "tex-svg.js"
mathjax3_config = {"options": {"enableMenu": False}}


def skip_foreign_member(app, what, name, obj, skip, options):
    """Leave out of a class's page what it inherits from other libraries, documented there."""
    function = obj.fget if isinstance(obj, property) else obj
    library = (getattr(function, "__module__", None) or "").partition(".")[0]
    return True if library in {"sklearn", "torch", "botorch"} else None


def append_changelog(app, docname, source):
    """Complete the page of what is new by CHANGELOG.md, from its first version on."""
    if docname != "whats_new":
        return
    text = (Path(app.srcdir).parent / "CHANGELOG.md").read_text(encoding="utf-8")
    text = text[text.index("\n## ") :]
    for marks, line in (("##", "-"), ("###", "~")):
        heading = re.compile(rf"^{marks} \[?([^\]\n]*)\]?(.*)$", re.MULTILINE)
        text = heading.sub(lambda found, line=line: underlined(found[1] + found[2], line), text)
    source[0] += re.sub(r"\[([^\]]+)\]\((http[^)]+)\)", r"`\1 <\2>`__", text)


def keep_values_whole(app, doctree, docname):
    """Name the cells of tables that are values, not sentences: pages.css keeps them on one line."""
    for cell in doctree.findall(nodes.entry):
        if len(cell.astext()) <= 24:
            cell["classes"].append("value")


def underlined(title, line):
    """Heading of reStructuredText."""
    return f"{title}\n{line * len(title)}"


def setup(app):
    """Connect our hooks; called by Sphinx."""
    app.connect("autodoc-skip-member", skip_foreign_member)
    app.connect("source-read", append_changelog)
    app.connect("doctree-resolved", keep_values_whole)
