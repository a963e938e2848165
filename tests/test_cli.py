"""The command as a user meets it: in a pipe, by mistake, on a full disk."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from transformer_lib import cli
from transformer_lib.errors import UserError
from transformer_lib.experiment.config import load_config, load_data_config, named_configs
from transformer_lib.experiment.run import load_run, train
from transformer_lib.progress import progress_is_shown
from transformer_lib.training.metrics import read_metrics


def run_command(*arguments, stdin=None):
    return subprocess.run(
        [sys.executable, "-m", "transformer_lib", *map(str, arguments)],
        input=stdin, capture_output=True, text=not isinstance(stdin, bytes),
    )  # fmt: skip


def called(monkeypatch, capsys, *arguments):
    """The command in this process: exit code, standard output, standard error."""
    monkeypatch.setattr(sys, "argv", ["transformer-lib", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    output = capsys.readouterr()
    return stop.value.code or 0, output.out, output.err


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory, toy_files):
    from conftest import TOY_CONFIG

    folder = tmp_path_factory.mktemp("cli")
    text = TOY_CONFIG
    for name in ("train", "valid", "test"):
        for side in ("en", "de"):
            text = text.replace(f'"{name}.{side}"', f"'{toy_files / f'{name}.{side}'}'")
    (folder / "toy.toml").write_text(text, encoding="utf-8")
    config = load_config(str(folder / "toy.toml"), ["training.steps=120", "data.max_len=24"])
    train(config, folder / "run")
    return folder / "run"


def test_a_model_larger_than_the_memory_is_one_line(monkeypatch, capsys):
    huge = ("--set", f"model.d_model={2**24}")
    code, _, error = called(monkeypatch, capsys, "train", "cpu_tatoeba_transformer", *huge)
    assert code == 2
    assert error.startswith("error: too little memory: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "command", [[], ["data"], ["data", "prepare"], ["train"], ["translate"], ["evaluate"],
                ["compare"], ["average"], ["export"]],
)  # fmt: skip
def test_help_is_there_and_shows_examples(monkeypatch, capsys, command):
    code, out, _ = called(monkeypatch, capsys, *command, "--help")
    assert code == 0
    if command and command != ["data"]:
        assert "Examples:" in out
        assert "transformer-lib " + " ".join(command) in out


def test_a_low_bleu_is_explained(monkeypatch, capsys, run_folder):
    code, out, _ = called(monkeypatch, capsys, "evaluate", run_folder, "--explain")
    assert code == 0
    for line in ("Why is my BLEU not the paper's?", "compounds split", "greedy", "cleaning  kept"):
        assert line in out
    code, _, err = called(monkeypatch, capsys, "evaluate", run_folder, "--explain", "--json")
    assert (code, err.count("\n")) == (2, 1)


def test_a_run_is_exported(monkeypatch, capsys, run_folder, tmp_path):
    out = tmp_path / "exported"
    arguments = ("export", run_folder, "--format", "ctranslate2", "--out", out)
    assert called(monkeypatch, capsys, *arguments)[:2] == (0, f"exported: {out}\n")
    assert (out / "model.bin").exists()
    code, _, err = called(monkeypatch, capsys, *arguments)
    assert (code, "is not empty" in err) == (2, True)


def test_a_report_with_ratings_needs_ratings(monkeypatch, capsys, run_folder, tmp_path):
    code, _, err = called(
        monkeypatch, capsys, "compare", run_folder, run_folder, "--rating", tmp_path
    )
    assert (code, "has no ratings*.json" in err) == (2, True)


def test_translate_works_in_a_pipe_line_for_line(run_folder):
    lines = ["the old cat sees a mouse", "", "a woman finds the cat today", "ünknown wörds"]
    result = run_command("translate", run_folder, stdin="\n".join(lines) + "\n")
    assert result.returncode == 0
    out = result.stdout.split("\n")
    assert len(out) == len(lines) + 1
    assert out[:-1] == load_run(run_folder).translate(lines)
    assert out[0].startswith("die ")
    assert out[1] == ""
    greedy = run_command("translate", run_folder, "--beam", 1, stdin=lines[0])
    assert greedy.stdout.startswith("die ")


def test_a_long_sentence_is_split_with_a_warning(run_folder):
    result = run_command("translate", run_folder, stdin="the old cat sees a mouse today " * 20)
    assert result.returncode == 0
    assert result.stdout.count("\n") == 1
    assert re.search(r"warning: “the old cat .*…” has \d+ tokens, more than the 23", result.stderr)


def test_a_warning_sends_nothing_to_the_terminal_but_text(run_folder):
    result = run_command("translate", run_folder, stdin="the \x1b[31mcat sees a mouse " * 20)
    assert "\x1b" not in result.stderr
    assert "tokens, more than the 23" in result.stderr


def test_standard_input_that_is_not_utf8(run_folder):
    result = run_command("translate", run_folder, stdin=b"the cat\nna\xefve\n")
    assert result.returncode == 2
    assert b"standard input, line 2: not UTF-8" in result.stderr
    assert b"Traceback" not in result.stderr


def test_a_reader_that_leaves_is_no_error(run_folder):
    command = f"yes 'the cat' | head -n 3000 | {sys.executable} -m transformer_lib translate "
    command += f"'{run_folder}' --beam 1 | head -n 1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert result.stderr == ""
    assert result.stdout.count("\n") == 1


def test_evaluate_prints_text_or_json(monkeypatch, capsys, run_folder):
    code, out, _ = called(monkeypatch, capsys, "evaluate", run_folder)
    assert code == 0
    assert "BLEU" in out
    code, out, _ = called(monkeypatch, capsys, "evaluate", run_folder, "--json", "--beam", 1)
    assert json.loads(out)["decoding"]["beam_size"] == 1


def test_data_prepare_reports(monkeypatch, capsys, toy_config):
    code, out, _ = called(monkeypatch, capsys, "data", "prepare", toy_config)
    assert code == 0
    assert re.search(r"kept \d+ pairs; dropped", out)
    assert "80 pieces; 20 validation and 20 test sentences" in out


def mistakes():
    yield ["train", "nothing"], r"no configuration 'nothing': .* cpu_tatoeba_transformer"
    yield ["train", "cpu_tatoeba_rn"], r"did you mean cpu_tatoeba_rnn"
    yield ["train", "CONFIG", "--set", "training.device=tpu"], r"auto, cpu, cuda, cuda:N or mps"
    yield ["translate", "RUN", "--device", "cuda:x"], r"no device 'cuda:x'; it is auto, cpu, cuda,"
    yield ["train", "CONFIG", "--set", "training.clip_norm=inf"], r"training.clip_norm.*finite"
    yield ["train", "CONFIG", "--set", "data.max_ratio=inf"], r"data.max_ratio.*finite"
    yield ["train", "CONFIG", "--set", "training.betas=[0.9]"], r"two values, as in \[0.9, 0.98\]"
    yield ["train", "CONFIG", "--device", "cuda:99"], r"cuda:99 is not on this machine"
    yield ["translate", "RUN", "--device", "cuda:99"], r"cuda:99 is not on this machine"
    yield ["data", "prepare", "wmt15"], r"neither a corpus nor a configuration; did you mean wmt14"
    yield (
        ["train", "CONFIG", "--set", "model.d_mdl=3"],
        r"there is no key model.d_mdl; did you mean d_model",
    )
    yield (
        ["train", "CONFIG", "--set", "model.d_model='big'"],
        r"model.d_model=\"big\": input should be .*integer",
    )
    yield (
        ["train", "CONFIG", "--set", "model.d_model=30"],
        r"d_model=30 is not divisible by num_heads=4",
    )
    yield ["train", "CONFIG", "--set", "model.dropout=1.5"], r"allowed: 0 ≤ dropout < 1$"
    yield (
        ["train", "wmt14_base", "--set", "training.learning_rate=1e-3"],
        r"--set training.learning_rate: it has no effect with training.schedule=noam, .*wmt14_base",
    )
    yield (
        ["train", "CONFIG", "--set", "training.warmup_steps=9"],
        r"no effect with training.schedule=budget, .* or set training.schedule=noam as well",
    )
    yield ["train", "CONFIG", "--set", "steps"], r"write it as key=value"
    yield ["train", "CONFIG", "--set", "name.x=1"], r"name is a value, not a section"
    both = ["--set", "training.minutes=1.0", "--set", "training.steps=5"]
    yield ["train", "CONFIG", *both], r"give either steps or minutes"
    yield (
        ["train", "CONFIG", "--steps", "0"],
        r"steps=0: input should be greater than or equal to 1",
    )
    yield ["train", "CONFIG", "--steps", "5", "--minutes", "1"], r"--minutes or --steps, not both"
    yield ["train", "CONFIG", "--out", "NEW", "--resume"], r"NEW is not a run"
    yield ["translate", "NEW"], r"NEW is not a run: it has no run.json"
    yield (
        ["translate", "RUN", "--beam", "0"],
        r"beam_size=0: input should be greater than or equal to 1",
    )
    yield ["evaluate", "RUN", "--test", "x"], r"no test set 'x'"
    yield ["evaluate", "RUN", "--test", "a,b"], r"cannot read a: No such file"
    yield ["average", "RUN", "--last", "99"], r"has 3 checkpoints"
    yield (
        ["data", "prepare", "tatoeba", "--set", "data.vocab_size=1.5"],
        r"data.vocab_size=1.5: .*integer",
    )
    yield ["train", "RUN/run.json"], r"no configuration .*neither a .toml file"


@pytest.mark.parametrize(("arguments", "message"), list(mistakes()))
def test_a_mistake_is_one_line_and_exit_code_2(
    monkeypatch, capsys, tmp_path, toy_config, run_folder, arguments, message
):
    monkeypatch.chdir(tmp_path)
    names = {"CONFIG": str(toy_config), "RUN": str(run_folder)}
    code, out, err = called(monkeypatch, capsys, *(names.get(a, a) for a in arguments))
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert re.search(message, err)
    assert not (tmp_path / "NEW").exists()
    assert not (tmp_path / "runs").exists()


def damaged(run_folder, tmp_path, name, content):
    copy = tmp_path / "copy"
    shutil.copytree(run_folder, copy)
    path = copy / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content(path.read_bytes()))
    return copy


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.safetensors", lambda b: b[: len(b) // 2], r"cannot read the checkpoint"),
        ("model.safetensors", lambda b: b"", r"cannot read the checkpoint"),
        ("tokenizer.model", lambda b: b[:100], r"not a SentencePiece model"),
        ("tokenizer.model", None, r"cannot read .*tokenizer.model"),
        ("experiment.json", lambda b: b[:50], r"experiment.json is damaged"),
        (
            "experiment.json",
            lambda b: b.replace(b'"d_ff"', b'"d_old"'),
            r"there is no key model.d_old",
        ),
        (
            "experiment.json",
            lambda b: b.replace(b'"d_ff": 64', b'"d_ff": 65'),
            r"holds another model",
        ),
        (
            "run.json",
            lambda b: b.replace(b'"format": 2', b'"format": 9'),
            r"another version .*format 9",
        ),
        ("run.json", lambda b: b"[]", r"another version"),
        ("run.json", lambda b: b"{", r"run.json is damaged"),
        ("run.json", lambda b: b'{"format": 2, "model": ""}', r"damaged: parameters: .*required"),
    ],
)
def test_a_damaged_run(monkeypatch, capsys, run_folder, tmp_path, name, content, message):
    copy = damaged(run_folder, tmp_path, name, content)
    code, _, err = called(monkeypatch, capsys, "translate", copy)
    assert code == 2
    assert err.count("\n") == 1
    assert re.search(message, err)


def test_a_run_is_not_overwritten_and_not_resumed_with_other_settings(
    monkeypatch, capsys, tmp_path, toy_config
):
    out = tmp_path / "run"
    arguments = ["train", toy_config, "--out", out]
    assert called(monkeypatch, capsys, *arguments)[0] == 0
    code, _, err = called(monkeypatch, capsys, *arguments)
    assert (code, err.count("\n")) == (2, 1)
    assert "already holds a run; continue it with --resume" in err
    code, _, err = called(monkeypatch, capsys, "train", toy_config, "--out", toy_config)
    assert code == 2
    assert "toy.toml is a file; choose a folder with --out" in err
    code, _, err = called(monkeypatch, capsys, *arguments, "--resume", "--set", "seed=2")
    assert (code, err.count("\n")) == (2, 3)
    assert "was started with seed=1, not 2" in err.splitlines()[-1]
    code, _, err = called(
        monkeypatch, capsys, *arguments, "--resume", "--set", "data.vocab_size=50"
    )
    assert (code, err.count("\n")) == (2, 3)
    assert "was started with data=vocab_size: 80, not 50" in err.splitlines()[-1]


def test_a_run_goes_on_where_its_text_has_moved_but_not_with_another_text(
    monkeypatch, capsys, tmp_path, toy_files, toy_config
):
    out, moved = tmp_path / "run", tmp_path / "moved"
    assert called(monkeypatch, capsys, "train", toy_config, "--out", out)[0] == 0
    shutil.copytree(toy_files, moved)
    arguments = ["train", toy_config, "--out", out, "--resume"]
    for name in ("train", "valid", "test"):
        files = [str(moved / f"{name}.{side}") for side in ("en", "de")]
        arguments += ["--set", f"data.{name}={json.dumps(files)}"]
    assert called(monkeypatch, capsys, *arguments, "--steps", 60)[0] == 0
    assert read_metrics(out)[-1]["step"] == 60
    gone = toy_files.rename(toy_files.with_name("gone"))
    try:  # the run knows them by absolute paths
        again = ["train", toy_config, "--out", out, "--resume", "--from", moved, "--steps", 70]
        assert called(monkeypatch, capsys, *again)[0] == 0
        assert called(monkeypatch, capsys, "evaluate", out, "--from", moved)[0] == 0
    finally:
        gone.rename(toy_files)
    lines = (moved / "valid.en").read_text(encoding="utf-8").splitlines()
    (moved / "valid.en").write_text("\n".join(lines[::-1]) + "\n", encoding="utf-8")
    code, _, err = called(monkeypatch, capsys, *arguments, "--steps", 80)
    assert code == 2
    assert "was trained on another text, its files have changed since" in err.splitlines()[-1]


def test_a_run_killed_before_it_saved_anything_starts_anew(
    monkeypatch, capsys, tmp_path, toy_config
):
    out = tmp_path / "run"
    out.mkdir()
    (out / "run.json").write_text("{}")
    (out / "metrics.jsonl").write_text("what it had seen\n")
    assert called(monkeypatch, capsys, "train", toy_config, "--out", out)[0] == 0
    assert read_metrics(out)[-1]["step"] == load_run(out).experiment.training.steps


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="Windows cannot limit the size of files")
@pytest.mark.parametrize(
    ("arguments", "kilobytes"), [(["data", "prepare"], 8), (["train", "--out", "RUN"], 100)]
)
def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(
    tmp_path, toy_config, arguments, kilobytes
):
    """The system itself refuses to write more than this into a file."""
    words = [str(tmp_path / "run") if word == "RUN" else word for word in arguments]
    command = [sys.executable, "-m", "transformer_lib", *words, str(toy_config)]
    result = subprocess.run(
        ["bash", "-c", f'ulimit -f {kilobytes}; exec "$@"', "bash", *command],
        capture_output=True,
        text=True,
        env={**os.environ, "TRANSFORMER_LIB_CACHE": str(tmp_path / "cache")},
    )
    assert result.returncode == 2, result.stderr
    *rest, last = result.stderr.splitlines()
    assert re.match(r"error: cannot write .*File too large", last)
    assert not [line for line in rest if "error" in line.lower()]
    left = [path.name for path in tmp_path.rglob("*") if path.name.startswith(".")]
    assert left == []
    assert not list((tmp_path / "cache").glob("prepared/*")) or "train" in arguments


def test_a_full_disk_keeps_the_model_that_was_there(monkeypatch, capsys, tmp_path, toy_config):
    from transformer_lib.training import checkpoint

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    out = tmp_path / "run"
    train(load_config(str(toy_config)), out)
    before = {p.name: p.read_bytes() for p in out.glob("*.safetensors")}
    monkeypatch.setattr(checkpoint, "save_file", full)
    code, _, err = called(monkeypatch, capsys, "average", out, "--last", 2)
    assert code == 2
    assert "No space left on device; nothing was changed, free some space" in err
    assert {p.name: p.read_bytes() for p in out.glob("*.safetensors")} == before
    assert not list(out.glob(".*"))


def test_a_folder_that_may_not_be_written(monkeypatch, capsys, tmp_path, toy_config):
    (tmp_path / "file").write_text("in the way")
    code, _, err = called(
        monkeypatch, capsys, "train", toy_config, "--out", tmp_path / "file" / "run"
    )
    assert (code, err.count("\n")) == (2, 3)
    assert re.match("error: cannot write .*is no folder", err.splitlines()[-1])


def test_named_configs_are_valid():
    assert {"cpu_tatoeba_transformer", "cpu_tatoeba_rnn"} <= set(named_configs())
    for name in named_configs():
        assert load_config(name).name == name


def test_a_corpus_is_prepared_as_training_takes_it():
    for name in set(named_configs()) - {"cpu_multi30k_transformer_20min"}:  # a second vocabulary
        data = load_config(name).data
        assert load_data_config(data.corpus) == data
    mirror = load_config("wmt14_base", ["data.corpus=wmt14_mirror"]).data
    assert load_data_config("wmt14_mirror") == mirror


def test_a_config_file_that_is_not_toml(tmp_path):
    (tmp_path / "x.toml").write_text("[model\n")
    with pytest.raises(UserError, match="is not valid TOML"):
        load_config(str(tmp_path / "x.toml"))


def test_the_version_is_printed(monkeypatch, capsys):
    import transformer_lib

    assert called(monkeypatch, capsys, "--version")[:2] == (
        0, f"transformer-lib {transformer_lib.__version__}\n"
    )  # fmt: skip


def test_help_names_the_configurations(monkeypatch, capsys):
    _, out, _ = called(monkeypatch, capsys, "train", "--help")
    assert all(name in out.replace("\n  ", " ") for name in named_configs())


def test_the_help_of_every_command_is_laid_out(monkeypatch, capsys):
    _, out, _ = called(monkeypatch, capsys, "--help")
    commands = re.findall(r"^  ([a-z-]+)  ", out.partition("Commands:")[2], re.MULTILINE)
    assert len(commands) == 23
    for command in commands:
        code, out, _ = called(monkeypatch, capsys, command, "--help")
        assert code == 0
        for mark in ("\\b", "\b"):  # of a help text that was not formatted
            assert mark not in out, command
        for example in re.findall(r"^ *transformer-lib .*$", out, re.MULTILINE):
            assert example.startswith("    transformer-lib "), (command, example)


def test_output_into_a_file_is_utf8_whatever_the_code_page():
    """As on Windows, where a pipe takes an old code page."""
    for command in (["misconceptions", "M17"], ["verify-submission", "nothing.ipynb"]):
        result = subprocess.run(
            [sys.executable, "-m", "transformer_lib", *command],
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": "cp1252"},
        )
        assert b"Traceback" not in result.stderr
        assert result.stdout.decode("utf-8")


def test_a_report_is_not_overwritten(monkeypatch, capsys, run_folder, tmp_path):
    out = tmp_path / "report.html"
    arguments = ["compare", run_folder, run_folder, "--out", out]
    assert called(monkeypatch, capsys, *arguments)[0] == 0
    page = out.read_text()
    code, _, err = called(monkeypatch, capsys, *arguments)
    assert (code, "is there already" in err) == (2, True)
    assert out.read_text() == page
    assert called(monkeypatch, capsys, *arguments, "--force")[0] == 0
    arguments = ["compare", run_folder, run_folder, "--out", tmp_path, "--force"]
    assert "is a folder; give --out a file in it" in called(monkeypatch, capsys, *arguments)[2]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train", "toy.toml", "--set", "d_model=8"], "no key d_model; did you mean model.d_model"),
        (["train", "toy.toml", "--set", "batch_tokens=8"],
         "did you mean training.batch_tokens or decoding.batch_tokens?"),
        (["train", "toy"], "did you mean toy.toml?"),
        (["evaluate", "RUN", "--from", "nowhere"], "there is no folder nowhere"),
        (["grade", "1_embeddings", "--jobs", "0"], "greater than or equal to 1"),
        (["misconceptions", "M17", "--exercise", "attention"], "not both"),
        (["verify-submission", "."], "is a folder; give the notebook in it"),
    ],
)  # fmt: skip
def test_slips_are_named(monkeypatch, capsys, toy_config, run_folder, arguments, told):
    monkeypatch.chdir(toy_config.parent)
    arguments = [run_folder if word == "RUN" else word for word in arguments]
    code, out, error = called(monkeypatch, capsys, *arguments)
    assert code == 2
    assert told in out + error


def test_a_run_finds_its_text_from_any_folder(monkeypatch, capsys, toy_files, tmp_path):
    from conftest import TOY_CONFIG

    (tmp_path / "toy.toml").write_text(TOY_CONFIG, encoding="utf-8")  # with relative paths
    monkeypatch.chdir(toy_files)
    out = tmp_path / "run"
    assert (
        called(monkeypatch, capsys, "train", tmp_path / "toy.toml", "--steps", 4, "--out", out)[0]
        == 0
    )
    monkeypatch.chdir(tmp_path)
    assert called(monkeypatch, capsys, "evaluate", out, "--beam", 1)[0] == 0


def test_lines_before_a_bad_one_are_translated(run_folder):
    result = run_command("translate", run_folder, stdin=b"the cat\nna\xefve\nthe mouse\n")
    assert result.returncode == 2
    assert result.stdout.count(b"\n") == 1


def test_one_length_of_training_replaces_the_other(toy_config):
    for override in ("training.minutes=1.0", "training.minutes = 1.0"):
        training = load_config(str(toy_config), [override]).training
        assert (training.steps, training.minutes) == (None, 1.0)


def test_an_experiment_without_a_model_fits_a_laptop(tmp_path):
    from transformer_lib.experiment.run import build_model
    from transformer_lib.model import num_parameters

    (tmp_path / "mine.toml").write_text("[training]\nminutes = 60.0\n")
    experiment = load_config(str(tmp_path / "mine.toml"))
    assert num_parameters(build_model(experiment, 8000)) < 5e6


def test_a_setting_of_the_model_changes_the_one_that_there_would_have_been(tmp_path):
    (tmp_path / "mine.toml").write_text("[training]\nminutes = 60.0\n")
    for overrides in (["model.d_model=256"], ["model.d_model=256", "model.kind=transformer"]):
        model = load_config(str(tmp_path / "mine.toml"), overrides).model
        assert model.d_model == 256
        assert (model.num_encoder_layers == 2) == (len(overrides) == 1)  # a kind is a new model


def test_sentences_are_not_longer_than_a_table_of_positions(toy_config):
    learned = ["model.kind=transformer", "model.positions=learned"]
    assert load_config(str(toy_config), [*learned, "data.max_len=512"]).data.max_len == 512
    with pytest.raises(UserError, match="max_len=513 is too long"):
        load_config(str(toy_config), [*learned, "data.max_len=513"])


def test_the_page_of_settings_is_current():
    from pathlib import Path

    root = Path(__file__).parent.parent
    program = "import configuration; print(configuration.as_markdown(), end='')"
    made = subprocess.run(
        [sys.executable, "-c", program], cwd=root / "scripts", capture_output=True,
        encoding="utf-8", check=True, env={**os.environ, "PYTHONUTF8": "1"},
    ).stdout  # fmt: skip
    assert made == (root / "docs" / "configuration.md").read_text(encoding="utf-8"), (
        "run `make docs`"
    )


def test_a_run_with_a_name_of_its_own_goes_on(monkeypatch, capsys, toy_config, tmp_path):
    """Named in its file, or by --set: the file's own name does not matter."""
    monkeypatch.chdir(tmp_path)
    toy_config.write_text('name = "mine"\n' + toy_config.read_text())
    train = ("train", toy_config, "--steps")
    assert called(monkeypatch, capsys, *train, 4)[0] == 0
    assert called(monkeypatch, capsys, *train, 8, "--resume")[0] == 0
    assert read_metrics(tmp_path / "runs" / "mine")[-1]["step"] == 8
    named = ("--set", "name=other")
    assert called(monkeypatch, capsys, *train, 4, *named)[0] == 0
    assert called(monkeypatch, capsys, *train, 8, *named, "--resume")[0] == 0
    out = tmp_path / "runs" / "other"
    code, _, err = called(monkeypatch, capsys, *train, 9, "--resume", "--out", out)
    assert (code, "holds a run of other, not of mine" in err) == (2, True)


def test_progress_is_found_where_the_notebooks_are(monkeypatch, capsys, tmp_path):
    """A terminal in JupyterLab starts in the folder above them."""
    (tmp_path / "chapters").mkdir()
    record = {"softmax": {"tries": 1, "passed": True}}
    (tmp_path / "chapters" / "my_progress.json").write_text(json.dumps(record))
    monkeypatch.chdir(tmp_path)
    assert "1 of " in called(monkeypatch, capsys, "progress")[1]


def test_a_closed_input_or_error_output_is_no_traceback(monkeypatch, capsys, run_folder):
    monkeypatch.setattr(sys, "stdin", None)
    code, _, err = called(monkeypatch, capsys, "translate", run_folder)
    assert (code, err) == (2, "error: there is no standard input to translate\n")
    monkeypatch.setattr(sys, "stderr", None)
    assert not progress_is_shown()
