"""The short name for notebooks: ``from transformer_lib.checks import check, mine, solution``.

The checks are those of :mod:`transformer_lib.course.checks`; here what passes is kept, too, by
:mod:`transformer_lib.course.own`. Each exercise can also be checked by its name,
``checks.attention(my_function)``. In the grader's sandbox, which shows no answers, a module of the
same name takes its place, whose functions do nothing.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from transformer_lib.course import checks as _checks
from transformer_lib.course import own as _own
from transformer_lib.course.checks import EXERCISES, Verdict, find_exercise, run_test
from transformer_lib.course.own import mine, progress, solution

__all__ = [
    "EXERCISES",
    "Verdict",
    "check",
    "check_experiment",
    "find_exercise",
    "mine",
    "progress",
    "run_test",
    "solution",
]


def check(candidate: Any, name: str | None = None, seed: int | None = None) -> Verdict:
    """As :func:`transformer_lib.course.checks.check`; in a notebook, what passes is kept."""
    return _own.remember(_checks.check(candidate, name, seed), candidate)


def check_experiment(name: str, runs: Any, conclusion: str) -> Verdict:
    """As :func:`transformer_lib.course.checks.check_experiment`; in a notebook, it is noted."""
    return _own.remember(_checks.check_experiment(name, runs, conclusion))


def __getattr__(name: str) -> Callable[..., Verdict]:
    if name in EXERCISES:
        return partial(check, name=name)
    raise AttributeError(f"module {__name__} has no attribute and no exercise {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *EXERCISES])
