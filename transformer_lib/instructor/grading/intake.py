"""What a student handed in, made into a notebook that can be graded, whatever was done to it.

Of a submission only the answers are taken, and the student's own extra cells. All the rest, order
and metadata included, comes from the released notebook.
"""

import ast
import hashlib
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from transformer_lib.instructor.grading.master import (
    HANDED_IN,
    bound_names,
    loaded_names,
    parse,
    parse_any,
)
from transformer_lib.instructor.grading.outputs import harmless, joined
from transformer_lib.shown import one_line, plain

MAX_BYTES = 20 * 2**20
MAX_SOURCE, MAX_OWN = 20_000, 200_000  # characters of a cell, and of all that students write
MAX_CELLS = 2_000
MAX_EXTRA_CELLS = 300
MAX_PARTS = 2_000_000  # lists, objects and commas of the file
MAX_REMARKS = 20
RUN_TEXT = {"exec", "eval", "compile"}  # which hide what an answer does from whoever compares
MAX_FILES = 1_000  # of a folder that are looked at to find the notebook
PICTURES = ("image/png", "image/jpeg", "image/gif")
IN_THE_TEXT = re.compile(r"\]\(data:(image/(?:png|jpeg|gif));base64,([A-Za-z0-9+/=\s]{200,})\)")
NO_ANSWER = "nothing was answered"
HAND_IN = "hand-in"  # id of the cell that says what was remarkable
REMARKS = "transformer_lib_remarks"  # in its metadata: the same as a list
UNREAD = "transformer_lib_unread"  # in its metadata: whether there was nothing to grade
PACKED = {".zip", ".rar", ".7z", ".tar", ".gz", ".tgz"}
PERSONAL = "personal"  # id of the cell with the student's name, which is filled in anew
NOBODY = "..."  # the name in it as it was released


@dataclass
class Intake:
    """A notebook in the released form, and what was remarkable about what was handed in."""

    notebook: NotebookNode
    remarks: list[str] = field(default_factory=list)
    answered: int = 0
    is_known: bool = True  # whether any of its cells is


class UnreadableError(Exception):
    """A file that is not a notebook; the message says why."""


def read_submission(path: Path) -> NotebookNode:
    """Read a notebook that anybody may have written: known fields of known types.

    What is not of these types is left out, text is made of whole characters, and there is an end to
    everything. No other place reads what a student has handed in.

    Raises:
        UnreadableError: it is a link, too large, or not a notebook.
    """
    if path.is_symlink():
        raise UnreadableError("is a link to another place")
    if path.is_dir():
        raise UnreadableError("is a folder; give the notebook in it")
    if not path.is_file():
        raise UnreadableError("is not there")
    if path.stat().st_size > MAX_BYTES:
        raise UnreadableError(f"is larger than {MAX_BYTES // 2**20} MB; clear its outputs")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError("is not UTF-8 text") from error
    if not text.strip():
        raise UnreadableError("is empty")
    try:
        return known(_parse(text))
    except (Exception, RecursionError) as error:
        raise UnreadableError("is not a notebook") from error


def _parse(text: str) -> Any:
    if sum(map(text.count, "{[,")) > MAX_PARTS:
        raise ValueError("too many parts")
    data = json.loads(text, parse_constant=lambda name: None)
    if data.get("nbformat", 4) == 3:  # of 2013; with worksheets
        return nbformat.convert(nbformat.from_dict(data), 4)
    if data.get("nbformat", 4) != 4:
        raise ValueError("another format")
    return data


