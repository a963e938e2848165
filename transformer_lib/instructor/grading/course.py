"""A whole class: take in what is there, judge it on all cores or machines, enter it into nbgrader.

The gradebook, hand grading, feedback and export are nbgrader's; so are the folders: ``source``,
``submitted/STUDENT/ASSIGNMENT``, ``autograded``, ``feedback``.
"""

import json
import logging
import multiprocessing
import os
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbgrader.api import Gradebook
from nbgrader.converters import Autograde, GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from tqdm import tqdm
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from transformer_lib.errors import UserError
from transformer_lib.files import write_text
from transformer_lib.instructor.grading.intake import (
    NO_ANSWER,
    REMARKS,
    UnreadableError,
    find_notebook,
    read_submission,
)
from transformer_lib.instructor.grading.judge import Result
from transformer_lib.instructor.grading.master import Master, load_master
from transformer_lib.instructor.grading.nbgrader_plugin import mended, released_from
from transformer_lib.instructor.grading.results import (
    StoredResult,
    cells_to_judge,
    judge_cells,
    result_key,
)
from transformer_lib.instructor.grading.sandbox import Isolation, require_bubblewrap
from transformer_lib.progress import progress_is_shown

AS_HANDED_IN = ".as-handed-in"


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

    def students(self, assignment: str) -> list[str]:
        """All who have a folder for this assignment."""
        folders = (self.folder / "submitted").glob(f"*/{assignment}")
        return sorted(folder.parent.name for folder in folders if folder.is_dir())


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
    there = course.students(assignment)
    if missing := sorted(set(students) - set(there)):
        raise UserError(f"nothing was handed in by {', '.join(missing)}")
    course.register(assignment)
    rows, work = [], []
    for student in students or there:
        paths = [path for path, _ in masters.values()]
        try:
            take_in_folder(course.folder / "submitted" / student / assignment, paths)
        except Exception as error:  # one student's trouble is not the class's
            rows += [Graded(student, name, trouble=_not_taken_in(error)) for name in masters]
            continue
        for name, (path, master) in masters.items():
            try:
                item = _Item(course, assignment, student, name, path, master)
            except Exception as error:
                rows.append(Graded(student, name, trouble=_not_taken_in(error)))
                continue
            rows.append(item.row)
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


def _not_taken_in(error: Exception) -> str:
    return f"could not be taken in, look at it by hand: {type(error).__name__}: {error}"


class _Item:
    """One notebook of one student."""

    def __init__(
        self, course: Course, assignment: str, student: str, name: str, path: Path, master: Master
    ):
        self.course = course
        self.assignment = assignment
        self.path = path
        self.row = Graded(student, name)
        handed_in = course.folder / "submitted" / student / assignment / f"{name}.ipynb"
        notebook, self.row.remarks = mended(nbformat.read(handed_in, as_version=4), path)
        self.cells = cells_to_judge(notebook)
        self.key = result_key(master, self.cells)
        self.stored = StoredResult(course.results, assignment, name, student)
        self.row.result = self.stored.read(self.key)

    def is_entered(self) -> bool:
        return self.stored.is_entered(self.key)

    def take(self, result: Result, task: str | None) -> None:
        """Keep a result; of an earlier one, only the named task changes."""
        earlier = self.stored.read()
        if task is not None and earlier is not None:
            result.tests = earlier.tests | {n: t for n, t in result.tests.items() if n == task}
        self.row.result = result
        self.stored.write(self.key, result)

    def enter(self) -> None:
        """Have nbgrader take the result into its gradebook."""
        directory = self.course.directory(
            assignment_id=self.assignment, student_id=self.row.student
        )
        converter = Autograde(coursedir=directory, config=self.course.config, force=True)
        try:
            with _nbgrader(self.course.log):
                converter.start()
        except Exception as error:
            self.row.trouble = f"nbgrader could not take it, see {self.course.log}: {error}"
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
    notebooks = {item.path: nbformat.read(item.path, as_version=4) for item in left}
    for _ in range(3):  # an executor whose process is killed from outside is broken as a whole
        if not left:
            return
        with make() as executor:
            futures = {
                executor.submit(
                    judge_cells,
                    dict(notebooks[item.path]),
                    [asdict(cell) for cell in item.cells],
                    seed,
                    isolation,
                ): item
                for item in left
            }
            try:
                for future in as_completed(futures):
                    item = futures[future]
                    item.take(Result.from_json(future.result()), task)
                    left.remove(item)
                    yield item
            except BrokenProcessPool:
                continue
            except BaseException:
                executor.shutdown(wait=False, cancel_futures=True)
                raise
    if left:
        raise UserError(f"{len(left)} submissions could not be graded: workers kept dying")


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


def take_in_folder(folder: Path, masters: Iterable[Path]) -> None:
    """See to it that nbgrader finds each notebook, and finds nothing that could harm it.

    What cannot be graded stays beside it under a name of its own; links are replaced by a note.
    """
    if folder.is_symlink():
        _replace_link(folder)
        folder.mkdir()
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            _replace_link(path)
    for master in masters:
        wanted = folder / master.name
        template = released_from(master)
        found, remarks = find_notebook(folder, master.stem, template)
        try:
            notebook = read_submission(found or wanted)
        except UnreadableError as error:
            notebook = nbformat.from_dict(template)
            remarks = remarks or [f"{wanted.name} {error}"]
        if not remarks and not _is_well_formed(wanted):
            remarks = [f"{wanted.name} is not quite a notebook; what can be read of it counts"]
        if remarks:
            if wanted.exists():
                wanted.rename(wanted.with_name(wanted.name + AS_HANDED_IN))
            notebook.metadata[REMARKS] = remarks
            write_text(wanted, nbformat.writes(notebook))


def _is_well_formed(path: Path) -> bool:
    """Whether nbgrader can read the file as it is."""
    try:
        text = path.read_text(encoding="utf-8")
        json.loads(text)["metadata"].get(REMARKS)
        notebook = nbformat.reads(text, as_version=4)
        nbformat.validate(notebook)
        nbformat.writes(notebook).encode("utf-8")
    except Exception:
        return False
    return True


def _replace_link(path: Path) -> None:
    target = path.readlink()
    path.unlink()
    write_text(path.with_name(path.name + ".link.txt"), f"a link to {target}\n")


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
                " ".join([f"{name}:", *test.mistakes, test.reason])
                for name, test in tests.items()
                if test.reason
            ]
        text = "; ".join(note for note in notes if note)
        lines.append(f"{row.student:{width}} {row.points:6.1f} of {whole:g}  {text}".rstrip())
    new = sum(row.is_new for row in rows)
    lines.append(f"{len(rows)} submissions, {new} graded now; answers in words wait for a human")
    return "\n".join(lines)
