"""The text of what a student wrote in a notebook, with all that it needs to run on its own."""

import ast
import builtins
import re
import symtable
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

COURSE = "transformer_lib"
COMPREHENSIONS = {"listcomp", "setcomp", "dictcomp", "genexpr"}


class NotKeptError(Exception):
    """A part cannot be kept; the message says why, in one sentence."""


@dataclass(frozen=True)
class Part:
    """What was written for one exercise: its helpers first, then the function or class itself."""

    name: str
    code: str
    imports: tuple[str, ...] = ()
    """One statement for each name that the code needs from elsewhere."""


@dataclass
class _Collected:
    imports: list[str] = field(default_factory=list)
    definitions: dict[str, str] = field(default_factory=dict)


def part_from(name: str, cells: Iterable[str], elsewhere: dict[str, str] | None = None) -> Part:
    """The definition of ``name`` in the cells that were run, and what it needs of the others.

    Args:
        cells: in the order in which they were run; of two definitions the later one holds.
        elsewhere: names that are not to be looked for in the cells, each with the statement that
            imports it, or with nothing where it needs none.

    Raises:
        NotKeptError: something that it needs is not defined by a plain statement of a cell.
    """
    elsewhere = elsewhere or {}
    statements: dict[str, str] = {}
    fetched = f"{name}=mine("  # below its check in the same cell: that is what is kept now
    for cell in cells:
        statements |= {
            bound: text
            for bound, text in _bindings(cell)
            if not (bound == name and text.replace(" ", "").startswith(fetched))
        }
    if name not in statements or not statements[name].lstrip().startswith(("def", "class", "@")):
        raise NotKeptError(f"no cell that was run defines {name} with `def` or `class`")
    collected = _Collected()

    def collect(needed: str, by: str) -> None:
        builtin = hasattr(builtins, needed) and needed not in statements
        if needed in collected.definitions or builtin:
            return
        if needed in elsewhere and needed != name:
            collected.imports += [elsewhere[needed]] if elsewhere[needed] else []
            return
        if needed not in statements:
            raise NotKeptError(f"{by} uses {needed}, which no plain statement of a cell defines")
        code = statements[needed]
        if code.startswith(("import ", "from ")):
            if re.match(rf"from {COURSE}\.\S*checks\S* import (mine|check)", code):
                raise NotKeptError(
                    f"{by} calls {needed} itself; call it in a line of its own above"
                )
            constant = _constant(code)
            if constant:
                collected.definitions[needed] = constant
            else:
                collected.imports.append(code)
            return
        collected.definitions[needed] = ""  # what needs itself is not looked at again
        for other in sorted(names_needed(code)):
            collect(other, needed)
        del collected.definitions[needed]  # so that it comes after what it needs
        collected.definitions[needed] = code

    collect(name, name)
    code = "\n\n\n".join(dict.fromkeys(collected.definitions.values()))
    return Part(name, code, tuple(dict.fromkeys(collected.imports)))


def _constant(statement: str) -> str:
    """``PAD = 0`` for the import of a number or word from the course; otherwise nothing."""
    found = re.fullmatch(rf"from ({COURSE}(?:\.\w+)*) import (\w+)", statement)
    value = getattr(sys.modules.get(found[1]), found[2], None) if found else None
    return f"{found[2]} = {value!r}" if found and isinstance(value, int | float | str) else ""


def lines_of(code: str) -> list[str]:
    """As Python counts them; ``splitlines`` also ends a line at a form feed and at some others."""
    return re.split("\r\n|\r|\n", code)


def names_needed(code: str) -> set[str]:
    """Names that a piece of code takes from outside of itself, builtin ones among them.

    Raises:
        SyntaxError: it is not Python.
    """
    top = symtable.symtable(code, "part", "exec")
    tree = ast.parse(code)
    loops = of_comprehensions_alone(tree)
    defined = {
        s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()
    } - loops
    inside = {
        name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names
    }
    defined -= inside - {name for name, _ in _bindings(code)}  # a function assigns them, later
    counted = {  # `calls += 1` reads it as well, which a symbol table does not say
        node.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    }

    def used(table: symtable.SymbolTable) -> Iterator[str]:
        for symbol in table.get_symbols():
            of_a_loop = table is top and symbol.is_assigned() and symbol.get_name() in loops
            if symbol.is_referenced() and (table is top or symbol.is_global()) and not of_a_loop:
                yield symbol.get_name()
        for child in table.get_children():
            yield from used(child)

    return (set(used(top)) | counted & inside) - defined


