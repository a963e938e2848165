"""Checks for students: ``check(my_function)`` says what holds and which known mistake it shows.

Each exercise can also be checked by name: ``checks.attention(my_function)``.
"""

from collections.abc import Callable
from functools import partial

from transformer_lib.course.checks import topics
from transformer_lib.course.checks.diagnosis import check, find_exercise, run_test
from transformer_lib.course.checks.exercise import EXERCISES
from transformer_lib.course.checks.experiments import EXPERIMENTS, check_experiment
from transformer_lib.course.checks.verdict import Verdict

__all__ = [
    "EXERCISES",
    "EXPERIMENTS",
    "Verdict",
    "check",
    "check_experiment",
    "find_exercise",
    "run_test",
    "topics",
]


def __getattr__(name: str) -> Callable[..., Verdict]:
    if name in EXERCISES:
        return partial(check, name=name)
    raise AttributeError(f"module {__name__} has no attribute and no exercise {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *EXERCISES])
