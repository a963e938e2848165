"""Multi-head attention as a drawing: split, attend, join, mix."""

from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from transformer_lib.course.figures.boxes import Point, arrow
from transformer_lib.plots.style import COLOURS, RC, new_figure

GREY = "#888888"
CELL = 0.2


def multi_head_flow(length: int = 5, heads: int = 3, d_k: int = 4) -> Figure:
    """One sentence's way through the heads: every cell is a number, every colour a head."""
    colours = COLOURS[:heads]
    d_model = heads * d_k
    wide = [colour for colour in colours for _ in range(d_k)]
    with matplotlib.rc_context(RC):
        figure = new_figure(10.2, 3.9)
        axes = figure.axes[0]
        axes.set(xlim=(0, 20.5), ylim=(-3.9, 3.6), aspect="equal")
        axes.axis("off")
        _grid(axes, (0.2, 0), length, [GREY] * d_model, "x", f"({length}, {d_model})")
        _grid(axes, (4.2, 0), length, wide, "Q, K, V each", f"({length}, {d_model})")
        rows = [1.9 - 1.9 * head for head in range(heads)]
        for head, (y, colour) in enumerate(zip(rows, colours, strict=True)):
            last = head == heads - 1
            one = "" if head else "split"
            _grid(axes, (8.0, y), length, [colour] * d_k, one, f"({length}, {d_k})" * last)
            one = "" if head else "weights"
            _grid(axes, (10.3, y), length, [colour] * length, one, f"({length}, {length})" * last)
            one = "" if head else "outputs"
            _grid(axes, (12.8, y), length, [colour] * d_k, one, f"({length}, {d_k})" * last)
            arrow(axes, (6.75, y / 4), (7.85, y))
            arrow(axes, (8.95, y), (10.15, y))
            arrow(axes, (11.45, y), (12.65, y))
            arrow(axes, (13.75, y), (14.55, y / 4))
        _grid(axes, (14.7, 0), length, wide, "joined", f"({length}, {d_model})")
        _grid(axes, (17.9, 0), length, [GREY] * d_model, "output", f"({length}, {d_model})")
        for start, end, name in ((2.7, 4.1, "$W^Q, W^K, W^V$"), (17.15, 17.85, "$W^O$")):
            arrow(axes, (start, 0), (end, 0))
            axes.text((start + end) / 2, 0.75, name, ha="center", fontsize=8)
    return figure


def _grid(
    axes: Axes, left: Point, rows: int, colours: Sequence[str], name: str, shape: str
) -> None:
    """Cells in columns of the given colours; the left edge's middle is at ``left``."""
    top = left[1] + rows * CELL / 2
    for row in range(rows):
        for column, colour in enumerate(colours):
            corner = left[0] + column * CELL, top - (row + 1) * CELL
            face = matplotlib.colors.to_rgba(colour, 0.45)
            axes.add_patch(
                matplotlib.patches.Rectangle(corner, CELL, CELL, facecolor=face, edgecolor="white")
            )
    middle = left[0] + len(colours) * CELL / 2
    axes.text(middle, top + 0.18, name, ha="center", va="bottom", fontsize=9)
    axes.text(middle, top - rows * CELL - 0.2, shape, ha="center", va="top", fontsize=8)
