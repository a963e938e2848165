"""Where a token stands: sinusoidal, learned or no positions (section 3.5)."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

Layout = Literal["interleaved", "halves"]
Positions = Literal["sinusoidal", "sinusoidal_halves", "learned", "none"]


def sinusoidal_positions(
    length: int, d_model: int, layout: Layout = "interleaved"
) -> Float[Tensor, "{length} {d_model}"]:
    """PE(pos, 2i) = sin(pos/10000^(2i/d_model)), PE(pos, 2i+1) = cos(the same angle).

    ``interleaved`` is the paper's order of channels. ``halves`` holds the same numbers with all
    sines in the first half of the channels and all cosines in the second.

    Raises:
        ValueError: d_model is odd, so that a sine would be without its cosine.
    """
    if d_model % 2:
        raise ValueError(f"d_model={d_model} is odd; sinusoids come in pairs, choose an even one")
    position = torch.arange(length, dtype=torch.float64)[:, None]
    frequency = 10000.0 ** -(torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angle = position * frequency
    sine_cosine = torch.stack([angle.sin(), angle.cos()])  # (2, length, d_model/2)
    order = (1, 2, 0) if layout == "interleaved" else (1, 0, 2)
    return sine_cosine.permute(order).reshape(length, d_model).float()


class SinusoidalPositions(nn.Module):
    """Adds sinusoids to the embeddings. Any length: the table is extended when needed."""

    table: Tensor

    def __init__(self, d_model: int, layout: Layout = "interleaved"):
        super().__init__()
        self.layout: Layout = layout
        table = sinusoidal_positions(256, d_model, layout)
        self.register_buffer("table", table, persistent=False)

    def forward(
        self, x: Float[Tensor, "batch length d_model"], start: int = 0
    ) -> Float[Tensor, "batch length d_model"]:
        """``start`` is the position of the first token, for a decoder that goes step by step."""
        end = start + x.size(1)
        if end > self.table.size(0):
            longer = sinusoidal_positions(2 * end, x.size(2), self.layout)
            self.table = longer.to(self.table)
        return x + self.table[start:end].to(x.dtype)


class LearnedPositions(nn.Module):
    """Adds a learned vector per position. Positions past the table's end share its last row.

    So a longer sentence is accepted, but the model has never learned to tell its end apart.
    """

    def __init__(self, d_model: int, max_len: int = 512):
        super().__init__()
        self.table = nn.Parameter(torch.randn(max_len, d_model) * d_model**-0.5)

    def forward(
        self, x: Float[Tensor, "batch length d_model"], start: int = 0
    ) -> Float[Tensor, "batch length d_model"]:
        position = torch.arange(start, start + x.size(1), device=x.device)
        return x + self.table[position.clamp(max=self.table.size(0) - 1)]


class NoPositions(nn.Module):
    """Adds nothing: attention then sees a bag of words."""

    def forward(
        self, x: Float[Tensor, "batch length d_model"], start: int = 0
    ) -> Float[Tensor, "batch length d_model"]:
        return x


def build_positions(kind: Positions, d_model: int) -> nn.Module:
    """The positional encoding of this name."""
    if kind == "sinusoidal":
        return SinusoidalPositions(d_model)
    if kind == "sinusoidal_halves":
        return SinusoidalPositions(d_model, layout="halves")
    if kind == "learned":
        return LearnedPositions(d_model)
    return NoPositions()
