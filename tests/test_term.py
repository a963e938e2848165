"""A term: the class, its hand-ins, dates, penalties, and what stays when work is graded again."""

import csv
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import unicodedata
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import grading_help
import nbformat
import pytest
from grading_help import SOLVED, grade, hand_in

from transformer_lib import cli
from transformer_lib.errors import UserError
from transformer_lib.instructor.grading import collect as collecting
from transformer_lib.instructor.grading import grade as grading
from transformer_lib.instructor.grading.class_list import enter_class_list, read_class_list
from transformer_lib.instructor.grading.collect import collect, collected
from transformer_lib.instructor.grading.course import Course
from transformer_lib.instructor.grading.export import export
from transformer_lib.instructor.grading.feedback import make_feedback
from transformer_lib.instructor.grading.hand_ins import Entry, record, recorded
from transformer_lib.instructor.grading.intake import known
from transformer_lib.instructor.grading.late import LatePolicy
from transformer_lib.instructor.grading.nbgrader_plugin import cohort_of, mended
from transformer_lib.instructor.grading.second import agreements, described, make_second
from transformer_lib.instructor.grading.table import table
from transformer_lib.instructor.grading.term import (
    dates,
    lateness,
    moment,
    policy_of,
    set_deadline,
    set_extension,
    standings,
)
from transformer_lib.personal import personal_number

BERLIN = ZoneInfo("Europe/Berlin")
DUE = datetime(2026, 12, 1, 22, 59, tzinfo=UTC)
HOUR = timedelta(hours=1)

# Dates


@pytest.mark.parametrize(
    ("text", "zone", "utc"),
    [
        ("2026-12-01 23:59", "Europe/Berlin", "2026-12-01 22:59"),
        ("2026-07-01T23:59", "Europe/Berlin", "2026-07-01 21:59"),
        ("2026-12-01 23:59", "America/New_York", "2026-12-02 04:59"),
        ("2026-12-01 23:59+09:00", "Europe/Berlin", "2026-12-01 14:59"),
        ("2026-10-25 02:30", "Europe/Berlin", "2026-10-25 01:30"),  # twice there: the later one
    ],
)
def test_a_time_is_one_of_its_zone(text, zone, utc):
    assert moment(text, ZoneInfo(zone)) == datetime.fromisoformat(utc).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tomorrow", "is no time"),
        ("2026-12-01", "say the time as well: 2026-12-01 23:59"),
        ("2200-01-01 00:00", "is in no year"),
        ("0001-01-01 00:00", "is in no year"),
        ("2026-03-29 02:30", "clocks go forward there"),
    ],
)
def test_what_is_no_time_is_refused(text, says):
    with pytest.raises(UserError, match=says):
        moment(text, BERLIN)
    with pytest.raises(UserError, match="'Berlin' is no time zone"):
        LatePolicy(zone="Berlin").place  # noqa: B018


@pytest.mark.parametrize(
    ("hours", "score", "penalty"),
    [(0.2, 20, None), (0.3, 20, 2), (24, 20, 2), (24.1, 20, 4), (71, 20, 6), (71, 5, 5),
     (72, 20, 6), (72.1, 20, 20)],
)  # fmt: skip
def test_lateness_costs_points_for_each_day_begun_after_a_grace_up_to_a_cut_off(
    hours, score, penalty
):
    policy = LatePolicy(points_a_day=2, grace_minutes=15, cut_off_days=3)
    assert policy.late_submission_penalty("ada", score, 3600 * hours) == penalty


def test_nbgraders_own_rules_still_work():
    assert LatePolicy().late_submission_penalty("ada", 7, 1) is None
    assert LatePolicy(penalty_method="zero").late_submission_penalty("ada", 7, 1) == 7
    assert LatePolicy(penalty_method="zero", cut_off_days=3).rules() == "late work counts nothing"
    with pytest.raises(Exception, match="points_a_day"):
        LatePolicy(points_a_day=-1)


def test_lateness_in_words():
    seconds = (1, 60, 7199, 86_400, 3 * 86_400 - 1)
    assert [lateness(s) for s in seconds] == [
        "less than a minute late", "1 min late", "1 h 59 min late", "1 day 0 h late",
        "2 days 23 h late",
    ]  # fmt: skip


def strict(course):
    """The same course with rules for what is late."""
    path = course.folder / "nbgrader_config.py"
    rules = (
        "c = get_config()\nc.LatePolicy.points_a_day = 2\nc.LatePolicy.grace_minutes = 15\n"
        "c.LatePolicy.cut_off_days = 3\nc.LatePolicy.zone = 'Europe/Berlin'\n"
    )
    path.write_text(path.read_text() + rules)
    return Course(course.folder)


def exported(course):
    target = course.folder / "grades.csv"
    export(course, "small", "nbgrader", target)
    with target.open(newline="") as file:
        return {line["student_id"]: line for line in csv.DictReader(file)}


@pytest.mark.sandbox
def test_penalties_are_in_the_table_and_the_export_and_follow_the_dates(course, template):
    course = strict(course)
    enter_class_list(course, read_class_list(class_file(course.folder, "id\nada\nben\ncy\nzoe\n")))
    for student in ("ada", "ben", "cy"):
        hand_in(course, student, grading_help.submission(template, **SOLVED))
    # What a student writes counts for nothing beside our own record.
    (course.folder / "submitted/ben/small/timestamp.txt").write_text("2000-01-01 00:00:00 UTC\n")
    times = {"ada": DUE, "ben": DUE + 30 * HOUR, "cy": DUE + 80 * HOUR}
    record(course, "small", {student: Entry(time) for student, time in times.items()})
    set_deadline(course, "small", DUE)
    rows = list(grade(course).values())

    def now(student):
        one = standings(course, "small").students[student]
        return one.score, one.penalty, one.points

    assert [now(s) for s in ("ada", "ben", "cy", "zoe")] == [
        (6, 0, 6), (6, 4, 2), (6, 6, 0), (0, 0, 0)
    ]  # fmt: skip
    lines = table(rows, standings(course, "small")).splitlines()
    assert lines[0].split() == ["ada", "6.0", "of", "9"]
    assert lines[1] == "ben    2.0 of 9  1 day 6 h late: 4 points less"
    assert lines[2] == "cy     0.0 of 9  3 days 8 h late: 6 points less"
    assert lines[3] == "zoe    0.0 of 9  nothing handed in"
    assert lines[4:] == [
        "3 submissions, 3 graded now, 2 late; 3 answers of 3 students wait for a human"
    ]
    line = exported(course)["ben"]
    assert (line["raw_score"], line["late_submission_penalty"], line["score"]) == (
        "6.0", "4.0", "2.0"
    )  # fmt: skip
    assert line["timestamp"] == "2026-12-03 04:59:00"
    assert exported(course)["zoe"]["score"] == "0.0"

    set_extension(course, "small", "ben", DUE + 24 * HOUR)
    set_extension(course, "small", "zoe", DUE + 24 * HOUR)
    assert now("ben") == (6, 2, 4)
    assert dates(course, "small", policy_of(course)).splitlines() == [
        "small is due 2026-12-01 23:59 CET; 2 points less for each day begun, 15 minutes of grace, "
        "nothing counts after 3 days",
        "  ben: 2026-12-02 23:59 CET",
        "  zoe: 2026-12-02 23:59 CET",
    ]
    assert "zoe    0.0 of 9  deadline extended; nothing handed in" in table(
        rows, standings(course, "small")
    )
    # Points that a human gives count against the penalty as well.
    with course.gradebook() as gradebook:
        gradebook.find_grade("why", "small", "small", "cy").manual_score = 3
        gradebook.db.commit()
    assert now("cy") == (9, 9, 0)
    set_deadline(course, "small", DUE + 80 * HOUR)
    assert (now("ben"), now("cy")) == ((6, 0, 6), (9, 0, 9))
    # A later time for the same notebook counts, though nothing is judged again.
    record(course, "small", {"cy": Entry(DUE + 81 * HOUR)})
    assert not grade(course)["cy"].is_new
    assert now("cy") == (9, 2, 7)


