"""How well the checks check: do they notice a wrong answer, and do they say which one it is?

Two kinds of wrong answers are tried: those of the bank of misconceptions, which must get their own
diagnosis, and mechanical mutants of the right answer, each with one operator, number, name,
condition or argument changed. The signature is the exercise's and stays; so do guards (``if …:
raise …`` and ``strict=True``), for which no exercise asks.

``python -m transformer_lib.course.checks.mutation FILE`` writes the table for the docs.
"""

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformer_lib.course.checks.catalogue import trial
from transformer_lib.course.checks.diagnosis import judge
from transformer_lib.course.checks.exercise import EXERCISES, Exercise
from transformer_lib.course.misconceptions.bank import wrong_answers
from transformer_lib.files import write_text

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
SYMMETRIC = {"min", "max", "transpose"}  # the order of their arguments means nothing

Definition = ast.FunctionDef | ast.ClassDef

BAR = 0.95
EQUIVALENT = (
    ("query, key, value = torch.randn(3,", "sizes of inputs that the test makes up"),
    ("max().item() <= 1e-05", "no difference is exactly as large as that"),
    ("(2000.5 *", "a larger factor decides as well"),
    ("transpose(+2, -1)", "axis 2 of four is axis −2"),
    ("([0] * 4, [0] * 5", "a place more, of which nothing is made"),
    ("[n - 2] +=", "log precisions are added up, in whichever order"),
    ("(dim=+1", "axis 1 of two is the last one"),
    ("arange(0, d_model, 2) / d_model", "another rounding: float32 for float64"),
    ("None])[:, -1]", "the only column is also the last one"),
    ("eye(weights.size(-2)", "the matrix is square"),
    ("zip(second, first)", "equal is equal either way round"),
    ("(dim=-0)", "there is one axis only"),
    ("kept = torch.ones(query.size(1))", "a product has the wider type, and 0 and 1 are exact"),
    *(
        (f"angle.cos()), {layout}", "changed where only the other layout goes")
        for layout in (
            "1 if False else 2)",
            "2 if layout == 'halves' else 2)",
            "0 if layout == 'halves' else 2)",
        )
    ),
    ("param_groups[-1]", "there is one group"),
    ("for name in states[-1]}", "all have the same names"),
    (
        "topk(min(3 * beam_size",
        "at most half of twice as many can be ends: more are never looked at",
    ),
    ("range(1, max_len + 2)", "in the last of the steps before, everything has ended"),
    ("router.T).topk(k)", "the last axis is that of topk anyway"),
    ("probabilities.sort(descending=True)", "the last axis is that of sort anyway"),
    ("expand(rows, +1, -1, -1)", "an axis of size 1 stays one"),
    ("expand(rows, -1, +1, -1)", "an axis of size 1 stays one"),
    ("torch.randint(18, (4", "tokens that the test makes up"),
    ("randint(19, (5, length))", "sizes of inputs that the test makes up"),
    ("randint(19, (3, length))", "sizes of inputs that the test makes up"),
    ("for place in range(0, length)", "nothing stands before the first position"),
    ("changed[:, place] ", "any other token shows a leak as well"),
    ("difference[position] >= 1e-06", "no difference is as small as that and not zero"),
    ("x, loud = ", "numbers that the test makes up"),
    ("once, twice = ", "any two multiples of any sublayer"),
    ("torch.equal(x, ", "whichever of the two comes first"),
    ("torch.equal(given[-1], x)", "the only call so far is also the last one"),
    ("same = torch.allclose(", "the two are equal, or far apart"),
    ("normed.flatten(+2)", "axis 2 of four is axis −2"),
    ("scatter(+1, tokens", "axis 1 of two is the last one"),
    ("start = cache[-1][0].size(2)", "all layers have as many tokens"),
    ("start = cache[0][1].size(2)", "there are as many values as keys"),
    ("start = cache[0][-1].size(2)", "there are as many values as keys"),
)
"""Survivors that compute the same: a part of the changed line, and why."""


