"""Blind rating of translations by people: sheets, what comes back, and what it says."""

from transformer_lib.instructor.rating.sheet import (
    Key,
    Ratings,
    Sheet,
    make_sheet,
    read_key,
    read_ratings,
    read_sheet,
    write_task,
)
from transformer_lib.instructor.rating.summary import RatingReport, report

__all__ = [
    "Key",
    "RatingReport",
    "Ratings",
    "Sheet",
    "make_sheet",
    "read_key",
    "read_ratings",
    "read_sheet",
    "report",
    "write_task",
]
