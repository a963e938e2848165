"""The lecture's "Chapter 7" (PyTorch), after The Annotated Transformer."""

from transformer_lib.course.lineages.lineage import (
    Lineage,
    Sizes,
    UnbiasedLayerNorm,
    attention_with_dropout,
    filled_attention,
    untied,
)
from transformer_lib.model import Embedding, FeedForward, SinusoidalPositions, Transformer
from transformer_lib.model.positional_encoding import MakeTable, sinusoidal_positions
from transformer_lib.model.residual import RESIDUALS, NormPlacement
from transformer_lib.model.transformer import build_stacks


def build(
    sizes: Sizes,
    residual: NormPlacement = "branch",
    position_table: MakeTable = sinusoidal_positions,
) -> Transformer:
    """Any of the three residual forms ("branch" is the lecture's own), a norm after each stack.

    The lecture prints attention, multi-head attention, norm, feed-forward, three residual forms, a
    position table and the encoder's layer. It leaves open the decoder, which is assembled alike.
    """
    d_model = sizes.d_model
    encoder, decoder = build_stacks(
        attention=lambda: attention_with_dropout(sizes, filled_attention),
        feed_forward=lambda: FeedForward(d_model, sizes.d_ff, sizes.dropout),
        residual=lambda: RESIDUALS[residual](UnbiasedLayerNorm(d_model), sizes.dropout),
        final_norm=lambda: UnbiasedLayerNorm(d_model),
        num_encoder_layers=sizes.num_layers,
        num_decoder_layers=sizes.num_layers,
    )

    def embedding(vocab_size: int) -> Embedding:
        positions = SinusoidalPositions(d_model, position_table)
        return Embedding(vocab_size, d_model, positions, sizes.dropout)

    return untied(sizes, embedding, encoder, decoder)


LINEAGE = Lineage(
    name="lecture",
    source="a university lecture, chapter 7 (PyTorch)",
    build=build,
    oddities=(
        "LayerNorm with the unbiased deviation, ε beside it",
        "x + LN(dropout(f(x))) beside post-norm and pre-norm; a last norm after each stack",
        "blocked scores become −10⁹",
        "dropout also after the ReLU and on attention weights",
    ),
    mistakes=("M1", "M2", "M3", "M4", "M7", "M16"),
)
