"""What the chapters say of themselves: their exercises with their marks, and the time they take."""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources

MARKS = {1: "●○○", 2: "●●○", 3: "●●●"}
AFTER = {4: 1, 7: 2, 9: 3, 12: 4, 15: 5, 17: 6}  # the chapter before each assignment


@dataclass(frozen=True)
class Task:
    """One exercise of a chapter."""

    chapter: str  # the name of its notebook, without .ipynb
    heading: str
    name: str  # what check is called with
    difficulty: int
    minutes: int
    purpose: str


@cache
def _stored() -> dict:
    text = resources.files(__package__).joinpath("chapters.json").read_text(encoding="utf-8")
    return json.loads(text)


@cache
def tasks() -> tuple[Task, ...]:
    """All exercises, from the first chapter to the last."""
    return tuple(Task(**entry) for entry in _stored()["exercises"])


def reading_minutes() -> dict[str, int]:
    """How long each chapter takes to read, by the name of its notebook."""
    return _stored()["reading"]


def order() -> list[str]:
    """The names of the exercises in the order of the course."""
    return [task.name for task in tasks()]


def title(chapter: str) -> str:
    """05_attention → 5 · Attention."""
    return _stored()["titles"][chapter]


def timetable() -> str:
    """A table of the chapters in Markdown: minutes of reading, exercises and their minutes."""
    lines = ["| chapter | reading | exercises | | then |", "|---|---|---|---|---|"]
    for chapter, minutes in reading_minutes().items():
        here = [task for task in tasks() if task.chapter == chapter]
        work = sum(task.minutes for task in here)
        marks = " ".join(MARKS[task.difficulty] for task in here)
        then = f"assignment {AFTER[int(chapter[:2])]}" if int(chapter[:2]) in AFTER else ""
        link = f"[{title(chapter)}]({chapter}.ipynb)"
        lines.append(f"| {link} | {minutes} min | {work} min | {marks} | {then} |")
    reading, work = sum(reading_minutes().values()), sum(task.minutes for task in tasks())
    lines.append(f"| *together* | *{reading / 60:.0f} hours* | *{work / 60:.0f} hours* | | |")
    return "\n".join(lines)
