"""The chapters as a student works through them: with right answers, and again with none."""

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
from transformer_lib.course.checks import EXERCISES, EXPERIMENTS
from transformer_lib.course.own.module import load
from transformer_lib.course.own.record import solutions
from transformer_lib.course.trained import load_trained
from transformer_lib.data.config import DataConfig
from transformer_lib.data.corpora import load_corpus

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
from exercises import CHECK, CODE
from test_notebooks import bound_and_read

pytestmark = pytest.mark.long

CHAPTERS = Path(__file__).parent.parent / "chapters"
WITH_EXERCISES = sorted({task.chapter for task in tasks()})


def run(chapter, folder, answers, checks_alone=False):
    """Run a chapter in a folder, the stubs replaced by answers; returns what was printed."""
    notebook = nbformat.read(CHAPTERS / f"{chapter}.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in cells:
        found = CHECK.search(cell.source)
        answer = answers.get(found[1]) if found else None
        if answer and found[1] in EXPERIMENTS:
            cell.source = answer
        elif answer:
            stub = rf"^(?:def|class) {found[1]}\(.*?(?=^check)"
            end = f"{answer}\n\n\n"
            cell.source = re.sub(stub, lambda _, a=end: a, cell.source, flags=re.M | re.S)
    notebook.cells = what_checks_need(cells) if checks_alone else cells
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=900, resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.outputs]
    return "\n".join(o.get("text") or o.get("data", {}).get("text/plain", "") for o in outputs)


def what_checks_need(cells):
    """The cells of exercises, and those that import or bind what these read."""
    needed, read = [], set()
    for cell in reversed(cells):
        bound, its_own = bound_and_read(cell.source)
        if CHECK.search(cell.source) or bound & read or "import " in cell.source:
            needed.append(cell)
            read |= its_own
    return needed[::-1]


RIGHT = {name: "\n".join(CODE.findall(text)) for name, text in solutions().items()}


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


def grow(folder, chapters, parts_alone=False):
    """Answer everything rightly, chapter after chapter; all of it passes, and parts are kept."""
    names = [task.name for task in tasks() if task.chapter in chapters]
    parts = [name for name in names if name in EXERCISES]
    if parts_alone:  # and no experiment, nor what else a chapter has besides its checks
        names = parts
    passed, kept = [], []
    for chapter in chapters:
        said = run(chapter, folder, {name: RIGHT[name] for name in names}, parts_alone)
        assert "not kept" not in said
        passed += re.findall(r"✓ (\w+): passed", said)
        kept += re.findall(r"✓ (\w+): passed\n  → kept in my_transformer.py", said)
    assert passed == names
    assert kept == parts


# Two classes, so that two processes can have one each.
FIRST, SECOND = WITH_EXERCISES[:10], WITH_EXERCISES[10:]


class TestFirstChapters:
    def test_right_answers_are_kept_and_the_chapters_run(self, tmp_path):
        grow(tmp_path, FIRST)


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """A folder in which a student has answered all chapters rightly."""
    folder = tmp_path_factory.mktemp("student")
    grow(folder, FIRST, parts_alone=True)
    grow(folder, SECOND)
    return folder


class TestSecondChapters:
    def test_right_answers_grow_into_a_module_that_runs(self, grown):
        for chapter in ("06_multi_head_attention", "10_the_whole_model"):  # again, from the top
            said = run(chapter, grown, {})
            assert ": yours, from my_transformer.py" in said
            assert "the one that passed before is still in my_transformer.py" in said
        text = (grown / "my_transformer.py").read_text(encoding="utf-8")
        assert not re.findall(r"transformer_lib", text)

    def test_the_students_module_translates_without_the_course(self, grown):
        trained = load_trained("transformer")
        module = load(grown / "my_transformer.py")
        texts = load_corpus(DataConfig()).test.sources[:20]
        pieces = trained.tokenizer.pieces(range(len(trained.tokenizer)))
        torch.save(module.convert(trained.model.state_dict()), grown / "my_weights.pt")
        for name, what in {"my_pieces": pieces, "texts": texts}.items():
            (grown / f"{name}.json").write_text(json.dumps(what), encoding="utf-8")
        command = [sys.executable, "-c", ALONE]
        done = subprocess.run(command, cwd=grown, capture_output=True, encoding="utf-8", check=True)
        assert done.stdout.strip() == "[]"
        said = json.loads((grown / "said.json").read_text(encoding="utf-8"))
        assert said == trained.translate(texts)
