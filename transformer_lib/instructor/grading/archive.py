"""Hand-ins in the zip files that learning management systems make."""

import lzma
import re
import stat
import unicodedata
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
    r"(?P<name>[^/]+?)_(?P<number>\d+)_assignsubmission_(?P<kind>file|onlinetext)_?/?"
    r"(?P<file>[^/].*)",
    re.DOTALL,
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
            # Students choose the ends of the names. By such an end a file of Canvas's may look like
            # one of Moodle's, but not the other way round.
            canvas, moodle = (
                [(match, e) for e in entries if (match := pattern.fullmatch(e.filename))]
                for pattern in (CANVAS, MOODLE)
            )
            if len(moodle) > len(canvas):
                return _hand_ins(archive, moodle, _of_moodle, people)
            if canvas:
                return _hand_ins(archive, canvas, _of_canvas, people)
    except UNPACKING as error:
        raise UserError(f"{path} cannot be read as a zip file: {error}") from error
    raise UserError(
        f"{path} is no archive of hand-ins as Moodle or Canvas make it: none of its "
        f"{len(entries)} files is called like “Ada Lovelace_123_assignsubmission_file_/…” or "
        "“lovelaceada_123_456_…”, without a folder before it"
    )


def moodle_folders(path: Path, people: Sequence[Person]) -> dict[str, str]:
    """The name of each student's folder in an archive of Moodle's, which takes feedback by it.

    Raises:
        UserError: it is no archive of Moodle's.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()[:MAX_ENTRIES]
    except UNPACKING as error:
        raise UserError(f"{path} cannot be read as a zip file: {error}") from error
    matches = [match for name in names if (match := MOODLE.fullmatch(name))]
    if not matches:
        raise UserError(
            f"{path} is no archive of hand-ins as Moodle makes it: nothing in it is called like "
            "“Ada Lovelace_123_assignsubmission_file_/…”, without a folder before it"
        )
    owner = _sure_owner(matches, _of_moodle, people)
    return {
        student: f"{match['name']}_{match['number']}_assignsubmission_file_"
        for match in matches
        if (student := owner(match))
    }


Owners = Callable[[re.Match[str], Sequence[Person]], list[str]]


def _sure_owner(
    matches: Sequence[re.Match[str]], owners: Owners, people: Sequence[Person]
) -> Callable[[re.Match[str]], str | None]:
    """Says whose a file is, where only one student can be meant."""
    # The system's numbers of those whom we take for this student: with two, it could be either.
    numbers: dict[str, set[str]] = defaultdict(set)
    for match in matches:
        for student in owners(match, people):
            numbers[student].add(match["number"])

    def owner(match: re.Match[str]) -> str | None:
        known = owners(match, people)
        return known[0] if len(known) == 1 and len(numbers[known[0]]) == 1 else None

    return owner


def _hand_ins(
    archive: zipfile.ZipFile,
    matches: Sequence[tuple[re.Match[str], zipfile.ZipInfo]],
    owners: Owners,
    people: Sequence[Person],
) -> list[HandIn]:
    owner = _sure_owner([match for match, _ in matches], owners, people)
    found: dict[str, HandIn] = {}
    # What lies at the top comes first, before a file of the same name in a folder.
    for match, entry in sorted(matches, key=lambda pair: pair[0]["file"].count("/")):
        known = owner(match)
        student = known or safe_name(f"{match['name']} {match['number']}")
        one = found.setdefault(student, HandIn(student))
        if not known and not one.remarks:
            hint = "two have this name: give the number of each as lms_user_id in the class list"
            one.remarks.append(hint if owners(match, people) else "not in the class list")
        if match.groupdict().get("late") and "marked as late" not in one.remarks:
            one.remarks.append("marked as late")
        if match.groupdict().get("kind") == "onlinetext":
            one.remarks.append("a text typed in Moodle is not taken")
            continue
        if ".ipynb_checkpoints/" in match["file"] or not one.fits(entry.file_size):
            continue
        try:
            content = _content(archive, entry)
        except UNPACKING as error:
            one.remarks.append(f"a file cannot be unpacked: {error}")
            continue
        name = safe_name(PurePosixPath(match["file"]).name)
        if name in one.files:
            one.remarks.append(f"{name} is there twice: the one further up was taken")
        elif content and name and name != "timestamp.txt":  # a student's, and would be believed
            one.add(name, content)
    return sorted(found.values(), key=lambda one: one.student)


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """Empty for a link and for what is too large, whatever the archive says of its size."""
    if stat.S_ISLNK(entry.external_attr >> 16):
        return b""
    with archive.open(entry) as file:
        content = file.read(MAX_BYTES + 1)
    return content if len(content) <= MAX_BYTES else b""


def _of_moodle(match: re.Match[str], people: Sequence[Person]) -> list[str]:
    """By first and last name, in either order; of two, by Moodle's number if the list has it.

    The number is that of a participant in this assignment, so another one's may have it there.
    """
    wanted = _letters(match["name"])
    named = [
        one
        for one in people
        if wanted
        and wanted
        in (_letters(one.first_name + one.last_name), _letters(one.last_name + one.first_name))
    ]
    numbered = [one for one in named if one.lms_id == match["number"]]
    return [one.student for one in numbered or named]


def _of_canvas(match: re.Match[str], people: Sequence[Person]) -> list[str]:
    """By Canvas's number, or else by last and first name without anything between."""
    return [one.student for one in people if one.lms_id == match["number"]] or [
        one.student
        for one in people
        if not one.lms_id and _letters(one.last_name + one.first_name) == _letters(match["name"])
    ]


def _letters(name: str) -> str:
    """Without what names of files leave out or write otherwise: blanks, apostrophes, accents."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFC", name))).casefold()
