"""Exercises on positional encoding."""

import torch
from jaxtyping import Float
from torch import Tensor

from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case
from transformer_lib.model.positional_encoding import sinusoidal_positions


def _cases(random: torch.Generator) -> dict[str, Case]:
    length, half = (int(torch.randint(6, 12, (), generator=random)) for _ in range(2))
    return {
        "values": Case(length, 2 * half),
        "two channels": Case(length, 2),
        "one position": Case(1, 2 * half),
        "a long sentence": Case(int(torch.randint(90, 300, (), generator=random)), 2 * half),
    }


@exercise("positions", _cases)
def positional_encoding(length: int, d_model: int) -> Float[Tensor, "length d_model"]:
    return sinusoidal_positions(length, d_model)


@exercise("positions", _cases)
def positional_encoding_halves(length: int, d_model: int) -> Float[Tensor, "length d_model"]:
    return sinusoidal_positions(length, d_model, layout="halves")


def _learned_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, length: int, max_len: int, start: int) -> tuple:
        x = torch.randn(batch, length, 6, generator=random)
        return x, torch.randn(max_len, 6, generator=random), start

    return {
        "values": Case(*arguments(2, 4, 9, 0), gradient=True),
        "a later step": Case(*arguments(3, 1, 9, 5)),
        "past the end": Case(*arguments(1, 6, 5, 2)),
        "as many sentences as tokens": Case(*arguments(3, 3, 8, 1)),
    }


@exercise("positions", _learned_cases)
def add_learned_positions(
    x: Float[Tensor, "batch length d_model"], table: Float[Tensor, "max_len d_model"], start: int
) -> Float[Tensor, "batch length d_model"]:
    """x plus the rows of its positions, from ``start`` on; past the end, the table's last row."""
    position = torch.arange(start, start + x.size(1)).clamp(max=table.size(0) - 1)
    return x + table[position]
