"""Settings of Sphinx."""

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from docs.generate import write_pages  # noqa: E402

project = "ssl-benchmark"
author = "the ssl-benchmark authors"
copyright = "2026, the ssl-benchmark authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
html_theme = "furo"
html_title = "ssl-benchmark"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
smartquotes = False  # they would change options
html_copy_source = False


def setup(app: Any) -> None:
    """Write the generated pages before Sphinx looks for pages."""
    app.connect("config-inited", lambda *_: write_pages(Path(__file__).parent / "reference"))
