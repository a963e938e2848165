"""Pages of feedback, made by nbgrader, for students whose work is graded to the end."""

import html
import shutil
from pathlib import Path
from typing import NamedTuple

from nbgrader.converters import GenerateFeedback
from nbgrader.converters.base import NbGraderException
from tqdm import tqdm

from transformer_lib.files import write_text
from transformer_lib.instructor.grading.course import Course, nbgrader_steps
from transformer_lib.instructor.grading.late import LatePolicy
from transformer_lib.instructor.grading.term import Standing, lateness, policy_of, shown, standings
from transformer_lib.progress import progress_is_shown

PENALTY = '<li class="late-penalty">Late submission penalty'  # as nbgrader begins that line


class Pages(NamedTuple):
    """How many students got theirs, how many wait, and whose could not be made."""

    made: int
    waiting: int
    failed: list[str]


def make_feedback(course: Course, assignment: str, unfinished: bool = False) -> Pages:
    """Write ``feedback/STUDENT/ASSIGNMENT/NOTEBOOK.html``, with points after penalties.

    A page of those whose work is no longer graded to the end, which is of earlier work, goes.

    Args:
        unfinished: also for those whose answers wait for a human, if tests have judged the rest.

    Raises:
        UserError: the assignment was never graded.
    """
    there = standings(course, assignment).handed_in
    done = [one for one in there if one.is_graded and (unfinished or not one.waiting)]
    failed, policy = [], policy_of(course)
    pages = {one.student: course.folder / "feedback" / one.student / assignment for one in there}
    for one in there:
        if one not in done:
            shutil.rmtree(pages[one.student], ignore_errors=True)
    for one in tqdm(done, disable=not progress_is_shown()):
        directory = course.directory(assignment_id=assignment, student_id=one.student)
        try:
            with nbgrader_steps(course.log):
                GenerateFeedback(coursedir=directory, config=course.config, force=True).start()
        except (NbGraderException, SystemExit):  # such as: its graded notebook is not there
            failed.append(one.student)
            shutil.rmtree(pages[one.student], ignore_errors=True)
        else:
            _give_reason(pages[one.student], one, policy)
            _say_provisional(pages[one.student], one.waiting)
    return Pages(len(done) - len(failed), len(there) - len(done), failed)


def _say_provisional(pages: Path, waiting: int) -> None:
    """Say on top that answers still wait for a human; nbgrader shows 0 points for them."""
    if not waiting:
        return
    answers = f"{waiting} answers are" if waiting > 1 else "1 answer is"
    note = f"<p><strong>Provisional: {answers} not graded yet, and count as 0 here.</strong></p>"
    for page in pages.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        write_text(page, text.replace("</h4>", f"</h4>{note}", 1))


def _give_reason(pages: Path, one: Standing, policy: LatePolicy) -> None:
    """Say beside the penalty for being late where it comes from."""
    if not (one.penalty and one.time and one.due):
        return
    came, due = shown(one.time, policy.place), shown(one.due, policy.place)
    reason = f"{lateness(one.seconds_late)}, {came} instead of {due}; {policy.rules()}"
    for page in pages.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        write_text(page, text.replace(PENALTY, f"{PENALTY} ({html.escape(reason)})", 1))
