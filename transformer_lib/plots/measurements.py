"""Measured values over what was varied."""

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from transformer_lib.plots.style import (
    COLORS,
    DASHES,
    MARKERS,
    SEQUENTIAL,
    literal,
    new_figure,
    styled,
)

if TYPE_CHECKING:
    import pandas

Line = tuple[Sequence[float], Sequence[float]]


@styled
def lines(
    series: Mapping[str, Line],
    labels: tuple[str, str],
    logarithmic: Literal["", "x", "y", "xy"] = "",
) -> Figure:
    """Each line's x and y, by its name; ``labels`` of the two axes; the x-axis counts doublings."""
    figure = new_figure(6.0, 3.4)
    axes = figure.axes[0]
    looks = zip(series.values(), cycle(MARKERS), cycle(DASHES), strict=False)
    for (x, y), marker, dashes in looks:  # colors alone are not told apart in gray
        few = len(x) <= 20
        axes.plot(x, y, marker=marker if few else "", linestyle="-" if few else dashes)
    if "x" in logarithmic:
        axes.set_xscale("log", base=2)
        ticks = _doublings([x for x, _ in series.values()])
        axes.set_xticks(ticks, [f"{tick:.4g}" for tick in ticks])
    if "y" in logarithmic:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    if len(series) > 1:
        axes.legend(axes.lines, literal(series))
    return figure


def _doublings(measured: Sequence[Sequence[float]]) -> list[float]:
    """The measured places, if all lines share them; otherwise powers of two."""
    everywhere = {value for x in measured for value in x}
    if all(everywhere == set(x) for x in measured):
        return sorted(everywhere)
    low, high = (math.log2(value) for value in (min(everywhere), max(everywhere)))
    return [2.0**exponent for exponent in range(math.ceil(low), math.floor(high) + 1)]


@styled
def points(
    values: Mapping[str, tuple[float, float]], labels: tuple[str, str], logarithmic: bool = False
) -> Figure:
    """Named points; ``labels`` of the two axes."""
    figure = new_figure(6.6, 3.6)
    axes = figure.axes[0]
    if logarithmic:
        axes.set_xscale("log")

    def scaled(name: str) -> tuple[float, float]:
        x, y = values[name]
        return (math.log(x) if logarithmic else x), y

    width, height = (max(side) - min(side) for side in zip(*map(scaled, values), strict=True))
    for name in values:
        (x, y), (shown,) = scaled(name), literal([name])
        crowded = any(
            0 < other_x - x < width / 3 and abs(other_y - y) < height / 12
            for other_x, other_y in map(scaled, values)
        )
        axes.plot(*values[name], "o", color=COLORS[0])
        offset, side = ((-7, -4), "right") if crowded else ((7, -4), "left")
        axes.annotate(shown, values[name], offset, textcoords="offset points", ha=side, fontsize=9)
    axes.margins(x=0.45, y=0.1)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    return figure


@styled
def bars(
    series: Mapping[str, Sequence[float]],
    groups: Sequence[str],
    labels: tuple[str, str],
    spreads: Mapping[str, Sequence[float]] | None = None,
) -> Figure:
    """A bar of each series for each group, ± its spread if given; ``labels`` of the two axes."""
    figure = new_figure(6.0, 3.2)
    axes = figure.axes[0]
    width = 0.8 / len(series)
    drawn: list[Any] = []
    for number, ((name, values), hatch) in enumerate(
        zip(series.items(), cycle(("", "//", "..", "xx")), strict=False)
    ):
        x = [i + (number - (len(series) - 1) / 2) * width for i in range(len(groups))]
        error = spreads[name] if spreads else None
        drawn.append(axes.bar(x, values, width, yerr=error, capsize=3, hatch=hatch, alpha=0.9))
    axes.set_xticks(range(len(groups)), literal(groups))
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    if len(series) > 1:
        axes.legend(
            drawn,
            literal(series),
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=len(series),
        )
    return figure


@styled
def histogram(
    values: Sequence[float],
    labels: tuple[str, str],
    mark: float,
    bins: int | Sequence[float] = 40,
) -> Figure:
    """How often each value occurs; a dashed line at ``mark``; ``bins`` as Matplotlib's."""
    figure = new_figure(6.0, 2.8)
    axes = figure.axes[0]
    axes.hist(values, bins=bins, alpha=0.9)
    axes.axvline(mark, color="black", linestyle="--", linewidth=1)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    return figure


@styled
def counts(values: Mapping[str, int], label: str) -> Figure:
    """A horizontal bar for each name, the first one at the bottom; ``label`` of what is counted."""
    figure = new_figure(8.0, 0.8 + 0.3 * len(values))
    axes = figure.axes[0]
    axes.barh(literal(values), list(values.values()), alpha=0.9)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(label)
    return figure


@styled
def heat_table(table: "pandas.DataFrame", label: str, highest: float) -> Figure:
    """A table of shares, each written into its field, colored from 0 to ``highest``."""
    rows, columns = table.shape
    figure = new_figure(2.4 + 1.0 * columns, 0.9 + 0.32 * rows)
    heat_map(figure.axes[0], table, label, vmin=0.0, vmax=highest, annot=True, fmt=".2f")
    figure.axes[0].xaxis.tick_top()  # where they are seen beside the first rows of a long one
    return figure


def heat_map(axes: Axes, values: Any, label: str, **settings: Any) -> None:
    """seaborn's, in the course's style; ``label`` of the color scale."""
    import seaborn
    from seaborn.utils import relative_luminance

    seaborn.heatmap(
        values, cmap=SEQUENTIAL, linewidths=0.5, cbar_kws={"label": label}, ax=axes, **settings
    )
    axes.grid(visible=False)  # its lines would cross the cells
    axes.tick_params(axis="y", rotation=0)
    mesh: Any = axes.collections[0]
    mesh.update_scalarmappable()
    shown = ~np.ma.getmaskarray(mesh.get_array()).ravel()
    for text, color in zip(axes.texts, mesh.get_facecolors()[shown], strict=False):
        # With black above this luminance and white below, the contrast is highest everywhere.
        text.set_color("black" if relative_luminance(color) > 0.18 else "white")
