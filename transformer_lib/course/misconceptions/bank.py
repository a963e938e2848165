"""The bank: each known mistake once, with the wrong code that it leads to."""

import importlib
import pkgutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from transformer_lib.course import misconceptions

Answer = Callable[..., Any]


@dataclass(frozen=True)
class Misconception:
    """A mistake that people make.

    Args:
        id: ``M1`` and so on; never given twice.
        title: what is wrong, in a few words.
        source: where it was found.
        effect: what it does, measured.
        hint: what a student hears: towards the fix, without giving it away.
    """

    id: str
    title: str
    source: str
    effect: str
    hint: str

    @property
    def answers(self) -> dict[str, Answer]:
        """What the mistake makes of an exercise, by the exercise's name."""
        return _ANSWERS[self.id]


_BANK: dict[str, Misconception] = {}
_ANSWERS: dict[str, dict[str, Answer]] = defaultdict(dict)


def misconception(number: str, exercise: str, **fields: str) -> Callable[[Answer], Answer]:
    """Enter a mistake into the bank; the decorated function is what it makes of ``exercise``."""
    assert number not in _BANK, f"two misconceptions are called {number}"
    _BANK[number] = Misconception(number, **fields)
    return also(number, exercise)


def also(number: str, exercise: str) -> Callable[[Answer], Answer]:
    """The decorated function is what the mistake of this number makes of one more exercise."""

    def enter(function: Answer) -> Answer:
        assert exercise not in _ANSWERS[number], f"{number} answers {exercise} twice"
        _ANSWERS[number][exercise] = function
        return function

    return enter


@cache
def bank() -> tuple[Misconception, ...]:
    """All known mistakes, by number."""
    for module in pkgutil.iter_modules(misconceptions.__path__):
        importlib.import_module(f"{misconceptions.__name__}.{module.name}")
    return tuple(sorted(_BANK.values(), key=lambda mistake: int(mistake.id[1:])))


def wrong_answers(exercise: str) -> list[Misconception]:
    """The mistakes that lead to a wrong answer to this exercise."""
    return [mistake for mistake in bank() if exercise in mistake.answers]
