"""Pictures of attention weights: a heat map on paper, an explorer on the screen."""

import operator
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from torch import Tensor

from transformer_lib.plots.measurements import heat_map
from transformer_lib.plots.style import SEQUENTIAL, literal, new_figure, styled

if TYPE_CHECKING:
    import altair

CROSS = ("target token", "source token")
SELF = ("token", "looks at")
"""What is at rows and columns, in cross-attention and in self-attention."""

BLOCKED = "#c8c8c8"
WIDEST, HIGHEST = 600, 460
"""Of a heat map, in pixels, so that its title and sliders are seen with it."""


@styled
def attention_heatmap(
    weights: Float[Tensor, "tgt_len src_len"],
    tgt_pieces: Sequence[str],
    src_pieces: Sequence[str],
    labels: tuple[str, str] = CROSS,
) -> Figure:
    """One head's (or a mean's) weights: a row for each query, dark to bright from 0 to 1."""
    width, height = 1.8 + 0.42 * len(src_pieces), 1.2 + 0.34 * len(tgt_pieces)
    figure = new_figure(width, height)
    axes = figure.axes[0]
    heat_map(
        axes,
        weights.numpy(),
        "attention weight",
        vmin=0.0,
        vmax=1.0,
        xticklabels=literal(src_pieces),
        yticklabels=literal(tgt_pieces),
    )
    axes.tick_params(axis="x", rotation=60)
    axes.set_ylabel(labels[0])
    axes.set_xlabel(labels[1])
    return figure


