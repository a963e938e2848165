"""Pages of feedback, made by nbgrader, for students whose work is graded to the end."""

from typing import NamedTuple

from nbgrader.converters import GenerateFeedback
from nbgrader.converters.base import NbGraderException
from tqdm import tqdm

from transformer_lib.instructor.grading.course import Course, nbgrader_steps
from transformer_lib.instructor.grading.term import standings
from transformer_lib.progress import progress_is_shown


class Pages(NamedTuple):
    """How many students got theirs, how many wait, and whose could not be made."""

    made: int
    waiting: int
    failed: list[str]


def make_feedback(course: Course, assignment: str, unfinished: bool = False) -> Pages:
    """Write ``feedback/STUDENT/ASSIGNMENT/NOTEBOOK.html``, with points after penalties.

    Args:
        unfinished: also for those whose answers wait for a human, if tests have judged the rest.

    Raises:
        UserError: the assignment was never graded.
    """
    there = standings(course, assignment).handed_in
    done = [one for one in there if one.is_graded and (unfinished or not one.waiting)]
    failed = []
    for one in tqdm(done, disable=not progress_is_shown()):
        directory = course.directory(assignment_id=assignment, student_id=one.student)
        try:
            with nbgrader_steps(course.log):
                GenerateFeedback(coursedir=directory, config=course.config, force=True).start()
        except (NbGraderException, SystemExit):  # such as: its graded notebook is not there
            failed.append(one.student)
    return Pages(len(done) - len(failed), len(there) - len(done), failed)
