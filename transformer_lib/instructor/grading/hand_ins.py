"""What students hand in, and our own record of when; no student can write there."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from transformer_lib.files import write_text
from transformer_lib.instructor.grading.course import Course

MAX_FILES = 100  # of one student
MAX_BYTES = 20 * 2**20  # of all of them together
TOO_MUCH = f"more than {MAX_FILES} files or {MAX_BYTES // 2**20} MB: not all was taken"


@dataclass
class HandIn:
    """What one student has handed in.

    Args:
        time: when, in UTC; None if it is not known.
        is_new: whether it differs from what was collected before.
    """

    student: str
    files: dict[str, bytes] = field(default_factory=dict)
    time: datetime | None = None
    remarks: list[str] = field(default_factory=list)
    is_new: bool = True

    def add(self, name: str, content: bytes) -> None:
        """Take a file, up to what one student may hand in; the rest is left out, and said so."""
        whole = sum(map(len, self.files.values())) + len(content)
        if len(self.files) < MAX_FILES and whole <= MAX_BYTES:
            self.files[name] = content
        elif TOO_MUCH not in self.remarks:
            self.remarks.append(TOO_MUCH)


def recorded_times(course: Course, assignment: str) -> dict[str, datetime]:
    """By student; who is not in it was not collected, or its time is not known."""
    try:
        data = json.loads(_record(course, assignment).read_text(encoding="utf-8"))
        return {student: datetime.fromisoformat(time) for student, time in data.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def record_times(course: Course, assignment: str, times: Mapping[str, datetime | None]) -> None:
    """Add these to the record, in place of earlier ones; None: it is not known."""
    new = recorded_times(course, assignment) | dict(times)
    data = {student: time.isoformat() for student, time in sorted(new.items()) if time}
    write_text(_record(course, assignment), json.dumps(data, indent=1))


def _record(course: Course, assignment: str) -> Path:
    return course.results / "hand-ins" / f"{assignment}.json"
