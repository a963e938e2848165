"""What comes in: class lists, the exchange, archives of Moodle and Canvas, and the record of it."""

import multiprocessing
import os
import shutil
import sys
import unicodedata
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import sleep

import grading_help
import nbformat
import pytest
from grading_help import DUE, HOUR, SOLVED, class_file, recorded_times, submit, zipped

from transformer_lib.errors import UserError
from transformer_lib.instructor.grading import collect as collecting
from transformer_lib.instructor.grading import exchange as exchanging
from transformer_lib.instructor.grading.class_list import enter_class_list, read_class_list
from transformer_lib.instructor.grading.collect import collect, collected
from transformer_lib.instructor.grading.course import Course
from transformer_lib.instructor.grading.feedback import pack_for_moodle
from transformer_lib.instructor.grading.hand_ins import Entry, record, recorded
from transformer_lib.instructor.grading.term import (
    policy_of,
    set_deadline,
    set_extension,
    standings,
)

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


def test_without_an_exchange_there_is_one_line(course):
    path = course.folder / "nbgrader_config.py"
    path.write_text(path.read_text() + "get_config().Exchange.root = '/nowhere'\n")
    with pytest.raises(UserError, match="there is no exchange at /nowhere/transformer/inbound"):
        collect(Course(course.folder), "small")


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


@pytest.mark.parametrize("name", ["moodle with folders", "moodle flat"])
def test_pages_go_back_under_the_names_by_which_moodle_knows_its_participants(course, name):
    people = "id,first_name,last_name\nada,Ada,Lovelace\nben,Ben,Bit\ncy,Cy,X\n"
    enter_class_list(course, read_class_list(class_file(course.folder, people)))
    for student in ("ada", "ben", "cy"):
        folder = course.folder / "feedback" / student / "small"
        folder.mkdir(parents=True)
        (folder / "small.html").write_text(f"of {student}")
        (folder / "submission_secret.txt").write_text("secret")
    out = course.folder / "feedback" / "small.zip"
    hand_ins = zipped(course.folder, ARCHIVES[name])
    assert pack_for_moodle(course, "small", hand_ins, out) == ["cy"]
    with zipfile.ZipFile(out) as pages:
        assert {page: pages.read(page) for page in pages.namelist()} == {
            "Ada Lovelace_41_assignsubmission_file_/small.html": b"of ada",
            "Ben Bit_42_assignsubmission_file_/small.html"
            if "folders" in name
            else "Bit Ben_42_assignsubmission_file_/small.html": b"of ben",
        }


def test_pages_go_back_to_nobody_in_doubt_and_only_to_moodle(course):
    people = "id,first_name,last_name\nada,Ada,Lovelace\nada2,Ada,Lovelace\n"
    enter_class_list(course, read_class_list(class_file(course.folder, people)))
    page = course.folder / "feedback/ada/small/small.html"
    page.parent.mkdir(parents=True)
    page.write_text("of ada")
    out = course.folder / "feedback/small.zip"
    twice = zipped(course.folder, {"Ada Lovelace_41_assignsubmission_file_/small.ipynb": "a"})
    assert pack_for_moodle(course, "small", twice, out) == ["ada"]
    with zipfile.ZipFile(out) as pages:
        assert pages.namelist() == []
    with pytest.raises(UserError, match="no archive of hand-ins as Moodle makes it"):
        pack_for_moodle(course, "small", zipped(course.folder, ARCHIVES["canvas"]), out)
    (course.folder / "no.zip").write_text("text")
    with pytest.raises(UserError, match="cannot be read as a zip file"):
        pack_for_moodle(course, "small", course.folder / "no.zip", out)


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
    times.write_text("sep=;\nStudent;Time\nada;2026-12-01 20:15\n")
    files = {"Ada_1_assignsubmission_file_/small.ipynb": "a"}
    (one,) = collect(course, "small", zipped(course.folder, files), times)
    assert one.time == datetime(2026, 12, 1, 20, 15, tzinfo=policy_of(course).zone_info)


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


