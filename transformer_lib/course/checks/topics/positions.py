"""Exercises on positional encoding."""

import torch
from jaxtyping import Float, Int
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
        "values": Case(*arguments(2, 4, 9, 3), gradient=True),
        "from the first position on": Case(*arguments(2, 4, 9, 0)),
        "a later step": Case(*arguments(3, 1, 9, 5)),
        "past the end": Case(*arguments(1, 6, 5, 2)),
        "as many sentences as tokens": Case(*arguments(3, 3, 8, 1)),
        # Row 8 % 5 is not where a window that was moved back would begin.
        "all of it past the end": Case(*arguments(2, 3, 5, 8)),
    }


@exercise("positions", _learned_cases)
def add_learned_positions(
    x: Float[Tensor, "batch length d_model"], table: Float[Tensor, "max_len d_model"], start: int
) -> Float[Tensor, "batch length d_model"]:
    """x plus the rows of its positions, from ``start`` on; past the end, the table's last row."""
    position = torch.arange(start, start + x.size(1)).clamp(max=table.size(0) - 1)
    return x + table[position]


def _shift_cases(random: torch.Generator) -> dict[str, Case]:
    return {
        "values": Case(3, 8),
        "one place": Case(1, 6),
        "backwards": Case(-2, 8),
        "two channels": Case(5, 2),
        "far": Case(int(torch.randint(40, 90, (), generator=random)), 16),
        "very far": Case(1234, 8),
    }


def _angles(position: Tensor, d_model: int) -> Tensor:
    """position · 10000^(−2i/d_model), a column for each pair of channels; double precision."""
    exponent = torch.arange(0, d_model, 2, dtype=torch.float64) / d_model
    return position.double()[:, None] * 10_000.0**-exponent


@exercise("positions", _shift_cases)
def shift_matrix(k: int, d_model: int) -> Float[Tensor, "to from"]:
    """R with R · PE(pos) = PE(pos + k) for every pos: a rotation of each pair of channels."""
    (angle,) = _angles(torch.tensor([k]), d_model)
    rotation = torch.zeros(d_model, d_model, dtype=torch.float64)
    even, odd = torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)
    rotation[even, even] = rotation[odd, odd] = angle.cos()
    rotation[even, odd], rotation[odd, even] = angle.sin(), -angle.sin()
    return rotation.float()


def _rotary_cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, heads: int, length: int, d_k: int) -> tuple[Tensor, Tensor]:
        position = torch.randint(0, 60, (length,), generator=random)
        return torch.randn(batch, heads, length, d_k, generator=random), position

    x, _ = arguments(1, 2, 4, 6)
    return {
        "values": Case(*arguments(2, 3, 5, 8), gradient=True),
        "from the first on": Case(x, torch.arange(4)),
        "two channels": Case(*arguments(1, 1, 3, 2)),
        "as many heads as tokens": Case(*arguments(2, 4, 4, 6)),
        "far apart": Case(x, torch.tensor([600, 0, 513, 30])),
    }


@exercise("positions", _rotary_cases)
def rotary(
    x: Float[Tensor, "batch heads length d_k"], position: Int[Tensor, " length"]
) -> Float[Tensor, "batch heads length d_k"]:
    """Each pair of channels turned by its angle at the position (Su et al. 2021)."""
    angle = _angles(position, x.size(-1))
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
