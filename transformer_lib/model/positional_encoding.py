"""Where a token is: sinusoidal, learned or no positions (section 3.5)."""

from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

Layout = Literal["interleaved", "halves"]
Positions = Literal["sinusoidal", "sinusoidal_halves", "learned", "none"]
Start = int | Int[Tensor, "batch length"]
MakeTable = Callable[[int, int], Float[Tensor, "length d_model"]]


def sinusoidal_positions(
    length: int, d_model: int, layout: Layout = "interleaved"
) -> Float[Tensor, "{length} {d_model}"]:
    """PE(pos, 2i) = sin(pos/10000^(2i/d_model)), PE(pos, 2i+1) = cos(the same angle).

    ``interleaved`` is the paper's order of channels. ``halves`` holds the same numbers with all
    sines in the first half of the channels and all cosines in the second.

    Raises:
        ValueError: d_model is odd, so that a sine would be without its cosine; or there is no such
            layout.
    """
    if d_model % 2:
        raise ValueError(f"d_model={d_model} is odd; sinusoids come in pairs, choose an even one")
    if layout not in get_args(Layout):
        raise ValueError(f"there is no layout {layout!r}; choose interleaved or halves")
    exponent = torch.arange(0, d_model, 2, dtype=torch.float64) / d_model
    angle = torch.arange(length)[:, None] / 10000.0**exponent
    pairs = torch.stack((angle.sin(), angle.cos()), 1 if layout == "halves" else 2)
    return pairs.flatten(1).to(torch.get_default_dtype())


class SinusoidalPositions(nn.Module):
    """Adds sinusoids to the embeddings. Any length: the table is extended when needed.

    ``make_table`` computes it from a length and d_model, as :func:`sinusoidal_positions` does.
    """

    table: Tensor

    def __init__(self, d_model: int, make_table: MakeTable = sinusoidal_positions):
        super().__init__()
        self.make_table = make_table
        self.register_buffer("table", make_table(256, d_model), persistent=False)

    def forward(
        self, x: Float[Tensor, "batch length d_model"], start: Start = 0
    ) -> Float[Tensor, "batch length d_model"]:
        """``start`` is the position of the first token, for a decoder that goes step by step.

        It may also be a tensor with the position of each token, which is less than the length.
        """
        end = x.size(1) + (start if isinstance(start, int) else 0)
        if end > self.table.size(0):
            self.table = self.make_table(2 * end, x.size(2)).to(self.table)
        rows = self.table[start:end] if isinstance(start, int) else self.table[start]
        return x + rows.to(x.dtype)


LEARNED_POSITIONS = 512


class LearnedPositions(nn.Module):
    """Adds a learned vector per position. Positions past the table's end share its last row.

    So a longer sentence is accepted, but the model has never learned to tell its end apart.
    """

    def __init__(self, d_model: int, max_len: int = LEARNED_POSITIONS):
        super().__init__()
        self.table = nn.Parameter(torch.randn(max_len, d_model) * d_model**-0.5)

    def forward(
        self, x: Float[Tensor, "batch length d_model"], start: Start = 0
    ) -> Float[Tensor, "batch length d_model"]:
        position = start
        if isinstance(position, int):
            position = torch.arange(position, position + x.size(1), device=x.device)
        return x + self.table[position.clamp(max=self.table.size(0) - 1)]


class NoPositions(nn.Module):
    """Adds nothing: attention then sees a bag of words."""

    def forward(
        self, x: Float[Tensor, "batch length d_model"], start: Start = 0
    ) -> Float[Tensor, "batch length d_model"]:
        return x


def build_positions(kind: Positions, d_model: int) -> nn.Module:
    """The positional encoding of this name.

    Raises:
        ValueError: there is none.
    """
    if kind == "sinusoidal":
        return SinusoidalPositions(d_model)
    if kind == "sinusoidal_halves":
        return SinusoidalPositions(d_model, partial(sinusoidal_positions, layout="halves"))
    if kind == "learned":
        return LearnedPositions(d_model)
    if kind == "none":
        return NoPositions()
    raise ValueError(f"no positions are called {kind!r}; choose from {get_args(Positions)}")
