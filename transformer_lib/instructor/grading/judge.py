"""Runs a submission in the sandbox and its tests outside; says what each test cell is worth.

Nothing here knows about files, students or gradebooks: cells go in, a result comes out, and both
are plain data, so that any executor can carry them to another process or machine.
"""

import ast
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from textwrap import shorten
from typing import Any, NamedTuple

import torch

from transformer_lib.checks import check as check_in_notebooks
from transformer_lib.course.checks import check
from transformer_lib.course.checks.verdict import Verdict
from transformer_lib.course.sandboxed import wire
from transformer_lib.course.sandboxed.explain import innermost
from transformer_lib.instructor.grading.master import (
    Cell,
    Master,
    as_handed_in,
    bound_names,
    loaded_names,
    touches,
)
from transformer_lib.instructor.grading.outputs import (
    MAX_TEXT,
    Output,
    error_output,
    harmless,
)
from transformer_lib.instructor.grading.remote import remote
from transformer_lib.instructor.grading.sandbox import (
    Connection,
    Ended,
    Isolation,
    Sandbox,
    StudentError,
)
from transformer_lib.instructor.grading.values import UnexpectedError

MAX_SHOWN = 8_000_000  # characters of all outputs of a notebook
MAX_PARTS = 50_000  # of the JSON that says what a cell's outputs are
TESTS = "<tests>"
HIDDEN = "a hidden test failed"
AGAIN_SHARE = 0.1  # of the time for all tests, for trying one again with more of the notebook


@dataclass
class TestResult:
    """What came of one test cell.

    Args:
        outputs: the verdicts of the checks, as a notebook shows them.
        reason: in a few words, why there are not all points.
        mistakes: ids of the bank's misconceptions that the answer behaves like.
        ended: whether the answer ended its process, or had to be ended.
        remarks: for the instructor alone, such as what was called instead of being written. They
            are no verdict: what the answer's process says of itself is no proof.
    """

    __test__ = False  # not a test for pytest

    points: float
    max_points: float
    outputs: list[Output] = field(default_factory=list)
    reason: str = ""
    mistakes: list[str] = field(default_factory=list)
    ended: bool = False
    remarks: list[str] = field(default_factory=list)


@dataclass
class Result:
    """What came of one notebook: the outputs of each cell, by its number, and of each test."""

    outputs: dict[int, list[Output]] = field(default_factory=dict)
    tests: dict[str, TestResult] = field(default_factory=dict)
    isolation: str = ""
    seconds: float = 0.0

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Result":
        tests = {name: TestResult(**test) for name, test in data["tests"].items()}
        outputs = {int(number): value for number, value in data["outputs"].items()}
        return cls(outputs, tests, data["isolation"], data["seconds"])


class Judge:
    """Judges submissions of one assignment, one after the other.

    Attributes:
        seed: of the numbers that the checks draw; the same for all submissions of a run.
    """

    def __init__(self, master: Master, isolation: Isolation = "bubblewrap"):
        self.master = master
        self.sandbox = Sandbox(master.shown, master.imports, master.limits, isolation)
        self.seed = random.SystemRandom().randrange(2**31)
        self._environments: dict[int, dict[str, Any]] = {}

    def close(self) -> None:
        self.sandbox.close()

    def judge(self, cells: Sequence[Cell]) -> Result:
        """Run the cells of a submission for what they show, then judge each of its tests.

        Each in a process of its own, which knows nothing of the others: what a test gives to an
        answer is gone when the test is over, and no process that has met a test or a reference
        shows anything. What ends a process costs only its own cell or test.
        """
        started = time.monotonic()
        result = Result(isolation=self.sandbox.isolation)
        left_out = _show(self, cells, result)
        until = time.monotonic() + self.master.limits.total_seconds
        for cell in self.master.cells:
            if cell.is_test:
                result.tests[cell.grade_id] = _judge_test(self, cells, cell, left_out, until)
        result.seconds = time.monotonic() - started
        return result

    def check(self, candidate: Any, name: str | None = None, seed: int | None = None) -> Verdict:
        """The students' ``check``, with the numbers of this run."""
        return check(candidate, name, self.seed if seed is None else seed)

    def environment(self, test: int) -> dict[str, Any]:
        """A fresh copy of the names for the master's test cell of this number."""
        if test not in self._environments:
            namespace = self.master.environment(test)
            for name, value in namespace.items():
                if value is check or value is check_in_notebooks:
                    namespace[name] = self.check
            self._environments[test] = namespace
        return dict(self._environments[test])


