"""To Hugging Face Transformers: post-norm models as Marian, pre-norm ones as Pegasus.

Both have our parts in our order. Their sinusoids hold all sines before all cosines; a model that
was trained with the paper's interleaved ones gets its channels reordered, all of them alike, which
changes none of its outputs.
"""

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    MarianConfig,
    MarianMTModel,
    MarianTokenizer,
    PegasusConfig,
    PegasusForConditionalGeneration,
)

from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.errors import UserError
from transformer_lib.experiment.run import Run
from transformer_lib.model.transformer import Transformer, TransformerConfig
from transformer_lib.vocabulary import (
    BOS,
    BOS_PIECE,
    EOS,
    EOS_PIECE,
    PAD,
    PAD_PIECE,
    UNK_PIECE,
)

POSITIONS = 512


def write(run: Run, folder: Path) -> None:
    """Model, tokenizer and search settings, for ``AutoModelForSeq2SeqLM`` and ``AutoTokenizer``.

    Raises:
        UserError: Hugging Face has no such architecture.
    """
    if not isinstance(run.model, Transformer):
        raise UserError("Hugging Face Transformers has no RNN of this kind")
    model = to_huggingface(run.model, len(run.tokenizer))
    decoding = run.experiment.decoding
    model.generation_config = GenerationConfig(
        num_beams=decoding.beam_size,
        # Theirs divides by nᵅ, so that longer translations win more often than with ours.
        length_penalty=decoding.alpha if decoding.beam_size > 1 else 1.0,
        early_stopping=decoding.beam_size > 1,
        max_length=POSITIONS,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        bad_words_ids=[[PAD], [BOS]],
    )
    model.save_pretrained(folder)
    _tokenizer(run.tokenizer).save_pretrained(folder)


@torch.no_grad()
def to_huggingface(
    ours: Transformer, vocab_size: int
) -> MarianMTModel | PegasusForConditionalGeneration:
    """A model of Hugging Face's with our weights.

    Raises:
        UserError: it is one that neither Marian nor Pegasus can be.
    """
    config = ours.config
    of_marian = ("sinusoidal", "sinusoidal_halves")
    if config.norm not in ("post", "pre") or config.positions not in of_marian:
        raise UserError(
            f"norm={config.norm!r} with positions={config.positions!r} has no counterpart in "
            "Hugging Face Transformers; post- and pre-norm with sinusoids have"
        )
    if config.tied_embeddings != "all":
        raise UserError(
            f"tied_embeddings={config.tied_embeddings!r}: Hugging Face's models share one table; "
            "train with tied_embeddings='all', or export to ctranslate2"
        )
    if config.positions == "sinusoidal":
        ours = _with_halves(ours)
    theirs = untrained(config, vocab_size)
    _copy_weights(ours, theirs)
    return theirs.eval()


def untrained(
    config: TransformerConfig, vocab_size: int
) -> MarianMTModel | PegasusForConditionalGeneration:
    """A fresh model of Hugging Face's of these sizes, with the same dropout."""
    sizes: dict[str, Any] = {
        "vocab_size": vocab_size,
        "d_model": config.d_model,
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": "relu",
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "scale_embedding": True,
        "max_position_embeddings": POSITIONS,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "forced_eos_token_id": None,
    }
    if config.norm == "post":
        return MarianMTModel(MarianConfig(**sizes))
    return PegasusForConditionalGeneration(PegasusConfig(**sizes))


def _copy_weights(
    ours: Transformer, theirs: MarianMTModel | PegasusForConditionalGeneration
) -> None:
    """Layer by layer; ours must have its positions in halves."""
    inner: Any = theirs.model
    layer: Any
    inner.shared.weight.copy_(ours.output_weight)
    for target, layer in zip(inner.encoder.layers, ours.encoder.layers, strict=True):
        _copy_attention(layer.self_attention, target.self_attn)
        _copy_norm(layer.self_attention_residual.norm, target.self_attn_layer_norm)
        _copy_feed_forward(layer, target)
    for target, layer in zip(inner.decoder.layers, ours.decoder.layers, strict=True):
        _copy_attention(layer.self_attention, target.self_attn)
        _copy_norm(layer.self_attention_residual.norm, target.self_attn_layer_norm)
        _copy_attention(layer.cross_attention, target.encoder_attn)
        _copy_norm(layer.cross_attention_residual.norm, target.encoder_attn_layer_norm)
        _copy_feed_forward(layer, target)
    if ours.config.norm == "pre":
        _copy_norm(ours.encoder.final_norm, inner.encoder.layer_norm)
        _copy_norm(ours.decoder.final_norm, inner.decoder.layer_norm)


def _copy_attention(ours: Any, theirs: Any) -> None:
    projections = (theirs.q_proj, theirs.k_proj, theirs.v_proj)
    weights, biases = ours.qkv_proj.weight.chunk(3), ours.qkv_proj.bias.chunk(3)
    for projection, weight, bias in zip(projections, weights, biases, strict=True):
        projection.weight.copy_(weight)
        projection.bias.copy_(bias)
    theirs.out_proj.load_state_dict(ours.out_proj.state_dict())


def _copy_feed_forward(ours: Any, theirs: Any) -> None:
    theirs.fc1.load_state_dict(ours.feed_forward.hidden.state_dict())
    theirs.fc2.load_state_dict(ours.feed_forward.output.state_dict())
    _copy_norm(ours.feed_forward_residual.norm, theirs.final_layer_norm)


def _copy_norm(ours: Any, theirs: Any) -> None:
    theirs.weight.copy_(ours.weight)
    theirs.bias.copy_(ours.bias)


def _with_halves(model: Transformer) -> Transformer:
    """The same model with its channels reordered: even ones first, as in sinusoids in halves."""
    d_model = model.config.d_model
    order = torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])
    model = copy.deepcopy(model).cpu()

    def reorder(weight: Tensor, dim: int) -> None:
        weight.copy_(weight.index_select(dim, order))

    reorder(model.output_weight, 1)
    for name, weight in model.named_parameters():
        if weight is model.output_weight:
            continue
        # What writes into the residual stream.
        writes = name.endswith(
            (".output.weight", ".output.bias", ".out_proj.weight", ".out_proj.bias")
        )
        if writes or "norm." in name:
            reorder(weight, 0)
        elif name.endswith(".weight"):  # reads from it
            reorder(weight, 1)
    return model


def _tokenizer(tokenizer: Tokenizer) -> MarianTokenizer:
    pieces = tokenizer.pieces(range(len(tokenizer)))
    with tempfile.TemporaryDirectory() as folder:
        model, vocabulary = Path(folder, "tokenizer.model"), Path(folder, "vocab.json")
        model.write_bytes(tokenizer.model)
        vocabulary.write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
        return MarianTokenizer(
            source_spm=str(model),
            target_spm=str(model),
            vocab=str(vocabulary),
            unk_token=UNK_PIECE,
            bos_token=BOS_PIECE,
            eos_token=EOS_PIECE,
            pad_token=PAD_PIECE,
            model_max_length=POSITIONS,
        )
