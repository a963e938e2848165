"""A whole class: take in what is there, judge it on all cores or machines, enter it into nbgrader.

The gradebook, hand grading, feedback and export are nbgrader's; so are the folders: ``source``,
``submitted/STUDENT/ASSIGNMENT``, ``autograded``, ``feedback``.
"""

import hashlib
import logging
import multiprocessing
import os
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbgrader.api import Gradebook
from nbgrader.converters import Autograde, GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import parse_utc
from tqdm import tqdm
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from transformer_lib.errors import UserError
from transformer_lib.files import write_text
from transformer_lib.instructor.grading.intake import (
    NO_ANSWER,
    UnreadableError,
    find_notebook,
    known,
    read_submission,
)
from transformer_lib.instructor.grading.judge import Result
from transformer_lib.instructor.grading.master import Master, load_master
from transformer_lib.instructor.grading.nbgrader_plugin import (
    MendNotebook,
    mended,
    released_from,
)
from transformer_lib.instructor.grading.results import (
    StoredResult,
    cells_to_judge,
    judge_cells,
    result_key,
)
from transformer_lib.instructor.grading.sandbox import Isolation, require_bubblewrap
from transformer_lib.instructor.grading.shown import line
from transformer_lib.progress import progress_is_shown

UNSAFE = "*?[]%/\\"  # of patterns, paths, and of the escape itself
MAX_NAME = 120  # bytes; a file's name has an end of its own


@dataclass
class Graded:
    """One student's notebook after grading."""

    student: str
    notebook: str
    result: Result | None = None
    remarks: list[str] = field(default_factory=list)
    is_new: bool = True
    trouble: str = ""

    @property
    def points(self) -> float:
        return sum(test.points for test in self.result.tests.values()) if self.result else 0.0


class Course:
    """A folder with an ``nbgrader_config.py``.

    Raises:
        UserError: it is not a course.
    """

    def __init__(self, folder: Path):
        self.folder = folder.resolve()
        if not (self.folder / "nbgrader_config.py").exists():
            raise UserError(
                f"{folder} is not a course: it has no nbgrader_config.py (see --course)"
            )
        loader = PyFileConfigLoader("nbgrader_config.py", path=str(self.folder))
        self.config: Config = loader.load_config()
        self.results = Path(self.config.JudgeOutside.results)
        self.log = self.results / "nbgrader.log"
        self.taken_in = self.results / "taken-in"

    def directory(self, **settings: Any) -> CourseDirectory:
        return CourseDirectory(config=self.config, **settings)

    @contextmanager
    def gradebook(self) -> Iterator[Gradebook]:
        directory = self.directory()
        with Gradebook(directory.db_url, directory.course_id) as gradebook:
            yield gradebook

    def masters(self, assignment: str) -> dict[str, Path]:
        """The master notebooks of an assignment, by name.

        Raises:
            UserError: there is no such assignment.
        """
        source = self.folder / "source"
        found = {path.stem: path for path in sorted((source / assignment).glob("*.ipynb"))}
        if not found:
            known = ", ".join(sorted(p.name for p in source.iterdir())) if source.is_dir() else ""
            raise UserError(f"there is no assignment {assignment} in {source}; there are: {known}")
        return found

    def register(self, assignment: str) -> None:
        """Make the assignment known to the gradebook, as ``generate_assignment`` does."""
        directory = self.directory(
            assignment_id=assignment, release_directory=str(self.results / ".registered")
        )
        with _nbgrader(self.log):
            GenerateAssignment(coursedir=directory, config=self.config, force=True).start()

    def hand_ins(self, assignment: str) -> dict[str, Path]:
        """The folder of everybody who has one for this assignment, by the student's name."""
        above = self.folder / "submitted"
        folders = [path / assignment for path in above.iterdir()] if above.is_dir() else []
        named = {safe_name(folder.parent.name): folder for folder in folders if folder.is_dir()}
        return dict(sorted(named.items()))


