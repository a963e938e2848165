"""Exercises on the whole model, whose layers are given."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lib.checks.exercise import exercise
from transformer_lib.checks.observe import Case
from transformer_lib.model.attention import attention
from transformer_lib.model.masks import Mask, causal_mask, padding_mask
from transformer_lib.vocabulary import BOS, EOS, PAD

Embed = Callable[[Tensor], Tensor]
EncoderLayer = Callable[[Tensor, Mask], Tensor]
DecoderLayer = Callable[[Tensor, Tensor, Mask, Mask], Tensor]
VOCAB_SIZE = 13


class _Embed(nn.Module):
    def __init__(self, d_model: int, random: torch.Generator):
        super().__init__()
        self.table = torch.randn(VOCAB_SIZE, d_model, generator=random)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table[tokens]


class _EncoderLayer(nn.Module):
    """Called as ``layer(x, mask)``."""

    def __init__(self, d_model: int, random: torch.Generator):
        super().__init__()
        self.weight = torch.randn(d_model, d_model, generator=random)

    def look(self, x: Tensor, memory: Tensor, mask: Mask) -> Tensor:
        query, memory = torch.tanh(x @ self.weight)[:, None], memory[:, None]
        return attention(query, memory, memory, mask)[0][:, 0]

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        return x + self.look(x, x, mask)


class _DecoderLayer(_EncoderLayer):
    """Called as ``layer(x, memory, tgt_mask, memory_mask)``."""

    def forward(  # type: ignore[override]
        self, x: Tensor, memory: Tensor, tgt_mask: Tensor, memory_mask: Tensor
    ) -> Tensor:
        x = x + self.look(x, x, tgt_mask)
        return x + self.look(x, memory, memory_mask)


def _sentences(batch: int, length: int, random: torch.Generator) -> Int[Tensor, "batch length"]:
    tokens = torch.randint(4, VOCAB_SIZE, (batch, length), generator=random)
    for row in range(1, batch):
        tokens[row, length - row :] = PAD
    return tokens


def _cases(random: torch.Generator) -> dict[str, Case]:
    def arguments(batch: int, src_len: int, tgt_len: int, layers: int, d_model: int = 6) -> tuple:
        src = torch.cat(
            [_sentences(batch, src_len - 1, random), torch.full((batch, 1), EOS)], dim=1
        )
        src[1:, -2:] = torch.tensor([EOS, PAD])
        tgt_input = _sentences(batch, tgt_len, random)
        tgt_input[:, 0] = BOS
        return (
            src,
            tgt_input,
            _Embed(d_model, random),
            _Embed(d_model, random),
            [_EncoderLayer(d_model, random) for _ in range(layers)],
            [_DecoderLayer(d_model, random) for _ in range(layers)],
            torch.randn(VOCAB_SIZE, d_model, generator=random),
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
    src_embed: Embed,
    tgt_embed: Embed,
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