ADA = "Ada L_1_assignsubmission_file_/small.ipynb"


def with_class(course, text="id,first_name,last_name\nada,Ada,L\n"):
    """The folder of Ada's work, in a course of this class."""
    enter_class_list(course, read_class_list(class_file(course.folder, text)))
    return course.folder / "submitted" / "ada" / "small"


def times_of(course, text):
    path = course.folder / "times.csv"
    path.write_text(f"student,time\n{text}\n", encoding="utf-8-sig")
    return path


def test_a_record_that_cannot_be_read_makes_nobody_punctual(course):
    record(course, "small", {"ada": Entry(DUE)})
    path = course.results / "hand-ins" / "small.json"
    path.write_text(path.read_text().replace("}\n}", "},\n}"))  # put right by hand
    before = path.read_text()
    with pytest.raises(UserError, match="the record of when work came in, cannot be read"):
        recorded(course, "small")
    with pytest.raises(UserError, match="mend it, or fetch it from a backup"):
        record(course, "small", {"ben": Entry(DUE)})
    assert path.read_text() == before


@pytest.mark.skipif(sys.platform != "linux", reason="processes by fork")
def test_two_that_collect_at_once_lose_nobody(course):
    def several(letter):
        for number in range(20):
            record(course, "small", {f"{letter}{number}": Entry(DUE)})

    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=several, args=letter) for letter in "ab"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert len(recorded(course, "small")) == 40


def test_work_that_finds_no_room_leaves_the_earlier_one_its_time(course, monkeypatch):
    target = with_class(course)
    in_time = times_of(course, "ada,2026-12-01 20:00")
    collect(course, "small", zipped(course.folder, {ADA: "first"}), in_time)
    before = recorded_times(course, "small")
    write = Path.write_bytes

    def full(path, content):
        if path.name == "small.ipynb":
            raise OSError(28, "No space left on device", str(path))
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    late = times_of(course, "ada,2026-12-03 20:00")
    (one,) = collect(course, "small", zipped(course.folder, {ADA: "second"}), late)
    assert "No space left" in one.remarks[-1]
    assert not any("replaces" in remark for remark in one.remarks)
    assert recorded_times(course, "small") == before
    assert (target / "small.ipynb").read_text() == "first"


def test_a_name_may_be_typed_as_tables_list_it(course):
    with_class(course, "id\nb*n\n")
    set_deadline(course, "small", DUE)
    for typed in ("b%2An", "b*n"):
        set_extension(course, "small", typed, DUE + HOUR)
        assert standings(course, "small").students["b%2An"].is_extended
        found = collect(
            course, "small", zipped(course.folder, {ADA: typed}), times_of(course, f"{typed},{DUE}")
        )
        assert found[-1].student == "b%2An"


def test_two_ways_to_write_a_letter_are_one_name(course):
    """Folders of a Mac have an ö of two characters."""
    with_class(course, f"id,first_name,last_name\n{unicodedata.normalize('NFC', 'jörg')},Ada,L\n")
    typed = times_of(course, f"{unicodedata.normalize('NFD', 'jörg')},2026-12-01 20:00")
    (one,) = collect(course, "small", zipped(course.folder, {ADA: "a"}), typed)
    assert one.time == datetime(2026, 12, 1, 20, tzinfo=UTC)


def test_an_empty_folder_is_no_other_work(course):
    target = with_class(course)
    target.mkdir(parents=True)
    (one,) = collect(course, "small", zipped(course.folder, {ADA: "a"}))
    assert (one.is_new, one.remarks) == (True, [])
    for text in ("b", "c"):
        collect(course, "small", zipped(course.folder, {ADA: text}))
    (target / "small.ipynb").unlink()  # to collect it anew
    (one,) = collect(course, "small", zipped(course.folder, {ADA: "c"}))
    assert one.is_new
    kept = (course.results / "earlier" / "ada" / "small").rglob("*.ipynb")
    assert sorted(path.read_text() for path in kept) == ["a", "b"]