def safe_name(name: str) -> str:
    """A student's name in a form that paths, patterns and tables can bear; most stay as they are.

    A folder's name may be anything. Patterns, ends of lines, control characters, marks of direction
    and halves of characters are written as ``%2A``, and so is ``%``: no two become the same.
    """

    def encoded(character: str) -> str:
        raw = character.encode("utf-8", "surrogateescape")
        return "".join(f"%{byte:02X}" for byte in raw)

    safe = "".join(encoded(c) if c in UNSAFE or not c.isprintable() else c for c in name)
    if safe.startswith("."):
        safe = encoded(".") + safe[1:]
    if len(safe.encode()) > MAX_NAME:
        digest = hashlib.sha256(safe.encode()).hexdigest()[:8]
        safe = safe.encode()[: MAX_NAME - 9].decode(errors="ignore") + "-" + digest
    return safe


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
        task: name of a test cell: of what was graded before, change only its points.
        executor: makes what carries the work; one process for each core by default.

    Raises:
        UserError: no such assignment or student, or no sandbox.
    """
    if isolation == "bubblewrap":
        require_bubblewrap()
    masters = {name: (path, load_master(path)) for name, path in course.masters(assignment).items()}
    tests = {c.grade_id for _, master in masters.values() for c in master.cells if c.is_test}
    if task is not None and task not in tests:
        raise UserError(f"no test is called {task}; there are: {', '.join(sorted(tests))}")
    there = course.hand_ins(assignment)
    wanted = list(dict.fromkeys(map(safe_name, students))) or list(there)
    if missing := sorted(set(wanted) - there.keys()):
        raise UserError(f"nothing was handed in by {', '.join(missing)}")
    course.register(assignment)
    rows, work = [], []
    for student in wanted:
        for name, (path, master) in masters.items():
            item = _Item(course, assignment, student, name, path, master)
            rows.append(item.row)
            try:
                item.take_in(there[student])
            except Exception as error:  # one student's trouble is not the class's
                item.give_up("could not be taken in", error)
                continue
            if item.is_entered() and not again and task is None:
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
    return rows


def _time_of(path: Path) -> str:
    """When it was handed in, as nbgrader's ``collect`` notes it; nothing if it did not.

    Raises:
        OSError, ValueError, OverflowError: the file says something else.
    """
    if path.is_symlink() or not path.is_file():
        return ""
    with path.open("rb") as file:
        text = file.read(100).decode().strip()
    return f"{parse_utc(text).isoformat(' ')} UTC\n"


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

    def take_in(self, folder: Path) -> None:
        """Make the notebook that is graded, in a folder of ours; the hand-in stays as it is."""
        template = released_from(self.path)
        found, remarks = find_notebook(folder, self.row.notebook, template)
        submission = known(template)
        if found is not None:
            try:
                submission = read_submission(found)
            except UnreadableError as error:
                remarks.append(f"{found.name} {error}")
        target = self.course.taken_in / self.row.student / self.assignment
        try:
            if time := _time_of(folder / "timestamp.txt"):
                write_text(target / "timestamp.txt", time)
        except (OSError, ValueError, OverflowError):
            remarks.append("timestamp.txt says no time; whether it was late is not known")
        notebook, self.row.remarks = mended(submission, template, remarks)
        write_text(target / f"{self.row.notebook}.ipynb", nbformat.writes(notebook))
        self.cells = cells_to_judge(notebook)
        self.key = result_key(self.master, self.cells)
        self.row.result = self.stored.read(self.key)

    def give_up(self, what: str, error: BaseException) -> None:
        """Nothing can be said of this one; the student is in the gradebook all the same."""
        said = line(f"{type(error).__name__}: {error}")
        self.row.trouble = f"{what}, look at it by hand: {said}"
        with self.course.gradebook() as gradebook:
            gradebook.update_or_create_student(self.row.student)
            gradebook.update_or_create_submission(self.assignment, self.row.student)

    def is_entered(self) -> bool:
        return self.stored.is_entered(self.key)

    def take(self, future: Future, task: str | None) -> bool:
        """Keep a result; of an earlier one, only the named task changes. Whether there is one."""
        try:
            result = Result.from_json(future.result())
        except Exception as error:
            self.give_up("could not be judged", error)
            return False
        earlier = self.stored.read()
        if task is not None and earlier is not None:
            result.tests = earlier.tests | {n: t for n, t in result.tests.items() if n == task}
        self.row.result = result
        self.stored.write(self.key, result)
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
            with _nbgrader(self.course.log):
                converter.start()
        except Exception as error:
            self.give_up(f"nbgrader could not take it (see {self.course.log})", error)
        else:
            assert self.row.result is not None
            self.stored.write(self.key, self.row.result, entered=True)


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
    notebooks = {item.path: dict(nbformat.read(item.path, as_version=4)) for item in left}

    def submit(executor: Executor, item: _Item) -> Future:
        cells = [asdict(cell) for cell in item.cells]
        return executor.submit(judge_cells, notebooks[item.path], cells, seed, isolation)

    with make() as executor:
        try:
            for future in as_completed(futures := {submit(executor, i): i for i in left}):
                if isinstance(future.exception(), BrokenProcessPool):
                    break
                left.remove(item := futures[future])
                if item.take(future, task):
                    yield item
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise
    # Where a process was killed its executor is broken: one by one, so that it is known by whom.
    while left:
        with make() as executor:
            while left:
                future = submit(executor, item := left.pop(0))
                if item.take(future, task):
                    yield item
                if isinstance(future.exception(), BrokenProcessPool):
                    break


def processes(jobs: int | None) -> Executor:
    """As many processes of this machine; one for each core by default."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, mp_context=context, initializer=_end_with_parent)


