"""The chapters as a student works through them: with empty, wrong and right answers."""

import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import torch
from nbclient import NotebookClient

from transformer_lib.course.chapters import tasks
from transformer_lib.course.checks import EXERCISES
from transformer_lib.course.misconceptions.bank import wrong_answers
from transformer_lib.course.own.module import load
from transformer_lib.course.own.record import solutions
from transformer_lib.course.trained import load_trained
from transformer_lib.data.config import DataConfig
from transformer_lib.data.corpora import load_corpus

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
from exercises import CHECK, CODE

pytestmark = pytest.mark.long

CHAPTERS = Path(__file__).parent.parent / "chapters"
USED_AT_ONCE = tuple(f"{n:02d}" for n in range(1, 18))  # their cells go on with what one wrote


def run(chapter, folder, answer=None):
    """Run a chapter in a folder, each stub's function replaced; returns what was printed."""
    (path,) = CHAPTERS.glob(f"{chapter}_*.ipynb")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in notebook.cells:
        found = CHECK.search(cell.source)
        if answer and found and found[1] in EXERCISES:
            stub = re.compile(
                rf"^(?:def|class) {found[1]}\(.*?(?=^check)", re.MULTILINE | re.DOTALL
            )
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


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """A folder in which a student has answered everything rightly, chapter after chapter."""
    folder, names = tmp_path_factory.mktemp("student"), []
    for chapter in USED_AT_ONCE:
        said = run(chapter, folder, right)
        assert "not kept" not in said
        names += re.findall(r"✓ (\w+): passed\n  → kept in my_transformer.py", said)
    return folder, names


def test_right_answers_grow_into_a_module_that_runs(grown):
    folder, names = grown
    here = [task.name for task in tasks() if task.chapter[:2] in USED_AT_ONCE]
    assert names == [name for name in here if name in EXERCISES]
    for chapter in ("06", "10"):  # again, from the top
        said = run(chapter, folder)
        assert ": yours, from my_transformer.py" in said
        assert "the one that passed before is still in my_transformer.py" in said
    text = (folder / "my_transformer.py").read_text(encoding="utf-8")
    assert not re.findall(r"transformer_lib", text)


ALONE = """
import json, sys, torch
sys.modules["transformer_lib"] = None  # as if it were not installed
from my_transformer import Transformer, translate
pieces = json.load(open("my_pieces.json"))
model = Transformer(len(pieces), 192, 512, 4, 2, 0.15)
model.load_state_dict(torch.load("my_weights.pt"))
texts = json.load(open("texts.json"))
json.dump([translate(text, model, pieces) for text in texts], open("said.json", "w"))
print(sorted(name for name in sys.modules if name.startswith("transformer_lib.")))
"""


def test_the_students_module_translates_without_the_course(grown):
    folder, _ = grown
    trained = load_trained("transformer")
    module = load(folder / "my_transformer.py")
    texts = load_corpus(DataConfig()).test.sources[:20]
    pieces = trained.tokenizer.pieces(range(len(trained.tokenizer)))
    torch.save(module.convert(trained.model.state_dict()), folder / "my_weights.pt")
    for name, what in {"my_pieces": pieces, "texts": texts}.items():
        (folder / f"{name}.json").write_text(json.dumps(what), encoding="utf-8")
    command = [sys.executable, "-c", ALONE]
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.strip() == "[]"
    said = json.loads((folder / "said.json").read_text(encoding="utf-8"))
    assert said == trained.translate(texts)