@pytest.mark.sandbox
def test_nbgraders_own_command_takes_the_same_points_away(course, template):
    course = strict(course)
    folder = hand_in(course, "ada", grading_help.submission(template, **SOLVED))
    (folder / "timestamp.txt").write_text("2026-12-02 22:00:00 UTC\n")
    set_deadline(course, "small", DUE)
    subprocess.run(
        [sys.executable, "-m", "nbgrader", "autograde", "small", "--create"],
        cwd=course.folder, check=True, capture_output=True,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    with course.gradebook() as gradebook:
        submission = gradebook.find_submission("small", "ada")
        assert (submission.score, submission.late_submission_penalty) == (6, 2)


@pytest.mark.sandbox
def test_times_that_students_can_write_are_said_to_be_such(course, template):
    folder = hand_in(course, "ada", template)
    (folder / "timestamp.txt").write_text("2000-01-01 00:00:00 UTC\n")
    rows = list(grade(course).values())
    text = table(rows, standings(course, "small"))
    assert "! times taken from timestamp.txt, which students can write: 1" in text


def test_wrong_dates_are_one_line(course):
    with pytest.raises(UserError, match="small has no deadline yet"):
        set_extension(course, "small", "ada", DUE)
    set_deadline(course, "small", DUE)
    with pytest.raises(UserError, match="no student is called ada"):
        set_extension(course, "small", "ada", DUE)
    with course.gradebook() as gradebook:
        gradebook.add_student("ada")
    with pytest.raises(UserError, match="that is before small is due"):
        set_extension(course, "small", "ada", DUE - HOUR)
    with pytest.raises(UserError, match="there is no assignment"):
        course.masters("../source/small")


# The class


def class_file(folder, text):
    path = folder / "class.csv"
    path.write_text(text, encoding="utf-8-sig")
    return path


LISTS = {
    "nbgrader": "id,last_name,first_name,email,lms_user_id\n"
    "ada,Lovelace,Ada,ada@x.org,71\nben,,,,\n",
    "canvas": "Student,ID,SIS User ID,SIS Login ID,Section\n    Points Possible,,,,\n"
    '"Lovelace, Ada",71,,ada,1\n"ben",72,,ben,1\n',
    "with empty lines": "id,last_name,first_name\n,,\nada,Lovelace,Ada\nben,,\n,,\n",
    "moodle": "First name;Surname;Username;Email address\nAda;Lovelace;ada;ada@x.org\n;;ben;\n",
    "moodle in German": "Vorname,Nachname,Anmeldename,E-Mail-Adresse\n"
    "Ada,Lovelace,ada,ada@x.org\n,,ben,\n",
}


@pytest.mark.parametrize("text", LISTS.values(), ids=LISTS)
def test_class_lists_of_three_systems(course, text):
    people = read_class_list(class_file(course.folder, text))
    assert [one.student for one in people] == ["ada", "ben"]
    assert (people[0].first_name, people[0].last_name) == ("Ada", "Lovelace")
    with course.gradebook() as gradebook:
        gradebook.add_student("zoe")
    assert enter_class_list(course, people) == ["zoe"]
    assert enter_class_list(course, people) == ["zoe"], "the second time changes nothing"
    with course.gradebook() as gradebook:
        assert gradebook.find_student("ada").last_name == "Lovelace"
        assert len(gradebook.students) == 3


def test_the_class_list_may_come_first_in_a_course_without_a_gradebook(course, monkeypatch):
    (course.folder / "gradebook.db").unlink()
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # without the environment's own programs
    assert enter_class_list(course, read_class_list(class_file(course.folder, "id\nada\n"))) == []
    set_deadline(course, "small", DUE)
    assert standings(course, "small").absent[0].student == "ada"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no column for students' names"),
        ("name\nada\n", "no column for students' names"),
        ("id\n", "lists no student"),
        ("id,email\nada,\n,b@x.org\n", "line 3: no id"),
        ("id\nada\nben\nada\n", "ada is in line 2 and in line 4"),
        ("id,id\nada,1\n", "has two columns id"),
        ('id\n"ada\nben\n', "unexpected end of data"),
        (f"id\n{'x' * 200_000}\n", "field larger than field limit"),
    ],
)
def test_a_wrong_class_list_is_one_line(tmp_path, text, says):
    with pytest.raises(UserError, match=says):
        read_class_list(class_file(tmp_path, text))
    with pytest.raises(UserError, match="cannot be read"):
        read_class_list(tmp_path / "none.csv")


# Collecting


def recorded_times(course, assignment):
    """By student, where a time is known."""
    found = recorded(course, assignment).items()
    return {student: one.time for student, one in found if one.time}


@pytest.fixture
def exchange(course, tmp_path):
    """The course with an exchange into which nbgrader has released the assignment."""
    root = tmp_path / "exchange"
    root.mkdir(mode=0o777)
    root.chmod(0o777)
    path = course.folder / "nbgrader_config.py"
    path.write_text(path.read_text() + f"get_config().Exchange.root = {str(root)!r}\n")
    inbound = root / "transformer" / "inbound"
    inbound.mkdir(parents=True)
    return Course(course.folder), inbound


def submit(inbound, student, time, **files):
    """As nbgrader's ``submit`` does it, and with the time that it notes."""
    folder = inbound / f"{student}+small+{time:%Y-%m-%d %H:%M:%S.%f} UTC+abc123"
    folder.mkdir()
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    (folder / "timestamp.txt").write_text(f"{time:%Y-%m-%d %H:%M:%S.%f} UTC")
    return folder


