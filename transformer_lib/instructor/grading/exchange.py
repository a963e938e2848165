"""Hand-ins in nbgrader's exchange: a folder that all users of a machine or hub share."""

import os
import stat
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nbgrader.exchange.default import ExchangeCollect
from nbgrader.utils import parse_utc

from transformer_lib.errors import UserError
from transformer_lib.instructor.grading.class_list import Person
from transformer_lib.instructor.grading.course import Course, safe_name
from transformer_lib.instructor.grading.hand_ins import MAX_FILES, HandIn
from transformer_lib.instructor.grading.intake import MAX_BYTES

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
    known = {person.student for person in people}
    latest: dict[str, tuple[datetime, Path]] = {}
    refused: dict[str, list[str]] = defaultdict(list)
    for folder in sorted(inbound.iterdir()):
        try:
            name, claimed = _record(folder.name, assignment)
        except ValueError:
            continue
        student, owner = safe_name(name), _owner(folder)
        if owner != name and owner in known:
            refused[student].append(f"one in this name was put there by {owner}: not taken")
        elif student not in latest or latest[student][0] < claimed:
            latest[student] = claimed, folder
    for student in sorted(latest.keys() | refused.keys()):
        one = HandIn(student, remarks=refused[student])
        if student in latest:
            one.time, folder = latest[student]
            one.files, written = _read_folder(folder)
            if not trusted and written > one.time + TOLERANCE:
                one.remarks.append(
                    f"says {one.time:%Y-%m-%d %H:%M}, was written {written:%Y-%m-%d %H:%M} UTC"
                )
                one.time = written
        yield one


def _record(name: str, assignment: str) -> tuple[str, datetime]:
    """Whose hand-in a folder of the exchange is, and when it says that it was handed in.

    Raises:
        ValueError: it is of another assignment, or no hand-in.
    """
    parts = name.rsplit("+", 3) if name.count("+") >= 3 else name.rsplit("+", 2)
    if len(parts) < 3 or parts[1] != assignment:
        raise ValueError(name)
    try:
        return parts[0], parse_utc(parts[2]).replace(tzinfo=UTC)
    except OverflowError as error:
        raise ValueError(name) from error


def _owner(path: Path) -> str:
    try:
        return path.owner()
    except (KeyError, OSError, NotImplementedError):
        return ""


def _read_folder(folder: Path) -> tuple[dict[str, bytes], datetime]:
    """Its files, and when the last of them was written: no student can set that time."""
    files: dict[str, bytes] = {}
    latest = folder.stat(follow_symlinks=False).st_ctime
    for above, folders, names, handle in os.fwalk(folder):
        folders[:] = [name for name in folders if name != ".ipynb_checkpoints"]
        for name in sorted(names):
            content, changed = _read_file(name, handle)
            if content is not None and len(files) < MAX_FILES:
                files[(Path(above) / name).relative_to(folder).as_posix()] = content
                latest = max(latest, changed)
    return files, datetime.fromtimestamp(latest, UTC)


def _read_file(name: str, folder: int) -> tuple[bytes | None, float]:
    """A plain file's content; None for a link, a pipe, or what is too large."""
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return None, 0.0
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_BYTES:
            return None, 0.0
        return file.read(MAX_BYTES), about.st_ctime
