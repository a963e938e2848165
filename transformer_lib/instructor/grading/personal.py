"""The cell of an assignment that says whose it is, and what graders are told because of it.

Tasks take their data from the number of :func:`transformer_lib.personal.personal_number`. When work
is graded, the cell holds the student's name, whatever was typed there; in marking schemes,
``{{ expression }}`` of ``NUMBER`` becomes this student's right result.
"""

import math
import re
from typing import Any

from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Unicode

from transformer_lib.instructor.grading.intake import NOBODY, PERSONAL, is_left_open, typed_in
from transformer_lib.personal import personal_number

EXPRESSION = re.compile(r"\{\{(.+?)\}\}")
SCHEME = re.compile(r"### BEGIN MARK SCHEME.*?### END MARK SCHEME", re.DOTALL)


class SetCohort(NbGraderPreprocessor):
    """Writes the cohort into what is released."""

    cohort = Unicode("self-study", help="The course and its year.").tag(config=True)

    def preprocess_cell(
        self, cell: NotebookNode, resources: Any, index: int
    ) -> tuple[NotebookNode, Any]:
        if cell.get("id") == PERSONAL:
            cell.source = _with(cell.source, COHORT=self.cohort)
        return cell, resources


def _with(source: str, **values: str) -> str:
    """The source with these texts in the place of what is assigned to these names."""
    for name, value in values.items():
        parts = re.split(rf"^{name} = [^#\n]*?(?= *#|$)", source, maxsplit=1, flags=re.MULTILINE)
        source = f"{name} = {value!r}".join(parts)
    return source


def personalize(
    notebook: NotebookNode, submission: NotebookNode, student: str, cohort: str
) -> list[str]:
    """Put the student's name into the notebook; what was remarkable about the one handed in."""
    cell = next((cell for cell in notebook.cells if cell.get("id") == PERSONAL), None)
    if cell is None:
        return []
    cell.source = _with(cell.source, STUDENT=student, COHORT=cohort)
    name, of = typed_in(submission, "STUDENT"), typed_in(submission, "COHORT")
    if is_left_open(name):
        said = "no name was filled in"
    elif name is not None and personal_number(name, cohort) != personal_number(student, cohort):
        said = "the name in it is another one"
    elif of is not None and of.strip() != cohort.strip():
        said = "it is the notebook of another cohort"
    else:
        return []
    return [f"{said}: its figures may be of another number"]


def anonymize(notebook: NotebookNode) -> None:
    """Take the name out again: nobody who grades by hand needs it."""
    for cell in notebook.cells:
        if cell.get("id") == PERSONAL:
            cell.source = _with(cell.source, STUDENT=NOBODY)


def fill_schemes(notebook: NotebookNode, student: str, cohort: str) -> None:
    """Work out the expressions in the master's marking schemes for this student."""
    names = {"NUMBER": personal_number(student, cohort), "math": math}

    def filled(scheme: re.Match[str]) -> str:
        # The text is the course's own, as its tests are.
        return EXPRESSION.sub(lambda found: str(eval(found[1], dict(names))), scheme[0])

    for cell in notebook.cells:
        if cell.cell_type == "markdown" and cell.metadata.get("nbgrader", {}).get("locked"):
            cell.source = SCHEME.sub(filled, cell.source)
