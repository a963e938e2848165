"""Blind rating of translations by people: sheets, what comes back, and what it says."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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


def __getattr__(name: str) -> Any:
    """Imported when asked for: reports need packages of the extra ``rating``."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "summary" if name in ("RatingReport", "report") else "sheet"
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
