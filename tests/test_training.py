"""Loss, schedule, checkpoints, and the promise that a resumed run is the uninterrupted one."""

import copy
import errno
import json
import math
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch.utils._python_dispatch import TorchDispatchMode

import transformer_lib.experiment.run as run_module
from transformer_lib.device import choose_dtype, is_out_of_memory
from transformer_lib.errors import UserError
from transformer_lib.evaluation.evaluate import evaluate_run
from transformer_lib.experiment.config import load_config
from transformer_lib.experiment.run import (
    average_checkpoints,
    build_model,
    load_run,
    train,
    training_progress,
)
from transformer_lib.model import TransformerConfig, build_transformer
from transformer_lib.training import compilation
from transformer_lib.training.checkpoint import checkpoints_in, step_of
from transformer_lib.training.cost import flops_by_parameters
from transformer_lib.training.distributed import Workers
from transformer_lib.training.loss import label_smoothed_cross_entropy, output_loss
from transformer_lib.training.metrics import Interval, MetricsLog, read_metrics
from transformer_lib.training.schedule import budget_rate, noam_rate
from transformer_lib.training.signals import StopRequest
from transformer_lib.training.trainer import Trainer
from transformer_lib.vocabulary import PAD


@given(
    batch=st.integers(1, 4), length=st.integers(1, 9), vocab=st.integers(5, 40),
    smoothing=st.sampled_from([0.0, 0.1, 0.5]), seed=st.integers(0, 99),
)  # fmt: skip
def test_loss_and_gradients_are_torchs(batch, length, vocab, smoothing, seed):
    torch.manual_seed(seed)
    states = torch.randn(batch, length, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(vocab, 6, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, vocab, (batch, length))
    logits = (states @ weight.T).flatten(0, 1)
    options = {"ignore_index": 0, "reduction": "sum"}
    expected = F.cross_entropy(logits, labels.flatten(), label_smoothing=smoothing, **options)
    gradients = torch.autograd.grad(expected, [states, weight])

    readable = label_smoothed_cross_entropy(logits, labels.flatten(), smoothing)
    torch.testing.assert_close(readable, expected)
    loss = output_loss(states, weight, labels, smoothing)
    # log-softmax is computed in float32 whatever the model's type is.
    torch.testing.assert_close(loss.smoothed.double(), expected, rtol=1e-5, atol=1e-5)
    nll = F.cross_entropy(logits, labels.flatten(), **options)
    torch.testing.assert_close(loss.nll.double(), nll, rtol=1e-5, atol=1e-5)
    assert loss.tokens == (labels != 0).sum()
    for actual, reference in zip(
        torch.autograd.grad(3 * loss.smoothed, [states, weight]), gradients, strict=True
    ):
        torch.testing.assert_close(actual, 3 * reference, rtol=1e-4, atol=1e-5)


def test_a_batch_of_padding_alone_has_no_loss_and_no_gradient():
    states = torch.randn(2, 3, 6, requires_grad=True)
    weight = torch.randn(9, 6, requires_grad=True)
    loss = output_loss(states, weight, torch.zeros(2, 3, dtype=torch.long), 0.1)
    assert loss.smoothed == loss.nll == loss.tokens == 0
    loss.smoothed.backward()
    assert not torch.cat([states.grad.flatten(), weight.grad.flatten()]).any()


def test_loss_in_many_chunks(monkeypatch):
    torch.manual_seed(0)
    states = torch.randn(7, 11, 6, requires_grad=True)
    weight = torch.randn(50, 6, requires_grad=True)
    labels = torch.randint(0, 50, (7, 11))
    whole = output_loss(states, weight, labels, 0.1).smoothed
    expected = torch.autograd.grad(whole, [states, weight])
    monkeypatch.setattr("transformer_lib.training.loss.LOGITS_AT_ONCE", 1000)
    monkeypatch.setattr("transformer_lib.training.loss.elements_per_chunk", lambda device: 150)
    chunked = output_loss(states, weight, labels, 0.1).smoothed
    torch.testing.assert_close(chunked, whole)
    for actual, reference in zip(
        torch.autograd.grad(chunked, [states, weight]), expected, strict=True
    ):
        torch.testing.assert_close(actual, reference)


def test_loss_under_autocast_is_close():
    states, weight = torch.randn(4, 8, 16), torch.randn(30, 16)
    labels = torch.randint(1, 30, (4, 8))
    expected = output_loss(states, weight, labels, 0.1).smoothed
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = output_loss(states, weight, labels, 0.1).smoothed
    torch.testing.assert_close(actual, expected, rtol=0.02, atol=0)


def test_noam_rate_is_equation_3():
    assert noam_rate(1, 512, 4000) == pytest.approx(512**-0.5 * 4000**-1.5)
    assert noam_rate(4000, 512, 4000) == pytest.approx(512**-0.5 * 4000**-0.5)
    assert noam_rate(16000, 512, 4000) == pytest.approx(noam_rate(4000, 512, 4000) / 2)
    with pytest.raises(ValueError, match="counted from 1"):
        noam_rate(0, 512, 4000)


def test_budget_rate_rises_to_its_peak_and_falls_to_zero():
    assert budget_rate(0.05, 1.0, 0.1) == pytest.approx(0.5)
    assert budget_rate(0.1, 1.0, 0.1) == pytest.approx(1.0)
    assert budget_rate(0.55, 1.0, 0.1) == pytest.approx(0.5)
    assert budget_rate(1.0, 1.0, 0.1) == pytest.approx(0.0)
    assert budget_rate(1.2, 1.0, 0.1) == pytest.approx(0.0)
    assert budget_rate(0.0, 1.0, 0.0) == pytest.approx(1.0)


def test_flops_are_six_per_weight_and_token():
    config = TransformerConfig(
        d_model=8, d_ff=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1
    )
    vocab = 10
    attention, feed_forward, norm = 4 * (64 + 8), 2 * 128 + 24, 16
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    for tied in ("all", "none"):
        model = build_transformer(
            TransformerConfig(**{**vars(config), "tied_embeddings": tied}), vocab
        )
        expected = 6 * (encoder * 100 + (decoder + vocab * 8) * 50)
        assert flops_by_parameters(model, 100, 50) == expected


def small_trainer(kind, toy_config, folder):
    """One of the library's experiments on the toy text, with two tiny batches a step."""
    from transformer_lib.data import prepare

    data = prepare(load_config(str(toy_config)).data)
    experiment = load_config(kind, ["training.accumulate=2"])
    training = replace(experiment.training, batch_tokens=64)
    model = build_model(experiment, len(data.tokenizer))
    return Trainer(model, data.train, training, folder)


def losses(folder):
    return [(r["kind"], r["step"], r["loss"]) for r in read_metrics(folder)]


@pytest.mark.parametrize("kind", ["transformer", "rnn"])
def test_training_learns_and_leaves_a_run(toy_config, tmp_path, kind):
    overrides = ["training.steps=120"]
    if kind == "rnn":
        text = toy_config.read_text().replace('kind = "transformer"', 'kind = "rnn"')
        for line in ("d_ff = 64\n", "num_heads = 4\n", 'norm = "pre"\n'):
            text = text.replace(line, "")
        toy_config.write_text(text)
    assert train(load_config(str(toy_config), overrides), tmp_path / "run")
    validations = [r for r in read_metrics(tmp_path / "run") if r["kind"] == "validation"]
    assert len(validations) == 4
    assert validations[-1]["loss"] < 0.1 * math.log(80)
    run = load_run(tmp_path / "run")
    assert evaluate_run(run).bleu.score > 80
    assert run.translate(["", "the cat"])[0] == ""


@pytest.mark.parametrize("schedule", ["budget", "noam"])
def test_training_is_a_loop_that_needs_nothing_but_pytorch(toy_config, tmp_path, schedule):
    """Batches of two parts, PyTorch's loss, clipping and Adam, and the rate as it is described."""
    from transformer_lib.data import prepare

    warm_up = {"budget": "warmup_share=0.25", "noam": "warmup_steps=20"}[schedule]
    settings = ["steps=8", "accumulate=2", "clip_norm=0.3", f"schedule={schedule}", warm_up]
    experiment = load_config(str(toy_config), [f"training.{setting}" for setting in settings])
    data, config = prepare(experiment.data), experiment.training
    torch.manual_seed(3)
    model = build_model(experiment, len(data.tokenizer)).eval()
    reference = copy.deepcopy(model)
    trainer = Trainer(model, data.train, config, tmp_path)
    work = [part.batch for part in islice(trainer._micro_batches(), 2 * 8)]
    modes = []
    model.encoder.register_forward_hook(lambda encoder, *rest: modes.append(encoder.training))
    trainer.train()
    assert modes == [True] * 16, "or nothing would be dropped"

    src_tokens, tgt_tokens = (
        sum(int((side != PAD).sum()) for side in sides)
        for sides in ([batch.src for batch in work], [batch.labels for batch in work])
    )
    progress = trainer.progress
    assert (progress.src_tokens, progress.tgt_tokens) == (src_tokens, tgt_tokens)
    assert progress.flops == pytest.approx(flops_by_parameters(model, src_tokens, tgt_tokens))

    optimizer = torch.optim.Adam(reference.parameters(), betas=(0.9, 0.98), eps=1e-9)
    for step in range(1, 9):
        share = step / 9  # of the budget; a quarter of it is warm-up
        falling = 0.5 + 0.5 * math.cos(math.pi * (share - 0.25) / 0.75)
        budget = 2e-2 * (share / 0.25 if share < 0.25 else falling)
        noam = 32**-0.5 * min(step**-0.5, step * 20**-1.5)
        optimizer.param_groups[0]["lr"] = {"budget": budget, "noam": noam}[schedule]
        parts = work[2 * step - 2 : 2 * step]
        for batch in parts:
            logits = reference(batch.src, batch.tgt_input).transpose(1, 2)
            options = {"ignore_index": PAD, "label_smoothing": 0.1, "reduction": "sum"}
            loss = F.cross_entropy(logits, batch.labels, **options)
            (loss / sum((batch.labels != PAD).sum() for batch in parts)).backward()
        torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.3)
        optimizer.step()
        optimizer.zero_grad()
    # A gradient of zero, such as that of a key's bias, is all rounding, and changes no output.
    batch = work[0]
    with torch.no_grad():
        expected = reference(batch.src, batch.tgt_input)
        torch.testing.assert_close(model(batch.src, batch.tgt_input), expected, rtol=0, atol=2e-3)


