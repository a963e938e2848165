"""The commands of ``transformer-lib`` for students who hand in and instructors who grade."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from transformer_lib.errors import require

Assignment = Annotated[str, typer.Argument(metavar="ASSIGNMENT", help="e.g. 2_attention")]
CourseFolder = Annotated[
    Path, typer.Option("--course", metavar="DIR", help="folder with nbgrader_config.py")
]
COURSE = Path("assignments")


class How(StrEnum):
    """How submissions are shut in."""

    bubblewrap = "bubblewrap"
    none = "none"


class Form(StrEnum):
    """For whom grades are written."""

    nbgrader = "nbgrader"
    canvas = "canvas"
    moodle = "moodle"


def grade(
    assignment: Assignment,
    course: CourseFolder = COURSE,
    jobs: Annotated[int | None, typer.Option(help="processes; one per core by default")] = None,
    student: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="only this one; may be repeated")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="also what has not changed")] = False,
    task: Annotated[
        str | None, typer.Option(metavar="TEST", help="regrade this test cell alone")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="of a dask.distributed cluster")
    ] = None,
    isolation: Annotated[How, typer.Option(help="none: no sandbox, for trusted code only")] = (
        How.bubblewrap
    ),
) -> None:
    """Grade what was handed in: every submission in a sandbox, the results in nbgrader's gradebook.

    \b
    Examples:
      transformer-lib grade 2_attention
      transformer-lib grade 2_attention --student ada --again
      transformer-lib grade 2_attention --task test_capped_attention
      transformer-lib grade 2_attention --scheduler tcp://grader:8786
    """
    require("nbgrader", "grading")
    from transformer_lib.instructor.grading.course import Course
    from transformer_lib.instructor.grading.executors import machines, processes
    from transformer_lib.instructor.grading.grade import grade as grade_class
    from transformer_lib.instructor.grading.table import table
    from transformer_lib.instructor.grading.term import standings

    if isolation is How.none:
        typer.echo(
            "! no sandbox: submissions run with your own rights and can read and change whatever "
            "you can",
            err=True,
        )
    there = Course(course)
    rows = grade_class(
        there,
        assignment,
        student or [],
        again,
        task,
        isolation.value,
        lambda: machines(scheduler) if scheduler else processes(jobs),
    )
    typer.echo(table(rows, standings(there, assignment)))
    if any(row.trouble for row in rows):
        sys.exit(2)


def verify_submission(
    notebook: Annotated[Path, typer.Argument(metavar="FILE", help="the notebook to hand in")],
) -> None:
    """Say whether a notebook can be graded, before it is handed in. Nothing of it is run."""
    require("nbformat", "notebooks")
    from transformer_lib.instructor.grading.intake import verify

    text, well_formed = verify(notebook)
    typer.echo(text)
    if not well_formed:
        sys.exit(2)


def export_grades(
    assignment: Assignment,
    out: Annotated[Path, typer.Option(help="the CSV file to write")],
    course: CourseFolder = COURSE,
    form: Annotated[Form, typer.Option("--for", help="which form of CSV")] = Form.nbgrader,
) -> None:
    """Write the grades of everybody in the gradebook as CSV, for import elsewhere."""
    require("nbgrader", "grading")
    from transformer_lib.instructor.grading.course import Course
    from transformer_lib.instructor.grading.export import export

    done = export(Course(course), assignment, form.value, out)
    typer.echo(f"{out}: {done.students} students")
    if done.waiting:
        typer.echo(f"! {done.waiting} of them wait for hand grading: provisional points", err=True)


def class_report(
    assignment: Assignment,
    out: Annotated[Path, typer.Option(help="the HTML page to write")],
    course: CourseFolder = COURSE,
) -> None:
    """Write a page about the class: points, how hard each test was, frequent misconceptions."""
    require("nbgrader", "grading")
    from transformer_lib.instructor.grading.course import Course
    from transformer_lib.instructor.grading.report import write_report

    write_report(Course(course), assignment, out)
    typer.echo(f"report: {out}")
