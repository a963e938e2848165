"""A class is graded: whatever is handed in, everybody gets a result, once, and it is in the CSV."""

import base64
import csv
import html
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import grading_help
import jinja2
import nbformat
import psutil
import pytest
from grading_help import SOLVED, grade, hand_in
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from transformer_lib.course.checks import EXERCISES
from transformer_lib.course.checks.diagnosis import draw_trial
from transformer_lib.course.checks.diagnosis import judge as judge_exercise
from transformer_lib.course.misconceptions.bank import wrong_answers
from transformer_lib.errors import UserError
from transformer_lib.instructor.grading import grade as grading
from transformer_lib.instructor.grading.course import Course, safe_name
from transformer_lib.instructor.grading.executors import machines
from transformer_lib.instructor.grading.export import export
from transformer_lib.instructor.grading.hand_ins import Entry, record
from transformer_lib.instructor.grading.intake import (
    HANDED_IN,
    MAX_PARTS,
    NO_ANSWER,
    PERSONAL,
    UnreadableError,
    find_notebook,
    known,
    mend,
    read_submission,
    verify,
)
from transformer_lib.instructor.grading.judge import Judge, Result, TestResult
from transformer_lib.instructor.grading.late import LatePolicy
from transformer_lib.instructor.grading.master import bound_names, make_master
from transformer_lib.instructor.grading.nbgrader_plugin import _points, mended, plain_markdown
from transformer_lib.instructor.grading.outputs import SAFE
from transformer_lib.instructor.grading.remote import remote
from transformer_lib.instructor.grading.report import (
    discrimination,
    interval,
    make_report,
    write_report,
)
from transformer_lib.instructor.grading.results import Key, StoredResult, cells_to_judge
from transformer_lib.instructor.grading.sandbox import PACKAGE, Sandbox
from transformer_lib.instructor.grading.table import table
from transformer_lib.instructor.grading.term import ItemPoints, Standing, Standings, standings

# What is handed in


def changed(template, change, **answers):
    notebook = grading_help.submission(template, **{**SOLVED, **answers})
    change(notebook)
    return notebook


def cell(notebook, grade_id):
    return next(
        c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") == grade_id
    )


