"""The site: `make site` builds it from the pages of this directory; warnings are errors."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from docutils import nodes  # noqa: E402 - the path first, as for what follows
from pygments.lexers.special import TextLexer  # noqa: E402
from scripts.reference import filled  # noqa: E402
from sphinx import addnodes  # noqa: E402

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

project = "sparkjet"
author = "the sparkjet authors"
project_copyright = author
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"
source_suffix = {".md": "markdown"}
exclude_patterns = ["conf.py"]
# A page's own headings are linked to as on GitHub.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
myst_links_external_new_tab = False
suppress_warnings = ["myst.header"]
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
python_use_unqualified_type_names = True
add_module_names = False
html_theme = "pydata_sphinx_theme"
html_title = "sparkjet"
html_show_sourcelink = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "navigation_with_keys": False,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "header_links_before_dropdown": 9,
    "show_toc_level": 2,
}
OUTSIDE = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<path>(?:\.\./)+[^)\s#]+)(?P<anchor>#[^)]*)?\)")


def setup(app: Sphinx) -> None:
    """Connect what fills in, and what looks for names."""
    app.add_lexer("mermaid", TextLexer)
    app.connect("source-read", read)
    app.connect("missing-reference", resolve)


def read(app: Sphinx, docname: str, source: list[str]) -> None:
    """Fill in what is generated, and leave of a link to a file that is no page its text."""
    folder = (Path(app.srcdir) / docname).parent

    def shown(link: re.Match[str]) -> str:
        target = (folder / link["path"]).resolve()
        return link[0] if target.is_relative_to(app.srcdir) else link["text"]

    text = OUTSIDE.sub(shown, filled(source[0]))
    source[0] = text


def resolve(app: Sphinx, env: BuildEnvironment, node: Any, contnode: nodes.Node) -> nodes.Node | None:
    """Find a name of Python by its last part, as sparkjet exports what other modules define.

    What a signature names may be anybody's; what a docstring refers to must be here, or the build fails.
    """
    if node.get("refdomain") != "py":
        return None
    name = node["reftarget"].rpartition(".")[2]
    domain = env.get_domain("py")
    objects = getattr(domain, "objects")  # noqa: B009 - untyped
    owner, _, _ = node["reftarget"].rpartition(".")
    known = [each for each in objects if each.rpartition(".")[2] == name]
    near = [each for each in known if owner and each.rpartition(".")[0].endswith(owner)]
    choice = near or ([each for each in known if objects[each].objtype in {"class", "function", "exception", "data"}] if not owner or len(known) == 1 else [])
    if len(choice) >= 1:
        entry = objects[choice[0]]
        from sphinx.util.nodes import make_refnode  # noqa: PLC0415

        return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, contnode, choice[0])
    parent = node.parent
    while parent is not None:
        if isinstance(parent, addnodes.desc_signature):
            return contnode
        parent = parent.parent
    return None
