"""How well the checks check: do they notice a wrong answer, and do they say which one it is?

Two kinds of wrong answers are tried: those of the bank of misconceptions, which must get their own
diagnosis, and mechanical mutants of the right answer, each with one operator, number, name or
statement changed.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from transformer_lib.checks.diagnosis import draw_trial, judge
from transformer_lib.checks.exercise import Exercise
from transformer_lib.misconceptions.bank import wrong_answers

SWAPS: dict[type, tuple[type, ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.FloorDiv: (ast.Mod,),
    ast.Mod: (ast.FloorDiv,),
    ast.BitAnd: (ast.BitOr,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.Lt: (ast.LtE, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.LtE: (ast.Lt,),
    ast.GtE: (ast.Gt,),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
}
NAMES = {
    "sin": "cos",
    "cos": "sin",
    "min": "max",
    "max": "min",
    "argmax": "argmin",
    "tril": "triu",
    "sum": "mean",
    "mean": "sum",
    "sqrt": "square",
    "relu": "gelu",
}


@dataclass
class Score:
    """What the check of one exercise caught."""

    exercise: str
    bank: int = 0
    diagnosed: int = 0
    mutants: int = 0
    survivors: list[str] = field(default_factory=list)


def score(exercise: Exercise, seed: int = 1) -> Score:
    """Try everything that is known to be wrong on the exercise's check."""
    result = Score(exercise.name)
    trial = draw_trial(exercise, seed)
    for mistake in wrong_answers(exercise.name):
        verdict = judge(mistake.answers[exercise.name], exercise, trial)
        result.bank += 1
        result.diagnosed += not verdict.passed and verdict.mistakes == (mistake.id,)
    for description, mutant in mutants(exercise.reference):
        result.mutants += 1
        if judge(mutant, exercise, trial).passed:
            result.survivors.append(description)
    return result


def mutants(function: Callable[..., Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Copies of ``function`` with one thing changed each, and a description of the change."""
    source = textwrap.dedent(inspect.getsource(function))
    original = _function_of(source)
    count = sum(len(_changes(node)) for node in ast.walk(original))
    for number in range(count):
        tree = _function_of(source)
        changes = [change for node in ast.walk(tree) for change in _changes(node)]
        line, before = changes[number].where.lineno, ast.unparse(tree).splitlines()
        changes[number].make()
        ast.fix_missing_locations(tree)
        after = ast.unparse(tree).splitlines()
        changed = [(a, b) for a, b in zip(before, after, strict=False) if a != b] or [("", "")]
        description = f"line {line}: {changed[0][0].strip()} → {changed[0][1].strip()}"
        namespace: dict[str, Any] = {}
        code = compile(
            ast.Module([tree], type_ignores=[]), f"<mutant of {function.__name__}>", "exec"
        )
        exec(code, function.__globals__, namespace)
        yield description, namespace[function.__name__]


def _function_of(source: str) -> ast.FunctionDef:
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    function.decorator_list = []
    function.returns = None
    for argument in function.args.args:
        argument.annotation = None
    if ast.get_docstring(function) is not None:
        function.body = function.body[1:]
    return function


@dataclass
class _Change:
    where: Any
    make: Callable[[], object]


def _changes(node: ast.AST) -> list[_Change]:
    """The ways to change this one node."""
    found: list[_Change] = []

    def change(where: ast.AST, attribute: str, value: Any) -> None:
        found.append(_Change(where, lambda: setattr(where, attribute, value)))

    match node:
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign():
            for other in SWAPS.get(type(node.op), ()):
                change(node, "op", other())
        case ast.Compare():
            for other in SWAPS.get(type(node.ops[0]), ()):
                change(node, "ops", [other()])
        case ast.Constant(value=bool() as value):
            change(node, "value", not value)
        case ast.Constant(value=int() as value):
            change(node, "value", value + 1)
            change(node, "value", value - 1)
        case ast.Constant(value=float() as value):
            change(node, "value", 2 * value + 0.5)
        case ast.UnaryOp():
            change(node, "op", ast.UAdd())
        case ast.Attribute() if node.attr in NAMES:
            change(node, "attr", NAMES[node.attr])
        case ast.Name() if node.id in NAMES:
            change(node, "id", NAMES[node.id])
        case ast.IfExp():
            change(node, "test", ast.Constant(True))
            change(node, "test", ast.Constant(False))
        case ast.If():
            change(node, "test", ast.Constant(True))
            change(node, "test", ast.Constant(False))
        case ast.Call() if len(node.args) >= 2 and not any(
            isinstance(argument, ast.Starred) for argument in node.args
        ):
            change(node, "args", [node.args[1], node.args[0], *node.args[2:]])
    if isinstance(node, ast.Call) and node.keywords:
        change(node, "keywords", node.keywords[1:])
    return found