MENDED = {
    "nothing": (lambda nb: None, []),
    "an extra cell": (lambda nb: nb.cells.insert(2, new_code_cell("y = 1")), []),
    "a deleted test": (lambda nb: nb.cells.remove(cell(nb, "test_scale")), []),
    "a deleted answer": (
        lambda nb: nb.cells.remove(cell(nb, "why")), ["the answer cell why is missing"]
    ),
    "an answer twice": (
        lambda nb: nb.cells.append(nbformat.from_dict(cell(nb, "scale"))),
        ["the answer cell scale is there twice"],
    ),
    "another order": (
        lambda nb: nb.cells.reverse(), ["cells were moved; the original order counts"]
    ),
    "an edited test": (
        lambda nb: cell(nb, "test_scale").update(source="pass"),
        ["the cell test_scale was changed; the original counts"],
    ),
    "more points": (
        lambda nb: cell(nb, "test_scale").metadata["nbgrader"].update(points=1000), []
    ),
    "metadata of other kinds": (
        lambda nb: [c.metadata.update(nbgrader=[1, 2]) for c in nb.cells if not c.metadata], []
    ),
    "a name that is a number": (
        lambda nb: nb.cells[0].metadata.update(nbgrader={"grade_id": 7}), []
    ),
    "an unlocked cell": (
        lambda nb: cell(nb, "test_mask").metadata["nbgrader"].update(solution=True), []
    ),
    "another cell type": (
        lambda nb: nb.cells.__setitem__(2, grading_help.graded(
            SOLVED["scale"], "scale", new_markdown_cell, solution=True)), []
    ),
    "another kernel": (
        lambda nb: nb.metadata.update(kernelspec={"name": "ir", "language": "R"}),
        ["its kernel is not Python's"],
    ),
    "a huge cell": (
        lambda nb: nb.cells.append(new_code_cell("x" * 300_000)),
        ["a cell of 300,000 characters was left out"],
    ),
    "many large cells": (
        lambda nb: nb.cells.extend(new_code_cell("x" * 19_000) for n in range(11)),
        ["a cell of 19,000 characters was left out"],
    ),
    "very many cells": (
        lambda nb: nb.cells.extend(new_code_cell(f"x = {n}") for n in range(400)),
        ["400 cells of the student's own were left out"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "remarks"), MENDED.values(), ids=MENDED)
def test_whatever_is_done_to_the_cells_the_released_form_comes_back(template, change, remarks):
    intake = mend(known(changed(template, change)), template)
    assert intake.remarks == remarks
    ids = {c.id for c in template.cells}
    kept = [c for c in intake.notebook.cells if c.id in ids]
    for answered in kept:
        answered.metadata.pop(HANDED_IN, None)  # outputs, for graders to see
    assert [(c.id, c.cell_type, c.metadata) for c in kept] == [
        (c.id, c.cell_type, c.metadata) for c in template.cells
    ]
    expected = {**SOLVED} if "missing" not in str(remarks) else {**SOLVED, "why": "*Your answer.*"}
    for name, source in expected.items():
        assert cell(intake.notebook, name).source == source
    assert cell(intake.notebook, "test_scale").source == cell(template, "test_scale").source


def test_a_notebook_without_its_metadata_is_said_to_be_one(template):
    def strip(notebook):
        for one in notebook.cells:
            one.metadata.pop("nbgrader", None)

    beside, unknown = mend(known(changed(template, strip)), template).remarks
    assert beside == "why was answered in another cell, which was taken for it"
    assert unknown.startswith("none of its cells is known")


UNREADABLE = {
    "no file": (lambda path: None, "is not there"),
    "an empty file": (lambda path: path.touch(), "is empty"),
    "a folder": (lambda path: path.mkdir(), "is a folder; give the notebook in it"),
    "a link": (lambda path: path.symlink_to("/etc/passwd"), "is a link"),
    "no text": (lambda path: path.write_bytes(b"\xff\xfe\0"), "is not UTF-8"),
    "no JSON": (lambda path: path.write_text("{"), "is not a notebook"),
    "deep JSON": (lambda path: path.write_text("[" * 100_000), "is not a notebook"),
    "another JSON": (lambda path: path.write_text('{"a": 1}'), "is not a notebook"),
    "a list": (lambda path: path.write_text("[1, 2]"), "is not a notebook"),
    "cells that are none": (
        lambda path: path.write_text('{"nbformat": 4, "nbformat_minor": 5, "cells": [1]}'),
        "is not a notebook",
    ),
    "a notebook of the future": (
        lambda path: path.write_text('{"nbformat": 9, "nbformat_minor": 0, "cells": []}'),
        "is not a notebook",
    ),
    "a huge file": (lambda path: path.write_text("x" * (21 * 2**20)), "is larger than 20 MB"),
}


@pytest.mark.parametrize(("make", "reason"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_no_notebook_is_said_to_be_none(tmp_path, make, reason):
    path = tmp_path / "small.ipynb"
    make(path)
    with pytest.raises(UnreadableError, match=reason):
        read_submission(path)


def test_an_old_notebook_is_read(tmp_path):
    old = {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [
        {"cells": [{"cell_type": "code", "input": ["x = 1\n", "x"], "language": "python",
                    "outputs": [], "metadata": {}}]}]}  # fmt: skip
    path = tmp_path / "old.ipynb"
    path.write_text(json.dumps(old))
    assert read_submission(path).cells[0].source == "x = 1\nx"


def test_students_can_see_whether_their_notebook_is_well_formed(tmp_path, template):
    def said(notebook, name="small.ipynb"):
        path = tmp_path / name
        path.write_text(nbformat.writes(notebook))
        return verify(path)

    text, good = said(grading_help.submission(template, **SOLVED))
    assert good
    assert "3 of 3 answers are there" in text
    text, good = said(grading_help.submission(template, scale=SOLVED["scale"]))
    assert good
    assert "open: causal_mask, why" in text
    for change, problem in (
        (lambda nb: nb.cells.remove(cell(nb, "test_scale")), "test_scale is missing"),
        (lambda nb: nb.cells.append(cell(nb, "scale")), "scale is there twice"),
        (lambda nb: nb.cells.reverse(), "cells were moved"),
        (lambda nb: cell(nb, "test_mask").update(source="1"), "test_mask was changed"),
        (lambda nb: cell(nb, "scale").update(source="def f(:"), "scale, line 1"),
    ):
        text, good = said(changed(template, change))
        assert not good
        assert problem in text
    text, good = said(template, "other.ipynb")
    assert (text, good) == ("✗ its name must be small.ipynb", False)


# Master notebooks


def test_a_released_notebook_has_no_solution_and_no_hidden_test(template):
    text = nbformat.writes(template)
    for secret in ("SOLUTION", "HIDDEN", "3 * x + 1", "tril", "autumn", "model* answer"):
        assert secret not in text
    assert "...  # your code" in text


def test_a_test_cell_gets_the_names_that_it_needs_from_above_and_no_more():
    master = make_master(grading_help.master())
    assert master.tasks == [[2, 3], [4, 5]]
    environment = master.environment(5)
    assert environment["scale"](1) == 4  # of the task before: the master's
    assert "causal_mask" not in environment
    assert "scale" not in master.environment(3)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("x, (y, *z) = 1, (2, 3)", {"x", "y", "z"}),
        ("def f():\n    inner = 1", {"f"}),
        ("for i in []:\n    with open('x') as g:\n        h: int = 1", {"i", "g", "h"}),
        ("import a.b, c as d\nfrom e import f as g", {"a", "d", "g"}),
        ("%matplotlib inline\n!ls\nx = 1", {"x"}),
        ("files = !ls\ntorch.tril?\ny = 1", {"files", "y"}),
        ("if True:\n    %time f()\nx = ('%d'\n% 5)", {"x"}),
        ("def make():\n    global helper\n    def helper(): ...", {"make", "helper"}),
    ],
)
def test_the_names_that_a_cell_binds(source, names):
    assert bound_names(source) == names


# Functions in the sandbox


@pytest.mark.sandbox
def test_a_verdict_is_the_same_from_outside():
    """Each right and wrong answer of some exercises, word for word: values, gradients, errors."""
    library = [p.name for p in PACKAGE.iterdir() if p.name not in ("instructor", "__pycache__")]
    find = (
        "from transformer_lib.course.checks import EXERCISES\n"
        "from transformer_lib.course.misconceptions.bank import bank\n"
        "MISTAKES = {m.id: m for m in bank()}"
    )
    with Sandbox(library) as sandbox:
        for name in (
            "attention",
            "layer_norm",
            "LayerNorm",
            "encoder_layer",
            "greedy_decode",
            "embed_with_positions",
            "transformer",
            "teacher_forcing",
            "merge_pair",
            "rms_norm_backward",
        ):
            exercise = EXERCISES[name]
            trial = draw_trial(exercise, seed=1)
            with sandbox.open() as connection:
                connection.ask("run", find)
                connection.ask("run", f"answer = EXERCISES[{name!r}].reference")
                here = judge_exercise(exercise.reference, trial)
                there = judge_exercise(remote(connection, "answer"), trial)
                assert repr(there) == repr(here)
                for mistake in wrong_answers(name):
                    code = f"answer = MISTAKES[{mistake.id!r}].answers[{name!r}]"
                    connection.ask("run", code)
                    here = judge_exercise(mistake.answers[name], trial)
                    there = judge_exercise(remote(connection, "answer"), trial)
                    assert there.mistakes == here.mistakes == (mistake.id,)
                    if "repeatable" not in [f.name for f in here.findings if f.status == "failed"]:
                        assert repr(there) == repr(here)


# The class


@pytest.mark.sandbox
def test_everybody_gets_a_result_and_is_in_the_csv(course, template):
    solved = grading_help.submission(template, **SOLVED)
    inline = "%matplotlib inline\n" + SOLVED["scale"]
    hand_in(course, "ada", grading_help.submission(template, **{**SOLVED, "scale": inline}))
    hand_in(course, "bert", template)
    hand_in(course, "cleo", "{not json")
    hand_in(course, "dan", solved, "small (1).ipynb")
    hand_in(course, "eli", None)
    hand_in(course, "fay", grading_help.submission(template, **{**SOLVED, "scale": "exit("}))
    folder = hand_in(course, "gil", None)
    (folder / "small.ipynb").symlink_to("/etc/passwd")
    (folder / "notes.txt").symlink_to("/etc/hostname")
    hand_in(course, "hope", solved)
    hand_in(course, "hope", solved, "other.ipynb")
    (course.folder / "submitted" / "ivy").mkdir()
    os.symlink("/etc", course.folder / "submitted" / "ivy" / "small")

    rows = grade(course)
    assert {student: row.points for student, row in rows.items()} == {
        "ada": 6, "bert": 0, "cleo": 0, "dan": 6, "eli": 0, "fay": 4, "gil": 0, "hope": 6, "ivy": 0
    }  # fmt: skip
    assert not [row.trouble for row in rows.values() if row.trouble]
    assert rows["bert"].remarks == [NO_ANSWER]
    assert "is not a notebook" in rows["cleo"].remarks[0]
    assert rows["dan"].remarks == ["there is no small.ipynb; small (1).ipynb was taken for it"]
    reason = rows["fay"].result.tests["test_scale"].reason
    kind = "(SyntaxError|_IncompleteInputError)"  # as IPython names it, by Python's version
    assert re.match(rf"there is no scale; its cell raised {kind}: ", reason)
    as_handed_in = course.folder / "submitted" / "cleo" / "small" / "small.ipynb"
    assert as_handed_in.read_text() == "{not json", "what was handed in stays as it is"
    ours = [p for p in course.folder.rglob("*") if "submitted" not in p.parts]
    assert not [p for p in ours if p.is_symlink()]
    assert not [p for p in ours if p.is_file() and b"root:x:0" in p.read_bytes()]

    for form, points in (("nbgrader", "score"), ("canvas", "small"), ("moodle", "small")):
        target = course.folder / f"{form}.csv"
        assert export(course, "small", form, target) == (9, 8)
        with target.open(newline="") as file:
            lines = list(csv.DictReader(file))
        column = {"nbgrader": "student_id", "canvas": "SIS Login ID", "moodle": "Username"}[form]
        scores = {line[column]: float(line[points]) for line in lines if line[column]}
        assert scores == {student: row.points for student, row in rows.items()}
    with course.gradebook() as gradebook:
        waiting = {s.student.id for s in gradebook.assignment_submissions("small")
                   if s.needs_manual_grade}  # fmt: skip
    unread = {"cleo", "eli", "gil", "ivy"}  # a human decides
    assert waiting == {"ada", "dan", "fay", "hope"} | unread


@pytest.mark.sandbox
def test_what_has_not_changed_is_left_alone(course, template):
    hand_in(course, "ada", grading_help.submission(template, **SOLVED))
    hand_in(course, "bert", template)
    assert all(row.is_new for row in grade(course).values())
    assert not any(row.is_new for row in grade(course).values())
    hand_in(course, "bert", grading_help.submission(template, scale=SOLVED["scale"]))
    rows = grade(course)
    assert (rows["ada"].is_new, rows["bert"].is_new) == (False, True)
    assert rows["bert"].points == 2
    rows = grade(course, students=["ada"], again=True)
    assert list(rows) == ["ada"]
    assert rows["ada"].is_new


@pytest.mark.sandbox
def test_a_mended_test_regrades_one_task_alone(course, template):
    hand_in(course, "ada", grading_help.submission(template, **SOLVED))
    path = course.folder / "source" / "small" / "small.ipynb"
    broken = path.read_text().replace("3 * y + 1", "4 * y + 1")
    path.write_text(broken)
    assert grade(course)["ada"].points == 4
    path.write_text(
        broken.replace("4 * y + 1", "3 * y + 1").replace("4 * verdict.share", "0 * verdict.share")
    )
    rows = grade(course, task="test_scale")
    assert rows["ada"].points == 6, "the other task keeps its points"
    with course.gradebook() as gradebook:
        assert gradebook.find_submission("small", "ada").score == 6
    rows = grade(course)
    assert rows["ada"].is_new, "the other task was mended, too, and has points of its old test"
    assert rows["ada"].points == 2
    assert not grade(course)["ada"].is_new


@pytest.mark.sandbox
def test_one_task_of_new_work_is_not_graded_beside_the_points_of_earlier_work(course, template):
    hand_in(course, "ada", grading_help.submission(template, **SOLVED))
    hand_in(course, "bert", template)
    assert [row.points for row in grade(course).values()] == [6, 0]
    hand_in(course, "ada", template)
    hand_in(course, "bert", grading_help.submission(template, **SOLVED))
    assert [row.points for row in grade(course, task="test_mask").values()] == [0, 6]
    with course.gradebook() as gradebook:
        assert gradebook.find_submission("small", "bert").score == 6
    assert not any(row.is_new for row in grade(course).values())


@pytest.mark.sandbox
def test_wrong_requests_are_one_line(course, template):
    hand_in(course, "ada", template)
    for settings, message in (
        ({"students": ["zoe"]}, "nothing was handed in by zoe"),
        ({"task": "nope"}, "no test is called nope; there are: test_mask, test_scale"),
    ):
        with pytest.raises(UserError, match=message):
            grade(course, **settings)
    with pytest.raises(UserError, match="no assignment large"):
        grading.grade(course, "large")
    with pytest.raises(UserError, match=r"no nbgrader_config\.py"):
        Course(course.folder / "source")
    with pytest.raises(UserError, match="no dask scheduler answers"):
        machines("tcp://127.0.0.1:9")


@pytest.mark.long
@pytest.mark.sandbox
def test_nbgraders_own_command_does_the_same(course, template):
    hand_in(course, "ada", grading_help.submission(template, **SOLVED))
    hand_in(course, "bert", grading_help.submission(template, scale="torch.allclose = print"))
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in (["generate_assignment", "small"], ["autograde", "small"]):
        subprocess.run(
            [sys.executable, "-m", "nbgrader", *command],
            cwd=course.folder, env=environment, check=True, capture_output=True,
        )  # fmt: skip
    with course.gradebook() as gradebook:
        scores = {s.student.id: s.score for s in gradebook.assignment_submissions("small")}
    assert scores == {"ada": 6, "bert": 0}
    assert grade(course)["ada"].points == 6


@pytest.mark.sandbox
def test_feedback_tells_the_verdict_and_hides_the_tests(course, template):
    wrong = "def causal_mask(n):\n    return torch.ones(n, n).triu().bool()[None, None]"
    hand_in(course, "ada", grading_help.submission(
        template, scale="def scale(x):\n    return x + 1", causal_mask=wrong,
        why="<script>alert(1)</script><img src=x onerror=alert(2)>"))  # fmt: skip
    grade(course)
    subprocess.run(
        [sys.executable, "-m", "nbgrader", "generate_feedback", "small"],
        cwd=course.folder, check=True, capture_output=True,
    )  # fmt: skip
    page = (course.folder / "feedback" / "ada" / "small" / "small.html").read_text()
    assert "0 of 2 points" in page
    assert "a hidden test failed" in page
    assert html.escape(wrong_answers("causal_mask")[0].hint[:20]) in page
    assert "autumn" not in page
    assert "HIDDEN" not in page
    assert "<script>alert(1)" not in page
    assert "<img src=x onerror" not in page


def hand_in_slowly(course, template, seconds):
    """Six right submissions that take their time."""
    slow = f"import time\ntime.sleep({seconds})\n" + SOLVED["scale"]
    notebook = grading_help.submission(template, **SOLVED | {"scale": slow})
    for number in range(6):
        hand_in(course, f"student{number}", notebook)


@pytest.mark.long
@pytest.mark.sandbox
def test_a_grading_that_is_killed_goes_on_and_grades_nobody_twice(course, template):
    hand_in_slowly(course, template, 1.5)
    command = [sys.executable, "-m", "transformer_lib", "grade", "small", "--course", course.folder]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    first = psutil.Popen([*command, "--jobs", "2"], **quiet)
    results = course.results / "small" / "small"
    while len(list(results.glob("student*.json"))) < 2:
        assert first.poll() is None
        time.sleep(0.05)
    family = first.children(recursive=True)
    first.send_signal(signal.SIGKILL)
    first.wait()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert not alive
    before = {path: json.loads(path.read_text())["result"] for path in results.glob("s*.json")}
    assert 2 <= len(before) < 6
    rows = grade(course)
    assert [row.points for row in rows.values()] == [6] * 6
    for path, result in before.items():
        assert json.loads(path.read_text())["result"] == result, "judged twice"
    with course.gradebook() as gradebook:
        scores = [s.score for s in gradebook.assignment_submissions("small")]
    assert scores == [6] * 6


@pytest.mark.long
@pytest.mark.sandbox
def test_two_machines_one_of_which_dies(course, template):
    """A dask cluster of two workers; one is killed while it grades."""
    from distributed import LocalCluster

    hand_in_slowly(course, template, 1)
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        victim = psutil.Process(next(iter(cluster.workers.values())).pid)
        executor = machines(cluster.scheduler_address)
        results = course.results / "small" / "small"

        def kill_soon():
            while not list(results.glob("student*.json")):
                time.sleep(0.05)
            victim.kill()

        killer = threading.Thread(target=kill_soon)
        killer.start()
        rows = grading.grade(course, "small", executor=lambda: executor)
        killer.join()
        assert not victim.is_running() or victim.status() == "zombie"
    assert [row.points for row in rows] == [6] * 6


@pytest.mark.sandbox
def test_without_a_sandbox_grading_refuses_unless_told(course, template, monkeypatch):
    from transformer_lib.instructor.grading import bubblewrap

    hand_in(course, "ada", grading_help.submission(template, **SOLVED))
    monkeypatch.setattr(bubblewrap.sys, "platform", "darwin")
    bubblewrap.require_bubblewrap.cache_clear()
    with pytest.raises(UserError, match=r"needs Linux for its sandbox.*--isolation none"):
        grade(course)
    monkeypatch.undo()
    bubblewrap.require_bubblewrap.cache_clear()
    monkeypatch.setattr(bubblewrap.shutil, "which", lambda name: None)
    with pytest.raises(UserError, match="apt install bubblewrap"):
        grade(course)
    monkeypatch.undo()
    bubblewrap.require_bubblewrap.cache_clear()
    rows = grade(course, isolation="none")
    assert rows["ada"].points == 6
    assert rows["ada"].result.isolation == "none"
    report = write_report(course, "small", course.folder / "report.html")
    assert report.unshielded == 1


@pytest.mark.sandbox
def test_the_class_report(course, template):
    wrong = "def causal_mask(n):\n    return torch.ones(n, n).triu().bool()[None, None]"
    for name, answers in {
        "ada": SOLVED, "bert": SOLVED, "cleo": {**SOLVED, "causal_mask": wrong}, "dan": {},
        "eli": {"scale": "import os\nos._exit(1)"},
    }.items():  # fmt: skip
        file = "mine.ipynb" if name == "bert" else "small.ipynb"
        hand_in(course, name, grading_help.submission(template, **answers), file)
    with pytest.raises(UserError, match="not graded yet"):
        write_report(course, "small", course.folder / "report.html")
    grade(course)
    with course.gradebook() as gradebook:
        gradebook.add_student("zoe", first_name="Zoe", last_name="Absent")
        given = gradebook.find_grade("why", "small", "small", "ada")
        given.manual_score, given.needs_manual_grade = 3, False
        gradebook.db.commit()
    report = write_report(course, "small", course.folder / "report.html")
    points = {name: one.points for name, one in report.now.students.items()}
    assert points == {"ada": 9, "bert": 6, "cleo": 2, "dan": 0, "eli": 0, "zoe": 0}
    assert [(i.name, i.max_points, i.ease, i.waiting) for i in report.items] == [
        ("test_scale", 2, 0.6, 0), ("test_mask", 4, 0.4, 0), ("why", 3, 1 / 3, 2)
    ]  # fmt: skip
    assert report.mistakes_of["cleo"] == [report.mistakes[0].id]
    assert [one.students for one in report.mistakes] == [1]
    said = "there is no small.ipynb; mine.ipynb was taken for it"
    assert report.remarks[0] == ("bert", "small", said)
    assert report.remarks[1][:2] == ("eli", "test_scale")
    page = (course.folder / "report.html").read_text()
    assert "data:image/svg+xml" in page
    assert "5 of 6 students have handed in" in page
    assert "Absent, Zoe" in page
    assert "nothing handed in" in page


def test_points_above_the_maximum_are_in_the_picture(tmp_path, monkeypatch):
    from transformer_lib.instructor.grading import report as module

    items = {"free": ItemPoints(6.0, 6.0)}
    class_ = {n: Standing(n, handed_in=True, score=p, items=items) for n, p in (("a", 6), ("b", 8))}
    report = make_report(Standings("one", None, 6.0, class_), ["free"], {"a": {"n": Result()}})
    pictures = []

    def kept(*arguments):
        pictures.append(histogram(*arguments))
        return pictures[-1]

    histogram = module.histogram
    monkeypatch.setattr(module, "histogram", kept)
    report.write_html(tmp_path / "report.html", LatePolicy())
    assert sum(bar.get_height() for bar in pictures[0].axes[0].patches) == 2


def test_discrimination_is_the_correlation_with_the_rest():
    import numpy as np
    from scipy.stats import pearsonr

    table = np.array([[1.0, 2.0, 3.0], [2.0, 1.0, 0.0], [3.0, 5.0, 1.0], [1.0, 1.0, 1.0],
                      [2.0, 2.0, 0.0]])  # fmt: skip
    expected = pearsonr(table[:, 1], table[:, 0] + table[:, 2])
    found = discrimination(table, 1)
    assert found == pytest.approx(expected.statistic)
    assert interval(found, len(table)) == pytest.approx(expected.confidence_interval(0.95), 1e-3)
    assert discrimination(table * [1.0, 0.0, 1.0], 1) is None
    assert interval(None, 10) is interval(0.5, 3) is None


def broken_json(notebook, change):
    data = json.loads(nbformat.writes(notebook))
    change(data)
    return json.dumps(data)


def first_answer(data):
    return next(c for c in data["cells"] if c["metadata"].get("nbgrader", {}).get("solution"))


BROKEN = {
    "an answer without outputs": lambda data: first_answer(data).pop("outputs"),
    "a cell without a type": lambda data: data["cells"][0].pop("cell_type"),
    "a kernel that is a text": lambda data: data["metadata"].update(kernelspec="python"),
    "remarks that are a number": lambda data: data["metadata"].update(transformer_lib_remarks=5),
    "a source that is an object": lambda data: data["cells"][0].update(source={"a": 1}),
    "half of a character": lambda data: data["cells"][0].update(source="\ud800"),
}


@pytest.mark.sandbox
def test_one_broken_notebook_costs_its_student_alone(course, template):
    for number, change in enumerate(BROKEN.values()):
        text = broken_json(grading_help.submission(template, **SOLVED), change)
        hand_in(course, f"broken{number}", text)
    hand_in(course, "ada", grading_help.submission(template, **SOLVED))
    hand_in(course, "zoe", grading_help.submission(template, **SOLVED))
    rows = grade(course)
    assert rows["ada"].points == rows["zoe"].points == 6
    assert len(rows) == len(BROKEN) + 2
    for number in range(len(BROKEN)):
        row = rows[f"broken{number}"]
        assert row.trouble or row.points > 0, row
    with course.gradebook() as gradebook:
        students = {s.student.id for s in gradebook.assignment_submissions("small")}
    assert {"ada", "zoe"} <= students


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_verifying_a_broken_notebook_says_something(template, tmp_path, change):
    path = tmp_path / "small.ipynb"
    path.write_text(broken_json(grading_help.submission(template, **SOLVED), change))
    text, _ = verify(path)
    assert text.startswith(("✓", "✗"))


def test_two_notebooks_may_have_tests_of_one_name_and_a_test_may_be_worth_nothing():
    items = {
        "a: test": ItemPoints(1.0, 2.0),
        "a: free": ItemPoints(0.0, 0.0),
        "b: test": ItemPoints(4.0, 4.0),
    }
    ada = Standing("ada", handed_in=True, score=5.0, items=items)
    now = Standings("two", None, 6.0, {"ada": ada})
    both = {
        "a": Result(
            tests={
                "test": TestResult(1.0, 2.0, remarks=["calls softmax"]),
                "free": TestResult(0.0, 0.0),
            }
        ),
        "b": Result(tests={"test": TestResult(4.0, 4.0)}),
    }
    report = make_report(now, ["a: test", "a: free", "b: test"], {"ada": both})
    assert [(i.name, i.ease) for i in report.items] == [("a: test", 0.5), ("b: test", 1.0)]
    assert report.remarks == [("ada", "a: test", "calls softmax")]


def test_a_damaged_result_is_graded_again(tmp_path):
    stored = StoredResult(tmp_path, "small", "small", "ada")
    stored.path.parent.mkdir(parents=True)
    key = Key("work", {"test": "first form"})
    unjudged = json.dumps({"cells": "work", "result": asdict(Result())})
    for text in ("{}", '{"cells": "work"}', '{"cells": "work", "result": 3}', unjudged, "[]", "{"):
        stored.path.write_text(text)
        assert stored.read() is None
        assert not stored.is_entered(key)
        result = Result(tests={"test": TestResult(1.0, 2.0)})
        assert stored.write_test(key, result, "test") == result == stored.read(key)
        other = Result(tests={"test": TestResult(0.0, 2.0)})
        assert stored.write_test(key, other, "of another notebook").tests == result.tests


ODD_NAMES = [
    "*",
    "[a-z]*",
    "?",
    "a\nb",
    "a,b",
    "=1+1",
    "@x",
    "-x",
    "+x",
    "100%",
    ".hidden",
    "\u202egnp",
    "x" * 200,
    "J\u00fcrgen O'Neill",
    "a;b",
    "{0}",
    "a\\b",
    "\x1b[31m",
    " blanks ",
]


@pytest.mark.sandbox
def test_names_of_every_kind_are_graded_and_are_in_every_table(course, template):
    notebook = grading_help.submission(template, **SOLVED)
    for name in ODD_NAMES:
        hand_in(course, name, notebook)
    rows = grade(course)
    assert {row.points for row in rows.values()} == {6}
    assert len(rows) == len(ODD_NAMES) == len({safe_name(name) for name in ODD_NAMES})
    assert table(list(rows.values()), standings(course, "small")).count("\n") == len(ODD_NAMES)
    assert "\x1b" not in table(list(rows.values()), standings(course, "small"))
    for form in ("nbgrader", "canvas", "moodle"):
        target = course.folder / f"{form}.csv"
        assert export(course, "small", form, target).students == len(ODD_NAMES)
        with target.open(newline="") as file:
            lines = list(csv.reader(file))
        assert len({len(line) for line in lines}) == 1, "as many columns in each line"
        assert not [cell for line in lines for cell in line if cell.startswith(tuple("=+-@\t\r"))]


@pytest.mark.sandbox
def test_points_that_the_gradebook_has_lost_are_entered_again(course, template):
    """Of a student that was removed, or of all where the gradebook is an older one."""
    for name in ("ada", "bert"):
        hand_in(course, name, grading_help.submission(template, **SOLVED))
    grade(course)
    with course.gradebook() as gradebook:
        gradebook.remove_student("ada")
        gradebook.update_or_create_student("ada")
    rows = grade(course)
    assert (rows["ada"].is_new, rows["bert"].is_new) == (True, False)
    (course.folder / "gradebook.db").unlink()
    assert all(row.is_new for row in grade(course).values())
    with course.gradebook() as gradebook:
        scores = {s.student.id: s.score for s in gradebook.assignment_submissions("small")}
    assert scores == {"ada": 6, "bert": 6}


@pytest.mark.sandbox
def test_a_hand_in_that_was_packed_again_is_said_to_be(course):
    folder = course.folder / "submitted" / "ada" / "small"
    folder.mkdir(parents=True)
    (folder / "work.zip").write_bytes(b"PK")
    assert "work.zip was not unpacked" in grade(course)["ada"].remarks


def test_safe_names_stay_apart_and_plain_ones_as_they_are():
    names = ["ada", "J\u00fcrgen", "o'neill", "a,b", "a b", "ada@example.org"]
    assert [safe_name(name) for name in names] == names
    assert safe_name("*") != safe_name("%2A")
    assert safe_name("\udcff") == "%FF"
    assert safe_name(" a b ") == "%20a b%20"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)