def test_a_link_beside_a_hand_in_is_no_other_work(course):
    target = with_class(course)
    collect(course, "small", zipped(course.folder, {ADA: "first"}))
    (target / "data").symlink_to("/etc/hostname")
    (one,) = collect(course, "small", zipped(course.folder, {ADA: "second"}))
    assert one.is_new, one.remarks
    assert (target / "small.ipynb").read_text() == "second"


def test_what_a_killed_collect_has_left_half_written_stops_nobody(course):
    target = with_class(course)
    half = target.with_name(".small.new")
    half.mkdir(parents=True)
    (half / "half.ipynb").write_text("h")
    (one,) = collect(course, "small", zipped(course.folder, {ADA: "first"}))
    assert one.is_new, one.remarks
    assert [path.name for path in target.iterdir()] == ["small.ipynb"]


def test_who_goes_back_to_an_earlier_version_has_each_kept_once(course):
    with_class(course)
    for text in ("a", "b", "a", "b"):
        collect(course, "small", zipped(course.folder, {ADA: text}))
    kept = (course.results / "earlier" / "ada" / "small").rglob("*.ipynb")
    assert sorted(path.read_text() for path in kept) == ["a", "b"]


def test_times_may_begin_with_a_byte_order_mark(course):
    with_class(course)
    times = times_of(course, "ada,2026-12-01 20:15")
    assert times.read_bytes().startswith(b"\xef\xbb\xbf")
    (one,) = collect(course, "small", zipped(course.folder, {ADA: "a"}), times)
    assert one.time == datetime(2026, 12, 1, 20, 15, tzinfo=UTC)


def test_to_trust_an_archive_loses_no_time(course):
    with_class(course)
    archive = zipped(course.folder, {ADA: "a"})
    collect(course, "small", archive, times_of(course, "ada,2026-12-01 20:15"), trusted=True)
    collect(course, "small", archive)
    assert recorded_times(course, "small").keys() == {"ada"}


def test_a_file_with_a_password_is_one_student_s(course):
    with_class(course)
    path = zipped(course.folder, {ADA: "a", ADA.replace("Ada", "Ben"): "b"})
    content = bytearray(path.read_bytes())
    for start, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        content[content.index(start) + place] |= 1  # encrypted
    path.write_bytes(content)
    found = {one.student: one for one in collect(course, "small", path)}
    assert "a file cannot be unpacked" in found["ada"].remarks[0]
    assert found["Ben L 1"].files


def test_a_folder_around_all_of_an_archive_is_named(course):
    with pytest.raises(UserError, match="without a folder before it"):
        collect(course, "small", zipped(course.folder, {f"2_attention-123/{ADA}": "a"}))


def test_copies_of_jupyterlab_are_no_part_of_a_hand_in(exchange):
    course, inbound = exchange
    with_class(course)
    folder = submit(inbound, "ada", datetime.now(UTC), small_ipynb="a")
    (folder / ".ipynb_checkpoints").mkdir()
    (folder / ".ipynb_checkpoints" / "small-checkpoint.ipynb").write_text("old")
    (one,) = collect(course, "small")
    assert sorted(one.files) == ["small.ipynb", "timestamp.txt"]
    copy = ADA.replace("small.ipynb", ".ipynb_checkpoints/small-checkpoint.ipynb")
    (one,) = collect(course, "small", zipped(course.folder, {ADA: "b", copy: "old"}))
    assert sorted(one.files) == ["small.ipynb"]


@pytest.mark.parametrize(
    "text",
    [
        "id, first_name, last_name\nada@x.org,Ada,L\n",
        "First name,Surname,Username,Email address\nAda,L,,ada@x.org\n",
        "sep=;\nid;first_name;last_name;note\nada@x.org;Ada;L;a,b,c,d,e\n",
        '"sep=;"\r\nid;first_name;last_name\r\nada@x.org;Ada;L\r\n',
    ],
    ids=[
        "blanks after commas",
        "an empty column of user names",
        "Excel's separator",
        "Excel's separator in quotes",
    ],
)
def test_class_lists_that_are_a_little_odd(tmp_path, text):
    (one,) = read_class_list(class_file(tmp_path, text))
    assert (one.student, one.first_name, one.last_name) == ("ada@x.org", "Ada", "L")


