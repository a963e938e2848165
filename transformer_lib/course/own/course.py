"""The exercises of the course in their order, with their marks, as the chapters have them."""

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
def tasks() -> tuple[Task, ...]:
    """All exercises that have a mark, from the first chapter to the last."""
    text = resources.files(__package__).joinpath("exercises.json").read_text(encoding="utf-8")
    return tuple(Task(**entry) for entry in json.loads(text))


def order() -> list[str]:
    """The names of the exercises in the order of the course."""
    return [task.name for task in tasks()]
