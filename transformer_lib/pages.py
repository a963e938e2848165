"""HTML pages made from templates of this package; each is one file that loads nothing."""

from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from transformer_lib.files import write_text


def write_page(path: Path, package: str, template: str, content: dict[str, Any]) -> None:
    """Fill in a template that lies in ``package``, with everything escaped, and write the page."""
    text = (resources.files(package) / template).read_text("utf-8")
    page = jinja2.Template(text, autoescape=True, undefined=jinja2.StrictUndefined)
    write_text(path, page.render(content))
