"""Training: one loop for the Transformer and the RNN, resumable to the same numbers."""

import json
import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn
from tqdm.auto import tqdm

from transformer_lib.data.batching import Batch, make_batch, plan_batches, shift_right
from transformer_lib.data.prepare import PreparedData
from transformer_lib.decoding.search import pad_sequences
from transformer_lib.decoding.translate import DecodingConfig, translate
from transformer_lib.device import Precision, choose_device, choose_dtype
from transformer_lib.errors import UserError
from transformer_lib.evaluation.bleu import bleu
from transformer_lib.files import write_text
from transformer_lib.model.seq2seq import Seq2Seq
from transformer_lib.progress import progress_is_shown
from transformer_lib.training.checkpoint import (
    CheckpointWriter,
    average,
    checkpoints_in,
    load_checkpoint,
    save_model,
)
from transformer_lib.training.cost import flops_by_parameters
from transformer_lib.training.distributed import Workers
from transformer_lib.training.loss import output_loss
from transformer_lib.training.schedule import ScheduleName, budget_rate, noam_rate
from transformer_lib.vocabulary import EOS


@dataclass(frozen=True)
class TrainingConfig:
    """How long and how to train. Give ``steps`` or ``minutes``.

    A step uses ``accumulate`` batches of at most ``batch_tokens`` source and as many target tokens,
    however many processes share them.
    ``schedule = "noam"`` is the paper's, with ``warmup`` in steps; ``"budget"`` warms up over a
    share ``warmup`` of the budget to ``learning_rate``, then falls to zero at its end.
    """

    steps: int | None = None
    minutes: float | None = None
    batch_tokens: int = 2048
    accumulate: int = 1
    schedule: ScheduleName = "budget"
    learning_rate: float = 2e-3
    warmup: float = 0.1
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-9
    label_smoothing: float = 0.1
    clip_norm: float = 1.0
    precision: Precision = "auto"
    device: str = "auto"
    compile: bool = False
    validations: int = 6
    validation_sentences: int = 200
    keep_checkpoints: int = 3
    average_last: int = 1
    tensorboard: bool = False

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.minutes is None):
            raise ValueError("give either steps or minutes, as the length of training")
        for name in ("steps", "minutes", "batch_tokens", "accumulate", "validations"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name}={value} must be above zero")
        if self.average_last > self.keep_checkpoints:
            raise ValueError(
                f"average_last={self.average_last} needs keep_checkpoints of at least as many, "
                f"not {self.keep_checkpoints}"
            )


@dataclass
class Progress:
    """How far a run has come; the next batch is number ``position`` of ``epoch``."""

    step: int = 0
    epoch: int = 0
    position: int = 0
    seconds: float = 0.0
    src_tokens: int = 0
    tgt_tokens: int = 0
    flops: float = 0.0

    @property
    def tokens(self) -> int:
        return self.src_tokens + self.tgt_tokens


Record = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Work:
    """A batch, or this process's share of it (``None`` if there was no sentence left for it).

    The counts are the whole batch's; the next one is number ``position`` of ``epoch``.
    """

    batch: Batch | None
    src_tokens: int
    tgt_tokens: int
    epoch: int
    position: int


