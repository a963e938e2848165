"""A page that shows pairs of hand-ins side by side, for somebody to look at."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from transformer_lib.errors import UserError
from transformer_lib.instructor.grading.course import Course, safe_name
from transformer_lib.instructor.grading.intake import (
    UnreadableError,
    find_notebook,
    mend,
    read_submission,
)
from transformer_lib.instructor.grading.master import read_cell
from transformer_lib.instructor.grading.nbgrader_plugin import released_from
from transformer_lib.instructor.likeness.comparison import STANDS_OUT, Pair, compare
from transformer_lib.instructor.likeness.traits import Work, as_seen, marked_code, marked_words
from transformer_lib.pages import write_page
from transformer_lib.shown import plain

LEAST = 5  # hand-ins; with fewer there is no usual likeness
MOST = 40  # pairs that a page shows with their answers; of others it has the names


def write_likeness(
    course: Course, assignment: str, target: Path, earlier: Sequence[Path] = ()
) -> list[Pair]:
    """Write the page; returns the pairs that stand out.

    Args:
        earlier: folders like ``submitted``, of other cohorts.

    Raises:
        UserError: fewer than five have handed in, or a folder of an earlier cohort has nothing.
    """
    works = list(read_works(course, assignment, course.folder / "submitted"))
    if len(works) < LEAST:
        raise UserError(
            f"{len(works)} hand-ins of {assignment} have answers: too few to say what is usual"
        )
    others: list[Work] = []
    for number, folder in enumerate(earlier, start=1):
        found = list(read_works(course, assignment, folder, f"cohort {number}: "))
        if not found:
            raise UserError(f"{folder} has no hand-ins STUDENT/{assignment}/…")
        others += found
    released = given_in(map(released_from, course.masters(assignment).values()))
    given = "\n".join(released.code.values())
    pairs = compare(works, released, others)
    out = [pair for pair in pairs if pair.stands_out]
    content = {
        "assignment": assignment,
        "hand_ins": len(works),
        "earlier": len(others),
        "compared": len(pairs),
        "least": STANDS_OUT,
        "pairs": [
            (number, pair, list(_answers(pair, given)))
            for number, pair in enumerate(out[:MOST], start=1)
        ],
        "others": out[MOST:],
    }
    write_page(target, "transformer_lib.instructor.likeness", "likeness.html", content)
    return out


def read_works(course: Course, assignment: str, folder: Path, prefix: str = "") -> Iterator[Work]:
    """What students wrote, from ``folder/STUDENT/ASSIGNMENT``; who changed nothing is left out."""
    masters = course.masters(assignment).values()
    people = sorted(folder.iterdir()) if folder.is_dir() else []
    for person in people:
        work = Work(prefix + safe_name(person.name), {}, {})
        answered = 0
        for master in masters:
            template = released_from(master)
            path, _ = find_notebook(person / assignment, master.stem, template)
            if path is None:
                continue
            try:
                intake = mend(read_submission(path), template)
            except UnreadableError:
                continue
            answered += intake.answered
            _add(work, intake.notebook, template)
        if answered:
            yield work


def _add(work: Work, notebook: NotebookNode, template: NotebookNode) -> None:
    """The answers that are not as released, and the student's own cells."""
    known = {cell.source for cell in template.cells}
    for node in notebook.cells:
        cell = read_cell(node)
        if node.source.strip() and node.source not in known:
            kind = work.code if cell.kind == "code" else work.words
            kind[cell.grade_id or node.get("id", "")] = node.source


def given_in(notebooks: Iterable[NotebookNode]) -> Work:
    """What everybody got: all cells of these."""
    work = Work("released", {}, {})
    cells = itertools.chain.from_iterable(notebook.cells for notebook in notebooks)
    for number, cell in enumerate(cells):
        kind = work.code if cell.cell_type == "code" else work.words
        kind[str(number)] = cell.source
    return work


def _answers(pair: Pair, given: str) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Each answer of both, in pieces that are marked where the other has the same.

    Args:
        given: the code that was released.
    """
    for name in (name for name in pair.a.code if name in pair.b.code):
        a, b = (plain(as_seen(one.code[name])) for one in (pair.a, pair.b))
        yield name, marked_code(a, b, given), marked_code(b, a, given)
    for name in (name for name in pair.a.words if name in pair.b.words):
        a, b = (plain(as_seen(one.words[name])) for one in (pair.a, pair.b))
        yield name, marked_words(a, b), marked_words(b, a)
