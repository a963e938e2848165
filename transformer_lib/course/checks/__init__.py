"""Checks for students: ``check(my_function)`` says what holds and which known mistake it shows."""

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
