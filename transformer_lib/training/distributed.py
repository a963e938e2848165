"""Data parallelism: several processes train one model, each on its share of every batch.

``torchrun`` starts the processes and says in environment variables who is who. Each process builds
the same model from the same seed, takes its share of the sentences, and adds its gradients to those
of the others: so all make the same step, the one that a single process would make.
"""

import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor, nn

from transformer_lib.errors import UserError

# How long processes wait for the one that prepares the data, and for another one in training: a
# validation is shorter, and a GPU that hangs should not cost the night.
PATIENCE, SILENCE = timedelta(hours=12), timedelta(hours=1)
T = TypeVar("T")
BUCKET = 2**26  # bytes of gradients that are summed at a time


@dataclass(frozen=True)
class Workers:
    """The processes that train together, as one of them sees them."""

    rank: int = 0
    count: int = 1
    local_rank: int = 0
    job: dist.Store | None = None  # torchrun's, which outlives the processes that it starts again

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes and reports."""
        return self.rank == 0

    def share_of(self, rows: list[T], number: int = 0, accumulate: int = 1) -> list[T]:
        """This process's rows of micro-batch ``number``, of ``accumulate`` in a step.

        Micro-batches stay as whole as possible, since a GPU is faster with one large batch than
        with several small ones. The part may be empty: of another's micro-batch, or of a tiny one.
        """
        groups = math.gcd(self.count, accumulate)
        together = self.count // groups  # processes that share a micro-batch
        if number % groups != self.rank // together:
            return []
        return rows[self.rank % together :: together]

    def all_reduce(self, *numbers: float) -> list[float]:
        """Each number summed over the processes, by their CPUs: no GPU is waited for."""
        if self.count == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(total)
        return total.tolist()

    def all_reduce_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Add up each parameter's gradient over the processes, in place."""
        if self.count == 1:
            return
        for bucket in _buckets(parameters):
            flat = torch.cat([gradient.flatten() for gradient in bucket])
            dist.all_reduce(flat)
            for gradient, part in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
                gradient.copy_(part.view_as(gradient))

    def has_noted(self, what: str) -> bool:
        """Whether this job has noted that, at any start; all processes get the same answer."""
        here = self.is_first and self.job is not None and self.job.check([what])
        return self.all_reduce(float(here))[0] > 0

    def note(self, what: str) -> None:
        """Remember something for as long as the job lasts, its restarts included."""
        if self.is_first and self.job is not None:
            self.job.set(what, "")

    def check_alike(self, what: str, value: str) -> None:
        """Make sure that every process has the same.

        Raises:
            UserError: on all of them, if one has something else.
        """
        if self.count == 1:
            return
        own = torch.frombuffer(bytearray(sha256(value.encode()).digest()), dtype=torch.uint8)
        found = [torch.empty_like(own) for _ in range(self.count)]
        dist.all_gather(found, own)
        if any(not torch.equal(own, other) for other in found):
            raise UserError(
                f"{what} is not the same for all processes (process {self.rank} has {value}); "
                "all machines need the same text, and the same run folder"
            )

    def broadcast(self, parameters: Iterable[nn.Parameter]) -> None:
        """Give all the first one's weights: another processor may have rounded them otherwise."""
        if self.count > 1:
            for parameter in parameters:
                dist.broadcast(parameter.detach(), src=0)

    @contextmanager
    def main_process_first(self) -> Iterator[None]:
        """On each machine one process does the work first; the others then find it done."""
        if self.count == 1:
            yield
            return
        patient = dist.new_group(backend="gloo", timeout=PATIENCE)
        if self.local_rank > 0:
            dist.barrier(patient)
        yield
        if self.local_rank == 0:
            dist.barrier(patient)
        dist.destroy_process_group(patient)


@contextmanager
def joined_workers(device: torch.device) -> Iterator[Workers]:
    """The processes that ``torchrun`` started to train on ``device``, or this one alone.

    After an error, a process that has a GPU must end at once, by ``os._exit``: Python would first
    wait for the other processes, which wait for this one.

    Raises:
        UserError: they were started in another way, or have no GPU each.
    """
    job = _store_of_the_job()
    if os.environ.get("WORLD_SIZE", "1") == "1":
        yield Workers(job=job)
        return
    rank, count, local_rank = (_told(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    workers = Workers(rank, count, local_rank, job)
    if device.type == "cuda":
        _check_own_gpu(device, local_rank)
    # PyTorch imports this module in training. Its functions take the group of that moment as their
    # default, which would keep the group alive until exit, where its threads may abort the process.
    import torch.distributed.nn

    if device.type == "cuda":
        torch.cuda.set_device(workers.local_rank)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
        store=_fresh_store(job, workers) if job else None,
        rank=workers.rank,
        world_size=workers.count,
        timeout=SILENCE,
    )
    try:
        yield workers
    except BaseException:
        if device.type != "cuda":  # NCCL would wait for the others, and these wait for this process
            dist.destroy_process_group()
        raise
    dist.destroy_process_group()


def _told(name: str) -> int:
    """A number that ``torchrun`` gives each process."""
    try:
        return int(os.environ[name])
    except (KeyError, ValueError) as error:
        raise UserError(
            f"WORLD_SIZE={os.environ['WORLD_SIZE']} says that several processes train together, "
            f"but {name} is no number; start them with torchrun, or take WORLD_SIZE out of the "
            "environment"
        ) from error


def _check_own_gpu(device: torch.device, local_rank: int) -> None:
    if device.index is not None:
        raise UserError(
            f"training.device={device} is one GPU, and of processes that train together each takes "
            "its own; give training.device=cuda"
        )
    gpus = torch.cuda.device_count()
    if local_rank >= gpus:
        raise UserError(
            f"there are more processes than GPUs ({gpus}) on this machine; give torchrun "
            f"--nproc-per-node={gpus}"
        )


def _store_of_the_job() -> dist.Store | None:
    """``torchrun``'s own; without it the first process has a store, a new one at each start."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.TCPStore(*address, is_master=False, timeout=PATIENCE)


def _fresh_store(store: dist.Store, workers: Workers) -> dist.Store:
    """Where the processes of this start, and of no earlier one, find each other.

    ``torchrun`` keeps one store over restarts, and in it the addresses of dead processes: a process
    that reads one of them waits forever (seen in one of nine restarts under load, with PyTorch
    2.13). So the first process names a new part of the store. It answers each process under a word
    that only that process can know, until all have said that they heard.
    """
    if workers.is_first:
        part = uuid4().hex
        missing = set(range(1, workers.count))
        while missing:
            for rank in tuple(missing):
                if store.check([f"word of {rank}"]):
                    store.set(f"answer to {store.get(f'word of {rank}').decode()}", part)
                if store.check([f"{part} heard by {rank}"]):
                    missing.remove(rank)
            time.sleep(0.02)
    else:
        word = uuid4().hex
        store.set(f"word of {workers.rank}", word)
        part = store.get(f"answer to {word}").decode()
        store.set(f"{part} heard by {workers.rank}", "")
    return dist.PrefixStore(part, store)


def _buckets(parameters: Iterable[nn.Parameter]) -> Iterator[list[Tensor]]:
    """Gradients in groups of one size, few enough calls and little memory; none is missing."""
    bucket: list[Tensor] = []
    size = 0
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        bucket.append(parameter.grad)
        size += parameter.grad.nbytes
        if size >= BUCKET:
            yield bucket
            bucket, size = [], 0
    if bucket:
        yield bucket
