"""``my_transformer.py``: the parts that a student has written, as a module of plain Python.

The file is the student's. It can be read, run without the course once nothing in it comes from
there, and edited by hand; what is not a part stays as it is.
"""

import ast
import linecache
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from filelock import FileLock, Timeout

from transformer_lib.course.own.source import (
    Part,
    definitions,
    imports_of,
    lines_of,
    names_needed,
    names_needed_at_once,
    renamed,
)
from transformer_lib.errors import UserError
from transformer_lib.files import write_text

NAME = "my_transformer"
LOCK_SECONDS = 10
HEAD = '"""My Transformer: what I wrote in the course, each part as it passed its check."""'
RULE = re.compile(r"^# -{4} (\w+) -{4,}$", re.MULTILINE)


@dataclass
class OwnModule:
    """The file, read: what is above the parts, the imports, each part's code, and what is below.

    What a student wrote between two parts goes with the one above; what is below the last one stays
    at the end.
    """

    head: str = HEAD
    imports: list[str] = field(default_factory=list)
    parts: dict[str, str] = field(default_factory=dict)
    below: dict[str, str] = field(default_factory=dict)
    tail: str = ""

    @property
    def own(self) -> list[str]:
        """What is no part: the student's alone."""
        return [self.head, *self.below.values(), self.tail]

    def keep(self, part: Part, order: list[str]) -> None:
        """Add a part, or put it in the place of an older one; ``order`` is that of the course."""
        place = {name: number for number, name in enumerate(order)}
        code, imports, done = part.code, list(part.imports), {part.name}
        for number, line in enumerate(imports):
            name = _bound(line)
            there = next((other for other in self.imports if _is_same_import(line, other)), None)
            if there is not None:
                imports[number] = there
                continue
            if name in place and line.startswith("from transformer_lib."):
                continue  # lent by the course, until there is a part of that name
            if name in place or self._means_something_else(name, line, part.name):
                imports[number] = _as(line, f"{name}_of_{part.name}")
                if imports[number] != line:
                    code = renamed(code, name, f"{name}_of_{part.name}")
        while names := [  # anew each time: a helper that uses another one is changed with it
            name
            for name, helper in definitions(code).items()
            if name not in done
            and (name in place or self._means_something_else(name, helper, part.name))
        ]:
            code = renamed(code, names[0], f"{names[0]}_of_{part.name}")
            done.add(names[0])
        self.parts[part.name] = code
        self._sort(place)
        self.imports = sorted({*self.imports, *imports}, key=_by_module)
        self._drop_unused_imports()

    def _sort(self, place: Mapping[str, int]) -> None:
        """In the order of the course; but what one needs when the file is run comes before it."""
        left = sorted(self.parts, key=lambda name: place.get(name, len(place)))
        needs = {
            name: names_needed_at_once(f"{self.parts[name]}\n\n{self.below.get(name, '')}")
            for name in left
        }
        done: list[str] = []
        while left:
            free = (name for name in left if not needs[name] & (set(left) - {name}))
            done.append(next(free, left[0]))
            left.remove(done[-1])
        self.parts = {name: self.parts[name] for name in done}

    def built_on(self, names: set[str]) -> list[str]:
        """The parts that use any of these names of another part."""
        return [part for part, code in self.parts.items() if names_needed(code) & names - {part}]

    def _means_something_else(self, name: str, statement: str, of: str) -> bool:
        """Whether another part, the head or an import has this name for something else."""
        others = [definitions(code) for part, code in self.parts.items() if part != of]
        others += [*map(definitions, self.own), {_bound(line): line for line in self.imports}]
        return any(other.get(name, statement) != statement for other in others)

    def _drop_unused_imports(self) -> None:
        """Those that nothing uses, and those of what is now a part of one's own."""
        used = set().union(*map(names_needed, [*self.own, *self.parts.values()])) - set(self.parts)
        self.imports = [line for line in self.imports if _bound(line) in used]

    def __str__(self) -> str:
        above = [self.head.strip(), "\n".join(self.imports)]
        parts = []
        for name, code in self.parts.items():
            parts.append(f"\n{f'# ---- {name} '.ljust(80, '-')}\n{code.strip()}")
            parts += [f"\n{self.below[name]}"] if name in self.below else []
        tail = f"\n{self.tail}" if self.tail else ""
        return "\n\n".join(filter(None, [*above, *parts, tail])) + "\n"


def parse(text: str) -> OwnModule:
    """Read the text of the file.

    Raises:
        SyntaxError: it is not Python.
    """
    ast.parse(text)
    head, *rest = RULE.split(text)
    lines = lines_of(head)
    imports = []
    for node in ast.parse(head).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports += [line for _, line in imports_of(node)]
            for row in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[row] = ""
    parts: dict[str, str] = {}
    below: dict[str, str] = {}
    for name, code in zip(rest[::2], rest[1::2], strict=True):
        again = [parts[name], below[name]] if name in parts else []  # two of one name
        parts[name], below[name] = _split("\n\n".join([*again, code]), name)
    tail = below.pop(rest[-2]) if rest else ""
    below = {name: text for name, text in below.items() if text}
    return OwnModule("\n".join(lines).strip() or HEAD, imports, parts, below, tail)


def _split(code: str, name: str) -> tuple[str, str]:
    """A part, which ends with what it is named after, and what the student wrote below it."""
    ends = [
        node.end_lineno
        for node in ast.parse(code).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
    ]
    lines = lines_of(code)
    end = ends[-1] if ends else len(lines)
    return "\n".join(lines[:end]).strip(), "\n".join(lines[end:]).strip()


