"""What a grading has found, as a table for the terminal."""

from collections.abc import Iterator, Sequence

from transformer_lib.instructor.grading.grade import Graded
from transformer_lib.instructor.grading.intake import NO_ANSWER
from transformer_lib.instructor.grading.term import Standing, Standings, lateness
from transformer_lib.shown import one_line


def table(rows: Sequence[Graded], now: Standings) -> str:
    """What each student has, and what there is to know; who handed in nothing comes last."""
    whole = f"{now.max_points:g}"
    names = [row.student for row in rows] + [one.student for one in now.absent]
    width = max(map(len, names), default=0)
    lines = []
    for row in rows:
        one = now.students.get(row.student, Standing(row.student))
        notes = [*time_notes(one), *row.remarks, *_tests(row), row.trouble]
        notes += [] if row.is_new else ["as before"]
        text = "; ".join(one_line(note) for note in notes if note)
        lines.append(f"{row.student:{width}} {one.points:6.1f} of {whole}  {text}".rstrip())
    for one in now.absent:
        text = "; ".join([*time_notes(one), "nothing handed in"])
        lines.append(f"{one.student:{width}} {0:6.1f} of {whole}  {text}")
    return "\n".join([*lines, *_tail(rows, now.handed_in)])


def time_notes(one: Standing) -> list[str]:
    """What a table says of the time of a hand-in."""
    notes = []
    if one.seconds_late:
        cost = f": {one.penalty:g} points less" if one.penalty else ""
        notes.append(lateness(one.seconds_late) + cost)
    if one.is_extended:
        notes.append("deadline extended")
    return notes


def _tests(row: Graded) -> list[str]:
    if row.result is None or NO_ANSWER in row.remarks:
        return []
    return [
        " ".join([f"{name}:", *test.mistakes, test.reason, *test.remarks])
        for name, test in row.result.tests.items()
        if test.reason or test.remarks
    ]


def _tail(rows: Sequence[Graded], there: Sequence[Standing]) -> Iterator[str]:
    waiting = [one.waiting for one in there if one.waiting]
    late = sum(one.seconds_late > 0 for one in there)
    new = sum(row.is_new for row in rows)
    yield (
        f"{len(rows)} submissions, {new} graded now, {late} late; {sum(waiting)} answers of "
        f"{len(waiting)} students wait for a human"
    )
    if taken := sum(row.time is not None and not row.is_recorded for row in rows):
        yield (
            f"! times taken from timestamp.txt, which students can write: {taken}; "
            "`transformer-lib collect` keeps its own"
        )
