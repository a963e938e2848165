"""The short name for notebooks: ``from transformer_lib.checks import check``.

All of it is :mod:`transformer_lib.course.checks`. The sandbox of the grader, which shows no
answers, has another module in this place, whose ``check`` does nothing.
"""

from transformer_lib.course import checks as _checks
from transformer_lib.course.checks import EXERCISES, Verdict, check, find_exercise, run_test

__all__ = ["EXERCISES", "Verdict", "check", "find_exercise", "run_test"]


def __getattr__(name: str):
    return getattr(_checks, name)


def __dir__() -> list[str]:
    return dir(_checks)
