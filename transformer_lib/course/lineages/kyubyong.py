"""Kyubyong/transformer (TensorFlow 1): heads in the batch, and no projection after them."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lib.course.lineages.lineage import Lineage, Sizes, attention_with_dropout
from transformer_lib.model import (
    Embedding,
    FeedForward,
    LayerNorm,
    MultiHeadAttention,
    PostNorm,
    SinusoidalPositions,
    Transformer,
)
from transformer_lib.model.masks import Mask, causal_mask
from transformer_lib.model.positional_encoding import Start
from transformer_lib.model.transformer import build_stacks
from transformer_lib.training.loss import label_smoothed_cross_entropy
from transformer_lib.training.schedule import noam_rate
from transformer_lib.vocabulary import BOS, EOS, PAD

BLOCKED = -(2.0**32) + 1.0


def head_major_attention(
    query: Float[Tensor, "batch heads queries d_k"],
    key: Float[Tensor, "batch heads keys d_k"],
    value: Float[Tensor, "batch heads keys d_v"],
    mask: Mask | None = None,
    is_causal: bool = False,
    *,
    dropout: nn.Module,
) -> Float[Tensor, "batch heads queries d_v"]:
    """Attention with the heads in the batch axis: row h·N + n is head h of sentence n.

    −2³² + 1 is *added* to the scores of padding and *replaces* those of the future; the weights
    are dropped out.
    """
    batch, heads, queries, d_k = query.shape
    query, key, value = (x.transpose(0, 1).flatten(0, 1) for x in (query, key, value))
    scores = query @ key.transpose(-2, -1) / math.sqrt(d_k)
    if mask is not None:
        padding = (~mask[:, 0]).to(scores.dtype).repeat(heads, 1, 1)
        scores = scores + padding * BLOCKED
    if is_causal:
        scores = scores.masked_fill(~causal_mask(queries, scores.device)[0], BLOCKED)
    context = dropout(scores.softmax(dim=-1)) @ value
    return context.unflatten(0, (heads, batch)).transpose(0, 1)


class PositionsOfWords(SinusoidalPositions):
    """Adds no position where the embedding is zero, which is padding's."""

    def forward(
        self, x: Float[Tensor, "batch length d_model"], start: Start = 0
    ) -> Float[Tensor, "batch length d_model"]:
        return torch.where(x == 0.0, x, super().forward(x, start))


def _attention(sizes: Sizes) -> MultiHeadAttention:
    module = attention_with_dropout(sizes, head_major_attention)
    module.out_proj = nn.Identity()
    return module


def build(sizes: Sizes) -> Transformer:
    """Post-norm; one matrix for source, target and output, whose row for padding stays zero.

    The source is a program that runs, and leaves nothing open. At padding of the target it differs
    from this preset, since it masks the target's padding too; no loss counts those places.

    Raises:
        ValueError: the two vocabularies have different sizes.
    """
    d_model = sizes.d_model
    if sizes.src_vocab_size != sizes.tgt_vocab_size:
        raise ValueError(
            "this lineage has one vocabulary for both languages, not "
            f"{sizes.src_vocab_size} and {sizes.tgt_vocab_size} words"
        )
    encoder, decoder = build_stacks(
        attention=lambda: _attention(sizes),
        feed_forward=lambda: FeedForward(d_model, sizes.d_ff),
        residual=lambda: PostNorm(LayerNorm(d_model, eps=1e-8), dropout=0.0),
        final_norm=nn.Identity,
        num_encoder_layers=sizes.num_layers,
        num_decoder_layers=sizes.num_layers,
    )
    embedding = Embedding(sizes.src_vocab_size, d_model, PositionsOfWords(d_model), sizes.dropout)
    table = embedding.embed_tokens.weight
    with torch.no_grad():
        table[PAD] = 0.0
    table.register_hook(_without_padding)
    return Transformer(embedding, embedding, encoder, decoder, table)


def _without_padding(
    gradient: Float[Tensor, "vocab_size d_model"],
) -> Float[Tensor, "vocab_size d_model"]:
    gradient = gradient.clone()
    gradient[PAD] = 0.0
    return gradient


def shifted(src: list[int], tgt: list[int]) -> tuple[list[int], list[int], list[int]]:
    """What the encoder reads, what the decoder reads, and what it should predict."""
    return [*src, EOS], [BOS, *tgt], [*tgt, EOS]


def is_kept(src: list[int], tgt: list[int], maxlen: int) -> bool:
    """Whether neither sentence, with its ``</s>``, is above ``maxlen``; other pairs are dropped."""
    return max(len(src), len(tgt)) + 1 <= maxlen


def mean_loss(
    logits: Float[Tensor, "tokens vocab_size"],
    labels: Int[Tensor, " tokens"],
    smoothing: float = 0.1,
) -> Float[Tensor, ""]:
    """Σ of cross-entropy against (1 − ε)·onehot + ε/V over real tokens / (their count + 10⁻⁷)."""
    total = label_smoothed_cross_entropy(logits, labels, smoothing)
    return total / ((labels != PAD).sum() + 1e-7)


def learning_rate(step: int, base: float, warmup_steps: int) -> float:
    """base·w^0.5·min(step·w^−1.5, step^−0.5), which peaks at ``base``; steps from 1."""
    return base * warmup_steps**0.5 * noam_rate(step, 1, warmup_steps)


LINEAGE = Lineage(
    name="kyubyong",
    source="Kyubyong/transformer (TensorFlow 1)",
    build=build,
    oddities=(
        "one matrix for source, target and output; padding's row is zero, and has no position",
        "heads in the batch axis, no output projection W^O",
        "−2³² + 1 is added for padding, replaces for the future",
        "LayerNorm with ε = 10⁻⁸",
        "dropout on embeddings and attention weights, none on sublayers",
    ),
    mistakes=("M7", "M8", "M9"),
)