def _end_with_parent() -> None:
    """A worker whose parent is killed would wait for ever for work."""

    def wait() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def machines(scheduler: str) -> Executor:
    """The workers of a running ``dask.distributed`` cluster.

    Raises:
        UserError: dask is not installed, or nobody answers at this address.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise UserError("--scheduler needs dask: pip install 'transformer-lib[cluster]'") from error
    try:
        client = Client(scheduler, timeout=10)
    except (OSError, ValueError) as error:
        raise UserError(f"no dask scheduler answers at {scheduler}: {error}") from error
    return client.get_executor()


@contextmanager
def _nbgrader(log: Path) -> Iterator[None]:
    """Run nbgrader's own steps: what they report goes into a file, and they find their programs."""
    log.parent.mkdir(parents=True, exist_ok=True)
    logger = logging.getLogger("traitlets")
    handler = logging.FileHandler(log, encoding="utf-8")
    propagated, logger.propagate = logger.propagate, False
    others, logger.handlers = logger.handlers, [handler]
    path = os.environ.get("PATH", "")
    # It calls alembic, which lies beside Python even where no environment is activated.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{path}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its database library, about the order of its steps
            yield
    finally:
        os.environ["PATH"] = path
        logger.handlers, logger.propagate = others, propagated
        handler.close()


def table(rows: Sequence[Graded]) -> str:
    """For the terminal: what each student has, and what there is to know."""
    width = max((len(row.student) for row in rows), default=0)
    lines = []
    for row in rows:
        tests = row.result.tests if row.result else {}
        whole = sum(test.max_points for test in tests.values())
        notes = [*row.remarks, row.trouble, "" if row.is_new else "as before"]
        if NO_ANSWER not in row.remarks:
            notes += [
                " ".join([f"{name}:", *test.mistakes, test.reason, *test.remarks])
                for name, test in tests.items()
                if test.reason or test.remarks
            ]
        text = "; ".join(line(note) for note in notes if note)
        lines.append(f"{row.student:{width}} {row.points:6.1f} of {whole:g}  {text}".rstrip())
    new = sum(row.is_new for row in rows)
    lines.append(f"{len(rows)} submissions, {new} graded now; answers in words wait for a human")
    return "\n".join(lines)