def known(notebook: Any) -> NotebookNode:
    """The notebook made anew from the fields that are known and of the right type.

    Raises:
        TypeError, KeyError, AttributeError: it is none.
    """
    cells = [_known_cell(cell) for cell in notebook["cells"][:MAX_CELLS]]
    metadata = _part(notebook, "metadata", dict)
    mine = _part(metadata, "transformer_lib", dict)
    pairs = [pair for pair in _part(mine, "cells", list) if type(pair) is list and len(pair) == 2]
    kept = {
        "kernelspec": {"language": _text(_part(metadata, "kernelspec", dict).get("language"))},
        "transformer_lib": {
            "name": _text(mine.get("name")),
            "cells": [[_text(name), _text(digest)] for name, digest in pairs[:MAX_CELLS]],
            "keeps_outputs": mine.get("keeps_outputs") is True,
        },
        "left_out": max(0, len(notebook["cells"]) - MAX_CELLS),
    }
    return nbformat.from_dict(
        {"cells": cells, "metadata": kept, "nbformat": 4, "nbformat_minor": 5}
    )


def _known_cell(cell: Any) -> dict[str, Any]:
    kind = cell.get("cell_type")
    mine = _part(_part(cell, "metadata", dict), "nbgrader", dict)
    made: dict[str, Any] = {
        "cell_type": kind if kind in ("code", "markdown") else "raw",
        "id": _text(cell.get("id")),
        "source": re.sub(r"\r\n?", "\n", _text(cell.get("source"))),
        "metadata": {},
    }
    if name := _text(mine.get("grade_id")):
        flags = {flag: mine.get(flag) is True for flag in ("solution", "grade")}
        made["metadata"]["nbgrader"] = {"grade_id": name, **flags}
    if kind == "code":
        made |= {"execution_count": None, "outputs": harmless(_part(cell, "outputs", list))}
    attachments = {
        _text(name): {kind: _text(data) for kind, data in files.items() if kind in PICTURES}
        for name, files in _part(cell, "attachments", dict).items()
        if type(files) is dict
    }
    if kind == "markdown":  # Colab writes pictures into the text, which becomes too long by them

        def attached(match: re.Match[str]) -> str:
            name = f"picture-{len(attachments) + 1}"
            attachments[name] = {match[1]: match[2]}
            return f"](attachment:{name})"

        made["source"] = IN_THE_TEXT.sub(attached, made["source"])
    return made | ({"attachments": attachments} if attachments else {})


def _part(whole: Any, name: str, kind: type) -> Any:
    value = whole.get(name)
    return value if isinstance(value, kind) else kind()


def _text(value: Any) -> str:
    """Text of whole characters: half of one cannot be written."""
    return joined(value).encode("utf-8", "replace").decode()


def mend(submission: NotebookNode, released: NotebookNode) -> Intake:
    """Fill the answers of a submission, as :func:`known` makes it, into the released notebook."""
    intake = Intake(nbformat.from_dict(released))
    answers, extras = _sort_cells(submission, released, intake.remarks)
    cells: list[NotebookNode] = list(extras[None])
    before = None
    for cell in intake.notebook.cells:
        cells.append(cell)
        grade_id = _grade_id(cell)
        beside = [*extras[before], *extras[cell.id]]
        before = cell.id
        if _is_answer(cell):
            as_released = cell.source.strip()
            given = answers.get(grade_id)
            if given is not None:
                intake.answered += given.source.strip() != cell.source.strip()
                cell.source = given.source
                if cell.cell_type == "code" and loaded_names(given.source) & RUN_TEXT:
                    intake.remarks.append(f"the answer cell {grade_id} runs text as code")
                if cell.cell_type == "code" and given.cell_type == "code":
                    cell.metadata[HANDED_IN] = {"outputs": given.outputs}
                if "attachments" in given and cell.cell_type == "markdown":
                    cell.attachments = given.attachments
            elif answers:
                intake.remarks.append(f"the answer cell {grade_id} is missing")
            if cell.metadata.nbgrader.grade and cell.source.strip() == as_released:
                _answer_beside(intake, cell, beside)
        cells += extras[cell.id]
    intake.notebook.cells = cells
    if not answers:
        intake.is_known = False
        intake.remarks.append(
            "none of its cells is known: it is another notebook, or an editor has removed the "
            "metadata; look at it by hand"
        )
    if not intake.answered:
        intake.remarks.append(NO_ANSWER)
    if submission.metadata.left_out:
        intake.remarks.append(f"the last {submission.metadata.left_out:,} cells were left out")
    if submission.metadata.kernelspec.language not in ("python", ""):
        intake.remarks.append("its kernel is not Python's")
    if len(intake.remarks) > MAX_REMARKS:
        more = f"and {len(intake.remarks) - MAX_REMARKS:,} more remarks"
        intake.remarks[MAX_REMARKS:] = [more]
    return intake


