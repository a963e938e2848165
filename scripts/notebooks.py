"""Make the chapters from their text twins, run them, and store their outputs.

Run it after a change in ``chapters/text``: ``make notebooks`` for all, or name some:
``.venv/bin/python scripts/notebooks.py 01``.
"""

import sys
import tempfile
import time
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

from transformer_lib.course.figures.architecture import architecture
from transformer_lib.files import atomic_path, write_text

WIDGET = "application/vnd.jupyter.widget-view+json"
CHAPTERS = Path(__file__).parent.parent / "chapters"


def chosen(folder: Path, what: str) -> list[Path]:
    """The text twins in a folder: all, or those whose beginnings stand on the command line."""
    beginnings = tuple(sys.argv[1:])
    twins = sorted(twin for twin in folder.glob("*.py") if twin.name.startswith(beginnings or ""))
    if not twins:
        sys.exit(f"no {what} starts with {' or '.join(beginnings)}")
    return twins


def run(notebook: nbformat.NotebookNode) -> None:
    """Execute it in an empty folder, and drop progress bars: nothing moves them any more."""
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, record_timing=False, resources=resources).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [o for o in cell.outputs if WIDGET not in o.get("data", {})]
    notebook.metadata.pop("widgets", None)


def make(twin: Path) -> float:
    """Convert, execute, store; returns the seconds that it took."""
    notebook = jupytext.read(twin)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:03d}"  # the same from run to run, so that changes are readable
    started = time.perf_counter()
    run(notebook)
    target = CHAPTERS / f"{twin.stem}.ipynb"
    write_text(target, nbformat.writes(notebook) + "\n")
    seconds = time.perf_counter() - started
    print(f"{target.name:36}{seconds:4.0f} s", flush=True)
    return seconds


def main() -> None:
    total = sum(make(twin) for twin in chosen(CHAPTERS / "text", "chapter"))
    print(f"{'all':36}{total:4.0f} s")
    with atomic_path(CHAPTERS / "images" / "architecture.png") as temporary:
        architecture().savefig(temporary, format="png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