KEYS = (
    "cells",
    "metadata",
    "nbformat",
    "cell_type",
    "source",
    "outputs",
    "attachments",
    "nbgrader",
    "kernelspec",
    "transformer_lib",
    "id",
    "data",
    "text",
)
NOTEBOOKS = st.fixed_dictionaries(
    {
        "cells": st.lists(
            st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6) | JSON, max_size=6
        )
    },
    optional={"metadata": JSON, "nbformat": JSON, "nbformat_minor": JSON},
)


@given(NOTEBOOKS | JSON)
@examples(max_examples=200, deadline=None)
def test_a_notebook_of_any_shape_is_taken_in_or_refused_in_words(template, notebook):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.ipynb"
        path.write_text(json.dumps(notebook), encoding="utf-8")
        try:
            read = read_submission(path)
        except UnreadableError:
            return
        intake = mend(read, template)
        nbformat.validate(intake.notebook)
        nbformat.writes(intake.notebook).encode()
        assert verify(path)[0][0] in "\u2713\u2717"


def test_a_byte_order_mark_is_no_trouble(tmp_path, template):
    path = tmp_path / "small.ipynb"
    text = nbformat.writes(grading_help.submission(template, **SOLVED))
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert mend(read_submission(path), template).answered == 3


LINKS = [
    "[x](javascript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x][1]\n\n[1]: javascript:alert(1)",
    "[x](JaVaScRiPt:alert(1))",
    "![x](javascript:alert(1))",
    "[x](vbscript:x)",
    "<javascript:x>",
]