def _answer_beside(intake: Intake, cell: NotebookNode, beside: list[NotebookNode]) -> None:
    """Take what a student has written next to the cell for an answer that a human grades."""
    found = [extra for extra in beside if extra.cell_type == cell.cell_type]
    if not found:
        return
    intake.answered += 1
    intake.remarks.append(f"{_grade_id(cell)} was answered in another cell, which was taken for it")
    cell.source = "\n\n".join(extra.source for extra in found)
    if cell.cell_type == "code":
        outputs = [output for e in found for output in e.metadata[HANDED_IN]["outputs"]]
        cell.metadata[HANDED_IN] = {"outputs": outputs}
    elif attachments := {k: v for e in found for k, v in e.get("attachments", {}).items()}:
        cell.attachments = attachments


def _sort_cells(
    submission: NotebookNode, released: NotebookNode, remarks: list[str]
) -> tuple[dict[str, NotebookNode], dict[Any, list[NotebookNode]]]:
    """The answers by their names, and the student's own cells by the released cell above them."""
    known = {_grade_id(cell): cell for cell in released.cells if _grade_id(cell)}
    given = dict(submission.metadata.transformer_lib.cells)
    by_id = {cell.id: cell for cell in released.cells}
    sources = {cell.source: cell for cell in released.cells}
    answers: dict[str, NotebookNode] = {}
    extras: dict[Any, list[NotebookNode]] = defaultdict(list)
    above = None
    order: list[int] = []
    count = written = 0
    for cell in submission.cells:
        if cell.source not in sources:
            written += len(cell.source)
        if len(cell.source) > MAX_SOURCE or written > MAX_OWN:
            remarks.append(f"a cell of {len(cell.source):,} characters was left out")
            continue
        cell.source = plain(cell.source.replace("\f", "\n"))
        grade_id = _grade_id(cell)
        if grade_id in known:
            above = known[grade_id]
            place = released.cells.index(above)
            order += [place] if place not in order else []
            if not _is_answer(above):
                is_old = _is_as_released(cell, given)  # the master was changed since
                if cell.source.strip() == above.source.strip() or is_old:
                    continue
                remarks.append(f"the cell {grade_id} was changed; the original counts")
                if cell.cell_type == "code":
                    continue  # a test; in a question somebody may have answered
            elif grade_id not in answers:
                answers[grade_id] = cell
                continue
            else:  # a copy, or the second half of a split one: a cell of the student's own
                remarks.append(f"the answer cell {grade_id} is there twice")
        original = None
        if grade_id not in known:
            original = sources.get(cell.source) or by_id.get(cell.get("id"))
            if original is None and _says_whose_it_is(cell):
                original = by_id.get(PERSONAL)
        if original is not None:
            above = original
            if cell.source == original.source:
                continue
            if original.id == PERSONAL:
                cell = nbformat.from_dict(  # `submission` goes on saying whose it is
                    {**cell, "source": _besides(cell.source, original.source)}
                )
        count += 1
        if cell.source.strip() and cell.cell_type in ("code", "markdown"):
            extras[above and above.id].append(_extra(cell, count))
    if order != sorted(order):
        remarks.append("cells were moved; the original order counts")
    if count > MAX_EXTRA_CELLS:
        remarks.append(f"{count} cells of the student's own were left out")
        extras.clear()
    return answers, extras


def _besides(source: str, original: str) -> str:
    """What a student has added to the cell that says whose the notebook is."""
    known = {ast.dump(statement) for statement in parse_any(original).body}
    filled_in = {"COHORT", "STUDENT", "NUMBER"}
    try:
        texts = [
            ast.get_source_segment(source, statement) or ""
            for statement in parse_any(source).body
            if ast.dump(statement) not in known
        ]
    except RecursionError:  # nested far deeper than anybody writes
        return ""
    return "\n".join(text for text in texts if not bound_names(text) & filled_in)


