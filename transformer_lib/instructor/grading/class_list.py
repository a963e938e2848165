"""The class from a CSV file, as nbgrader, Canvas or Moodle write it, into the gradebook."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nbgrader.api import Student

from transformer_lib.errors import UserError
from transformer_lib.instructor.grading.course import Course, safe_name
from transformer_lib.instructor.grading.csv_table import Table, read_table

# Moodle names its columns in the language of whoever exports them.
EMAIL = ("email", "email address", "e-mail", "e-mail-adresse")
IDS = ("student_id", "username", "anmeldename", "login", "sis login id", "sis user id", *EMAIL)
FIRST = ("first_name", "first name", "given name", "vorname")
LAST = ("last_name", "last name", "surname", "family name", "nachname")
LMS = ("lms_user_id", "canvas id")


@dataclass(frozen=True)
class Person:
    """A student of the class list; ``lms_id`` is the number that Canvas knows the student by."""

    student: str
    last_name: str = ""
    first_name: str = ""
    email: str = ""
    lms_id: str = ""


def read_class_list(path: Path) -> list[Person]:
    """Read a file whose first line names its columns.

    Understood are nbgrader's (``id``, ``first_name``, …, ``lms_user_id``), those of Canvas's
    gradebook (``Student``, ``ID``, ``SIS Login ID``, …) and Moodle's list of participants
    (``First name``, ``Surname``, ``Username``, ``Email address``, or in German), with commas,
    semicolons or tabs.

    Raises:
        UserError: it cannot be read, names no student's column, or has a student twice.
    """
    people = list(_people(read_table(path), path))
    if not people:
        raise UserError(f"{path} lists no student")
    return people


def _people(table: Table, path: Path) -> Iterator[Person]:
    names, rows = table.columns, table.rows
    is_canvas = {"student", "id"} <= set(names) and {"sis login id", "sis user id"} & set(names)
    if is_canvas:  # below the heading it has a line of possible points
        rows = [(number, row) for number, row in rows if _value(row, ("id",))]
    ids = [name for name in (*(() if is_canvas else ("id",)), *IDS) if name in names]
    if not ids:
        raise UserError(f"{path} has no column for students' names, such as id, Username or Login")
    used = next((name for name in ids if any(row.get(name) for _, row in rows)), ids[0])
    seen: dict[str, int] = {}
    for number, row in rows:
        first, last = _value(row, FIRST), _value(row, LAST)
        if is_canvas:
            last, _, first = _value(row, ("student",)).partition(",")
        student = safe_name(_value(row, (used,)))
        if not student and is_canvas:  # Canvas's own test student, or a guest
            who = _value(row, ("student",))
            warnings.warn(f"{path}, line {number}: {who} has no {used}: left out", stacklevel=2)
            continue
        if not student:
            raise UserError(f"{path}, line {number}: no {used}")
        if student in seen:
            raise UserError(f"{path}: {student} is in line {seen[student]} and in line {number}")
        seen[student] = number
        lms = _value(row, ("id",) if is_canvas else LMS)
        yield Person(student, last.strip(), first.strip(), _value(row, EMAIL), lms)


def _value(row: dict[str, str], names: Sequence[str]) -> str:
    """The first of these columns that has something in it."""
    return next((value for name in names if (value := row.get(name, ""))), "")


def enter_class_list(course: Course, people: list[Person]) -> list[str]:
    """Put the class into the gradebook; returns who is there already and not on the list.

    What a list does not say of a student stays as it is.
    """
    with course.gradebook() as gradebook:
        for person in people:
            said = {
                "first_name": person.first_name,
                "last_name": person.last_name,
                "email": person.email,
                "lms_user_id": person.lms_id,
            }
            said = {name: value for name, value in said.items() if value}
            gradebook.update_or_create_student(person.student, **said)
        listed = {person.student for person in people}
        return sorted(one.id for one in gradebook.students if one.id not in listed)


def known_people(course: Course) -> list[Person]:
    """Everybody in the gradebook."""
    with course.gradebook() as gradebook:
        return [person_of(student) for student in gradebook.students]


def person_of(student: Student) -> Person:
    """A student of the gradebook; what it does not know is empty."""
    return Person(
        student.id,
        student.last_name or "",
        student.first_name or "",
        student.email or "",
        student.lms_user_id or "",
    )
