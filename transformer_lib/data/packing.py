"""Several sentence pairs in one row: all batches have one shape, and next to no padding.

On a GPU one shape is worth much: kernels are compiled once, and all of its memory can be used.
"""

from collections.abc import Iterator
from itertools import islice

import numpy as np

WAITING = 8  # pairs from which the next one of a row is chosen


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
