"""A page about a class: how the points are spread, how hard each test was, what went wrong."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from transformer_lib.course.misconceptions.bank import bank
from transformer_lib.errors import UserError
from transformer_lib.instructor.grading.course import Course
from transformer_lib.instructor.grading.judge import Result
from transformer_lib.instructor.grading.results import StoredResult
from transformer_lib.pages import write_page
from transformer_lib.plots.measurements import counts, histogram
from transformer_lib.plots.notebook import as_data_uri


@dataclass(frozen=True)
class Item:
    """How one test did with the class.

    Args:
        difficulty: mean share of the points that was reached: 1 is easy.
        discrimination: correlation, over students, of its points with those of all other tests;
            None where one of them is the same for everybody.
    """

    name: str
    max_points: float
    difficulty: float
    discrimination: float | None


@dataclass(frozen=True)
class ClassReport:
    """What the page shows."""

    assignment: str
    points: dict[str, float]
    max_points: float
    items: list[Item]
    mistakes: list[tuple[str, str, int]]
    troubles: list[tuple[str, str, str]]
    unshielded: int

    def write_html(self, path: Path) -> None:
        """One self-contained file: figures are inside, nothing is loaded from elsewhere."""
        write_page(path, "transformer_lib.instructor.grading", "report.html", self._content())

    def _content(self) -> dict[str, Any]:
        values = list(self.points.values())
        edges = np.linspace(0.0, self.max_points, 23).tolist()
        spread = histogram(values, ("points", "students"), median(values), edges)
        spread.axes[0].yaxis.set_major_locator(MaxNLocator(integer=True))
        frequent = {f"{id}: {title}": n for id, title, n in reversed(self.mistakes[:12])}
        return {
            "report": self,
            "mean": fmean(values),
            "median": median(values),
            "spread": as_data_uri(spread),
            "mistakes": as_data_uri(counts(frequent, "students")) if frequent else None,
        }


def write_report(course: Course, assignment: str, target: Path) -> ClassReport:
    """Make the page from the results of the latest grading.

    Raises:
        UserError: nothing was graded yet.
    """
    report = make_report(assignment, read_results(course, assignment))
    report.write_html(target)
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


def make_report(assignment: str, results: dict[str, dict[str, Result]]) -> ClassReport:
    """From the results of each student, by notebook. Tests that are worth nothing are left out.

    Raises:
        UserError: nothing was graded yet.
    """
    if not results:
        raise UserError(f"{assignment} was not graded yet: transformer-lib grade {assignment}")
    several = len({notebook for mine in results.values() for notebook in mine}) > 1
    tests = {
        student: {
            f"{notebook}: {name}" if several else name: test
            for notebook, result in mine.items()
            for name, test in result.tests.items()
            if test.max_points > 0
        }
        for student, mine in results.items()
    }
    names = list(dict.fromkeys(name for one in tests.values() for name in one))
    maximum = {name: max(one[name].max_points for one in tests.values() if name in one)
               for name in names}  # fmt: skip
    table = np.array(
        [[one[n].points if n in one else 0.0 for n in names] for one in tests.values()]
    )
    titles = {mistake.id: mistake.title for mistake in bank()}
    mistakes = Counter(
        id for one in tests.values() for id in {m for test in one.values() for m in test.mistakes}
    )
    return ClassReport(
        assignment,
        dict(zip(tests, table.sum(axis=1).tolist(), strict=True)),
        sum(maximum.values()),
        [
            Item(name, maximum[name], table[:, n].mean() / maximum[name], discrimination(table, n))
            for n, name in enumerate(names)
        ],
        [(id, titles.get(id, ""), count) for id, count in mistakes.most_common()],
        [
            (student, name, test.reason)
            for student, one in tests.items()
            for name, test in one.items()
            if test.ended
        ],
        sum(result.isolation == "none" for mine in results.values() for result in mine.values()),
    )


def discrimination(table: np.ndarray, item: int) -> float | None:
    """The corrected item-total correlation: of a column with the sum of the others."""
    rest = np.delete(table, item, axis=1).sum(axis=1)
    if len(table) < 3 or table[:, item].std() == 0 or rest.std() == 0:
        return None
    return float(np.corrcoef(table[:, item], rest)[0, 1])
