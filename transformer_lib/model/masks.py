"""Attention masks: boolean, ``True`` is "may attend", broadcastable to (batch, head, query, key).

This is the convention of ``torch.nn.functional.scaled_dot_product_attention``. Note that
``torch.nn.Transformer`` and its relatives use the opposite one (``True`` = blocked): negate a mask
with ``~mask`` when handing it to them.
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from transformer_lib.vocabulary import PAD

Mask = Bool[Tensor, "#batch #heads #queries #keys"]


def padding_mask(tokens: Int[Tensor, "batch length"]) -> Bool[Tensor, "batch 1 1 length"]:
    """Which keys are real tokens: every query may attend to them, none to padding."""
    return (tokens != PAD)[:, None, None, :]


def causal_mask(
    length: int, device: torch.device | str | None = None
) -> Bool[Tensor, "1 1 {length} {length}"]:
    """Query i may attend to keys 0 … i: the lower triangle with its diagonal (section 3.2.3)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]


def combine_masks(*masks: Mask | None) -> Mask | None:
    """Allowed is what every mask allows. ``None`` is a mask that allows everything."""
    combined = None
    for mask in masks:
        if mask is not None:
            combined = mask if combined is None else combined & mask
    return combined
