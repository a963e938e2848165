"""Boxes and arrows, of which the drawings of the course are made."""

import matplotlib
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

Point = tuple[float, float]


def box(axes: Axes, middle: Point, size: Point, text: str, colour: str) -> None:
    """A rounded box in a light tone of ``colour``, with text in its middle; size: width, height."""
    corner = (middle[0] - size[0] / 2, middle[1] - size[1] / 2)
    axes.add_patch(
        FancyBboxPatch(
            corner, *size, boxstyle="round,pad=0,rounding_size=0.1",
            facecolor=matplotlib.colors.to_rgba(colour, 0.22), edgecolor=colour,
        )
    )  # fmt: skip
    axes.text(*middle, text, ha="center", va="center", fontsize=9)


def arrow(axes: Axes, start: Point, end: Point, colour: str = "#333333") -> None:
    """An arrow from one point to another."""
    axes.annotate(
        "",
        end,
        start,
        arrowprops={"arrowstyle": "-|>", "color": colour, "shrinkA": 0, "shrinkB": 0},
    )