def test_tensorboard_shows_what_the_metrics_say(toy_config, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(load_config(str(toy_config), ["training.tensorboard=true"]), tmp_path / "run")
    assert not [t for t in threading.enumerate() if type(t).__name__ == "_AsyncWriterThread"]
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    shown = [(event.step, event.value) for event in events.Scalars("validation/loss")]
    written = [r for r in read_metrics(tmp_path / "run") if r["kind"] == "validation"]
    assert shown == [(r["step"], pytest.approx(r["loss"], rel=1e-6)) for r in written]


def test_tensorboard_forgets_what_a_resumed_run_does_again(toy_config, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run, settings = tmp_path / "run", ["training.tensorboard=true", "training.keep_checkpoints=3"]
    train(load_config(str(toy_config), [*settings, "training.steps=20"]), run)
    checkpoints_in(run)[-1].unlink()  # as if it had been killed before its last checkpoint
    train(load_config(str(toy_config), settings), run, resume=True)
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    steps = [r["step"] for r in read_metrics(run) if r["kind"] == "validation"]
    assert [event.step for event in events.Scalars("validation/loss")] == steps
    assert len(set(steps)) == len(steps)


def test_two_runs_from_one_seed_are_the_same(toy_config, tmp_path):
    for name in ("a", "b"):
        train(load_config(str(toy_config)), tmp_path / name)
    assert losses(tmp_path / "a") == losses(tmp_path / "b")


def test_accumulated_batches_equal_the_large_batch(toy_config, tmp_path):
    """Half the batch, twice: the same sentences give the same step (no dropout, plain sum)."""
    from transformer_lib.data import Batch, prepare
    from transformer_lib.training.metrics import Interval

    experiment = load_config(str(toy_config), ["model.dropout=0.0"])
    data = prepare(experiment.data)
    weights = []
    for split in (False, True):
        trainer = Trainer(
            build_model(experiment, len(data.tokenizer)), data.train, experiment.training, tmp_path
        )
        work = next(trainer._micro_batches())
        batch = work.batch
        parts = [work]
        if split:
            half = len(batch.src) // 2
            parts = []
            for rows in (slice(0, half), slice(half, None)):
                part = Batch(batch.src[rows], batch.tgt_input[rows], batch.labels[rows])
                counts = {"src_tokens": part.num_src_tokens, "tgt_tokens": part.num_tgt_tokens}
                parts.append(replace(work, batch=part, **counts))
        trainer._step(parts, 1e-3, Interval())
        weights.append([p.detach().clone() for p in trainer.model.parameters()])
    for one, two in zip(*weights, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=2e-4)


@pytest.mark.long
@pytest.mark.parametrize("attempt", range(4))
def test_killed_and_resumed_equals_uninterrupted(toy_config, tmp_path, attempt):
    """SIGKILL at a random moment, as often as it takes, then the end: every number is the same."""
    arguments = [sys.executable, "-m", "transformer_lib", "train", str(toy_config)]
    arguments += ["--set", "training.steps=60", "--set", "training.validations=12"]
    if attempt == 3:
        arguments += ["--set", "training.muon_rate=0.02"]
    settings = [word for word in arguments if word.startswith("training.")]
    assert train(load_config(str(toy_config), settings), tmp_path / "whole")

    killed = tmp_path / "killed"
    dice = random.Random(attempt)
    process = subprocess.Popen(
        [*arguments, "--out", killed], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not checkpoints_in(killed) and process.poll() is None:
        time.sleep(0.01)
    time.sleep(dice.random() * 0.5)
    process.send_signal(signal.SIGKILL)
    process.wait()
    subprocess.run([*arguments, "--out", killed, "--resume"], check=True, capture_output=True)

    assert losses(killed) == losses(tmp_path / "whole")
    expected = load_file(tmp_path / "whole" / "model.safetensors")
    actual = load_file(killed / "model.safetensors")
    assert expected.keys() == actual.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, actual[name]), name


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT to send to another process")
def test_ctrl_c_saves(toy_config, tmp_path):
    text = toy_config.read_text(encoding="utf-8")
    toy_config.write_text(re.sub(r"^steps = .*\n", "", text, flags=re.M), encoding="utf-8")
    arguments = [sys.executable, "-m", "transformer_lib", "train", str(toy_config)]
    arguments += ["--steps", "100000", "--set", "training.validations=5000"]
    process = subprocess.Popen(
        [*arguments, "--out", tmp_path / "run"], stderr=subprocess.PIPE, text=True
    )
    while not checkpoints_in(tmp_path / "run") and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted and saved; continue with: transformer-lib train" in message
    assert checkpoints_in(tmp_path / "run")[-1].stat().st_size > 0
    # The advice works as it is printed; only the end comes earlier here.
    advice = shlex.split(message.partition("continue with: ")[2])
    assert advice[0] == "transformer-lib"
    again = [sys.executable, "-m", "transformer_lib", *advice[1:], "--steps"]
    step = step_of(checkpoints_in(tmp_path / "run")[-1])
    refused = subprocess.run([*again, str(step - 1)], capture_output=True, text=True)
    assert f"has {step:,} steps already, more than {step - 1:,}" in refused.stderr
    again.append(str(step + 1))
    done = subprocess.run(again, capture_output=True, text=True)
    assert (done.returncode, "trained: " in done.stderr) == (0, True), done.stderr
    assert load_run(tmp_path / "run").translate(["the cat"])
    assert json.loads((tmp_path / "run" / "run.json").read_text())["format"] == 2


def test_a_second_sigterm_is_the_same_request():
    """A cluster sends it to all processes of a job, and torchrun passes it on to its own."""
    stop = StopRequest()
    with stop.listening():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert stop
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_training_that_was_stopped_goes_on_in_the_same_process(toy_config, tmp_path):
    from transformer_lib.data import prepare

    experiment = load_config(str(toy_config))
    data = prepare(experiment.data)
    model = build_model(experiment, len(data.tokenizer))

    def stop_once(trainer, _):
        if trainer.progress.step <= 10:
            os.kill(os.getpid(), signal.SIGINT)

    trainer = Trainer(model, data.train, experiment.training, tmp_path, on_validation=stop_once)
    assert not trainer.train()
    assert trainer.train()
    assert trainer.progress.step == experiment.training.steps


def test_a_training_that_was_stopped_records_the_same_losses(toy_config, tmp_path, monkeypatch):
    """Also where it stops between two validations."""
    experiment = load_config(str(toy_config))
    train(experiment, tmp_path / "whole")
    step = Trainer._step

    def stop(self, *arguments):
        step(self, *arguments)
        if self.progress.step in (7, 16):
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Trainer, "_step", stop)
    stopped = tmp_path / "stopped"
    assert not train(experiment, stopped)
    assert not train(experiment, stopped, resume=True)
    assert train(experiment, stopped, resume=True)
    assert losses(stopped) == losses(tmp_path / "whole")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
def test_others_may_read_weights_if_they_may_read_files(toy_config, tmp_path):
    train(load_config(str(toy_config)), tmp_path / "run")
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "run").iterdir()}
    assert modes == {(tmp_path / "run" / "run.json").stat().st_mode & 0o777}


