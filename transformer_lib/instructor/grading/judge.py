"""Runs a submission in the sandbox and its tests outside; says what each test cell is worth.

Nothing here knows about files, students or gradebooks: cells go in, a result comes out, and both
are plain data, so that any executor can carry them to another process or machine.
"""

import ast
import json
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformer_lib.course.checks import check
from transformer_lib.course.checks.diagnosis import Trial, draw_trial, find_exercise
from transformer_lib.course.checks.diagnosis import judge as judge_exercise
from transformer_lib.course.checks.verdict import Verdict
from transformer_lib.instructor.grading.master import Cell, Master, loaded_names
from transformer_lib.instructor.grading.remote import remote
from transformer_lib.instructor.grading.sandbox import (
    Connection,
    Ended,
    Isolation,
    Sandbox,
    StudentError,
)
from transformer_lib.instructor.grading.values import UnexpectedError

Output = dict[str, Any]


@dataclass
class TestResult:
    """What came of one test cell.

    Args:
        outputs: the verdicts of the checks, as a notebook shows them.
        reason: in a few words, why there are not all points.
        mistakes: ids of the bank's misconceptions that the answer behaves like.
        ended: whether the answer ended its process, or had to be ended.
    """

    __test__ = False  # not a test for pytest

    points: float
    max_points: float
    outputs: list[Output] = field(default_factory=list)
    reason: str = ""
    mistakes: list[str] = field(default_factory=list)
    ended: bool = False


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

    Args:
        seed: of the numbers that the checks draw; the same for all submissions of a run.
    """

    def __init__(
        self, master: Master, seed: int | None = None, isolation: Isolation = "bubblewrap"
    ):
        self.master = master
        self.sandbox = Sandbox(master.shown, master.imports, master.limits, isolation)
        self._environments: dict[int, dict[str, Any]] = {}
        self._seed: int | None = None
        self._trials: dict[str, Trial] = {}
        self.draw_anew(seed)

    def close(self) -> None:
        self.sandbox.close()

    def draw_anew(self, seed: int | None) -> None:
        """From now on the checks draw their numbers from this seed; from any, if it is None."""
        if self._seed is None or seed not in (None, self._seed):
            self._seed = random.SystemRandom().randrange(2**31) if seed is None else seed
            self._trials.clear()

    def judge(self, cells: Sequence[Cell]) -> Result:
        """Run the cells of a submission, in the master's order, and judge its answers.

        A cell or call that ends the process costs only its own task: the rest goes on in a new one.
        """
        started = time.monotonic()
        run = _Run(self, cells, Result(isolation=self.sandbox.isolation))
        while not run.finished:
            left = self.master.limits.total_seconds - (time.monotonic() - started)
            if left <= 0:
                run.give_up(
                    f"it took more than {self.master.limits.total_seconds:g} seconds in all"
                )
                break
            with self.sandbox.open() as connection:
                run.go_on(connection)
        run.result.seconds = time.monotonic() - started
        return run.result

    def check(self, candidate: Any, name: str | None = None, seed: int | None = None) -> Verdict:
        """The students' ``check``, with the numbers of this run."""
        exercise = find_exercise(name or candidate.__name__)
        if seed is not None:
            return judge_exercise(candidate, exercise, draw_trial(exercise, seed))
        if exercise.name not in self._trials:
            assert self._seed is not None
            self._trials[exercise.name] = draw_trial(exercise, self._seed)
        return judge_exercise(candidate, exercise, self._trials[exercise.name])

    def environment(self, test: int) -> dict[str, Any]:
        """A fresh copy of the names for the master's test cell of this number."""
        if test not in self._environments:
            namespace = self.master.environment(test)
            for name, value in namespace.items():
                if value is check:
                    namespace[name] = self.check
            self._environments[test] = namespace
        return dict(self._environments[test])


