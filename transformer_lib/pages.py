"""HTML pages made from templates of this package, each one self-contained file."""

from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from transformer_lib.files import write_text

STYLE = """\
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; padding: 0 1rem; color: #222;
  background: #fff; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
th, td { border-bottom: 1px solid #ddd; padding: .4rem .6rem; text-align: left;
  vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
img { max-width: 100%; }
"""


def write_page(path: Path, package: str, template: str, content: dict[str, Any]) -> None:
    """Fill in a template that lies in ``package``, with everything escaped, and write the page.

    The template puts ``style``, what all pages have in common, into its own style.
    """
    text = (resources.files(package) / template).read_text("utf-8")
    page = jinja2.Template(text, autoescape=True, undefined=jinja2.StrictUndefined)
    write_text(path, page.render(content, style=STYLE))
