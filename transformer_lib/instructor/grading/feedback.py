"""Pages of feedback, made by nbgrader, for students whose work is graded to the end."""

import html
import shutil
import zipfile
from pathlib import Path
from typing import NamedTuple

from nbgrader.converters import GenerateFeedback
from nbgrader.converters.base import NbGraderException
from tqdm import tqdm

from transformer_lib.files import atomic_path, write_text
from transformer_lib.instructor.grading.archive import moodle_folders
from transformer_lib.instructor.grading.class_list import known_people
from transformer_lib.instructor.grading.course import Course, nbgrader_steps
from transformer_lib.instructor.grading.late import LatePolicy
from transformer_lib.instructor.grading.term import Standing, lateness, policy_of, shown, standings
from transformer_lib.progress import progress_is_shown

PENALTY = '<li class="late-penalty">Late submission penalty'  # as nbgrader begins that line
TITLE = "</h4>"  # the end of the one with the points, which nbgrader counts as 0 where they wait


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
            _add_notes(pages[one.student], one, policy)
    return Pages(len(done) - len(failed), len(there) - len(done), failed)


def pack_for_moodle(course: Course, assignment: str, hand_ins: Path, out: Path) -> list[str]:
    """Write the pages into one zip file, as Moodle takes feedback for several students.

    Args:
        hand_ins: the archive downloaded from Moodle; by the names of its folders Moodle knows whose
            a page is.

    Returns:
        The students who have a page, but no folder in that archive.

    Raises:
        UserError: it is no archive of Moodle's, or the file cannot be written.
    """
    folders, unknown = moodle_folders(hand_ins, known_people(course)), []
    with (
        atomic_path(out) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as zipped,
    ):
        for pages in sorted((course.folder / "feedback").glob(f"*/{assignment}")):
            student = pages.parent.name
            if student not in folders:
                unknown.append(student)
                continue
            for page in sorted(pages.glob("*.html")):
                zipped.write(page, f"{folders[student]}/{page.name}")
    return unknown


def _add_notes(pages: Path, one: Standing, policy: LatePolicy) -> None:
    """Say that answers still wait for a human, and where the penalty for being late comes from."""
    notes = {}
    if one.waiting:
        answers = f"{one.waiting} answers are" if one.waiting > 1 else "1 answer is"
        said = f"Provisional: {answers} not graded yet, and count as 0 here."
        notes[TITLE] = f"{TITLE}<p><strong>{said}</strong></p>"
    if one.penalty and one.time and one.due:
        came, due = shown(one.time, policy.zone_info), shown(one.due, policy.zone_info)
        reason = f"{lateness(one.seconds_late)}, {came} instead of {due}; {policy.rules()}"
        notes[PENALTY] = f"{PENALTY} ({html.escape(reason)})"
    for page in pages.glob("*.html") if notes else ():
        text = page.read_text(encoding="utf-8")
        for place, note in notes.items():
            text = text.replace(place, note, 1)
        write_text(page, text)
