"""An assignment's master notebook: what is given, what is asked for, and all tests, hidden or not.

It is an ordinary nbgrader notebook. A *task* is one or more solution cells and the test cells that
follow them. The tests of a task run in the grader's process, where the names of the task's solution
stand for the student's functions in the sandbox, and all other names for the master's own.
"""

import ast
import hashlib
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from transformer_lib.course.sandboxed.isolation import Limits
from transformer_lib.errors import UserError

MAX_MAGICS = 50  # lines of a cell that are looked at one by one
IPYTHON = re.compile(r"(?P<names>[\w., ]+(?==\s*[%!]))?(?:=\s*)?[%!].*|\?{1,2}[\w.]+|[\w.]+\?{1,2}")
HANDED_IN = "transformer_lib_handed_in"  # in the metadata of a student's cell: its outputs
HIDDEN = re.compile(
    r"^### BEGIN HIDDEN TESTS$.*?^### END HIDDEN TESTS$\n?", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Cell:
    """One cell as the grader sees it."""

    kind: str  # "code" or "markdown"
    source: str
    grade_id: str = ""
    is_solution: bool = False
    is_grade: bool = False
    points: float = 0.0
    ready_made: str = ""  # what an answer should not call but do itself, separated by spaces
    is_own: bool = False  # whether a student has added it
    needed: str = ""  # of these an answer that does its task calls one, separated by spaces

    @property
    def is_test(self) -> bool:
        return self.is_grade and not self.is_solution and self.kind == "code"

    @property
    def is_answer(self) -> bool:
        """Whether it is code that tests judge, not a human."""
        return self.is_solution and not self.is_grade and self.kind == "code"

    @property
    def is_manual(self) -> bool:
        return self.is_grade and self.is_solution

    @property
    def hidden(self) -> str:
        """The part of a test cell that students do not get."""
        return "\n".join(
            line
            for block in HIDDEN.findall(self.source)
            for line in block.splitlines()
            if not line.startswith("### ")
        )

    @property
    def visible(self) -> str:
        return HIDDEN.sub("", self.source)


def read_cell(node: NotebookNode) -> Cell:
    """The grader's view of a notebook's cell."""
    mine = node.metadata.get("nbgrader", {})
    return Cell(
        node.cell_type,
        node.source,
        mine.get("grade_id", ""),
        bool(mine.get("solution", False)),
        bool(mine.get("grade", False)),
        float(mine.get("points", 0) or 0),
        str(node.metadata.get("ready_made", "")),
        HANDED_IN in node.metadata and "nbgrader" not in node.metadata,
        str(node.metadata.get("needed", "")),
    )


def as_handed_in(cells: Sequence[Cell], keeps_outputs: bool) -> set[int]:
    """The numbers of cells that are not run, but shown with the outputs that were handed in.

    They are those that a human grades, and a student's own below all tests.
    """
    if not keeps_outputs:
        return set()
    last = max((number for number, cell in enumerate(cells) if cell.is_test), default=len(cells))
    return {n for n, cell in enumerate(cells) if cell.is_manual or (cell.is_own and n > last)}


@dataclass(frozen=True)
class Master:
    """A master notebook.

    What is not in nbgrader's own metadata is in the notebook's, under ``transformer_lib``.

    Args:
        shown: what of ``transformer_lib`` the sandbox shows.
        preload: modules to import before the first submission, besides those that given cells
            import.
        keeps_outputs: whether hand-graded code is not run again and shown with the outputs that
            were handed in, because it takes long or needs a GPU (:func:`as_handed_in`).
        limits: those of :class:`Limits` that are not as usual.
    """

    cells: tuple[Cell, ...]
    shown: tuple[str, ...]
    preload: tuple[str, ...]
    keeps_outputs: bool
    limits: Limits
    digest: str

    @property
    def tests(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.is_test]

    @property
    def given(self) -> tuple[Any, ...]:
        """What a test may use, besides itself."""
        others = [None if cell.is_test else cell for cell in self.cells]
        return others, self.shown, self.preload, self.keeps_outputs, self.limits

    @cached_property
    def tasks(self) -> list[list[int]]:
        """The numbers of the answer cells and test cells of each task."""
        tasks: list[list[int]] = []
        for number, cell in enumerate(self.cells):
            if cell.is_answer and (not tasks or self.cells[tasks[-1][-1]].is_test):
                tasks.append([])
            if (cell.is_answer or cell.is_test) and tasks:
                tasks[-1].append(number)
        return tasks

    def task_of(self, grade_id: str) -> list[int]:
        return next(t for t in self.tasks if any(self.cells[n].grade_id == grade_id for n in t))

    def answers_of(self, task: Sequence[int]) -> list[Cell]:
        return [self.cells[n] for n in task if self.cells[n].is_answer]

    def names_of(self, task: Sequence[int]) -> set[str]:
        """What the solution of a task defines."""
        return {name for cell in self.answers_of(task) for name in bound_names(cell.source)}

    @cached_property
    def imports(self) -> list[str]:
        """Modules to import before the first submission."""
        found: dict[str, None] = dict.fromkeys(self.preload)
        for cell in self.cells:
            if cell.kind == "code" and not cell.is_grade and not cell.is_solution:
                for node in ast.walk(parse(cell.source)):
                    if isinstance(node, ast.Import):
                        found.update(dict.fromkeys(alias.name for alias in node.names))
                    elif isinstance(node, ast.ImportFrom) and node.module:
                        found[node.module] = None
        return list(found)

    def environment(self, test: int) -> dict[str, Any]:
        """The names that a test cell needs, from the master's own cells above it.

        Only cells that bind such a name run, so that no test waits for a training.
        """
        task = next(task for task in self.tasks if test in task)
        known = self.names_of(task)
        needed = loaded_names(self.cells[test].source) - known
        chosen = []
        for cell in reversed(self.cells[:test]):
            if cell.kind == "code" and not cell.is_grade and bound_names(cell.source) & needed:
                chosen.append(cell)
                needed |= loaded_names(cell.source)
        namespace: dict[str, Any] = {"__name__": "master"}
        for cell in reversed(chosen):
            exec(compile(parse(cell.source), f"<{cell.grade_id or 'given'}>", "exec"), namespace)
        for name in known:
            namespace.pop(name, None)
        return namespace


def load_master(path: Path) -> Master:
    """Read a master notebook.

    Raises:
        UserError: it is not there or is not a notebook.
    """
    try:
        text = path.read_text(encoding="utf-8")
        notebook = nbformat.reads(text, as_version=4)
    except FileNotFoundError as error:
        raise UserError(f"there is no master notebook {path}") from error
    except Exception as error:
        raise UserError(f"{path} cannot be read as a notebook: {error}") from error
    return make_master(notebook)


def make_master(notebook: NotebookNode) -> Master:
    mine = notebook.metadata.get("transformer_lib", {})
    cells = tuple(read_cell(node) for node in notebook.cells)
    return Master(
        cells,
        tuple(mine.get("library", ())),
        tuple(mine.get("preload", ())),
        bool(mine.get("keeps_outputs", False)),
        Limits(**mine.get("limits", {})),
        hashlib.sha256(repr((cells, mine)).encode()).hexdigest(),
    )


def bound_names(source: str) -> set[str]:
    """The names that a cell binds at its top level; none if it is no Python."""
    return {name for statement in parse_any(source).body for name in _bound_by(statement)}


def _bound_by(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
        for node in ast.walk(statement):
            if isinstance(node, ast.Global):
                yield from node.names
        return
    for node in ast.walk(statement):
        match node:
            case ast.Name(name, ctx=ast.Store()) | ast.FunctionDef(name) | ast.ClassDef(name):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(str(name)):
                yield name
            case ast.Import(aliases) | ast.ImportFrom(names=aliases):
                yield from (alias.asname or alias.name.partition(".")[0] for alias in aliases)


def touches(source: str, names: set[str]) -> bool:
    """Whether a student's cell may change what one of these names stands for.

    It binds the name, or does something with it in a statement, such as ``x.append(1)``. A cell
    that may bind any name, with a ``*`` or ``exec``, touches all; one that is no Python, none.
    """
    touched: set[str] = set()
    for statement in parse_any(source).body:
        touched.update(_bound_by(statement))
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            continue
        changes = False
        for node in ast.walk(statement):
            match node:
                case ast.alias("*") | ast.Name("exec" | "eval" | "globals" | "get_ipython"):
                    return True
                case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()) | ast.Call():
                    changes = True
        if changes:
            touched.update(names_in(statement))
    return bool(touched & names)


def names_in(node: ast.AST) -> set[str]:
    """All names in a piece of code, used or bound."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def loaded_names(source: str) -> set[str]:
    """The names that a cell uses; none if it is no Python."""
    return {
        node.id
        for node in ast.walk(parse_any(source))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def parse_any(source: str) -> ast.Module:
    """What a student wrote; nothing if it is no Python."""
    try:
        return parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def parse(source: str) -> ast.Module:
    """A cell's code; of what only IPython understands (``%…``, ``!…``, ``x?``) nothing is done."""
    lines = source.splitlines()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python, about how somebody writes
        for _ in range(MAX_MAGICS):
            try:
                return ast.parse("\n".join(lines))
            except SyntaxError as error:
                wrong = slice(max(0, (error.lineno or 0) - 1), error.lineno)
                left = [_without_ipython(line) for line in lines[wrong]]
                if left == lines[wrong]:
                    raise
                lines[wrong] = left
        return ast.parse("\n".join(map(_without_ipython, lines)))


def _without_ipython(line: str) -> str:
    code = line.strip()
    indent = line[: len(line) - len(line.lstrip())]
    if found := IPYTHON.fullmatch(code):
        return f"{indent}{found['names']}= None" if found["names"] else f"{indent}pass"
    return line
