"""The commands of ``transformer-lib`` for students who hand in and instructors who grade."""

import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer_lib.errors import UserError, require

if TYPE_CHECKING:
    from transformer_lib.instructor.grading.course import Course

WITH_THE_PROJECT = Path("assignments")
Assignment = Annotated[str, typer.Argument(metavar="ASSIGNMENT", help="e.g. 2_attention")]


def _course() -> Path:
    """The folder we are in, if it is a course; else the one that comes with the project."""
    places = (Path(), WITH_THE_PROJECT)
    return next((place for place in places if (place / "nbgrader_config.py").exists()), Path())


def _opened(folder: Path) -> "Course":
    """The course in a folder, once it is known that what grading needs is installed."""
    require("nbgrader", "grading")
    from transformer_lib.instructor.grading.course import Course

    if folder == WITH_THE_PROJECT:
        typer.echo(f"the course in {folder}; for another one, go there or give --course", err=True)
    return Course(folder)


CourseFolder = Annotated[
    Path,
    typer.Option(
        "--course",
        metavar="DIR",
        default_factory=_course,
        show_default="this folder, or assignments",
        help="folder with nbgrader_config.py",
    ),
]


class Isolation(StrEnum):
    """How submissions are shut in."""

    bubblewrap = "bubblewrap"
    none = "none"


class GradeFormat(StrEnum):
    """For whom grades are written."""

    nbgrader = "nbgrader"
    canvas = "canvas"
    moodle = "moodle"


def grade(
    assignment: Assignment,
    folder: CourseFolder,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="processes; one per core by default")
    ] = None,
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
    isolation: Annotated[
        Isolation, typer.Option(help="none: no sandbox, for trusted code only")
    ] = Isolation.bubblewrap,
) -> None:
    """Grade what was handed in: every submission in a sandbox, the results in nbgrader's gradebook.

    \b
    Examples:
      transformer-lib grade 2_attention
      transformer-lib grade 2_attention --student ada --again
      transformer-lib grade 2_attention --task test_capped_attention
      transformer-lib grade 2_attention --scheduler tcp://grader:8786
    """
    course = _opened(folder)
    from transformer_lib.instructor.grading.executors import machines, processes
    from transformer_lib.instructor.grading.grade import grade as grade_class
    from transformer_lib.instructor.grading.lint import lint
    from transformer_lib.instructor.grading.master import load_master
    from transformer_lib.instructor.grading.table import table
    from transformer_lib.instructor.grading.term import standings

    if isolation is Isolation.none:
        typer.echo(
            "! no sandbox: submissions run with your own rights and can read and change whatever "
            "you can",
            err=True,
        )
    for name, master in course.masters(assignment).items():
        for problem in lint(load_master(master)):
            typer.echo(f"! {name}: {problem}", err=True)
    rows = grade_class(
        course,
        assignment,
        student or [],
        again,
        task,
        isolation.value,
        lambda: machines(scheduler) if scheduler else processes(jobs),
    )
    now = standings(course, assignment)
    if student:
        now = replace(now, students={row.student: now.students[row.student] for row in rows})
    typer.echo(table(rows, now))
    if not rows:
        typer.echo(f"! nothing has been taken in: transformer-lib collect {assignment}", err=True)
    if any(row.trouble for row in rows):
        sys.exit(2)


def class_list(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV with a heading")],
    folder: CourseFolder,
) -> None:
    """Enter the class from nbgrader's, Canvas's or Moodle's CSV file into the gradebook.

    \b
    Examples:
      transformer-lib class-list participants.csv
    """
    course = _opened(folder)
    from transformer_lib.instructor.grading.class_list import enter_class_list, read_class_list

    people = read_class_list(file)
    others = enter_class_list(course, people)
    count = f"{len(people)} students are" if len(people) > 1 else "1 student is"
    typer.echo(f"{count} in the gradebook, the first as {people[0].student}")
    if others:
        typer.echo(f"! not on this list: {', '.join(others)}", err=True)


def deadline(
    assignment: Assignment,
    folder: CourseFolder,
    when: Annotated[
        str | None, typer.Argument(metavar="[WHEN]", help="e.g. '2026-12-01 23:59'")
    ] = None,
    student: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="only for this one; may be repeated")
    ] = None,
    zone: Annotated[
        str | None, typer.Option(help="time zone, e.g. Europe/Berlin [that of nbgrader_config.py]")
    ] = None,
) -> None:
    """Set when an assignment is due, for all or for one student; without WHEN, say when it is.

    Penalties follow at once. The file nbgrader_config.py says what lateness costs.

    \b
    Examples:
      transformer-lib deadline 2_attention "2026-12-01 23:59" --zone Europe/Berlin
      transformer-lib deadline 2_attention "2026-12-08 23:59" --student ada
      transformer-lib deadline 2_attention
    """
    course = _opened(folder)
    from transformer_lib.instructor.grading import term

    course.masters(assignment)
    policy = term.policy_of(course)
    policy.zone = zone or policy.zone
    if when is not None:
        moment = term.moment(when, policy.zone_info)
        if student:
            for name in student:
                term.set_extension(course, assignment, name, moment)
        else:
            term.set_deadline(course, assignment, moment)
    elif student:
        raise UserError("say until when: transformer-lib deadline ASSIGNMENT WHEN --student NAME")
    typer.echo(term.dates(course, assignment, policy))


