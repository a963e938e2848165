"""A term: the class, its hand-ins, dates, penalties, and what stays when work is graded again."""

import csv
import hashlib
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import grading_help
import nbformat
import pytest
from grading_help import (
    DUE,
    HOUR,
    SOLVED,
    class_file,
    grade,
    hand_in,
    strict,
    submit,
    zipped,
)

from transformer_lib import cli
from transformer_lib.errors import UserError
from transformer_lib.instructor.grading import grade as grading
from transformer_lib.instructor.grading import second
from transformer_lib.instructor.grading.class_list import enter_class_list, read_class_list
from transformer_lib.instructor.grading.collect import collect
from transformer_lib.instructor.grading.course import Course
from transformer_lib.instructor.grading.export import export
from transformer_lib.instructor.grading.feedback import make_feedback
from transformer_lib.instructor.grading.hand_ins import Entry, record
from transformer_lib.instructor.grading.intake import NO_ANSWER, known
from transformer_lib.instructor.grading.judge import Result, TestResult
from transformer_lib.instructor.grading.late import LatePolicy
from transformer_lib.instructor.grading.nbgrader_plugin import cohort_of, mended
from transformer_lib.instructor.grading.personal import fill_schemes
from transformer_lib.instructor.grading.second import agreements, described, make_second
from transformer_lib.instructor.grading.table import table
from transformer_lib.instructor.grading.term import (
    Standing,
    Standings,
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
        LatePolicy(zone="Berlin").zone_info  # noqa: B018


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


# Rules


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
        policy_of(Course(course.folder)).zone_info  # noqa: B018


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


def test_the_last_moment_of_grace_is_within_it():
    policy = LatePolicy(points_a_day=2, grace_minutes=15)
    assert policy.late_submission_penalty("ada", 20, 15 * 60) is None
    assert policy.late_submission_penalty("ada", 20, 15 * 60 + 1) == 2


@pytest.mark.filterwarnings("ignore:Object of type")  # nbgrader's own queries
def test_where_everybody_stands_before_a_grading(course):
    listed = "id,first_name,last_name\nzoe,,\nada,Ada,Adler\nben,Ben,Brandt\n"
    enter_class_list(course, read_class_list(class_file(course.folder, listed)))
    set_deadline(course, "small", DUE)
    with course.gradebook() as gradebook:
        gradebook.update_or_create_submission("small", "ben", timestamp=DUE.replace(tzinfo=None))
    set_extension(course, "small", "ada", DUE + HOUR)
    assert standings(course, "small").students["ada"].is_extended
    set_extension(course, "small", "ada", DUE)
    now = standings(course, "small")
    assert list(now.students) == ["ada", "ben", "zoe"], "by last name, or else by what is known"
    assert [one.student for one in now.handed_in] == ["ben"]
    assert not now.students["ada"].is_extended, "back to what holds for all"


@pytest.mark.sandbox
def test_a_time_that_the_grader_puts_right_counts_though_the_work_is_the_same(course, template):
    course = strict(course)
    path = hand_in(course, "ada", grading_help.submission(template, **SOLVED)) / "timestamp.txt"
    path.write_text("2026-12-03 05:59:00 UTC")
    set_deadline(course, "small", DUE)
    grade(course)
    assert standings(course, "small").students["ada"].penalty == 4
    path.write_text("2026-12-01 20:00:00 UTC")
    assert not grade(course)["ada"].is_new
    assert standings(course, "small").students["ada"].penalty == 0


@pytest.mark.sandbox
def test_points_that_overruled_a_test_wait_when_it_gives_others(course, template):
    hand_in(course, "ada", grading_help.submission(template, **SOLVED))
    grade(course)
    given_by_hand(course, "ada", "why", 2)
    given_by_hand(course, "ada", "test_mask", 3)
    assert waiting(course) == 0
    path = course.folder / "source" / "small" / "small.ipynb"
    path.write_text(path.read_text().replace("4 * verdict.share", "2 * verdict.share"))
    grade(course)
    assert waiting(course) == 1


@pytest.mark.sandbox
def test_who_hands_in_nothing_again_keeps_what_a_human_gave_for_it(course, template):
    hand_in(course, "ada", template)  # as released: 0 without a look
    grade(course)
    given_by_hand(course, "ada", "why", 1)  # all the same
    grade(course, again=True)
    assert standings(course, "small").students["ada"].score == 1


@pytest.mark.sandbox
def test_a_page_that_could_not_be_made_anew_is_no_old_one(course, template):
    hand_in(course, "ada", grading_help.submission(template, **SOLVED))
    grade(course)
    assert make_feedback(course, "small", unfinished=True) == (1, 0, [])
    shutil.rmtree(course.folder / "autograded")
    assert make_feedback(course, "small", unfinished=True) == (0, 0, ["ada"])
    assert not (course.folder / "feedback" / "ada" / "small").exists()


def graded_by_hand(course, assignment):
    """With points, extra points and a comment of the first grader."""
    course.register(assignment)
    with course.gradebook() as gradebook:
        submission = gradebook.update_or_create_submission(assignment, "ada")
        for one in submission.notebooks[0].grades:
            one.needs_manual_grade = False
        one = gradebook.find_grade("why", "small", assignment, "ada")
        one.manual_score, one.extra_credit = 2, 1
        gradebook.find_comment("why", "small", assignment, "ada").manual_comment = "weak"
        gradebook.db.commit()


@pytest.mark.filterwarnings("ignore:Object of type")  # nbgrader's own queries
def test_a_second_grader_gets_nothing_of_the_first_one_s(course):
    source = course.folder / "source"
    shutil.copytree(source / "small", source / "other")
    enter_class_list(course, read_class_list(class_file(course.folder, "id\nada\n")))
    for assignment in ("small", "other"):
        graded_by_hand(course, assignment)
    folder = course.folder / "submitted" / "ada" / "small"
    folder.mkdir(parents=True)
    (folder / "data").symlink_to("/etc/hostname")
    target = course.folder.parent / "second"
    assert make_second(course, "small", target) == ["ada"]
    with Course(target).gradebook() as gradebook:
        one = gradebook.find_grade("why", "small", "small", "ada")
        assert (one.manual_score, one.extra_credit) == (None, None)
        assert gradebook.find_comment("why", "small", "small", "ada").comment is None
        assert gradebook.assignment_submissions("other") == []
    assert (target / "submitted" / "ada" / "small" / "data").is_symlink()


@pytest.mark.filterwarnings("ignore:Object of type")  # nbgrader's own queries
def test_a_second_course_is_there_whole_or_not_at_all(course, monkeypatch):
    enter_class_list(course, read_class_list(class_file(course.folder, "id\nada\n")))
    graded_by_hand(course, "small")
    (course.folder / "submitted" / "ada" / "small").mkdir(parents=True)
    target = course.folder.parent / "second"

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(second, "_forget_others", interrupted)
        with pytest.raises(KeyboardInterrupt):
            make_second(course, "small", target)
    assert not target.exists()
    assert make_second(course, "small", target) == ["ada"]


def test_what_a_student_calls_a_marking_scheme_is_not_run():
    text = "### BEGIN MARK SCHEME\n{{ 1 / 0 }}\n### END MARK SCHEME"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)])
    notebook.cells[0].metadata["nbgrader"] = {"grade_id": "why", "solution": True, "locked": False}
    fill_schemes(notebook, "ada", "2026")
    assert notebook.cells[0].source == text


def test_of_who_has_answered_nothing_no_test_is_listed():
    result = Result(tests={"test_scale": TestResult(0.0, 2.0, reason="there is no scale")})
    now = Standings("small", None, 2.0, {"ada": Standing("ada", handed_in=True)})
    text = table([grading.Graded("ada", "small", result, [NO_ANSWER])], now)
    assert text.splitlines()[0] == "ada    0.0 of 2  nothing was answered"


def test_an_assignment_that_is_not_there_is_said_beside_those_that_are(course):
    with pytest.raises(UserError, match=r"not know other yet, it knows small; .* grade other$"):
        standings(course, "other")
