"""A course on a JupyterHub, through the browser: from release over hand-ins to feedback."""

import os
import re
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import ROOT, give_points, serving

sys.path.insert(0, str(ROOT / "scripts"))
from made_up_class import ASSIGNMENT, NOTEBOOK, answered, misled, new_course

from transformer_lib.instructor.grading.course import Course
from transformer_lib.instructor.grading.term import standings

SCREENSHOTS = ROOT / "runs" / "screenshots"
PROXY = ROOT / ".venv" / "hub" / "node_modules" / ".bin" / "configurable-http-proxy"
STUDENTS = ("ada", "ben", "cy")
PASSWORD = "for this test"
MISTAKE, WRONG = next(iter(misled("capped_attention").items()))
SETTINGS = """
load_subconfig({config!r})
c = get_config()
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = {password!r}
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = {homes!r} + "/{{username}}"
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_port = {hub_port}
c.JupyterHub.db_url = "sqlite:///" + {folder!r} + "/hub.sqlite"
c.JupyterHub.cookie_secret_file = {folder!r} + "/secret"
c.ConfigurableHTTPProxy.command = [{proxy!r}]
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{api_port}"
c.ConfigurableHTTPProxy.pid_file = {folder!r} + "/proxy.pid"
c.ConfigurableHTTPProxy.auth_token = "test"
c.Spawner.args = ["--allow-root"]
c.Spawner.cmd = [{program!r}]
c.Spawner.http_timeout = c.Spawner.start_timeout = 120
"""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@contextmanager
def running_hub(folder, course, exchange):
    """The hub of assignments/hub, with made-up users who all are the user of this test."""
    port, hub_port, api_port = free_ports(3)
    programs = Path(sys.executable).parent
    config = folder / "config.py"
    config.write_text(SETTINGS.format(
        config=str(ROOT / "assignments" / "hub" / "jupyterhub_config.py"), password=PASSWORD,
        homes=str(folder / "home"), folder=str(folder), port=port, hub_port=hub_port,
        proxy=str(PROXY), api_port=api_port, program=str(programs / "jupyterhub-singleuser"),
    ))  # fmt: skip
    environment = os.environ | {
        "GRADER": "teacher", "COURSE": str(course), "EXCHANGE": str(exchange),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip
    command = [sys.executable, "-m", "jupyterhub", "-f", str(config)]
    with serving(command, folder, environment, folder / "hub.log",
                 f"http://127.0.0.1:{port}/hub/login"):  # fmt: skip
        yield f"http://localhost:{port}"


@pytest.fixture
def users(browser):
    """A page for each user, with cookies of its own, that is logged in."""
    contexts = []

    def log_in(address, name):
        context = browser.new_context(viewport={"width": 1280, "height": 1000})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto(f"{address}/hub/login")
        page.fill("#username_input", name)
        page.fill("#password_input", PASSWORD)
        page.click("#login_submit")
        page.wait_for_url(re.compile(f".*/user/{name}/lab.*"))
        page.locator("#jp-main-dock-panel").wait_for()
        return page

    yield log_in
    for context in contexts:
        context.close()


def command(course, name, *words):
    """What the grader types into a terminal; its output."""
    words = [sys.executable, "-m", "transformer_lib", name, *words, "--course", course]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def open_assignments(page):
    """The Assignment List of nbgrader's extension, in the menu of JupyterLab."""
    page.get_by_role("menuitem", name="Nbgrader").click()
    page.locator(".lm-Menu-itemLabel, .p-Menu-itemLabel").get_by_text("Assignment List").click()


PUT = """async ([address, content]) => {
    const token = document.cookie.match(/_xsrf=([^;]+)/)[1];
    const answer = await fetch(address, {method: "PUT", headers: {"X-XSRFToken": token},
        body: JSON.stringify({type: "notebook", format: "json", content})});
    return answer.status;
}"""  # what JupyterLab does when a notebook is saved


def hand_in(page, address, name, notebook):
    """Fetch the assignment, work on it, and submit it."""
    open_assignments(page)
    page.get_by_role("button", name="Fetch").click()
    page.get_by_role("button", name="Submit").wait_for()
    place = f"{address}/user/{name}/api/contents/{ASSIGNMENT}/{NOTEBOOK}.ipynb"
    assert page.evaluate(PUT, [place, notebook]) == 200
    page.get_by_role("button", name="Submit").click()
    page.get_by_role("button", name="Fetch Feedback").wait_for()
    page.screenshot(path=SCREENSHOTS / f"hub_submitted_{name}.png")


def submitted(page):
    """What the list of assignments says of the student's own."""
    page.reload()
    page.get_by_role("button", name="Fetch Feedback").wait_for()
    page.wait_for_timeout(1000)
    return page.inner_text("#jp-main-dock-panel")


def grade_by_hand(page, address):
    """A point for each answer that waits of the first hand-in that the form grader shows."""
    page.goto(f"{address}/user/teacher/formgrader/gradebook/{ASSIGNMENT}/{NOTEBOOK}")
    page.locator("a", has_text="Submission #").first.click()
    boxes = page.locator("input.score")
    boxes.first.wait_for()
    give_points(page, boxes.all()[-4:], "1")  # those above belong to tests
    page.screenshot(path=SCREENSHOTS / "hub_by_hand.png")


@pytest.mark.skipif(not PROXY.exists(), reason="needs npm, with which make test-browser fetches it")
def test_a_term_on_a_hub(users, tmp_path):
    folder, exchange = tmp_path / "home" / "teacher" / "course", tmp_path / "exchange"
    exchange.mkdir(parents=True)
    exchange.chmod(0o1777)
    for name in (*STUDENTS, "teacher"):
        (tmp_path / "home" / name).mkdir(parents=True)
    new_course(folder)
    with (folder / "nbgrader_config.py").open("a") as file:
        file.write(f"get_config().Exchange.root = {str(exchange)!r}\n")
    (folder / "class.csv").write_text("id,first_name,last_name\nada,Ada,A\nben,Ben,B\ncy,Cy,C\n")
    command(folder, "class-list", folder / "class.csv")
    with running_hub(tmp_path, folder, exchange) as address:
        teacher = users(address, "teacher")
        teacher.goto(f"{address}/user/teacher/formgrader/manage_assignments")
        row = teacher.locator("tr", has_text=ASSIGNMENT)
        row.locator(".assign a").click()
        teacher.get_by_text("Successfully created").wait_for()
        teacher.reload()
        row.locator(".release a").click()
        teacher.get_by_text("Successfully released").wait_for()
        command(folder, "deadline", ASSIGNMENT, "2100-01-01 12:00")

        pages = {name: users(address, name) for name in STUDENTS}
        works = {"ada": answered(), "ben": answered(capped_attention=WRONG)}
        for name, page in pages.items():
            assert page.goto(f"{address}/user/{name}/formgrader").status == 404
            page.goto(f"{address}/user/{name}/lab")
            if name in works:
                hand_in(page, address, name, works[name])

        said = command(folder, "collect", ASSIGNMENT)
        assert said.splitlines()[-1] == "2 hand-ins, 2 of them new; nothing from 1: cy"
        said = command(folder, "grade", ASSIGNMENT)
        assert re.search(rf"ben .* test_capped_attention: {MISTAKE}", said)
        assert re.search(r"cy .* nothing handed in", said)
        grade_by_hand(teacher, address)
        one, other = (standings(Course(folder), ASSIGNMENT).students[name] for name in works)
        first, second = sorted((one, other), key=lambda student: student.waiting)
        assert first.waiting == 0
        assert first.points in (23 + 4, 23 - 6 + 4)
        assert second.waiting == 4
        said = command(folder, "feedback", ASSIGNMENT)
        assert said.endswith(": 1\n")
        teacher.goto(f"{address}/user/teacher/formgrader/manage_assignments")
        row.locator(".release-feedback a").click()
        teacher.get_by_text("Successfully released feedback").wait_for()
        assert "feedback available" not in submitted(pages[second.student])
        page = pages[first.student]
        assert "feedback available to fetch" in submitted(page)
        page.get_by_role("button", name="Fetch Feedback").click()
        page.get_by_text("view feedback").wait_for()
        page.screenshot(path=SCREENSHOTS / "hub_fetched.png")
        home = tmp_path / "home" / first.student
        (path,) = home.glob(f"{ASSIGNMENT}/feedback/*/{NOTEBOOK}.html")
        page.goto(f"{address}/user/{first.student}/files/{path.relative_to(home).as_posix()}")
        assert f"(Score: {first.points:.1f} / 33.0)" in page.inner_text("body")
        page.screenshot(path=SCREENSHOTS / "hub_read.png")
