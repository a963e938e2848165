"""What a norm averages over, drawn on the (batch, length, channel) block of a layer's states."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from matplotlib.figure import Figure

from transformer_lib.plots.style import COLORS, styled

Axis = Literal["sentence", "position", "channel"]
SHAPE: dict[Axis, int] = {"sentence": 3, "position": 4, "channel": 5}


@styled
def norm_blocks(averaged: Mapping[str, set[Axis]]) -> Figure:
    """A block for each norm, by name, with the numbers colored that share one mean: those along
    the averaged axes."""
    figure = Figure(figsize=(3.4 * len(averaged), 3.4), layout="constrained")
    for number, (name, axes_of_mean) in enumerate(averaged.items()):
        axes = figure.add_subplot(1, len(averaged), number + 1, projection="3d")
        together = np.zeros(tuple(SHAPE.values()), dtype=bool)
        # One group: everything along the averaged axes, the nearest place of the others.
        place = {"sentence": 0, "position": 0, "channel": SHAPE["channel"] - 1}
        together[tuple(slice(None) if axis in axes_of_mean else place[axis] for axis in SHAPE)] = (
            True
        )
        # One after the other: faces that a colored cube shares with a gray one are drawn, too.
        axes.voxels(together, facecolors=COLORS[1], edgecolor="#777777")
        axes.voxels(~together, facecolors="#bbbbbb22", edgecolor="#777777", linewidth=0.4)
        axes.set(xticks=[], yticks=[], zticks=[], title=name)
        axes.set_xlabel("sentence", labelpad=-12)
        axes.set_ylabel("position", labelpad=-12)
        axes.set_zlabel("channel", labelpad=-12)
        axes.set_box_aspect(tuple(SHAPE.values()), zoom=0.8)
        axes.view_init(elev=22, azim=-58)
    return figure
