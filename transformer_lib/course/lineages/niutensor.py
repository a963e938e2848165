"""NiuTensor's Transformer (C++), after the Tensor2Tensor code."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transformer_lib.course.lineages.lineage import (
    Lineage,
    Sizes,
    attention_with_dropout,
    untied,
)
from transformer_lib.model import (
    Embedding,
    FeedForward,
    LayerNorm,
    MultiHeadAttention,
    PostNorm,
    SinusoidalPositions,
    Transformer,
)
from transformer_lib.model.masks import Mask
from transformer_lib.model.scaled_dot_product import whole_mask
from transformer_lib.model.transformer import build_stacks


def timing_signal(length: int, d_model: int) -> Float[Tensor, "{length} {d_model}"]:
    """Sines in the first half of the channels, cosines in the second: pos/10000^(2i/(d_model − 2)).

    The divisor makes the slowest wave exactly 10000·2π long; the paper's is a little shorter.

    Raises:
        ValueError: d_model is odd or below 4.
    """
    if d_model % 2 or d_model < 4:
        raise ValueError(f"d_model={d_model}; the timing signal needs an even one from 4 on")
    exponent = torch.arange(0, d_model, 2, dtype=torch.float64) / (d_model - 2)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * 10000.0**-exponent
    return torch.cat([angle.sin(), angle.cos()], dim=1).to(torch.get_default_dtype())


def added_before_scaling(
    query: Float[Tensor, "batch heads queries d_k"],
    key: Float[Tensor, "batch heads keys d_k"],
    value: Float[Tensor, "batch heads keys d_v"],
    mask: Mask | None = None,
    is_causal: bool = False,
    *,
    blocked: float = -1e9,
    dropout: nn.Module | None = None,
) -> Float[Tensor, "batch heads queries d_v"]:
    """softmax((Q·Kᵀ + M)/√d_k)·V, M being 0 or ``blocked``: the mask is divided by √d_k as well.

    The weights are dropped out before they meet V.
    """
    scores = query @ key.transpose(-2, -1)
    mask = whole_mask(query, mask, is_causal)
    if mask is not None:
        scores = scores + blocked * (~mask).to(scores.dtype)
    weights = (scores / math.sqrt(query.size(-1))).softmax(dim=-1)
    return (weights if dropout is None else dropout(weights)) @ value


def _attention(sizes: Sizes) -> MultiHeadAttention:
    module = attention_with_dropout(sizes, added_before_scaling)
    for projection in (module.qkv_proj, module.out_proj):
        projection.bias.requires_grad_(False)  # it starts at zero and stays there: no bias
    return module


def build(sizes: Sizes) -> Transformer:
    """Post-norm with a LayerNorm without ε, and the parts above.

    The page on it prints the position table, the LayerNorm, the order of mask and scale, and the
    places of dropout. It leaves open the factor √d_model of the embeddings, and the order in which
    one fused matrix of self-attention is read: its variable is called ``kqv``. Both are as in the
    program itself: scaled; query, key, value. Cross-attention has three matrices there, which are
    the three thirds of one here.
    """
    d_model = sizes.d_model
    encoder, decoder = build_stacks(
        attention=lambda: _attention(sizes),
        feed_forward=lambda: FeedForward(d_model, sizes.d_ff, sizes.dropout),
        residual=lambda: PostNorm(LayerNorm(d_model, eps=0.0), sizes.dropout),
        final_norm=nn.Identity,
        num_encoder_layers=sizes.num_layers,
        num_decoder_layers=sizes.num_layers,
    )

    def embedding(vocab_size: int) -> Embedding:
        positions = SinusoidalPositions(d_model, timing_signal)
        return Embedding(vocab_size, d_model, positions, sizes.dropout)

    return untied(sizes, embedding, encoder, decoder)


LINEAGE = Lineage(
    name="niutensor",
    source="NiuTensor (C++)",
    build=build,
    oddities=(
        "sines, then cosines, with d_model − 2 in the exponent",
        "one fused matrix in self-attention, three in cross-attention; no biases in attention",
        "the mask is added before the scores are scaled",
        "LayerNorm without ε",
        "dropout also after the ReLU and on attention weights",
    ),
    mistakes=("M5", "M6"),
)
