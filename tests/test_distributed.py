"""Several processes train one model: the same as one process would, and safe when one dies."""

import math
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext

import psutil
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from transformer_lib.errors import UserError
from transformer_lib.experiment.config import load_config
from transformer_lib.experiment.run import train
from transformer_lib.training.checkpoint import checkpoints_in
from transformer_lib.training.distributed import Workers, joined_workers
from transformer_lib.training.metrics import read_metrics

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="torchrun with gloo on Linux")


THREADS_LEFT = """
import atexit
from pathlib import Path
from transformer_lib.cli import main

names = lambda: [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
atexit.register(lambda: print("threads left:", *names()))
main()
"""


BEGINNING = """
import os, torch
from transformer_lib.errors import UserError
from transformer_lib.training.distributed import joined_workers

rank = int(os.environ["RANK"])
with joined_workers(torch.device("cpu")) as workers:
    workers.check_alike("the text", "tatoeba")
    layer = torch.nn.Linear(3, 2)
    torch.nn.init.constant_(layer.weight, rank)
    workers.broadcast(layer.parameters())
    assert (layer.weight == 0).all() and layer.weight.requires_grad
    try:
        workers.check_alike("the checkpoint", f"that of step {rank}")
    except UserError as error:
        print(f"{error}\\n", end="")
"""


ON_A_FULL_DISK = """
from transformer_lib.cli import main
from transformer_lib.errors import UserError
from transformer_lib.training.metrics import MetricsLog

def add(*arguments):
    raise UserError("no room for the metrics")

MetricsLog.add = add
main()
"""


def command(processes, config, out, *more, restarts=0, program=("-m", "transformer_lib")):
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    start += [f"--nproc-per-node={processes}", f"--max-restarts={restarts}"]
    start += ["--monitor-interval=0.1", *program, "train"]
    return [*start, str(config), "--out", str(out), *more]


def run(*arguments, **options):
    done = subprocess.run(command(*arguments, **options), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def losses(folder):
    return [(r["kind"], r["step"], r["loss"]) for r in read_metrics(folder)]


@pytest.fixture(scope="module")
def environment():
    os.environ["OMP_NUM_THREADS"] = "1"


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.long)])
def test_processes_together_equal_one(toy_config, tmp_path, environment, processes):
    """Batches of 40 tokens: some have fewer sentences than there are processes."""
    few = ["--set", "training.batch_tokens=40", "--set", "training.accumulate=2"]
    # Where a gradient is zero but for rounding, Adam with a tiny eps would follow the rounding.
    few += ["--set", "training.steps=12", "--set", "training.eps=1e-3"]
    assert train(load_config(str(toy_config), few[1::2]), tmp_path / "one")
    (tmp_path / "program.py").write_text(THREADS_LEFT)
    program = [str(tmp_path / "program.py")]
    done = run(processes, toy_config, tmp_path / "many", *few, program=program)
    assert done.stderr.count("trained: ") == 1
    assert done.stdout.count("threads left:") == processes
    assert "gloo" not in done.stdout  # at exit such threads may abort the process
    for one, many in zip(losses(tmp_path / "one"), losses(tmp_path / "many"), strict=True):
        assert one == (*many[:2], pytest.approx(many[2], rel=1e-4))
    expected = load_file(tmp_path / "one" / "model.safetensors")
    actual = load_file(tmp_path / "many" / "model.safetensors")
    assert expected.keys() == actual.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(actual[name], tensor, rtol=0, atol=1e-5, msg=name)


