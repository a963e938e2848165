"""Beam search as a tree that unfolds step by step."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from jaxtyping import Float
from torch import Tensor

from transformer_lib.decoding.search import length_penalty
from transformer_lib.plots.style import COLORS
from transformer_lib.vocabulary import BOS, EOS

if TYPE_CHECKING:
    import altair

Fate = Literal[
    "on the way to the best one", "goes on", "finished", "dropped", "not needed any more"
]
STATES: dict[Fate, str] = {
    "on the way to the best one": COLORS[1],
    "goes on": COLORS[0],
    "finished": COLORS[2],
    "dropped": "#aaaaaa",
    "not needed any more": "#dddddd",
}


class Node(NamedTuple):
    """A prefix: the piece at its end, the place of the prefix that it continues, its log p."""

    step: int
    rank: int
    parent: int | None
    piece: str
    log_p: float
    fate: Fate


def trace(
    next_log_p: Callable[[list[list[int]]], Float[Tensor, "prefixes vocab_size"]],
    beam_size: int,
    name: Callable[[int], str],
    alpha: float = 0.6,
    limit: int = 50,
) -> list[Node]:
    """A beam search with every candidate that it has looked at, as nodes of a tree.

    Args:
        next_log_p: ln p of each next token, for prefixes of one length.
        name: the piece of a token.
    """
    beam: list[tuple[list[int], float, int]] = [([BOS], 0.0, 1)]  # tokens, ln p, rank
    nodes = [Node(0, 1, None, name(BOS), 0.0, "goes on")]
    finished: list[tuple[float, Node]] = []
    for step in range(1, limit):
        log_p = next_log_p([tokens for tokens, _, _ in beam])
        totals = log_p.new_tensor([total for _, total, _ in beam])[:, None] + log_p
        best = totals.flatten().topk(2 * beam_size)
        parents, beam = beam, []
        for rank, (total, index) in enumerate(
            zip(best.values.tolist(), best.indices.tolist(), strict=True), start=1
        ):
            (tokens, _, parent), token = parents[index // log_p.size(1)], index % log_p.size(1)
            ends = token == EOS and rank <= beam_size
            goes_on = token != EOS and len(beam) < beam_size
            fate: Fate = "finished" if ends else "goes on" if goes_on else "dropped"
            nodes.append(Node(step, rank, parent, name(token), total, fate))
            if ends:
                finished.append((total / length_penalty(step, alpha), nodes[-1]))
            elif goes_on:
                beam.append(([*tokens, token], total, rank))
        if len(finished) >= beam_size:
            break
    winner = max(finished, key=lambda found: found[0])[1]
    return [_seen_from_the_end(node, nodes[-1].step, _path(winner, nodes)) for node in nodes]


def _path(node: Node, nodes: Sequence[Node]) -> set[Node]:
    """A node and all that it comes from."""
    places = {(other.step, other.rank): other for other in nodes}
    path = {node}
    while node.parent is not None:
        node = places[node.step - 1, node.parent]
        path.add(node)
    return path


def _seen_from_the_end(node: Node, last: int, path: set[Node]) -> Node:
    if node in path:
        return node._replace(fate="on the way to the best one")
    if node.step == last and node.fate == "goes on":
        return node._replace(fate="not needed any more")
    return node


def beam_tree(nodes: Sequence[Node]) -> "altair.LayerChart":
    """Each step is a column, its best candidate on top; a slider says how far to look.

    ``parent`` is the rank of a node of the step before. Under each piece stands its log p.
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
        scale = altair.Scale(domain=[-0.3, last + 0.7], nice=False)
        return altair.X(field, title="step", axis=axis, scale=scale)

    def y(field: str) -> altair.Y:
        axis = altair.Axis(values=list(range(1, lowest + 1)), format="d", grid=False)
        scale = altair.Scale(domain=[lowest + 0.6, 0.4], nice=False)
        return altair.Y(field, title="place among the candidates", axis=axis, scale=scale)

    color = altair.Color(
        "fate:N",
        scale=altair.Scale(domain=list(STATES), range=list(STATES.values())),
        title=None,
        legend=altair.Legend(orient="top", labelLimit=0, columns=5),
    )
    tooltip = ["piece", "log p", "fate"]
    chart = altair.Chart(pandas.DataFrame(points)).transform_filter(altair.datum.step <= chosen)
    here = chart.encode(x=x("step:Q"), y=y("rank:Q"), tooltip=tooltip)
    edges = (
        chart.transform_filter(altair.datum.step > 0)
        .mark_rule(opacity=0.7)
        .encode(x=x("from step:Q"), x2="step:Q", y=y("from rank:Q"), y2="rank:Q", color=color)
    )
    dots = here.mark_circle(size=60, opacity=1).encode(color=color)
    words = []
    for field, size, below in (("piece:N", 11, -6), ("log p:Q", 8.5, 7)):
        place = {"align": "left", "dx": 6, "dy": below, "fontSize": size}
        halo = here.mark_text(stroke="white", strokeWidth=4, **place).encode(text=field)
        words += [halo, here.mark_text(color="#333333", **place).encode(text=field)]
    return (
        altair.layer(edges, dots, *words)
        .add_params(chosen)
        .properties(
            width=74 * (last + 1),
            height=50 * lowest,
            description="Tree of a beam search, with its last step chosen: at each step the best "
            "candidates, where they come from, and which of them go on, are finished or dropped; "
            "the way to the best hypothesis is marked.",
        )
    )
