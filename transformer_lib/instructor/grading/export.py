"""Grades as CSV: in nbgrader's form, and in those that Canvas and Moodle import.

Everybody in the gradebook is in the file; who handed in nothing has zero points.
"""

import csv
import io
from pathlib import Path
from typing import Any, Literal, NamedTuple

from nbgrader.api import MissingEntry

from transformer_lib.errors import UserError
from transformer_lib.files import write_text
from transformer_lib.instructor.grading.course import Course
from transformer_lib.instructor.grading.shown import table_cell

Form = Literal["nbgrader", "canvas", "moodle"]


class Exported(NamedTuple):
    """How many students are in the file, and how many of their points are provisional."""

    students: int
    waiting: int


def export(course: Course, assignment: str, form: Form, target: Path) -> Exported:
    """Write the file.

    Raises:
        UserError: the assignment was never graded.
    """
    with course.gradebook() as gradebook:
        try:
            known = gradebook.find_assignment(assignment)
        except MissingEntry as error:
            raise UserError(f"{assignment} was not graded yet: transformer-lib grade …") from error
        students = gradebook.students
        submissions = {s.student.id: s for s in known.submissions}
        if not submissions:
            raise UserError(f"{assignment} was not graded yet: transformer-lib grade …")
        rows = [(student, submissions.get(student.id)) for student in students]
        rows.sort(key=lambda row: (row[0].last_name or "", row[0].first_name or "", row[0].id))
        lines = FORMS[form](rows, known)
        waiting = sum(submission.needs_manual_grade for submission in submissions.values())
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(
            [table_cell(str(value)) for value in line] for line in lines
        )
    write_text(target, text.getvalue())
    return Exported(len(rows), waiting)


def _score(submission: Any) -> float:
    if submission is None:
        return 0.0
    return max(0.0, submission.score - (submission.late_submission_penalty or 0.0))


def _nbgrader(rows: list[Any], known: Any) -> list[list[Any]]:
    """The columns of ``nbgrader export``."""
    head = [
        "assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email",
        "raw_score", "late_submission_penalty", "score", "max_score",
    ]  # fmt: skip
    return [head] + [
        [
            known.name, known.duedate or "", (submission and submission.timestamp) or "",
            student.id, student.last_name or "", student.first_name or "", student.email or "",
            submission.score if submission else 0.0,
            (submission and submission.late_submission_penalty) or 0.0,
            _score(submission), known.max_score,
        ]
        for student, submission in rows
    ]  # fmt: skip


def _canvas(rows: list[Any], known: Any) -> list[list[Any]]:
    """Canvas wants its own columns first, and the points possible in the second row.

    https://community.canvaslms.com/t5/Instructor-Guide/How-do-I-import-grades-in-the-Gradebook
    """
    head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", known.name]
    points = ["Points Possible", "", "", "", "", f"{known.max_score:g}"]
    return [head, points] + [
        [_name(student), student.lms_user_id or "", "", student.id, "", f"{_score(submission):g}"]
        for student, submission in rows
    ]


def _moodle(rows: list[Any], known: Any) -> list[list[Any]]:
    """Moodle asks which column says who it is; https://docs.moodle.org/en/Grade_import."""
    head = ["Username", "First name", "Last name", "Email address", known.name]
    return [head] + [
        [
            student.id, student.first_name or "", student.last_name or "", student.email or "",
            f"{_score(submission):g}",
        ]
        for student, submission in rows
    ]  # fmt: skip


def _name(student: Any) -> str:
    names = [name for name in (student.last_name, student.first_name) if name]
    return ", ".join(names) or student.id


FORMS = {"nbgrader": _nbgrader, "canvas": _canvas, "moodle": _moodle}
