"""Grades as CSV: in nbgrader's form, and in those that Canvas and Moodle import.

Everybody in the gradebook is in the file; who handed in nothing has zero points.
"""

import csv
import io
from pathlib import Path
from typing import Any, Literal, NamedTuple

from transformer_lib.errors import UserError
from transformer_lib.files import write_text
from transformer_lib.instructor.grading.course import Course
from transformer_lib.instructor.grading.term import Standings, standings
from transformer_lib.shown import table_cell

Form = Literal["nbgrader", "canvas", "moodle"]


class Exported(NamedTuple):
    """How many students are in the file, and how many of them are not fully graded."""

    students: int
    waiting: int


def export(course: Course, assignment: str, form: Form, target: Path) -> Exported:
    """Write the file.

    Raises:
        UserError: the assignment was never graded.
    """
    now = standings(course, assignment)
    if not any(one.is_graded for one in now.handed_in):
        raise UserError(f"{assignment} was not graded yet: transformer-lib grade {assignment}")
    waiting = sum(one.waiting > 0 or not one.is_graded for one in now.handed_in)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [table_cell(str(value)) for value in line] for line in FORMS[form](now)
    )
    write_text(target, text.getvalue())
    return Exported(len(now.students), waiting)


def _nbgrader(now: Standings) -> list[list[Any]]:
    """The columns of ``nbgrader export``; times are UTC."""
    head = [
        "assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email",
        "raw_score", "late_submission_penalty", "score", "max_score",
    ]  # fmt: skip
    return [head] + [
        [
            now.assignment, one.due or "", one.time or "", one.student, one.last_name,
            one.first_name, one.email, one.score, one.penalty, one.points, now.max_points,
        ]
        for one in now.students.values()
    ]  # fmt: skip


def _canvas(now: Standings) -> list[list[Any]]:
    """Canvas wants its own columns first, and the points possible in the second row.

    https://community.canvaslms.com/t5/Instructor-Guide/How-do-I-import-grades-in-the-Gradebook
    """
    head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", now.assignment]
    points = ["Points Possible", "", "", "", "", f"{now.max_points:g}"]
    return [head, points] + [
        [one.name, one.lms_id, "", one.student, "", f"{one.points:g}"]
        for one in now.students.values()
    ]


def _moodle(now: Standings) -> list[list[Any]]:
    """Moodle asks which column says who it is; https://docs.moodle.org/en/Grade_import."""
    head = ["Username", "First name", "Last name", "Email address", now.assignment]
    return [head] + [
        [one.student, one.first_name, one.last_name, one.email, f"{one.points:g}"]
        for one in now.students.values()
    ]


FORMS = {"nbgrader": _nbgrader, "canvas": _canvas, "moodle": _moodle}