@pytest.mark.parametrize("source", LINKS)
def test_no_link_runs_a_script(source):
    page = render(source)
    assert "script:" not in html.unescape(page).lower().partition("href=")[2].partition(">")[0]
    assert not re.search(r"(href|src)=.?(java|vb)script", html.unescape(page), re.I)


def render(source, **cell):
    context = jinja2.Environment().from_string("").new_context({"cell": cell})
    return plain_markdown(context, source)


def test_what_looks_official_is_ours():
    scheme = "### BEGIN MARK SCHEME\nfull points\n### END MARK SCHEME"
    assert "How this is marked" not in render(scheme, metadata={})
    ours = render(f"Why?\n\n{scheme}\n\nIn a line.", metadata={"nbgrader": {"locked": True}})
    before, box = ours.split('<div class="alert alert-info">')
    box, after = box.split("</div>")
    assert "Why?" in before
    assert "How this is marked" in box
    assert "full points" in box
    assert "In a line." in after
    assert "alert" not in render("**How this is marked**\n\nfull points", metadata={})
    assert "alert" not in render("**About your hand-in**", id="extra-001")
    assert "alert" in render("**About your hand-in**", id="hand-in")


def test_a_heading_has_no_id_by_which_the_form_grader_would_find_it():
    assert render("# scale").strip() == "<h1>scale</h1>"


