"""A page about a class: points, how hard each item was, what went wrong, who is late or absent."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from statistics import fmean, median
from typing import Any

import nbformat
import numpy as np
from matplotlib.ticker import MaxNLocator

from transformer_lib.course.misconceptions.bank import bank
from transformer_lib.errors import UserError
from transformer_lib.instructor.grading.course import Course
from transformer_lib.instructor.grading.intake import NO_ANSWER, REMARKS
from transformer_lib.instructor.grading.judge import Result
from transformer_lib.instructor.grading.late import LatePolicy
from transformer_lib.instructor.grading.master import load_master
from transformer_lib.instructor.grading.results import StoredResult
from transformer_lib.instructor.grading.table import time_notes
from transformer_lib.instructor.grading.term import (
    Standings,
    item_name,
    policy_of,
    shown,
    standings,
)
from transformer_lib.pages import write_page
from transformer_lib.plots.measurements import counts, histogram
from transformer_lib.plots.notebook import as_data_uri

NORMAL = 1.96  # standard deviations to each side of an interval of 95%


@dataclass(frozen=True)
class Item:
    """How one graded cell did with the class.

    Args:
        ease: mean share of the points that was reached: 1 is easy; None where all wait.
        discrimination: correlation, over students, of its points with those of the other items for
            which nobody waits; None where one of them is the same for everybody.
        interval: of 95% around the discrimination, by Fisher's transformation.
        waiting: how many answers have no points yet; they are left out.
    """

    name: str
    max_points: float
    ease: float | None
    discrimination: float | None
    interval: tuple[float, float] | None
    waiting: int


@dataclass(frozen=True)
class Mistake:
    """A known mistake, and how many students' answers behave like it."""

    id: str
    title: str
    students: int


@dataclass(frozen=True)
class ClassReport:
    """What the page shows."""

    now: Standings
    items: list[Item]
    mistakes: list[Mistake]
    mistakes_of: dict[str, list[str]]
    remarks: list[tuple[str, str, str]]
    unshielded: int

    def write_html(self, path: Path, policy: LatePolicy) -> None:
        """One self-contained file: figures are inside, nothing is loaded from elsewhere."""
        content = self._content() | {"policy": policy, "shown": shown, "time_notes": time_notes}
        write_page(path, "transformer_lib.instructor.grading", "report.html", content)

    def _content(self) -> dict[str, Any]:
        values = [one.points for one in self.now.handed_in]
        most = max(self.now.max_points, *values)  # extra points may be above the maximum
        edges = np.linspace(0.0, most, 23).tolist()
        spread = histogram(values, ("points", "students"), median(values), edges)
        spread.axes[0].yaxis.set_major_locator(MaxNLocator(integer=True))
        frequent = {f"{one.id}: {one.title}": one.students for one in self.mistakes[11::-1]}
        return {
            "report": self,
            "mean": fmean(values),
            "median": median(values),
            "late": sum(one.seconds_late > 0 for one in self.now.handed_in),
            "waiting": sum(one.waiting > 0 for one in self.now.handed_in),
            "spread": as_data_uri(spread),
            "mistakes": as_data_uri(counts(frequent, "students")) if frequent else None,
        }


def write_report(course: Course, assignment: str, target: Path) -> ClassReport:
    """Make the page from the gradebook and the results of the latest grading.

    Raises:
        UserError: nothing was graded yet.
    """
    masters = course.masters(assignment)
    order = [
        item_name(cell.grade_id, notebook, len(masters))
        for notebook, path in masters.items()
        for cell in load_master(path).cells
        if cell.is_grade
    ]
    report = make_report(
        standings(course, assignment),
        order,
        read_results(course, assignment),
        list(_of_hand_ins(course, assignment)),
    )
    report.write_html(target, policy_of(course))
    return report


def read_results(course: Course, assignment: str) -> dict[str, dict[str, Result]]:
    """The results of each student, by the names of the assignment's notebooks."""
    found: dict[str, dict[str, Result]] = {}
    for notebook in course.masters(assignment):
        for student in course.hand_ins(assignment):
            stored = StoredResult(course.results, assignment, notebook, student)
            if result := stored.read():
                found.setdefault(student, {})[notebook] = result
    return found


