"""How the documentation is built."""

from importlib.metadata import version as version_of

project = "sandboxsync"
author = "the sandboxsync developers"
copyright = author
release = version = version_of("sandboxsync")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3
# A word after the language tells the tests how to treat a block; see tests/test_docs.py.
suppress_warnings = ["misc.highlighting_failure"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"sandboxsync {release}"
