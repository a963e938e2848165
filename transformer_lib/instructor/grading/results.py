"""Results on disk, a file for each student, so that a grading that was stopped can go on."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from nbformat import NotebookNode

from transformer_lib.files import write_text
from transformer_lib.instructor.grading.judge import Judge, Result
from transformer_lib.instructor.grading.master import (
    HANDED_IN,
    Cell,
    Master,
    as_handed_in,
    make_master,
    read_cell,
)
from transformer_lib.instructor.grading.sandbox import Isolation


def cells_to_judge(notebook: NotebookNode) -> list[Cell]:
    """The cells of a mended notebook. Of locked ones only the place counts: the master has them."""
    cells = [read_cell(node) for node in notebook.cells]
    return [replace(c, source="") if c.grade_id and not c.is_solution else c for c in cells]


class Key(NamedTuple):
    """Which work, under which tests.

    Args:
        cells: digest of the submission's cells, and of what is shown of them as it was handed in.
        tests: for each test cell a digest of it and of all else in the master that it may use.
    """

    cells: str
    tests: dict[str, str]

    def is_of(self, data: Mapping[str, Any]) -> bool:
        return all(data.get(name) == value for name, value in self._asdict().items())


def result_key(master: Master, notebook: NotebookNode) -> Key:
    """The same for the same submission, a mended notebook, under the same tests."""
    numbered = enumerate(master.cells)
    tests = {c.grade_id: _digest((master.given, n, c)) for n, c in numbered if c.is_test}
    cells = cells_to_judge(notebook)
    kept = as_handed_in(cells, master.keeps_outputs)
    shown = [
        (node.get("attachments"), node.metadata.get(HANDED_IN) if number in kept else None)
        for number, node in enumerate(notebook.cells)
    ]
    return Key(_digest((cells, json.dumps(shown, sort_keys=True))), tests)


def _digest(content: Any) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()


class StoredResult:
    """The file of one student's result for one notebook.

    It says also under which tests each one's points came, since one alone may have been graded
    again, and whether they are in the gradebook: a grading may be stopped in between.
    """

    def __init__(self, folder: Path, assignment: str, notebook: str, student: str):
        self.path = folder / assignment / notebook / f"{student}.json"

    def _load(self) -> dict[str, Any]:
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}

    def read(self, key: Key | None = None) -> Result | None:
        """The result, if there is one, and if it is for this key."""
        data = self._load()
        if "judged" not in data or (key is not None and not key.is_of(data)):
            return None
        try:
            return Result.from_json(data["result"])
        except (KeyError, TypeError, ValueError, AttributeError):
            return None  # damaged, or of another version: graded again

    def is_whole(self, key: Key) -> bool:
        """Whether all of its points came under the tests of this key."""
        return self._load().get("judged") == key.tests

    def is_entered(self, key: Key) -> bool:
        """Whether the result for this key is in the gradebook."""
        data = self._load()
        return key.is_of(data) and bool(data.get("entered"))

    def write(self, key: Key, result: Result) -> None:
        """Keep a result. It is not in the gradebook yet."""
        self._write(key, result, key.tests)

    def write_test(self, key: Key, result: Result, test: str) -> Result:
        """Of an earlier result for the same work, change this test alone; returns what is kept."""
        data, earlier = self._load(), self.read()
        if earlier is None or data.get("cells") != key.cells:
            self.write(key, result)
            return result
        there = [test] if test in result.tests else []  # or it is another notebook's
        merged = replace(result, tests=earlier.tests | {name: result.tests[name] for name in there})
        self._write(key, merged, data["judged"] | {name: key.tests[name] for name in there})
        return merged

    def _write(self, key: Key, result: Result, judged: Mapping[str, str]) -> None:
        kept = {"judged": judged, "entered": False, "result": asdict(result)}
        write_text(self.path, json.dumps(key._asdict() | kept))

    def mark_entered(self) -> None:
        """Its points are in the gradebook now."""
        write_text(self.path, json.dumps(self._load() | {"entered": True}))


_JUDGES: dict[tuple[str, Isolation], Judge] = {}


def judge_for(master: Master, isolation: Isolation, seed: int | None = None) -> Judge:
    """This process's judge for an assignment; its sandbox stays warm between students and runs."""
    key = (master.digest, isolation)
    if key not in _JUDGES:
        for judge in _JUDGES.values():
            judge.close()
        _JUDGES.clear()
        _JUDGES[key] = Judge(master, isolation)
    if seed is not None:
        _JUDGES[key].seed = seed
    return _JUDGES[key]


def judge_cells(
    master: dict[str, Any], cells: list[dict[str, Any]], seed: int, isolation: Isolation
) -> dict[str, Any]:
    """Judge one submission: plain data in, plain data out, for any executor.

    Args:
        master: the master notebook's JSON.
        cells: the fields of the submission's cells.
    """
    judge = judge_for(make_master(nbformat.from_dict(master)), isolation, seed)
    return asdict(judge.judge([Cell(**cell) for cell in cells]))