def _of_hand_ins(course: Course, assignment: str) -> Iterator[tuple[str, str, str]]:
    """Student, notebook and each remark on what was handed in, but that nothing was answered."""
    masters = course.masters(assignment)
    for student in course.hand_ins(assignment):
        for notebook in masters:
            path = course.taken_in / student / assignment / f"{notebook}.ipynb"
            if not path.is_file():
                continue
            for cell in nbformat.read(path, as_version=4).cells:
                for remark in cell.metadata.get(REMARKS, ()):
                    if remark != NO_ANSWER:
                        yield student, notebook, remark


def make_report(
    now: Standings,
    order: Sequence[str],
    results: Mapping[str, Mapping[str, Result]],
    remarks: Sequence[tuple[str, str, str]] = (),
) -> ClassReport:
    """From where everybody stands and what the tests found. Items worth nothing are left out.

    Args:
        order: of the items on the page.
        results: of each student, by notebook.
        remarks: student, notebook, and what was remarkable about what was handed in.

    Raises:
        UserError: nothing was graded yet.
    """
    if not results or not now.handed_in:
        raise UserError(f"{now.assignment} was not graded yet: transformer-lib grade …")
    tests = {
        student: {
            item_name(name, notebook, len(mine)): test
            for notebook, result in mine.items()
            for name, test in result.tests.items()
        }
        for student, mine in results.items()
    }
    mistakes_of = {
        student: sorted({mistake for test in mine.values() for mistake in test.mistakes})
        for student, mine in tests.items()
    }
    titles = {mistake.id: mistake.title for mistake in bank()}
    frequent = Counter(mistake for mine in mistakes_of.values() for mistake in mine)
    return ClassReport(
        now,
        _items(now, order),
        [Mistake(id, titles.get(id, ""), number) for id, number in frequent.most_common()],
        mistakes_of,
        [
            *remarks,
            *(
                (student, name, remark)
                for student, mine in tests.items()
                for name, test in mine.items()
                for remark in [*([test.reason] if test.ended else []), *test.remarks]
            ),
        ],
        sum(result.isolation == "none" for mine in results.values() for result in mine.values()),
    )


def _items(now: Standings, order: Sequence[str]) -> list[Item]:
    given = [one.items for one in now.handed_in if one.items]
    maximum = {name: item.max_points for items in given for name, item in items.items()}
    names = [name for name in order if maximum.get(name, 0.0) > 0]
    table = np.array([
        [nan if (item := items.get(name)) is None or item.points is None else item.points
         for name in names]
        for items in given
    ]).reshape(len(given), len(names))  # fmt: skip
    is_full = ~np.isnan(table).any(axis=0)  # nobody waits for it
    made = []
    for number, name in enumerate(names):
        rows = ~np.isnan(table[:, number])
        there = table[rows, number]
        # With those items that everybody has points for.
        others = table[rows][:, is_full & (np.arange(len(names)) != number)]
        relation = discrimination(np.column_stack([there, others]), 0)
        made.append(
            Item(
                name,
                maximum[name],
                float(there.mean() / maximum[name]) if len(there) else None,
                relation,
                interval(relation, len(there)),
                len(table) - len(there),
            )
        )
    return made


def discrimination(table: np.ndarray, item: int) -> float | None:
    """The corrected item-total correlation: of a column with the sum of the others."""
    rest = np.delete(table, item, axis=1).sum(axis=1)
    if len(table) < 3 or table[:, item].std() == 0 or rest.std() == 0:
        return None
    return float(np.corrcoef(table[:, item], rest)[0, 1])


def interval(correlation: float | None, students: int) -> tuple[float, float] | None:
    """Where a correlation lies with 95%: Fisher's z has a standard error of 1/√(n − 3)."""
    if correlation is None or students < 4:
        return None
    z = math.atanh(min(max(correlation, -0.999_999), 0.999_999))
    reach = NORMAL / math.sqrt(students - 3)
    return math.tanh(z - reach), math.tanh(z + reach)
