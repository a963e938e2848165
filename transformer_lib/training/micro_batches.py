"""The data of training steps: batches without end, dealt out to the processes."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice

import numpy as np
import torch

from transformer_lib.data.batching import (
    Batch,
    make_batch,
    make_packed_batch,
    plan_batches,
)
from transformer_lib.data.packing import packed_rows
from transformer_lib.data.store import PairStore
from transformer_lib.errors import UserError
from transformer_lib.training.config import TrainingConfig
from transformer_lib.training.distributed import Workers

ALIGNMENT = 8  # of the rows of a mask: a GPU's attention would copy others first


@dataclass(frozen=True)
class MicroBatch:
    """A batch, or this process's share of it (``None`` if it has none).

    The counts are the whole batch's; the next one is number ``position`` of ``epoch``.
    """

    batch: Batch | None
    src_tokens: int
    tgt_tokens: int
    epoch: int
    position: int


def micro_batches(
    pairs: PairStore,
    config: TrainingConfig,
    seed: int,
    workers: Workers,
    device: torch.device,
    epoch: int = 0,
    position: int = 0,
) -> Iterator[MicroBatch]:
    """Batches without end from number ``position`` of ``epoch``, where a step begins.

    Raises:
        UserError: an epoch has none, since no pair fits into a row.
    """
    on_gpu = device.type == "cuda"
    src_multiple = ALIGNMENT if on_gpu else 1
    number = count()
    while True:
        after = position
        plan = islice(_plan(pairs, config, (seed, epoch), src_multiple), position, None)
        for after, rows in enumerate(plan, start=position + 1):
            batch = None
            own = workers.share_of(rows, next(number), config.accumulate)
            if len(own):
                if config.row_tokens is not None:
                    batch = make_packed_batch(pairs, own, config.row_tokens)
                else:
                    batch = make_batch(pairs, np.concatenate(own), src_multiple)
                batch = batch.pinned() if on_gpu else batch
            sentences = np.concatenate(rows)
            yield MicroBatch(
                batch,
                int(pairs.src.lengths[sentences].sum()),
                int(pairs.tgt.lengths[sentences].sum()),
                epoch,
                after,
            )
        if after == 0:
            raise UserError(
                f"no sentence pair fits into a row of training.row_tokens={config.row_tokens}"
            )
        epoch, position = epoch + 1, 0


def _plan(
    pairs: PairStore, config: TrainingConfig, seed: tuple[int, ...], src_multiple: int
) -> Iterator[list[np.ndarray]]:
    """The batches of an epoch: for each row, the pairs in it."""
    lengths = pairs.src.lengths, pairs.tgt.lengths
    if config.row_tokens is None:
        for sentences in plan_batches(*lengths, config.batch_tokens, seed, src_multiple):
            yield list(sentences[:, None])
        return
    rows = packed_rows(*lengths, config.row_tokens, seed)
    while batch := list(islice(rows, config.batch_tokens // config.row_tokens)):
        yield [np.array(row) for row in batch]
