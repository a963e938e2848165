"""Exercises on masks."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case
from transformer_lib.model.masks import causal_mask, padding_mask
from transformer_lib.vocabulary import EOS, PAD


def _tokens(batch: int, length: int, random: torch.Generator) -> Int[Tensor, "batch length"]:
    """Sentences with an ``<unk>`` here and there; all but the first are padded."""
    tokens = torch.randint(4, 20, (batch, length), generator=random)
    tokens[:, 1] = 1
    for row in range(batch):
        end = length - 1 - row % (length - 3)
        tokens[row, end], tokens[row, end + 1 :] = EOS, PAD
    return tokens


def _token_cases(random: torch.Generator) -> dict[str, Case]:
    return {
        "values": Case(_tokens(3, 7, random)),
        "a batch of one": Case(_tokens(1, 5, random)),
        "as many sentences as tokens": Case(_tokens(6, 6, random)),
        "padding in front": Case(_tokens(3, 6, random).flip(1)),
    }


def _length_cases(random: torch.Generator) -> dict[str, Case]:
    return {
        "values": Case(int(torch.randint(4, 9, (), generator=random))),
        "one position": Case(1),
    }


exercise("masks", _token_cases)(padding_mask)
exercise("masks", _length_cases)(causal_mask)


@exercise("masks", _token_cases)
def decoder_mask(tokens: Int[Tensor, "batch length"]) -> Bool[Tensor, "batch 1 queries keys"]:
    """What a decoder's self-attention may see: no padding, and nothing of the future."""
    return padding_mask(tokens) & causal_mask(tokens.size(1))
