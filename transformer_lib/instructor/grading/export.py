"""Grades as CSV: in nbgrader's form, and in those that Canvas and Moodle import.

Everybody in the gradebook is in the file; who handed in nothing has zero points.
"""

import csv
import io
from pathlib import Path
from typing import Any, Literal

from nbgrader.api import MissingEntry
from nbgrader.plugins import CsvExportPlugin

from transformer_lib.errors import UserError
from transformer_lib.files import atomic_path, write_text
from transformer_lib.instructor.grading.course import Course

Form = Literal["nbgrader", "canvas", "moodle"]


def export(course: Course, assignment: str, form: Form, target: Path) -> int:
    """Write the file; returns how many students are in it.

    Raises:
        UserError: the gradebook does not know the assignment.
    """
    with course.gradebook() as gradebook:
        try:
            known = gradebook.find_assignment(assignment)
        except MissingEntry as error:
            raise UserError(f"{assignment} was not graded yet: transformer-lib grade …") from error
        students = gradebook.students
        if form == "nbgrader":
            with atomic_path(target) as temporary:
                CsvExportPlugin(to=str(temporary), assignment=[assignment]).export(gradebook)
            return len(students)
        scores = {s.student.id: _score(s) for s in known.submissions}
        rows = [[student, scores.get(student.id, 0.0)] for student in students]
        lines = _canvas(rows, assignment, known.max_score) if form == "canvas" else _moodle(
            rows, assignment)  # fmt: skip
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(lines)
    write_text(target, text.getvalue())
    return len(rows)


def _score(submission: Any) -> float:
    return max(0.0, submission.score - (submission.late_submission_penalty or 0.0))


def _canvas(rows: list[Any], assignment: str, max_score: float) -> list[list[Any]]:
    """Canvas wants its own columns first, and the points possible in the second row.

    https://community.canvaslms.com/t5/Instructor-Guide/How-do-I-import-grades-in-the-Gradebook
    """
    head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", assignment]
    points = ["Points Possible", "", "", "", "", f"{max_score:g}"]
    return [head, points] + [
        [_name(student), "", "", student.id, "", f"{score:g}"] for student, score in rows
    ]


def _moodle(rows: list[Any], assignment: str) -> list[list[Any]]:
    """Moodle asks which column says who it is; https://docs.moodle.org/en/Grade_import."""
    head = ["Username", "First name", "Last name", "Email address", assignment]
    return [head] + [
        [student.id, student.first_name, student.last_name, student.email, f"{score:g}"]
        for student, score in rows
    ]


def _name(student: Any) -> str:
    names = [name for name in (student.last_name, student.first_name) if name]
    return ", ".join(names) or student.id
