"""Batches by a budget of tokens, of sentences that are about equally long (section 5.1)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from transformer_lib.data.store import PairStore, padded_lengths
from transformer_lib.vocabulary import BOS, EOS, PAD


@dataclass
class Batch:
    """Padded sentence pairs with the teacher-forcing shift.

    The decoder reads ``tgt_input`` = ``<s> y₁ … yₙ`` and should say ``labels`` = ``y₁ … yₙ </s>``.

    Args:
        real: the places of the real tokens in ``labels.flatten()``. They are found before the batch
            goes to a GPU: to count them there, one would wait for it.
        src_pairs, tgt_pairs: where several pairs share a row, the number (from 1) of the pair that
            each position belongs to; 0 is padding.
    """

    src: Int[Tensor, "batch src_len"]
    tgt_input: Int[Tensor, "batch tgt_len"]
    labels: Int[Tensor, "batch tgt_len"]
    real: Int[Tensor, " tgt_tokens"] | None = None
    src_pairs: Int[Tensor, "batch src_len"] | None = None
    tgt_pairs: Int[Tensor, "batch tgt_len"] | None = None

    @property
    def num_src_tokens(self) -> int:
        return int((self.src != PAD).sum())

    @property
    def num_tgt_tokens(self) -> int:
        return int((self.labels != PAD).sum())

    def to(self, device: torch.device) -> "Batch":
        """The same batch on ``device``; a pinned one is copied while other work goes on."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> "Batch":
        """The same batch in pinned memory, from which a GPU can copy by itself."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        return Batch(**{k: change(v) for k, v in vars(self).items() if v is not None})


def plan_batches(
    src_lengths: np.ndarray,
    tgt_lengths: np.ndarray,
    batch_tokens: int,
    seed: tuple[int, ...],
    src_multiple: int = 1,
) -> list[np.ndarray]:
    """The batches of one epoch, as arrays of sentence numbers; sources padded to ``src_multiple``.

    Each has at most ``batch_tokens`` source tokens and as many target tokens, padding included (a
    longer sentence is a batch of its own), and a multiple of 8 sentences where that many fit.
    Sentences of one padded length are shuffled among themselves, then the batches are: the same
    seed gives the same batches.
    """
    random = np.random.default_rng(seed)
    order = random.permutation(len(src_lengths))
    src_padded = padded_lengths(src_lengths, src_multiple)
    tgt_padded = padded_lengths(tgt_lengths)
    order = order[np.lexsort((src_padded[order], tgt_padded[order]))]
    longest = np.maximum(src_padded, tgt_padded)[order]
    batches = []
    start = 0
    while start < len(order):
        window = longest[start : start + max(1, batch_tokens // max(1, longest[start]))]
        padded = np.maximum.accumulate(window) * np.arange(1, len(window) + 1)
        size = max(1, int(np.searchsorted(padded, batch_tokens, side="right")))
        if size > 8:
            size -= size % 8
        batches.append(order[start : start + size])
        start += size
    return [batches[i] for i in random.permutation(len(batches))]


def make_batch(store: PairStore, indices: np.ndarray, src_multiple: int = 1) -> Batch:
    """Look these pairs up and pad them, the sources to a multiple of ``src_multiple``."""
    src = torch.from_numpy(store.src.padded(indices, src_multiple))
    labels = torch.from_numpy(store.tgt.padded(indices))
    return Batch(src, shift_right(labels), labels, real_positions(labels))


def make_packed_batch(store: PairStore, rows: Sequence[np.ndarray], row_tokens: int) -> Batch:
    """Look the pairs of these rows up and put them one after another, each with its shift."""
    src, src_pairs = map(torch.from_numpy, store.src.packed(rows, row_tokens))
    labels, tgt_pairs = map(torch.from_numpy, store.tgt.packed(rows, row_tokens))
    begins = tgt_pairs != tgt_pairs.roll(1, dims=1)
    begins[:, 0] = True  # where one pair fills the row, no number changes
    tgt_input = labels.roll(1, dims=1).masked_fill(begins, BOS).masked_fill(tgt_pairs == 0, PAD)
    return Batch(src, tgt_input, labels, real_positions(labels), src_pairs, tgt_pairs)


def real_positions(labels: Int[Tensor, "batch tgt_len"]) -> Int[Tensor, " tgt_tokens"]:
    """The places of the real tokens in ``labels.flatten()``."""
    return (labels.flatten() != PAD).nonzero()[:, 0]


def shift_right(labels: Int[Tensor, "batch tgt_len"]) -> Int[Tensor, "batch tgt_len"]:
    """The decoder's input: ``<s>`` in front, the last token dropped, never an ``</s>``."""
    tgt_input = torch.full_like(labels, BOS)
    tgt_input[:, 1:] = labels[:, :-1]
    return tgt_input.masked_fill(tgt_input == EOS, PAD)
