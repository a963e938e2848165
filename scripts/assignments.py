"""Make the assignments from their text twins: the masters with solutions, and what students get.

Run it after a change in ``assignments/text``: ``make assignments`` for all, or name some:
``.venv/bin/python scripts/assignments.py 2``. A cell of a twin says what it is in its head:

- ``answer="name"``: code that students write and tests judge; ``ready_made="f g"`` names what it
  should not call;
- ``test="name" points=4``: tests, those between the marks of hidden tests for the grader alone;
- ``manual="name" points=2``: code or text that a human judges;
- ``question="name"``: a text with a marking scheme that only graders see; ``{{ … }}`` in it is
  worked out for each student from ``NUMBER``;
- ``personal=true``: the code with the student's name, from which ``NUMBER`` comes.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from notebooks import drop_widgets

from transformer_lib.files import write_text
from transformer_lib.instructor.grading.intake import PERSONAL
from transformer_lib.instructor.grading.nbgrader_plugin import released

ASSIGNMENTS = Path(__file__).parent.parent / "assignments"
RULES = "AGENTS.md"  # for students' programming assistants, which look for a file of this name
KINDS = {
    "answer": {"grade": False, "solution": True, "locked": False},
    "test": {"grade": True, "solution": False, "locked": True},
    "manual": {"grade": True, "solution": True, "locked": False},
    "question": {"grade": False, "solution": False, "locked": True},
}


def from_twin(twin: Path) -> NotebookNode:
    """The master notebook, without outputs, with nbgrader's metadata."""
    notebook = jupytext.read(twin)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = PERSONAL if cell.metadata.pop("personal", False) else f"cell-{number:03d}"
        for kind, flags in KINDS.items():
            if name := cell.metadata.pop(kind, None):
                points = {"points": cell.metadata.pop("points")} if flags["grade"] else {}
                cell.metadata["nbgrader"] = {
                    "grade_id": name, "schema_version": 3, "task": False, **flags, **points
                }  # fmt: skip
    return notebook


def run(notebook: NotebookNode) -> NotebookNode:
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, record_timing=False, resources=resources).execute()
    drop_widgets(notebook)
    return notebook


def make(twin: Path) -> None:
    """Write the master and the released notebook, both with the outputs of a run."""
    name = twin.stem.partition("_")[2]
    master = ASSIGNMENTS / "source" / twin.stem / f"{name}.ipynb"
    notebook = from_twin(twin)
    write_text(master, nbformat.writes(run(notebook)) + "\n")
    student = run(released(from_twin(twin), name))
    write_text(
        ASSIGNMENTS / "release" / twin.stem / f"{name}.ipynb", nbformat.writes(student) + "\n"
    )
    for folder in (master.parent, ASSIGNMENTS / "release" / twin.stem):
        shutil.copyfile(ASSIGNMENTS / RULES, folder / RULES)
    print(twin.stem, flush=True)


def main() -> None:
    twins = sorted((ASSIGNMENTS / "text").glob("*.py"))
    wanted = [t for t in twins if not sys.argv[1:] or t.name.startswith(tuple(sys.argv[1:]))]
    if not wanted:
        sys.exit("no assignment starts with " + " or ".join(sys.argv[1:]))
    for twin in wanted:
        make(twin)


if __name__ == "__main__":
    main()
