"""Training: one loop for the Transformer and the RNN, resumable to the same numbers."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from tqdm.auto import tqdm

from transformer_lib.data.batching import Batch
from transformer_lib.data.store import PairStore
from transformer_lib.device import (
    LateNumbers,
    autocast,
    choose_device,
    choose_dtype,
    describe_device,
    is_out_of_memory,
)
from transformer_lib.errors import UserError
from transformer_lib.model.seq2seq import Seq2Seq
from transformer_lib.model.transformer import Transformer
from transformer_lib.training.adam import adam
from transformer_lib.training.checkpoint import (
    CheckpointWriter,
    average,
    checkpoints_in,
    load_checkpoint,
    save_model,
    step_of,
)
from transformer_lib.training.compilation import (
    compiled_layers,
    compiling,
    forget_compiled,
    has_fast_compiler,
)
from transformer_lib.training.config import TrainingConfig
from transformer_lib.training.cost import flops_by_parameters
from transformer_lib.training.distributed import Workers
from transformer_lib.training.loss import output_loss
from transformer_lib.training.metrics import Interval, MetricsLog, Record
from transformer_lib.training.micro_batches import MicroBatch, micro_batches
from transformer_lib.training.muon import Muon
from transformer_lib.training.prefetch import prefetched
from transformer_lib.training.reporter import Reporter
from transformer_lib.training.schedule import budget_rate, noam_rate
from transformer_lib.training.signals import StopRequest

BATCHES_AHEAD = 64  # for a GPU; they take less than 100 MB


@dataclass
class Progress:
    """How far a run has come; the next batch is number ``position`` of ``epoch``.

    Args:
        nll: Σ −log p of the ``nll_tokens`` target tokens since the last record.
        validations: how many there have been.
    """

    step: int = 0
    epoch: int = 0
    position: int = 0
    seconds: float = 0.0
    src_tokens: int = 0
    tgt_tokens: int = 0
    flops: float = 0.0
    nll: float = 0.0
    nll_tokens: int = 0
    validations: int = 0

    @property
    def tokens(self) -> int:
        return self.src_tokens + self.tgt_tokens


class Launched(NamedTuple):
    """A step that the device was given, which may not have finished it."""

    step: int
    work: list[MicroBatch]
    results: LateNumbers  # Σ −log p of the target tokens, norm of the gradient

    @property
    def src_tokens(self) -> int:
        return sum(item.src_tokens for item in self.work)

    @property
    def tgt_tokens(self) -> int:
        return sum(item.tgt_tokens for item in self.work)


class Trainer:
    """Trains ``model`` on ``pairs``; writes checkpoints and metrics into ``folder``.

    Args:
        validate: computes what a validation records, such as the loss and BLEU.
        on_validation: called with the trainer and the validation's record, to show or plot it.
        workers: the processes that train together; the first one validates, writes and reports.
    """

    def __init__(
        self,
        model: Seq2Seq,
        pairs: PairStore,
        config: TrainingConfig,
        folder: Path,
        seed: int = 1,
        validate: Callable[[], dict[str, float]] | None = None,
        on_validation: Callable[["Trainer", Record], None] | None = None,
        workers: Workers | None = None,
    ):
        self.device = choose_device(config.device)
        self.dtype = choose_dtype(self.device, config.precision)
        self.model = model.to(self.device)
        self.pairs = pairs
        self.config = config
        self.folder = folder
        self.seed = seed
        self.on_validation = on_validation
        self.workers = workers or Workers()
        self.progress = Progress()
        self.metrics = MetricsLog(folder, config.tensorboard and self.workers.is_first)
        self._validate = validate
        self.optimizer = _make_optimizer(model, config, self.dtype)
        # The loss is one function: it compiles quickly, and most passes over memory are in it.
        self._compiles_loss = config.compile or has_fast_compiler(self.device)
        if self._compiles_loss:  # PyTorch's limit on how often counts all models together
            forget_compiled()
        self._launched: Launched | None = None
        self._flops_per_token = (
            flops_by_parameters(model, 1, 0),
            flops_by_parameters(model, 0, 1),
        )
        self._started = time.perf_counter()
        self._stop = StopRequest()
        self._should_stop = False

    @property
    def records(self) -> list[Record]:
        """What was recorded so far, as in ``metrics.jsonl``."""
        return self.metrics.records

    def train(self) -> bool:
        """Go on until the budget is used; returns False if Ctrl-C ended it before (and saved).

        Raises:
            UserError: the loss is not finite (the last checkpoint is kept), the disk is full, a
                batch does not fit into memory, the folder holds checkpoints of another training,
                or processes that train together found different ones.
        """
        if self.progress.step == 0 and self.workers.is_first:
            self.folder.mkdir(parents=True, exist_ok=True)
            if checkpoints_in(self.folder):  # the mean at the end would be of them
                raise UserError(f"{self.folder} has checkpoints of another training")
        self.workers.check_alike("the checkpoint", f"that of step {self.progress.step}")
        self.workers.broadcast(self.model.parameters())
        self.model.train()
        self._launched, self._should_stop = None, False
        self._started = time.perf_counter() - self.progress.seconds
        step, seconds = self.progress.step, self.progress.seconds
        interval = Interval(self.progress.nll, self.progress.nll_tokens)
        self.progress.nll, self.progress.nll_tokens = 0.0, 0
        ahead = 2 * self.config.accumulate
        if self.device.type == "cuda":  # enough work for the seconds that planning an epoch takes
            ahead = max(ahead, BATCHES_AHEAD)
        with (
            CheckpointWriter(self.folder, self.config.keep_checkpoints) as writer,
            prefetched(self._micro_batches(), ahead) as batches,
            self._compiled(),
            self._stop.listening(),
            closing(self.metrics),
            Reporter(self.config, step, seconds, silent=not self.workers.is_first) as reporter,
        ):
            while (used := self._used_share()) < 1.0:
                if self._should_stop:
                    self._account(interval)
                    self.progress.nll = interval.nll
                    self.progress.nll_tokens = interval.tgt_tokens
                    self._save(writer, stopped=True)
                    writer.wait()
                    return False
                rate = self._learning_rate(used)
                with interval.waiting():
                    work = [next(batches) for _ in range(self.config.accumulate)]
                self._step(work, rate, interval)
                reporter.show(self.progress.step, self.progress.seconds, interval)
                if self._validations_due() > self.progress.validations:
                    self._end_interval(interval, rate, writer)
                    interval = Interval()
            # A validation may outlast the minutes that were left; then the last one was of the end.
            has_more = self._launched is not None or interval.tgt_tokens > 0
            if has_more and self.progress.validations < self.config.validations:
                self._end_interval(interval, self._learning_rate(1.0), writer)
            writer.wait()
        self._finish()
        return True

    def _end_interval(self, interval: Interval, rate: float, writer: CheckpointWriter) -> None:
        """Record, validate and save."""
        self._account(interval)
        self.progress.validations = self._validations_due()
        if self.workers.is_first:
            self._record_training(interval, rate)
            self.validate()
        self._share_time()
        self._save(writer)

    def validate(self) -> None:
        """Record what the validation says of the model as it is now."""
        with torch.compiler.set_stance("force_eager"):  # a search has other shapes at each step
            values = self._validate() if self._validate is not None else {}
        record = self._record("validation", **values)
        if self.on_validation is not None:
            self.on_validation(self, record)

    def resume(self) -> None:
        """Go back to the newest checkpoint that can be read.

        Raises:
            UserError: there is none.
        """
        problem = None
        damaged: list[Path] = []
        for path in reversed(checkpoints_in(self.folder)):
            try:
                state = load_checkpoint(path, self.model, self.optimizer)
                if unknown := state.keys() - {field.name for field in fields(Progress)}:
                    raise UserError(f"{path} says {min(unknown)}, which this version does not know")
            except UserError as error:
                problem = error
                tqdm.write(f"{error}; trying the one before it")
                damaged.append(path)
                continue
            if self.workers.is_first:
                for newer in damaged:  # or it would pass for the newest one again
                    newer.rename(newer.with_suffix(".damaged"))
            self.progress = Progress(**state)
            # None is repeated, and none counts as done that a longer training has still to make.
            due = self._validations_due()
            self.progress.validations = min(due, state.get("validations", due))
            self.metrics.read_until(self.progress.step, rewrite=self.workers.is_first)
            return
        raise problem or UserError(
            f"{self.folder} has no checkpoint to resume from; start it again without --resume"
        )

    def _micro_batches(self) -> Iterator[MicroBatch]:
        progress = self.progress
        return micro_batches(
            self.pairs, self.config, self.seed, self.workers, self.device,
            progress.epoch, progress.position,
        )  # fmt: skip

    def _step(self, work: list[MicroBatch], rate: float, interval: Interval) -> None:
        """Give a step to the device, and account for the one before, while this one is computed.

        Nothing in it waits for a GPU, so a GPU never runs out of work.
        """
        try:
            launched = self._launch(work, rate)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            size, number = self.config.batch_tokens, self.config.accumulate
            row = self.config.row_tokens
            rows = f", training.row_tokens={size // 2}" if row and row > size // 2 else ""
            resume = "; with more memory free, --resume goes on from what is saved"
            raise UserError(
                f"too little memory for batches of {size:,} tokens "
                f"({describe_device(self.device)}); a new run with training.batch_tokens="
                f"{size // 2}{rows} and training.accumulate={2 * number} takes half, and learns "
                f"the same{resume if checkpoints_in(self.folder) else ''}"
            ) from error
        self._account(interval)
        self._launched = launched

    def _launch(self, work: list[MicroBatch], rate: float) -> Launched:
        tgt_tokens = sum(item.tgt_tokens for item in work)
        self._seed_step()
        nll = torch.zeros((), device=self.device)
        for item in work:
            if item.batch is None:
                continue
            batch = item.batch.to(self.device)
            with autocast(self.device, self.dtype):
                states = self._states(batch)
                loss = output_loss(
                    states,
                    self.model.output_weight,
                    batch.labels,
                    self.config.label_smoothing,
                    self._compiles_loss,
                    batch.real,
                )
            (loss.smoothed / tgt_tokens).backward()
            nll += loss.nll
        self.workers.all_reduce_gradients(self.model.parameters())
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        # With that, the optimizer changes nothing in a step whose gradient is not finite.
        self.optimizer.found_inf = (~norm.isfinite()).float()  # type: ignore[union-attr]
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        progress = self.progress
        progress.step += 1
        progress.epoch, progress.position = work[-1].epoch, work[-1].position
        results = torch.stack([nll, norm.to(nll.dtype)])
        return Launched(progress.step, work, LateNumbers(results))

    def _states(self, batch: Batch) -> torch.Tensor:
        if batch.src_pairs is None or batch.tgt_pairs is None:
            return self.model.decode(batch.tgt_input, self.model.encode(batch.src))
        assert isinstance(self.model, Transformer)
        return self.model.decode_packed(
            batch.src, batch.tgt_input, batch.src_pairs, batch.tgt_pairs
        )

    def _account(self, interval: Interval) -> None:
        """Read what came of the step that was launched last, if that was not done yet.

        Raises:
            UserError: its gradient is not finite.
        """
        if self._launched is None:
            return
        launched, self._launched = self._launched, None
        nll, norm = launched.results.read()
        if not math.isfinite(norm):
            places = [f"batch {w.position - 1} of epoch {w.epoch}" for w in launched.work]
            batches = " to ".join(dict.fromkeys((places[0], places[-1])))
            is_noam = self.config.schedule == "noam"
            remedy = "raise training.warmup_steps" if is_noam else "lower training.learning_rate"
            saved = checkpoints_in(self.folder)
            state = f"{saved[-1].name} is from before it" if saved else "nothing is saved yet"
            if self.device.type != "mps":  # whose Adam does not look at found_inf
                state = f"nothing was learned from it, {state}"
            raise UserError(
                f"the loss or its gradient is not finite in step {launched.step} ({batches}); "
                f"{state}: {remedy} or look at "
                f"{'that batch' if len(places) == 1 else 'these'}"
            )
        src_tokens, tgt_tokens = launched.src_tokens, launched.tgt_tokens
        self.progress.src_tokens += src_tokens
        self.progress.tgt_tokens += tgt_tokens
        src_flops, tgt_flops = self._flops_per_token
        self.progress.flops += src_flops * src_tokens + tgt_flops * tgt_tokens
        interval.add(self._share_time(nll), src_tokens, tgt_tokens)

    def _share_time(self, nll: float = 0.0) -> float:
        """All go by the first one's clock, stop together, and know the sum of their losses."""
        seconds = time.perf_counter() - self._started if self.workers.is_first else 0.0
        nll, stops, seconds = self.workers.all_reduce(nll, float(bool(self._stop)), seconds)
        self._should_stop = stops > 0
        self.progress.seconds = seconds
        return nll

    def _seed_step(self) -> None:
        """A step's random numbers depend on its number alone, so that a resumed run is the same."""
        sequence = np.random.SeedSequence((self.seed, self.progress.step, self.workers.rank))
        torch.manual_seed(int(sequence.generate_state(1, np.uint64)[0]))

    def _used_share(self) -> float:
        if self.config.steps is not None:
            return self.progress.step / self.config.steps
        assert self.config.minutes is not None
        return self.progress.seconds / (60.0 * self.config.minutes)

    def _validations_due(self) -> int:
        """How many validations there should have been by now, at equal distances."""
        if self.config.steps is not None:  # in whole numbers, which round nothing
            return self.progress.step * self.config.validations // self.config.steps
        return int(self._used_share() * self.config.validations)

    def _learning_rate(self, used: float) -> float:
        if self.config.schedule == "noam":
            d_model = self.model.config.d_model
            return noam_rate(self.progress.step + 1, d_model, self.config.warmup_steps)
        if self.config.steps is not None:  # step n of N: the first one already learns
            used = (self.progress.step + 1) / (self.config.steps + 1)
        return budget_rate(used, self.config.learning_rate, self.config.warmup_share)

    def _compiled(self) -> AbstractContextManager[None]:
        if self.config.compile:
            return compiled_layers(self.model)
        return compiling() if self._compiles_loss else nullcontext()

    def _record_training(self, interval: Interval, rate: float) -> None:
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
        self.metrics.add(record, values)
        return record

    def _save(self, writer: CheckpointWriter, stopped: bool = False) -> None:
        if self.workers.is_first:
            writer.save(self.model, self.optimizer, asdict(self.progress), stopped)

    def _finish(self) -> None:
        """The model to use from now on: the mean of the last checkpoints."""
        if not self.workers.is_first:
            return
        paths = checkpoints_in(self.folder)[-self.config.average_last :]
        try:
            weights = average(paths)
        except UserError as error:
            raise UserError(
                f"{error}; delete it, and resume: the mean is then one of fewer checkpoints"
            ) from error
        save_model(self.folder / "model.safetensors", weights, len(paths), step_of(paths[-1]))
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(weights[name])
        self.model.eval()


def _make_optimizer(
    model: Seq2Seq, config: TrainingConfig, dtype: torch.dtype
) -> torch.optim.Adam | Muon:
    if config.muon_rate is not None:
        ratio = config.muon_rate / config.learning_rate
        return Muon(model, ratio, config.betas, config.eps, dtype, config.weight_decay)
    return adam(model.parameters(), config.betas, config.eps, config.weight_decay)
