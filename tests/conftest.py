"""Shapes in signatures are checked while the tests run; runs are tiny and repeatable."""

import os
import shutil
import sys
from pathlib import Path

import jaxtyping

WITH_SHAPES = ("model", "decoding.search", "training.loss", "training.muon",
               "training.counted_start", "data.batching", "data.packing",
               "plots.attention", "evaluation.alignment", "course.checks.topics", "course.lineages",
               "course.figures.beam", "course.figures.lookup", "course.figures.masks",
               "course.figures.positions", "course.figures.ring", "course.assembled")  # fmt: skip
jaxtyping.install_import_hook(
    [f"transformer_lib.{name}" for name in WITH_SHAPES], "beartype.beartype"
)

# Matplotlib's list of fonts goes with the environment: the user's own may come from one that was
# removed while it was listed, and lacks fonts ever after, of which figures with formulas warn.
if os.access(sys.prefix, os.W_OK):
    os.environ.setdefault("MPLCONFIGDIR", os.path.join(sys.prefix, "matplotlib"))

import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("quick", deadline=None, derandomize=True, max_examples=15)
settings.register_profile("thorough", deadline=None, derandomize=True, max_examples=50)


def pytest_configure(config):
    settings.load_profile("thorough" if config.option.all else "quick")


@pytest.fixture(scope="module")
def unchecked_shapes():
    """For modules that call the same functions thousands of times: others check their shapes."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


SANDBOX_IS_THERE = sys.platform == "linux" and (
    shutil.which("bwrap") is not None or "SANDBOX_MUST_BE_THERE" in os.environ  # set by .ci/run
)


def pytest_collection_modifyitems(config, items):
    """Leave out what takes long, and what needs a sandbox where there is none; long files first."""
    skip = pytest.mark.skip(reason="needs bubblewrap (Linux: apt install bubblewrap)")
    for item in items:
        if "assignments/source" in item.path.as_posix():
            # The sandbox runs their solutions in `make test` already, so their outputs can wait.
            item.add_marker("long")
        if item.get_closest_marker("sandbox") and not SANDBOX_IS_THERE:
            item.add_marker(skip)
    if not config.option.all:
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    place = {name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))


# Processes share the files: a long one at the end would leave the others without work. Each process
# also has its next one set aside. test_student.py counts as two, a class each; what waits behind
# these two is short.
LONGEST_FIRST = (
    "test_student.py", "test_checks.py", "test_core.py", "test_cli.py",
    "test_assignments.py", "test_answers.py", "test_mutation.py", "test_student_wrong.py",
    "test_training.py", "test_grading.py", "test_attacks.py", "test_values.py",
    "12_decoding.ipynb", "test_docs.py", "01_a_translator_in_minutes.ipynb", "test_term.py",
    "test_patterns.py", "10_the_whole_model.ipynb", "test_decoding.py", "11_training.ipynb",
    "14_what_did_it_learn.ipynb", "test_repair.py", "17_a_language_model.ipynb",
    "02_from_rnn_to_attention.ipynb", "test_distributed.py", "test_leaderboard.py",
)  # fmt: skip


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="also the tests that take long")


def pytest_terminal_summary(terminalreporter, config):
    if hasattr(config, "workerinput"):
        return
    if not config.option.all:
        terminalreporter.write_line("left out: tests that take long (make test-all runs them)")
    if not SANDBOX_IS_THERE:
        terminalreporter.write_line(
            "left out: tests of grading, which need bubblewrap (Linux: apt install bubblewrap)"
        )


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Prepared data of all tests, away from the user's own."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["TRANSFORMER_LIB_CACHE"] = str(folder)
    return folder


WORDS = {
    "the": "die", "a": "eine", "cat": "Katze", "mouse": "Maus", "woman": "Frau", "sees": "sieht",
    "hears": "hört", "finds": "findet", "old": "alte", "small": "kleine", "today": "heute",
}  # fmt: skip


@pytest.fixture(scope="session")
def toy_files(tmp_path_factory):
    """A tiny language pair as text files: train, valid and test, translated word by word."""
    folder = tmp_path_factory.mktemp("toy")
    nouns, verbs = ("cat", "mouse", "woman"), ("sees", "hears", "finds")
    adjectives = ("", "old ", "small ")
    sentences = sorted(
        {
            f"{article} {adjective}{subject} {verb} {other} {thing}{end}"
            for article in ("the", "a")
            for adjective in adjectives
            for subject in nouns
            for verb in verbs
            for other in ("the", "a")
            for thing in nouns
            for end in ("", " today")
        }
    )
    torch.manual_seed(3)
    order = torch.randperm(len(sentences)).tolist()
    shuffled = [sentences[i] for i in order]
    parts = {"test": shuffled[:20], "valid": shuffled[20:40], "train": shuffled[40:]}
    for name, lines in parts.items():
        german = [" ".join(WORDS[w] for w in line.split()) for line in lines]
        (folder / f"{name}.en").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (folder / f"{name}.de").write_text("\n".join(german) + "\n", encoding="utf-8")
    return folder


TOY_CONFIG = """
[data]
corpus = "files"
vocab_size = 80
train = ["train.en", "train.de"]
valid = ["valid.en", "valid.de"]
test = ["test.en", "test.de"]

[model]
kind = "transformer"
d_model = 32
d_ff = 64
num_heads = 4
num_encoder_layers = 1
num_decoder_layers = 1
dropout = 0.0
norm = "pre"
tied_embeddings = "none"

[training]
steps = 40
batch_tokens = 256
learning_rate = 2e-2
warmup_share = 0.3
validations = 4
validation_sentences = 5
precision = "fp32"
"""


@pytest.fixture
def toy_config(toy_files, tmp_path):
    """Path of an experiment on the toy files that trains within a second."""
    path = tmp_path / "toy.toml"
    text = TOY_CONFIG
    for name in ("train", "valid", "test"):
        for side in ("en", "de"):
            text = text.replace(f'"{name}.{side}"', f"'{toy_files / f'{name}.{side}'}'")
    path.write_text(text, encoding="utf-8")
    return path


# A small course. What it needs is imported where it is used: most tests are not about grading.


@pytest.fixture(scope="session")
def template():
    import grading_help

    from transformer_lib.instructor.grading.nbgrader_plugin import released

    return released(grading_help.master(), "small")


@pytest.fixture(scope="session")
def new_course(tmp_path_factory):
    """A course with an empty gradebook: to make one takes nbgrader two seconds, to copy it none."""
    import grading_help
    import nbformat

    from transformer_lib.instructor.grading.course import Course

    folder = tmp_path_factory.mktemp("new") / "course"
    (folder / "source" / "small").mkdir(parents=True)
    nbformat.write(grading_help.master(), folder / "source" / "small" / "small.ipynb")
    assignments = Path(__file__).parent.parent / "assignments"
    shutil.copy(assignments / "nbgrader_config.py", folder)
    Course(folder).register("small")
    return folder


@pytest.fixture
def course(new_course, tmp_path):
    from transformer_lib.instructor.grading.course import Course

    return Course(shutil.copytree(new_course, tmp_path / "course"))


@pytest.fixture
def exchange(course, tmp_path):
    """The course with an exchange into which nbgrader has released the assignment."""
    from transformer_lib.instructor.grading.course import Course

    root = tmp_path / "exchange"
    root.mkdir(mode=0o777)
    root.chmod(0o777)
    path = course.folder / "nbgrader_config.py"
    path.write_text(path.read_text() + f"get_config().Exchange.root = {str(root)!r}\n")
    inbound = root / "transformer" / "inbound"
    inbound.mkdir(parents=True)
    return Course(course.folder), inbound
