"""Exercises on the whole model, whose layers are given."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer_lib.course.checks.exercise import exercise
from transformer_lib.course.checks.observe import Case
from transformer_lib.course.sandboxed.given import DecoderLayer, Embed, EncoderLayer
from transformer_lib.model.masks import causal_mask, padding_mask
from transformer_lib.vocabulary import BOS, EOS, PAD

VOCAB_SIZE = 13


def _sentences(batch: int, length: int, random: torch.Generator) -> Int[Tensor, "batch length"]:
    tokens = torch.randint(4, VOCAB_SIZE, (batch, length), generator=random)
    for row in range(1, batch):
        tokens[row, length - row :] = PAD
    return tokens


def _cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, src_len: int, tgt_len: int, layers: int, d_model: int = 6) -> tuple:
        def weights(rows: int) -> Tensor:
            return torch.randn(rows, d_model, generator=random)

        src = torch.cat(
            [_sentences(batch, src_len - 1, random), torch.full((batch, 1), EOS)], dim=1
        )
        src[1:, -2:] = torch.tensor([EOS, PAD])
        # Without padding: whether a mask hides that of the target too must not matter.
        tgt_input = torch.randint(4, VOCAB_SIZE, (batch, tgt_len), generator=random)
        tgt_input[:, 0] = BOS
        return (
            src,
            tgt_input,
            Embed(weights(VOCAB_SIZE)),
            Embed(weights(VOCAB_SIZE)),
            [EncoderLayer(weights(d_model)) for _ in range(layers)],
            [DecoderLayer(weights(d_model)) for _ in range(layers)],
            weights(VOCAB_SIZE),
        )

    return {
        "values": Case(*arguments(2, 6, 4, layers=2), gradient=True),
        "a batch of one": Case(*arguments(1, 3, 5, layers=3)),
        "one layer": Case(*arguments(2, 5, 5, layers=1)),
    }


@exercise("the whole model", _cases, outputs=("the logits",))
def transformer(
    src: Int[Tensor, "batch src_len"],
    tgt_input: Int[Tensor, "batch tgt_len"],
    src_embed: Callable[[Tensor], Tensor],
    tgt_embed: Callable[[Tensor], Tensor],
    encoder_layers: list,
    decoder_layers: list,
    output_weight: Float[Tensor, "vocab_size d_model"],
) -> Float[Tensor, "batch tgt_len vocab_size"]:
    """Logits of every next token (figure 1); padding of the source is masked, and the future."""
    src_mask, tgt_mask = padding_mask(src), causal_mask(tgt_input.size(1))
    memory = src_embed(src)
    for layer in encoder_layers:
        memory = layer(memory, src_mask)
    x = tgt_embed(tgt_input)
    for layer in decoder_layers:
        x = layer(x, memory, tgt_mask, src_mask)
    return x @ output_weight.T
