"""Masks as pictures, and what they do to the attention of a trained model."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from torch import Tensor

from transformer_lib.model.masks import Mask
from transformer_lib.model.multi_head import split_heads
from transformer_lib.model.scaled_dot_product import attention
from transformer_lib.model.transformer import Transformer
from transformer_lib.plots.style import COLORS, new_figure, styled

ALTERNATIVE = (
    "Six masks of eight tokens, a row for each query: full, causal, causal within a window of "
    "three, prefix (all see the first three, the rest is causal), two packed sentences (two "
    "triangles along the diagonal), and causal with three tokens of padding in front, whose rows "
    "are empty."
)


@styled
def mask_gallery(length: int = 8) -> Figure:
    """Who sees whom in six kinds of model."""
    figure = new_figure(8.4, 5.6, columns=3, rows=2)
    for axes, (name, mask) in zip(figure.axes, _gallery(length).items(), strict=True):
        axes.imshow(mask.numpy(), cmap=ListedColormap(["#eeeeee", COLORS[0]]), vmin=0, vmax=1)
        axes.set_title(name, fontsize=10)
        axes.set_xticks(range(length), [""] * length)
        axes.set_yticks(range(length), [""] * length)
        axes.set_xticks([x - 0.5 for x in range(1, length)], minor=True)
        axes.set_yticks([y - 0.5 for y in range(1, length)], minor=True)
        axes.grid(visible=False)
        axes.grid(which="minor", color="white", linewidth=1.2)
        axes.tick_params(which="both", length=0)
        axes.set_xlabel("key", fontsize=8)
        axes.set_ylabel("query", fontsize=8)
    return figure


def _gallery(length: int) -> dict[str, Bool[Tensor, "queries keys"]]:
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    place = torch.arange(length)
    second = place >= 5
    return {
        "full: an encoder": torch.ones_like(causal),
        "causal: a decoder": causal,
        "a window of three": causal.triu(-2),
        "prefix of three": causal | (place < 3)[None],
        "two sentences, packed": causal & (second[:, None] == second[None]),
        "padding in front, causal": causal & (place >= 3)[None],
    }


@torch.no_grad()
def first_head(
    model: Transformer, tokens: Int[Tensor, "batch length"], masks: Mapping[str, Mask | None]
) -> dict[str, Float[Tensor, "batch length length"]]:
    """Weights of the first head of the encoder's first layer under each mask, by its name."""
    layer: Any = model.encoder.layers[0]
    states = layer.self_attention_residual.norm(model.src_embedding(tokens))
    heads = layer.self_attention.num_heads
    query, key, value = (
        split_heads(part, heads) for part in layer.self_attention.qkv_proj(states).chunk(3, dim=-1)
    )
    return {name: attention(query, key, value, mask)[1][:, 0] for name, mask in masks.items()}


def as_text(mask: Bool[Tensor, "rows columns"] | Sequence[Sequence[bool]]) -> str:
    """A line per query: × where it may look, · where it may not."""
    return "\n".join("".join("×" if allowed else "·" for allowed in row) for row in mask)
