"""The Transformer as a drawing (the paper's figure 1), with the chapter that builds each part."""

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from transformer_lib.plots.boxes import arrow, box
from transformer_lib.plots.style import COLOURS, RC, new_figure

BLUE, ORANGE, GREEN, PINK, *_ = COLOURS
WIDTH, HEIGHT = 3.3, 0.52  # of a box
ENCODER, DECODER = 2.6, 7.6  # the columns' middles
ALTERNATIVE = (
    "The Transformer: source tokens pass the embedding, positional encoding and N encoder layers "
    "(self-attention, feed-forward); shifted target tokens pass the same and N decoder layers "
    "(masked self-attention, cross-attention to the encoder's memory, feed-forward), then the "
    "output projection gives the next token. Add-and-norm closes every sublayer."
)

Box = tuple[str, str, float]  # text, colour, height of its middle


def architecture() -> Figure:
    """Encoder on the left, decoder on the right, bottom to top."""
    encoder: list[Box] = [
        ("Embedding  ·  3", GREEN, 1.0),
        ("+ Positional encoding  ·  4", GREEN, 1.8),
        ("Multi-head self-attention  ·  5, 6, 7", BLUE, 3.0),
        ("Add & norm  ·  8, 9", PINK, 3.7),
        ("Feed-forward  ·  10", ORANGE, 4.7),
        ("Add & norm", PINK, 5.4),
    ]
    decoder: list[Box] = [
        *encoder[:2],
        ("Masked self-attention  ·  7", BLUE, 3.0),
        ("Add & norm", PINK, 3.7),
        ("Cross-attention  ·  2, 6", BLUE, 4.7),
        ("Add & norm", PINK, 5.4),
        ("Feed-forward", ORANGE, 6.4),
        ("Add & norm", PINK, 7.1),
        ("Output projection, softmax  ·  3, 10", GREEN, 8.3),
    ]
    with matplotlib.rc_context(RC):
        figure = new_figure(7.6, 6.4)
        axes = figure.axes[0]
        axes.set(xlim=(0, 10.2), ylim=(0, 9.4))
        axes.axis("off")
        _frame(axes, ENCODER, 2.5, 5.8)
        _frame(axes, DECODER, 2.5, 7.5)
        _column(axes, ENCODER, encoder)
        _column(axes, DECODER, decoder)
        for x, top in (
            (ENCODER, 3.7),
            (ENCODER, 5.4),
            (DECODER, 3.7),
            (DECODER, 5.4),
            (DECODER, 7.1),
        ):
            _skip(axes, x, top)
        _label(axes, ENCODER, 0.25, "source tokens")
        _label(axes, DECODER, 0.25, "target tokens, shifted right")
        _label(axes, DECODER, 9.15, "the next token  ·  11 training, 12 decoding")
        arrow(axes, (DECODER, 8.3 + HEIGHT / 2), (DECODER, 9.0))
        memory = (ENCODER + WIDTH / 2 + 0.85, 6.2)
        axes.plot([ENCODER, ENCODER, memory[0], memory[0]], [5.7, 6.2, 6.2, 4.7], color="#333333")
        arrow(axes, (memory[0], 4.7), (DECODER - WIDTH / 2, 4.7))
        _label(axes, ENCODER + 1.2, 6.4, "memory")
    return figure


def _column(axes: Axes, x: float, boxes: list[Box]) -> None:
    below = 0.4
    for text, colour, y in boxes:
        arrow(axes, (x, below), (x, y - HEIGHT / 2))
        box(axes, (x, y), (WIDTH, HEIGHT), text, colour)
        below = y + HEIGHT / 2


def _frame(axes: Axes, x: float, bottom: float, top: float) -> None:
    """The part that is repeated N times."""
    corner = (x - WIDTH / 2 - 0.55, bottom)
    axes.add_patch(
        FancyBboxPatch(
            corner, WIDTH + 0.8, top - bottom, boxstyle="round,pad=0,rounding_size=0.2",
            facecolor="#f4f4f4", edgecolor="#999999", linestyle="--",
        )
    )  # fmt: skip
    axes.text(corner[0] - 0.1, top - 0.25, "N ×", ha="right", va="center")


def _skip(axes: Axes, x: float, top: float) -> None:
    """The residual path around a sublayer, from below it to its add-and-norm."""
    left = x - WIDTH / 2 - 0.3
    bottom = top - 1.12
    axes.plot([x, left, left], [bottom, bottom, top], color="#888888", linewidth=1.1)
    arrow(axes, (left, top), (x - WIDTH / 2, top), "#888888")


def _label(axes: Axes, x: float, y: float, text: str) -> None:
    axes.text(x, y, text, ha="center", va="center", fontsize=9)