def collect(
    assignment: Assignment,
    folder: CourseFolder,
    archive: Annotated[
        Path | None,
        typer.Argument(metavar="[ZIP]", help="Moodle's or Canvas's archive [nbgrader's exchange]"),
    ] = None,
    times: Annotated[
        Path | None, typer.Option(metavar="CSV", help="student,time: when each handed in")
    ] = None,
    trusted: Annotated[
        bool, typer.Option("--trust-timestamps", help="believe the times in the exchange")
    ] = False,
) -> None:
    """Take in everybody's latest hand-in, and record when it came.

    \b
    Examples:
      transformer-lib collect 2_attention
      transformer-lib collect 2_attention ~/Downloads/submissions.zip --times times.csv
    """
    course = _opened(folder)
    from transformer_lib.instructor.grading import collect as collecting

    found = collecting.collect(course, assignment, archive, times, trusted)
    typer.echo(collecting.collected(found, course))


def feedback(
    assignment: Assignment,
    folder: CourseFolder,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="also where answers wait for a human")
    ] = False,
    moodle: Annotated[
        Path | None,
        typer.Option(metavar="ZIP", help="Moodle's archive of hand-ins: pack the pages for Moodle"),
    ] = None,
) -> None:
    """Make a page for each student whose work is graded, with nbgrader's generate_feedback.

    \b
    Examples:
      transformer-lib feedback 2_attention
      transformer-lib feedback 2_attention --moodle hand-ins.zip
    """
    course = _opened(folder)
    from transformer_lib.instructor.grading.feedback import make_feedback, pack_for_moodle

    pages = make_feedback(course, assignment, unfinished)
    typer.echo(f"pages in {folder / 'feedback'}: {pages.made}")
    if pages.waiting:
        said = f"! students who are not fully graded and got no page: {pages.waiting}"
        typer.echo(said, err=True)
    if pages.failed:
        names = ", ".join(pages.failed)
        typer.echo(
            f"! no page could be made for these, grade them again (see {course.log}): {names}",
            err=True,
        )
    if moodle:
        out = folder / "feedback" / f"{assignment}.zip"
        unknown = pack_for_moodle(course, assignment, moodle, out)
        typer.echo(f"for Moodle's “Upload multiple feedback files in a zip”: {out}")
        if unknown:
            typer.echo(f"! not in {moodle}: {', '.join(unknown)}", err=True)


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
    folder: CourseFolder,
    out: Annotated[Path, typer.Option(help="the CSV file to write")],
    form: Annotated[
        GradeFormat, typer.Option("--for", help="which form of CSV")
    ] = GradeFormat.nbgrader,
) -> None:
    """Write the grades of everybody in the gradebook as CSV, for import elsewhere."""
    course = _opened(folder)
    from transformer_lib.instructor.grading.export import export

    done = export(course, assignment, form.value, out)
    typer.echo(f"{out}: {done.students} students")
    if done.waiting:
        typer.echo(f"! provisional, for not fully graded: {done.waiting} of them", err=True)


def class_report(
    assignment: Assignment,
    folder: CourseFolder,
    out: Annotated[Path, typer.Option(help="the HTML page to write")],
) -> None:
    """Write a page about the class: points, how hard each test was, frequent misconceptions."""
    course = _opened(folder)
    from transformer_lib.instructor.grading.report import write_report

    write_report(course, assignment, out)
    typer.echo(f"report: {out}")


def second_grading(
    assignment: Assignment,
    folder: CourseFolder,
    out: Annotated[Path, typer.Option(metavar="DIR", help="a new folder for the course")],
    share: Annotated[float, typer.Option(min=0.0, max=1.0, help="of the hand-ins")] = 0.2,
    seed: Annotated[int, typer.Option(help="draws the sample")] = 0,
) -> None:
    """Make a course in which somebody else grades a sample by hand, without the first points.

    \b
    Examples:
      transformer-lib second-grading 2_attention --out second
      transformer-lib agreement 2_attention --second second
    """
    course = _opened(folder)
    from transformer_lib.instructor.grading.second import make_second

    chosen = make_second(course, assignment, out, share, seed)
    typer.echo(f"{out}: {len(chosen)} hand-ins; `jupyter lab` there opens the form grader on them")


def agreement(
    assignment: Assignment,
    folder: CourseFolder,
    second: Annotated[Path, typer.Option(metavar="DIR", help="the second grader's course")],
) -> None:
    """How far two graders agree, item by item, with Krippendorff's alpha.

    \b
    Examples:
      transformer-lib agreement 2_attention --second second
    """
    course = _opened(folder)
    from transformer_lib.instructor.grading.second import agreements, described

    typer.echo(described(agreements(course, _opened(second), assignment)))


def likeness(
    assignment: Assignment,
    folder: CourseFolder,
    out: Annotated[Path, typer.Option(help="the HTML page to write")],
    earlier: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="the folder submitted of an earlier cohort; repeatable"),
    ] = None,
) -> None:
    """Write a page of hand-ins that are more alike than the class, side by side; never a verdict.

    \b
    Examples:
      transformer-lib likeness 2_attention --out likeness.html
      transformer-lib likeness 2_attention --out likeness.html --earlier ../2025/submitted
    """
    course = _opened(folder)
    require("copydetect", "grading")
    from transformer_lib.instructor.likeness.report import write_likeness

    pairs = write_likeness(course, assignment, out, earlier or [])
    typer.echo(f"{out}: pairs that stand out: {len(pairs)}; a reason to look, not a verdict")
