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


def drop_widgets(notebook: nbformat.NotebookNode) -> None:
    """A progress bar is nothing without the process that moved it."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [o for o in cell.outputs if WIDGET not in o.get("data", {})]
    notebook.metadata.pop("widgets", None)


def make(twin: Path) -> float:
    """Convert, execute in an empty folder, store; returns the seconds that it took."""
    notebook = jupytext.read(twin)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:03d}"  # the same from run to run, so that changes are readable
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook, record_timing=False, resources={"metadata": {"path": folder}}
        )
        client.execute()
    drop_widgets(notebook)
    target = CHAPTERS / f"{twin.stem}.ipynb"
    write_text(target, nbformat.writes(notebook) + "\n")
    seconds = time.perf_counter() - started
    print(f"{target.name:36}{seconds:4.0f} s", flush=True)
    return seconds


def main() -> None:
    twins = sorted((CHAPTERS / "text").glob("*.py"))
    wanted = [
        twin for twin in twins if not sys.argv[1:] or twin.name.startswith(tuple(sys.argv[1:]))
    ]
    if not wanted:
        sys.exit("no chapter starts with " + " or ".join(sys.argv[1:]))
    total = sum(make(twin) for twin in wanted)
    print(f"{'all':36}{total:4.0f} s")
    with atomic_path(CHAPTERS / "images" / "architecture.png") as temporary:
        architecture().savefig(temporary, format="png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