@pytest.mark.parametrize("show", [render, lambda text: SAFE["text/latex"](text)])
@pytest.mark.parametrize(
    "command",
    [r"\def\frac#1#2{4}", r"\gdef\x{4}", r"\let\x=y", r"\renewcommand{\frac}{4}", r"\require{x}",
     r"\style{position:fixed}{4}", r"\cssId{scale}{4}", r"\class{alert}{4}", r"\href{a}{4}"],
)  # fmt: skip
def test_a_formula_changes_nothing_but_itself(show, command):
    name = command.split("{")[0].split("#")[0]
    assert name not in show(f"${command}$")
    assert name.replace("\\", "\\\u200b", 1) in show(f"${command}$")
    usual = r"$\left(\frac12\right)\delta\textstyle\classical$"
    assert usual in show(usual)


@pytest.mark.parametrize("url", ["https://a.org/b.png", "//a.org/b.png", "b.png"])
def test_a_picture_elsewhere_is_a_link(url):
    page = render(f"![<b>plot]({url})")
    assert "<img" not in page
    assert f'href="{url}"' in page
    assert "<b>" not in page


def test_a_picture_that_is_missing_is_said_to_be():
    assert "was not handed in" in render("![plot](attachment:plot.png)")


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("text", "late"),
    [("2026-11-24 12:00:00 UTC", 3600), ("2026-11-24 13:00:00 CET", 3600), ("soon", 0), ("", 0)],
)
def test_the_time_of_handing_in_counts_and_no_other_text(course, template, text, late):
    folder = hand_in(course, "ada", grading_help.submission(template, **SOLVED))
    (folder / "timestamp.txt").write_text(text)
    with course.gradebook() as gradebook:
        gradebook.update_or_create_assignment("small", duedate="2026-11-24 11:00:00 UTC")
    row = grade(course)["ada"]
    assert row.points == 6
    assert not row.trouble
    assert ("says no time" in " ".join(row.remarks)) == (late == 0)
    with course.gradebook() as gradebook:
        assert gradebook.find_submission("small", "ada").total_seconds_late == late


