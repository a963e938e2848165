"""A whole class: taken in, judged on all cores or machines, entered into nbgrader."""

import os
import random
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import nbformat
from nbgrader.converters import Autograde
from nbgrader.utils import parse_utc
from tqdm import tqdm

from transformer_lib.errors import UserError
from transformer_lib.files import write_text
from transformer_lib.instructor.grading.bubblewrap import require_bubblewrap
from transformer_lib.instructor.grading.course import Course, known_name, nbgrader_steps
from transformer_lib.instructor.grading.executors import processes
from transformer_lib.instructor.grading.hand_ins import Entry, recorded
from transformer_lib.instructor.grading.intake import (
    UnreadableError,
    find_notebook,
    known,
    read_submission,
)
from transformer_lib.instructor.grading.judge import Result
from transformer_lib.instructor.grading.master import Master, load_master
from transformer_lib.instructor.grading.nbgrader_plugin import (
    MendNotebook,
    cohort_of,
    mended,
    released_from,
)
from transformer_lib.instructor.grading.results import (
    StoredResult,
    cells_to_judge,
    judge_cells,
    result_key,
)
from transformer_lib.instructor.grading.sandbox import Isolation
from transformer_lib.instructor.grading.term import enter_times, policy_of
from transformer_lib.progress import progress_is_shown
from transformer_lib.shown import one_line

TIME = "%Y-%m-%d %H:%M:%S.%f"  # as nbgrader writes it, before the zone
MOST_AGAIN = 10  # of those that run out of time; in a class with more, endless loops are usual
OUT_OF_TIME = re.compile(r"took more than \S+ seconds")


@dataclass
class Graded:
    """One student's notebook after grading.

    Args:
        time: when it was handed in; None if that is not known.
        is_recorded: whether that time is of our own record, not of a file that students can write.
    """

    student: str
    notebook: str
    result: Result | None = None
    remarks: list[str] = field(default_factory=list)
    is_new: bool = True
    trouble: str = ""
    time: datetime | None = None
    is_recorded: bool = False

    @property
    def points(self) -> float:
        return sum(test.points for test in self.result.tests.values()) if self.result else 0.0


def grade(
    course: Course,
    assignment: str,
    students: Sequence[str] = (),
    again: bool = False,
    task: str | None = None,
    isolation: Isolation = "bubblewrap",
    executor: Callable[[], Executor] | None = None,
) -> list[Graded]:
    """Grade an assignment: all hand-ins, or those of some students.

    What was graded before, and has not changed, is left as it is; so a grading that was stopped
    goes on where it was.

    Args:
        again: grade even what has not changed.
        task: name of a test cell: of work that was graded before, change only its points.
        executor: makes what carries the work; one process for each core by default.

    Raises:
        UserError: no such assignment or student, or no sandbox.
    """
    if isolation == "bubblewrap":
        require_bubblewrap()
    policy_of(course)  # wrong rules are said before anything is done
    masters = {name: (path, load_master(path)) for name, path in course.masters(assignment).items()}
    tests = {cell.grade_id for _, master in masters.values() for cell in master.tests}
    if task is not None and task not in tests:
        raise UserError(f"no test is called {task}; there are: {', '.join(sorted(tests))}")
    there = course.hand_ins(assignment)
    wanted = list(dict.fromkeys(known_name(s, there) for s in students)) or list(there)
    if missing := sorted(set(wanted) - there.keys()):
        raise UserError(f"nothing was handed in by {', '.join(missing)}")
    course.register(assignment)
    records = recorded(course, assignment)
    entered = _entered(course, assignment, tests)
    rows, work = [], []
    for student in wanted:
        for name, (path, master) in masters.items():
            item = _Item(course, assignment, student, name, path, master)
            rows.append(item.row)
            try:
                item.take_in(there[student], records.get(student))
            except Exception as error:  # one student's trouble is not the class's
                item.give_up("could not be taken in", error)
                continue
            if item.is_entered(entered) and not again and task is None:
                item.row.is_new = False
            else:
                work.append(item)
    make = executor or (lambda: processes(None))
    for item in tqdm(
        _judged(work, again, task, isolation, make),
        total=len(work),
        disable=not progress_is_shown(),
    ):
        item.enter()
    enter_times(course, assignment, {row.student: row.time for row in rows})
    return rows


def _entered(course: Course, assignment: str, tests: set[str]) -> set[tuple[str, str]]:
    """The students and notebooks whose tests have points in the gradebook.

    It may be another one than when they were graded: an older one, or a student was removed.
    """
    with course.gradebook() as gradebook:
        return {
            (submission.student.id, notebook.name)
            for submission in gradebook.assignment_submissions(assignment)
            for notebook in submission.notebooks
            if all(g.auto_score is not None for g in notebook.grades if g.name in tests)
        }


def _time_of(path: Path) -> datetime | None:
    """When it was handed in, as nbgrader's ``collect`` notes it; None if it did not.

    Raises:
        OSError, ValueError, OverflowError: the file says something else.
    """
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as file:
        text = file.read(100).decode().strip()
    return parse_utc(text).replace(tzinfo=UTC)


def _secret_of(path: Path) -> str:
    """By this secret a student finds the feedback in the exchange; without one, nobody does."""
    if not path.is_symlink() and path.is_file() and path.stat().st_size <= 1000:
        text = path.read_bytes().decode("ascii", "replace")
        if text.isascii() and text.isalnum():
            return text
    return secrets.token_hex(64)


