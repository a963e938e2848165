"""Shapes in signatures are checked while the tests run; runs are tiny and repeatable."""

import os
import shutil
import sys

from jaxtyping import install_import_hook

install_import_hook("transformer_lib", "beartype.beartype")

import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("course", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("course")


def pytest_collection_modifyitems(items):
    """Tests of grading need its sandbox: in CI it must be there, elsewhere they wait for it."""
    if "CI" not in os.environ and (sys.platform != "linux" or shutil.which("bwrap") is None):
        skip = pytest.mark.skip(reason="needs bubblewrap (Linux: apt install bubblewrap)")
        for item in items:
            if item.get_closest_marker("sandbox"):
                item.add_marker(skip)


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
