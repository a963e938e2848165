"""NiuTensor's Transformer (C++), after the Tensor2Tensor code."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from transformer_lib.lineages.lineage import DroppingFeedForward, Lineage, Sizes, untied
from transformer_lib.model import (
    Embedding,
    LayerNorm,
    MultiHeadAttention,
    PostNorm,
    SinusoidalPositions,
    Transformer,
)
from transformer_lib.model.attention import whole_mask
from transformer_lib.model.masks import Mask
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
    blocked: float = -1e9,
) -> Float[Tensor, "batch heads queries d_v"]:
    """softmax((Q·Kᵀ + M)/√d_k)·V, M being 0 or ``blocked``: the mask is divided by √d_k as well."""
    scores = query @ key.transpose(-2, -1)
    mask = whole_mask(query, mask, is_causal)
    if mask is not None:
        scores = scores + blocked * (~mask).to(scores.dtype)
    return (scores / math.sqrt(query.size(-1))).softmax(dim=-1) @ value


class KeyQueryValue(nn.Module):
    """Keeps the fused matrix in the order key, query, value; shows it as query, key, value."""

    def forward(self, stored: Float[Tensor, "rows d_model"]) -> Float[Tensor, "rows d_model"]:
        key, query, value = stored.chunk(3)
        return torch.cat([query, key, value])

    def right_inverse(self, weight: Float[Tensor, "rows d_model"]) -> Float[Tensor, "rows d_model"]:
        query, key, value = weight.chunk(3)
        return torch.cat([key, query, value])


def _attention(sizes: Sizes) -> MultiHeadAttention:
    module = MultiHeadAttention(sizes.d_model, sizes.num_heads, added_before_scaling)
    parametrize.register_parametrization(module.query_key_value, "weight", KeyQueryValue())
    for projection in (module.query_key_value, module.output):
        projection.bias.requires_grad_(False)  # it starts at zero and stays there: no bias
    return module


def build(sizes: Sizes) -> Transformer:
    """Post-norm with a LayerNorm without ε, and the parts above."""
    d_model = sizes.d_model
    encoder, decoder = build_stacks(
        attention=lambda: _attention(sizes),
        feed_forward=lambda: DroppingFeedForward(d_model, sizes.d_ff, sizes.dropout),
        residual=lambda: PostNorm(LayerNorm(d_model, eps=0.0), sizes.dropout),
        final_norm=nn.Identity,
        num_encoder_layers=sizes.num_layers,
        num_decoder_layers=sizes.num_layers,
    )

    def embedding(vocab_size: int) -> Embedding:
        positions = SinusoidalPositions(d_model, timing_signal)
        return Embedding(vocab_size, d_model, positions, sizes.dropout, scale=1.0)

    return untied(sizes, embedding, encoder, decoder)


LINEAGE = Lineage(
    name="niutensor",
    source="NiuTensor (C++)",
    build=build,
    oddities=(
        "sines, then cosines, with d_model − 2 in the exponent",
        "embeddings are not scaled",
        "one fused matrix, read as key, query, value; no biases in attention",
        "the mask is added before the scores are scaled",
        "LayerNorm without ε",
        "dropout also after the ReLU",
    ),
    mistakes=("M5", "M6"),
)
