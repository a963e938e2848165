"""A term's dates: deadlines, extensions, what lateness costs, and where everybody stands.

Dates, extensions and penalties are kept in nbgrader's gradebook, in UTC, where its own commands and
the form grader find them.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from nbgrader.api import Assignment, Gradebook, MissingEntry, Student, SubmittedAssignment
from traitlets import TraitError

from transformer_lib.errors import UserError
from transformer_lib.instructor.grading.class_list import Person, person_of
from transformer_lib.instructor.grading.course import Course, known_name, nbgrader_steps
from transformer_lib.instructor.grading.hand_ins import recorded
from transformer_lib.instructor.grading.late import LatePolicy, require_known

YEARS = range(1990, 2200)  # of dates that can be meant, and added to each other


def policy_of(course: Course) -> LatePolicy:
    """The rules in the course's ``nbgrader_config.py``.

    Raises:
        UserError: they are none.
    """
    require_known(course.config, LatePolicy)
    try:
        policy = LatePolicy(config=course.config)
    except TraitError as error:
        raise UserError(f"nbgrader_config.py: {error}") from error
    numbers = (policy.points_a_day, policy.grace_minutes, policy.cut_off_days or 0.0)
    if not all(map(math.isfinite, numbers)):
        raise UserError("nbgrader_config.py: LatePolicy needs finite numbers")
    return policy


def moment(text: str, zone: ZoneInfo) -> datetime:
    """A date and a time as people write them, in UTC; without an offset it is a time of the zone.

    An hour that comes twice, when clocks go back, is the later one.

    Raises:
        UserError: it is no time, or one that clocks in that zone leave out.
    """
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UserError(f"{text!r} is no time; write 2026-12-01 23:59") from error
    if len(text.strip()) <= len("2026-12-01"):
        raise UserError(f"{text!r} is a day; say the time as well: {text.strip()} 23:59")
    if time.year not in YEARS:
        raise UserError(f"{text!r} is in no year of this course")
    if time.tzinfo is not None:
        return time.astimezone(UTC)
    there = time.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if there.astimezone(zone).replace(tzinfo=None) != time:
        raise UserError(f"there is no {text} in {zone.key}: clocks go forward there")
    return there


def shown(time: datetime, zone: ZoneInfo) -> str:
    """A time of the gradebook, as people read it: ``2026-12-01 23:59 CET``."""
    return f"{time.replace(tzinfo=UTC).astimezone(zone):%Y-%m-%d %H:%M %Z}"


def lateness(seconds: float) -> str:
    """How late, rounded down: ``12 min late``, ``5 h 2 min late``, ``1 day 9 h late``."""
    minutes = int(seconds // 60)
    days, hours = minutes // 1440, minutes // 60 % 24
    if days:
        return f"{days} day{'s' if days > 1 else ''} {hours} h late"
    if hours:
        return f"{hours} h {minutes % 60} min late"
    return f"{minutes} min late" if minutes else "less than a minute late"


class ItemPoints(NamedTuple):
    """What was given for one graded cell; None while it waits for a human."""

    points: float | None
    max_points: float


@dataclass(frozen=True)
class Standing(Person):
    """What one student has in one assignment.

    Args:
        due: when it was due for this student, in UTC, with the extension; None without a date.
        is_graded: whether a grading has entered anything yet.
        waiting: how many answers wait for a human; the points are provisional until then.
        items: by graded cell, called ``notebook: cell`` where there are several notebooks.
    """

    handed_in: bool = False
    is_graded: bool = False
    time: datetime | None = None
    due: datetime | None = None
    is_extended: bool = False
    seconds_late: float = 0.0
    score: float = 0.0
    penalty: float = 0.0
    waiting: int = 0
    items: dict[str, ItemPoints] = field(default_factory=dict)

    @property
    def points(self) -> float:
        """What is left after the penalty."""
        return max(0.0, self.score - self.penalty)

    @property
    def name(self) -> str:
        """As lists are sorted: last name first; the student's id where no name is known."""
        return ", ".join(filter(None, (self.last_name, self.first_name))) or self.student


@dataclass(frozen=True)
class Standings:
    """What everybody in the gradebook has in an assignment, by student, sorted by name."""

    assignment: str
    due: datetime | None
    max_points: float
    students: dict[str, Standing]

    @property
    def handed_in(self) -> list[Standing]:
        return [one for one in self.students.values() if one.handed_in]

    @property
    def absent(self) -> list[Standing]:
        """Who has handed in nothing."""
        return [one for one in self.students.values() if not one.handed_in]


def standings(course: Course, assignment: str) -> Standings:
    """Read from the gradebook; our record of times is entered and penalties are worked out first.

    Raises:
        UserError: the gradebook does not know the assignment.
    """
    there = course.hand_ins(assignment)
    times = {student: one.time for student, one in recorded(course, assignment).items()}
    with course.gradebook() as gradebook:
        _set_times(gradebook, assignment, times)  # nbgrader's autograding takes the hand-in's own
        apply_policy(course, gradebook, assignment)
        known = known_assignment(gradebook, assignment)
        submissions = {s.student.id: s for s in known.submissions}
        found = [
            _standing(student, submissions.get(student.id), known.duedate, student.id in there)
            for student in gradebook.students
        ]
        found.sort(key=lambda one: (one.name, one.student))
        return Standings(
            assignment, known.duedate, known.max_score, {one.student: one for one in found}
        )


