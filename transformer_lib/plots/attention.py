"""Pictures of attention weights: a heat map on paper, an explorer on the screen."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import matplotlib
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from transformer_lib.plots.style import RC, SEQUENTIAL, new_figure

if TYPE_CHECKING:
    import altair

CROSS = ("target token", "source token")
SELF = ("token", "looks at")
"""What stands at rows and columns, in cross-attention and in self-attention."""


def attention_heatmap(
    weights: Float[Tensor, "tgt_len src_len"],
    tgt_pieces: Sequence[str],
    src_pieces: Sequence[str],
    labels: tuple[str, str] = CROSS,
) -> Figure:
    """One head's (or a mean's) weights: a row for each query, dark to bright from 0 to 1."""
    width, height = 1.8 + 0.42 * len(src_pieces), 1.2 + 0.34 * len(tgt_pieces)
    with matplotlib.rc_context(RC):
        figure = new_figure(width, height)
        draw_attention(figure.axes[0], weights, tgt_pieces, src_pieces, labels)
    return figure


def attention_heads(
    weights: Float[Tensor, "heads tgt_len src_len"],
    tgt_pieces: Sequence[str],
    src_pieces: Sequence[str],
) -> Figure:
    """All heads of a layer, two in a row, on one scale from 0 to 1."""
    rows = -(-weights.size(0) // 2)
    with matplotlib.rc_context(RC):
        size = 0.9 + 0.24 * len(src_pieces), 0.8 + 0.24 * len(tgt_pieces)
        figure = new_figure(2 * size[0], rows * size[1], 2, rows)
        for head, axes in enumerate(figure.axes[: weights.size(0)]):
            axes.imshow(weights[head].numpy(), vmin=0.0, vmax=1.0, cmap=SEQUENTIAL)
            axes.grid(visible=False)
            axes.set_title(f"head {head + 1}")
            axes.set_xticks(range(len(src_pieces)), src_pieces, rotation=90, fontsize=8)
            axes.set_yticks(range(len(tgt_pieces)), tgt_pieces, fontsize=8)
        image = figure.axes[0].images[0]
        figure.colorbar(image, ax=figure.axes, label="attention weight", shrink=0.8)
    return figure


def draw_attention(
    axes: Axes,
    weights: Float[Tensor, "tgt_len src_len"],
    tgt_pieces: Sequence[str],
    src_pieces: Sequence[str],
    labels: tuple[str, str] = CROSS,
) -> None:
    """The heat map of :func:`attention_heatmap` into existing axes."""
    import seaborn

    seaborn.heatmap(
        weights.numpy(),
        vmin=0.0,
        vmax=1.0,
        cmap=SEQUENTIAL,
        xticklabels=list(src_pieces),
        yticklabels=list(tgt_pieces),
        linewidths=0.5,
        cbar_kws={"label": "attention weight"},
        ax=axes,
    )
    axes.grid(visible=False)  # it would run through the middle of the cells
    axes.tick_params(axis="x", rotation=60)
    axes.tick_params(axis="y", rotation=0)
    axes.set_ylabel(labels[0])
    axes.set_xlabel(labels[1])


def attention_explorer(
    weights: Float[Tensor, "layers heads tgt_len src_len"],
    tgt_pieces: Sequence[str],
    src_pieces: Sequence[str],
    labels: tuple[str, str] = CROSS,
) -> "altair.Chart":
    """An interactive heat map: choose layer and head, point at a cell to read its weight."""
    import altair
    import pandas

    num_layers, num_heads, *_ = weights.shape
    rows = [
        {
            "layer": layer + 1,
            "head": head + 1,
            "target": f"{t + 1:02d} {tgt_piece}",
            "source": f"{s + 1:02d} {src_piece}",
            "weight": round(float(weights[layer, head, t, s]), 3),
        }
        for layer in range(num_layers)
        for head in range(num_heads)
        for t, tgt_piece in enumerate(tgt_pieces)
        for s, src_piece in enumerate(src_pieces)
    ]

    def choice(name: str, count: int) -> altair.Parameter:
        slider = altair.binding_range(min=1, max=count, step=1, name=f"{name} ")
        return altair.param(name=f"chosen_{name}", value=1, bind=slider)

    layer, head = choice("layer", num_layers), choice("head", num_heads)
    words = "substring(datum.label, 3)"  # the number before each piece only keeps the order
    return (
        altair.Chart(
            pandas.DataFrame(rows),
            description=f"Attention weights of one layer and head, a row for each {labels[0]}.",
        )
        .mark_rect(stroke="white", strokeWidth=0.5)
        .encode(
            x=altair.X("source:O", title=labels[1], axis=altair.Axis(labelExpr=words)),
            y=altair.Y("target:O", title=labels[0], axis=altair.Axis(labelExpr=words)),
            color=altair.Color(
                "weight:Q",
                scale=altair.Scale(scheme=SEQUENTIAL, domain=[0, 1]),
                title="weight",
            ),
            tooltip=["target", "source", "weight"],
        )
        .add_params(layer, head)
        .transform_filter((altair.datum.layer == layer) & (altair.datum.head == head))
        .properties(width=32 * len(src_pieces), height=28 * len(tgt_pieces))
    )


def mask_explorer(
    weights: Mapping[str, Float[Tensor, "sentences queries keys"]],
    pieces: Sequence[Sequence[str]],
) -> "altair.Chart":
    """Weights of one head under several masks, by name: choose the sentence and the mask."""
    import altair
    import pandas

    names = [" ".join(sentence).replace(" <pad>", "") for sentence in pieces]
    rows = [
        {
            "sentence": names[number],
            "mask": mask,
            "query": f"{q + 1:02d} {sentence[q]}",
            "key": f"{k + 1:02d} {sentence[k]}",
            "weight": round(float(matrices[number, q, k]), 3),
        }
        for mask, matrices in weights.items()
        for number, sentence in enumerate(pieces)
        for q in range(len(sentence))
        for k in range(len(sentence))
    ]

    def choice(name: str, options: list[str]) -> altair.Parameter:
        menu = altair.binding_select(options=options, name=f"{name} ")
        return altair.param(name=f"chosen_{name}", value=options[0], bind=menu)

    sentence, mask = choice("sentence", names), choice("mask", list(weights))
    words = altair.Axis(labelExpr="substring(datum.label, 3)")
    return (
        altair.Chart(
            pandas.DataFrame(rows),
            description="Attention weights under the chosen mask; blocked keys have weight zero.",
        )
        .mark_rect(stroke="white", strokeWidth=0.5)
        .encode(
            x=altair.X("key:O", title="key (looked at)", axis=words),
            y=altair.Y("query:O", title="query (looks)", axis=words),
            color=altair.Color(
                "weight:Q", scale=altair.Scale(scheme=SEQUENTIAL, domain=[0, 1]), title="weight"
            ),
            tooltip=["query", "key", "weight"],
        )
        .add_params(sentence, mask)
        .transform_filter((altair.datum.sentence == sentence) & (altair.datum.mask == mask))
        .properties(width=360, height=300)
    )