def test_the_latest_hand_in_of_the_exchange_with_a_time_that_holds(exchange):
    course, inbound = exchange
    now = datetime.now(UTC).replace(microsecond=0)
    submit(inbound, "ada", now - 2 * timedelta(minutes=1), small_ipynb="first")
    submit(inbound, "ada", now, small_ipynb="second")
    submit(inbound, "b+n", now - 48 * HOUR, small_ipynb="forged")  # claims to be early
    submit(inbound, "cy", now, small_ipynb="x").joinpath("passwd").symlink_to("/etc/passwd")
    (inbound / "cy+other+2026-01-01 00:00:00 UTC").mkdir()
    (inbound / "rubbish").mkdir()
    (inbound / "cy+small+rubbish+1").mkdir()
    found = {one.student: one for one in collect(course, "small")}
    assert list(found) == ["ada", "b+n", "cy"]
    assert (course.folder / "submitted/ada/small/small.ipynb").read_text() == "second"
    assert sorted(os.listdir(course.folder / "submitted/cy/small")) == [
        "small.ipynb", "timestamp.txt"
    ]  # fmt: skip
    times = recorded_times(course, "small")
    assert times["ada"] == now
    assert abs(times["b+n"] - now) < timedelta(minutes=2)
    assert "was written" in found["b+n"].remarks[0]
    assert {o.student: o.is_new for o in collect(course, "small")} == dict.fromkeys(found, False)
    assert recorded_times(course, "small") == times
    assert collect(course, "small", trusted=True)[1].remarks == []
    submit(inbound, "ada", now + HOUR, small_ipynb="third")
    assert [one.student for one in collect(course, "small") if one.is_new] == ["ada"]
    assert recorded_times(course, "small")["ada"] == now + HOUR
    assert "3 hand-ins, 0 of them new; nothing from 0" in collected(
        collect(course, "small"), course
    )


