"""What a step of training computes with: batches without end, dealt out to the processes."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import torch

from transformer_lib.data.batching import Batch, make_batch, plan_batches
from transformer_lib.data.store import PairStore
from transformer_lib.training.config import TrainingConfig
from transformer_lib.training.distributed import Workers

ALIGNMENT = 8  # numbers in a row of a mask: with others, a GPU's attention copies it first


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
    """Batches without end from number ``position`` of ``epoch``, where a step begins."""
    on_gpu = device.type == "cuda"
    src_lengths, tgt_lengths = pairs.src.lengths, pairs.tgt.lengths
    number = count()
    while True:
        plan = plan_batches(src_lengths, tgt_lengths, config.batch_tokens, (seed, epoch))
        for after, sentences in enumerate(plan[position:], start=position + 1):
            batch = None
            own = workers.share_of(sentences, next(number), config.accumulate)
            if len(own):
                batch = make_batch(pairs, own, ALIGNMENT if on_gpu else 1)
                batch = batch.pinned() if on_gpu else batch
            yield MicroBatch(
                batch,
                int(src_lengths[sentences].sum()),
                int(tgt_lengths[sentences].sum()),
                epoch,
                after,
            )
        epoch, position = epoch + 1, 0
