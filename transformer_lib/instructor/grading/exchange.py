"""Hand-ins in nbgrader's exchange: a folder that all users of a machine or hub share."""

import os
import stat
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from nbgrader.exchange.default import ExchangeCollect
from nbgrader.utils import parse_utc

from transformer_lib.errors import UserError
from transformer_lib.instructor.grading.class_list import Person
from transformer_lib.instructor.grading.course import Course, safe_name
from transformer_lib.instructor.grading.hand_ins import MAX_BYTES, MAX_FILES, TOO_MUCH, HandIn
from transformer_lib.instructor.grading.term import YEARS

MAX_DEPTH = 3  # of folders in a hand-in
TOLERANCE = timedelta(minutes=5)  # between what a hand-in says and when its files were written


def from_exchange(
    course: Course, assignment: str, people: Sequence[Person], trusted: bool
) -> Iterator[HandIn]:
    """The latest hand-in of everybody in nbgrader's exchange.

    A hand-in is refused if it is in a student's name and another student's file.

    Args:
        people: the class.
        trusted: believe the times that hand-ins say of themselves.

    Raises:
        UserError: there is no exchange.
    """
    directory = course.directory(assignment_id=assignment)
    root = Path(ExchangeCollect(coursedir=directory, config=course.config).root)
    inbound = root / directory.course_id / "inbound"
    if not inbound.is_dir():
        raise UserError(
            f"there is no exchange at {inbound}: release the assignment first, or name another "
            "with c.Exchange.root in nbgrader_config.py"
        )
    records = list(_records(inbound, assignment))
    known = {person.student for person in people}
    # Where anybody's hand-in belongs to a user of that name, users are the machine's own.
    has_users = any(record.owner == record.name for record in records)
    latest: dict[str, _Record] = {}
    found: dict[str, HandIn] = {}
    for record in records:
        student = record.student
        one = found.setdefault(student, HandIn(student))
        is_foreign = record.owner not in (record.name, "root")
        if is_foreign and (has_users or record.owner in known):
            owner = record.owner or "somebody unknown"
            one.remarks.append(f"one in this name was put there by {owner}: not taken")
        elif student not in latest or latest[student].claimed < record.claimed:
            latest[student] = record
    for student in sorted(found):
        one = found[student]
        if known and student not in known:
            one.remarks.append("not in the class list")
        if student in latest:
            _take(latest[student], one, trusted)
        yield one


class _Record(NamedTuple):
    """A hand-in in the exchange, with the student and the time that its folder's name claims."""

    folder: Path
    name: str
    claimed: datetime
    owner: str

    @property
    def student(self) -> str:
        return safe_name(self.name)


def _take(record: _Record, one: HandIn, trusted: bool) -> None:
    one.time = record.claimed
    try:
        written = _read_folder(record.folder, one)
    except OSError as error:
        one.remarks.append(f"cannot be read: {error.strerror}")
        return
    if not trusted and written > record.claimed + TOLERANCE:
        said, real = (f"{time:%Y-%m-%d %H:%M}" for time in (record.claimed, written))
        one.remarks.append(f"says {said}, was written {real} UTC")
        one.time = written


def _records(inbound: Path, assignment: str) -> Iterator[_Record]:
    for folder in sorted(inbound.iterdir()):
        if folder.is_symlink() or not folder.is_dir():
            continue
        try:
            name, claimed = _record(folder.name, assignment)
        except (ValueError, OverflowError, TypeError, AttributeError):
            continue  # of another assignment, or a name that nbgrader did not make
        yield _Record(folder, name, claimed, _owner(folder))


def _record(name: str, assignment: str) -> tuple[str, datetime]:
    """Whose hand-in a folder of the exchange is, and when it says that it was handed in.

    Raises:
        ValueError: it is of another assignment, or no hand-in; and whatever a time may raise.
    """
    parts = name.rsplit("+", 3) if name.count("+") >= 3 else name.rsplit("+", 2)
    if len(parts) < 3 or not parts[0] or parts[1] != assignment:
        raise ValueError(name)
    time = parse_utc(parts[2]).replace(tzinfo=UTC)
    if time.year not in YEARS:
        raise ValueError(name)
    return parts[0], time


def _owner(path: Path) -> str:
    try:
        return path.owner()
    except (KeyError, OSError, NotImplementedError):
        return ""


def _read_folder(folder: Path, one: HandIn) -> datetime:
    """Take its files; returns when the last of them was written, which no student can set."""
    latest = folder.stat(follow_symlinks=False).st_ctime
    for above, folders, names, handle in os.fwalk(folder):
        inside = Path(above).relative_to(folder)
        is_deep = len(inside.parts) >= MAX_DEPTH
        folders[:] = [] if is_deep else sorted(set(folders) - {".ipynb_checkpoints"})[:MAX_FILES]
        for name in sorted(names)[: MAX_FILES + 1]:
            content, changed = _read_file(name, handle, one)
            if content is not None:
                one.add((inside / name).as_posix(), content)
                latest = max(latest, changed)
            elif TOO_MUCH in one.remarks:
                return datetime.fromtimestamp(latest, UTC)
    return datetime.fromtimestamp(latest, UTC)


def _read_file(name: str, folder: int, one: HandIn) -> tuple[bytes | None, float]:
    """A plain file's content; None for a link, a pipe, or what does not fit."""
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return None, 0.0
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or not one.fits(about.st_size):
            return None, 0.0
        return file.read(MAX_BYTES), about.st_ctime
