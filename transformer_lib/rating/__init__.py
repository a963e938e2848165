"""Blind rating of translations by people: sheets, what comes back, and what it says."""

from transformer_lib.rating.report import RatingReport, report
from transformer_lib.rating.sheet import (
    Key,
    Ratings,
    Sheet,
    make_sheet,
    read_key,
    read_ratings,
    read_sheet,
    write_task,
)

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
