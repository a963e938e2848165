"""Results on disk, a file for each student, so that a grading that was stopped can go on."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from transformer_lib.files import write_text
from transformer_lib.instructor.grading.judge import Judge, Result
from transformer_lib.instructor.grading.master import Cell, Master, make_master, read_cell
from transformer_lib.instructor.grading.sandbox import Isolation


def cells_to_judge(notebook: NotebookNode) -> list[Cell]:
    """The cells of a mended notebook. Of locked ones only the place counts: the master has them."""
    cells = [read_cell(node) for node in notebook.cells]
    return [replace(c, source="") if c.grade_id and not c.is_solution else c for c in cells]


class StoredResult:
    """The file of one student's result for one notebook.

    It says also whether the result is in the gradebook: a grading may be stopped in between.
    """

    def __init__(self, folder: Path, assignment: str, notebook: str, student: str):
        self.path = folder / assignment / notebook / f"{student}.json"

    def _load(self) -> dict[str, Any]:
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}

    def read(self, key: str | None = None) -> Result | None:
        """The result, if there is one, and if it is for this key."""
        data = self._load()
        if not data or key not in (None, data.get("key")):
            return None
        try:
            return Result.from_json(data["result"])
        except (KeyError, TypeError, ValueError, AttributeError):
            return None  # damaged, or of another version: graded again

    def is_entered(self, key: str) -> bool:
        """Whether the result for this key is in the gradebook."""
        data = self._load()
        return data.get("key") == key and bool(data.get("entered"))

    def write(self, key: str, result: Result, entered: bool = False) -> None:
        data = {"key": key, "entered": entered, "result": asdict(result)}
        write_text(self.path, json.dumps(data))


def result_key(master: Master, cells: Sequence[Cell]) -> str:
    """The same for the same submission under the same tests."""
    return hashlib.sha256(repr((master.digest, list(cells))).encode()).hexdigest()


_JUDGES: dict[tuple[str, Isolation], Judge] = {}


def judge_for(master: Master, isolation: Isolation, seed: int | None = None) -> Judge:
    """This process's judge for an assignment; its sandbox stays warm between students and runs."""
    key = (master.digest, isolation)
    if key not in _JUDGES:
        for judge in _JUDGES.values():
            judge.close()
        _JUDGES.clear()
        _JUDGES[key] = Judge(master, isolation=isolation)
    _JUDGES[key].draw_anew(seed)
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
