"""Several sentence pairs in one row: all batches have one shape, and next to no padding.

On a GPU one shape is worth much: kernels are compiled once, and all of its memory can be used.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from transformer_lib.vocabulary import PAD

WAITING = 8  # pairs that the next one of a row is chosen from


def packed_rows(
    src_lengths: np.ndarray, tgt_lengths: np.ndarray, row_tokens: int, seed: tuple[int, ...]
) -> Iterator[list[int]]:
    """The rows of one epoch: numbers of pairs, at most ``row_tokens`` tokens on either side.

    Pairs come in random order. Of the few that wait, the one that fills the row best is next: 94%
    of the places are filled, with the lengths of newstest and rows of 256. A pair that is longer
    than a row is left out.
    """
    fits = np.flatnonzero(np.maximum(src_lengths, tgt_lengths) <= row_tokens)
    order = np.random.default_rng(seed).permutation(fits)
    coming = zip(order.tolist(), src_lengths[order].tolist(), tgt_lengths[order].tolist(),
                 strict=True)  # fmt: skip
    waiting = list(islice(coming, WAITING))
    row: list[int] = []
    src_room = tgt_room = row_tokens
    while waiting:
        best, least = None, row_tokens
        for pair in waiting:
            left = min(src_room - pair[1], tgt_room - pair[2])
            if 0 <= left <= least:
                best, least = pair, left
        if best is None:
            yield row
            row, src_room, tgt_room = [], row_tokens, row_tokens
            continue
        waiting.remove(best)
        waiting += islice(coming, 1)
        row.append(best[0])
        src_room, tgt_room = src_room - best[1], tgt_room - best[2]
    if row:
        yield row


def pack(
    sequences: Sequence[Sequence[np.ndarray]], row_tokens: int
) -> tuple[Int[Tensor, "rows {row_tokens}"], Int[Tensor, "rows {row_tokens}"]]:
    """The sequences of each row one after another, and which of them each place belongs to."""
    tokens = torch.full((len(sequences), row_tokens), PAD)
    owners = torch.zeros(len(sequences), row_tokens, dtype=torch.int64)
    for row, parts in enumerate(sequences):
        joined = np.concatenate(parts).astype(np.int64)
        tokens[row, : len(joined)] = torch.from_numpy(joined)
        lengths = torch.tensor([len(part) for part in parts])
        owners[row, : len(joined)] = torch.arange(1, len(parts) + 1).repeat_interleave(lengths)
    return tokens, owners
