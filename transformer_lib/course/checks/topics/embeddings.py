"""Exercises on embeddings and the output projection."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case
from transformer_lib.course.sandboxed.given import FixedDropout
from transformer_lib.vocabulary import PAD


def _tokens(batch: int, length: int, end: int, random: torch.Generator) -> Tensor:
    """Tokens below end; of several sentences the first has three tokens and then padding."""
    tokens = torch.randint(0, end, (batch, length), generator=random)
    if batch > 1:
        tokens[0, 3:] = PAD
    return tokens


def _embed_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, length: int, d_model: int, end: int) -> tuple[Tensor, Tensor]:
        tokens = _tokens(batch, length, end, random)
        return tokens, torch.randn(11, d_model, generator=random)

    return {
        "values": Case(*arguments(3, 5, 6, end=11), gradient=True),
        "a batch of one": Case(*arguments(1, 4, 8, end=11)),
        "one token": Case(*arguments(2, 1, 6, end=10)),  # the last piece does not occur
    }


@exercise("embeddings", _embed_cases)
def embed(
    tokens: Int[Tensor, "batch length"], table: Float[Tensor, "vocab_size d_model"]
) -> Float[Tensor, "batch length d_model"]:
    """The rows of the tokens, times √d_model (section 3.4)."""
    return table[tokens] * math.sqrt(table.size(1))


def _logit_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, length: int, d_model: int) -> tuple[Tensor, Tensor]:
        states = torch.randn(batch, length, d_model, generator=random)
        return states, torch.randn(11, d_model, generator=random)

    return {
        "values": Case(*arguments(3, 5, 6), gradient=True),
        "a batch of one": Case(*arguments(1, 4, 8)),
    }


@exercise("embeddings", _logit_cases)
def output_logits(
    states: Float[Tensor, "batch length d_model"], table: Float[Tensor, "vocab_size d_model"]
) -> Float[Tensor, "batch length vocab_size"]:
    """states · tableᵀ: the output projection is the embedding's table (section 3.4)."""
    return states @ table.T


def _position_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, length: int, d_model: int) -> tuple:
        tokens = _tokens(batch, length, 11, random)
        table = torch.randn(11, d_model, generator=random)
        return tokens, table, torch.randn(9, d_model, generator=random), FixedDropout()

    return {
        "values": Case(*arguments(3, 5, 6), gradient=True),
        "a batch of one": Case(*arguments(1, 4, 8)),
        "as many sentences as tokens": Case(*arguments(4, 4, 6)),
    }


@exercise("embeddings", _position_cases)
def embed_with_positions(
    tokens: Int[Tensor, "batch length"],
    table: Float[Tensor, "vocab_size d_model"],
    positions: Float[Tensor, "max_len d_model"],
    dropout: Callable[[Tensor], Tensor],
) -> Float[Tensor, "batch length d_model"]:
    """dropout(√d_model · embedding + position) (sections 3.4, 3.5 and 5.4)."""
    return dropout(embed(tokens, table) + positions[: tokens.size(1)])
