"""Which one change would make a student's code right: the line, the place and the kind of change.

It does not say what to write there: finding that is the exercise. In a graded task, which is no
exercise of a chapter, it does not even say what kind of change it is.
"""

import ast
import contextlib
import io
import json
import linecache
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from types import CodeType, FrameType
from typing import Any

from transformer_lib.course.chapters import order
from transformer_lib.course.checks.apart import apart
from transformer_lib.course.checks.edits import LETTERS, Definition, Edit, edits
from transformer_lib.course.checks.exercise import Exercise
from transformer_lib.course.checks.observe import (
    Case,
    NoEndError,
    Outcomes,
    alike,
    ends_after,
    observe,
    time_left,
)
from transformer_lib.course.checks.same import same

# The search found 112 repairs for the wrong answers of rounds 7 to 9 in tests/answers.jsonl, the
# last of them with its 1,896th edit and after 5 seconds of one core of an EPYC.
MOST = 2500  # edits that are tried
SECONDS = 10  # after which the search gives up
EACH = 2  # seconds for one edit, which mostly takes milliseconds
FILE = "<a changed answer>"
A_CHANGE = "with one change here"


@dataclass(frozen=True)
class Repair:
    """An edit that puts something right.

    Args:
        said: where, and what kind of change it is.
        left: the id of the known mistake that is left then.
        is_whole: whether everything is right then.
    """

    said: str
    left: str = ""
    is_whole: bool = True


class _TooLongError(Exception):
    """A changed loop that may never end."""


class Workshop:
    """A student's function or class, in which one place after another is changed.

    Args:
        candidate: the answer; without its source nothing can be changed.
        failed: the cases in which the answer is wrong; the first of them is tried first.
    """

    def __init__(
        self,
        candidate: Callable[..., Any],
        exercise: Exercise,
        cases: dict[str, Case],
        failed: list[str],
    ):
        self.exercise, self.cases, self.failed, self.label = exercise, cases, failed, failed[0]
        self.is_graded = exercise.name not in order()  # of which only the place is said
        self.tree, self.source = definition_of(candidate)
        self.environment: dict[str, Any] = getattr(_function(candidate), "__globals__", {})
        self.most_lines = 0
        self.left = time_left(SECONDS)
        if self.tree is not None:
            lines = _Lines(10**6)
            with contextlib.suppress(Exception), lines:
                self._call(self._made(), cases[self.label])
            self.most_lines = 3 * lines.seen + 1000

    def repaired(self, right: Outcomes, wrong: Mapping[str, Outcomes]) -> Repair | None:
        """What to look at, if an edit makes the answer right, or leaves one known mistake.

        A changed program may do anything, so all of them are tried in a process of their own.

        Args:
            right, wrong: what the right answer and each known wrong one give. Where a result says
                little, such as a truth value, ``wrong`` is to be empty: then only an edit counts
                with which everything passes.
        """
        if self.tree is None:
            return None
        found = apart(lambda: json.dumps(self._search(right, wrong), default=asdict), 4 * SECONDS)
        return Repair(**json.loads(found)) if found not in ("", "null") else None

    def _search(self, right: Outcomes, wrong: Mapping[str, Outcomes]) -> Repair | None:
        self.left = time_left(SECONDS)  # of the thread that searches
        half, nearly = [], None
        for edit, reached, but in self._edits_that_reach({"": right, **wrong}):
            place, change = self._place(edit), A_CHANGE if self.is_graded else edit.said
            if but:
                said = f"{place}: everything but “{but}” passes {change}"
                nearly = nearly or Repair(said, is_whole=False)
            elif not reached:
                return Repair(f"{place}: everything passes {change}")
            elif edit.takes_away:  # another number here might bring in the known mistake
                said = f"{place}: one thing is put right {change}"
                half.append((edit, Repair(said, left=reached, is_whole=False)))
        for edit, repair in half[:3]:
            if edit.said == LETTERS:  # which brings nothing in
                return repair
            with edit.made():
                for other, _, but in self._edits_that_reach({"": right}):
                    if not but and not _overlap(other.where, edit.where):
                        return repair
        return nearly if wrong else None

    def _edits_that_reach(self, targets: Mapping[str, Outcomes]) -> Iterator[tuple[Edit, str, str]]:
        """Each edit with which every case gives what one of the targets gives, and which one.

        Of the right answer, the third is the one case that may still be wrong.
        """
        assert self.tree is not None
        for edit in islice(edits(self.tree), MOST):
            if self.left() <= 0:
                return
            reached = None
            with edit.made(), contextlib.suppress(NoEndError), ends_after(EACH):
                reached = self._reached(targets)
            if reached is not None:
                yield edit, *reached

    def _reached(self, targets: Mapping[str, Outcomes]) -> tuple[str, str] | None:
        tolerance = self.exercise.tolerance
        try:
            with _quiet(), _Lines(self.most_lines):
                function = self._made()
                value = self._call(function, self.cases[self.label])
            targets = {
                name: outcomes
                for name, outcomes in targets.items()
                if outcomes[self.label].error is None
                and same(outcomes[self.label].value, value, tolerance)
            }
        except Exception:  # whatever a changed program may do or give
            return None
        if not targets:
            return None
        used = self.exercise.use(function)
        with _quiet():
            observed = {}
            for label, case in self.cases.items():
                with _Lines(10 * self.most_lines):
                    observed[label] = observe(used, case)
                if isinstance(observed[label].error, NoEndError):
                    return None
        for name, outcomes in targets.items():
            wrong = [x for x in self.cases if not alike(observed[x], outcomes[x], tolerance)]
            if not wrong:
                return name, ""
            if not name and len(wrong) == 1 and wrong[0] in self.failed and len(self.failed) > 2:
                return name, wrong[0]
        return None

    def _place(self, edit: Edit) -> str:
        line = getattr(edit.where, "lineno", 0)
        said = segment(edit.where, self.source)
        if isinstance(edit.where, ast.Constant | ast.Name | ast.UnaryOp):
            whole = self._around(edit.where)
            if whole != said:
                said = f"{said}` in `{whole}"
        return f"line {line}, `{said}`"

    def _around(self, small: ast.AST, width: int = 60) -> str:
        """The largest expression or line around a part that is not too long."""
        found = segment(small, self.source)
        assert self.tree is not None
        around = [x for x in ast.walk(self.tree) if any(y is small for y in ast.walk(x))]
        for node in around:
            text = ast.get_source_segment(self.source, node) or ""
            if "\n" not in text and len(found) < len(text) <= width:
                found = text
        return found

    def _made(self) -> Callable[..., Any]:
        assert self.tree is not None
        module = ast.fix_missing_locations(ast.Module([self.tree], type_ignores=[]))
        namespace = dict(self.environment)
        with warnings.catch_warnings(action="ignore"):
            code = compile(module, FILE, "exec")
        exec(code, namespace)
        return namespace[self.tree.name]

    def _call(self, function: Callable[..., Any], case: Case) -> Any:
        return self.exercise.use(function)(*case.copied_args())