def test_a_longer_training_that_was_stopped_is_what_is_opened(toy_config, tmp_path):
    """Not the model of the shorter one, whose file is still there."""
    run = tmp_path / "run"
    train(load_config(str(toy_config)), run)
    assert training_progress(load_run(run))["step"] == 40

    def stop(trainer, record):
        os.kill(os.getpid(), signal.SIGINT)

    longer = load_config(str(toy_config), ["training.steps=200"])
    assert not train(longer, run, resume=True, on_validation=stop)
    last = checkpoints_in(run)[-1]
    opened = load_run(run)
    assert step_of(last) == 50
    metrics = run / "metrics.jsonl"  # as if it had been stopped between two validations
    lines = [line for line in metrics.read_text().splitlines() if '"step": 50' not in line]
    metrics.write_text("".join(f"{line}\n" for line in lines))
    assert training_progress(opened)["step"] == 50
    stored = load_file(last)
    for name, parameter in opened.model.named_parameters():
        assert torch.equal(parameter, stored[f"model.{name}"]), name


def test_what_weights_cost_is_not_what_lost_ones_cost(toy_config, tmp_path):
    run = tmp_path / "run"
    train(load_config(str(toy_config)), run)
    (run / "model.safetensors").unlink()
    checkpoints_in(run)[-1].unlink()
    (*_, last) = checkpoints_in(run)
    assert step_of(last) < 40
    assert training_progress(load_run(run))["step"] == step_of(last)


