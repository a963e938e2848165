"""What students hand in, and our own record of when; no student can write there."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path

from transformer_lib.errors import UserError
from transformer_lib.files import locked, write_text
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
        """Take a file, up to what one student may hand in."""
        if self.fits(len(content)):
            self.files[name] = content

    def fits(self, size: int) -> bool:
        """Whether a file of so many bytes may be taken too; if not, a remark says so."""
        whole = sum(map(len, self.files.values())) + size
        if len(self.files) < MAX_FILES and whole <= MAX_BYTES:
            return True
        if TOO_MUCH not in self.remarks:
            self.remarks.append(TOO_MUCH)
        return False


@dataclass(frozen=True)
class Entry:
    """What our record says of one student's hand-in.

    Args:
        time: when it came, in UTC; None if it is not known.
        content: a digest of the files that were collected; empty if none were.
        trusted: whether the time is what the hand-in says of itself.
    """

    time: datetime | None
    content: str = ""
    trusted: bool = False


def digest(files: Mapping[str, bytes]) -> str:
    """One hash of all names and contents."""
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()


def recorded(course: Course, assignment: str) -> dict[str, Entry]:
    """The record of an assignment, by student; one who is missing in it was never collected.

    Raises:
        UserError: it cannot be read; without it nobody would be late.
    """
    path = _path(course, assignment)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return {
            student: Entry(**one | {"time": one["time"] and datetime.fromisoformat(one["time"])})
            for student, one in data.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise UserError(
            f"{path}, the record of when work came in, cannot be read ({error}); mend it, or fetch "
            "it from a backup"
        ) from error


def record(course: Course, assignment: str, entries: Mapping[str, Entry]) -> None:
    """Add these to the record, in place of earlier ones."""
    path = _path(course, assignment)
    with locked(path):  # another process may add to it at the same time
        new = recorded(course, assignment) | dict(entries)
        data = {
            student: asdict(one) | {"time": one.time and one.time.isoformat()}
            for student, one in sorted(new.items())
        }
        write_text(path, json.dumps(data, indent=1))


def _path(course: Course, assignment: str) -> Path:
    return course.results / "hand-ins" / f"{assignment}.json"
