"""Several sentence pairs in one row of a batch, none of which sees its neighbours."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Which pair each place of a row belongs to, from 1 on; 0 is padding."""

    src_pairs: Int[Tensor, "rows src_len"]
    tgt_pairs: Int[Tensor, "rows tgt_len"]

    @property
    def src_mask(self) -> Bool[Tensor, "rows 1 src_len src_len"]:
        """Which places of the source a place of the source may see: those of its pair."""
        return _same(self.src_pairs, self.src_pairs)

    @property
    def tgt_mask(self) -> Bool[Tensor, "rows 1 tgt_len tgt_len"]:
        """Which places of the target a place of the target may see, but for what comes later."""
        return _same(self.tgt_pairs, self.tgt_pairs)

    @property
    def cross_mask(self) -> Bool[Tensor, "rows 1 tgt_len src_len"]:
        """Which places of the source a place of the target may see.

        Padding, whose result is never used, sees everything: with nothing to see it would be NaN.
        """
        return _same(self.tgt_pairs, self.src_pairs) | (self.tgt_pairs == 0)[:, None, :, None]

    @property
    def src_positions(self) -> Int[Tensor, "rows src_len"]:
        """Where in its own sentence each place is."""
        return _positions(self.src_pairs)

    @property
    def tgt_positions(self) -> Int[Tensor, "rows tgt_len"]:
        """The same for the target."""
        return _positions(self.tgt_pairs)

    def to(self, device: torch.device) -> "Packing":
        """The same on ``device``."""
        return Packing(
            self.src_pairs.to(device, non_blocking=True),
            self.tgt_pairs.to(device, non_blocking=True),
        )

    def pinned(self) -> "Packing":
        """The same in memory from which a GPU can fetch by itself."""
        return Packing(self.src_pairs.pin_memory(), self.tgt_pairs.pin_memory())


def _same(
    queries: Int[Tensor, "rows queries"], keys: Int[Tensor, "rows keys"]
) -> Bool[Tensor, "rows 1 queries keys"]:
    return (queries[:, :, None] == keys[:, None, :])[:, None]


def _positions(pairs: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
    place = torch.arange(pairs.size(1), device=pairs.device).expand_as(pairs)
    begins = torch.ones_like(pairs, dtype=torch.bool)
    begins[:, 1:] = pairs[:, 1:] != pairs[:, :-1]
    return place - torch.where(begins, place, 0).cummax(dim=1).values
