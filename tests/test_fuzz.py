"""Random notebooks, settings and bytes at the command line: never a traceback, exit code 0 or 2."""

import json
import shutil
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transformer_lib import cli
from transformer_lib.experiment.config import load_config
from transformer_lib.experiment.run import train

few = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


def call(*arguments):
    """The command in this process; anything but an exit is a traceback to its user."""
    before = sys.argv
    sys.argv = ["transformer-lib", *map(str, arguments)]
    try:
        cli.main()
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        sys.argv = before
    assert code in (0, 2), (code, arguments)
    return code


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
# Cells that are nearly right: known keys, sometimes missing, sometimes of another type.
nbgrader = st.fixed_dictionaries(
    {}, optional={"grade_id": st.sampled_from(["scale", "x"]) | anything,
                  "solution": st.booleans() | anything, "grade": st.booleans() | anything,
                  "points": st.integers(0, 5) | anything},
)  # fmt: skip
cells = st.fixed_dictionaries(
    {},
    optional={
        "cell_type": st.sampled_from(["code", "markdown", "raw"]) | anything,
        "source": st.text(st.characters(), max_size=20) | st.lists(st.text(max_size=5)) | anything,
        "id": st.text(max_size=5) | anything,
        "outputs": st.lists(anything, max_size=2) | anything,
        "metadata": st.fixed_dictionaries({}, optional={"nbgrader": nbgrader | anything})
        | anything,
        "attachments": anything,
        "execution_count": anything,
    },
)
notebooks = st.fixed_dictionaries(
    {},
    optional={
        "nbformat": st.sampled_from([2, 3, 4, 5]) | anything,
        "nbformat_minor": st.integers(0, 6) | anything,
        "cells": st.lists(cells | anything, max_size=4) | anything,
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "kernelspec": anything,
                "transformer_lib": st.fixed_dictionaries(
                    {}, optional={"name": st.just("small") | anything, "cells": anything},
                ) | anything,
                "transformer_lib_remarks": anything,
            },
        ) | anything,
    },
)  # fmt: skip


@given(content=notebooks.map(json.dumps).map(str.encode) | st.binary(max_size=60))
@settings(few, max_examples=150)
def test_any_notebook_can_be_verified(tmp_path, content):
    path = tmp_path / "small.ipynb"
    path.write_bytes(content)
    call("verify-submission", path)


small = st.integers(-1, 12)
values = {
    "data": {"vocab_size": st.integers(20, 90), "max_len": small, "max_words": small,
             "max_ratio": st.floats(0, 9)},
    "model": {"kind": st.sampled_from(["transformer", "rnn", "gpt"]), "d_model": small,
              "d_ff": small, "num_heads": st.integers(0, 4), "dropout": st.floats(),
              "num_encoder_layers": st.integers(0, 2), "num_decoder_layers": st.integers(0, 2),
              "norm": st.sampled_from(["pre", "post", "branch", "x"]),
              "positions": st.sampled_from(["sinusoidal", "learned", "none", ""]),
              "tied_embeddings": st.sampled_from(["all", "none", "output"])},
    "training": {"steps": st.integers(-1, 3), "minutes": st.floats(max_value=0), "betas": anything,
                 "batch_tokens": st.integers(-1, 99), "learning_rate": st.floats(),
                 "schedule": st.sampled_from(["noam", "budget"]), "validations": st.integers(-1, 4),
                 "keep_checkpoints": small, "average_last": small, "accumulate": st.integers(0, 3),
                 "label_smoothing": st.floats(), "device": st.sampled_from(["cpu", "tpu"])},
    "decoding": {"beam_size": st.integers(-1, 3), "alpha": st.floats(), "max_extra": small},
}  # fmt: skip
overrides = st.sampled_from(
    [(section, key) for section, keys in values.items() for key in keys]
).flatmap(lambda place: st.tuples(st.just(".".join(place)), values[place[0]][place[1]] | anything))


def as_setting(pair):
    key, value = pair
    return f"{key}={json.dumps(value) if not isinstance(value, str) else value}"


@given(chosen=st.lists(overrides.map(as_setting), max_size=4))
@few
def test_any_settings_train_or_are_refused(tmp_path, toy_config, chosen):
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
    more = [word for setting in ["training.steps=2", *chosen] for word in ("--set", setting)]
    call("train", toy_config, "--out", tmp_path / "run", *more)


@given(text=st.text(max_size=40) | st.dictionaries(
    st.sampled_from(["data", "model", "training", "decoding", "seed", "name"]), anything
).map(lambda d: "\n".join(f"{k} = {json.dumps(v)}" for k, v in d.items())))  # fmt: skip
@settings(few, max_examples=60)
def test_any_file_is_a_configuration_or_is_refused(tmp_path, text):
    path = tmp_path / "x.toml"
    path.write_text(text, encoding="utf-8", errors="replace")
    call("train", path, "--out", tmp_path / "no", "--set", "model.kind=none")


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory, toy_files):
    from conftest import TOY_CONFIG

    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "toy.toml").write_text(TOY_CONFIG, encoding="utf-8")
    train(load_config(str(folder / "toy.toml"), ["training.steps=4"]), folder / "run", toy_files)
    return folder / "run"


@given(
    name=st.sampled_from(
        ["run.json", "experiment.json", "metrics.jsonl", "tokenizer.model", "model.safetensors"]
    ),
    content=st.binary(max_size=60) | anything.map(json.dumps).map(str.encode),
    whole=st.booleans(),
)
@settings(few, max_examples=60)
def test_a_run_with_any_bytes_in_it_opens_or_says_why_not(
    tmp_path, run_folder, name, content, whole
):
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(run_folder, copy)
    before = (copy / name).read_bytes()
    (copy / name).write_bytes(content if whole else before[: len(before) // 2] + content)
    call("evaluate", copy, "--beam", 1)


@given(source=st.binary(max_size=40), target=st.binary(max_size=40))
@few
def test_any_bytes_are_a_test_set_or_are_refused(tmp_path, run_folder, source, target):
    (tmp_path / "a").write_bytes(source)
    (tmp_path / "b").write_bytes(target)
    call("evaluate", run_folder, "--test", f"{tmp_path / 'a'},{tmp_path / 'b'}", "--beam", 1)


@given(content=st.binary(max_size=60) | anything.map(json.dumps).map(str.encode))
@few
def test_any_bytes_are_ratings_or_are_refused(tmp_path, content):
    for name in ("sheet.json", "key.json", "ratings.json"):
        (tmp_path / name).write_bytes(content)
    call("rate", "report", tmp_path, tmp_path / "ratings.json")
