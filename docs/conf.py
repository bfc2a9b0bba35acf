"""How the documentation is built: ``sphinx-build -W docs docs/_build/html``."""

from __future__ import annotations

from importlib.metadata import version as _version

project = "inboxkit"
author = "the inboxkit developers"
release = version = _version("inboxkit")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "benchmarks/**/venv", "examples/**"]
root_doc = "index"

# Docstrings name Python objects in single backticks; a word that is none stays as it is.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_class_signature = "separated"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Cancellation", "returns_style")]

myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "inboxkit"
html_static_path: list[str] = []
copybutton_exclude = ".linenos, .gp, .go"
linkcheck_anchors = False
linkcheck_timeout = 20
