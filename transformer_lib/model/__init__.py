"""The Transformer's parts, the assembled model, and the RNN that it is compared with."""

from transformer_lib.model.cache import KeyValueCache
from transformer_lib.model.decoder import Decoder, DecoderLayer
from transformer_lib.model.embedding import Embedding
from transformer_lib.model.encoder import Encoder, EncoderLayer
from transformer_lib.model.feed_forward import FeedForward
from transformer_lib.model.masks import causal_mask, combine_masks, padding_mask
from transformer_lib.model.multi_head import (
    MultiHeadAttention,
    merge_heads,
    recorded_attention,
    split_heads,
)
from transformer_lib.model.normalization import LayerNorm, layer_norm
from transformer_lib.model.positional_encoding import (
    LearnedPositions,
    NoPositions,
    SinusoidalPositions,
    sinusoidal_positions,
)
from transformer_lib.model.residual import BranchNorm, PostNorm, PreNorm
from transformer_lib.model.rnn import RNN, RNNConfig, build_rnn
from transformer_lib.model.scaled_dot_product import attention, fused_attention
from transformer_lib.model.seq2seq import Memory, Seq2Seq, num_parameters
from transformer_lib.model.transformer import (
    SIZES,
    Transformer,
    TransformerConfig,
    build_transformer,
)

__all__ = [
    "RNN",
    "SIZES",
    "BranchNorm",
    "Decoder",
    "DecoderLayer",
    "Embedding",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "KeyValueCache",
    "LayerNorm",
    "LearnedPositions",
    "Memory",
    "MultiHeadAttention",
    "NoPositions",
    "PostNorm",
    "PreNorm",
    "RNNConfig",
    "Seq2Seq",
    "SinusoidalPositions",
    "Transformer",
    "TransformerConfig",
    "attention",
    "build_rnn",
    "build_transformer",
    "causal_mask",
    "combine_masks",
    "fused_attention",
    "layer_norm",
    "merge_heads",
    "num_parameters",
    "padding_mask",
    "recorded_attention",
    "sinusoidal_positions",
    "split_heads",
]