@dataclass
class Score:
    """What the check of one exercise caught."""

    exercise: str
    bank: int = 0
    diagnosed: int = 0
    mutants: int = 0
    survivors: list[str] = field(default_factory=list)

    @property
    def caught(self) -> int:
        return self.mutants - len(self.survivors)


def reason(survivor: str) -> str | None:
    """Why this mutant computes the same as the right answer; ``None`` if nobody knows."""
    after = survivor.partition(" → ")[2]
    return next((why for part, why in EQUIVALENT if part in after), None)


def score(exercise: Exercise) -> Score:
    """Try everything that is known to be wrong on the exercise's check."""
    known, result = wrong_answers(exercise.name), tried_mutants(exercise)
    for mistake in known:
        verdict = judge(mistake.answers[exercise.name], trial(exercise.name))
        result.diagnosed += not verdict.passed and verdict.mistakes == (mistake.id,)
    result.bank = len(known)
    return result


def tried_mutants(exercise: Exercise) -> Score:
    """Try mutants alone."""
    result = Score(exercise.name)
    for description, mutant in mutants(exercise.reference):
        result.mutants += 1
        if judge(mutant, trial(exercise.name), diagnose=False).passed:
            result.survivors.append(description)
    return result


def mutants(reference: Callable[..., Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Copies of ``reference`` with one thing changed each, and a description of the change.

    The change may also be in a function of this library that the reference calls, unless that is
    an exercise of its own, or what an exercise before this one is about.
    """
    environment = _module_of(reference)
    for description, tree in _mutated(reference):
        yield description, _compiled(tree, environment)
    others = [exercise.reference for exercise in EXERCISES.values()]
    earlier = others[: others.index(reference)] if reference in others else []
    elsewhere = {*others, *(helper for other in earlier for helper in _helpers(other).values())}
    for name, helper in _helpers(reference).items():
        if helper in elsewhere:
            continue
        for description, mutated in _mutated(helper):
            changed = {**environment, name: _compiled(mutated, _module_of(helper))}
            yield f"in `{name}`, {description}", _compiled(bare_definition(reference), changed)


def _helpers(answer: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """The functions of this library that an answer calls, by name."""
    tree, environment = bare_definition(answer), _module_of(answer)
    called = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    given = {argument.arg for f in _functions_in(tree) for argument in f.args.args}
    found = {name: environment.get(name) for name in sorted(called - given)}
    return {
        name: helper
        for name, helper in found.items()
        if inspect.isfunction(helper) and helper.__module__.startswith("transformer_lib.")
    }


def _module_of(answer: Callable[..., Any]) -> dict[str, Any]:
    return vars(sys.modules[answer.__module__])


def _mutated(function: Callable[..., Any]) -> Iterator[tuple[str, Definition]]:
    for number in range(len(_all_changes(bare_definition(function)))):
        tree = bare_definition(function)
        changes = _all_changes(tree)
        line, before = changes[number].where.lineno, ast.unparse(tree).splitlines()
        changes[number].make()
        ast.fix_missing_locations(tree)
        after = ast.unparse(tree).splitlines()
        changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
        if changed:  # or else two equal arguments changed places
            yield f"line {line}: `{changed[0][0].strip()} → {changed[0][1].strip()}`", tree


def _compiled(tree: Definition, environment: dict[str, Any]) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    code = compile(ast.Module([tree], type_ignores=[]), f"<mutant of {tree.name}>", "exec")
    exec(code, environment, namespace)
    return namespace[tree.name]


def bare_definition(answer: Callable[..., Any]) -> Definition:
    """The bare code of an answer: no decorators, annotations and docstrings, nothing ``strict``."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(answer))).body
    assert isinstance(tree, ast.FunctionDef | ast.ClassDef)
    tree.decorator_list = []
    for function in _functions_in(tree):
        function.returns = None
        for argument in function.args.args:
            argument.annotation = None
        if ast.get_docstring(function) is not None:
            function.body = function.body[1:]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "strict"]
    return tree


def _functions_in(tree: Definition) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


@dataclass
class _Change:
    where: Any
    make: Callable[[], object]


def _all_changes(tree: Definition) -> list[_Change]:
    return [
        change
        for function in _functions_in(tree)
        for statement in function.body
        if not (isinstance(statement, ast.If) and isinstance(statement.body[0], ast.Raise))
        for node in _own_nodes(statement)
        for change in _changes(node)
    ]


def _own_nodes(statement: ast.AST) -> Iterator[ast.AST]:
    """As ``ast.walk``, but not into a function in a function, which has its own turn."""
    if not isinstance(statement, ast.FunctionDef):
        yield statement
        for child in ast.iter_child_nodes(statement):
            yield from _own_nodes(child)


def _swap_operands(node: ast.BinOp) -> None:
    node.left, node.right = node.right, node.left


def _last_name(function: ast.expr) -> str:
    return ast.unparse(function).rpartition(".")[2]


def _changes(node: ast.AST) -> list[_Change]:
    """The ways to change this one node."""
    found: list[_Change] = []

    def change(where: ast.AST, attribute: str, value: Any) -> None:
        found.append(_Change(where, lambda: setattr(where, attribute, value)))

    match node:
        case ast.BinOp(op=ast.MatMult()):
            found.append(_Change(node, lambda: _swap_operands(node)))
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
        case ast.Call() if len(node.args) >= 2 and not (
            any(isinstance(argument, ast.Starred) for argument in node.args)
            or _last_name(node.func) in SYMMETRIC
        ):
            change(node, "args", [node.args[1], node.args[0], *node.args[2:]])
    if isinstance(node, ast.Call) and node.keywords:
        change(node, "keywords", node.keywords[1:])
    return found


def report(scores: list[Score]) -> str:
    """The scores as a table, with each surviving mutant and why it is equivalent."""
    bank, diagnosed = sum(s.bank for s in scores), sum(s.diagnosed for s in scores)
    made, caught = sum(s.mutants for s in scores), sum(s.caught for s in scores)
    lines = [
        "# How well the checks check",
        "",
        f"- Known mistakes caught with the right diagnosis: {diagnosed} of {bank} (a mistake "
        "counts for each exercise in which it can be made).",
        f"- Mechanical mutants caught: {caught} of {made}, {caught / made:.1%}.",
        "",
        "Made by `make mutation`. A mechanical mutant is the right answer with one operator, "
        "number, name, condition or argument changed.",
        "",
        "| exercise | topic | known mistakes | diagnosed | mutants | caught |",
        "|---|---|---|---|---|---|",
    ]
    for s in scores:
        topic = EXERCISES[s.exercise].topic
        lines.append(
            f"| `{s.exercise}` | {topic} | {s.bank} | {s.diagnosed} | {s.mutants} | {s.caught} |"
        )
    lines += ["", "## Mutants that are not caught", ""]
    for s in scores:
        for survivor in s.survivors:
            why = reason(survivor) or "**not explained**"
            lines.append(f"- `{s.exercise}`, {survivor}: {why}.")
    return "\n".join(lines) + "\n"


def passes(scores: list[Score]) -> bool:
    """Every known mistake diagnosed, enough mutants caught, every other one explained."""
    return (
        all(s.diagnosed == s.bank for s in scores)
        and sum(s.caught for s in scores) >= BAR * sum(s.mutants for s in scores)
        and all(reason(survivor) for s in scores for survivor in s.survivors)
    )


if __name__ == "__main__":
    from tqdm import tqdm

    results = [score(exercise) for exercise in tqdm(EXERCISES.values(), disable=None)]
    text = report(results)
    if len(sys.argv) > 1:
        write_text(Path(sys.argv[1]), text)
    print(text)
    sys.exit(0 if passes(results) else 1)
