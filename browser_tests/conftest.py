"""A JupyterLab on a work copy of the course, and a Chromium that reaches nothing but that."""

import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

import pytest
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parent.parent
SETTINGS = {
    # Every cell is in the page, not only those in sight.
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
TOKEN = "browser-tests"


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """The address of a notebook, or of "", in a JupyterLab as ``make lab`` opens it."""
    specification = importlib.util.spec_from_file_location("lab", ROOT / "scripts" / "lab.py")
    script = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(script)
    folder = tmp_path_factory.mktemp("lab")
    script.update(folder / "work")
    settings = script.environment(folder / "page")
    with running_lab(folder / "work", folder, settings) as address:

        def at(notebook: str) -> str:
            path = notebook if "/" in notebook or not notebook else f"chapters/{notebook}"
            return f"{address}/lab{'/tree/' if path else ''}{path}?token={TOKEN}&reset"

        yield at


@contextmanager
def running_lab(root: Path, folder: Path, variables: dict[str, str] | None = None) -> Iterator[str]:
    """A JupyterLab on ``root``, whose settings and log lie in ``folder``; its address."""
    for name, values in SETTINGS.items():
        path = folder / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "jupyterlab", str(root), "--no-browser",
        f"--port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}",
        *(["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []),
    ]  # fmt: skip
    environment = {
        **os.environ,
        **(variables or {}),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
    }
    address = f"http://localhost:{port}"
    with serving(command, root, environment, folder / "lab.log",
                 f"{address}/api/status?token={TOKEN}"):  # fmt: skip
        yield address


@contextmanager
def serving(
    command: list[str], folder: Path, environment: dict[str, str], log: Path, address: str
) -> Iterator[None]:
    """A server that runs in ``folder``, from when it answers at ``address``; it writes ``log``."""
    with log.open("w") as file:
        server = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT
        )
        try:
            wait_for(address, server, log)
            yield
        finally:
            server.terminate()
            server.wait()


def wait_for(address: str, server: subprocess.Popen, log: Path, attempts: int = 120) -> None:
    """Until the server answers; its log, if it does not."""
    for _ in range(attempts):
        if server.poll() is not None:
            break
        try:
            urllib.request.urlopen(address, timeout=0.5)
        except (URLError, TimeoutError, ConnectionError):
            try:
                server.wait(0.5)
            except subprocess.TimeoutExpired:
                continue
        else:
            return
    pytest.fail(f"the server did not start:\n{log.read_text(encoding='utf-8')}")


@pytest.fixture(scope="session")
def browser():
    """The system's Chromium, or else the one of `playwright install chromium`."""
    names = ("chromium", "chromium-browser", "google-chrome")
    installed = next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=installed, args=["--no-sandbox", "--force-color-profile=srgb"]
        )
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser):
    """A page without a network. ``page.refused`` lists what it asked for, ``page.failures`` the
    errors of its scripts."""
    page = browser.new_page(viewport={"width": 1280, "height": 1600})
    page.refused, page.failures = [], []

    def answer(route):
        if route.request.url.startswith(("http://localhost:", "data:", "blob:", "file:")):
            route.continue_()
        else:
            page.refused.append(route.request.url)
            route.abort()

    page.route("**/*", answer)
    page.on("pageerror", lambda error: page.failures.append(str(error)))
    yield page
    page.close()


def give_points(page, boxes, points):
    """Write into boxes of nbgrader's form grader, and wait until each is saved."""
    page.wait_for_function("window.formgrader?.grades?.loaded")  # before that no box is saved
    for box in boxes:
        with page.expect_response(re.compile(r"/api/grade/")) as saved:
            box.fill(points)
            box.blur()
        assert saved.value.ok
