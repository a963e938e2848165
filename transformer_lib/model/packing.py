"""Several sentence pairs in one row of a batch, none of which sees its neighbors.

Both sides of a row come with the number of the pair that each place belongs to, from 1 on; 0 is
padding.
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def same_pair_mask(
    queries: Int[Tensor, "rows queries"], keys: Int[Tensor, "rows keys"]
) -> Bool[Tensor, "rows 1 queries keys"]:
    """A place sees the places of its own pair.

    Padding, whose result is never used, sees everything: with nothing to see it would be NaN.
    """
    same = queries[:, :, None] == keys[:, None, :]
    return (same | (queries == 0)[:, :, None])[:, None]


def positions_in_pair(pairs: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
    """Where in its own sentence each place is."""
    place = torch.arange(pairs.size(1), device=pairs.device).expand_as(pairs)
    begins = torch.ones_like(pairs, dtype=torch.bool)
    begins[:, 1:] = pairs[:, 1:] != pairs[:, :-1]
    return place - torch.where(begins, place, 0).cummax(dim=1).values