def of_comprehensions_alone(tree: ast.AST) -> set[str]:
    """The variables of comprehensions that nothing else binds.

    Since Python 3.12 a symbol table has those at the top among the names of the module.
    """
    stored = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    inside = {
        node
        for loop in ast.walk(tree)
        if isinstance(loop, ast.comprehension)
        for node in ast.walk(loop.target)
        if isinstance(node, ast.Name)
    }
    return {node.id for node in inside} - {node.id for node in stored if node not in inside}


def names_needed_at_once(code: str) -> set[str]:
    """Those that it takes from outside as soon as it runs, and not only when it is called."""

    def used(table: symtable.SymbolTable) -> Iterator[str]:
        yield from (s.get_name() for s in table.get_symbols() if s.is_referenced())
        for child in table.get_children():
            if child.get_type() != "function" or child.get_name() in COMPREHENSIONS:
                yield from used(child)

    return set(used(symtable.symtable(code, "part", "exec"))) & names_needed(code)


def _bindings(cell: str) -> Iterator[tuple[str, str]]:
    """Each name that a cell binds with a plain statement, with the text of the statement."""
    try:
        body = ast.parse(cell).body
    except SyntaxError:
        return  # it did not run either
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imports_of(node)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            yield node.name, "\n".join(lines_of(cell)[first - 1 : node.end_lineno])
        elif text := _below_a_magic(node):
            yield from _bindings(text)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            text = ast.get_source_segment(cell, node) or ast.unparse(node)
            for target in targets:
                for inner in ast.walk(target):
                    if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                        yield inner.id, text


def _below_a_magic(node: ast.AST) -> str:
    """The cell below ``%%time`` or ``%%capture``, of which IPython keeps a call; or nothing."""
    match node:
        case ast.Expr(
            ast.Call(
                ast.Attribute(attr="run_cell_magic"),
                [ast.Constant("time" | "capture"), _, ast.Constant(str(text))],
            )
        ):
            return text
    return ""


def imports_of(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Each name that a statement imports, with the statement that imports it alone."""
    for alias in node.names:
        alone = (
            ast.Import([alias])
            if isinstance(node, ast.Import)
            else ast.ImportFrom(node.module, [alias], node.level)
        )
        yield alias.asname or alias.name.partition(".")[0], ast.unparse(alone)


def definitions(code: str) -> dict[str, str]:
    """What a part defines at its top: each name with the statement, without its layout."""
    return {
        name: ast.unparse(ast.parse(text))
        for name, text in _bindings(code)
        if not text.startswith(("import ", "from "))
    }


def _without_own(node: ast.AST, name: str) -> Iterator[ast.AST]:
    """As ``ast.walk``, but not into the body of a function that has an argument of this name."""
    yield node
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        arguments = [inner for inner in ast.walk(node.args) if isinstance(inner, ast.arg)]
        if any(argument.arg == name for argument in arguments):
            decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
            for outer in filter(None, [*decorators, *node.args.defaults, *node.args.kw_defaults]):
                yield from _without_own(outer, name)
            return
    for child in ast.iter_child_nodes(node):
        yield from _without_own(child, name)


def renamed(code: str, old: str, new: str) -> str:
    """The same code with a name of its top level exchanged, strings and attributes left alone.

    So are functions in which the name is that of an argument.
    """
    lines = lines_of(code)
    places = set()
    for node in _without_own(ast.parse(code), old):
        if isinstance(node, ast.Name) and node.id == old:
            places.add((node.lineno, node.col_offset))
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == old:
            text = lines[node.lineno - 1]
            found = re.search(rf"(?:def|class)\s+({re.escape(old)})\b", text)
            if found:
                places.add((node.lineno, len(text[: found.start(1)].encode())))
        if isinstance(node, ast.Global | ast.Nonlocal) and old in node.names:
            for row in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                for found in re.finditer(rf"\b{re.escape(old)}\b", lines[row - 1]):
                    places.add((row, len(lines[row - 1][: found.start()].encode())))
    for row, column in sorted(places, reverse=True):
        line = lines[row - 1].encode()
        after = line[column + len(old.encode()) :]
        lines[row - 1] = (line[:column] + new.encode() + after).decode()
    return "\n".join(lines)
