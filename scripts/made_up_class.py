"""Made-up students for the demo of grading and for its benchmark."""

import ast
import inspect
import shutil
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from transformer_lib.course.checks.mutation import definition_of
from transformer_lib.course.misconceptions.bank import wrong_answers

ASSIGNMENTS = Path(__file__).parent.parent / "assignments"
ASSIGNMENT, NOTEBOOK = "2_attention", "attention"


def new_course(folder: Path) -> None:
    """A course with nothing but assignment 2, in place of what was there."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ASSIGNMENTS / "source" / ASSIGNMENT, folder / "source" / ASSIGNMENT)
    shutil.copy(ASSIGNMENTS / "nbgrader_config.py", folder)


def hand_in(course: Path, student: str, notebook: NotebookNode | str | None) -> Path:
    """Put a notebook, or any text in its place, where hand-ins lie."""
    folder = course / "submitted" / student / ASSIGNMENT
    folder.mkdir(parents=True)
    path = folder / f"{NOTEBOOK}.ipynb"
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
    tree = definition_of(answer)
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