def test_a_collect_that_is_stopped_gives_nobody_an_earlier_time(exchange, monkeypatch):
    course, inbound = exchange
    now = datetime.now(UTC).replace(microsecond=0)
    submit(inbound, "ada", now - HOUR, small_ipynb="first")
    collect(course, "small", trusted=True)
    submit(inbound, "ada", now, small_ipynb="second")

    def stopped(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(collecting, "_put", stopped)
        with pytest.raises(KeyboardInterrupt):
            collect(course, "small", trusted=True)
    (one,) = collect(course, "small", trusted=True)
    assert one.is_new
    assert recorded_times(course, "small") == {"ada": now}
    # And stopped after the files were put: nothing is new, and the time is the right one.
    (one,) = collect(course, "small", trusted=True)
    assert (one.is_new, one.time) == (False, now)


def test_what_was_put_there_by_hand_is_left(exchange):
    course, inbound = exchange
    now = datetime.now(UTC).replace(microsecond=0)
    by_hand = course.folder / "submitted/ada/small"
    by_hand.mkdir(parents=True)
    (by_hand / "small.ipynb").write_text("came by mail")
    submit(inbound, "ada", now, small_ipynb="an older one")
    (one,) = collect(course, "small")
    assert one.remarks == [f"left: {by_hand} holds other work, which was not collected"]
    assert not one.is_new
    assert (by_hand / "small.ipynb").read_text() == "came by mail"
    assert recorded_times(course, "small") == {}, "nor has it the other's time"
    shutil.rmtree(by_hand)
    (one,) = collect(course, "small")
    assert one.is_new
    (by_hand / "small.ipynb").write_text("put right by the grader")
    (one,) = collect(course, "small")
    assert one.remarks[0].startswith("left: ")
    assert (by_hand / "small.ipynb").read_text() == "put right by the grader"


def test_what_jupyterlab_leaves_where_a_hand_in_was_looked_at_is_no_other_work(exchange):
    course, inbound = exchange
    now = datetime.now(UTC).replace(microsecond=0)
    submit(inbound, "ada", now, small_ipynb="first")
    collect(course, "small")
    copies = course.folder / "submitted/ada/small/.ipynb_checkpoints"
    copies.mkdir()
    (copies / "small-checkpoint.ipynb").write_text("first")
    (one,) = collect(course, "small")
    assert (one.is_new, one.remarks) == (False, [])
    submit(inbound, "ada", now + HOUR, small_ipynb="second")
    (one,) = collect(course, "small")
    assert one.is_new
    assert (course.folder / "submitted/ada/small/small.ipynb").read_text() == "second"


def test_one_place_that_cannot_be_written_is_one_student_s(exchange):
    course, inbound = exchange
    for student in ("ada", "ben"):
        submit(inbound, student, datetime.now(UTC), small_ipynb="x")
    (course.folder / "submitted").mkdir()
    (course.folder / "submitted/ada").write_text("a file")
    ada, ben = collect(course, "small")
    assert "cannot be written" in ada.remarks[0]
    assert (ada.is_new, ben.is_new) == (False, True)
    assert (course.folder / "submitted/ben/small/small.ipynb").exists()


def test_a_flood_in_the_exchange_is_not_read(exchange, monkeypatch):
    course, inbound = exchange
    folder = submit(inbound, "ada", datetime.now(UTC), small_ipynb="x")
    for number in range(90):
        with (folder / f"big{number}").open("wb") as file:
            file.truncate(19 * 2**20)  # takes no room on the disk
    read = []
    fdopen = os.fdopen

    def counting(*arguments):
        read.append(arguments)
        return fdopen(*arguments)

    monkeypatch.setattr(os, "fdopen", counting)
    (one,) = collect(course, "small")
    assert one.remarks == ["more than 100 files or 20 MB: not all was taken"]
    assert len(read) <= 3, "one that fits, one that does not"


def test_nobody_hands_in_for_another(exchange, monkeypatch):
    course, inbound = exchange
    enter_class_list(course, read_class_list(class_file(course.folder, "id\nada\nben\n")))
    now = datetime.now(UTC)
    submit(inbound, "ada", now - HOUR, small_ipynb="ada's own")
    submit(inbound, "ada", now, small_ipynb="ben's joke")
    owners = {True: "ben", False: "ada"}
    monkeypatch.setattr(
        Path, "owner", lambda path: owners["joke" in (path / "small.ipynb").read_text()]
    )
    (one,) = collect(course, "small", trusted=True)
    assert one.files["small.ipynb"] == b"ada's own"
    assert one.remarks == ["one in this name was put there by ben: not taken"]
    shutil.rmtree(next(p for p in inbound.iterdir() if "own" in (p / "small.ipynb").read_text()))
    shutil.rmtree(course.folder / "submitted")
    (one,) = collect(course, "small")
    assert not one.files
    assert not (course.folder / "submitted").exists()


def test_what_lies_in_the_exchange_costs_nobody_else_anything(exchange):
    course, inbound = exchange
    now = datetime.now(UTC)
    submit(inbound, "ada", now - HOUR, small_ipynb="ada's own")
    # A link in her name, with a later time, to the system's folder; and a file.
    (inbound / f"ada+small+{now:%Y-%m-%d %H:%M:%S.%f} UTC+x").symlink_to("/etc")
    (inbound / f"ada+small+{now + HOUR:%Y-%m-%d %H:%M:%S.%f} UTC+x").write_text("no folder")
    for time in ("9999-99-99 00:00:00 UTC", "1 2 3 4 5", "inf UTC", "\u202e", "9" * 150):
        (inbound / f"ben+small+{time}+x").mkdir()
    deep = submit(inbound, "cy", now, small_ipynb="c")
    for number in range(150):
        (deep / f"file{number}").write_text("x")
        deep = deep / "d" if number < 40 else deep
        deep.mkdir(exist_ok=True)
    big = submit(inbound, "dee", now, small_ipynb="d")
    for number in range(4):
        (big / f"big{number}").write_bytes(b"x" * 8_000_000)
    os.mkfifo(big / "pipe")
    found = {one.student: one for one in collect(course, "small")}
    assert found["ada"].files["small.ipynb"] == b"ada's own"
    assert "ben" not in found or not found["ben"].files
    assert len(found["cy"].files) <= 100
    assert sum(map(len, found["dee"].files.values())) <= 20 * 2**20
    assert found["dee"].remarks == ["more than 100 files or 20 MB: not all was taken"]
    assert (course.folder / "submitted/cy/small/small.ipynb").read_text() == "c"


def test_without_a_class_list_who_has_handed_in_is_known_as_well(exchange, monkeypatch):
    course, inbound = exchange
    now = datetime.now(UTC)
    submit(inbound, "ada", now - HOUR, small_ipynb="ada")
    submit(inbound, "ada", now, small_ipynb="ben's joke")
    submit(inbound, "ben", now, small_ipynb="ben")
    owner = {"ada": "ada", "ben's joke": "ben", "ben": "ben"}
    monkeypatch.setattr(Path, "owner", lambda path: owner[(path / "small.ipynb").read_text()])
    found = {one.student: one for one in collect(course, "small", trusted=True)}
    assert found["ada"].files["small.ipynb"] == b"ada"
    assert found["ada"].remarks == ["one in this name was put there by ben: not taken"]


def test_one_entry_that_cannot_be_unpacked_is_one_student_s(course):
    path = zipped(course.folder, ARCHIVES["moodle with folders"])
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo("Ada Lovelace_41_assignsubmission_file_/small.ipynb")
    content[entry.header_offset + 30 + len(entry.filename)] ^= 0xFF
    path.write_bytes(content)
    found = {one.student: one for one in collect(course, "small", path)}
    assert "a file cannot be unpacked" in found["Ada Lovelace 41"].remarks[1]
    assert found["Ben Bit 42"].files


def test_a_file_s_name_makes_nobody_another(course):
    people = "id,first_name,last_name\nada,Ada,L\nben,Ben,B\n"
    enter_class_list(course, read_class_list(class_file(course.folder, people)))
    name = "Ada L_41_assignsubmission_file_Ben B_42_assignsubmission_file_small.ipynb"
    (one,) = collect(course, "small", zipped(course.folder, {name: "a"}))
    assert one.student == "ada"


def test_a_time_that_cannot_be_is_no_hand_in_and_the_owner_is_asked_for(exchange, monkeypatch):
    course, inbound = exchange
    now = datetime.now(UTC).replace(microsecond=0)
    submit(inbound, "ada", now - HOUR, small_ipynb="ada")
    submit(inbound, "ada", now, small_ipynb="of somebody in no list")
    for time in ("9999-12-31 23:59:00 UTC", "0001-01-01 00:00:00 UTC"):
        (inbound / f"ben+small+{time}+x").mkdir()
    submit(inbound, "", now, small_ipynb="no name")
    owner = {"ada": "ada", "of somebody in no list": "mallory", "no name": "root"}
    monkeypatch.setattr(Path, "owner", lambda path: owner[(path / "small.ipynb").read_text()]
                        if (path / "small.ipynb").exists() else "root")  # fmt: skip
    (one,) = collect(course, "small")
    assert one.files["small.ipynb"] == b"ada"
    assert one.remarks[0] == "one in this name was put there by mallory: not taken"
    assert abs(recorded_times(course, "small")["ada"] - now) < timedelta(minutes=2)
    collect(course, "small", trusted=True)
    assert recorded_times(course, "small")["ada"] == now - HOUR, "what is trusted corrects"
    collect(course, "small")
    assert recorded_times(course, "small")["ada"] > now - HOUR, "and is not trusted for ever"


def test_a_time_in_an_archive_is_a_student_s_and_not_taken(course):
    files = {"lada_1_6_small.ipynb": "x", "lada_1_7_timestamp.txt": "2000-01-01 00:00:00 UTC"}
    (one,) = collect(course, "small", zipped(course.folder, files))
    assert list(one.files) == ["small.ipynb"]


def test_a_name_that_two_have_is_neither_s(course):
    people = "id,first_name,last_name,lms_user_id\nada,Ada,L,17\nben,Ben,B,\n"
    enter_class_list(course, read_class_list(class_file(course.folder, people)))
    suffix = "assignsubmission_file_/small.ipynb"
    files = {f"Ben B_1_{suffix}": "b", f"Ben B_9_{suffix}": "x", f"ada_3_{suffix}": "y",
             "Ada L_2_assignsubmission_file_/inside/.": "z",
             "Ada L_2_assignsubmission_file_/a\nb.ipynb": "a"}  # fmt: skip
    found = {one.student: one for one in collect(course, "small", zipped(course.folder, files))}
    assert list(found) == ["Ben B 1", "Ben B 9", "ada", "ada 3"]
    hint = "two have this name: give the number of each as lms_user_id in the class list"
    assert found["Ben B 1"].remarks == [hint]
    assert found["ada"].files["a%0Ab.ipynb"] == b"a"
    more = people.replace("ben,Ben,B,", "ben,Ben,B,1\nberta,Ben,B,9")
    enter_class_list(course, read_class_list(class_file(course.folder, more)))
    times = course.folder / "times.csv"
    times.write_text("student,time\nberta,2026-12-01 20:00\nada,\n")
    found = {
        one.student: one for one in collect(course, "small", zipped(course.folder, files), times)
    }
    assert list(found) == ["ada", "ada 3", "ben", "berta"], "the number that is known tells"
    assert recorded_times(course, "small")["berta"] is not None
    stranger = f"Cy C_9_{suffix}"
    assert [one.student for one in collect(course, "small", zipped(course.folder, {stranger: "c"}))
            ] == ["Cy C 9"], "a number that another one has in another assignment"  # fmt: skip
    times.write_text("student,time\nberta,2026-12-01 20:00\n")
    last = collect(course, "small", zipped(course.folder, {f"ada_3_{suffix}": "y"}), times)[-1]
    assert (last.student, last.files, last.is_new) == ("berta", {}, False)
    assert "the time was not used" in last.remarks[0]
    # Canvas: the number counts, and a name only for whom no number is known.
    (one,) = collect(course, "small", zipped(course.folder, {"lada_99_6_small.ipynb": "x"}))
    assert one.student == "lada 99"


RULES = {
    "points_a_day = '3'": "points_a_day", "points_a_day = -3": "points_a_day",
    "points_a_day = float('nan')": "finite", "zone = None": "zone", "x = (": "SyntaxError",
    "y = undefined": "NameError", "zone = 'Berlin'": "is no time zone",
    "cutoff_days = 3": "has no cutoff_days; it has cut_off_days, ",
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_a_wrong_rule_is_one_line(course, rule):
    path = course.folder / "nbgrader_config.py"
    path.write_text(path.read_text() + f"\nget_config().LatePolicy.{rule}\n")
    with pytest.raises(UserError, match=RULES[rule]):
        policy_of(Course(course.folder)).place  # noqa: B018


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("student,time\nzoe,2026-12-01 23:59\n", "has times of zoe, whom nobody knows"),
        ("student,time\nada,2026-12-01 23:59\nada ,2026-12-02 23:59\n", "two times of ada"),
        ("student,time\nada,soon\n", "ada: 'soon' is no time"),
    ],
)
def test_a_wrong_table_of_times_is_one_line(course, text, says):
    times = course.folder / "times.csv"
    times.write_text(text)
    enter_class_list(course, read_class_list(class_file(course.folder, "id\nada\n")))
    with pytest.raises(UserError, match=says):
        collect(course, "small", zipped(course.folder, ARCHIVES["canvas"]), times)
    assert not (course.folder / "submitted").exists()


