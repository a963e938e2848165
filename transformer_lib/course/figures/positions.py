"""Pictures of positional encodings."""

from collections.abc import Mapping
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from transformer_lib.plots.style import COLORS, DASHES, SEQUENTIAL, new_figure, styled

if TYPE_CHECKING:
    import altair

BLUE, ORANGE, *_ = COLORS
DIVERGING = "RdBu_r"


@styled
def position_tables(tables: Mapping[str, Float[Tensor, "length d_model"]]) -> Figure:
    """Each table as a heat map, positions downwards, channels to the right; one color scale."""
    figure = new_figure(0.8 + 3.4 * len(tables), 3.4, len(tables))
    largest = max(float(table.abs().max()) for table in tables.values())
    for axes, (name, table) in zip(figure.axes, tables.items(), strict=True):
        axes.imshow(table.numpy(), cmap=DIVERGING, vmin=-largest, vmax=largest, aspect="auto")
        axes.grid(visible=False)
        axes.set_title(name)
        axes.set_xlabel("channel")
    figure.axes[0].set_ylabel("position")
    figure.colorbar(figure.axes[0].images[0], ax=figure.axes, label="value")
    return figure


@styled
def similarity_map(similarity: Float[Tensor, "length length"]) -> Figure:
    """How alike any two positions are; beside it, the similarity over the distance."""
    figure = new_figure(8.2, 3.4, columns=2)
    left, right = figure.axes
    image = left.imshow(similarity.numpy(), cmap=SEQUENTIAL)
    left.grid(visible=False)
    left.set_xlabel("position q")
    left.set_ylabel("position p")
    left.set_title("PE(p) · PE(q)")
    figure.colorbar(image, ax=left)
    length = similarity.size(0)
    for position, style in ((0, "-"), (length // 2, "--")):
        distance = np.arange(length) - position
        right.plot(distance, similarity[position].numpy(), style, label=f"p = {position}")
    right.set_xlabel("distance q − p")
    right.set_ylabel("PE(p) · PE(q)")
    right.legend()
    return figure


@styled
def accuracy_by_position(
    accuracy: Mapping[str, Float[Tensor, " positions"]],
    first: int,
    trained_length: int,
    chance: float,
) -> Figure:
    """Share of right answers from position ``first`` on; beyond the training length is shaded."""
    figure = new_figure(6.6, 3.4)
    axes = figure.axes[0]
    for (name, values), dashes in zip(accuracy.items(), cycle(DASHES), strict=False):
        positions = range(first, first + len(values))
        axes.plot(positions, values.numpy(), linestyle=dashes, label=name, linewidth=1.8)
    end = axes.get_xlim()[1]
    axes.axvspan(trained_length - 0.5, end, color="#e5e5e5", zorder=0)
    axes.axhline(chance, color="black", linewidth=0.8, linestyle=(0, (1, 3)))
    axes.text(1.01, chance, "chance", transform=axes.get_yaxis_transform(), va="center")
    axes.set(xlim=(first - 0.5, end), ylim=(0, 1.05))
    axes.set_xlabel("position (shaded: beyond every training sequence)")
    axes.set_ylabel("share of right answers")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(accuracy))
    return figure


def wave_explorer(table: Float[Tensor, "length d_model"]) -> "altair.Chart":
    """Sine and cosine of one pair of channels over the positions; a slider chooses the pair."""
    import altair
    import pandas

    length, d_model = table.shape
    rows = [
        {
            "position": position,
            "value": round(float(table[position, channel]), 3),
            "pair": channel // 2,
            "wave": "cosine" if channel % 2 else "sine",
        }
        for channel in range(d_model)
        for position in range(length)
    ]
    slider = altair.binding_range(min=0, max=d_model // 2 - 1, step=1, name="pair i ")
    pair = altair.param(name="chosen_pair", value=0, bind=slider)
    return (
        altair.Chart(
            pandas.DataFrame(rows),
            description="Sine and cosine of one channel pair over the positions; the waves become "
            "longer from pair to pair.",
        )
        .mark_line(point=True)
        .encode(
            x=altair.X("position:Q", title="position"),
            y=altair.Y("value:Q", title="value", scale=altair.Scale(domain=[-1, 1])),
            color=altair.Color("wave:N", scale=altair.Scale(range=[ORANGE, BLUE])),
            strokeDash="wave:N",
            tooltip=["position", "wave", "value"],
        )
        .add_params(pair)
        .transform_filter(altair.datum.pair == pair)
        .properties(
            width=520, height=220, title=altair.Title(altair.expr(f"'pair ' + {pair.name}"))
        )
    )
