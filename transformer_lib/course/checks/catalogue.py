"""The bank of misconceptions as text: for the command line, and as a table for the docs."""

import inspect
import textwrap
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from transformer_lib.course.chapters import tasks, title
from transformer_lib.course.checks.diagnosis import Trial, draw_trial, find_exercise, judge
from transformer_lib.course.checks.verdict import Verdict
from transformer_lib.course.misconceptions.bank import Misconception, bank, wrong_answers
from transformer_lib.errors import UserError

ASSIGNMENTS = "Assignments"  # which comes after all names of chapters, 01_… to 16_…
HEAD = ["| | mistake | found in | what it does | seen in |", "|---|---|---|---|---|"]


def overview(exercise: str | None = None) -> str:
    """One line for each mistake, of all exercises or of one.

    Raises:
        UserError: there is no such exercise.
    """
    if exercise is None:
        mistakes: Iterable[Misconception] = bank()
    else:
        try:
            mistakes = wrong_answers(find_exercise(exercise).name)
        except ValueError as error:
            raise UserError(str(error)) from error
    return "\n".join(f"{m.id:<5} {m.title}  [{', '.join(m.answers)}]" for m in mistakes)


def details(name: str) -> str:
    """All about one mistake: its code, and what its check says about it.

    Raises:
        UserError: there is no such mistake.
    """
    mistake = next((m for m in bank() if m.id in (name.upper(), f"M{name}")), None)
    if mistake is None:
        raise UserError(f"there is no mistake {name}; the bank goes from M1 to {bank()[-1].id}")
    fields = {"found in": mistake.source, "effect": mistake.effect, "a hint": mistake.hint}
    lines = [f"{mistake.id}: {mistake.title}", ""]
    for label, text in fields.items():
        lines.append(
            textwrap.fill(text, 88, initial_indent=f"{label:>8}  ", subsequent_indent=" " * 10)
        )
    for exercise, answer in mistake.answers.items():
        lines += ["", *_source(answer), "", repr(_verdict(mistake, exercise))]
    return "\n".join(lines)


def _source(answer: Callable[..., Any]) -> list[str]:
    lines = textwrap.dedent(inspect.getsource(answer)).splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(("def ", "class ")))
    return [f"    {line}" for line in lines[start:]]


def _verdict(mistake: Misconception, exercise: str, diagnose: bool = True) -> Verdict:
    return judge(mistake.answers[exercise], trial(exercise), diagnose)


@cache
def trial(exercise: str) -> Trial:
    """The inputs with which all mistakes of an exercise are shown."""
    return draw_trial(find_exercise(exercise), seed=1)


def as_markdown() -> str:
    """The whole bank, a table for each chapter, with the properties in which a mistake failed."""
    lines = [
        "# Known mistakes",
        "",
        f"{len(bank())} known mistakes, each where an exercise first meets it; within a chapter in "
        "the order in which they were found. The last column is measured: the properties in which "
        "the check of an exercise saw the mistake fail. Made by "
        "`transformer-lib misconceptions --markdown`.",
        "",
    ]
    chapters = {task.name: task.chapter for task in tasks()}
    places = {m.id: min(chapters.get(x, ASSIGNMENTS) for x in m.answers) for m in bank()}
    for place in sorted(set(places.values())):
        lines += [f"## {title(place) if place != ASSIGNMENTS else place}", "", *HEAD]
        lines += [_row(mistake) for mistake in bank() if places[mistake.id] == place]
        lines += [""]
    return "\n".join(lines)


def _row(mistake: Misconception) -> str:
    seen = (seen_in(_verdict(mistake, exercise, diagnose=False)) for exercise in mistake.answers)
    cells = (mistake.id, mistake.title, mistake.source, mistake.effect, "<br>".join(seen))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def seen_in(verdict: Verdict) -> str:
    """Where a mistake shows: the exercise, and the properties that failed."""
    failed = [finding.name for finding in verdict.findings if finding.status == "failed"]
    return f"`{verdict.exercise}`: {', '.join(failed)}"