class _Lines:
    """Counts the lines that a changed program goes through, and ends it where they are too many."""

    def __init__(self, most: int):
        self.seen, self.most = 0, most

    def __enter__(self) -> None:
        self.before = sys.gettrace()
        sys.settrace(self._enter)

    def __exit__(self, *exception: object) -> None:
        sys.settrace(self.before)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        return self._line if frame.f_code.co_filename == FILE else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        self.seen += 1
        if self.seen > self.most:
            raise _TooLongError
        return self._line


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(action="ignore"),
    ):
        yield


def _function(candidate: Any) -> Any:
    """A function that the candidate's code belongs to: of a class, one of its own methods."""
    if isinstance(candidate, type):
        own = [x for x in vars(candidate).values() if hasattr(x, "__code__")]
        return own[0] if own else None
    return candidate


def definition_of(candidate: Callable[..., Any]) -> tuple[Definition | None, str]:
    """The code of a function or class, with the text of the file or cell that it is from."""
    code = getattr(_function(candidate), "__code__", None)
    if not isinstance(code, CodeType) or code.co_freevars not in ((), ("__class__",)):
        return None, ""
    source = "".join(linecache.getlines(code.co_filename))
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError):
        return None, ""
    found = None
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == candidate.__name__:
            first = min([node.lineno, *(x.lineno for x in node.decorator_list)])
            if first <= code.co_firstlineno <= (node.end_lineno or first):
                found = node
    return found, source


def segment(node: ast.AST, source: str, width: int = 60) -> str:
    """The text of a part of the code, in one line."""
    text = " ".join((ast.get_source_segment(source, node) or ast.unparse(node)).split())
    return text if len(text) <= width else f"{text[:width]}…"


def _overlap(a: ast.AST, b: ast.AST) -> bool:
    return any(x is b for x in ast.walk(a)) or any(x is a for x in ast.walk(b))
