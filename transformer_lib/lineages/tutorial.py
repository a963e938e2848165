"""The toy Chinese→English tutorial (PyTorch): the plainest of the five."""

from torch import nn

from transformer_lib.lineages.lineage import Lineage, Sizes, filled_attention, untied
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


def build(sizes: Sizes) -> Transformer:
    """Post-norm, embeddings that are not scaled, and no dropout anywhere."""
    d_model = sizes.d_model
    encoder, decoder = build_stacks(
        attention=lambda: MultiHeadAttention(d_model, sizes.num_heads, filled_attention),
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
        "blocked scores become −10⁹ (its own masks say True for blocked)",
        "no dropout",
        "the padding of the target stands before its end symbol",
    ),
    mistakes=("M7", "M14", "M15"),
)