@pytest.mark.parametrize(
    ("schedule", "remedy"),
    [("budget", "lower training.learning_rate"), ("noam", "raise training.warmup_steps")],
)
def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_checkpoint(
    toy_config, tmp_path, monkeypatch, schedule, remedy
):
    from transformer_lib.training import trainer as module

    real = module.output_loss
    calls = 0

    def poisoned(states, *rest):
        nonlocal calls
        calls += 1
        return real(
            states * float("nan") if calls > 25 and torch.is_grad_enabled() else states, *rest
        )

    monkeypatch.setattr(module, "output_loss", poisoned)
    experiment = load_config(str(toy_config), [f"training.schedule={schedule}"])
    told = (
        rf"not finite in step \d+ \(batch \d+ of epoch \d+\).* from before it: {remedy} or look at"
    )
    with pytest.raises(UserError, match=told):
        train(experiment, tmp_path / "run")
    weights = load_file(checkpoints_in(tmp_path / "run")[-1])
    assert all(tensor.isfinite().all() for tensor in weights.values() if tensor.is_floating_point())
    monkeypatch.setattr(module, "output_loss", real)
    assert train(experiment, tmp_path / "run", resume=True)


@pytest.mark.parametrize("kind", ["cpu_tatoeba_transformer", "cpu_tatoeba_fast"])
def test_from_a_gradient_that_is_not_finite_nothing_is_learned(toy_config, tmp_path, kind):
    """Not in the step itself: a GPU has made it when its gradient is looked at."""
    trainer = small_trainer(kind, toy_config, tmp_path)
    batches = trainer._micro_batches()
    trainer._launch([next(batches)], 1e-3)
    model, batch = trainer.model, next(batches)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    poisoned = model.encoder.register_forward_hook(lambda encoder, args, states: states / 0)
    trainer._launch([batch], 1e-3)
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())
    poisoned.remove()
    trainer._launch([batch], 1e-3)
    assert not any(torch.equal(before[name], p) for name, p in model.named_parameters())


def test_each_process_and_each_step_drops_other_numbers(toy_config, tmp_path):
    seeds = set()
    for rank in range(3):
        trainer = small_trainer("cpu_tatoeba_transformer", toy_config, tmp_path)
        trainer.workers = Workers(rank, 3, rank)
        for step in range(3):
            trainer.progress.step = step
            trainer._seed_step()
            seeds.add(torch.initial_seed())
    assert len(seeds) == 9


def test_processes_compare_what_they_begin_with(toy_config, tmp_path, monkeypatch):
    """What these calls do, test_distributed.py sees with two processes."""
    begun = []
    monkeypatch.setattr(Workers, "check_alike", lambda self, what, value: begun.append(what))
    monkeypatch.setattr(Workers, "broadcast", lambda self, weights: begun.append(len([*weights])))
    train(load_config(str(toy_config), ["training.steps=1"]), tmp_path / "run")
    weights = [*load_run(tmp_path / "run").model.parameters()]
    assert begun == ["the text", "the checkpoint", len(weights)]


def test_too_little_memory_for_a_batch_says_what_to_set(toy_config, tmp_path, monkeypatch):
    """With what PyTorch says on a CPU, of a real allocation that is larger than any memory."""
    config = load_config(str(toy_config))
    train(config, tmp_path / "begun")
    monkeypatch.setattr(Trainer, "_states", lambda *rest: torch.empty(2**60, dtype=torch.uint8))
    half = config.training.batch_tokens // 2
    told = f"training.batch_tokens={half} and training.accumulate=2 takes half, and learns the same"
    with pytest.raises(UserError, match=f"{told}$"):
        train(config, tmp_path / "run")
    longer = load_config(str(toy_config), [f"training.steps={config.training.steps + 1}"])
    with pytest.raises(UserError, match=f"{told}; with more memory free, --resume goes on from"):
        train(longer, tmp_path / "begun", resume=True)


@pytest.mark.parametrize(
    "words",
    [
        "CUDA error: out of memory\nCUDA kernel errors might be reported later",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "MPS backend out of memory (MPS allocated: 17.9 GB)",
    ],
)
def test_too_little_memory_is_told_from_other_errors(words):
    assert is_out_of_memory(RuntimeError(words))
    assert not is_out_of_memory(RuntimeError("CUDA error: an illegal memory access"))
    assert not is_out_of_memory(ValueError(words))


@pytest.mark.skipif(sys.platform != "linux", reason="the device that is always full is Linux's")
def test_a_full_disk_says_how_to_go_on(tmp_path):
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"metrics.jsonl: No space left.*with --resume"):
        MetricsLog(tmp_path).add({"kind": "train", "step": 1}, {})


def test_a_damaged_checkpoint_falls_back_to_the_one_before(toy_config, tmp_path, capsys):
    experiment = load_config(str(toy_config))
    train(experiment, tmp_path / "run")
    expected = losses(tmp_path / "run")
    newest = checkpoints_in(tmp_path / "run")[-1]
    damaged = newest.read_bytes()[:1000]
    newest.write_bytes(damaged)
    assert train(experiment, tmp_path / "run", resume=True)
    assert losses(tmp_path / "run") == expected
    assert newest.with_suffix(".damaged").read_bytes() == damaged
    assert "trying the one before it" in capsys.readouterr().out


def test_numbers_that_are_not_those_that_were_written_are_noticed(toy_config, tmp_path, capsys):
    """A power cut may leave zeros where the last blocks of a file should be."""
    experiment = load_config(str(toy_config))
    train(experiment, tmp_path / "run")
    expected = losses(tmp_path / "run")
    newest = checkpoints_in(tmp_path / "run")[-1]
    content = newest.read_bytes()
    newest.write_bytes(content[:-5000] + bytes(5000))
    assert train(experiment, tmp_path / "run", resume=True)
    assert losses(tmp_path / "run") == expected
    assert "is not what was written; trying the one before it" in capsys.readouterr().out


@pytest.mark.parametrize("progress", ["[]", "{}", "x", '{"epoch": 3}', '{"step": 9, "age": 3}'])
def test_a_checkpoint_that_says_nothing_of_its_run_is_one_line(toy_config, tmp_path, progress):
    experiment = load_config(str(toy_config))
    train(experiment, tmp_path / "run")
    for path in checkpoints_in(tmp_path / "run"):
        save_file(load_file(path), path, metadata={"progress": progress})
    with pytest.raises(UserError, match=r"checkpoint|how far|says age, which"):
        train(replace(experiment, training=replace(experiment.training, steps=60)),
              tmp_path / "run", resume=True)  # fmt: skip