def _standing(
    student: Student, submission: SubmittedAssignment | None, due: datetime | None, is_there: bool
) -> Standing:
    person = asdict(person_of(student))
    if submission is None:
        return Standing(**person, handed_in=is_there, due=due)
    grades = [grade for notebook in submission.notebooks for grade in notebook.grades]
    return Standing(
        **person,
        handed_in=is_there or submission.timestamp is not None,
        is_graded=any(
            grade.auto_score is not None or grade.manual_score is not None for grade in grades
        ),
        time=submission.timestamp,
        due=due and submission.duedate,
        is_extended=submission.extension is not None,
        seconds_late=submission.total_seconds_late if due else 0.0,
        score=submission.score,
        penalty=submission.late_submission_penalty or 0.0,
        waiting=sum(grade.needs_manual_grade for grade in grades),
        items={
            item_name(grade.name, grade.notebook.name, len(submission.notebooks)): ItemPoints(
                None if grade.needs_manual_grade else grade.score, grade.max_score
            )
            for grade in grades
        },
    )


def item_name(cell: str, notebook: str, notebooks: int) -> str:
    """How a graded cell is called among all of an assignment's."""
    return f"{notebook}: {cell}" if notebooks > 1 else cell


def known_assignment(gradebook: Gradebook, assignment: str) -> Assignment:
    """The assignment in the gradebook.

    Raises:
        UserError: it is not there.
    """
    try:
        return gradebook.find_assignment(assignment)
    except MissingEntry as error:
        known = ", ".join(sorted(one.name for one in gradebook.assignments)) or "none"
        raise UserError(
            f"the gradebook does not know {assignment} yet, it knows {known}; if the name is "
            f"right, begin with transformer-lib grade {assignment}"
        ) from error


def apply_policy(course: Course, gradebook: Gradebook, assignment: str) -> None:
    """Work out every penalty anew: points, dates and rules may have changed since it was set."""
    policy = policy_of(course)
    known = known_assignment(gradebook, assignment)
    for submission in known.submissions:
        late = submission.total_seconds_late if known.duedate else 0.0
        left = policy.late_submission_penalty(submission.student.id, submission.score, late)
        for notebook in submission.notebooks:  # nbgrader keeps it for each; it is taken once
            notebook.late_submission_penalty = left and min(left, notebook.score)
            left = left and left - notebook.late_submission_penalty
    gradebook.db.commit()


def enter_times(course: Course, assignment: str, times: Mapping[str, datetime | None]) -> None:
    """Put into the gradebook when students handed in; None: it is not known."""
    with course.gradebook() as gradebook:
        _set_times(gradebook, assignment, times)
        apply_policy(course, gradebook, assignment)


def _set_times(gradebook: Gradebook, assignment: str, times: Mapping[str, datetime | None]) -> None:
    for student, time in times.items():
        try:
            submission = gradebook.find_submission(assignment, student)
        except MissingEntry:
            continue
        submission.timestamp = time and time.astimezone(UTC).replace(tzinfo=None)
    gradebook.db.commit()


def set_deadline(course: Course, assignment: str, when: datetime) -> None:
    """For everybody. Extensions stay as long as they were, so they move with it."""
    course.register(assignment)
    with course.gradebook() as gradebook:
        time = when.astimezone(UTC).replace(tzinfo=None)
        gradebook.update_or_create_assignment(assignment, duedate=time)
        apply_policy(course, gradebook, assignment)


def set_extension(course: Course, assignment: str, student: str, when: datetime) -> None:
    """A deadline for one student, who need not have handed in yet.

    Raises:
        UserError: the assignment has no deadline, or a later one, or no such student is known.
    """
    with course.gradebook() as gradebook:
        known = known_assignment(gradebook, assignment)
        if known.duedate is None:
            raise UserError(f"{assignment} has no deadline yet that could be extended")
        listed = {one.id for one in gradebook.students}
        student = known_name(student, listed)
        if student not in listed:
            raise UserError(f"no student is called {student}: transformer-lib class-list …")
        extension = when.astimezone(UTC).replace(tzinfo=None) - known.duedate
        if extension < timedelta():
            raise UserError(f"that is before {assignment} is due for all")
        with nbgrader_steps(course.log):
            gradebook.update_or_create_submission(
                assignment, student, extension=extension if extension != timedelta() else None
            )
        apply_policy(course, gradebook, assignment)


def dates(course: Course, assignment: str, policy: LatePolicy) -> str:
    """For the terminal: the deadline, the rules, and whose deadline is another."""
    now = standings(course, assignment)
    if now.due is None:
        return f"{assignment} has no deadline"
    lines = [f"{assignment} is due {shown(now.due, policy.zone_info)}; {policy.rules()}"]
    lines += [
        f"  {one.student}: {shown(one.due, policy.zone_info)}"
        for one in now.students.values()
        if one.is_extended and one.due
    ]
    return "\n".join(lines)
