"""What a run records about itself: ``metrics.jsonl``, one JSON object per line."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformer_lib.errors import UserError
from transformer_lib.files import write_text

Record = dict[str, Any]
FIELDS = {"kind", "step", "epoch", "seconds", "tokens", "flops"}
"""What every record has; validations have loss and BLEU beside them."""


class MetricsLog:
    """The records of a run, in memory and in its folder.

    Args:
        folder: the run's.
        tensorboard: whether TensorBoard's log is written beside it.

    Raises:
        UserError: TensorBoard is asked for but not installed.
    """

    def __init__(self, folder: Path, tensorboard: bool = False):
        self.folder = folder
        self.records: list[Record] = []
        self._make_writer = _summary_writer() if tensorboard else None
        self._writer: Any = None
        self._first_step = 0

    def add(self, record: Record, curves: dict[str, float]) -> None:
        """Append a record; ``curves`` are the values in it that TensorBoard plots.

        Raises:
            UserError: it cannot be written.
        """
        self.records.append(record)
        path = self.folder / "metrics.jsonl"
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise UserError(
                f"cannot write {path}: {error.strerror or error}; when there is room again, go on "
                "from the last checkpoint with --resume"
            ) from error
        if self._make_writer is not None:
            if self._writer is None:  # later points of an earlier start are forgotten
                log_dir = str(self.folder / "tensorboard")
                self._writer = self._make_writer(log_dir, purge_step=self._first_step)
            for name, value in curves.items():
                self._writer.add_scalar(f"{record['kind']}/{name}", value, record["step"])
            self._writer.flush()

    def close(self) -> None:
        """End TensorBoard's file and its thread; another record would open a new one."""
        if self._writer is not None:
            self._writer.close()
            self._writer, self._first_step = None, self.records[-1]["step"] + 1

    def read_until(self, step: int, rewrite: bool) -> None:
        """Take up the records of a run that goes on from ``step``; later ones are forgotten."""
        self._first_step = step + 1
        self.records[:] = [r for r in read_metrics(self.folder) if r["step"] <= step]
        if rewrite:
            text = "".join(json.dumps(record) + "\n" for record in self.records)
            write_text(self.folder / "metrics.jsonl", text)


def _summary_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UserError("training.tensorboard needs `pip install tensorboard`") from error
    return SummaryWriter


class Interval:
    """Loss since the last record; speed since then, or since training was resumed.

    Args:
        nll: Σ −log p of ``tgt_tokens`` target tokens before.
    """

    def __init__(self, nll: float = 0.0, tgt_tokens: int = 0):
        self.started = time.perf_counter()
        self.waited = 0.0
        self.nll = nll
        self.tgt_tokens = tgt_tokens
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
        """The share of the time that went into waiting for data."""
        return self.waited / (time.perf_counter() - self.started)


def read_metrics(folder: Path) -> list[Record]:
    """The records of a run's ``metrics.jsonl``; a last line that was cut off is left out.

    A run that was stopped before its first validation has none.

    Raises:
        UserError: the file cannot be read.
    """
    records = []
    try:
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the metrics of {folder}: {error}") from error
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and record.keys() >= FIELDS:
            records.append(record)
    return records
