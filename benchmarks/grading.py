"""Grading a class: plain ``nbgrader autograde`` against ours, on the same submissions.

``python benchmarks/grading.py [STUDENTS]`` makes honest submissions of assignment 2, half of them
right and half with a known mistake, and grades all of them in both ways, one after the other.
Writes ``benchmarks/grading.json``. Needs a quiet machine; 200 students take about half an hour.
"""

import json
import os
import platform
import statistics
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path

from nbgrader.api import Gradebook
from nbgrader.converters import Autograde, GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
from made_up_class import ASSIGNMENT, ASSIGNMENTS, NOTEBOOK, answered, hand_in, misled, new_course

from transformer_lib.instructor.grading.course import Course
from transformer_lib.instructor.grading.grade import grade
from transformer_lib.instructor.grading.master import load_master
from transformer_lib.instructor.grading.results import StoredResult

MASTER = ASSIGNMENTS / "source" / ASSIGNMENT / f"{NOTEBOOK}.ipynb"


def make_class(folder: Path, students: int) -> None:
    new_course(folder)
    mistakes = cycle(misled("capped_attention").values())
    for number in range(students):
        answers = {"capped_attention": next(mistakes)} if number % 2 else {}
        hand_in(folder, f"student{number:03}", answered(**answers))


def plain(folder: Path) -> tuple[list[float], dict[str, float]]:
    """nbgrader as it comes: the tests run inside the student's kernel."""
    config = Config()
    config.CourseDirectory.root = str(folder)
    config.ClearMarkScheme.enforce_metadata = False
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    directory = CourseDirectory(config=config, assignment_id=ASSIGNMENT)
    GenerateAssignment(coursedir=directory, config=config).start()
    seconds = []
    for submission in sorted((folder / "submitted").iterdir()):
        started = time.perf_counter()
        directory = CourseDirectory(
            config=config, assignment_id=ASSIGNMENT, student_id=submission.name
        )
        Autograde(coursedir=directory, config=config).start()
        seconds.append(time.perf_counter() - started)
        print(f"\rnbgrader: {len(seconds)}", end="", flush=True)
    print()
    with Gradebook(directory.db_url) as gradebook:
        return seconds, {
            s.student.id: s.score for s in gradebook.assignment_submissions(ASSIGNMENT)
        }


def ours(folder: Path) -> tuple[float, list[float], dict[str, float]]:
    course = Course(folder)
    started = time.perf_counter()
    rows = grade(course, ASSIGNMENT)
    seconds = time.perf_counter() - started
    results = [StoredResult(course.results, ASSIGNMENT, r.notebook, r.student).read() for r in rows]
    return seconds, [r.seconds for r in results if r], {row.student: row.points for row in rows}


def main() -> None:
    students = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        make_class(Path(folder) / "ours", students)
        in_all, single, our_scores = ours(Path(folder) / "ours")
        print(f"ours: {in_all:.0f} s in all, {statistics.median(single):.2f} s at the median")
        make_class(Path(folder) / "plain", students)
        seconds, their_scores = plain(Path(folder) / "plain")
    median = statistics.median(seconds)
    full = sum(cell.points for cell in load_master(MASTER).cells if cell.is_test)
    print(f"nbgrader: {sum(seconds):.0f} s in all, {median:.2f} s at the median")
    found = {
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "students": students,
        "ours": {"seconds": in_all, "median": statistics.median(single)},
        "nbgrader": {"seconds": sum(seconds), "median": median},
        "ratio": sum(seconds) / in_all,
        "full marks": {
            "ours": sum(score == full for score in our_scores.values()),
            "nbgrader": sum(score == full for score in their_scores.values()),
        },
    }
    print(json.dumps(found, indent=1))
    Path(__file__).with_suffix(".json").write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
