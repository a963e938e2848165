"""The Transformer as a drawing (the paper's figure 1), with the chapters that build each part."""

from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from transformer_lib.course.figures.boxes import arrow, box
from transformer_lib.plots.style import COLORS, new_figure, styled

BLUE, ORANGE, GREEN, PINK, *_ = COLORS
WIDTH, HEIGHT = 3.5, 0.52  # of a box
ENCODER, DECODER = 2.7, 7.9  # the columns' middles
ALTERNATIVE = (
    "The Transformer: source tokens pass the embedding, positional encoding and N encoder layers "
    "(self-attention, feed-forward); shifted target tokens pass the same and N decoder layers "
    "(masked self-attention, cross-attention with keys and values from the encoder's memory, "
    "feed-forward), then the output projection gives the next token. Add-and-norm closes every "
    "sublayer."
)


class Part(NamedTuple):
    """A box: the chapters that build what is in it, and the height of its middle."""

    name: str
    chapters: tuple[int, ...]
    color: str
    y: float


INPUT = [
    Part("Embedding", (3,), GREEN, 1.0),
    Part("+ Positional encoding", (4,), GREEN, 1.8),
]
ENCODER_LAYER = [
    Part("Multi-head self-attention", (5, 6), BLUE, 3.0),
    Part("Add & norm", (8, 9), PINK, 3.7),
    Part("Feed-forward", (10,), ORANGE, 4.7),
    Part("Add & norm", (8, 9), PINK, 5.4),
]
DECODER_LAYER = [
    Part("Masked self-attention", (7,), BLUE, 3.0),
    Part("Add & norm", (8, 9), PINK, 3.7),
    Part("Cross-attention", (2, 7), BLUE, 4.7),
    Part("Add & norm", (8, 9), PINK, 5.4),
    Part("Feed-forward", (10,), ORANGE, 6.4),
    Part("Add & norm", (8, 9), PINK, 7.1),
]
OUTPUT = Part("Output projection, softmax", (3, 10), GREEN, 8.3)


@styled
def architecture() -> Figure:
    """Encoder on the left, decoder on the right, bottom to top."""
    figure = new_figure(7.6, 6.4)
    axes = figure.axes[0]
    axes.set(xlim=(0, 10.5), ylim=(0, 9.4))
    axes.axis("off")
    _frame(axes, ENCODER, 2.5, 5.8)
    _frame(axes, DECODER, 2.5, 7.5)
    _column(axes, ENCODER, [*INPUT, *ENCODER_LAYER])
    _column(axes, DECODER, [*INPUT, *DECODER_LAYER, OUTPUT])
    for x, layer in ((ENCODER, ENCODER_LAYER), (DECODER, DECODER_LAYER)):
        for part in layer:
            if part.name == "Add & norm":
                _skip(axes, x, part.y)
    _label(axes, ENCODER, 0.25, "source tokens, batch × src_len")
    _label(axes, DECODER, 0.25, "target tokens, shifted right, batch × tgt_len")
    _label(axes, DECODER, 9.15, "the next token  ·  11 training, 12 decoding")
    for x, length, heights in (
        (ENCODER, "src_len", (2.27,)),
        (DECODER, "tgt_len", (2.27, 7.7)),
    ):
        for y in heights:
            _shape(axes, x, y, f"batch × {length} × d_model")
    _shape(axes, DECODER, 8.75, "batch × tgt_len × vocabulary")
    arrow(axes, (DECODER, OUTPUT.y + HEIGHT / 2), (DECODER, 9.0))
    memory = (ENCODER + WIDTH / 2 + 0.85, 6.2)
    axes.plot([ENCODER, ENCODER, memory[0], memory[0]], [5.7, 6.2, 6.2, 4.7], color="#333333")
    arrow(axes, (memory[0], 4.7), (DECODER - WIDTH / 2, 4.7))
    _label(axes, ENCODER + 1.2, 6.6, "memory")
    _shape(axes, ENCODER + 0.02, 6.38, "batch × src_len × d_model")
    _label(axes, memory[0] - 0.3, 4.9, "K, V")
    _label(axes, DECODER + 0.2, 4.2, "Q")
    return figure


def _column(axes: Axes, x: float, parts: list[Part]) -> None:
    below = 0.4
    for part in parts:
        arrow(axes, (x, below), (x, part.y - HEIGHT / 2))
        chapters = ", ".join(str(chapter) for chapter in part.chapters)
        box(axes, (x, part.y), (WIDTH, HEIGHT), f"{part.name}  ·  {chapters}", part.color)
        below = part.y + HEIGHT / 2


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


def _shape(axes: Axes, x: float, y: float, text: str) -> None:
    """Beside an arrow that goes up at x."""
    axes.text(x + 0.12, y, text, ha="left", va="center", fontsize=7.5, color="#555555")


def _label(axes: Axes, x: float, y: float, text: str) -> None:
    axes.text(x, y, text, ha="center", va="center", fontsize=9)
