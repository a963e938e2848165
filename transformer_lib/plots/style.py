"""One look for all figures: white ground, colors that color-blind readers can tell apart."""

from collections.abc import Iterable
from typing import Any, Literal

import matplotlib
from cycler import cycler
from matplotlib.figure import Figure

# Okabe and Ito's colors: distinguishable with every common kind of color blindness.
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
MARKERS = "osD^v*"
DASHES = ("-", "--", ":", "-.", (0, (6, 2, 1, 2, 1, 2)))
SEQUENTIAL: Literal["cividis"] = "cividis"

RC: Any = {
    "figure.facecolor": "white",
    "figure.dpi": 110,
    "axes.prop_cycle": cycler(color=COLORS),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "font.size": 10,
    "legend.frameon": False,
    "svg.hashsalt": "transformer-lib",
}


def literal(texts: Iterable[str]) -> list[str]:
    """The texts themselves as labels; matplotlib would read what is between two $ as TeX."""
    return [text.replace("$", r"\$") for text in texts]


styled = matplotlib.rc_context(RC)
"""Decorates a function that draws: Matplotlib asks for its settings while something is drawn."""


@styled
def new_figure(width: float, height: float, columns: int = 1, rows: int = 1) -> Figure:
    """An empty figure (inches) with this many axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.subplots(rows, columns, squeeze=False)
    return figure
