"""Beam search as a tree that unfolds step by step."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from transformer_lib.plots.style import COLOURS

if TYPE_CHECKING:
    import altair


class Node(NamedTuple):
    """A prefix: the piece at its end, the place of the prefix that it continues, its log p."""

    step: int
    rank: int
    parent: int | None
    piece: str
    log_p: float
    fate: Literal["goes on", "finished", "dropped"]


STATES = {"goes on": COLOURS[0], "finished": COLOURS[2], "dropped": "#999999"}


def beam_tree(nodes: Sequence[Node]) -> "altair.LayerChart":
    """Each step is a column, its best candidate on top; a slider says how far to look.

    ``parent`` is the rank of a node of the step before.
    """
    import altair
    import pandas

    last, lowest = max(node.step for node in nodes), max(node.rank for node in nodes)
    points = [
        {
            "step": node.step,
            "rank": node.rank,
            "piece": node.piece,
            "log p": round(node.log_p, 2),
            "fate": node.fate,
            "from step": node.step - 1,
            "from rank": node.parent,
        }
        for node in nodes
    ]
    slider = altair.binding_range(min=1, max=last, step=1, name="step ")
    chosen = altair.param(name="chosen_step", value=last, bind=slider)

    def x(field: str) -> altair.X:
        axis = altair.Axis(values=list(range(last + 1)), format="d", grid=False)
        scale = altair.Scale(domain=[-0.3, last + 0.6], nice=False)
        return altair.X(field, title="step", axis=axis, scale=scale)

    def y(field: str) -> altair.Y:
        axis = altair.Axis(values=list(range(1, lowest + 1)), format="d", grid=False)
        scale = altair.Scale(domain=[lowest + 0.5, 0.5], nice=False)
        return altair.Y(field, title="place among the candidates", axis=axis, scale=scale)

    colour = altair.Color(
        "fate:N",
        scale=altair.Scale(domain=list(STATES), range=list(STATES.values())),
        title=None,
        legend=altair.Legend(orient="top"),
    )
    tooltip = ["piece", "log p", "fate"]
    chart = altair.Chart(pandas.DataFrame(points)).transform_filter(altair.datum.step <= chosen)
    here = chart.encode(x=x("step:Q"), y=y("rank:Q"), tooltip=tooltip)
    edges = (
        chart.transform_filter(altair.datum.step > 0)
        .mark_rule(opacity=0.6)
        .encode(x=x("from step:Q"), x2="step:Q", y=y("from rank:Q"), y2="rank:Q", color=colour)
    )
    dots = here.mark_circle(size=60, opacity=1).encode(color=colour)
    labels = here.mark_text(align="left", dx=6, dy=-7).encode(text="piece")
    return (
        altair.layer(edges, dots, labels)
        .add_params(chosen)
        .properties(
            width=78 * (last + 1),
            height=44 * lowest,
            description="Tree of a beam search: at each step the best candidates, where they come "
            "from, and which of them go on, are finished or are dropped.",
        )
    )
