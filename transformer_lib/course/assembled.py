"""The models that the student assembles from the parts of the chapters before, as forms to read.

:class:`Transformer` (chapter 10) computes what :class:`transformer_lib.model.Transformer` computes
with pre-norm and one table for everything, in fewer lines and without a cache.
:class:`LanguageModel` (chapter 17) is its decoder alone, which is its encoder with another mask.
"""

import math
from collections.abc import Callable

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer_lib.model.masks import Mask, causal_mask, padding_mask
from transformer_lib.model.multi_head import merge_heads, split_heads
from transformer_lib.model.normalization import LayerNorm
from transformer_lib.model.positional_encoding import sinusoidal_positions
from transformer_lib.model.scaled_dot_product import attention

States = Float[Tensor, "batch length d_model"]


class FeedForward(nn.Module):
    """max(0, x·W₁ + b₁)·W₂ + b₂, equation (2), with ``nn.Linear`` for both products."""

    def __init__(self, d_model: int, d_ff: int):
        super().__init__()
        self.hidden = nn.Linear(d_model, d_ff)
        self.output = nn.Linear(d_ff, d_model)

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        return self.output(self.hidden(x).relu())


class MultiHeadAttention(nn.Module):
    """Concat(head₁, …, head_h)·W^O (section 3.2.2), with a linear layer for each projection."""

    def __init__(self, d_model: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(
        self,
        x: Float[Tensor, "batch queries d_model"],
        memory: Float[Tensor, "batch keys d_model"],
        mask: Mask | None,
    ) -> Float[Tensor, "batch queries d_model"]:
        query = split_heads(self.q_proj(x), self.num_heads)
        key = split_heads(self.k_proj(memory), self.num_heads)
        value = split_heads(self.v_proj(memory), self.num_heads)
        output, _ = attention(query, key, value, mask)
        return self.out_proj(merge_heads(output))


def pre_norm(
    x: States,
    sublayer: Callable[[States], States],
    norm: nn.Module,
    dropout: nn.Module,
) -> States:
    """x + dropout(Sublayer(LayerNorm(x)))."""
    return x + dropout(sublayer(norm(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each in a residual connection with pre-norm."""

    def __init__(
        self,
        self_attention: nn.Module,
        feed_forward: nn.Module,
        norm1: nn.Module,
        norm2: nn.Module,
        dropout: nn.Module,
    ):
        super().__init__()
        self.self_attention, self.feed_forward = self_attention, feed_forward
        self.norm1, self.norm2, self.dropout = norm1, norm2, dropout

    def forward(self, x: States, mask: Mask) -> States:
        x = pre_norm(x, lambda y: self.self_attention(y, y, mask), self.norm1, self.dropout)
        return pre_norm(x, self.feed_forward, self.norm2, self.dropout)


class DecoderLayer(nn.Module):
    """Self-attention, attention to the memory, feed-forward, each residual with pre-norm."""

    def __init__(
        self,
        self_attention: nn.Module,
        cross_attention: nn.Module,
        feed_forward: nn.Module,
        norm1: nn.Module,
        norm2: nn.Module,
        norm3: nn.Module,
        dropout: nn.Module,
    ):
        super().__init__()
        self.self_attention, self.cross_attention = self_attention, cross_attention
        self.feed_forward, self.dropout = feed_forward, dropout
        self.norm1, self.norm2, self.norm3 = norm1, norm2, norm3

    def forward(
        self,
        x: States,
        memory: Float[Tensor, "batch src_len d_model"],
        tgt_mask: Mask,
        memory_mask: Bool[Tensor, "batch 1 1 src_len"],
    ) -> States:
        x = pre_norm(x, lambda y: self.self_attention(y, y, tgt_mask), self.norm1, self.dropout)
        x = pre_norm(
            x, lambda y: self.cross_attention(y, memory, memory_mask), self.norm2, self.dropout
        )
        return pre_norm(x, self.feed_forward, self.norm3, self.dropout)


class Transformer(nn.Module):
    """Encoder and decoder with one table for source, target and output (sections 3.1 to 3.5)."""

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        d_ff: int,
        num_heads: int,
        num_layers: int,
        dropout: float,
    ):
        super().__init__()

        def heads() -> nn.Module:
            return MultiHeadAttention(d_model, num_heads)

        def rest(norms: int) -> list[nn.Module]:
            parts: list[nn.Module] = [FeedForward(d_model, d_ff)]
            return [*parts, *(LayerNorm(d_model) for _ in range(norms)), nn.Dropout(dropout)]

        self.embed_tokens = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.embed_tokens.weight, std=d_model**-0.5)
        self.dropout = nn.Dropout(dropout)
        self.encoder_layers = nn.ModuleList(
            EncoderLayer(heads(), *rest(norms=2)) for _ in range(num_layers)
        )
        self.decoder_layers = nn.ModuleList(
            DecoderLayer(heads(), heads(), *rest(norms=3)) for _ in range(num_layers)
        )
        self.encoder_norm, self.decoder_norm = LayerNorm(d_model), LayerNorm(d_model)

    def embed(self, tokens: Int[Tensor, "batch length"]) -> States:
        d_model = self.embed_tokens.embedding_dim
        positions = sinusoidal_positions(tokens.size(1), d_model)
        return self.dropout(self.embed_tokens(tokens) * math.sqrt(d_model) + positions)

    def encode(self, src: Int[Tensor, "batch src_len"]) -> Float[Tensor, "batch src_len d_model"]:
        x, mask = self.embed(src), padding_mask(src)
        for layer in self.encoder_layers:
            x = layer(x, mask)
        return self.encoder_norm(x)

    def decode(
        self,
        tgt_input: Int[Tensor, "batch tgt_len"],
        memory: Float[Tensor, "batch src_len d_model"],
        memory_mask: Bool[Tensor, "batch 1 1 src_len"],
    ) -> Float[Tensor, "batch tgt_len vocab_size"]:
        x, mask = self.embed(tgt_input), causal_mask(tgt_input.size(1))
        for layer in self.decoder_layers:
            x = layer(x, memory, mask, memory_mask)
        return self.decoder_norm(x) @ self.embed_tokens.weight.T

    def forward(
        self, src: Int[Tensor, "batch src_len"], tgt_input: Int[Tensor, "batch tgt_len"]
    ) -> Float[Tensor, "batch tgt_len vocab_size"]:
        return self.decode(tgt_input, self.encode(src), padding_mask(src))


class LanguageModel(nn.Module):
    """The next token of a text: a stack of encoder layers in which no position sees the future.

    One table for input and output, pre-norm, a norm after the last layer, as in GPT-2 but for its
    positions (Radford et al. 2019).
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        d_ff: int,
        num_heads: int,
        num_layers: int,
        dropout: float,
    ):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.embed_tokens.weight, std=d_model**-0.5)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            EncoderLayer(
                MultiHeadAttention(d_model, num_heads),
                FeedForward(d_model, d_ff),
                LayerNorm(d_model),
                LayerNorm(d_model),
                nn.Dropout(dropout),
            )
            for _ in range(num_layers)
        )
        self.norm = LayerNorm(d_model)

    def forward(
        self, tokens: Int[Tensor, "batch length"]
    ) -> Float[Tensor, "batch length vocab_size"]:
        d_model = self.embed_tokens.embedding_dim
        positions = sinusoidal_positions(tokens.size(1), d_model)
        x = self.dropout(self.embed_tokens(tokens) * math.sqrt(d_model) + positions)
        mask = causal_mask(tokens.size(1))
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x) @ self.embed_tokens.weight.T
