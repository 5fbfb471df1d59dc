"""The site: `make site` builds it from docs/ and from the code; warnings are errors."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from pygments.lexers.special import TextLexer  # noqa: E402 - the path first, as for what follows
from sphinx import addnodes  # noqa: E402
from sphinx.util.nodes import make_refnode  # noqa: E402

from scripts.reference import MARKER, filled  # noqa: E402

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

project = "sparkjet"
author = "the sparkjet authors"
project_copyright = author
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"
source_suffix = {".md": "markdown"}
# A page's own headings are linked to as on GitHub.
myst_heading_anchors = 4
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
# A class's attributes once, not beside those that have a docstring of their own.
napoleon_use_ivar = True
python_use_unqualified_type_names = True
add_module_names = False
html_theme = "pydata_sphinx_theme"
html_title = "sparkjet"
html_show_sourcelink = False
html_copy_source = False
# These have no pages below them.
html_sidebars: dict[str, list[str]] = {name: [] for name in ("index", "why", "tutorial", "guarantees")}
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {
    "navigation_with_keys": False,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "navbar_persistent": [],
    "navbar_end": ["search-button", "theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "header_links_before_dropdown": 9,
    "show_toc_level": 2,
}
OUTSIDE = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<path>(?:\.\./)+[^)\s#]+)(?P<anchor>#[^)]*)?\)")

# Drawing them would take a library from elsewhere; most are said in words below as well.
DIAGRAM = re.compile(r"^```mermaid$.*?^```$", re.MULTILINE | re.DOTALL)
FOLDED = r"<details><summary>Diagram, as text</summary>\n\n\g<0>\n\n</details>"


def setup(app: Sphinx) -> None:
    """Connect what fills in, and what looks for names."""
    app.add_lexer("mermaid", TextLexer)
    app.connect("env-get-outdated", made)
    app.connect("source-read", read)
    app.connect("missing-reference", resolve)
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-docstring", undivided, priority=100)


def read(app: Sphinx, docname: str, source: list[str]) -> None:
    """Fill in what is generated, and leave of a link to a file that is no page its text."""
    folder = (Path(app.srcdir) / docname).parent

    def shown(link: re.Match[str]) -> str:
        target = (folder / link["path"]).resolve()
        return link[0] if target.is_relative_to(app.srcdir) else link["text"]

    source[0] = DIAGRAM.sub(FOLDED, OUTSIDE.sub(shown, filled(source[0])))


def resolve(app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.Node) -> nodes.Node | None:
    """Find a name of Python by its last parts, as sparkjet exports what other modules define.

    What is not documented is left as text if it can be imported, such as a class of PySpark. Anything else is dead.
    """
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    objects: dict[str, Any] = env.domains["py"].data["objects"]
    last = target.rpartition(".")[2]
    known = [each for each in objects if f".{each}".endswith(f".{target}")]
    if target.startswith("sparkjet"):
        known = known or [each for each in objects if each.rpartition(".")[2] == last]
    # The shortest is the name that users write: sparkjet.Stream, not that of a module below.
    if known and node.get("reftype") != "mod":
        name = min(known, key=len)
        return make_refnode(app.builder, node["refdoc"], objects[name].docname, objects[name].node_id, content, name)
    # What a signature names may be anybody's.
    return content if in_signature(node) or exists(target) else None


def in_signature(node: nodes.Node) -> bool:
    """Whether a reference is part of a signature."""
    above = node.parent
    while above is not None and not isinstance(above, addnodes.desc_signature):
        above = above.parent
    return above is not None


def undivided(_app: Sphinx, what: str, _name: str, _thing: object, _options: object, lines: list[str]) -> None:
    """Keep a colon in the first line of a property's docstring: Napoleon takes what is before it for a type."""
    if what in {"attribute", "property", "data"}:
        lines[:0] = ["..", ""]


def exists(name: str) -> bool:
    """Whether something has this name, here or where our docstrings take words from."""
    owner, _, last = name.rpartition(".")
    if not owner:
        ours = (module for each, module in list(sys.modules.items()) if each.startswith("sparkjet"))
        theirs = map(import_module, ("pyspark.sql", "pyspark.sql.functions", "pyspark.sql.streaming", "pyspark.errors"))
        return any(hasattr(module, last) for module in (*ours, *theirs))
    try:
        return hasattr(import_module(owner), last)
    except ModuleNotFoundError:
        return exists(owner)


def skip(_app: Sphinx, _what: str, _name: str, thing: object, *_: object) -> bool | None:
    """Leave out what a class has from PySpark and from Python."""
    owner = getattr(thing, "__module__", None) or ""
    return True if thing in (dict, list) or owner.startswith(("pyspark", "builtins")) else None


def made(_app: Sphinx, env: BuildEnvironment, *_: object) -> list[str]:
    """The pages that are made of code, which may have changed where the page has not."""
    return [each for each in env.found_docs if MARKER.search(Path(env.doc2path(each)).read_text(encoding="utf-8"))]