@pytest.mark.sandbox
def test_nbgraders_own_grading_does_not_bring_back_a_time_that_a_student_wrote(course, template):
    folder = hand_in(course, "ada", grading_help.submission(template, **SOLVED))
    (folder / "timestamp.txt").write_text("2026-11-24 10:00:00 UTC")
    with course.gradebook() as gradebook:
        gradebook.update_or_create_assignment("small", duedate="2026-11-24 11:00:00 UTC")
    arrived = datetime(2026, 11, 24, 12, tzinfo=UTC)
    record(course, "small", {"ada": Entry(arrived)})
    grade(course)
    with course.gradebook() as gradebook:  # as its autograde does
        gradebook.update_or_create_submission("small", "ada", timestamp="2026-11-24 10:00:00 UTC")
    assert standings(course, "small").students["ada"].seconds_late == 3600


def test_the_notebook_with_answers_counts_where_the_one_of_the_right_name_has_none(
    template, tmp_path
):
    solved = nbformat.writes(grading_help.submission(template, **SOLVED))
    (tmp_path / "small.ipynb").write_text(nbformat.writes(template))
    assert find_notebook(tmp_path, "small", template) == (tmp_path / "small.ipynb", [])
    (tmp_path / "small_final.ipynb").write_text(solved)
    found, remarks = find_notebook(tmp_path, "small", template)
    assert (found, remarks) == (
        tmp_path / "small_final.ipynb",
        ["small.ipynb has no answer; small_final.ipynb was taken"],
    )
    (tmp_path / "small.ipynb").write_text(solved)
    found, remarks = find_notebook(tmp_path, "small", template)
    assert (found, remarks) == (
        tmp_path / "small.ipynb",
        ["small_final.ipynb has answers, too; small.ipynb counts"],
    )


def test_nobody_is_said_to_have_changed_what_was_mended_after_the_release(template):
    handed_in = known(grading_help.submission(template, **SOLVED))
    later = nbformat.from_dict(template)
    cell = next(
        c for c in later.cells if c.metadata.get("nbgrader", {}).get("grade_id") == "test_mask"
    )
    cell.source += "\n# without a typo"
    assert mend(handed_in, later).remarks == []
    handed_in = known(grading_help.submission(template, **SOLVED, test_mask="1 + 1"))
    assert mend(handed_in, later).remarks == ["the cell test_mask was changed; the original counts"]


