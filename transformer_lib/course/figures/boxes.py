"""Boxes, arrows and grids, of which the drawings of the course are made."""

from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle

Point = tuple[float, float]


def box(axes: Axes, middle: Point, size: Point, text: str, color: str) -> None:
    """A rounded box in a light tone of ``color``, with text in its middle; size: width, height."""
    corner = (middle[0] - size[0] / 2, middle[1] - size[1] / 2)
    axes.add_patch(
        FancyBboxPatch(
            corner, *size, boxstyle="round,pad=0,rounding_size=0.1",
            facecolor=matplotlib.colors.to_rgba(color, 0.22), edgecolor=color,
        )
    )  # fmt: skip
    axes.text(*middle, text, ha="center", va="center", fontsize=9)


def arrow(
    axes: Axes,
    start: Point,
    end: Point,
    color: str = "#333333",
    style: str = "-|>",
    bend: float = 0.0,
) -> None:
    """An arrow from one point to another; ``style`` is one of matplotlib's arrow styles."""
    axes.annotate(
        "",
        end,
        start,
        arrowprops={
            "arrowstyle": style,
            "color": color,
            "shrinkA": 0,
            "shrinkB": 0,
            "connectionstyle": f"arc3,rad={bend}",
        },
    )


def grid(
    axes: Axes,
    left: Point,
    cells: Sequence[Sequence[tuple[tuple[float, ...], str]]],
    size: float,
    name: str,
    below: str,
) -> float:
    """A matrix of cells, each with its color and what is written into it; returns its right edge.

    Args:
        left: the middle of its left edge.
        size: the side of a cell.
        name: stands above it.
        below: stands below it, such as its shape.
    """
    top = left[1] + len(cells) * size / 2
    for row, colors in enumerate(cells):
        for column, (color, text) in enumerate(colors):
            x, y = left[0] + column * size, top - (row + 1) * size
            axes.add_patch(Rectangle((x, y), size, size, facecolor=color, edgecolor="white"))
            if text:
                axes.text(x + size / 2, y + size / 2, text, ha="center", va="center", fontsize=7)
    right = left[0] + len(cells[0]) * size
    axes.text((left[0] + right) / 2, top + 0.18, name, ha="center", va="bottom", fontsize=9)
    bottom = top - len(cells) * size - 0.18
    axes.text((left[0] + right) / 2, bottom, below, ha="center", va="top", fontsize=8)
    return right