@styled
def attention_heads(
    weights: Float[Tensor, "heads tgt_len src_len"],
    tgt_pieces: Sequence[str],
    src_pieces: Sequence[str],
    labels: tuple[str, str] = CROSS,
) -> Figure:
    """All heads of a layer, two in a row, on one scale from 0 to 1."""
    rows = -(-weights.size(0) // 2)
    sides = literal(src_pieces), literal(tgt_pieces)
    size = 0.9 + 0.24 * len(src_pieces), 0.8 + 0.24 * len(tgt_pieces)
    figure = new_figure(2 * size[0], rows * size[1], 2, rows)
    for head, axes in enumerate(figure.axes[: weights.size(0)]):
        axes.imshow(weights[head].numpy(), vmin=0.0, vmax=1.0, cmap=SEQUENTIAL)
        axes.grid(visible=False)
        axes.set_title(f"head {head + 1}")
        axes.set_xticks(range(len(src_pieces)), sides[0], rotation=90, fontsize=8)
        axes.set_yticks(range(len(tgt_pieces)), sides[1], fontsize=8)
    figure.supylabel(labels[0], fontsize="medium")
    figure.supxlabel(labels[1], fontsize="medium")
    image = figure.axes[0].images[0]
    figure.colorbar(image, ax=figure.axes, label="attention weight", shrink=0.8)
    return figure


def attention_explorer(
    weights: Float[Tensor, "layers heads tgt_len src_len"],
    tgt_pieces: Sequence[str],
    src_pieces: Sequence[str],
    labels: tuple[str, str] = CROSS,
) -> "altair.Chart":
    """An interactive heat map: choose layer and head, point at a cell to read its weight."""
    num_layers, num_heads, *_ = weights.shape
    cells = [
        {"layer": layer + 1, "head": head + 1, **cell}
        for layer in range(num_layers)
        for head in range(num_heads)
        for cell in _cells(weights[layer, head], tgt_pieces, src_pieces, ("target", "source"))
    ]

    return _explorer(
        cells,
        {"layer": _slider("layer", num_layers), "head": _slider("head", num_heads)},
        ("target", "source"),
        labels,
        f"Attention weights of one layer and head, a row for each {labels[0]}.",
    ).properties(width=min(32 * len(src_pieces), WIDEST), height=min(28 * len(tgt_pieces), HIGHEST))


def mask_explorer(
    weights: Mapping[str, Float[Tensor, "sentences queries keys"]],
    masks: Mapping[str, Bool[Tensor, "sentences queries keys"]],
    pieces: Sequence[Sequence[str]],
) -> "altair.Chart":
    """Weights of one head under several masks, by name: choose the sentence and the mask.

    What a mask blocks is gray. It begins, and stays in a picture, with the last of the masks.
    """
    names = [" ".join(sentence).replace(" <pad>", "") for sentence in pieces]
    cells = [
        {"sentence": names[number], "mask": mask, **cell, "blocked": not allowed}
        for mask, matrices in weights.items()
        for number, sentence in enumerate(pieces)
        for cell, allowed in zip(
            _cells(matrices[number], sentence, sentence, ("query", "key")),
            masks[mask][number].flatten().tolist(),
            strict=True,
        )
    ]

    return _explorer(
        cells,
        {"sentence": _menu("sentence", names), "mask": _menu("mask", [*weights][::-1])},
        ("query", "key"),
        ("query (looks)", "key (looked at)"),
        f"Attention weights under the chosen mask, at first “{[*weights][-1]}” on “{names[0]}”; "
        "what is blocked is gray and has weight zero.",
        note="blocked: gray",
    ).properties(width=360, height=300)


def model_explorer(
    attended: Mapping[str, tuple[Float[Tensor, "layers heads queries keys"], list[str], list[str]]],
) -> "altair.Chart":
    """Every kind of attention (weights, who looks, who is looked at), every layer and head."""
    cells = [
        {"kind": kind, "layer": layer, "head": head, **cell}
        for kind, (weights, queries, keys) in attended.items()
        for layer, of_layer in enumerate(weights, start=1)
        for head, of_head in enumerate(of_layer, start=1)
        for cell in _cells(of_head, queries, keys, ("looks", "looked at"))
    ]
    layers = max(len(weights) for weights, _, _ in attended.values())
    heads = max(weights.size(1) for weights, _, _ in attended.values())
    return _explorer(
        cells,
        {
            "kind": _menu("kind", list(attended)),
            "layer": _slider("layer", layers),
            "head": _slider("head", heads),
        },
        ("looks", "looked at"),
        ("looks", "is looked at"),
        "Attention weights of one kind, layer and head, a row for each piece that looks.",
    ).properties(width=360, height=330)


def _slider(name: str, count: int) -> "altair.Parameter":
    import altair

    bind = altair.binding_range(min=1, max=count, step=1, name=f"{name} ")
    return altair.param(name=f"chosen_{name}", value=1, bind=bind)


def _menu(name: str, options: list[str]) -> "altair.Parameter":
    import altair

    bind = altair.binding_select(options=options, name=f"{name} ")
    return altair.param(name=f"chosen_{name}", value=options[0], bind=bind)


def _cells(
    weights: Float[Tensor, "queries keys"],
    queries: Sequence[str],
    keys: Sequence[str],
    fields: tuple[str, str],
) -> list[dict[str, Any]]:
    """A record for each cell; the number before each piece only keeps the order."""
    digits = max(2, len(str(max(len(queries), len(keys)))))
    return [
        {
            fields[0]: f"{q:0{digits}d} {query}",
            fields[1]: f"{k:0{digits}d} {key}",
            "weight": round(float(weights[q - 1, k - 1]), 3),
        }
        for q, query in enumerate(queries, start=1)
        for k, key in enumerate(keys, start=1)
    ]


def _explorer(
    cells: Sequence[Mapping[str, Any]],
    choices: "Mapping[str, altair.Parameter]",
    fields: tuple[str, str],
    titles: tuple[str, str],
    description: str,
    note: str = "",
) -> "altair.Chart":
    """A heat map of those cells whose fields equal the choices; rows first in each pair.

    A cell that is ``blocked`` is gray, which the ``note`` at the end of the title explains.
    """
    import altair
    import pandas

    said = " + ', ' + ".join(f"'{field} ' + {choice.name}" for field, choice in choices.items())
    words = altair.Axis(labelExpr="substring(datum.label, indexof(datum.label, ' ') + 1)")
    said += f" + '; {note}'" if note else ""
    chosen = [altair.datum[field] == choice for field, choice in choices.items()]
    scale = altair.Scale(scheme=SEQUENTIAL, domain=[0, 1])
    color = altair.Color("weight:Q", scale=scale, title="weight")
    return (
        altair.Chart(
            pandas.DataFrame(cells),
            description=description,
            title=altair.Title(altair.expr(said), fontSize=11),
        )
        .mark_rect(stroke="white", strokeWidth=0.5)
        .encode(
            x=altair.X(f"{fields[1]}:O", title=titles[1], axis=words),
            y=altair.Y(f"{fields[0]}:O", title=titles[0], axis=words),
            color=altair.condition("datum.blocked", altair.value(BLOCKED), color)
            if note
            else color,
            tooltip=[*fields, "weight"],
        )
        .add_params(*choices.values())
        .transform_filter(reduce(operator.and_, chosen))
    )
