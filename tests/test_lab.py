"""The work copy that ``make lab`` opens: never in git's way, never a loss of a student's work."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """The script, on a small course."""
    specification = importlib.util.spec_from_file_location("lab", ROOT / "scripts" / "lab.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    course = tmp_path / "course"
    for name in ("chapters/00_a.ipynb", "chapters/01_b.ipynb", "chapters/text/00_a.py",
                 "chapters/images/x.png", "docs/gpu.md", "assignments/AGENTS.md",
                 "docs/mutation.md", "benchmarks/RESULTS.md",
                 "leaderboard/README.md", "leaderboard/t/e/entry.toml",
                 "leaderboard/t/e/program.py", "leaderboard/t/e/log.txt",
                 "assignments/release/1_p/p.ipynb", "assignments/source/1_p/p.ipynb"):  # fmt: skip
        (course / name).parent.mkdir(parents=True, exist_ok=True)
        (course / name).write_text(f"first {name}")
    monkeypatch.setattr(module, "ROOT", course)
    return module


def there(work):
    return sorted(
        p.relative_to(work).as_posix()
        for p in work.rglob("*")
        if p.is_file() and p.suffix != ".json"
    )


def test_it_holds_what_students_need_and_no_solutions(lab, tmp_path):
    work = tmp_path / "work"
    assert lab.update(work) == []
    assert there(work) == [
        "AGENTS.md",
        "assignments/1_p/p.ipynb",
        "benchmarks/RESULTS.md",
        "chapters/00_a.ipynb",
        "chapters/01_b.ipynb",
        "chapters/images/x.png",
        "docs/gpu.md",
        "leaderboard/README.md",
        "leaderboard/t/e/entry.toml",
        "leaderboard/t/e/program.py",
    ]


def test_a_new_version_replaces_only_what_was_not_changed(lab, tmp_path):
    work = tmp_path / "work"
    lab.update(work)
    (work / "chapters/00_a.ipynb").write_text("mine")
    (work / "chapters/notes.ipynb").write_text("my own")
    assert lab.update(work) == []  # nothing new: nothing to say
    for name in ("00_a", "01_b"):
        (lab.ROOT / f"chapters/{name}.ipynb").write_text(f"second {name}")
    assert lab.update(work) == [
        "chapters/00_a.ipynb: yours is kept, the new version is 00_a.new.ipynb"
    ]
    assert (work / "chapters/00_a.ipynb").read_text() == "mine"
    assert (work / "chapters/00_a.new.ipynb").read_text() == "second 00_a"
    assert (work / "chapters/01_b.ipynb").read_text() == "second 01_b"
    assert (work / "chapters/notes.ipynb").read_text() == "my own"
    assert lab.update(work) == []


def test_running_a_notebook_does_not_change_it(lab, tmp_path):
    """Its outputs stay until there is a new version, which takes its place."""
    work, source = tmp_path / "work", lab.ROOT / "chapters/00_a.ipynb"
    target = work / "chapters/00_a.ipynb"
    cell = nbformat.v4.new_code_cell("1 + 1")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), source)
    lab.update(work)
    cell.outputs = [nbformat.v4.new_output("stream", text="2")]
    cell.execution_count = 1
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), target)
    ran = target.read_bytes()
    assert lab.update(work) == []
    assert target.read_bytes() == ran
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("2 + 2")]), source)
    assert lab.update(work) == []
    assert "2 + 2" in target.read_text()


def test_what_was_written_into_the_new_version_stays_too(lab, tmp_path):
    work = tmp_path / "work"
    lab.update(work)
    (work / "chapters/00_a.ipynb").write_text("mine")
    for version in ("second", "third", "fourth"):
        (lab.ROOT / "chapters/00_a.ipynb").write_text(version)
        lab.update(work)
        if version == "third":  # until here nothing was written into it
            assert not (work / "chapters/00_a.new2.ipynb").exists()
            (work / "chapters/00_a.new.ipynb").write_text("mine, too")
    assert (work / "chapters/00_a.new.ipynb").read_text() == "mine, too"
    assert (work / "chapters/00_a.new2.ipynb").read_text() == "fourth"
    (work / ".copied.json").write_text("{")  # a damaged record: all counts as the student's
    lab.update(work)
    assert (work / "chapters/00_a.new.ipynb").read_text() == "mine, too"


def test_instructors_buttons_are_off(lab, tmp_path):
    environment = lab.environment(tmp_path / "settings")
    folder = Path(environment["JUPYTER_CONFIG_PATH"].split(":")[0])
    page = json.loads((folder / "labconfig" / "page_config.json").read_text())
    assert page["disabledExtensions"]["@jupyter/nbgrader"] is True


def test_a_terminal_finds_the_commands(lab, tmp_path):
    path = lab.environment(tmp_path / "settings")["PATH"]
    assert shutil.which("transformer-lib", path=path) == str(
        Path(sys.executable).parent / "transformer-lib"
    )


def test_links_lead_somewhere_in_the_copy(tmp_path):
    """With the course as it is."""
    import re

    specification = importlib.util.spec_from_file_location("lab", ROOT / "scripts" / "lab.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    module.update(tmp_path / "work")
    prose = {
        path: "\n".join(
            cell.source
            for cell in nbformat.read(path, as_version=4).cells
            if cell.cell_type == "markdown"
        )
        for path in (tmp_path / "work").rglob("*.ipynb")
    }
    pages = [*(tmp_path / "work" / "docs").iterdir(), tmp_path / "work" / "leaderboard/README.md"]
    prose |= {page: page.read_text(encoding="utf-8") for page in pages}
    for path, text in prose.items():
        for link in re.findall(r"\]\(([^)#]+)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
            if not link.startswith(("http://", "https://", "attachment:")):
                assert (path.parent / link).exists(), (path.name, link)
