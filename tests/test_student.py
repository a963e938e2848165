"""The chapters as a student works through them: with empty, wrong and right answers."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from transformer_lib.course.checks import EXERCISES
from transformer_lib.course.misconceptions.bank import wrong_answers
from transformer_lib.course.own.record import solutions

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
from exercises import CHECK, CODE

pytestmark = pytest.mark.long

CHAPTERS = Path(__file__).parent.parent / "chapters"
USED_AT_ONCE = ("01", "02", "03", "04", "05", "06")  # their cells go on with what the student wrote


def run(chapter, folder, answer=None):
    """Run a chapter in a folder, each stub's function replaced; returns what was printed."""
    (path,) = CHAPTERS.glob(f"{chapter}_*.ipynb")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in notebook.cells:
        found = CHECK.search(cell.source)
        if answer and found and found[1] in EXERCISES:
            stub = re.compile(rf"^def {found[1]}\(.*?(?=^check)", re.MULTILINE | re.DOTALL)
            cell.source = stub.sub(lambda _, name=found[1]: answer(name) + "\n\n\n", cell.source)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=900, resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.outputs]
    return "\n".join(o.get("text") or o.get("data", {}).get("text/plain", "") for o in outputs)


def right(name):
    return "\n".join(CODE.findall(solutions()[name]))


def wrong(name):
    """A known mistake, as it would be defined in the cell."""
    answer = wrong_answers(name)[0].answers[name]
    return (
        f"from {answer.__module__} import {answer.__qualname__} as {name}\n"
        f"{name}.__name__ = {name!r}"
    )


@pytest.mark.parametrize("chapter", USED_AT_ONCE)
def test_wrong_answers_stop_nothing_and_are_not_kept(chapter, tmp_path):
    said = run(chapter, tmp_path, wrong)
    assert "properties failed" in said
    assert not (tmp_path / "my_transformer.py").exists()


def test_right_answers_grow_into_a_module_that_runs(tmp_path):
    names = []
    for chapter in USED_AT_ONCE:
        said = run(chapter, tmp_path, right)
        assert "not kept" not in said
        names += re.findall(r"✓ (\w+): passed\n  → kept in my_transformer.py", said)
    assert len(names) == 30
    for chapter in ("05", "06"):  # again, from the top
        said = run(chapter, tmp_path)
        assert ": yours, from my_transformer.py" in said
        assert "the one that passed before is still in my_transformer.py" in said
    text = (tmp_path / "my_transformer.py").read_text(encoding="utf-8")
    course = re.findall(r"from transformer_lib\S* import (.+)", text)
    assert course == ["attention"]  # the exercise of chapter 7
    subprocess.run([sys.executable, "-c", "import my_transformer"], cwd=tmp_path, check=True)
