"""From a verdict to the student's own module, and from there back into a notebook."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from transformer_lib.course.chapters import order
from transformer_lib.course.checks import EXERCISES, Verdict, check, find_exercise
from transformer_lib.course.own import module
from transformer_lib.course.own.record import Done, note_try, read_record
from transformer_lib.course.own.source import NotKeptError, Part, definitions, part_from
from transformer_lib.errors import UserError

KEPT_BEFORE = f"the one that passed before is still in {module.NAME}.py"


def own_file() -> Path:
    """The student's module: beside the notebook that is open."""
    return Path.cwd() / f"{module.NAME}.py"


def mine(name: str) -> Callable[..., Any]:
    """What the student has written for an exercise, or the course's where there is nothing yet.

    A line says which. A file that does not run is left alone, and the line says what is wrong.

    Raises:
        ValueError: there is no such exercise, or no chapter has it.
    """
    reference = find_exercise(name).reference
    if name not in order():
        raise ValueError(f"{name} is not an exercise of a chapter, so there is none to lend")
    path = own_file()
    try:
        own: Any = getattr(module.load(path), name, None) if path.exists() else None
    except Exception as error:
        print(f"{name}: the course's; {module.why_it_does_not_run(path, error)}")
        return reference
    if getattr(own, "__module__", None) != module.NAME:  # nothing, or what the file imports
        passed = read_record(path.parent).get(name, Done()).passed
        is_lost = f"; yours passed, but is not in {path.name}: run its cell again"
        print(f"{name}: the course's{is_lost if passed else ', until yours passes its check'}")
        return reference
    print(f"{name}: yours, from {path.name}")
    return own


def remember(verdict: Verdict, candidate: Any = None) -> Verdict:
    """Count a try, and keep what passed; the verdict comes back with a line that says so.

    Outside of a notebook nothing is kept, and neither is a task of an assignment.

    Args:
        candidate: what was judged; the course's own answer and one that is kept are no tries.
    """
    notebook = _notebook()
    if notebook is None or verdict.exercise not in order():
        return verdict
    exercise = EXERCISES.get(verdict.exercise)
    if exercise is not None and candidate is exercise.reference:
        return replace(verdict, notes=(*verdict.notes, "this is the course's; write your own"))
    if getattr(candidate, "__module__", None) == module.NAME:
        return replace(verdict, notes=(*verdict.notes, f"this is the one in {module.NAME}.py"))
    if not verdict.attempted:
        kept = verdict.exercise in _own_parts()
        return replace(verdict, notes=(KEPT_BEFORE,)) if kept else verdict
    try:
        note_try(own_file().parent, verdict.exercise, passed=verdict.passed)
        said = _kept(verdict, *notebook) if verdict.passed else ""
    except (NotKeptError, UserError, OSError) as error:
        said = f"not kept: {error}"
    return replace(verdict, notes=(*verdict.notes, said)) if said else verdict


def _kept(verdict: Verdict, cells: list[str], names: dict[str, Any]) -> str:
    if verdict.exercise not in EXERCISES:
        return ""
    elsewhere, path = _not_of_cells(names), own_file()
    with module.one_at_a_time(path):
        try:
            return _write(part_from(verdict.exercise, cells, elsewhere), path, verdict.seed)
        except NotKeptError:
            # Perhaps a helper has the name of an exercise, and does something else.
            of_cells = {x for x in elsewhere if getattr(names[x], "__module__", "") == "__main__"}
            if not of_cells - {verdict.exercise}:
                raise
            left = {name: line for name, line in elsewhere.items() if name not in of_cells}
            return _write(part_from(verdict.exercise, cells, left), path, verdict.seed)


def _write(part: Part, path: Path, seed: int | None) -> str:
    """Keep a part that passes its check in the file, too; a broken older file goes aside."""
    broken, aside = None, ""
    try:
        own = module.read(path)
        if path.exists():
            module.load(path)
    except UserError:
        raise
    except Exception as error:
        broken, own = module.free_name(path), module.what_still_runs(module.text_of(path), path)
        aside = f"; {module.why_it_does_not_run(path, error)}, so the old file is now {broken.name}"
        lost = [name for name in module.RULE.findall(module.text_of(path)) if name not in own.parts]
        aside += f"; {len(own.parts)} of its parts were taken over"
        aside += f", but not {', '.join(lost)}" if lost else ""
    before = str(own)
    changed = {part.name, *definitions(own.parts.get(part.name, ""))}
    own.keep(part, order())
    try:
        now = module.run(str(own), path)
    except Exception as error:
        reason = module.why_it_does_not_run(path, error)
        raise NotKeptError(f"with what else it needs, {reason}") from error
    alone = check(getattr(now, part.name), part.name, seed, diagnose=False)
    if not alone.passed:
        raise NotKeptError(
            "on its own, without the other cells of the notebook, it does not pass "
            f"({alone.summary})"
        )
    failing = [x for x in own.built_on(changed) if x in EXERCISES and not _passes(now, x, seed)]
    earlier = module.run(before, path) if failing else now
    if worse := [name for name in failing if _passes(earlier, name, seed)]:
        raise NotKeptError(
            f"{', '.join(worse)} in {path.name}, which {'use' if worse[1:] else 'uses'} it, would "
            "no longer pass: make it work for both, or write that one without it"
        )
    if broken:
        shutil.copyfile(path, broken)
    module.write(path, own)
    module.load(path)
    needs = sorted(module.packages(part.imports))
    needed = f", which now needs {', '.join(needs)}" if needs else ""
    return f"kept in {path.name}{needed}{aside}"


def _passes(own: ModuleType, name: str, seed: int | None) -> bool:
    return hasattr(own, name) and check(getattr(own, name), name, seed, diagnose=False).passed


def _notebook() -> tuple[list[str], dict[str, Any]] | None:
    """The cells that were run and the names that they left, where this is a notebook."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython

    shell = get_ipython()
    if shell is None:
        return None
    return list(shell.history_manager.input_hist_parsed), shell.user_ns


def _not_of_cells(names: dict[str, Any]) -> dict[str, str]:
    """Names that are parts of the student's file, or what the course has in their place.

    An answer in a cell that has not passed is not copied into another part: there it
    would stay when a better one has passed.
    """
    own, found = _own_parts(), {}
    for name, value in names.items():
        home = getattr(value, "__module__", None)
        if home == module.NAME and name == getattr(value, "__name__", None):  # not an instance
            found[name] = ""
        elif name in EXERCISES and (home == "__main__" or value is EXERCISES[name].reference):
            there = EXERCISES[name].reference.__module__
            found[name] = "" if name in own else f"from {there} import {name}"
    return found


def _own_parts() -> set[str]:
    try:
        return set(module.read(own_file()).parts)
    except (SyntaxError, UserError):
        return set()