class _Item:
    """One notebook of one student."""

    def __init__(
        self, course: Course, assignment: str, student: str, name: str, path: Path, master: Master
    ):
        self.course = course
        self.assignment = assignment
        self.path = path
        self.master = master
        self.row = Graded(student, name)
        self.stored = StoredResult(course.results, assignment, name, student)

    def take_in(self, folder: Path, record: Entry | None) -> None:
        """Make the notebook that is graded, in a folder of ours; the hand-in stays as it is."""
        template = released_from(self.path)
        found, remarks = find_notebook(folder, self.row.notebook, template)
        submission, is_read = known(template), False
        if found is not None:
            try:
                submission, is_read = read_submission(found), True
            except UnreadableError as error:
                remarks.append(f"{found.name} {error}")
        target = self.course.taken_in / self.row.student / self.assignment
        self.row.is_recorded = record is not None
        try:
            self.row.time = record.time if record else _time_of(folder / "timestamp.txt")
        except (OSError, ValueError, OverflowError):
            remarks.append("timestamp.txt says no time; whether it was late is not known")
        self._keep_for_feedback(folder, target)
        notebook, self.row.remarks = mended(
            submission, template, self.row.student, cohort_of(self.course.config), remarks, is_read
        )
        write_text(target / f"{self.row.notebook}.ipynb", nbformat.writes(notebook))
        self.cells = cells_to_judge(notebook)
        self.key = result_key(self.master, notebook)
        self.row.result = self.stored.read(self.key) if self.stored.is_whole(self.key) else None

    def _keep_for_feedback(self, folder: Path, target: Path) -> None:
        """What nbgrader's ``release_feedback`` needs of a hand-in: its time, and its secret."""
        (target / "timestamp.txt").unlink(missing_ok=True)
        if self.row.time:
            write_text(target / "timestamp.txt", f"{self.row.time:{TIME}} UTC")
            secret = _secret_of(folder / "submission_secret.txt")
            write_text(target / "submission_secret.txt", secret)

    def give_up(self, what: str, error: BaseException) -> None:
        """Grade nothing of this one; the student is in the gradebook all the same."""
        said = one_line(f"{type(error).__name__}: {error}")
        self.row.trouble = f"{what}, look at it by hand: {said}"
        with self.course.gradebook() as gradebook:
            gradebook.update_or_create_student(self.row.student)
            gradebook.update_or_create_submission(self.assignment, self.row.student)

    def is_entered(self, entered: set[tuple[str, str]]) -> bool:
        name = f"{self.row.notebook}.ipynb"
        page = self.course.folder / "autograded" / self.row.student / self.assignment / name
        there = (self.row.student, self.row.notebook) in entered and page.is_file()
        return there and self.row.result is not None and self.stored.is_entered(self.key)

    def take(self, future: Future, task: str | None) -> bool:
        """Keep a result, with a ``task`` for that one alone; returns whether there is one."""
        try:
            result = Result.from_json(future.result())
        except Exception as error:
            self.give_up("could not be judged", error)
            return False
        if task is not None:
            result = self.stored.write_test(self.key, result, task)
        else:
            self.stored.write(self.key, result)
        self.row.result = result
        return True

    def enter(self) -> None:
        """Have nbgrader take the result into its gradebook."""
        directory = self.course.directory(
            assignment_id=self.assignment,
            student_id=self.row.student,
            submitted_directory=os.path.relpath(self.course.taken_in, self.course.folder),
        )
        converter = Autograde(coursedir=directory, config=self.course.config, force=True)
        converter.sanitize_preprocessors = [
            step for step in converter.sanitize_preprocessors if step is not MendNotebook
        ]  # it is mended
        try:
            with nbgrader_steps(self.course.log):
                converter.start()
        except Exception as error:
            self.give_up(f"nbgrader could not take it (see {self.course.log})", error)
        else:
            self.stored.mark_entered()


def _judged(
    work: list[_Item],
    again: bool,
    task: str | None,
    isolation: Isolation,
    make: Callable[[], Executor],
) -> Iterator[_Item]:
    """The items, each as soon as it has a result."""
    fresh = again or task is not None
    yield from (item for item in work if item.row.result is not None and not fresh)
    left = [item for item in work if item.row.result is None or fresh]
    seed = random.SystemRandom().randrange(2**31)
    slow = 0
    notebooks = {item.path: dict(nbformat.read(item.path, as_version=4)) for item in left}

    def submit(executor: Executor, item: _Item) -> Future:
        cells = [asdict(cell) for cell in item.cells]
        return executor.submit(judge_cells, notebooks[item.path], cells, seed, isolation)

    with make() as executor:
        try:
            for future in as_completed(futures := {submit(executor, i): i for i in left}):
                if isinstance(future.exception(), BrokenProcessPool):
                    break
                item = futures[future]
                if _is_out_of_time(future) and len(futures) > 1 and slow < MOST_AGAIN:
                    slow += 1
                    continue  # perhaps for what ran beside it: judged again, alone
                left.remove(item)
                if item.take(future, task):
                    yield item
        except BaseException as error:
            executor.shutdown(wait=False, cancel_futures=True)
            if isinstance(error, KeyboardInterrupt):
                tqdm.write("stopping once what is being judged is done; call it again to go on")
            raise
    # One by one. Where a process was killed its executor is broken: so it is known by whom.
    while left:
        with make() as executor:
            while left:
                future = submit(executor, item := left.pop(0))
                if item.take(future, task):
                    yield item
                if isinstance(future.exception(), BrokenProcessPool):
                    break


def _is_out_of_time(future: Future) -> bool:
    """Whether a test, or a call in it, took longer than it may."""
    if future.exception():
        return False
    tests = future.result()["tests"].values()
    return any(test["ended"] and OUT_OF_TIME.search(test["reason"]) for test in tests)
