"""Take hand-ins from nbgrader's exchange, or from the zip file of Moodle or Canvas.

Their files go to ``submitted/STUDENT/ASSIGNMENT``, where nbgrader looks for them; the time of
arrival goes into our own record. Nothing of a hand-in is run, no link is followed, and there is an
end to everything.
"""

import os
import re
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from transformer_lib.errors import UserError
from transformer_lib.instructor.grading.archive import from_archive
from transformer_lib.instructor.grading.class_list import known_people
from transformer_lib.instructor.grading.course import Course, known_name
from transformer_lib.instructor.grading.csv_table import read_table
from transformer_lib.instructor.grading.exchange import from_exchange
from transformer_lib.instructor.grading.hand_ins import Entry, HandIn, digest, record, recorded
from transformer_lib.instructor.grading.term import moment, policy_of, shown
from transformer_lib.shown import one_line


def collect(
    course: Course,
    assignment: str,
    archive: Path | None = None,
    times: Path | None = None,
    trusted: bool = False,
) -> list[HandIn]:
    """Take in the latest hand-in of everybody; one that has not changed is left as it is.

    So is work that somebody else has put into ``submitted/``: the remark says so.

    Args:
        archive: a zip file of Moodle or Canvas; nbgrader's exchange if there is none.
        times: a CSV file with the columns ``student`` and ``time``, for an archive has no times.
        trusted: of the exchange, believe the times that hand-ins say of themselves.

    Raises:
        UserError: no such assignment, exchange, archive or file of times; or an archive of another
            assignment.
    """
    masters = course.masters(assignment)
    people = known_people(course)
    if archive is None:
        found = list(from_exchange(course, assignment, people, trusted))
    else:
        found = from_archive(archive, people)
        if _is_of_another(found, masters.values()):
            raise UserError(
                f"no notebook in {archive} has a cell of {assignment}: it is another assignment's"
            )
    zone = policy_of(course).zone_info
    known = {person.student for person in people} | {one.student for one in found}
    said = _read_times(times, zone, known) if times else {}
    if strangers := sorted(said.keys() - known):
        raise UserError(f"{times} has times of {', '.join(strangers)}, whom nobody knows")
    before = recorded(course, assignment)
    for one in found:
        target = course.folder / "submitted" / one.student / assignment
        earlier = before.get(one.student, Entry(None))
        try:
            content = digest(one.files)
            there = digest(files) if (files := _content(target)) else ""
            _take(one, content, there, target, earlier, trusted)
            one.time = said.get(one.student, one.time)
            entry = Entry(one.time, content, trusted and archive is None)
            if one.is_new:
                if earlier.time and not one.time:
                    one.remarks.append(
                        "its time is not known, that of the earlier one was: give --times"
                    )
                new = _written(target, one.files)  # where there is no room, all stays as it was
                kept = course.results / "earlier" / one.student / assignment / earlier.content[:8]
                if there:
                    when = f" of {shown(earlier.time, zone)}" if earlier.time else ""
                    place_of_it = os.path.relpath(kept, course.folder)
                    one.remarks.append(f"replaces the one{when}, which is now in {place_of_it}")
                # The time goes first: whoever is stopped here finds new work, and not an old time.
                first = replace(entry, content=earlier.content)
                record(course, assignment, {one.student: first})
                _put(new, target, kept if there else None)
            if one.files and entry != earlier:
                record(course, assignment, {one.student: entry})
        except OSError as error:
            one.remarks.append(f"{error.filename or target} cannot be written: {error.strerror}")
            one.files, one.is_new = {}, False
    here = {one.student for one in found}
    for student in sorted(said.keys() - here):
        unused = ["nothing of this student is here; the time was not used"]
        found.append(HandIn(student, {}, said[student], unused, is_new=False))
    return found


def _is_of_another(found: Sequence[HandIn], masters: Iterable[Path]) -> bool:
    """Whether cells of assignments are handed in, but none of this one's."""
    own = set().union(*(_named_cells(master.read_bytes()) for master in masters))
    notebooks = [
        content
        for one in found
        for name, content in one.files.items()
        if name.lower().endswith(".ipynb")
    ]
    handed_in = set().union(*map(_named_cells, notebooks))
    return bool(handed_in) and not handed_in & own


def _named_cells(notebook: bytes) -> set[bytes]:
    return set(re.findall(rb'"grade_id":\s*"([^"]+)"', notebook))


def _take(one: HandIn, new: str, there: str, target: Path, before: Entry, trusted: bool) -> None:
    """Find out whether it is new, may replace what is there, and from when on it counts.

    ``new`` and ``there`` are digests of its files and of those in ``target``.
    """
    if not one.files:
        one.remarks.append("no file in it")
    one.is_new = bool(one.files) and new != there
    if one.is_new and there and there != before.content:
        one.remarks.append(f"left: {target} holds other work, which was not collected")
        one.files, one.is_new = {}, False
    elif not one.is_new and not trusted and not before.trusted:
        one.time = before.time or one.time  # the same again counts from the first time on


def _content(target: Path) -> dict[str, bytes]:
    """The files of a folder, but for the copies that JupyterLab makes of what is opened there."""
    return {
        path.relative_to(target).as_posix(): path.read_bytes()
        for path in target.rglob("*")
        if path.is_file() and not path.is_symlink() and path.parent.name != ".ipynb_checkpoints"
    }


def _written(target: Path, files: Mapping[str, bytes]) -> Path:
    """A new folder beside ``target`` that holds these files."""
    new = target.with_name(f".{target.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for name, content in files.items():
        path = new / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return new


def _put(new: Path, target: Path, kept: Path | None) -> None:
    """Put a folder in the place of another one, which goes to ``kept``; without work, it goes."""
    if kept:
        shutil.rmtree(kept, ignore_errors=True)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(target, kept)
    elif target.exists():
        shutil.rmtree(target)
    new.rename(target)


def _read_times(path: Path, zone: ZoneInfo, known: Collection[str]) -> dict[str, datetime]:
    """When each student handed in; a time without an offset is one of the course's zone.

    Raises:
        UserError: the file cannot be read, a time is none, or a student has two.
    """
    table = read_table(path)
    if not {"student", "time"} <= set(table.columns):
        raise UserError(f"{path} needs the columns student and time")
    found: dict[str, datetime] = {}
    for _, row in table.rows:
        name, time = known_name(row["student"], known), row["time"]
        if name in found:
            raise UserError(f"{path} has two times of {name}")
        if time:
            try:
                found[name] = moment(time, zone)
            except UserError as error:
                raise UserError(f"{path}, {name}: {error}") from error
    return found


def collected(found: Sequence[HandIn], course: Course) -> str:
    """For the terminal: what came, from whom, when, and what is missing."""
    zone = policy_of(course).zone_info
    width = max((len(one.student) for one in found), default=0)
    lines = []
    for one in found:
        time = shown(one.time, zone) if one.time else "time unknown"
        notes = [*one.remarks, *([] if one.is_new or not one.files else ["as before"])]
        text = "; ".join(one_line(note) for note in notes)
        lines.append(f"{one.student:{width}}  {time}  {text}".rstrip())
    came = {one.student for one in found if one.files}
    missing = [one.student for one in known_people(course) if one.student not in came]
    lines.append(
        f"{len(came)} hand-ins, {sum(one.is_new for one in found)} of them new; nothing from "
        f"{len(missing)}" + (f": {', '.join(sorted(missing))}" if missing else "")
    )
    return "\n".join(lines)