def test_a_stop_leaves_no_trace_in_the_mean_of_the_last_checkpoints(
    toy_config, tmp_path, monkeypatch
):
    """The checkpoint that a stop writes gives way to the next one that is due."""
    lengths = ["training.steps=40", "training.validations=4", "training.average_last=3"]
    experiment = load_config(str(toy_config), lengths)
    train(experiment, tmp_path / "whole")

    launch = Trainer._launch

    def stopped_once(trainer, *arguments):
        if trainer.progress.step == 34:
            signal.raise_signal(signal.SIGINT)
        return launch(trainer, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_launch", stopped_once)
        assert not train(experiment, tmp_path / "stopped")
    assert 30 < step_of(checkpoints_in(tmp_path / "stopped")[-1]) < 40
    assert train(experiment, tmp_path / "stopped", resume=True)
    for folder in ("whole", "stopped"):
        assert [step_of(x) for x in checkpoints_in(tmp_path / folder)] == [20, 30, 40]
        newest = [load_file(x) for x in checkpoints_in(tmp_path / folder)[-2:]]  # and resumable
        assert all(any(name.startswith("optimizer.") for name in state) for state in newest)
    one, other = (load_file(tmp_path / x / "model.safetensors") for x in ("whole", "stopped"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_stop_in_a_validation_leaves_the_checkpoint_that_is_due(toy_config, tmp_path):
    experiment = load_config(str(toy_config), ["training.steps=40", "training.validations=4"])

    def stop_once(trainer, record):
        if record["step"] == 20:
            signal.raise_signal(signal.SIGINT)

    assert not train(experiment, tmp_path / "run", on_validation=stop_once)
    assert train(experiment, tmp_path / "run", resume=True)
    assert [step_of(x) for x in checkpoints_in(tmp_path / "run")] == [20, 30, 40]


def test_one_checkpoint_that_cannot_be_written_ends_nothing(toy_config, tmp_path, monkeypatch):
    from transformer_lib.training import checkpoint

    write, calls = checkpoint.save_file, []

    def full_for_a_moment(*arguments, **options):
        calls.append(1)
        if len(calls) == 1:
            raise OSError(28, "No space left on device")
        return write(*arguments, **options)

    monkeypatch.setattr(checkpoint, "save_file", full_for_a_moment)
    assert train(load_config(str(toy_config)), tmp_path / "run")
    assert len(checkpoints_in(tmp_path / "run")) >= 2


def test_what_a_kill_left_half_written_is_removed(toy_config, tmp_path):
    left = tmp_path / "run" / ".step-0000007.safetensors.0123abcd"
    left.parent.mkdir()
    left.write_bytes(b"half")
    train(load_config(str(toy_config)), tmp_path / "run")
    assert not left.exists()


def test_only_the_last_two_checkpoints_can_be_gone_on_from(toy_config, tmp_path):
    """A checkpoint for averaging needs no more than the weights, a third of the disk."""
    settings = ["training.keep_checkpoints=4", "training.validations=5"]
    train(load_config(str(toy_config), settings), tmp_path / "run")
    with_optimizer = [
        any(name.startswith("optimizer.") for name in load_file(path))
        for path in checkpoints_in(tmp_path / "run")
    ]
    assert with_optimizer == [False, False, True, True]


def test_average_is_the_mean_of_the_last_checkpoints(toy_config, tmp_path):
    train(load_config(str(toy_config)), tmp_path / "run")
    paths = checkpoints_in(tmp_path / "run")[-2:]
    average_checkpoints(tmp_path / "run", 2)
    one, two = (load_file(path) for path in paths)
    for name, tensor in load_file(tmp_path / "run" / "model.safetensors").items():
        torch.testing.assert_close(tensor, (one[name] + two[name]) / 2)
    with pytest.raises(UserError, match="has 3 checkpoints, so the last 9 cannot be averaged"):
        average_checkpoints(tmp_path / "run", 9)


def test_to_write_checkpoints_takes_one_thread(tmp_path):
    """With a second team of threads, OpenMP lets those of training sleep between operations."""
    program = """
import sys
from pathlib import Path

import psutil
import torch

from transformer_lib.training.checkpoint import CheckpointWriter

torch.set_num_threads(2)
model = torch.nn.Linear(512, 512)
optimizer = torch.optim.Adam(model.parameters())
threads = psutil.Process().num_threads
model(torch.randn(512, 512)).sum().backward()
optimizer.step()
before = threads()
with CheckpointWriter(Path(sys.argv[1]), keep=3) as writer:
    for step in range(5):
        writer.save(model, optimizer, {"step": step})
        writer.wait()
        print(threads() - before)
"""
    arguments = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.stdout.split() == ["1"] * 5, done.stderr[-2000:]


@pytest.mark.long
def test_compiled_once_for_all_lengths():
    """In a process of its own, since the checks of shapes in these tests cannot be compiled."""
    program = """
import torch
from torch._dynamo.utils import counters

from transformer_lib.data.batching import Batch
from transformer_lib.model import TransformerConfig, build_transformer
from transformer_lib.training import loss as module
from transformer_lib.training.compilation import compiled_layers, compiling


def graphs_and_breaks():
    found = counters["stats"]["unique_graphs"], counters["graph_break"].total()
    torch._dynamo.reset()
    counters.clear()
    return found


real_compile = torch.compile


def by_aot_eager(function, options=None, **rest):  # the options are Inductor's
    return real_compile(function, backend="aot_eager", **rest)


torch.compile = by_aot_eager
sizes = dict(d_model=16, d_ff=32, num_heads=2, num_encoder_layers=3, num_decoder_layers=2)


def states(model, src, tgt):
    return model.decode(tgt, model.encode(src))


# Two models one after the other, as in a benchmark; the first batch has equal lengths.
for norm in ("post", "pre"):
    model = build_transformer(TransformerConfig(**sizes, dropout=0.0, norm=norm), 30)
    for rows, src_len, tgt_len in ((8, 8, 8), (16, 9, 8), (24, 6, 6), (6, 7, 6), (2, 64, 80)):
        src, tgt = torch.randint(4, 30, (rows, src_len)), torch.randint(4, 30, (rows, tgt_len))
        with compiled_layers(model):
            out = states(model, src, tgt)
            out.sum().backward()
        torch.testing.assert_close(out, states(model, src, tgt))
    print(*graphs_and_breaks())

# The loss is compiled once for the first number of rows and once for all others.
module.elements_per_chunk = lambda device: 1000
for rows, length in ((8, 11), (5, 9), (3, 40)):
    out, weight = torch.randn(rows, length, 6), torch.randn(50, 6)
    labels = torch.randint(0, 50, (rows, length))
    results = []
    for compiled in (False, True):
        leaves = [out.clone().requires_grad_(), weight.clone().requires_grad_()]
        with compiling():
            loss = module.output_loss(*leaves, labels, 0.1, compiled)
        results.append((loss, torch.autograd.grad(loss.smoothed, leaves)))
    torch.testing.assert_close(results[1], results[0])
print(*graphs_and_breaks())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    # One graph for all encoder layers and one for all decoder layers, whatever the lengths.
    assert done.stdout == "2 0\n2 0\n2 0\n", done.stderr[-2000:]


def test_a_machine_without_a_c_compiler_trains_all_the_same(monkeypatch, capsys):
    """As Triton finds none; the loss is then not compiled."""

    def compile_nothing(function):
        raise RuntimeError("backend='inductor' raised:\nFailed to find C compiler.")

    cpu = torch.device("cpu")
    monkeypatch.setattr(torch, "compile", lambda function: function)
    assert compilation._compiles(cpu)
    monkeypatch.setattr(torch, "compile", compile_nothing)
    assert not compilation._compiles(cpu)
    assert "training is slower: Failed to find C compiler." in capsys.readouterr().out


def test_the_compiler_knows_the_options():
    """They are looked at before anything is compiled."""
    with compilation.compiled_layers(build_transformer(TransformerConfig(), 8)):
        pass


@pytest.mark.long
def test_a_model_that_is_compiled_too_often_is_an_error():
    program = """
import torch

from transformer_lib.errors import UserError
from transformer_lib.model import TransformerConfig, build_transformer
from transformer_lib.training.compilation import compiled_layers, forget_compiled

real_compile = torch.compile
torch.compile = lambda f, options=None, **rest: real_compile(f, backend="eager", **rest)


def compile_models(forgets):
    for width in range(8, 30, 2):
        forgets and forget_compiled()
        sizes = dict(d_model=width, d_ff=8, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
        model = build_transformer(TransformerConfig(**sizes), 30)
        with compiled_layers(model):
            model(torch.ones(4, 5).long(), torch.ones(4, 6).long())


compile_models(True)
print("ten models")
try:
    compile_models(False)
except UserError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    first, second = done.stdout.splitlines()
    assert first == "ten models", done.stderr[-2000:]
    assert second.startswith("the model was compiled anew too often; train it with training.comp")


ASKS_THE_DEVICE = {"nonzero", "_local_scalar_dense", "masked_select", "equal", "unique", "_unique2"}


class Operations(TorchDispatchMode):
    """Counts what PyTorch is asked to compute."""

    def __init__(self):
        super().__init__()
        self.count = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count[function.overloadpacket.__name__] += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", ["cpu_tatoeba_transformer", "cpu_tatoeba_rnn", "cpu_tatoeba_fast"])
def test_no_step_waits_for_the_device(toy_config, tmp_path, kind):
    """Whatever depends on a result, such as how many tokens are real, would make a GPU idle."""
    trainer = small_trainer(kind, toy_config, tmp_path)
    batches = trainer._micro_batches()
    work = [next(batches), next(batches)]
    with Operations() as operations:
        trainer._launch(work, 1e-3)
    if trainer.config.weight_decay:  # one for what shrinks, one for what does not
        assert operations.count["_fused_adamw_"] == 2
    else:
        assert operations.count["_fused_adam_"] == 1
    assert not ASKS_THE_DEVICE & operations.count.keys()


def test_the_speed_that_is_recorded_is_that_of_training_alone(toy_config, tmp_path, monkeypatch):
    """By a clock that only data, steps and saving move: saving is no part of an interval."""
    from transformer_lib.data import prepare
    from transformer_lib.training import metrics, trainer

    experiment = load_config(str(toy_config), ["training.steps=30", "training.validations=3"])
    data = prepare(experiment.data)
    clock = 0.0

    def advancing(function, seconds):
        def called(*arguments):
            nonlocal clock
            clock += seconds
            return function(*arguments)

        return called

    monkeypatch.setattr(metrics.time, "perf_counter", lambda: clock)
    monkeypatch.setattr(trainer.Trainer, "_step", advancing(trainer.Trainer._step, 1.0))
    monkeypatch.setattr(trainer.Trainer, "_save", advancing(trainer.Trainer._save, 1000.0))
    training = trainer.Trainer(
        build_model(experiment, len(data.tokenizer)),
        data.train,
        experiment.training,
        tmp_path,
        validate=advancing(dict, 100.0),
    )
    training.train()
    records = [record for record in training.records if record["kind"] == "train"]
    tokens = np.diff([0, *(record["tokens"] for record in records)])
    speeds = [record["tokens_per_second"] for record in records]
    np.testing.assert_allclose(speeds, tokens / 10.0)


def test_the_share_of_waiting_is_that_of_the_time_since_the_last_record(monkeypatch):
    from transformer_lib.training import metrics

    clock = 100.0
    monkeypatch.setattr(metrics.time, "perf_counter", lambda: clock)
    interval = Interval()
    for seconds in (1.0, 2.0):
        with interval.waiting():
            clock += seconds
        clock += 4 * seconds
    assert interval.waiting_share == pytest.approx(0.2)


@pytest.mark.parametrize("steps", [1, 7, 100, 101])
@pytest.mark.parametrize("validations", [1, 3, 100])
def test_validations_are_counted_in_whole_numbers(toy_config, tmp_path, steps, validations):
    """100 of 100 steps: all of them, where rounded shares of 1 would leave some out."""
    from transformer_lib.data import prepare

    lengths = [f"training.steps={steps}", f"training.validations={validations}"]
    experiment = load_config(str(toy_config), lengths)
    data = prepare(experiment.data)
    trainer = Trainer(build_model(experiment, 80), data.train, experiment.training, tmp_path)
    due = []
    for step in range(steps + 1):
        trainer.progress.step = step
        due.append(trainer._validations_due())
    assert due[-1] == validations
    gaps = {n: due.count(n) for n in range(validations)}
    assert max(gaps.values()) - min(gaps.values()) <= 1


def test_the_schedule_of_the_paper_needs_nothing_but_its_name(toy_config, tmp_path):
    assert train(load_config(str(toy_config), ["training.schedule=noam"]), tmp_path / "run")
    rates = [r["learning_rate"] for r in read_metrics(tmp_path / "run") if r["kind"] == "train"]
    assert rates[0] == pytest.approx(noam_rate(10, 32, 4000))


def test_another_device_is_the_same_run(toy_config, tmp_path):
    """The device is not what an experiment is; a run opens where its own device is missing."""
    folder = tmp_path / "run"
    train(load_config(str(toy_config)), folder)
    path = folder / "experiment.json"
    path.write_text(path.read_text().replace('"device": "auto"', '"device": "cuda:77"'))
    assert load_run(folder).translate(["the cat"])
    assert load_run(str(folder), "cpu").translate(["the cat"])
    longer = load_config(str(toy_config), ["training.device=cpu", "training.steps=60"])
    assert train(longer, folder, resume=True)
    assert read_metrics(folder)[-1]["step"] == 60
    with pytest.raises(UserError, match="cuda:77 is not on this machine"):
        load_run(folder, "cuda:77")


def test_a_device_that_is_missing_leaves_no_folder(toy_config, tmp_path):
    with pytest.raises(UserError, match="is not on this machine"):
        train(load_config(str(toy_config), ["training.device=cuda:77"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_stopped_before_its_first_validation_can_be_evaluated(toy_config, tmp_path):
    folder = tmp_path / "run"
    train(load_config(str(toy_config)), folder)
    for path in (folder / "metrics.jsonl", folder / "model.safetensors"):
        path.unlink()
    cost = evaluate_run(load_run(folder)).cost
    assert cost.tokens > 0
    assert cost.flops_by_parameters > 0


def test_all_devices_count(toy_config, tmp_path):
    folder = tmp_path / "run"
    train(load_config(str(toy_config)), folder)
    one = evaluate_run(load_run(folder)).cost.flops_by_time
    path = folder / "run.json"
    path.write_text(path.read_text().replace('"devices": 1', '"devices": 8'))
    assert evaluate_run(load_run(folder)).cost.flops_by_time == pytest.approx(8 * one)


def test_a_run_that_goes_on_elsewhere_costs_what_it_took_there(toy_config, tmp_path, monkeypatch):
    def part(steps, device, rate):
        monkeypatch.setattr(run_module, "describe_device", lambda _: device)
        monkeypatch.setattr(run_module, "measured_flops_per_second", lambda *_: rate)
        experiment = load_config(str(toy_config), [f"training.steps={steps}"])
        assert train(experiment, tmp_path, resume=steps > 20)
        return load_run(tmp_path), read_metrics(tmp_path)[-1]["seconds"]

    part(20, "a laptop", 1.0)
    _, moved = part(30, "a laptop", 1.0)
    assert not load_run(tmp_path).info.later
    run, seconds = part(40, "a GPU", 1000.0)
    (later,) = run.info.later
    assert later.device == "a GPU"
    assert moved <= later.since < seconds
    cost = evaluate_run(run).cost.flops_by_time
    assert cost == pytest.approx(later.since + 1000.0 * (seconds - later.since))


def test_opening_a_run_leaves_the_random_numbers_alone(toy_config, tmp_path):
    train(load_config(str(toy_config)), tmp_path / "run")
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    load_run(tmp_path / "run")
    build_model(load_config(str(toy_config)), 80)
    assert torch.equal(torch.rand(3), expected)


def test_learned_positions_are_looked_up_and_not_multiplied():
    sizes = {"d_model": 8, "d_ff": 16, "num_heads": 2, "num_encoder_layers": 1}
    flops = {
        positions: flops_by_parameters(
            build_transformer(
                TransformerConfig(**sizes, num_decoder_layers=1, positions=positions), 10
            ),
            100,
            50,
        )
        for positions in ("learned", "none")
    }
    assert flops["learned"] == flops["none"]


def test_the_gradient_of_the_weights_is_summed_in_float32(monkeypatch):
    """In many chunks it is as good as in one; summed in bfloat16 it was twice as far off."""
    torch.manual_seed(0)
    states = torch.randn(512, 32)[None].requires_grad_()
    weight = torch.randn(200, 32).requires_grad_()
    labels = torch.randint(4, 200, (1, 512))

    def error():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = output_loss(states, weight, labels, 0.1).smoothed
        (gradient,) = torch.autograd.grad(loss / 512, weight)
        assert gradient.dtype == torch.float32
        return (gradient - exact).norm() / exact.norm()

    (exact,) = torch.autograd.grad(output_loss(states, weight, labels, 0.1).smoothed / 512, weight)
    in_one = error()
    monkeypatch.setattr("transformer_lib.training.loss.LOGITS_AT_ONCE", 200 * 16)
    monkeypatch.setattr("transformer_lib.training.loss.elements_per_chunk", lambda _: 200 * 16)
    assert error() < 1.1 * in_one + 1e-4


def test_without_a_terminal_progress_comes_in_lines(toy_config, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("transformer_lib.training.reporter.OFTEN", 0.0)
    said = []
    train(load_config(str(toy_config)), tmp_path / "run", announce=said.append)
    assert re.match(
        r"toy: a Transformer of 0.0 M parameters on CPU, .* the text files, for 40 steps; into ",
        said[0],
    )
    assert re.fullmatch(r"files: kept \d+ pairs; dropped .*", said[1])
    lines = capsys.readouterr().err.splitlines()
    # After the first step and after each of the four validations, nothing is known yet.
    assert [int(line.split()[1]) for line in lines] == [n for n in range(1, 41) if n % 10 != 1]
    for line in lines:
        assert re.fullmatch(
            r"step +\d+ +\d\.\d min  loss \d\.\d{3}  [1-9][\d,]* tokens/s  about \d+ s left", line
        )


def test_a_longer_budget_continues_a_finished_run(toy_config, tmp_path):
    train(load_config(str(toy_config), ["training.steps=20"]), tmp_path / "run")
    assert train(load_config(str(toy_config)), tmp_path / "run", resume=True)
    steps = [r["step"] for r in read_metrics(tmp_path / "run") if r["kind"] == "validation"]
    assert steps == [5, 10, 15, 20, 30, 40]
    assert load_run(tmp_path / "run").experiment.training.steps == 40


def test_of_two_trainings_into_one_folder_the_second_one_is_turned_away(toy_config, tmp_path):
    """FileLock counts within a process, so the second one is another process; its cache differs."""
    arguments = [sys.executable, "-m", "transformer_lib", "train", str(toy_config)]
    second = []

    def start_another(trainer, record):
        if not second:
            also = [*arguments, "--out", tmp_path / "run"]
            env = {**os.environ, "TRANSFORMER_LIB_CACHE": str(tmp_path / "cache")}
            second.append(subprocess.run(also, capture_output=True, text=True, env=env))

    assert train(load_config(str(toy_config)), tmp_path / "run", on_validation=start_another)
    assert second[0].returncode == 2
    assert second[0].stderr.startswith(f"error: another process is writing into {tmp_path / 'run'}")
    assert len(second[0].stderr.splitlines()) == 1
    assert not (tmp_path / "run" / ".lock").exists()


def test_a_training_that_cannot_begin_leaves_no_folder(toy_config, tmp_path):
    config = load_config(str(toy_config), ['data.train=["gone.en", "gone.de"]'])
    with pytest.raises(UserError, match="gone"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_locked_does_not_keep_anybody_from_training(
    toy_config, tmp_path, monkeypatch
):
    train(load_config(str(toy_config), ["training.steps=20"]), tmp_path / "run")

    def cannot(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(FileLock, "acquire", cannot)
    assert train(load_config(str(toy_config)), tmp_path / "run", resume=True)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other locks")
@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS])
def test_a_file_system_without_locks_does_not_keep_anybody_from_training(
    toy_config, tmp_path, monkeypatch, code
):
    monkeypatch.setenv("TRANSFORMER_LIB_CACHE", str(tmp_path / "cache"))

    def cannot(*args, **kwargs):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", cannot)
    assert train(load_config(str(toy_config), ["training.steps=20"]), tmp_path / "run")
    (tmp_path / "run" / ".lock").write_text("12345\nelsewhere\n")  # of a process killed there
    assert train(load_config(str(toy_config), ["training.steps=30"]), tmp_path / "run", resume=True)


def test_a_run_that_cannot_go_on_is_left_as_it_was(toy_config, tmp_path):
    run = tmp_path / "run"
    train(load_config(str(toy_config), ["training.steps=20"]), run)
    for checkpoint in checkpoints_in(run):
        checkpoint.write_bytes(b"damaged")
    before = (run / "experiment.json").read_text()
    with pytest.raises(UserError):
        train(load_config(str(toy_config)), run, resume=True)
    assert (run / "experiment.json").read_text() == before


class Clock:
    """Half a second passes each time that somebody looks."""

    now = 0.0

    def perf_counter(self):
        self.now += 0.5
        return self.now

    def __getattr__(self, name):
        return getattr(time, name)


@pytest.mark.parametrize("second", [29.0, 59.0])
def test_a_stop_beside_a_validation_loses_none(toy_config, tmp_path, monkeypatch, second):
    """The step that is under way when the stop comes may end behind the time of a validation."""
    experiment = load_config(str(toy_config), ["training.validations=2"])
    training = replace(experiment.training, steps=None, minutes=1.0)
    experiment = replace(experiment, training=training)
    clock = Clock()
    monkeypatch.setattr("transformer_lib.training.trainer.time", clock)
    step, stopped = Trainer._step, []

    def stop(self, *arguments):
        step(self, *arguments)
        if not stopped and self.progress.seconds >= second:
            stopped.append(self.progress.step)
            self._should_stop = True
            clock.now += 1.0

    monkeypatch.setattr(Trainer, "_step", stop)
    assert not train(experiment, tmp_path)
    clock.now = 0.0
    assert train(experiment, tmp_path, resume=True)
    validations = [r for r in read_metrics(tmp_path) if r["kind"] == "validation"]
    assert len(validations) == 2
    assert step_of(checkpoints_in(tmp_path)[-1]) == validations[-1]["step"]


def test_a_validation_that_outlasts_the_minutes_is_the_last_one(toy_config, tmp_path, monkeypatch):
    """Nothing was trained after it: there is no loss to record, and no other model to judge."""
    experiment = load_config(str(toy_config), ["training.validations=4"])
    training = replace(experiment.training, steps=None, minutes=1.0)
    experiment = replace(experiment, training=training)
    clock = Clock()
    monkeypatch.setattr("transformer_lib.training.trainer.time", clock)

    def look(trainer, record):
        clock.now += 20.0

    assert train(experiment, tmp_path, on_validation=look)
    records = read_metrics(tmp_path)
    validations = [r["step"] for r in records if r["kind"] == "validation"]
    assert len(validations) == len(set(validations)) < 4
    assert all(r["loss"] > 0 for r in records if r["kind"] == "train")
    assert step_of(checkpoints_in(tmp_path)[-1]) == validations[-1]


def test_without_a_compiler_compiled_training_says_what_to_set(monkeypatch):
    import torch._inductor.config as inductor
    from torch._inductor.utils import fresh_cache

    monkeypatch.setattr(inductor.cpp, "cxx", ("no-such-compiler",))
    compilation.forget_compiled()
    compiled = torch.compile(lambda x: x.sin() + 1)
    message = r"does not work here; train with training\.compile=false"
    with fresh_cache(), pytest.raises(UserError, match=message), compilation.compiling():
        compiled(torch.ones(8))


@pytest.mark.parametrize(
    ("capability", "dtype"), [((7, 5), torch.float32), ((9, 0), torch.bfloat16)]
)
def test_the_precision_is_that_of_the_gpu_in_use(monkeypatch, capability, dtype):
    """Not of the first one in the machine."""
    own = torch.device("cuda:1")
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(
        torch.cuda, "get_device_capability", lambda device: capability if device == own else (8, 0)
    )
    assert choose_dtype(own, "auto") == dtype


def test_the_loss_says_that_it_has_no_second_derivative():
    states = torch.randn(4, 3, requires_grad=True)
    weight = torch.randn(5, 3, requires_grad=True)
    loss = output_loss(states[None], weight, torch.tensor([[4, 2, 3, 4]]), 0.1).smoothed
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(loss, states, create_graph=True)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no terminals that could be closed")
def test_a_closed_terminal_asks_to_stop_but_not_under_nohup():
    request = StopRequest()
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with request.listening():
            signal.raise_signal(signal.SIGHUP)
            assert request
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with request.listening():
            signal.raise_signal(signal.SIGHUP)
            assert not request
    finally:
        signal.signal(signal.SIGHUP, before)