class _Run:
    """One submission on its way through, which may need several processes."""

    def __init__(self, judge: Judge, cells: Sequence[Cell], result: Result):
        self.judge = judge
        self.master = judge.master
        self.cells = cells
        self.result = result
        self.finished = False
        self._left_out: dict[int, str] = {}

    def go_on(self, connection: Connection) -> None:
        """From the top until the end, or until the process ends; what is known stays."""
        number = 0
        given: set[str] = set()
        try:
            for number, cell in enumerate(self.cells):
                if cell.kind != "code" or (cell.is_manual and self.master.keeps_outputs):
                    continue
                if cell.is_test:
                    if cell.grade_id not in self.result.tests:
                        self.result.tests[cell.grade_id] = self._test(connection, cell)
                    continue
                if cell.is_answer:
                    self._give_earlier_references(connection, cell, given)
                if number not in self._left_out:
                    outputs = self._outputs(connection.ask("run", cell.source))
                    self.result.outputs.setdefault(number, outputs)
            self.finished = True
        except Ended as error:
            self._note_end(number, str(error))
        except StudentError as error:
            # Something in the notebook keeps the worker itself from running cells.
            self._note_end(number, error.explanation)

    def give_up(self, reason: str) -> None:
        for cell in self.cells:
            if cell.is_test:
                self.result.tests.setdefault(cell.grade_id, _ended(cell, reason))

    def _note_end(self, number: int, reason: str) -> None:
        cell = self.cells[number]
        if cell.is_test:
            self.result.tests[cell.grade_id] = _ended(cell, f"the process ended: {reason}")
        else:
            self._left_out[number] = reason
            self.result.outputs[number] = [error_output("ProcessEnded", reason)]

    def _give_earlier_references(self, connection: Connection, cell: Cell, given: set[str]) -> None:
        """The master's solutions of the tasks before this one, so that one mistake counts once."""
        for task in self.master.tasks:
            answers = self.master.answers_of(task)
            if any(answer.grade_id == cell.grade_id for answer in answers):
                return
            for answer in answers:
                if answer.grade_id not in given:
                    connection.ask("run", answer.source)
                    given.add(answer.grade_id)

    def _outputs(self, reply: Any) -> list[Output]:
        match reply:
            case str(text):
                return read_outputs(text)
        raise Ended("it answered for a cell with something else")

    def _test(self, connection: Connection, cell: Cell) -> TestResult:
        for number in self.master.task_of(cell.grade_id):
            grade_id = self.master.cells[number].grade_id
            for left_out, reason in self._left_out.items():
                if self.cells[left_out].grade_id == grade_id:
                    return _ended(cell, f"the cell {grade_id} ended the process: {reason}")
        result = _Test(self.judge, cell).run(connection)
        if (
            connection.ask("kinds", []) != []
        ):  # does the worker still answer? then it may go on with the next cell
            raise Ended("it answers with something else")
        return result


class _Test:
    """One test cell, run in this process with the student's functions in their place."""

    def __init__(self, judge: Judge, cell: Cell):
        # The master's cell, whatever the notebook says.
        master = judge.master
        number = next(n for n, mine in enumerate(master.cells) if mine.grade_id == cell.grade_id)
        self.cell = master.cells[number]
        self.names = master.names_of(master.task_of(cell.grade_id))
        self.namespace = judge.environment(number)
        self.verdicts: list[Verdict] = []

    def run(self, connection: Connection) -> TestResult:
        """Raises :class:`Ended` when the student's process goes."""
        points = self.cell.points
        try:
            for name in sorted(self.names & loaded_names(self.cell.source)):
                self.namespace[name] = remote(connection, name)
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
        mistakes = [id for verdict in failed for id in verdict.mistakes]
        return TestResult(points, self.cell.points, outputs, reason, mistakes)


TESTS = "<tests>"


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
        return f"a hidden test failed: {error}"
    if hasattr(error, "explanation"):
        kind = "an exception" if isinstance(error, StudentError) else type(error).__name__
        return f"a hidden test failed: your code raised {kind}"
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    own = frame is not None and frame.tb_frame.f_code.co_filename == TESTS
    if isinstance(error, AssertionError) and own and error.args:
        return f"a hidden test failed: {error}"
    return "a hidden test failed"


def _failed(cell: Cell, reason: str) -> TestResult:
    return TestResult(0.0, cell.points, reason=reason)


def _ended(cell: Cell, reason: str) -> TestResult:
    return TestResult(0.0, cell.points, reason=reason, ended=True)


def error_output(name: str, text: str) -> Output:
    """What a cell shows that did not go well."""
    return {"output_type": "error", "ename": name, "evalue": text, "traceback": [text]}


def _verdict_output(verdict: Verdict) -> Output:
    data = {"text/plain": repr(verdict), "text/html": verdict._repr_html_()}
    return {"output_type": "display_data", "data": data, "metadata": {}}


def read_outputs(text: str) -> list[Output]:
    """A cell's outputs.

    Raises:
        Ended: the text is not of the agreed form.
    """
    try:
        return harmless(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Ended("the outputs of a cell were in no known form") from error


def harmless(outputs: Any) -> list[Output]:
    """Outputs without what could do something in the browser of whoever looks at them."""
    kept = [_read_output(output) for output in outputs]
    return [output for output in kept if output]


def _read_output(output: Any) -> Output | None:
    kind = output["output_type"]
    if kind == "stream":
        name = "stderr" if output["name"] == "stderr" else "stdout"
        return {"output_type": kind, "name": name, "text": str(output["text"])}
    if kind == "error":
        lines = [str(line) for line in output["traceback"]]
        return error_output(str(output["ename"]), str(output["evalue"])) | {"traceback": lines}
    data = {mime: SAFE[mime](value) for mime, value in output["data"].items() if mime in SAFE}
    if not data or kind not in ("display_data", "execute_result"):
        return None
    return {"output_type": "display_data", "data": data, "metadata": {}}


def _base64(value: Any) -> str:
    return re.sub(r"[^A-Za-z0-9+/=]", "", str(value))


SAFE: dict[str, Callable[[Any], str]] = {
    "text/plain": str, "text/latex": str, "image/png": _base64, "image/jpeg": _base64
}  # fmt: skip
"""What of a cell's display goes into the graded notebook; HTML, SVG and scripts do not."""