class Trainer:
    """Trains ``model`` on ``data``; writes checkpoints and metrics into ``folder``.

    Args:
        on_validation: called with the trainer and the validation's record, to show or plot it.
        workers: the processes that train together; the first one validates, writes and reports.
    """

    def __init__(
        self,
        model: Seq2Seq,
        data: PreparedData,
        config: TrainingConfig,
        folder: Path,
        seed: int = 1,
        on_validation: Callable[["Trainer", Record], None] | None = None,
        workers: Workers | None = None,
    ):
        self.device = choose_device(config.device)
        self.dtype = choose_dtype(self.device, config.precision)
        self.model = model.to(self.device)
        self.data = data
        self.config = config
        self.folder = folder
        self.seed = seed
        self.on_validation = on_validation
        self.workers = workers or Workers()
        self.progress = Progress()
        self.records: list[Record] = []
        fused = self.device.type in ("cpu", "cuda")
        self.optimizer = torch.optim.Adam(
            model.parameters(), betas=config.betas, eps=config.eps, fused=fused
        )
        self._decode: Callable[..., Any] = self._states
        if config.compile:
            self._decode = torch.compile(self._states, dynamic=True)
        self._flops_per_token = (
            flops_by_parameters(model, 1, 0),
            flops_by_parameters(model, 0, 1),
        )
        self._started = time.perf_counter()
        self._stop_requested = self._should_stop = False

    def train(self) -> bool:
        """Go on until the budget is used; returns False if Ctrl-C ended it before (and saved).

        Raises:
            UserError: the loss is not finite (the last checkpoint is kept), or the disk is full.
        """
        self.model.train()
        self._started = time.perf_counter() - self.progress.seconds
        interval = _Interval()
        with (
            CheckpointWriter(self.folder, self.config.keep_checkpoints) as writer,
            made_ahead(self._work()) as batches,
            self._stopping_on_signals(),
            self._bar() as bar,
        ):
            while (used := self._used_share()) < 1.0:
                if self._should_stop:
                    self._save(writer)
                    writer.wait()
                    return False
                rate = self._learning_rate(used)
                with interval.waiting():
                    work = [next(batches) for _ in range(self.config.accumulate)]
                self._step(work, rate, interval)
                self._show(bar, interval)
                done = self._used_share()
                if int(done * self.config.validations) > int(used * self.config.validations):
                    if self.workers.is_first:
                        self._record_training(interval, rate)
                        self.validate()
                    interval = _Interval()
                    self._share_time()
                    self._save(writer)
            writer.wait()
        self._finish()
        return True

    def validate(self) -> Record:
        """Loss per token and greedy BLEU on the validation sentences."""
        count = min(self.config.validation_sentences, len(self.data.valid))
        sources = self.data.valid.sources[:count]
        references = self.data.valid.references[:count]
        hypotheses = translate(
            self.model, self.data.tokenizer, sources, DecodingConfig(beam_size=1)
        )
        record = self._record(
            "validation",
            loss=self._validation_loss(sources, [r[0] for r in references]),
            bleu=bleu(hypotheses, references).score,
        )
        if self.on_validation is not None:
            self.on_validation(self, record)
        return record

    def resume(self) -> None:
        """Go back to the newest checkpoint that can be read.

        Raises:
            UserError: there is none.
        """
        problem = None
        for path in reversed(checkpoints_in(self.folder)):
            try:
                state = load_checkpoint(path, self.model, self.optimizer)
            except UserError as error:
                problem = error
                tqdm.write(f"{error}; trying the one before it")
                continue
            self.progress = Progress(**state)
            self.records = [r for r in read_metrics(self.folder) if r["step"] <= state["step"]]
            if self.workers.is_first:
                text = "".join(json.dumps(record) + "\n" for record in self.records)
                write_text(self.folder / "metrics.jsonl", text)
            return
        raise problem or UserError(f"{self.folder} has no checkpoint to resume from")

    def _states(self, batch: Batch) -> torch.Tensor:
        return self.model.decode(batch.tgt_input, self.model.encode(batch.src))

    def _step(self, work: list[Work], rate: float, interval: "_Interval") -> None:
        src_tokens = sum(item.src_tokens for item in work)
        tgt_tokens = sum(item.tgt_tokens for item in work)
        self._seed_step()
        nll = torch.zeros((), device=self.device)
        for item in work:
            if item.batch is None:
                continue
            batch = item.batch.to(self.device)
            with self._autocast():
                states = self._decode(batch)
                loss = output_loss(
                    states,
                    self.model.output_weight,
                    batch.labels,
                    self.config.label_smoothing,
                    self.config.compile,
                )
            (loss.smoothed / tgt_tokens).backward()
            nll += loss.nll
        self.workers.sum_gradients(self.model.parameters())
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        if not math.isfinite(norm):
            self.optimizer.zero_grad()
            raise UserError(
                f"the loss or its gradient is not finite in step {self.progress.step + 1} (batch "
                f"{work[-1].position - 1} of epoch {work[-1].epoch}); nothing was "
                f"learnt from it, the last checkpoint in {self.folder} is good: lower "
                "training.learning_rate or look at that batch"
            )
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.progress.step += 1
        self.progress.epoch, self.progress.position = work[-1].epoch, work[-1].position
        self.progress.src_tokens += src_tokens
        self.progress.tgt_tokens += tgt_tokens
        src_flops, tgt_flops = self._flops_per_token
        self.progress.flops += src_flops * src_tokens + tgt_flops * tgt_tokens
        interval.add(self._share_time(nll.item()), src_tokens, tgt_tokens)

    def _share_time(self, nll: float = 0.0) -> float:
        """All go by the first one's clock, stop together, and know the sum of their losses."""
        seconds = time.perf_counter() - self._started if self.workers.is_first else 0.0
        nll, stops, seconds = self.workers.sum(nll, float(self._stop_requested), seconds)
        self._should_stop = stops > 0
        self.progress.seconds = seconds
        return nll

    def _seed_step(self) -> None:
        """What is random in a step depends on its number alone: so a resumed run is the same."""
        sequence = np.random.SeedSequence((self.seed, self.progress.step, self.workers.rank))
        torch.manual_seed(int(sequence.generate_state(1, np.uint64)[0]))

    def _work(self) -> Iterator[Work]:
        """Batches without end, from where ``progress`` stands."""
        train = self.data.train
        epoch, start = self.progress.epoch, self.progress.position
        while True:
            plan = plan_batches(
                train.src.lengths, train.tgt.lengths, self.config.batch_tokens, (self.seed, epoch)
            )
            for position, indices in enumerate(plan[start:], start=start + 1):
                batch = None
                if len(own := self.workers.share_of(indices)):
                    batch = make_batch(train, own)
                    if self.device.type == "cuda":
                        batch = batch.pinned()
                src_tokens = int(train.src.lengths[indices].sum())
                tgt_tokens = int(train.tgt.lengths[indices].sum())
                yield Work(batch, src_tokens, tgt_tokens, epoch, position)
            epoch, start = epoch + 1, 0

    def _used_share(self) -> float:
        if self.config.steps is not None:
            return self.progress.step / self.config.steps
        assert self.config.minutes is not None
        return self.progress.seconds / (60.0 * self.config.minutes)

    def _learning_rate(self, used: float) -> float:
        if self.config.schedule == "noam":
            d_model = self.model.config.d_model
            return noam_rate(self.progress.step + 1, d_model, int(self.config.warmup))
        if self.config.steps is not None:  # step n of N: the first one already learns
            used = (self.progress.step + 1) / (self.config.steps + 1)
        return budget_rate(used, self.config.learning_rate, self.config.warmup)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(
            self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32
        )

    @torch.no_grad()
    def _validation_loss(self, sources: list[str], targets: list[str]) -> float:
        """Mean −log p of a target token, in nats."""
        encode = self.data.tokenizer.encode
        self.model.eval()
        total, tokens = 0.0, 0
        for start in range(0, len(sources), 50):
            src, labels = (
                pad_sequences([[*s, EOS] for s in encode(side[start : start + 50])])
                for side in (sources, targets)
            )
            batch = Batch(src, shift_right(labels), labels).to(self.device)
            with self._autocast():
                loss = output_loss(self._states(batch), self.model.output_weight, batch.labels)
            total, tokens = total + loss.nll.item(), tokens + loss.tokens
        self.model.train()
        return total / tokens

    def _record_training(self, interval: "_Interval", rate: float) -> None:
        self._record(
            "train",
            loss=interval.loss,
            learning_rate=rate,
            tokens_per_second=interval.tokens_per_second,
            waiting_for_data=interval.waiting_share,
        )

    def _record(self, kind: str, **values: float) -> Record:
        progress = self.progress
        record: Record = {
            "kind": kind,
            "step": progress.step,
            "epoch": progress.epoch,
            "seconds": round(progress.seconds, 3),
            "tokens": progress.tokens,
            "flops": progress.flops,
            **values,
        }
        self.records.append(record)
        with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        if self.config.tensorboard:
            self._to_tensorboard(kind, values)
        return record

    def _to_tensorboard(self, kind: str, values: dict[str, float]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError("training.tensorboard needs `pip install tensorboard`") from error
        with SummaryWriter(str(self.folder / "tensorboard")) as writer:
            for name, value in values.items():
                writer.add_scalar(f"{kind}/{name}", value, self.progress.step)

    def _save(self, writer: CheckpointWriter) -> None:
        if self.workers.is_first:
            writer.save(self.model, self.optimizer, asdict(self.progress))

    def _finish(self) -> None:
        """The model to use from now on: the mean of the last checkpoints."""
        if not self.workers.is_first:
            return
        paths = checkpoints_in(self.folder)[-self.config.average_last :]
        weights = average(paths)
        save_model(self.folder / "model.safetensors", weights, asdict(self.progress))
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(weights[name])
        self.model.eval()

    def _bar(self) -> tqdm:
        by_steps = self.config.steps is not None
        return tqdm(
            total=self.config.steps if by_steps else round(60 * (self.config.minutes or 0)),
            initial=self.progress.step if by_steps else int(self.progress.seconds),
            desc="training",
            unit=" steps" if by_steps else " s",
            disable=not progress_is_shown() or not self.workers.is_first,
            bar_format=None if by_steps else "{desc}: {n:.0f}/{total} s {bar} {postfix}",
        )

    def _show(self, bar: tqdm, interval: "_Interval") -> None:
        progress = self.progress
        target = progress.step if self.config.steps is not None else progress.seconds
        bar.set_postfix(
            {"loss": f"{interval.loss:.3f}", "tokens/s": f"{interval.tokens_per_second:,.0f}"},
            refresh=False,
        )
        bar.update(target - bar.n)

    @contextmanager
    def _stopping_on_signals(self) -> Iterator[None]:
        """Ctrl-C, or SIGTERM, lets the step in progress end; then the run is saved."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def request_stop(number: int, frame: object) -> None:
            if self._stop_requested:
                raise KeyboardInterrupt
            self._stop_requested = True

        self._stop_requested = False
        previous = {s: signal.signal(s, request_stop) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


@contextmanager
def made_ahead(items: Iterator[T], count: int = 2) -> Iterator[Iterator[T]]:
    """The same endless items, of which a thread makes the next few while one is in use."""

    def handed_out() -> Iterator[T]:
        coming = deque(thread.submit(next, items) for _ in range(count))
        while True:
            item = coming.popleft().result()
            coming.append(thread.submit(next, items))
            yield item

    with ThreadPoolExecutor(1) as thread:
        yield handed_out()


class _Interval:
    """Loss and speed since the last record."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.waited = 0.0
        self.nll = 0.0
        self.tgt_tokens = 0
        self.tokens = 0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time until the data is there."""
        started = time.perf_counter()
        yield
        self.waited += time.perf_counter() - started

    def add(self, nll: float, src_tokens: int, tgt_tokens: int) -> None:
        self.nll += nll
        self.tgt_tokens += tgt_tokens
        self.tokens += src_tokens + tgt_tokens

    @property
    def loss(self) -> float:
        """Mean −log p of a target token, in nats."""
        return self.nll / max(1, self.tgt_tokens)

    @property
    def tokens_per_second(self) -> float:
        """Source and target, without padding."""
        return self.tokens / (time.perf_counter() - self.started)

    @property
    def waiting_share(self) -> float:
        """Which part of the time went into waiting for data."""
        return self.waited / (time.perf_counter() - self.started)


def read_metrics(folder: Path) -> list[Record]:
    """The records of a run's ``metrics.jsonl``; a last line that was cut off is left out."""
    records = []
    try:
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"cannot read the metrics of {folder}: {error.strerror}") from error
    for line in lines:
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return records
