"""How far descriptions of one model are from one another."""

from collections.abc import Mapping

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from transformer_lib.plots.style import RC, SEQUENTIAL, new_figure

EQUAL = 1e-12


def difference_map(differences: Mapping[str, Mapping[str, float]]) -> Figure:
    """A row for each part, a column for each description; the darker, the nearer to the paper."""
    import seaborn

    values = np.array([list(row.values()) for row in differences.values()])
    words = [["same" if value < EQUAL else f"{value:.1g}" for value in row] for row in values]
    with matplotlib.rc_context(RC):
        figure = new_figure(7.4, 0.8 + 0.34 * len(values))
        axes = figure.axes[0]
        seaborn.heatmap(
            np.log10(np.maximum(values, EQUAL)),
            annot=words,
            fmt="",
            cmap=SEQUENTIAL,
            linewidths=0.5,
            xticklabels=list(next(iter(differences.values()))),
            yticklabels=list(differences),
            cbar_kws={"label": "log₁₀ of the largest difference"},
            ax=axes,
        )
        axes.grid(visible=False)
        axes.tick_params(axis="y", rotation=0)
    return figure
