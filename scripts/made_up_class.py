"""Made-up students for the demo of grading, its benchmark, and the walk through docs/grading.md.

``python scripts/made_up_class.py FOLDER`` writes what an instructor has when work is handed in:
``class.csv`` and, as Moodle packs them, ``hand-ins.zip``, with ``times.csv``.
"""

import ast
import inspect
import json
import shutil
import sys
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from transformer_lib.course.checks.mutation import bare_definition
from transformer_lib.course.misconceptions.bank import wrong_answers

ASSIGNMENTS = Path(__file__).parent.parent / "assignments"
ASSIGNMENT, NOTEBOOK = "2_attention", "attention"


def new_course(folder: Path) -> None:
    """A course with nothing but assignment 2, in place of what was there."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ASSIGNMENTS / "source" / ASSIGNMENT, folder / "source" / ASSIGNMENT)
    shutil.copy(ASSIGNMENTS / "nbgrader_config.py", folder)


COHORT = "winter 2026"  # as in docs/grading.md
CLASS = (  # login, first and last name, whose work of tests/likeness.jsonl, when
    ("ada", "Ada", "Adler", "student 1", "2026-12-01 20:15"),
    ("ben", "Ben", "Brandt", "student 2", "2026-12-01 23:58"),
    ("cleo", "Cleo", "Clarke", "student 3", "2026-12-02 00:07"),
    ("dan", "Dan", "Diaz", "student 4", "2026-12-03 09:30"),
    ("eva", "Eva", "Engel", "student 5", "2026-11-30 14:00"),
    ("finn", "Finn", "Falk", "copy 5", "2026-12-01 23:40"),
    ("gus", "Gus", "Green", None, None),
)


def write_class(folder: Path) -> None:
    """Seven students of assignment 2: one has handed in nothing, one has copied, two are late."""
    text = (ASSIGNMENTS.parent / "tests" / "likeness.jsonl").read_text(encoding="utf-8")
    works = [json.loads(line) for line in text.splitlines()]
    answers = {one["student"]: one["answers"] for one in works if one["assignment"] == ASSIGNMENT}
    people, times = ["id,first_name,last_name"], ["student,time"]
    with zipfile.ZipFile(folder / "hand-ins.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number, (login, first, last, work, time) in enumerate(CLASS, start=401):
            people.append(f"{login},{first},{last}")
            if work is None:
                continue
            times.append(f"{login},{time}")
            notebook = answered(**answers[work])
            sign(notebook, login, COHORT)
            name = f"{first} {last}_{number}_assignsubmission_file_/{NOTEBOOK}.ipynb"
            archive.writestr(name, nbformat.writes(notebook))
    for name, lines in (("class.csv", people), ("times.csv", times)):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def sign(notebook: NotebookNode, student: str, cohort: str = "self-study") -> None:
    """Fill in the student's name, in a notebook that was released for this cohort."""
    for cell in notebook.cells:
        cell.source = cell.source.replace('STUDENT = "..."', f"STUDENT = {student!r}")
        cell.source = cell.source.replace('COHORT = "self-study"', f"COHORT = {cohort!r}")


def hand_in(course: Path, student: str, notebook: NotebookNode | str | None) -> Path:
    """Put a signed notebook, or any text in its place, where hand-ins lie."""
    folder = course / "submitted" / student / ASSIGNMENT
    folder.mkdir(parents=True)
    path = folder / f"{NOTEBOOK}.ipynb"
    if isinstance(notebook, NotebookNode):
        notebook = nbformat.from_dict(notebook)
        sign(notebook, student)
    if notebook is not None:
        text = notebook if isinstance(notebook, str) else nbformat.writes(notebook)
        path.write_text(text, encoding="utf-8")
    return path


def answered(**answers: str) -> NotebookNode:
    """The released notebook with the master's solutions, except for these answers."""
    master = nbformat.read(ASSIGNMENTS / "source" / ASSIGNMENT / f"{NOTEBOOK}.ipynb", 4)
    released = nbformat.read(ASSIGNMENTS / "release" / ASSIGNMENT / f"{NOTEBOOK}.ipynb", 4)
    solutions = {_name(cell): cell.source for cell in master.cells if _is_answer(cell)}
    for cell in released.cells:
        if _is_answer(cell):
            cell.source = (solutions | answers)[_name(cell)]
    return released


def _name(cell: NotebookNode) -> str:
    return cell.metadata.get("nbgrader", {}).get("grade_id", "")


def _is_answer(cell: NotebookNode) -> bool:
    return cell.metadata.get("nbgrader", {}).get("solution", False)


def misled(exercise: str) -> dict[str, str]:
    """Each known wrong answer to an exercise, by its mistake's id, as the code of a cell."""
    return {m.id: as_cell(m.answers[exercise], exercise) for m in wrong_answers(exercise)}


def as_cell(answer: Callable[..., Any], name: str) -> str:
    """The code of an answer under this name, with all of its module that it uses."""
    lines: dict[str, str] = {}
    _collect(answer, lines)
    if answer.__name__ != name:
        lines["="] = f"{name} = {answer.__name__}"
    return "\n\n".join(lines.values())


def _collect(answer: Callable[..., Any], lines: dict[str, str]) -> None:
    tree = bare_definition(answer)
    environment = vars(sys.modules[answer.__module__])
    for node in ast.walk(tree):
        if not isinstance(node, ast.Name) or node.id in lines or node.id not in environment:
            continue
        value = environment[node.id]
        if isinstance(value, types.ModuleType):
            lines[node.id] = f"import {value.__name__} as {node.id}"
        elif inspect.isroutine(value) and (value.__module__ or "").startswith("transformer_lib"):
            lines[node.id] = ""  # its place, before those that use it
            _collect(value, lines)
        elif isinstance(value, int | float):
            lines[node.id] = f"{node.id} = {value!r}"
        elif hasattr(value, "__module__"):
            lines[node.id] = f"from {value.__module__} import {value.__name__} as {node.id}"
    lines.pop(answer.__name__, None)
    lines[answer.__name__] = ast.unparse(tree)


if __name__ == "__main__":
    write_class(Path(sys.argv[1]))
