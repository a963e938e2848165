"""How far descriptions of one model are from one another."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from transformer_lib.course.lineages.differences import EQUAL, in_words
from transformer_lib.plots.measurements import heat_map
from transformer_lib.plots.style import new_figure, styled


@styled
def difference_map(differences: Mapping[str, Mapping[str, float]]) -> Figure:
    """A row for each part, a column for each description; the darker, the nearer to the paper."""
    values = np.array([list(row.values()) for row in differences.values()])
    words = [[in_words(value, digits=1) for value in row] for row in values]
    values = np.nan_to_num(values, nan=np.nanmax(values))  # as far away as can be
    figure = new_figure(7.4, 0.8 + 0.34 * len(values))
    heat_map(
        figure.axes[0],
        np.log10(np.maximum(values, EQUAL)),
        "log₁₀ of the largest difference",
        annot=words,
        fmt="",
        xticklabels=list(next(iter(differences.values()))),
        yticklabels=list(differences),
    )
    return figure