@pytest.mark.sandbox
def test_who_ran_out_of_time_beside_others_is_judged_again_alone(course, template, tmp_path):
    """Its first process waits for ever, the next one answers: as where another one had the CPU."""
    for student in ("ada", "ben"):
        hand_in(course, student, grading_help.submission(template, **SOLVED))
    asked = []

    def once_too_slow(function, *arguments):
        result = grading_help.Here().submit(function, *arguments).result()
        asked.append(result)
        if len(asked) == 1:
            slow = TestResult(0.0, 2.0, reason="the process ended: it took more than 5 seconds")
            result["tests"]["test_scale"] = asdict(slow) | {"ended": True}
        return result

    class Busy(grading_help.Here):
        def submit(self, function, /, *arguments, **named):
            future = Future()
            future.set_result(once_too_slow(function, *arguments))
            return future

    rows = grading.grade(course, "small", executor=Busy)
    assert [row.points for row in rows] == [6, 6]
    assert len(asked) == 3


def test_helpers_are_found_in_whatever_statement_defines_them():
    source = """
with torch.no_grad():
    def one(x): return x
try:
    class Two: pass
except ValueError: pass
match [1, 2, 3]:
    case [three, *four]: pass
"""
    assert bound_names(source) == {"one", "Two", "three", "four"}


@pytest.fixture(scope="module")
def small_judge():
    judge = Judge(make_master(grading_help.master()))
    yield judge
    judge.close()


TIMES = "def times(x):\n    return three() * x", "three = lambda: 3"
CALLS = {"scale": "def scale(x):\n    return times(x) + 1"}
FACTOR = "def scale(x, times=3):\n    return times * x + 1"
USES_IT = (
    "def causal_mask(length):\n    ones = torch.ones(length, length)\n"
    "    return (scale(ones, times=1) > 1).tril()[None, None]"
)
REGISTER = "HELP = {}\ndef register(function):\n    HELP[function.__name__] = function"
ONLY_IF = "if check(len).passed and run_test(len).share == 1.0:\n    times = lambda x: 3 * x"
FILE = "%%writefile helpers.py\ndef times(x):\n    return 3 * x", "from helpers import times"
WRONG = "def scale(x):\n    return x"


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("above", "below", "answers"),
    [
        ((), TIMES, CALLS),
        (TIMES, (), CALLS),
        (("def start():\n    global times\n    times = lambda x: 3 * x", "start()"), (), CALLS),
        ((REGISTER, "@register\ndef times(x):\n    return 3 * x"), (),
         {"scale": "def scale(x):\n    return HELP['times'](x) + 1"}),
        (FILE, (), CALLS),
        ((ONLY_IF,), (), CALLS),
        ((), (SOLVED["scale"],), {"scale": "def scale(x):\n    ...  # your code"}),
        ((), ("before = scale", "def scale(x):\n    return 3 * before(x) + 1"), {"scale": WRONG}),
        ((), (), {"scale": FACTOR, "causal_mask": USES_IT}),
    ],
    ids=["helpers below", "helpers above", "set by a function", "registered", "a file",
         "if a check passes", "another cell", "wrapped below", "an argument more"],
)  # fmt: skip
def test_what_works_from_top_to_bottom_works_in_the_grader(
    template, small_judge, above, below, answers
):
    notebook = grading_help.submission(template, **SOLVED | answers)
    names = [cell.metadata.get("nbgrader", {}).get("grade_id") for cell in notebook.cells]
    place = names.index("scale")
    notebook.cells[place + 1 : place + 1] = map(new_code_cell, below)
    notebook.cells[place:place] = map(new_code_cell, above)
    result = small_judge.judge(cells_to_judge(mend(known(notebook), template).notebook))
    assert [test.points for test in result.tests.values()] == [2, 4]


@pytest.mark.sandbox
def test_one_mistake_counts_once_and_more_of_the_notebook_mends_none(template, small_judge):
    answers = {"scale": WRONG, "causal_mask": USES_IT.replace(", times=1", "")}
    notebook = grading_help.submission(template, **SOLVED | answers)
    notebook.cells.insert(2, new_code_cell("y = 1"))
    result = small_judge.judge(cells_to_judge(mend(known(notebook), template).notebook))
    assert [test.points for test in result.tests.values()] == [0, 4]


@pytest.mark.sandbox
def test_a_copy_and_the_second_half_of_an_answer_count(template, small_judge):
    """JupyterLab copies a cell, and splits one, with what it says of itself."""
    for first, second in (
        (WRONG, SOLVED["scale"]),
        ("three = 3", "def scale(x): return three*x+1"),
    ):
        notebook = grading_help.submission(template, **SOLVED | {"scale": first})
        place = notebook.cells.index(cell(notebook, "scale")) + 1
        notebook.cells.insert(
            place, nbformat.from_dict({**cell(notebook, "scale"), "source": second})
        )
        intake = mend(known(notebook), template)
        assert intake.remarks == ["the answer cell scale is there twice"]
        result = small_judge.judge(cells_to_judge(intake.notebook))
        assert result.tests["test_scale"].points == 2


@pytest.mark.parametrize("place", [-1, -2])
def test_words_in_a_cell_beside_the_given_one_are_an_answer(template, place):
    """Otherwise it would count as handed in as released, and nobody would look at it."""
    notebook = grading_help.submission(template, **{k: v for k, v in SOLVED.items() if k != "why"})
    cells = notebook.cells
    cells.insert(len(cells) + 1 + place, new_markdown_cell("Because."))
    intake = mend(known(notebook), template)
    assert cell(intake.notebook, "why").source == "Because."
    assert intake.remarks == ["why was answered in another cell, which was taken for it"]


def test_what_is_written_into_a_question_is_shown_below_it(template):
    released = nbformat.from_dict(template)
    question = grading_help.graded("Why?", "question", new_markdown_cell, locked=True)
    released.cells.insert(len(released.cells) - 1, question)
    notebook = nbformat.from_dict(released)
    cell(notebook, "question").source = "Why?\n\nBecause."
    intake = mend(known(notebook), released)
    assert intake.remarks[0] == "the cell question was changed; the original counts"
    assert cell(intake.notebook, "why").source == "Why?\n\nBecause."


