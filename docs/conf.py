"""Sphinx: the site is built from the repository's root, so that links between its Markdown files hold there as well."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import gpu_doctor  # noqa: E402

project = "gpu_doctor"
version = release = gpu_doctor.__version__
copyright = "The gpu_doctor authors"
extensions = ["myst_nb", "sphinx.ext.autodoc", *(f"docs._ext.{one}" for one in ("made", "names", "accessible"))]

root_doc = "docs/index"
include_patterns = ["docs/**", "notebooks/*.ipynb", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
# Sphinx walks through all folders that it is not told to leave out.
exclude_patterns = [
    ".*",
    "gpu_doctor",
    "tests",
    "tools",
    "benchmarks",
    "dist",
    "build",
    "docs/_build",
    "**/.ipynb_checkpoints",
]

# The notebooks' committed results are shown; nothing is run.
nb_execution_mode = "off"
# A saved panel is a view without its state: the static result beside it is what is shown.
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]
myst_heading_anchors = 4
default_role = "code"  # docstrings put code between single backquotes, as Markdown does
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_typehints_format = "short"
nitpicky = True
suppress_warnings = ["config.cache"]

html_theme = "furo"
html_title = f"gpu_doctor {version}"
html_extra_path = ["_root"]  # what leads from the site's root to its first page
html_copy_source = False
html_theme_options = {"top_of_page_buttons": []}