def _extra(cell: NotebookNode, number: int) -> NotebookNode:
    name = f"extra-{number:03d}"
    if cell.cell_type == "markdown":
        pictures = {"attachments": cell.attachments} if "attachments" in cell else {}
        return nbformat.v4.new_markdown_cell(cell.source, id=name, **pictures)
    handed_in = {HANDED_IN: {"outputs": cell.outputs}}
    return nbformat.v4.new_code_cell(cell.source, id=name, metadata=handed_in)


def _grade_id(cell: NotebookNode) -> str:
    mine = cell.metadata.get("nbgrader")
    name = mine.get("grade_id") if isinstance(mine, dict) else None
    return name if isinstance(name, str) else ""


def _is_answer(cell: NotebookNode) -> bool:
    return bool(cell.metadata.get("nbgrader", {}).get("solution"))


def find_notebook(folder: Path, name: str, released: NotebookNode) -> tuple[Path | None, list[str]]:
    """The notebook of a student's folder, under whichever name, and remarks.

    The right name wins if there is an answer in it; otherwise the notebook with the most answers.
    """
    wanted = folder / f"{name}.ipynb"
    if folder.is_symlink():
        return None, ["the folder is a link to another place"]
    is_there = wanted.exists() or wanted.is_symlink()
    others = [path for path in _files(folder) if path.suffix.lower() == ".ipynb" and path != wanted]
    counted = [(path, *_familiar(path, released, name)) for path in sorted(others)]
    found = [one for one in counted if one[1]]
    best = max(found, key=lambda one: (one[2], one[1]), default=(wanted, 0, 0))[0]
    if is_there:
        answered = [path for path, _, answers in found if answers]
        if answered and not (wanted.is_symlink() or _familiar(wanted, released, name)[1]):
            return best, [f"{wanted.name} has no answer; {best.relative_to(folder)} was taken"]
        return wanted, [
            f"{path.relative_to(folder)} has answers, too; {wanted.name} counts"
            for path in answered[:3]
        ]
    if not found:
        what = f"{len(others)} other notebooks" if others else "no notebook"
        remarks = [f"there is no {wanted.name}, and {what} in its place"]
        packed = [path.name for path in _files(folder) if path.suffix in PACKED]
        return None, remarks + [f"{name} was not unpacked" for name in packed[:3]]
    return best, [f"there is no {wanted.name}; {best.relative_to(folder)} was taken for it"]


def _files(folder: Path) -> Iterator[Path]:
    """The first files of a folder and those below; no link is followed."""
    for number, (above, folders, names) in enumerate(os.walk(folder)):
        folders[:] = sorted(name for name in folders if name != ".ipynb_checkpoints")
        yield from (Path(above, name) for name in sorted(names)[:MAX_FILES])
        if number > MAX_FILES:
            return


def _familiar(path: Path, released: NotebookNode, name: str) -> tuple[int, int]:
    """How many of a notebook's answer cells a file has, and how many are not as released.

    None of either, if it says that it is another notebook of the assignment.
    """
    try:
        notebook = read_submission(path)
    except UnreadableError:
        return 0, 0
    if notebook.metadata.transformer_lib.name not in ("", name):
        return 0, 0
    wanted = {_grade_id(cell): cell.source.strip() for cell in released.cells if _is_answer(cell)}
    there = {_grade_id(cell): cell.source.strip() for cell in notebook.cells}
    known = wanted.keys() & there.keys()
    return len(known), sum(there[name] != wanted[name] for name in known)


