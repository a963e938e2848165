"""Hand-ins in the zip files that learning management systems make."""

import lzma
import re
import stat
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from transformer_lib.errors import UserError
from transformer_lib.instructor.grading.class_list import Person
from transformer_lib.instructor.grading.course import safe_name
from transformer_lib.instructor.grading.hand_ins import MAX_BYTES, HandIn

MAX_ENTRIES = 100_000
UNPACKING = (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error,
             lzma.LZMAError)  # fmt: skip
MOODLE = re.compile(
    r"(?P<name>[^/]+?)_(?P<number>\d+)_assignsubmission_file_?/?(?P<file>[^/].*)", re.DOTALL
)
CANVAS = re.compile(
    r"(?P<name>[^/_]+)_(?P<late>LATE_)?(?P<number>\d+)_\d+_(?P<file>[^/]+)", re.DOTALL
)


def from_archive(path: Path, people: Sequence[Person]) -> list[HandIn]:
    """Everybody's hand-in, as "download all submissions" of Moodle or Canvas packs them.

    Args:
        people: the class; by it names and numbers become students.

    Raises:
        UserError: it is no such file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [e for e in archive.infolist() if not e.is_dir()][:MAX_ENTRIES]
            for pattern, owner in ((MOODLE, _moodle_student), (CANVAS, _canvas_student)):
                if any(pattern.fullmatch(entry.filename) for entry in entries):
                    return _hand_ins(archive, entries, pattern, owner, people)
    except UNPACKING as error:
        raise UserError(f"{path} cannot be read as a zip file: {error}") from error
    raise UserError(
        f"{path} is no archive of hand-ins as Moodle or Canvas make it: none of its "
        f"{len(entries)} files is called like “Ada Lovelace_123_assignsubmission_file_/…” or "
        "“lovelaceada_123_456_…”"
    )


Owner = Callable[[re.Match[str], Sequence[Person]], str | None]


def _hand_ins(
    archive: zipfile.ZipFile,
    entries: Sequence[zipfile.ZipInfo],
    pattern: re.Pattern[str],
    owner: Owner,
    people: Sequence[Person],
) -> list[HandIn]:
    matches = [(match, entry) for entry in entries if (match := pattern.fullmatch(entry.filename))]
    # The system's own numbers of whom we take for this student: with two, it could be either.
    numbers: dict[str | None, set[str]] = defaultdict(set)
    for match, _ in matches:
        numbers[owner(match, people)].add(match["number"])
    found: dict[str, HandIn] = {}
    for match, entry in matches:
        known = owner(match, people)
        is_sure = known is not None and len(numbers[known]) == 1
        student = str(known) if is_sure else safe_name(f"{match['name']} {match['number']}")
        one = found.setdefault(student, HandIn(student))
        if not is_sure and not one.remarks:
            one.remarks.append("two have this name" if known else "not in the class list")
        if match.groupdict().get("late") and "marked as late" not in one.remarks:
            one.remarks.append("marked as late")
        if not one.fits(entry.file_size):
            continue
        try:
            content = _content(archive, entry)
        except UNPACKING as error:
            one.remarks.append(f"a file cannot be unpacked: {error}")
            continue
        name = PurePosixPath(match["file"]).name
        if content and name and name != "timestamp.txt":  # it would be believed, and is a student's
            one.add(safe_name(name), content)
    return sorted(found.values(), key=lambda one: one.student)


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """Empty for a link and for what is too large, whatever the archive says of its size."""
    if stat.S_ISLNK(entry.external_attr >> 16):
        return b""
    with archive.open(entry) as file:
        content = file.read(MAX_BYTES + 1)
    return content if len(content) <= MAX_BYTES else b""


def _moodle_student(match: re.Match[str], people: Sequence[Person]) -> str | None:
    """By first and last name, in either order; the number is Moodle's and in no list."""
    name = " ".join(match["name"].split()).casefold()
    found = [one.student for one in people if name in _full_names(one)]
    return found[0] if len(found) == 1 else None


def _full_names(one: Person) -> tuple[str, str]:
    first, last = one.first_name.casefold(), one.last_name.casefold()
    return f"{first} {last}".strip(), f"{last} {first}".strip()


def _canvas_student(match: re.Match[str], people: Sequence[Person]) -> str | None:
    """By Canvas's number, or else by last and first name without anything between."""
    found = [one.student for one in people if one.lms_id == match["number"]] or [
        one.student
        for one in people
        if not one.lms_id and _letters(one.last_name + one.first_name) == _letters(match["name"])
    ]
    return found[0] if len(found) == 1 else None


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).casefold()
