"""Pages of feedback, made by nbgrader, for students whose work is graded to the end."""

from nbgrader.converters import GenerateFeedback
from tqdm import tqdm

from transformer_lib.instructor.grading.course import Course, nbgrader_steps
from transformer_lib.instructor.grading.term import standings
from transformer_lib.progress import progress_is_shown


def make_feedback(course: Course, assignment: str, unfinished: bool = False) -> tuple[int, int]:
    """Write ``feedback/STUDENT/ASSIGNMENT/NOTEBOOK.html``, with points after penalties.

    Args:
        unfinished: also for those whose answers wait for a human, if tests have judged the rest.

    Returns:
        How many students got theirs, and how many wait.

    Raises:
        UserError: the assignment was never graded.
    """
    there = standings(course, assignment).handed_in
    done = [one for one in there if one.is_graded and (unfinished or not one.waiting)]
    for one in tqdm(done, disable=not progress_is_shown()):
        directory = course.directory(assignment_id=assignment, student_id=one.student)
        with nbgrader_steps(course.log):
            GenerateFeedback(coursedir=directory, config=course.config, force=True).start()
    return len(done), len(there) - len(done)
