"""Exercises on attention."""

import torch

from transformer_lib.checks.exercise import exercise
from transformer_lib.checks.observe import Case
from transformer_lib.model.attention import attention


def random_mask(shape, random):
    """Blocks about half, but leaves every query its first key, and blocks something for each."""
    mask = torch.rand(shape, generator=random) < 0.5
    mask[..., 0], mask[..., -1] = True, False
    return mask


def _attention_cases(random: torch.Generator) -> dict[str, Case]:
    def qkv(batch, heads, queries, keys, d_k=5, d_v=7):
        shapes = (batch, heads, queries, d_k), (batch, heads, keys, d_k), (batch, heads, keys, d_v)
        return [torch.randn(shape, generator=random) for shape in shapes]

    nothing_to_see = random_mask((2, 1, 4, 6), random)
    nothing_to_see[1, 0, 2] = False
    return {
        "values": Case(*qkv(2, 3, 4, 6), None, gradient=True),
        "mask": Case(*qkv(2, 3, 4, 6), random_mask((2, 1, 4, 6), random), gradient=True),
        "a query that may see nothing": Case(*qkv(2, 3, 4, 6), nothing_to_see),
        "a batch of one, other lengths": Case(*qkv(1, 2, 7, 3), random_mask((1, 1, 1, 3), random)),
        "double precision": Case(*(x.double() for x in qkv(2, 3, 4, 6)), None),
    }


exercise("attention", _attention_cases, outputs=("output", "weights"))(attention)
