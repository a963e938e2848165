"""Multi-head attention as a drawing: split, attend, join, mix."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from transformer_lib.course.figures.boxes import Point, arrow, grid
from transformer_lib.plots.style import COLORS, new_figure, styled

GRAY = "#888888"
CELL = 0.2


@styled
def multi_head_flow(length: int = 5, heads: int = 3, d_k: int = 4) -> Figure:
    """One sentence's way through the heads: every cell is a number, every color a head."""
    colors = COLORS[:heads]
    d_model = heads * d_k
    wide = [color for color in colors for _ in range(d_k)]
    figure = new_figure(10.2, 3.9)
    axes = figure.axes[0]
    axes.set(xlim=(0, 20.5), ylim=(-3.9, 3.6), aspect="equal")
    axes.axis("off")
    _block(axes, (0.2, 0), length, [GRAY] * d_model, "x", f"({length}, {d_model})")
    _block(axes, (4.2, 0), length, wide, "Q, K, V each", f"({length}, {d_model})")
    rows = [1.9 - 1.9 * head for head in range(heads)]
    for head, (y, color) in enumerate(zip(rows, colors, strict=True)):
        first, last = head == 0, head == heads - 1
        for x, width, name in (
            (8.0, d_k, "split"),
            (10.3, length, "weights"),
            (12.8, d_k, "outputs"),
        ):
            shape = f"({length}, {width})"
            _block(axes, (x, y), length, [color] * width, name * first, shape * last)
        arrow(axes, (6.75, y / 4), (7.85, y))
        arrow(axes, (8.95, y), (10.15, y))
        arrow(axes, (8.95, y - 0.35), (12.65, y - 0.35), bend=0.12)
        axes.text(9.55, y + 0.12, "Q, K", ha="center", fontsize=7)
        axes.text(9.35, y - 0.78, "V", ha="center", fontsize=7)
        arrow(axes, (11.45, y), (12.65, y))
        arrow(axes, (13.75, y), (14.55, y / 4))
    _block(axes, (14.7, 0), length, wide, "joined", f"({length}, {d_model})")
    _block(axes, (17.9, 0), length, [GRAY] * d_model, "output", f"({length}, {d_model})")
    for start, end, name in ((2.7, 4.1, "$W^Q, W^K, W^V$"), (17.15, 17.85, "$W^O$")):
        arrow(axes, (start, 0), (end, 0))
        axes.text((start + end) / 2, 0.75, name, ha="center", fontsize=8)
    return figure


def _block(
    axes: Axes, left: Point, rows: int, colors: Sequence[str], name: str, shape: str
) -> None:
    """Empty cells in columns of the given colors."""
    row = [(to_rgba(color, 0.45), "") for color in colors]
    grid(axes, left, [row] * rows, CELL, name, shape)
