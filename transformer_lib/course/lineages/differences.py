"""How far each lineage is from the paper's model, part by part, with the same weights."""

import math
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from transformer_lib.course.lineages import LINEAGES, Sizes
from transformer_lib.course.misconceptions.bank import bank
from transformer_lib.device import double_precision
from transformer_lib.errors import UserError
from transformer_lib.model import TransformerConfig, build_transformer, padding_mask
from transformer_lib.model.transformer import Transformer
from transformer_lib.vocabulary import BOS, EOS, PAD

Parts = dict[str, Tensor]
EQUAL = 1e-12
"""Differences below are rounding, in double precision."""


def copy_weights(source: Transformer, target: Transformer) -> None:
    """Give ``target`` the weights of ``source``, part by part, where it has such a part.

    A lineage that ties its embeddings gets those of the source language for all.
    """
    with torch.no_grad():
        parameters = dict(source.named_parameters(remove_duplicate=False))
        for name, parameter in target.named_parameters():
            if name in parameters:
                parameter.copy_(parameters[name])
        if target.src_embedding is target.tgt_embedding:
            target.src_embedding.embed_tokens.weight[PAD] = 0.0


@torch.no_grad()
def differences(sentence: str, seed: int = 1) -> dict[str, dict[str, float]]:
    """For each part of the model and each lineage, the largest difference from the paper's form.

    All models are two layers deep, 64 wide, in double precision, not trained, and not dropping
    out; every part gets the paper's input. The sentence goes in twice, the second time without its
    last word, so that there is padding.

    Raises:
        UserError: the sentence has fewer than two words.
    """
    src, tgt_input = _batch(sentence)
    vocab_size = int(src.max()) + 1
    with double_precision():
        torch.manual_seed(seed)
        config = TransformerConfig(
            d_model=64,
            d_ff=256,
            num_heads=4,
            num_encoder_layers=2,
            num_decoder_layers=2,
            dropout=0.0,
            tied_embeddings="all",
        )
        paper = build_transformer(config, vocab_size).eval()
        sizes = Sizes(vocab_size, vocab_size, 64, 256, 4, 2, dropout=0.0)
        expected = _parts(paper, paper, src, tgt_input)
        found: dict[str, dict[str, float]] = {part: {} for part in expected}
        for name, lineage in LINEAGES.items():
            model = lineage.build(sizes).eval()
            copy_weights(paper, model)
            for part, value in _parts(model, paper, src, tgt_input).items():
                found[part][name] = (value - expected[part]).abs().max().item()
    return found


def describe(sentence: str) -> str:
    """The differences as a table, and below it what is odd and what is wrong in each lineage."""
    titles = {mistake.id: mistake.title for mistake in bank()}
    table = differences(sentence)
    width = max(map(len, table))
    lines = [f"Largest difference from the paper's form on “{sentence}”, same weights:", ""]
    lines.append(" " * width + "".join(f"{name:>13}" for name in LINEAGES))
    for part, by_lineage in table.items():
        cells = "".join(f"{in_words(by_lineage[name]):>13}" for name in LINEAGES)
        lines.append(f"{part:{width}}{cells}")
    for lineage in LINEAGES.values():
        lines += ["", f"{lineage.name}: {lineage.source}"]
        lines += [f"  odd    {oddity}" for oddity in lineage.oddities]
        lines += [f"  {name:<6} {titles[name]}" for name in lineage.mistakes]
    return "\n".join(lines)


def in_words(difference: float, digits: int = 2) -> str:
    """``same`` below :data:`EQUAL`."""
    if math.isnan(difference):
        return "NaN"
    return "same" if difference < EQUAL else f"{difference:.{digits}g}"


def _batch(sentence: str) -> tuple[Int[Tensor, "2 src_len"], Int[Tensor, "2 tgt_len"]]:
    words = sentence.split()
    if len(words) < 2:
        raise UserError("the sentence needs two words or more")
    number = {word: 4 + place for place, word in enumerate(dict.fromkeys(words))}
    tokens = [number[word] for word in words]
    src = torch.tensor([[*tokens, EOS], [*tokens[:-1], EOS, PAD]])
    return src, torch.tensor([[BOS, *tokens], [BOS, *tokens[:-1], PAD]])


def _parts(
    model: Transformer,
    paper: Transformer,
    src: Int[Tensor, "batch src_len"],
    tgt_input: Int[Tensor, "batch tgt_len"],
) -> Parts:
    """What each part of ``model`` makes of the input that it has in the paper's model."""
    mask, real = padding_mask(src), src != PAD
    embedded = paper.src_embedding(src)
    scaled = paper.src_embedding.embed_tokens(src) * paper.src_embedding.scale
    layer: Any = model.encoder.layers[0]
    attention, residual = layer.self_attention, layer.self_attention_residual
    nothing = mask & False
    memory = paper.encode(src)
    return {
        "positions": (model.src_embedding.positions(scaled) - scaled)[real],
        "embedding": model.src_embedding(src)[real],
        "attention": attention(embedded, mask=mask)[real],
        "attention to nothing": attention(embedded, mask=nothing)[real],
        "layer norm": residual.norm(embedded)[real],
        "residual around f": residual(embedded, torch.tanh)[real],
        "feed-forward": layer.feed_forward(embedded)[real],
        "encoder": model.encoder(embedded, mask)[real],
        "decoder": model.decoder(paper.tgt_embedding(tgt_input), memory.states, memory.mask)[
            tgt_input != PAD
        ],
        "logits": model(src, tgt_input)[tgt_input != PAD],
    }