@pytest.mark.long
def test_a_killed_process_costs_only_what_came_after_the_last_checkpoint(
    toy_config, tmp_path, environment
):
    more = ["--set", "model.dropout=0.1", "--set", "training.steps=150"]
    more += ["--set", "training.validations=15"]
    run(2, toy_config, tmp_path / "whole", *more)
    killed = tmp_path / "killed"
    process = subprocess.Popen(
        command(2, toy_config, killed, *more, restarts=2),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not checkpoints_in(killed) and process.poll() is None:
        time.sleep(0.01)
    workers = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if "transformer_lib" in child.cmdline()
    ]
    assert len(workers) == 2
    workers[1].send_signal(signal.SIGKILL)
    _, messages = process.communicate(timeout=120)
    assert process.returncode == 0, messages[-3000:]
    assert losses(killed) == losses(tmp_path / "whole")
    expected = load_file(tmp_path / "whole" / "model.safetensors")
    for name, tensor in load_file(killed / "model.safetensors").items():
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.parametrize("processes", [1, 2])
def test_starting_again_makes_no_run_of_another_job_ones_own(
    toy_config, tmp_path, environment, processes
):
    """A refused start is one more death for torchrun, and the next start has to refuse as well."""
    settings = ["training.steps=4", "seed=2", "training.validations=1"]
    assert train(load_config(str(toy_config), settings), tmp_path / "run")
    for checkpoint in checkpoints_in(tmp_path / "run"):
        checkpoint.unlink()
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    more = ["--set", "training.steps=4"]
    done = subprocess.run(
        command(processes, toy_config, tmp_path / "run", *more, restarts=1),
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert done.stderr.count("already holds a run") == 2
    after = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert {name: after.get(name) for name in before} == before


def test_processes_begin_with_the_same(tmp_path, environment):
    """Machines may have other text, or see other checkpoints of what should be one run."""
    program = tmp_path / "program.py"
    program.write_text(BEGINNING)
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run([*start, str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    for rank, line in enumerate(sorted(done.stdout.splitlines())):
        assert line.startswith("the checkpoint is not the same for all processes")
        assert f"(process {rank} has that of step {rank})" in line
    assert rank == 1


def test_shares_are_all_of_a_batch_and_disjoint():
    sentences = list(range(10))
    shares = [Workers(rank, 4, rank).share_of(sentences) for rank in range(4)]
    assert sorted(n for share in shares for n in share) == list(range(10))
    assert [len(share) for share in shares] == [3, 3, 2, 2]
    assert len(Workers(3, 4, 3).share_of(sentences[:2])) == 0


@pytest.mark.parametrize("processes", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("accumulate", [1, 2, 4, 6])
def test_micro_batches_are_dealt_out_as_whole_as_possible(processes, accumulate):
    sentences = list(range(24))
    workers = [Workers(rank, processes, rank) for rank in range(processes)]
    for number in range(accumulate):
        shares = [one.share_of(sentences, number, accumulate) for one in workers]
        assert sorted(n for share in shares for n in share) == sentences
        sharing = [share for share in shares if len(share)]
        assert len(sharing) == processes // math.gcd(processes, accumulate)
    # Everybody has the same number of micro-batches to compute.
    work = [
        sum(len(one.share_of(sentences, n, accumulate)) > 0 for n in range(accumulate))
        for one in workers
    ]
    assert set(work) == {accumulate // math.gcd(processes, accumulate)}


@pytest.mark.parametrize("of_torchrun", [{}, {"RANK": "1", "LOCAL_RANK": "one"}])
def test_processes_that_torchrun_did_not_start_are_told_to_use_it(monkeypatch, of_torchrun):
    """Other launchers set WORLD_SIZE, too."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in of_torchrun.items():
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(UserError, match="RANK is no number; start them with torchrun"),
        joined_workers(torch.device("cpu")),
    ):
        raise AssertionError("they began")


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cuda", r"more processes than GPUs \(1\) .*--nproc-per-node=1"),
        ("cuda:0", "training.device=cuda:0 is one GPU.*give training.device=cuda"),
    ],
)
def test_processes_that_have_no_gpu_of_their_own_do_not_begin(monkeypatch, device, message):
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UserError, match=message), joined_workers(torch.device(device)):
        raise AssertionError("they began")


@pytest.mark.parametrize("error", [None, UserError("the disk is full")])
def test_after_an_error_nothing_waits_for_the_other_gpus(monkeypatch, error):
    """To destroy a group of NCCL is to wait for processes that wait for this one."""
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
    called = []
    monkeypatch.setattr(dist, "init_process_group", lambda *_, **__: called.append("init"))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: called.append("destroy"))
    with (
        pytest.raises(UserError) if error else nullcontext(),
        joined_workers(torch.device("cuda")) as workers,
    ):
        assert workers.rank == 1
        if error:
            raise error
    assert called == ["init"] if error else ["init", "destroy"]


def test_where_one_cannot_write_all_end_with_its_message(toy_config, tmp_path, environment):
    """Only the first process writes, and the others wait for it."""
    (tmp_path / "program.py").write_text(ON_A_FULL_DISK)
    program = [str(tmp_path / "program.py")]
    done = subprocess.run(
        command(2, toy_config, tmp_path / "run", "--set", "training.steps=4", program=program),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    assert "error: no room for the metrics" in done.stderr
