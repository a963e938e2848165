"""A small assignment for the tests of grading, and what students make of it."""

import stat
import zipfile
from concurrent.futures import Executor, Future
from datetime import UTC, datetime, timedelta

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from transformer_lib.instructor.grading import grade as grading
from transformer_lib.instructor.grading.course import Course
from transformer_lib.instructor.grading.hand_ins import recorded

DUE = datetime(2026, 12, 1, 22, 59, tzinfo=UTC)
HOUR = timedelta(hours=1)

GIVEN = "import torch\n\nfrom transformer_lib.checks import check, run_test"

SCALE = """def scale(x):
    ### BEGIN SOLUTION
    return 3 * x + 1
    ### END SOLUTION"""

TEST_SCALE = """assert scale(torch.zeros(2)).tolist() == [1, 1]
### BEGIN HIDDEN TESTS
from transformer_lib.instructor.grading.values import expect

x = torch.randn(7, requires_grad=True)
got = scale(x)
expect(got, 3 * x + 1)
expect(torch.autograd.grad(got.sum(), x)[0], torch.full((7,), 3.0), "the gradient")
y = torch.randn(5)
expect(scale(y), 3 * y + 1, "on numbers of a quiet autumn")
### END HIDDEN TESTS"""

MASK = """def causal_mask(length):
    ### BEGIN SOLUTION
    return torch.ones(length, length, dtype=torch.bool).tril()[None, None]
    ### END SOLUTION"""

TEST_MASK = """verdict = check(causal_mask)
verdict
### BEGIN HIDDEN TESTS
assert verdict.passed or scale(torch.ones(1)) == 4  # of an earlier task: the master's
4 * verdict.share
### END HIDDEN TESTS"""


def graded(source, grade_id, kind=new_code_cell, **flags):
    cell = kind(source, id=grade_id)
    flags = {"grade": False, "solution": False, "locked": False, "task": False} | flags
    cell.metadata["nbgrader"] = {"grade_id": grade_id, "schema_version": 3, **flags}
    return cell


def answer(source, grade_id):
    return graded(source, grade_id, solution=True)


def test(source, grade_id, points):
    return graded(source, grade_id, grade=True, locked=True, points=points)


def master(**limits):
    """Two tasks, with 2 and 4 points, and a question."""
    notebook = new_notebook(
        cells=[
            new_markdown_cell("# A small assignment", id="title"),
            new_code_cell(GIVEN, id="given"),
            answer(SCALE, "scale"),
            test(TEST_SCALE, "test_scale", 2),
            answer(MASK, "causal_mask"),
            test(TEST_MASK, "test_mask", 4),
            graded(
                "The *model* answer.",
                "why",
                new_markdown_cell,
                grade=True,
                solution=True,
                points=3,
            ),
        ]
    )
    notebook.metadata["kernelspec"] = {"name": "python3", "language": "python", "display_name": "P"}
    limits = {"seconds": 10, "total_seconds": 40, "memory": 2**30, "processes": 24} | limits
    notebook.metadata["transformer_lib"] = {"limits": limits}
    return notebook


def submission(released, **answers):
    """The released notebook with these answers filled in."""
    notebook = nbformat.from_dict(released)
    for cell in notebook.cells:
        cell.source = answers.get(cell.metadata.get("nbgrader", {}).get("grade_id"), cell.source)
    return notebook


SOLVED = {
    "scale": "def scale(x):\n    return 1 + x * 3",
    "causal_mask": "def causal_mask(length):\n"
    "    return torch.ones(length, length).tril().bool()[None, None]",
    "why": "Because.",
}


class Here(Executor):
    """Runs at once, in this process."""

    def submit(self, function, /, *arguments, **named):
        future = Future()
        try:
            future.set_result(function(*arguments, **named))
        except Exception as error:
            future.set_exception(error)
        return future


def hand_in(course, student, notebook, name="small.ipynb"):
    folder = course.folder / "submitted" / student / "small"
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(notebook, str):
        (folder / name).write_text(notebook)
    elif notebook is not None:
        (folder / name).write_text(nbformat.writes(notebook))
    return folder


def grade(course, **settings):
    return {row.student: row for row in grading.grade(course, "small", executor=Here, **settings)}


def strict(course):
    """The same course with rules for what is late."""
    path = course.folder / "nbgrader_config.py"
    rules = (
        "c = get_config()\nc.LatePolicy.points_a_day = 2\nc.LatePolicy.grace_minutes = 15\n"
        "c.LatePolicy.cut_off_days = 3\nc.LatePolicy.zone = 'Europe/Berlin'\n"
    )
    path.write_text(path.read_text() + rules)
    return Course(course.folder)


def class_file(folder, text):
    path = folder / "class.csv"
    path.write_text(text, encoding="utf-8-sig")
    return path


def recorded_times(course, assignment):
    """By student, where a time is known."""
    found = recorded(course, assignment).items()
    return {student: one.time for student, one in found if one.time}


def submit(inbound, student, time, **files):
    """As nbgrader's ``submit`` does it, and with the time that it notes."""
    folder = inbound / f"{student}+small+{time:%Y-%m-%d %H:%M:%S.%f} UTC+abc123"
    folder.mkdir()
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    (folder / "timestamp.txt").write_text(f"{time:%Y-%m-%d %H:%M:%S.%f} UTC")
    return folder


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
