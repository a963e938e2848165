"""Checks for students: ``check(my_function)`` says what holds and which known mistake it shows."""

from transformer_lib.checks import topics
from transformer_lib.checks.diagnosis import check, find_exercise
from transformer_lib.checks.exercise import EXERCISES
from transformer_lib.checks.verdict import Verdict

__all__ = ["EXERCISES", "Verdict", "check", "find_exercise", "topics"]
