"""nbgrader's form grader and feedback on a graded course: what graders and students get to see."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from conftest import TOKEN, give_points, running_lab

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
from made_up_class import ASSIGNMENT, answered, hand_in, misled, new_course

from transformer_lib.course.misconceptions.bank import bank
from transformer_lib.instructor.grading.course import Course
from transformer_lib.instructor.grading.grade import grade
from transformer_lib.instructor.grading.report import write_report

SCREENSHOTS = Path(__file__).parent.parent / "runs" / "screenshots"
FULL = 5 + 6 + 4 + 2 + 6  # points, before anything is graded by hand
MISTAKE, WRONG = next(iter(misled("capped_attention").items()))
HOSTILE = (
    "<script>document.title = 'taken over'</script><img src=x onerror=\"document.title = 'x'\">"
)


def hint(mistake):
    return next(m.hint for m in bank() if m.id == mistake)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """Three students: one right, one misled, one whose answers attack the grader's browser."""
    folder = tmp_path_factory.mktemp("grading") / "course"
    new_course(folder)
    hand_in(folder, "ada", answered())
    hand_in(folder, "bert", answered(capped_attention=WRONG))
    hostile = answered(cost=f"**a.** {HOSTILE} [link](javascript:alert(1))")
    hostile.cells.insert(2, nbformat.v4.new_markdown_cell(f"# cost\n\n{HOSTILE}"))
    show = f"from IPython.display import HTML, display\ndisplay(HTML({HOSTILE!r}))"
    hostile.cells.insert(3, nbformat.v4.new_code_cell(show))
    hand_in(folder, "eve", hostile)
    course = Course(folder)
    rows = grade(course, ASSIGNMENT)
    assert [row.points == FULL for row in rows] == [True, False, True]
    return course


def scores(course):
    with course.gradebook() as gradebook:
        return {s.student.id: s.score for s in gradebook.assignment_submissions(ASSIGNMENT)}


def test_the_form_grader_shows_rubric_and_verdict_and_takes_points(course, page, tmp_path):
    with running_lab(course.folder, tmp_path) as address:
        page.goto(f"{address}/lab?token={TOKEN}")  # which logs in
        page.goto(f"{address}/formgrader/manage_submissions/{ASSIGNMENT}")
        page.get_by_text("bert").first.wait_for()
        page.screenshot(path=SCREENSHOTS / "formgrader_submissions.png")
        page.goto(f"{address}/formgrader/gradebook/{ASSIGNMENT}/attention")
        before = scores(course)
        links = page.locator("a", has_text="Submission #")
        links.nth(2).wait_for()
        addresses = [link.get_attribute("href") for link in links.all()]
        seen = ""
        for number, link in enumerate(addresses):
            page.goto(address + link)
            page.get_by_text("three maps of the same scores").first.wait_for()  # the marking scheme
            assert page.title() not in ("taken over", "x")
            text = page.inner_text("body")
            assert "HIDDEN" not in text
            assert page.locator("[id='cost']").count() == 1  # by which its box of points is found
            seen += text
            page.screenshot(path=SCREENSHOTS / f"formgrader_{number}.png", full_page=True)
        assert hint(MISTAKE)[:40] in seen
        assert "6 of 6 points" in seen
        give_points(page, [page.locator("input.score").last], "2")
    after = scores(course)
    assert sum(after.values()) == pytest.approx(sum(before.values()) + 2)  # of whom is left open


def test_the_form_graders_button_grades_in_the_sandbox(course, page, tmp_path):
    code = "import os\ndef capped_attention(q, k, v, mask, cap): os._exit(3)"
    hand_in(course.folder, "fred", answered(capped_attention=code))
    with running_lab(course.folder, tmp_path) as address:
        page.goto(f"{address}/lab?token={TOKEN}")
        page.goto(f"{address}/formgrader/manage_submissions/{ASSIGNMENT}")
        row = page.locator("tr", has_text="fred")
        row.locator(".autograde a").click()
        page.get_by_text("Successfully autograded").wait_for(timeout=90_000)
        page.screenshot(path=SCREENSHOTS / "formgrader_button.png")
    assert scores(course)["fred"] == FULL - 6


def test_feedback_and_class_report(course, page):
    subprocess.run(
        [sys.executable, "-m", "nbgrader", "generate_feedback", ASSIGNMENT, "--force"],
        cwd=course.folder, check=True, capture_output=True,
    )  # fmt: skip
    for student in ("bert", "eve"):
        feedback = course.folder / "feedback" / student / ASSIGNMENT / "attention.html"
        page.goto(feedback.as_uri())
        page.wait_for_timeout(500)
        assert page.title() not in ("taken over", "x")
        text = page.inner_text("body")
        assert re.search(r"\d of 6 points", text)
        assert "HIDDEN" not in text
        page.screenshot(path=SCREENSHOTS / f"feedback_{student}.png", full_page=True)
    write_report(course, ASSIGNMENT, course.folder / "report.html")
    page.goto((course.folder / "report.html").as_uri())
    assert page.locator("img").count() == 2
    page.screenshot(path=SCREENSHOTS / "class_report.png", full_page=True)
    assert page.failures == []
