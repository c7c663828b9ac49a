"""Docstrings and the names in their signatures.

Names of ours lead to the page that documents them, those of other projects to nowhere. One of ours that no page
documents stays a warning, and so fails the build.
"""

from __future__ import annotations

from typing import Any, Final

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon import GoogleDocstring

OURS: Final = "gpu_doctor"


def resolved(app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: nodes.Element) -> nodes.Node | None:
    """What a name becomes that Sphinx could not resolve: a link, plain text, or None for a warning."""
    if node.get("refdomain") != "py":
        return None
    target: str = node["reftarget"]
    domain = env.domains.python_domain
    assert isinstance(domain, PythonDomain)
    last = target.rpartition(".")[2]
    found = [name for name in domain.objects if name.startswith(f"{OURS}.") and name.rpartition(".")[2] == last]
    if found:
        node["reftarget"] = min(found, key=len)
        return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", node["reftarget"], node, shown)
    return None if target.startswith(OURS) else shown


def sectioned(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Google's headings become fields. Those of an attribute have none: what stands before a colon is no type there."""
    if what not in ("attribute", "data", "property"):
        lines[:] = str(GoogleDocstring(lines)).splitlines()


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", sectioned)
    app.connect("missing-reference", resolved)
    return {"parallel_read_safe": True}
