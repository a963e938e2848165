"""To CTranslate2, an engine that translates fast on processors and GPUs, also in eight bits."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.common_spec import Activation
from torch import Tensor, nn

from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.errors import UserError
from transformer_lib.experiment.run import Run
from transformer_lib.model.normalization import LayerNorm
from transformer_lib.model.positional_encoding import (
    LearnedPositions,
    NoPositions,
    SinusoidalPositions,
)
from transformer_lib.model.transformer import Transformer
from transformer_lib.vocabulary import BOS_PIECE, EOS_PIECE, UNK_PIECE

POSITIONS = 1024


def write(run: Run, folder: Path) -> None:
    """A folder for ``ctranslate2.Translator``, with the tokenizer's model beside it.

    Raises:
        UserError: CTranslate2 has no such architecture.
    """
    if not isinstance(run.model, Transformer):
        raise UserError("CTranslate2 has no RNN of this kind")
    if run.model.config.norm not in ("post", "pre"):
        raise UserError(f"CTranslate2 has no norm={run.model.config.norm!r}; it has post and pre")
    write_model(run.model, run.tokenizer, folder)


def write_model(model: Transformer, tokenizer: Tokenizer, folder: Path) -> None:
    """The same for a pre-norm or post-norm model that belongs to no run."""
    spec = to_ctranslate2(model)
    pieces = tokenizer.pieces(range(len(tokenizer)))
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.add_source_bos = False
    spec.config.add_source_eos = True
    spec.config.bos_token = BOS_PIECE
    spec.config.eos_token = EOS_PIECE
    spec.config.unk_token = UNK_PIECE
    spec.config.decoder_start_token = BOS_PIECE
    spec.config.layer_norm_epsilon = next(
        part.eps for part in model.modules() if isinstance(part, LayerNorm)
    )
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
    (folder / "tokenizer.model").write_bytes(tokenizer.model)


@torch.no_grad()
def to_ctranslate2(model: Transformer) -> TransformerSpec:
    """CTranslate2's description of the model, filled with its weights."""
    config = model.config
    ours: Any
    spec: Any = TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.norm == "pre",
        activation=Activation.RELU,
    )
    spec.encoder.embeddings[0].weight = _array(model.src_embedding.embed_tokens.weight)
    spec.decoder.embeddings.weight = _array(model.tgt_embedding.embed_tokens.weight)
    spec.decoder.projection.weight = _array(model.output_weight)
    for side, stack, embedding in (
        (spec.encoder, model.encoder, model.src_embedding),
        (spec.decoder, model.decoder, model.tgt_embedding),
    ):
        side.scale_embeddings = True
        side.position_encodings.encodings = _positions(embedding.positions, config.d_model)
        if config.norm == "pre":
            _norm(side.layer_norm, stack.final_norm)
        for theirs, ours in zip(side.layer, stack.layers, strict=True):
            linear = theirs.self_attention.linear
            _linear(linear[0], ours.self_attention.qkv_proj)
            _linear(linear[1], ours.self_attention.out_proj)
            _norm(theirs.self_attention.layer_norm, ours.self_attention_residual.norm)
            if side is spec.decoder:
                linear, cross = theirs.attention.linear, ours.cross_attention
                sizes = [config.d_model, 2 * config.d_model]  # the query; key and value
                weights, biases = cross.qkv_proj.weight, cross.qkv_proj.bias
                for part, weight, bias in zip(
                    linear, weights.split(sizes), biases.split(sizes), strict=False
                ):
                    part.weight, part.bias = _array(weight), _array(bias)
                _linear(linear[2], cross.out_proj)
                _norm(theirs.attention.layer_norm, ours.cross_attention_residual.norm)
            _linear(theirs.ffn.linear_0, ours.feed_forward.hidden)
            _linear(theirs.ffn.linear_1, ours.feed_forward.output)
            _norm(theirs.ffn.layer_norm, ours.feed_forward_residual.norm)
    return spec


def _positions(positions: Any, d_model: int) -> np.ndarray:
    if isinstance(positions, NoPositions):
        return np.zeros((POSITIONS, d_model), dtype=np.float32)
    if isinstance(positions, LearnedPositions):
        rows = torch.arange(POSITIONS).clamp(max=len(positions.table) - 1)  # as ours shares it
        return _array(positions.table[rows])
    if isinstance(positions, SinusoidalPositions):
        return _array(positions.make_table(POSITIONS, d_model))
    raise UserError(f"{type(positions).__name__} has no counterpart in CTranslate2")


def _linear(theirs: Any, ours: nn.Linear) -> None:
    theirs.weight, theirs.bias = _array(ours.weight), _array(ours.bias)


def _norm(theirs: Any, ours: Any) -> None:
    theirs.gamma, theirs.beta = _array(ours.weight), _array(ours.bias)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.float().cpu().numpy()
