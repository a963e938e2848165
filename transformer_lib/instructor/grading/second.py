"""A second grader, who does not see the first one's points, and how far the two agree.

The second grader works in a course of its own with a sample of the hand-ins, in nbgrader's form
grader, which shows no names.
"""

import math
import random
import shutil
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import krippendorff
from nbgrader.api import Gradebook

from transformer_lib.errors import UserError
from transformer_lib.files import new_folder
from transformer_lib.instructor.grading.course import Course, nbgrader_steps
from transformer_lib.instructor.grading.term import item_name, known_assignment, standings


def make_second(
    course: Course, assignment: str, target: Path, share: float = 0.2, seed: int = 0
) -> list[str]:
    """Make the second grader's course; returns the students whose answers are graded twice.

    Args:
        target: a new folder.
        share: of those whose answers the first grader has finished; at least one student.

    Raises:
        UserError: the folder is there already, or nothing is finished.
    """
    if target.exists():
        raise UserError(f"{target} is there already")
    now = standings(course, assignment)
    done = sorted(one.student for one in now.handed_in if one.items and not one.waiting)
    if not done:
        raise UserError(f"of {assignment} no hand-in is graded by hand yet")
    number = max(1, math.ceil(share * len(done)))
    chosen = sorted(random.Random(seed).sample(done, number))
    with new_folder(target) as made:
        _copy(course, assignment, made, chosen)
    return chosen


def _copy(course: Course, assignment: str, target: Path, chosen: list[str]) -> None:
    """A course of these hand-ins alone, without what a human has said of them."""
    shutil.copytree(course.folder / "source", target / "source")
    for name in ("nbgrader_config.py", "gradebook.db"):
        shutil.copy(course.folder / name, target / name)
    for student in chosen:
        for folder in ("submitted", "autograded"):
            there = course.folder / folder / student / assignment
            if there.is_dir():
                shutil.copytree(there, target / folder / student / assignment, symlinks=True)
    second = Course(target)
    with nbgrader_steps(second.log), second.gradebook() as gradebook:
        _forget_others(gradebook, assignment, chosen)
        for one in gradebook.assignment_submissions(assignment):
            for notebook in one.notebooks:
                for comment in notebook.comments:
                    comment.manual_comment = None
                for grade in notebook.grades:
                    if grade.manual_score is not None:
                        grade.manual_score, grade.needs_manual_grade = None, True
                    grade.extra_credit = None
        gradebook.db.commit()


def _forget_others(gradebook: Gradebook, assignment: str, chosen: list[str]) -> None:
    for other in list(gradebook.assignments):
        for submission in list(other.submissions):
            if other.name != assignment or submission.student.id not in chosen:
                gradebook.remove_submission(other.name, submission.student.id)


@dataclass(frozen=True)
class Agreement:
    """How two graders' points for one item compare.

    Args:
        answers: graded by both.
        same: share of them with the same points.
        difference: mean of the second grader's points minus the first one's.
        alpha: Krippendorff's, for intervals: 1 is full agreement, 0 is that of chance; None where
            all points are the same number.
    """

    item: str
    answers: int
    same: float
    difference: float
    alpha: float | None
    furthest: tuple[str, float, float]


def agreements(course: Course, second: Course, assignment: str) -> list[Agreement]:
    """For each item that both have graded by hand.

    Raises:
        UserError: there is none, the two are one course, or one does not know the assignment.
    """
    if course.folder.resolve() == second.folder.resolve():
        raise UserError(f"{second.folder} is the first grader's course, not a second one's")
    mine, theirs = _by_hand(course, assignment), _by_hand(second, assignment)
    made = []
    for item in mine.keys() & theirs.keys():
        students = sorted(mine[item].keys() & theirs[item].keys())
        if not students:
            continue
        pairs = [(mine[item][s], theirs[item][s]) for s in students]
        furthest = max(range(len(pairs)), key=lambda n: abs(pairs[n][1] - pairs[n][0]))
        made.append(
            Agreement(
                item,
                len(pairs),
                sum(a == b for a, b in pairs) / len(pairs),
                sum(b - a for a, b in pairs) / len(pairs),
                _alpha(pairs),
                (students[furthest], *pairs[furthest]),
            )
        )
    if not made:
        raise UserError(f"of {assignment} no answer has points of both graders")
    return sorted(made, key=lambda one: one.item)


def _alpha(pairs: list[tuple[float, float]]) -> float | None:
    if len({value for pair in pairs for value in pair}) < 2 or len(pairs) < 2:
        return None
    return float(
        krippendorff.alpha(list(zip(*pairs, strict=True)), level_of_measurement="interval")
    )


def _by_hand(course: Course, assignment: str) -> dict[str, dict[str, float]]:
    """By item and student, the points that a human has given."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    with course.gradebook() as gradebook:
        for one in known_assignment(gradebook, assignment).submissions:
            for notebook in one.notebooks:
                for grade in notebook.grades:
                    if grade.manual_score is not None and not grade.needs_manual_grade:
                        item = item_name(grade.name, notebook.name, len(one.notebooks))
                        found[item][one.student.id] = grade.manual_score
    return found


def described(found: list[Agreement]) -> str:
    """For the terminal."""
    width = max(len(one.item) for one in found)
    lines = [f"{'item':{width}}  answers   same  second − first  alpha  furthest apart"]
    for one in found:
        alpha = f"{one.alpha:.2f}" if one.alpha is not None else "–"
        student, first, second = one.furthest
        lines.append(
            f"{one.item:{width}}  {one.answers:7}  {one.same:4.0%}  {one.difference:+14.2f}  "
            f"{alpha:>5}  {student}: {first:g} and {second:g}"
        )
    return "\n".join(lines)
