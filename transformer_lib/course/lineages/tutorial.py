"""The toy Chinese→English tutorial (PyTorch): the plainest of the five."""

import math
from functools import partial

from torch import nn

from transformer_lib.course.lineages.lineage import Lineage, Sizes, filled_attention, untied
from transformer_lib.model import (
    Embedding,
    FeedForward,
    LayerNorm,
    MultiHeadAttention,
    PostNorm,
    SinusoidalPositions,
    Transformer,
)
from transformer_lib.model.transformer import build_stacks

filled_with_infinity = partial(filled_attention, blocked=-math.inf)


def build(sizes: Sizes) -> Transformer:
    """Post-norm, embeddings that are not scaled, blocked scores of −∞, and no dropout anywhere.

    The tutorial prints all of its model and takes norm, dropout and optimizer from PyTorch. Its
    text says that the weights are scaled once more before they meet V; its formula does not, and
    neither does this.
    """
    d_model = sizes.d_model
    encoder, decoder = build_stacks(
        attention=lambda: MultiHeadAttention(d_model, sizes.num_heads, filled_with_infinity),
        feed_forward=lambda: FeedForward(d_model, sizes.d_ff),
        residual=lambda: PostNorm(LayerNorm(d_model), dropout=0.0),
        final_norm=nn.Identity,
        num_encoder_layers=sizes.num_layers,
        num_decoder_layers=sizes.num_layers,
    )

    def embedding(vocab_size: int) -> Embedding:
        return Embedding(vocab_size, d_model, SinusoidalPositions(d_model), dropout=0.0, scale=1.0)

    return untied(sizes, embedding, encoder, decoder)


LINEAGE = Lineage(
    name="tutorial",
    source="a tutorial on two Chinese sentences (PyTorch)",
    build=build,
    oddities=(
        "embeddings are not scaled",
        "blocked scores become −∞, so a query that may see nothing is NaN",
        "its own masks say True for blocked",
        "no dropout",
        "the padding of the target stands before its end symbol",
    ),
    mistakes=("M14", "M15"),
)
