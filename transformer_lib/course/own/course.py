"""What the chapters say of themselves: their exercises with their marks, and the time they take."""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources

MARKS = {1: "●○○", 2: "●●○", 3: "●●●"}


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
