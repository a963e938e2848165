"""Exercises on positional encoding."""

import torch
from jaxtyping import Float
from torch import Tensor

from transformer_lib.checks.exercise import exercise
from transformer_lib.checks.observe import Case
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