@pytest.mark.sandbox
def test_a_hand_in_without_a_secret_stops_nobody_s_feedback(exchange, template):
    course, inbound = exchange
    text = nbformat.writes(grading_help.submission(template, **SOLVED))
    now = datetime.now(UTC)
    for student, secret in (("ada", "../../x"), ("ben", "5ec2e7")):
        folder = submit(inbound, student, now, small_ipynb=text)
        (folder / "submission_secret.txt").write_text(secret)
    submit(inbound, "cy", now, small_ipynb=text)
    collect(course, "small")
    grade(course, students=["ada", "ben"])
    with course.gradebook() as gradebook:
        gradebook.update_or_create_student("cy")
    assert make_feedback(course, "small", unfinished=True) == (2, 1, []), "cy is not graded yet"
    grade(course)
    assert make_feedback(course, "small", unfinished=True) == (3, 0, [])
    kept = course.folder / "feedback" / "ben" / "small" / "submission_secret.txt"
    assert kept.read_text() == "5ec2e7"
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", "release_feedback", "small"],
        cwd=course.folder, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(list((inbound.parent / "feedback").iterdir())) == 3


def test_what_was_never_graded_is_not_exported(course, template):
    enter_class_list(course, read_class_list(class_file(course.folder, "id\nada\nben\n")))
    set_deadline(course, "small", DUE)
    set_extension(course, "small", "ada", DUE + HOUR)
    hand_in(course, "ada", template)
    with pytest.raises(UserError, match="small was not graded yet"):
        export(course, "small", "moodle", course.folder / "grades.csv")


def test_without_an_exchange_there_is_one_line(course):
    path = course.folder / "nbgrader_config.py"
    path.write_text(path.read_text() + "get_config().Exchange.root = '/nowhere'\n")
    with pytest.raises(UserError, match="there is no exchange at /nowhere/transformer/inbound"):
        collect(Course(course.folder), "small")


def zipped(folder, files):
    path = folder / "all.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            if content == "link":
                entry.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(entry, content)
    return path


