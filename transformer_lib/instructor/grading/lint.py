"""Reads the hidden tests of a master: whatever comes from a student goes through ``expect``.

A value comes from a student if it is made with a name of the task's answer. It may be taken apart,
given weights and called again, but what decides about points must be :func:`.values.expect`,
:func:`.values.agreeing`, or the verdict of a check.
"""

import ast
from collections.abc import Iterator, Sequence

from transformer_lib.instructor.grading.master import Cell, Master, names_in, parse

JUDGES = ("expect", "agreeing", "check", "run_test")
HARMLESS = ("zip", "enumerate", "list", "tuple", "dict", "torch.autograd.grad", "keeps_graph")
DECIDING = (
    ast.Compare, ast.BoolOp, ast.If, ast.While, ast.IfExp, ast.Match, ast.comprehension
)  # fmt: skip


def lint(master: Master) -> list[str]:
    """What in the hidden tests decides about a student's value otherwise; a line for each."""
    return [
        f"{cell.grade_id}, hidden test, `{ast.unparse(node).partition(chr(10))[0]}`: {why}"
        for cell in master.cells
        if cell.is_test and cell.hidden
        for node, why in _problems(cell, master.names_of(master.task_of(cell.grade_id)))
    ]


def _problems(cell: Cell, answers: set[str]) -> Iterator[tuple[ast.AST, str]]:
    hidden = parse(cell.hidden)
    theirs = _Theirs(answers)
    shown = [node for node in parse(cell.visible).body if not isinstance(node, ast.FunctionDef)]
    theirs.follow([*shown, hidden])
    own = {node.name for node in ast.walk(hidden) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(hidden):
        if isinstance(node, ast.Assert) and not _asks_a_verdict(node.test):
            yield node, "only `assert verdict.passed`; compare with expect(…)"
        elif isinstance(node, DECIDING) and any(theirs.made(part) for part in _deciding(node)):
            yield node, "a student's value decides; compare with expect(…)"
        elif isinstance(node, ast.Call) and not theirs.made(node.func):
            name = ast.unparse(node.func)
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
            if name in ("expect", "agreeing"):
                if any(map(theirs.made, arguments[1:])):
                    yield node, "what is expected, and where, must not come from the student"
            elif name not in (*JUDGES, *HARMLESS, *own) and any(map(theirs.made, arguments)):
                yield node, f"{name} gets a student's value; compare with expect(…)"
    last = hidden.body[-1] if hidden.body else None
    if isinstance(last, ast.Expr) and theirs.made(last.value):
        yield last, "the points come from the student"


def _asks_a_verdict(test: ast.expr) -> bool:
    match test:
        case ast.Attribute(ast.Name("verdict"), "passed"):
            return True
    return False


def _deciding(node: ast.AST) -> list[ast.expr]:
    """What of a node decides; of a loop over a student's values only its conditions."""
    match node:
        case ast.comprehension():
            return node.ifs
        case ast.If() | ast.While() | ast.IfExp():
            return [node.test]
        case ast.Compare():
            return [node.left, *node.comparators]
        case ast.BoolOp():
            return node.values
        case ast.Match():
            return [node.subject]
    return []


class _Theirs:
    """Which names stand for something that a student's code has made."""

    def __init__(self, names: set[str]):
        self.names = set(names)

    def made(self, expression: ast.AST) -> bool:
        """Whether a student's code has a part in this value, other than through a judge."""
        if isinstance(expression, ast.Call) and ast.unparse(expression.func) in JUDGES:
            return False
        if isinstance(expression, ast.Name):
            return expression.id in self.names
        return any(map(self.made, ast.iter_child_nodes(expression)))

    def follow(self, trees: Sequence[ast.AST]) -> None:
        """Add what is made of what is known, until nothing is added."""
        nodes = [node for tree in trees for node in ast.walk(tree)]
        known = -1
        while known < len(self.names):
            known = len(self.names)
            for node in nodes:
                self._bind(node)

    def _bind(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets, value):
                for target in targets:
                    self._give(target, value)
            case ast.AugAssign(target, _, value) | ast.AnnAssign(target, _, ast.expr() as value):
                self._give(target, value)
            case ast.For(target, values) | ast.comprehension(target, values):
                self._give_each(target, values)
            case ast.NamedExpr(target, value):
                self._give(target, value)
            case ast.FunctionDef(name):
                returned = [n.value for n in ast.walk(node) if isinstance(n, ast.Return)]
                if any(value is not None and self.made(value) for value in returned):
                    self.names.add(name)

    def _give(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Tuple(targets), ast.Tuple(values) if len(targets) == len(values):
                for one, other in zip(targets, values, strict=True):
                    self._give(one, other)
            case _ if self.made(value):
                self.names |= names_in(target)

    def _give_each(self, target: ast.expr, values: ast.expr) -> None:
        """As a loop does, part by part where the loop says which part is which."""
        match target, values:
            case ast.Tuple([_, inner]), ast.Call(ast.Name("enumerate"), [several]):
                self._give_each(inner, several)
            case ast.Tuple(targets), ast.Call(ast.Name("zip"), rows) if len(targets) == len(rows):
                for one, row in zip(targets, rows, strict=True):
                    self._give_each(one, row)
            case _, ast.Tuple(parts) | ast.List(parts):
                for part in parts:
                    self._give(target, part)
            case _:
                self._give(target, values)
