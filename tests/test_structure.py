"""The rooms of the library: who may import whom, and that no name hides a module."""

import ast
import importlib.util
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import WITH_SHAPES

import transformer_lib

PACKAGE = Path(transformer_lib.__file__).parent
# From the ground up: each may import what stands above it in this list, and its own.
FLOORS = [
    {"errors", "vocabulary", "randomness", "options", "personal", "shown"},
    {"device", "files", "progress"},
    {"timing", "pages"},
    {"plots", "metrics", "model"},
    {"data"},
    {"decoding"},
    {"training"},
    {"experiment"},
    {"evaluation", "export", "leaderboard"},
    {"course"},
    {"checks"},
    {"instructor"},
    {"cli"},
    {"__main__", "__init__"},
]
FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names}


def imports_of(path):
    """(line, dotted name) of everything of this package that a file imports, wherever it does."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module, [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, []


def room_of(path):
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def arrows():
    for path in sorted(PACKAGE.rglob("*.py")):
        for line, module, names in imports_of(path):
            head, *rest = module.split(".")
            if head != "transformer_lib":
                continue
            targets = [rest[0]] if rest else [n for n in names if n in FLOOR]
            for target in targets:
                yield path, line, room_of(path), target


def test_every_room_has_a_floor():
    rooms = {room_of(path) for path in PACKAGE.rglob("*.py")}
    assert rooms == set(FLOOR)


def test_imports_point_one_way():
    wrong = [
        f"{path.relative_to(PACKAGE.parent)}:{line}: {room} must not import {target}"
        for path, line, room, target in arrows()
        if room != "__init__"  # its parts are imported when they are asked for
        and room != target
        and FLOOR[target] >= FLOOR[room]
    ]
    assert not wrong, "\n".join(wrong)


def test_no_cycle_inside_a_room():
    graph = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        graph[name.removesuffix(".__init__")] = path
    edges = {name: set() for name in graph}
    for name, path in graph.items():
        for _, module, names in imports_of(path):
            found = {f"{module}.{n}" for n in names} & graph.keys()
            edges[name] |= found or ({module} & graph.keys())

    def is_package(name):
        return graph[name].name == "__init__.py"

    seen, stack = {}, []

    def visit(name):
        if seen.get(name) == "open":
            cycle = [*stack[stack.index(name) :], name]
            raise AssertionError(" → ".join(cycle))
        if name in seen:
            return
        seen[name] = "open"
        stack.append(name)
        for target in sorted(edges[name]):
            if not is_package(target):  # a package's __init__ lists what it has
                visit(target)
        stack.pop()
        seen[name] = "done"

    for name in graph:
        if not is_package(name):
            visit(name)


def test_no_exported_function_hides_its_module():
    for info in pkgutil.walk_packages([str(PACKAGE)], "transformer_lib."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        parent = sys.modules[info.name.rpartition(".")[0]]
        assert getattr(parent, info.name.rpartition(".")[2]) is module, info.name


@pytest.mark.parametrize("folder", ["scripts", "benchmarks", "browser_tests"])
def test_programs_beside_the_package_import_what_there_is(folder):
    """Nothing else runs them all: what is renamed in the package would be missed there."""
    for path in sorted((PACKAGE.parent / folder).glob("*.py")):
        for line, module, names in imports_of(path):
            if module.partition(".")[0] == "transformer_lib":
                there = importlib.import_module(module)
                for name in names:
                    known = hasattr(there, name) or importlib.util.find_spec(f"{module}.{name}")
                    assert known, f"{path.name}:{line}: {module} has no {name}"


@pytest.mark.parametrize("name", transformer_lib.__all__)
def test_the_package_has_what_it_promises(name):
    assert getattr(transformer_lib, name).__name__ == name


def test_importing_the_package_does_not_import_torch():
    program = "import sys, transformer_lib; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "False\n"
    program = "import sys, transformer_lib.cli; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "False\n"


def test_shapes_in_signatures_are_checked():
    """Every module whose signatures have shapes is one that conftest.py has checked."""
    for path in PACKAGE.rglob("*.py"):
        if "jaxtyping" in {module.partition(".")[0] for _, module, _ in imports_of(path)}:
            name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
            assert name.startswith(WITH_SHAPES), f"{name}: add it to WITH_SHAPES in conftest.py"