def verify(path: Path) -> tuple[str, bool]:
    """Whether a notebook can be graded, or what is in the way, line by line. Runs nothing of it."""
    try:
        notebook = read_submission(path)
    except UnreadableError as error:
        return one_line(f"✗ {path} {error}"), False
    mine = notebook.metadata.transformer_lib
    expected, name = dict(mine.cells), mine.name
    if not name or not expected:
        return (
            f"✗ {path} is not a notebook of an assignment of this course, or an editor has removed "
            "the metadata that says so: copy your answers into a fresh copy of the assignment",
            False,
        )
    problems = _problems(notebook, expected)
    if path.name != f"{name}.ipynb":
        problems.append(f"its name must be {name}.ipynb")
    if problems:
        return "\n".join(one_line(f"✗ {problem}") for problem in problems), False
    answers = [cell for cell in notebook.cells if _is_answer(cell)]
    names = [_grade_id(cell) for cell in answers]
    open_ones = [
        n for n, cell in zip(names, answers, strict=True) if _is_as_released(cell, expected)
    ]
    done = len(answers) - len(open_ones)
    text = f"✓ {path.name} is well-formed; {done} of {len(answers)} answers are there"
    text += f", open: {', '.join(open_ones)}" if open_ones else ""
    silent = [
        name
        for name, cell in zip(names, answers, strict=True)
        if cell.metadata.nbgrader.grade and cell.get("outputs") == [] and name not in open_ones
    ]
    if mine.keeps_outputs and silent:
        text += f"; no output: {', '.join(silent)}, which is graded as handed in: run it and save"
    student = typed_in(notebook, "STUDENT")
    if is_left_open(student):
        text += f"; STUDENT is “{student}”: write your user name, or your numbers are another's"
    return one_line(text, 4000), True


def is_left_open(name: str | None) -> bool:
    """Whether a name is as it was released, or blank."""
    return name is not None and name.strip() in ("", NOBODY)


def typed_in(notebook: NotebookNode, name: str) -> str | None:
    """The text that the cell which says whose it is assigns to a name; None without such a line."""
    source = next((cell.source for cell in notebook.cells if _says_whose_it_is(cell)), "")
    try:
        statements = parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for one in statements:
        match one:
            case ast.Assign(targets=[ast.Name(target)], value=ast.Constant(value=str(text))):
                if target == name:
                    return text
    return None


def _says_whose_it_is(cell: NotebookNode) -> bool:
    """By its id, which some programs do not keep, or else by what it assigns."""
    names = {"COHORT", "STUDENT"}
    return cell.get("id") == PERSONAL or (
        cell.cell_type == "code" and names <= set(re.findall(r"^([A-Z]+) = ", cell.source, re.M))
    )


def _problems(notebook: NotebookNode, expected: dict[str, str]) -> list[str]:
    problems = []
    there = [_grade_id(cell) for cell in notebook.cells if _grade_id(cell)]
    problems += [f"the cell {name} is missing" for name in expected if name not in there]
    problems += [f"the cell {name} is there twice" for name in expected if there.count(name) > 1]
    if [name for name in there if name in expected] != [n for n in expected if n in there]:
        problems.append("cells were moved")
    for cell in notebook.cells:
        if len(cell.source) > MAX_SOURCE:
            problems.append(f"a cell has {len(cell.source):,} characters, more than {MAX_SOURCE:,}")
        if _is_answer(cell) and cell.cell_type == "code":
            try:
                parse(cell.source)
            except SyntaxError as error:
                problems.append(f"{_grade_id(cell)}, line {error.lineno}: {error.msg}")
            except (ValueError, RecursionError, MemoryError) as error:
                problems.append(f"{_grade_id(cell)} is not Python: {error}")
        elif _grade_id(cell) and not _is_answer(cell) and not _is_as_released(cell, expected):
            problems.append(f"the cell {_grade_id(cell)} was changed; take it from a fresh copy")
    return problems


def source_digest(source: str) -> str:
    """What tells whether a cell is as it was released."""
    return hashlib.sha256(source.strip().encode()).hexdigest()[:16]


def _is_as_released(cell: NotebookNode, expected: dict[str, str]) -> bool:
    return expected.get(_grade_id(cell)) == source_digest(cell.source)
