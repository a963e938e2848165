"""What a lineage is, and the odd parts that more than one of them has."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transformer_lib.model.decoder import Decoder
from transformer_lib.model.dropout import Dropout
from transformer_lib.model.embedding import Embedding
from transformer_lib.model.encoder import Encoder
from transformer_lib.model.masks import Mask
from transformer_lib.model.multi_head import MultiHeadAttention
from transformer_lib.model.scaled_dot_product import whole_mask
from transformer_lib.model.transformer import Transformer


@dataclass(frozen=True)
class Sizes:
    """How large a lineage is built; the defaults are the paper's base model."""

    src_vocab_size: int
    tgt_vocab_size: int
    d_model: int = 512
    d_ff: int = 2048
    num_heads: int = 8
    num_layers: int = 6
    dropout: float = 0.1


@dataclass(frozen=True)
class Lineage:
    """A published description of the Transformer.

    Args:
        name: what it is called here.
        source: where it was published.
        build: makes its model, freshly initialized.
        oddities: where it departs from the paper, each in a few words.
        mistakes: the known mistakes in it, by their ids in the bank of misconceptions.
    """

    name: str
    source: str
    build: Callable[[Sizes], Transformer]
    oddities: tuple[str, ...]
    mistakes: tuple[str, ...]


def filled_attention(
    query: Float[Tensor, "batch heads queries d_k"],
    key: Float[Tensor, "batch heads keys d_k"],
    value: Float[Tensor, "batch heads keys d_v"],
    mask: Mask | None = None,
    is_causal: bool = False,
    *,
    blocked: float = -1e9,
    dropout: nn.Module | None = None,
) -> Float[Tensor, "batch heads queries d_v"]:
    """Scores are scaled; those that may not be seen become ``blocked``; weights are dropped out.

    With −10⁹ a query that may see nothing looks at all keys alike instead of at none, and half
    precision has no such number. With −∞ such a query is NaN.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    mask = whole_mask(query, mask, is_causal)
    if mask is not None:
        scores = scores.masked_fill(~mask, blocked)
    weights = scores.softmax(dim=-1)
    return (weights if dropout is None else dropout(weights)) @ value


def attention_with_dropout(
    sizes: Sizes, attention_function: Callable[..., Tensor]
) -> MultiHeadAttention:
    """Multi-head attention whose weights are dropped out by ``attention_function(…, dropout)``."""
    module = MultiHeadAttention(sizes.d_model, sizes.num_heads)
    module.weights_dropout = Dropout(sizes.dropout)
    module.attention_function = partial(attention_function, dropout=module.weights_dropout)
    return module


class UnbiasedLayerNorm(nn.Module):
    """α·(x − μ)/(s + ε) + b: s divides by d_model − 1, and ε is added to it, not under a root."""

    def __init__(self, d_model: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        mean, deviation = x.mean(dim=-1, keepdim=True), x.std(dim=-1, keepdim=True)
        return self.weight * (x - mean) / (deviation + self.eps) + self.bias


def untied(
    sizes: Sizes, embedding: Callable[[int], Embedding], encoder: Encoder, decoder: Decoder
) -> Transformer:
    """A model with an embedding for each language and an output projection of its own."""
    output_weight = nn.Parameter(
        torch.randn(sizes.tgt_vocab_size, sizes.d_model) * sizes.d_model**-0.5
    )
    return Transformer(
        embedding(sizes.src_vocab_size),
        embedding(sizes.tgt_vocab_size),
        encoder,
        decoder,
        output_weight,
    )