def _show(judge: Judge, cells: Sequence[Cell], result: Result) -> dict[int, str]:
    """What the cells show, as for the student: no test runs here, and nothing is put right.

    Returns:
        the numbers of the cells that ended their process, and how.
    """
    left_out: dict[int, str] = {}
    until = time.monotonic() + judge.master.limits.total_seconds
    running = _running(judge.master, cells)
    room = MAX_SHOWN
    finished = False
    while not finished and time.monotonic() < until:
        with judge.sandbox.open(until) as connection:
            number = 0
            try:
                for number in running:
                    if number in left_out:
                        continue
                    text = connection.ask("run", cells[number].source, reply_bytes=MAX_SHOWN)
                    if number not in result.outputs:
                        result.outputs[number] = _read_outputs(text, room)
                        room -= len(text)
                finished = True
            except (Ended, StudentError) as error:  # the second: of the worker itself
                left_out[number] = str(error)
                result.outputs[number] = [error_output("ProcessEnded", str(error))]
    return left_out


def _running(master: Master, cells: Sequence[Cell]) -> list[int]:
    """The numbers of the code cells that run: no tests, and none that is shown as handed in."""
    kept = as_handed_in(cells, master.keeps_outputs)
    return [n for n, c in enumerate(cells) if c.kind == "code" and not c.is_test and n not in kept]


def _read_outputs(text: Any, room: int = MAX_SHOWN) -> list[Output]:
    """A cell's outputs, or a note in their place if there is no room for them.

    Args:
        text: what the worker says that they are; JSON, if it is honest.
        room: characters that may be kept.

    Raises:
        Ended: the text is not of the agreed form.
    """
    if type(text) is not str:
        raise Ended("it answered for a cell with something else")
    if len(text) > room:
        return [error_output("TooMuch", "the notebook shows more than can be kept")]
    try:
        return harmless(wire.parse(text.encode(), MAX_PARTS))
    except Exception as error:
        raise Ended("the outputs of a cell were in no known form") from error


class _Part(NamedTuple):
    """Code that runs before a test, and the number of its cell."""

    number: int
    source: str
    is_reference: bool  # the master's answer in place of the cell's


def _judge_test(
    judge: Judge, cells: Sequence[Cell], cell: Cell, left_out: dict[int, str], until: float
) -> TestResult:
    """The result of one of the master's test cells, in a fresh process.

    What fails is tried again with more of the student's notebook, as it worked there: with all
    cells that the student has added, and then with the student's own answers to earlier tasks.
    """
    if time.monotonic() > until:
        seconds = judge.master.limits.total_seconds
        return _ended(cell, f"it took more than {seconds:g} seconds in all")
    best: TestResult | None = None
    tried: list[list[_Part]] = []
    for with_own, with_references in ((False, True), (True, True), (True, False)):
        preparation = list(_preparation(judge.master, cells, cell, with_own, with_references))
        if preparation in tried:
            continue
        if tried:  # what a student's own cells take is not to be missing for other tests
            until = min(until, time.monotonic() + AGAIN_SHARE * judge.master.limits.total_seconds)
        tried.append(preparation)
        result = _tested(judge, cells, cell, preparation, left_out, until)
        if best is None or result.points > best.points:
            best = result
        if best.points == cell.points or result.ended:
            break
    assert best is not None
    return best


def _tested(
    judge: Judge,
    cells: Sequence[Cell],
    cell: Cell,
    preparation: list[_Part],
    left_out: dict[int, str],
    until: float,
) -> TestResult:
    master = judge.master
    answers = {answer.grade_id for answer in master.answers_of(master.task_of(cell.grade_id))}
    try:
        with judge.sandbox.open(until) as connection:
            shown: list[Any] = []  # by the answer's own cells
            for part in preparation:
                if part.is_reference:
                    connection.ask("give", part.source)
                    connection.is_quiet = True
                elif part.number not in left_out or cells[part.number].grade_id in answers:
                    text = connection.ask("run", part.source, reply_bytes=MAX_SHOWN)
                    if cells[part.number].grade_id in answers and not connection.is_quiet:
                        shown.append(text)
            ready_made, needed = _watched(master, cell)
            if ready_made or needed:
                connection.ask("watch")
            result = _Test(judge, cell, shown).run(connection)
            if ready_made or needed:
                called = connection.ask("called", reply_bytes=MAX_TEXT)
                names = {x for x in called if type(x) is str} if type(called) is list else set()
                result.remarks = [f"calls {name}" for name in sorted(ready_made & names)]
                if needed and result.points and not needed & names:
                    result.remarks.append(f"never calls {' or '.join(sorted(needed))}")
            return result
    except (Ended, StudentError) as error:
        return _ended(cell, f"the process ended: {error}")


def _watched(master: Master, test: Cell) -> tuple[set[str], set[str]]:
    """What an answer should write and not call, and of what it has to call something."""
    answers = master.answers_of(master.task_of(test.grade_id))
    return (
        {name for answer in answers for name in answer.ready_made.split()},
        {name for answer in answers for name in answer.needed.split()},
    )