ARCHIVES = {
    "moodle with folders": {
        "Ada Lovelace_41_assignsubmission_file_/small.ipynb": "a",
        "Ada Lovelace_41_assignsubmission_file_/../../../evil.py": "e",
        "Ada Lovelace_41_assignsubmission_file_/link": "link",
        "Ada Lovelace_41_assignsubmission_onlinetext_/onlinetext.html": "text",
        "Ben Bit_42_assignsubmission_file/inside/small (1).ipynb": "b",
        "Zoe Who_43_assignsubmission_file_/small.ipynb": "z",
    },
    "moodle flat": {
        "Ada Lovelace_41_assignsubmission_file_small.ipynb": "a",
        "Bit Ben_42_assignsubmission_file_small (1).ipynb": "b",
        "Zoe Who_43_assignsubmission_file_small.ipynb": "z",
    },
    "canvas": {
        "lovelaceada_71_900_small.ipynb": "a",
        "bitben_LATE_72_901_small (1).ipynb": "b",
        "whozoe_43_902_small.ipynb": "z",
    },
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_the_archives_of_moodle_and_canvas(course, name):
    people = "id,first_name,last_name,lms_user_id\nada,Ada,Lovelace,71\nben,Ben,Bit,\ncy,Cy,X,\n"
    enter_class_list(course, read_class_list(class_file(course.folder, people)))
    path = zipped(course.folder, ARCHIVES[name])
    times = course.folder / "times.csv"
    times.write_text("student,time\nada,2026-12-01 23:59\n")
    found = {one.student: one for one in collect(course, "small", path, times)}
    submitted = course.folder / "submitted"
    stranger = (found.keys() - {"ada", "ben"}).pop()
    assert stranger.endswith(" 43")
    assert found[stranger].remarks == ["not in the class list"]
    assert (submitted / "ada/small/small.ipynb").read_text() == "a"
    assert (submitted / "ben/small/small (1).ipynb").read_text() == "b"
    assert ("marked as late" in found["ben"].remarks) == (name == "canvas")
    everything = {p.name for p in course.folder.parent.rglob("*") if "submitted" in p.parts}
    assert not everything & {"link", "onlinetext.html"}
    assert not [p for p in course.folder.parent.rglob("evil.py") if "ada" not in p.parts]
    assert recorded_times(course, "small") == {"ada": datetime(2026, 12, 1, 23, 59, tzinfo=UTC)}
    text = collected(list(found.values()), course)
    assert text.splitlines()[-1].startswith("3 hand-ins, 3 of them new; nothing from 1: cy")
    assert not any(one.is_new for one in collect(course, "small", path))
    assert recorded_times(course, "small"), "what is known stays so"


def test_a_file_of_canvas_may_be_called_like_one_of_moodle(course):
    files = {"lada_1_6_small.ipynb": "a", "bben_2_7_small.ipynb": "b",
             "ccy_3_8_x_1_assignsubmission_file_small.ipynb": "c"}  # fmt: skip
    assert len(collect(course, "small", zipped(course.folder, files))) == 3


def test_a_notebook_in_a_folder_does_not_take_the_place_of_the_one_above(course):
    whose = "Ada L_1_assignsubmission_file_"
    files = {f"{whose}/old/small.ipynb": "old", f"{whose}/small.ipynb": "new"}
    (one,) = collect(course, "small", zipped(course.folder, files))
    assert one.files == {"small.ipynb": b"new"}
    assert "small.ipynb is there twice: the one further up was taken" in one.remarks


@pytest.mark.parametrize(
    ("listed", "packed"),
    [("Liam;O'Brien", "Liam OBrien"), ("Anna  Maria;van der Berg", "Anna Maria van der Berg"),
     ("Zoë;Müller", unicodedata.normalize("NFD", "Zoë Müller"))],
)  # fmt: skip
def test_names_are_the_same_however_they_are_written(course, listed, packed):
    people = f"First name;Surname;Username\n{listed};one\n"
    enter_class_list(course, read_class_list(class_file(course.folder, people)))
    files = {f"{packed}_1_assignsubmission_file_/small.ipynb": "a"}
    assert [x.student for x in collect(course, "small", zipped(course.folder, files))] == ["one"]


def test_an_archive_that_is_none_or_too_large(course):
    path = course.folder / "all.zip"
    path.write_bytes(b"PK rubbish")
    with pytest.raises(UserError, match="cannot be read as a zip file"):
        collect(course, "small", path)
    with pytest.raises(UserError, match="is no archive of hand-ins"):
        collect(course, "small", zipped(course.folder, {"small.ipynb": "a"}))
    bomb = zipped(course.folder, {"Ada L_1_assignsubmission_file_/small.ipynb": "0" * 30_000_000})
    (one,) = collect(course, "small", bomb)
    too_much = "more than 100 files or 20 MB: not all was taken"
    assert one.remarks == ["not in the class list", too_much, "no file in it"]
    times = course.folder / "times.csv"
    times.write_text("name,when\nada,now\n")
    with pytest.raises(UserError, match="needs the columns student and time"):
        collect(course, "small", zipped(course.folder, ARCHIVES["canvas"]), times)


def test_an_archive_of_another_assignment_replaces_nothing(course, template):
    name = "Ada L_1_assignsubmission_file_/small.ipynb"
    own = nbformat.writes(grading_help.submission(template, **SOLVED))
    (one,) = collect(course, "small", zipped(course.folder, {name: own}))
    other = own
    for cell in template.cells:
        if grade_id := cell.metadata.get("nbgrader", {}).get("grade_id"):
            other = other.replace(f'"grade_id": "{grade_id}"', f'"grade_id": "other_{grade_id}"')
    with pytest.raises(UserError, match=r"no notebook in .* has a cell of small"):
        collect(course, "small", zipped(course.folder, {name: other}))
    kept = course.folder / "submitted" / one.student / "small" / "small.ipynb"
    assert kept.read_text(encoding="utf-8") == own


def test_times_may_be_separated_by_semicolons(course):
    enter_class_list(course, read_class_list(class_file(course.folder, "id,first_name\nada,Ada\n")))
    times = course.folder / "times.csv"
    times.write_text("student;time\nada;2026-12-01 20:15\n")
    files = {"Ada_1_assignsubmission_file_/small.ipynb": "a"}
    (one,) = collect(course, "small", zipped(course.folder, files), times)
    assert one.time == datetime(2026, 12, 1, 20, 15, tzinfo=policy_of(course).place)


# Grading by hand


def given_by_hand(course, student, cell, points):
    """What the form grader does when a human has given points."""
    with course.gradebook() as gradebook:
        grade = gradebook.find_grade(cell, "small", "small", student)
        grade.manual_score = points
        grade.needs_manual_grade = False
        gradebook.db.commit()


def waiting(course, student="ada"):
    return standings(course, "small").students[student].waiting


@pytest.mark.sandbox
def test_what_is_graded_by_hand_stays_so_while_the_answer_is_the_same(course, template):
    hand_in(course, "ada", grading_help.submission(template, **SOLVED))
    grade(course)
    assert waiting(course) == 1
    given_by_hand(course, "ada", "why", 2)
    given_by_hand(course, "ada", "test_mask", 3)  # of a test, overruled
    assert waiting(course) == 0
    grade(course, again=True)
    assert waiting(course) == 0
    assert standings(course, "small").students["ada"].score == 2 + 2 + 3
    hand_in(course, "ada", grading_help.submission(template, **SOLVED | {"why": "Why not?"}))
    grade(course)
    assert waiting(course) == 1, "the answer in words is another, the code is not"
    given_by_hand(course, "ada", "why", 2)
    other = SOLVED | {"why": "Why not?", "scale": "def scale(x):\n    return x * 3 + 1"}
    hand_in(course, "ada", grading_help.submission(template, **other))
    grade(course)
    assert waiting(course) == 1, "code is another: the points of the test are looked at again"
    # What was never looked at goes on waiting.
    hand_in(course, "ben", grading_help.submission(template, **SOLVED))
    grade(course)
    grade(course, again=True)
    assert waiting(course, "ben") == 1


@pytest.mark.sandbox
def test_feedback_is_for_what_is_finished(course, template):
    for student in ("ada", "ben"):
        hand_in(course, student, grading_help.submission(template, **SOLVED))
    grade(course)
    given_by_hand(course, "ada", "why", 2)
    assert make_feedback(course, "small") == (1, 1, [])
    assert os.listdir(course.folder / "feedback") == ["ada"]
    assert make_feedback(course, "small", unfinished=True) == (2, 0, [])
    ada, ben = (
        (course.folder / "feedback" / student / "small" / "small.html").read_text()
        for student in ("ada", "ben")
    )
    assert "Provisional" not in ada
    assert "Provisional: 1 answer is not graded yet, and count" in ben
    shutil.rmtree(course.folder / "autograded" / "ada")  # as nbgrader's own grading may do
    assert make_feedback(course, "small", unfinished=True) == (1, 0, ["ada"])
    assert [row.is_new for row in grade(course).values()] == [True, False]
    assert make_feedback(course, "small", unfinished=True) == (2, 0, [])
    assert make_feedback(course, "small") == (1, 1, [])
    assert os.listdir(course.folder / "feedback/ben") == [], "a page of work that waits again"
    with pytest.raises(UserError, match="no assignment large"):
        grading.grade(course, "large")


@pytest.mark.sandbox
def test_feedback_says_what_lateness_cost_and_why(course, template):
    course = strict(course)
    hand_in(course, "ada", grading_help.submission(template, **SOLVED))
    record(course, "small", {"ada": Entry(DUE + 30 * HOUR)})
    set_deadline(course, "small", DUE)
    grade(course)
    make_feedback(course, "small", unfinished=True)
    page = (course.folder / "feedback/ada/small/small.html").read_text()
    assert (
        "Late submission penalty (1 day 6 h late, 2026-12-03 05:59 CET instead of 2026-12-01 23:59 "
        "CET; 2 points less for each day begun" in page
    )


# Numbers of one's own

COHORT = '2026 "x" \\'


def personal(template, **given):
    """The small assignment with a cell that says whose it is, and a scheme that uses its number."""
    said = {"COHORT": "self-study", "STUDENT": "...", **given}
    source = "COHORT = {COHORT!r}\nSTUDENT = {STUDENT!r}  # your name\nNUMBER = 0\n".format(**said)
    notebook = nbformat.from_dict(template)
    notebook.cells.insert(1, nbformat.v4.new_code_cell(source, id="personal"))
    return notebook


def test_a_personal_number_is_the_same_for_everybody_who_computes_it():
    # By hand: sha256 of "2026" + newline + "ada", its first 8 bytes modulo 900,000, plus 100,000.
    digest = hashlib.sha256(b"2026\nada").hexdigest()
    assert personal_number(" Ada ", "2026") == 100_000 + int(digest[:16], 16) % 900_000
    assert personal_number("Jos\u00e9", "2026") == personal_number("Jose\u0301", "2026")
    numbers = {personal_number(f"student{n}", cohort) for n in range(200) for cohort in "ab"}
    assert len(numbers) == 400


@pytest.mark.parametrize(
    ("given", "remark"),
    [
        ({"STUDENT": "ada", "COHORT": COHORT}, None),
        ({"STUDENT": " Ada", "COHORT": COHORT}, None),
        ({"STUDENT": "ada"}, "it is the notebook of another cohort"),
        ({"STUDENT": "ben"}, "the name in it is another one"),
        ({}, "no name was filled in"),
        ({"STUDENT": "  "}, "no name was filled in"),
    ],
)
def test_the_number_is_the_student_s_own_whatever_was_typed(template, given, remark):
    notebook, remarks = mended(
        known(personal(grading_help.submission(template, **SOLVED), **given)), personal(template),
        "ada", COHORT
    )  # fmt: skip
    cells = [cell for cell in notebook.cells if "STUDENT" in cell.source and cell.id != "hand-in"]
    assert len(cells) == 1, "what was typed is not there a second time"
    names = {}
    exec(cells[0].source, names)
    assert (names["STUDENT"], names["COHORT"]) == ("ada", COHORT)
    said = f"{remark}: its figures may be of another number"
    assert [r for r in remarks if "figures" in r] == ([] if remark is None else [said])


def test_a_program_that_keeps_no_ids_changes_nothing(template):
    handed_in = known(personal(grading_help.submission(template, **SOLVED), STUDENT="ben"))
    for cell in handed_in.cells:
        cell.id = ""
    notebook, remarks = mended(handed_in, personal(template), "ada", COHORT)
    assert "the name in it is another one: its figures may be of another number" in remarks
    assert not any("ben" in cell.source for cell in notebook.cells)


def test_a_cohort_that_is_no_text_is_one_line(course):
    config = course.folder / "nbgrader_config.py"
    config.write_text(config.read_text() + "\nget_config().SetCohort.cohort = 2026\n")
    with pytest.raises(UserError, match=r"nbgrader_config.py: The 'cohort' trait"):
        cohort_of(Course(course.folder).config)


@pytest.mark.sandbox
def test_schemes_and_cells_are_worked_out_for_each_student(course, template):
    path = course.folder / "source" / "small" / "small.ipynb"
    master = personal(nbformat.read(path, 4))
    line = "| 1 | n is {{ NUMBER % 100 }} |"
    scheme = f"Say why $x_{{{{ab}}}}$.\n### BEGIN MARK SCHEME\n{line}\n### END MARK SCHEME"
    master.cells.append(grading_help.graded(
        scheme, "q_why", nbformat.v4.new_markdown_cell, locked=True))  # fmt: skip
    master.cells.append(nbformat.v4.new_code_cell("STUDENT, COHORT", id="said"))
    nbformat.write(master, path)
    config = course.folder / "nbgrader_config.py"
    config.write_text(config.read_text() + "\nget_config().SetCohort.cohort = '2026'\n")
    course = Course(course.folder)
    course.register("small")
    released = (course.results / ".registered" / "small" / "small.ipynb").read_text()
    assert "COHORT = '2026'" in released
    assert "NUMBER %" not in released
    for student in ("ada", "ben"):
        hand_in(course, student, grading_help.submission(nbformat.reads(released, 4), **SOLVED))
    assert [row.points for row in grade(course).values()] == [6, 6]
    for student in ("ada", "ben"):
        page = course.folder / "autograded" / student / "small" / "small.ipynb"
        notebook = nbformat.read(page, 4)
        expected = f"n is {personal_number(student, '2026') % 100} |"
        assert any(expected in cell.source for cell in notebook.cells)
        assert any("Say why $x_{{ab}}$." in cell.source for cell in notebook.cells)
        (said,) = [c.outputs[0] for c in notebook.cells if c.source == "STUDENT, COHORT"]
        assert said["data"]["text/plain"] == f"('{student}', '2026')"
        (mine,) = [cell.source for cell in notebook.cells if cell.id == "personal"]
        assert "STUDENT = '...'" in mine, "who grades by hand sees no name"


# Two graders


@pytest.mark.sandbox
def test_a_second_grader_sees_no_points_and_agreement_is_krippendorffs(course, template):
    students = ("ada", "ben", "cy", "dee")
    for student in students:
        hand_in(course, student, grading_help.submission(template, **SOLVED))
    grade(course)
    with pytest.raises(UserError, match="no hand-in is graded by hand yet"):
        make_second(course, "small", course.folder.parent / "second")
    first = dict(zip(students, (3, 2, 1, 0), strict=True))
    for student, points in first.items():
        given_by_hand(course, student, "why", points)
    target = course.folder.parent / "second"
    assert make_second(course, "small", target, share=1.0) == list(students)
    with pytest.raises(UserError, match="is there already"):
        make_second(course, "small", target)
    second = Course(target)
    assert waiting(second) == 1
    assert standings(second, "small").students["ada"].score == 6, "points of tests stay"
    with pytest.raises(UserError, match="no answer has points of both"):
        agreements(course, second, "small")
    for student, points in zip(students, (3, 2, 2, 0), strict=True):
        given_by_hand(second, student, "why", points)
    (one,) = agreements(course, second, "small")
    assert (one.item, one.answers, one.same, one.difference) == ("why", 4, 0.75, 0.25)
    assert one.furthest == ("cy", 1, 2)
    # By hand: 1 − D_o / D_e with squared differences; D_o = 1/4, D_e over all 56 ordered pairs.
    values = [3, 2, 1, 0, 3, 2, 2, 0]
    expected = sum((a - b) ** 2 for a in values for b in values) / 56
    assert one.alpha == pytest.approx(1 - 0.25 / expected)
    assert "why        4   75%           +0.25" in described([one])
    with pytest.raises(UserError, match="is the first grader's course"):
        agreements(course, Course(course.folder), "small")
    with pytest.raises(UserError, match="does not know other"):
        agreements(course, second, "other")
    sample = make_second(course, "small", course.folder.parent / "third", share=0.5, seed=1)
    assert len(sample) == 2
    assert sorted(os.listdir(course.folder.parent / "third" / "autograded")) == sample
    assert list(standings(Course(course.folder.parent / "third"), "small").handed_in)


# The commands


def typed(monkeypatch, capsys, course, *words):
    """Type a command; what it says on both streams."""
    monkeypatch.setattr(sys, "argv", ["transformer-lib", *map(str, words), "--course",
                                      str(course.folder)])  # fmt: skip
    with pytest.raises(SystemExit) as end:
        cli.main()
    said = capsys.readouterr()
    return end.value.code, said.out, said.err


@pytest.mark.sandbox
def test_a_term_at_the_command_line(course, template, monkeypatch, capsys):
    def type_in(*words):
        return typed(monkeypatch, capsys, course, *words)

    listed = class_file(course.folder, "id,first_name,last_name\nada,Ada,A\nben,Ben,B\n")
    assert type_in("class-list", listed) == (
        0, "2 students are in the gradebook, the first as ada\n", ""
    )  # fmt: skip
    code, out, _ = type_in("deadline", "small", "2026-12-01 23:59", "--zone", "Europe/Berlin")
    assert (code, out) == (0, "small is due 2026-12-01 23:59 CET; being late costs nothing\n")
    code, out, _ = type_in("deadline", "small", "2026-12-08 23:59", "--student", "ben")
    assert out.splitlines()[1] == "  ben: 2026-12-08 23:59 UTC"
    assert type_in("deadline", "small", "--student", "ben")[0] == 2
    assert "no time zone" in type_in("deadline", "small", "2026-12-01 23:59", "--zone", "X")[2]
    archive = zipped(course.folder, {"aada_71_900_small.ipynb": nbformat.writes(
        grading_help.submission(template, **SOLVED))})  # fmt: skip
    code, out, _ = type_in("collect", "small", archive)
    assert out.splitlines()[-1] == "1 hand-ins, 1 of them new; nothing from 1: ben"
    path = course.folder / "source" / "small" / "small.ipynb"
    careless = "assert scale(y).sum() == (3 * y + 1).sum(), ("
    path.write_text(path.read_text().replace("expect(scale(y), 3 * y + 1,", careless))
    code, out, err = type_in("grade", "small", "--jobs", "1")
    assert code == 0
    assert "! small: test_scale, hidden test" in err, "a test that could be fooled is told"
    assert "ben    0.0 of 9  deadline extended; nothing handed in" in out
    code, out, err = type_in("feedback", "small")
    assert out.startswith("pages in")
    assert "fully graded and got no page: 1" in err
    given_by_hand(course, "ada", "why", 2)
    assert type_in("feedback", "small")[1].endswith(": 1\n")


@pytest.mark.filterwarnings("ignore:Object of type")  # nbgrader's own queries
def test_a_penalty_is_taken_once_from_an_assignment_of_two_notebooks(course):
    course = strict(course)
    source = course.folder / "source" / "small"
    shutil.copy(source / "small.ipynb", source / "second.ipynb")
    course.register("small")
    set_deadline(course, "small", DUE)
    with course.gradebook() as gradebook:
        gradebook.update_or_create_student("ada")
        late = (DUE + 30 * HOUR).replace(tzinfo=None)
        submission = gradebook.update_or_create_submission("small", "ada", timestamp=late)
        for notebook, points in (("small", 1), ("second", 6)):
            for cell in ("test_scale", "test_mask"):
                grade = gradebook.find_grade(cell, notebook, "small", "ada")
                grade.auto_score = points / 2
        gradebook.db.commit()
        assert submission.score == 7
    one = standings(course, "small").students["ada"]
    assert (one.score, one.penalty, one.points) == (7, 4, 3)


@pytest.mark.sandbox
def test_marks_do_not_outlive_the_answer_that_they_were_given_for(course, template):
    hand_in(course, "ada", grading_help.submission(template, **SOLVED))
    grade(course)
    given_by_hand(course, "ada", "why", 2)
    hand_in(course, "ada", template)
    grade(course)
    one = standings(course, "small").students["ada"]
    assert (one.points, one.waiting) == (0, 0)


def test_a_text_typed_in_moodle_is_said_not_to_be_taken(course):
    name = "Ada L_2_assignsubmission_onlinetext_/onlinetext.html"
    (one,) = collect(course, "small", zipped(course.folder, {name: "<p>see mail</p>"}))
    assert one.files == {}
    assert "a text typed in Moodle is not taken" in one.remarks


def test_what_is_handed_in_again_takes_the_place_of_what_is_kept(course):
    times = course.folder / "times.csv"
    times.write_text("student,time\nada,2026-12-01 20:00+00:00\n")
    name = "Ada L_2_assignsubmission_file_/small.ipynb"
    people = "id,first_name,last_name\nada,Ada,L\n"
    enter_class_list(course, read_class_list(class_file(course.folder, people)))
    (one,) = collect(course, "small", zipped(course.folder, {name: "first"}), times)
    assert one.remarks == []
    (one,) = collect(course, "small", zipped(course.folder, {name: "second"}))
    assert "give --times" in one.remarks[0]
    assert "replaces the one of 2026-12-01 20:00 UTC, which is now in" in one.remarks[1]
    (kept,) = (course.results / "earlier" / "ada" / "small").iterdir()
    assert (kept / "small.ipynb").read_text() == "first"


@pytest.mark.sandbox
def test_points_by_hand_wait_again_when_there_are_others_to_give(course, template):
    hand_in(course, "ada", grading_help.submission(template, **SOLVED))
    grade(course)
    given_by_hand(course, "ada", "why", 2)
    grade(course, again=True)
    assert waiting(course) == 0
    path = course.folder / "source" / "small" / "small.ipynb"
    master = nbformat.read(path, as_version=4)
    (cell,) = (c for c in master.cells if c.metadata.get("nbgrader", {}).get("grade_id") == "why")
    cell.metadata.nbgrader.points = 5
    nbformat.write(master, path)
    grade(course)
    assert waiting(course) == 1
