"""Make the assignments from their text twins: the masters with solutions, and what students get.

Run it after a change in ``assignments/text``: ``make assignments`` for all, or name some:
``.venv/bin/python scripts/assignments.py 2``. A cell of a twin says what it is in its head:

- ``answer="name"``: code that students write and tests judge; ``ready_made="f g"`` names what it
  should not call, ``needed="f g"`` what it cannot do without (one of these);
- ``test="name" points=4``: tests, those between the marks of hidden tests for the grader alone;
- ``manual="name" points=2``: code or text that a human judges;
- ``question="name"``: a text with a marking scheme that only graders see; ``{{ … }}`` in it is
  worked out for each student from ``NUMBER``;
- ``personal=true``: the code with the student's name, from which ``NUMBER`` comes.
"""

import shutil
from pathlib import Path

import jupytext
import nbformat
from nbformat import NotebookNode
from notebooks import chosen, run

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


def make(twin: Path) -> None:
    """Write the master and the released notebook, both with the outputs of a run."""
    name = twin.stem.partition("_")[2]
    master = ASSIGNMENTS / "source" / twin.stem / f"{name}.ipynb"
    student = ASSIGNMENTS / "release" / twin.stem / f"{name}.ipynb"
    for path, notebook in (
        (master, from_twin(twin)),
        (student, released(from_twin(twin), name)),
    ):
        run(notebook)
        write_text(path, nbformat.writes(notebook) + "\n")
        shutil.copyfile(ASSIGNMENTS / RULES, path.parent / RULES)
    print(twin.stem, flush=True)


def main() -> None:
    for twin in chosen(ASSIGNMENTS / "text", "assignment"):
        make(twin)


if __name__ == "__main__":
    main()