def what_still_runs(text: str, path: Path) -> OwnModule:
    """The parts of a broken file that run; a call between them that does not is left out."""
    head, *rest = RULE.split(text)
    names: dict[str, Any] = {"__name__": NAME}
    whole = [_that_runs(head, names, only_calls=False) or HEAD]
    for name, code in zip(rest[::2], rest[1::2], strict=True):
        if kept := _that_runs(code, names, only_calls=True):
            whole.append(f"# ---- {name} ----\n{kept}")
    try:
        saved = parse("\n".join(whole))
        run(str(saved), path)
    except Exception:  # whatever running it raises
        return OwnModule()
    return saved


def _that_runs(code: str, names: dict[str, Any], only_calls: bool) -> str:
    """Some code without the statements that fail; with ``only_calls``, none if others do."""
    try:
        body = ast.parse(code).body
    except SyntaxError:
        return ""
    kept, lines = [], lines_of(code)
    for node in body:
        first = min([node.lineno, *(x.lineno for x in getattr(node, "decorator_list", []))])
        source = "\n".join(lines[first - 1 : node.end_lineno])
        try:
            exec(compile(source, "<a part>", "exec"), names)
        except Exception:  # whatever it raises
            if only_calls and not isinstance(node, ast.Expr):
                return ""
        else:
            kept.append(source)
    return code if len(kept) == len(body) else "\n".join(kept)


def read(path: Path) -> OwnModule:
    """Raises SyntaxError where the file is not Python, UserError where it cannot be read."""
    return parse(text_of(path)) if path.exists() else OwnModule()


def text_of(path: Path) -> str:
    """The text of a file; UserError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error


def write(path: Path, module: OwnModule) -> None:
    write_text(path, str(module))


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """One notebook at a time changes a file of the student's; others wait here.

    Raises:
        UserError: the folder cannot be written, or another notebook does not let go.
    """
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(timeout=LOCK_SECONDS)
    except (OSError, Timeout) as error:
        raise UserError(f"cannot write {path}: {error}") from error
    try:
        yield
    finally:
        lock.release()


_loaded: dict[Path, tuple[str, ModuleType]] = {}


def load(path: Path) -> ModuleType:
    """The module of a file, run anew only when its text has changed.

    Raises:
        Exception: whatever running it raises.
    """
    text = text_of(path)
    if path not in _loaded or _loaded[path][0] != text:
        _loaded[path] = text, run(text, path)
    _quote_as(text, path)  # a text that was tried, and not kept, may have been quoted since
    sys.modules[NAME] = _loaded[path][1]
    return _loaded[path][1]


def run(text: str, path: Path) -> ModuleType:
    """Run the text of a module.

    Raises:
        Exception: whatever running it raises, and RuntimeError where it would end Python.
    """
    module = ModuleType(NAME)
    module.__file__ = str(path)
    _quote_as(text, path)
    try:
        exec(compile(text, str(path), "exec"), module.__dict__)
    except SystemExit as error:
        raise RuntimeError("exit ends Python").with_traceback(error.__traceback__) from error
    return module


def _quote_as(text: str, path: Path) -> None:
    """The lines that tracebacks quote for this file."""
    lines = [f"{line}\n" for line in lines_of(text)]
    linecache.cache[str(path)] = (len(text), None, lines, str(path))


def free_name(path: Path) -> Path:
    """Where a broken file goes: the first free one of ``name.broken1.py`` and so on."""
    number = 1
    while (free := path.with_name(f"{path.stem}.broken{number}{path.suffix}")).exists():
        number += 1
    return free


def why_it_does_not_run(path: Path, error: BaseException) -> str:
    """One line: the file, the line in it and what is wrong there."""
    if isinstance(error, UserError):
        return str(error)
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    where = f"line {line} of {path.name}" if line else path.name
    return f"{where} does not run: {type(error).__name__}: {said}".rstrip(": ")


def packages(imports: Iterable[str]) -> set[str]:
    """What must be installed for these imports, besides Python, PyTorch and the course."""
    roots = {line.split()[1].partition(".")[0] for line in imports}
    return roots - {"torch", "transformer_lib"} - sys.stdlib_module_names


def _bound(line: str) -> str:
    """The name that an import of one name binds."""
    ((name, _),) = imports_of(ast.parse(line).body[0])  # type: ignore[arg-type]
    return name


def _as(line: str, name: str) -> str:
    """The same import of one name, under another name."""
    (node,) = ast.parse(line).body
    assert isinstance(node, ast.Import | ast.ImportFrom)
    (alias,) = node.names
    if alias.asname is None and "." in alias.name:  # `import a.b` binds a, which it is not
        return line
    alias.asname = name
    return ast.unparse(node)


def _is_same_import(line: str, other: str) -> bool:
    """Whether two imports bind one name to one thing, as two ways to import ``nn`` do."""
    if line == other:
        return True
    name, is_dotted = _bound(line), _as(line, "_") == line
    if name != _bound(other) or is_dotted:
        return False
    one: dict[str, Any] = {}
    two: dict[str, Any] = {}
    try:
        exec(line, one)
        exec(other, two)
    except Exception:  # whatever an import raises
        return False
    return one[name] is two[name]


def _by_module(line: str) -> tuple[bool, str]:
    module = line.split()[1]
    return module.partition(".")[0] not in sys.stdlib_module_names, module