def test_lines_are_counted_as_an_editor_counts_them(tmp_path):
    path = class_file(tmp_path, "sep=,\nid\n\nada\nada\n")
    with pytest.raises(UserError, match="ada is in line 4 and in line 5"):
        read_class_list(path)


def test_who_has_no_login_in_canvas_is_left_out_and_named(tmp_path):
    """Canvas's own test student has none, and a guest may have none."""
    text = 'Student,ID,SIS Login ID\nPoints Possible,,\n"L, Ada",7,ada\n"Guest, Bob",8,\n'
    with pytest.warns(UserWarning, match="line 4: Guest, Bob has no sis login id: left out"):
        (one,) = read_class_list(class_file(tmp_path, text))
    assert (one.student, one.first_name, one.lms_id) == ("ada", "Ada", "7")


def test_a_shorter_class_list_forgets_nothing(course):
    with_class(course, "id,first_name,last_name,lms_user_id\nada,Ada,L,7\n")
    with_class(course, "id\nada\n")
    with course.gradebook() as gradebook:
        ada = gradebook.find_student("ada")
        assert (ada.first_name, ada.lms_user_id) == ("Ada", "7")


def test_a_course_whose_folder_is_a_pattern_is_one_line(new_course, tmp_path):
    folder = shutil.copytree(new_course, tmp_path / "winter [2026]")
    with pytest.raises(UserError, match="which nbgrader takes for a pattern: rename it"):
        Course(folder)


@pytest.mark.parametrize(("minutes", "is_believed"), [(2, True), (10, False)])
def test_what_a_hand_in_says_of_its_time_is_believed_for_five_minutes(
    exchange, minutes, is_believed
):
    course, inbound = exchange
    said = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=minutes)
    submit(inbound, "ada", said, small_ipynb="a")
    (one,) = collect(course, "small")
    assert (one.time == said) is is_believed


def test_what_root_has_put_there_is_the_student_s(exchange, monkeypatch):
    course, inbound = exchange
    with_class(course, "id\nada\nben\n")
    for student in ("ada", "ben"):
        submit(inbound, student, datetime.now(UTC), small_ipynb=student)
    monkeypatch.setattr(Path, "owner", lambda path: "ben" if "ben" in path.name else "root")
    ada, ben = collect(course, "small")
    assert ada.files, ada.remarks
    assert ben.files, ben.remarks


@pytest.mark.parametrize("change", ["a file is written anew", "the folder is moved there"])
def test_what_changes_after_it_was_handed_in_is_later(exchange, monkeypatch, tmp_path, change):
    course, inbound = exchange
    monkeypatch.setattr(exchanging, "TOLERANCE", timedelta())
    said = datetime.now(UTC) + timedelta(seconds=0.5)
    folder = submit(inbound, "ada", said, small_ipynb="in time")
    aside = folder if "file" in change else folder.rename(tmp_path / "aside")
    sleep(0.7)
    if aside == folder:
        with (folder / "small.ipynb").open("r+") as file:  # the folder itself stays as it was
            file.write("changed")
    else:
        aside.rename(folder)
    (one,) = collect(course, "small")
    assert one.time > said


def test_a_later_hand_in_of_another_assignment_is_not_this_one_s(exchange):
    course, inbound = exchange
    now = datetime.now(UTC).replace(microsecond=0)
    submit(inbound, "ada", now - HOUR, small_ipynb="this one")
    other = submit(inbound, "ada", now, small_ipynb="another one")
    other.rename(inbound / other.name.replace("+small+", "+other+"))
    (one,) = collect(course, "small")
    assert one.files["small.ipynb"] == b"this one"