def _preparation(
    master: Master, cells: Sequence[Cell], test: Cell, with_own: bool, with_references: bool
) -> Iterator[_Part]:
    """What runs before a test: of the cells above it those that its answer needs.

    Args:
        with_own: whether all of the student's own cells run as well, needed or not.
        with_references: whether answers to earlier tasks are followed by the master's, so that one
            mistake counts once.
    """
    task = master.task_of(test.grade_id)
    mine = {answer.grade_id for answer in master.answers_of(task)}
    references = {cell.grade_id: cell.source for cell in master.cells if cell.is_answer}
    last = max(number for number, cell in enumerate(cells) if cell.grade_id == test.grade_id)
    needed: set[str] = set()
    chosen: list[_Part] = []
    for number in reversed([n for n in _running(master, cells) if n < last]):
        cell = cells[number]
        is_earlier = cell.is_answer and cell.grade_id not in mine
        reference = references[cell.grade_id] if is_earlier else ""
        if is_earlier and bound_names(reference) & needed:
            needed |= loaded_names(reference)
            if with_references:
                chosen.append(_Part(number, reference, is_reference=True))
        is_own = with_own and cell.is_own
        if is_own or cell.grade_id in mine or touches(cell.source, needed):
            needed |= loaded_names(cell.source)
            chosen.append(_Part(number, cell.source, is_reference=False))
    return reversed(chosen)


class _Test:
    """A test cell of the master, run in this process with the student's functions in place."""

    def __init__(self, judge: Judge, cell: Cell, shown: Sequence[Any] = ()):
        master = judge.master
        self.cell = cell
        self.shown = shown
        self.seed = judge.seed  # the same numbers for the whole class, in hidden tests, too
        self.names = master.names_of(master.task_of(cell.grade_id))
        self.namespace = judge.environment(master.cells.index(cell))
        self.verdicts: list[Verdict] = []

    def run(self, connection: Connection) -> TestResult:
        """Raises :class:`Ended` when the student's process goes."""
        points = self.cell.points
        torch.manual_seed(self.seed)
        try:
            for name in sorted(self.names & loaded_names(self.cell.source)):
                self.namespace[name] = remote(connection, name)
        except NameError as error:
            return _failed(self.cell, f"{error}{_raised(self.shown)}")
        except Exception as error:
            return _failed(self.cell, str(error))
        try:
            value = self._execute(self.cell.visible)
        except Exception as error:
            return self._result(0.0, _say(error))
        if self.cell.hidden:
            try:
                value = self._execute(self.cell.hidden)
            except Exception as error:
                return self._result(0.0, _say_little(error))
        if type(value) in (int, float):
            points = min(max(float(value), 0.0), points)
        return self._result(points)

    def _execute(self, source: str) -> Any:
        """Run the source and return the value of its last expression; verdicts are kept."""
        tree = ast.parse(source)
        value = None
        for statement in tree.body:
            if isinstance(statement, ast.Expr):
                code = compile(ast.Expression(statement.value), TESTS, "eval")
                value = eval(code, self.namespace)
                if isinstance(value, Verdict):
                    self.verdicts.append(value)
            else:
                exec(compile(ast.Module([statement], []), TESTS, "exec"), self.namespace)
                value = None
        return value

    def _result(self, points: float, error: str = "") -> TestResult:
        outputs = [_verdict_output(verdict) for verdict in self.verdicts]
        failed = [verdict for verdict in self.verdicts if not verdict.passed]
        reason = failed[0].summary if failed else error
        if failed and error.startswith(f"{HIDDEN}:"):
            reason = f"{reason}; {error}"
        mistakes = [id for verdict in failed for id in verdict.mistakes]
        return TestResult(points, self.cell.points, outputs, reason, mistakes)


def _raised(shown: Sequence[Any]) -> str:
    """Why an answer's cells define nothing, if that is because one of them raised something."""
    for output in chain.from_iterable(map(_read_outputs, shown)):
        if output["output_type"] == "error":
            return shorten(f"; its cell raised {output['ename']}: {output['evalue']}", 300)
    return ""


def _say(error: Exception) -> str:
    """Why a visible test failed: it may say all, since the student can run it too."""
    if explanation := getattr(error, "explanation", None):
        return str(explanation)
    if isinstance(error, AssertionError):
        return str(error) or "a test failed"
    return f"{type(error).__name__}: {error}"


def _say_little(error: Exception) -> str:
    """Why a hidden test failed, without its numbers: only what its author wrote for students."""
    if isinstance(error, UnexpectedError):
        return f"{HIDDEN}: {error}"
    if hasattr(error, "explanation"):
        kind = "an exception" if isinstance(error, StudentError) else type(error).__name__
        return f"{HIDDEN}: your code raised {kind}"
    frame = innermost(error)
    own = frame is not None and frame.tb_frame.f_code.co_filename == TESTS
    if isinstance(error, AssertionError) and own and error.args:
        return f"{HIDDEN}: {error}"
    return HIDDEN


def _failed(cell: Cell, reason: str) -> TestResult:
    return TestResult(0.0, cell.points, reason=reason)


def _ended(cell: Cell, reason: str) -> TestResult:
    return TestResult(0.0, cell.points, reason=reason, ended=True)


def _verdict_output(verdict: Verdict) -> Output:
    data = {"text/plain": repr(verdict), "text/html": verdict._repr_html_()}
    return {"output_type": "display_data", "data": data, "metadata": {}}
