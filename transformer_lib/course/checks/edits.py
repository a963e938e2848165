"""All small changes of a piece of code: one operator, number, name, step or line each."""

import ast
import copy
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

Definition = ast.FunctionDef | ast.ClassDef

OPERATORS: tuple[tuple[type, ...], ...] = (
    (ast.Add, ast.Sub, ast.Mult, ast.Div),
    (ast.FloorDiv, ast.Mod, ast.Div),
    (ast.Pow, ast.Mult),
    (ast.BitAnd, ast.BitOr, ast.BitXor),
    (ast.And, ast.Or),
)
SIGNS = {
    ast.Add: ("+", 1),
    ast.Sub: ("-", 1),
    ast.Mult: ("*", 2),
    ast.Div: ("/", 2),
    ast.FloorDiv: ("//", 2),
    ast.Mod: ("%", 2),
    ast.MatMult: ("@", 2),
    ast.Pow: ("**", 3),
}
"""How an operator is written, and how strongly it binds."""

COMPARISONS: tuple[tuple[type, ...], ...] = (
    (ast.Lt, ast.LtE, ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
)
REDUCTIONS = {"sum", "mean", "prod", "std", "var", "max", "min", "amax", "amin"}
FUNCTIONS = (
    ("sin", "cos"),
    ("min", "max", "amin", "amax"),
    ("minimum", "maximum"),
    ("argmin", "argmax"),
    ("tril", "triu"),
    ("sum", "mean", "prod", "std", "var"),
    ("cumsum", "cumprod"),
    ("sqrt", "square", "rsqrt"),
    ("sqrt", "isqrt"),
    ("relu", "gelu", "tanh", "sigmoid"),
    ("exp", "log", "log2", "log10"),
    ("softmax", "log_softmax", "sigmoid"),
    ("zeros", "ones"),
    ("zeros_like", "ones_like"),
    ("floor", "ceil"),
    ("any", "all"),
    ("cat", "stack"),
    ("append", "extend"),
    ("add", "sub", "mul", "div"),
    ("unsqueeze", "squeeze"),
    ("scatter", "scatter_add"),
    ("scatter_", "scatter_add_"),
    ("clip_grad_value_", "clip_grad_norm_"),
)
INTEGERS = (-2, -1, 0, 1, 2, (0, 1), (1, 2))
FLOATS = (0.0, 0.5, 1.0, 2.0, 1e-5, 1e-6, 1e4, float("-inf"), float("inf"))
TRANSPOSED = "{}.transpose(-2, -1)"
STEPS = {
    TRANSPOSED: "with two of its axes exchanged",
    "{}.unsqueeze(-1)": "with one more axis",
    "{}[..., None, :]": "with one more axis",
    "{}.float()": "with another dtype",
    "{}.long()": "with another dtype",
    "{}.clone()": "with a copy",
    "0 * {}": "with 0 in its place",
    "-{}": "with the other sign",
    "{}.logical_not()": "with True and False exchanged",
    "{}.sqrt()": "with one more operation there",
    "{}.square()": "with one more operation there",
    "{}.exp()": "with one more operation there",
    "{}.log()": "with one more operation there",
    "{} ** 0.5": "with one more operation there",
    "1 / {}": "with one more operation there",
    "{} / 2": "with one more operation there",
    "2 * {}": "with one more operation there",
    "{} + 1": "with one more here",
    "{} - 1": "with one less here",
    "1 - {}": "with one minus it",
}
ONE_OFF = ("{} + 1", "{} - 1")
OPERATIONS = {
    "{} + {}": "with something added here",
    "{} - {}": "with something subtracted here",
    "{} * {}": "with one more factor here",
    "{} / {}": "with one more division here",
    "{} & {}": "with one more condition here",
    "{} @ {}": "with one more matrix product here",
}
LETTERS = "with two letters exchanged"
ARGUMENTS = {
    "dim=-1": "if the axis is said (dim)",
    "dim=0": "if the axis is said (dim)",
    "dim=1": "if the axis is said (dim)",
    "keepdim=True": "if the axis is kept",
    "correction=0": "with another divisor",
    "reverse=True": "in the opposite order",
}


@dataclass
class Edit:
    """``new`` instead of what is in a field of ``parent``.

    ``also`` are changes that are made together with it. ``where`` is the part of the code that is
    changed; ``said`` goes on from “everything passes …”.
    """

    parent: ast.AST
    field: str
    index: int | None
    new: Any
    where: ast.AST
    said: str
    also: "Sequence[Edit]" = ()

    @property
    def takes_away(self) -> bool:
        """Whether it leaves something out, or only puts results in another order."""
        return self.said.startswith("without") or self.said in ("in another order", LETTERS)

    @contextmanager
    def made(self) -> Iterator[None]:
        """The code is changed as long as this lasts."""
        old = getattr(self.parent, self.field)
        if self.index is None:
            changed = self.new
        elif isinstance(self.new, list):
            changed = [*old[: self.index], *self.new, *old[self.index + 1 :]]
        else:
            changed = [*old[: self.index], self.new, *old[self.index + 1 :]]
        setattr(self.parent, self.field, changed)
        try:
            with ExitStack() as others:
                for edit in self.also:
                    others.enter_context(edit.made())
                yield
        finally:
            setattr(self.parent, self.field, old)


def edits(tree: Definition) -> list[Edit]:
    """Every small change of a function or class, those that are most often needed first."""
    found: list[tuple[int, Edit]] = []
    statements = tree.body if isinstance(tree, ast.ClassDef) else [tree]
    for function in [x for x in statements if isinstance(x, ast.FunctionDef)]:
        names = _locals(function)
        for parent, field, index, node in _places(function):
            if isinstance(node, ast.expr):
                for rank, new, said in _instead(node, names):
                    found.append((rank, Edit(parent, field, index, new, node, said)))
                if isinstance(parent, ast.Assign | ast.Return | ast.AugAssign):
                    for new, said in _combined(node, names):
                        found.append((4, Edit(parent, field, index, new, node, said)))
        found += [(-1, edit) for edit in _without_a_branch(function)]
        found += [(1, edit) for edit in _everywhere(function)]
        found += [(2, edit) for edit in _statements(function)]
    return [edit for _, edit in sorted(found, key=lambda ranked: ranked[0])]


def _locals(function: ast.FunctionDef) -> list[str]:
    """Arguments and variables of a function, and of those that are defined in it."""
    given = [x.arg for x in ast.walk(function) if isinstance(x, ast.arg) and x.arg != "self"]
    own = [
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    return list(dict.fromkeys([*given, *own]))


def _places(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Every part of the body, with where it stands."""
    for index, default in enumerate(function.args.defaults):
        yield function.args, "defaults", index, default
    for index, statement in enumerate(function.body):
        yield function, "body", index, statement
        yield from _inside(statement)


def _inside(parent: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    for field, value in ast.iter_fields(parent):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(node, ast.AST):
                yield parent, field, index, node
                if not isinstance(node, ast.JoinedStr):  # the text of a message
                    yield from _inside(node)


def _instead(node: ast.expr, names: list[str]) -> Iterator[tuple[int, ast.expr, str]]:
    """What may replace an expression: how likely that is, it, and words for it."""
    if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
        if isinstance(node, ast.Tuple):
            for new in _other_orders(node):
                yield 0, new, "in another order"
        return
    match node:
        case ast.Compare(ops=[op]):
            for other in _others(type(op), COMPARISONS):
                yield 0, _with(node, ops=[other()]), "with another comparison"
        case ast.BinOp():
            yield from _of_two(node)
        case ast.BoolOp():
            for other in _others(type(node.op), OPERATORS):
                yield 0, _with(node, op=other()), "with another connective"
            for value in node.values:
                yield 1, value, "with only one of the two"
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            yield from _other_numbers(-value)
        case ast.UnaryOp():
            yield 0, node.operand, f"without `{ast.unparse(node)[:1].replace('n', 'not')}`"
        case ast.Constant(value=bool() as value):
            yield 0, ast.Constant(not value), "with the opposite"
        case ast.Constant(value=int() | float() as value):
            yield from _other_numbers(value)
        case ast.Constant(value=str() as text) if "->" in text:
            for equation in _other_equations(text):
                yield 0, ast.Constant(equation), LETTERS
        case ast.Name(id=name):
            if name in names:
                for other in names:
                    if other != name:
                        new = ast.Name(other, ast.Load())
                        yield 2, new, f"with something else than `{name}`"
            for other in _others(name, FUNCTIONS):
                yield 1, ast.Name(other, ast.Load()), f"with another function than `{name}`"
        case ast.Attribute(attr=name):
            for other in _others(name, FUNCTIONS):
                yield 0, _with(node, attr=other), f"with another function than `{name}`"
        case ast.Call():
            yield from _other_calls(node)
        case ast.Subscript():
            yield 2, node.value, "without the brackets"
            if isinstance(node.slice, ast.Slice):
                for bounds in _other_bounds(node.slice):
                    yield 1, _with(node, slice=bounds), "with other bounds"
        case ast.IfExp():
            yield 1, _with(node, body=node.orelse, orelse=node.body), "with the opposite condition"
            yield 2, node.body, "without the condition"
            yield 2, node.orelse, "without the condition"
        case ast.Tuple() | ast.List():
            for new in _other_orders(node):
                yield 0, new, "in another order"
            if isinstance(node, ast.List) and len(node.elts) > 1:
                for element in node.elts:
                    yield 2, _with(node, elts=[element]), "with less in it"
    for new in _other_order_of_steps(node):
        yield 1, new, "with two steps in the other order"
    if not isinstance(node, ast.Constant | ast.Slice | ast.Starred | ast.JoinedStr | ast.Tuple):
        for step in STEPS:
            if not (step in ONE_OFF and _is_one_off(node)):  # which have been tried
                yield 3, _filled(step, node), STEPS[step]


def _of_two(node: ast.BinOp) -> Iterator[tuple[int, ast.expr, str]]:
    one = isinstance(node.right, ast.Constant) and node.right.value == 1
    for other in _others(type(node.op), OPERATORS):
        if not (one and other in (ast.Mult, ast.Div, ast.Pow)):  # which takes the 1 away, no more
            yield 0, _with(node, op=other()), "with another operation there"
    yield 0, _with(node, left=node.right, right=node.left), "with the two in the other order"
    if _is_one_off(node):
        for step in ONE_OFF:
            yield 0, _filled(step, node), STEPS[step]
    yield 1, node.left, f"without `{_short(node.right)}`"
    yield 1, node.right, f"without `{_short(node.left)}`"
    for new in _other_parentheses(node):
        yield 0, new, "with parentheses elsewhere"


def _is_one_off(node: ast.expr) -> bool:
    """Whether it is a sum with a number in it, which may be right where the sum is one off."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add | ast.Sub):
        return False
    numbers = [x.value for x in (node.left, node.right) if isinstance(x, ast.Constant)]
    return any(type(x) is int for x in numbers)


def _other_parentheses(node: ast.BinOp) -> Iterator[ast.expr]:
    """One pair of parentheses more, or one less."""
    operands, signs = _chain(node)
    before = ast.dump(node)
    for i, j in combinations(range(len(operands)), 2):
        texts = ["({}" if n == i else "{})" if n == j else "{}" for n in range(len(operands))]
        new = _filled(_joined(texts, signs), *operands)
        if ast.dump(new) != before:
            yield new
    for i, operand in enumerate(operands):
        if isinstance(operand, ast.BinOp):
            inside, more = _chain(operand)
            all_signs = [*signs[:i], *more, *signs[i:]]
            parts = [*operands[:i], *inside, *operands[i + 1 :]]
            yield _filled(_joined(["{}"] * len(parts), all_signs), *parts)


def _chain(node: ast.expr) -> tuple[list[ast.expr], list[str]]:
    """What stands between the signs of a formula, parentheses unopened, and these signs."""
    if not isinstance(node, ast.BinOp) or type(node.op) not in SIGNS:
        return [node], []
    sign, strength = SIGNS[type(node.op)]

    def part(side: ast.expr, opens: bool) -> tuple[list[ast.expr], list[str]]:
        return _chain(side) if opens else ([side], [])

    left, right = _strength(node.left), _strength(node.right)
    from_right = sign == "**"
    a, signs_of_a = part(node.left, left > strength or (left == strength and not from_right))
    b, signs_of_b = part(node.right, right > strength or (right == strength and from_right))
    return [*a, *b], [*signs_of_a, sign, *signs_of_b]


def _strength(node: ast.expr) -> int:
    return SIGNS.get(type(node.op), ("", 0))[1] if isinstance(node, ast.BinOp) else 0


def _joined(texts: list[str], signs: list[str]) -> str:
    return texts[0] + "".join(
        f" {sign} {text}" for sign, text in zip(signs, texts[1:], strict=True)
    )


def _other_orders(node: ast.Tuple | ast.List, most: int = 6) -> Iterator[ast.expr]:
    slices = any(isinstance(x, ast.Slice) for x in node.elts)
    if 2 <= len(node.elts) <= most and not slices:
        for i, j in combinations(range(len(node.elts)), 2):
            elements = list(node.elts)
            elements[i], elements[j] = elements[j], elements[i]
            yield _with(node, elts=elements)


def _other_order_of_steps(node: ast.expr) -> Iterator[ast.expr]:
    """g(f(x)) for f(g(x)), whether they are written as functions, methods or operators."""
    for outer, inside in _operands(node):
        for inner, innermost in _operands(inside):
            yield _replaced(inside, inner, _replaced(node, outer, innermost))


def _operands(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """What a step is applied to, with the name of its place."""
    match node:
        case ast.Call(func=ast.Attribute(value=value), args=args):
            yield "receiver", value
            if args:
                yield "argument", args[0]
        case ast.Call(args=[first, *_]):
            yield "argument", first
        case ast.BinOp(left=left, right=right):
            yield "left", left
            yield "right", right
        case ast.UnaryOp(operand=operand):
            yield "operand", operand


def _replaced(node: Any, place: str, new: ast.expr) -> Any:
    match place:
        case "receiver":
            return _with(node, func=_with(node.func, value=new))
        case "argument":
            return _with(node, args=[new, *node.args[1:]])
        case _:
            return _with(node, **{place: new})


def _other_numbers(value: float) -> Iterator[tuple[int, ast.expr, str]]:
    near = (-value,) if value else ()
    if isinstance(value, int):
        numbers: tuple[Any, ...] = (*near, value + 1, value - 1, *INTEGERS)
    else:
        numbers = (*near, 1 / value if value else 1.0, *FLOATS)
    for number in dict.fromkeys(numbers):
        if number != value:
            yield (
                0,
                ast.parse(repr(number).replace("inf", "1e999"), mode="eval").body,
                ("with another number"),
            )


def _other_equations(text: str) -> Iterator[str]:
    """For einsum: two letters of one operand, or of the result, exchanged."""
    for i, j in combinations(range(len(text)), 2):
        letters = text[i : j + 1]
        if letters.isalpha() and text[i] != text[j]:
            yield f"{text[:i]}{text[j]}{text[i + 1 : j]}{text[i]}{text[j + 1 :]}"


def _other_calls(node: ast.Call) -> Iterator[tuple[int, ast.expr, str]]:
    plain = not any(isinstance(x, ast.Starred) for x in node.args)
    for i in range(len(node.args) if plain else 0):
        for j in range(i):
            args = list(node.args)
            args[i], args[j] = args[j], args[i]
            yield 0, _with(node, args=args), "with the arguments in another order"
    for i, keyword in enumerate(node.keywords):
        rest = node.keywords[:i] + node.keywords[i + 1 :]
        yield 0, _with(node, keywords=rest), f"without `{keyword.arg}`"
        if keyword.arg in ("min", "max"):
            other = ast.keyword({"min": "max", "max": "min"}[keyword.arg], keyword.value)
            changed = [*node.keywords[:i], other, *node.keywords[i + 1 :]]
            yield 0, _with(node, keywords=changed), f"with something else than `{keyword.arg}`"
    if isinstance(node.func, ast.Attribute):
        yield 1, node.func.value, f"without `{node.func.attr}`"
    if plain and node.args:
        yield 1, node.args[0], f"without `{_short(node.func)}`"
        if len(node.args) > 1:
            yield 2, _with(node, args=node.args[:-1]), f"without `{_short(node.args[-1])}`"
    for argument in ARGUMENTS:
        name, _, value = argument.partition("=")
        if name not in [keyword.arg for keyword in node.keywords]:
            keyword = ast.keyword(name, ast.parse(value, mode="eval").body)
            yield 2, _with(node, keywords=[*node.keywords, keyword]), ARGUMENTS[argument]
    name = getattr(node.func, "attr", "")
    if name in REDUCTIONS and not node.args and not node.keywords:
        name = {"max": "amax", "min": "amin"}.get(name, name)  # max along an axis gives two results
        rows = [ast.keyword("dim", ast.Constant(-1)), ast.keyword("keepdim", ast.Constant(True))]
        new = _with(node, func=_with(node.func, attr=name), keywords=rows)
        yield 2, new, "if it runs over the last axis only (dim, keepdim)"


def _other_bounds(bounds: ast.Slice) -> Iterator[ast.Slice]:
    one, minus_one = ast.Constant(1), ast.UnaryOp(ast.USub(), ast.Constant(1))
    for lower in (None, one, minus_one):
        yield ast.Slice(lower, bounds.upper, bounds.step)
    for upper in (None, one, minus_one):
        yield ast.Slice(bounds.lower, upper, bounds.step)
    if bounds.lower is None or bounds.upper is None:
        yield ast.Slice(bounds.upper, bounds.lower, bounds.step)
    if isinstance(bounds.upper, ast.UnaryOp) and bounds.lower is None:
        yield ast.Slice(one, None, bounds.step)
    if isinstance(bounds.lower, ast.Constant) and bounds.upper is None:
        yield ast.Slice(None, minus_one, bounds.step)


def _combined(node: ast.expr, names: list[str]) -> Iterator[tuple[ast.expr, str]]:
    used = {x.id for x in ast.walk(node) if isinstance(x, ast.Name)}
    for name in names:
        if name not in used or isinstance(node, ast.Call):
            for operation, said in OPERATIONS.items():
                yield _filled(operation, node, ast.Name(name, ast.Load())), said
                if operation[3] in "-/@":
                    yield _filled(operation, ast.Name(name, ast.Load()), node), said


def _without_a_branch(function: ast.FunctionDef) -> Iterator[Edit]:
    """An ``elif`` left out, which says more than that another comparison would do."""
    for node in ast.walk(function):
        match node:
            case ast.If(orelse=[ast.If() as branch]):
                yield Edit(node, "orelse", None, branch.orelse, branch.test, "without this branch")


def _everywhere(function: ast.FunctionDef) -> Iterator[Edit]:
    """The same change in all places where the same axis or the same call stands."""
    calls = [x for x in ast.walk(function) if isinstance(x, ast.Call)]
    keywords = [x for call in calls for x in call.keywords if x.arg == "dim"]
    texts = [ast.unparse(x.value) for x in keywords]
    for text in dict.fromkeys(texts):
        chosen = [x for x, y in zip(keywords, texts, strict=True) if y == text]
        for number in ("-1", "0", "1", "-2", "(0, 1)"):
            if number != text:
                new = ast.parse(number, mode="eval").body
                said = "with other axes"
                yield from _together([Edit(x, "value", None, new, x.value, said) for x in chosen])
    names = [getattr(call.func, "attr", getattr(call.func, "id", "")) for call in calls]
    for group in (*({name} for name in dict.fromkeys(names)), REDUCTIONS):
        chosen_calls = [x for x, name in zip(calls, names, strict=True) if name in group]
        yield from _in_all(chosen_calls)


def _in_all(calls: list[ast.Call]) -> Iterator[Edit]:
    for argument, said in ARGUMENTS.items():
        changes = []
        for call in calls:
            name, _, value = argument.partition("=")
            if name not in [keyword.arg for keyword in call.keywords]:
                keyword = ast.keyword(name, ast.parse(value, mode="eval").body)
                new = [*call.keywords, keyword]
                changes.append(Edit(call, "keywords", None, new, call, said))
        yield from _together(changes)
    for i in range(min((len(call.args) for call in calls), default=0)):
        changes = []
        for call in calls:
            transposed = _filled(TRANSPOSED, call.args[i])
            changes.append(Edit(call, "args", i, transposed, call.args[i], STEPS[TRANSPOSED]))
        if not any(isinstance(x.where, ast.Starred | ast.Constant) for x in changes):
            yield from _together(changes)


def _together(changes: list[Edit]) -> Iterator[Edit]:
    if len(changes) > 1:
        first, *rest = changes
        yield replace(first, said=f"{first.said}, here and where the same stands", also=rest)


def _statements(function: ast.FunctionDef) -> Iterator[Edit]:
    for parent in ast.walk(function):
        if isinstance(parent, ast.FunctionDef):
            yield from _with_a_return(parent)
        for field in ("body", "orelse"):
            block = getattr(parent, field, None)
            if isinstance(block, list):
                yield from _of_block(parent, field, block)


def _with_a_return(function: ast.FunctionDef) -> Iterator[Edit]:
    last = function.body[-1]
    if isinstance(last, ast.Assign | ast.AugAssign):
        target = last.targets[0] if isinstance(last, ast.Assign) else last.target
        if isinstance(target, ast.Name):
            value = ast.Return(ast.Name(target.id, ast.Load()))
            said = "with a return after it"
            yield Edit(function, "body", None, [*function.body, value], last, said)


def _of_block(parent: ast.AST, field: str, block: list[ast.stmt]) -> Iterator[Edit]:
    for i, statement in enumerate(block):
        following = block[i + 1] if i + 1 < len(block) else None
        if len(block) > 1 and not isinstance(statement, ast.Return | ast.FunctionDef):
            without = block[:i] + block[i + 1 :]
            yield Edit(parent, field, None, without, statement, "without this line")
        if following is not None and not isinstance(statement, ast.Return):
            swapped = [*block[:i], following, statement, *block[i + 2 :]]
            said = "if this line and the next one change places"
            yield Edit(parent, field, None, swapped, statement, said)
        if isinstance(statement, ast.Assign | ast.Return):
            for one, other, new in _names_exchanged(statement):
                said = f"with `{one}` and `{other}` exchanged"
                yield Edit(parent, field, i, new, statement, said)
        if isinstance(statement, ast.AugAssign):
            left = _with(statement.target, ctx=ast.Load())
            plain = ast.Assign(
                [statement.target], ast.BinOp(left, statement.op, statement.value), lineno=0
            )
            said = "if a new tensor is made here, not the old one changed"
            yield Edit(parent, field, i, plain, statement, said)
            for other in _others(type(statement.op), OPERATORS):
                new = _with(statement, op=other())
                yield Edit(parent, field, i, new, statement, "with another operation there")
        if isinstance(statement, ast.If):
            new = _with(statement, test=ast.UnaryOp(ast.Not(), statement.test))
            yield Edit(parent, field, i, new, statement.test, "with the opposite condition")
            if not statement.orelse:
                new_block = [*block[:i], *statement.body, *block[i + 1 :]]
                yield Edit(parent, field, None, new_block, statement.test, "without the condition")
        if isinstance(statement, ast.For | ast.While | ast.If):
            yield from _in_and_out(parent, field, block, i)


def _in_and_out(parent: ast.AST, field: str, block: list[ast.stmt], i: int) -> Iterator[Edit]:
    """Lines moved into or out of the ``i``-th statement, which is a loop or a condition."""
    statement: Any = block[i]
    first, last = statement.body[0], statement.body[-1]
    if len(statement.body) > 1:
        out = [_with(statement, body=statement.body[:-1]), last]
        yield Edit(parent, field, i, out, last, "with this line one level further out")
    if i + 1 < len(block):
        inside = _with(statement, body=[*statement.body, block[i + 1]])
        moved = [*block[:i], inside, *block[i + 2 :]]
        said = "with this line one level further in"
        yield Edit(parent, field, None, moved, block[i + 1], said)
    if isinstance(statement, ast.If):
        return
    if len(statement.body) > 1:
        before = [first, _with(statement, body=statement.body[1:])]
        yield Edit(parent, field, i, before, first, "with this line before the loop")
    for j, earlier in enumerate(block[:i]):
        if isinstance(earlier, ast.Assign | ast.AnnAssign | ast.Expr):
            inside = _with(statement, body=[earlier, *statement.body])
            moved = [*block[:j], *block[j + 1 : i], inside, *block[i + 1 :]]
            yield Edit(parent, field, None, moved, earlier, "with this line in the loop")


def _names_exchanged(statement: ast.stmt) -> Iterator[tuple[str, str, ast.stmt]]:
    """Wherever two variables are read in a statement, each of them for the other."""
    called = {
        x.func.id
        for x in ast.walk(statement)
        if isinstance(x, ast.Call) and isinstance(x.func, ast.Name)
    }
    read = [
        x.id for x in ast.walk(statement) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load)
    ]
    for one, other in combinations([x for x in dict.fromkeys(read) if x not in called], 2):
        new = copy.deepcopy(statement)
        for node in ast.walk(new):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                node.id = {one: other, other: one}.get(node.id, node.id)
        yield one, other, new


def _others(what: Any, groups: tuple[tuple[Any, ...], ...]) -> list[Any]:
    return [other for group in groups if what in group for other in group if other != what]


def _with(node: Any, **fields: Any) -> Any:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _filled(template: str, *parts: ast.expr) -> ast.expr:
    """The template with these expressions in its gaps."""
    holes = [f"gap_{n}" for n in range(len(parts))]
    tree = ast.parse(template.format(*holes), mode="eval")

    class Fill(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return parts[holes.index(node.id)] if node.id in holes else node

    return Fill().visit(tree).body


def _short(node: ast.AST, width: int = 40) -> str:
    text = ast.unparse(node)
    return text if len(text) <= width else f"{text[:width]}…"