def test_what_is_added_to_the_cell_with_the_name_is_kept():
    released = nbformat.read(
        Path(__file__).parent.parent / "assignments/release/2_attention/attention.ipynb", 4
    )
    notebook = nbformat.from_dict(released)
    (mine,) = (cell for cell in notebook.cells if cell.id == PERSONAL)
    mine.source = f"import math\n{mine.source.replace('...', 'ada')}\nroot = math.sqrt(2)"
    made = mend(known(notebook), released).notebook
    place = next(n for n, cell in enumerate(made.cells) if cell.id == PERSONAL)
    assert made.cells[place + 1].source == "import math\nroot = math.sqrt(2)"
    mine.source += f"\nx = {'1 + ' * 2000}1"
    assert mend(known(notebook), released).answered == 0, "and nothing breaks"


def test_a_picture_in_the_text_is_taken_as_a_pasted_one(template):
    """Colab writes pictures so; the text would be too long with them."""
    picture = base64.b64encode(bytes(30_000)).decode()
    text = (
        f"See ![it](data:image/png;base64,{picture}) and ![that](data:image/png;base64,{picture})."
    )
    notebook = grading_help.submission(template, **SOLVED | {"why": text})
    notebook.cells.append(new_markdown_cell(text))
    made = mend(known(notebook), template).notebook
    for each in made.cells[-2:]:
        assert each.source == "See ![it](attachment:picture-1) and ![that](attachment:picture-2)."
        assert each.attachments["picture-2"] == {"image/png": picture}


def test_an_answer_that_runs_text_is_named(template):
    hidden = known(grading_help.submission(template, scale="exec('def scale(x): return 0')"))
    assert "the answer cell scale runs text as code" in mend(hidden, template).remarks


def test_what_a_notebook_says_of_itself_reaches_no_terminal(template, tmp_path):
    notebook = grading_help.submission(template, **SOLVED)
    notebook.metadata.transformer_lib.name = "small\x1b]0;title\x07\n✓ all is well"
    (tmp_path / "small.ipynb").write_text(nbformat.writes(notebook))
    text, _ = verify(tmp_path / "small.ipynb")
    assert "\\x1b]0;title\\x07 ✓ all is well.ipynb" in text
    assert text.isprintable()


def test_students_need_nothing_of_grading_to_verify_a_submission():
    """Neither what only graders install, nor torch, which takes seconds to import."""
    code = (
        "import sys, transformer_lib.instructor.grading.intake\n"
        "print([m for m in ('psutil', 'nbgrader', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_ends_of_lines_of_windows_change_no_cell(tmp_path, template):
    notebook = grading_help.submission(template, **SOLVED)
    for cell in notebook.cells:
        cell.source = cell.source.replace("\n", "\r\n")
    path = tmp_path / "small.ipynb"
    path.write_text(nbformat.writes(notebook))
    assert verify(path) == ("✓ small.ipynb is well-formed; 3 of 3 answers are there", True)


def test_a_suffix_may_be_in_capitals(tmp_path, template):
    path = tmp_path / "SMALL.IPYNB"
    path.write_text(nbformat.writes(grading_help.submission(template, **SOLVED)))
    assert find_notebook(tmp_path, "small", template)[0] == path


def test_what_of_a_folder_is_no_notebook_of_this_assignment(template, tmp_path):
    (tmp_path / "all.zip").write_text("x")
    notebook = grading_help.submission(template, **SOLVED)
    copies = tmp_path / ".ipynb_checkpoints"
    copies.mkdir()
    (copies / "small-checkpoint.ipynb").write_text(nbformat.writes(notebook))
    notebook.metadata.setdefault("transformer_lib", {})["name"] = "second"  # of two
    (tmp_path / "second.ipynb").write_text(nbformat.writes(notebook))
    assert find_notebook(tmp_path, "small", template) == (
        None,
        ["there is no small.ipynb, and 1 other notebooks in its place", "all.zip was not unpacked"],
    )


def test_a_file_of_too_many_parts_is_not_parsed(tmp_path):
    path = tmp_path / "small.ipynb"
    path.write_text('{"cells": [], "x": [0' + ",0" * MAX_PARTS + "]}")
    with pytest.raises(UnreadableError, match="is not a notebook"):
        read_submission(path)


def test_a_picture_that_can_hold_a_script_is_not_taken():
    files = {"a.png": {"image/png": "aGk="}, "a.svg": {"image/svg+xml": "<svg onload='alert(1)'/>"}}
    cell = {"cell_type": "markdown", "source": "![](attachment:a.svg)", "attachments": files}
    (taken,) = known({"cells": [cell]}).cells
    assert taken.attachments == {"a.png": {"image/png": "aGk="}, "a.svg": {}}


def test_what_an_exception_says_is_text_in_the_page():
    page = _points(TestResult(0.0, 2.0, reason="ValueError: <script>alert(1)</script>"))
    assert "<script>" not in page["data"]["text/html"]


def test_the_name_of_a_file_is_no_markdown_in_the_box(template):
    remark = "there is no small.ipynb; [*a*](https://a.org).ipynb was taken for it"
    notebook, _ = mended(known(template), template, "ada", "2026", [remark])
    assert r"\[\*a\*\]\(https://a\.org\)" in notebook.cells[0].source


@pytest.mark.filterwarnings("ignore:Object of type")  # nbgrader's own queries
@pytest.mark.sandbox
def test_who_could_not_be_judged_is_in_the_gradebook(course, template):
    class Broken(grading_help.Here):
        def submit(self, function, /, *arguments, **named):
            return super().submit(lambda: 1 / 0)

    hand_in(course, "ada", template)
    (row,) = grading.grade(course, "small", executor=Broken)
    assert "could not be judged, look at it by hand: ZeroDivisionError" in row.trouble
    with course.gradebook() as gradebook:
        assert gradebook.find_submission("small", "ada").student.id == "ada"


@pytest.mark.sandbox
def test_another_picture_is_another_hand_in(course, template):
    """A human sees a pasted picture, and outputs where they are kept, and nothing ran for them."""

    def notebook(picture, text):
        made = grading_help.submission(template, **SOLVED | {"why": "![it](attachment:it.png)"})
        made.cells[-1].attachments = {"it.png": {"image/png": picture}}
        made.cells.append(new_code_cell("print(1)", outputs=[new_output("stream", text=text)]))
        return made

    path = course.folder / "source" / "small" / "small.ipynb"
    master = nbformat.read(path, as_version=4)
    for keeps_outputs in (False, True):
        master.metadata.transformer_lib.keeps_outputs = keeps_outputs
        nbformat.write(master, path)
        hand_in(course, "ada", notebook("AAAA", "1"))
        grade(course)
        hand_in(course, "ada", notebook("AAAA", "2"))
        assert grade(course)["ada"].is_new == keeps_outputs
        hand_in(course, "ada", notebook("BBBB", "2"))
        assert grade(course)["ada"].is_new
        assert not grade(course)["ada"].is_new
        page = course.folder / "autograded" / "ada" / "small" / "small.ipynb"
        assert "BBBB" in page.read_text()
